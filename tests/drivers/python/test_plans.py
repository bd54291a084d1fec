"""Explained queries, through the driver and through the program."""

import json
import subprocess
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlQueryLogicError

from node import Node, program


class Plans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node().start()
        cls.connection = r.connect("127.0.0.1", cls.node.driver_port)
        r.table_create("t").run(cls.connection)
        rows = [{"id": n, "a": n % 50, "b": n % 2} for n in range(400)]
        r.table("t").insert(rows).run(cls.connection)
        r.table("t").index_create("a").run(cls.connection)
        r.table("t").index_wait().run(cls.connection)

    @classmethod
    def tearDownClass(cls):
        cls.node.remove()

    def explained(self, query):
        return query.run(self.connection, explain=True)

    def test_a_filter_that_an_index_answers_looks_at_few_rows(self):
        said = self.explained(r.table("t").filter(r.row["a"] == 7))
        self.assertEqual(said["reads"][0]["by"], "index `a`: 7")
        self.assertEqual(said["rows_looked_at"], 8)
        self.assertEqual(said["items"], 8)
        self.assertEqual(r.table("t").filter(r.row["a"] == 7).count().run(self.connection), 8)

    def test_a_filter_without_index_looks_at_all(self):
        said = self.explained(r.table("t").filter({"b": 1}).count())
        self.assertEqual((said["reads"][0]["by"], said["rows_looked_at"]), ("all rows", 400))

    def test_the_first_rows_of_an_order_are_all_that_is_read(self):
        said = self.explained(r.table("t").order_by(index="id").limit(5))
        self.assertEqual((said["rows_looked_at"], said["items"]), (5, 5))

    def test_a_count_reads_nothing(self):
        self.assertEqual(self.explained(r.table("t").count())["rows_looked_at"], 0)

    def test_a_write_is_not_carried_out(self):
        with self.assertRaises(ReqlQueryLogicError):
            self.explained(r.table("t").delete())
        self.assertEqual(r.table("t").count().run(self.connection), 400)

    def test_the_program_says_the_same(self):
        term = json.dumps([39, [[15, ["t"]], {"a": 7}]])
        words = [program(), "explain", term, "--port", str(self.node.driver_port)]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.assertIn("reads test.t by index `a`: 7", said)
        self.assertIn("looked at 8 rows", said)

    def test_a_profile_has_a_task_for_each_read(self):
        answer = r.table("t").filter({"b": 1}).count().run(self.connection, profile=True)
        self.assertEqual(answer["value"], 200)
        (task,) = answer["profile"]
        self.assertEqual(task["description"], "Evaluating count.")
        (read,) = task["sub_tasks"]
        self.assertIn("Perform read of `test.t`", read["description"])
        pieces = read["sub_tasks"][0]["parallel_tasks"]
        self.assertIn("Reading 400 rows.", [piece[0]["description"] for piece in pieces])


if __name__ == "__main__":
    unittest.main()
