"""Servers keep nothing for ended queries of other servers that read only the beginning of a table."""

import re
import unittest

from rethinkdb import r

from test_cluster import TIMEOUT_SECONDS, Cluster, ask, connect, wait_until

QUERIES = 300


def held(node):
    """The live snapshots of the engine, and the bytes of open cursors."""
    _, page = node.http("/metrics")
    snapshots = re.search(r"^rekindle_engine_snapshots (\d+)", page, re.M)
    cursors = re.search(r'^rekindle_memory_bytes\{owner="cursors"\} (\d+)', page, re.M)
    return int(snapshots.group(1)), int(cursors.group(1))


class CursorsElsewhere(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(2)
        self.addCleanup(self.cluster.remove)
        wait_until("two servers", lambda: len(ask(self.cluster.nodes[0], servers())) == 2)
        ask(self.cluster.nodes[0], r.table_create("t", shards=4))
        ask(self.cluster.nodes[0], r.table("t").wait(timeout=TIMEOUT_SECONDS))
        rows = [{"id": f"{n:04x}", "n": n, "text": "x" * 200} for n in range(0, 65536, 64)]
        ask(self.cluster.nodes[0], r.table("t").insert(rows))
        ask(self.cluster.nodes[0], r.table("t").rebalance())
        ask(self.cluster.nodes[0], r.table("t").wait(timeout=TIMEOUT_SECONDS))

    def nothing_is_held(self):
        return all(held(node) == (0, 0) for node in self.cluster.nodes)

    def test_a_query_that_wants_a_few_rows_leaves_nothing_open(self):
        few = [r.table("t").limit(10), r.table("t").filter(r.row["n"] > 5).limit(1), r.table("t").order_by(index="id").nth(3)]
        for node in self.cluster.nodes:
            with connect(node) as connection:
                for nth in range(QUERIES):
                    answer = few[nth % len(few)].run(connection)
                    self.assertIn(len(list(answer)), (10, 1, 3))
        wait_until("the end of all cursors", self.nothing_is_held)

    def test_a_cursor_that_its_client_leaves_leaves_nothing_open(self):
        for node in self.cluster.nodes:
            for _ in range(20):
                with connect(node) as connection:
                    cursor = r.table("t").run(connection, max_batch_rows=3)
                    next(cursor)
                    cursor.close()
        wait_until("the end of all cursors", self.nothing_is_held)


def servers():
    return r.db("rethinkdb").table("server_status").coerce_to("array")


if __name__ == "__main__":
    unittest.main()
