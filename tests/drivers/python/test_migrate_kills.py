"""A migration of a table under writes, with `kill -9` of the source, the target and the tool in turn: at the cut-over both sides are
equal. `MIGRATE_ROWS`, `MIGRATE_KILLS` and `MIGRATE_WRITES` (a second) set another size; 1000000, 30 and 500 are the full test."""

import contextlib
import os
import random
import sys
import unittest

from rethinkdb import r

from migration import Tool, Writes, until
from node import Node
from rethinkdb_data import RAW, plain

ROWS = int(os.environ.get("MIGRATE_ROWS", 8000))
KILLS = int(os.environ.get("MIGRATE_KILLS", 6))
WRITES = int(os.environ.get("MIGRATE_WRITES", 200))
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
BATCH = 1000


class Kills(unittest.TestCase):
    def setUp(self):
        print(f"SEED={SEED}", file=sys.stderr)
        self.random = random.Random(SEED)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.source, self.target = Node(), Node()
        for side in (self.source, self.target):
            stack.callback(side.remove)
            side.start()
        with r.connect("127.0.0.1", self.source.driver_port) as connection:
            r.table_create("rows").run(connection)
            for first in range(0, ROWS, BATCH):
                rows = [{"id": n, "n": 0, "text": "x" * 900} for n in range(first, min(first + BATCH, ROWS))]
                r.table("rows").insert(rows, durability="soft").run(connection)
        self.tool = Tool(self.source.driver_port, self.target.driver_port)

    def start(self):
        # Slow enough that kills meet the copy.
        return self.tool.start("--only", "test.rows", "--follow", "--max-rate", str(max(1000, ROWS // 8)))

    def test_no_row_is_lost_doubled_or_different(self):
        writes = Writes(self.source, "test", "rows", WRITES, SEED)
        self.addCleanup(writes.stop)
        running = self.start()
        for turn in range(KILLS):
            wanted = writes.done + self.random.randrange(1, WRITES)
            until(lambda: writes.done > wanted)
            victim = ("source", "target", "tool")[turn % 3]
            if victim == "tool":
                running.kill()
                running = self.start()
            else:
                side = getattr(self, victim)
                side.kill()
                side.start()
            self.assertIsNone(running.process.poll(), running.said())
        running.wait_for("all rows are copied")
        writes.stop()
        code, out, err = self.tool.cut_over("--quiet-seconds", "1", "--wait-seconds", "60")
        self.assertEqual(code, 0, out + err + running.said())
        self.assertEqual(running.end(), 0, running.said())
        self.assertEqual(self.rows(self.target), self.rows(self.source))

    def rows(self, side):
        with r.connect("127.0.0.1", side.driver_port) as connection:
            return {row["id"]: plain(row) for row in r.table("rows").run(connection, **RAW)}


if __name__ == "__main__":
    unittest.main()
