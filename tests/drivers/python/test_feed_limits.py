"""Changefeeds: how many there may be, how much waits and is kept for them, and the metrics that show it."""

import base64
import contextlib
import random
import re
import time
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlOpFailedError, ReqlResourceLimitError

from feed_case import TIMEOUT_SECONDS, FeedCase, is_quiet, take
from node import node

CONNECTION_FEEDS_MAX = 20_000
# More than enough for the files of kept changes to be completed.
LARGE_ROWS_MAX = 1000
RETENTION_SECONDS = 2
# Kept changes are compressed: this text is not shortened.
LARGE_TEXT = base64.b64encode(random.Random(1).randbytes(225_000)).decode()


def until(is_reached, what):
    """Calls `is_reached` again and again until it returns a true value, and returns that."""
    deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
    while not (reached := is_reached()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} was not reached in time")
        time.sleep(0.05)
    return reached


class OneServer(FeedCase):
    def metric(self, name):
        """The value of a metric, which is named with its labels."""
        page = self.node.http("/metrics")[1]
        found = re.findall(rf"^{re.escape(name)} ([-+.e0-9]+)$", page, re.MULTILINE)
        self.assertEqual(len(found), 1, f"{name} in {page}")
        return float(found[0])

    def test_metrics_show_feeds_and_their_queues(self):
        name = self.name + "m"
        kinds = {kind: f'rekindle_feeds{{kind="{kind}"}}' for kind in ["sequence", "point", "first_rows"]}
        # Feeds of earlier tests are closed by now, or soon.
        until(lambda: all(self.metric(metric) == 0 for metric in kinds.values()), "no feed")
        r.table_create(name).run(self.connection)
        table = r.table(name)
        whole = self.feed(table.changes(include_resume_token=True))
        others = [self.feed(table.get(1).changes()), self.feed(table.get(2).changes())]
        others.append(self.feed(table.order_by(index="id").limit(2).changes()))
        others.append(self.feed(table.filter(r.row["n"] > 1).union(table.get_all(5)).changes()))
        counts = {kind: self.metric(metric) for kind, metric in kinds.items()}
        self.assertEqual(counts, {"sequence": 3, "point": 2, "first_rows": 1})
        resumes = self.metric("rekindle_feed_resumes_total")
        self.run_query(table.insert({"id": 1}))
        token = take(whole, 1)[0]["resume_token"]
        resumed = self.feed(table.changes(include_resume_token=True, resume_after=token))
        self.assertEqual(self.metric("rekindle_feed_resumes_total"), resumes + 1)
        # A feed that is not read: its queue has bytes and becomes older, until it overflows.
        overflows = self.metric("rekindle_feed_overflows_total")
        skipped = self.metric("rekindle_feed_skipped_total")
        slow = self.feed(table.changes(changefeed_queue_size=400))
        self.run_query(table.insert([{"id": n, "text": "x" * 1000} for n in range(100, 400)]))
        until(lambda: self.metric('rekindle_memory_bytes{owner="feeds"}') > 100_000, "bytes in queues")
        until(lambda: self.metric("rekindle_feed_lag_seconds") > 1, "a lag of a second")
        self.run_query(table.insert([{"id": n, "text": "x" * 1000} for n in range(400, 1400)]))
        until(lambda: self.metric("rekindle_feed_overflows_total") > overflows, "an overflow")
        self.assertGreater(self.metric("rekindle_feed_skipped_total"), skipped)
        self.assertGreaterEqual(self.metric("rekindle_feed_lag_positions"), 0)
        for feed in [whole, resumed, slow, *others]:
            feed.close()
        until(lambda: all(self.metric(metric) == 0 for metric in kinds.values()), "no feed")
        until(lambda: self.metric('rekindle_memory_bytes{owner="feeds"}') == 0, "no bytes in queues")

    def test_a_connection_may_have_so_many_feeds(self):
        connection = self.connect()
        parts = 200
        union = r.union(*(self.table.get_all(n) for n in range(parts)))
        feeds = [union.changes().run(connection) for _ in range(CONNECTION_FEEDS_MAX // parts)]
        with self.assertRaisesRegex(ReqlResourceLimitError, "The connection has 20000 open changefeeds"):
            self.table.changes().run(connection)
        self.feed(self.table.changes()).close()
        feeds.pop().close()
        one = self.table.get("one").changes().run(connection)
        self.run_query(self.table.insert({"id": "one"}))
        self.assertEqual(take(one, 1), [{"old_val": None, "new_val": {"id": "one"}}])

    def test_equality_on_an_index(self):
        self.run_query(self.table.index_create("a"))
        self.run_query(self.table.index_create("tags", multi=True))
        self.run_query(self.table.index_create("sum", r.row["a"] + r.row["b"]))
        self.run_query(self.table.index_wait())
        long = "x" * 500
        followed = {
            "one": self.table.get_all(1, index="a"),
            "twice": self.table.get_all(1, 1, 2, index="a"),
            "tags": self.table.get_all("red", "blue", index="tags"),
            "sum": self.table.get_all(5, index="sum"),
            "long": self.table.get_all(long + "1", index="a"),
            "bounds": self.table.between(3, 3, index="a", right_bound="closed"),
            "zero": self.table.get_all(-0.0, index="a"),
            "array": self.table.get_all([1, "b"], index="a"),
        }
        feeds = {name: self.feed(query.changes(include_types=True)) for name, query in followed.items()}
        rows = [
            {"id": 1, "a": 1, "b": 4, "tags": ["red", "blue", "red"]},
            {"id": 1, "a": 2, "b": 3, "tags": ["red"]},
            {"id": 1, "a": 3, "b": 3, "tags": "green"},
            {"id": 1, "a": long + "1"},
            {"id": 1, "a": long + "2"},
            {"id": 1, "a": 0},
            {"id": 1, "a": [1, "b"], "tags": ["blue"]},
        ]
        for row in rows:
            self.run_query(self.table.insert(row, conflict="replace"))
        self.run_query(self.table.get(1).delete())
        expected = {
            "one": ["add", "remove"],
            "twice": ["add", "add", "change", "remove", "remove"],
            "tags": ["add", "add", "add", "change", "remove", "remove", "remove", "add", "remove"],
            "sum": ["add", "change", "remove"],
            "long": ["add", "remove"],
            "bounds": ["add", "remove"],
            "zero": ["add", "remove"],
            "array": ["add", "remove"],
        }
        for name, feed in feeds.items():
            elements = take(feed, len(expected[name]))
            found = sorted(element["type"] for element in elements)
            self.assertEqual(found, sorted(expected[name]), f"{name}: {elements}")
            self.assertTrue(is_quiet(feed), name)


class Retention(unittest.TestCase):
    @contextlib.contextmanager
    def server(self, retention):
        with node("--changefeed-retention", retention, "--cache-size", "100") as server:
            yield server

    def connect(self, server):
        connection = r.connect("127.0.0.1", server.driver_port, timeout=TIMEOUT_SECONDS)
        self.addCleanup(connection.close, noreply_wait=False)
        return connection

    def restart(self, server):
        """Restarts the server, which completes a file of kept changes."""
        self.assertEqual(server.stop(), 0)
        server.start()

    def token_of_a_change(self, server, key):
        connection = self.connect(server)
        feed = r.table("t").changes(include_resume_token=True).run(connection)
        r.table("t").insert({"id": key, "text": LARGE_TEXT}).run(self.connect(server))
        token = take(feed, 1)[0]["resume_token"]
        connection.close(noreply_wait=False)
        return token

    def resume(self, server, token):
        """The first element of a feed after the token."""
        feed = r.table("t").changes(include_resume_token=True, resume_after=token).run(self.connect(server))
        return take(feed, 1)[0]

    def is_gone(self, server, token):
        try:
            self.resume(server, token)
        except ReqlOpFailedError as error:
            self.assertIn("The feed cannot be resumed", error.message)
            return True
        return False

    def test_changes_beyond_the_size_are_gone(self):
        with self.server("1h,1MB") as server:
            r.table_create("t").run(self.connect(server))
            first = self.token_of_a_change(server, 1)
            second = self.token_of_a_change(server, 2)
            self.assertEqual(self.resume(server, first)["new_val"]["id"], 2)
            self.restart(server)
            self.assertEqual(self.resume(server, first)["new_val"]["id"], 2, "it is kept over a restart")
            third = self.token_of_a_change(server, 3)
            self.token_of_a_change(server, 4)
            self.restart(server)
            until(lambda: self.is_gone(server, first), "the end of the first change")
            # The change itself is deleted, but the next one, which is still there, names it.
            self.assertEqual(self.resume(server, second)["new_val"]["id"], 3)
            self.assertEqual(self.resume(server, third)["new_val"]["id"], 4)

    def test_changes_that_are_too_old_are_gone(self):
        with self.server(f"{RETENTION_SECONDS}s") as server:
            r.table_create("t").run(self.connect(server))
            # While it is open, changes of the table are recorded.
            first = self.token_of_a_change(server, 1)
            self.token_of_a_change(server, 2)
            self.restart(server)
            live = r.table("t").changes().run(self.connect(server))
            until(lambda: self.is_gone(server, first), "the end of the first change")
            last = self.token_of_a_change(server, 3)
            self.assertEqual(take(live, 1)[0]["new_val"]["id"], 3)
            self.token_of_a_change(server, 4)
            self.assertEqual(self.resume(server, last)["new_val"]["id"], 4)
            self.assertEqual(take(live, 1)[0]["new_val"]["id"], 4)

    def test_a_view_goes_on_when_changes_that_do_not_concern_it_are_gone(self):
        with self.server("1h,1MB") as server:
            connection = self.connect(server)
            r.table_create("t").run(connection)
            table = r.table("t")
            table.insert([{"id": id, "n": id, "wanted": id < 30 or id == 150} for id in range(200)]).run(connection)
            table.reconfigure(shards=2, replicas=1).run(connection)
            table.wait().run(connection)
            wanted = table.filter({"wanted": True})
            views = [wanted.min("n"), wanted.filter(r.row["n"].add(0) >= 0).min("n"), table.order_by(index="id").filter({"wanted": True}).limit(3)]
            feeds = [view.changes(include_initial=True).run(self.connect(server)) for view in views]
            for feed, initial in zip(feeds, [1, 1, 3]):
                take(feed, initial)
            token = self.token_of_a_change(server, 1000)
            # In the other shard, and no view has it.
            rows = [{"id": 180, "text": LARGE_TEXT, "n": n} for n in range(LARGE_ROWS_MAX)]
            for row in rows:
                table.insert(row, conflict="replace").run(connection)
                if row["n"] % 20 == 19 and self.is_gone(server, token):
                    break
            self.assertTrue(self.is_gone(server, token), "the first change is kept, so that this shows nothing")
            for id in range(30):
                table.get(id).delete().run(connection)
            for feed in feeds:
                # The first rows have more elements: the rows that leave and those that come.
                last = next(change["new_val"] for change in iter(lambda: take(feed, 1)[0], None) if change["new_val"]["id"] == 150)
                self.assertEqual(last["n"], 150)


if __name__ == "__main__":
    unittest.main()
