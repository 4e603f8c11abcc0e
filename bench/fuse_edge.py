#!/usr/bin/env python3
"""What the kernel's edge costs, with and without the polling reader: archil_null_mount under creates, untar and rm.

  bench/fuse_edge.py BIN_DIR [ROUNDS]

Rounds alternate between the settings, so that what else the machine does falls on all of them; the median is printed.
"""
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

POLL_US = (0, 20, 50, 100)
FILES = 10_000


def timed(work):
    started = time.monotonic()
    work()
    return time.monotonic() - started


def create(root):
    data = b"x" * 1024
    for d in range(100):
        os.mkdir(f"{root}/d{d}")
        for f in range(FILES // 100):
            fd = os.open(f"{root}/d{d}/f{f}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            os.write(fd, data)
            os.close(fd)


def one_round(program, poll_us, archive):
    root = tempfile.mkdtemp(prefix="archil-edge-")
    daemon = subprocess.Popen([program, root, str(poll_us)], stdout=subprocess.DEVNULL)
    try:
        while not os.path.ismount(root):
            time.sleep(0.01)
        os.mkdir(f"{root}/u")
        times = {
            "create": timed(lambda: create(root)),
            "stat": timed(lambda: subprocess.run(["find", root, "-size", "+1"], stdout=subprocess.DEVNULL, check=True)),
            "untar": timed(lambda: subprocess.run(["tar", "xf", archive, "-C", f"{root}/u"], check=True)),
            "rm": timed(lambda: subprocess.run(["rm", "-rf", f"{root}/u"], check=True)),
        }
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(20)
        os.rmdir(root)
    return times


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    program = os.path.join(sys.argv[1], "archil_null_mount")
    rounds = int(sys.argv[2]) if len(sys.argv) == 3 else 5
    results = {p: [] for p in POLL_US}
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "a.tar")
        subprocess.run(["tar", "cf", archive, "-C", "/usr/include", "."], check=True)
        for _ in range(rounds):
            for poll_us in POLL_US:
                results[poll_us].append(one_round(program, poll_us, archive))
    for poll_us, runs in results.items():
        cells = [f"{name} {statistics.median(r[name] for r in runs):6.2f} s" for name in runs[0]]
        print(f"poll {poll_us:4} us: " + "  ".join(cells))


if __name__ == "__main__":
    main()
