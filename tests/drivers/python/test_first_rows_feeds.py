"""Feeds by secondary indexes, and feeds of the first rows of an order, through the official driver."""

import contextlib
import random
import threading
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlOpFailedError, ReqlQueryLogicError, ReqlTimeoutError

from feed_case import QUIET_SECONDS, FeedCase, is_quiet, take

SEED = random.randrange(1 << 32)


def apply(rows, change):
    """Applies an element of a feed with offsets to the rows that a client has."""
    if change["old_offset"] is not None:
        assert rows.pop(change["old_offset"]) == change["old_val"], (rows, change)
    if change["new_offset"] is not None:
        rows.insert(change["new_offset"], change["new_val"])


class ByIndex(FeedCase):
    def setUp(self):
        super().setUp()
        self.run_query(self.table.index_create("n"))
        self.run_query(self.table.index_create("tags", multi=True))
        self.run_query(self.table.index_wait())

    def test_ranges_and_values_of_an_index(self):
        between = self.feed(self.table.between(3, 5, index="n").changes())
        values = self.feed(self.table.get_all(2, 4, index="n").changes(include_initial=True))
        self.run_query(self.table.insert({"id": 1, "n": 4}))
        self.run_query(self.table.get(1).update({"n": 5}))
        self.run_query(self.table.get(1).update({"n": 2}))
        self.run_query(self.table.get(1).delete())
        at = lambda n: {"id": 1, "n": n}
        change = lambda old, new: {"old_val": old, "new_val": new}
        self.assertEqual(take(between, 2), [change(None, at(4)), change(at(4), None)])
        self.assertEqual(
            take(values, 4),
            [change(None, at(4)), change(at(4), None), change(None, at(2)), change(at(2), None)],
        )
        self.assertTrue(is_quiet(between) and is_quiet(values))

    def test_a_row_that_an_index_has_several_times_has_as_many_elements(self):
        self.run_query(self.table.insert({"id": 1, "tags": ["a", "b", "c"]}))
        feed = self.feed(self.table.between("a", "c", index="tags").changes(include_initial=True))
        self.assertEqual([element["new_val"]["id"] for element in take(feed, 2)], [1, 1])
        self.run_query(self.table.get(1).update({"tags": ["b"]}))
        elements = take(feed, 2)
        self.assertEqual(sorted(element["new_val"] is None for element in elements), [False, True])
        self.assertTrue(is_quiet(feed))

    def test_initial_values_by_an_index_and_changes_make_the_rows_while_rows_change(self):
        print(f"seed {SEED}")
        chance, ended = random.Random(SEED), threading.Event()
        self.run_query(self.table.insert([{"id": id, "n": id % 5, "tags": [id % 3, "x"]} for id in range(200)]))

        def write():
            with contextlib.closing(r.connect("127.0.0.1", self.port)) as connection:
                while not ended.is_set():
                    id, n = chance.randrange(220), chance.randrange(5)
                    row = {"id": id, "n": n, "tags": [chance.randrange(3), "x"]}
                    gone = self.table.get(id).delete()
                    (gone if chance.random() < 0.3 else self.table.insert(row, conflict="replace")).run(connection)

        writer = threading.Thread(target=write)
        writer.start()
        queries = [self.table.get_all(1, 2, index="n"), self.table.between(2, 4, index="n"), self.table.get_all(1, index="tags")]
        feeds = []
        try:
            for query in queries * 5:
                options = {"include_states": True, "include_types": True, "include_resume_token": True}
                feed, rows = self.feed(query.changes(include_initial=True, **options)), {}
                elements = take(feed, chance.randrange(1, 60))
                feed.close()
                feed = self.feed(query.changes(resume_after=elements[-1]["resume_token"], **options))
                while "ready" not in [element.get("state") for element in elements]:
                    elements += take(feed, 1)
                for element in elements:
                    self.fold(rows, element)
                feeds.append((query, feed, rows))
        finally:
            ended.set()
            writer.join()
        for query, feed, rows in feeds:
            expected = {row["id"]: row for row in self.run_query(query)}
            while rows != expected:
                self.fold(rows, take(feed, 1)[0])
            self.assertTrue(is_quiet(feed))

    def fold(self, rows, element):
        """Applies an element to the rows that a client has."""
        old, new = element.get("old_val"), element.get("new_val")
        if element["type"] in ["change", "remove"]:
            self.assertEqual(rows.pop(old["id"], None), old, element)
        if element["type"] in ["initial", "add", "change"]:
            self.assertNotIn(new["id"], rows, element)
            rows[new["id"]] = new

    def test_a_feed_ends_with_its_index_only(self):
        by_n = self.feed(self.table.get_all(1, index="n").changes())
        by_tags = self.feed(self.table.get_all("a", index="tags").changes())
        self.run_query(self.table.index_drop("n"))
        with self.assertRaisesRegex(ReqlOpFailedError, "Index `n` was not found on table"):
            take(by_n, 1)
        self.run_query(self.table.insert({"id": 1, "tags": ["a"]}))
        self.assertEqual(take(by_tags, 1)[0]["new_val"]["id"], 1)

    def test_the_first_rows_follow_the_table(self):
        print(f"seed {SEED}")
        chance = random.Random(SEED)
        self.run_query(self.table.insert([{"id": id, "n": id % 50} for id in range(300)]))
        orders = [("n", 5), (r.desc("n"), 7), ("n", 1), ("n", 400)]
        queries = [self.table.order_by(index=index).limit(most) for index, most in orders]
        options = {"include_initial": True, "include_offsets": True, "include_states": True, "include_types": True}
        feeds = [self.feed(query.changes(**options)) for query in queries]
        known = []
        for feed, query in zip(feeds, queries):
            rows = []
            self.assertEqual(take(feed, 1)[0]["state"], "initializing")
            for element in iter(lambda: take(feed, 1)[0], {"type": "state", "state": "ready"}):
                self.assertEqual((element["type"], element["new_offset"]), ("initial", len(rows)))
                rows.append(element["new_val"])
            self.assertEqual(rows, list(self.run_query(query)))
            known.append(rows)
        for _ in range(600):
            id = chance.randrange(310)
            if chance.random() < 0.6:
                self.run_query(self.table.get(id).delete())
            else:
                self.run_query(self.table.insert({"id": id, "n": chance.randrange(50)}, conflict="replace"))
        for feed, query, rows in zip(feeds, queries, known):
            expected = list(self.run_query(query))
            while rows != expected:
                apply(rows, take(feed, 1)[0])
            # The rows may have been the same for a moment before: the rest must lead back to them.
            with contextlib.suppress(ReqlTimeoutError):
                while True:
                    apply(rows, feed.next(wait=QUIET_SECONDS))
            self.assertEqual(rows, expected)

    def test_rows_that_follow_are_read_when_first_ones_leave(self):
        self.run_query(self.table.insert([{"id": id, "n": id} for id in range(1000)]))
        query = self.table.order_by(index="n").limit(3)
        feed = self.feed(query.changes(include_offsets=True, squash=True))
        rows = [{"id": id, "n": id} for id in range(3)]
        self.run_query(self.table.between(0, 600).delete())
        expected = [{"id": id, "n": id} for id in range(600, 603)]
        while rows != expected:
            apply(rows, take(feed, 1)[0])
        self.assertTrue(is_quiet(feed))

    def test_each_change_has_its_elements_also_when_rows_are_read_again(self):
        self.run_query(self.table.insert([{"id": id, "n": id} for id in range(1000)]))
        feed = self.feed(self.table.order_by(index="n").limit(3).changes(include_offsets=True, include_resume_token=True))
        rows = [{"id": id, "n": id} for id in range(3)]
        # One after another: a batch has an order of its own. The feed is asked only then, so that changes wait in its queue.
        for id in range(300):
            self.run_query(self.table.get(id).delete())
        for gone in range(300):
            element = take(feed, 1)[0]
            self.assertTrue(element.pop("resume_token", None), f"no token after {gone} changes")
            apply(rows, element)
            self.assertEqual([row["id"] for row in rows], list(range(gone + 1, gone + 4)))
        self.assertTrue(is_quiet(feed))

    def test_a_feed_has_every_state_from_its_beginning_on_while_rows_change(self):
        print(f"seed {SEED}")
        chance, most = random.Random(SEED), 4
        rows = {id: chance.randrange(30) for id in range(40)}
        self.run_query(self.table.insert([{"id": id, "n": n} for id, n in rows.items()]))
        first = lambda: sorted((n, id) for id, n in rows.items())[:most]
        states, ended = [first()], threading.Event()

        def write():
            with contextlib.closing(r.connect("127.0.0.1", self.port)) as connection:
                while not ended.is_set():
                    # Most writes concern the first rows. The state comes first: a feed may be faster than this thread.
                    id = chance.choice(first())[1] if chance.random() < 0.7 and rows else chance.randrange(60)
                    if rows.pop(id, None) is not None and (len(rows) > 10 and chance.random() < 0.6):
                        query = self.table.get(id).delete()
                    else:
                        rows[id] = chance.randrange(30)
                        query = self.table.insert({"id": id, "n": rows[id]}, conflict="replace")
                    states.append(first())
                    query.run(connection)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            query = self.table.order_by(index="n").limit(most)
            for nth in range(60):
                token = {"include_resume_token": True} if nth % 2 else {}
                self.follow_states(query.changes(include_initial=True, include_offsets=True, **token), states, most)
        finally:
            ended.set()
            writer.join()

    def follow_states(self, query, states, most):
        """Opens a feed, and compares what a client knows after each of some elements with the states that the table had."""
        # The last state may be of a write that was not executed yet.
        begun = max(len(states) - 2, 0)
        feed = self.feed(query)
        known = [element["new_val"] for element in take(feed, most)]
        place = lambda: [(row["n"], row["id"]) for row in known]
        # A state may have been there several times.
        at = {at for at in range(begun, len(states)) if states[at] == place()}
        self.assertTrue(at, f"{place()} was no state since {states[begun:]}")
        for _ in range(20):
            before = place()
            apply(known, take(feed, 1)[0])
            changes = {next((at for at in range(at, len(states)) if states[at] != before), None) for at in at} - {None}
            at = {at for at in changes if states[at] == place()}
            self.assertTrue(at, f"{place()} after {before}: expected one of {[states[at] for at in changes]}")
        feed.close()

    def test_a_row_that_pushes_another_out_is_one_change(self):
        self.run_query(self.table.insert([{"id": id, "n": id} for id in range(3)]))
        feed = self.feed(self.table.order_by(index=r.desc("n")).limit(2).changes())
        largest = self.feed(self.table.max(index="n").changes())
        self.run_query(self.table.insert({"id": 9, "n": 9}))
        row = lambda n: {"id": n, "n": n}
        self.assertEqual(take(feed, 1), [{"old_val": row(1), "new_val": row(9)}])
        self.assertEqual(take(largest, 1), [{"old_val": row(2), "new_val": row(9)}])
        self.run_query(self.table.get(9).delete())
        self.assertEqual(take(feed, 1), [{"old_val": row(9), "new_val": row(1)}])
        self.assertTrue(is_quiet(feed))

    def test_a_feed_of_the_first_rows_is_resumed_after_any_of_its_elements(self):
        self.run_query(self.table.insert([{"id": id, "n": id} for id in range(5)]))
        query = self.table.order_by(index="n").limit(3)
        options = {"include_states": True, "include_resume_token": True}
        feed = self.feed(query.changes(include_initial=True, **options))
        elements = take(feed, 5)
        for id in [0, 3, 1]:
            self.run_query(self.table.get(id).delete())
        self.run_query(self.table.insert({"id": -1, "n": -1}))
        elements += take(feed, 4)
        self.assertTrue(is_quiet(feed))
        for at, element in enumerate(elements):
            resumed = self.feed(query.changes(resume_after=element["resume_token"], **options))
            self.assertEqual(take(resumed, len(elements) - at - 1), elements[at + 1 :], at)
            self.assertTrue(is_quiet(resumed))

    def test_sequences_that_have_no_first_rows_to_follow_are_refused(self):
        ordered = self.table.order_by(index="n")
        refused = {
            "Cannot get changes on the first elements of an unordered stream": self.table.limit(3),
            "following a `limit` term": ordered.limit(3).pluck("n"),
            "Array size limit `10` exceeded": ordered.limit(11),
            "Cannot call `changes` on an eager stream": ordered.skip(3),
        }
        for text, query in refused.items():
            with self.assertRaises(ReqlError) as caught:
                query.changes().run(self.connection, array_limit=10)
            self.assertIn(text, str(caught.exception))
        with self.assertRaisesRegex(ReqlQueryLogicError, "Cannot include offsets for range subs."):
            self.run_query(self.table.changes(include_offsets=True))


if __name__ == "__main__":
    unittest.main()
