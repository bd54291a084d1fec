"""A server in a memory control group of its cache size plus 300 MiB, under a mix of everything that takes memory.

It is never killed, and its memory stays below the limit of the group plus a tenth. `REKINDLE_MEMORY_SECONDS` sets the
length of the mix, and `REKINDLE_MEMORY_CACHE` the cache size in MB."""

import os
import random
import re
import threading
import time
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlResourceLimitError, ReqlTimeoutError

from crowd import Crowd
from memory_group import MemoryGroup, NoGroups
from node import Node
from test_compression import WORDS
from test_operating import comes_true

SECONDS = float(os.environ.get("REKINDLE_MEMORY_SECONDS", "20"))
CACHE_MB = int(os.environ.get("REKINDLE_MEMORY_CACHE", "100"))
LIMIT_MB = CACHE_MB + 300
CONNECTIONS = 1_000
ROWS_FIRST = 40_000
ROWS_MAX = 400_000
LARGE_ROWS = 12
LARGE_WORDS_MAX = 600_000
ARRAY_LIMIT = 50_000_000
SEED = 43
TABLE, GET, ORDER_BY, INSERT = 15, 16, 41, 56


def row(chance, number):
    text = " ".join(chance.choices(WORDS, k=150))
    return {"id": number, "n": chance.random(), "group": number % 100, "text": text}


