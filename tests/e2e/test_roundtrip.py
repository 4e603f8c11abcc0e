#!/usr/bin/env python3
"""rsync, tar and cp onto the disk and back: equal byte by byte, with times, modes, owners, links and extended attributes."""
import os
import random
import stat

import harness


def make_tree(root, seed, files):
    """A tree with every kind of thing, of all sizes that matter, deterministic."""
    rng = random.Random(seed)
    folders = [root]
    os.makedirs(root)
    for i in range(files // 12):
        folders.append(os.path.join(rng.choice(folders), f"dir {i}"))
        os.mkdir(folders[-1])
    sizes = [0, 1, 4095, 4096, 4097, 65535, 65536, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000]
    paths, others = [], []
    for i in range(files):
        size = sizes[i] if i < len(sizes) else int(rng.expovariate(1 / 6000))
        path = os.path.join(rng.choice(folders), f"file-{i}{rng.choice(['', '.txt', ' ü', '.so.1'])}")
        with open(path, "wb") as f:
            f.write(rng.randbytes(size))
        os.chmod(path, rng.choice([0o644, 0o600, 0o755, 0o444, 0o4755]))
        paths.append(path)
    for i in range(files // 20):
        os.link(rng.choice(paths), os.path.join(rng.choice(folders), f"hard{i}"))
        others.append(os.path.join(rng.choice(folders), f"soft{i}"))
        os.symlink(rng.choice(["nowhere", "../x", "/etc/passwd", "y" * 300]), others[-1])
    for path in rng.sample(paths, files // 20):
        os.setxattr(path, "user.note", rng.randbytes(rng.choice([0, 5, 200])))
    sparse = os.path.join(root, "sparse")
    with open(sparse, "wb") as f:
        f.truncate(50 << 20)
        f.seek(33 << 20)
        f.write(b"island")
    others += [sparse, os.path.join(root, "fifo")]
    os.mkfifo(others[-1])
    if os.geteuid() == 0:
        others.append(os.path.join(root, "device"))
        os.mknod(others[-1], stat.S_IFCHR | 0o660, os.makedev(1, 5))
        for path in rng.sample(paths, files // 10):
            mode = os.stat(path).st_mode
            os.chown(path, rng.randrange(1, 60000), rng.randrange(1, 60000))
            os.chmod(path, stat.S_IMODE(mode))
    for path in paths:
        os.utime(path, ns=(rng.randrange(2 * 10**18), rng.randrange(-10**17, 4 * 10**18)))
    for path in others:  # rsync sees no difference below a second, so these must not keep the present
        os.utime(path, (1_000_000_000, rng.randrange(10**9)), follow_symlinks=False)
    for folder in reversed(folders):
        os.utime(folder, ns=(rng.randrange(2 * 10**18), rng.randrange(2 * 10**18)))


class Roundtrip(harness.ClusterTest):
    def test_rsync_tar_cp(self):
        cluster = self.cluster
        seed = harness.test_seed()
        source = cluster.path("source")
        make_tree(source, seed, 3000)
        want = harness.tree_digest(source)
        mount = self.start()
        copies = {
            "rsync": ["rsync", "-aHAXS", "--numeric-ids", source + "/", os.path.join(mount.path, "rsync")],
            "tar": ["bash", "-c", 'mkdir "$2" && tar -C "$1" --xattrs -cf - . | tar -C "$2" --xattrs -xpf -', "tar", source,
                    os.path.join(mount.path, "tar")],
            "cp": ["cp", "-a", source, os.path.join(mount.path, "cp")],
        }
        for name, command in copies.items():
            seconds = cluster.run(command, timeout=300).seconds
            harness.log(f"{name} onto the disk: {seconds:.1f} s")
            harness.compare_trees(self, want, harness.tree_digest(os.path.join(mount.path, name)))
        mount.unmount()
        mount.start()
        for name in copies:
            harness.compare_trees(self, want, harness.tree_digest(os.path.join(mount.path, name)))
            back = cluster.path("back-" + name)
            cluster.run(["rsync", "-aHAXS", "--numeric-ids", os.path.join(mount.path, name) + "/", back], timeout=300)
            harness.compare_trees(self, want, harness.tree_digest(back))
        changed = cluster.run(["rsync", "-aHAXn", "--numeric-ids", "--itemize-changes", source + "/", os.path.join(mount.path, "rsync")])
        self.assertEqual(changed.out, "", "rsync would copy again")
        archive = os.path.join(mount.path, "all.tar")
        cluster.run(["tar", "-C", os.path.join(mount.path, "tar"), "-cf", archive, "."], timeout=300)
        cluster.run(["tar", "-C", os.path.join(mount.path, "tar"), "--compare", "-f", archive], timeout=300)
        cluster.run(["rm", "-rf", os.path.join(mount.path, "cp")], timeout=300)
        self.assertFalse(os.path.exists(os.path.join(mount.path, "cp")))
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=360)
