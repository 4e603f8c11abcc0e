#!/usr/bin/env python3
"""Runs clang's thread-safety analysis over the sources of a build.

usage: thread_safety.py COMPILE_COMMANDS_JSON [PATH_PART…]

Only syntax and annotations are checked, nothing is compiled. With PATH_PARTs: only files whose path holds one of them.
Exit code 1 if any file has a finding.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

CLANG = os.environ.get("CLANGXX", "clang++-14")
KEEP_WITH_NEXT = ("-I", "-isystem", "-D", "-U", "-include")


def clang_command(entry):
    """The command of another compiler, reduced to what says how the file is to be read."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    kept = []
    take = False
    for word in words:
        if take:
            kept.append(word)
            take = False
        elif word in KEEP_WITH_NEXT:
            kept.append(word)
            take = True
        elif word.startswith(KEEP_WITH_NEXT):
            kept.append(word)
    return [CLANG, "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety", "-std=c++20", *kept, entry["file"]]


def analyse(entry):
    result = subprocess.run(clang_command(entry), cwd=entry["directory"], capture_output=True, text=True, timeout=600)
    return entry["file"], result.returncode, result.stderr


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        entries = json.load(f)
    parts = sys.argv[2:]
    src = os.sep + "src" + os.sep
    entries = [e for e in entries if src in e["file"] and os.sep + "build" + os.sep not in e["file"]]
    entries = [e for e in entries if not parts or any(part in e["file"] for part in parts)]
    if not entries:
        sys.exit("thread_safety.py: no sources to analyse")
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for number, (path, code, text) in enumerate(pool.map(analyse, entries), 1):
            if code != 0:
                bad += 1
                print(f"{path}:\n{text}")
            elif number % 25 == 0:
                print(f"        {number} of {len(entries)} files", flush=True)
    print(f"thread-safety analysis: {len(entries) - bad} of {len(entries)} files without findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