def large_row(chance, number):
    words = chance.choices(WORDS, k=10_000)
    return {"id": number, "n": 0, "text": " ".join(words * (chance.randrange(LARGE_WORDS_MAX) // 10_000 + 10))}


class Mix:
    """Threads that query a server until they are stopped. A query may be refused for memory; all else is a failure."""

    def __init__(self, node):
        self.node = node
        self.stopping = threading.Event()
        self.done, self.refused, self.failures = {}, {}, []
        kinds = [self.load, self.load, self.large, self.scan, self.scan, self.sort, self.sort, self.group]
        kinds += [self.array, self.stream]
        self.threads = [threading.Thread(target=self.repeat, args=kind) for kind in enumerate(kinds)]
        for thread in self.threads:
            thread.start()

    def repeat(self, number, kind):
        chance, name = random.Random(SEED + number), kind.__name__
        try:
            connection = r.connect("127.0.0.1", self.node.driver_port)
            while not self.stopping.is_set():
                try:
                    kind(connection, chance)
                    self.done[name] = self.done.get(name, 0) + 1
                except ReqlResourceLimitError:
                    self.refused[name] = self.refused.get(name, 0) + 1
                except ReqlTimeoutError:
                    raise
                except Exception:
                    if connection.is_open():
                        raise
                    # It is closed when there is no memory for the rest of a query.
                    self.refused[name] = self.refused.get(name, 0) + 1
                    connection = r.connect("127.0.0.1", self.node.driver_port)
            connection.close(noreply_wait=False)
        except Exception as failure:  # a thread has nobody to tell
            self.failures.append(f"{name}: {type(failure).__name__} {str(failure)[:300]}")

    def load(self, connection, chance):
        rows = [row(chance, chance.randrange(ROWS_MAX)) for _ in range(200)]
        r.table("t").insert(rows, durability="soft", conflict="replace").run(connection)

    def large(self, connection, chance):
        number = chance.randrange(LARGE_ROWS)
        table = r.table("large")
        table.insert(large_row(chance, number), durability="soft", conflict="replace").run(connection)
        table.get(number).update({"n": r.row["n"] + 1}, durability="soft").run(connection)
        table.get(number)["text"].upcase().match("^[A-Z]+").run(connection)

    def scan(self, connection, chance):
        word = chance.choice(WORDS)
        r.table("t").filter(lambda one: one["text"].match(f"{word} {word} {word}")).count().run(connection)

    def sort(self, connection, chance):
        key = chance.choice(["n", "text"])
        first = r.table("t").order_by(key)[0]["id"]
        first.run(connection, array_limit=ARRAY_LIMIT)

    def group(self, connection, chance):
        table = r.table("t")
        choices = [
            table.group("group").count(),
            table.group("group").ungroup().count(),
            table.group("id").count().ungroup().count(),
            table.distinct(),
        ]
        chance.choice(choices).run(connection, array_limit=ARRAY_LIMIT)

    def array(self, connection, chance):
        numbers = r.range(chance.randrange(6_000_000)).map(lambda n: {"n": n, "text": n.coerce_to("string")})
        numbers.coerce_to("array").count().run(connection, array_limit=ARRAY_LIMIT)

    def stream(self, connection, chance):
        for nth, _ in enumerate(r.table("t").run(connection)):
            if nth > 2_000 or self.stopping.is_set():
                break
        r.table("large").pluck("id", "n").coerce_to("array").run(connection)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def crowds_queries(number):
    """The next query of a connection, whether it is sent as a whole, and whether the last cursor is closed before."""
    large, small = [TABLE, ["large"]], [TABLE, ["t"]]
    kind = number % 10
    if kind == 0:
        return [GET, [large, number % LARGE_ROWS]], True, False
    if kind == 1:
        # One in ten of these never closes its cursors.
        return small, True, number % 100 != 1
    if kind == 2:
        return [INSERT, [small, {"id": -number, "text": "x" * 2_000_000}]], False, False
    return [GET, [small, random.randrange(ROWS_FIRST)]], True, False


class Watch:
    """Samples the memory of a process, and in which owners it is."""

    def __init__(self, node):
        self.node = node
        self.stopping = threading.Event()
        self.peak_bytes, self.owners = 0, {}
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        nth = 0
        while not self.stopping.wait(0.05):
            resident = resident_bytes(self.node.process.pid)
            self.peak_bytes = max(self.peak_bytes, resident)
            nth += 1
            if nth % 20 == 0:
                self.sample()

    def sample(self):
        try:
            _, page = self.node.http("/metrics")
        except OSError:
            return
        for owner, value in re.findall(r'^rekindle_memory_bytes\{owner="(\w+)"\} (\S+)$', page, re.M):
            self.owners[owner] = max(self.owners.get(owner, 0), float(value))
        if found := re.search(r"^rekindle_memory_unowned_bytes (\S+)$", page, re.M):
            self.owners["unowned"] = max(self.owners.get("unowned", 0), float(found[1]))

    def stop(self):
        self.stopping.set()
        self.thread.join()


def is_granted(kind, connection):
    """Whether the server has the memory for this kind of queries."""
    try:
        kind(connection, random.Random(SEED))
        return True
    except ReqlResourceLimitError:
        return False


def resident_bytes(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.M)
    return int(found[1]) << 10 if found else 0


class Memory(unittest.TestCase):
    def setUp(self):
        try:
            self.limited = MemoryGroup(LIMIT_MB << 20)
        except NoGroups:
            self.skipTest("no memory control group may be made here: run as root")
        self.addCleanup(self.limited.remove)
        self.node = Node("--cache-size", str(CACHE_MB))
        self.node.launcher = self.limited.launcher()
        self.addCleanup(self.node.remove)
        self.node.start()
        self.fill()

    def fill(self):
        chance = random.Random(SEED)
        with r.connect("127.0.0.1", self.node.driver_port) as connection:
            for name in ("t", "large"):
                r.table_create(name).run(connection)
            for start in range(0, ROWS_FIRST, 500):
                rows = [row(chance, number) for number in range(start, start + 500)]
                r.table("t").insert(rows, durability="soft").run(connection)
            for number in range(LARGE_ROWS):
                r.table("large").insert(large_row(chance, number), durability="soft").run(connection)

    def test_a_mix_of_all_that_takes_memory_stays_within_the_group(self):
        watch = Watch(self.node)
        crowd = Crowd(self.node.driver_port, CONNECTIONS, crowds_queries, lambda number: number % 10 < 2)
        mix = Mix(self.node)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends and not mix.failures and self.node.process.poll() is None:
            time.sleep(0.2)
        mix.stop()
        watch.stop()
        try:
            crowd.stop()
        except OSError as failure:
            mix.failures.append(f"the crowd: {failure}")
        self.report(mix, crowd, watch)
        self.assertEqual(self.limited.kills(), 0, "processes that the kernel killed")
        self.assertIsNone(self.node.process.poll(), "the server ended")
        self.assertEqual(mix.failures, [])
        self.assertLess(watch.peak_bytes, 1.1 * (LIMIT_MB << 20))
        for kind in ("load", "scan"):
            self.assertGreater(mix.done.get(kind, 0), 0, kind)
        # Memory that was refused is there again.
        with r.connect("127.0.0.1", self.node.driver_port) as connection:
            for kind in (mix.load, mix.large, mix.scan, mix.stream):
                self.assertTrue(comes_true(lambda kind=kind: is_granted(kind, connection)), kind.__name__)
            self.assertEqual(r.range(100_000).coerce_to("array").count().run(connection), 100_000)

    def report(self, mix, crowd, watch):
        shown = lambda bytes: f"{(bytes or 0) / (1 << 20):.0f} MB"
        print(f"limit {LIMIT_MB} MB, {SECONDS:.0f} s: peak resident {shown(watch.peak_bytes)}", end="; ")
        print(f"peak of the group {shown(self.limited.peak_bytes())}, {self.limited.kills()} kills", end="; ")
        print(f"done {mix.done}, refused {mix.refused}", end="; ")
        print(f"crowd sent {crowd.sent}, closed {crowd.closed}", end="; ")
        print("peaks: " + ", ".join(f"{owner} {shown(bytes)}" for owner, bytes in sorted(watch.owners.items())))


if __name__ == "__main__":
    unittest.main()
