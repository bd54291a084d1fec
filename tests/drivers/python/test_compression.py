"""Compressed rows on disk: text takes little space, and every row comes back, also after a restart and after kill -9."""

import random
import re
import unittest

from rethinkdb import r

from node import node
from test_operating import comes_true, metric

WORDS = """the of and in to a was is for as on with by that from at his it an were which are this also be had first one
their its new after who two her she been other when time during there more school years over only city some world would
where later up such used many can state about national out known university united then made river county station
government music family system company population history north south area public war team season district church town
village building river engine storage published company member general career development record international""".split()
ROWS = 3000


def article(number):
    """English-like text of one to four kilobytes, the same for the same number."""
    chance = random.Random(number)
    text = " ".join(chance.choices(WORDS, k=chance.randrange(150, 650)))
    return {
        "id": number,
        "title": " ".join(chance.choices(WORDS, k=3)).title(),
        "text": text,
        "author": {"name": chance.choice(WORDS), "edits": chance.randrange(10_000)},
        "tags": chance.sample(WORDS, 4),
        "group": number % 10,
    }


def insert(connection, numbers):
    numbers = list(numbers)
    for start in range(0, len(numbers), 200):
        rows = [article(number) for number in numbers[start : start + 200]]
        answer = r.table("articles").insert(rows, durability="soft").run(connection)
        assert answer["inserted"] == len(rows), answer


