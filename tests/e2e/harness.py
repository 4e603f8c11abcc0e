"""A server, disks and mounts of one test, in one temporary directory, gone when the test is gone.

Nothing here waits without a limit. Three nets catch what is left behind: `Cluster.close`; a watchdog thread that ends the
test's own process when its time is up; and a janitor process that outlives the test (however it died), takes mounts away,
ends the processes by their ids and deletes the directory.

Environment:
  ARCHIL_BIN         directory with `archild` and `archil` (required)
  ARCHIL_E2E_TMP     where the temporary directories go; default /var/tmp
  ARCHIL_E2E_KEEP    1: keep the directory of a failed test
  ARCHIL_E2E_MOUNT   options of the mount that `start` makes, such as `--exclusive`: a test's variant
  ARCHIL_TEST_SEED   seed of random tests; ARCHIL_TEST_LONG=1: more rounds
"""
import contextlib
import faulthandler
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TMP = os.environ.get("ARCHIL_E2E_TMP", "/var/tmp")
MOUNT_OPTIONS = os.environ.get("ARCHIL_E2E_MOUNT", "").split()
LONG = os.environ.get("ARCHIL_TEST_LONG") == "1"
# Limit of one step that no test thinks about.
STEP = 120

USAGE, UNREACHABLE, NO_SUCH_DISK, BAD_MOUNTPOINT, HELD_ELSEWHERE, NO_PERMISSION = 2, 3, 4, 5, 6, 7


def log(*words):
    print(f"[{time.monotonic() - _started:7.2f}]", *words, file=sys.stderr, flush=True)


_started = time.monotonic()
_clusters = []  # alive ones


def test_seed():
    """The seed of this run, printed, so that a failure can be repeated with ARCHIL_TEST_SEED."""
    seed = int(os.environ.get("ARCHIL_TEST_SEED") or random.SystemRandom().getrandbits(31))
    log(f"ARCHIL_TEST_SEED={seed}")
    return seed


def binary(name):
    folder = os.environ.get("ARCHIL_BIN")
    if not folder:
        raise RuntimeError("ARCHIL_BIN is not set: the directory that holds archild and archil")
    path = os.path.join(os.path.abspath(folder), name)
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"{path} is not there")
    return path


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, condition, limit=STEP, pause=0.02):
    """Waits until condition() is true and returns its value; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {limit} s still not: {what}")
        time.sleep(pause)


# --- processes ---------------------------------------------------------------------------------------------------


class Output:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __repr__(self):
        return f"exit code {self.code}\nstdout: {self.out[-4000:]}\nstderr: {self.err[-4000:]}"


def kill_group(process):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def run(args, timeout=STEP, check=True, cwd=None, env=None, data=None, **more):
    """Runs a program in a process group of its own. Output goes through files, so that a grandchild that keeps it open
    blocks nobody. AssertionError on a timeout, and on an exit code other than 0 if `check`."""
    started = time.monotonic()
    with tempfile.TemporaryFile(dir=TMP) as out, tempfile.TemporaryFile(dir=TMP) as err:
        process = subprocess.Popen([str(a) for a in args], stdout=out, stderr=err, cwd=cwd, env=env,
                                   stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL, start_new_session=True, **more)
        if data is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(data)
                process.stdin.close()
        timed_out = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            kill_group(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        out.seek(0)
        err.seek(0)
        result = Output(process.returncode, out.read().decode(errors="replace"), err.read().decode(errors="replace"),
                        time.monotonic() - started)
    words = " ".join(str(a) for a in args)
    if timed_out:
        raise AssertionError(f"not finished after {timeout} s: {words}\n{result}")
    if check and result.code != 0:
        raise AssertionError(f"failed: {words}\n{result}")
    return result


def end_process(process, limit=10):
    """SIGKILL and reap; processes that are stuck in the kernel are given up after `limit`."""
    if process is None or process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(limit)


# --- mounts ------------------------------------------------------------------------------------------------------


def mount_device(path):
    """The minor number of the mount at exactly `path`, which is its FUSE connection's name; None if there is none.
    Reads a list of the kernel's only, so it cannot hang on a dead mount."""
    found = None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            words = line.split()
            if words[4].replace("\\040", " ") == path:
                found = int(words[2].split(":")[1])
    return found


def abort_connection(minor):
    """Every request that waits on this FUSE connection gets ENOTCONN."""
    folder = "/sys/fs/fuse/connections"
    if not os.path.isdir(f"{folder}/{minor}") and os.geteuid() == 0 and not os.path.ismount(folder):
        subprocess.run(["mount", "-t", "fusectl", "none", folder], check=False, timeout=10, stderr=subprocess.DEVNULL)
    with contextlib.suppress(OSError), open(f"{folder}/{minor}/abort", "w", encoding="ascii") as f:
        f.write("1")


