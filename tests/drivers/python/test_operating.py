"""Operation of a node: memory within its limit, queries that can be stopped, a log that queries can read."""

import contextlib
import re
import threading
import time
import unittest

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from rethinkdb import RethinkDB, r
from rethinkdb.errors import ReqlOpIndeterminateError, ReqlResourceLimitError

from node import node

LIMIT_MB = 400
# The queries of all clients together ask for 9,600 MB.
CLIENTS = 8


def peak_mb(pid):
    """The most memory the process ever had."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) // 1024


def metric(server, name, label=""):
    found = re.search(rf"^{name}{re.escape(label)} (\S+)$", server.http("/metrics")[1], re.M)
    return float(found[1])


def comes_true(condition, seconds=30):
    """Whether `condition` becomes true within the next seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
    return True


def is_counted_while_open(connection, server):
    """Whether `server` counts the memory of a stream over table `t` until the stream is closed."""
    cursors = "rekindle_memory_bytes", '{owner="cursors"}'
    stream = r.table("t").run(connection)
    next(stream)
    # The driver requests the next batch early: meanwhile the stream is not idle.
    is_counted = comes_true(lambda: metric(server, *cursors) > 0)
    stream.close()
    return is_counted and comes_true(lambda: metric(server, *cursors) == 0)


def huge():
    """About 1.2 GB: 100,000 strings of 12 KB."""
    return r.range(0, 100_000).map(lambda n: r.expr("x" * 12_000).add(n.coerce_to("string"))).coerce_to("array")


class Memory(unittest.TestCase):
    def test_queries_that_want_too_much_fail_and_everything_else_goes_on(self):
        with node("--cache-size", "100", "--memory-limit", str(LIMIT_MB)) as server:
            before = r.connect("127.0.0.1", server.driver_port)
            r.table_create("t").run(before)
            r.table("t").insert({"id": 1}).run(before)
            outcomes = []

            def client(number):
                connection = r.connect("127.0.0.1", server.driver_port)
                for query in (huge().count(), huge().order_by(lambda x: x), huge().group(lambda x: x).count()):
                    try:
                        outcomes.append(query.run(connection) and "answered")
                    except ReqlResourceLimitError as error:
                        outcomes.append(error.message)
                outcomes.append(r.expr(number).run(connection))

            threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                self.assertEqual(r.table("t").get(1).run(before), {"id": 1})
                for thread in threads:
                    thread.join(0.05)
            refused = [text for text in outcomes if isinstance(text, str) and "more memory than is left" in text]
            self.assertEqual(len(outcomes), 4 * CLIENTS, outcomes)
            self.assertEqual(len(refused), 3 * CLIENTS, outcomes)
            self.assertIsNone(server.process.poll(), "the server lives")
            self.assertLess(peak_mb(server.process.pid), LIMIT_MB)
            self.assertGreaterEqual(metric(server, "rekindle_memory_refused_total"), 3 * CLIENTS)
            self.assertLess(metric(server, "rekindle_memory_bytes", '{owner="queries"}'), 8 << 20)

    def test_what_many_connections_free_in_large_pieces_does_not_add_up(self):
        """Queries too small for their memory to be returned at their end, and none with much of the rest."""
        with node("--cache-size", "100", "--memory-limit", str(LIMIT_MB)) as server:
            first = r.connect("127.0.0.1", server.driver_port)
            r.table_create("t").run(first)
            lock = threading.Lock()
            failures = []

            def client(number):
                connection = r.connect("127.0.0.1", server.driver_port)
                for megabytes in (3, 9, 15, 5, 12, 7, 14, 2):
                    row = {"id": number, "text": "x" * (megabytes << 20)}
                    with lock:
                        written = r.table("t").insert(row, conflict="replace").run(connection)
                        found = r.table("t").get(number).run(connection)
                    if written["errors"] or found != row:
                        failures.append((number, megabytes, written))

            threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            # 141 to 191 MB in eight runs; 248 to 266 in six with MALLOC_CONF=oversize_threshold:0, so that large pieces
            # are kept like small ones; 210 and 220 with dirty_decay_ms:-1, which this may miss.
            self.assertLess(peak_mb(server.process.pid), 220)

    def test_what_fits_is_answered_and_a_cursor_that_waits_is_counted(self):
        with node("--cache-size", "100", "--memory-limit", str(LIMIT_MB)) as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            fits = r.range(0, 40_000).map(lambda n: r.expr("x" * 1000).add(n.coerce_to("string")))
            self.assertEqual(len(fits.coerce_to("array").run(connection)), 40_000)
            r.table_create("t").run(connection)
            r.table("t").insert([{"id": n, "text": "x" * 100_000} for n in range(100)]).run(connection)
            self.assertTrue(is_counted_while_open(connection, server))


