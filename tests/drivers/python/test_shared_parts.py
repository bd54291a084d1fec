"""Values with shared parts are enormous in their written form: no operation that writes one may exhaust the memory of the
server."""

import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlNonExistenceError, ReqlResourceLimitError

from node import Node

MEMORY_MB = 450


def shared(x, count):
    """A value of a page or two with `count` times 10^5 parts, each counted where it occurs."""
    return r.expr([r.expr([x]).mul(100_000)]).mul(count)


class SharedParts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--cache-size", "100", "--memory-limit", str(MEMORY_MB)).start()
        cls.connection = r.connect("127.0.0.1", cls.node.driver_port)
        r.table_create("t").run(cls.connection)
        r.table("t").insert({"id": 1, "n": 1}).run(cls.connection)

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        cls.node.remove()

    def peak_mb(self):
        with open(f"/proc/{self.node.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) >> 10

    def is_refused(self, write, why):
        written = write.run(self.connection)
        self.assertEqual((written["errors"], written["inserted"], written["replaced"]), (1, 0, 0))
        self.assertRegex(written["first_error"], why)
        self.assertLess(self.peak_mb(), MEMORY_MB)
        self.assertEqual(list(r.table("t").run(self.connection)), [{"id": 1, "n": 1}])

    def test_a_row_that_is_too_large_is_refused_before_it_is_written_out(self):
        why = "^Cannot perform write: the row has more than 134217728 bytes, the most that a row can have"
        t = r.table("t")
        self.is_refused(r.do(1, lambda x: t.insert({"id": 7, "b": shared(x, 3000)})), why)
        self.is_refused(t.insert(r.do(1, lambda x: {"id": 7, "b": shared(x, 3000)})), why)
        self.is_refused(t.get(1).update(lambda row: {"b": shared(row["n"], 3000)}), why)
        self.is_refused(t.get(1).replace(lambda row: row.merge({"b": shared(row["n"], 3000)})), why)
        self.is_refused(t.update(lambda row: {"b": shared(row["n"], 3000)}), why)

    def test_a_row_for_which_there_is_no_memory_is_refused_before_it_is_written_out(self):
        # It fits in an entry.
        row = r.do("x" * 1300, lambda x: {"id": 7, "b": r.expr([x]).mul(95_000)})
        self.is_refused(r.table("t").insert(row), "^The query needs more memory than is left")

    def test_a_message_shows_the_beginning_of_a_value(self):
        with self.assertRaisesRegex(ReqlNonExistenceError, "No attribute `b` in object:") as raised:
            r.do(1, lambda x: r.expr({"a": shared(x, 3000)})["b"]).run(self.connection)
        self.assertLess(len(raised.exception.message), 1000)
        self.assertLess(self.peak_mb(), MEMORY_MB)

    def test_an_answer_that_is_too_large_is_refused(self):
        for count in (3000, 90_000):
            with self.assertRaises(ReqlResourceLimitError):
                r.do(1, lambda x: shared(x, count)).run(self.connection)
            with self.assertRaises(ReqlResourceLimitError):
                list(r.table("t").map(lambda row: {"b": shared(row["n"], count)}).run(self.connection))
        self.assertLess(self.peak_mb(), MEMORY_MB)


if __name__ == "__main__":
    unittest.main()
