#!/usr/bin/env python3
"""Nothing hangs: the server stops for a while, or for good."""
import errno
import os
import signal
import subprocess
import sys
import time

import harness


def in_child(code, *args):
    """A Python program of its own, so that it may wait in the kernel without taking the test along."""
    return subprocess.Popen([sys.executable, "-c", code, *[str(a) for a in args]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True)


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


LOAD = """
import os, sys
root, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    path = os.path.join(root, f"f{i}")
    with open(path + ".tmp", "wb") as f:
        f.write(b"%d" % i * 100)
        if i % 20 == 0:
            f.flush()
            os.fsync(f.fileno())
    os.rename(path + ".tmp", path)
print("finished", flush=True)
"""

FSYNC = """
import errno, os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"never to be durable")
started = time.monotonic()
try:
    os.fsync(fd)
    print("ok", flush=True)
except OSError as e:
    print(errno.errorcode[e.errno], round(time.monotonic() - started, 1), flush=True)
os._exit(0)
"""

READ = """
import sys
print(len(open(sys.argv[1], 'rb').read()), flush=True)
"""


class Hangs(harness.ClusterTest):
    def finish(self, child, limit):
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            state_then = state(child.pid)
            child.kill()
            raise AssertionError(f"not finished after {limit} s (state {state_then})") from None
        return child.returncode, out.decode().strip(), err.decode().strip()

    def assert_killable(self, child, limit=10):
        self.assertIsNone(child.poll())
        child.kill()
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            self.fail(f"a killed process is still there after {limit} s, in state {state(child.pid)}")

    def test_server_stopped_and_continued(self):
        mount = self.start()
        server = self.cluster.servers["all"]
        child = in_child(LOAD, mount.path, 3000)
        for _ in range(3):
            time.sleep(0.4)
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(2)
            os.kill(server.pid, signal.SIGCONT)
        code, out, err = self.finish(child, 90)
        self.assertEqual((code, out), (0, "finished"), err)
        mount.sync()
        self.assertEqual(len(os.listdir(mount.path)), 3000)
        mount.unmount()

    def test_server_stopped_longer_than_the_lease(self):
        """Nobody contradicted us meanwhile, so nothing is lost and nothing fails."""
        mount = self.start("--lease", "2s")
        server = self.cluster.servers["all"]
        child = in_child(LOAD, mount.path, 2000)
        time.sleep(0.5)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(server.pid, signal.SIGCONT)
        code, out, err = self.finish(child, 90)
        self.assertEqual((code, out), (0, "finished"), err)
        mount.sync()
        self.assertEqual(len(os.listdir(mount.path)), 2000)
        mount.unmount()

    def test_server_gone_for_good(self):
        cluster = self.cluster
        mount = self.start("--lease", "6s")
        path = os.path.join(mount.path, "cached")
        with open(path, "wb") as f:
            f.write(b"c" * 50_000)
        mount.sync()
        self.assertEqual(self.finish(in_child(READ, path), 10)[1], "50000")
        cluster.kill_server()
        gone = time.monotonic()
        while time.monotonic() < gone + 2.5:  # within the lease the cache serves
            self.assertEqual(self.finish(in_child(READ, path), 3)[1], "50000")
        fsync = in_child(FSYNC, os.path.join(mount.path, "new"))
        harness.until("the lease has run out", lambda: mount.status()["state"] not in ("active", "reconnecting"), 30)
        lookup = in_child("import os, sys; os.stat(sys.argv[1])", os.path.join(mount.path, "never looked up"))
        read = in_child(READ, path)
        time.sleep(1)
        # Answers that need the lease wait now, and a waiting process can be killed.
        self.assert_killable(lookup)
        if read.poll() is None:
            self.assert_killable(read)
        code, out, err = self.finish(fsync, 80)
        self.assertTrue(out.startswith("EIO "), f"{out} {err}")
        # Control commands need no server.
        self.assertEqual(mount.status()["disk"], "d")
        self.assertGreater(len(mount.metrics()), 10)
        waiting = in_child(READ, os.path.join(mount.path, "another name"))
        started = time.monotonic()
        result = cluster.archil("unmount", "--force", mount.path, check=False, timeout=20)
        self.assertLess(time.monotonic() - started, 10.5)
        harness.log("unmount --force:", result)
        harness.until("the mount is gone", lambda: harness.mount_device(mount.path) is None, 5)
        harness.until("the daemon is gone", lambda: mount.process.poll() is not None, 10)
        self.finish(waiting, 10)

    def test_server_back_after_the_lease(self):
        mount = self.start("--lease", "2s")
        path = os.path.join(mount.path, "f")
        with open(path, "wb") as f:
            f.write(b"1" * 1000)
        mount.sync()
        with open(path, "ab") as f:
            f.write(b"2" * 1000)
        self.cluster.kill_server()
        read = in_child(READ, path)
        time.sleep(5)
        self.cluster.start_server()
        self.assertEqual(self.finish(read, 30)[1], "2000")
        mount.sync()
        mount.unmount()
        mount.start()
        self.assertEqual(os.path.getsize(path), 2000)
        mount.unmount()

    def test_clean_unmount_without_server_is_bounded(self):
        mount = self.start("--lease", "2s")
        with open(os.path.join(mount.path, "f"), "wb") as f:
            f.write(b"x")
        self.cluster.kill_server()
        started = time.monotonic()
        result = self.cluster.archil("unmount", mount.path, check=False, timeout=110)
        harness.log(f"unmount without a server: {time.monotonic() - started:.1f} s,", result)
        self.assertNotEqual(result.code, 0)
        self.assertTrue(result.err.strip() or result.out.strip())
        self.cluster.archil("unmount", "--force", mount.path, check=False, timeout=20)
        harness.until("the mount is gone", lambda: harness.mount_device(mount.path) is None, 10)


if __name__ == "__main__":
    harness.main(limit=400)
