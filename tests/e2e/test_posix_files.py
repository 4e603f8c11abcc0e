#!/usr/bin/env python3
"""Checks of the usual system calls on the content of files: open, read, write, map, space, locks."""
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
import subprocess
import time

import harness
from posix_case import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, PosixCase, fallocate


class PosixFiles(PosixCase):
    wanted_checks = 450

    # --- open, read, write ---

    def test_open_flags(self):
        f = self.p("f")
        self.fails(errno.ENOENT, os.open, f, os.O_RDONLY)
        self.fails(errno.ENOENT, os.open, self.p("no", "f"), os.O_CREAT | os.O_WRONLY)
        os.close(os.open(f, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
        self.eq(stat.S_IMODE(os.stat(f).st_mode), 0o640)
        self.fails(errno.EEXIST, os.open, f, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        fd = os.open(f, os.O_WRONLY)
        self.eq(os.write(fd, b"hello"), 5)
        self.fails(errno.EBADF, os.read, fd, 1)
        os.close(fd)
        fd = os.open(f, os.O_RDONLY)
        self.eq(os.read(fd, 10), b"hello")
        self.eq(os.read(fd, 10), b"")
        self.fails(errno.EBADF, os.write, fd, b"x")
        os.close(fd)
        os.close(os.open(f, os.O_WRONLY | os.O_TRUNC))
        self.eq(os.stat(f).st_size, 0)
        self.fails(errno.ENOTDIR, os.open, f, os.O_RDONLY | os.O_DIRECTORY)
        self.fails(errno.ENOTDIR, os.open, self.p("f", "x"), os.O_RDONLY)
        self.fails(errno.EISDIR, os.open, self.dir, os.O_WRONLY)
        os.symlink("f", self.p("l"))
        self.fails(errno.ELOOP, os.open, self.p("l"), os.O_RDONLY | os.O_NOFOLLOW)
        os.close(os.open(self.p("l"), os.O_RDONLY))
        os.symlink("absent", self.p("dangling"))
        self.fails(errno.ENOENT, os.open, self.p("dangling"), os.O_RDONLY)
        self.fails(errno.EEXIST, os.open, self.p("dangling"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.close(os.open(self.p("dangling"), os.O_CREAT | os.O_WRONLY))
        self.ok(os.path.exists(self.p("absent")))
        old = os.umask(0o027)
        os.close(os.open(self.p("masked"), os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(self.p("masked_dir"), 0o777)
        os.umask(old)
        self.eq(stat.S_IMODE(os.stat(self.p("masked")).st_mode), 0o640)
        self.eq(stat.S_IMODE(os.stat(self.p("masked_dir")).st_mode), 0o750)

    def test_exclusive_create_churn(self):
        for i in range(300):
            fd = os.open(self.p("lock"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(fd, b"%d" % i)
            os.close(fd)
            if i % 2:
                os.rename(self.p("lock"), self.p("index"))
                self.eq(self.read("index"), b"%d" % i)
            else:
                os.unlink(self.p("lock"))
            self.ok(not os.path.exists(self.p("lock")))

    def test_read_write_offsets(self):
        fd = os.open(self.p("f"), os.O_CREAT | os.O_RDWR)
        expected = bytearray()
        for offset, length in [(0, 10), (4090, 12), (1 << 17, 5000), (100, 1), ((1 << 20) - 1, 3), (8191, 2)]:
            data = bytes((offset + i) % 251 + 1 for i in range(length))
            self.eq(os.pwrite(fd, data, offset), length)
            expected.extend(bytes(max(0, offset + length - len(expected))))
            expected[offset:offset + length] = data
            self.eq(os.fstat(fd).st_size, len(expected))
        self.eq(self.read("f"), bytes(expected))
        self.eq(os.pread(fd, 20, 4085), bytes(expected[4085:4105]))
        self.eq(os.pread(fd, 20, len(expected)), b"")
        self.eq(os.pread(fd, 20, len(expected) - 3), bytes(expected[-3:]))
        self.eq(os.writev(fd, [b"ab", b"cd"]), 4)
        self.eq(os.pread(fd, 4, 0), b"abcd")
        self.eq(os.lseek(fd, 0, os.SEEK_END), len(expected))
        self.fails(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
        with open(self.p("f"), "rb") as other:  # another descriptor sees it at once
            os.pwrite(fd, b"now", 50)
            other.seek(50)
            self.eq(other.read(3), b"now")
        os.close(fd)

    def test_append(self):
        a = os.open(self.p("f"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        b = os.open(self.p("f"), os.O_WRONLY | os.O_APPEND)
        for i in range(100):
            os.write(a if i % 3 else b, b"%04d\n" % i)
        self.eq(self.read("f"), b"".join(b"%04d\n" % i for i in range(100)))
        os.truncate(self.p("f"), 5)
        os.write(a, b"tail\n")
        self.eq(self.read("f"), b"0000\ntail\n")
        os.close(a)
        os.close(b)
        subprocess.run(f"for i in 1 2 3; do (for j in $(seq 50); do echo $i >>'{self.p('sh')}'; done) & done; wait", shell=True,
                       check=True, timeout=60)
        self.eq(len(self.read("sh")), 300)

    def test_truncate(self):
        f = self.write("f", b"x" * 10000)
        os.truncate(f, 100)
        self.eq(self.read("f"), b"x" * 100)
        os.truncate(f, 9000)
        self.eq(self.read("f"), b"x" * 100 + bytes(8900))
        with open(f, "r+b") as handle:
            handle.truncate(50)
            self.eq(os.fstat(handle.fileno()).st_size, 50)
            handle.truncate(5000)
        self.eq(self.read("f"), b"x" * 50 + bytes(4950))
        os.truncate(f, 0)
        os.truncate(f, 3)
        self.eq(self.read("f"), bytes(3))
        self.fails(errno.EISDIR, os.truncate, self.dir, 0)
        self.fails(errno.ENOENT, os.truncate, self.p("no"), 0)
        self.fails(errno.EINVAL, os.truncate, f, -1)
        os.truncate(f, 1 << 40)
        self.eq(os.stat(f).st_size, 1 << 40)
        os.truncate(f, 1)

    def test_direct_and_sync(self):
        data = os.urandom(8192)
        for flag in (os.O_SYNC, os.O_DSYNC):
            fd = os.open(self.p(f"s{flag}"), os.O_CREAT | os.O_WRONLY | flag)
            self.eq(os.write(fd, data), len(data))
            os.close(fd)
            self.eq(self.read(f"s{flag}"), data)
        buffer = mmap.mmap(-1, 8192)
        buffer.write(data)
        fd = os.open(self.p("d"), os.O_CREAT | os.O_RDWR | os.O_DIRECT)
        self.eq(os.writev(fd, [buffer]), 8192)
        self.eq(self.read("d"), data)
        with open(self.p("d"), "r+b") as f:
            f.seek(4096)
            f.write(b"buffered")
        back = mmap.mmap(-1, 8192)
        self.eq(os.preadv(fd, [back], 0), 8192)
        self.eq(back[4096:4104], b"buffered")
        self.eq(back[:4096], data[:4096])
        os.close(fd)
        fd = os.open(self.p("d"), os.O_RDWR)
        os.write(fd, b"z")
        os.fsync(fd)
        os.fdatasync(fd)
        os.close(fd)
        fd = os.open(self.dir, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def test_mmap(self):
        f = self.write("f", b"a" * 10000)
        with open(f, "r+b") as handle:
            m = mmap.mmap(handle.fileno(), 10000)
            m[0:5] = b"hello"
            m[9000:9003] = b"end"
            self.eq(os.pread(handle.fileno(), 5, 0), b"hello")
            m.flush()
            self.eq(self.read("f")[9000:9003], b"end")
            os.pwrite(handle.fileno(), b"written", 4096)
            self.eq(m[4096:4103], b"written")
            m[4096:4103] = b"mapped!"
            m.close()
        self.eq(self.read("f")[4096:4103], b"mapped!")
        self.eq(os.stat(f).st_size, 10000)
        with open(f, "rb") as handle:
            private = mmap.mmap(handle.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            private[0:1] = b"P"
            private.close()
        self.eq(self.read("f")[:5], b"hello")
        program = shutil.copy("/bin/true", self.p("true"))
        self.eq(subprocess.run([program], timeout=30).returncode, 0)

    def test_unlinked_open(self):
        f = self.write("f", b"still here")
        fd = os.open(f, os.O_RDWR)
        os.unlink(f)
        self.ok(not os.path.exists(f))
        self.eq(os.fstat(fd).st_nlink, 0)
        self.eq(os.pread(fd, 100, 0), b"still here")
        os.pwrite(fd, b"more", 10)
        os.fsync(fd)
        self.eq(os.pread(fd, 100, 0), b"still heremore")
        os.ftruncate(fd, 5)
        os.fchmod(fd, 0o600)
        self.eq(os.fstat(fd).st_size, 5)
        self.write("f", b"another")
        self.eq(os.pread(fd, 100, 0), b"still")
        os.close(fd)
        self.eq(self.read("f"), b"another")
        a, b = self.write("a", b"A"), self.write("b", b"B")
        fd = os.open(b, os.O_RDONLY)
        os.rename(a, b)
        self.eq(os.read(fd, 5), b"B")
        self.eq(os.fstat(fd).st_nlink, 0)
        os.close(fd)
        self.eq(self.read("b"), b"A")
        os.mkdir(self.p("d"))
        fd = os.open(self.p("d"), os.O_RDONLY)
        os.rmdir(self.p("d"))
        self.ok(stat.S_ISDIR(os.fstat(fd).st_mode))
        self.eq(os.listdir(fd), [])
        os.close(fd)
        self.eq(sorted(os.listdir(self.dir)), ["b", "f"])

    def test_tmpfile(self):
        try:
            fd = os.open(self.dir, os.O_TMPFILE | os.O_RDWR, 0o600)
        except OSError as e:
            self.eq(e.errno, errno.EOPNOTSUPP)  # allowed; programs fall back to a name
            return
        os.write(fd, b"anonymous")
        self.eq(os.pread(fd, 20, 0), b"anonymous")
        os.close(fd)
        self.eq(os.listdir(self.dir), [])

    # --- space ---

    def test_sparse_and_seek(self):
        fd = os.open(self.p("f"), os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, b"D" * 4096, 1 << 20)
        os.ftruncate(fd, 3 << 20)
        for round_ in range(2):
            start = os.lseek(fd, 0, os.SEEK_DATA)
            self.ok(0 <= start <= 1 << 20)
            self.ok(os.lseek(fd, 1 << 20, os.SEEK_HOLE) >= (1 << 20) + 4096)
            self.eq(os.lseek(fd, 1 << 20, os.SEEK_DATA), 1 << 20)
            self.ok(os.lseek(fd, 0, os.SEEK_HOLE) <= 3 << 20)
            self.fails(errno.ENXIO, os.lseek, fd, 3 << 20, os.SEEK_DATA)
            self.eq(os.pread(fd, 100, 0), bytes(100))
            self.eq(os.pread(fd, 100, (1 << 20) - 50), bytes(50) + b"D" * 50)
            if round_ == 0:
                os.fsync(fd)
        os.close(fd)
        subprocess.run(["cp", "--sparse=always", self.p("f"), self.p("copy")], check=True, timeout=60)
        self.eq(self.read("copy"), self.read("f"))

    def test_fallocate(self):
        fd = os.open(self.p("f"), os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(fd, 0, 10000)
        self.eq(os.fstat(fd).st_size, 10000)
        self.eq(os.pread(fd, 10000, 0), bytes(10000))
        os.pwrite(fd, b"x" * 20000, 0)
        fallocate(fd, FALLOC_KEEP_SIZE, 0, 50000)
        self.eq(os.fstat(fd).st_size, 20000)
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4096, 8192)
        self.eq(os.pread(fd, 20000, 0), b"x" * 4096 + bytes(8192) + b"x" * (20000 - 12288))
        fallocate(fd, FALLOC_ZERO_RANGE, 100, 100)
        self.eq(os.pread(fd, 300, 0), b"x" * 100 + bytes(100) + b"x" * 100)
        fallocate(fd, FALLOC_ZERO_RANGE, 19000, 2000)
        self.eq(os.fstat(fd).st_size, 21000)
        self.eq(os.pread(fd, 3000, 18000), b"x" * 1000 + bytes(2000))
        self.fails(errno.EINVAL, fallocate, fd, 0, 0, 0)
        self.fails(errno.EINVAL, fallocate, fd, 0, -1, 10)
        os.close(fd)

    def test_copies(self):
        data = os.urandom(300_000)
        self.write("f", data)
        source = os.open(self.p("f"), os.O_RDONLY)
        target = os.open(self.p("g"), os.O_CREAT | os.O_RDWR)
        sent = 0
        while sent < len(data):
            sent += os.sendfile(target, source, sent, len(data) - sent)
        self.eq(self.read("g"), data)
        target2 = os.open(self.p("h"), os.O_CREAT | os.O_RDWR)
        done = 0
        while done < len(data):
            done += os.copy_file_range(source, target2, len(data) - done, done, done)
        self.eq(self.read("h"), data)
        for fd in (source, target, target2):
            os.close(fd)
        shutil.copy2(self.p("f"), self.p("i"))
        self.eq(self.read("i"), data)
        self.eq(os.stat(self.p("i")).st_mtime_ns, os.stat(self.p("f")).st_mtime_ns)

    def test_more_than_4_gib(self):
        size = (4 << 30) + (1 << 20)
        fd = os.open(self.p("huge"), os.O_CREAT | os.O_RDWR)
        for offset in (0, (2 << 30) - 2, (4 << 30) - 3, size - 7):
            os.pwrite(fd, b"mark:%03d" % (offset % 997), offset)
        end = size - 7 + 8
        self.eq(os.fstat(fd).st_size, end)
        os.close(fd)
        subprocess.run(["cp", "--sparse=always", self.p("huge"), self.p("copy")], check=True, timeout=100)
        self.eq(os.stat(self.p("copy")).st_size, end)
        with open(self.p("copy"), "rb") as f:
            for offset in (0, (2 << 30) - 2, (4 << 30) - 3, size - 7):
                f.seek(offset)
                self.eq(f.read(8), b"mark:%03d" % (offset % 997))
            f.seek(1 << 30)
            self.eq(f.read(100), bytes(100))
        os.unlink(self.p("copy"))
        os.unlink(self.p("huge"))

    # --- locks ---

    def test_locks(self):
        f = self.write("f", b"x" * 100)
        a = open(f, "r+b")
        b = open(f, "r+b")
        fcntl.flock(a, fcntl.LOCK_SH)
        fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.fails(errno.EWOULDBLOCK, fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(a, fcntl.LOCK_UN)
        fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.fails(errno.EWOULDBLOCK, fcntl.flock, a, fcntl.LOCK_SH | fcntl.LOCK_NB)
        b.close()
        fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(a, fcntl.LOCK_UN)

        def other(kind, start, length):
            """What another process gets: 0 or an errno."""
            def attempt():
                with open(f, "r+b") as g:
                    fcntl.lockf(g, kind | fcntl.LOCK_NB, length, start)
            pid = os.fork()
            if pid == 0:
                try:
                    attempt()
                    os._exit(0)
                except OSError as e:
                    os._exit(e.errno)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        fcntl.lockf(a, fcntl.LOCK_EX, 10, 0)
        fcntl.lockf(a, fcntl.LOCK_SH, 10, 20)
        self.ok(other(fcntl.LOCK_EX, 5, 1) in (errno.EAGAIN, errno.EACCES))
        self.eq(other(fcntl.LOCK_EX, 10, 10), 0)
        self.eq(other(fcntl.LOCK_SH, 20, 10), 0)
        self.ok(other(fcntl.LOCK_EX, 25, 1) in (errno.EAGAIN, errno.EACCES))
        fcntl.lockf(a, fcntl.LOCK_UN, 5, 0)
        self.eq(other(fcntl.LOCK_EX, 0, 5), 0)
        self.ok(other(fcntl.LOCK_EX, 0, 6) in (errno.EAGAIN, errno.EACCES))
        query = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 100, 0)
        pid = os.fork()
        if pid == 0:
            with open(f, "r+b") as g:
                kind, _, start, length, owner = struct.unpack("hhqqi4x", fcntl.fcntl(g, fcntl.F_GETLK, query))
            os._exit(0 if (kind, start, length) == (fcntl.F_WRLCK, 5, 5) and owner == os.getppid() else 1)
        self.eq(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        with open(f, "rb"):
            pass  # closing any descriptor drops the process's POSIX locks
        self.eq(other(fcntl.LOCK_EX, 0, 0), 0)
        a.close()

    def test_lock_waiting(self):
        f = self.write("f")
        a = open(f, "r+b")
        fcntl.lockf(a, fcntl.LOCK_EX)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            with open(f, "r+b") as g:
                os.write(writing, b"w")
                fcntl.lockf(g, fcntl.LOCK_EX)
                os.write(writing, b"l")
            os._exit(0)
        self.eq(os.read(reading, 1), b"w")
        time.sleep(0.2)
        os.set_blocking(reading, False)
        self.fails(errno.EAGAIN, os.read, reading, 1)
        os.set_blocking(reading, True)
        fcntl.lockf(a, fcntl.LOCK_UN)
        self.eq(os.read(reading, 1), b"l")
        self.eq(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        fcntl.lockf(a, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            with open(f, "r+b") as g:
                fcntl.lockf(g, fcntl.LOCK_EX)
            os._exit(0)
        time.sleep(0.2)
        os.kill(pid, 9)
        self.eq(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -9)
        a.close()
        for fd in (reading, writing):
            os.close(fd)


if __name__ == "__main__":
    harness.main(limit=240)
