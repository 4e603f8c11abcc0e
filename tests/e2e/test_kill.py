#!/usr/bin/env python3
"""kill -9 of the mount daemon, of the server, of both, at random moments under load. What an fsync covered is there, the rest is
one prefix of what was done (ORD-1, ORD-2, DUR-1), a repository that had been synced is whole, and nothing leaks."""
import os
import random
import re
import shutil
import signal
import sys
import time

import crash_load
import harness

ROUNDS = int(os.environ.get("ARCHIL_KILL_ROUNDS", "50" if harness.LONG else "12"))
LOADS = 2
VICTIMS = ("daemon", "server", "both", "daemon and server later")
LOAD_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "crash_load.py")


class Round:
    """One load, one kill, one judgement."""

    def __init__(self, test, number, rng):
        self.test, self.cluster, self.mount = test, test.cluster, test.mount
        self.number = number
        self.victim = VICTIMS[number % len(VICTIMS)]
        self.delay = rng.choice([rng.uniform(0.02, 0.5), rng.uniform(0.5, 3.0)])
        self.seeds = [rng.getrandbits(31) for _ in range(LOADS)]
        self.roots = [os.path.join(self.mount.path, f"round{number}-{i}") for i in range(LOADS)]
        self.logs = [self.cluster.path(f"round{number}-{i}.ops") for i in range(LOADS)]

    def run(self):
        harness.log(f"round {self.number}: kill {self.victim} after {self.delay:.2f} s, seeds {self.seeds}")
        for root in self.roots:
            os.mkdir(root)
        self.mount.sync()
        loads = self.start_loads()
        time.sleep(self.delay)
        self.killed_at = time.monotonic_ns()
        if self.victim == "server":
            self.kill_server_only(loads)
        else:
            self.kill_daemon(loads)
        self.test.check_repository()
        done = sum(len(crash_load.Record(log).ops) for log in self.logs)
        self.test.operations += done
        for path in self.roots:
            shutil.rmtree(path)

    def start_loads(self):
        loads = []
        for root, log, seed in zip(self.roots, self.logs, self.seeds):
            with open(log + ".log", "wb") as out:
                loads.append(self.cluster.spawn([sys.executable, LOAD_PROGRAM, root, log, seed, self.mount.path], out))
        for log in self.logs:
            harness.until("the load has begun", lambda log=log: os.path.exists(log) and os.path.getsize(log) > 0)
        return loads

    def end_loads(self, loads):
        for load, log in zip(loads, self.logs):
            load.terminate()
            harness.until("the load has ended", lambda load=load: load.poll() is not None, 90)
            record = crash_load.Record(log)
            # Python takes its handlers away on its way out, so a late SIGTERM may still show.
            if load.returncode not in (0, -signal.SIGTERM) or not record.ended or record.unexpected:
                raise AssertionError(f"the load failed, exit code {load.returncode}: {record.unexpected} {harness.tail(log + '.log')}")
            if record.error_time is not None and record.error_time < self.killed_at:
                raise AssertionError(f"the load met an error before anything was killed: {record.ops[-1]}")

    def kill_server_only(self, loads):
        """The daemon lives, so nothing that was acknowledged may be missing, fsynced or not."""
        self.cluster.kill_server()
        time.sleep(0.3)
        self.cluster.start_server()
        time.sleep(0.5)
        self.end_loads(loads)
        self.mount.sync()
        for step in ("before", "after"):
            for root, log in zip(self.roots, self.logs):
                record = crash_load.Record(log)
                self.test.assertTrue(record.finished, "the load met an error although only the server was gone")
                crash_load.candidates(record, root, exact=True)
            if step == "before":
                self.mount.unmount()
                self.mount.start()
        self.test.server_kills += 1

    def kill_daemon(self, loads):
        if self.victim == "both":
            self.cluster.kill_server()
        self.mount.kill()
        self.end_loads(loads)
        if self.victim == "daemon and server later":
            self.cluster.kill_server()
        if self.victim != "daemon":
            self.cluster.start_server()
        self.mount.start(retry_held=40)
        records = [crash_load.Record(log) for log in self.logs]
        choices = [crash_load.candidates(record, root) for record, root in zip(records, self.roots)]
        pairs = [(a, b) for a in choices[0] for b in choices[1]]
        if not any(crash_load.one_order(records, pair) for pair in pairs):
            raise AssertionError(f"round {self.number}: each load kept a prefix ({choices}), but together they are none")
        lost = [len(record.ops) - max(choice) for record, choice in zip(records, choices)]
        harness.log(f"  kept {[max(c) for c in choices]} of {[len(r.ops) for r in records]} operations")
        self.test.lost += sum(lost)
        self.test.daemon_kills += 1


