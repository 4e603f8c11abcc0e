#!/usr/bin/env python3
"""One directory that several mounts want at once is worked on at the server (docs/delegation.md, "Contention"); mounts that hold nothing."""
import errno
import os
import threading
import time

import harness

LEASE = 5  # seconds


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Contended(harness.ClusterTest):
    def mounts(self, count=2, server=(), mount=()):
        self.cluster.start_server(*server)
        self.cluster.create_disk("d")
        return [self.cluster.mount("d", f"m{i}", "--lease", f"{LEASE}s", *mount) for i in range(count)]

    def at_full_speed(self, mounts, seconds, step):
        """Runs step(mount, thread, i) in a thread for each mount; how long each took."""
        times = [[] for _ in mounts]
        errors = []
        end = time.monotonic() + seconds

        def work(n):
            try:
                i = 0
                while time.monotonic() < end:
                    started = time.monotonic()
                    step(mounts[n], n, i)
                    times[n].append(time.monotonic() - started)
                    i += 1
            except BaseException as e:  # noqa: B902
                errors.append(e)

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(mounts))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(seconds + 4 * LEASE)
            self.assertFalse(t.is_alive() and not errors, "hangs")
        if errors:
            raise errors[0]
        return times

    def report(self, what, times, seconds):
        every = [t for of in times for t in of]
        each = ", ".join(str(len(of)) for of in times)
        harness.log(f"{what}: {len(every) / seconds:.0f} steps/s ({each}), median {percentile(every, 0.5) * 1e3:.1f} ms, "
                    f"99% {percentile(every, 0.99) * 1e3:.1f} ms, slowest {max(every) * 1e3:.0f} ms")
        return len(every) / seconds, max(every)

    @staticmethod
    def create_and_remove(mount, n, i):
        path = os.path.join(mount.path, "dir", f"{n}-{i}")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        os.unlink(path)

    def test_create_and_unlink_at_full_speed(self):
        rates = {}
        for what, server in (("handed over each time", ("--contended-after", "0")), ("contended", ("--contended-after", "10"))):
            a, b = self.mounts(2, server)
            os.mkdir(os.path.join(a.path, "dir"))
            times = self.at_full_speed((a, b), 5, self.create_and_remove)
            rates[what], slowest = self.report(f"create and unlink, {what}", times, 5)
            if not server:
                self.assertLess(slowest, LEASE / 2)
            self.assertEqual(os.listdir(os.path.join(a.path, "dir")), [])
            if not server:
                shown = a.metrics()
                self.assertGreater(shown["rpc_apply_op"], 50)
                rows = self.delegations(a)
                self.assertTrue(any(r["scope"] == "contended" and r["path"] == "/dir" for r in rows) or not rows, rows)
            for m in (a, b):
                m.unmount()
            self.cluster.stop_server()
            os.rename(self.cluster.path("server"), self.cluster.path(f"server-{len(rates)}"))

    def delegations(self, mount):
        import json

        return json.loads(self.cluster.archil("delegations", mount.path, "--json").out)

    def test_granting_resumes_when_one_is_left(self):
        a, b = self.mounts(2, ("--contended-after", "10"))
        os.mkdir(os.path.join(a.path, "dir"))
        self.at_full_speed((a, b), 2, self.create_and_remove)
        time.sleep(2.5)  # the calm that the rule wants
        self.create_and_remove(a, 0, 0)
        before = a.metrics()
        for i in range(100):
            self.create_and_remove(a, 0, i)
        after = a.metrics()
        self.assertLess(after["rpc_apply_op"] - before["rpc_apply_op"], 5)
        self.assertLess(after["rpc_acquire"] - before["rpc_acquire"], 10)

    def test_everything_in_a_contended_directory(self):
        a, b, c = self.mounts(3, ("--contended-after", "1"))
        os.mkdir(os.path.join(a.path, "dir"))

        def step(mount, n, i):
            d = os.path.join(mount.path, "dir")
            f, g = os.path.join(d, f"{n}-f"), os.path.join(d, f"{n}-g")
            with open(f, "w", encoding="ascii") as out:
                out.write(f"{n} {i}")
            os.link(f, g)
            assert os.stat(f).st_nlink == 2
            os.mkdir(os.path.join(d, f"{n}-d"), 0o700)
            os.chmod(d, 0o755 if i % 2 else 0o775)
            os.symlink("target", os.path.join(d, f"{n}-l"))
            assert os.readlink(os.path.join(d, f"{n}-l")) == "target"
            os.rename(g, os.path.join(d, f"{n}-d", "moved"))
            with open(f, encoding="ascii") as back:
                assert back.read() == f"{n} {i}"
            names = set(os.listdir(d))
            assert {f"{n}-f", f"{n}-d", f"{n}-l"} <= names, names
            assert f"{n}-g" not in names
            os.rename(os.path.join(d, f"{n}-d", "moved"), f)  # two names of one inode: nothing happens
            os.unlink(os.path.join(d, f"{n}-d", "moved"))
            os.rmdir(os.path.join(d, f"{n}-d"))
            os.unlink(os.path.join(d, f"{n}-l"))
            os.rename(f, g)
            os.unlink(g)

        times = self.at_full_speed((a, b, c), 8, step)
        self.report("everything", times, 8)
        for m in (a, b, c):
            self.assertEqual(os.listdir(os.path.join(m.path, "dir")), [])

    def test_locks_are_won_once_and_versions_are_whole(self):
        a, b = self.mounts(2, ("--contended-after", "1"))
        os.mkdir(os.path.join(a.path, "dir"))
        won = [0, 0]
        stale = [0]
        with open(os.path.join(a.path, "dir", "version"), "w", encoding="ascii") as f:
            f.write("0" * 100)

        def step(mount, n, i):
            lock = os.path.join(mount.path, "dir", "lock")
            try:
                os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                won[n] += 1
                new = os.path.join(mount.path, "dir", "version.new")
                with open(new, "w", encoding="ascii") as f:
                    f.write(f"{n}" * (100 + i % 7))
                os.rename(new, os.path.join(mount.path, "dir", "version"))
                os.unlink(lock)
            except FileExistsError:
                pass
            try:
                with open(os.path.join(mount.path, "dir", "version"), encoding="ascii") as f:
                    text = f.read()
                assert len(text) >= 100 and len(set(text)) == 1, text
            except OSError as e:
                if e.errno != errno.ESTALE:
                    raise
                stale[0] += 1

        times = self.at_full_speed((a, b), 6, step)
        self.report("locks and replaced files", times, 6)
        harness.log(f"won {won}, stale {stale[0]}")
        self.assertGreater(min(won), 10)
        self.assertLess(stale[0], sum(len(t) for t in times) / 20)

    def test_a_conditional_mount_beside_a_common_one(self):
        a, = self.mounts(1)
        c = self.cluster.mount("d", "cond", "--lease", f"{LEASE}s", "--conditional")
        self.assertTrue(c.status()["conditional"])
        for i in range(30):
            m, other = (a, c) if i % 2 else (c, a)
            with open(os.path.join(m.path, "log"), "ab") as f:
                f.write(b"%d\n" % i)
            with open(os.path.join(other.path, "log"), "rb") as f:
                self.assertEqual(f.read(), b"".join(b"%d\n" % j for j in range(i + 1)))
            os.mkdir(os.path.join(m.path, f"d{i}"))
            self.assertTrue(os.path.isdir(os.path.join(other.path, f"d{i}")))
        harness.until("it holds nothing", lambda: self.delegations(c) == [], 10)
        self.assertFalse(c.status()["alone"])

    def test_the_server_restarts_under_contention(self):
        a, b = self.mounts(2, ("--contended-after", "1"))
        os.mkdir(os.path.join(a.path, "dir"))
        done = threading.Event()

        def restart():
            while not done.wait(1.5):
                self.cluster.kill_server()
                self.cluster.start_server("--contended-after", "1")

        restarter = threading.Thread(target=restart, daemon=True)
        restarter.start()
        try:
            times = self.at_full_speed((a, b), 12, self.create_and_remove)
        finally:
            done.set()
            restarter.join(60)
        self.report("create and unlink, killed servers", times, 12)
        self.assertEqual(os.listdir(os.path.join(b.path, "dir")), [])


if __name__ == "__main__":
    harness.main(360)
