"""Configuration of tables while a server is down: refused changes, changes from before the failure, and permanent removal
by a repair."""

import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlOpFailedError

from test_cluster import TIMEOUT_SECONDS, Cluster, ask, wait_until
from test_cluster_cursors import servers

TABLE_CONFIG = r.db("rethinkdb").table("table_config")
SERVER_CONFIG = r.db("rethinkdb").table("server_config")


def on(*names):
    """A shard with replicas on these servers."""
    return [{"primary_replica": names[0], "replicas": list(names)}]


class ServersAreAway(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(3)
        self.addCleanup(self.cluster.remove)
        self.first = self.cluster.nodes[0]
        wait_until("three servers", lambda: len(ask(self.first, servers())) == 3)
        self.cluster.all_vote()

    def make(self, name, *names):
        made = ask(self.first, TABLE_CONFIG.insert({"name": name, "db": "test", "shards": on(*names)}))
        self.assertEqual(made["inserted"], 1, made.get("first_error"))
        ask(self.first, r.table(name).wait(timeout=TIMEOUT_SECONDS))
        ask(self.first, r.table(name).insert([{"id": n} for n in range(100)]))

    def lose(self, *names):
        for name in names:
            self.cluster.named(name).kill()
        there = lambda: {row["name"] for row in ask(self.first, servers())}
        wait_until("the servers are missed", lambda: not there() & set(names))

    def refused(self, query):
        """The reason for which `query` is refused."""
        with self.assertRaises(ReqlOpFailedError) as caught:
            ask(self.first, query)
        return caught.exception.message

    def test_a_table_is_put_on_servers_that_are_connected(self):
        self.make("t", "s0")
        self.make("both", "s0", "s2")
        gone = ask(self.first, SERVER_CONFIG.filter({"name": "s2"})["id"].nth(0))
        self.lose("s2")
        wrong = "The change you're trying to make to `rethinkdb.table_config` has the wrong format. In `shards`: In `replicas`: "
        missing = "Server `s2` does not exist or is not connected."
        for shards in (on("s2"), on("s0", "s2")):
            answer = ask(self.first, r.table("t").config().update({"shards": shards}))
            self.assertEqual(answer["first_error"], wrong + missing)
        by_id = r.db("rethinkdb").table("table_config", identifier_format="uuid").filter({"name": "t"})
        answer = ask(self.first, by_id.update({"shards": on(gone)}))
        self.assertEqual(answer["first_error"], f"{wrong}There is no server with UUID `{gone}`.")
        answer = ask(self.first, TABLE_CONFIG.insert({"name": "new", "db": "test", "shards": on("s2")}))
        self.assertEqual(answer["first_error"], wrong + missing)
        self.assertEqual(ask(self.first, r.table("t").config())["shards"][0]["replicas"], ["s0"])
        # A table may keep its existing replicas.
        both = r.table("both").config()
        change = {"shards": [{**on("s0", "s2")[0], "nonvoting_replicas": []}], "durability": "soft"}
        for shards in (change, {"shards": on("s0", "s2"), "durability": "hard"}):
            answer = ask(self.first, both.update(shards))
            self.assertEqual(answer["replaced"], 1, answer.get("first_error"))

    def test_what_was_changed_of_a_database_before_a_table_that_cannot_be_is_told(self):
        self.make("big", "s0")
        self.make("ok", "s1")
        self.make("zz", "s2")
        self.lose("s2")
        why = ("Some of its shards have no majority of their replicas, because `s2` cannot be reached. Connect them, "
               "or if they are permanently lost, use `emergency_repair`.")
        unreachable = "The server(s) hosting table `test.zz` are currently unreachable. "
        change = {"shards": 1, "replicas": 2}
        # Also in a dry run.
        for dry_run in (True, False):
            self.assertEqual(
                self.refused(r.table("zz").reconfigure(dry_run=dry_run, **change)),
                f"{unreachable}The table was not reconfigured. {why}",
            )
        self.assertEqual(
            self.refused(r.db("test").reconfigure(dry_run=True, **change)),
            f"{unreachable}The tables were not reconfigured. {why}",
        )
        for table in ("big", "ok"):
            self.assertEqual(len(ask(self.first, r.table(table).config())["shards"][0]["replicas"]), 1)
        self.assertEqual(
            self.refused(r.db("test").reconfigure(**change)),
            f"{unreachable}The tables may or may not have been reconfigured. {why} "
            "This is about table `test.zz`; reconfigured before it: `test.big`, `test.ok`.",
        )
        for table in ("big", "ok"):
            self.assertEqual(ask(self.first, r.table(table).config())["shards"][0]["replicas"], ["s0", "s1"])
        self.assertEqual(self.refused(r.table("zz").rebalance()), f"{unreachable}The table was not rebalanced. {why}")
        self.assertEqual(
            self.refused(r.db("test").rebalance()),
            f"{unreachable}The tables may or may not have been rebalanced. {why} "
            "This is about table `test.zz`; rebalanced before it: `test.big`, `test.ok`.",
        )
        answer = ask(self.first, r.table("zz").config().update({"shards": on("s0")}))
        self.assertEqual(
            answer["first_error"], f"{unreachable}The table's configuration was not changed. {why}"
        )

    def test_a_repair_tells_whom_it_removes_and_their_names_are_kept(self):
        self.make("three", "s0", "s1", "s2")
        self.make("half", "s2", "s1")
        self.lose("s1", "s2")
        repair = lambda **more: r.table("three").reconfigure(emergency_repair="unsafe_rollback", **more)
        planned = ask(self.first, repair(dry_run=True))
        table, *removed = planned["config_changes"]
        self.assertEqual(table["new_val"]["shards"][0]["replicas"], ["s0"])
        self.assertEqual([(change["old_val"]["name"], change["new_val"]) for change in removed], [("s1", None), ("s2", None)])
        only_servers = r.db("rethinkdb").reconfigure(emergency_repair="unsafe_rollback", dry_run=True)
        self.assertEqual(ask(self.first, only_servers)["config_changes"], removed)
        done = ask(self.first, repair())
        self.assertEqual((done["repaired"], done["config_changes"]), (1, planned["config_changes"]))
        # A table that still has them lists their names.
        self.assertEqual(ask(self.first, r.table("half").config())["shards"][0]["primary_replica"], "s2")
        issues = r.db("rethinkdb").table("current_issues").filter({"type": "table_availability"})["description"]
        (issue,) = ask(self.first, issues.coerce_to("array"))
        self.assertIn("Permanently removed from the cluster: s1, s2. `reconfigure` with `emergency_repair`", issue)
        mended = ask(self.first, r.table("half").reconfigure(emergency_repair="unsafe_rollback_or_erase"))
        (change,) = mended["config_changes"]
        self.assertEqual(change["old_val"]["shards"][0]["replicas"], ["s1", "s2"])
        self.assertEqual(change["new_val"]["shards"][0]["replicas"], ["s0"])


if __name__ == "__main__":
    unittest.main()
