#!/usr/bin/env python3
"""fcntl and flock locks hold across mounts (LOCK-1): two mounts of one disk, each with a daemon of its own."""
import contextlib
import errno
import fcntl
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time

import harness

LEASE = 4  # seconds
FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38


def range_lock(fd, kind, start=0, length=0, command=fcntl.F_SETLK):
    """0, or the errno."""
    try:
        fcntl.fcntl(fd, command, FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
        return 0
    except OSError as e:
        return e.errno


def who_holds(fd, kind, start=0, length=0):
    """(type, start, length, pid) of F_GETLK."""
    answer = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, FLOCK.pack(kind, os.SEEK_SET, start, length, 0)))
    return answer[0], answer[2], answer[3], answer[4]


def whole_lock(fd, kind):
    try:
        fcntl.flock(fd, kind)
        return 0
    except OSError as e:
        return e.errno


def count(path, kind, rounds):
    """Body of a process: adds `rounds` to the number in a file, each under a lock."""
    fd = os.open(path, os.O_RDWR)
    for _ in range(rounds):
        if kind == "flock":
            fcntl.flock(fd, fcntl.LOCK_EX)
        else:
            fcntl.lockf(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 32, 0) or b"0")
        os.pwrite(fd, b"%d" % (number + 1), 0)
        if kind == "flock":
            fcntl.flock(fd, fcntl.LOCK_UN)
        else:
            fcntl.lockf(fd, fcntl.LOCK_UN)


def transactions(path, rounds):
    """Body of a process: adds `rounds` to a number in an SQLite database, a transaction each."""
    db = sqlite3.connect(path + ".db", timeout=60, isolation_level=None)
    for _ in range(rounds):
        db.execute("BEGIN IMMEDIATE")
        number = db.execute("SELECT n FROM t").fetchone()[0]
        db.execute("UPDATE t SET n = ?", (number + 1,))
        db.execute("INSERT INTO log VALUES (?)", (number,))
        db.execute("COMMIT")
    db.close()


def wait_for(path, kind):
    """Body of a process: says "waiting", waits for an exclusive lock, says what came of it, keeps it until it is told to end."""
    signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(InterruptedError(errno.EINTR, "signal")))
    fd = os.open(path, os.O_RDWR)
    print("waiting", flush=True)
    try:
        if kind == "flock":
            fcntl.flock(fd, fcntl.LOCK_EX)
        elif kind == "ofd":
            fcntl.fcntl(fd, F_OFD_SETLKW, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.lockf(fd, fcntl.LOCK_EX)
        print("locked", flush=True)
        sys.stdin.read()
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)


