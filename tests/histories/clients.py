"""Clients of `cargo xtask histories`: they use documents through the official driver and write the history of their
operations in the format of `main.go`.

Groups of five clients share a document until it has had its operations, and then a new one. They run for the given
seconds, and for longer while there are too few responses for a check. Then they print "over"; after a line on standard
input they read every document from every server once more, with majority.
"""

import argparse
import asyncio
import json
import random
import sys
import time

from rethinkdb import RethinkDB
from rethinkdb.errors import ReqlDriverError, ReqlError, ReqlOpFailedError

r = RethinkDB()
r.set_loop_type("asyncio")

# Clients that share a document.
GROUP = 5
# Groups that run at the same time.
GROUPS = 20
# A client without a response for this many seconds continues at another server; the operation stays open.
OPERATION_TIMEOUT_SECONDS = 3
# The same for a server that accepts no connection.
CONNECT_TIMEOUT_SECONDS = 1
# How long the responses of a recovered cluster may take.
RECOVERY_TIMEOUT_SECONDS = 60
# Clients with few responses run for at most this many times their seconds.
SECONDS_TIMES_MOST = 10
# A client begins at most one operation in this many seconds, however long the previous one took, so that the operations
# are spread over many faults.
PACE_MAX = 0.2
# A document with this many changes with unknown results is only read from then on: the checker has to consider both
# cases for each of them.
OPEN_MAX = 12
# As in `bank.go`.
ACCOUNTS = 10
BALANCE_AT_FIRST = 100


class Document:
    """One document: its operations and their results."""

    def __init__(self, key, field):
        self.key, self.field = key, field
        self.open = 0

    def changed(self, table, first, change):
        """Inserts the document with `first` in its field, or changes what the field holds."""

        def conflict(_key, old, _new):
            return old.merge({self.field: change(old[self.field])})

        return table.insert({"id": self.key, self.field: first}, conflict=conflict)

    def seen(self, row):
        """The value of a row; None without a row."""
        return None if row is None else row[self.field]


class Register(Document):
    """Holds the value that was written last."""

    def change(self, table, value, seen, chance):
        if seen is not None and chance.random() < 0.6:
            swapped = table.get(self.key).update(
                lambda row: r.branch(row[self.field] == seen, {self.field: value}, {})
            )
            return {"kind": "swap", "expected": seen, "value": value}, swapped
        row = {"id": self.key, self.field: value}
        return {"kind": "write", "value": value}, table.insert(row, conflict="replace")


class Counter(Document):
    """Counts."""

    def change(self, table, _value, _seen, _chance):
        return {"kind": "increment", "value": 1}, self.changed(table, 1, lambda held: held + 1)


class Set(Document):
    """Holds every value once."""

    def change(self, table, value, _seen, _chance):
        query = self.changed(table, [value], lambda held: held.set_insert(value))
        return {"kind": "add", "value": value}, query

    def seen(self, row):
        return None if row is None else sorted(row[self.field])


class List(Document):
    """Holds every value in the order of appending."""

    def change(self, table, value, _seen, _chance):
        query = self.changed(table, [value], lambda held: held.append(value))
        return {"kind": "append", "value": value}, query


class Bank(Document):
    """Accounts with transfers between them, as far as the balance allows. The sum is constant."""

    def change(self, table, _value, _seen, chance):
        source, target = chance.sample(range(ACCOUNTS), 2)
        moved = chance.randint(1, BALANCE_AT_FIRST)

        def transferred(held):
            less = held.change_at(source, held[source] - moved)
            return r.branch(held[source] >= moved, less.change_at(target, held[target] + moved), held)

        first = [BALANCE_AT_FIRST] * ACCOUNTS
        first[source] -= moved
        first[target] += moved
        operation = {"kind": "transfer", "from": source, "to": target, "value": moved}
        return operation, self.changed(table, first, transferred)


KINDS = {"register": Register, "counter": Counter, "set": Set, "list": List, "bank": Bank}


