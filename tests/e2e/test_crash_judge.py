#!/usr/bin/env python3
"""The judge of crash tests, judged: it accepts what a crash may leave and refuses what it may not."""
import itertools
import os
import random
import shutil
import tempfile
import unittest

import crash_load
import harness


def materialise(model, root, choose):
    """Writes a model's state to the host, with the content that choose(inode) picks."""
    os.makedirs(root)
    first = {}
    for path, ino in sorted(model.paths().items()):
        full, inode = os.path.join(root, path), model.inodes[ino]
        if inode.kind == "d":
            os.mkdir(full)
        elif inode.kind == "l":
            os.symlink(inode.target, full)
        elif ino in first:
            os.link(first[ino], full)
        else:
            first[ino] = full
            with open(full, "wb") as f:
                f.write(choose(inode))
        if inode.kind != "l":
            os.chmod(full, inode.mode)
            for name, value in inode.xattrs.items():
                os.setxattr(full, name, value.encode())


class CrashJudge(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="archil-judge-", dir=harness.TMP)
        self.addCleanup(shutil.rmtree, self.folder)
        self.seed = harness.test_seed()

    def record(self, seed, ops=600):
        root, log = os.path.join(self.folder, f"load{seed}"), os.path.join(self.folder, f"log{seed}")
        os.mkdir(root)
        old = os.umask(0)
        try:
            load = crash_load.Load(root, log, seed, root)
            self.assertEqual(load.run(limit=ops), 0)
        finally:
            os.umask(old)
        return root, crash_load.Record(log)

    def state(self, record, k, name, choose=lambda inode: inode.versions[-1][1]):
        model = crash_load.Model()
        for i in range(k):
            model.apply(i, record.ops[i])
        root = os.path.join(self.folder, name)
        materialise(model, root, choose)
        return root, model

    def test_host_keeps_everything(self):
        root, record = self.record(self.seed)
        self.assertTrue(record.finished)
        self.assertIn(len(record.ops), crash_load.candidates(record, root, exact=True))

    def test_every_prefix_is_accepted_and_fsync_counts(self):
        _, record = self.record(self.seed + 1)
        floor, _ = record.promises()
        self.assertGreater(floor, 0)
        rng = random.Random(self.seed)
        for k in sorted(rng.sample(range(len(record.ops) + 1), 25)):
            root, _ = self.state(record, k, f"prefix{k}")
            if k >= floor:
                self.assertIn(k, crash_load.candidates(record, root))
            elif k < floor - 20:
                with self.assertRaises(AssertionError):
                    crash_load.candidates(record, root)

    def test_damage_is_refused(self):
        # A load whose end has something to damage in every way: enough files with bytes, and one with two names.
        def damageable(record):
            model = crash_load.Model()
            for i, op in enumerate(record.ops):
                model.apply(i, op)
            inodes = [i for i in model.paths().values() if model.inodes[i].kind == "f"]
            full = {i for i in inodes if len(model.inodes[i].versions[-1][1]) > 10}
            return len(full) > 6 and len(set(inodes)) < len(inodes)

        record = next(r for r in (self.record(self.seed + n)[1] for n in itertools.count(2)) if damageable(r))
        damages = itertools.count()

        def refused(change):
            root, model = self.state(record, len(record.ops), f"damage{next(damages)}")
            files = sorted(p for p, i in model.paths().items() if model.inodes[i].kind == "f" and len(model.inodes[i].versions[-1][1]) > 10)
            change(root, files, model)
            with self.assertRaises(AssertionError):
                crash_load.candidates(record, root)

        def flip(root, files, model):
            with open(os.path.join(root, files[3]), "r+b") as f:
                f.write(bytes([f.read(1)[0] ^ 1]))

        def zeros(root, files, model):
            path = os.path.join(root, files[5])
            size = os.path.getsize(path)
            with open(path, "wb") as f:
                f.truncate(size)

        def mixture(root, files, model):  # the last change is there, one in the middle is not
            os.unlink(os.path.join(root, files[len(files) // 2]))

        def stray(root, files, model):
            open(os.path.join(root, "stray"), "w").close()

        def broken_link(root, files, model):
            counts = {}
            for path, ino in model.paths().items():
                counts.setdefault(ino, []).append(path)
            paths = next(p for i, p in counts.items() if len(p) > 1 and model.inodes[i].kind == "f")
            full = os.path.join(root, paths[0])
            shutil.copy2(full, full + ".copy")
            os.replace(full + ".copy", full)

        for change in (flip, zeros, mixture, stray, broken_link):
            with self.subTest(change.__name__):
                refused(change)

    def test_data_may_lag_but_not_behind_a_rename(self):
        ops = [["create", "a", 0o644], ["write", "a", 0, 100, 1], ["create", "b", 0o644], ["write", "b", 0, 100, 2], ["rename", "b", "c"]]
        record = self.made(ops)
        lag, _ = self.state(record, 5, "lag", lambda inode: b"" if inode.versions[-1][1] == crash_load.content(1, 100) else inode.versions[-1][1])
        self.assertEqual(crash_load.candidates(record, lag), [5])
        empty, _ = self.state(record, 5, "empty", lambda inode: b"")
        with self.assertRaises(AssertionError):  # ORD-2
            crash_load.candidates(record, empty)
        early, _ = self.state(record, 4, "early", lambda inode: b"")
        self.assertEqual(crash_load.candidates(record, early), [3, 4])

    def test_fsync_pins_content(self):
        ops = [["create", "a", 0o644], ["write", "a", 0, 100, 1], ["mkdir", "d", 0o755], ["fsync", "a"], ["write", "a", 50, 100, 2]]
        record = self.made(ops)
        self.assertEqual(record.promises(), (2, {0: 1}))
        for name, data, good in (("none", b"", False), ("first", crash_load.content(1, 100), True),
                                 ("second", crash_load.content(1, 100)[:50] + crash_load.content(2, 100), True)):
            root, _ = self.state(record, 5, name, lambda inode: data)
            if good:
                self.assertTrue(crash_load.candidates(record, root))
            else:
                with self.assertRaises(AssertionError):
                    crash_load.candidates(record, root)

    def test_a_write_may_be_cut(self):
        record = self.made([["create", "a", 0o644], ["write", "a", 0, 10_000, 1], ["write", "a", 4000, 40_000, 2]])
        old = crash_load.content(1, 10_000)
        new = old[:4000] + crash_load.content(2, 40_000)
        for name, data, good in (("cut", new[:8192] + old[8192:], True), ("cut late", new[:20_000], True), ("nothing", b"", True),
                                 ("end first", old[:8192] + new[8192:], False), ("zeros", new[:20_000] + bytes(24_000), False)):
            with self.subTest(name):
                root, _ = self.state(record, 3, name, lambda inode, data=data: data)
                if good:
                    self.assertTrue(crash_load.candidates(record, root))
                else:
                    with self.assertRaises(AssertionError):
                        crash_load.candidates(record, root)

    def test_one_order(self):
        a, b = self.made([["mkdir", "x", 0o755], ["mkdir", "y", 0o755]]), self.made([["mkdir", "z", 0o755]])
        a.begin, a.done = [0, 20], [10, 30]
        b.begin, b.done = [12], [18]
        self.assertTrue(crash_load.one_order([a, b], (2, 1)))
        self.assertTrue(crash_load.one_order([a, b], (1, 1)))
        self.assertTrue(crash_load.one_order([a, b], (1, 0)))
        self.assertFalse(crash_load.one_order([a, b], (0, 1)))
        self.assertFalse(crash_load.one_order([a, b], (2, 0)))

    def made(self, ops):
        record = crash_load.Record(os.devnull)
        record.ops, record.begin, record.done = ops, list(range(len(ops))), list(range(len(ops)))
        return record


if __name__ == "__main__":
    harness.main(limit=100)
