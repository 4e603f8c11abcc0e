#!/usr/bin/env python3
"""Checks what no compiler checks: which room may include which, and the house rules that a pattern can find.

  lint.py [ROOT]       checks the tree; prints each fault as FILE:LINE: RULE: what; exit code 1 if there is one
  lint.py --self-test  plants one fault of every kind in a tree in memory and checks that each is found

Only the standard library. The tables below are the rules; a new edge is a decision and is made there.
"""

import os
import re
import sys

# Room -> rooms that it may include, beside itself. A file belongs to the longest room that its path begins with.
COMMON = ["common/base", "common/env", "common/api", "common/posix", "common/delegation", "common/format", "common/obs"]
EDGES = {
    "common/base": [],
    "common/env": ["common/base"],
    "common/api": ["common/base", "common/env", "common/delegation"],
    "common/posix": ["common/base", "common/api"],
    "common/delegation": ["common/base", "common/env"],
    "common/format": ["common/base", "common/api"],
    "common/obs": ["common/base", "common/env"],
    "common/rpc": ["common/base", "common/env", "common/api", "common/format", "common/obs"],
    "client/face": COMMON,
    "client/cache": COMMON,
    "client/oplog": COMMON,
    "client/delegation": COMMON,
    "client/locks": COMMON + ["client/face"],
    "client/recovery": COMMON,
    "client/session": COMMON + ["client/face", "client/delegation"],
    "client/read": COMMON + ["client/face", "client/cache", "client/session"],
    "client/state": COMMON + ["client/face", "client/cache", "client/oplog", "client/delegation"],
    "client/writeback": COMMON + ["client/face", "client/state", "client/cache", "client/oplog", "client/read",
                                  "client/session", "client/delegation"],
    "client/vfs": COMMON + ["client/face", "client/state", "client/cache", "client/oplog", "client/read",
                            "client/session", "client/delegation", "client/locks", "client/writeback",
                            "client/recovery"],
    "client/core": COMMON + ["client/face", "client/state", "client/cache", "client/oplog", "client/read",
                             "client/session", "client/delegation", "client/locks", "client/writeback", "client/vfs",
                             "client/recovery"],
    "client/fuse": COMMON + ["client/face"],
    "client/cli": COMMON + ["common/rpc", "client/face", "client/core", "client/fuse", "client/recovery"],
    "server/object": COMMON,
    "server/coord": COMMON,
    "server/data": COMMON + ["server/object"],
    "server/data/service": COMMON + ["common/rpc", "server/data"],
    "server/meta/store": COMMON,
    "server/meta/delegation": COMMON,
    "server/meta/ops": COMMON + ["server/meta/store", "server/meta/delegation"],
    "server/meta": COMMON + ["server/coord", "server/object", "server/meta/store", "server/meta/delegation",
                             "server/meta/ops"],
    "server/meta/service": COMMON + ["common/rpc", "server/meta"],
    "server/gateway": COMMON + ["common/rpc", "client/face", "client/core"],
    "server/main": COMMON + ["common/rpc", "server/object", "server/coord", "server/data", "server/data/service",
                             "server/meta", "server/meta/store", "server/meta/service", "server/gateway"],
}
# The one place where server may know client (STYLE, "The house").
SERVER_TO_CLIENT = {"server/gateway"}

# Headers that are a room of their own, because rooms below the one that holds them speak their words.
FACES = {
    "client/core/fs_api.h": "client/face",
    "client/core/mount.h": "client/face",
    "client/vfs/inode.h": "client/state",
    "client/vfs/state.h": "client/state",
}

# (what, pattern of an included path, rooms whose headers may, rooms whose sources may). None: everybody.
LIBRARIES = [
    ("libfuse", r"fuse3?/|fuse(_\w+)?\.h$", ["client/fuse"], ["client/fuse"]),
    ("gRPC and protobuf", r"grpcpp/|grpc/|google/protobuf/|.*\.pb\.h$", ["common/rpc"],
     ["common/rpc", "server/meta/service", "server/data/service"]),
    ("RocksDB", r"rocksdb/", ["server/meta/store"], ["server/meta/store"]),
    ("HTTP client", r"curl/", ["server/object"], ["server/object"]),
    ("spdlog", r"spdlog/", ["common/obs"], ["common/obs"]),
]

