#!/usr/bin/env python3
"""Memory stays in its bounds, and shrinks when told to."""
import sys
import unittest

import harness

WALKED = 200_000
MANY = 1_000_000

# Files of no bytes, made by as few calls as there are: mknod needs no handle.
MAKE = """
import os, stat, sys
root, first, count, folders = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for d in range(folders):
    folder = os.path.join(root, f"d{first + d}")
    os.mkdir(folder)
    fd = os.open(folder, os.O_RDONLY)
    for i in range(count // folders):
        os.mknod(f"file{i:04}", stat.S_IFREG | 0o644, dir_fd=fd)
    os.close(fd)
"""


class Memory(harness.ClusterTest):
    def walk(self, path):
        out = self.cluster.run(["find", path, "-size", "-1000", "-printf", "."], timeout=300).out
        return len(out)

    def make(self, path, first, count, folders):
        self.cluster.run([sys.executable, "-c", MAKE, path, first, count, folders], timeout=900)

    def test_client(self):
        cluster = self.cluster
        mount = self.start()
        self.make(mount.path, 0, WALKED, 400)
        mount.sync(timeout=300)
        harness.log(f"client after creating {WALKED}: {mount.rss_kib() // 1024} MiB")
        mount.unmount()
        mount.start()
        base = mount.rss_kib()
        self.assertGreaterEqual(self.walk(mount.path), WALKED)
        walked = mount.rss_kib()
        harness.log(f"client: {base // 1024} MiB at first, {walked // 1024} MiB after the walk; server {harness.rss_kib(cluster.servers['all'].pid) // 1024} MiB")
        self.assertLess(walked, 400 * 1024)
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
            f.write("2")  # the kernel's own memory of names holds inodes of ours
        cluster.archil("drop-caches", mount.path)
        harness.until("the client's memory shrinks", lambda: mount.rss_kib() < base + (walked - base) * 0.6, 30, pause=0.2)
        harness.log(f"client after drop-caches: {mount.rss_kib() // 1024} MiB")
        self.assertLess(mount.status()["inodes"], WALKED / 4)
        self.assertGreaterEqual(self.walk(mount.path), WALKED)
        mount.unmount()

    @unittest.skipUnless(harness.LONG, "a million files take their time: scripts/test.sh --long")
    def test_server(self):
        mount = self.start()
        for part in range(10):
            self.make(mount.path, part * 200, MANY // 10, 200)
            mount.sync(timeout=300)
        used = self.cluster.disk_show()["used_inodes"]
        server = harness.rss_kib(self.cluster.servers["all"].pid)
        harness.log(f"server with {used} inodes: {server // 1024} MiB; client {mount.rss_kib() // 1024} MiB")
        self.assertGreaterEqual(used, MANY)
        self.assertLess(server, 1024 * 1024)
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=1700 if harness.LONG else 400)
