#!/usr/bin/env python3
"""One metadata server and two data servers as processes of their own: work, restarts and kills of each."""
import os

import harness


class ThreeProcesses(harness.ClusterTest):
    def start_three(self):
        cluster = self.cluster
        self.ports = {"data1": harness.free_port(), "data2": harness.free_port(), "meta": cluster.port}
        for name in ("data1", "data2", "meta"):
            self.start_one(name)
        cluster.create_disk()

    def start_one(self, name):
        cluster = self.cluster
        address = f"127.0.0.1:{self.ports[name]}"
        args = [name.rstrip("12"), "--dir", cluster.path(name), "--listen", address]
        if name == "meta":
            args += ["--data", ",".join(f"127.0.0.1:{self.ports[n]}" for n in ("data1", "data2"))]
        else:
            args += ["--object-store", "file:" + cluster.path("objects")]
        cluster.start_role(name, args, self.ports[name])

    def test_work_restart_kill(self):
        cluster = self.cluster
        repo = harness.sample_repo(cluster.path("sample.git"), 1500)
        self.start_three()
        mount = cluster.mount()
        work = os.path.join(mount.path, "work")
        cluster.git("clone", "--quiet", "--no-hardlinks", repo, work)
        cluster.git("checkout", "--quiet", "old", cwd=work)
        mount.sync()
        before = harness.tree_digest(work, times=False, skip={b".git"})
        for name in ("meta", "data1", "data2"):
            for how in ("stop", "kill"):
                harness.log(f"{how} {name}")
                with open(os.path.join(mount.path, f"{name}-{how}"), "wb") as f:
                    f.write(name.encode() * 1000)
                    f.flush()
                    os.fsync(f.fileno())
                if how == "stop":
                    cluster.stop_server(name)
                else:
                    cluster.kill_server(name)
                self.start_one(name)
                cluster.run(["sh", "-c", 'for i in $(seq 50); do echo "$i" >"$0/$1-$i"; done', mount.path, f"after-{name}-{how}"], timeout=60)
                mount.sync()
        cluster.git("checkout", "--quiet", "new", cwd=work)
        cluster.git("fsck", "--full", "--no-progress", cwd=work)
        cluster.git("checkout", "--quiet", "old", cwd=work)
        self.assertEqual(cluster.git("status", "--porcelain", cwd=work).out, "")
        mount.unmount()
        for name in ("meta", "data1", "data2"):
            cluster.stop_server(name)
        for name in ("data1", "data2", "meta"):
            self.start_one(name)
        mount.start()
        harness.compare_trees(self, before, harness.tree_digest(work, times=False, skip={b".git"}))
        for name in ("meta", "data1", "data2"):
            for how in ("stop", "kill"):
                with open(os.path.join(mount.path, f"{name}-{how}"), "rb") as f:
                    self.assertEqual(f.read(), name.encode() * 1000)
        self.assertEqual(len([n for n in os.listdir(mount.path) if n.startswith("after-")]), 300)
        mount.unmount()

    def test_all_killed_after_fsync(self):
        cluster = self.cluster
        self.start_three()
        mount = cluster.mount("d", "mnt", "--lease", "2s")
        paths = []
        for i in range(20):
            paths.append(os.path.join(mount.path, f"f{i}"))
            with open(paths[-1], "wb") as f:
                f.write(bytes([i]) * 200_000)
                f.flush()
                os.fsync(f.fileno())
        for name in ("meta", "data1", "data2"):
            cluster.kill_server(name)
        mount.kill()
        for name in ("data1", "data2", "meta"):
            self.start_one(name)
        mount.start(retry_held=40)
        for i, path in enumerate(paths):
            with open(path, "rb") as f:
                self.assertEqual(f.read(), bytes([i]) * 200_000)
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=300)
