#!/usr/bin/env python3
"""The scenes of test_shared.py and test_locks.py with every mount and the server on a host of its own, at two round-trip
times; and links that are cut and healed."""
import os
import threading
import time
import unittest

import harness
import lab
import test_locks
import test_shared
from scenes import Together, read, write

LEASE = test_shared.LEASE

SCENES = ("alternating_append", "appends_at_the_same_time_never_overlap", "rewritten_longer_and_shorter",
          "a_reader_sees_whole_versions", "size_and_content_change_together", "names_come_and_go",
          "removed_by_one_while_the_other_lists", "creates_in_one_directory_at_the_same_time", "exclusive_create_is_won_once",
          "git_from_two_mounts", "the_server_restarts_under_two_mounts")


class HalfMillisecond(lab.LabTest, test_shared.Shared):
    RTT = 0.0005
    ROUNDS = 1.0 if harness.LONG else 0.3
    PAUSE = 0.01


class TwentyMilliseconds(lab.LabTest, test_shared.Shared):
    RTT = 0.02
    ROUNDS = 0.5 if harness.LONG else 0.1
    PAUSE = 0.02


class CountersAtHalfAMillisecond(lab.LabTest, test_locks.Locks):
    RTT = 0.0005
    COUNTS = 300 if harness.LONG else 40


class CountersAtTwentyMilliseconds(lab.LabTest, test_locks.Locks):
    RTT = 0.02
    COUNTS = 60 if harness.LONG else 10


