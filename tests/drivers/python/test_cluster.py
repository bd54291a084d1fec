"""Three servers as one cluster, through the official driver: no acknowledged write is lost when a
leader is killed, a server joins or is removed, or a table is resharded under writes."""

import contextlib
import json
import os
import signal
import threading
import time
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlOpFailedError, ReqlOpIndeterminateError, ReqlPermissionError

from node import Node, Proxy

TIMEOUT_SECONDS = 120
WRITERS = 4
SOON_SECONDS = 0.05
HEARTBEAT_SECONDS = 10


def wait_until(what, is_so):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about")
        time.sleep(SOON_SECONDS)


def connect(node):
    return r.connect("127.0.0.1", node.driver_port, timeout=20)


def ask(node, query):
    """The result of `query` on `node`, on a new connection."""
    with connect(node) as connection:
        return query.run(connection)


def ids(node, table):
    """The ids of all rows of `table` by a read on `node`: through a cursor, because an array is limited in size."""
    with connect(node) as connection:
        return set(table["id"].run(connection))


def states(pid):
    """The state of each thread of a process, as in ps."""
    for thread in Path("/proc", str(pid), "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


class Cluster:
    """Servers that join the first one."""

    def __init__(self, count):
        self.nodes = []
        for _ in range(count):
            self.add()

    def add(self):
        flags = ["--server-name", f"s{len(self.nodes)}"]
        if self.nodes:
            flags += ["--join", f"127.0.0.1:{self.nodes[0].cluster_port}"]
        if len(self.nodes) % 2:
            # With one core, the thread that serves drivers also drives the links.
            flags += ["--cores", "1"]
        self.nodes.append(Node(*flags).start())
        return self.nodes[-1]

    def all_vote(self):
        """Waits until every server has a vote on the catalog, according to the first server."""
        votes = lambda line: "catalog" in line and "was promoted to voter" in line
        wait_until("every vote", lambda: sum(map(votes, self.nodes[0].lines)) == len(self.nodes) - 1)

    def alive(self):
        return [node for node in self.nodes if node.process.poll() is None]

    def named(self, name):
        return self.nodes[int(name[1:])]

    def remove(self):
        for node in self.nodes:
            node.remove()


class Writers:
    """Threads that insert separate rows on any live server and remember the results."""

    def __init__(self, cluster, table):
        self.cluster = cluster
        self.table = table
        self.acknowledged = set()
        self.refused = set()
        self.surprises = []
        self.stopping = False
        self.threads = [threading.Thread(target=self.write, args=(n,), daemon=True) for n in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def write(self, writer):
        connection, nth = None, 0
        while not self.stopping:
            row = f"{writer}-{nth}"
            nth += 1
            try:
                if connection is None or not connection.is_open():
                    alive = self.cluster.alive()
                    connection = connect(alive[(writer + nth) % len(alive)])
                result = r.table(self.table).insert({"id": row, "n": nth}).run(connection)
                if result["inserted"] == 1:
                    self.acknowledged.add(row)
                else:
                    self.surprises.append(result)
            except ReqlOpFailedError as error:
                self.refused.add(row)
                self.surprises.append(f"refused: {error.message}")
            except (ReqlOpIndeterminateError, ReqlError, OSError):
                # It may have been written or not.
                connection = None

    def progress(self):
        """Waits until a hundred more rows are acknowledged."""
        goal = len(self.acknowledged) + 100
        wait_until("a hundred more rows", lambda: len(self.acknowledged) >= goal)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(TIMEOUT_SECONDS)


class ThreeServers(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(3)
        self.addCleanup(self.cluster.remove)
        self.first = self.cluster.nodes[0]
        wait_until("three servers", lambda: len(self.tell(r.db("rethinkdb").table("server_status"))) == 3)

    def tell(self, query, node=None):
        answer = ask(node or self.first, query.coerce_to("array"))
        return answer

    def leader(self, table="t"):
        """The leader; None during a handover."""
        primaries = []

        def is_led():
            status = ask(self.cluster.alive()[0], r.table(table).status())
            primaries[:] = status["shards"][0]["primary_replicas"]
            return primaries

        wait_until("a leader", is_led)
        return self.cluster.named(primaries[0])

    def replicated(self):
        ask(self.first, r.table_create("t", replicas=3))
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))

    def check(self, writers):
        """Every server has every acknowledged row and none that was refused."""
        writers.stop()
        node = self.cluster.alive()[0]
        ask(node, r.table("t").wait(wait_for="ready_for_writes", timeout=TIMEOUT_SECONDS))
        present = ids(node, r.table("t", read_mode="majority"))
        self.assertEqual(writers.acknowledged - present, set(), "acknowledged and lost")
        self.assertEqual(writers.refused & present, set(), "refused and written")
        for node in self.cluster.alive():
            self.assertEqual(ids(node, r.table("t")), present)
        self.assertGreater(len(writers.acknowledged), 0)

    def test_a_leader_is_killed_under_writers_and_comes_back(self):
        self.replicated()
        writers = Writers(self.cluster, "t")
        writers.progress()
        rates = ask(self.first, r.db("rethinkdb").table("stats").get(["cluster"])["query_engine"])
        self.assertGreater(rates["written_docs_per_sec"], 0)
        for server in self.tell(r.db("rethinkdb").table("server_status")):
            self.assertEqual(len(server["network"]["connected_to"]), 2)
        leader = self.leader()
        leader.kill()
        writers.progress()
        other = self.cluster.alive()[0]
        issues = self.tell(r.db("rethinkdb").table("current_issues"), other)
        self.assertIn("table_availability", [issue["type"] for issue in issues])
        leader.start()
        writers.progress()
        self.check(writers)
        ask(other, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        no_issues = lambda: self.tell(r.db("rethinkdb").table("current_issues"), other) == []
        wait_until("no issues", no_issues)

    def test_while_a_leader_hangs_everybody_is_answered_by_the_next(self):
        self.replicated()
        ask(self.first, r.table("t").insert({"id": 1, "n": 1}))
        # A proxy has no replica, so no log of its own tells it the leader.
        proxy = Proxy("--join", f"127.0.0.1:{self.first.cluster_port}").start()
        self.addCleanup(proxy.remove)
        for node in [*self.cluster.nodes, proxy]:
            # From then on the other servers have its reported state.
            self.assertEqual(ask(node, r.db("rethinkdb").table("server_status").count()), 3)
        leader = self.leader()
        asked = [proxy, *(node for node in self.cluster.nodes if node is not leader)]
        queries = {
            "get": r.table("t").get(1)["n"],
            "point": r.table("t").get(1),
            "majority": r.table("t", read_mode="majority").get(1),
            "outdated": r.table("t", read_mode="outdated").get(1),
            "count": r.table("t").filter({"n": 1}).count(),
            "outdated count": r.table("t", read_mode="outdated").filter({"n": 1}).count(),
            "sum": r.table("t").sum("n"),
            "update": r.table("t").get(1).update({"seen": True}),
            "insert": r.table("t").insert([{"id": 2, "n": 0}, {"id": 3, "n": 0}]),
        }
        answers, took = [], []

        def tell(name, query, connection):
            began = time.monotonic()
            try:
                answer = query.run(connection)
            except ReqlError as error:
                answer = type(error)
            answers.append((name, answer))
            took.append((time.monotonic() - began, name))

        # All requests are sent before there is another leader, so that they have to retry.
        asks = [(name, query, connect(node)) for name, query in queries.items() for node in asked]
        self.hang(leader.process)
        threads = [threading.Thread(target=tell, args=one, daemon=True) for one in asks]
        for thread in threads:
            thread.start()
        self.check_that_one_is_silent(asked[0], leader)
        for thread in threads:
            thread.join(TIMEOUT_SECONDS)
        for _, _, connection in asks:
            connection.close(noreply_wait=False)
        self.assertEqual(len(took), len(asks))
        self.assertLess(max(took)[0], HEARTBEAT_SECONDS - 1, took)
        for name, answer in answers:
            if name in ("update", "insert"):
                self.assertIs(answer, ReqlOpIndeterminateError, name)
            elif name in ("point", "majority", "outdated"):
                self.assertEqual(answer["n"], 1, name)
            else:
                self.assertEqual(answer, 1, name)

    def hang(self, process):
        """Stops a server, as if it hung, until the test ends."""
        os.kill(process.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, process.pid, signal.SIGCONT)
        # Running servers still respond.
        wait_until("it has stopped", lambda: set(states(process.pid)) == {"T"})

    def check_that_one_is_silent(self, node, silent):
        """System tables of all servers have a row of the hanging server, and do not wait long for it."""
        name = f"s{self.cluster.nodes.index(silent)}"
        began = time.monotonic()
        with connect(node) as connection:
            stats = r.db("rethinkdb").table("stats").filter({"server": name}).run(connection)
            silent_rows = sorted((row["id"][0], row.get("error")) for row in stats)
            status = r.db("rethinkdb").table("server_status").filter({"name": name})
            self.assertEqual([row["process"]["pid"] for row in status.run(connection)], [silent.process.pid])
            r.table("t").status().run(connection)
        error = "Timed out. Unable to retrieve stats."
        self.assertEqual(silent_rows, [("server", error), ("table_server", error)])
        self.assertLess(time.monotonic() - began, 3 + 2)

    def test_while_a_server_hangs_issues_take_as_long_as_the_slowest_answer(self):
        names = ["t", "u", "v"]
        for name in names:
            ask(self.first, r.table_create(name))
            there = {"primary_replica": "s1", "replicas": ["s1"]}
            ask(self.first, r.table(name).config().update({"shards": [there]}))
            ask(self.first, r.table(name).wait(timeout=TIMEOUT_SECONDS))
            wait_until(f"{name} on s1", lambda: self.leader(name) is self.cluster.nodes[1])

        def timed(table):
            began = time.monotonic()
            rows = self.tell(r.db("rethinkdb").table(table))
            return rows, time.monotonic() - began

        self.hang(self.cluster.nodes[1].process)
        # A query that waits for the rows of other servers once.
        _, once = timed("server_status")
        issues, took = timed("current_issues")
        told = [issue["info"]["table"] for issue in issues if issue["type"] == "table_availability"]
        self.assertEqual(sorted(told), names)
        # Servers that look connected are waited for twice as long; earlier versions waited for one table after another.
        self.assertLess(took, 4 * once, f"once {once}, took {took}")

    def test_a_leader_that_is_stopped_hands_over_and_no_write_is_refused(self):
        self.replicated()
        writers = Writers(self.cluster, "t")
        for _ in range(3):
            writers.progress()
            leader = self.leader()
            self.assertEqual(leader.stop(), 0)
            writers.progress()
            leader.start()
            self.first = self.cluster.alive()[0]
            ask(leader, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        self.check(writers)
        self.assertEqual(writers.surprises, [])

    def test_a_table_is_divided_and_joined_while_it_is_written_to(self):
        self.replicated()
        writers = Writers(self.cluster, "t")
        for shards in (3, 2, 1):
            writers.progress()
            changed = ask(self.cluster.nodes[shards - 1], r.table("t").reconfigure(shards=shards, replicas=3))
            self.assertEqual(changed["reconfigured"], 1)
            writers.progress()
            ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
            self.assertEqual(len(ask(self.first, r.table("t").config())["shards"]), shards)
        self.check(writers)
        self.assertEqual(writers.surprises, [])

    def test_a_table_whose_shards_are_on_several_servers_is_divided_and_balanced(self):
        created = ask(self.first, r.table_create("t", shards=3))
        places = {shard["primary_replica"] for shard in created["config_changes"][0]["new_val"]["shards"]}
        self.assertEqual(len(places), 3, "a shard on each server")
        writers = Writers(self.cluster, "t")
        for nth, shards in enumerate((2, 5, 1)):
            writers.progress()
            change = r.table("t").reconfigure(shards=shards, replicas=1)
            self.assertEqual(ask(self.cluster.nodes[nth], change)["reconfigured"], 1)
            ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
            config = ask(self.first, r.table("t").config())
            self.assertEqual([len(shard["replicas"]) for shard in config["shards"]], [1] * shards)
            if shards == 5:
                self.assertEqual(ask(self.first, r.table("t").rebalance())["rebalanced"], 1)
                ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        writers.progress()
        self.check(writers)
        self.assertEqual(writers.surprises, [])

    def test_an_index_is_ready_when_it_is_ready_on_every_server(self):
        ask(self.first, r.table_create("t", shards=3))
        rows = 3000
        ask(self.first, r.table("t").insert(r.range(rows).map(lambda n: {"n": n}).coerce_to("array")))
        proxy = Proxy("--join", f"127.0.0.1:{self.first.cluster_port}").start()
        self.addCleanup(proxy.remove)
        for nth, node in enumerate([*self.cluster.nodes, proxy] * 2):
            name = f"n{nth}"
            with connect(node) as connection:
                r.table("t").index_create(name, r.row["n"].add(nth)).run(connection)
                r.table("t").index_wait(name).run(connection)
                found = r.table("t").between(r.minval, r.maxval, index=name).count().run(connection)
                self.assertEqual(found, rows)

    def test_a_server_joins_takes_replicas_and_is_removed_for_good(self):
        self.replicated()
        writers = Writers(self.cluster, "t")
        writers.progress()
        fourth = self.cluster.add()
        shards = [{"primary_replica": "s3", "replicas": ["s0", "s1", "s3"]}]
        changed = ask(self.first, r.table("t").config().update({"shards": shards}))
        self.assertEqual(changed["errors"], 0, changed.get("first_error"))
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        wait_until("the new server leads", lambda: self.leader() is fourth)
        writers.progress()
        fourth.kill()
        gone = r.db("rethinkdb").table("server_config").filter({"name": "s3"}).delete()
        wait_until("the row is deleted", lambda: ask(self.first, gone)["deleted"] == 1)
        writers.progress()
        self.check(writers)
        names = [row["name"] for row in self.tell(r.db("rethinkdb").table("server_config"))]
        self.assertEqual(sorted(names), ["s0", "s1", "s2"])
        config = ask(self.first, r.table("t").config())
        self.assertEqual(config["shards"][0]["replicas"], ["s0", "s1"])
        # A restart does not bring it back.
        with self.assertRaisesRegex(RuntimeError, "permanently removed from its cluster"):
            fourth.start()
        self.assertIsNotNone(fourth.process.wait(TIMEOUT_SECONDS))

    def test_a_leader_that_is_alone_says_so_and_reads_nothing(self):
        self.replicated()
        ask(self.first, r.table("t").insert({"id": 1}))
        leader = self.leader()
        for node in self.cluster.alive():
            if node is not leader:
                node.kill()

        def refuses():
            try:
                ask(leader, r.table("t").get(1))
                return False
            except ReqlOpFailedError:
                return True

        wait_until("a read that is refused", refuses)
        # Later queries do not search for a leader for as long again (ten seconds).
        for query in (r.table("t").get(2), r.table("t").count(), r.table("t").get(1).update({"n": 1})):
            with self.assertRaisesRegex(ReqlOpFailedError, "primary replica for shard"):
                began = time.monotonic()
                ask(leader, query)
            self.assertLess(time.monotonic() - began, 6, query)
        status = ask(leader, r.table("t").status())["status"]
        self.assertFalse(status["ready_for_writes"] or status["ready_for_reads"])
        self.assertEqual(ask(leader, r.table("t", read_mode="outdated").get(1)), {"id": 1})
        with self.assertRaisesRegex(ReqlOpFailedError, "have no majority of their replicas, because `s"):
            ask(leader, r.table("t").reconfigure(shards=2, replicas=1))

    def test_a_shard_without_a_majority_is_told_to_have_the_replicas_that_it_has(self):
        shards = [{"primary_replica": "s0", "replicas": ["s0", "s2"]}]
        made = r.db("rethinkdb").table("table_config").insert({"name": "t", "db": "test", "shards": shards})
        self.assertEqual(ask(self.first, made)["inserted"], 1)
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        ask(self.first, r.table("t").insert([{"id": n} for n in range(100)]))
        self.cluster.nodes[2].kill()
        alone = [{"primary_replica": "s0", "replicas": ["s0"], "nonvoting_replicas": []}]
        missed = r.db("rethinkdb").table("server_status")["name"].contains("s2")
        wait_until("the server is missed", lambda: not ask(self.first, missed))
        for node in self.cluster.alive():
            with self.assertRaisesRegex(ReqlOpFailedError, "have no majority of their replicas, because `s2` cannot"):
                ask(node, r.table("t").reconfigure(shards=1, replicas=1))
            answer = ask(node, r.table("t").config().update({"shards": alone}))
            self.assertRegex(answer["first_error"], "have no majority of their replicas, because `s2` cannot")
            self.assertEqual(ask(node, r.table("t").config())["shards"][0]["replicas"], ["s0", "s2"])
        self.repaired(self.first)
        self.assertEqual(ask(self.first, r.table("t").config())["shards"][0]["replicas"], ["s0"])
        self.assertEqual(ask(self.first, r.table("t").insert({"id": 100}))["inserted"], 1)

    def test_of_a_table_of_which_a_shard_has_no_majority_nothing_untrue_is_told(self):
        shards = [{"primary_replica": "s0", "replicas": ["s0"]}, {"primary_replica": "s2", "replicas": ["s2", "s1"]}]
        made = r.db("rethinkdb").table("table_config").insert({"name": "t", "db": "test", "shards": shards})
        self.assertEqual(ask(self.first, made)["inserted"], 1)
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        ask(self.first, r.table("t").index_create("n"))
        ask(self.first, r.table("t").index_wait("n"))
        third = self.cluster.nodes[2]
        third.kill()
        missed = r.db("rethinkdb").table("server_status")["name"].contains("s2")
        wait_until("the server is missed", lambda: not ask(self.first, missed))
        # Their keys are drawn, so that both shards get some.
        unavailable = "Cannot perform write: primary replica for shard .* not available"
        for node in self.cluster.alive():
            before = ask(node, outdated_count())
            with self.assertRaisesRegex(ReqlOpIndeterminateError, unavailable):
                ask(node, r.table("t").insert([{"n": n} for n in range(200)]))
            self.assertTrue(before < ask(self.first, outdated_count()) < before + 200)
            for indexes in (r.table("t").index_wait("n"), r.table("t").index_status()):
                with self.assertRaisesRegex(ReqlOpFailedError, "Cannot perform read: primary replica for shard .* not"):
                    ask(node, indexes)
        third.start()
        wait_until("a leader", lambda: ask(self.first, r.table("t").status())["status"]["ready_for_writes"])
        self.assertEqual(ask(self.first, r.table("t").index_wait("n")["ready"]), [True])

    def test_a_table_without_a_majority_is_repaired(self):
        self.replicated()
        ask(self.first, r.table("t").insert([{"id": n} for n in range(100)]))
        refused = ReqlOpFailedError
        with self.assertRaisesRegex(refused, "This table doesn't need to be repaired."):
            ask(self.first, r.table("t").reconfigure(emergency_repair="unsafe_rollback"))
        survivor = self.cluster.nodes[2]
        wait_until("every row on the survivor", lambda: ask(survivor, outdated_count()) == 100)
        self.cluster.nodes[0].kill()
        self.cluster.nodes[1].kill()
        with connect(survivor) as connection:
            repair = r.table("t").reconfigure(emergency_repair="unsafe_rollback", dry_run=True)

            def planned():
                # The other servers notice the death after a moment.
                try:
                    return repair.run(connection)
                except ReqlOpFailedError:
                    return None

            wait_until("the servers are missed", lambda: planned() is not None)
            dry = planned()
            self.assertEqual(dry["repaired"], 0)
            self.assertEqual(dry["config_changes"][0]["new_val"]["shards"][0]["replicas"], ["s2"])
            real = r.table("t").reconfigure(emergency_repair="unsafe_rollback").run(connection)
            self.assertEqual(real["repaired"], 1)
            self.assertEqual(r.table("t").insert({"id": 100}).run(connection)["inserted"], 1)
            self.assertEqual(r.table("t").count().run(connection), 101)

    def repaired(self, node, table="t"):
        """Repairs a table as soon as the death of the server is noticed."""

        def is_repaired():
            try:
                repair = r.table(table).reconfigure(emergency_repair="unsafe_rollback")
                return ask(node, repair)["repaired"] == 1
            except ReqlOpFailedError as error:
                self.assertIn("doesn't need to be repaired", error.message)
                return False

        wait_until("the repair", is_repaired)

    def test_a_repair_leaves_the_votes_to_servers_that_are_no_proxies(self):
        proxy = Proxy("--join", f"127.0.0.1:{self.first.cluster_port}", "--cache-size", "100").start()
        self.addCleanup(proxy.remove)
        self.replicated()
        ask(proxy, r.table("t").insert([{"id": n} for n in range(100)]))
        self.cluster.all_vote()
        for node in self.cluster.nodes[1:]:
            node.kill()
        self.repaired(self.first)
        self.assertEqual(ask(self.first, r.table("t").count()), 100)
        self.assertEqual(self.tell(r.db("rethinkdb").table("server_config")["name"]), ["s0"])
        self.assertEqual(ask(proxy, r.table_create("with_proxy"))["tables_created"], 1)
        self.assertEqual(proxy.stop(), 0)
        # The proxy's row was removed, and with it the warnings about it: the log must not have one.
        self.assertNotIn("The cache size", "".join(proxy.lines))
        self.assertEqual(ask(self.first, r.table_create("without"))["tables_created"], 1)

    def test_a_server_that_a_table_needs_is_removed_when_the_table_is_repaired(self):
        # A server with replicas is removed only after the table's repair: otherwise the group would wait for its vote.
        shards = [{"primary_replica": "s0", "replicas": ["s0", "s2"]}]
        made = r.db("rethinkdb").table("table_config").insert({"name": "t", "db": "test", "shards": shards})
        self.assertEqual(ask(self.first, made)["inserted"], 1)
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        ask(self.first, r.table("t").insert([{"id": n} for n in range(100)]))
        self.cluster.nodes[2].kill()
        gone = r.db("rethinkdb").table("server_config").filter({"name": "s2"}).delete()
        answers = []

        def is_missed():
            answers.append(ask(self.first, gone).get("first_error", ""))
            return "is connected" not in answers[-1]

        wait_until("the server is missed", is_missed)
        self.assertRegex(answers[-1], r"`s2` has replicas of shards of `test\.t`.*emergency_repair")
        self.assertEqual(ask(self.first, r.table("t").config())["shards"][0]["replicas"], ["s0", "s2"])
        self.repaired(self.first)
        self.assertEqual(ask(self.first, gone)["deleted"], 1)
        self.assertEqual(ask(self.first, r.table("t").insert({"id": 100}))["inserted"], 1)
        self.assertEqual(ask(self.first, r.table("t").count()), 101)

    def test_replicas_that_are_taken_away_can_be_had_again_at_once(self):
        self.replicated()
        ask(self.first, r.table("t").insert([{"id": n} for n in range(100)]))
        everywhere = [{"primary_replica": "s1", "replicas": ["s0", "s1", "s2"]}]
        for again in (r.table("t").reconfigure(shards=1, replicas=3)["reconfigured"],
                      r.table("t").config().update({"shards": everywhere})["replaced"]):
            self.assertEqual(ask(self.first, r.table("t").reconfigure(shards=1, replicas=1))["reconfigured"], 1)
            self.assertEqual(ask(self.first, again), 1)
            ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
            self.assertEqual(len(ask(self.first, r.table("t").config())["shards"][0]["replicas"]), 3)
        for node in self.cluster.nodes:
            self.assertEqual(ask(node, outdated_count()), 100)

    def test_what_one_server_makes_every_server_finds(self):
        for nth in range(20):
            ask(self.cluster.nodes[nth % 3], r.table_create(f"made{nth}"))
            for node in self.cluster.nodes:
                self.assertEqual(ask(node, r.table(f"made{nth}").count()), 0)

    def test_what_one_server_changes_every_other_can_change_on(self):
        users, config = r.db("rethinkdb").table("users"), r.table("old").config()
        for nth in range(20):
            here, there = self.cluster.nodes[nth % 3], self.cluster.nodes[(nth + 1) % 3]
            ask(here, r.table_create("t"))
            ask(there, r.table_drop("t"))
            ask(here, r.table_create("t"))
            ask(here, r.table_drop("t"))
            ask(there, r.db_create("d"))
            ask(here, r.db_drop("d"))
            ask(there, r.table_create("t"))
            ask(there, r.table("t").index_create("i"))
            ask(there, r.table("t").index_drop("i"))
            ask(here, r.table("t").index_create("i"))
            ask(there, r.table("t").index_drop("i"))
            ask(there, users.insert({"id": f"u{nth}", "password": False}))
            ask(here, r.grant(f"u{nth}", {"read": True}))
            ask(here, r.table_drop("t"))
            ask(there, r.table_create("old"))
            ask(here, config.update({"name": f"new{nth}"}))

    def test_a_write_hook_applies_to_the_next_write_of_every_leader(self):
        ask(self.first, r.table_create("t", shards=6))
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        rows = [{"id": f"{n:x}0"} for n in range(16)]
        for turn in range(20):
            hook = (lambda turn: lambda context, old, new: new.merge({"turn": turn}))(turn)
            ask(self.first, r.table("t").set_write_hook(hook))
            ask(self.first, r.table("t").insert(rows, conflict="replace") if turn % 2 else
                r.expr(rows).for_each(lambda row: r.table("t").insert(row, conflict="replace")))
            self.assertEqual(ask(self.first, r.table("t")["turn"].distinct()), [turn])
            ask(self.first, r.table("t").set_write_hook(None))
            ask(self.first, r.table("t").get("f0").replace({"id": "f0"}))
            self.assertEqual(ask(self.first, r.table("t").get("f0")), {"id": "f0"})

    def test_one_replica_is_enough_where_the_table_says_so(self):
        self.replicated()
        for node, value in zip(self.cluster.nodes, ("single", "majority", "single")):
            changed = ask(node, r.table("t").config().update({"write_acks": value, "durability": "soft"}))
            self.assertEqual(changed["errors"], 0)
            self.assertEqual(ask(self.first, r.table("t").config())["write_acks"], value)
            self.assertEqual(ask(node, r.table("t").insert({}))["inserted"], 1)

    def test_a_proxy_answers_every_query_and_is_no_server_of_the_list(self):
        proxy = Proxy("--join", f"127.0.0.1:{self.first.cluster_port}", "--server-tag", "x").start()
        self.addCleanup(proxy.remove)
        self.assertIn("--server-tag: the option has no effect: a proxy has no tags", "".join(proxy.lines))
        ask(proxy, r.table_create("t", shards=2, replicas=3))
        ask(proxy, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        ask(proxy, r.table("t").insert([{"id": n, "n": n} for n in range(1000)]))
        ask(proxy, r.table("t").get(7).update({"n": r.row["n"].add(1)}))
        self.assertEqual(ask(proxy, r.table("t").get(7)), {"id": 7, "n": 8})
        self.assertEqual(ask(proxy, r.table("t")["n"].sum()), 999 * 500 + 1)
        servers = self.tell(r.db("rethinkdb").table("server_status")["name"], proxy)
        self.assertEqual(sorted(servers), ["s0", "s1", "s2"])
        counted = self.tell(r.db("rethinkdb").table("stats").filter(lambda row: row["id"][0] == "server")["server"], proxy)
        self.assertEqual(sorted(counted), ["s0", "s1", "s2"])
        seen = self.tell(r.db("rethinkdb").table("server_status")["network"]["connected_to"].map(r.row.keys()), proxy)
        self.assertEqual({name for names in seen for name in names}, {"s0", "s1", "s2"})
        config = ask(proxy, r.table("t").config())
        self.assertTrue(all(shard["replicas"] == ["s0", "s1", "s2"] for shard in config["shards"]))
        self.assertEqual(proxy.stop(), 0)
        self.assertEqual(ask(self.first, r.table("t").count()), 1000)
        for node in self.cluster.nodes:
            book = json.loads((node.directory / "data" / "servers.json").read_text())
            self.assertLessEqual({server["name"] for server in book["servers"]}, {"s0", "s1", "s2"})

    def test_settings_are_checked_and_shown_by_every_server(self):
        for node in self.cluster.nodes:
            config = r.db("rethinkdb").table("server_config").filter({"name": "s1"})
            refused = ask(node, config.update({"cache_size_mb": 5}))
            self.assertIn("got 5", refused["first_error"])
            refused = ask(node, config.update({"cache_size_mb": 1e12}))
            self.assertRegex(refused["first_error"], "memory of server `s1` allows .*, got 1000000000000")
        heartbeat = r.db("rethinkdb").table("cluster_config").get("heartbeat")
        changed = ask(self.first, heartbeat.update({"heartbeat_timeout_secs": 1}))
        self.assertEqual(changed["first_error"], "The heartbeat timeout must be at least two seconds")
        changed = ask(self.first, heartbeat.update({"heartbeat_timeout_secs": 4}))
        self.assertEqual(changed["replaced"], 1)
        for node in self.cluster.nodes:
            wait_until("the setting", lambda: ask(node, heartbeat)["heartbeat_timeout_secs"] == 4)


def outdated_count():
    return r.table("t", read_mode="outdated").count()


class TwoServers(unittest.TestCase):
    """Two voters of the catalog: without one of them there is no majority."""

    def setUp(self):
        self.cluster = Cluster(2)
        self.addCleanup(self.cluster.remove)
        self.first, self.second = self.cluster.nodes
        self.cluster.all_vote()

    def lose_second(self):
        self.second.kill()
        issues = r.db("rethinkdb").table("current_issues").filter({"type": "catalog_availability"})
        told = []

        def is_told():
            told[:] = ask(self.first, issues.coerce_to("array"))
            return told != []

        wait_until("an issue", is_told)
        self.assertIn("`emergency_repair` on the database `rethinkdb`", told[0]["description"])
        gone = r.db("rethinkdb").table("server_config").filter({"name": "s1"}).delete()
        began = time.monotonic()
        refused = ask(self.first, gone)
        self.assertLess(time.monotonic() - began, 5)
        self.assertRegex(refused["first_error"], "because `s1` cannot be reached.*on the database `rethinkdb`")

    def is_alone(self):
        self.assertEqual(ask(self.first, r.db("rethinkdb").table("server_config")["name"].coerce_to("array")), ["s0"])
        self.assertEqual(ask(self.first, r.table_create("after"))["tables_created"], 1)
        self.assertEqual(ask(self.first, r.table("after").insert({"id": 1}))["inserted"], 1)
        with self.assertRaisesRegex(RuntimeError, "permanently removed from its cluster"):
            self.second.start()

    def test_the_configuration_lives_again_where_there_is_no_table(self):
        repair = lambda **more: r.db("rethinkdb").reconfigure(emergency_repair="unsafe_rollback", **more)
        with self.assertRaisesRegex(ReqlOpFailedError, "The configuration of the cluster doesn't need to be repaired."):
            ask(self.first, repair())
        self.lose_second()
        planned = ask(self.first, repair(dry_run=True))
        self.assertEqual(planned["repaired"], 0)
        (change,) = planned["config_changes"]
        self.assertEqual((change["old_val"]["name"], change["new_val"]), ("s1", None))
        done = ask(self.first, repair())
        self.assertEqual((done["repaired"], done["config_changes"]), (1, [change]))
        self.is_alone()

    def test_a_joining_server_that_stops_before_it_is_accepted_is_no_server(self):
        self.lose_second()
        joining = Node("--server-name", "s2", "--join", f"127.0.0.1:{self.first.cluster_port}")
        self.addCleanup(joining.remove)

        def start_in_vain():
            with contextlib.suppress(RuntimeError):
                joining.start()

        def change_in_vain(nth):
            with contextlib.suppress(ReqlError):
                ask(self.first, r.table_create(f"t{nth}"))

        # The changes wait for each other, and a joining server waits for them.
        changes = [threading.Thread(target=change_in_vain, args=(nth,)) for nth in range(4)]
        starts = threading.Thread(target=start_in_vain)
        for thread in (*changes, starts):
            thread.start()
        wait_until("a word", lambda: any("Waiting to join cluster" in line for line in joining.lines))
        joining.process.send_signal(signal.SIGTERM)
        starts.join(TIMEOUT_SECONDS)
        wait_until("its end", lambda: joining.process.poll() is not None)
        ask(self.first, r.db("rethinkdb").reconfigure(emergency_repair="unsafe_rollback"))
        for change in changes:
            change.join(TIMEOUT_SECONDS)
        self.is_alone()
        joining.start()
        servers = ask(self.first, r.db("rethinkdb").table("server_config")["name"].coerce_to("array"))
        self.assertEqual(sorted(servers), ["s0", "s2"])

    def test_a_right_on_a_table_and_writing_it_again_remove_no_server(self):
        self.replicated_on_both()
        users = r.db("rethinkdb").table("users")
        self.assertEqual(ask(self.first, users.insert({"id": "eve", "password": "x"}))["inserted"], 1)
        for scope in (r.table("t"), r.db("rethinkdb").table("server_config")):
            ask(self.first, scope.grant("eve", {"read": True, "write": True, "config": True}))
        self.lose_second()
        names = r.db("rethinkdb").table("server_config")["name"].coerce_to("array")
        with r.connect("127.0.0.1", self.first.driver_port, user="eve", password="x", timeout=20) as eve:
            for dry_run in (True, False):
                with self.assertRaisesRegex(ReqlPermissionError, "config"):
                    r.table("t").reconfigure(emergency_repair="unsafe_rollback", dry_run=dry_run).run(eve)
        with self.assertRaisesRegex(ReqlOpFailedError, "because `s1` cannot be reached"):
            ask(self.first, r.table("t").reconfigure(emergency_repair="_debug_recommit"))
        self.assertEqual(sorted(ask(self.first, names)), ["s0", "s1"])
        self.second.start()
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))
        self.assertEqual(ask(self.first, r.table("t").insert({"id": 1}))["inserted"], 1)

    def replicated_on_both(self):
        ask(self.first, r.table_create("t", replicas=2))
        ask(self.first, r.table("t").wait(timeout=TIMEOUT_SECONDS))

    def test_the_configuration_lives_again_when_a_table_is_repaired_that_needs_nothing(self):
        shards = [{"primary_replica": "s0", "replicas": ["s0"]}]
        made = r.db("rethinkdb").table("table_config").insert({"name": "t", "db": "test", "shards": shards})
        self.assertEqual(ask(self.first, made)["inserted"], 1)
        self.assertEqual(ask(self.first, r.table("t").insert({"id": 1}))["inserted"], 1)
        self.lose_second()
        repaired = ask(self.first, r.table("t").reconfigure(emergency_repair="unsafe_rollback"))
        self.assertEqual(repaired["repaired"], 1)
        self.assertEqual(ask(self.first, r.table("t").count()), 1)
        self.is_alone()


if __name__ == "__main__":
    unittest.main()
