#!/usr/bin/env python3
"""What work costs, counted and not timed: upcalls of the kernel, commits, operations and round trips."""
import os
import time

import harness

FILES, FOLDERS = 10_000, 100


def make_files(root, files=FILES, folders=FOLDERS):
    for d in range(folders):
        folder = os.path.join(root, f"d{d}")
        os.mkdir(folder)
        for i in range(files // folders):
            fd = os.open(os.path.join(folder, f"f{i}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            os.write(fd, b"x" * 1000)
            os.close(fd)


class Budgets(harness.ClusterTest):
    options = ()  # of the mount
    per_small_file = 6.1  # 6 a file, and the directories
    per_cached_read = 2.1
    per_clone = 9.5

    def start(self, *args):
        return super().start(*self.options, *args)

    def spent(self, before):
        delta = harness.difference(before, self.mount.metrics())
        harness.log({k: v for k, v in sorted(delta.items()) if k.startswith(("upcall_", "rpc_", "ops_", "commit", "append"))})
        return delta

    def test_small_files(self):
        self.mount = self.start()
        make_files(self.mount.path, 1, 1)  # the kernel learns what it need not ask
        os.rename(os.path.join(self.mount.path, "d0"), os.path.join(self.mount.path, "warm"))
        with open(os.path.join(self.mount.path, "warm", "f0"), "rb") as f:
            f.read()
        before = self.mount.metrics()
        make_files(self.mount.path)
        self.mount.sync()
        delta = self.spent(before)
        per_file = harness.upcalls(delta) / FILES
        harness.log(f"{per_file:.2f} upcalls a file, {delta['commits']} commits")
        self.assertLessEqual(per_file, self.per_small_file)
        self.assertGreater(per_file, 1)
        self.assertLess(delta["commits"], 50)
        self.assertGreater(delta["commits"], 0)
        self.assertLess(harness.rpcs(delta), FILES / 10)

        def read_all():
            for i in range(FILES // FOLDERS):
                with open(os.path.join(self.mount.path, "d0", f"f{i}"), "rb", buffering=0) as f:
                    self.assertEqual(len(f.read(2000)), 1000)
        read_all()
        read_all()  # the times of the first reading are asked for
        before = self.mount.metrics()
        read_all()
        per_file = harness.upcalls(self.spent(before)) / (FILES // FOLDERS)
        harness.log(f"cached open, read, close: {per_file:.2f} upcalls")
        self.assertLessEqual(per_file, self.per_cached_read)
        self.mount.unmount()

    def test_warm_git_status(self):
        repo = harness.sample_repo(self.cluster.path("sample.git"), 5000)
        self.mount = self.start()
        work = os.path.join(self.mount.path, "work")
        before = self.mount.metrics()
        self.cluster.git("clone", "--quiet", "--no-hardlinks", repo, work)
        delta = self.spent(before)
        cloned = harness.upcalls(delta) / len(self.cluster.git("ls-files", cwd=work).out.splitlines())
        harness.log(f"clone: {cloned:.2f} upcalls a file")
        self.assertLessEqual(cloned, self.per_clone)
        # git reads files again that are as young as its index, in whole seconds: only then it is warm.
        for _ in range(2):
            time.sleep(1.1)
            self.cluster.git("status", "--porcelain", cwd=work)
        files = len(self.cluster.git("ls-files", cwd=work).out.splitlines())
        before = self.mount.metrics()
        self.assertEqual(self.cluster.git("status", "--porcelain", cwd=work).out, "")
        delta = self.spent(before)
        per_file = harness.upcalls(delta) / files
        harness.log(f"warm git status: {per_file:.3f} upcalls a file of {files}")
        self.assertLessEqual(per_file, 0.1)
        self.mount.unmount()

    def test_born_and_dead_files_cost_nothing(self):
        self.mount = self.start("--flush-after", "60s", "--flush-ops", "100000")
        scratch = os.path.join(self.mount.path, "scratch")
        os.mkdir(scratch)
        self.mount.sync()
        before = self.mount.metrics()
        for i in range(10_000):
            path = os.path.join(scratch, f"t{i}")
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            os.write(fd, b"y" * 500)
            os.close(fd)
            os.unlink(path)
        self.mount.sync()
        delta = self.spent(before)
        self.assertGreaterEqual(delta.get("ops_absorbed", 0), 20_000)
        self.assertLessEqual(delta.get("ops_sent", 0), 10)  # the times of the directory
        self.assertLess(delta.get("append_bytes", 0) + delta.get("inline_bytes", 0), 100_000)
        self.mount.unmount()

    def test_one_fsync_is_one_rpc(self):
        self.mount = self.start("--flush-after", "60s", "--flush-ops", "100000")
        fd = os.open(os.path.join(self.mount.path, "f"), os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, b"a" * 4096, 0)
        os.fsync(fd)
        for i in range(5):
            os.pwrite(fd, bytes([i]) * 4096, 4096 * (i % 3))
            before = self.mount.metrics()
            os.fsync(fd)
            delta = self.spent(before)
            self.assertEqual(harness.rpcs(delta), 1, delta)
            before = self.mount.metrics()
            os.fsync(fd)  # nothing new
            self.assertEqual(harness.rpcs(self.spent(before)), 0)
        os.close(fd)
        self.mount.unmount()


class ExclusiveBudgets(Budgets):
    options = ("--exclusive",)
    per_small_file = 4.1
    per_cached_read = 0.02
    per_clone = 8.5

    def test_removing_a_tree(self):
        self.mount = self.start()
        make_files(self.mount.path, 2000, 20)
        self.mount.sync()
        before = self.mount.metrics()
        self.cluster.run(["rm", "-rf", *(os.path.join(self.mount.path, f"d{d}") for d in range(20))])
        self.mount.sync()
        delta = self.spent(before)
        self.assertLessEqual(harness.upcalls(delta) / 2020, 2.5)
        self.mount.unmount()


if __name__ == "__main__":
    harness.main(limit=280)
