"""Changefeeds of tables, databases and indexes that are renamed, replaced or dropped, and of users who lose the right to read."""

import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlOpFailedError, ReqlPermissionError, ReqlQueryLogicError

from feed_case import FeedCase, is_quiet, take, wait_until

GONE = "does not exist"
PASSWORD = "secret"


def added(row):
    return [{"old_val": None, "new_val": row}]


class EndCase(FeedCase):
    def kinds(self, table):
        """A feed of each kind of `table`, which has an index `n`."""
        return {
            "table": table.changes(),
            "document": table.get(1).changes(),
            "range": table.between(0, 5).changes(),
            "keys": table.get_all(1).changes(),
            "filter": table.filter(r.row["n"] > 0).changes(),
            "first rows": table.order_by(index="id").limit(2).changes(),
            "least": table.min(index="id").changes(),
            "squash": table.changes(squash=0.01),
            "index": table.get_all(1, index="n").changes(),
            "first rows of an index": table.order_by(index=r.desc("n")).limit(2).changes(),
        }

    def feeds(self, table, **options):
        """Open feeds of all kinds."""
        return {kind: query.run(self.connect(**options)) for kind, query in self.kinds(table).items()}

    def make(self, table):
        """Gives a table its index, and its feeds a row to begin with."""
        self.run_query(table.index_create("n"))
        self.run_query(table.index_wait())
        self.run_query(table.insert({"id": 9, "n": -1, "m": -1}))

    def all_have(self, feeds, row):
        for kind, feed in feeds.items():
            with self.subTest(kind):
                self.assertEqual(take(feed, 1)[0]["new_val"], row)

    def all_end(self, feeds, error, text):
        for kind, feed in feeds.items():
            with self.subTest(kind), self.assertRaisesRegex(error, text):
                take(feed, 1)


class OtherNames(EndCase):
    def test_feeds_go_on_when_their_table_is_renamed_and_end_when_it_is_dropped(self):
        self.make(self.table)
        feeds = self.feeds(self.table)
        renamed = r.table(f"{self.name}y")
        self.run_query(self.table.config().update({"name": f"{self.name}y"}))
        # Another table with the name of before is not theirs.
        self.run_query(r.table_create(self.name))
        self.run_query(self.table.insert({"id": 1, "n": 2}))
        self.run_query(renamed.insert({"id": 1, "n": 1}))
        self.all_have(feeds, {"id": 1, "n": 1})
        self.assertTrue(is_quiet(feeds["table"]))
        self.run_query(r.table_drop(f"{self.name}y"))
        self.all_end(feeds, ReqlOpFailedError, GONE)
        wait_until("the jobs have ended", lambda: self.feed_jobs() == 0)

    def test_feeds_go_on_when_their_database_is_renamed_and_end_when_it_is_dropped(self):
        database = r.db(f"{self.name}d")
        self.run_query(r.db_create(f"{self.name}d"))
        self.run_query(database.table_create("t"))
        self.make(database.table("t"))
        feeds = self.feeds(database.table("t"))
        self.run_query(database.config().update({"name": f"{self.name}e"}))
        self.run_query(r.db(f"{self.name}e").table("t").insert({"id": 1, "n": 1}))
        self.all_have(feeds, {"id": 1, "n": 1})
        self.run_query(r.db_drop(f"{self.name}e"))
        self.all_end(feeds, ReqlOpFailedError, GONE)

    def test_a_table_that_replaces_another_has_feeds_of_its_own(self):
        self.make(self.table)
        feeds = self.feeds(self.table)
        query = lambda **options: self.table.changes(include_resume_token=True, **options)
        feed = self.feed(query())
        self.run_query(self.table.insert({"id": 1, "n": 1}))
        token = take(feed, 1)[0]["resume_token"]
        self.all_have(feeds, {"id": 1, "n": 1})
        self.run_query(r.table_drop(self.name))
        self.run_query(r.table_create(self.name))
        self.run_query(self.table.insert({"id": 1, "n": 2}))
        self.all_end({**feeds, "with tokens": feed}, ReqlOpFailedError, GONE)
        with self.assertRaisesRegex(ReqlQueryLogicError, "it is of another table"):
            self.feed(query(resume_after=token))
        feed = self.feed(query(include_initial=True))
        self.assertEqual(take(feed, 1)[0]["new_val"], {"id": 1, "n": 2})

    def test_a_feed_of_a_union_ends_with_any_of_its_tables(self):
        other = r.table(f"{self.name}x")
        self.run_query(r.table_create(f"{self.name}x"))
        united = self.feed(self.table.union(other).changes())
        joined = self.feed(self.table.changes().union(other.get(1).changes()))
        alone = self.feed(self.table.changes())
        self.run_query(r.table_drop(f"{self.name}x"))
        self.all_end({"changes of a union": united, "a union of changes": joined}, ReqlOpFailedError, GONE)
        self.run_query(self.table.insert({"id": 1}))
        self.assertEqual(take(alone, 1), added({"id": 1}))

    def test_a_feed_that_is_resumed_while_its_table_is_gone_is_refused(self):
        feed = self.feed(self.table.changes(include_resume_token=True))
        self.run_query(self.table.insert({"id": 1}))
        token = take(feed, 1)[0]["resume_token"]
        self.run_query(r.table_drop(self.name))
        with self.assertRaisesRegex(ReqlOpFailedError, GONE):
            self.feed(self.table.changes(include_resume_token=True, resume_after=token))