@contextlib.contextmanager
def table_elsewhere():
    """A connection to one server, and another one with a limit, which alone holds table `t` of 1,000 rows."""
    with (
        node() as near,
        node(
            "--join", f"127.0.0.1:{near.cluster_port}", "--server-tag", "far",
            "--cache-size", "100", "--memory-limit", str(LIMIT_MB),
        ) as far,
        r.connect("127.0.0.1", near.driver_port) as connection,
    ):  # fmt: skip
        r.table_create("t", shards=1, replicas={"far": 1}, primary_replica_tag="far").run(connection)
        r.table("t").insert([{"id": n, "text": "x" * 12_000} for n in range(1000)]).run(connection)
        yield connection, far


class MemoryOfAnotherServer(unittest.TestCase):
    def test_what_a_server_gathers_for_a_query_of_another_one_is_inside_its_limit(self):
        with table_elsewhere() as (connection, far):
            # About 1.2 GB, where the rows are.
            texts = r.table("t").concat_map(
                lambda row: r.range(0, 100).map(
                    lambda n: row["text"].add(row["id"].coerce_to("string"), " ", n.coerce_to("string"))
                )
            )
            for query in (texts.distinct().count(), texts.group(lambda text: text).count().ungroup().count()):
                with self.assertRaisesRegex(ReqlResourceLimitError, "more memory than is left"):
                    query.run(connection)
            self.assertEqual(r.table("t").count().run(connection), 1000)
            self.assertIsNone(far.process.poll(), "the server lives")
            self.assertLess(peak_mb(far.process.pid), LIMIT_MB)
            self.assertGreaterEqual(metric(far, "rekindle_memory_refused_total"), 2)
            self.assertLess(metric(far, "rekindle_memory_bytes", '{owner="queries"}'), 8 << 20)

    def test_a_cursor_of_another_server_is_counted_while_it_is_open(self):
        with table_elsewhere() as (connection, far):
            self.assertTrue(is_counted_while_open(connection, far))


class CacheSize(unittest.TestCase):
    def test_the_cache_follows_server_config_while_the_server_runs(self):
        with node("--cache-size", "200") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            config = r.db("rethinkdb").table("server_config")
            process = r.db("rethinkdb").table("server_status").nth(0)["process"]
            r.table_create("t", durability="soft").run(connection)
            for start in range(0, 20_000, 500):
                rows = [{"id": n, "text": "x" * 3000} for n in range(start, start + 500)]
                r.table("t").insert(rows).run(connection)

            def fill():
                for start in range(0, 20_000, 1000):
                    r.table("t").get_all(*range(start, start + 1000))["text"].count().run(connection)
                return metric(server, "rekindle_row_cache_rows")

            # Rows take half of the cache.
            self.assertGreaterEqual(fill(), 20_000)
            queries = metric(server, "rekindle_query_memory_bytes_max")
            self.assertEqual(config.update({"cache_size_mb": 100}).run(connection)["replaced"], 1)
            self.assertTrue(comes_true(lambda: process["cache_size_mb"].run(connection) == 100))
            self.assertEqual(metric(server, "rekindle_cache_bytes_max"), 100 << 20)
            self.assertLess(metric(server, "rekindle_row_cache_rows"), 17_500)
            self.assertGreater(metric(server, "rekindle_query_memory_bytes_max"), queries)
            self.assertLess(fill(), 17_500)
            config.update({"cache_size_mb": 200}).run(connection)
            self.assertTrue(comes_true(lambda: process["cache_size_mb"].run(connection) == 200))
            self.assertGreaterEqual(fill(), 20_000)
            # Neither less than the minimum nor more than the memory of the machine.
            for wrong in (0, 99, 10**9):
                error = config.update({"cache_size_mb": wrong}).run(connection)["first_error"]
                self.assertRegex(error, f"allows 100 to [0-9]+ or 'auto', got {wrong}$")
            config.update({"cache_size_mb": 150}).run(connection)
            server.stop()
            server.flags = ()
            server.start()
            connection = r.connect("127.0.0.1", server.driver_port)
            self.assertEqual(process["cache_size_mb"].run(connection), 150)


    def test_a_cache_that_may_choose_fits_itself_into_the_limit(self):
        with node("--memory-limit", "2000") as server:
            self.assertLessEqual(metric(server, "rekindle_cache_bytes_max"), 1000 << 20)


