"""How servers become a cluster: all of them new, one that waits for a majority, and what they say meanwhile."""

import socket
import threading
import unittest

from rethinkdb import r

from node import Node
from test_cluster import PATIENCE_SECONDS, Cluster, ask, wait_until


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Newcomers(unittest.TestCase):
    """Servers that are all started in the same way."""

    def start(self, ports, join):
        """Starts a server on each of the ports, all at once, and returns when all are ready."""
        flags = [flag for port in join for flag in ("--join", f"127.0.0.1:{port}")]
        nodes = [Node("--server-name", f"s{nth}", *flags) for nth in range(len(ports))]
        for node, port in zip(nodes, ports):
            self.addCleanup(node.remove)
            node.cluster_port = port
        threads = [threading.Thread(target=node.start) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        return nodes

    def test_three_servers_that_are_told_to_join_all_three_make_one_cluster(self):
        ports = [free_port() for _ in range(3)]
        nodes = self.start(ports, ports)
        for node in nodes:
            wait_until("three servers", lambda: ask(node, r.db("rethinkdb").table("server_status").count()) == 3)
        ask(nodes[0], r.table_create("t", replicas=3))
        ask(nodes[1], r.table("t").wait(timeout=PATIENCE_SECONDS))
        told = ["".join(node.lines) for node in nodes]
        self.assertEqual(sum("Made cluster" in text for text in told), 1, told)
        self.assertEqual(sum("Joined cluster" in text for text in told), 2, told)
        self.assertFalse(any("neither server" in text for text in told), told)
        # It is the same cluster after all have been away.
        for node in nodes:
            node.stop()
        threads = [threading.Thread(target=node.start) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        wait_until("three again", lambda: ask(nodes[2], r.db("rethinkdb").table("server_status").count()) == 3)
        self.assertEqual(ask(nodes[2], r.table("t").count()), 0)

    def test_a_server_that_is_told_to_join_itself_makes_a_cluster(self):
        port = free_port()
        (node,) = self.start([port], [port])
        ask(node, r.table_create("t"))
        self.assertIn("Made cluster", "".join(node.lines))


class TwoServers(unittest.TestCase):
    def test_a_catalog_without_a_majority_is_told_and_a_newcomer_says_what_it_waits_for(self):
        cluster = Cluster(2)
        self.addCleanup(cluster.remove)
        first, second = cluster.nodes
        issues = r.db("rethinkdb").table("current_issues").coerce_to("array")
        wait_until("two voters", lambda: any("votes from now on" in line for line in first.lines))
        self.assertEqual(ask(first, issues), [])
        second.kill()
        wait_until("an issue", lambda: ask(first, issues) != [])
        (issue,) = ask(first, issues)
        self.assertEqual((issue["type"], issue["critical"]), ("catalog_availability", True))
        self.assertEqual(issue["info"]["servers"], ["s1"])
        self.assertIn("Of 2 are not connected: `s1`.", issue["description"])
        third = Node("--server-name", "s2", "--join", f"127.0.0.1:{first.cluster_port}")
        self.addCleanup(third.remove)
        starts = threading.Thread(target=third.start)
        starts.start()
        wait_until("a word", lambda: any("Waiting to be let into cluster" in line for line in third.lines))
        self.assertFalse(any("Joined cluster" in line for line in third.lines), third.lines)
        second.start()
        starts.join(PATIENCE_SECONDS)
        lines = [line for line in third.lines if line.startswith(("Found", "Waiting", "Joined", "Looking"))]
        self.assertIn("Joined cluster", lines[-1], lines)
        wait_until("no issues", lambda: ask(first, issues) == [])
        second.stop()
        third_hears = lambda: [line for line in third.lines if "isconnected from server \"s1\"" in line]
        wait_until("the end of the link", third_hears)
        self.assertEqual(len(third_hears()), 1)


if __name__ == "__main__":
    unittest.main()
