"""`r.js` through the official Python driver: values, functions, limits, and scripts that exceed these."""

import datetime
import os
import time
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlQueryLogicError, ReqlRuntimeError

from node import Node

STOP_SECONDS_MAX = 5


def sandboxes(node):
    """The processes that run scripts for a node."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == node.process.pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--enable-js").start()
        cls.connection = r.connect("127.0.0.1", cls.node.driver_port)
        r.table_create("t").run(cls.connection)
        r.table("t").insert([{"id": n, "n": n} for n in range(10)]).run(cls.connection)

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        cls.node.remove()

    def run_query(self, query):
        return query.run(self.connection)

    def fails(self, query, message, kind=ReqlQueryLogicError):
        with self.assertRaises(kind) as caught:
            self.run_query(query)
        self.assertEqual(caught.exception.message, message)

    def wait_until(self, holds, what):
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while not holds():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def test_values(self):
        self.assertEqual(self.run_query(r.js("1 + 1; 'a' + [1, {b: null}].length")), "a2")
        deep = {"a": [1, None, {"b": "ü"}], "c": True}
        self.assertEqual(self.run_query(r.expr(deep).do(r.js("(function(x) { return x; })"))), deep)
        when = self.run_query(r.epoch_time(1.5).do(r.js("(function(t) { return [t.getTime(), t]; })")))
        self.assertEqual(when[0], 1500)
        self.assertEqual(when[1], datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, when[1].tzinfo))
        self.fails(r.js("undefined"), "Cannot convert javascript `undefined` to ql::datum_t.")
        self.fails(r.js("function() {}"), "SyntaxError: function name expected")
        self.fails(r.expr(r.binary(b"x")).do(r.js("(function(x) { return 1; })")),
                   "`r.binary` data cannot be used in `r.js`.")
        self.fails(r.minval.do(r.js("(function(x) { return 1; })")), "`r.minval` cannot be passed to `r.js`.")

    def test_functions_are_functions(self):
        self.assertEqual(self.run_query(r.expr([1, 2]).map(r.js("(function(x) { return x * 2; })"))), [2, 4])
        odd = r.table("t").filter(r.js("(function(row) { return row.n % 2 == 1; })")).count()
        self.assertEqual(self.run_query(odd), 5)
        total = r.table("t")["n"].reduce(r.js("(function(a, b) { return a + b; })"))
        self.assertEqual(self.run_query(total), 45)
        self.assertEqual(self.run_query(r.do(1, 2, r.js("(function(a, b) { return a + b; })"))), 3)

    def test_writes_need_non_atomic(self):
        change = r.js("(function(row) { return {twice: row.n * 2}; })")
        self.fails(r.table("t").get(3).update(change),
                   "Could not prove argument deterministic.  Maybe you want to use the non_atomic flag?")
        self.assertEqual(self.run_query(r.table("t").get(3).update(change, non_atomic=True))["replaced"], 1)
        self.assertEqual(self.run_query(r.table("t").get(3)["twice"]), 6)

    def test_time_is_limited_and_the_next_script_runs(self):
        began = time.monotonic()
        self.fails(r.js("while(true) {}", timeout=1.3), "JavaScript query `while(true) {}` timed out after 1.300 seconds.")
        self.assertLess(time.monotonic() - began, 1.3 + STOP_SECONDS_MAX)
        endless = "(function(x) { while(true) {} })"
        self.fails(r.expr(1).do(r.js(endless, timeout=0.2)),
                   f"JavaScript query `{endless}` timed out after 0.200 seconds.")
        self.assertEqual(self.run_query(r.js("2")), 2)
        # After a script timed out, its query can continue.
        again = r.js("while(true) {}", timeout=0.1)
        self.fails(r.expr([1, 2]).map(lambda x: again), "JavaScript query `while(true) {}` timed out after 0.100 seconds.")

    def test_memory_is_limited(self):
        with self.assertRaises(ReqlRuntimeError):
            self.run_query(r.js("a = []; while (true) { a.push(new Array(100000).fill('x')); }", timeout=60))
        self.assertEqual(self.run_query(r.js("2")), 2)

    def test_queries_do_not_see_each_other(self):
        self.assertEqual(self.run_query(r.js("leak = 1")), 1)
        self.assertEqual(self.run_query(r.js("typeof leak")), "undefined")
        self.assertEqual(self.run_query(r.expr([r.js("own = 5"), r.js("own + 1")])), [5, 6])

    def test_a_sandbox_that_dies_is_an_error_of_its_query_only(self):
        self.assertEqual(self.run_query(r.js("1")), 1)
        killed = sandboxes(self.node)
        for pid in killed:
            os.kill(pid, 9)
        self.wait_until(lambda: not set(killed) & set(sandboxes(self.node)), "a sandbox outlived its end")
        self.assertEqual(self.run_query(r.js("1")), 1)

    def test_a_closed_connection_ends_the_script(self):
        connection = r.connect("127.0.0.1", self.node.driver_port)
        job = r.db("rethinkdb").table("jobs").filter(lambda job: job["info"]["query"].match("while")).count()
        r.js("while (true) {}", timeout=60).run(connection, noreply=True)
        # This query contains the word that it searches for.
        self.wait_until(lambda: job.run(self.connection) > 1, "the script was not seen")
        connection.close(noreply_wait=False)
        self.wait_until(lambda: job.run(self.connection) == 1, "the script was not ended")

    def test_sandboxes_have_nothing_of_the_server(self):
        self.assertEqual(self.run_query(r.js("1")), 1)
        found = sandboxes(self.node)
        self.assertTrue(found)
        for pid in found:
            self.assertEqual(Path(f"/proc/{pid}/environ").read_bytes(), b"")
            files = sorted(os.listdir(f"/proc/{pid}/fd"))
            self.assertEqual(files, ["0", "1", "2"])
            limits = Path(f"/proc/{pid}/limits").read_text()
            self.assertRegex(limits, r"Max open files +3 +3 ")
            self.assertRegex(limits, r"Max file size +0 +0 ")


class WithoutScripts(unittest.TestCase):
    def test_scripts_are_off_unless_asked_for(self):
        node = Node().start()
        try:
            with r.connect("127.0.0.1", node.driver_port) as connection:
                with self.assertRaises(ReqlQueryLogicError) as caught:
                    r.js("1").run(connection)
                self.assertEqual(
                    caught.exception.message,
                    "JavaScript is not enabled on this server.  Start it with `--enable-js` to use `r.js`.")
        finally:
            node.remove()
