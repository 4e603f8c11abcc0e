#!/usr/bin/env python3
"""The command line: exit codes and words of every refusal, JSON, idempotence, daemons, read-only and subdirectory mounts."""
import errno
import json
import os
import time

import harness
from harness import BAD_MOUNTPOINT, HELD_ELSEWHERE, NO_PERMISSION, NO_SUCH_DISK, UNREACHABLE, USAGE


class Cli(harness.ClusterTest):
    def refused(self, code, *args, says=(), env=None):
        """The command ends with this code and tells why on stderr, nothing on stdout."""
        result = self.cluster.archil(*args, check=False, timeout=60, env=env)
        self.assertEqual(result.code, code, f"{args}: {result}")
        self.assertTrue(result.err.strip(), f"{args} was refused without a word")
        self.assertEqual(result.out, "", args)
        for word in says:
            self.assertIn(word, result.err, args)
        return result

    def test_usage(self):
        for args in ([], ["frobnicate"], ["mount"], ["mount", "d"], ["mount", "d", "m", "too many"], ["mount", "d", "m", "--nonsense"],
                     ["disk"], ["disk", "frob"], ["disk", "create"], ["unmount"], ["sync"], ["metrics"], ["drop-caches"],
                     ["mount", "d", "m", "--cache-mb", "many"], ["mount", "d", "m", "--lease", "-1"], ["disk", "list", "--server", "nonsense"]):
            with self.subTest(args=args):
                self.refused(USAGE, *args)

    def test_version_and_help(self):
        self.assertRegex(self.cluster.archil("version").out, r"\d+\.\d+")
        self.assertIn("mount", self.cluster.archil("--help").out)
        self.assertRegex(harness.run([harness.binary("archild"), "version"]).out, r"\d+\.\d+")

    def test_server_unreachable(self):
        os.mkdir(self.cluster.path("m"))
        for args in (["disk", "list"], ["disk", "create", "x"], ["disk", "show", "x"], ["disk", "delete", "x"],
                     ["mount", "x", self.cluster.path("m")]):
            with self.subTest(args=args):
                self.refused(UNREACHABLE, *args, says=[self.cluster.address])

    def test_no_such_disk(self):
        self.cluster.start_server()
        os.mkdir(self.cluster.path("m"))
        for args in (["disk", "show", "nope"], ["disk", "delete", "nope"], ["mount", "nope", self.cluster.path("m")]):
            with self.subTest(args=args):
                self.refused(NO_SUCH_DISK, *args, says=["nope"])
        self.cluster.create_disk()
        self.refused(NO_SUCH_DISK, "mount", "d:/no/dir", self.cluster.path("m"), says=["/no/dir"])
        self.assertIsNone(harness.mount_device(self.cluster.path("m")))

    def test_disks(self):
        self.cluster.start_server()
        self.assertEqual(self.cluster.archil("disk", "list").out.count("beta"), 0)
        self.cluster.create_disk("alpha")
        self.cluster.create_disk("beta")
        listed = self.cluster.archil("disk", "list").out
        self.assertIn("alpha", listed)
        self.assertIn("beta", listed)
        self.assertEqual(self.cluster.disk_show("alpha")["used_inodes"], 1)
        again = self.cluster.archil("disk", "create", "alpha", check=False)
        self.assertNotEqual(again.code, 0)
        self.assertIn("alpha", again.err)
        for name in ("", "a/b", "x" * 300, "..", "a b\n"):
            with self.subTest(name=name):
                result = self.cluster.archil("disk", "create", "--", name, check=False)
                self.assertNotEqual(result.code, 0)
                self.assertTrue(result.err.strip())
        self.cluster.archil("disk", "delete", "beta")
        self.assertNotIn("beta", self.cluster.archil("disk", "list").out)
        self.refused(NO_SUCH_DISK, "disk", "show", "beta")

    def test_bad_mountpoints(self):
        self.cluster.start_server()
        self.cluster.create_disk()
        plain = self.cluster.path("plain file")
        open(plain, "w", encoding="ascii").close()
        self.refused(BAD_MOUNTPOINT, "mount", "d", plain, says=[plain])
        self.refused(BAD_MOUNTPOINT, "mount", "d", self.cluster.path("absent"), says=["absent"])
        empty = self.cluster.path("not mounted")
        os.mkdir(empty)
        for command in ("unmount", "sync", "status", "metrics", "drop-caches"):
            with self.subTest(command):
                self.refused(BAD_MOUNTPOINT, command, empty, says=[empty])
        self.cluster.mount("d", "mnt")
        self.cluster.create_disk("e")
        self.refused(BAD_MOUNTPOINT, "mount", "e", self.cluster.path("mnt"))

    def test_held_elsewhere(self):
        mount = self.start("--exclusive")
        other = self.cluster.path("other")
        os.makedirs(other)
        for more in ([], ["--exclusive"]):
            result = self.refused(HELD_ELSEWHERE, "mount", "d", other, *more)
            self.assertIn(mount.path, result.err)  # who holds it
        self.refused(HELD_ELSEWHERE, "disk", "delete", "d")
        self.refused(USAGE, "mount", "d", other, "--force")
        mount.unmount()
        # A shared mount refuses an exclusive one; force ends the one that is there.
        shared = self.cluster.mount("d", "shared")
        self.refused(HELD_ELSEWHERE, "mount", "d", other, "--exclusive")
        forced = self.cluster.mount("d", "forced", "--exclusive", "--force")
        harness.until("the other one knows that it was ended", lambda: shared.status()["state"] == "fenced", 30)
        with open(os.path.join(forced.path, "f"), "w", encoding="ascii") as f:
            f.write("mine")
        forced.unmount()
        self.cluster.archil("unmount", "--force", shared.path, check=False, timeout=20)
        self.cluster.archil("disk", "delete", "d")

    def test_clients_delegations_and_revoke(self):
        a = self.start()
        os.makedirs(os.path.join(a.path, "d", "e"))
        self.assertEqual([row["scope"] for row in json.loads(self.cluster.archil("delegations", a.path, "--json").out)], ["everything"])
        clients = json.loads(self.cluster.archil("clients", "d", "--json").out)
        self.assertEqual([(c["alone"], c["silent"]) for c in clients], [(True, False)])
        b = self.cluster.mount("d", "b")
        with open(os.path.join(b.path, "d", "f"), "w", encoding="ascii") as f:
            f.write("b")
        rows = {row["path"]: row for row in json.loads(self.cluster.archil("delegations", b.path, "--json").out)}
        self.assertEqual((rows["/d"]["mode"], rows["/d"]["scope"]), ("write", "directory"))
        self.assertEqual(rows["/d"]["inode"], os.stat(os.path.join(b.path, "d")).st_ino)
        self.assertIn("/d", self.cluster.archil("delegations", b.path).out)
        clients = {c["client"]: c for c in json.loads(self.cluster.archil("clients", "d", "--json").out)}
        self.assertEqual(sorted(clients), sorted([a.status()["session"], b.status()["session"]]))
        self.assertGreaterEqual(clients[b.status()["session"]]["write"], 1)
        self.assertIn(b.path, self.cluster.archil("clients", "d").out)
        # One inode: it is given back, nothing is lost.
        held = str(rows["/d"]["inode"])
        self.cluster.archil("revoke", "d", "--client", str(b.status()["session"]), "--inode", held)
        paths = [row["path"] for row in json.loads(self.cluster.archil("delegations", b.path, "--json").out)]
        self.assertNotIn("/d", paths)
        self.assertEqual(open(os.path.join(a.path, "d", "f"), encoding="ascii").read(), "b")
        # The whole client.
        self.cluster.archil("revoke", "d", "--client", str(b.status()["session"]))
        harness.until("it knows that it was ended", lambda: b.status()["state"] == "fenced", 30)
        self.assertEqual(len(json.loads(self.cluster.archil("clients", "d", "--json").out)), 1)
        self.refused(USAGE, "revoke", "d")
        self.refused(NO_SUCH_DISK, "clients", "nosuch")
        self.cluster.archil("unmount", "--force", b.path, check=False, timeout=20)
        a.unmount()

    def test_permission(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        self.cluster.start_server()
        self.cluster.create_disk()
        os.chmod(self.cluster.folder, 0o755)
        os.mkdir(self.cluster.path("m"), 0o755)
        env = dict(self.cluster.env, HOME="/nonexistent")
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", harness.binary("archil"), "mount", "d", self.cluster.path("m")]
        result = harness.run(command, check=False, env=env, cwd="/")
        self.assertEqual(result.code, NO_PERMISSION, result)
        self.assertTrue(result.err.strip())
        mount = self.cluster.mount("d", "mnt")
        result = harness.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", harness.binary("archil"), "unmount", mount.path],
                             check=False, env=env, cwd="/")
        self.assertEqual(result.code, NO_PERMISSION, result)
        self.assertEqual(mount.status()["disk"], "d")

    def test_json_and_text(self):
        mount = self.start()
        with open(os.path.join(mount.path, "f"), "wb") as f:
            f.write(b"x" * 1000)
        status = mount.status()
        for key in ("disk", "server", "session", "state", "dirty_bytes", "log_ops"):
            self.assertIn(key, status)
        self.assertEqual((status["disk"], status["state"]), ("d", "active"))
        self.assertIn(mount.path, self.cluster.archil("status", mount.path).out)
        self.assertIn(mount.path, self.cluster.archil("status").out)
        everything = json.loads(self.cluster.archil("status", "--json").out)
        self.assertEqual(len(everything if isinstance(everything, list) else everything["mounts"]), 1)
        metrics = mount.metrics()
        self.assertTrue(all(isinstance(v, int) for v in metrics.values()))
        self.assertGreaterEqual(metrics["upcall_create"], 1)
        self.assertGreaterEqual(metrics["ops_logged"], 1)
        self.assertIn("ops_logged", self.cluster.archil("metrics", mount.path).out)
        mount.sync()
        status = mount.status()
        self.assertEqual((status["dirty_bytes"], status["log_ops"]), (0, 0))
        # By another way to name the same place.
        self.cluster.archil("status", os.path.join(mount.path, "..", "mnt") + "/")
        self.cluster.archil("sync", "mnt")
        mount.unmount()

    def test_unmount_tells_and_repeats(self):
        mount = self.start("--flush-after", "60s")
        with open(os.path.join(mount.path, "f"), "wb") as f:
            f.write(b"x" * 1000)
        told = mount.unmount().out
        self.assertRegex(told, r"\d")
        self.refused(BAD_MOUNTPOINT, "unmount", mount.path)
        mount.start()
        self.assertEqual(os.path.getsize(os.path.join(mount.path, "f")), 1000)
        with open(os.path.join(mount.path, "f"), "rb") as held:
            held.read(1)
            busy = self.cluster.archil("unmount", mount.path, check=False)
            self.assertNotEqual(busy.code, 0)
            self.assertTrue(busy.err.strip())
            self.assertEqual(held.read(1), b"x")
            self.assertIsNotNone(harness.mount_device(mount.path))
        mount.unmount()
        # umount(8) does the same, and the daemon flushes on its way out.
        mount.start()
        with open(os.path.join(mount.path, "g"), "wb") as f:
            f.write(b"y" * 10)
        harness.run(["umount", mount.path])
        harness.until("the daemon has ended", lambda: mount.process.poll() is not None, 30)
        self.assertEqual(mount.process.returncode, 0)
        mount.start()
        self.assertEqual(sorted(os.listdir(mount.path)), ["f", "g"])
        # And so does SIGTERM to the daemon.
        with open(os.path.join(mount.path, "h"), "wb") as f:
            f.write(b"z" * 10)
        mount.process.terminate()
        harness.until("the daemon has ended", lambda: mount.process.poll() is not None, 30)
        mount.start()
        self.assertEqual(sorted(os.listdir(mount.path)), ["f", "g", "h"])
        mount.unmount()

    def test_daemon(self):
        self.cluster.start_server()
        self.cluster.create_disk()
        path = self.cluster.path("mnt")
        os.mkdir(path)
        self.cluster.note(f"mount {path}")
        started = time.monotonic()
        result = self.cluster.archil("mount", "d", path, "--log-file", self.cluster.path("daemon.log"), timeout=30)
        try:
            self.assertLess(time.monotonic() - started, 15)
            self.assertEqual(len(result.out.strip().splitlines()), 1, result)
            with open(os.path.join(path, "usable at once"), "w", encoding="ascii") as f:
                f.write("yes")
            line = [l for l in open("/proc/self/mounts", encoding="utf-8") if f" {path} " in l][0]
            self.assertIn(" fuse.archil ", line)
            for option in ("allow_other", "default_permissions"):
                self.assertIn(option, line)

            self.cluster.archil("unmount", path)
            self.assertIsNone(harness.mount_device(path))
        finally:
            harness.take_away(path)

    def test_recover_file(self):
        mount = self.start()
        result = harness.run([harness.binary("replay_test"), "--gtest_brief=1"], env={**os.environ, "ARCHIL_SMOKE_DIR": mount.path},
                             check=False, timeout=120)
        self.assertEqual(result.code, 0, result)
        self.refused(USAGE, "recover-file", self.cluster.path("none"), says=["none"])
        mount.unmount()
        # A place that was named is made before anything is mounted, or the mount is refused.
        lost = self.cluster.path("lost")
        mount = self.cluster.mount("d", "with a place", "--recovery-dir", lost)
        self.assertEqual(os.stat(lost).st_mode & 0o7777, 0o700)
        mount.unmount()
        plain = self.cluster.path("plain")
        open(plain, "w", encoding="ascii").close()
        self.refused(NO_PERMISSION, "mount", "d", mount.path, "--recovery-dir", plain, says=[plain, "--recovery-dir"])

    def test_read_only(self):
        mount = self.start()
        with open(os.path.join(mount.path, "f"), "w", encoding="ascii") as f:
            f.write("text")
        mount.unmount()
        mount = self.cluster.mount("d", "ro", "--read-only")
        with open(os.path.join(mount.path, "f"), encoding="ascii") as f:
            self.assertEqual(f.read(), "text")
        for attempt in (lambda: open(os.path.join(mount.path, "g"), "w", encoding="ascii"), lambda: os.mkdir(os.path.join(mount.path, "d")),
                        lambda: os.unlink(os.path.join(mount.path, "f")), lambda: os.chmod(os.path.join(mount.path, "f"), 0o600),
                        lambda: os.truncate(os.path.join(mount.path, "f"), 0)):
            with self.assertRaises(OSError) as caught:
                attempt()
            self.assertEqual(caught.exception.errno, errno.EROFS)
        mount.unmount()

    def test_subdirectory(self):
        mount = self.start()
        os.makedirs(os.path.join(mount.path, "a", "b"))
        with open(os.path.join(mount.path, "a", "b", "f"), "w", encoding="ascii") as f:
            f.write("below")
        mount.unmount()
        mount = self.cluster.mount("d:/a/b", "sub")
        self.assertEqual(os.listdir(mount.path), ["f"])
        os.mkdir(os.path.join(mount.path, "new"))
        mount.unmount()
        mount = self.cluster.mount("d", "mnt")
        self.assertEqual(sorted(os.listdir(os.path.join(mount.path, "a", "b"))), ["f", "new"])
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=280)
