"""Changefeeds on three servers: a feed through a server that stays goes on, without a gap or a repeat, when leaders die and
tables are resharded; a feed through a server that dies is resumed by token on another."""

import contextlib
import threading
import time
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlOpFailedError, ReqlTimeoutError

from test_cluster import Cluster, ask, connect, wait_until

DOCUMENTS = 40
# Ten, with tolerance for a busy machine.
END_SECONDS_MAX = 20


class Reader(threading.Thread):
    """Reads a feed of the whole table and checks that each change follows the last one of its document."""

    def __init__(self, nodes, table):
        super().__init__()
        self.nodes, self.table = nodes, table
        self.known, self.received, self.resumed, self.error = {}, 0, 0, None
        self.token = None
        self.done = False

    def run(self):
        while not self.done:
            try:
                self.follow(self.nodes[self.resumed % len(self.nodes)])
            except ReqlError as error:
                self.resumed += 1
                if self.resumed > 100:
                    self.error = error
                    return
            except AssertionError as error:
                self.error = error
                return

    def follow(self, node):
        options = {"include_resume_token": True}
        options |= {"resume_after": self.token} if self.token else {"include_initial": True}
        with connect(node) as connection:
            for element in self.table.changes(**options).run(connection):
                self.take(element)
                if self.done:
                    return

    def take(self, element):
        old, new = element.get("old_val"), element["new_val"]
        key = (new or old)["id"]
        assert self.known.get(key) == old, f"{self.known.get(key)} is followed by a change from {old}"
        if new and new.get("end"):
            self.done = True
            return
        self.known[key] = new
        self.received += 1
        self.token = element["resume_token"]


class Writer(threading.Thread):
    """Changes documents until it is stopped, through servers that may die."""

    def __init__(self, nodes, table, seed):
        super().__init__()
        self.nodes, self.table, self.seed = nodes, table, seed
        self.stopped, self.acknowledged = threading.Event(), 0

    def run(self):
        n = self.seed
        while not self.stopped.is_set():
            try:
                with connect(self.nodes[n % len(self.nodes)]) as connection:
                    while not self.stopped.is_set():
                        n += 1
                        key = (n * 7919 + self.seed) % DOCUMENTS
                        change = r.branch(
                            r.expr(n % 5 == 0), None, {"id": key, "n": r.row["n"].default(0) + 1, "by": self.seed}
                        )
                        self.table.get(key).replace(change).run(connection)
                        self.acknowledged += 1
            except ReqlError:
                n += 1


class ThreeServers(unittest.TestCase):
    def test_feeds_survive_leaders_reshards_and_their_own_server(self):
        cluster = Cluster(3)
        self.addCleanup(lambda: [node.remove() for node in cluster.nodes])
        cluster.all_vote()
        first = cluster.nodes[0]
        ask(first, r.table_create("t", shards=2, replicas=3))
        ask(first, r.table("t").wait())
        table = r.table("t")
        writers = [Writer(cluster.nodes, table, seed) for seed in range(2)]
        # One feed stays on the first server, which is never killed; the other goes round.
        stays, moves = Reader([first], table), Reader(cluster.nodes[1:], table)
        for thread in [stays, moves, *writers]:
            thread.start()
        wait_until("changes arrive", lambda: min(stays.received, moves.received) > 200)
        for round in range(2):
            for node in cluster.nodes[1:]:
                before = stays.received
                node.kill()
                node.start()
                wait_until("the feed goes on", lambda: stays.received > before + 200 or stays.error)
            ask(first, table.wait(timeout=60))
            ask(first, table.reconfigure(shards=[3, 1][round], replicas=3))
            ask(first, table.wait(timeout=60))
            before = stays.received
            wait_until("the feed goes on", lambda: stays.received > before + 200 or stays.error)
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.join()
        ask(first, table.wait(timeout=60))
        ask(first, table.insert({"id": "end", "end": True}))
        rows = {row["id"]: row for row in ask(first, table.coerce_to("array")) if row["id"] != "end"}
        for reader in [stays, moves]:
            reader.join(timeout=60)
            self.assertIsNone(reader.error)
            self.assertTrue(reader.done)
            self.assertEqual({key: row for key, row in reader.known.items() if row}, rows)
        self.assertEqual(stays.resumed, 0)
        self.assertGreater(moves.resumed, 0)

    def test_feeds_end_soon_when_a_shard_has_no_majority(self):
        cluster = Cluster(3)
        self.addCleanup(lambda: [node.remove() for node in cluster.nodes])
        cluster.all_vote()
        first, table = cluster.nodes[0], r.table("t")
        ask(first, r.table_create("t", replicas=3))
        ask(first, table.index_create("n"))
        ask(first, table.index_wait())
        ask(first, table.insert([{"id": id, "n": id} for id in range(1000)]))
        views = [table.order_by(index="n").limit(5), table.min("n"), table.eq_join("n", table), table]
        feeds = []
        for view in views:
            connection = connect(first)
            self.addCleanup(connection.close, noreply_wait=False)
            feeds.append(view.changes().run(connection))
        # Changes wait, for which the first two read rows again many times.
        ask(first, table.between(0, 400).delete())
        for node in cluster.nodes[1:]:
            node.kill()
        began = time.monotonic()
        for view, feed in zip(views, feeds):
            with self.assertRaisesRegex(ReqlOpFailedError, "Cannot follow the changes of table `test.t`"):
                while time.monotonic() < began + END_SECONDS_MAX:
                    with contextlib.suppress(ReqlTimeoutError):
                        feed.next(wait=1)
                self.fail(f"{view} has not ended")
            self.assertLess(time.monotonic() - began, END_SECONDS_MAX)


if __name__ == "__main__":
    unittest.main()
