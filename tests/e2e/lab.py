"""Several hosts on this machine: network namespaces, joined by bench/delaylink with a round-trip time, links that can be cut.

A namespace lives as long as its processes, and all of them are the cluster's: what takes those away (harness.py) takes the
hosts away too. Mount points are this process's own: only the network of a daemon is another one.
"""
import contextlib
import ctypes
import json
import os
import socket

import harness

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(fd):
    """The calling thread goes into a network namespace."""
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"setns: {os.strerror(error)}")


class Host:
    """One network namespace; `address` is its own on the link."""

    def __init__(self, cluster, name, number):
        self.name, self.address = name, f"10.77.0.{number}"
        with open(cluster.path(f"host-{name}.log"), "ab") as out:
            holder = cluster.spawn(["unshare", "--net", "sleep", "infinity"], out)
        self.netns = f"/proc/{holder.pid}/ns/net"
        harness.until("the host is there", lambda: os.readlink(self.netns) != os.readlink("/proc/self/ns/net"), 20)

    @contextlib.contextmanager
    def inside(self):
        """What this thread starts and which sockets it makes are on this host. Threads that run already are not moved."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            there = os.open(self.netns, os.O_RDONLY)
            try:
                _enter(there)
            finally:
                os.close(there)
            try:
                yield self
            finally:
                _enter(home)
        finally:
            os.close(home)

    def run(self, *args):
        with self.inside():
            return harness.run(args, timeout=20)


class Link:
    """The hosts `names` of a cluster, each `rtt` seconds from each other."""

    def __init__(self, cluster, names, rtt):
        self.hosts = {name: Host(cluster, name, i + 1) for i, name in enumerate(names)}
        self._path = cluster.path("link")
        log_path = cluster.path("delaylink.log")
        args = [harness.binary("delaylink"), "--delay", f"{rtt * 1e6 / 2:.0f}us", "--control", self._path]
        for host in self.hosts.values():
            args += ["--host", f"{host.name}={host.netns}"]
        with open(log_path, "ab") as out:
            self.process = cluster.spawn(args, out)

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"delaylink ended with {self.process.returncode}:\n{harness.tail(log_path)}")
            return "ready" in harness.tail(log_path)

        harness.until("delaylink is ready", ready, 20)
        for host in self.hosts.values():
            host.run("ip", "link", "set", "lo", "up")
            host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")

    def command(self, text):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(20)
            s.connect(self._path)
            s.send(text.encode())
            return s.recv(65536).decode()

    def _change(self, text):
        answer = self.command(text)
        if answer != "ok":
            raise AssertionError(f"{text}: {answer}")

    def cut(self, name):
        """Nothing passes to and from this host any more; what was on its way is lost."""
        self._change(f"cut {name}")

    def heal(self, name):
        self._change(f"heal {name}")

    def status(self):
        return json.loads(self.command("status"))


class LabCluster(harness.Cluster):
    """A cluster whose server is on a host of its own, and whose mounts take turns on the hosts client0, client1…"""

    def __init__(self, name, rtt, clients=2):
        super().__init__(name)
        self.link = Link(self, ["server"] + [f"client{i}" for i in range(clients)], rtt)
        self.hosts = self.link.hosts
        self.server_host = self.hosts["server"].address
        self.address = f"{self.server_host}:{self.port}"
        self.env["ARCHIL_SERVER"] = self.address

    def host_of(self, mount):
        return self.hosts[f"client{self.mounts.index(mount) % (len(self.hosts) - 1)}"]

    def start_role(self, *args, **more):
        with self.hosts["server"].inside():
            return super().start_role(*args, **more)

    def start_mount(self, mount, *args):
        with self.host_of(mount).inside():
            return super().start_mount(mount, *args)

    def archil(self, *args, **more):
        with self.hosts["server"].inside():
            return super().archil(*args, **more)


class LabTest(harness.ClusterTest):
    """A test with a LabCluster as self.cluster."""

    RTT = 0.0005
    CLIENTS = 2

    def new_cluster(self, name):
        return LabCluster(name, self.RTT, self.CLIENTS)
