"""Clients of `cargo xtask histories`: they ask for documents through the official driver and write down
what they were told, as `main.go` reads it.

Groups of five share a document until it has had its operations, then the next. When all are through,
"over" is printed; after a line on the standard input every server is asked for every document once more, with majority.
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
# Groups at work at the same time.
GROUPS_MAX = 20
# A client gives up on an answer after so many seconds; the operation stays open for ever.
PATIENCE = 3
# How long the answers of a cluster that is whole again may take.
PATIENCE_AT_END = 60
# The longest rest of a client between two operations, in seconds: the faults are to meet many of them.
REST_MAX = 0.2
# A document with so many changes of which nobody knows what became of them is only read from then on: for
# each of them the judge must think of both cases.
OPEN_MAX = 12
# As in `bank.go`.
ACCOUNTS = 10
BALANCE_AT_FIRST = 100


class Document:
    """One document: what can be done to it, and what is seen of it."""

    def __init__(self, key, field):
        self.key, self.field = key, field
        self.open = 0

    def changed(self, table, first, change):
        """Inserts the document with `first` in its field, or changes what the field holds."""

        def conflict(_key, old, _new):
            return old.merge({self.field: change(old[self.field])})

        return table.insert({"id": self.key, self.field: first}, conflict=conflict)

    def seen(self, row):
        """What a row that was read holds; None for no row."""
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
    """Holds accounts, between which money moves as far as there is some. All of it stays the same."""

    def change(self, table, _value, _seen, chance):
        source, target = chance.sample(range(ACCOUNTS), 2)
        moved = chance.randint(1, BALANCE_AT_FIRST)

        def transferred(held):
            less = held.change_at(source, held[source] - moved)
            return r.branch(held[source] >= moved, less.change_at(target, held[target] + moved), held)

        first = [BALANCE_AT_FIRST] * ACCOUNTS
        first[source] -= moved
        first[target] += moved
        asked = {"kind": "transfer", "from": source, "to": target, "value": moved}
        return asked, self.changed(table, first, transferred)


KINDS = {"register": Register, "counter": Counter, "set": Set, "list": List, "bank": Bank}


class Work:
    """What the clients share."""

    def __init__(self, options):
        self.options = options
        self.servers = [server.rsplit(":", 1) for server in options.servers.split(",")]
        kinds = list(KINDS) if options.kind == "all" else [options.kind]
        made = ((f"k{key}", kinds[key % len(kinds)]) for key in range(options.keys))
        self.documents = [KINDS[kind](name, kind) for name, kind in made]
        self.table = r.db("test").table("histories")
        self.readable = r.db("test").table("histories", read_mode=options.read_mode)
        self.readable_for_sure = r.db("test").table("histories", read_mode="majority")
        self.value_last = 0
        self.lines = []
        self.began = time.monotonic_ns()

    async def connect(self, server, patience):
        host, port = self.servers[server]
        return await asyncio.wait_for(r.connect(host=host, port=int(port), timeout=patience), patience)

    async def operate(self, client, document, connection, asked, query, patience=PATIENCE):
        """Asks and notes; what was seen, and whether the connection is still good."""
        called = time.monotonic_ns() - self.began
        line = {"key": document.key, "client": client, "call_ns": called, "return_ns": None, **asked}
        is_good = True
        try:
            answer = await asyncio.wait_for(query.run(connection), patience)
        except ReqlOpFailedError:
            return None, True  # It certainly did not happen.
        except (ReqlDriverError, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            is_good = False
        except ReqlError:
            pass
        else:
            if (what := told(document, asked["kind"], answer)) is not None:
                line |= {"return_ns": time.monotonic_ns() - self.began, **what}
        if line["return_ns"] is None and line["kind"] != "read":
            document.open += 1
        self.lines.append(line)
        return line.get("seen"), is_good

    async def client(self, number):
        """The part of one client."""
        chance = random.Random(f"{self.options.seed}:{number}")
        connection, server = None, number % len(self.servers)
        groups = min(len(self.documents), GROUPS_MAX)
        for document in self.documents[number // GROUP :: groups]:
            seen = None
            for _ in range(-(-self.options.operations // GROUP)):
                while connection is None:
                    if not self.options.pinned:
                        server = (server + chance.randrange(1, len(self.servers))) % len(self.servers)
                    try:
                        connection = await self.connect(server, PATIENCE)
                    except (ReqlError, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                        await asyncio.sleep(chance.random() * REST_MAX)
                asked, query = self.choose(document, seen, chance)
                last, is_good = await self.operate(number, document, connection, asked, query)
                seen = seen if last is None else last
                if not is_good:
                    await close(connection)
                    connection = None
                await asyncio.sleep(chance.random() * REST_MAX)
        if connection is not None:
            await close(connection)

    def choose(self, document, seen, chance):
        if chance.random() < 0.5 or document.open >= OPEN_MAX:
            return {"kind": "read", "mode": self.options.read_mode}, self.readable.get(document.key)
        self.value_last += 1
        return document.change(self.table, self.value_last, seen, chance)

    def client_count(self):
        return min(len(self.documents), GROUPS_MAX) * GROUP

    async def clients(self):
        await asyncio.gather(*(self.client(number) for number in range(self.client_count())))

    async def read_all(self):
        """What every server says of every document: what was acknowledged and is gone cannot have happened
        together with that."""
        for server in range(len(self.servers)):
            connection = await self.connect(server, PATIENCE_AT_END)
            for document in self.documents:
                query, before = self.readable_for_sure.get(document.key), len(self.lines)
                client, asked = self.client_count() + server, {"kind": "read", "mode": "majority"}
                await self.operate(client, document, connection, asked, query, PATIENCE_AT_END)
                if len(self.lines) == before or self.lines[-1]["return_ns"] is None:
                    sys.exit(f"{':'.join(self.servers[server])} does not tell {document.key}")
            await close(connection)


def told(document, kind, answer):
    """What an answer says; None when that is not clear."""
    if kind == "read":
        return {"seen": document.seen(answer)}
    if answer.get("inserted") == 1 or answer.get("replaced") == 1:
        return {"done": True}
    if kind in ("swap", "transfer") and (answer.get("unchanged") == 1 or answer.get("skipped") == 1):
        return {"done": False}
    return None


async def close(connection):
    try:
        await asyncio.wait_for(connection.close(noreply_wait=False), PATIENCE)
    except (ReqlError, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        pass


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True, help="HOST:PORT,…")
    parser.add_argument("--kind", choices=["all", *KINDS], default="all")
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--operations", type=int, required=True)
    parser.add_argument("--read-mode", required=True)
    parser.add_argument("--pinned", action="store_true", help="every client asks one server and no other")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history", required=True, help="the file to write")
    work = Work(parser.parse_args())
    # The driver leaves answers behind that nobody waits for any more.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await work.clients()
    print("over", flush=True)
    if sys.stdin.readline():
        await work.read_all()
        with open(work.options.history, "w", encoding="utf-8") as history:
            for line in work.lines:
                print(json.dumps(line, separators=(",", ":")), file=history)


asyncio.run(main())
