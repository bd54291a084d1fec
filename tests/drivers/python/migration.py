"""Runs `rekindle migrate` in tests, and a stand-in for a RethinkDB: a node whose answers are changed to what RethinkDB sends."""

import base64
import contextlib
import json
import random
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlDriverError, ReqlError

from feed_proxy import HEADER, FeedProxy, with_end
from node import program
from rethinkdb_data import DATA

SECONDS_MAX = 120
PARTIAL = 3


class Tool:
    """The command with the two sides and a directory of its own for the state."""

    def __init__(self, source_port, target_port, state=None):
        self.source_port, self.target_port = source_port, target_port
        # Deleted with the object.
        self.folder = tempfile.TemporaryDirectory(prefix="rekindle-migrate-")
        self.state = state or self.folder.name

    def command(self, *arguments, command=()):
        sides = ["--from", f"127.0.0.1:{self.source_port}"]
        if command != ("check",):
            sides += ["--to", f"127.0.0.1:{self.target_port}", "--state", self.state]
        return [program(), "migrate", *command, *sides, *map(str, arguments)]

    def copied(self, table):
        """Rows that the state says are copied."""
        with contextlib.suppress(OSError):
            state = json.loads((Path(self.state) / "state.json").read_text(encoding="utf-8"))
            return state["tables"].get(table, {}).get("rows", 0)
        return 0

    def run(self, *arguments, command=()):
        """Exit code, standard output, standard error."""
        done = subprocess.run(
            self.command(*arguments, command=command), capture_output=True, text=True, timeout=SECONDS_MAX
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments, command=()):
        """Exit code, and the objects by their event."""
        code, out, err = self.run("--json", *arguments, command=command)
        events = {}
        for line in out.splitlines():
            one = json.loads(line)
            events.setdefault(one["event"], []).append(one)
        return code, events, err

    def start(self, *arguments):
        return Running(self.command(*arguments))

    def cut_over(self, *arguments):
        return self.run(*arguments, command=("cut-over",))


class Running:
    """A migration that runs beside the test."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.came = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.came:
                self.lines.append(line)
                self.came.notify_all()
        with self.came:
            self.lines.append("")
            self.came.notify_all()

    def wait_for(self, text):
        """Waits for a line with this text; fails when the process ends before."""
        with self.came:
            found = self.came.wait_for(lambda: any(text in line for line in self.lines) or "" in self.lines, SECONDS_MAX)
            if not found or not any(text in line for line in self.lines):
                raise AssertionError(f"no line with {text!r}:\n" + "".join(self.lines))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """The exit code."""
        return self.process.wait(timeout=SECONDS_MAX)

    def said(self):
        return "".join(self.lines)


def recorded(text):
    """The first response of a real RethinkDB's feed that has `text`."""
    stream = {}
    for line in (DATA / "sessions" / "python-feeds.jsonl").read_text(encoding="utf-8").splitlines():
        piece = json.loads(line)
        if piece.get("dir") == "s" and "b64" in piece:
            stream.setdefault(piece["conn"], bytearray()).extend(base64.b64decode(piece["b64"]))
    for sent in stream.values():
        at = sent.find(text.encode())
        if at >= 0:
            # A frame begins with its token and length, just before `{"t":`.
            start = sent.rfind(b'{"t":', 0, at)
            length = int.from_bytes(sent[start - 4 : start], "little")
            return json.loads(bytes(sent[start : start + length]))
    raise AssertionError(f"no response with {text!r}")


class Player(FeedProxy):
    """A node that looks like a RethinkDB: base64 is broken into lines, and feeds skip changes and end as recorded."""

    def __init__(self, server_port, skips=0, ends_after=None):
        self.skips, self.ends_after = skips, ends_after
        self.changes = 0
        self.lock = threading.Lock()
        super().__init__(server_port, alter=None)

    def _body(self, body):
        body = re.sub(rb'("\$reql_type\$":"BINARY","data":")([A-Za-z0-9+/=]+)"', broken, body)
        body = re.sub(rb'("data":")([A-Za-z0-9+/=]+)(","\$reql_type\$":"BINARY")', broken, body)
        if b'"new_val"' not in body:
            return body
        response = json.loads(body)
        with self.lock:
            self.changes += len(response["r"])
            if self.skips:
                self.skips -= 1
                # The queue's changes are gone, and the element is in their place.
                response["r"] = [one for one in recorded("over array size limit")["r"] if "error" in one][:1]
            elif self.ends_after is not None and self.changes > self.ends_after:
                self.ends_after = None
                response = recorded("Changefeed aborted")
        return json.dumps({"t": response.pop("t"), **response}, separators=(",", ":")).encode()


class Recorder(FeedProxy):
    """Keeps what clients send to a node."""

    def __init__(self, server_port):
        self.sent = []
        super().__init__(server_port, alter=None)

    def _queries(self, client, server):
        sent = bytearray()
        self.sent.append(sent)
        with_end(lambda: self._keep(client, server, sent), server)

    @staticmethod
    def _keep(client, server, sent):
        while data := client.recv(65536):
            sent += data
            server.sendall(data)

    def _body(self, body):
        return body

    def terms(self):
        """The terms of all queries."""
        terms = []
        for sent in self.sent:
            # Two messages of the handshake, which end with a zero byte each.
            rest = bytes(sent).split(b"\0", 2)[2]
            while rest:
                _, length = HEADER.unpack_from(rest)
                query, rest = json.loads(rest[HEADER.size : HEADER.size + length]), rest[HEADER.size + length :]
                terms += query[1:2]
        return terms


def broken(found):
    text = found[2]
    lines = rb"\r\n".join(text[i : i + 76] for i in range(0, len(text), 76))
    return found[1] + lines + (found[3] if len(found.groups()) > 2 else b'"')


class Writes:
    """Inserts, updates and deletes on a thread, also through restarts of the server."""

    def __init__(self, side, db, table, per_second=200, seed=1):
        self.side, self.table, self.pause = side, r.db(db).table(table), 1 / per_second
        self.random = random.Random(seed)
        self.done = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        connection = None
        while not self.over.wait(self.pause):
            try:
                connection = connection or r.connect("127.0.0.1", self.side.driver_port, timeout=5)
                self._write(connection)
                self.done += 1
            except (ReqlError, ReqlDriverError, OSError):
                connection = None

    def _write(self, connection):
        key = self.random.randrange(6000)
        kind = self.random.randrange(4)
        if kind == 0:
            self.table.get(key).delete().run(connection)
        else:
            self.table.insert({"id": key, "n": self.random.random(), "kind": kind}, conflict="replace").run(connection)

    def stop(self):
        self.over.set()
        self.thread.join()


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        time.sleep(0.02)