class Kill(harness.ClusterTest):
    def check_repository(self):
        self.cluster.git("fsck", "--full", "--no-progress", cwd=self.work)
        self.assertEqual(self.cluster.git("status", "--porcelain", cwd=self.work).out, "")

    def used_inodes(self):
        return self.cluster.disk_show()["used_inodes"]

    def test_random_kills(self):
        rng = random.Random(harness.test_seed())
        self.daemon_kills = self.server_kills = self.operations = self.lost = 0
        repo = harness.sample_repo(self.cluster.path("sample.git"), 300)
        self.mount = self.start("--lease", "2s")
        self.work = os.path.join(self.mount.path, "work")
        self.cluster.git("clone", "--quiet", "--no-hardlinks", repo, self.work)
        self.mount.sync()
        for number in range(ROUNDS):
            Round(self, number, rng).run()
        harness.log(f"{self.daemon_kills} kills of daemons, {self.server_kills} of the server alone; {self.operations} operations, "
                    f"{self.lost} lost")
        self.assertGreaterEqual(self.daemon_kills, ROUNDS // 2)
        self.assertGreaterEqual(self.server_kills, ROUNDS // 4)
        self.assertGreater(self.operations, 100 * ROUNDS)
        self.assertGreater(self.lost, 0, "no kill lost anything: the load fsyncs too much to test the prefix rule")
        self.check_nothing_leaks()

    def check_nothing_leaks(self):
        """After a clean stop and start the disk counts exactly what can be seen, and the server keeps little more than that."""
        cluster, mount = self.cluster, self.mount
        mount.sync()
        mount.unmount()
        cluster.stop_server()
        cluster.start_server()
        mount.start()
        visible = {os.lstat(os.path.join(folder, name)).st_ino
                   for folder, folders, names in os.walk(mount.path) for name in folders + names}
        harness.until("the disk counts what can be seen and no orphan", lambda: self.used_inodes() == len(visible) + 1, 60, pause=0.5)
        live = cluster.disk_show()["used_bytes"]
        kept = sum(os.lstat(os.path.join(f, n)).st_blocks * 512 for f, _, ns in os.walk(cluster.path("server")) for n in ns)
        harness.log(f"live bytes {live}, the server's directory holds {kept}")
        self.assertTrue(self.data_segments(), "no segment file was recognised: the next check would see nothing")
        for name in os.listdir(mount.path):
            shutil.rmtree(os.path.join(mount.path, name))
        mount.unmount()
        cluster.stop_server()
        cluster.start_server()
        harness.until("an empty disk keeps no data segment", lambda: not self.data_segments(), 60, pause=0.5)

    def data_segments(self):
        """Files of data segments, local or as objects; the log's own segments have the top bit of their number set."""
        return [os.path.join(folder, name) for part in ("data", "objects")
                for folder, _, names in os.walk(os.path.join(self.cluster.path("server"), part))
                for name in names if re.match(r"[0-7][0-9a-f]{15}($|\.)", name)]


if __name__ == "__main__":
    harness.main(limit=2900 if harness.LONG else 840)
