"""Connections: reconnecting after a restart, users, asyncio, limits, and refused connections."""

import asyncio
import json
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from rethinkdb import RethinkDB, r
from rethinkdb.errors import ReqlAuthError, ReqlDriverError

from node import Node, node, program

MAGIC_V1_0 = 0x34C2BDC3
MAGIC_V0_4 = 0x400C2D20
WIRE_JSON = 0x7E6970C7
# After this time without a response, Linux acknowledges by a separate packet.
ACKNOWLEDGED_SECONDS = 0.04


class Restart(unittest.TestCase):
    def test_acknowledged_documents_survive_kill_9_and_the_driver_reconnects(self):
        with node() as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("t").run(connection)
            r.table("t").insert([{"id": n} for n in range(1000)]).run(connection)
            r.table("t").insert({"id": "soft"}, durability="soft").run(connection)
            server.kill()
            with self.assertRaises(ReqlDriverError):
                r.table("t").count().run(connection)
            server.start()
            connection.reconnect(noreply_wait=False)
            self.assertEqual(r.table("t").count().run(connection), 1001)
            self.assertEqual(r.table("t").get("soft").run(connection), {"id": "soft"})

    def test_a_polite_stop_leaves_with_status_zero_and_loses_nothing(self):
        with node() as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("t").run(connection)
            r.table("t").insert({"id": 1}, durability="soft").run(connection)
            self.assertEqual(server.stop(), 0)
            server.start()
            connection = r.connect("127.0.0.1", server.driver_port)
            self.assertEqual(r.table("t").count().run(connection), 1)


