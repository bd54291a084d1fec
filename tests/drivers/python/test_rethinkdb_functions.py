"""Index functions and write hooks that a real RethinkDB serialised: they are taken, work as they did there, and come back in the
same bytes, also where the query that made them is given."""

import contextlib
import re
import subprocess
import sys
import unittest

from rethinkdb import r

from node import node
from rethinkdb_data import DATA, binary, environment, needs_data, records

# Differences that docs/reference/differences.md names.
ONE_OF_SEVERAL_ZONES = """a t row_a row_get_field lam_a row_twice comp0 comprow0 comp1 comprow1 comp5 ar_timeadd logic_or3 br_type
    def_const def_err2""".split()
KNOWN_INDEXES = {
    # A group of times of one instant shows one of their zones.
    **{name: {"groups"} for name in ONE_OF_SEVERAL_ZONES},
    # The rows have a field with a zero in its name, which RethinkDB cuts there.
    "nul\0in": {"order", "order_desc", "between_n_0_100", "between_arr_0_100", "min", "max", "groups", "get_all"},
    # Base64 in a text has no line breaks.
    "str_to_json": {"groups"},
    "def_fn": {"groups", "get_all"},
    # The seconds of a time before 1970.
    "time_seconds": {"groups"},
}
# With `return_changes='always'` the query fails there, and here the row.
KNOWN_HOOKS = """always_null always_old forbid_insert validate error_all wrong_type array literal reduce bits format
    raw_const_obj""".split()
# Their functions hold the time at which they were made.
MADE_AT = {"cap_now"}


def is_known(line):
    """Whether docs/reference/differences.md names the difference in this line of the script."""
    if hook := re.match(r"DIFFER hook (\S+)", line):
        return hook[1] in KNOWN_HOOKS
    index = re.match(r"DIFFER (.*?) \[(.*?)\]", line)
    parts = set(re.findall(r"\w+", index[2])) if index else set()
    return bool(parts) and parts <= KNOWN_INDEXES.get(index[1], set())


@needs_data
class Functions(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.node = stack.enter_context(node("--enable-js"))
        self.connection = stack.enter_context(contextlib.closing(r.connect("127.0.0.1", self.node.driver_port)))

    def run_query(self, query, **options):
        return query.run(self.connection, **options)

    def check_server(self, how):
        """The summary of the script of the data, and the lines with differences that are not known."""
        command = [sys.executable, "-W", "ignore", str(DATA / "make" / "check_server.py"), str(self.node.driver_port), how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        *lines, summary = done.stdout.splitlines()
        return summary, [line for line in lines[1:] if not is_known(line)]

    def test_binaries_work_as_in_rethinkdb(self):
        summary, unknown = self.check_server("blob")
        self.assertEqual(unknown, [], summary)
        self.assertIn("'index made': 436", summary)
        self.assertIn("'hook set': 43", summary)

    def test_queries_work_as_in_rethinkdb(self):
        summary, unknown = self.check_server("source")
        self.assertEqual([line for line in unknown if line.split()[1] not in MADE_AT], [], summary)
        self.assertIn("'index made': 436", summary)
        self.assertIn("'hook set': 43", summary)

    def table(self, db, name):
        """The table with this name, which is created if it does not exist."""
        self.run_query(r.expr([db]).set_difference(r.db_list()).for_each(r.db_create(r.row)))
        self.run_query(r.expr([name]).set_difference(r.db(db).table_list()).for_each(r.db(db).table_create(r.row)))
        return r.db(db).table(name)

    def created(self, table, create, name):
        """The function and the flags of an index that `create` makes."""
        self.run_query(create)
        status = self.run_query(table.index_status(name))[0]
        self.run_query(table.index_drop(name))
        return bytes(status["function"]), status["multi"], status["geo"]

    def test_functions_come_back_in_the_same_bytes(self):
        raw = environment()["RAWJSON"]
        # RethinkDB cuts names of fields at a zero.
        rows = [{name.split("\0")[0]: value for name, value in row.items()} for row in records("rows.jsonl")]
        differ = []
        for record in records("index-functions.jsonl"):
            name, expected = record["name"], (binary(record), record["multi"], record["geo"])
            table = self.table("ix", record["table"])
            if name in {"cap_row", "cap_query"}:
                # They capture rows.
                self.run_query(table.insert(rows, conflict="replace"))
            if self.created(table, table.index_create(name, r.binary(binary(record))), name) != expected:
                differ.append(("binary", name))
            if self.created(table, raw(record["wire"]), name) != expected and name not in MADE_AT:
                differ.append(("query", name))
        self.assertEqual(differ, [])

    def test_hooks_come_back_in_the_same_bytes(self):
        raw = environment()["RAWJSON"]
        table = self.table("wh", "w")
        differ = []
        for record in records("write-hooks.jsonl"):
            for how, hook in (("binary", table.set_write_hook(r.binary(binary(record)))), ("query", raw(record["wire"]))):
                self.run_query(table.set_write_hook(None))
                self.run_query(table.insert(record["start"], conflict="replace"))
                self.run_query(hook)
                found = self.run_query(table.get_write_hook())
                shown = self.run_query(table.config()["write_hook"])
                self.assertEqual((found["function"], found["query"]), (shown["function"], record["table_config_hook_query"]))
                self.assertEqual(found["query"], record["query"])
                if bytes(found["function"]) != binary(record):
                    differ.append((how, record["name"]))
        self.assertEqual(differ, [])

    def test_functions_are_refused_as_by_rethinkdb(self):
        names = environment()
        self.run_query(r.table_create("ix11"))
        table = r.db("test").table("ix11")
        self.run_query(table.index_create("a"))
        for file in ("index-refused.jsonl", "write-hooks-refused.jsonl"):
            for record in records(file):
                with self.subTest(record["name"]):
                    with self.assertRaises(r.errors.ReqlError) as refused:
                        self.run_query(eval(record["source"], dict(names, T=table)))
                    message = record["message"].replace("`ix.ix11`", "`test.ix11`")
                    self.assertEqual((type(refused.exception).__name__, refused.exception.message), (record["error"], message))


if __name__ == "__main__":
    unittest.main()