class Cut(lab.LabTest):
    """Three mounts; the link of the first one is cut. The others wait for it at most one lease, and only where they want
    what it holds."""

    RTT = 0.0005
    CLIENTS = 3
    SLACK = 3  # seconds beyond the lease

    def three(self):
        self.cluster.start_server()
        self.cluster.create_disk("d")
        mounts = [self.cluster.mount("d", f"m{i}", "--lease", f"{LEASE}s") for i in range(3)]
        for i, m in enumerate(mounts):
            os.mkdir(os.path.join(m.path, f"of{i}"))
        os.mkdir(os.path.join(mounts[0].path, "shared"))
        for i, m in enumerate(mounts):
            write(os.path.join(m.path, f"of{i}", "first"), b"1")  # all may look names of the root up
        return mounts

    def load(self, mount, i, stop, made, slowest):
        """Creates in the mount's own directory until it is told to stop."""
        while not stop.is_set():
            started = time.monotonic()
            write(os.path.join(mount.path, f"of{i}", f"f{made[i]}"), b"%d" % made[i])
            made[i] += 1
            slowest[i] = max(slowest[i], time.monotonic() - started)
            time.sleep(0.005)

    def check_loads(self, mounts, made, which):
        cold = self.cluster.mount("d", "cold")
        for m in [*mounts, cold]:
            for i in which:
                self.assertEqual(len(os.listdir(os.path.join(m.path, f"of{i}"))), made[i] + 1)
                for n in range(0, made[i], 7):
                    self.assertEqual(read(os.path.join(m.path, f"of{i}", f"f{n}")), b"%d" % n)
        cold.unmount()

    def test_cut_for_less_than_a_lease(self):
        mounts = self.three()
        stop = threading.Event()
        made, slowest = [0, 0, 0], [0.0, 0.0, 0.0]

        def both(i):
            n = 0
            while not stop.is_set():
                write(os.path.join(mounts[i].path, "shared", f"{i}-{n}"), b"%d" % n)
                n += 1
            counts[i] = n

        def cut():
            for _ in range(3):
                time.sleep(0.7)
                self.cluster.link.cut("client0")
                time.sleep(LEASE * 0.4)
                self.cluster.link.heal("client0")
                # What was cut is heard again before the next cut: a renewal is due once in a third of a lease.
                harness.until("the mount reaches the server", lambda: mounts[0].sync(20), 20)
            time.sleep(0.5)
            stop.set()

        counts = [0, 0]
        loads = [lambda i=i: self.load(mounts[i], i, stop, made, slowest) for i in range(3)]
        Together(*loads, lambda: both(0), lambda: both(1), cut).wait(60)
        harness.log(f"made {made}, slowest {slowest}, shared {counts}")
        for m in mounts:
            self.assertEqual(len(os.listdir(os.path.join(m.path, "shared"))), sum(counts))
        self.check_loads(mounts, made, (0, 1, 2))
        self.assertLess(slowest[2], 1.5, "nobody had what this one wanted")
        self.assertGreater(min(counts), 3)
        for m in mounts:
            m.unmount()

    def test_cut_for_more_than_a_lease(self):
        mounts = self.three()
        a, b, c = mounts
        write(os.path.join(a.path, "shared", "kept"), b"kept")
        write(os.path.join(a.path, "of0", "kept"), b"kept")
        a.sync()
        write(os.path.join(a.path, "shared", "dirty"), b"never sent, or sent: not both, and not half of it")
        stop = threading.Event()
        made, slowest = [0, 0, 0], [0.0, 0.0, 0.0]
        waited = {}

        def want():
            started = time.monotonic()
            write(os.path.join(b.path, "shared", "kept"), b"of b")
            waited["b"] = time.monotonic() - started

        def timing():
            time.sleep(LEASE + self.SLACK)
            self.cluster.link.heal("client0")
            time.sleep(1)
            stop.set()

        self.cluster.link.cut("client0")
        Together(*(lambda i=i: self.load(mounts[i], i, stop, made, slowest) for i in (1, 2)), want, timing).wait(60)
        harness.log(f"waited {waited}, slowest {slowest}, made {made}")
        self.assertLess(waited["b"], LEASE + self.SLACK)
        self.assertLess(max(slowest), 1.5, "nobody had what these wanted")

        # The cut one answers, whatever it says, and what it says of what others wrote is not old.
        answers = {}

        def ask():
            for name in ("of0/kept", "shared/kept", "shared/dirty"):
                try:
                    answers[name] = read(os.path.join(a.path, name))
                except OSError as e:
                    answers[name] = e
            try:
                write(os.path.join(a.path, "of0", "after"), b"after")
                answers["write"] = None
            except OSError as e:
                answers["write"] = e

        Together(ask).wait(LEASE + 10)
        harness.log(f"the one that was cut: {a.status()['state']}, {answers}")
        self.assertTrue(isinstance(answers["shared/kept"], OSError) or answers["shared/kept"] == b"of b", answers)
        self.assertTrue(isinstance(answers["of0/kept"], OSError) or answers["of0/kept"] == b"kept", answers)

        self.check_loads((b, c), made, (1, 2))
        for m in (b, c):
            self.assertEqual(read(os.path.join(m.path, "shared", "kept")), b"of b")
            self.assertEqual(read(os.path.join(m.path, "of0", "kept")), b"kept")
        harness.compare_trees(self, harness.tree_digest(b.path), harness.tree_digest(c.path))
        self.cluster.archil("unmount", "--force", a.path, check=False, timeout=30)
        for m in (b, c):
            m.unmount()

    def test_the_server_is_cut_off_and_comes_back(self):
        """All links at once: nobody could take anything meanwhile, so nobody loses anything."""
        mounts = self.three()
        stop = threading.Event()
        made, slowest = [0, 0, 0], [0.0, 0.0, 0.0]

        def cut():
            time.sleep(0.5)
            self.cluster.link.cut("server")
            time.sleep(LEASE * 0.5)
            self.cluster.link.heal("server")
            time.sleep(1)
            stop.set()

        Together(*(lambda i=i: self.load(mounts[i], i, stop, made, slowest) for i in range(3)), cut).wait(60)
        self.check_loads(mounts, made, (0, 1, 2))
        for m in mounts:
            m.unmount()


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    for case in (HalfMillisecond, TwentyMilliseconds):
        suite.addTests(case(f"test_{scene}") for scene in SCENES)
    for case in (CountersAtHalfAMillisecond, CountersAtTwentyMilliseconds):
        suite.addTest(case("test_a_counter_is_exact"))
    suite.addTests(loader.loadTestsFromTestCase(Cut))
    return suite


if __name__ == "__main__":
    harness.main(limit=1700 if harness.LONG else 500)
