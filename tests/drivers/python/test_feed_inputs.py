"""Changefeeds with bad or extreme inputs: options, places where `changes` cannot be, rows for which steps fail, and large
documents."""

import threading
import time
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlQueryLogicError

from feed_case import (
    CHANGES,
    SERVED_SECONDS_MAX,
    START,
    TABLE,
    TIMEOUT_SECONDS,
    FeedCase,
    RawClient,
    is_quiet,
    large,
    take,
    wait_until,
)

# The type of a response to a request that cannot be read.
CLIENT_ERROR = 16
CONCAT_MAP, FUNC, MAKE_ARRAY = 40, 69, 2


class BadOptions(FeedCase):
    def refused(self, text, query, error=ReqlQueryLogicError, **options):
        with self.assertRaises(error) as caught:
            query.run(self.connection, **options)
        self.assertIn(text, caught.exception.message)

    def test_squash_that_is_no_time(self):
        negative = "Expected BOOL or a positive NUMBER but found a negative NUMBER."
        for squash in [-1, -0.001, -1e300]:
            self.refused(negative, self.table.changes(squash=squash))
        for squash, kind in [("1", "STRING"), (None, "NULL"), ([], "ARRAY"), ({}, "OBJECT"), (r.now(), "PTYPE<TIME>")]:
            self.refused(f"Expected BOOL or NUMBER but found {kind}.", self.table.changes(squash=squash))
        self.refused("Non-finite number: inf", self.table.changes(squash=r.expr(1e308) * 10))
        # JSON has no infinite number; one that is too large is refused with the query.
        for text in ["1e999", "-1e999", "Infinity", "NaN"]:
            raw = RawClient(self)
            raw.send(f'[{START},[{CHANGES},[[{TABLE},["{self.name}"]]],{{"squash":{text}}}],{{}}]')
            self.assertEqual(raw.receive()["t"], CLIENT_ERROR)
        self.assertEqual(self.feed_jobs(), 0)

    def test_squash_at_the_edge(self):
        # The longest waits are a day; the queue that is half full ends them.
        feeds = [self.feed(self.table.changes(squash=squash)) for squash in [0, -0.0, 1e-12]]
        longest = self.feed(self.table.changes(squash=1e300, changefeed_queue_size=4))
        self.run_query(self.table.insert({"id": 1}))
        for feed in feeds:
            self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": 1}}])
        self.assertTrue(is_quiet(longest))
        self.run_query(self.table.insert([{"id": id} for id in range(2, 5)]))
        self.assertEqual(len(take(longest, 2)), 2)

    def test_queue_sizes(self):
        illegal = "Illegal changefeed queue size `{}`.  (Must be >= 1.)".format
        for size in [0, -1, -(2**53)]:
            self.refused(illegal(size), self.table.changes(changefeed_queue_size=size))
        self.refused(illegal(0), self.table.changes(), changefeed_queue_size=0)
        self.refused("Number not an integer: 1.5", self.table.changes(changefeed_queue_size=1.5))
        self.refused("Number not an integer (>2^53)", self.table.changes(changefeed_queue_size=1e18))
        self.refused("Expected type NUMBER but found STRING.", self.table.changes(changefeed_queue_size="10"))
        # A queue takes memory for what is in it only.
        feeds = [self.feed(self.table.changes(changefeed_queue_size=2**53)) for _ in range(20)]
        smallest = self.feed(self.table.changes(changefeed_queue_size=1))
        self.run_query(self.table.insert({"id": 1}))
        for feed in [*feeds, smallest]:
            self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": 1}}])

    def test_options_that_are_none(self):
        self.refused("Unrecognized optional argument `include_all`", self.table.changes(include_all=True), ReqlError)