class Work:
    """The state shared by the clients."""

    def __init__(self, options):
        self.options = options
        self.servers = [server.rsplit(":", 1) for server in options.servers.split(",")]
        self.kinds = list(KINDS) if options.kind == "all" else [options.kind]
        self.documents = {}
        self.table = r.db("test").table("histories")
        self.readable = r.db("test").table("histories", read_mode=options.read_mode)
        self.readable_for_sure = r.db("test").table("histories", read_mode="majority")
        self.value_last = 0
        self.lines = []
        self.responses = {"reads": 0, "changes": 0}
        self.began = time.monotonic_ns()

    def document(self, number):
        """The document of this number, which may be new."""
        if number not in self.documents:
            kind = self.kinds[number % len(self.kinds)]
            self.documents[number] = KINDS[kind](f"k{number}", kind)
        return self.documents[number]

    def is_over(self):
        times = (time.monotonic_ns() - self.began) / (self.options.seconds * 1_000_000_000)
        return times >= (1 if self.is_enough() else SECONDS_TIMES_MOST)

    def is_enough(self):
        """Whether there are enough responses for a check, as in `history.go`."""
        reads, changes = self.responses["reads"], self.responses["changes"]
        return reads > 0 and changes > 0 and reads + changes >= self.options.least

    async def connect(self, server, timeout):
        host, port = self.servers[server]
        return await asyncio.wait_for(r.connect(host=host, port=int(port), timeout=timeout), timeout)

    async def operate(self, client, document, connection, operation, query, timeout=OPERATION_TIMEOUT_SECONDS):
        """Runs and records an operation; returns the value read, and the result: "told", "refused", "unclear" or "silent"."""
        called = time.monotonic_ns() - self.began
        line = {"key": document.key, "client": client, "call_ns": called, "return_ns": None, **operation}
        outcome = "told"
        try:
            answer = await asyncio.wait_for(query.run(connection), timeout)
        except ReqlOpFailedError:
            return None, "refused"  # It certainly had no effect.
        except (ReqlDriverError, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            outcome = "silent"
        except ReqlError:
            outcome = "unclear"
        else:
            if (what := told(document, operation["kind"], answer)) is not None:
                line |= {"return_ns": time.monotonic_ns() - self.began, **what}
                self.responses["reads" if operation["kind"] == "read" else "changes"] += 1
        if line["return_ns"] is None and line["kind"] != "read":
            document.open += 1
        self.lines.append(line)
        return line.get("seen"), outcome

    def choose(self, document, seen, chance):
        if chance.random() < 0.5 or document.open >= OPEN_MAX:
            return {"kind": "read", "mode": self.options.read_mode}, self.readable.get(document.key)
        self.value_last += 1
        return document.change(self.table, self.value_last, seen, chance)

    async def clients(self):
        await asyncio.gather(*(Client(self, number).run() for number in range(GROUPS * GROUP)))

    async def read_all(self):
        """Reads every document from every server: a lost acknowledged write contradicts the rest of the history then."""
        for server in range(len(self.servers)):
            connection = await self.connect(server, RECOVERY_TIMEOUT_SECONDS)
            for document in self.documents.values():
                query, before = self.readable_for_sure.get(document.key), len(self.lines)
                client, operation = GROUPS * GROUP + server, {"kind": "read", "mode": "majority", "at_end": True}
                await self.operate(client, document, connection, operation, query, RECOVERY_TIMEOUT_SECONDS)
                if len(self.lines) == before or self.lines[-1]["return_ns"] is None:
                    sys.exit(f"{':'.join(self.servers[server])} does not tell {document.key}")
            await close(connection)


class Client:
    """One client: its servers, and the next one that it uses."""

    def __init__(self, work, number):
        self.work, self.number = work, number
        self.chance = random.Random(f"{work.options.seed}:{number}")
        self.server = number % len(work.servers)
        self.connections = {}
        self.due = time.monotonic()

    async def run(self):
        """Runs the client until the time is over."""
        number = self.number // GROUP
        while not self.work.is_over():
            await self.take_part(self.work.document(number))
            number += GROUPS
        for connection in self.connections.values():
            await close(connection)

    async def take_part(self, document):
        """Runs the share of this client of the operations of a document."""
        seen, left = None, -(-self.work.options.operations // GROUP)
        while left > 0 and not self.work.is_over():
            await self.keep_pace()
            if (connection := await self.connection()) is None:
                self.go_on_elsewhere()
                continue
            operation, query = self.work.choose(document, seen, self.chance)
            last, outcome = await self.work.operate(self.number, document, connection, operation, query)
            seen = seen if last is None else last
            if outcome == "silent":
                await close(self.connections.pop(self.server))
            if outcome != "refused":
                left -= 1
            if outcome != "told":
                self.go_on_elsewhere()

    async def keep_pace(self):
        """Waits until the next operation is due. Missed operations are not made up for."""
        self.due = max(time.monotonic(), self.due + self.chance.random() * PACE_MAX)
        await asyncio.sleep(self.due - time.monotonic())

    async def connection(self):
        """A connection to the current server; None if it accepts none."""
        if self.server not in self.connections:
            try:
                self.connections[self.server] = await self.work.connect(self.server, CONNECT_TIMEOUT_SECONDS)
            except (ReqlError, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                return None
        return self.connections[self.server]

    def go_on_elsewhere(self):
        """Moves to another server for the next operation, if this client may use others."""
        if not self.work.options.pinned:
            self.server = (self.server + self.chance.randrange(1, len(self.work.servers))) % len(self.work.servers)


def told(document, kind, answer):
    """The meaning of a response; None if that is unclear."""
    if kind == "read":
        return {"seen": document.seen(answer)}
    if answer.get("inserted") == 1 or answer.get("replaced") == 1:
        return {"done": True}
    if kind in ("swap", "transfer") and (answer.get("unchanged") == 1 or answer.get("skipped") == 1):
        return {"done": False}
    return None


async def close(connection):
    try:
        await asyncio.wait_for(connection.close(noreply_wait=False), OPERATION_TIMEOUT_SECONDS)
    except (ReqlError, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        pass


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True, help="HOST:PORT,…")
    parser.add_argument("--kind", choices=["all", *KINDS], default="all")
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--least", type=int, required=True, help="responses, for which the clients go on")
    parser.add_argument("--operations", type=int, required=True, help="of one document")
    parser.add_argument("--read-mode", required=True)
    parser.add_argument("--pinned", action="store_true", help="every client asks one server and no other")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history", required=True, help="the file to write")
    work = Work(parser.parse_args())
    # The driver leaves responses behind for which no caller waits any more.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await work.clients()
    print("over", flush=True)
    if sys.stdin.readline():
        await work.read_all()
        with open(work.options.history, "w", encoding="utf-8") as history:
            for line in work.lines:
                print(json.dumps(line, separators=(",", ":")), file=history)


asyncio.run(main())
