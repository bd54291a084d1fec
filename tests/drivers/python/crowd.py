"""Many raw connections on one thread: some ask and read, some hold a cursor, some read slowly, some send half a query."""

import json
import selectors
import socket
import struct
import threading
import time

MAGIC_V0_4 = 0x400C2D20
JSON_PROTOCOL = 0x7E6970C7
STOP = b"[3]"
READ_BYTES = 1 << 18
# Nothing is read from a response that is read slowly for so long.
SLOW_SECONDS = 3
# Queries that one connection sends in a second.
RATE_MAX = 1


class Member:
    """One connection. What it does depends on its number."""

    def __init__(self, port, number, queries):
        self.port, self.number, self.queries = port, number, queries
        self.socket = None

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.socket.sendall(struct.pack("<III", MAGIC_V0_4, 0, JSON_PROTOCOL))
        answer = b""
        while not answer.endswith(b"\0"):
            received = self.socket.recv(64)
            if not received:
                raise ConnectionError("closed in the handshake")
            answer += received
        if answer != b"SUCCESS\0":
            raise ConnectionError(answer)
        self.socket.settimeout(5)
        self.token, self.due = 0, time.monotonic() + (self.number % 100) / 100

    def act(self):
        """Sends the next query, or half of one."""
        text, is_whole, closes_last = self.queries(self.number)
        body = json.dumps([1, text, {}]).encode()
        frame = struct.pack("<QI", self.token + 1, len(body)) + body
        if closes_last and self.token:
            frame = struct.pack("<QI", self.token, len(STOP)) + STOP + frame
        self.token += 1
        try:
            self.socket.sendall(frame if is_whole else frame[: len(frame) // 2])
        except TimeoutError:
            # The server reads no more from it until its responses are taken.
            pass

    def read(self):
        """Takes some of the responses; fails when the server has closed the connection."""
        if not self.socket.recv(READ_BYTES):
            raise ConnectionError("closed")


class Crowd:
    """`count` connections. `queries(number)` gives the next term of one, whether it is sent as a whole, and whether the last
    cursor is closed before."""

    def __init__(self, port, count, queries, slow):
        self.members = [Member(port, number, queries) for number in range(count)]
        self.slow = slow
        self.closed, self.sent = 0, 0
        self.selector = selectors.DefaultSelector()
        self.stopping = threading.Event()
        self.failure = None
        for member in self.members:
            self.open(member)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def open(self, member):
        member.connect()
        self.selector.register(member.socket, selectors.EVENT_READ, member)

    def run(self):
        try:
            while not self.stopping.is_set():
                self.step()
        except Exception as failure:  # a thread has nobody to tell
            self.failure = failure

    def step(self):
        now = time.monotonic()
        for key, _ in self.selector.select(timeout=0.05):
            member = key.data
            if self.slow(member.number) and now < member.due - 1 / RATE_MAX:
                continue
            self.attempt(member, member.read)
        for member in self.members:
            if now >= member.due:
                member.due = now + (SLOW_SECONDS if self.slow(member.number) else 1 / RATE_MAX)
                self.sent += 1
                self.attempt(member, member.act)

    def attempt(self, member, action):
        """The server may close a connection whose query it has no memory for."""
        try:
            action()
        except TimeoutError:
            pass
        except OSError:
            self.closed += 1
            self.selector.unregister(member.socket)
            member.socket.close()
            self.open(member)

    def stop(self):
        """Ends the thread and closes all connections; raises what went wrong."""
        self.stopping.set()
        self.thread.join()
        for member in self.members:
            member.socket.close()
        self.selector.close()
        if self.failure:
            raise self.failure
