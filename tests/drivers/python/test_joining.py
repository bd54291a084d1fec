"""Bootstrap and joining: clusters of new servers, a server that waits for a majority, and the messages meanwhile."""

import contextlib
import itertools
import json
import signal
import socket
import threading
import unittest

from rethinkdb import r

from node import Node, Proxy
from test_cluster import TIMEOUT_SECONDS, Cluster, ask, wait_until


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class JoiningServers(unittest.TestCase):
    """Servers that start with the same options."""

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
            thread.join(TIMEOUT_SECONDS)
        return nodes

    def test_three_servers_that_are_told_to_join_all_three_make_one_cluster(self):
        ports = [free_port() for _ in range(3)]
        nodes = self.start(ports, ports)
        for node in nodes:
            wait_until("three servers", lambda: ask(node, r.db("rethinkdb").table("server_status").count()) == 3)
        ask(nodes[0], r.table_create("t", replicas=3))
        ask(nodes[1], r.table("t").wait(timeout=TIMEOUT_SECONDS))
        told = ["".join(node.lines) for node in nodes]
        self.assertEqual(sum("Made cluster" in text for text in told), 1, told)
        self.assertEqual(sum("Joined cluster" in text for text in told), 2, told)
        for trouble in ("neither server", "joins only a server"):
            self.assertFalse(any(trouble in text for text in told), told)
        # It is the same cluster after a restart of all servers.
        for node in nodes:
            node.stop()
        threads = [threading.Thread(target=node.start) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_SECONDS)
        wait_until("three again", lambda: ask(nodes[2], r.db("rethinkdb").table("server_status").count()) == 3)
        self.assertEqual(ask(nodes[2], r.table("t").count()), 0)

    def test_a_server_that_joins_gives_a_password_and_a_proxy_does_not(self):
        first, *_ = self.start([free_port()], [])
        wanted = ["--join", f"127.0.0.1:{first.cluster_port}", "--initial-password", "of the one who joins"]
        proxy = Proxy(*wanted)
        self.addCleanup(proxy.remove)
        proxy.start()
        for node in (first, proxy):
            self.assertEqual(ask(node, r.expr(1)), 1)
        second = Node("--server-name", "second", *wanted)
        self.addCleanup(second.remove)
        second.start()

        def is_refused():
            try:
                r.connect(port=first.driver_port).close()
            except r.ReqlAuthError:
                return True
            return False

        wait_until("a password", is_refused)
        r.connect(port=first.driver_port, password="of the one who joins").close()
        self.assertTrue(any("password" in line for line in second.lines), second.lines)

    def test_two_servers_of_one_name_can_be_told_apart(self):
        first, *_ = self.start([free_port()], [])
        ask(first, r.table_create("t"))
        twin = Node("--server-name", "s0", "--join", f"127.0.0.1:{first.cluster_port}")
        self.addCleanup(twin.remove)
        twin.start()
        servers, tables = (r.db("rethinkdb").table(name) for name in ("server_config", "table_config"))
        wait_until("two servers", lambda: ask(first, servers.count()) == 2)
        issues = r.db("rethinkdb").table("current_issues")
        wait_until("the issue", lambda: ask(first, issues["type"].contains("server_name_collision")))
        # Writes without regard to servers succeed, and the name of a replica refers to that replica.
        config = tables.filter({"name": "t"})
        self.assertEqual(ask(first, config.update({"durability": "soft"})["replaced"]), 1)
        places = {"shards": [{"primary_replica": "s0", "replicas": ["s0"]}]}
        self.assertEqual(ask(first, config.update({"durability": "hard"} | places)["replaced"]), 1)
        new = {"name": "u", "db": "test"} | places
        refused = ask(first, tables.insert(new))["first_error"]
        self.assertIn("Server `s0` is ambiguous; there are multiple servers with that name.", refused)
        # Its other settings can be changed; its name only by its id.
        status = r.db("rethinkdb").table("server_status")
        of_twin = status.filter(r.row["process"]["pid"] == twin.process.pid)
        twin_id = ask(twin, of_twin.nth(0)["id"])
        self.assertEqual(ask(first, servers.get(twin_id).update({"tags": ["default", "b"]})["replaced"]), 1)
        self.assertEqual(ask(first, servers.get(twin_id).update({"name": "twin"})["replaced"]), 1)
        self.assertEqual(ask(first, tables.insert(new)["inserted"]), 1)
        self.assertEqual(ask(first, tables.filter({"name": "u"}).nth(0)["shards"][0]["replicas"]), ["s0"])

    def begin(self, name, port, *flags):
        """Starts a server that may wait without a limit."""
        node = Node("--server-name", name, *flags)
        self.addCleanup(node.remove)
        node.cluster_port = port

        def start():
            with contextlib.suppress(RuntimeError):
                node.start()

        threading.Thread(target=start, daemon=True).start()
        return node

    def eventually(self, node, text):
        wait_until(text, lambda: any(text in line for line in node.lines))

    def test_a_server_that_is_told_to_join_only_itself_waits_and_says_so(self):
        port = free_port()
        node = self.begin("s0", port, "--join", f"127.0.0.1:{port}")
        self.eventually(node, "--join names only this one itself")
        self.assertFalse(any("Made cluster" in line for line in node.lines), node.lines)

    def test_servers_behind_one_address_make_no_cluster_until_one_is_started_without_join(self):
        ports = [free_port() for _ in range(3)]
        front = Front(ports)
        self.addCleanup(front.close)
        nodes = [self.begin(f"s{n}", port, "--join", f"127.0.0.1:{front.port}") for n, port in enumerate(ports[:2])]
        for node in nodes:
            self.eventually(node, f"--join 127.0.0.1:{front.port} is ")
            self.assertFalse(any("Made cluster" in line for line in node.lines), node.lines)
        self.begin("s2", ports[2])
        for node in nodes:
            self.eventually(node, "Joined cluster")

    def test_an_address_that_a_server_does_not_listen_on_may_be_its_canonical_one(self):
        ports = [free_port() for _ in range(2)]
        # Debian's address for the name of the machine, on which the server does not listen.
        join = ["--join", f"127.0.1.1:{ports[0]}", "--join", f"127.0.0.1:{ports[1]}"]
        second = self.begin("s1", ports[1], "--join", f"127.0.0.1:{ports[0]}")
        first = self.begin("s0", ports[0], *join)
        self.eventually(first, f"missing: 127.0.1.1:{ports[0]} (if that is this server itself")
        first.process.send_signal(signal.SIGTERM)
        first.process.wait(5)
        first = self.begin("s0", ports[0], *join, "--canonical-address", f"127.0.1.1:{ports[0]}")
        for node in (first, second):
            self.eventually(node, "Server ready")


