"""Queries that would run for minutes end within a second: by STOP, by a closed connection, and by a deletion from
`rethinkdb.jobs`, at any point of their evaluation."""

import contextlib
import os
import socket
import struct
import threading
import time
import unittest

from rethinkdb import r
from rethinkdb.ast import ReQLEncoder
from rethinkdb.errors import ReqlError, ReqlOpIndeterminateError

from node import Node, node

MAGIC_V0_4 = 0x400C2D20
WIRE_JSON = 0x7E6970C7
START, STOP = 1, 3
ROWS = 4_000
# With tolerance for a busy machine.
STOPPED_SECONDS_MAX = 1.0


def enormous(x):
    """A value of a few pages with 10^11 parts, each counted where it occurs."""
    return r.expr([r.expr([r.expr([x]).mul(100_000)]).mul(100_000)]).mul(10)


def compared(compare):
    """`compare` of two such equal values without shared parts."""
    return r.expr(1).do(lambda x: compare(enormous(x), enormous(x.mul(1))))


def long_ones():
    """Queries that take minutes, by operation."""
    numbers = r.range(0, 1_000_000_000)
    rows = r.table("t")
    count = numbers.map(lambda n: n.mul(n)).count()
    more = lambda row: rows.filter(lambda other: other["n"].gt(row["n"])).count()
    return {
        "a sum": numbers.map(lambda n: n.mul(n)).sum(),
        "a reduction": numbers.reduce(lambda a, b: a.add(b)),
        "a fold": numbers.fold(0, lambda a, n: a.add(n)),
        "a filter that lets nothing through": numbers.filter(lambda n: n.lt(0)).count(),
        "an order of pairs": r.range(0, 90_000).order_by(lambda n: r.range(0, n).sum()),
        "a text search": numbers.map(lambda n: n.coerce_to("string").match("(1+)+x")).count(),
        "rows and all rows": rows.map(more).sum(),
        "a join": rows.inner_join(rows, lambda a, b: a["n"].add(b["n"]).eq(-1)).count(),
        "groups": rows.concat_map(lambda row: r.range(0, 90_000)).group(lambda n: n.mod(7)).count(),
        "writes that read": rows.update(lambda row: {"m": more(row)}, non_atomic=True),
        "a row that is changed": rows.get(1).update(lambda row: {"m": count}),
        "a row that is replaced": rows.get(1).replace(lambda row: row.merge({"m": count})),
        "rows that are changed": rows.limit(3).update(lambda row: {"m": count}),
        "a row that is there": rows.insert({"id": 1}, conflict=lambda id, old, new: old.merge({"m": count})),
        "rows one by one": r.expr([1, 2]).for_each(lambda id: rows.get(id).update(lambda row: {"m": count})),
        "a comparison": compared(lambda a, b: a.eq(b)),
        "a comparison of objects": compared(lambda a, b: r.expr({"a": a}).lt({"a": b})),
        "different values": compared(lambda a, b: r.expr([a, b]).distinct().count()),
        "an order of values": compared(lambda a, b: r.expr([{"k": a}, {"k": b}]).order_by("k").count()),
        "the greatest value": compared(lambda a, b: r.expr([a, b]).max().count()),
        "groups of values": compared(lambda a, b: r.expr([{"k": a}, {"k": b}]).group("k").count()),
        "a set of values": compared(lambda a, b: r.expr([a]).set_union([b]).count()),
        "a value among others": compared(lambda a, b: r.expr([a]).contains(b)),
        "where a value is": compared(lambda a, b: r.expr([a]).offsets_of(b)),
        "a row that is compared": rows.get(1).update(
            {"m": enormous(r.row["n"]).eq(enormous(r.row["n"].mul(1)))}
        ),
        "rows that are compared": rows.filter(enormous(r.row["n"]).eq(enormous(r.row["n"].mul(1)))).count(),
        "a write hook": r.table("hooked").insert({"id": 1}),
    }


