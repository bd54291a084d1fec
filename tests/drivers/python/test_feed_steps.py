"""Changefeeds with steps: slow ones disturb no other client, and changes that filters leave out do not fill queues."""

import contextlib
import itertools
import random
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlQueryLogicError, ReqlTimeoutError

from feed_case import TIMEOUT_SECONDS, FeedCase, is_quiet, take, wait_until
from node import node
from test_cluster import Cluster, ask, connect

# How often other clients are served while a step runs.
SERVED = 50
QUEUE_SIZE = 10
SEED = random.randrange(1 << 32)
LAST = 5
# Of random writes, each followed by a comparison.
ROUNDS, WRITES = 20, 10


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

    def test_functions_of_views_that_never_end_disturb_no_other_client(self):
        with node("--cores", "1") as server:
            connections = [r.connect(port=server.driver_port, timeout=TIMEOUT_SECONDS) for _ in range(2)]
            for connection in connections:
                self.addCleanup(connection.close, noreply_wait=False)
            feeding, other = connections
            r.table_create("endless").run(other)
            table = r.table("endless")
            never = lambda _: r.range().filter(lambda n: n < 0).nth(0)
            views = [table.group(never).count(), table.sum(never), table.map(never).count()]
            views += [table.eq_join(never, table), table.eq_join("id", table).map(never)]
            feeds = [view.changes().run(feeding) for view in views]
            table.insert({"id": 1}).run(other)
            for n in range(SERVED):
                self.assertEqual(r.expr(n).run(other), n)
            for feed in feeds:
                feed.close()
            self.assertEqual(r.expr(1).run(feeding), 1)

    def test_steps_before_changes_that_never_end_disturb_no_other_feed(self):
        with node("--cores", "1") as server:
            connections = [r.connect(port=server.driver_port, timeout=TIMEOUT_SECONDS) for _ in range(3)]
            for connection in connections:
                self.addCleanup(connection.close, noreply_wait=False)
            feeding, waiting, other = connections
            r.table_create("endless").run(other)
            table = r.table("endless")
            never = lambda row: r.branch(row["id"] == 0, True, r.range().filter(lambda n: n < 0).nth(0))
            rows = [table.filter(never), table.map(never), table.get_all(0, 1, 2).filter(never)]
            views = [table.filter(never).count(), table.order_by(index="id").filter(never).limit(2)]
            feeds = [query.changes().run(feeding) for query in rows + views]
            beside = table.changes().run(waiting)
            table.insert({"id": 0}).run(other)
            self.assertEqual(take(beside, 1)[0]["new_val"], {"id": 0})
            expected = [{"id": 0}, True, {"id": 0}, 1, {"id": 0}]
            self.assertEqual([take(feed, 1)[0]["new_val"] for feed in feeds], expected)
            for id in [1, 2]:
                table.insert({"id": id}).run(other)
                self.assertEqual(take(beside, 1)[0]["new_val"], {"id": id})
            for n in range(SERVED):
                self.assertEqual(r.expr(n).run(other), n)
            for feed in feeds:
                feed.close()
            self.assertEqual(r.expr(1).run(feeding), 1)

    def test_elements_are_sent_while_a_step_leaves_nothing_of_later_ones(self):
        with node() as server:
            reading = r.connect(port=server.driver_port, timeout=TIMEOUT_SECONDS)
            writing = r.connect(port=server.driver_port, timeout=TIMEOUT_SECONDS)
            for connection in [reading, writing]:
                self.addCleanup(connection.close, noreply_wait=False)
            r.table_create("wanted").run(writing)
            table = r.table("wanted")
            # The first row is wanted, and the last one takes forever.
            step = lambda change: r.branch(
                change["new_val"]["id"] == LAST,
                r.range().filter(lambda n: n < 0).nth(0),
                change["new_val"]["id"] == 0,
            )
            feed = table.changes().filter(step).run(reading, max_batch_seconds=0)
            table.insert([{"id": n} for n in range(LAST + 1)]).run(writing)
            self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": 0}}])
            feed.close()

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

    def test_long_steps_have_the_changes_that_short_ones_have(self):
        print(f"seed {SEED}")
        chance = random.Random(SEED)
        # The same filter and mapping, of which no bound is known.
        long = lambda value: r.range(value["n"].add(1)).max().default(-1)
        pairs = [
            (self.table.filter(r.row["n"] >= 3), self.table.filter(lambda row: long(row) >= 3)),
            (self.table.map(r.row["n"]), self.table.map(long)),
            (self.table.filter(r.row["n"] >= 3).pluck("n"), self.table.filter(lambda row: long(row) >= 3).pluck("n")),
        ]
        for squash in [False, True]:
            options = {"squash": squash, "include_types": True, "include_resume_token": True}
            feeds = [[self.feed(query.changes(**options)) for query in pair] for pair in pairs]
            for _ in range(60):
                id, n = chance.randrange(5), chance.randrange(6)
                query = self.table.insert({"id": id, "n": n}, conflict="replace")
                self.run_query(self.table.get(id).delete() if n == 5 else query)
            self.run_query(self.table.insert({"id": "last", "n": 9}))
            without_token = lambda element: {key: value for key, value in element.items() if key != "resume_token"}
            for short, long_one in feeds:
                found = [[], []]
                for feed, elements in zip([short, long_one], found):
                    while not elements or elements[-1]["new_val"] not in [9, {"n": 9}, {"id": "last", "n": 9}]:
                        elements.append(without_token(take(feed, 1)[0]))
                    feed.close()
                if not squash:
                    self.assertEqual(*found)
            self.run_query(self.table.delete())

    def test_the_last_element_of_a_flush_has_a_token_though_steps_leave_nothing_of_later_changes(self):
        # A filter of which no bound is known.
        wanted = self.table.filter(lambda row: r.range(row["n"]).count() > 2)
        feed = self.feed(wanted.changes(squash=0.3, include_resume_token=True))
        for _ in range(5):
            self.run_query(self.table.insert({"id": 1, "n": 9}, conflict="replace"))
            self.run_query(self.table.insert({"id": 2, "n": 1}, conflict="replace"))
            [element] = take(feed, 1)
            self.assertEqual((element["new_val"] or {}).get("id"), 1)
            self.assertIn("resume_token", element)
            self.run_query(self.table.delete())
            [element] = take(feed, 1)
            self.assertIsNone(element["new_val"])
            self.assertIn("resume_token", element)

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

    def test_feeds_of_ranges_of_values_have_the_rows_of_their_queries(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        table = self.table
        self.run_query(table.index_create("v"))
        self.run_query(table.index_wait())
        row, value = r.row, r.row["v"]
        filters = [value > 5, 5 >= value, (value > 2) & (value <= 7), (value > 7) & (value < 3), value != 5, value < "b"]
        filters += [(value == 5) & (row["w"] == 1), (row["w"] < 2) & (value > 3), (value > "a") | (value == 1)]
        queries = [table.filter(test) for test in filters]
        sides = ["open", "closed"]
        for left, right in itertools.product(sides, sides):
            queries.append(table.between(3, 7, index="v", left_bound=left, right_bound=right))
        queries += [table.between(r.minval, 4, index="v"), table.between(5, 2, index="v")]
        queries.append(table.between(3, "b", index="v").filter({"w": 1}))
        ordered = [query.order_by(index="v") for query in queries[-7:-2]]
        queries += [query.limit(3) for query in ordered] + [query.filter({"w": 1}).limit(3) for query in ordered]
        cached = [{} for _ in queries]
        feeds = [self.feed(query.changes(include_initial=True, include_states=True)) for query in queries]
        values = [None, True, *range(9), 2.5, 7.5, "a", "b", "c"]
        write = lambda: {"id": chance.randrange(20), "v": chance.choice(values), "w": chance.randrange(3)}
        for _ in range(ROUNDS):
            for _ in range(WRITES):
                made = write() if chance.random() < 0.7 else {"id": chance.randrange(20)}
                self.run_query(table.insert(made, conflict="replace"))
            for query, cache, feed in zip(queries, cached, feeds):
                expected = {found["id"]: found for found in self.run_query(query.coerce_to("array"))}
                wait_until(f"{query}", lambda: follow(feed, cache) == expected)

    def test_shapes_are_compared_by_their_members(self):
        table = self.table
        plain = {"$reql_type$": "GEOMETRY", "type": "Point", "coordinates": [1, 2]}
        self.run_query(table.insert({"id": 1, "v": r.expr(plain | {"crs": None})}))
        feed = self.feed(table.filter({"v": r.point(1, 2)}).changes(include_initial=True))
        (initial,) = take(feed, 1)
        self.run_query(table.get(1).update({"z": 1}))
        (change,) = take(feed, 1)
        self.assertEqual((change["old_val"], change["new_val"]["z"]), (initial["new_val"], 1))

    def test_conditions_that_are_nested(self):
        row = r.row
        tests = [(row["a"] == 1) & (row["b"] == 1) & (row["c"] == 1), (row["a"] >= 1) & (row["a"] < 2) & (row["b"] == 1)]
        feeds = [self.feed(self.table.filter(test).changes()) for test in tests]
        for other in [{"a": 2}, {"b": 2}, {"c": 2}, {}]:
            self.run_query(self.table.insert({"id": 1, "a": 1, "b": 1, "c": 1} | other))
            self.run_query(self.table.get(1).delete())
        self.assertEqual([len(take(feed, 2 * count)) for count, feed in zip([1, 2], feeds)], [2, 4])
        for feed in feeds:
            self.assertTrue(is_quiet(feed))

    def test_a_null_counts_as_no_value(self):
        table = self.table
        self.run_query(table.insert([{"id": 0, "c": None}, {"id": 1, "c": 1}]))
        feed = self.feed(table["c"].changes(include_initial=True, include_states=True))
        self.assertEqual(take(feed, 3), [{"state": "initializing"}, {"new_val": 1}, {"state": "ready"}])
        self.run_query(table.get(0).update({"d": 1}))
        self.run_query(table.get(0).update({"c": 2}))
        self.assertEqual(take(feed, 1), [{"new_val": 2, "old_val": None}])
        self.run_query(table.get(0).update({"c": None}))
        self.assertEqual(take(feed, 1), [{"new_val": None, "old_val": 2}])

    def test_the_rows_of_a_local_replica_cannot_be_followed(self):
        local = r.table(self.name, read_mode="_debug_direct")
        for query in [local, local.get_all(1), local.count(), local.eq_join("id", self.table)]:
            with self.assertRaisesRegex(ReqlQueryLogicError, "DEBUG_DIRECT is not a legal read mode"):
                self.run_query(query.changes())


def follow(feed, cache):
    """Applies what the feed has now to the cache, and returns it."""
    with contextlib.suppress(ReqlTimeoutError):
        while True:
            element = feed.next(wait=0)
            if element.get("old_val"):
                cache.pop(element["old_val"]["id"], None)
            if element.get("new_val"):
                cache[element["new_val"]["id"]] = element["new_val"]
    return cache


if __name__ == "__main__":
    unittest.main()
