#!/usr/bin/env python3
"""Makes a git repository from files that this machine has: two tags, `old` and `new`, between which most files change.

usage: sample_repo.py DIRECTORY [--files N]

DIRECTORY becomes a bare repository with the branch `main`. Equal input files give equal commits. Where the machine has
too few files of its own, the rest is made up from a counter.
"""
import argparse
import os
import stat
import subprocess
import sys

SOURCES = ["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/perl", "/usr/share/cmake-3.25", "/usr/share/doc"]
MAX_FILE = 64 << 10
COMMITS = 12  # between the tags


def text_files(limit):
    """(path in the repository, bytes) of up to `limit` files, in an order that depends on names alone."""
    found = []
    for source in SOURCES:
        for folder, folders, names in os.walk(source):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                try:
                    info = os.lstat(path)
                    if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_FILE or path.endswith((".pyc", ".gz")):
                        continue
                    with open(path, "rb") as f:
                        found.append((path.removeprefix("/usr/"), f.read()))
                except OSError:
                    continue
                if len(found) == limit:
                    return found
    for i in range(limit - len(found)):
        text = "".join(f"line {line} of part {i}: {(i * 7919 + line * 104729) % 1000003}\n" for line in range(20 + i % 300))
        found.append((f"made/{i % 97:02d}/{i % 11}/part{i}.txt", text.encode()))
    return found


class Stream:
    """Writes the language of git fast-import."""

    def __init__(self, out):
        self.out = out
        self.mark = 0

    def blob(self, data):
        self.mark += 1
        self.out.write(b"blob\nmark :%d\ndata %d\n%b\n" % (self.mark, len(data), data))
        return self.mark

    def commit(self, message, when, changes):
        """changes: lines of fast-import, bytes."""
        who = b"A Person <person@example.org> %d +0000" % when
        text = message.encode()
        self.out.write(b"commit refs/heads/main\nauthor %b\ncommitter %b\ndata %d\n%b\n" % (who, who, len(text), text))
        for change in changes:
            self.out.write(change)
        self.out.write(b"\n")

    def tag(self, name):
        self.out.write(b"reset refs/tags/%b\nfrom refs/heads/main\n\n" % name.encode())


def quoted(path):
    return b'"' + os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def changed(path, data, number):
    head = f"/* {path}: as of step {number} */\n".encode()
    return head + data + b"/* end of " + os.fsencode(os.path.basename(path)) + b" */\n"


def write_history(out, files):
    """Commit 0 holds all files as they are: tag `old`. Then COMMITS steps change five in six of them, rename, delete and add."""
    stream = Stream(out)
    when = 1_500_000_000
    first = []
    for i, (path, data) in enumerate(files):
        mode = b"100755" if i % 50 == 7 else b"100644"
        first.append(b"M %b :%d %b\n" % (mode, stream.blob(data), quoted(path)))
    for i in range(20):
        target = os.path.relpath(files[i * 31 % len(files)][0], "links").encode()
        first.append(b"M 120000 :%d %b\n" % (stream.blob(target), quoted(f"links/link{i}")))
    stream.commit("All files as they are", when, first)
    stream.tag("old")
    for step in range(1, COMMITS + 1):
        lines = []
        for i, (path, data) in enumerate(files):
            if i % COMMITS != step - 1 or i % 6 == 5:
                continue
            if i % 97 == 0:
                lines.append(b"D %b\n" % quoted(path))
            elif i % 89 == 0:
                lines.append(b"R %b %b\n" % (quoted(path), quoted("moved/" + path)))
            else:
                lines.append(b"M 100644 :%d %b\n" % (stream.blob(changed(path, data, step)), quoted(path)))
        for i in range(20):
            text = f"file {i} of step {step}\n".encode() * (i + 1)
            lines.append(b"M 100644 :%d %b\n" % (stream.blob(text), quoted(f"added/step{step}/file{i}.txt")))
        stream.commit(f"Step {step}", when + step * 3600, lines)
    stream.tag("new")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("directory")
    parser.add_argument("--files", type=int, default=9000)
    args = parser.parse_args()
    if args.files < 200:
        parser.error("--files must be at least 200")
    env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", LC_ALL="C")
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", args.directory], check=True, env=env)
    importer = subprocess.Popen(["git", "-C", args.directory, "fast-import", "--quiet"], stdin=subprocess.PIPE, env=env)
    write_history(importer.stdin, text_files(args.files))
    importer.stdin.close()
    if importer.wait() != 0:
        sys.exit("git fast-import failed")


if __name__ == "__main__":
    main()
