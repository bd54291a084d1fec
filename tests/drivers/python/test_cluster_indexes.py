"""Indexes of a table on several servers: one replaces another while it is read by its name, and a change on one server
applies to the others at once."""

import threading
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlError

from test_cluster import TIMEOUT_SECONDS, Cluster, ask, connect, wait_until
from test_cluster_cursors import servers

ROWS = 60
SWAPS = 12
NAMES = 12


class IndexesOfACluster(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(3)
        self.addCleanup(self.cluster.remove)
        wait_until("three servers", lambda: len(ask(self.cluster.nodes[0], servers())) == 3)
        self.cluster.all_vote()
        ask(self.cluster.nodes[0], r.table_create("t", shards=3, replicas=3))
        ask(self.cluster.nodes[0], r.table("t").wait(timeout=TIMEOUT_SECONDS))
        ask(self.cluster.nodes[0], r.table("t").insert([{"id": f"{n:02}", "n": n} for n in range(ROWS)]))
        ask(self.cluster.nodes[0], r.table("t").rebalance())
        ask(self.cluster.nodes[0], r.table("t").wait(timeout=TIMEOUT_SECONDS))

    def test_a_read_by_name_finds_the_old_index_or_the_new_one(self):
        build(self.cluster.nodes[0], "m", r.row["n"])
        swapper = threading.Thread(target=self.swap)
        wrong, reads = [], [0, 0, 0]
        readers = [threading.Thread(target=self.read, args=(nth, swapper, wrong, reads)) for nth in range(3)]
        swapper.start()
        for thread in readers:
            thread.start()
        for thread in [swapper, *readers]:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertTrue(all(reads), reads)

    def swap(self):
        with connect(self.cluster.nodes[0]) as connection:
            for nth in range(SWAPS):
                # The reverse order each time, so that a result mixed from two indexes is visible.
                build(self.cluster.nodes[0], "next", r.row["n"] * (1 if nth % 2 else -1))
                r.table("t").index_rename("next", "m", overwrite=True).run(connection)

    def read(self, nth, swapper, wrong, reads):
        table = r.table("t")
        lowest = list(range(5))
        highest = [ROWS - 1 - n for n in lowest]
        queries = [
            (table.get_all(7, -7, index="m").count(), [1]),
            (table.get_all(7, -7, index="m")["n"].coerce_to("array"), [[7]]),
            (table.between(r.minval, r.maxval, index="m").count(), [ROWS]),
            (table.between(r.minval, r.maxval, index="m")["n"].sum(), [sum(range(ROWS))]),
            (table.order_by(index="m").limit(5)["n"].coerce_to("array"), [lowest, highest]),
            (table.order_by("id", index="m").limit(5)["n"].coerce_to("array"), [lowest, highest]),
            (table.distinct(index="m").limit(5).map(abs_of), [lowest, highest]),
            (table.min(index="m")["n"], [0, ROWS - 1]),
            (table.max(index="m")["n"], [0, ROWS - 1]),
            (table.group(index="m").count().ungroup()["group"].map(abs_of).limit(5), [lowest, highest]),
            # Each key is read separately.
            (r.expr([{"v": 7}, {"v": -7}]).eq_join("v", table, index="m").count(), [0, 1, 2]),
        ]
        with connect(self.cluster.nodes[nth]) as connection:
            while swapper.is_alive():
                for query, expected in queries:
                    try:
                        answer = query.run(connection)
                        answer = answer if isinstance(answer, (int, list)) else list(answer)
                        if answer not in expected:
                            wrong.append((nth, str(query), answer))
                    except ReqlError as error:
                        wrong.append((nth, str(query), error.message))
                    reads[nth] += 1

    def test_an_index_that_one_server_made_is_there_on_all(self):
        wrong = []
        with connect(self.cluster.nodes[0]) as here, connect(self.cluster.nodes[2]) as there:
            for nth in range(NAMES):
                name = f"i{nth}"
                r.table("t").index_create(name, r.row["n"]).run(here)
                asked = [
                    r.table("t").index_status(name)["index"],
                    r.table("t").index_wait(name)["index"],
                    r.table("t").get_all(7, index=name)["n"].coerce_to("array"),
                ][nth % 2 :]
                for query in asked:
                    try:
                        answer = query.run(there)
                        self.assertIn(answer, ([name], [7]))
                    except ReqlError as error:
                        wrong.append((str(query), error.message))
        self.assertEqual(wrong, [])


def abs_of(value):
    return r.branch(value < 0, value * -1, value)


def build(node, name, function):
    ask(node, r.table("t").index_create(name, function))
    ask(node, r.table("t").index_wait(name))


if __name__ == "__main__":
    unittest.main()
