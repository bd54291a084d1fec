"""Secondary indexes of a real node: built under writes and kill -9, dumped and restored."""

import contextlib
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

    def test_indexes_of_shapes_are_dumped_restored_renamed_and_found_by(self):
        chance = random.Random(SEED)

        def place():
            return [chance.uniform(-5, 5), chance.uniform(-5, 5)]

        def shape():
            near = [chance.uniform(-5, 5), chance.uniform(-5, 5)]
            corners = [[near[0] + x, near[1] + y] for x, y in ((0, 0), (chance.random(), 0.1), (0.2, chance.random()))]
            return chance.choice([r.point(*near), r.line(*corners), r.polygon(*corners)])

        self.run_query(r.table_create("t", shards=2))
        rows = [{"id": key, "g": shape(), "m": [shape(), shape(), None]} for key in range(400)]
        self.run_query(r.table("t").insert(rows))
        self.run_query(r.table("t").index_create("g", geo=True))
        self.run_query(r.table("t").index_create("m", geo=True, multi=True))
        self.run_query(r.table("t").index_create("first", lambda row: row["m"][0], geo=True))
        before = self.shapes(first="first")
        with tempfile.TemporaryDirectory() as folder:
            archive = str(Path(folder) / "dump.tar.gz")
            self.tool("dump", "-f", archive)
            self.run_query(r.table_drop("t"))
            self.tool("restore", archive)
        self.assertEqual(self.shapes(first="first"), before)
        self.node.kill()
        self.node.start()
        self.again()
        self.assertEqual(self.shapes(first="first"), before)
        self.run_query(r.table("t").index_rename("first", "one"))
        self.assertEqual(self.shapes(first="one")[1:], before[1:])
        area = r.polygon([-2, -2], [3, -2], [3, 2], [-2, 2])
        center = place()
        shapes_of = {"g": lambda row: [row["g"]], "m": lambda row: row["m"][:2], "one": lambda row: row["m"][:1]}
        for index, of_row in shapes_of.items():
            keys = [row["id"] for row in rows for _ in of_row(row)]
            every = r.expr([one for row in rows for one in of_row(row)])
            meets = self.run_query(every.map(area.intersects))
            found = self.run_query(r.table("t").get_intersecting(area, index=index)["id"].coerce_to("array"))
            expected = [key for key, does in zip(keys, meets) if does]
            self.assertEqual(sorted(found), expected, f"index {index}, seed {SEED}")
            within = {"max_dist": 150, "unit": "km", "max_results": 20}
            nearest = self.run_query(r.table("t").get_nearest(center, index=index, **within)["dist"])
            distances = self.run_query(every.map(lambda one: r.point(*center).distance(one, unit="km")))
            expected = sorted(distance for distance in distances if distance <= 150)[:20]
            self.assertEqual(nearest, expected, f"index {index}, seed {SEED}")

    def shapes(self, first):
        """The status of the indexes of shapes, and the rows that they return."""
        statuses = self.run_query(r.table("t").index_wait())
        self.assertEqual([status["geo"] for status in statuses], [True] * 3)
        circle = r.circle([0, 0], 200, unit="km")
        by_index = [r.table("t").get_intersecting(circle, index=index) for index in ("g", "m", first)]
        found = [sorted(self.run_query(rows["id"].coerce_to("array"))) for rows in by_index]
        return statuses, found, self.run_query(r.table("t").get_nearest([0, 0], index="m", max_dist=300_000))

    def test_a_query_about_a_large_shape_can_be_stopped(self):
        # Teeth so long and thin that every edge lies over every other.
        teeth = r.range(50_000).concat_map(lambda i: [[i * 0.0004, 0], [i * 0.0004 + 40, 40]])
        ring = teeth.union([[20, 0], [20, -5], [0, -5]]).coerce_to("array")
        said = []

        def ask():
            with contextlib.closing(r.connect("127.0.0.1", self.node.driver_port)) as connection:
                try:
                    r.polygon(r.args(ring)).run(connection, array_limit=1_000_000)
                except ReqlError as error:
                    said.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        jobs = r.db("rethinkdb").table("jobs").filter({"type": "query"}).filter(lambda job: job["duration_sec"] > 0.5)
        while not self.run_query(jobs["id"].coerce_to("array")):
            self.assertTrue(asking.is_alive(), f"it was over before it was stopped: {said}")
        self.run_query(jobs.delete())
        stopped = time.monotonic()
        asking.join()
        self.assertLess(time.monotonic() - stopped, 1)
        self.assertIn("Query terminated by the `rethinkdb.jobs` table", said[0])

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
