"""The unchanged tools of the PyPI package `rethinkdb`: data dumped from a node and restored into another is equal, row for
row, with indexes of every kind and write hooks."""

import contextlib
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rethinkdb import r

from node import node

RAW = {"time_format": "raw", "binary_format": "raw"}
# The driver's own limit for what its tools send is 100.
DEEP = 90
ROWS_MORE = 300


def nested(depth):
    value = [{"end": None}]
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def values():
    """A value of every kind, by name."""
    return {
        "null": None,
        "truth": [True, False],
        "numbers": [0, -0.0, 1, -1, 0.1, 1 / 3, 2**53 - 1, -(2**53), 1e300, -1e-300, 5e-324, 1.7976931348623157e308],
        "texts": ["", "plain", "ünïcödé", "☃", "🚀", "\u0000", "a\u0000b", '"quoted"', "back\\slash", "\r\n\t", "\u2028"],
        "empties": [[], {}, [[]], [{}]],
        "deep": r.json(json.dumps(nested(DEEP))),
        "keys": {"": 1, " ": 2, "a.b": 3, "ü": 4, "🚀": 5, "$x": 6, "quote\"": 7, "a\nb": 8},
        "binary": [r.binary(b""), r.binary(bytes(range(256))), r.binary(b"\0")],
        "times": [
            r.epoch_time(0),
            r.epoch_time(-1.5),
            r.epoch_time(1_700_000_000.123),
            r.iso8601("2024-02-29T23:59:59.999+05:30"),
            r.iso8601("1999-12-31T00:00:00-11:00"),
            r.iso8601("9999-12-31T23:59:59Z"),
        ],
        "points": [r.point(0, 0), r.point(-179.999, 89.5), r.point(180, -90)],
        "line": r.line([0, 0], [1, 1], [2, 0]),
        "polygon": r.polygon([0, 0], [10, 0], [10, 10], [0, 10]).polygon_sub(r.polygon([2, 2], [3, 2], [3, 3])),
        "circle": r.circle([13.4, 52.5], 1000),
        "mixed": [None, True, 1, "a", [1, [2]], {"b": r.binary(b"x"), "t": r.epoch_time(1)}],
        "long": "x" * 100_000,
        "many": list(range(5000)),
    }


def keys():
    """Primary keys of every kind."""
    texts = ["", "a", "ü", "🚀", "k" * 127]
    plain = [True, False, 0, -1, 1.5, 2**53, -1e300, 5e-324]
    return texts + plain + [r.binary(b""), r.binary(b"\0\xff"), r.epoch_time(0), r.epoch_time(1.5), [], [1, "a", [True]]]


def furnish(run):
    """Three tables in two databases with every kind of stored data."""
    run(r.db_create("kept"))
    kept = r.db("kept")
    run(kept.table_create("values"))
    run(kept.table("values").insert([{"id": name, "v": value} for name, value in values().items()]))
    more = [{"id": f"row {n}", "n": n, "m": [n % 3, n % 5], "s": str(n)} for n in range(ROWS_MORE)]
    run(kept.table("values").insert(more))
    places = [{"id": f"place {n}", "p": r.point(n % 90, n % 45), "ps": [r.point(n % 7, 1), r.point(1, n % 5)]} for n in range(50)]
    run(kept.table("values").insert(places))
    indexes = [
        ("n",),
        ("ü \" name",),
        ("both", [r.row["n"], r.row["s"]]),
        ("computed", lambda row: r.branch(row["n"] % 2 == 0, row["n"] * 10 + 0.5, row["s"].upcase())),
        ("texts", lambda row: row["s"].add("\u0000☃").split("")),
    ]
    for name, *function in indexes:
        run(kept.table("values").index_create(name, *function))
    run(kept.table("values").index_create("m", multi=True))
    run(kept.table("values").index_create("pairs", lambda row: row["m"].map(lambda x: [x, row["n"]]), multi=True))
    run(kept.table("values").index_create("p", geo=True))
    run(kept.table("values").index_create("ps", geo=True, multi=True))
    run(kept.table("values").index_create("first", lambda row: row["ps"][0], geo=True))
    run(kept.table_create("keyed", primary_key="the key"))
    run(kept.table("keyed").insert([{"the key": key, "n": n} for n, key in enumerate(keys())]))
    run(kept.table_create("empty"))
    run(r.db_create("other_1"))
    run(r.db("other_1").table_create("hooked"))
    # The import tool sets a hook while its last rows are still being written, so that only some rows pass it.
    # This hook changes nothing in a row that has passed it.
    hook = lambda context, old, new: r.branch(new.eq(None), None, new.merge({"seen": new["rank"].default(0).add(1)}))
    run(r.db("other_1").table("hooked").set_write_hook(hook))
    run(r.db("other_1").table("hooked").insert([{"id": n, "rank": n % 7} for n in range(100)]))
    run(r.db("other_1").table("hooked").index_create("rank"))


