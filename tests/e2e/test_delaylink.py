#!/usr/bin/env python3
"""bench/delaylink itself: round trips as long as asked, cut and healed links, refusals. No mount."""
import hashlib
import os
import signal
import socket
import statistics
import threading
import time

import harness
import lab

PORT = 5000


def refused(*args):
    return harness.run([harness.binary("delaylink"), *args], check=False, timeout=20)


class Arguments(harness.unittest.TestCase):
    def test_refusals(self):
        hosts = ("--host", "a=/proc/self/ns/net", "--host", "b=/proc/self/ns/net")
        control = ("--control", "/nowhere/at/all")
        delay = ("--delay", "1ms")
        for args, text in (
                ((), "--delay is missing"),
                (("--what", "1"), "unknown argument --what"),
                (("--delay",), "--delay needs a value"),
                (("--delay", "fast"), "--delay fast: want a time"),
                (("--delay", "-1ms"), "--delay -1ms: want a time"),
                (("--delay", "11s"), "--delay 11s: want a time"),
                (delay, "--control is missing"),
                ((*delay, "--control", "x" * 200), "too long"),
                ((*delay, *control), "2 to 64 times --host, not 0"),
                ((*delay, *control, "--host", "a=/x"), "2 to 64 times --host, not 1"),
                ((*delay, *control, "--host", "a"), "--host a: want NAME="),
                ((*delay, *control, "--host", "=x"), "--host =x: want NAME="),
                ((*delay, *control, "--host", "a=/x", "--host", "a=/y"), "--host a is there twice"),
                ((*delay, *control, *hosts, "--device", "a/b"), "--device a/b: no name")):
            result = refused(*args)
            self.assertEqual(result.code, 2, args)
            self.assertIn(text, result.err)
        self.assertEqual(refused(*delay, *control, *hosts).code, 1)
        self.assertIn("/nowhere/at/all: No such file", refused(*delay, *control, *hosts).err)
        with harness.tempfile.TemporaryDirectory(dir=harness.TMP) as folder:
            result = refused(*delay, "--control", f"{folder}/c", "--host", "a=/nowhere", "--host", "b=/nowhere")
        self.assertEqual(result.code, 1)
        self.assertIn("/nowhere: No such file", result.err)


class Links(harness.ClusterTest):
    def make(self, rtt, names=("a", "b", "c")):
        self.link = lab.Link(self.cluster, names, rtt)
        return [self.link.hosts[name] for name in names]

    def echo(self, host):
        """Sends back what comes in datagrams, until the socket is closed."""
        with host.inside():
            server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((host.address, PORT))
        self.addCleanup(server.close)

        def run():
            while True:
                data, sender = server.recvfrom(65536)
                if data == b"end":
                    return
                server.sendto(data, sender)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return server

    def client(self, host, other):
        with host.inside():
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((other.address, PORT))
        self.addCleanup(s.close)
        return s

    def ping(self, s, limit=2.0):
        """Seconds until the answer; None if none comes."""
        s.settimeout(limit)
        started = time.perf_counter()
        s.send(b"%.9f" % started)
        while True:
            try:
                if s.recv(100) == b"%.9f" % started:
                    return time.perf_counter() - started
            except TimeoutError:
                return None

    def test_round_trips(self):
        for rtt in (0.0005, 0.02):
            a, b = self.make(rtt, ("a", "b"))
            self.echo(b)
            s = self.client(a, b)
            harness.until("the hosts know each other", lambda: self.ping(s))
            times = sorted(self.ping(s) for _ in range(100))
            status = self.link.status()
            harness.log(f"asked {rtt * 1000} ms: least {times[0] * 1000:.3f}, median {times[50] * 1000:.3f}, "
                        f"most {times[-1] * 1000:.3f}; {status}")
            self.assertGreaterEqual(times[0], rtt)
            # The two ends and their processes that wake up are in it, on a machine that may be busy.
            self.assertLess(statistics.median(times), rtt + 0.001)
            self.assertEqual(status["hosts"]["a"]["dropped"], 0)
            self.link.process.terminate()
            self.assertEqual(self.link.process.wait(10), 0)
            self.assertFalse(os.path.exists(self.cluster.path("link")))
            self.assertNotIn("eth0", a.run("ip", "link").out)

    def test_a_stream_is_carried_whole(self):
        a, b = self.make(0.0005, ("a", "b"))
        with b.inside():
            listener = socket.create_server((b.address, PORT))
        with a.inside():
            s = socket.socket()
        s.settimeout(20)
        s.connect((b.address, PORT))
        there, _ = listener.accept()
        there.settimeout(20)
        block = os.urandom(1 << 20)
        count = 200
        received = hashlib.sha256()
        sent = hashlib.sha256()

        def receive():
            left = count << 20
            while left:
                data = there.recv(1 << 20)
                received.update(data)
                left -= len(data)

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        started = time.monotonic()
        for i in range(count):
            s.sendall(block)
        thread.join(60)
        seconds = time.monotonic() - started
        for _ in range(count):
            sent.update(block)
        harness.log(f"{count * 8.389e-3 / seconds:.2f} Gbit/s, {self.link.status()}")
        self.assertEqual(received.digest(), sent.digest())
        self.assertGreater(count * 8.389e-3 / seconds, 0.3)
        for x in (s, there, listener):
            x.close()

    def test_cut_and_healed(self):
        a, b, c = self.make(0.1)
        self.echo(a)
        to_a = {host.name: self.client(host, a) for host in (b, c)}
        for name, s in to_a.items():
            harness.until(f"{name} reaches a", lambda s=s: self.ping(s))
        with a.inside():
            listener = socket.create_server((a.address, PORT))
        with b.inside():
            stream = socket.socket()
        stream.settimeout(20)
        stream.connect((a.address, PORT))
        far, _ = listener.accept()
        far.settimeout(20)

        to_a["b"].send(b"on its way when the link is cut")
        self.link.cut("b")
        self.assertTrue(self.link.status()["hosts"]["b"]["cut"])
        stream.sendall(b"kept")
        self.assertIsNone(self.ping(to_a["b"], 0.5))
        self.assertIsNotNone(self.ping(to_a["c"]), "the others are not cut")
        to_a["b"].settimeout(0.01)
        self.assertRaises(TimeoutError, to_a["b"].recv, 100)
        self.link.heal("b")
        self.assertIsNotNone(self.ping(to_a["b"]))
        self.assertEqual(far.recv(100), b"kept", "a stream goes on")
        self.assertGreater(self.link.status()["hosts"]["a"]["dropped"] + self.link.status()["hosts"]["b"]["dropped"], 1)
        for x in (stream, far, listener):
            x.close()

    def test_commands(self):
        self.make(0.001)
        self.assertEqual(self.link.command("cut nobody"), "error: no host nobody")
        for text in ("cut", "cuts a", "x" * 300):
            self.assertTrue(self.link.command(text).startswith("error: want"), text)
        self.assertEqual(self.link.command("heal a"), "ok")
        self.link.process.send_signal(signal.SIGINT)
        self.assertEqual(self.link.process.wait(10), 0)


if __name__ == "__main__":
    harness.main(limit=150)