class BadPlaces(FeedCase):
    def test_what_cannot_be_followed(self):
        self.run_query(self.table.insert({"id": 1, "a": [1, 2]}))
        rows, row = self.table, self.table.get(1)
        eager = "Cannot call `changes` on an eager stream."
        no_sequence = "Expected type SEQUENCE but found DATUM"
        not_determined = "Cannot call `changes` after a non-deterministic function."
        refused = {
            eager: [
                r.expr([1]), r.expr([]), r.range(), r.range(5), rows.coerce_to("array"), rows.order_by("a"), rows.skip(1),
                rows.sample(1), rows.inner_join(rows, lambda a, b: True), rows.index_status(), r.table_list(), row["a"],
                rows.changes(), row.changes(), rows.changes().limit(1), rows.union([1]),
            ],
            no_sequence: [r.expr(1), r.expr("text"), r.expr({"id": 1}), row["id"], row.merge({"b": 1})],
            "Expected type SEQUENCE but found DATABASE": [r.db("test")],
            "Cannot call `changes` after `concat_map`.": [rows.concat_map(lambda each: each["a"])],
            not_determined: [
                rows.filter(lambda each: r.random() < 0.5),
                rows.filter(lambda each: rows.get(each["id"]).eq(None)),
                rows.map(lambda each: rows.changes().info()),
            ],
        }
        for text, sequences in refused.items():
            for sequence in sequences:
                with self.subTest(str(sequence)), self.assertRaises(ReqlQueryLogicError) as caught:
                    self.run_query(sequence.changes())
                self.assertTrue(caught.exception.message.startswith(text), caught.exception.message)
        self.assertEqual(self.feed_jobs(), 0)

    def test_a_feed_where_a_value_should_be(self):
        self.run_query(self.table.insert({"id": 1}))
        feed = self.table.changes()
        no_value = "Expected type DATUM but found SEQUENCE"
        infinite = "infinite stream"
        refused = {
            no_value: [
                r.expr([1]).map(lambda _: feed), self.table.map(lambda _: feed), self.table.filter(lambda _: feed),
                r.expr({"a": feed}), r.expr([feed]), feed.eq(feed), feed.to_json(), self.table.changes(squash=feed),
            ],
            infinite: [
                feed.count(), feed.coerce_to("array"), feed.order_by("id"), feed.reduce(lambda a, b: a), feed.distinct(),
                feed.group("id").count(), feed.sum("n"), feed.max("n"), feed.fold(0, lambda a, b: a), feed[-1],
                feed.for_each(lambda each: self.table.insert(each)),
            ],
            "Could not prove": [self.table.get(1).update({"a": feed}), self.table.index_create("i", lambda _: feed)],
        }
        for text, queries in refused.items():
            for query in queries:
                with self.subTest(str(query)), self.assertRaises(ReqlError) as caught:
                    self.run_query(query)
                self.assertIn(text, caught.exception.message)
        summary = self.run_query(self.table.get(1).update({"a": feed}, non_atomic=True))
        self.assertEqual(summary["errors"], 1)
        self.assertIn(no_value, summary["first_error"])
        self.assertEqual(self.feed_jobs(), 0)

    def test_feeds_that_are_read_inside_queries(self):
        feed = self.table.changes()
        taken = {
            "as an argument": r.do(1, lambda _: feed),
            "of an array": r.expr([1]).concat_map(lambda _: feed.limit(1))[0],
            "as an array": feed.limit(1).coerce_to("array"),
            "counted": feed.limit(1).count(),
            "searched": feed.contains(lambda change: change["new_val"]["n"] >= 0),
            "written": r.table(self.other()).insert(feed.limit(1)["new_val"]),
        }
        results = {}

        def read(name, connection):
            found = taken[name].run(connection)
            results[name] = found.next() if hasattr(found, "next") else found

        for name in taken:
            connection = r.connect("127.0.0.1", self.port)
            self.addCleanup(connection.close, noreply_wait=False)
            threading.Thread(target=read, args=(name, connection), daemon=True).start()
        writes = iter(range(1_000_000))

        def write():
            self.run_query(self.table.insert({"id": 1, "n": next(writes)}, conflict="replace"))
            return len(results) == len(taken)

        wait_until("each query has an answer", write)
        for name, change in {
            "as an argument": results["as an argument"],
            "of an array": results["of an array"],
            "as an array": results["as an array"][0],
        }.items():
            self.assertEqual((name, change["new_val"]["id"]), (name, 1))
        self.assertEqual([results["counted"], results["searched"], results["written"]["inserted"]], [1, True, 1])

    def test_feeds_that_are_read_inside_queries_hold_up_no_other(self):
        # More than there are threads that serve drivers; none has a change.
        blocked = [RawClient(self) for _ in range(40)]
        for raw in blocked:
            feed = f'[{CHANGES},[[{TABLE},["{self.name}"]]]]'
            function = f"[{FUNC},[[{MAKE_ARRAY},[1]],{feed}]]"
            raw.send(f"[{START},[{CONCAT_MAP},[[{MAKE_ARRAY},[1]],{function}]],{{}}]")
        wait_until("each feed is open", lambda: self.feed_jobs() == len(blocked))
        began = time.monotonic()
        with self.connect() as other:
            self.assertEqual(r.expr(1).run(other), 1)
            self.assertEqual(self.table.count().run(other), 0)
        self.assertLess(time.monotonic() - began, SERVED_SECONDS_MAX)
        jobs = r.db("rethinkdb").table("jobs")
        mine = [job["id"] for job in self.run_query(jobs) if "concatMap" in job["info"].get("query", "")]
        self.assertEqual(self.run_query(jobs.get_all(*mine[:20]).delete())["deleted"], 20)
        wait_until("half of the feeds have ended", lambda: self.feed_jobs() == 20)
        for raw in blocked:
            raw.socket.close()
        wait_until("the feeds have ended", lambda: self.feed_jobs() == 0)

    def other(self):
        name = next(self.names)
        self.run_query(r.table_create(name))
        return name


