"""Changefeeds of values that are computed from rows: aggregates, groups, distinct values and joins."""

import contextlib
import copy
import os
import random
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlResourceLimitError, ReqlTimeoutError

from feed_case import QUIET_SECONDS, FeedCase, is_quiet, take

# The number of times that feeds are compared with the query; a hundred writes come before each.
ROUNDS = int(os.environ.get("REKINDLE_VIEW_ROUNDS", "12"))


def apply_to(known, element):
    """Applies an element of a feed with groups to the values that a client knows."""
    group = element.get("group")
    if "old_val" in element:
        assert known.get(group) == element["old_val"], (known.get(group), element)
    if element["new_val"] is None:
        del known[group]
    else:
        known[group] = element["new_val"]


class Views(FeedCase):
    def follow(self, query, **options):
        """A feed with initial values, and the value of each group, all of which were delivered."""
        feed = self.feed(query.changes(include_initial=True, include_states=True, **options))
        self.assertEqual(take(feed, 1), [{"state": "initializing"}])
        known = {}
        for element in iter(lambda: take(feed, 1)[0], {"state": "ready"}):
            apply_to(known, element)
        return feed, known

    def test_aggregates_of_a_table(self):
        table = self.table
        self.run_query(table.insert([{"id": id, "n": id} for id in range(1, 5)]))
        feeds = {
            "count": (table.count(), [4, 5, 4]),
            "sum": (table.sum("n"), [10, 30, 29]),
            "avg": (table.avg("n"), [2.5, 6, 7.25]),
            "max": (table.max("n"), [{"id": 4, "n": 4}, {"id": 9, "n": 20}, None]),
            "min": (table.min("n"), [{"id": 1, "n": 1}, None, {"id": 2, "n": 2}]),
            "even": (table.count(lambda row: row["n"] % 2 == 0), [2, 3, None]),
        }
        opened = {name: self.feed(query.changes(include_initial=True)) for name, (query, _) in feeds.items()}
        self.run_query(table.insert({"id": 9, "n": 20}))
        self.run_query(table.get(1).delete())
        for name, (_, values) in feeds.items():
            values = [value for value in values if value is not None]
            expected = [{"new_val": values[0]}]
            expected += [{"old_val": old, "new_val": new} for old, new in zip(values, values[1:])]
            self.assertEqual(take(opened[name], len(expected)), expected, name)
            self.assertTrue(is_quiet(opened[name]))

    def test_an_empty_table_has_aggregates_that_are_null_or_zero(self):
        for query, value in [(self.table.count(), 0), (self.table.sum("n"), 0), (self.table.avg("n"), None)]:
            feed = self.feed(query.changes(include_initial=True))
            self.assertEqual(take(feed, 1), [{"new_val": value}])

    def test_groups_come_change_and_go(self):
        self.run_query(self.table.insert([{"id": id, "g": "ab"[id % 2], "n": id} for id in range(4)]))
        feed, known = self.follow(self.table.group("g").sum("n"))
        self.assertEqual(known, {"a": 2, "b": 4})
        self.run_query(self.table.insert({"id": 9, "g": "c", "n": 1}))
        self.assertEqual(take(feed, 1), [{"group": "c", "old_val": None, "new_val": 1}])
        self.run_query(self.table.get(3).update({"g": "a"}))
        moved = sorted(take(feed, 2), key=lambda element: element["group"])
        a, b = ({"group": "a", "old_val": 2, "new_val": 5}, {"group": "b", "old_val": 4, "new_val": 1})
        self.assertEqual(moved, [a, b])
        self.run_query(self.table.get(9).delete())
        self.assertEqual(take(feed, 1), [{"group": "c", "old_val": 1, "new_val": None}])
        # A write that leaves the sum as it was is no change.
        self.run_query(self.table.get(1).update({"other": 1}))
        self.assertTrue(is_quiet(feed))

    def test_distinct_values(self):
        self.run_query(self.table.index_create("n"))
        self.run_query(self.table.index_wait())
        self.run_query(self.table.insert([{"id": id, "n": id % 3} for id in range(6)]))
        for query in [self.table["n"].distinct(), self.table.distinct(index="n")]:
            feed = self.feed(query.changes(include_initial=True))
            self.assertEqual(take(feed, 3), [{"new_val": n} for n in range(3)])
            self.run_query(self.table.insert({"id": 10, "n": 7}))
            self.run_query(self.table.insert({"id": 11, "n": 7}))
            self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": 7}])
            self.run_query(self.table.get(10).delete())
            self.assertTrue(is_quiet(feed))
            self.run_query(self.table.get(11).delete())
            self.assertEqual(take(feed, 1), [{"old_val": 7, "new_val": None}])

    def test_the_official_driver_is_not_sent_batches_without_elements(self):
        # After an empty batch the Python driver would not ask for the next one.
        other = self.joined()
        feed = self.feed(self.table.eq_join("other", other).changes(include_initial=True))
        self.run_query(self.table.insert({"id": 0, "other": 5}))
        self.run_query(self.table.insert({"id": 1, "other": 1}))
        self.assertEqual(take(feed, 1)[0]["new_val"]["left"], {"id": 1, "other": 1})

    def test_a_token_belongs_to_a_query_however_its_variables_are_numbered(self):
        for query in [
            lambda: self.table.filter(lambda row: row["n"] > 1),
            lambda: self.table.count(lambda row: row["n"] > 1),
            lambda: self.table.group(lambda row: row["g"]).sum(lambda row: row["n"]),
        ]:
            feed = self.feed(query().changes(include_initial=True, include_states=True, include_resume_token=True))
            token = take(feed, 1)[0]["resume_token"]
            self.feed(query().changes(include_states=True, include_resume_token=True, resume_after=token))
        feed = self.feed(self.table.filter(lambda row: row["n"] > 1).changes(include_states=True, include_resume_token=True))
        token = take(feed, 1)[0]["resume_token"]
        other = self.table.filter(lambda row: row["n"] > 2)
        with self.assertRaisesRegex(ReqlError, "with other terms or options"):
            self.run_query(other.changes(include_states=True, include_resume_token=True, resume_after=token))

    def test_the_changes_before_the_end_of_a_feed_are_delivered(self):
        feed = self.feed(self.table.changes())
        self.run_query(self.table.insert([{"id": id} for id in range(1001)]))
        self.run_query(r.table_drop(self.name))
        self.assertEqual(len(take(feed, 1001)), 1001)
        with self.assertRaisesRegex(ReqlError, "does not exist"):
            take(feed, 1)

    def test_items_of_several_feeds_are_paired_in_order(self):
        other = self.joined()
        pairs = r.map(self.table.changes(), other.changes(), lambda a, b: [a["new_val"]["id"], b["new_val"]["id"]])
        feed = self.feed(pairs)
        for id in range(10, 13):
            self.run_query(self.table.insert({"id": id}))
            self.run_query(other.insert({"id": id}))
        self.assertEqual(take(feed, 3), [[id, id] for id in range(10, 13)])

    def test_the_smallest_of_many_rows_is_one_value(self):
        self.run_query(self.table.insert([{"id": id, "n": id} for id in range(50)]))
        feed = self.table.min("n").changes(include_initial=True).run(self.connect(), array_limit=20)
        self.assertEqual(take(feed, 1), [{"new_val": {"id": 0, "n": 0}}])

    def joined(self):
        """A second table, with the rows 1 to 3 that the rows of the first one name in `other`."""
        name = f"{self.name}_other"
        self.run_query(r.table_create(name))
        other = r.table(name)
        self.run_query(other.insert([{"id": id, "name": f"row {id}"} for id in range(1, 4)]))
        self.run_query(other.index_create("name"))
        self.run_query(other.index_wait())
        return other

    def test_a_join_has_the_changes_of_both_sides(self):
        other = self.joined()
        self.run_query(self.table.insert([{"id": id, "other": id} for id in (1, 9)]))
        feed = self.feed(self.table.eq_join("other", other).changes(include_initial=True))
        left, right = {"id": 1, "other": 1}, {"id": 1, "name": "row 1"}
        self.assertEqual(take(feed, 1), [{"new_val": {"left": left, "right": right}}])
        first = {"left": left, "right": right}
        self.run_query(other.get(1).update({"name": "new"}))
        second = {"left": left, "right": {"id": 1, "name": "new"}}
        self.assertEqual(take(feed, 1), [{"old_val": first, "new_val": second}])
        self.run_query(self.table.get(1).update({"other": 2}))
        third = {"left": {"id": 1, "other": 2}, "right": {"id": 2, "name": "row 2"}}
        changes = take(feed, 2)
        self.assertIn({"old_val": second, "new_val": None}, changes)
        self.assertIn({"old_val": None, "new_val": third}, changes)
        self.run_query(other.insert({"id": 9}))
        fourth = {"left": {"id": 9, "other": 9}, "right": {"id": 9}}
        self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": fourth}])
        self.run_query(other.get(2).delete())
        self.assertEqual(take(feed, 1), [{"old_val": third, "new_val": None}])
        self.run_query(other.get(3).update({"name": "not joined"}))
        self.assertTrue(is_quiet(feed))

    def test_views_equal_the_query_while_rows_change(self):
        seed = random.randrange(2**32)
        print("seed", seed)
        choice = random.Random(seed)
        other = self.joined()
        rows = self.table
        self.run_query(rows.index_create("tags", multi=True))
        self.run_query(rows.index_wait())
        queries = {
            "count": rows.filter(r.row["n"] > 5).count(),
            "sum": rows.sum("n"),
            "groups": rows.group("g").count(),
            "means": rows.group("g").avg("n"),
            "smallest": rows.group("g").map(r.row["n"]).min(),
            "largest": rows["n"].max(),
            "tags": rows.group(index="tags").count(),
            "distinct": rows["n"].distinct(),
            "pairs": rows.eq_join("other", other).zip(),
            "by name": rows.eq_join("named", other, index="name").zip(),
        }
        changes = lambda name, **options: queries[name].changes(
            squash=name in ("sum", "pairs"), include_resume_token=True, **options
        )
        feeds = {name: self.feed(changes(name, include_initial=True)) for name in queries}
        known = {name: {} for name in queries}
        tokens = {}

        def write():
            id = choice.randrange(60)
            row = {
                "id": id,
                "n": choice.randrange(12) / 4,
                "g": choice.choice("abc"),
                "other": choice.randrange(6),
                "named": f"row {choice.randrange(6)}",
                "tags": choice.sample("xyz", choice.randrange(3)),
            }
            kind = choice.randrange(6)
            if kind == 0:
                return rows.get(id).delete()
            if kind == 1:
                side = choice.randrange(6)
                row = {"id": side, "name": f"row {choice.randrange(6)}"}
                return choice.choice([other.insert(row, conflict="replace"), other.get(side).delete()])
            return rows.insert(row, conflict="replace")

        def state(name, value):
            """What a client knows that has all elements."""
            if name in ("count", "sum", "largest"):
                return {None: value}
            if name == "distinct" or name in ("pairs", "by name"):
                return sorted(map(repr, value))
            return value

        def absorb(name, element):
            if "resume_token" in element:
                tokens[name] = element.pop("resume_token")
            if name == "distinct" or name in ("pairs", "by name"):
                held = known[name].setdefault("items", [])
                if element.get("old_val") is not None:
                    held.remove(repr(element["old_val"]))
                if element["new_val"] is not None:
                    held.append(repr(element["new_val"]))
            elif "group" in element:
                apply_to(known[name], element)
            else:
                known[name][None] = element["new_val"]

        def is_equal(name, value):
            if "items" in known[name] or isinstance(value, list):
                return sorted(known[name].get("items", [])) == value
            return known[name] == value

        for round in range(ROUNDS):
            for _ in range(100):
                self.run_query(write())
            for name, query in queries.items():
                try:
                    value = self.run_query(query)
                except ReqlError:
                    value = None
                expected = state(name, list(value) if name in ("pairs", "by name") else value)
                while not is_equal(name, expected):
                    try:
                        absorb(name, take(feeds[name], 1)[0])
                    except ReqlTimeoutError:
                        self.fail(f"round {round}, {name}: {known[name]}, expected {expected}")
            for name in choice.sample(sorted(tokens), 3):
                feeds[name] = self.feed(changes(name, resume_after=tokens[name]))
        # The state may have been the same for a moment before: the rest must lead back to it.
        for name in queries:
            before = copy.deepcopy(known[name])
            with contextlib.suppress(ReqlTimeoutError):
                while True:
                    absorb(name, feeds[name].next(wait=QUIET_SECONDS))
            self.assertTrue(is_equal(name, before if "items" not in before else sorted(before["items"])), name)

    def test_what_cannot_be_kept_up_to_date_is_refused(self):
        table = self.table
        refused = {
            "Cannot call `changes` after `reduce`: its result cannot be kept up to date": table["n"].reduce(
                lambda a, b: a + b
            ),
            "after `count` on the first rows of an order": table.order_by(index="id").limit(2).count(),
            "after `sum` on a union": table.union(table).sum("n"),
            "after `count` on a system table": r.db("rethinkdb").table("users").count(),
            "after a non-deterministic function": table.sum(lambda row: r.random()),
            "Cannot call `changes` on an eager stream": table.group("g"),
        }
        for text, query in refused.items():
            with self.assertRaises(ReqlError) as caught:
                self.run_query(query.changes())
            self.assertIn(text, str(caught.exception))

    def test_more_groups_than_an_array_may_have_end_the_feed(self):
        feed = self.table.group("n").count().changes().run(self.connect(), array_limit=10)
        self.run_query(self.table.insert([{"id": id, "n": id} for id in range(11)]))
        with self.assertRaises(ReqlResourceLimitError):
            take(feed, 11)


if __name__ == "__main__":
    unittest.main()