class OtherIndexes(EndCase):
    def by_index(self, name):
        queries = {
            "values": self.table.get_all(1, index=name).changes(),
            "range": self.table.between(0, 5, index=name).changes(),
            "first rows": self.table.order_by(index=name).limit(2).changes(),
            "greatest": self.table.max(index=name).changes(),
        }
        return {kind: self.feed(query) for kind, query in queries.items()}

    def setUp(self):
        super().setUp()
        self.make(self.table)

    def test_feeds_go_on_when_their_index_is_renamed(self):
        feeds = self.by_index("n")
        self.run_query(self.table.index_rename("n", "renamed"))
        # An index with the name of before is not theirs.
        self.run_query(self.table.index_create("n", lambda row: row["n"] * -1))
        self.run_query(self.table.index_wait())
        self.run_query(self.table.insert({"id": 1, "n": 1}))
        self.all_have(feeds, {"id": 1, "n": 1})

    def test_feeds_end_when_their_index_is_replaced(self):
        self.run_query(self.table.index_create("m"))
        self.run_query(self.table.index_wait())
        by_n, by_m = self.by_index("n"), self.by_index("m")
        self.run_query(self.table.index_rename("m", "n", overwrite=True))
        self.all_end(by_n, ReqlOpFailedError, "The secondary index `n` was replaced by a different one")
        self.run_query(self.table.insert({"id": 1, "n": 2, "m": 1}))
        self.all_have(by_m, {"id": 1, "n": 2, "m": 1})

    def test_feeds_end_when_their_index_is_dropped_and_made_again(self):
        feeds, others = self.by_index("n"), self.feed(self.table.changes())
        self.run_query(self.table.index_drop("n"))
        self.run_query(self.table.index_create("n"))
        self.run_query(self.table.index_wait())
        self.run_query(self.table.insert({"id": 1, "n": 1}))
        self.all_end(feeds, ReqlOpFailedError, "index|Index")
        self.assertEqual(take(others, 1), added({"id": 1, "n": 1}))
        self.all_have({"again": self.feed(self.table.get_all(1, index="n").changes(include_initial=True))}, {"id": 1, "n": 1})

    def test_a_feed_of_an_index_that_is_not_there_is_refused(self):
        for query in [
            self.table.get_all(1, index="none").changes(),
            self.table.order_by(index="none").limit(1).changes(),
            self.table.min(index="none").changes(),
        ]:
            with self.assertRaisesRegex(ReqlOpFailedError, "Index `none` was not found on table"):
                self.run_query(query)


