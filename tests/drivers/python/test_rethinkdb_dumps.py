"""Dumps and exports of a real RethinkDB, restored and imported by the unchanged tools: rows, indexes and hooks are as they were."""

import contextlib
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rethinkdb import r

from node import node
from rethinkdb_data import DATA, RAW, binary, needs_data, plain, records

# The tool restores the hook of a table only if the table has indexes.
WITHOUT_HOOK = {"shop.hook_only"}
EXPORTED = lambda name: name != "mix_Types_9.large"


def expected_tables():
    return json.loads((DATA / "dumps" / "expected" / "tables.json").read_text(encoding="utf-8"))


@needs_data
class Dumps(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.node = stack.enter_context(node())
        self.connection = stack.enter_context(contextlib.closing(r.connect("127.0.0.1", self.node.driver_port)))

    def run_query(self, query, **options):
        return query.run(self.connection, **options)

    def tool(self, name, *arguments):
        program = Path(sys.executable).parent / f"rethinkdb-{name}"
        command = [str(program), "-c", f"localhost:{self.node.driver_port}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def table_names(self):
        names = []
        for db in self.run_query(r.db_list().set_difference(["rethinkdb", "test"])):
            names += [f"{db}.{table}" for table in self.run_query(r.db(db).table_list())]
        return set(names)

    def check_rows(self, name, fields=None):
        db, table = name.split(".", 1)
        expected = records(f"dumps/expected/{name}.jsonl")
        if fields:
            expected = [{field: row[field] for field in fields if field in row} for row in expected]
        key = self.run_query(r.db(db).table(table).info()["primary_key"])
        rows = list(self.run_query(r.db(db).table(table).order_by(index=key), **RAW))
        self.assertEqual(len(rows), len(expected), name)
        for found, row in zip(rows, expected):
            self.assertEqual(plain(found), plain(row), name)

    def check_indexes(self, name, known, with_entries=True):
        db, table = name.split(".", 1)
        table = r.db(db).table(table)
        statuses = self.run_query(table.index_wait())
        self.assertEqual([status["index"] for status in statuses], sorted(known["indexes"], key=str.encode), name)
        for status in statuses:
            index = known["indexes"][status["index"]]
            self.assertEqual(bytes(status["function"]), binary(index), name)
            self.assertEqual((status["multi"], status["geo"]), (index["multi"], index["geo"]), name)
            if with_entries and not index["geo"]:
                entries = table.between(r.minval, r.maxval, index=status["index"]).count()
                distinct = table.distinct(index=status["index"]).count()
                found = [self.run_query(query) for query in (entries, distinct)]
                self.assertEqual(found, [index["entries"], index["distinct"]], f"{name} {status['index']}")

    def check_hook(self, name, known):
        db, table = name.split(".", 1)
        hook = self.run_query(r.db(db).table(table).get_write_hook())
        if known["write_hook"] is None or name in WITHOUT_HOOK:
            self.assertIsNone(hook, name)
        else:
            self.assertEqual(bytes(hook["function"]), binary(known["write_hook"]), name)

    def check(self, is_included, with_hooks=True):
        tables = {name: known for name, known in expected_tables().items() if is_included(name)}
        self.assertEqual(self.table_names(), set(tables))
        for name, known in tables.items():
            db, table = name.split(".", 1)
            self.assertEqual(self.run_query(r.db(db).table(table).info()["primary_key"]), known["primary_key"])
            self.check_rows(name)
            self.check_indexes(name, known)
            self.check_hook(name, known if with_hooks else {"write_hook": None})

    def test_a_dump_of_everything(self):
        self.tool("restore", DATA / "dumps" / "all-2.4.10.post1.tar.gz")
        self.check(lambda name: True)
        # What is rebuilt has the same functions.
        self.tool("index-rebuild", "--force", "-n", 3)
        self.check(lambda name: True)

    def test_a_dump_by_an_older_driver(self):
        self.tool("restore", DATA / "dumps" / "all-2.3.0.post6.tar.gz")
        self.check(lambda name: True, with_hooks=False)

    def test_a_dump_of_a_database(self):
        self.tool("restore", DATA / "dumps" / "shop-2.4.10.post1.tar.gz")
        self.check(lambda name: name.startswith("shop."))

    def test_a_dump_of_two_tables(self):
        self.tool("restore", DATA / "dumps" / "two-tables-2.4.10.post1.tar.gz")
        self.check(lambda name: name in {"shop.users", "mix_Types_9.empty"})

    def test_a_dump_of_ours_has_what_was_restored(self):
        self.tool("restore", DATA / "dumps" / "all-2.4.10.post1.tar.gz")
        archive = self.folder / "ours.tar.gz"
        self.tool("dump", "-f", archive)
        for db in ("shop", "mix_Types_9"):
            self.run_query(r.db_drop(db))
        self.tool("restore", archive)
        self.check(lambda name: True)
        # The files that describe tables name the same functions.
        unpacked = self.folder / "ours"
        shutil.unpack_archive(archive, unpacked)
        for name, known in expected_tables().items():
            db, table = name.split(".", 1)
            (info,) = unpacked.glob(f"*/{db}/{table}.info")
            indexes = json.loads(info.read_text(encoding="utf-8"))["indexes"]
            found = {index["index"]: binary({"function": index["function"]["data"]}) for index in indexes}
            self.assertEqual(found, {index: binary(status) for index, status in known["indexes"].items()})

    def test_an_export_in_json(self):
        self.tool("import", "-d", DATA / "export" / "json")
        self.check(EXPORTED)

    def test_an_export_of_some_fields(self):
        self.tool("import", "-d", DATA / "export" / "json-fields")
        self.check_rows("shop.users", ["email", "name"])

    def test_an_export_in_lines(self):
        self.run_query(r.expr(["shop", "mix_Types_9"]).for_each(lambda db: r.db_create(db)))
        for name, known in expected_tables().items():
            file = DATA / "export" / "ndjson" / (name.replace(".", "/", 1) + ".ndjson")
            if not EXPORTED(name) or not known["rows"]:
                continue
            # The tool chooses the format by the name of the file, and does not know this one.
            rows = Path(shutil.copy(file, self.folder / "rows.json"))
            self.tool("import", "-f", rows, "--table", name, "--pkey", known["primary_key"], "--format", "json")
            self.check_rows(name)

    def test_exports_in_csv(self):
        # The tool does not read the third export: it ignores `--delimiter`.
        for folder, name in (("csv-users", "shop.users"), ("csv-values", "mix_Types_9.values")):
            known = expected_tables()[name]
            self.tool("import", "-d", DATA / "export" / folder)
            file = DATA / "export" / folder / (name.replace(".", "/", 1) + ".csv")
            with open(file, encoding="utf-8", newline="") as lines:
                expected = [{field: text for field, text in row.items() if text} for row in csv.DictReader(lines)]
            db, table = name.split(".", 1)
            rows = list(self.run_query(r.db(db).table(table)))
            by_key = lambda row: row[known["primary_key"]]
            self.assertEqual(sorted(rows, key=by_key), sorted(expected, key=by_key))
            self.check_indexes(name, known, with_entries=False)
            self.check_hook(name, known)


if __name__ == "__main__":
    unittest.main()
