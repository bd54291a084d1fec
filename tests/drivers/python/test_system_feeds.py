"""Feeds of system tables, through the official driver."""

import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlPermissionError

from feed_case import FeedCase, is_quiet, take


class SystemTables(FeedCase):
    def system(self, name):
        return r.db("rethinkdb").table(name)

    def test_tables_that_come_change_and_go(self):
        mine = self.system("table_config").filter(r.row["name"].match(f"^{self.name}x")).pluck("name")
        feed = self.feed(mine.changes(include_types=True))
        self.run_query(r.table_create(f"{self.name}x"))
        self.assertEqual(take(feed, 1), [{"type": "add", "old_val": None, "new_val": {"name": f"{self.name}x"}}])
        self.run_query(r.table(f"{self.name}x").config().update({"name": f"{self.name}xy"}))
        names = [{"name": f"{self.name}x"}, {"name": f"{self.name}xy"}]
        self.assertEqual(take(feed, 1), [{"type": "change", "old_val": names[0], "new_val": names[1]}])
        self.run_query(r.table_drop(f"{self.name}xy"))
        self.assertEqual(take(feed, 1), [{"type": "remove", "old_val": names[1], "new_val": None}])
        self.assertTrue(is_quiet(feed))

    def test_every_table_begins_with_its_rows(self):
        for name in self.run_query(r.db("rethinkdb").table_list()):
            with self.subTest(name):
                feed = self.feed(self.system(name)["id"].changes(include_initial=True, include_states=True))
                self.assertEqual(take(feed, 1), [{"state": "initializing"}])
                ids = []
                for element in iter(lambda: take(feed, 1)[0], {"state": "ready"}):
                    ids.append(element["new_val"])
                if name in ("db_config", "server_config", "server_status", "stats", "table_config", "users"):
                    present = self.run_query(self.system(name)["id"])
                    self.assertEqual(sorted(map(str, ids)), sorted(map(str, present)))

    def test_one_user(self):
        feed = self.feed(self.system("users").get("ann").changes(include_initial=True))
        self.assertEqual(take(feed, 1), [{"new_val": None}])
        self.run_query(self.system("users").insert({"id": "ann", "password": False}))
        self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": "ann", "password": False}}])
        self.run_query(self.system("users").get("ann").delete())
        self.assertEqual(take(feed, 1)[0]["new_val"], None)

    def test_figures_change_while_nothing_else_does(self):
        feed = self.feed(self.system("stats").get(["cluster"]).changes())
        self.run_query(self.table.insert({"id": 1}))
        self.assertNotEqual(take(feed, 1)[0]["new_val"], None)

    def test_a_feed_ends_with_the_right_to_read(self):
        self.run_query(self.system("users").insert({"id": "bob", "password": "secret"}))
        db = r.db("rethinkdb")
        self.run_query(db.grant("bob", {"read": True}))
        feed = self.system("db_config").changes().run(self.connect(user="bob", password="secret"))
        self.run_query(db.grant("bob", {"read": False}))
        with self.assertRaises(ReqlPermissionError):
            take(feed, 1)

    def test_what_system_tables_refuse(self):
        users = self.system("users")
        refused = {
            "System tables don't support changefeeds on `.limit()`": users.order_by(index="id").limit(2).changes(),
            "Cannot get changes on the first elements of an unordered stream": users.limit(2).changes(),
            "cannot be resumed": users.changes(include_resume_token=True),
            "Cannot include offsets for point subs": users.get("admin").changes(include_offsets=True),
        }
        for text, query in refused.items():
            with self.assertRaises(ReqlError) as caught:
                self.run_query(query)
            self.assertIn(text, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