class Compression(unittest.TestCase):
    def check_all(self, server, wanted):
        """Compares every row, found in each of the ways in which rows are read."""
        connection = r.connect("127.0.0.1", server.driver_port)
        table = r.table("articles")
        self.assertEqual({row["id"]: row for row in table.run(connection)}, wanted)
        for number in list(wanted)[::37]:
            self.assertEqual(table.get(number).run(connection), wanted[number])
        keys = list(wanted)[:500]
        found = {row["id"]: row for row in table.get_all(*keys).run(connection)}
        self.assertEqual(found, {key: wanted[key] for key in keys})
        for group in (3, 7):
            found = {row["id"]: row for row in table.get_all(group, index="group").run(connection)}
            self.assertEqual(found, {key: row for key, row in wanted.items() if row["group"] == group})
        words = sum(len(row["text"].split(" ")) for row in wanted.values())
        self.assertEqual(table.map(lambda row: row["text"].split(" ").count()).sum().run(connection), words)
        connection.close()

    def test_rows_come_back_after_a_restart_and_after_kill_9(self):
        # The smallest memtables, so that rows reach the disk.
        with node("--cache-size", "100") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("articles").run(connection)
            table = r.table("articles")
            table.index_create("group").run(connection)
            table.index_wait("group").run(connection)
            wanted = {}
            for start in range(0, 5 * ROWS, ROWS):
                numbers = range(start, start + ROWS)
                insert(connection, numbers)
                wanted.update((number, article(number)) for number in numbers)
                if metric(server, "rekindle_compression_dictionaries_total", '{used="yes"}') and start:
                    break
            # Dictionaries are trained on another thread, which may come late on a busy machine.
            used = lambda: metric(server, "rekindle_compression_dictionaries_total", '{used="yes"}') > 0
            self.assertTrue(comes_true(used))
            numbers = range(100_000, 100_000 + ROWS)
            insert(connection, numbers)
            wanted.update((number, article(number)) for number in numbers)
            # Some rows are written again, some are deleted.
            table.between(100, 200).update({"title": "changed"}).run(connection)
            for number in range(100, 200):
                wanted[number] = {**wanted[number], "title": "changed"}
            table.between(300, 350).delete().run(connection)
            for number in range(300, 350):
                del wanted[number]
            self.check_all(server, wanted)
            plain, stored = (
                metric(server, "rekindle_compression_bytes_total", f'{{form="{form}"}}') for form in ("plain", "stored")
            )
            self.assertGreater(plain, 1_000_000)
            self.assertLess(stored, plain * 0.5)
            self.check_sizes(server, connection, wanted)

            table.sync().run(connection)
            self.assertEqual(server.stop(), 0)
            server.start()
            self.check_all(server, wanted)

            connection = r.connect("127.0.0.1", server.driver_port)
            numbers = range(200_000, 200_000 + ROWS)
            insert(connection, numbers)
            wanted.update((number, article(number)) for number in numbers)
            server.kill()
            server.start()
            self.check_all(server, wanted)

    def check_sizes(self, server, connection, wanted):
        """The sizes that `info`, `stats` and the metrics show."""
        logical = sum(len(str(row)) for row in wanted.values())
        estimates = r.table("articles").info()["storage_estimates"].run(connection)
        self.assertGreater(estimates["logical_bytes"], 0.8 * logical)
        self.assertLess(estimates["logical_bytes"], 1.2 * logical)
        self.assertAlmostEqual(estimates["ratio"], estimates["disk_bytes"] / estimates["logical_bytes"], 2)
        stats = r.db("rethinkdb").table("stats").filter(lambda row: row["id"][0] == "table_server")
        shown = stats.filter({"table": "articles"}).nth(0)["storage_engine"]["estimates"].run(connection)
        self.assertEqual(set(shown), {"logical_bytes", "disk_bytes", "ratio"})
        page = server.http("/metrics")[1]
        found = re.search(r'^rekindle_table_bytes\{db="test",table="articles",form="logical"\} (\S+)$', page, re.M)
        self.assertGreater(float(found[1]), 0.8 * logical)

    def test_archives_settle_and_come_back(self):
        with node("--cache-size", "100") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            db, config = r.db("test"), r.table("articles").config()
            created = db.table_create("articles", compression="archive").run(connection)
            self.assertEqual(created["config_changes"][0]["new_val"]["compression"], "archive")
            r.table("articles").index_create("group").run(connection)
            r.table("articles").index_wait("group").run(connection)
            # A small archive stays as it is.
            db.table_create("small", compression="archive").run(connection)
            small = [{"id": number, "text": f"row {number}"} for number in range(10)]
            r.table("small").insert(small).run(connection)
            insert(connection, range(2 * ROWS))
            wanted = {number: article(number) for number in range(2 * ROWS)}

            settled = lambda: metric(server, "rekindle_compression_settled_rows_total")
            self.assertTrue(comes_true(lambda: settled() > ROWS, seconds=120))
            before, after = (
                metric(server, "rekindle_compression_settled_bytes_total", f'{{form="{form}"}}')
                for form in ("before", "after")
            )
            self.assertLess(after, before * 0.9)
            self.check_all(server, wanted)
            r.table("articles").between(100, 200).update({"title": "changed"}).run(connection)
            wanted.update((number, {**wanted[number], "title": "changed"}) for number in range(100, 200))
            server.kill()
            server.start()
            self.check_all(server, wanted)
            connection = r.connect("127.0.0.1", server.driver_port)
            self.assertEqual(list(r.table("small").order_by("id").run(connection)), small)

            # The setting stays when the table is reconfigured, and can be changed.
            r.table("articles").reconfigure(shards=2, replicas=1).run(connection)
            r.table("articles").wait().run(connection)
            self.assertEqual(config["compression"].run(connection), "archive")
            self.assertEqual(config.update({"compression": "default"}).run(connection)["replaced"], 1)
            self.assertFalse(config.has_fields("compression").run(connection))
            self.check_all(server, wanted)
            self.assertEqual(config.update({"compression": "archive"}).run(connection)["replaced"], 1)
            for wrong in ("zip", 7, None):
                answer = config.update({"compression": wrong}).run(connection)
                self.assertIn('In `compression`: Expected "default" or "archive", got: ', answer["first_error"])
            why = r"Compression option `zip` unrecognized \(options are \"default\" and \"archive\"\)"
            with self.assertRaisesRegex(r.errors.ReqlQueryLogicError, why):
                db.table_create("other", compression="zip").run(connection)

    def test_random_rows_stay_as_they_are(self):
        with node("--cache-size", "100") as server:
            connection = r.connect("127.0.0.1", server.driver_port)
            r.table_create("noise").run(connection)
            chance = random.Random(1)
            characters = [chr(code) for code in range(32, 127)]
            for start in range(0, 4000, 200):
                rows = [
                    {"id": number, **{f"field{n}": "".join(chance.choices(characters, k=100)) for n in range(10)}}
                    for number in range(start, start + 200)
                ]
                r.table("noise").insert(rows, durability="soft").run(connection)
            # Reading all rows hands the write buffer over.
            self.assertEqual(r.table("noise").count(lambda row: row["field0"] != "").run(connection), 4000)
            used = 'rekindle_compression_dictionaries_total{used="no"} '
            self.assertTrue(comes_true(lambda: used in server.http("/metrics")[1]))
            self.assertEqual(metric(server, "rekindle_compression_rows_total"), 0)


if __name__ == "__main__":
    unittest.main()
