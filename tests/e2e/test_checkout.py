#!/usr/bin/env python3
"""archil checkout and checkin on real mounts (docs/delegation.md): others read through the holder and change nothing."""
import errno
import json
import mmap
import os
import threading
import time

import harness
from scenes import read, write

LEASE = 3  # seconds


class Checkout(harness.ClusterTest):
    def scene(self):
        self.cluster.start_server()
        self.cluster.create_disk("d")
        a, b = [self.cluster.mount("d", f"m{i}", "--lease", f"{LEASE}s") for i in range(2)]
        os.makedirs(os.path.join(a.path, "tree", "sub"))
        write(os.path.join(a.path, "tree", "sub", "f"), b"first")
        self.assertEqual(read(os.path.join(b.path, "tree", "sub", "f")), b"first")
        return a, b

    def refused(self, do, *args):
        with self.assertRaises(OSError) as caught:
            do(*args)
        self.assertEqual(caught.exception.errno, errno.EBUSY)

    def change(self, mount):
        """Every kind of change of the tree, refused."""
        tree = os.path.join(mount.path, "tree")
        f = os.path.join(tree, "sub", "f")
        self.refused(write, f, b"x")
        self.refused(write, os.path.join(tree, "new"), b"x")
        self.refused(os.mkdir, os.path.join(tree, "sub", "d"))
        self.refused(os.unlink, f)
        self.refused(os.rename, f, os.path.join(mount.path, "out"))
        self.refused(os.rename, os.path.join(tree, "sub"), os.path.join(mount.path, "out"))
        self.refused(os.link, f, os.path.join(mount.path, "second"))
        self.refused(os.chmod, f, 0o600)
        self.refused(os.truncate, f, 0)
        self.refused(os.symlink, "x", os.path.join(tree, "link"))
        fd = os.open(f, os.O_RDWR)  # opening changes nothing
        self.refused(os.write, fd, b"x")
        os.close(fd)

    def test_read_through_and_refused(self):
        a, b = self.scene()
        tree = os.path.join(a.path, "tree")
        self.assertIn("checked out", self.cluster.archil("checkout", tree).out)
        rows = json.loads(self.cluster.archil("delegations", "--json", a.path).out)
        self.assertTrue(any(r["scope"] == "checkout" and r["path"] == "/tree" for r in rows), rows)
        mine, theirs = os.path.join(a.path, "tree", "sub", "f"), os.path.join(b.path, "tree", "sub", "f")
        for i in range(50):
            write(mine, b"%d " % i * (i + 1))
            self.assertEqual(read(theirs), b"%d " % i * (i + 1))
            self.assertEqual(os.stat(theirs).st_size, os.stat(mine).st_size)
        for i in range(20):
            write(os.path.join(tree, f"n{i}"), b"x")
            self.assertTrue(os.path.exists(os.path.join(b.path, "tree", f"n{i}")))
            self.assertFalse(os.path.exists(os.path.join(b.path, "tree", f"n{i + 1}")))
            self.assertEqual(sorted(os.listdir(os.path.join(b.path, "tree"))), sorted(os.listdir(tree)))
        os.setxattr(mine, "user.k", b"v")
        self.assertEqual(os.getxattr(theirs, "user.k"), b"v")
        self.change(b)
        os.mkdir(os.path.join(b.path, "beside"))  # nobody minds
        self.assertIn("checked in", self.cluster.archil("checkin", tree).out)
        write(theirs, b"mine now")
        self.assertEqual(read(mine), b"mine now")

    def test_a_reader_in_a_loop_does_not_slow_the_holder(self):
        a, b = self.scene()
        self.cluster.archil("checkout", os.path.join(a.path, "tree"))
        theirs = os.path.join(b.path, "tree", "sub", "f")
        stop, reads, errors = threading.Event(), [0], []

        def loop():
            try:
                while not stop.is_set():
                    self.assertTrue(read(theirs).startswith(b"v"))
                    reads[0] += 1
            except BaseException as e:  # noqa: B902
                errors.append(e)

        fd = os.open(os.path.join(a.path, "tree", "sub", "f"), os.O_RDWR)
        os.pwrite(fd, b"v0000000", 0)
        reader = threading.Thread(target=loop, daemon=True)
        reader.start()
        before = a.metrics()
        worst, writes, end = 0, 0, time.monotonic() + 2
        while time.monotonic() < end:
            started = time.monotonic()
            os.pwrite(fd, b"v%07d" % writes, 0)
            worst = max(worst, time.monotonic() - started)
            writes += 1
        stop.set()
        reader.join(harness.STEP)
        self.assertFalse(reader.is_alive())
        self.assertEqual(errors, [])
        after = a.metrics()
        os.close(fd)
        harness.log(f"{writes} writes beside {reads[0]} reads of another mount, the slowest {worst * 1e3:.1f} ms, "
                    f"{after['rpc_acquire'] - before['rpc_acquire']} rights asked for")
        self.assertGreater(reads[0], 10)
        self.assertEqual(after["rpc_acquire"], before["rpc_acquire"])

    def test_open_before_and_mapped(self):
        """Whoever had it open before: its kernel keeps pages, so it holds READ in between, and sees the truth."""
        a, b = self.scene()
        fd = os.open(os.path.join(b.path, "tree", "sub", "f"), os.O_RDONLY)
        mapped = mmap.mmap(fd, 5, prot=mmap.PROT_READ)
        self.assertEqual(mapped[:], b"first")
        self.cluster.archil("checkout", os.path.join(a.path, "tree"))
        mine = os.open(os.path.join(a.path, "tree", "sub", "f"), os.O_WRONLY)
        for i in range(20):
            os.pwrite(mine, b"%05d" % i, 0)
            self.assertEqual(os.pread(fd, 5, 0), b"%05d" % i)
            self.assertEqual(mapped[:], b"%05d" % i)
        os.close(mine)
        mapped.close()
        os.close(fd)

    def test_refused_named_forced_and_over(self):
        a, b = self.scene()
        self.cluster.archil("checkout", os.path.join(a.path, "tree", "sub"))
        for path in ("", "tree", "tree/sub"):
            held = self.cluster.archil("checkout", os.path.join(b.path, path), check=False)
            self.assertEqual(held.code, 6, held)
            self.assertIn("m0", held.err)
            self.assertIn("--force", held.err)
        mine = os.path.join(a.path, "tree", "sub", "f")
        write(mine, b"acknowledged")
        self.cluster.archil("checkout", "--force", os.path.join(b.path, "tree"))
        self.assertEqual(read(os.path.join(b.path, "tree", "sub", "f")), b"acknowledged")
        self.change(a)
        # A server that comes back knows it from the holder; a holder that is gone keeps nobody out for longer than its lease.
        self.cluster.kill_server()
        self.cluster.start_server()
        self.change(a)
        b.kill()
        started = time.monotonic()
        harness.until("the checkout of a dead mount ends", lambda: self.try_write(mine), LEASE * 3)
        harness.log(f"free {time.monotonic() - started:.1f} s after its holder was killed, lease {LEASE} s")

    @staticmethod
    def try_write(path):
        try:
            write(path, b"free")
            return True
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise
            return False

    def test_errors_say_what_to_do(self):
        a, _ = self.scene()
        for command in ("checkout", "checkin"):
            for path, word in ((os.path.join(a.path, "tree", "sub", "f"), "not a directory"), ("/tmp", "not on a mounted disk"),
                               (os.path.join(a.path, "nowhere"), "No such file")):
                bad = self.cluster.archil(command, path, check=False)
                self.assertEqual(bad.code, 5, bad)
                self.assertIn(word, bad.err)
        never = self.cluster.archil("checkin", os.path.join(a.path, "tree"), check=False)
        self.assertEqual(never.code, 1, never)
        self.assertIn("has not checked it out", never.err)


if __name__ == "__main__":
    harness.main(300)
