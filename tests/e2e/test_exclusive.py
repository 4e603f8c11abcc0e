#!/usr/bin/env python3
"""Exclusive mounts (docs/semantics.md): the kernel opens and locks files by itself. What is open is known by FORGET alone; nothing of
a mount that was ended stays to be read. Each test runs as well with the kernel's write-back cache."""
import errno
import fcntl
import mmap
import os
import signal
import sqlite3
import subprocess
import time

import harness

WRITEBACK = "--kernel-writeback"
MIB = 1 << 20


def child(body):
    """Runs body() in another process; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    return pid


def read(path):
    with open(path, "rb") as f:
        return f.read()


def drop_pages(path):
    """What the kernel keeps of a file is read again."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class Exclusive(harness.ClusterTest):
    more = ()

    def begin(self, *args):
        self.mount = self.start("--exclusive", *self.more, *args)
        return self.mount.path

    def reap(self, pids):
        for pid in pids:
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def used(self):
        self.mount.sync()
        show = self.cluster.disk_show()
        return show["used_inodes"], show["used_bytes"]

    def remount(self):
        self.mount.unmount()
        self.mount.start()

    def test_what_is_agreed_with_the_kernel(self):
        root = self.begin()
        status = self.mount.status()
        flags = set(status["fuse"]["init_flags"])
        self.assertTrue(status["exclusive"])
        self.assertEqual(status["kernel_writeback"], WRITEBACK in self.more)
        self.assertLessEqual({"no_open", "no_opendir"}, flags)
        self.assertFalse(flags & {"atomic_o_trunc", "posix_locks", "flock_locks", "auto_inval_data"}, flags)
        self.assertEqual("writeback_cache" in flags, WRITEBACK in self.more)
        self.assertIn("(exclusive)", self.cluster.archil("status", self.mount.path).out)
        before = self.mount.metrics()
        for i in range(50):
            with open(os.path.join(root, f"f{i % 5}"), "w", encoding="ascii") as f:
                fcntl.flock(f, fcntl.LOCK_EX)
                fcntl.lockf(f, fcntl.LOCK_EX)
                f.write("x" * i)
            with open(os.path.join(root, f"f{i % 5}"), "rb") as f:
                self.assertEqual(len(f.read()), i)
        delta = harness.difference(before, self.mount.metrics())
        for name in ("open", "flush"):
            self.assertLessEqual(delta.get("upcall_" + name, 0), 1, delta)
        for name in ("opendir", "getlk", "setlk", "setlkw"):
            self.assertEqual(delta.get("upcall_" + name, 0), 0, delta)
        self.assertLessEqual(delta.get("upcall_release", 0), 1, delta)  # before the first OPEN was answered
        self.mount.unmount()

    def test_unlinked_files_live_until_nobody_has_them(self):
        root = self.begin()
        path = os.path.join(root, "f")
        old = os.urandom(MIB)
        with open(path, "wb") as f:
            f.write(old)
        empty = self.used()[0] - 1
        fd, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDONLY)
        os.unlink(path)
        self.mount.sync()
        self.cluster.archil("drop-caches", self.mount.path)
        self.assertEqual(os.pread(second, MIB, 0), old)
        os.pwrite(fd, b"after", 10)
        os.pwrite(fd, b"far", 3 * MIB)
        os.fsync(fd)
        self.assertEqual(self.used()[0], empty + 1, "it is open")
        pages = mmap.mmap(fd, MIB)
        os.close(fd)
        self.assertEqual(os.pread(second, 5, 10), b"after")
        self.assertEqual(os.fstat(second).st_size, 3 * MIB + 3)
        os.close(second)
        self.mount.sync()
        pages[0:4] = b"page"
        pages.flush()
        self.assertEqual(pages[0:16], b"page" + old[4:10] + b"after" + old[15:16])
        self.assertEqual(self.used()[0], empty + 1, "it is mapped")
        pages.close()
        harness.until("its space is free", lambda: self.used() == (empty, 0), 30)
        # The same for one that is replaced.
        for name, text in (("old", b"old"), ("new", b"new")):
            with open(os.path.join(root, name), "wb") as f:
                f.write(text)
        self.mount.sync()
        with open(os.path.join(root, "old"), "rb") as f:
            os.rename(os.path.join(root, "new"), os.path.join(root, "old"))
            self.mount.sync()
            self.assertEqual(f.read(), b"old")
            self.assertEqual(self.used()[0], empty + 2)
        harness.until("the replaced one is gone", lambda: self.used()[0] == empty + 1, 30)
        self.mount.unmount()

    def test_open_and_unlinked_files_of_a_killed_mount_are_freed(self):
        root = self.begin("--lease", "2s")
        empty = self.used()[0]
        with open(os.path.join(root, "f"), "wb") as f:
            f.write(b"x" * MIB)
            f.flush()
            os.unlink(f.name)
            self.assertEqual(self.used()[0], empty + 1)
            harness.end_process(self.mount.process)
            harness.take_away(self.mount.path)
        self.mount.start(retry_held=20)
        harness.until("its space is free", lambda: self.used() == (empty, 0), 30)
        self.mount.unmount()

    def test_truncate_append_and_write_only(self):
        root = self.begin()
        path = os.path.join(root, "f")
        with open(path, "wb") as f:
            f.write(b"x" * 100_000)
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT):
            os.truncate(path, 100_000)
            fd = os.open(path, flags | os.O_TRUNC)
            self.assertEqual(os.fstat(fd).st_size, 0)
            os.pwrite(fd, b"yy", 5)  # a part of a page, by a handle that may not read
            os.close(fd)
            drop_pages(path)
            self.assertEqual(read(path), b"\0" * 5 + b"yy")

        # Processes that append never overwrite each other, and lines stay whole.
        log, lines, length = os.path.join(root, "log"), 300, 700

        def append(who):
            fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            for i in range(lines):
                os.write(fd, f"{who} {i} ".encode().ljust(length - 1, b"-") + b"\n")
            os.close(fd)

        self.reap([child(lambda who=who: append(who)) for who in range(3)])
        for _ in range(2):
            with open(log, "rb") as f:
                text = f.read()
            self.assertEqual(len(text), 3 * lines * length)
            rows = [row.split()[:2] for row in text.split(b"\n")[:-1]]
            for who in range(3):
                self.assertEqual([int(n) for w, n in rows if int(w) == who], list(range(lines)))
            self.remount()
        self.mount.unmount()

    def test_locks_and_maps_between_processes(self):
        root = self.begin()
        counter, rounds = os.path.join(root, "counter"), 400
        with open(counter, "wb") as f:
            f.write(b"0".ljust(4096))
        locks = (lambda f: fcntl.flock(f, fcntl.LOCK_EX), lambda f: fcntl.lockf(f, fcntl.LOCK_EX))

        def count(lock):
            for _ in range(rounds):
                with open(counter, "r+b") as f:
                    lock(f)
                    n = int(f.read())
                    f.seek(0)
                    f.write(str(n + 1).encode().ljust(4096))

        for i, lock in enumerate(locks):
            self.reap([child(lambda lock=lock: count(lock)) for _ in range(3)])
            with open(counter, "rb") as f:
                self.assertEqual(int(f.read()), (i + 1) * 3 * rounds)
        with open(counter, "r+b") as f, mmap.mmap(f.fileno(), 4096) as pages:
            def store():
                with open(counter, "r+b") as mine, mmap.mmap(mine.fileno(), 4096) as other:
                    other[100:105] = b"store"
            self.reap([child(store)])
            self.assertEqual(pages[100:105], b"store")
            os.pwrite(f.fileno(), b"write", 200)
            self.assertEqual(pages[200:205], b"write")
        self.remount()
        with open(counter, "rb") as f:
            text = f.read()
        self.assertEqual((text[100:105], text[200:205]), (b"store", b"write"))
        self.mount.unmount()

    def test_programs(self):
        """git, SQLite and make."""
        root = self.begin()
        repo = harness.sample_repo(self.cluster.path("sample.git"), 400)
        work = os.path.join(root, "work")
        self.cluster.git("clone", "--quiet", "--no-hardlinks", repo, work)
        self.cluster.git("checkout", "--quiet", "old", cwd=work)
        self.cluster.git("checkout", "--quiet", "new", cwd=work)
        self.cluster.git("gc", "--quiet", cwd=work)
        db = sqlite3.connect(os.path.join(root, "a.db"), isolation_level=None, timeout=60)
        db.execute("CREATE TABLE t (n INTEGER)")
        for n in range(200):
            db.execute("INSERT INTO t VALUES (?)", (n,))
        db.close()
        with open(os.path.join(root, "Makefile"), "w", encoding="ascii") as f:
            f.write("all: a b\n%.o: %.c\n\tcc -c -o $@ $<\na: a.o\n\tcc -o $@ $^\nb: b.o\n\tcc -o $@ $^\n")
        for name in "ab":
            with open(os.path.join(root, f"{name}.c"), "w", encoding="ascii") as f:
                f.write(f'#include <stdio.h>\nint main(void) {{ puts("{name}"); return 0; }}\n')
        self.cluster.run(["make", "-j2", "-C", root])
        again = self.cluster.run(["make", "-C", root]).out
        self.assertNotIn("cc ", again)
        before = harness.tree_digest(root)
        self.remount()
        harness.compare_trees(self, before, harness.tree_digest(root))
        self.cluster.git("fsck", "--full", "--no-progress", cwd=work)
        self.assertEqual(self.cluster.git("status", "--porcelain", cwd=work).out, "")
        db = sqlite3.connect(os.path.join(root, "a.db"))
        self.assertEqual(db.execute("SELECT count(*), sum(n) FROM t").fetchone(), (200, 199 * 100))
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        db.close()
        self.assertEqual(subprocess.run([os.path.join(root, "b")], capture_output=True, timeout=30, check=True).stdout, b"b\n")
        self.mount.unmount()

    def test_a_right_taken_back_is_taken_again(self):
        """Nobody else can want it, but an administrator may: files go on, those without a name as well."""
        root = self.begin("--lease", "2s")
        path = os.path.join(root, "f")
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(fd, b"before ")
        session = str(self.mount.status()["session"])

        def take(ino):
            self.cluster.archil("revoke", "d", "--client", session, "--inode", str(ino))
        ino = os.fstat(fd).st_ino
        for target in (ino, os.stat(root).st_ino):
            take(target)
        os.write(fd, b"between ")
        with open(path, "rb") as f:
            self.assertEqual(f.read(), b"before between ")
        os.unlink(path)
        take(ino)
        time.sleep(2.5)  # what was only looked up is told as not opened after a second, with a heartbeat
        os.write(fd, b"after")
        os.fsync(fd)
        self.cluster.archil("drop-caches", self.mount.path)
        self.assertEqual(os.pread(fd, 100, 0), b"before between after")
        os.close(fd)
        harness.until("its space is free", lambda: self.used() == (1, 0), 30)
        self.mount.unmount()

    def test_an_ended_mount_shows_nothing(self):
        """FENCE-1: files that are open, mapped or warm in the kernel's caches answer errors, at once."""
        root = self.begin()
        path, folder = os.path.join(root, "f"), os.path.join(root, "d")
        os.mkdir(folder)
        for name in (path, os.path.join(folder, "g")):
            with open(name, "wb") as f:
                f.write(b"content " * 4096)
        os.symlink("f", os.path.join(root, "l"))
        self.mount.sync()
        warm = [lambda: os.stat(path), lambda: os.listdir(root), lambda: os.listdir(folder), lambda: os.readlink(os.path.join(root, "l")),
                lambda: read(path)]
        fd = os.open(path, os.O_RDWR)
        self.assertFalse(os.path.exists(os.path.join(root, "absent")))
        for _ in range(3):
            for call in warm:
                call()
        with mmap.mmap(fd, 4096, prot=mmap.PROT_READ) as pages:
            self.assertEqual(pages[0:7], b"content")
            os.pwrite(fd, b"never durable", 5000)
            self.cluster.archil("revoke", "d", "--client", str(self.mount.status()["session"]))
            harness.until("it knows that it was ended", lambda: self.mount.status()["state"] == "fenced", 30)
            until_dropped = time.monotonic() + 10
            while True:
                try:
                    os.pread(fd, 10, 0)
                except OSError as e:
                    self.assertIn(e.errno, (errno.EIO, errno.ESTALE))
                    break
                self.assertLess(time.monotonic(), until_dropped, "the kernel still answers from its cache")
            for call in [*warm, lambda: os.open(path, os.O_RDONLY), lambda: os.stat(os.path.join(root, "absent")),
                         lambda: os.pread(fd, 10, 5000), lambda: os.pwrite(fd, b"x", 0) and os.fsync(fd),
                         lambda: os.fsync(fd), lambda: os.mkdir(os.path.join(root, "new")),
                         lambda: os.unlink(path), lambda: os.fstat(fd), lambda: os.ftruncate(fd, 1)]:
                started = time.monotonic()
                with self.assertRaises(OSError) as caught:
                    call()
                self.assertIn(caught.exception.errno, (errno.EIO, errno.ESTALE))
                self.assertLess(time.monotonic() - started, 5)
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGBUS, signal.SIG_DFL)
                os._exit(pages[0] and 0)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGBUS, "a mapped page of an ended mount")
        os.close(fd)
        self.cluster.archil("unmount", self.mount.path, "--force", check=False)
        harness.until("the daemon has ended", lambda: self.mount.process.poll() is not None, 20)
        self.mount.start()
        self.assertEqual(read(path), b"content " * 4096)
        self.mount.unmount()