# Ambient nondeterminism (STYLE rule 5) outside the rooms that meet the machine.
AMBIENT_ROOMS = {"common/env", "common/rpc", "client/fuse", "client/cli", "server/main"}
CALL = r"(?<![\w.>:])(?:std::|::)?"
AMBIENT = [
    r"std::j?thread\b", r"std::(?:\w+_)?mutex\b", r"std::condition_variable", r"std::this_thread", r"std::async\b",
    r"std::random_device", r"std::mt19937", r"std::(?:default_random_engine|counting_semaphore|binary_semaphore)",
    r"std::chrono::\w+_clock", r"\bthread_local\b",
    r"\babsl::(?:Mutex|CondVar|Now|SleepFor|GetCurrentTimeNanos|BitGen|InsecureBitGen|Notification)\b",
    r"\bpthread_\w+\(",
    CALL + r"(?:sleep|usleep|nanosleep|rand|srand|time|gettimeofday|clock_gettime|getrandom)\(",
]
# In tests: nothing sleeps and everything repeats.
TEST_AMBIENT = [
    r"std::this_thread::sleep", r"\babsl::SleepFor\b", r"std::random_device", CALL + r"(?:sleep|usleep|nanosleep)\(",
    CALL + r"(?:rand|srand)\(",
]

MAX_LINES = 600
MAX_README_LINES = 30


class Tree:
    """Texts by path below the root, with '/'."""

    def __init__(self, files):
        self.files = files

    @staticmethod
    def load(root):
        files = {}
        for top in ("src", "tests", "bench", "docs"):
            for directory, subdirectories, names in os.walk(os.path.join(root, top)):
                subdirectories.sort()
                for name in names:
                    if not name.endswith((".h", ".cc", ".py", ".sh", ".md", ".txt")):
                        continue
                    path = os.path.join(directory, name)
                    with open(path, encoding="utf-8", errors="replace") as f:
                        files[os.path.relpath(path, root).replace(os.sep, "/")] = f.read()
        return Tree(files)

    def sources(self, *tops):
        for path in sorted(self.files):
            if path.endswith((".h", ".cc")) and path.split("/")[0] in tops:
                yield path, self.files[path]


def room_of(path):
    """The room of a path below src/; None if it is in no room of the table."""
    if path in FACES:
        return FACES[path]
    directory = os.path.dirname(path)
    while directory:
        if directory in EDGES:
            return directory
        directory = os.path.dirname(directory)
    return None


