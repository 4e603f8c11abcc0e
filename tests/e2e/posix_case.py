"""What the suites of system-call checks share: one mount for all tests of a class, and words that count checks.

ARCHIL_E2E_MOUNT holds further arguments of `archil mount`. With ARCHIL_SMOKE_DIR the checks run in that directory of the host instead, which proves the checks themselves.
"""
import ctypes
import errno
import os
import shutil
import sys
import unittest

import harness

HOST_DIR = os.environ.get("ARCHIL_SMOKE_DIR")
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16
NOBODY = 65534
checks = 0


def renameat2(old, new, flags):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class PosixCase(unittest.TestCase):
    wanted_checks = 300  # fewer mean that something was left out without a word

    @classmethod
    def setUpClass(cls):
        cls.cluster = None
        if HOST_DIR:
            cls.root = os.path.join(HOST_DIR, f"smoke-{os.getpid()}")
            os.mkdir(cls.root)
            return
        cls.cluster = harness.Cluster("smoke")
        os.chmod(cls.cluster.folder, 0o755)  # some checks are made by an unprivileged user
        try:
            cls.cluster.start_server()
            cls.cluster.create_disk()
            cls.mount = cls.cluster.mount("d", "mnt", *harness.MOUNT_OPTIONS)
        except BaseException:
            cls.cluster.show_logs()
            cls.cluster.close()
            raise
        cls.root = cls.mount.path

    @classmethod
    def tearDownClass(cls):
        harness.log(f"{checks} checks")
        few = checks < cls.wanted_checks
        if HOST_DIR:
            shutil.rmtree(cls.root)
            cls.assert_enough(few)
            return
        try:
            cls.assert_enough(few)
            before = harness.tree_digest(cls.root, skip={b"huge"})
            cls.mount.unmount()
            cls.mount.start()
            harness.compare_trees(cls("remount"), before, harness.tree_digest(cls.root, skip={b"huge"}))
            cls.mount.unmount()
        except BaseException:
            cls.cluster.show_logs()
            raise
        finally:
            cls.cluster.close()

    @classmethod
    def assert_enough(cls, few):
        if few and not any("." in a for a in sys.argv[1:]):
            raise AssertionError(f"only {checks} checks were made")

    def remount(self):
        """Only a name for the comparison at the end."""

    def setUp(self):
        self.dir = os.path.join(self.root, self._testMethodName)
        os.mkdir(self.dir)

    def p(self, *names):
        return os.path.join(self.dir, *names)

    # --- small words for checks, counted ---

    def eq(self, a, b, what=None):
        global checks
        checks += 1
        self.assertEqual(a, b, what)

    def ok(self, value, what=None):
        global checks
        checks += 1
        self.assertTrue(value, what)

    def fails(self, code, call, *args, **more):
        global checks
        checks += 1
        codes = code if isinstance(code, tuple) else (code,)
        try:
            result = call(*args, **more)
        except OSError as e:
            self.assertIn(e.errno, codes, f"{errno.errorcode.get(e.errno)} instead of {[errno.errorcode[c] for c in codes]}")
            return
        if isinstance(result, int) and call is os.open:
            os.close(result)
        self.fail(f"{call.__name__}{args}: no error instead of {[errno.errorcode[c] for c in codes]}")

    def write(self, name, data=b"", mode=0o644):
        with open(self.p(name), "wb") as f:
            f.write(data)
        os.chmod(self.p(name), mode)
        return self.p(name)

    def read(self, name):
        with open(self.p(name), "rb") as f:
            return f.read()

    def as_nobody(self, body):
        """Runs body() in a process of an unprivileged user; its exception's errno or 0."""
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                body()
            except OSError as e:
                code = e.errno
            except BaseException:
                code = 255
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
