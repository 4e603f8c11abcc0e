#!/usr/bin/env python3
"""Two and four mounts of one disk on this machine: each sees at once what the others did (COH-1), through warm caches."""
import fcntl
import mmap
import os
import random
import shutil
import signal
import threading
import time

import harness
from scenes import Together, read, write

LEASE = 5  # seconds


class Mounts(harness.ClusterTest):
    """Several mounts of one disk on a server of their own."""

    def mounts(self, count=2, *args):
        self.cluster.start_server()
        self.cluster.create_disk("d")
        return [self.cluster.mount("d", f"m{i}", "--lease", f"{LEASE}s", *args) for i in range(count)]

    def check_cold(self, *mounts):
        """All mounts show the same tree, and so does a new one after all others have gone."""
        digests = [harness.tree_digest(m.path) for m in mounts]
        for digest in digests[1:]:
            harness.compare_trees(self, digests[0], digest)
        for m in mounts:
            m.unmount()
        cold = self.cluster.mount("d", "cold")
        harness.compare_trees(self, digests[0], harness.tree_digest(cold.path))
        cold.unmount()


class Shared(Mounts):
    # For test_shared_latency.py, which runs some of the scenes on slow links: a part of the rounds, and a pause (seconds)
    # after each file of a load, since each is read again over the link.
    ROUNDS = 1.0
    PAUSE = 0

    def rounds(self, count):
        return max(2, round(count * self.ROUNDS))

    def test_nobody_is_refused_and_nothing_is_read_only(self):
        a, b, c = self.mounts(3)
        for i, m in enumerate((a, b, c, a, b)):
            os.mkdir(os.path.join(m.path, f"d{i}"))
            write(os.path.join(m.path, f"d{i}", "f"), b"%d" % i)
        for m in (a, b, c):
            self.assertEqual(sorted(os.listdir(m.path)), [f"d{i}" for i in range(5)])
            self.assertEqual([read(os.path.join(m.path, f"d{i}", "f")) for i in range(5)], [b"%d" % i for i in range(5)])
        self.check_cold(a, b, c)

    def test_alternating_append(self):
        a, b = self.mounts()
        expected = b""
        for i in range(self.rounds(100)):
            m, other = (a, b) if i % 2 == 0 else (b, a)
            line = b"%d from %s\n" % (i, m.path[-2:].encode())
            write(os.path.join(m.path, "log"), line, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            expected += line
            self.assertEqual(read(os.path.join(other.path, "log")), expected)
        self.check_cold(a, b)

    def test_appends_at_the_same_time_never_overlap(self):
        a, b = self.mounts()
        count = self.rounds(150)

        def append(m, tag):
            fd = os.open(os.path.join(m.path, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for i in range(count):
                os.write(fd, b"%s%06d\n" % (tag, i))
            os.close(fd)

        Together(lambda: append(a, b"a"), lambda: append(b, b"b")).wait()
        lines = read(os.path.join(a.path, "log")).splitlines()
        for tag in (b"a", b"b"):
            self.assertEqual([line for line in lines if line[:1] == tag], [b"%s%06d" % (tag, i) for i in range(count)])
        self.assertEqual(len(lines), 2 * count)
        self.check_cold(a, b)

    def test_rewritten_longer_and_shorter(self):
        a, b = self.mounts()
        pick = random.Random(1)
        path = "f"
        keep = os.open(os.path.join(b.path, path), os.O_RDWR | os.O_CREAT, 0o644)
        for i in range(self.rounds(120)):
            m, other = (a, b) if i % 3 else (b, a)
            data = bytes([i % 251]) * pick.choice([0, 1, 100, 4095, 4096, 4097, 20000, 131072, 300001])
            write(os.path.join(m.path, path), data)
            self.assertEqual(os.stat(os.path.join(other.path, path)).st_size, len(data))
            self.assertEqual(read(os.path.join(other.path, path)), data)
            self.assertEqual(os.pread(keep, 1 << 20, 0), data)
            self.assertEqual(os.fstat(keep).st_size, len(data))
        os.close(keep)
        self.check_cold(a, b)

    def test_a_reader_sees_whole_versions(self):
        a, b = self.mounts()
        os.mkdir(os.path.join(a.path, "d"))

        def version(i):
            return b"%08d" % i * (1 + i * 37 % 5000)

        write(os.path.join(a.path, "d", "f"), version(0))
        stop = threading.Event()
        wanted = self.rounds(100)
        seen = []
        written = []

        def writer():
            end = time.monotonic() + 30
            while len(set(seen)) < wanted and time.monotonic() < end:
                i = len(written) + 1
                write(os.path.join(a.path, "d", "tmp"), version(i))
                os.rename(os.path.join(a.path, "d", "tmp"), os.path.join(a.path, "d", "f"))
                written.append(i)
            stop.set()

        def reader():
            last = 0
            while not stop.is_set():
                data = read(os.path.join(b.path, "d", "f"))
                i = int(data[:8])
                self.assertEqual(data, version(i))
                self.assertGreaterEqual(i, last)
                last = i
                seen.append(i)

        Together(writer, reader).wait()
        self.assertGreaterEqual(len(set(seen)), wanted, f"of {len(written)} versions")
        harness.log(f"{len(written)} versions, {len(seen)} read")
        self.assertEqual(read(os.path.join(b.path, "d", "f")), version(written[-1]))
        self.check_cold(a, b)

    def test_size_and_content_change_together(self):
        """Rewritten in place within one page: a reader sees the file as it is between two calls of the writer, never a new
        size with old bytes or zeros, or new bytes with the old size."""
        a, b = self.mounts()
        sizes = [random.Random(3).randrange(1, 4097) for _ in range(251)]
        write(os.path.join(a.path, "f"), b"\x00" * sizes[0])
        stop = threading.Event()
        wanted = self.rounds(60)
        seen = []
        written = []

        def writer():
            fd = os.open(os.path.join(a.path, "f"), os.O_RDWR)
            end = time.monotonic() + 30
            while len(set(seen)) < wanted and time.monotonic() < end:
                i = len(written) + 1
                if sizes[i % 251] < sizes[(i - 1) % 251]:
                    os.ftruncate(fd, sizes[i % 251])
                os.pwrite(fd, bytes([i % 251]) * sizes[i % 251], 0)
                written.append(i)
            os.close(fd)
            stop.set()

        def reader():
            while not stop.is_set():
                fd = os.open(os.path.join(b.path, "f"), os.O_RDONLY)
                before = os.fstat(fd)
                data = os.pread(fd, 1 << 20, 0)
                after = os.fstat(fd)
                os.close(fd)
                i = data[0]
                following = sizes[(i + 1) % 251]
                good = {sizes[i]} | ({following} if following < sizes[i] else set())
                self.assertEqual(data.strip(data[:1]), b"", f"{len(data)} bytes of {i}, and others")
                self.assertIn(len(data), good, f"of {i}")
                if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
                    self.assertEqual(len(data), before.st_size)
                seen.append(i)

        Together(writer, reader).wait()
        self.assertGreaterEqual(len(set(seen)), wanted, f"of {len(written)} versions")
        harness.log(f"{len(written)} versions, {len(seen)} read")
        self.check_cold(a, b)

    def test_names_come_and_go(self):
        self.names_come_and_go(*self.mounts())

    def test_names_come_and_go_for_a_kernel_that_cannot_drop_them(self):
        """What a shared mount does on Linux before 6.16: nothing is told to the kernel that could not be taken back."""
        a, b = self.mounts(2, "--no-name-cache")
        self.assertFalse(a.status()["fuse"]["keeps_names"])
        self.assertIn("keeps no names", self.cluster.archil("status", a.path).out)
        self.names_come_and_go(a, b, check=False)
        write(os.path.join(a.path, "d", "f"), b"x")
        before = a.metrics()["upcall_lookup"]
        for _ in range(20):
            os.stat(os.path.join(a.path, "d", "f"))
        self.assertGreaterEqual(a.metrics()["upcall_lookup"] - before, 20)
        self.check_cold(a, b)

    def names_come_and_go(self, a, b, check=True):
        os.mkdir(os.path.join(a.path, "d"))
        names = set()
        pick = random.Random(2)
        for i in range(self.rounds(200)):
            m, other = (a, b) if pick.random() < 0.5 else (b, a)
            d, seen = os.path.join(m.path, "d"), os.path.join(other.path, "d")
            if names and pick.random() < 0.4:
                name = pick.choice(sorted(names))
                os.unlink(os.path.join(d, name))
                names.discard(name)
                self.assertFalse(os.path.exists(os.path.join(seen, name)))
            else:
                name = f"n{i}"
                self.assertFalse(os.path.exists(os.path.join(seen, name)))  # an absence to remember
                write(os.path.join(d, name), name.encode())
                names.add(name)
                self.assertEqual(read(os.path.join(seen, name)), name.encode())
            self.assertEqual(set(os.listdir(seen)), names)
        if check:
            self.check_cold(a, b)

    def test_removed_by_one_while_the_other_lists(self):
        a, b = self.mounts()
        for i in range(self.rounds(20)):
            os.makedirs(os.path.join(a.path, "t", f"d{i}"))
            for j in range(20):
                write(os.path.join(a.path, "t", f"d{i}", f"f{j}"), b"x")
        stop = threading.Event()
        listed = []

        def remove():
            shutil.rmtree(os.path.join(a.path, "t"))
            stop.set()

        def walk():
            while not stop.is_set():
                listed.append(sum(len(files) for _, _, files in os.walk(os.path.join(b.path, "t"))))

        Together(remove, walk).wait()
        self.assertFalse(os.path.exists(os.path.join(b.path, "t")))
        self.assertEqual(listed, sorted(listed, reverse=True))
        self.assertEqual(os.listdir(b.path), [])
        self.check_cold(a, b)

    def test_creates_in_one_directory_at_the_same_time(self):
        a, b = self.mounts()
        os.mkdir(os.path.join(a.path, "d"))
        count = self.rounds(200)
        slowest = [0.0]

        def create(m, tag):
            for i in range(count):
                started = time.monotonic()
                write(os.path.join(m.path, "d", f"{tag}{i}"), tag.encode())
                slowest[0] = max(slowest[0], time.monotonic() - started)

        Together(lambda: create(a, "a"), lambda: create(b, "b")).wait()
        for m in (a, b):
            self.assertEqual(len(os.listdir(os.path.join(m.path, "d"))), 2 * count)
        harness.log(f"slowest create {slowest[0]:.3f} s")
        self.assertLess(slowest[0], LEASE / 2)
        self.check_cold(a, b)

    def test_exclusive_create_is_won_once(self):
        a, b = self.mounts()
        wins = []

        def lock(m, who):
            for i in range(self.rounds(60)):
                try:
                    os.close(os.open(os.path.join(m.path, f"lock{i}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                    wins.append((i, who))
                except FileExistsError:
                    pass

        Together(lambda: lock(a, "a"), lambda: lock(b, "b")).wait()
        self.assertEqual(sorted(i for i, _ in wins), list(range(self.rounds(60))))
        self.check_cold(a, b)

    def test_directories_renamed_against_each_other(self):
        a, b = self.mounts()
        for d in ("x", "y", "x/p", "y/q"):
            os.mkdir(os.path.join(a.path, d))
        write(os.path.join(a.path, "x/p/one"), b"1")
        write(os.path.join(a.path, "y/q/two"), b"2")
        moved = []

        def move(m, pairs):
            for i in range(40):
                for source, target in pairs:
                    try:
                        os.rename(os.path.join(m.path, source), os.path.join(m.path, target))
                        moved.append(source)
                    except OSError:
                        pass

        Together(lambda: move(a, [("x/p", "y/q/p"), ("y/q/p", "x/p")]), lambda: move(b, [("y/q", "x/p/q"), ("x/p/q", "y/q")])).wait()
        self.assertGreater(len(moved), 20)
        found = sorted(f for _, _, files in os.walk(a.path) for f in files)
        self.assertEqual(found, ["one", "two"])
        self.check_cold(a, b)

    def test_hard_links_from_both_sides(self):
        a, b = self.mounts()
        os.mkdir(os.path.join(a.path, "d"))
        os.mkdir(os.path.join(b.path, "e"))
        write(os.path.join(a.path, "d", "f"), b"one")
        os.link(os.path.join(b.path, "d", "f"), os.path.join(b.path, "e", "g"))
        self.assertEqual(os.stat(os.path.join(a.path, "d", "f")).st_nlink, 2)
        for i in range(30):
            m, other = (a, b) if i % 2 else (b, a)
            write(os.path.join(m.path, "d", "f"), b"%d" % i)
            self.assertEqual(read(os.path.join(other.path, "e", "g")), b"%d" % i)
            write(os.path.join(other.path, "e", "g"), b"%d again" % i)
            self.assertEqual(read(os.path.join(m.path, "d", "f")), b"%d again" % i)
        os.unlink(os.path.join(a.path, "d", "f"))
        self.assertEqual(os.stat(os.path.join(b.path, "e", "g")).st_nlink, 1)
        write(os.path.join(b.path, "e", "g"), b"last")
        self.assertEqual(read(os.path.join(a.path, "e", "g")), b"last")
        self.check_cold(a, b)

    def test_unlinked_and_replaced_files_stay_open(self):
        a, b = self.mounts()
        before = self.cluster.disk_show()
        write(os.path.join(a.path, "gone"), b"g" * 10000)
        write(os.path.join(a.path, "replaced"), b"r" * 10000)
        gone = os.open(os.path.join(b.path, "gone"), os.O_RDWR)
        replaced = os.open(os.path.join(b.path, "replaced"), os.O_RDONLY)
        self.assertEqual(os.pread(replaced, 10, 0), b"r" * 10)
        os.unlink(os.path.join(a.path, "gone"))
        write(os.path.join(a.path, "new"), b"n" * 50)
        os.rename(os.path.join(a.path, "new"), os.path.join(a.path, "replaced"))
        a.sync()
        self.assertEqual(os.pread(gone, 20000, 0), b"g" * 10000)
        self.assertEqual(os.pread(replaced, 20000, 0), b"r" * 10000)
        os.pwrite(gone, b"written", 5)
        self.assertEqual(os.pread(gone, 10, 3), b"ggwrittengg"[:10])
        self.assertEqual(os.fstat(gone).st_nlink, 0)
        self.assertEqual(read(os.path.join(b.path, "replaced")), b"n" * 50)
        os.close(gone)
        os.close(replaced)
        os.unlink(os.path.join(b.path, "replaced"))
        for m in (a, b):
            m.sync()
        harness.until("the space is free again",
                      lambda: self.cluster.disk_show()["used_inodes"] == before["used_inodes"], 20, 0.2)
        self.check_cold(a, b)

    def test_followed_like_tail(self):
        a, b = self.mounts()
        write(os.path.join(a.path, "log"), b"")
        out = open(self.cluster.path("tail.out"), "wb")
        tail = self.cluster.spawn(["tail", "-n", "+1", "-s", "0.05", "-f", "---disable-inotify", os.path.join(b.path, "log")], out)
        fd = os.open(os.path.join(a.path, "log"), os.O_WRONLY | os.O_APPEND)
        expected = b""
        for i in range(50):
            line = b"line %d\n" % i
            os.write(fd, line)
            expected += line
            if i % 10 == 9:
                harness.until(f"line {i} arrives", lambda: read(self.cluster.path("tail.out")) == expected, 20)
        os.close(fd)
        tail.terminate()
        tail.wait(10)
        self.check_cold(a, b)

    def test_mapped_pages(self):
        a, b = self.mounts()
        size = 64 << 10
        write(os.path.join(a.path, "m"), bytes(size))
        fa = os.open(os.path.join(a.path, "m"), os.O_RDWR)
        fb = os.open(os.path.join(b.path, "m"), os.O_RDWR)
        ma, mb = mmap.mmap(fa, size), mmap.mmap(fb, size)
        for i in range(20):
            at = i * 3001
            ma[at:at + 4] = b"%04d" % i
            ma.flush()
            self.assertEqual(os.pread(fb, 4, at), b"%04d" % i)
            self.assertEqual(mb[at:at + 4], b"%04d" % i)
            os.pwrite(fb, b"back", at + 8)
            self.assertEqual(ma[at + 8:at + 12], b"back")
        ma.close()
        mb.close()
        os.close(fa)
        os.close(fb)
        self.check_cold(a, b)

    def test_git_from_two_mounts(self):
        a, b = self.mounts()
        self.cluster.git("init", "-q", "-b", "main", os.path.join(a.path, "r"))
        count = self.rounds(12)

        # `git add` reads the index under its lock file, so it may be run on both mounts at once.
        def add(m, tag):
            repo = os.path.join(m.path, "r")
            for i in range(count):
                write(os.path.join(repo, f"{tag}{i}"), f"{tag} {i}\n".encode() * 50)
                for _ in range(400):
                    done = self.cluster.git("add", f"{tag}{i}", cwd=repo, check=False)
                    if done.code == 0:
                        break
                    if "index.lock" not in done.err and "another git process" not in done.err:
                        raise AssertionError(f"{done}")
                    time.sleep(0.01)
                else:
                    raise AssertionError("never got the lock")

        Together(lambda: add(a, "a"), lambda: add(b, "b")).wait(200)
        names = sorted(f"{tag}{i}" for tag in "ab" for i in range(count))
        for m in (a, b):
            self.assertEqual(sorted(self.cluster.git("ls-files", cwd=os.path.join(m.path, "r")).out.split()), names)

        # `git commit` reads it before (git's own race on any file system), so that takes turns, by flock.
        def commit(m, tag):
            repo = os.path.join(m.path, "r")
            turn = os.open(os.path.join(m.path, "turn"), os.O_RDWR | os.O_CREAT)
            for i in range(count):
                fcntl.flock(turn, fcntl.LOCK_EX)
                self.cluster.git("commit", "-q", "-m", f"{tag}{i}", "--", f"{tag}{i}", cwd=repo)
                fcntl.flock(turn, fcntl.LOCK_UN)
            os.close(turn)

        Together(lambda: commit(a, "a"), lambda: commit(b, "b")).wait(300)
        for m in (a, b):
            repo = os.path.join(m.path, "r")
            self.assertEqual(self.cluster.git("rev-list", "--count", "HEAD", cwd=repo).out.strip(), str(2 * count))
            self.cluster.git("fsck", "--full", "--strict", cwd=repo)
            self.assertEqual(self.cluster.git("status", "--porcelain", cwd=repo).out, "")
        self.check_cold(a, b)

    def test_four_mounts_at_random(self):
        mounts = self.mounts(4)
        os.mkdir(os.path.join(mounts[0].path, "d"))
        content = {}
        pick = random.Random(harness.test_seed())
        for step in range(400):
            m, other = pick.sample(mounts, 2)
            name = f"d/f{pick.randrange(12)}"
            path, seen = os.path.join(m.path, name), os.path.join(other.path, name)
            what = pick.randrange(5)
            if what == 0 and name in content:
                os.unlink(path)
                del content[name]
            elif what == 1 and name in content:
                target = f"d/f{pick.randrange(12)}"
                os.rename(path, os.path.join(m.path, target))
                content[target] = content.pop(name)
                seen, name = os.path.join(other.path, target), target
            elif what == 2 and name in content:
                size = pick.randrange(30000)
                os.truncate(path, size)
                content[name] = content[name][:size].ljust(size, b"\0")
            elif what == 3 and name in content:
                at = pick.randrange(20000)
                data = bytes([step % 256]) * pick.randrange(1, 9000)
                fd = os.open(path, os.O_RDWR)
                os.pwrite(fd, data, at)
                os.close(fd)
                old = content[name].ljust(at, b"\0")
                content[name] = old[:at] + data + old[at + len(data):]
            else:
                content[name] = bytes([step % 256]) * pick.randrange(20000)
                write(path, content[name])
            if name in content:
                self.assertEqual(os.stat(seen).st_size, len(content[name]), f"step {step}")
                self.assertEqual(read(seen), content[name], f"step {step}")
            else:
                self.assertFalse(os.path.exists(seen), f"step {step}")
        self.check_cold(*mounts)

    def test_two_builds_in_one_tree(self):
        a, b = self.mounts()
        tree = os.path.join(a.path, "p")
        os.mkdir(tree)
        parts = 30
        for i in range(parts):
            write(os.path.join(tree, f"f{i}.c"), b"int f%d(int x) { return x + %d; }\n" % (i, i))
        write(os.path.join(tree, "Makefile"),
              b"OUT ?= out\nOBJS := $(patsubst %%.c,$(OUT)/%%.o,$(wildcard *.c))\nall: $(OUT)/lib.a\n"
              b"$(OUT)/lib.a: $(OBJS)\n\tar rcs $@ $^\n$(OUT)/%%.o: %%.c\n\t@mkdir -p $(OUT)\n\tcc -c $< -o $@\n".replace(b"%%", b"%"))
        Together(lambda: self.cluster.run(["make", "-s", "-C", os.path.join(a.path, "p"), "OUT=a"], timeout=200),
                 lambda: self.cluster.run(["make", "-s", "-C", os.path.join(b.path, "p"), "OUT=b"], timeout=200)).wait(220)
        for m, out in ((a, "b"), (b, "a")):
            listing = self.cluster.run(["ar", "t", os.path.join(m.path, "p", out, "lib.a")]).out.split()
            self.assertEqual(len(listing), parts)
            again = self.cluster.run(["make", "-C", os.path.join(m.path, "p"), f"OUT={out}"])
            self.assertIn("Nothing to be done", again.out)
        self.check_cold(a, b)

    # --- faults

    def test_the_server_restarts_under_two_mounts(self):
        a, b = self.mounts()
        for m in (a, b):
            os.mkdir(os.path.join(m.path, f"of{m.path[-1]}"))
        os.mkdir(os.path.join(a.path, "both"))
        stop = threading.Event()
        made = {"a": 0, "b": 0}

        def load(m, tag, own):
            while not stop.is_set():
                i = made[tag]
                write(os.path.join(m.path, own, f"{tag}{i}"), b"%d" % i)
                if i % 5 == 0:
                    write(os.path.join(m.path, "both", f"{tag}{i}"), b"%d" % i)
                made[tag] = i + 1
                time.sleep(self.PAUSE)

        def restart():
            for kind in ("stop", "kill", "stop", "kill"):
                time.sleep(1.0)
                if kind == "stop":
                    self.cluster.stop_server()
                else:
                    self.cluster.kill_server()
                self.cluster.start_server()
            time.sleep(1.0)
            stop.set()

        Together(lambda: load(a, "a", "of0"), lambda: load(b, "b", "of1"), restart).wait(100)
        harness.log(made)
        for m in (a, b):
            for tag, own in (("a", "of0"), ("b", "of1")):
                self.assertEqual(len(os.listdir(os.path.join(m.path, own))), made[tag])
                self.assertGreater(made[tag], self.rounds(50))
            self.assertEqual(len(os.listdir(os.path.join(m.path, "both"))), sum((n + 4) // 5 for n in made.values()))
        self.check_cold(a, b)

    # --- what it costs

    def test_a_cold_walk_is_few_round_trips(self):
        a = self.mounts(1)[0]
        for i in range(50):
            for j in range(40):
                d = os.path.join(a.path, "t", f"d{i}", f"e{j}")
                os.makedirs(d)
                for k in range(10):
                    write(os.path.join(d, f"f{k}"), b"x")
        a.sync()
        a.unmount()
        holder = self.cluster.mount("d", "holder")  # so that the next one is not alone
        os.listdir(holder.path)
        b = self.cluster.mount("d", "fresh")
        before = b.metrics()
        found = self.cluster.run(["find", os.path.join(b.path, "t"), "-type", "f", "-size", "-2"]).out.count("\n")
        self.assertEqual(found, 20000)
        spent = harness.difference(before, b.metrics(), "rpc_")
        harness.log("a cold find:", spent)
        self.assertLess(sum(spent.values()), 40)
        b.unmount()
        holder.unmount()


if __name__ == "__main__":
    harness.main(limit=900)
