"""`r.http` through the official Python driver, against a small web server of this process."""

import base64
import contextlib
import gzip
import hashlib
import http.server
import json
import threading
import time
import unittest
from urllib.parse import parse_qs, urlsplit

from rethinkdb import r
from rethinkdb.errors import ReqlNonExistenceError, ReqlQueryLogicError, ReqlRuntimeError

from node import Node

STOP_SECONDS_MAX = 5
BODY_BYTES_MAX = 64 << 20


class Pages(http.server.BaseHTTPRequestHandler):
    """The responses of the server, by path."""

    protocol_version = "HTTP/1.1"
    flaky_left = 0
    release = threading.Event()

    def handle_any(self):
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.query = parse_qs(url.query, keep_blank_values=True)
        page = getattr(self, "page_" + url.path.strip("/").split("/")[0], None)
        if page is None:
            return self.answer(b"not here", status=404, kind="text/plain")
        return page(*url.path.strip("/").split("/")[1:])

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, kind="application/json", headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value, **options):
        self.answer(json.dumps(value).encode(), **options)

    def page_echo(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.json({"method": self.command, "query": self.query, "headers": headers, "body": self.body.decode()})

    def page_redirect(self, count):
        to = "/echo" if int(count) <= 1 else f"/redirect/{int(count) - 1}"
        self.answer(b"", status=302, headers=[("Location", to)])

    def page_keep(self):
        self.answer(b"", status=307, headers=[("Location", "/echo")])

    def page_away(self):
        self.answer(b"", status=302, headers=[("Location", "file:///etc/passwd")])

    def page_gzip(self):
        self.answer(gzip.compress(b'{"packed": true}'), headers=[("Content-Encoding", "gzip")])

    def page_bomb(self):
        self.answer(gzip.compress(b" " * (BODY_BYTES_MAX + 1)), headers=[("Content-Encoding", "gzip")])

    def page_flaky(self, failures):
        cls = type(self)
        cls.flaky_left = int(failures) if cls.flaky_left == 0 else cls.flaky_left - 1
        self.json({"left": cls.flaky_left}, status=503 if cls.flaky_left else 200)

    def page_slow(self):
        type(self).release.wait(60)
        # The client has disconnected by then.
        with contextlib.suppress(ConnectionError):
            self.json("late")

    def page_cut(self):
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"abc")
        self.close_connection = True

    def page_basic(self):
        expected = "Basic " + base64.b64encode(b"ada:secret").decode()
        if self.headers.get("Authorization") != expected:
            return self.answer(b"", status=401, headers=[("WWW-Authenticate", "Basic")])
        return self.json({"authenticated": True})

    def page_digest(self):
        def md5(*parts):
            return hashlib.md5(":".join(parts).encode()).hexdigest()

        given = self.headers.get("Authorization", "")
        if given.startswith("Digest "):
            fields = dict(part.strip().split("=", 1) for part in given[7:].split(","))
            fields = {name: value.strip('"') for name, value in fields.items()}
            secret = md5(md5("ada", "here", "secret"), fields["nonce"], fields["nc"], fields["cnonce"],
                         fields["qop"], md5(self.command, self.path))
            if fields["response"] == secret and fields["nonce"] == "n1" and fields["uri"] == self.path:
                return self.json({"authenticated": True})
        challenge = 'Digest realm="here", nonce="n1", qop="auth", algorithm=MD5'
        return self.answer(b"", status=401, headers=[("WWW-Authenticate", challenge)])

    def page_bite(self):
        """Sets a cookie and then expects it."""
        if "crumb=1" in self.headers.get("Cookie", ""):
            return self.json([2])
        return self.json([1], headers=[("Set-Cookie", "crumb=1; Path=/")])

    def page_list(self):
        page = int(self.query.get("page", ["1"])[0])
        links = [("Link", f'<{self.server.base}/list?page={page + 1}>; rel="next"')] if page < 4 else []
        self.json([page * 10, page * 10 + 1], headers=links)

    def page_bytes(self):
        self.answer(bytes(range(256)), kind="image/png")


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        cls.server.daemon_threads = True
        cls.server.base = f"http://127.0.0.1:{cls.server.server_address[1]}"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.node = Node("--http-allow-private").start()
        cls.connection = r.connect("127.0.0.1", cls.node.driver_port)

    @classmethod
    def tearDownClass(cls):
        Pages.release.set()
        cls.connection.close()
        cls.node.remove()
        cls.server.shutdown()
        cls.server.server_close()

    def get(self, path, **options):
        return r.http(self.server.base + path, **options).run(self.connection)

    def fails(self, path, why, method="GET", kind=ReqlNonExistenceError, **options):
        url = self.server.base + path
        if method != "GET":
            options["method"] = method
        with self.assertRaises(kind) as caught:
            r.http(url, **options).run(self.connection)
        self.assertTrue(caught.exception.message.startswith(f"Error in HTTP {method} of `{url}`: {why}."),
                        caught.exception.message)
        return caught.exception.message

    def test_a_get_carries_parameters_and_headers(self):
        seen = self.get("/echo?a=1", params={"b": "x y&", "n": 1.5, "z": None}, header={"X-One": "1"})
        self.assertEqual(seen["method"], "GET")
        self.assertEqual(seen["query"], {"a": ["1"], "b": ["x y&"], "n": ["1.5"], "z": [""]})
        self.assertEqual(seen["headers"]["x-one"], "1")
        self.assertTrue(seen["headers"]["user-agent"].startswith("Rekindle/"))
        self.assertIn("gzip", seen["headers"]["accept-encoding"])
        self.assertEqual(self.get("/echo", header=["X-Two: 2", "Accept-Encoding: none"])["headers"]["x-two"], "2")

    def test_a_url_without_scheme_is_http(self):
        bare = self.server.base.removeprefix("http://") + "/echo"
        self.assertEqual(r.http(bare)["method"].run(self.connection), "GET")

    def test_bodies_are_sent(self):
        form = self.get("/echo", method="POST", data={"s": "%in fo+", "n": 135.5, "z": None})
        self.assertEqual(parse_qs(form["body"], keep_blank_values=True), {"s": ["%in fo+"], "n": ["135.5"], "z": [""]})
        self.assertEqual(form["headers"]["content-type"], "application/x-www-form-urlencoded")
        raw = self.get("/echo", method="POST", data="<a/>", header={"Content-Type": "text/xml"})
        self.assertEqual((raw["body"], raw["headers"]["content-type"]), ("<a/>", "text/xml"))
        for method in ["PUT", "PATCH", "DELETE"]:
            sent = self.get("/echo", method=method, data={"a": [1, {"b": None}]})
            self.assertEqual(json.loads(sent["body"]), {"a": [1, {"b": None}]})
            self.assertEqual((sent["method"], sent["headers"]["content-type"]), (method, "application/json"))
        self.assertEqual(self.get("/echo", method="DELETE")["body"], "")
        self.assertIsNone(self.get("/echo", method="HEAD"))

    def test_formats(self):
        self.assertEqual(self.get("/gzip"), {"packed": True})
        self.assertEqual(bytes(self.get("/bytes")), bytes(range(256)))
        self.assertEqual(self.get("/gzip", result_format="text"), '{"packed": true}')
        self.assertEqual(bytes(self.get("/gzip", result_format="binary")), b'{"packed": true}')

    def test_redirections(self):
        self.fails("/redirect/2", "status code 302", redirects=0)
        self.fails("/redirect/2", "Number of redirects hit maximum amount", redirects=1)
        self.assertEqual(self.get("/redirect/2", redirects=2)["method"], "GET")
        after = self.get("/redirect/1", method="POST", data="x")
        self.assertEqual((after["method"], after["body"]), ("GET", ""))
        kept = self.get("/keep", method="POST", data="x")
        self.assertEqual((kept["method"], kept["body"]), ("POST", "x"))
        self.fails("/away", "Unsupported protocol")

    def test_failures_that_may_pass_are_tried_again(self):
        self.assertEqual(self.get("/flaky/3"), {"left": 0})
        message = self.fails("/flaky/3", "status code 503", attempts=2)
        self.assertIn('\nheader:\n{\n', message)
        self.assertTrue(message.endswith('\nbody:\n"{\\"left\\": 2}"'), message)
        Pages.flaky_left = 0
        self.fails("/echo", "could not perform, no attempts allowed", attempts=0)
        self.fails("/cut", "error when receiving data")

    def test_what_is_not_there_is_an_error_default_can_catch(self):
        message = self.fails("/missing", "status code 404")
        self.assertTrue(message.endswith('\nbody:\n"not here"'), message)
        self.assertEqual(r.http(self.server.base + "/missing").default(3).run(self.connection), 3)
        with self.assertRaises(ReqlNonExistenceError) as caught:
            r.http("http://127.0.0.1:1/").run(self.connection)
        self.assertIn("could not connect to server.\nheader:\nnull\nbody:\nnull", caught.exception.message)
        for url, why in [("file:///etc/passwd", "Unsupported protocol"), ("http://[", "URL using bad")]:
            with self.assertRaises(ReqlNonExistenceError) as caught:
                r.http(url).run(self.connection)
            self.assertIn(why, caught.exception.message)

    def test_time_is_limited(self):
        message = self.fails("/slow", "timed out after 0.300 seconds", timeout=0.3)
        self.assertNotIn("header", message)
        self.fails("/slow", "timed out after 0.000 seconds", method="PUT", timeout=0)

    def test_size_is_limited(self):
        self.fails("/bomb", f"the body is larger than {BODY_BYTES_MAX} bytes")

    def test_a_closed_connection_ends_the_request(self):
        connection = r.connect("127.0.0.1", self.node.driver_port)
        job = r.db("rethinkdb").table("jobs").filter(lambda job: job["info"]["query"].match("r.http")).count()
        r.http(self.server.base + "/slow", timeout=60).run(connection, noreply=True)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        # This query contains the words that it searches for.
        while job.run(self.connection) < 2:
            self.assertLess(time.monotonic(), deadline, "the request was not seen")
        connection.close(noreply_wait=False)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while job.run(self.connection) > 1:
            self.assertLess(time.monotonic(), deadline, "the request was not ended")

    def test_who_asks(self):
        auth = {"user": "ada", "pass": "secret"}
        self.assertEqual(self.get("/basic", auth=auth), {"authenticated": True})
        self.assertEqual(self.get("/digest?a=b", auth={"type": "digest", **auth}), {"authenticated": True})
        self.assertEqual(self.get("/digest", method="POST", data="x", auth={"type": "digest", **auth}),
                         {"authenticated": True})
        for path, kind in [("/basic", "digest"), ("/digest", "basic")]:
            self.fails(path, "status code 401", auth={"type": kind, **auth})
        self.fails("/digest", "status code 401", auth={"type": "digest", "user": "ada", "pass": "wrong"})

    def test_pages_are_a_stream(self):
        first = self.server.base + "/list"
        linked = r.http(first, page="link-next", page_limit=-1).run(self.connection)
        self.assertEqual(list(linked), [10, 11, 20, 21, 30, 31, 40, 41])
        some = r.http(first, page="link-next", page_limit=2).map(lambda n: n + 1).run(self.connection)
        self.assertEqual(list(some), [11, 12, 21, 22])
        named = r.http(first, page=lambda page: {"params": {"page": page["params"]["page"].default(1) + 1}}, page_limit=3)
        self.assertEqual(list(named.run(self.connection)), [10, 11, 20, 21, 30, 31])
        crumbs = r.http(self.server.base + "/bite", page=lambda page: self.server.base + "/bite", page_limit=2)
        self.assertEqual(list(crumbs.run(self.connection)), [1, 2])
        with self.assertRaises(ReqlQueryLogicError) as caught:
            list(r.http(first, page=lambda page: 1, page_limit=2).run(self.connection))
        self.assertIn("Expected `page` to return an OBJECT, but found NUMBER", caught.exception.message)


class Private(unittest.TestCase):
    """By default a server connects to public addresses only."""

    def test_this_machine_cannot_be_reached(self):
        node = Node().start()
        try:
            with r.connect("127.0.0.1", node.driver_port) as connection:
                port = node.http_port
                for host in ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254"]:
                    with self.assertRaises(ReqlRuntimeError, msg=host) as caught:
                        r.http(f"http://{host}:{port}/health", attempts=1, timeout=5).run(connection)
                    self.assertIn("the address is private", caught.exception.message, host)
        finally:
            node.remove()