class Doors(unittest.TestCase):
    def test_a_password_is_asked_for(self):
        with node("--initial-password", "secret") as server:
            with self.assertRaises(ReqlAuthError) as caught:
                r.connect("127.0.0.1", server.driver_port)
            self.assertIn("Wrong password", caught.exception.message)
            with self.assertRaises(ReqlAuthError) as caught:
                r.connect("127.0.0.1", server.driver_port, user="nobody")
            self.assertIn("Unknown user", caught.exception.message)
            connection = r.connect("127.0.0.1", server.driver_port, password="secret")
            self.assertEqual(r.expr(1).run(connection), 1)

    def test_other_addresses_need_a_password(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [program(), "--directory", f"{folder}/data", "--bind", "all", "--no-http-admin", "--driver-port", "0"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("--initial-password", done.stdout + done.stderr)

    def test_no_driver_connects_before_the_password_is_known(self):
        with node() as server:
            server.kill()
            ports = [server.driver_port, server.http_port, server.cluster_port]
            names = ("--driver-port", "--http-port", "--cluster-port")
            command = [program(), *server.place(), "--bind", "all"]
            command += [word for name, port in zip(names, ports) for word in (name, str(port))]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            reached = set()
            while process.poll() is None:
                for port in ports:
                    with socket.socket() as knocking:
                        if knocking.connect_ex(("127.0.0.1", port)) == 0:
                            reached.add(port)
            self.assertIn("--initial-password", process.communicate()[0])
            self.assertNotEqual(process.returncode, 0)
            self.assertEqual(reached, set())

    def test_a_password_that_is_known_lets_others_connect_again(self):
        with node("--initial-password", "secret") as server:
            server.kill()
            server.flags = ("--bind", "all")
            server.start()
            self.assertEqual(server.health()[0], 200)
            with r.connect(port=server.driver_port, password="secret") as connection:
                self.assertEqual(r.expr(1).run(connection), 1)

    def test_tags_are_those_of_the_first_start_and_others_are_ignored_aloud(self):
        with node("--server-tag", "a") as server:
            tags = r.db("rethinkdb").table("server_config").nth(0)["tags"]
            for flags, said in ((("--server-tag", "b"), True), (("--server-tag", "a"), False), ((), False)):
                server.stop()
                server.flags = flags
                server.start()
                with r.connect(port=server.driver_port) as connection:
                    self.assertEqual(sorted(tags.run(connection)), ["a", "default"])
                ignored = [line for line in server.lines if "Ignoring --server-tag" in line]
                self.assertEqual(len(ignored), said, server.lines)
            server.stop()
            server.flags = ("-t", "b", "-t", "c")
            server.start()
            expected = "Ignoring --server-tag b --server-tag c: this server has the tags a, default; change them in rethinkdb.server_config"
            self.assertTrue(any(expected in line for line in server.lines), server.lines)

    def test_a_second_process_on_the_same_folder_is_refused(self):
        with node() as server:
            command = [program(), "--directory", str(server.directory / "data"), "--driver-port", "0", "--no-http-admin"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(server.directory / "data"), done.stdout + done.stderr)

    def test_a_folder_that_lost_a_part_is_refused(self):
        for part, what in (("log", "the folder `log`"), ("identity.json", "the file `identity.json`")):
            with node() as server:
                with r.connect(port=server.driver_port) as connection:
                    r.table_create("t").run(connection)
                    r.table("t").insert({"id": 1}).run(connection)
                server.kill()
                kept, away = server.directory / "data" / part, server.directory / "away"
                kept.rename(away)
                with self.assertRaisesRegex(RuntimeError, f"is incomplete: {what} is missing"):
                    server.start()
                away.rename(kept)
                server.start()
                with r.connect(port=server.driver_port) as connection:
                    self.assertEqual(r.table("t").count().run(connection), 1)

    def test_garbage_on_one_connection_harms_no_other(self):
        with node() as server:
            good = r.connect("127.0.0.1", server.driver_port)
            for bytes_sent in [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, struct.pack("<I", MAGIC_V1_0) + b"{\0"]:
                with socket.create_connection(("127.0.0.1", server.driver_port), timeout=10) as bad:
                    bad.sendall(bytes_sent)
                    while bad.recv(4096):
                        pass
            self.assertEqual(r.expr(1).run(good), 1)


class Packets(unittest.TestCase):
    def test_a_query_after_a_slow_one_is_acknowledged_with_its_answer(self):
        """Linux would acknowledge it with a separate packet, because the slow query had no response for that time."""
        with node() as server, r.connect(port=server.driver_port) as connection:
            numbers = 50_000
            while self.seconds(connection, numbers) < 0.1:
                numbers *= 2
            # A response that is late because the machine is busy proves nothing.
            soon = []
            for _ in range(200):
                if len(soon) == 20:
                    break
                self.seconds(connection, numbers)
                before, began = acknowledgements(connection), time.monotonic()
                self.assertEqual(r.expr(1).run(connection), 1)
                alone = acknowledgements(connection) - before
                if time.monotonic() - began < ACKNOWLEDGED_SECONDS / 2:
                    soon.append(alone)
            self.assertEqual(len(soon), 20, "the machine is too slow to tell")
            self.assertLess(sum(soon), 7, soon)

    def seconds(self, connection, numbers):
        began = time.monotonic()
        r.range(numbers).map(lambda number: number.mul(2)).sum().run(connection)
        return time.monotonic() - began


def acknowledgements(connection):
    """The empty packets received from the server, by the kernel's struct tcp_info."""
    info = connection._instance._socket._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    all_in, with_data = struct.unpack_from("=I", info, 140), struct.unpack_from("=I", info, 152)
    return all_in[0] - with_data[0]


class OldProtocol(unittest.TestCase):
    def test_v0_4_answers_queries(self):
        with node() as server, socket.create_connection(("127.0.0.1", server.driver_port), timeout=10) as raw:
            raw.sendall(struct.pack("<III", MAGIC_V0_4, 0, WIRE_JSON))
            self.assertEqual(raw.recv(64), b"SUCCESS\0")
            body = b"[1,[24,[1,2]],{}]"
            raw.sendall(struct.pack("<QI", 7, len(body)) + body)
            token, length = struct.unpack("<QI", raw.recv(12, socket.MSG_WAITALL))
            self.assertEqual(token, 7)
            answer = json.loads(raw.recv(length, socket.MSG_WAITALL))
            self.assertEqual((answer["t"], answer["r"]), (1, [3]))


class AsyncDriver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node().start()

    @classmethod
    def tearDownClass(cls):
        cls.node.remove()

    def test_many_queries_in_flight_on_one_connection(self):
        asyncio.run(self.many_queries())

    async def many_queries(self):
        rdb = RethinkDB()
        rdb.set_loop_type("asyncio")
        connection = await rdb.connect("127.0.0.1", self.node.driver_port)
        await rdb.table_create("async").run(connection)
        await asyncio.gather(*(rdb.table("async").insert({"id": n}).run(connection) for n in range(200)))
        rows = await asyncio.gather(*(rdb.table("async").get(n).run(connection) for n in range(200)))
        self.assertEqual([row["id"] for row in rows], list(range(200)))
        cursor = await rdb.table("async").run(connection, max_batch_rows=7)
        seen = set()
        while await cursor.fetch_next():
            seen.add((await cursor.next())["id"])
        self.assertEqual(seen, set(range(200)))
        await connection.close()


class Http(unittest.TestCase):
    def test_health_metrics_and_the_front_page(self):
        with node() as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.expr(1).run(connection)
            self.assertEqual(server.health()[0], 200)
            status, metrics = server.http("/metrics")
            self.assertEqual(status, 200)
            self.assertTrue(metrics.rstrip().endswith("# EOF"))
            self.assertIn("log_fsyncs", metrics)
            self.assertIn("rekindle", server.http("/")[1].lower())


if __name__ == "__main__":
    unittest.main()