class Front(threading.Thread):
    """An address of several servers: each connection goes to the next server that is up."""

    def __init__(self, ports):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.ports = itertools.cycle(ports)
        self.count = len(ports)
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.socket.accept()
                for port in itertools.islice(self.ports, self.count):
                    with contextlib.suppress(OSError):
                        far = socket.create_connection(("127.0.0.1", port))
                        for ends in ((near, far), (far, near)):
                            threading.Thread(target=self.pump, args=ends, daemon=True).start()
                        break
                else:
                    near.close()

    @staticmethod
    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()


class TwoServers(unittest.TestCase):
    def test_a_joining_server_that_was_removed_before_it_knew_its_identity_ends_and_says_so(self):
        cluster = Cluster(3)
        self.addCleanup(cluster.remove)
        first, _, third = cluster.nodes
        third.stop()
        removal = r.db("rethinkdb").table("server_config").filter({"name": "s2"}).delete()["deleted"]
        wait_until("its removal", lambda: ask(first, removal) == 1)
        # The state that it stores between its request to join and the response. The checksum is that of another state.
        identity = third.directory / "data" / "identity.json"
        kept = json.loads(identity.read_text())
        del kept["checksum"]
        identity.write_text(json.dumps({**kept, "joined": "0"}))
        with self.assertRaisesRegex(RuntimeError, "permanently removed from its cluster; a server with a new data directory can"):
            third.start()

    def start_in_vain(self, node):
        with contextlib.suppress(RuntimeError):
            node.start()

    def test_a_catalog_without_a_majority_is_reported_and_a_joining_server_names_what_it_waits_for(self):
        cluster = Cluster(2)
        self.addCleanup(cluster.remove)
        first, second = cluster.nodes
        issues = r.db("rethinkdb").table("current_issues").coerce_to("array")
        wait_until("two voters", lambda: any("was promoted to voter" in line for line in first.lines))
        self.assertEqual(ask(first, issues), [])
        second.kill()
        wait_until("an issue", lambda: ask(first, issues) != [])
        (issue,) = ask(first, issues)
        self.assertEqual((issue["type"], issue["critical"]), ("catalog_availability", True))
        self.assertEqual(issue["info"]["servers"], ["s1"])
        self.assertIn("1 of the 2 voting servers is not connected: `s1`.", issue["description"])
        third = Node("--server-name", "s2", "--join", f"127.0.0.1:{first.cluster_port}")
        self.addCleanup(third.remove)
        starts = threading.Thread(target=self.start_in_vain, args=(third,))
        starts.start()
        wait_until("a word", lambda: any("Waiting to join cluster" in line for line in third.lines))
        self.assertFalse(any("Joined cluster" in line for line in third.lines), third.lines)
        # It waits without a limit until it is stopped.
        third.process.send_signal(signal.SIGTERM)
        third.process.wait(5)
        starts.join(TIMEOUT_SECONDS)
        starts = threading.Thread(target=third.start)
        starts.start()
        wait_until("a word", lambda: any("Waiting to join cluster" in line for line in third.lines))
        second.start()
        starts.join(TIMEOUT_SECONDS)
        lines = [line for line in third.lines if line.startswith(("Found", "Waiting", "Joined", "Looking"))]
        self.assertIn("Joined cluster", lines[-1], lines)
        self.assertLess(sum(line.startswith("Waiting") for line in lines), 3, lines)
        wait_until("no issues", lambda: ask(first, issues) == [])
        second.stop()
        third_hears = lambda: [line for line in third.lines if "isconnected from server \"s1\"" in line]
        wait_until("the end of the link", third_hears)
        self.assertEqual(len(third_hears()), 1)


if __name__ == "__main__":
    unittest.main()
