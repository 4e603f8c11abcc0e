#!/usr/bin/env python3
"""A seeded load that writes down what it did, and the judge of what is left after a crash.

The load makes one change after the other below its own directory. Before each it writes what it is going to do, after
it that it is done, into a log on the host. The judge replays that log on a model of its own and asks:

  ORD-1  the names, types, modes, links, targets and attributes that are left are those after some prefix of the operations;
  DUR-1  the prefix holds everything that a successful fsync covered;
  ORD-2  the content of each file is one that it had, no older than the last fsync, rename, link, truncate or chmod of it
         inside the prefix, no older than the rename of any directory, and no newer than the prefix.

usage: crash_load.py DIRECTORY LOG SEED MOUNT_ROOT     until SIGTERM, or an error of the mount
"""
import errno
import hashlib
import json
import os
import random
import signal
import stat
import sys
import time

ROOT_INO = -1
# What calls answer when the mount is dead.
DEAD = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENODEV}
MAX_ENTRIES = 250
DATA_OPS = ("write", "append")
QUIET_OPS = ("fsync", "fsyncdir", "fsyncroot")  # change nothing


def content(tag, length):
    """Bytes that name themselves."""
    return hashlib.shake_128(str(tag).encode()).digest(length)


class Inode:
    def __init__(self, kind, mode, target=""):
        self.kind, self.mode, self.target = kind, mode, target  # kind: "f", "d", "l"
        self.xattrs = {}
        self.names = {} if kind == "d" else None
        self.versions = [(-1, b"", None)]  # (index of the operation, content, (first, end) of what it wrote)
        self.pin = 0                 # versions before this one may not show


class Model:
    """The state after a prefix of the operations. Inodes are called by the index of the operation that made them."""

    def __init__(self):
        self.inodes = {ROOT_INO: Inode("d", 0o755)}

    def find(self, path):
        """(parent inode, name, inode number or None)"""
        ino = ROOT_INO
        parts = path.split("/")
        for part in parts[:-1]:
            ino = self.inodes[ino].names[part]
        return self.inodes[ino], parts[-1], self.inodes[ino].names.get(parts[-1])

    def inode(self, path):
        return self.inodes[self.find(path)[2] if path else ROOT_INO]

    def pin_content(self, inode):
        inode.pin = len(inode.versions) - 1

    def apply(self, index, op):
        getattr(self, "do_" + op[0])(index, *op[1:])

    def make(self, index, path, inode):
        parent, name, _ = self.find(path)
        self.inodes[index] = inode
        parent.names[name] = index

    def do_mkdir(self, index, path, mode):
        self.make(index, path, Inode("d", mode))

    def do_create(self, index, path, mode):
        self.make(index, path, Inode("f", mode))

    def do_symlink(self, index, target, path):
        self.make(index, path, Inode("l", 0o777, target))

    def do_write(self, index, path, offset, length, tag):
        inode = self.inode(path)
        old = inode.versions[-1][1]
        new = old.ljust(offset, b"\0")[:offset] + content(tag, length) + old[offset + length:]
        inode.versions.append((index, new, (offset, offset + length)))

    def do_append(self, index, path, length, tag):
        self.do_write(index, path, len(self.inode(path).versions[-1][1]), length, tag)

    def do_truncate(self, index, path, size):
        inode = self.inode(path)
        inode.versions.append((index, inode.versions[-1][1][:size].ljust(size, b"\0"), None))
        self.pin_content(inode)

    def do_rename(self, index, old, new):
        parent, name, ino = self.find(old)
        new_parent, new_name, victim = self.find(new)
        if victim == ino:
            return
        del parent.names[name]
        new_parent.names[new_name] = ino
        if self.inodes[ino].kind == "d":
            for inode in self.inodes.values():
                self.pin_content(inode)
        else:
            self.pin_content(self.inodes[ino])

    def do_link(self, index, old, new):
        ino = self.find(old)[2]
        parent, name, _ = self.find(new)
        parent.names[name] = ino
        self.pin_content(self.inodes[ino])

    def do_unlink(self, index, path):
        parent, name, _ = self.find(path)
        del parent.names[name]

    do_rmdir = do_unlink

    def do_chmod(self, index, path, mode):
        self.inode(path).mode = mode
        self.pin_content(self.inode(path))

    def do_setxattr(self, index, path, name, value):
        self.inode(path).xattrs[name] = value

    def do_fsync(self, index, path):
        self.pin_content(self.inode(path))

    def do_fsyncdir(self, index, path):
        pass

    def do_fsyncroot(self, index):
        for inode in self.inodes.values():
            self.pin_content(inode)

    def paths(self):
        """path -> inode number of everything below the root."""
        result = {}
        todo = [("", ROOT_INO)]
        while todo:
            prefix, ino = todo.pop()
            for name, child in self.inodes[ino].names.items():
                result[prefix + name] = child
                if self.inodes[child].kind == "d":
                    todo.append((prefix + name + "/", child))
        return result

    def snapshot(self):
        """What can be compared with seen(): path -> (kind, mode, target, xattrs, first name of the same inode)."""
        paths = self.paths()
        first = {}
        for path in sorted(paths):
            first.setdefault(paths[path], path)
        return {path: (self.inodes[ino].kind, self.inodes[ino].mode, self.inodes[ino].target,
                       tuple(sorted(self.inodes[ino].xattrs.items())), first[ino]) for path, ino in paths.items()}


