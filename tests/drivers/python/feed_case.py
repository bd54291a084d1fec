"""What the tests of changefeeds on one server share."""

import contextlib
import json
import struct
import time
import unittest

from rethinkdb import r
from rethinkdb.errors import ReqlTimeoutError

from node import node

TIMEOUT_SECONDS = 20
QUIET_SECONDS = 0.3
POLL_SECONDS = 0.02
# Of a query while other clients keep the server busy. With tolerance for a busy machine.
SERVED_SECONDS_MAX = 2.0
# Kinds of requests and terms, and the number of a request.
START, CONTINUE = 1, 2
CHANGES, TABLE = 152, 15
REQUEST = 1 << 40
MEBIBYTE = 1 << 20


def wait_until(what, is_so):
    """Returns when `is_so()` is true; fails if that takes too long."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about")
        time.sleep(POLL_SECONDS)


def take(feed, count):
    """The next `count` elements; fails if they do not come in time."""
    return [feed.next(wait=TIMEOUT_SECONDS) for _ in range(count)]


def is_quiet(feed):
    """Whether no element is waiting, nor comes for a moment."""
    try:
        element = feed.next(wait=QUIET_SECONDS)
    except ReqlTimeoutError:
        return True
    raise AssertionError(f"an unexpected element: {element}")


def large(mebibytes):
    """An array of this size, which the server makes."""
    return r.expr(["x" * 1024]).mul(1024 * mebibytes)


class RawClient:
    """The socket of a driver's connection, for requests that the driver does not send."""

    def __init__(self, test):
        # The connection is kept: it closes its socket when it is deleted.
        self.connection = r.connect("127.0.0.1", test.port, timeout=TIMEOUT_SECONDS)
        self.socket = self.connection._instance._socket._socket
        self.socket.settimeout(TIMEOUT_SECONDS)
        test.addCleanup(self.socket.close)

    def send(self, text):
        self.socket.sendall(struct.pack("<QI", REQUEST, len(text)) + text.encode())

    def receive(self, begun=b""):
        """The next response, of which these bytes have been read."""
        header = self.exactly(12, begun)
        length = struct.unpack("<QI", header[:12])[1]
        return json.loads(self.exactly(length, header[12:]))

    def exactly(self, count, begun=b""):
        found = bytearray(begun)
        while len(found) < count:
            chunk = self.socket.recv(min(count - len(found), MEBIBYTE))
            assert chunk, "the server has closed the connection"
            found += chunk
        return found


class FeedCase(unittest.TestCase):
    """A server for all tests of a class, and a table for each test."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.node = cls.stack.enter_context(node())
        cls.port = cls.node.driver_port
        cls.names = iter(f"t{number}" for number in range(1000))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.connection = self.connect()
        self.name = next(self.names)
        r.table_create(self.name).run(self.connection)
        self.table = r.table(self.name)

    def tearDown(self):
        self.connection.close()

    def connect(self, **options):
        connection = r.connect("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS, **options)
        self.addCleanup(connection.close)
        return connection

    def feed(self, query):
        """An open feed, on its own connection."""
        return query.run(self.connect())

    def run_query(self, query):
        return query.run(self.connection)

    def feed_jobs(self):
        """The number of feeds that `rethinkdb.jobs` lists for the table of this test."""
        queries = self.run_query(r.db("rethinkdb").table("jobs")["info"]["query"])
        return sum(f'table("{self.name}")' in query and "changes" in query for query in queries)

    def subscriptions(self):
        """The shards that feeds of this server follow, counted for each feed."""
        lines = self.node.http("/metrics")[1].splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("rekindle_feed_subscriptions "))