def take_away(path):
    """Removes a mount, whatever state it is in."""
    for _ in range(5):
        minor = mount_device(path)
        if minor is None:
            return
        abort_connection(minor)
        subprocess.run(["fusermount3", "-uz", path], check=False, timeout=20, stderr=subprocess.DEVNULL)


def _janitor(pipe, folder):
    """Body of the janitor: waits for the end of the test, then cleans from the notes in `folder`."""
    os.read(pipe, 1)
    if not os.path.isdir(folder):
        return
    pids, mounts = [], []
    for line in open(os.path.join(folder, "janitor"), encoding="utf-8"):
        kind, value = line.rstrip("\n").split(" ", 1)
        (pids if kind == "pid" else mounts).append(value)
    for path in mounts:
        take_away(path)
    for value in pids:
        pid, start = value.split()
        if process_start(int(pid)) == start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(pid), signal.SIGKILL)  # each leads a group; of a script also its children are in it
    end_daemons(folder)
    if os.environ.get("ARCHIL_E2E_KEEP") != "1":
        shutil.rmtree(folder, ignore_errors=True)


def process_start(pid):
    """When a process began, in the kernel's ticks: with the pid it names one process for ever."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def daemons(folder):
    """Pids of the servers and mount daemons below a cluster's folder, which their command lines name. Finds those that a
    script started, and that nobody here is the parent of."""
    found = []
    for pid in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if pid.isdigit() and os.path.basename(os.readlink(f"/proc/{pid}/exe")).split()[0] in ("archil", "archild"):
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if any(word.startswith(os.fsencode(folder) + b"/") for word in f.read().split(b"\0")):
                        found.append(int(pid))
    return sorted(found)


def end_daemons(folder, limit=10):
    """SIGKILL, and waits until they are gone; those that are stuck in the kernel are given up after `limit`."""
    end = time.monotonic() + limit
    while (found := daemons(folder)) and time.monotonic() < end:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def start_janitor(folder):
    """Returns the file descriptor whose closing (also by death) sets the janitor going."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(writing)
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        with contextlib.suppress(BaseException):
            _janitor(reading, folder)
        os._exit(0)
    os.close(reading)
    os.wait()
    os.set_inheritable(writing, False)
    return writing


# --- the cluster -------------------------------------------------------------------------------------------------


class Mount:
    """One mounted disk. `path` is the mount point; `process` the daemon."""

    def __init__(self, cluster, disk, path, args):
        self.cluster, self.disk, self.path, self.args = cluster, disk, path, list(args)
        self.process = None
        self.log_path = os.path.join(cluster.folder, f"mount-{os.path.basename(path)}.log")

    @property
    def pid(self):
        return self.process.pid

    def start(self, limit=60, retry_held=0):
        """Mounts and waits until it serves. A disk that is held elsewhere is tried again for `retry_held` seconds."""
        os.makedirs(self.path, exist_ok=True)
        end = time.monotonic() + retry_held
        while True:
            code = self._start_once(limit)
            if code is None:
                return self
            if code == HELD_ELSEWHERE and time.monotonic() < end:
                time.sleep(0.2)
                continue
            raise AssertionError(f"archil mount ended with exit code {code}:\n{tail(self.log_path)}")

    def _start_once(self, limit):
        with open(self.log_path, "ab") as out:
            self.process = self.cluster.start_mount(self, out)
        end = time.monotonic() + limit
        while True:
            if self.process.poll() is not None:
                return self.process.returncode
            if mount_device(self.path) is not None and self.status(check=False) is not None:
                return None
            if time.monotonic() > end:
                raise AssertionError(f"not mounted after {limit} s:\n{tail(self.log_path)}")
            time.sleep(0.02)

    def status(self, check=True):
        result = self.cluster.archil("status", self.path, "--json", check=check, timeout=20)
        return json.loads(result.out) if result.code == 0 else None

    def metrics(self):
        return json.loads(self.cluster.archil("metrics", self.path, "--json", timeout=20).out)

    def sync(self, timeout=STEP):
        return self.cluster.archil("sync", self.path, timeout=timeout)

    def unmount(self, timeout=STEP):
        """A clean unmount: everything flushed, daemon gone with exit code 0, mount point empty."""
        result = self.cluster.archil("unmount", self.path, timeout=timeout)
        until("the mount daemon has ended", lambda: self.process.poll() is not None, 20)
        if self.process.returncode != 0:
            raise AssertionError(f"the mount daemon ended with {self.process.returncode}:\n{tail(self.log_path)}")
        if mount_device(self.path) is not None:
            raise AssertionError(f"{self.path} is still mounted")
        return result

    def kill(self):
        """kill -9 of the daemon; what the kernel keeps of the mount is taken away."""
        end_process(self.process)
        take_away(self.path)

    def rss_kib(self):
        return rss_kib(self.pid)


