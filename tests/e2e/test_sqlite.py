#!/usr/bin/env python3
"""SQLite with synchronous=FULL in its four journal modes: single-row transactions, then integrity, also after a remount."""
import os
import sqlite3
import time

import harness

MODES = ("DELETE", "TRUNCATE", "PERSIST", "WAL")
TRANSACTIONS = int(os.environ.get("ARCHIL_SQLITE_TRANSACTIONS", "10000" if harness.LONG else "2500"))


def rows_digest(path):
    """(rows, sum of ids, a checksum over the text) of the table."""
    db = sqlite3.connect(path, timeout=60)
    try:
        check = db.execute("PRAGMA integrity_check").fetchone()[0]
        if check != "ok":
            raise AssertionError(f"integrity_check of {path}: {check}")
        count, ids = db.execute("SELECT count(*), sum(id) FROM t").fetchone()
        text = sum(hash_text(row[0]) for row in db.execute("SELECT text FROM t"))
        return count, ids, text % (1 << 61)
    finally:
        db.close()


def hash_text(text):
    value = 0
    for c in text.encode():
        value = (value * 131 + c) % ((1 << 61) - 1)
    return value


class Sqlite(harness.ClusterTest):
    def test_transactions(self):
        mount = self.start()
        expected = {}
        for mode in MODES:
            path = os.path.join(mount.path, f"{mode}.db")
            before = mount.metrics()
            started = time.monotonic()
            db = sqlite3.connect(path, isolation_level=None, timeout=60)
            self.assertEqual(db.execute(f"PRAGMA journal_mode={mode}").fetchone()[0], mode.lower())
            db.execute("PRAGMA synchronous=FULL")
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
            for i in range(TRANSACTIONS):
                db.execute("BEGIN IMMEDIATE")
                db.execute("INSERT INTO t VALUES (?, ?)", (i, f"row {i} " + "x" * (i % 200)))
                db.execute("COMMIT")
                if i % 50 == 49:
                    db.execute("UPDATE t SET text = text || '!' WHERE id = ?", (i // 2,))
                if i % 100 == 99:
                    db.execute("DELETE FROM t WHERE id = ?", (i // 3,))
            db.close()
            seconds = time.monotonic() - started
            fsyncs = harness.difference(before, mount.metrics()).get("upcall_fsync", 0)
            harness.log(f"{mode}: {TRANSACTIONS} transactions in {seconds:.1f} s, {fsyncs} fsyncs")
            expected[mode] = rows_digest(path)
            self.assertGreater(expected[mode][0], TRANSACTIONS * 0.9)
        for mode in MODES:
            self.assertFalse(os.path.exists(os.path.join(mount.path, f"{mode}.db-wal")))
        mount.unmount()
        self.cluster.stop_server()
        self.cluster.start_server()
        mount.start()
        for mode in MODES:
            self.assertEqual(rows_digest(os.path.join(mount.path, f"{mode}.db")), expected[mode], mode)
        mount.unmount()

    def test_two_connections(self):
        """Locks between processes: two writers and a reader on one database lose nothing."""
        mount = self.start()
        path = os.path.join(mount.path, "shared.db")
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE t (who INTEGER, n INTEGER)")
        db.commit()
        db.close()
        script = ("import sqlite3, sys\n"
                  "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n"
                  "for n in range(150):\n"
                  "    db.execute('BEGIN IMMEDIATE'); db.execute('INSERT INTO t VALUES (?, ?)', (int(sys.argv[2]), n)); db.execute('COMMIT')\n")
        writers = []
        with open(self.cluster.path("writers.log"), "wb") as out:
            for who in range(2):
                writers.append(self.cluster.spawn([harness.sys.executable, "-c", script, path, who], out))
            for writer in writers:
                self.assertEqual(writer.wait(120), 0, harness.tail(self.cluster.path("writers.log")))
        db = sqlite3.connect(path)
        self.assertEqual(db.execute("SELECT who, count(*) FROM t GROUP BY who ORDER BY who").fetchall(), [(0, 150), (1, 150)])
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        db.close()
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=1700 if harness.LONG else 560)