class ExclusiveWriteback(Exclusive):
    more = (WRITEBACK,)

    def test_needs_exclusive(self):
        self.cluster.start_server()
        self.cluster.create_disk()
        os.mkdir(self.cluster.path("m"))
        result = self.cluster.archil("mount", "d", self.cluster.path("m"), WRITEBACK, check=False)
        self.assertEqual(result.code, harness.USAGE)
        self.assertIn("--exclusive", result.err)

    def test_sync_asks_the_kernel(self):
        """Written and not closed: the daemon has seen nothing of it, `archil sync` covers it all the same."""
        root = self.begin("--lease", "2s")
        path = os.path.join(root, "f")
        data = os.urandom(MIB) + b"tail"
        for ask in (lambda: self.mount.sync(), lambda: os.fsync(os.open(root, os.O_RDONLY))):
            fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.write(fd, data)
            self.assertEqual(os.stat(path).st_size, len(data))
            ask()
            harness.end_process(self.mount.process)
            harness.take_away(self.mount.path)
            os.close(fd)
            self.mount.start(retry_held=20)
            self.assertEqual(read(path), data)
            data = data[::-1]
        self.mount.unmount()

    def test_the_kernels_times_stay(self):
        root = self.begin()
        path = os.path.join(root, "f")
        with open(path, "wb") as f:
            f.write(b"one")
        time.sleep(0.05)
        with open(path, "ab") as f:
            f.write(b"two")
        info = os.stat(path)
        for again in (lambda: self.cluster.archil("drop-caches", self.mount.path), self.remount):
            again()
            now = os.stat(path)
            self.assertEqual((now.st_mtime_ns, now.st_ctime_ns, now.st_size), (info.st_mtime_ns, info.st_ctime_ns, 6))
        self.mount.unmount()


if __name__ == "__main__":
    harness.main(limit=500)