# --- the load ----------------------------------------------------------------------------------------------------


class Generator:
    """Chooses operations that succeed in the state of its model."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.model = Model()
        self.number = 0
        self.queue = []

    def name(self, prefix):
        self.number += 1
        return f"{prefix}{self.number}"

    def next(self):
        if not self.queue:
            self.queue = self.choose()
        return self.queue.pop(0)

    def choose(self):
        rng, model = self.rng, self.model
        paths = model.paths()
        kinds = {"f": [], "d": [], "l": []}
        for path in sorted(paths):
            kinds[model.inodes[paths[path]].kind].append(path)
        files, folders = kinds["f"], kinds["d"]

        def fresh(prefix):
            folder = rng.choice(folders + [""])
            return (folder + "/" if folder else "") + self.name(prefix)

        def file():
            return rng.choice(files)

        def data():
            return rng.choice([1, 100, 4000, 4096, 10_000, 40_000]), rng.getrandbits(40)

        def put(path):
            ops = [["create", path, rng.choice([0o644, 0o600, 0o755])]]
            if rng.random() < 0.9:
                length, tag = data()
                ops.append(["write", path, 0, length, tag])
            return ops

        full = len(paths) > MAX_ENTRIES
        dice = rng.random()
        if not files or (dice < 0.30 and not full):
            return put(fresh("f"))
        if dice < 0.34 and not full:
            return [["mkdir", fresh("d"), rng.choice([0o755, 0o700])]]
        if dice < 0.37 and not full:
            return [["symlink", self.name("target"), fresh("s")]]
        if dice < 0.40 and not full:
            return [["link", file(), fresh("h")]]
        if dice < 0.50:
            length, tag = data()
            path = file()
            return [["write", path, rng.randrange(len(model.inode(path).versions[-1][1]) + 1), length, tag]]
        if dice < 0.55:
            return [["append", file(), *data()]]
        if dice < 0.58:
            return [["truncate", file(), rng.choice([0, 10, 4096, 5000])]]
        if dice < 0.64:  # the editor's way: a temporary file, then rename over the old one
            path, temporary = file(), fresh("tmp")
            return put(temporary) + ([["fsync", temporary]] if rng.random() < 0.2 else []) + [["rename", temporary, path]]
        if dice < 0.68:
            return [["rename", file(), fresh("r")]]
        if dice < 0.70 and folders:
            old = rng.choice(folders)
            places = [f for f in folders + [""] if f != old and not f.startswith(old + "/")]
            folder = rng.choice(places)
            return [["rename", old, (folder + "/" if folder else "") + self.name("d")]]
        if dice < 0.74:
            return [["chmod", file(), rng.choice([0o644, 0o600, 0o755, 0o640])]]
        if dice < 0.77:
            return [["setxattr", file(), rng.choice(["user.a", "user.b"]), self.name("value")]]
        if dice < 0.79:
            empty = [f for f in folders if not model.inode(f).names]
            if empty:
                return [["rmdir", rng.choice(empty)]]
        if dice < 0.81:
            return [["fsync", file()]]
        if dice < 0.815:
            return [["fsyncdir", rng.choice(folders + [""])]]
        if dice < 0.818:
            return [["fsyncroot"]]
        return [["unlink", rng.choice(files + kinds["l"])]]


class Load:
    def __init__(self, root, log_path, seed, mount_root):
        self.root, self.mount_root = root, mount_root
        self.log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.generator = Generator(seed)
        self.created = None  # (path, descriptor) of the last create
        self.orphans = []    # descriptors of unlinked files
        self.stop = False

    def note(self, record):
        os.write(self.log, (json.dumps(record) + "\n").encode())

    def run(self, limit=None):
        index = 0
        while not self.stop and (limit is None or index < limit):
            op = self.generator.next()
            self.note({"begin": index, "op": op, "t": time.monotonic_ns()})
            try:
                self.perform(op)
            except OSError as e:
                self.note({"error": index, "errno": e.errno, "text": str(e), "t": time.monotonic_ns()})
                return 0 if e.errno in DEAD else 1
            self.note({"done": index, "t": time.monotonic_ns()})
            self.generator.model.apply(index, op)
            index += 1
        self.note({"end": index})
        return 0

    def perform(self, op):
        kept, self.created = self.created, None
        kind, args = op[0], op[1:]
        if kept is not None and not (kind == "write" and args[0] == kept[0]):
            os.close(kept[1])
            kept = None
        full = lambda path: os.path.join(self.root, path) if path else self.root
        if kind == "mkdir":
            os.mkdir(full(args[0]), args[1])
        elif kind == "create":
            self.created = args[0], os.open(full(args[0]), os.O_CREAT | os.O_EXCL | os.O_RDWR, args[1])
        elif kind == "symlink":
            os.symlink(args[0], full(args[1]))
        elif kind in DATA_OPS:
            fd = kept[1] if kept else os.open(full(args[0]), os.O_RDWR | (os.O_APPEND if kind == "append" else 0))
            data = content(args[-1], args[-2])
            written = os.write(fd, data) if kind == "append" else os.pwrite(fd, data, args[1])
            os.close(fd)
            if written != len(data):
                raise OSError(errno.ECONNABORTED, f"short write: {written} of {len(data)}")  # the mount died in the middle
        elif kind == "truncate":
            os.truncate(full(args[0]), args[1])
        elif kind == "rename":
            os.rename(full(args[0]), full(args[1]))
        elif kind == "link":
            os.link(full(args[0]), full(args[1]))
        elif kind == "unlink":
            if len(self.orphans) < 8 and not os.path.islink(full(args[0])):
                self.orphans.append(os.open(full(args[0]), os.O_RDWR))
                os.pwrite(self.orphans[-1], b"orphan", 0) if os.fstat(self.orphans[-1]).st_nlink == 1 else None
            elif self.orphans:
                os.close(self.orphans.pop(0))
            os.unlink(full(args[0]))
        elif kind == "rmdir":
            os.rmdir(full(args[0]))
        elif kind == "chmod":
            os.chmod(full(args[0]), args[1])
        elif kind == "setxattr":
            os.setxattr(full(args[0]), args[1], args[2].encode())
        else:
            fd = os.open(self.mount_root if kind == "fsyncroot" else full(args[0]), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


# --- the judge ---------------------------------------------------------------------------------------------------


class Record:
    """The log of one load. ops[i] = operation; begin[i], done[i] = times; done[i] is None for the one in flight."""

    def __init__(self, log_path):
        self.ops, self.begin, self.done = [], [], []
        self.unexpected = None
        self.error_time = None
        self.finished = False  # stopped by request, no error
        self.ended = False     # that, or by an error
        with open(log_path, encoding="utf-8") as f:
            for line in f:
                if not line.endswith("\n"):
                    break
                record = json.loads(line)
                if "begin" in record:
                    self.ops.append(record["op"])
                    self.begin.append(record["t"])
                    self.done.append(None)
                elif "done" in record:
                    self.done[record["done"]] = record["t"]
                elif "error" in record:
                    self.ended = True
                    self.error_time = record["t"]
                    if record["errno"] not in DEAD:
                        self.unexpected = f"{self.ops[record['error']]}: {record['text']}"
                elif "end" in record:
                    self.finished = self.ended = True

    def promises(self):
        """(least prefix, {inode number: index of the oldest operation whose content may show}) that fsyncs promised."""
        model = Model()
        floor, pins, touched = 0, {}, {}
        for index, op in enumerate(self.ops):
            if op[0] in QUIET_OPS and self.done[index] is not None:
                if op[0] == "fsyncroot":
                    floor = index
                    inos = list(model.inodes)
                else:
                    ino = model.find(op[1])[2] if op[1] else ROOT_INO
                    floor = max(floor, touched.get(ino, 0))
                    inos = [ino] if op[0] == "fsync" else []
                for ino in inos:
                    pins[ino] = model.inodes[ino].versions[-1][0]
            for ino in self.touches(model, op, index):
                touched[ino] = index + 1
            model.apply(index, op)
        return floor, pins

    @staticmethod
    def touches(model, op, index):
        """Inodes that an operation changes, its own new one and the directories included."""
        result = set()
        if op[0] in ("mkdir", "create", "symlink"):
            result.add(index)
        for path in [a for a in op[1:3] if isinstance(a, str)] if op[0] not in QUIET_OPS else []:
            if (op[0] == "symlink" and path == op[1]) or (op[0] == "setxattr" and path == op[2]):
                continue
            parent, _, ino = model.find(path)
            if ino is not None:
                result.add(ino)
            if op[0] not in ("write", "append", "truncate", "chmod", "setxattr"):
                result.add(next(number for number, inode in model.inodes.items() if inode is parent))
        return result


def seen(root):
    """(what Model.snapshot gives, path -> content) of a directory."""
    names, contents, first = {}, {}, {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            full = os.path.join(folder, name)
            path = os.path.relpath(full, root)
            info = os.lstat(full)
            kind = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}[stat.S_IFMT(info.st_mode)]
            xattrs = () if kind == "l" else tuple(sorted((n, os.getxattr(full, n).decode()) for n in os.listxattr(full)
                                                         if n.startswith("user.")))
            names[path] = (kind, stat.S_IMODE(info.st_mode), os.readlink(full) if kind == "l" else "", xattrs, info.st_ino)
            if kind == "f":
                with open(full, "rb") as f:
                    contents[path] = f.read()
                if len(contents[path]) != info.st_size:
                    raise AssertionError(f"{path}: {len(contents[path])} bytes, but its size is {info.st_size}")
    for path in sorted(names):
        first.setdefault(names[path][4], path)
    return {path: value[:4] + (first[value[4]],) for path, value in names.items()}, contents


def half_written(data, versions):
    """Whether `data` is what a write had made of the version before it when only its beginning had been given to the daemon: the
    kernel cuts long writes."""
    for (_, old, _), (_, new, written) in zip(versions, versions[1:]):
        if written is not None:
            first, end = written
            cut = min(end, len(os.path.commonprefix([data, new])))
            if cut >= first and data[cut:] == old[cut:]:
                return True
    return False


def content_faults(model, contents, pins):
    faults = []
    for path, ino in model.paths().items():
        inode = model.inodes[ino]
        if inode.kind != "f":
            continue
        least = max(inode.versions[inode.pin][0], pins.get(ino, -1))
        allowed = [version for version in inode.versions if version[0] >= least]
        if not any(contents[path] == data for _, data, _ in allowed) and not half_written(contents[path], allowed):
            known = [index for index, data, _ in inode.versions if data == contents[path]]
            what = f"content as after operation {known[-1]}" if known else f"content it never had, {len(contents[path])} bytes"
            faults.append(f"{path}: {what}; allowed from {least} on")
    return faults


def candidates(record, root, exact=False):
    """All prefixes (numbers of operations) that explain what is in `root`. AssertionError with the nearest one if none does.
    exact: everything must be there with its last content."""
    names, contents = seen(root)
    floor, pins = record.promises()
    count = len(record.ops)
    if exact:
        floor, pins = count, {}
    good, nearest = [], None
    model = Model()
    for k in range(count + 1):
        if k >= floor:
            want = model.snapshot()
            if want == names:
                if exact:
                    model.do_fsyncroot(k)
                faults = content_faults(model, contents, pins)
                if not faults:
                    good.append(k)
                distance, faults = len(faults), faults
            else:
                faults = [f"{p}: {names.get(p)} instead of {want.get(p)}" for p in sorted(names.keys() | want.keys())
                          if names.get(p) != want.get(p)]
                distance = 1000 + len(faults)
            if nearest is None or distance < nearest[0]:
                nearest = (distance, k, faults)
        if k < count:
            model.apply(k, record.ops[k])
    if not good:
        lines = "\n  ".join(str(f)[:300] for f in nearest[2][:15])
        around = "\n  ".join(f"{i}: {record.ops[i]}" for i in range(max(0, nearest[1] - 3), min(count, nearest[1] + 4)))
        raise AssertionError(f"{root}: no prefix of {count} operations explains it (fsync promised {floor}). Nearest: {nearest[1]}, where\n"
                             f"  {lines}\noperations there:\n  {around}")
    return good


def one_order(records, ks):
    """Whether the prefixes of several loads can be one prefix of all their operations: none that is lost ended before one that
    is kept began. Data has no place in the order of names."""
    for a, ka in zip(records, ks):
        for b, kb in zip(records, ks):
            if a is b:
                continue
            lost = [a.done[i] for i in range(ka, len(a.ops)) if a.done[i] is not None and a.ops[i][0] not in DATA_OPS + QUIET_OPS]
            kept = [b.begin[i] for i in range(kb) if b.ops[i][0] not in DATA_OPS + QUIET_OPS]
            if lost and kept and min(lost) < max(kept):
                return False
    return True


def main():
    root, log_path, seed, mount_root = sys.argv[1:5]
    os.umask(0)
    load = Load(root, log_path, int(seed), mount_root)

    def stop(*_):
        load.stop = True

    signal.signal(signal.SIGTERM, stop)
    sys.exit(load.run())


if __name__ == "__main__":
    main()
