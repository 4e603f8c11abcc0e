#!/usr/bin/env python3
"""Checks of the usual system calls on names, directories, links and attributes."""
import errno
import os
import shutil
import socket
import stat
import subprocess
import time

import harness
from posix_case import NOBODY, RENAME_EXCHANGE, RENAME_NOREPLACE, PosixCase, renameat2


class PosixNames(PosixCase):
    wanted_checks = 200

    # --- names and directories ---

    def test_mkdir_rmdir(self):
        os.mkdir(self.p("d"), 0o751)
        self.eq(stat.S_IMODE(os.stat(self.p("d")).st_mode), 0o751)
        self.eq(os.stat(self.p("d")).st_nlink, 2 if os.stat(self.dir).st_nlink > 1 else 1)
        self.fails(errno.EEXIST, os.mkdir, self.p("d"))
        self.fails(errno.ENOENT, os.mkdir, self.p("no", "d"))
        links = os.stat(self.dir).st_nlink
        os.mkdir(self.p("e"))
        self.ok(os.stat(self.dir).st_nlink in (links + 1, 1))
        os.rmdir(self.p("e"))
        self.eq(os.stat(self.dir).st_nlink, links)
        self.write("d/f")
        self.fails(errno.ENOTEMPTY, os.rmdir, self.p("d"))
        self.fails(errno.ENOTDIR, os.rmdir, self.p("d", "f"))
        self.fails((errno.EISDIR, errno.EPERM), os.unlink, self.p("d"))
        self.fails(errno.EINVAL, os.rmdir, self.p("d", "."))
        self.fails((errno.ENOTEMPTY, errno.EBUSY, errno.EINVAL), os.rmdir, self.p("d", ".."))
        os.unlink(self.p("d", "f"))
        os.rmdir(self.p("d"))
        self.fails(errno.ENOENT, os.rmdir, self.p("d"))
        self.fails(errno.ENOENT, os.unlink, self.p("d"))
        deep = self.dir
        for i in range(60):
            deep = os.path.join(deep, f"level{i}")
            os.mkdir(deep)
        open(os.path.join(deep, "bottom"), "w").close()
        self.ok(os.path.exists(os.path.join(deep, "bottom")))
        shutil.rmtree(self.p("level0"))
        self.eq(os.listdir(self.dir), [])

    def test_names(self):
        for name in ["a" * 255, "ä" * 127, " ", "\n", "-rf", "*?[", "'\"\\", "\x01", ".hidden", "..."]:
            self.write(name, name.encode())
            self.eq(self.read(name), name.encode())
            self.ok(name in os.listdir(self.dir), name)
        raw = os.fsencode(self.dir) + b"/\xff\xfe\x80"
        open(raw, "w").close()
        self.ok(b"\xff\xfe\x80" in os.listdir(os.fsencode(self.dir)))
        self.fails(errno.ENAMETOOLONG, os.open, self.p("a" * 256), os.O_CREAT | os.O_WRONLY)
        self.fails(errno.ENAMETOOLONG, os.mkdir, self.p("a" * 256))
        self.fails(errno.ENAMETOOLONG, os.symlink, "t", self.p("a" * 256))
        self.fails(errno.ENAMETOOLONG, os.stat, self.p("a" * 256))
        self.fails(errno.ENAMETOOLONG, os.rename, self.p(" "), self.p("a" * 256))
        self.write("Case")
        self.ok(not os.path.exists(self.p("case")))

    def test_readdir(self):
        names = {f"file{i:04}" for i in range(1000)}
        for name in sorted(names):
            self.write(name)
        os.mkdir(self.p("sub"))
        os.symlink("x", self.p("link"))
        listed = os.listdir(self.dir)
        self.eq(len(listed), len(set(listed)))
        self.eq(set(listed), names | {"sub", "link"})
        kinds = {e.name: (e.is_dir(follow_symlinks=False), e.is_symlink()) for e in os.scandir(self.dir)}
        self.eq(kinds["sub"], (True, False))
        self.eq(kinds["link"], (False, True))
        self.eq(kinds["file0007"], (False, False))
        inodes = {e.name: e.inode() for e in os.scandir(self.dir)}
        self.eq(inodes["file0500"], os.lstat(self.p("file0500")).st_ino)
        seen = []  # deletes in the middle of a listing: no survivor is missed, none comes twice
        with os.scandir(self.dir) as entries:
            for i, entry in enumerate(entries):
                seen.append(entry.name)
                if i == 100:
                    for name in sorted(names)[::2]:
                        os.unlink(self.p(name))
        survivors = set(sorted(names)[1::2]) | {"sub", "link"}
        self.eq(len(seen), len(set(seen)))
        self.eq(survivors - set(seen), set())
        self.eq(set(os.listdir(self.dir)), survivors)
        shutil.rmtree(self.dir)
        self.ok(not os.path.exists(self.dir))
        self.fails(errno.ENOENT, os.listdir, self.dir)

    def test_rewinding_directory(self):
        fd = os.open(self.dir, os.O_RDONLY)
        self.eq(os.listdir(fd), [])
        self.write("new")
        self.eq(os.listdir(fd), ["new"])
        os.unlink(self.p("new"))
        self.eq(os.listdir(fd), [])
        os.close(fd)
        self.ok({".", ".."} <= set(subprocess.run(["ls", "-a", self.dir], capture_output=True, text=True, timeout=30).stdout.split()))
        self.eq(os.stat(self.p(".")).st_ino, os.stat(self.dir).st_ino)
        self.eq(os.stat(self.p("..")).st_ino, os.stat(self.root).st_ino)

    def test_rename(self):
        a = self.write("a", b"A")
        ino = os.stat(a).st_ino
        os.rename(a, self.p("b"))
        self.eq(os.stat(self.p("b")).st_ino, ino)
        self.ok(not os.path.exists(a))
        self.write("c", b"C")
        os.rename(self.p("b"), self.p("c"))
        self.eq(self.read("c"), b"A")
        self.fails(errno.ENOENT, os.rename, self.p("no"), self.p("x"))
        os.rename(self.p("c"), self.p("c"))
        self.eq(self.read("c"), b"A")
        os.link(self.p("c"), self.p("c2"))
        os.rename(self.p("c"), self.p("c2"))  # two names of one inode: nothing happens
        self.ok(os.path.exists(self.p("c")) and os.path.exists(self.p("c2")))
        os.makedirs(self.p("d", "sub"))
        os.mkdir(self.p("empty"))
        os.mkdir(self.p("full"))
        self.write("full/x")
        self.fails(errno.EISDIR, os.rename, self.p("c"), self.p("empty"))
        self.fails(errno.ENOTDIR, os.rename, self.p("d"), self.p("c"))
        self.fails((errno.ENOTEMPTY, errno.EEXIST), os.rename, self.p("d"), self.p("full"))
        self.fails(errno.EINVAL, os.rename, self.p("d"), self.p("d", "sub", "d"))
        self.fails(errno.EINVAL, os.rename, self.p("d"), self.p("d", "new"))
        os.rename(self.p("d"), self.p("empty"))
        self.eq(os.listdir(self.p("empty")), ["sub"])
        os.rename(self.p("empty", "sub"), self.p("full", "sub"))  # to another parent
        self.eq(sorted(os.listdir(self.p("full"))), ["sub", "x"])
        self.eq(os.stat(self.p("full", "sub", "..")).st_ino, os.stat(self.p("full")).st_ino)
        os.rename(self.p("full", "x"), self.p("x"))
        self.ok(os.path.exists(self.p("x")))
        os.symlink("nowhere", self.p("s"))
        os.rename(self.p("s"), self.p("s2"))
        self.eq(os.readlink(self.p("s2")), "nowhere")
        os.rename(self.p("full"), self.p("full moved"))
        self.eq(os.listdir(self.p("full moved")), ["sub"])

    def test_rename_flags(self):
        self.write("a", b"A")
        self.write("b", b"B")
        self.fails(errno.EEXIST, renameat2, self.p("a"), self.p("b"), RENAME_NOREPLACE)
        renameat2(self.p("a"), self.p("a2"), RENAME_NOREPLACE)
        self.eq(self.read("a2"), b"A")
        renameat2(self.p("a2"), self.p("b"), RENAME_EXCHANGE)
        self.eq((self.read("a2"), self.read("b")), (b"B", b"A"))
        os.mkdir(self.p("d"))
        self.write("d/in", b"I")
        renameat2(self.p("d"), self.p("b"), RENAME_EXCHANGE)
        self.eq(self.read("b/in"), b"I")
        self.eq(self.read("d"), b"A")
        self.fails(errno.ENOENT, renameat2, self.p("d"), self.p("no"), RENAME_EXCHANGE)
        self.fails(errno.EINVAL, renameat2, self.p("d"), self.p("x"), RENAME_NOREPLACE | RENAME_EXCHANGE)

    def test_rename_dir_with_cwd_and_handle(self):
        os.mkdir(self.p("d"))
        f = self.write("d/f", b"1")
        fd = os.open(f, os.O_RDWR)
        here = os.getcwd()
        os.chdir(self.p("d"))
        try:
            os.rename(self.p("d"), self.p("e"))
            self.eq(os.getcwd(), self.p("e"))
            self.eq(os.listdir("."), ["f"])
            with open("g", "w") as g:
                g.write("new")
        finally:
            os.chdir(here)
        os.pwrite(fd, b"2", 0)
        os.close(fd)
        self.eq(self.read("e/f"), b"2")
        self.eq(self.read("e/g"), b"new")

    # --- links ---

    def test_hard_links(self):
        f = self.write("f", b"data")
        os.link(f, self.p("g"))
        os.mkdir(self.p("d"))
        os.link(f, self.p("d", "h"))
        self.eq(os.stat(f).st_nlink, 3)
        self.eq({os.stat(self.p(n)).st_ino for n in ("f", "g", "d/h")}, {os.stat(f).st_ino})
        with open(self.p("d", "h"), "ab") as h:
            h.write(b"+")
        self.eq(self.read("f"), b"data+")
        os.chmod(self.p("g"), 0o600)
        self.eq(stat.S_IMODE(os.stat(f).st_mode), 0o600)
        os.unlink(f)
        self.eq(os.stat(self.p("g")).st_nlink, 2)
        self.fails(errno.EEXIST, os.link, self.p("g"), self.p("d", "h"))
        self.fails(errno.ENOENT, os.link, self.p("f"), self.p("x"))
        self.fails(errno.EPERM, os.link, self.p("d"), self.p("d2"))
        os.symlink("g", self.p("s"))
        os.link(self.p("s"), self.p("s2"), follow_symlinks=False)
        self.ok(os.path.islink(self.p("s2")))
        for i in range(200):
            os.link(self.p("g"), self.p(f"many{i}"))
        self.eq(os.stat(self.p("g")).st_nlink, 202)
        os.unlink(self.p("g"))
        self.eq(os.stat(self.p("many7")).st_nlink, 201)
        self.eq(self.read("many7"), b"data+")

    def test_symlinks(self):
        for length in (1, 59, 60, 61, 255, 1023, 4095):
            target = ("x" * 200 + "/") * 25
            target = target[:length].rstrip("/") + "y" * (length - len(target[:length].rstrip("/")))
            os.symlink(target, self.p(f"l{length}"))
            self.eq(os.readlink(self.p(f"l{length}")), target)
            self.eq(os.lstat(self.p(f"l{length}")).st_size, length)
        self.fails(errno.ENAMETOOLONG, os.symlink, "x" * 4096, self.p("long"))
        self.fails(errno.EEXIST, os.symlink, "x", self.p("l1"))
        self.fails(errno.EINVAL, os.readlink, self.dir)
        os.symlink("loop", self.p("loop"))
        self.fails(errno.ELOOP, os.stat, self.p("loop"))
        os.mkdir(self.p("d"))
        os.symlink("d", self.p("to_d"))
        self.write("to_d/f", b"through")
        self.eq(self.read("d/f"), b"through")
        self.eq(stat.S_IMODE(os.lstat(self.p("to_d")).st_mode), 0o777)

    # --- attributes ---

    def test_times(self):
        f = self.write("f", b"x")
        for seconds in (0, 1, -1, -86400 * 365 * 20, 2**31 + 5, 2**32 + 7, 1_700_000_000):
            for ns in (0, 1, 999_999_999):
                os.utime(f, ns=(seconds * 10**9 + ns, seconds * 10**9 + ns + 10**9))
                info = os.stat(f)
                self.eq((info.st_atime_ns, info.st_mtime_ns), (seconds * 10**9 + ns, seconds * 10**9 + ns + 10**9))
        before = time.time_ns()
        os.utime(f)
        self.ok(abs(os.stat(f).st_mtime_ns - before) < 5 * 10**9)
        os.utime(f, (1000, 2000))
        c = os.stat(f).st_ctime_ns
        time.sleep(0.011)  # ticks, see test_ctime_moves
        with open(f, "ab") as handle:
            handle.write(b"more")
            handle.flush()
            os.utime(handle.fileno(), (3000, 4000))
        self.eq(os.stat(f).st_mtime, 4000)  # wins over the earlier write, also after close
        self.ok(os.stat(f).st_ctime_ns > c)
        os.symlink("f", self.p("l"))
        os.utime(self.p("l"), (5, 6), follow_symlinks=False)
        self.eq(os.lstat(self.p("l")).st_mtime, 6)
        self.eq(os.stat(f).st_mtime, 4000)
        os.utime(self.dir, (1, 2))
        self.write("g")
        self.ok(os.stat(self.dir).st_mtime > 1_000_000_000)
        os.utime(self.dir, (1, 2))
        os.unlink(self.p("g"))
        self.ok(os.stat(self.dir).st_mtime > 1_000_000_000)
        os.utime(f, (1, 2))
        os.rename(f, self.p("h"))
        self.eq(os.stat(self.p("h")).st_mtime, 2)

    def test_ctime_moves(self):
        f = self.write("f", b"x")
        os.mkdir(self.p("d"))
        last = os.stat(f).st_ctime_ns
        for change in (lambda: os.chmod(f, 0o600), lambda: os.link(f, self.p("g")), lambda: os.unlink(self.p("g")),
                       lambda: os.setxattr(f, "user.a", b"1"), lambda: os.truncate(f, 100), lambda: os.utime(f, (1, 1)),
                       lambda: os.chown(f, os.getuid(), os.getgid())):
            time.sleep(0.011)  # the host's clock of file times has ticks
            change()
            now = os.stat(f).st_ctime_ns
            self.ok(now > last)
            last = now

    def test_chmod_chown(self):
        f = self.write("f")
        for mode in (0o000, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, 0o644):
            os.chmod(f, mode)
            self.eq(stat.S_IMODE(os.stat(f).st_mode), mode)
        fd = os.open(f, os.O_RDONLY)
        os.fchmod(fd, 0o640)
        os.close(fd)
        self.eq(stat.S_IMODE(os.stat(f).st_mode), 0o640)
        self.fails(errno.ENOENT, os.chmod, self.p("no"), 0o644)
        if os.geteuid() != 0:
            return
        os.chown(f, 12345, 54321)
        info = os.stat(f)
        self.eq((info.st_uid, info.st_gid), (12345, 54321))
        os.chown(f, -1, 7)
        self.eq((os.stat(f).st_uid, os.stat(f).st_gid), (12345, 7))
        os.symlink("f", self.p("l"))
        os.lchown(self.p("l"), 1, 2)
        self.eq((os.lstat(self.p("l")).st_uid, os.stat(f).st_uid), (1, 12345))
        os.mkdir(self.p("setgid"))
        os.chown(self.p("setgid"), 0, 77)
        os.chmod(self.p("setgid"), 0o2775)
        self.write("setgid/f")
        os.mkdir(self.p("setgid", "d"))
        self.eq(os.stat(self.p("setgid", "f")).st_gid, 77)
        self.eq(os.stat(self.p("setgid", "d")).st_gid, 77)
        self.ok(os.stat(self.p("setgid", "d")).st_mode & stat.S_ISGID)

    def test_set_id_clearing(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        f = self.write("f", b"program")
        os.chmod(f, 0o6777)

        def write():
            fd = os.open(f, os.O_WRONLY)
            os.write(fd, b"x")
            os.close(fd)

        self.eq(self.as_nobody(write), 0)
        self.eq(stat.S_IMODE(os.stat(f).st_mode), 0o777)
        os.chmod(f, 0o6777)
        self.eq(self.as_nobody(lambda: os.truncate(f, 1)), 0)
        self.eq(stat.S_IMODE(os.stat(f).st_mode), 0o777)
        os.chmod(f, 0o6755)
        os.chown(f, 5, 5)
        self.eq(stat.S_IMODE(os.stat(f).st_mode), 0o755)

    def test_permissions(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        secret = self.write("secret", b"s", 0o600)
        self.eq(self.as_nobody(lambda: open(secret, "rb")), errno.EACCES)
        self.eq(self.as_nobody(lambda: os.unlink(secret)), errno.EACCES)
        self.eq(self.as_nobody(lambda: os.chmod(secret, 0o777)), errno.EPERM)
        self.eq(self.as_nobody(lambda: os.chown(secret, NOBODY, -1)), errno.EPERM)
        self.eq(self.as_nobody(lambda: os.mkdir(self.p("x"))), errno.EACCES)
        self.eq(self.as_nobody(lambda: os.utime(secret, (1, 1))), errno.EPERM)
        os.mkdir(self.p("shared"))
        os.chmod(self.p("shared"), 0o1777)
        self.write("shared/mine")
        self.eq(self.as_nobody(lambda: os.unlink(self.p("shared", "mine"))), errno.EPERM)
        self.eq(self.as_nobody(lambda: os.mkdir(self.p("shared", "theirs"))), 0)
        self.eq(os.stat(self.p("shared", "theirs")).st_uid, NOBODY)
        os.mkdir(self.p("closed"), 0o700)
        self.write("closed/f", b"", 0o666)
        self.eq(self.as_nobody(lambda: os.stat(self.p("closed", "f"))), errno.EACCES)
        program = self.write("program", b"#!/bin/sh\nexit 3\n", 0o644)
        self.fails(errno.EACCES, os.execv, program, [program])
        os.chmod(program, 0o755)
        self.eq(subprocess.run([program], timeout=30).returncode, 3)

    def test_xattrs(self):
        f = self.write("f")
        os.setxattr(f, "user.a", b"1")
        os.setxattr(f, "user.empty", b"")
        os.setxattr(f, "user.binary", bytes(range(256)))
        os.setxattr(f, "user.large", b"L" * 3000)
        self.eq(sorted(n for n in os.listxattr(f) if n.startswith("user.")), ["user.a", "user.binary", "user.empty", "user.large"])
        self.eq(os.getxattr(f, "user.binary"), bytes(range(256)))
        self.eq(os.getxattr(f, "user.empty"), b"")
        self.eq(os.getxattr(f, "user.large"), b"L" * 3000)
        self.fails(errno.EEXIST, os.setxattr, f, "user.a", b"2", os.XATTR_CREATE)
        self.fails(errno.ENODATA, os.setxattr, f, "user.new", b"2", os.XATTR_REPLACE)
        os.setxattr(f, "user.a", b"22", os.XATTR_REPLACE)
        self.eq(os.getxattr(f, "user.a"), b"22")
        os.removexattr(f, "user.a")
        self.fails(errno.ENODATA, os.getxattr, f, "user.a")
        self.fails(errno.ENODATA, os.removexattr, f, "user.a")
        os.setxattr(self.dir, "user.dir", b"d")
        self.eq(os.getxattr(self.dir, "user.dir"), b"d")
        if os.geteuid() == 0:
            os.setxattr(f, "trusted.t", b"t")
            self.eq(os.getxattr(f, "trusted.t"), b"t")

    def test_statvfs(self):
        info = os.statvfs(self.dir)
        self.ok(info.f_bsize > 0 and info.f_blocks > 0)
        self.ok(info.f_bavail <= info.f_bfree <= info.f_blocks)
        self.eq(info.f_namemax, 255)
        self.ok(info.f_files == 0 or info.f_ffree > 0)
        f = self.write("f", b"z" * 100_000)
        self.ok(os.stat(f).st_blocks * 512 >= 4096)
        self.ok(os.stat(f).st_blksize >= 512)

    # --- special files ---

    def test_special_files(self):
        os.mkfifo(self.p("fifo"), 0o600)
        self.ok(stat.S_ISFIFO(os.stat(self.p("fifo")).st_mode))
        pid = os.fork()
        if pid == 0:
            fd = os.open(self.p("fifo"), os.O_WRONLY)
            os.write(fd, b"through the fifo")
            os._exit(0)
        with open(self.p("fifo"), "rb") as f:
            self.eq(f.read(), b"through the fifo")
        os.waitpid(pid, 0)
        here = os.getcwd()
        os.chdir(self.dir)  # a socket's path may have 107 bytes only
        try:
            server = socket.socket(socket.AF_UNIX)
            server.bind("sock")
            server.listen(1)
            client = socket.socket(socket.AF_UNIX)
            client.connect("sock")
            peer, _ = server.accept()
            client.sendall(b"hi")
            self.eq(peer.recv(10), b"hi")
            for s in (client, peer, server):
                s.close()
        finally:
            os.chdir(here)
        self.ok(stat.S_ISSOCK(os.stat(self.p("sock")).st_mode))
        if os.geteuid() == 0:
            os.mknod(self.p("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
            self.eq(os.stat(self.p("null")).st_rdev, os.makedev(1, 3))
            os.mknod(self.p("block"), stat.S_IFBLK | 0o600, os.makedev(7, 300))
            self.eq(os.stat(self.p("block")).st_rdev, os.makedev(7, 300))
        os.mknod(self.p("plain"), stat.S_IFREG | 0o644)
        self.eq(os.stat(self.p("plain")).st_size, 0)


if __name__ == "__main__":
    harness.main(limit=240)
