"""Changefeeds with steps: slow ones disturb no other client, and changes that filters leave out do not fill queues."""

import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlTimeoutError

from feed_case import TIMEOUT_SECONDS, FeedCase, is_quiet, take
from node import node
from test_cluster import Cluster, ask, connect

# How often other clients are served while a step runs.
SERVED = 50
QUEUE_SIZE = 10


class OneCore(unittest.TestCase):
    def test_a_step_after_changes_that_never_ends_disturbs_no_other_client(self):
        with node("--cores", "1") as server:
            connections = [r.connect(port=server.driver_port, timeout=TIMEOUT_SECONDS) for _ in range(3)]
            for connection in connections:
                self.addCleanup(connection.close, noreply_wait=False)
            feeding, waiting, other = connections
            r.table_create("endless").run(other)
            table = r.table("endless")
            never = lambda _: r.range().filter(lambda n: n < 0).nth(0)
            feed = table.changes().map(never).run(feeding)
            beside = table.changes().run(waiting)
            table.insert({"id": 1}).run(other)
            take(beside, 1)
            for n in range(SERVED):
                self.assertEqual(r.expr(n).run(other), n)
            with self.assertRaises(ReqlTimeoutError):
                feed.next(wait=0)
            table.insert({"id": 2}).run(other)
            self.assertEqual(take(beside, 1)[0]["new_val"], {"id": 2})
            feed.close()
            self.assertEqual(r.expr(1).run(feeding), 1)

    def test_a_step_after_changes_may_read_a_table_of_another_server(self):
        cluster = Cluster(2)
        self.addCleanup(cluster.remove)
        first, second = cluster.nodes
        for name, server in [("here", "s1"), ("there", "s0")]:
            ask(first, r.table_create(name))
            place = {"shards": [{"primary_replica": server, "replicas": [server]}]}
            ask(first, r.table(name).config().update(place))
            ask(first, r.table(name).wait(timeout=60))
        here, there = r.table("here"), r.table("there")
        ask(first, there.insert([{"id": n, "n": n * n} for n in range(10)]))
        ask(first, here.insert([{"id": n} for n in range(10)]))
        counted = lambda change: {"count": there.count(), "row": there.get(change["old_val"]["id"])}
        # The second server has one core.
        with connect(second) as feeding, connect(second) as other:
            feed = here.changes().map(counted).run(feeding)
            for n in range(10):
                here.get(n).delete().run(other)
                self.assertEqual(take(feed, 1), [{"count": 10, "row": {"id": n, "n": n * n}}])
            feed.close()


class Filters(FeedCase):
    def test_changes_that_a_filter_leaves_out_do_not_fill_the_queue_of_a_view(self):
        table = self.table
        self.run_query(table.index_create("n"))
        self.run_query(table.index_wait())
        rows = {"equal": table.filter({"kind": "wanted"}), "function": table.filter(r.row["n"] < 0)}
        options = {"changefeed_queue_size": QUEUE_SIZE, "include_initial": True}
        for name, wanted in rows.items():
            views = [wanted.count(), wanted.distinct(), wanted.eq_join("n", table), wanted.group("n").count()]
            feeds = [self.feed(view.changes(**options)) for view in views]
            self.assertEqual(take(feeds[0], 1), [{"new_val": 0}])
            self.run_query(table.insert({"id": name, "n": -1, "kind": "wanted"}))
            first = [take(feed, 1)[0] for feed in [feeds[0], feeds[1], feeds[3]]]
            self.assertEqual([element["new_val"] for element in first][::2], [1, 1])
            for n in range(5 * QUEUE_SIZE):
                self.run_query(table.insert({"n": n}))
            self.run_query(table.get(name).delete())
            last = [take(feed, 1)[0] for feed in [feeds[0], feeds[1], feeds[3]]]
            for before, after in zip(first, last):
                self.assertEqual(after["old_val"], before["new_val"], after)
            self.assertTrue(is_quiet(feeds[2]))

    def test_equality_filters_have_exactly_their_changes(self):
        table = self.table
        values = [None, True, 0, 1.5, "", "text", "x" * 500, [1, 2], r.epoch_time(5), {"deep": 1}]
        queries = [table.filter({"v": value}) for value in values]
        queries += [table.filter(r.row["v"] == value) for value in values]
        queries.append(table.filter({"v": "text", "w": 1}))
        queries.append(table.filter((r.row["w"] == 1) & (r.row["v"] == "text")))
        feeds = [self.feed(query.changes()) for query in queries]
        count = len(values)
        for nth, value in enumerate(values):
            self.run_query(table.insert({"id": 1, "v": value}))
            self.run_query(table.get(1).update({"w": 1}))
            self.run_query(table.get(1).replace({"id": 1}))
            self.run_query(table.get(1).delete())
            for feed in [feeds[nth], feeds[count + nth]]:
                came, changed, left = take(feed, 3)
                self.assertIsNone(came["old_val"])
                self.assertEqual((changed["old_val"], changed["new_val"]["w"]), (came["new_val"], 1))
                self.assertEqual((left["old_val"], left["new_val"]), (changed["new_val"], None))
        for feed in feeds[2 * count :]:
            came, left = take(feed, 2)
            self.assertEqual(came["new_val"], {"id": 1, "v": "text", "w": 1})
            self.assertEqual(left, {"old_val": came["new_val"], "new_val": None})
        for feed in feeds:
            self.assertTrue(is_quiet(feed))


if __name__ == "__main__":
    unittest.main()