class Stats(unittest.TestCase):
    def test_tables_have_figures_of_their_own(self):
        with node() as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            stats = r.db("rethinkdb").table("stats")
            for name in ("busy", "idle"):
                r.table_create(name).run(connection)
            # A rate covers the time since the previous read; this is the first.
            list(stats.run(connection))
            time.sleep(1.1)
            rows = [{"id": n, "text": str(n) * 100} for n in range(500)]
            r.table("busy").insert(rows).run(connection)
            r.table("busy").get(1).update({"x": 1}).run(connection)
            r.table("busy").get(1).run(connection)
            r.table("busy").filter(lambda row: row["text"].match("7")).count().run(connection)
            rows = {(row["id"][0], row["table"]): row for row in stats.has_fields("table").run(connection)}
            busy, idle = rows["table_server", "busy"], rows["table_server", "idle"]
            self.assertEqual(busy["query_engine"]["written_docs_total"], 501)
            self.assertEqual(busy["query_engine"]["read_docs_total"], 501)
            self.assertGreater(busy["query_engine"]["written_docs_per_sec"], 10)
            self.assertGreater(rows["table", "busy"]["query_engine"]["read_docs_per_sec"], 10)
            self.assertGreater(busy["storage_engine"]["disk"]["space_usage"]["data_bytes"], 10_000)
            self.assertEqual(set(idle["query_engine"].values()), {0})


class Metrics(unittest.TestCase):
    def test_the_page_is_valid_openmetrics(self):
        with node() as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("t").run(connection)
            r.table("t").insert({"id": 1}).run(connection)
            # The parser rejects histograms without a sum, repeated names and similar faults.
            families = {family.name: family for family in text_string_to_metric_families(server.http("/metrics")[1])}
            commits = families["rekindle_log_group_commit_entries"].samples
            values = {sample.name: sample.value for sample in commits if not sample.labels}
            self.assertGreater(values["rekindle_log_group_commit_entries_count"], 0)
            entries = values["rekindle_log_group_commit_entries_sum"]
            self.assertGreaterEqual(entries, values["rekindle_log_group_commit_entries_count"])


class Jobs(unittest.TestCase):
    def test_a_long_evaluation_is_stopped_within_a_second(self):
        with node() as server:
            mine = r.connect("127.0.0.1", server.driver_port)
            watcher = r.connect("127.0.0.1", server.driver_port)
            seen = []

            def run():
                try:
                    r.range(0, 1_000_000_000).map(lambda n: n.mul(n)).sum().run(mine)
                except ReqlOpIndeterminateError as error:
                    seen.append(error.message)

            thread = threading.Thread(target=run)
            thread.start()
            jobs = r.db("rethinkdb").table("jobs").filter(lambda job: job["info"]["query"].match("1000000000"))
            others = jobs.filter(lambda job: job["info"]["query"].match("jobs").eq(None))
            while not (found := list(others.run(watcher))):
                pass
            job = found[0]
            self.assertEqual(job["type"], "query")
            self.assertEqual(set(job["info"]), {"client_address", "client_port", "user", "query"})
            started = time.monotonic()
            answer = r.db("rethinkdb").table("jobs").get(job["id"]).delete().run(watcher)
            self.assertEqual(answer["deleted"], 1)
            thread.join(10)
            self.assertLess(time.monotonic() - started, 1)
            self.assertEqual(seen, ["Query terminated by the `rethinkdb.jobs` table."])


class Logs(unittest.TestCase):
    def test_the_log_can_be_read_newest_first_and_after_a_restart(self):
        with node("--server-name", "here") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            logs = list(r.db("rethinkdb").table("logs").run(connection))
            self.assertIn("Server ready", logs[0]["message"])
            row = logs[0]
            self.assertEqual(set(row), {"id", "level", "message", "server", "timestamp", "uptime"})
            self.assertEqual((row["level"], row["server"]), ("notice", "here"))
            self.assertRegex(row["id"][0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}$")
            server.stop()
            server.start()
            again = r.connect("127.0.0.1", server.driver_port)
            after = list(r.db("rethinkdb").table("logs").run(again))
            self.assertEqual([row for row in after if row["id"] == logs[0]["id"]], [row])
            self.assertEqual(sum("Server ready" in row["message"] for row in after), 2)
            refused = r.db("rethinkdb").table("logs").delete().run(again)
            self.assertIn("illegal to write to the `rethinkdb.logs` system table", refused["first_error"])


if __name__ == "__main__":
    unittest.main()