class OtherRights(EndCase):
    def setUp(self):
        super().setUp()
        self.make(self.table)
        self.user = f"user_{self.name}"
        self.run_query(r.db("rethinkdb").table("users").insert({"id": self.user, "password": PASSWORD}))
        self.reader = {"user": self.user, "password": PASSWORD}

    def grant(self, where, read):
        self.run_query(where.grant(self.user, {"read": read}))

    def test_feeds_end_when_the_right_to_read_is_revoked(self):
        scopes = {"table": self.table, "database": r.db("test"), "everything": r}
        for number, (scope, where) in enumerate(scopes.items()):
            with self.subTest(scope):
                self.grant(where, True)
                feeds, mine = self.feeds(self.table, **self.reader), self.feed(self.table.changes())
                row = {"id": 1, "n": 1, "round": number}
                self.run_query(self.table.get(1).replace(row))
                self.all_have(feeds, row)
                take(mine, 1)
                self.grant(where, None)
                self.all_end(feeds, ReqlPermissionError, "does not have the required `read` permission")
                # Feeds of another user go on; a right that is given again does not revive the others.
                self.grant(where, True)
                self.run_query(self.table.get(1).delete())
                self.assertEqual(take(mine, 1), [{"old_val": row, "new_val": None}])
                self.all_end(feeds, ReqlPermissionError, "does not have the required `read` permission")
                self.grant(where, None)

    def test_feeds_end_when_their_user_is_deleted(self):
        self.grant(self.table, True)
        feeds = self.feeds(self.table, **self.reader)
        self.run_query(r.db("rethinkdb").table("users").get(self.user).delete())
        self.all_end(feeds, ReqlPermissionError, "`read` permission")

    def test_a_feed_of_a_union_ends_with_the_right_to_read_any_of_its_tables(self):
        other = r.table(f"{self.name}x")
        self.run_query(r.table_create(f"{self.name}x"))
        self.grant(self.table, True)
        self.grant(other, True)
        connect = lambda: self.connect(**self.reader)
        united = self.table.union(other).changes().run(connect())
        joined = self.table.changes().union(other.changes()).run(connect())
        alone = self.table.changes().run(connect())
        self.grant(other, False)
        ends = {"changes of a union": united, "a union of changes": joined}
        self.all_end(ends, ReqlPermissionError, "`read` permission")
        self.run_query(self.table.insert({"id": 1}))
        self.assertEqual(take(alone, 1), added({"id": 1}))

    def test_a_token_gives_no_right_to_read(self):
        feed = self.feed(self.table.changes(include_resume_token=True))
        self.run_query(self.table.insert({"id": 1}))
        token = take(feed, 1)[0]["resume_token"]
        with self.assertRaises(ReqlPermissionError):
            self.table.changes(include_resume_token=True, resume_after=token).run(self.connect(**self.reader))


class Views(EndCase):
    """Aggregates of a table, and joins with another one."""

    def setUp(self):
        super().setUp()
        self.other = r.table(f"{self.name}x")
        self.run_query(r.table_create(f"{self.name}x"))
        for table in (self.table, self.other):
            self.make(table)
        aggregates = [
            self.table.count(), self.table.sum("n"), self.table.max("n"), self.table.group("n").count(),
            self.table.group(index="n").avg("id"), self.table["n"].distinct(), self.table.distinct(index="n"),
        ]
        joins = [self.table.eq_join("n", self.other), self.table.eq_join("n", self.other, index="n").zip()]
        self.aggregates, self.joins = [[query.changes() for query in queries] for queries in (aggregates, joins)]

    def views(self, queries, **options):
        return {str(query): query.run(self.connect(**options)) for query in queries}

    def test_views_go_on_when_their_tables_are_renamed_and_end_when_one_is_dropped(self):
        aggregates, joins = self.views(self.aggregates), self.views(self.joins)
        for table in (self.table, self.other):
            self.run_query(table.config().update(lambda row: {"name": row["name"] + "y"}))
        renamed, other = f"{self.name}y", f"{self.name}xy"
        self.run_query(r.table(other).insert({"id": 7, "n": 7}))
        self.run_query(r.table(renamed).insert({"id": 10, "n": 7}))
        for feed in [*aggregates.values(), *joins.values()]:
            self.assertIsNotNone(take(feed, 1)[0]["new_val"])
        self.run_query(r.table_drop(other))
        self.all_end(joins, ReqlOpFailedError, GONE)
        self.run_query(r.table(renamed).insert({"id": 11, "n": 11}))
        for feed in aggregates.values():
            self.assertIsNotNone(take(feed, 1)[0]["new_val"])
        self.run_query(r.table_drop(renamed))
        self.all_end(aggregates, ReqlOpFailedError, GONE)

    def test_views_end_with_the_right_to_read_one_of_their_tables(self):
        reader = {"user": f"user_{self.name}", "password": PASSWORD}
        self.run_query(r.db("rethinkdb").table("users").insert({"id": reader["user"], "password": PASSWORD}))
        grant = lambda table, read: self.run_query(table.grant(reader["user"], {"read": read}))
        grant(self.table, True)
        for query in self.joins:
            with self.assertRaises(ReqlPermissionError):
                query.run(self.connect(**reader))
        grant(self.other, True)
        aggregates, joins = self.views(self.aggregates, **reader), self.views(self.joins, **reader)
        grant(self.other, False)
        self.all_end(joins, ReqlPermissionError, "`read` permission")
        self.run_query(self.table.insert({"id": 11, "n": 11}))
        for feed in aggregates.values():
            self.assertIsNotNone(take(feed, 1)[0]["new_val"])
        grant(self.table, False)
        self.all_end(aggregates, ReqlPermissionError, "`read` permission")


if __name__ == "__main__":
    unittest.main()
