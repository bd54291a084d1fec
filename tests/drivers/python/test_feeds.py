"""Changefeeds through the official driver: what a feed delivers on one server, how it ends, and how it is resumed."""

import threading
import unittest

from rethinkdb import r
from rethinkdb.errors import (
    ReqlError,
    ReqlOpFailedError,
    ReqlOpIndeterminateError,
    ReqlPermissionError,
    ReqlQueryLogicError,
)

from feed_case import TIMEOUT_SECONDS, FeedCase, is_quiet, take


class OneServer(FeedCase):
    def test_a_table_feed_has_every_change_in_order(self):
        feed = self.feed(self.table.changes())
        self.run_query(self.table.insert({"id": 1, "n": 0}))
        for n in range(1, 4):
            self.run_query(self.table.get(1).update({"n": n}))
        self.run_query(self.table.get(1).delete())
        rows = [None, *({"id": 1, "n": n} for n in range(4)), None]
        expected = [{"old_val": old, "new_val": new} for old, new in zip(rows, rows[1:])]
        self.assertEqual(take(feed, 5), expected)
        # Writes that change nothing, or fail, are no changes.
        self.run_query(self.table.insert({"id": 2}))
        self.run_query(self.table.insert({"id": 2}))
        self.run_query(self.table.get(2).update({"n": r.error("no")}))
        self.run_query(self.table.get(2).update({}))
        self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": 2}}])
        self.assertTrue(is_quiet(feed))

    def test_a_point_feed_begins_with_the_document_if_asked_to(self):
        options = {"include_initial": True, "include_states": True, "include_types": True}
        feed = self.feed(self.table.get(1).changes(**options))
        self.assertEqual(
            take(feed, 3),
            [
                {"type": "state", "state": "initializing"},
                {"type": "initial", "new_val": None},
                {"type": "state", "state": "ready"},
            ],
        )
        self.run_query(self.table.insert([{"id": 0}, {"id": 1}, {"id": 2}]))
        self.assertEqual(take(feed, 1), [{"type": "add", "old_val": None, "new_val": {"id": 1}}])
        self.run_query(self.table.delete())
        self.assertEqual(take(feed, 1), [{"type": "remove", "old_val": {"id": 1}, "new_val": None}])
        self.assertTrue(is_quiet(feed))

    def test_a_row_that_enters_a_filter_looks_like_an_insert(self):
        followed = self.table.filter(r.row["n"] > 5).pluck("n")
        feed = self.feed(followed.changes(include_types=True))
        for n in [1, 7, 8, 8, 2]:
            self.run_query(self.table.insert({"id": 1, "n": n, "m": n}, conflict="replace"))
        # A filter that fails for a row does not have it.
        self.run_query(self.table.insert({"id": 2}))
        self.run_query(self.table.get(1).update({"n": 9}))
        self.run_query(self.table.get(1).update({"m": 10}))
        self.run_query(self.table.get(1).delete())
        add = lambda n: {"type": "add", "old_val": None, "new_val": {"n": n}}
        remove = lambda n: {"type": "remove", "old_val": {"n": n}, "new_val": None}
        change = {"type": "change", "old_val": {"n": 7}, "new_val": {"n": 8}}
        self.assertEqual(take(feed, 5), [add(7), change, remove(8), add(9), remove(9)])

    def test_ranges_and_keys(self):
        between = self.feed(self.table.between(3, 5).changes())
        keys = self.feed(self.table.get_all(1, 4, 1).changes())
        self.run_query(self.table.insert([{"id": id} for id in range(7)]))
        ids = lambda feed, count: sorted(change["new_val"]["id"] for change in take(feed, count))
        # A key that is named twice has two elements for each change.
        self.assertEqual((ids(between, 2), ids(keys, 3)), ([3, 4], [1, 1, 4]))
        self.assertTrue(is_quiet(between) and is_quiet(keys))

    def test_initial_values_and_changes_are_the_table(self):
        self.run_query(self.table.insert(r.range(2000).map(lambda n: {"id": n, "n": 0}).coerce_to("array")))
        stop = threading.Event()

        def write():
            with self.connect() as connection:
                n = 0
                while not stop.is_set():
                    n += 1
                    self.table.get(n * 7 % 2500).replace({"id": n * 7 % 2500, "n": n}).run(connection)
                self.table.insert({"id": "end"}).run(connection)

        writer = threading.Thread(target=write)
        writer.start()
        feed = self.feed(self.table.changes(include_initial=True))
        known = {}
        for element in feed:
            if element["new_val"] == {"id": "end"}:
                break
            key = (element["new_val"] or element.get("old_val"))["id"]
            if "old_val" in element:
                self.assertEqual(known.get(key), element["old_val"])
            else:
                self.assertNotIn(key, known)
            known[key] = element["new_val"]
            if len(known) >= 2000:
                stop.set()
        writer.join()
        rows = {row["id"]: row for row in self.run_query(self.table) if row["id"] != "end"}
        self.assertEqual(known, rows)

    def test_squashed_changes_are_the_difference(self):
        feed = self.feed(self.table.changes(squash=1))
        for n in range(5):
            self.run_query(self.table.insert({"id": n % 2, "n": n}, conflict="replace"))
        self.run_query(self.table.insert({"id": 7}))
        self.run_query(self.table.get(7).delete())
        changes = take(feed, 2)
        changes.sort(key=lambda change: change["new_val"]["id"])
        expected = [{"id": 0, "n": 4}, {"id": 1, "n": 3}]
        self.assertEqual(changes, [{"old_val": None, "new_val": row} for row in expected])
        self.assertTrue(is_quiet(feed))

    def test_a_queue_that_overflows_says_how_much_it_dropped(self):
        feed = self.feed(self.table.changes(changefeed_queue_size=10))
        self.run_query(self.table.insert({"id": "first"}))
        count = 500
        self.run_query(self.table.insert([{"id": n} for n in range(count)]))
        self.run_query(self.table.insert({"id": "last"}))
        delivered, skipped = 0, 0
        while delivered + skipped < count + 2:
            element = feed.next(wait=TIMEOUT_SECONDS)
            if "error" in element:
                words = element["error"].split()
                self.assertEqual(words[:-2], "Changefeed cache over array size limit, skipped".split())
                skipped += int(words[-2])
            else:
                delivered += 1
        self.assertGreater(skipped, 0)
        self.assertTrue(is_quiet(feed))

    def test_a_feed_is_resumed_after_any_of_its_elements(self):
        self.run_query(self.table.insert([{"id": n} for n in range(5)]))
        query = lambda **options: self.table.changes(include_resume_token=True, **options)
        feed = self.feed(query(include_initial=True, include_states=True))
        self.run_query(self.table.insert([{"id": n} for n in range(5, 8)]))
        self.run_query(self.table.get(0).update({"n": 1}))
        elements = take(feed, 5 + 2 + 4)
        bare = lambda elements: [{k: v for k, v in e.items() if k != "resume_token"} for e in elements]
        for nth, element in enumerate(elements):
            resumed = self.feed(query(include_states=True, resume_after=element["resume_token"]))
            rest = elements[nth + 1 :]
            self.assertEqual(bare(take(resumed, len(rest))), bare(rest), f"after element {nth}")
        token = elements[-1]["resume_token"]
        other = next(self.names)
        self.run_query(r.table_create(other))
        for altered, why in [
            (token[:-1], "it was cut or altered"),
            ("B" + token[1:], "it was cut or altered"),
            ("", "it was cut or altered"),
        ]:
            with self.assertRaisesRegex(ReqlQueryLogicError, why):
                self.feed(query(include_states=True, resume_after=altered))
        with self.assertRaisesRegex(ReqlQueryLogicError, "of another table"):
            self.feed(r.table(other).changes(include_states=True, resume_after=token))
        with self.assertRaisesRegex(ReqlQueryLogicError, "other terms or options"):
            self.feed(self.table.filter({"n": 1}).changes(include_states=True, resume_after=token))

    def test_a_feed_ends_with_its_table_or_the_right_to_read_it(self):
        feed = self.feed(self.table.changes())
        self.run_query(r.table_drop(self.name))
        with self.assertRaisesRegex(ReqlOpFailedError, f"Table `test.{self.name}` does not exist."):
            take(feed, 1)
        name = next(self.names)
        self.run_query(r.table_create(name))
        self.run_query(r.db("rethinkdb").table("users").insert({"id": "reader", "password": "x"}))
        self.run_query(r.table(name).grant("reader", {"read": True}))
        reader = self.connect(user="reader", password="x")
        feed = r.table(name).changes().run(reader)
        self.run_query(r.table(name).insert({"id": 1}))
        take(feed, 1)
        self.run_query(r.table(name).grant("reader", {"read": False}))
        with self.assertRaises(ReqlPermissionError):
            take(feed, 1)

    def test_hundreds_of_feeds_share_a_connection(self):
        connection = self.connect()
        feeds = [self.table.get(n).changes().run(connection) for n in range(400)]
        for feed in feeds[::2]:
            feed.close()
        self.run_query(self.table.insert([{"id": n} for n in range(400)]))
        for n, feed in list(enumerate(feeds))[1::2]:
            self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": n}}])
        # Other queries on the connection are answered meanwhile, and a connection may end in the middle.
        self.assertEqual(self.table.count().run(connection), 400)
        connection.noreply_wait()
        connection.close(noreply_wait=False)
        with self.assertRaisesRegex(ReqlError, "Connection is closed"):
            take(feeds[1], 1)

    def test_a_union_is_one_feed(self):
        other = f"{self.name}x"
        self.run_query(r.table_create(other))
        self.run_query(self.table.insert([{"id": id} for id in range(3)]))
        self.run_query(r.table(other).insert({"id": 9}))
        both = self.table.union(r.table(other).get_all(9, 10)).pluck("id")
        options = {"include_states": True, "include_resume_token": True}
        feed = self.feed(both.changes(include_initial=True, **options))
        elements = take(feed, 6)
        self.assertEqual(elements[0]["state"], "initializing")
        self.assertEqual(sorted(element["new_val"]["id"] for element in elements[1:5]), [0, 1, 2, 9])
        self.assertEqual(elements[5]["state"], "ready")
        self.run_query(r.table(other).insert([{"id": 10}, {"id": 11}]))
        elements += take(feed, 1)
        self.run_query(self.table.get(1).delete())
        elements += take(feed, 1)
        self.assertEqual([element["old_val"] for element in elements[6:]], [None, {"id": 1}])
        self.assertTrue(is_quiet(feed))
        value = lambda element: str({key: element[key] for key in element if key != "resume_token"})
        for at, element in enumerate(elements):
            resumed = self.feed(both.changes(resume_after=element["resume_token"], **options))
            rest = take(resumed, len(elements) - at - 1)
            self.assertEqual(sorted(map(value, rest)), sorted(map(value, elements[at + 1 :])), at)
            self.assertTrue(is_quiet(resumed))
        with self.assertRaisesRegex(ReqlQueryLogicError, "on a slice of a union"):
            self.run_query(both.limit(2).changes())
        with self.assertRaisesRegex(ReqlQueryLogicError, "on an eager stream"):
            self.run_query(self.table.union([1]).changes())

    def test_terms_after_changes(self):
        feed = self.feed(self.table.changes().filter(r.row["new_val"]["n"] > 1)["new_val"].limit(2))
        self.run_query(self.table.insert([{"id": n, "n": n} for n in range(4)]))
        self.assertEqual(sorted(row["n"] for row in feed), [2, 3])
        with self.assertRaisesRegex(ReqlQueryLogicError, "Cannot call `changes` on an eager stream."):
            self.feed(r.expr([1, 2]).changes())
        with self.assertRaisesRegex(ReqlQueryLogicError, "Cannot call `changes` on an eager stream."):
            self.feed(self.table.changes().changes())

    def test_a_feed_is_a_job_that_can_be_stopped(self):
        feed = self.feed(self.table.changes())
        jobs = r.db("rethinkdb").table("jobs")
        is_mine = lambda job: job["info"]["query"].match(f'"{self.name}"[)].changes').default(None)
        mine = self.run_query(jobs.filter(is_mine)["id"])
        self.assertEqual(self.run_query(jobs.get_all(*mine).delete())["deleted"], 1)
        with self.assertRaisesRegex(ReqlOpIndeterminateError, "terminated by the `rethinkdb.jobs` table"):
            take(feed, 1)


if __name__ == "__main__":
    unittest.main()