def includes(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


NOT_CODE = re.compile(
    r'R"(?P<tag>[^\s()\\]*)\(.*?\)(?P=tag)"'      # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                       # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"       # characters, not the separators of digits
    r"|//[^\n]*|/\*.*?\*/", re.DOTALL)


def code_of(text):
    """The text without comments and literals; lines stay where they are."""
    return NOT_CODE.sub(lambda m: " " + "\n" * m.group(0).count("\n"), text)


def find_patterns(path, text, patterns, rule, why):
    for number, line in enumerate(code_of(text).split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        for pattern in patterns:
            match = re.search(pattern, line)
            if match:
                yield path, number, rule, f"{match.group(0).strip()} {why}"
                break


def check_table():
    """The table itself: no cycle, nothing unknown, and the two halves of the house apart."""
    for room, targets in EDGES.items():
        for target in targets:
            if target not in EDGES:
                yield "tests/support/lint.py", 0, "table", f"{room} names {target}, which is no room"
            halves = {room.split("/")[0], target.split("/")[0]}
            if halves == {"client", "server"} and room not in SERVER_TO_CLIENT:
                yield "tests/support/lint.py", 0, "table", f"{room} -> {target} joins client and server"
            if room.startswith("common/") and not target.startswith("common/"):
                yield "tests/support/lint.py", 0, "table", f"{room} -> {target}: common uses only itself"
    done, path = set(), []

    def visit(room):
        if room in path:
            return [path[path.index(room):] + [room]]
        if room in done:
            return []
        path.append(room)
        cycles = [cycle for target in EDGES.get(room, []) for cycle in visit(target)]
        path.pop()
        done.add(room)
        return cycles

    for room in EDGES:
        for cycle in visit(room):
            yield "tests/support/lint.py", 0, "table", "cycle " + " -> ".join(cycle)


def check_edges(tree):
    for path, text in tree.sources("src"):
        room = room_of(path[len("src/"):])
        if room is None:
            yield path, 1, "edge", "is in no room of the table in tests/support/lint.py"
            continue
        for number, kind, target in includes(text):
            top = target.split("/")[0]
            if top in ("tests", "bench", "src"):
                yield path, number, "edge", f"includes {target}: nobody includes tests, and paths start below src"
            if kind == '"' and (target.startswith(".") or "/" not in target):
                yield path, number, "edge", f'includes "{target}": write the path from src'
            if top not in ("common", "client", "server"):
                continue
            target_room = room_of(target)
            if target_room is None:
                yield path, number, "edge", f"includes {target}, which is in no room"
            elif target_room != room and target_room not in EDGES[room]:
                yield path, number, "edge", f"{room} may not include {target_room} ({target})"


def check_libraries(tree):
    for path, text in tree.sources("src"):
        room = room_of(path[len("src/"):])
        for number, _, target in includes(text):
            for what, pattern, header_rooms, source_rooms in LIBRARIES:
                allowed = header_rooms if path.endswith(".h") else source_rooms
                if re.match(pattern, target) and room not in allowed:
                    where = "headers" if path.endswith(".h") else "sources"
                    yield path, number, "library", f"{what} ({target}) only in {where} of {', '.join(allowed)}"


def check_ambient(tree):
    for path, text in tree.sources("src"):
        if room_of(path[len("src/"):]) in AMBIENT_ROOMS:
            continue
        yield from find_patterns(path, text, AMBIENT, "ambient", "comes in through common/env (STYLE rule 5)")
    for path, text in tree.sources("tests"):
        yield from find_patterns(path, text, TEST_AMBIENT, "ambient", "in a test: wait for an event, use a seed")


def check_files(tree):
    for path, text in tree.files.items():
        if not path.endswith((".h", ".cc", ".py", ".sh")):
            continue
        lines = text.count("\n")
        if lines >= MAX_LINES:
            yield path, lines, "size", f"{lines} lines; files stay under {MAX_LINES}"
        if path.endswith(".h") and "#pragma once" not in text:
            yield path, 1, "guard", "no #pragma once"


def check_readmes(tree):
    rooms = set()
    for path, _ in tree.sources("src"):
        parts = path.split("/")
        if len(parts) > 3:
            rooms.add("/".join(parts[:3]))
    for room in sorted(rooms):
        readme = tree.files.get(room + "/README.md")
        if readme is None:
            yield room, 1, "readme", "the room has no README.md"
        elif readme.count("\n") > MAX_README_LINES:
            yield room + "/README.md", readme.count("\n"), "readme", f"more than {MAX_README_LINES} lines"


def known_tests(tree):
    names = set()
    for path, text in tree.sources("tests"):
        for match in re.finditer(r"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", text):
            names.add(f"{match.group(1)}.{match.group(2)}")
    return names


def check_semantics(tree):
    """Quoted in docs/semantics.md as `Suite.Test` (with or without the prefix and suffix of a parameter), or as a path
    of the tree, with ::name for something in that file."""
    page = "docs/semantics.md"
    tests = known_tests(tree)
    paths = set(tree.files)
    for path in tree.files:
        while "/" in path:
            path = os.path.dirname(path)
            paths.add(path)
    for number, line in enumerate(tree.files.get(page, "").split("\n"), 1):
        for quoted in re.findall(r"`([^`]+)`", line):
            test = re.fullmatch(r"(?:\w+/)?([A-Z]\w*)\.([A-Z]\w*)(?:/\w+)?", quoted)
            if test and f"{test.group(1)}.{test.group(2)}" not in tests:
                yield page, number, "semantics", f"there is no test {quoted}"
            if re.match(r"(tests|src|bench)/\S+$", quoted):
                path, _, name = quoted.partition("::")
                path = path.rstrip("/")
                if path not in paths:
                    yield page, number, "semantics", f"there is no {path}"
                elif name and not re.search(rf"\b{re.escape(name)}\b", tree.files.get(path, "")):
                    yield page, number, "semantics", f"there is no {name} in {path}"


def check_all(tree):
    for check in (check_edges, check_libraries, check_ambient, check_files, check_readmes, check_semantics):
        yield from check(tree)


def self_test():
    clean = {
        "src/common/base/README.md": "base\n",
        "src/common/base/a.h": "#pragma once\n#include <string>\n",
        "src/client/vfs/README.md": "vfs\n",
        "src/client/vfs/v.cc": '#include "client/core/fs_api.h"\n#include "common/base/a.h"\n'
                               "// std::thread is not used; time(nullptr) neither\n"
                               "int runtime(int x) { return t.time(x) + 1'000'000; }\n"
                               'const char* s = "std::mutex";\n',
        "src/common/env/README.md": "env\n",
        "src/common/env/t.cc": "std::thread t;\n",
        "src/client/fuse/README.md": "fuse\n",
        "src/client/fuse/f.h": "#pragma once\n#include <fuse3/fuse_lowlevel.h>\n",
        "src/server/meta/README.md": "meta\n",
        "src/server/meta/store/s.cc": "#include <rocksdb/db.h>\n",
        "src/server/meta/service/s.cc": '#include <grpcpp/grpcpp.h>\n#include "archil/v1/meta.grpc.pb.h"\n',
        "tests/unit/a_test.cc": "TEST(Suite, Name) {}\nTEST_P(Other,\n       Name) {}\n",
        "tests/e2e/x.py": "def works():\n",
        "docs/semantics.md": "`Suite.Name`, `P/Other.Name/3`, `tests/e2e/x.py::works`, `tests/unit`, `a.h`\n",
    }
    planted = [  # rule, path, text
        ("edge", "src/common/base/x.h", '#pragma once\n#include "client/vfs/v.h"\n'),
        ("edge", "src/server/meta/x.cc", '#include "client/core/mount.h"\n'),
        ("edge", "src/client/vfs/x.cc", '#include "server/meta/meta_server.h"\n'),
        ("edge", "src/client/cache/x.cc", '#include "client/vfs/vfs.h"\n'),
        ("edge", "src/client/vfs/x.cc", '#include "client/core/core.h"\n'),
        ("edge", "src/client/vfs/x.cc", '#include "tests/support/x.h"\n'),
        ("edge", "src/client/vfs/x.cc", '#include "v.h"\n'),
        ("edge", "src/somewhere/x.cc", "\n"),
        ("library", "src/client/core/x.cc", "#include <fuse3/fuse.h>\n"),
        ("library", "src/client/core/x.cc", "#include <fuse_lowlevel.h>\n"),
        ("library", "src/server/meta/service/x.h", "#pragma once\n#include <grpcpp/grpcpp.h>\n"),
        ("library", "src/client/session/x.cc", '#include "archil/v1/meta.pb.h"\n'),
        ("library", "src/server/meta/x.cc", "#include <rocksdb/db.h>\n"),
        ("library", "src/client/vfs/x.cc", "#include <spdlog/spdlog.h>\n"),
        ("ambient", "src/client/vfs/x.cc", "std::thread t([] {});\n"),
        ("ambient", "src/client/vfs/x.cc", "int n = 1'000; std::lock_guard<std::mutex> l(m);\n"),
        ("ambient", "src/client/vfs/x.cc", "  usleep(5);\n"),
        ("ambient", "src/client/vfs/x.cc", "auto t = std::time(nullptr);\n"),
        ("ambient", "src/client/vfs/x.cc", "auto t = absl::Now();\n"),
        ("ambient", "src/server/meta/x.cc", "int r = rand();\n"),
        ("ambient", "tests/unit/x_test.cc", "std::this_thread::sleep_for(x);\n"),
        ("size", "src/client/vfs/x.cc", "\n" * 600),
        ("guard", "src/client/vfs/x.h", "int x;\n"),
        ("readme", "src/client/read/x.cc", "\n"),
        ("readme", "src/client/vfs/README.md", "\n" * 31),
        ("semantics", "docs/semantics.md", "`Suite.Missing`\n"),
        ("semantics", "docs/semantics.md", "`P/Missing.Name/1`\n"),
        ("semantics", "docs/semantics.md", "`tests/e2e/gone.py`\n"),
        ("semantics", "docs/semantics.md", "`tests/e2e/x.py::fails`\n"),
    ]
    faults = list(check_table()) + list(check_all(Tree(clean)))
    for fault in faults:
        print("self-test: a clean tree has", fault)
    missed = 0
    for rule, path, text in planted:
        found = [fault for fault in check_all(Tree({**clean, path: text})) if fault[0] in (path, os.path.dirname(path))]
        if rule not in [fault[2] for fault in found]:
            print(f"self-test: {rule} was not found in {path}: {text[:70]!r}")
            missed += 1
    EDGES["common/base"].append("client/vfs")
    if not any("cycle" in fault[3] for fault in check_table()):
        print("self-test: a cycle in the table was not found")
        missed += 1
    EDGES["common/base"].pop()
    print(f"self-test: {len(planted) + 1} planted faults, {missed} missed, {len(faults)} false alarms")
    return 1 if missed or faults else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1:
        print(__doc__)
        return 2
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    tree = Tree.load(root)
    sources = sum(1 for _ in tree.sources("src"))
    if sources == 0:
        print(f"lint: no sources below {root}/src")
        return 2
    faults = list(check_table()) + list(check_all(tree))
    for path, number, rule, what in faults:
        print(f"{path}:{number}: {rule}: {what}")
    print(f"lint: {sources} sources, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
