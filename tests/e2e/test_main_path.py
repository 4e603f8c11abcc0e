#!/usr/bin/env python3
"""git on a mounted disk, then everything again through a new server and an empty cache."""
import os

import harness

FILES = 9000


class MainPath(harness.ClusterTest):
    def timed(self, label, *args, cwd=None):
        result = self.cluster.git(*args, cwd=cwd)
        harness.log(f"git {label}: {result.seconds:.2f} s")
        return result.out

    def test_git_then_restart(self):
        cluster = self.cluster
        repo = harness.sample_repo(cluster.path("sample.git"), FILES)
        mount = self.start()
        work = os.path.join(mount.path, "work")
        self.timed("clone", "clone", "--quiet", "--no-hardlinks", repo, work)
        self.assertGreaterEqual(len(self.timed("ls-files", "ls-files", cwd=work).splitlines()), 5000)
        self.timed("checkout old", "checkout", "--quiet", "old", cwd=work)
        self.assertEqual(self.timed("status", "status", "--porcelain", cwd=work), "")
        self.timed("checkout new", "checkout", "--quiet", "new", cwd=work)
        self.timed("gc", "gc", "--quiet", cwd=work)
        self.timed("fsck", "fsck", "--full", "--no-progress", cwd=work)
        self.assertEqual(self.timed("status", "status", "--porcelain", cwd=work), "")
        # The same checkout on the host must give the same content and modes; times are each its own.
        local = cluster.path("local")
        cluster.git("clone", "--quiet", repo, local)
        cluster.git("checkout", "--quiet", "new", cwd=local)
        harness.compare_trees(self, harness.tree_digest(local, times=False, skip={b".git"}),
                              harness.tree_digest(work, times=False, skip={b".git"}))

        before = harness.tree_digest(mount.path)
        inodes = inode_numbers(mount.path)
        mount.unmount()
        cluster.stop_server()
        cluster.start_server()
        mount.start()
        harness.compare_trees(self, before, harness.tree_digest(mount.path))
        self.assertEqual(inodes, inode_numbers(mount.path))
        # The index remembers inode numbers and ctimes: a clean status without re-reading proves that they are the same.
        self.assertEqual(self.timed("status after restart", "status", "--porcelain", cwd=work), "")
        self.timed("fsck after restart", "fsck", "--full", "--no-progress", cwd=work)
        self.timed("checkout old after restart", "checkout", "--quiet", "old", cwd=work)
        self.assertEqual(self.timed("status", "status", "--porcelain", cwd=work), "")
        mount.unmount()
        cluster.stop_server()

    def test_server_killed_after_sync(self):
        """What `archil sync` covered survives kill -9 of daemon and server together."""
        cluster = self.cluster
        repo = harness.sample_repo(cluster.path("sample.git"), 600)
        mount = self.start("--lease", "2s")
        work = os.path.join(mount.path, "work")
        cluster.git("clone", "--quiet", "--no-hardlinks", repo, work)
        before = harness.tree_digest(mount.path)
        mount.sync()
        cluster.kill_server()
        mount.kill()
        cluster.start_server()
        mount.start(retry_held=30)
        harness.compare_trees(self, before, harness.tree_digest(mount.path))
        cluster.git("fsck", "--full", "--no-progress", cwd=work)
        mount.unmount()


def inode_numbers(root):
    return {os.path.relpath(os.path.join(folder, name), root): os.lstat(os.path.join(folder, name)).st_ino
            for folder, folders, names in os.walk(root) for name in folders + names}


if __name__ == "__main__":
    harness.main(limit=560)