class BadRows(FeedCase):
    def test_an_empty_range_can_be_followed_in_any_order(self):
        table, states = self.table, [{"state": "initializing"}, {"state": "ready"}]
        table.index_create("n").run(self.connection)
        table.index_wait().run(self.connection)
        empty = [table.between(5, 5), table.between(7, 5), table.between(5, 5).order_by(index="id").limit(2)]
        empty += [table.between(7, 5, index="n").order_by(index=r.desc("n")).limit(2), table.order_by(index="n").limit(0)]
        feeds = [self.feed(query.changes(include_initial=True, include_states=True)) for query in empty]
        self.assertEqual([take(feed, 2) for feed in feeds], [states] * len(feeds))
        table.insert({"id": 5, "n": 5}).run(self.connection)
        for feed in feeds:
            self.assertTrue(is_quiet(feed))

    def test_the_least_of_no_rows_can_be_followed(self):
        feeds = [self.feed(self.table.min(index="id").changes()), self.feed(self.table.max(index="id").changes())]
        first = self.table.order_by(index="id").limit(1).changes(include_initial=True, include_states=True)
        first = self.feed(first)
        self.assertEqual(take(first, 2), [{"state": "initializing"}, {"state": "ready"}])
        self.run_query(self.table.insert({"id": 1}))
        for feed in [*feeds, first]:
            self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": 1}}])

    def test_a_step_that_fails_leaves_nothing_of_a_row(self):
        row = r.row["v"]
        steps = {
            "a filter of the wrong type": (self.table.filter(row + 1 > 4), lambda v: {"id": 0, "v": v}, [5, 7]),
            "a filter without a default": (
                self.table.filter(r.row["w"][0] > 4, default=r.error()), lambda v: {"id": 0, "v": v, "w": [v]}, [5, 7],
            ),
            "an error of its own": (
                self.table.filter(r.branch(row == 3, r.error("three"), True)), lambda v: {"id": 0, "v": v}, [1, 5, "x", 7],
            ),
            "a division": (self.table.map(r.expr(12) / (row - 3)), lambda v: 12 / (v - 3), [1, 5, 7]),
            "a merge": (
                self.table.merge({"w": row.coerce_to("number")}).without("id"), lambda v: {"v": v, "w": v}, [1, 5, 3, 7],
            ),
        }
        made = {"a filter without a default": lambda v: {"w": [v]} if v != "x" else {}}
        for name, (sequence, seen, passing) in steps.items():
            with self.subTest(name):
                self.run_query(self.table.delete())
                self.run_query(self.table.insert({"id": 0, "v": "y"}))
                feed = self.feed(sequence.changes(include_initial=True, include_states=True))
                values = [1, 5, "x", 3, 7]
                for v in values:
                    self.run_query(self.table.get(0).replace({"id": 0, "v": v, **made.get(name, lambda v: {})(v)}))
                self.run_query(self.table.get(0).delete())
                states = [seen(v) if v in passing else None for v in values]
                before = seen("y") if name == "an error of its own" else None
                expected = [{"new_val": before}] if before else []
                expected = [{"state": "initializing"}, *expected, {"state": "ready"}]
                for state in [*states, None]:
                    if state != before:
                        expected.append({"old_val": before, "new_val": state})
                    before = state
                self.assertEqual(take(feed, len(expected)), expected)
                self.assertTrue(is_quiet(feed))

    def test_a_step_after_changes_that_fails_ends_the_feed(self):
        feed = self.feed(self.table.changes().map(r.row["new_val"]["v"] + 1))
        lenient = self.feed(self.table.changes().filter(r.row["new_val"]["missing"] == 1))
        self.run_query(self.table.insert({"id": 1, "v": 1}))
        self.assertEqual(take(feed, 1), [2])
        self.run_query(self.table.insert({"id": 2, "v": "x"}))
        with self.assertRaisesRegex(ReqlQueryLogicError, "Expected type STRING but found NUMBER"):
            take(feed, 1)
        self.assertTrue(is_quiet(lenient))
        self.assertEqual(self.feed_jobs(), 1)

    def test_documents_of_16_mebibytes(self):
        options = {"include_initial": True, "include_resume_token": True}
        self.run_query(self.table.insert({"id": 0, "a": large(16)}))
        feed = self.feed(self.table.changes(**options))
        squashed = self.feed(self.table.get(0).changes(squash=True))
        sizes = lambda element: [len(element[name]["a"]) if element[name] else 0 for name in ("old_val", "new_val")]
        first = take(feed, 1)[0]
        self.assertEqual(len(first["new_val"]["a"]), 16 * 1024)
        self.run_query(self.table.get(0).update({"a": r.row["a"].append("y")}))
        changed = take(feed, 1)[0]
        self.assertEqual(sizes(changed), [16 * 1024, 16 * 1024 + 1])
        self.assertEqual(changed["new_val"]["a"][-2:], ["x" * 1024, "y"])
        self.assertEqual(sizes(take(squashed, 1)[0]), [16 * 1024, 16 * 1024 + 1])
        self.run_query(self.table.get(0).delete())
        self.assertEqual(sizes(take(feed, 1)[0]), [16 * 1024 + 1, 0])
        resumed = self.feed(self.table.changes(include_resume_token=True, resume_after=first["resume_token"]))
        self.assertEqual([sizes(element) for element in take(resumed, 2)], [[16 * 1024, 16 * 1024 + 1], [16 * 1024 + 1, 0]])


if __name__ == "__main__":
    unittest.main()
