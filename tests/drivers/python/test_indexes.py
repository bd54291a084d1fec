"""Secondary indexes of a real node: built under writes and kill -9, dumped and restored."""

import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlError

from node import Node

ROWS = 60_000
KILLS = 4
SEED = 11


def row(chance, key):
    long = "x" * chance.randrange(260) + str(chance.randrange(50))
    return {"id": key, "a": chance.randrange(1000), "s": long, "m": [chance.randrange(20) for _ in range(3)]}


class Indexes(unittest.TestCase):
    def setUp(self):
        self.node = Node().start()
        self.connection = r.connect("127.0.0.1", self.node.driver_port)

    def tearDown(self):
        self.node.remove()

    def again(self):
        self.connection = r.connect("127.0.0.1", self.node.driver_port)

    def run_query(self, query, **options):
        return query.run(self.connection, **options)

    def write_on(self, stop):
        chance = random.Random(SEED + 1)
        while not stop.is_set():
            try:
                connection = r.connect("127.0.0.1", self.node.driver_port)
                while not stop.is_set():
                    key = chance.randrange(ROWS)
                    if chance.randrange(10) == 0:
                        r.table("t").get(key).delete(durability="soft").run(connection)
                    else:
                        r.table("t").insert(row(chance, key), conflict="replace", durability="soft").run(connection)
            except (ReqlError, OSError):
                time.sleep(0.05)

    def check(self, name, values):
        rows = list(self.run_query(r.table("t")))
        expected = sorted((value, row["id"]) for row in rows for value in values(row))
        found = list(self.run_query(r.table("t").order_by(index=name)["id"]))
        self.assertEqual(found, [key for _, key in expected], f"index {name}, seed {SEED}")

    def test_an_index_built_under_writes_and_kill_9_equals_its_function(self):
        chance = random.Random(SEED)
        self.run_query(r.table_create("t", shards=2))
        for start in range(0, ROWS, 1000):
            rows = [row(chance, key) for key in range(start, start + 1000)]
            self.run_query(r.table("t").insert(rows, durability="soft"))
        self.run_query(r.table("t").index_create("a"))
        self.run_query(r.table("t").index_create("s"))
        self.run_query(r.table("t").index_create("m", multi=True))
        stop = threading.Event()
        writers = [threading.Thread(target=self.write_on, args=(stop,)) for _ in range(2)]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            time.sleep(chance.random() * 0.5)
            self.node.kill()
            self.node.start()
            self.again()
        self.run_query(r.table("t").index_wait())
        stop.set()
        for writer in writers:
            writer.join()
        self.check("a", lambda row: [row["a"]])
        self.check("s", lambda row: [row["s"]])
        self.check("m", lambda row: row["m"])

    def test_a_dump_restores_rows_and_indexes(self):
        self.run_query(r.table_create("t"))
        chance = random.Random(SEED)
        self.run_query(r.table("t").insert([row(chance, key) for key in range(500)]))
        self.run_query(r.table("t").index_create("a"))
        self.run_query(r.table("t").index_create("both", lambda row: [row["a"], row["s"]]))
        self.run_query(r.table("t").index_create("m", multi=True))
        before = self.content()
        with tempfile.TemporaryDirectory() as folder:
            archive = str(Path(folder) / "dump.tar.gz")
            self.tool("dump", "-f", archive)
            self.run_query(r.table_drop("t"))
            self.tool("restore", archive)
        self.assertEqual(self.content(), before)

    def content(self):
        self.run_query(r.table("t").index_wait())
        return (
            list(self.run_query(r.table("t").order_by(index="id"))),
            self.run_query(r.table("t").index_status()),
            list(self.run_query(r.table("t").order_by(index="both")["id"])),
        )

    def tool(self, name, *arguments):
        program = Path(sys.executable).parent / f"rethinkdb-{name}"
        command = [str(program), "-c", f"localhost:{self.node.driver_port}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