class Stopping(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node().start()
        cls.watcher = r.connect("127.0.0.1", cls.node.driver_port)
        r.table_create("t").run(cls.watcher)
        for start in range(0, ROWS, 1000):
            rows = [{"id": n, "n": n} for n in range(start, start + 1000)]
            r.table("t").insert(rows, durability="soft").run(cls.watcher)
        r.table_create("hooked").run(cls.watcher)
        hook = lambda context, old, new: new.merge({"m": r.range(0, 1_000_000_000).count()})
        r.table("hooked").set_write_hook(hook).run(cls.watcher)

    @classmethod
    def tearDownClass(cls):
        cls.watcher.close()
        cls.node.remove()

    def jobs(self):
        """The ids of the running queries without this one."""
        jobs = r.db("rethinkdb").table("jobs").filter({"type": "query"})
        others = jobs.filter(lambda job: job["info"]["query"].match('table."jobs"').eq(None))
        return list(others["id"].run(self.watcher))

    def until(self, condition, seconds):
        """How long it took until `condition` held."""
        started = time.monotonic()
        while not condition():
            self.assertLess(time.monotonic() - started, seconds)
            time.sleep(0.01)
        return time.monotonic() - started

    def begin(self, query):
        """A connection on which the query runs, under token 1."""
        raw = socket.create_connection(("127.0.0.1", self.node.driver_port), timeout=10)
        raw.sendall(struct.pack("<III", MAGIC_V0_4, 0, WIRE_JSON))
        self.assertEqual(raw.recv(64), b"SUCCESS\0")
        self.send(raw, [START, query])
        self.until(self.jobs, 10)
        # While it runs.
        time.sleep(0.2)
        self.assertTrue(self.jobs(), "the query was over before it was stopped")
        return raw

    def send(self, raw, message):
        body = ReQLEncoder().encode(message).encode()
        raw.sendall(struct.pack("<QI", 1, len(body)) + body)

    def ends_soon(self):
        self.until(lambda: not self.jobs(), STOPPED_SECONDS_MAX)

    def test_by_stop(self):
        for name, query in long_ones().items():
            with self.subTest(name), contextlib.closing(self.begin(query)) as raw:
                self.send(raw, [STOP])
                self.ends_soon()

    def test_by_a_connection_that_closes(self):
        for name, query in long_ones().items():
            with self.subTest(name):
                self.begin(query).close()
                self.ends_soon()

    def test_by_a_deletion_from_jobs(self):
        for name, query in long_ones().items():
            with self.subTest(name), contextlib.closing(r.connect("127.0.0.1", self.node.driver_port)) as mine:
                said = []
                thread = threading.Thread(target=self.run_to_the_end, args=(query, mine, said))
                thread.start()
                self.until(self.jobs, 10)
                time.sleep(0.2)
                deleted = r.db("rethinkdb").table("jobs").get_all(*self.jobs()).delete().run(self.watcher)
                self.assertEqual(deleted["deleted"], 1, deleted)
                started = time.monotonic()
                thread.join(30)
                self.assertLess(time.monotonic() - started, STOPPED_SECONDS_MAX)
                self.assertEqual(said, [(ReqlOpIndeterminateError, "Query terminated by the `rethinkdb.jobs` table.")])

    def test_others_are_served_meanwhile(self):
        for name in ("a row that is changed", "a row that is compared", "a write hook"):
            with self.subTest(name), contextlib.ExitStack() as open_ones:
                # More than there are threads that serve drivers.
                for _ in range(4):
                    open_ones.enter_context(contextlib.closing(self.begin(long_ones()[name])))
                started = time.monotonic()
                for n in range(8):
                    with r.connect("127.0.0.1", self.node.driver_port, timeout=5) as other:
                        self.assertEqual(r.expr(n).run(other), n)
                self.assertLess(time.monotonic() - started, 8 * STOPPED_SECONDS_MAX)
            self.ends_soon()

    def run_to_the_end(self, query, connection, said):
        try:
            query.run(connection, array_limit=1_000_000)
        except ReqlError as error:
            said.append((type(error), error.message))


class StoppingElsewhere(unittest.TestCase):
    def test_what_a_write_has_another_server_do_is_stopped_there(self):
        with node() as near, node("--join", f"127.0.0.1:{near.cluster_port}", "--server-tag", "far") as far:
            watcher = r.connect("127.0.0.1", near.driver_port)
            r.table_create("t", replicas={"far": 1}, primary_replica_tag="far").run(watcher)
            r.table("t").insert([{"id": n} for n in range(10)]).run(watcher)
            jobs = r.db("rethinkdb").table("jobs").filter({"type": "query"})
            mine = jobs.filter(lambda job: job["info"]["query"].match('table."jobs"').eq(None))
            count = r.range(0, 1_000_000_000).map(lambda n: n.mul(n)).count()
            # Twelve are more than the threads that a server has for requests of other servers.
            for n in range(12):
                other = r.connect("127.0.0.1", near.driver_port)
                r.table("t").get(n % 10).update(lambda row: {"m": count}).run(other, noreply=True)
                comes_true(self, lambda: mine.count().run(watcher) > 0)
                self.assertEqual(mine.delete().run(watcher)["deleted"], 1)
                comes_true(self, lambda: mine.count().run(watcher) == 0)
                other.close(noreply_wait=False)
            self.assertEqual(r.table("t").sum("id").run(watcher), 45)
            self.assertEqual(r.table("t").filter(r.row.has_fields("m")).count().run(watcher), 0)
            self.assertIsNone(far.process.poll())
            comes_true(self, lambda: busy_share(far.process.pid) < 0.5)


def comes_true(test, condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        test.assertLess(time.monotonic(), end)
        time.sleep(0.01)


def busy_share(pid, seconds=0.5):
    """The share of a core that the process uses."""
    def ticks():
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


if __name__ == "__main__":
    unittest.main()
