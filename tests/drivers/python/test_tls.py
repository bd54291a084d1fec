"""TLS on the driver port and the HTTP port, with the official driver and Python's own client."""

import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlDriverError

from node import Node, node

FILES = Path(__file__).parent.parent / "tls"
DRIVER = ("--driver-tls-key", str(FILES / "server.key"), "--driver-tls-cert", str(FILES / "server.pem"))
HTTP = ("--http-tls-key", str(FILES / "server.key"), "--http-tls-cert", str(FILES / "server.pem"))
AUTHORITY = str(FILES / "authority.pem")


class DriverPort(unittest.TestCase):
    def test_a_driver_that_trusts_the_authority_is_served(self):
        with node(*DRIVER) as server:
            connection = r.connect("127.0.0.1", server.driver_port, ssl={"ca_certs": AUTHORITY})
            r.table_create("t").run(connection)
            # Several TLS records in each direction, and many small responses.
            rows = [{"id": n, "text": "x" * 5000} for n in range(2000)]
            self.assertEqual(r.table("t").insert(rows).run(connection)["inserted"], 2000)
            self.assertEqual(len(list(r.table("t").run(connection))), 2000)
            for n in range(200):
                self.assertEqual(r.table("t").get(n)["id"].run(connection), n)

    def test_a_driver_without_tls_is_rejected_and_disturbs_no_other(self):
        with node(*DRIVER) as server:
            with self.assertRaises(ReqlDriverError):
                r.connect("127.0.0.1", server.driver_port, timeout=15)
            silent = socket.create_connection(("127.0.0.1", server.driver_port))
            with r.connect("127.0.0.1", server.driver_port, ssl={"ca_certs": AUTHORITY}) as connection:
                self.assertEqual(r.expr(1).run(connection), 1)
            silent.close()

    def test_with_an_authority_clients_must_show_a_certificate(self):
        with node(*DRIVER, "--driver-tls-ca", AUTHORITY) as server:
            with self.assertRaises((ReqlDriverError, OSError)):
                r.connect("127.0.0.1", server.driver_port, ssl={"ca_certs": AUTHORITY}, timeout=15)
            context = ssl.create_default_context(cafile=AUTHORITY)
            context.load_cert_chain(FILES / "client.pem", FILES / "client.key")
            with socket.create_connection(("127.0.0.1", server.driver_port)) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
                    encrypted.sendall((0x34C2BDC3).to_bytes(4, "little"))
                    self.assertTrue(encrypted.recv(4096).startswith(b'{"max_protocol_version"'))

    def test_versions_1_2_and_1_3_are_spoken(self):
        with node(*DRIVER) as server:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = ssl.create_default_context(cafile=AUTHORITY)
                context.minimum_version = context.maximum_version = version
                with socket.create_connection(("127.0.0.1", server.driver_port)) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
                        self.assertEqual(encrypted.version().replace(".", "_"), version.name)


class HttpPort(unittest.TestCase):
    def test_pages_are_served_encrypted_only(self):
        with node(*HTTP) as server:
            context = ssl.create_default_context(cafile=AUTHORITY)
            url = f"https://localhost:{server.http_port}/health"
            silent = socket.create_connection(("127.0.0.1", server.http_port))
            with urllib.request.urlopen(url, context=context) as answer:
                self.assertEqual(answer.status, 200)
            silent.close()
            with self.assertRaises((http.client.HTTPException, OSError)):
                urllib.request.urlopen(f"http://localhost:{server.http_port}/health")


def certificate(folder, *extensions):
    """A key and a self-signed certificate, created as in RethinkDB's documentation."""
    key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
    made = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    subprocess.run([*made, "-subj", "/CN=cluster", "-days", "3650", *extensions], check=True, capture_output=True)
    return key, certificate


class ClusterPort(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rekindle-tls-"))
        self.addCleanup(shutil.rmtree, self.folder)
        key, chain = certificate(self.folder)
        self.tls = "--cluster-tls-key", key, "--cluster-tls-cert", chain, "--cluster-tls-ca", chain

    def test_one_certificate_that_all_servers_use_and_trust_is_enough(self):
        with node(*self.tls) as first, node("--join", f"127.0.0.1:{first.cluster_port}", *self.tls) as second:
            with r.connect("127.0.0.1", second.driver_port) as connection:
                r.table_create("t", replicas=2).run(connection)
                self.assertEqual(r.table("t").insert({}).run(connection)["inserted"], 1)

    def test_a_driver_may_show_the_certificate_that_is_trusted(self):
        key, chain = self.tls[1], self.tls[3]
        with node(*DRIVER, "--driver-tls-ca", chain) as server:
            context = ssl.create_default_context(cafile=AUTHORITY)
            context.load_cert_chain(chain, key)
            with socket.create_connection(("127.0.0.1", server.driver_port)) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
                    encrypted.sendall((0x34C2BDC3).to_bytes(4, "little"))
                    self.assertTrue(encrypted.recv(4096).startswith(b'{"max_protocol_version"'))

    def test_both_sides_say_that_only_one_uses_tls(self):
        for first_tls, second_tls in ((self.tls, ()), ((), self.tls)):
            with node(*first_tls) as first:
                second = Node("--join", f"127.0.0.1:{first.cluster_port}", *second_tls)
                self.addCleanup(second.remove)
                threading.Thread(target=self.start_in_vain, args=(second,), daemon=True).start()
                clear, sealed = (second, first) if first_tls else (first, second)
                self.eventually(clear, "the other side uses TLS and this one does not")
                self.eventually(sealed, "does not use TLS, but this side does")
                time.sleep(5)
                for server in (clear, sealed):
                    told = [line for line in server.lines if "does not" in line]
                    self.assertEqual(len(told), 1, server.lines)
                second.kill()

    def test_a_certificate_that_is_not_trusted_is_told_on_both_sides_in_plain_words(self):
        folder = self.folder / "other"
        folder.mkdir()
        key, chain = certificate(folder)
        with node(*self.tls) as first:
            other = "--cluster-tls-key", key, "--cluster-tls-cert", chain, "--cluster-tls-ca", chain
            second = Node("--join", f"127.0.0.1:{first.cluster_port}", *other)
            self.addCleanup(second.remove)
            threading.Thread(target=self.start_in_vain, args=(second,), daemon=True).start()
            plain = "the certificate of the other side is neither in --cluster-tls-ca nor signed by one that is"
            self.eventually(second, plain)
            self.eventually(first, "the other side does not trust the certificate of this one")

    def start_in_vain(self, server):
        with contextlib.suppress(RuntimeError):
            server.start()

    def eventually(self, server, text):
        end = time.monotonic() + 30
        while not any(text in line for line in server.lines):
            self.assertLess(time.monotonic(), end, f"{text}: {server.lines}")
            time.sleep(0.1)


class Refused(unittest.TestCase):
    def test_files_that_cannot_be_used_are_named_at_the_start(self):
        missing = str(FILES / "nothing.pem")
        server = Node("--driver-tls-key", str(FILES / "server.key"), "--driver-tls-cert", missing)
        self.addCleanup(server.remove)
        with self.assertRaises(RuntimeError) as raised:
            server.start()
        self.assertIn("TLS of the driver port, --driver-tls-cert: ", str(raised.exception))
        self.assertIn("nothing.pem", str(raised.exception))
