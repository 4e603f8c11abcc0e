#!/usr/bin/env python3
"""Checks the rules of the house that a machine can check: walls between rooms, seams, lengths, words. Exit code 1 on a finding."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Which rooms a room may include, besides itself. Rooms of common/ may also include what stands here for them.
COMMON = {"common/base", "common/env", "common/api", "common/posix", "common/delegation", "common/format", "common/obs"}
ALLOWED = {
    "common/base": set(),
    "common/env": {"common/base"},
    "common/api": {"common/base", "common/env"},
    "common/posix": {"common/base", "common/api"},
    "common/delegation": {"common/base", "common/api"},
    "common/format": {"common/base", "common/api", "common/env"},
    "common/obs": {"common/base", "common/env"},
    "common/rpc": {"common/base", "common/env", "common/api", "common/format", "common/obs"},
    "client/cache": COMMON,
    "client/oplog": COMMON,
    "client/session": COMMON | {"client/core"},  # core: fs_api.h and mount.h are the faces of the whole client
    "client/read": COMMON | {"client/core", "client/cache", "client/session"},
    "client/writeback": COMMON | {"client/core", "client/cache", "client/oplog", "client/read", "client/session", "client/vfs"},
    "client/vfs": COMMON | {"client/core", "client/cache", "client/oplog", "client/read", "client/session", "client/writeback"},
    "client/core": COMMON | {"client/cache", "client/oplog", "client/read", "client/session", "client/vfs", "client/writeback"},
    "client/fuse": COMMON | {"client/core"},
    "client/cli": COMMON | {"client/core", "client/fuse", "common/rpc"},
    "server/object": COMMON,
    "server/coord": COMMON,
    "server/data": COMMON | {"server/object", "common/rpc"},
    "server/meta": COMMON | {"server/coord", "common/rpc"},
    "server/main": COMMON | {"server/data", "server/meta", "server/object", "server/coord", "common/rpc"},
}

# (what, pattern, where it may stand, in headers only)
SEAMS = [
    ("threads, mutexes and sleeps belong to common/env", r"std::(thread|jthread|mutex|shared_mutex|condition_variable)\b|sleep_for|\busleep\(|nanosleep\(|absl::SleepFor",
     r"^src/common/env/", False),
    ("libfuse belongs to client/fuse", r'#include <fuse', r"^src/client/fuse/", False),
    ("gRPC and protobuf stay out of headers", r'#include (<grpcpp/|<google/protobuf|".*\.pb\.h")', r"^src/common/rpc/", True),
    ("gRPC belongs to common/rpc and the service folders", r'#include <grpc', r"^src/(common/rpc/|server/(meta|data)/service/|server/main/)", False),
    ("RocksDB belongs to server/meta/store", r'#include <rocksdb/', r"^src/server/meta/store/", False),
    ("libcurl belongs to server/object", r'#include <curl/', r"^src/server/object/", False),
    ("nothing here throws", r"^\s*throw\b", r"^$", False),
]
WORDS = [
    ("a path of one machine", r"/work/|/farm/"),
    ("a package registry's host", r"deb\.debian\.org|registry\.npmjs"),
    ("an unfinished mark", r"\b(TODO|FIXME|XXX)\b|DISABLED_"),
]
NO_WORDS_IN = ("scripts/lint.py", "package-lock.json")


def files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [f for f in listed.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, f))]
    return [os.path.relpath(os.path.join(folder, name), ROOT) for part in ("src", "tests", "bench", "scripts", "docs")
            for folder, _, names in os.walk(os.path.join(ROOT, part)) for name in names]


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[1:3]) if parts[0] == "src" and len(parts) > 3 else None


def check_includes(path, text, found):
    room = room_of(path)
    if room is None:
        return
    if room not in ALLOWED:
        found.append(f"{path}: a room that scripts/lint.py does not know: {room}")
        return
    for match in re.finditer(r'^#include "((?:common|client|server|tests|bench)/\w+)', text, re.M):
        if match[1] != room and match[1] not in ALLOWED[room]:
            found.append(f"{path}: {room} must not include {match[1]}")


def check_code(path, text, found):
    lines = text.count("\n")
    if lines >= 600:
        found.append(f"{path}: {lines} lines (fewer than 600 are allowed)")
    if path.startswith("src/") and path.endswith((".cc", ".h")):
        check_includes(path, text, found)
        for what, pattern, allowed, headers_only in SEAMS:
            if not re.search(allowed, path) and not (headers_only and not path.endswith(".h")):
                for number, line in enumerate(text.splitlines(), 1):
                    if re.search(pattern, line.split("//")[0]):
                        found.append(f"{path}:{number}: {what}")
        if path.endswith(".h") and "#pragma once" not in text:
            found.append(f"{path}: no #pragma once")


def main():
    found = []
    checked = 0
    for path in files():
        if not path.endswith((".cc", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".proto", "run")):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
            text = f.read()
        checked += 1
        if path.endswith((".cc", ".h", ".py")):
            check_code(path, text, found)
        if path.startswith("src/") and path.endswith("README.md") and text.count("\n") > 30:
            found.append(f"{path}: more than 30 lines")
        if not path.endswith(NO_WORDS_IN):
            for what, pattern in WORDS:
                for number, line in enumerate(text.splitlines(), 1):
                    if re.search(pattern, line):
                        found.append(f"{path}:{number}: {what}")
    if os.path.isdir(os.path.join(ROOT, "src")):
        for room in ALLOWED:
            folder = os.path.join(ROOT, "src", room)
            if os.path.isdir(folder) and any(n.endswith(".cc") for n in os.listdir(folder)) and not os.path.exists(os.path.join(folder, "README.md")):
                found.append(f"src/{room}: no README.md")
    print("\n".join(found) or f"lint: {checked} files, nothing found")
    if checked < 50:
        sys.exit(f"lint: only {checked} files were looked at")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
