"""Disk space of deleted rows, dropped tables and applied log entries comes back by itself."""

import base64
import os
import random
import time
import unittest

from rethinkdb import r

from node import node
from test_operating import comes_true, metric

MB = 1 << 20
ROWS = 16_000
# Far above the time that a free machine needs.
SECONDS_MAX = 300


def disk_bytes(server):
    """Bytes of all files of the node on disk."""
    found = 0
    for folder, _, names in os.walk(server.directory / "data"):
        for name in names:
            try:
                found += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return found


def incompressible(chance, size):
    return base64.b64encode(chance.randbytes(size * 3 // 4)).decode()


def insert(connection, table, count, size):
    """Inserts rows with the keys from 0, in random order."""
    chance = random.Random(count)
    numbers = chance.sample(range(count), count)
    at_once = max(1, 400_000 // size)
    for start in range(0, count, at_once):
        rows = [{"id": number, "text": incompressible(chance, size)} for number in numbers[start : start + at_once]]
        answer = r.table(table).insert(rows, durability="soft").run(connection)
        assert answer["inserted"] == len(rows), answer


class Space(unittest.TestCase):
    def check_shrinks(self, server, bytes_max):
        def has_shrunk():
            # Leaves the processor to the server.
            time.sleep(0.1)
            return disk_bytes(server) <= bytes_max

        shrinks = comes_true(has_shrunk, SECONDS_MAX)
        self.assertTrue(shrinks, f"{disk_bytes(server) / MB:.0f} MB are on disk, {bytes_max / MB:.0f} expected")

    def check_deleted(self, count, size):
        # The smallest memtables, so that rows reach the disk.
        with node("--cache-size", "100") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("kept").run(connection)
            r.table("kept").index_create("text", r.row["text"].slice(0, 20)).run(connection)
            insert(connection, "kept", count, size)
            self.assertGreater(disk_bytes(server), count * size)
            answer = r.table("kept").filter(r.row["id"].mod(100) != 7).delete(durability="soft").run(connection)
            self.assertEqual(answer["deleted"], count - count // 100)
            self.check_shrinks(server, count * size / 50 + 10 * MB)
            self.assertEqual(r.table("kept").count().run(connection), count // 100)
            text = r.table("kept").get(7)["text"].run(connection)
            self.assertEqual(len(text), size)
            connection.close()

    def test_deleted_rows_leave_the_disk(self):
        self.check_deleted(ROWS, 2000)

    def test_deleted_large_rows_leave_the_disk(self):
        self.check_deleted(200, 300_000)

    def test_a_dropped_table_leaves_the_disk(self):
        with node("--cache-size", "100") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("small").run(connection)
            insert(connection, "small", 100, 100)
            for table, count, size in (("rows", ROWS, 2000), ("large", 100, 300_000)):
                r.table_create(table).run(connection)
                insert(connection, table, count, size)
            self.assertGreater(disk_bytes(server), ROWS * 2000)
            r.table_drop("rows").run(connection)
            r.table_drop("large").run(connection)
            self.check_shrinks(server, 10 * MB)
            self.assertEqual(r.table("small").count().run(connection), 100)
            connection.close()

    def test_the_log_is_let_go_and_nothing_is_lost(self):
        with node("--cache-size", "100") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("rows").run(connection)
            insert(connection, "rows", ROWS, 2000)
            log_bytes = lambda: metric(server, "rekindle_log_disk_bytes")
            self.assertTrue(comes_true(lambda: log_bytes() < 8 * MB, SECONDS_MAX), log_bytes())
            self.assertGreater(metric(server, "rekindle_log_append_bytes_total"), ROWS * 2000)
            connection.close()
            server.kill()
            server.start()
            connection = r.connect("127.0.0.1", server.driver_port)
            self.assertEqual(r.table("rows").count().run(connection), ROWS)
            connection.close()


if __name__ == "__main__":
    unittest.main()