class Locks(harness.ClusterTest):
    COUNTS = 1000 if harness.LONG else 150

    def setUp(self):
        self.open_fds = []
        self.children = []

    def tearDown(self):
        for child in self.children:
            harness.end_process(child)
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
        for fd in self.open_fds:
            with contextlib.suppress(OSError):
                os.close(fd)

    def two(self):
        self.cluster.start_server()
        self.cluster.create_disk("d")
        a, b = (self.cluster.mount("d", name, "--lease", f"{LEASE}s") for name in ("a", "b"))
        with open(os.path.join(a.path, "f"), "wb") as f:
            f.write(b"0")
        os.chmod(os.path.join(a.path, "f"), 0o666)
        return a, b

    def open(self, mount, flags=os.O_RDWR):
        fd = os.open(os.path.join(mount.path, "f"), flags)
        self.open_fds.append(fd)
        return fd

    def close(self, fd):
        self.open_fds.remove(fd)
        os.close(fd)

    def child(self, body, mount, *args):
        process = subprocess.Popen([sys.executable, __file__, "child", body, os.path.join(mount.path, "f"), *map(str, args)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.cluster.processes.append(process)
        self.children.append(process)
        return process

    def waits(self, mount):
        return harness.until("somebody waits for a lock", lambda: mount.metrics()["fuse_lock_waiters"] > 0)

    def test_a_counter_is_exact(self):
        a, b = self.two()
        rounds = self.COUNTS
        for kind in ("flock", "fcntl"):
            with open(os.path.join(a.path, "f"), "wb") as f:
                f.write(b"0")
            started = time.monotonic()
            children = [self.child("count", m, kind, rounds) for m in (a, b) for _ in range(2)]
            for c in children:
                self.assertEqual(c.wait(harness.STEP), 0)
            for m in (a, b):
                with open(os.path.join(m.path, "f"), "rb") as f:
                    self.assertEqual(f.read(), b"%d" % (4 * rounds), kind)
            harness.log(f"{kind}: {4 * rounds / (time.monotonic() - started):.0f} rounds a second")
        self.assertGreater(a.metrics()["rpc_lock"], rounds)

    def test_sqlite_from_two_mounts(self):
        a, b = self.two()
        path = os.path.join(a.path, "f.db")
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("CREATE TABLE t (n INTEGER)")
        db.execute("CREATE TABLE log (n INTEGER UNIQUE)")
        db.execute("INSERT INTO t VALUES (0)")
        db.close()
        rounds = 300 if harness.LONG else 40
        children = [self.child("transactions", m, rounds) for m in (a, b) for _ in range(2)]
        for c in children:
            self.assertEqual(c.wait(harness.STEP), 0)
        db = sqlite3.connect(os.path.join(b.path, "f.db"))
        self.assertEqual(db.execute("SELECT n FROM t").fetchone()[0], 4 * rounds)
        self.assertEqual(db.execute("SELECT count(*) FROM log").fetchone()[0], 4 * rounds)
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        db.close()

    def test_shared_exclusive_and_getlk(self):
        a, b = self.two()
        here, there = self.open(a), self.open(b)
        self.assertEqual(range_lock(here, fcntl.F_RDLCK, 10, 10), 0)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK, 30, 0), 0)
        self.assertEqual(range_lock(there, fcntl.F_RDLCK, 15, 10), 0)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK, 15, 1), errno.EAGAIN)
        self.assertEqual(range_lock(there, fcntl.F_RDLCK, 1000, 1), errno.EAGAIN)
        self.assertEqual(who_holds(there, fcntl.F_WRLCK, 0, 12), (fcntl.F_RDLCK, 10, 10, 0))
        self.assertEqual(who_holds(there, fcntl.F_RDLCK, 0, 0), (fcntl.F_WRLCK, 30, 0, 0))
        self.assertEqual(who_holds(there, fcntl.F_RDLCK, 0, 30)[0], fcntl.F_UNLCK)
        self.assertEqual(range_lock(here, fcntl.F_UNLCK, 0, 0), 0)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK, 0, 0), 0)
        # flock is another family
        self.assertEqual(whole_lock(here, fcntl.LOCK_SH | fcntl.LOCK_NB), 0)
        self.assertEqual(whole_lock(there, fcntl.LOCK_SH | fcntl.LOCK_NB), 0)
        self.assertEqual(whole_lock(there, fcntl.LOCK_EX | fcntl.LOCK_NB), errno.EAGAIN)
        self.assertEqual(whole_lock(here, fcntl.LOCK_UN), 0)
        self.assertEqual(whole_lock(there, fcntl.LOCK_EX | fcntl.LOCK_NB), 0)

    def test_close_of_any_descriptor_ends_the_locks_of_the_process(self):
        a, b = self.two()
        here, copy, there = self.open(a), self.open(a), self.open(b)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK), 0)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK), errno.EAGAIN)
        self.close(copy)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK), 0, "close(2) has returned, so they are gone")

    def test_ofd_locks_belong_to_the_open_file(self):
        a, b = self.two()
        here, copy, there = self.open(a), self.open(a), self.open(b)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK, command=F_OFD_SETLK), 0)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK, command=F_OFD_SETLK), errno.EAGAIN)
        self.assertEqual(range_lock(copy, fcntl.F_WRLCK, command=F_OFD_SETLK), errno.EAGAIN)
        self.close(copy)
        self.assertEqual(range_lock(there, fcntl.F_RDLCK, command=F_OFD_SETLK), errno.EAGAIN)
        waiter = self.child("wait_for", b, "ofd")
        self.assertEqual(waiter.stdout.readline(), "waiting\n")
        self.waits(b)
        self.close(here)
        self.assertEqual(waiter.stdout.readline(), "locked\n")
        waiter.communicate(timeout=20)
        harness.until("the lock of an ended process is free",
                      lambda: range_lock(there, fcntl.F_WRLCK, command=F_OFD_SETLK) == 0)

    def test_a_signal_ends_a_wait(self):
        a, b = self.two()
        here = self.open(a)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK), 0)
        self.assertEqual(whole_lock(here, fcntl.LOCK_EX), 0)
        for kind in ("fcntl", "flock"):
            waiter = self.child("wait_for", b, kind)
            self.assertEqual(waiter.stdout.readline(), "waiting\n")
            self.waits(b)
            started = time.monotonic()
            waiter.send_signal(signal.SIGUSR1)
            self.assertEqual(waiter.stdout.readline(), "EINTR\n")
            self.assertLess(time.monotonic() - started, 5)
            waiter.communicate(timeout=20)
            killed = self.child("wait_for", b, kind)
            self.assertEqual(killed.stdout.readline(), "waiting\n")
            self.waits(b)
            killed.kill()
            self.assertEqual(killed.wait(10), -signal.SIGKILL)
        # Nobody who has left gets the lock.
        self.assertEqual(range_lock(here, fcntl.F_UNLCK), 0)
        self.assertEqual(whole_lock(here, fcntl.LOCK_UN), 0)
        there = self.open(b)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK), 0)
        self.assertEqual(whole_lock(there, fcntl.LOCK_EX | fcntl.LOCK_NB), 0)

    def test_the_locks_of_a_killed_daemon_are_free_after_its_lease(self):
        a, b = self.two()
        holder = self.child("wait_for", a, "flock")
        self.assertEqual(holder.stdout.readline(), "waiting\n")
        self.assertEqual(holder.stdout.readline(), "locked\n")
        waiter = self.child("wait_for", b, "flock")
        self.assertEqual(waiter.stdout.readline(), "waiting\n")
        self.waits(b)
        started = time.monotonic()
        a.kill()
        self.assertEqual(waiter.stdout.readline(), "locked\n")
        waited = time.monotonic() - started
        self.assertGreater(waited, LEASE / 4, "the lease was not waited for")
        self.assertLess(waited, LEASE + 5)

    def test_the_handle_of_a_lost_lock_is_broken(self):
        """A daemon that was frozen beyond its lease has lost its locks to others. Whoever held one through a handle here
        must not go on as if nothing had been: all that the handle is used for fails with EIO, until it is closed."""
        a, b = self.two()
        here, there = self.open(a), self.open(b)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK, 0, 10), 0)
        os.pwrite(here, b"1", 0)
        a.sync()
        waiter = self.child("wait_for", b, "fcntl")
        self.assertEqual(waiter.stdout.readline(), "waiting\n")
        self.waits(b)
        a.process.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(waiter.stdout.readline(), "locked\n")
            self.assertEqual(os.pwrite(there, b"2", 0), 1)
        finally:
            a.process.send_signal(signal.SIGCONT)
        for what in (lambda: os.pwrite(here, b"old", 0), lambda: os.pread(here, 10, 0)):
            with self.assertRaises(OSError) as caught:
                what()
            self.assertEqual(caught.exception.errno, errno.EIO)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK, 20, 1), errno.EIO)
        with contextlib.suppress(OSError):  # close(2) may say what was lost
            self.close(here)
        self.assertEqual(os.pread(there, 10, 0), b"2")
        waiter.communicate(timeout=20)
        self.assertEqual(range_lock(there, fcntl.F_WRLCK), 0)
        cold = self.cluster.mount("d", "cold", "--lease", f"{LEASE}s")
        with open(os.path.join(cold.path, "f"), "rb") as f:
            self.assertEqual(f.read(), b"2")
        self.cluster.archil("unmount", "--force", a.path, check=False, timeout=30)

    def test_locks_outlive_the_server(self):
        a, b = self.two()
        here, there = self.open(a), self.open(b)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK, 5, 5), 0)
        self.assertEqual(whole_lock(here, fcntl.LOCK_EX), 0)
        self.cluster.kill_server()
        self.cluster.start_server()
        self.assertEqual(range_lock(there, fcntl.F_RDLCK, 5, 1), errno.EAGAIN)
        self.assertEqual(whole_lock(there, fcntl.LOCK_SH | fcntl.LOCK_NB), errno.EAGAIN)
        self.assertEqual(range_lock(here, fcntl.F_UNLCK), 0)
        self.assertEqual(range_lock(there, fcntl.F_RDLCK, 5, 1), 0)

    def test_alone_a_lock_is_no_round_trip(self):
        self.cluster.start_server()
        self.cluster.create_disk("d")
        a = self.cluster.mount("d", "a", "--lease", f"{LEASE}s")
        with open(os.path.join(a.path, "f"), "wb") as f:
            f.write(b"0")
        here = self.open(a)
        for _ in range(100):
            self.assertEqual(range_lock(here, fcntl.F_WRLCK), 0)
            self.assertEqual(range_lock(here, fcntl.F_UNLCK), 0)
        self.assertEqual(range_lock(here, fcntl.F_WRLCK), 0)
        self.assertEqual(a.metrics()["rpc_lock"], 0)
        b = self.cluster.mount("d", "b", "--lease", f"{LEASE}s")
        self.assertEqual(range_lock(self.open(b), fcntl.F_WRLCK), errno.EAGAIN, "taken while nobody else was there")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "child":
        if sys.argv[2] == "count":
            count(sys.argv[3], sys.argv[4], int(sys.argv[5]))
        elif sys.argv[2] == "transactions":
            transactions(sys.argv[3], int(sys.argv[4]))
        else:
            wait_for(sys.argv[3], sys.argv[4])
    else:
        harness.main(limit=500)