class Cluster:
    """Servers, disks and mounts below one temporary directory."""

    def __init__(self, name="e2e"):
        self.folder = tempfile.mkdtemp(prefix=f"archil-{name}-", dir=TMP)
        _clusters.append(self)
        self._notes = os.path.join(self.folder, "janitor")
        open(self._notes, "w", encoding="utf-8").close()
        self._janitor = start_janitor(self.folder)
        self.processes = []
        self.mounts = []
        self.servers = {}
        self.port = free_port()
        self.server_host = "127.0.0.1"
        self.address = f"{self.server_host}:{self.port}"
        self.env = dict(os.environ, ARCHIL_SERVER=self.address, HOME=self.path("home"), ARCHIL_RUNTIME_DIR=self.path("run"),
                        ARCHIL_STATE_DIR=self.path("state"), XDG_CACHE_HOME=self.path("cache"),
                        GIT_CONFIG_SYSTEM="/dev/null", LC_ALL="C.UTF-8", GIT_AUTHOR_NAME="T", GIT_AUTHOR_EMAIL="t@example.org",
                        GIT_COMMITTER_NAME="T", GIT_COMMITTER_EMAIL="t@example.org", GIT_TERMINAL_PROMPT="0")
        for part in ("home", "run", "state", "cache"):
            os.makedirs(self.path(part), mode=0o700)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def note(self, line):
        with open(self._notes, "a", encoding="utf-8") as f:
            f.write(line + "\n")

    def spawn(self, args, out, env=None, cwd=None):
        process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env or self.env,
                                   cwd=cwd or self.folder, start_new_session=True)
        self.processes.append(process)
        self.note(f"pid {process.pid} {process_start(process.pid)}")
        return process

    # Servers

    def start_server(self, *args, limit=60):
        """`archild all`, until it takes connections."""
        return self.start_role("all", ["all", "--dir", self.path("server"), "--listen", self.address, *args], self.port, limit)

    def start_role(self, name, args, port, limit=60):
        log_path = self.path(f"archild-{name}.log")
        with open(log_path, "ab") as out:
            process = self.spawn([binary("archild"), *args], out)
        self.servers[name] = process

        def ready():
            if process.poll() is not None:
                raise AssertionError(f"archild {name} ended with exit code {process.returncode}:\n{tail(log_path)}")
            with socket.socket() as s:
                s.settimeout(1)
                return s.connect_ex((self.server_host, port)) == 0

        until(f"archild {name} listens", ready, limit)
        return process

    def stop_server(self, name="all", limit=60):
        """SIGTERM; the exit code must be 0."""
        process = self.servers[name]
        process.terminate()
        until(f"archild {name} has stopped", lambda: process.poll() is not None, limit)
        if process.returncode != 0:
            raise AssertionError(f"archild {name} ended with {process.returncode}:\n{tail(self.path(f'archild-{name}.log'))}")

    def kill_server(self, name="all"):
        end_process(self.servers[name])

    # The command line

    def archil(self, *args, timeout=STEP, check=True, env=None, cwd=None):
        return run([binary("archil"), *args], timeout=timeout, check=check, env=env or self.env, cwd=cwd or self.folder)

    def run(self, args, **more):
        more.setdefault("env", self.env)
        return run(args, **more)

    def create_disk(self, name="d"):
        self.archil("disk", "create", name)

    def disk_show(self, name="d"):
        return json.loads(self.archil("disk", "show", name, "--json").out)

    def mount(self, disk="d", name="mnt", *args, limit=60, retry_held=0):
        mount = Mount(self, disk, self.path(name), args)
        self.note(f"mount {mount.path}")
        self.mounts.append(mount)
        return mount.start(limit, retry_held)

    def start_mount(self, mount, out):
        return self.spawn([binary("archil"), "mount", mount.disk, mount.path, "--foreground", *mount.args], out)

    def git(self, *args, cwd=None, timeout=600, check=True):
        return self.run(["git", "-c", "advice.detachedHead=false", *args], cwd=cwd or self.folder, timeout=timeout, check=check)

    # The end

    def close(self, keep=False):
        for mount in self.mounts:
            take_away(mount.path)
        for process in self.processes:
            end_process(process)
        end_daemons(self.folder)
        if keep:
            os.replace(self._notes, self._notes + ".done")
            open(self._notes, "w", encoding="utf-8").close()
            log(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._janitor is not None:
            os.close(self._janitor)
            self._janitor = None
            _clusters.remove(self)

    def show_logs(self, lines=40):
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                print(f"--- the end of {name}\n{tail(self.path(name), lines)}", file=sys.stderr)


class ClusterTest(unittest.TestCase):
    """A test with a cluster of its own as self.cluster. On a failure the ends of all logs are shown."""

    maxDiff = 4000

    def run(self, result=None):
        before = len(result.failures) + len(result.errors)
        binary("archild")
        binary("archil")
        self.cluster = self.new_cluster(self._testMethodName.removeprefix("test_"))
        failed = True
        try:
            log(self.id())
            super().run(result)
            failed = len(result.failures) + len(result.errors) > before
        finally:
            if failed:
                self.cluster.show_logs()
            self.cluster.close(keep=failed and os.environ.get("ARCHIL_E2E_KEEP") == "1")
        return result

    def new_cluster(self, name):
        return Cluster(name)

    def start(self, *mount_args, disk="d"):
        """Server, disk and mount in one go. Returns the mount."""
        self.cluster.start_server()
        self.cluster.create_disk(disk)
        return self.cluster.mount(disk, "mnt", *MOUNT_OPTIONS, *mount_args)


def main(limit):
    """Runs the tests of the calling module; after `limit` seconds the process ends whatever hangs. The ctest timeout
    must be longer by at least 30 s."""

    def watch():
        time.sleep(limit)
        log(f"the whole test had {limit} s and is not finished: giving up")
        for line in os.popen("ps -eo pid,ppid,stat,wchan:24,etimes,args --sort=pid | grep -E 'archil|STAT' | grep -v grep | head -40"):
            print(line, end="", file=sys.stderr)
        faulthandler.dump_traceback(file=sys.stderr)
        sys.stderr.flush()
        # A thread of ours that waits in the kernel for a dead mount would keep this process, so mounts go first.
        for cluster in list(_clusters):
            for mount in cluster.mounts:
                take_away(mount.path)
        os._exit(1)  # the janitor cleans

    threading.Thread(target=watch, daemon=True).start()
    unittest.main(verbosity=2)


# --- helpers of several tests ------------------------------------------------------------------------------------


def tail(path, lines=40):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])
    except OSError as e:
        return f"({e})"


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def upcalls(metrics):
    """Requests of the kernel, FORGETs not counted."""
    return sum(v for k, v in metrics.items() if k.startswith("upcall_") and "forget" not in k)


