#!/usr/bin/env python3
"""A disk with a quota, on real mounts (docs/quota.md): what was acknowledged is kept, the quota is filled and never exceeded, and what one
mount frees another can use at once."""
import errno
import hashlib
import os
import threading

import harness

MIB = 1 << 20
BLOCK = 128 << 10
LEASE = 5  # seconds


class Quota(harness.ClusterTest):
    def start_disk(self, quota, mounts=2, *args):
        self.cluster.start_server()
        self.cluster.archil("disk", "create", "d", "--quota", str(quota))
        return [self.cluster.mount("d", f"m{i}", "--lease", f"{LEASE}s", *args) for i in range(mounts)]

    def used(self):
        return self.cluster.disk_show("d")["used_bytes"]

    def fill(self, path, seed, limit=None):
        """Writes until ENOSPC, or so many bytes; what was acknowledged."""
        written = bytearray()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            while limit is None or len(written) < limit:
                block = hashlib.sha256(b"%d %d" % (seed, len(written))).digest() * (BLOCK // 32)
                try:
                    n = os.write(fd, block)
                except OSError as e:
                    self.assertEqual(e.errno, errno.ENOSPC)
                    break
                written += block[:n]
            os.fsync(fd)
        finally:
            os.close(fd)
        return bytes(written)

    def check(self, mount, name, content):
        with open(os.path.join(mount.path, name), "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), hashlib.sha256(content).hexdigest(), name)

    def test_two_mounts_fill_a_disk(self):
        a, b = self.start_disk(64 * MIB)
        content = {}

        def work(mount, name, seed):
            content[name] = self.fill(os.path.join(mount.path, name), seed)

        threads = [threading.Thread(target=work, args=(m, n, s), daemon=True) for m, n, s in ((a, "a", 1), (b, "b", 2))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(harness.STEP)
            self.assertFalse(t.is_alive(), "hangs")
        self.assertEqual(sorted(content), ["a", "b"])
        sizes = {n: len(c) for n, c in content.items()}
        harness.log(f"{sizes} bytes, {a.metrics()['rpc_reserve_space']} and {b.metrics()['rpc_reserve_space']} reservations")
        self.assertEqual(sum(sizes.values()), 64 * MIB)
        self.assertEqual(self.used(), 64 * MIB)
        for m in (a, b):
            stat = os.statvfs(m.path)
            self.assertEqual(stat.f_bavail, 0)
            self.assertEqual(stat.f_blocks * stat.f_frsize, 64 * MIB)
        # A full disk can be worked on: names are made, what is there is overwritten, removing frees.
        with open(os.path.join(b.path, "a"), "r+b") as f:
            f.write(b"new beginning")
        content["a"] = b"new beginning" + content["a"][13:]
        os.mkdir(os.path.join(b.path, "dir"))
        os.close(os.open(os.path.join(a.path, "dir", "empty"), os.O_CREAT | os.O_WRONLY, 0o644))
        with open(os.path.join(a.path, "dir", "empty"), "wb") as f, self.assertRaises(OSError) as caught:
            os.posix_fallocate(f.fileno(), 0, MIB)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        for m in (a, b):
            m.unmount()
        fresh = self.cluster.mount("d", "fresh")
        for name, bytes_ in content.items():
            self.check(fresh, name, bytes_)

    def test_what_one_frees_the_other_writes_at_once(self):
        a, b = self.start_disk(16 * MIB)
        for i in range(5):
            old, new = (a, b) if i % 2 == 0 else (b, a)
            self.assertEqual(len(self.fill(os.path.join(old.path, "big"), i)), 16 * MIB)
            os.unlink(os.path.join(old.path, "big"))
            self.assertEqual(len(self.fill(os.path.join(new.path, "big"), i, 16 * MIB)), 16 * MIB, f"round {i}")
            os.unlink(os.path.join(new.path, "big"))

    def test_a_stopped_mount_keeps_its_room(self):
        a, b = self.start_disk(16 * MIB)
        for m, d in ((a, "da"), (b, "db")):  # each in its own directory: nobody wants what the other has
            os.mkdir(os.path.join(m.path, d))
            m.sync()
        fd = os.open(os.path.join(a.path, "da", "a"), os.O_WRONLY | os.O_CREAT, 0o644)
        mine = os.urandom(2 * MIB)
        os.write(fd, mine)
        os.kill(a.pid, 19)  # SIGSTOP: acknowledged, not sent
        try:
            theirs = self.fill(os.path.join(b.path, "db", "b"), 1)
        finally:
            os.kill(a.pid, 18)
        harness.log(f"{len(theirs)} bytes beside the {len(mine)} of a mount that is stopped")
        self.assertLessEqual(len(theirs), 14 * MIB)
        os.fsync(fd)
        os.close(fd)
        self.assertEqual(self.used(), len(mine) + len(theirs))
        self.check(b, "da/a", mine)
        self.check(a, "db/b", theirs)

    def test_a_server_restart_while_the_disk_fills(self):
        a, b = self.start_disk(64 * MIB)
        content = {}

        def work(mount, name, seed):
            content[name] = self.fill(os.path.join(mount.path, name), seed)

        threads = [threading.Thread(target=work, args=(m, n, s), daemon=True) for m, n, s in ((a, "a", 1), (b, "b", 2))]
        for t in threads:
            t.start()
        self.cluster.kill_server()
        self.cluster.start_server()
        for t in threads:
            t.join(harness.STEP)
            self.assertFalse(t.is_alive(), "hangs")
        self.assertEqual(sum(len(c) for c in content.values()), 64 * MIB)
        self.assertEqual(self.used(), 64 * MIB)
        self.check(b, "a", content["a"])
        self.check(a, "b", content["b"])

    def test_errors_say_what_to_do(self):
        self.cluster.start_server()
        bad = self.cluster.archil("disk", "create", "d", "--quota", "much", check=False)
        self.assertNotEqual(bad.code, 0)
        self.assertIn("quota", bad.err)


if __name__ == "__main__":
    harness.main(300)