def content(run):
    """All metadata and rows of all databases, without the ids of tables."""
    known = {}
    for db in run(r.db_list().set_difference(["rethinkdb"])):
        for name in run(r.db(db).table_list()):
            table = r.db(db).table(name)
            statuses = run(table.index_wait(), **RAW)
            found = {status["index"]: by_index(run, table, status) for status in statuses}
            known[f"{db}.{name}"] = {
                "rows": list(run(table.order_by(index=run(table.info()["primary_key"])), **RAW)),
                "indexes": statuses,
                "found": found,
                "hook": run(table.get_write_hook(), **RAW),
                "key": run(table.info()["primary_key"]),
            }
    return known


def by_index(run, table, status):
    if status["geo"]:
        shape = r.circle([5, 5], 3_000, unit="km")
        rows = table.get_intersecting(shape, index=status["index"])["id"].coerce_to("array")
        return sorted(run(rows))
    return list(run(table.order_by(index=status["index"]).map(lambda row: row["id"])))


class Tools(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.server = stack.enter_context(node())
        self.other = stack.enter_context(node())
        self.connections = {
            server: stack.enter_context(contextlib.closing(r.connect("127.0.0.1", server.driver_port)))
            for server in (self.server, self.other)
        }

    def run_on(self, server):
        return lambda query, **options: query.run(self.connections[server], **options)

    def tool(self, server, name, *arguments):
        program = Path(sys.executable).parent / f"rethinkdb-{name}"
        command = [str(program), "-c", f"localhost:{server.driver_port}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def equal(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for table, parts in expected.items():
            for part, value in parts.items():
                # The texts distinguish `1` from `1.0` and `-0.0` from `0`; the values do not.
                self.assertEqual(json.dumps(found[table][part]), json.dumps(value), f"{part} of {table}")

    def test_a_dump_of_everything_is_restored_on_another_node(self):
        furnish(self.run_on(self.server))
        before = content(self.run_on(self.server))
        self.assertEqual(len(before["kept.values"]["indexes"]), 10)
        self.assertEqual(len(before["kept.keyed"]["rows"]), len(keys()))
        found_nothing = [name for of in before.values() for name, found in of["found"].items() if not found]
        self.assertEqual(found_nothing, ['ü " name'])
        self.assertIsNotNone(before["other_1.hooked"]["hook"])
        archive = self.folder / "dump.tar.gz"
        self.tool(self.server, "dump", "-f", archive)
        self.tool(self.other, "restore", archive)
        restored = content(self.run_on(self.other))
        self.equal(restored, before)
        # Dump the restored data, too: it must be as good a source as the first.
        again = self.folder / "again.tar.gz"
        self.tool(self.other, "dump", "-f", again)
        for db in ("kept", "other_1"):
            self.run_on(self.server)(r.db_drop(db))
        self.tool(self.server, "restore", again)
        self.equal(content(self.run_on(self.server)), before)

    def test_exports_are_imported(self):
        furnish(self.run_on(self.server))
        before = content(self.run_on(self.server))
        folder = self.folder / "all"
        self.tool(self.server, "export", "-d", folder)
        self.tool(self.other, "import", "-d", folder)
        self.equal(content(self.run_on(self.other)), before)

    def test_a_table_goes_through_rows_of_lines(self):
        furnish(self.run_on(self.server))
        self.run_on(self.other)(r.db_create("kept"))
        for table, key in (("values", "id"), ("keyed", "the key")):
            folder = self.folder / table
            self.tool(self.server, "export", "-d", folder, "-e", f"kept.{table}", "--format", "ndjson")
            # The import tool chooses the format by the name of the file, and does not know this one.
            file = (folder / "kept" / f"{table}.ndjson").rename(folder / "rows.json")
            self.tool(self.other, "import", "-f", file, "--table", f"kept.{table}", "--pkey", key, "--format", "json")
            rows = r.db("kept").table(table).order_by(index=key)
            before, after = (list(self.run_on(server)(rows, **RAW)) for server in (self.server, self.other))
            self.assertEqual(json.dumps(after), json.dumps(before))

    def test_a_table_goes_through_csv(self):
        run = self.run_on(self.server)
        run(r.table_create("t"))
        rows = [{"id": f"k{n}", "text": text} for n, text in enumerate(["a", "ü", "🚀", 'say "yes", no', "two\nlines"])]
        run(r.table("t").insert(rows))
        folder = self.folder / "csv"
        self.tool(self.server, "export", "-d", folder, "-e", "test.t", "--format", "csv", "--fields", "id,text")
        file = folder / "test" / "t.csv"
        self.tool(self.other, "import", "-f", file, "--table", "test.t", "--format", "csv")
        self.assertEqual(list(self.run_on(self.other)(r.table("t").order_by(index="id"))), rows)

    def test_indexes_are_rebuilt(self):
        run = self.run_on(self.server)
        furnish(run)
        before = content(run)
        self.tool(self.server, "index-rebuild", "--force", "-n", 3)
        self.equal(content(run), before)


if __name__ == "__main__":
    unittest.main()