def rpcs(metrics):
    """Round trips that work caused; renewals of the lease come by the clock and are not among them."""
    return sum(v for k, v in metrics.items() if k.startswith("rpc_"))


def difference(before, after, prefix=""):
    return {k: after[k] - before.get(k, 0) for k in after if k.startswith(prefix) and after[k] != before.get(k, 0)}


def sample_repo(folder, files):
    """A bare repository with the tags `old` and `new` (scripts/sample_repo.py)."""
    run([sys.executable, os.path.join(ROOT, "scripts", "sample_repo.py"), folder, "--files", str(files)], timeout=600)
    return folder


def tree_digest(root, times=True, skip=()):
    """{relative path: (type, mode, uid, gid, nlink, size, mtime, content or target or rdev, xattrs)} of everything below
    `root`, itself included. Two trees are equal if these are. nlink of directories is left out, it depends on the file system."""
    import hashlib
    import stat as st
    result = {}
    root = os.fsencode(root)

    def add(path):
        info = os.lstat(path)
        kind = st.S_IFMT(info.st_mode)
        if kind == st.S_IFREG:
            digest = hashlib.blake2b(digest_size=16)
            with open(path, "rb") as f:
                while block := f.read(1 << 20):
                    digest.update(block)
            content = digest.hexdigest()
        elif kind == st.S_IFLNK:
            content = os.readlink(path)
        else:
            content = info.st_rdev
        attributes = ()
        if kind in (st.S_IFREG, st.S_IFDIR):
            attributes = tuple((n, os.getxattr(path, n)) for n in sorted(os.listxattr(path)))
        name = os.fsdecode(os.path.relpath(path, root))
        result[name] = (kind, info.st_mode & 0o7777, info.st_uid, info.st_gid, 0 if kind == st.S_IFDIR else info.st_nlink,
                        0 if kind == st.S_IFDIR else info.st_size, info.st_mtime_ns if times else 0, content, attributes)
        if kind == st.S_IFDIR:
            for child in sorted(os.listdir(path)):
                if child not in skip:
                    add(os.path.join(path, child))

    add(root)
    return result


def compare_trees(test, left, right, limit=20):
    """Fails `test` with the first differences of two tree digests."""
    lines = []
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            lines.append(f"{name}:\n    {str(left.get(name)):.300}\n    {str(right.get(name)):.300}")
            if len(lines) == limit:
                break
    if lines:
        test.fail("the trees differ:\n" + "\n".join(lines))
