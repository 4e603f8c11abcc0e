#!/usr/bin/env python3
"""Verifies delegation.pml with spin, and that spin refutes each planted variant of it.

  check.py            all; exit code 0 if the model holds and every variant is refuted
  check.py NAME…      only these (`safety`, `liveness`, or a variant); the trail of a refuted one is printed with --trail
"""
import os
import re
import subprocess
import sys
import tempfile
import time

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "delegation.pml")
LIMIT = 1000  # seconds of one run
LONG = os.environ.get("ARCHIL_TEST_LONG") == "1"

# Name: (definitions, with liveness, states that the search must have seen at least)
HOLDS = {
    "safety": (["WANTS=3", "LOSSES=1", "CUTS=1" if LONG else "CUTS=0"], False, 300_000),
    "safety-silent": (["WANTS=3", "LOSSES=0", "CUTS=1"], False, 300_000),
    "liveness": (["LIVE=1", "LOSSES=0", "CUTS=0"], True, 2_000),
    "liveness-cut": (["LIVE=1", "LOSSES=0", "CUTS=1"], True, 10_000),
    "liveness-child": (["LIVE=2", "LOSSES=0", "CUTS=0"], True, 10_000),
}
REFUTED = {
    # a recall is answered while the grant that it ends is on its way, and that is believed when it comes
    "NO_NUMBERS": (["WANTS=3", "LOSSES=0", "CUTS=0"], False),
    # a recall is answered before what it names is committed
    "ANSWER_FIRST": (["WANTS=3", "LOSSES=0", "CUTS=0"], False),
    # a child that a directory covers is forgotten when another wants it
    "NO_COVER": (["WANTS=3", "LOSSES=0", "CUTS=0"], False),
    # a grant on the directory covers a child that another holds
    "NO_EXCEPT": (["WANTS=3", "LOSSES=0", "CUTS=0"], False),
    # an answer counts whatever its number
    "ANSWER_ANY": (["WANTS=3", "LOSSES=1", "CUTS=0"], False),
    # a silent session is ended before its client has stopped
    "NO_LEASE": (["WANTS=3", "LOSSES=0", "CUTS=1"], False),
    # the commit of an ended session is applied
    "NO_FENCE": (["WANTS=3", "LOSSES=0", "CUTS=1"], False),
    # a READ passes a WRITE that waits
    "NO_ORDER": (["LIVE=1", "LOSSES=0", "CUTS=0"], True),
}


def run(folder, name, definitions, live):
    """(errors, states, depth reached in full, output)."""
    work = os.path.join(folder, name)
    os.mkdir(work)

    def call(*args):
        done = subprocess.run(args, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(args)}:\n{done.stdout}")
        return done.stdout

    call("spin", *[f"-D{d}" for d in definitions], "-a", MODEL)
    call("gcc", "-w", "-O1", "-DCOLLAPSE", "-DMEMLIM=1900", *(["-DNFAIR=5"] if live else ["-DSAFETY", "-DNOCLAIM"]), "-o", "pan", "pan.c")
    out = call("./pan", "-m1000000", *(["-a", "-f"] if live else ["-E"]))
    errors = re.search(r"errors: (\d+)", out)
    states = re.search(r"(\d+)(?:e\+\d+)? states, stored", out)
    if errors is None or states is None:
        sys.exit(f"{name}: the search did not end:\n{out}")
    whole = "max search depth too small" not in out and "Search not completed" not in out
    return int(errors.group(1)), int(states.group(1)), whole, out


def main(arguments):
    trail = "--trail" in arguments
    wanted = [a for a in arguments if a != "--trail"] or [*HOLDS, *REFUTED]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            started = time.monotonic()
            if name in HOLDS:
                definitions, live, least = HOLDS[name]
                errors, states, whole, out = run(folder, name, definitions, live)
                good = errors == 0 and whole and states >= least
            else:
                definitions, live = REFUTED[name]
                errors, states, whole, out = run(folder, name, [name, *definitions], live)
                good = errors > 0
            print(f"{'ok  ' if good else 'FAIL'} {name}: {errors} errors, {states} states, {time.monotonic() - started:.1f} s", flush=True)
            if not good:
                failed += 1
                print(out)
            if trail and errors:
                print(subprocess.run(["./pan", "-r", "-n"], cwd=os.path.join(folder, name), stdout=subprocess.PIPE,
                                     text=True, check=False).stdout[-6000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
