#!/usr/bin/env python3
"""A real C program from a Debian source package, built on a mounted disk: equal to the one built on the host."""
import glob
import os
import re
import subprocess

import harness

PACKAGE = "lua5.4"


def source_lists(cluster):
    """apt options for source packages, from this machine's own configuration; nothing of it is changed."""
    root = cluster.path("apt")
    for part in ("lists/partial", "cache/archives/partial", "parts"):
        os.makedirs(os.path.join(root, part))
    with open(os.path.join(root, "sources.list"), "w", encoding="utf-8") as out:
        for path in ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*.list")]:
            if os.path.exists(path):
                for line in open(path, encoding="utf-8"):
                    if re.match(r"deb(-src)?\s.*debian", line):
                        out.write(re.sub(r"^deb(-src)?\b", "deb-src", line))
    for path in glob.glob("/etc/apt/sources.list.d/*.sources"):
        text = open(path, encoding="utf-8").read()
        if "debian" in os.path.basename(path):
            with open(os.path.join(root, "parts", os.path.basename(path)), "w", encoding="utf-8") as out:
                out.write(re.sub(r"(?m)^Types:.*$", "Types: deb-src", text))
    return ["-o", f"Dir::Etc::SourceList={root}/sources.list", "-o", f"Dir::Etc::SourceParts={root}/parts",
            "-o", f"Dir::State::Lists={root}/lists", "-o", f"Dir::Cache={root}/cache", "-o", "APT::Sandbox::User=root"]


class Make(harness.ClusterTest):
    def build(self, folder):
        env = dict(self.cluster.env, SOURCE_DATE_EPOCH="1700000000", CCACHE_DISABLE="1")
        src = os.path.join(folder, "src")
        result = self.cluster.run(["make", "-j2", "-C", src, "linux", "MYCFLAGS=-g0 -ffile-prefix-map=" + folder + "=/"], env=env, timeout=300)
        harness.log(f"make in {folder}: {result.seconds:.1f} s")
        self.assertEqual(self.cluster.run([os.path.join(src, "lua"), "-e", "print(6*7)"]).out, "42\n")
        again = self.cluster.run(["make", "-C", src, "linux", "MYCFLAGS=-g0 -ffile-prefix-map=" + folder + "=/"], env=env, timeout=300)
        self.assertNotIn("gcc", again.out.replace("cd src", ""), "make built again what was built: times are wrong")
        with open(os.path.join(src, "lua"), "rb") as f:
            return f.read()

    def test_build(self):
        cluster = self.cluster
        options = source_lists(cluster)
        fetched = cluster.path("fetched")
        os.mkdir(fetched)
        cluster.run(["apt-get", *options, "-qq", "update"], env=dict(os.environ), timeout=120)
        cluster.run(["apt-get", *options, "-qq", "source", "--download-only", PACKAGE], cwd=fetched, env=dict(os.environ), timeout=120)
        archive = glob.glob(os.path.join(fetched, "*.orig.tar.*"))[0]
        mount = self.start()
        programs = []
        for parent in (fetched, mount.path):
            cluster.run(["tar", "-C", parent, "-xf", archive])
            folder = [p for p in glob.glob(os.path.join(parent, "lua*")) if os.path.isdir(p)][0]
            programs.append(self.build(folder))
        self.assertEqual(programs[0], programs[1], "the program built on the disk differs")
        mount.unmount()
        mount.start()
        program = glob.glob(os.path.join(mount.path, "lua*", "src", "lua"))[0]
        self.assertEqual(subprocess.run([program, "-e", "print('again')"], capture_output=True, text=True, timeout=30).stdout, "again\n")
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=420)
