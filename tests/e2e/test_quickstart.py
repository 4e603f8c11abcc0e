"""What scripts/quickstart.sh promises, by running it: a clone on a mounted disk, a second run that goes on from there, --down that keeps
the disk, --clean that leaves nothing, and its refusals. It runs with the programs of ARCHIL_BIN, so it installs and builds nothing."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness
from harness import ROOT, ClusterTest, Mount, Output, compare_trees, daemons, free_port, log, mount_device, run, tail, tree_digest, until


class Quickstart(ClusterTest):
    def setUp(self):
        self.home = self.cluster.path("quick start")  # the space is on purpose
        self.mnt = os.path.join(self.home, "mnt")
        self.port = free_port()
        self.bin = os.path.abspath(os.environ["ARCHIL_BIN"])
        # As a user has it who has just come: no server chosen, nobody known to git, no locale.
        self.env = {k: v for k, v in self.cluster.env.items() if not k.startswith(("GIT_", "LC_", "LANG", "ARCHIL_TEST_"))}
        del self.env["ARCHIL_SERVER"]
        self.env.update(ARCHIL_QUICKSTART=self.home, ARCHIL_BIN=self.bin, ARCHIL_PORT=str(self.port))
        # The nets of the harness take this mount away; the daemons are found by their command lines.
        self.cluster.mounts.append(Mount(self.cluster, "quickstart", self.mnt, []))
        self.cluster.note(f"mount {self.mnt}")

    def tearDown(self):
        for name in ("archild", "archil"):
            path = os.path.join(self.home, "log", name)
            if os.path.exists(path):
                os.replace(path, self.cluster.path(f"quickstart-{name}.log"))  # shown on a failure

    def quickstart(self, *args, code=0, limit=240, **env):
        out_path, err_path = self.cluster.path("script.out"), self.cluster.path("script.err")
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            process = subprocess.Popen([os.path.join(ROOT, "scripts", "quickstart.sh"), *args], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, env={**self.env, **env}, cwd=self.cluster.folder, start_new_session=True)
            self.cluster.processes.append(process)
            self.cluster.note(f"pid {process.pid} {harness.process_start(process.pid)}")
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                harness.kill_group(process)
        result = Output(process.returncode, tail(out_path, 1000), tail(err_path, 1000), 0)
        log(f"quickstart.sh {' '.join(args)}: {result.code}")
        self.assertEqual(result.code, code, f"quickstart.sh {args}\n{result}")
        return result

    def running(self, program):
        """Pids of the cluster's processes of this program."""
        return [pid for pid in daemons(self.cluster.folder) if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == program]

    def the(self, program):
        pids = self.running(program)
        self.assertEqual(len(pids), 1, f"{program}: {pids}")
        return pids[0]

    def assert_down(self):
        self.assertIsNone(mount_device(self.mnt))
        self.assertEqual(daemons(self.cluster.folder), [])

    def assert_same_tree(self, clone, source):
        """`clone` on the disk is what git on the host makes of `source`. Returns the number of files that are tracked."""
        work = self.cluster.path("on-host")
        run(["rm", "-rf", work])
        self.cluster.git("clone", "--quiet", "--no-hardlinks", source, work)
        compare_trees(self, tree_digest(work, times=False, skip={b".git"}), tree_digest(clone, times=False, skip={b".git"}))
        for command in (["rev-parse", "HEAD"], ["symbolic-ref", "HEAD"], ["ls-files", "--stage"]):
            self.assertEqual(self.cluster.git(*command, cwd=clone).out, self.cluster.git(*command, cwd=work).out, command)
        self.cluster.git("fsck", "--full", "--strict", cwd=clone)
        self.assertEqual(self.cluster.git("status", "--porcelain", "--ignored", cwd=clone).out, "")
        return len(self.cluster.git("ls-files", cwd=clone).out.splitlines())

    @staticmethod
    def mark(clone, text=None):
        """What git does not look at: the same clone still has it."""
        with open(os.path.join(clone, ".git", "mark"), "r" if text is None else "w", encoding="ascii") as f:
            return f.read() if text is None else f.write(text)

    def small_repo(self):
        path = self.cluster.path("little.git")
        harness.sample_repo(path, 300)
        return path

    def test_first_run_second_run_down_again_clean(self):
        out = self.quickstart().out
        clone = os.path.join(self.mnt, "sample")
        server, device = self.the("archild"), mount_device(self.mnt)
        daemon = self.the("archil")
        self.assertIsNotNone(device)
        self.assertIn(f"127.0.0.1:{self.port}", out)
        self.assertRegex(out, r"git clone +\d+\.\d\d s")
        files = self.assert_same_tree(clone, os.path.join(self.home, "sample.git"))
        self.assertGreater(files, 5000)
        self.assertIn(f"done: {files} files at {clone}\n", out)
        self.assertFalse(os.path.exists(os.path.join(self.home, "log", "build")), "built, though ARCHIL_BIN says what to run")
        self.assertEqual(os.listdir(self.mnt), ["sample"])

        # Work that is done in between is left alone, committed or not.
        self.mark(clone, "the same clone")
        self.cluster.git("checkout", "--quiet", "-b", "mine", cwd=clone)
        some = sorted(os.listdir(os.path.join(clone, "added", "step1")))[0]
        with open(os.path.join(clone, "added", "step1", some), "a", encoding="ascii") as f:
            f.write("mine\n")

        def assert_kept(out):
            self.assertIn("is there already", out)
            self.assertNotIn("git clone ", out)
            self.assertIn("git status shows changes", out)
            self.assertEqual(self.mark(clone), "the same clone")
            self.assertEqual(self.cluster.git("symbolic-ref", "--short", "HEAD", cwd=clone).out.strip(), "mine")
            self.assertEqual(self.cluster.git("status", "--porcelain", cwd=clone).out.strip(), f"M added/step1/{some}")

        out = self.quickstart().out
        self.assertEqual((self.the("archild"), self.the("archil"), mount_device(self.mnt)), (server, daemon, device))
        assert_kept(out)

        self.quickstart("--down")
        self.assert_down()
        self.assertEqual(os.listdir(self.mnt), [], "the disk's files are not in the directory below the mount")
        self.quickstart("--down")  # is done already

        assert_kept(self.quickstart().out)
        self.assertNotEqual(self.the("archild"), server)
        self.cluster.git("checkout", "--quiet", "--force", "main", cwd=clone)
        self.assertEqual(self.assert_same_tree(clone, os.path.join(self.home, "sample.git")), files)

        with open(os.path.join(self.home, "not of quickstart"), "w", encoding="ascii"):
            pass
        self.quickstart("--clean")
        self.assert_down()
        self.assertEqual(os.listdir(self.home), ["not of quickstart"])
        os.unlink(os.path.join(self.home, "not of quickstart"))
        self.quickstart("--clean")
        self.assertFalse(os.path.exists(self.home))

    def test_refusals(self):
        said = self.quickstart("--bogus", code=1).err
        self.assertIn("error: unknown option '--bogus'", said)
        self.assertIn("--help", said)
        self.assertIn("one argument at most", self.quickstart("a", "b", code=1).err)
        self.assertIn("no archild and archil in /nowhere", self.quickstart(code=1, ARCHIL_BIN="/nowhere").err)
        self.assertIn("cannot write to /proc/none", self.quickstart(code=1, ARCHIL_QUICKSTART="/proc/none").err)
        with socket.socket() as other:  # no refusal: the next port does
            other.bind(("127.0.0.1", self.port))
            other.listen()
            said = self.quickstart(self.small_repo()).out
        self.assertIn(f"port {self.port} is taken by another program", said)
        port = int(re.search(r"starting the server on 127\.0\.0\.1:(\d+)", said)[1])
        self.assertGreater(port, self.port)
        self.assertIn(f"ARCHIL_SERVER=127.0.0.1:{port}", said)
        # What git says is shown, and nothing of a clone that failed is left.
        said = self.quickstart("/nowhere/repo.git", code=1).err
        self.assertIn("git clone did not work", said)
        self.assertIn("'/nowhere/repo.git' does not exist", said)
        self.assertEqual(os.listdir(self.mnt), ["little"])
        # A folder of the same name that is somebody's own is not touched.
        os.makedirs(os.path.join(self.mnt, "own", "deep"))
        self.assertIn("own is no git repository", self.quickstart(self.cluster.path("own.git"), code=1).err)
        self.assertTrue(os.path.isdir(os.path.join(self.mnt, "own", "deep")))
        # In use: the user of the mount is named, and all goes on.
        with open(os.path.join(self.mnt, "own", "open"), "w", encoding="ascii"):
            said = self.quickstart("--down", code=1).err
            self.assertIn("could not unmount", said)
            self.assertIn(f"in use by process {os.getpid()}", said)
        self.assertEqual(len(daemons(self.cluster.folder)), 2)
        self.quickstart("--clean")
        self.assert_down()
        self.assertFalse(os.path.exists(self.home))

    def test_goes_on_after_crashes_and_a_new_build(self):
        source = self.small_repo()
        self.quickstart(source)
        clone = os.path.join(self.mnt, "little")
        os.makedirs(os.path.join(self.mnt, ".quickstart.part", ".git"))  # as an interrupted run leaves it
        self.mark(clone, "the same clone")
        self.cluster.archil("sync", self.mnt, env=self.env)
        for pid in daemons(self.cluster.folder):
            os.kill(pid, signal.SIGKILL)
        until("both are gone", lambda: not daemons(self.cluster.folder), 20)
        self.assertIsNotNone(mount_device(self.mnt), "the dead mount is what this test is about")
        out = self.quickstart(source).out
        self.assertIn("has died; taking the mount away", out)
        self.assertIn("is there already", out)
        self.assertEqual(self.mark(clone), "the same clone")
        self.assertGreater(self.assert_same_tree(clone, source), 300)
        # Only the server: the mount waits for it at its port, whatever ARCHIL_PORT says by now.
        os.kill(self.the("archild"), signal.SIGKILL)
        daemon = self.the("archil")
        until("the server is gone", lambda: not self.running("archild"), 20)
        other = self.cluster.path("other.git")
        os.rename(source, other)
        out = self.quickstart(other, ARCHIL_PORT=str(free_port())).out
        self.assertIn(f"starting the server on 127.0.0.1:{self.port}\n", out)
        self.assertEqual(self.the("archil"), daemon)
        self.assertGreater(self.assert_same_tree(os.path.join(self.mnt, "other"), other), 300)
        self.assertEqual(sorted(os.listdir(self.mnt)), ["little", "other"])
        # Programs that were built anew take over from those that run.
        newer = self.cluster.path("newer")
        shutil.copytree(self.bin, newer, ignore=lambda _, names: [n for n in names if n not in ("archil", "archild")])
        out = self.quickstart(other, ARCHIL_BIN=newer).out
        self.assertIn("of another build", out)
        for program in ("archil", "archild"):
            self.assertEqual(os.readlink(f"/proc/{self.the(program)}/exe"), os.path.join(newer, program))
        self.quickstart("--down")
        self.assert_down()


if __name__ == "__main__":
    harness.main(900)
