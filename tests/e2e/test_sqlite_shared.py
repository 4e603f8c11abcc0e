#!/usr/bin/env python3
"""SQLite in DELETE mode on one database from four mounts, with busy timeouts: nothing lost, nothing damaged."""
import os
import sqlite3
import subprocess
import sys

import harness

LEASE = 5  # seconds
MOUNTS = 4
ROUNDS = 200 if harness.LONG else 25


def write_rows(path, who, rounds):
    """Body of a process: `rounds` transactions, each of which reads, changes what the others change too, and adds a row."""
    db = sqlite3.connect(path, timeout=100, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    for n in range(rounds):
        db.execute("BEGIN IMMEDIATE")
        total = db.execute("SELECT n FROM total").fetchone()[0]
        db.execute("UPDATE total SET n = ?", (total + 1,))
        db.execute("INSERT INTO t VALUES (?, ?, ?, ?)", (total, who, n, "x" * (total * 37 % 3000)))
        db.execute("COMMIT" if n % 10 != 9 else "ROLLBACK")
    db.close()


class SqliteShared(harness.ClusterTest):
    def setUp(self):
        self.writers = []

    def tearDown(self):
        for writer in self.writers:
            harness.end_process(writer)

    def check(self, path):
        db = sqlite3.connect(path, timeout=60)
        try:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
            self.assertEqual(db.execute("PRAGMA journal_mode").fetchone()[0], "delete")
            each = ROUNDS - ROUNDS // 10
            self.assertEqual(db.execute("SELECT who, count(*) FROM t GROUP BY who ORDER BY who").fetchall(),
                             [(who, each) for who in range(MOUNTS)])
            self.assertEqual(db.execute("SELECT n FROM total").fetchone()[0], MOUNTS * each)
            self.assertEqual([row[0] for row in db.execute("SELECT id FROM t ORDER BY id")], list(range(MOUNTS * each)))
            self.assertEqual(db.execute("SELECT count(*) FROM t WHERE length(text) != id * 37 % 3000").fetchone()[0], 0)
        finally:
            db.close()

    def test_four_mounts(self):
        self.cluster.start_server()
        self.cluster.create_disk("d")
        mounts = [self.cluster.mount("d", f"m{i}", "--lease", f"{LEASE}s") for i in range(MOUNTS)]
        paths = [os.path.join(m.path, "a.db") for m in mounts]
        db = sqlite3.connect(paths[0], isolation_level=None)
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, who INTEGER, n INTEGER, text TEXT)")
        db.execute("CREATE TABLE total (n INTEGER)")
        db.execute("INSERT INTO total VALUES (0)")
        db.close()
        for who, path in enumerate(paths):
            writer = subprocess.Popen([sys.executable, __file__, "child", path, str(who), str(ROUNDS)])
            self.cluster.processes.append(writer)
            self.writers.append(writer)
        for writer in self.writers:
            self.assertEqual(writer.wait(1500 if harness.LONG else 200), 0)
        for path in paths:
            self.check(path)
            self.assertEqual(sorted(os.listdir(os.path.dirname(path))), ["a.db"], "no journal is left")
        for m in mounts:
            m.unmount()
        cold = self.cluster.mount("d", "cold")
        self.check(os.path.join(cold.path, "a.db"))
        cold.unmount()


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "child":
        write_rows(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        harness.main(limit=1700 if harness.LONG else 300)
