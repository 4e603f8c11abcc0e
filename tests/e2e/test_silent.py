#!/usr/bin/env python3
"""A mount that is not heard: others wait for one lease, take what they want, and it goes on with the rest (FENCE-1)."""
import errno
import os
import signal
import time

import harness
from test_shared import LEASE, Mounts, read, write


class Silent(Mounts):
    def waited_for(self, path, data):
        """Writes what a silent mount holds: that takes one lease, and not much more."""
        started = time.monotonic()
        write(path, data)
        waited = time.monotonic() - started
        harness.log(f"waited {waited:.1f} s")
        self.assertLess(waited, LEASE + 3)

    def test_a_killed_mount_is_waited_for_one_lease(self):
        a, b = self.mounts()
        os.mkdir(os.path.join(a.path, "d"))
        write(os.path.join(a.path, "d", "kept"), b"kept")
        a.sync()
        os.listdir(b.path)
        write(os.path.join(a.path, "d", "f"), b"dirty")
        a.process.send_signal(signal.SIGKILL)
        self.waited_for(os.path.join(b.path, "d", "g"), b"b")
        self.assertEqual(read(os.path.join(b.path, "d", "kept")), b"kept")
        harness.take_away(a.path)
        b.unmount()

    def wait_active(self, mount):
        harness.until("the mount is active again", lambda: mount.status()["state"] == "active", 30, 0.2)

    def test_a_stopped_mount_loses_what_was_wanted(self):
        """FENCE-1: what touches it, and what came after it, is saved to a file."""
        saved = self.cluster.path("saved")
        a, b = self.mounts(2, "--flush-after", "60s", "--recovery-dir", saved)
        for name in ("d", "e"):
            os.mkdir(os.path.join(a.path, name))
        write(os.path.join(a.path, "d", "f"), b"old")
        a.sync()
        os.listdir(b.path)
        write(os.path.join(a.path, "e", "kept"), b"kept")
        held = os.open(os.path.join(a.path, "d", "f"), os.O_RDWR)
        os.write(held, b"dirty when stopped")
        write(os.path.join(a.path, "e", "late"), b"came after")
        fine = os.open(os.path.join(a.path, "e", "kept"), os.O_RDWR)
        # The order of the log is that in which bytes are taken for upload: this one takes those of the held file.
        os.rename(os.path.join(a.path, "d", "f"), os.path.join(a.path, "d", "g"))
        os.rename(os.path.join(a.path, "e", "late"), os.path.join(a.path, "e", "later"))
        a.process.send_signal(signal.SIGSTOP)
        self.waited_for(os.path.join(b.path, "d", "f"), b"b was here")
        a.process.send_signal(signal.SIGCONT)
        self.wait_active(a)
        for m in (a, b):
            self.assertEqual(read(os.path.join(m.path, "d", "f")), b"b was here")
            self.assertEqual(read(os.path.join(m.path, "e", "kept")), b"kept")
            self.assertEqual(os.listdir(os.path.join(m.path, "d")), ["f"])
            self.assertNotIn("later", os.listdir(os.path.join(m.path, "e")))
        with self.assertRaises(OSError) as told:
            os.fsync(held)
        self.assertEqual(told.exception.errno, errno.EIO)
        os.fsync(held)  # once
        os.fsync(fine)
        for fd in (held, fine):
            os.close(fd)
        status = a.status()
        self.assertGreater(status["lost_ops"], 0)
        shown = self.cluster.archil("recover-file", status["lost_file"]).out
        for part in ("/d/f", "/d/g", "/e/later", "18 bytes"):
            self.assertIn(part, shown)
        for name in ("d", "e"):
            fd = os.open(os.path.join(a.path, name), os.O_RDONLY)
            with self.assertRaises(OSError):
                os.fsync(fd)
            os.fsync(fd)
            os.close(fd)
        # What it wrote comes back beside what others wrote; the renames are done again.
        replayed = self.cluster.archil("recover-file", status["lost_file"], "--replay", a.path, check=False)
        harness.log(replayed.out)
        self.assertEqual(replayed.code, 1)
        self.assertEqual(read(os.path.join(a.path, "d", "g")), b"b was here")
        self.assertEqual(read(os.path.join(a.path, "d", "g.recovered")), b"dirty when stopped")
        self.assertEqual(read(os.path.join(a.path, "e", "later.recovered")), b"came after")
        write(os.path.join(a.path, "d", "again"), b"a goes on")
        self.check_cold(a, b)

    def test_a_stopped_mount_may_lose_nothing(self):
        a, b = self.mounts(2, "--flush-after", "60s")
        for name in ("d", "e"):
            os.mkdir(os.path.join(a.path, name))
        a.sync()
        os.listdir(os.path.join(b.path, "e"))
        write(os.path.join(a.path, "d", "f"), b"written before the lid was closed")
        held = os.open(os.path.join(a.path, "d", "f"), os.O_RDWR)
        a.process.send_signal(signal.SIGSTOP)
        write(os.path.join(b.path, "e", "of b"), b"b")
        time.sleep(LEASE + 2)
        write(os.path.join(b.path, "e", "of b too"), b"b")
        a.process.send_signal(signal.SIGCONT)
        self.wait_active(a)
        os.fsync(held)
        os.close(held)
        self.assertEqual(read(os.path.join(b.path, "d", "f")), b"written before the lid was closed")
        self.assertEqual(read(os.path.join(a.path, "e", "of b too")), b"b")
        self.assertEqual(a.status()["lost_ops"], 0)
        self.check_cold(a, b)

    def test_a_revoked_mount_is_fenced_and_saves_its_log(self):
        saved = self.cluster.path("saved")
        a, b = self.mounts(2, "--flush-after", "60s", "--recovery-dir", saved)
        os.mkdir(os.path.join(a.path, "d"))
        write(os.path.join(a.path, "d", "f"), b"not durable")
        self.cluster.archil("revoke", "d", "--client", str(a.status()["session"]))
        harness.until("the mount knows that it was fenced", lambda: a.status()["state"] == "fenced" and a.status()["lost_file"], 30, 0.2)
        with self.assertRaises(OSError):
            read(os.path.join(a.path, "d", "f"))
        self.assertIn("/d/f", self.cluster.archil("recover-file", a.status()["lost_file"]).out)
        self.cluster.archil("recover-file", a.status()["lost_file"], "--replay", b.path)
        self.assertEqual(read(os.path.join(b.path, "d", "f")), b"not durable")
        self.cluster.archil("unmount", "--force", a.path, check=False, timeout=30)
        b.unmount()


if __name__ == "__main__":
    harness.main(limit=400)
