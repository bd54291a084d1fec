"""Documents through the official Python driver: create, read, update, delete, cursors, errors."""

import unittest

from rethinkdb import r
from rethinkdb.errors import (
    ReqlCompileError,
    ReqlNonExistenceError,
    ReqlOpFailedError,
    ReqlQueryLogicError,
    ReqlResourceLimitError,
    ReqlUserError,
)

from node import Node

CURSOR_ROWS = 100_000


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node().start()
        cls.connection = r.connect("127.0.0.1", cls.node.driver_port)

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        cls.node.remove()

    def setUp(self):
        r.table_create("t").run(self.connection)
        self.table = r.table("t")

    def tearDown(self):
        r.table_drop("t").run(self.connection)

    def run_query(self, query, **options):
        return query.run(self.connection, **options)

    def test_a_document_goes_in_and_comes_out(self):
        row = {"id": 1, "name": "Ada", "tags": ["a", "b"], "deep": {"x": [1.5, None, True]}, "ünï": "☃ \" \\ \n"}
        self.assertEqual(self.run_query(self.table.insert(row))["inserted"], 1)
        self.assertEqual(self.run_query(self.table.get(1)), row)
        self.assertIsNone(self.run_query(self.table.get(2)))

    def test_generated_keys_name_the_documents(self):
        keys = self.run_query(self.table.insert([{"n": n} for n in range(3)]))["generated_keys"]
        self.assertEqual([self.run_query(self.table.get(key)["n"]) for key in keys], [0, 1, 2])

    def test_a_duplicate_key_is_an_error_of_its_row_only(self):
        self.run_query(self.table.insert({"id": 1, "v": "old"}))
        result = self.run_query(self.table.insert([{"id": 1, "v": "new"}, {"id": 2}]))
        self.assertEqual((result["inserted"], result["errors"]), (1, 1))
        self.assertTrue(result["first_error"].startswith("Duplicate primary key `id`:\n"))
        self.assertEqual(self.run_query(self.table.get(1)["v"]), "old")

    def test_conflict_modes(self):
        self.run_query(self.table.insert({"id": 1, "a": 1, "b": 1}))
        self.run_query(self.table.insert({"id": 1, "a": 2}, conflict="update"))
        self.assertEqual(self.run_query(self.table.get(1)), {"id": 1, "a": 2, "b": 1})
        self.run_query(self.table.insert({"id": 1, "a": 3}, conflict="replace"))
        self.assertEqual(self.run_query(self.table.get(1)), {"id": 1, "a": 3})
        add = lambda key, old, new: {"id": key, "a": old["a"] + new["a"]}
        self.run_query(self.table.insert({"id": 1, "a": 4}, conflict=add))
        self.assertEqual(self.run_query(self.table.get(1)), {"id": 1, "a": 7})

    def test_update_replace_delete_report_their_changes(self):
        self.run_query(self.table.insert({"id": 1, "n": 1}))
        result = self.run_query(self.table.get(1).update({"n": r.row["n"] + 1}, return_changes=True))
        self.assertEqual(result["changes"], [{"old_val": {"id": 1, "n": 1}, "new_val": {"id": 1, "n": 2}}])
        self.assertEqual(self.run_query(self.table.get(1).replace({"id": 1}))["replaced"], 1)
        self.assertEqual(self.run_query(self.table.get(1).delete())["deleted"], 1)
        self.assertEqual(self.run_query(self.table.get(1).delete())["skipped"], 1)

    def test_a_cursor_walks_over_all_rows_once(self):
        for start in range(0, CURSOR_ROWS, 10_000):
            rows = [{"id": n} for n in range(start, start + 10_000)]
            self.run_query(self.table.insert(rows), durability="soft")
        self.assertEqual(self.run_query(self.table.count()), CURSOR_ROWS)
        seen = sorted(row["id"] for row in self.run_query(self.table))
        self.assertEqual(seen, list(range(CURSOR_ROWS)))
        ordered = self.run_query(self.table.order_by(index=r.desc("id")))
        self.assertTrue(all(row["id"] == CURSOR_ROWS - 1 - at for at, row in enumerate(ordered)))

    def test_a_cursor_can_be_left_half_way(self):
        self.run_query(self.table.insert([{"id": n} for n in range(1000)]))
        cursor = self.run_query(self.table, max_batch_rows=10)
        next(cursor)
        cursor.close()
        self.assertEqual(self.run_query(self.table.count()), 1000)

    def test_noreply_writes_are_there_after_noreply_wait(self):
        for n in range(500):
            self.table.insert({"id": n}).run(self.connection, noreply=True)
        self.connection.noreply_wait()
        self.assertEqual(self.run_query(self.table.count()), 500)

    def test_errors_carry_class_and_message(self):
        cases = [
            (r.expr(1) + "a", ReqlQueryLogicError, "Expected type NUMBER but found STRING."),
            (r.expr({"a": 1})["b"], ReqlNonExistenceError, "No attribute `b` in object"),
            (r.table("missing"), ReqlOpFailedError, "Table `test.missing` does not exist."),
            (r.error("mine"), ReqlUserError, "mine"),
            (r.range(200_000).coerce_to("array"), ReqlResourceLimitError, "Array over size limit `100000`."),
            (self.table.insert({}, durability="maybe"), ReqlQueryLogicError, "Durability option `maybe` unrecognized"),
            (r.expr(1) / 0, ReqlQueryLogicError, "Cannot divide by zero."),
        ]
        for query, kind, message in cases:
            with self.subTest(message), self.assertRaises(kind) as caught:
                self.run_query(query)
            self.assertTrue(caught.exception.message.startswith(message), caught.exception.message)

    def test_a_query_that_cannot_be_compiled(self):
        with self.assertRaises(ReqlCompileError):
            self.run_query(r.expr([1]).map(lambda x: self.table.insert({"id": x})))

    def test_map_reduce(self):
        self.run_query(self.table.insert([{"id": n, "text": "a.b.c", "kind": n % 3} for n in range(300)]))
        self.assertEqual(self.run_query(self.table.map(lambda row: row["text"].split(".").count()).sum()), 900)
        groups = self.run_query(self.table.group("kind").count())
        self.assertEqual(groups, {0: 100, 1: 100, 2: 100})

    def test_queries_are_answered_while_a_slow_one_runs(self):
        slow = r.range(30_000_000).map(lambda n: n * n).sum()
        other = r.connect("127.0.0.1", self.node.driver_port)
        slow.run(other, noreply=True)
        self.assertEqual(r.expr(1).run(other), 1)
        other.close(noreply_wait=False)


if __name__ == "__main__":
    unittest.main()
