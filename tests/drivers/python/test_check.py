"""`rekindle check` and `rekindle salvage` on data directories of a real server, whole and damaged.

`CHECK_FAULTS` is the number of single faults (default 40), `CHECK_SEED` their seed.
"""

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import uuid
from pathlib import Path

from rethinkdb import r

from node import node, program
from test_compression import article

FAULTS = int(os.environ.get("CHECK_FAULTS", "40"))
SEED = int(os.environ.get("CHECK_SEED", "1"))
ROWS = 2500
LARGE = 4
# Not among them: texts for operators, the name and the figures of the server, and RocksDB's notes of its options.
DATA = re.compile(r"\.(sst|blob|segment)$|^MANIFEST|^CURRENT$|^newest$|^identity|^rekindle_data_version$")


def run(*words):
    """Exit code, output and errors of a command."""
    done = subprocess.run([program(), *map(str, words)], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def check(directory):
    """Exit code and report of `rekindle check`."""
    code, out, errors = run("check", directory, "--json")
    return code, json.loads(out) if out else {"errors": errors}


def read_rows(text):
    return [] if text == "[]\n" else [json.loads(line) for line in text.splitlines()]


def salvaged(directory):
    """Exit code and outcome of `rekindle salvage`, and the rows of each table by key."""
    target = Path(tempfile.mkdtemp(prefix="rekindle-salvage-"))
    try:
        code, out, errors = run("salvage", directory, "--to", target, "--json")
        rows = {}
        for path in target.glob("*/*.json"):
            table = rows.setdefault(f"{path.parent.name}.{path.stem}", {})
            for row in read_rows(path.read_text()):
                assert row["id"] not in table, f"{path} has {row['id']} twice"
                table[row["id"]] = row
        left = [str(path) for path in target.iterdir() if path.name not in {"salvage.json"} and not path.is_dir()]
        assert not left and not (target / ".engine").exists(), left
        return code, json.loads(out) if out else {"errors": errors}, rows
    finally:
        shutil.rmtree(target)


def fill(server):
    """Makes tables with indexes, compressed rows, large values and a history. Returns their rows."""
    with r.connect("127.0.0.1", server.driver_port) as connection:
        r.db_create("shop").run(connection)
        r.table_create("articles").run(connection)
        r.db("shop").table_create("places", shards=3).run(connection)
        r.table_create("empty").run(connection)
        table = r.table("articles")
        table.index_create("group").run(connection)
        table.index_create("tags", multi=True).run(connection)
        places = r.db("shop").table("places")
        places.index_create("at", geo=True).run(connection)
        table.index_wait().run(connection)
        places.index_wait().run(connection)
        feed = table.changes().run(connection)
        numbers = list(range(ROWS))
        for start in range(0, ROWS, 250):
            rows = [article(number) for number in numbers[start : start + 250]]
            assert table.insert(rows).run(connection)["inserted"] == 250
        large = random.Random(7)
        for number in range(LARGE):
            text = "".join(large.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=600_000))
            assert table.insert({"id": ROWS + number, "text": text}).run(connection)["inserted"] == 1
        table.get_all(*range(0, ROWS, 9)).delete().run(connection)
        points = [{"id": f"p{n:04}", "at": r.point(n % 170, n % 80), "n": n} for n in range(300)]
        places.insert(points).run(connection)
        feed.close()


def rows_of(server):
    with r.connect("127.0.0.1", server.driver_port) as connection:
        tables = {"test.articles": r.table("articles"), "shop.places": r.db("shop").table("places")}
        rows = {name: {row["id"]: row for row in table.run(connection, time_format="raw")} for name, table in tables.items()}
        return {name: json.loads(json.dumps(table)) | {} for name, table in rows.items()} | {"test.empty": {}}


def by_key(tables):
    """Keys that are numbers become numbers again."""
    return {name: {row["id"]: row for row in table.values()} for name, table in tables.items()}


class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="rekindle-check-"))
        with node() as server:
            fill(server)
            server.stop()
            server.start()
            cls.wanted = by_key(rows_of(server))
            server.stop()
            shutil.copytree(server.directory / "data", cls.folder / "stopped")
            server.start()
            with r.connect("127.0.0.1", server.driver_port) as connection:
                # Rows that only the log has, a table of which the engine knows nothing, and a deleted row.
                r.table("articles").get(1).update({"title": "changed"}).run(connection)
                r.table("articles").get(2).delete().run(connection)
                r.table("articles").insert({"id": "late", "group": 3}).run(connection)
                r.table_create("late").run(connection)
                r.table("late").insert([{"id": n} for n in range(50)]).run(connection)
            cls.wanted_after = by_key(rows_of(server))
            cls.wanted_after["test.late"] = {n: {"id": n} for n in range(50)}
            server.kill()
            shutil.copytree(server.directory / "data", cls.folder / "killed")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_whole_directories_are_clean_and_unchanged(self):
        for name in ("stopped", "killed"):
            directory = self.folder / name
            before = contents(directory)
            code, report = check(directory)
            self.assertEqual((code, report["damages"]), (0, []), report)
            self.assertEqual(contents(directory), before, "the check changed a file")
            articles = report["tables"]["test.articles"]
            self.assertEqual(articles["rows"], len(self.wanted["test.articles"]))
            self.assertEqual(report["tables"]["shop.places"]["rows"], 300)
            self.assertGreater(articles["index_entries"], 4 * articles["rows"])
            self.assertGreaterEqual(report["dictionaries"], 1)
            self.assertGreater(report["history_records"], 0)
        code, out, _ = run("check", self.folder / "stopped")
        self.assertEqual((code, out.splitlines()[-1]), (0, "No damage was found."))

    def test_all_rows_are_salvaged_also_those_that_only_the_log_has(self):
        for name, wanted in (("stopped", self.wanted), ("killed", self.wanted_after)):
            before = contents(self.folder / name)
            code, outcome, rows = salvaged(self.folder / name)
            self.assertEqual((code, outcome["complete"]), (0, True), outcome)
            self.assertEqual(rows, wanted)
            self.assertEqual(contents(self.folder / name), before)

    def test_salvaged_tables_are_imported(self):
        target = self.folder / "import"
        code, _, errors = run("salvage", self.folder / "killed", "--to", target)
        self.assertEqual(code, 0, errors)
        tool = Path(os.sys.executable).parent / "rethinkdb-import"
        with node() as server:
            command = [str(tool), "-c", f"127.0.0.1:{server.driver_port}", "-d", str(target)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = by_key(rows_of(server))
            self.assertEqual(found, {name: self.wanted_after[name] for name in found})
            with r.connect("127.0.0.1", server.driver_port) as connection:
                self.assertEqual(set(r.table("articles").index_list().run(connection)), {"group", "tags"})
                geo = r.db("shop").table("places").index_status("at").run(connection)[0]
                self.assertTrue(geo["geo"], geo)

    def test_bad_inputs(self):
        empty = self.folder / "nothing"
        empty.mkdir(exist_ok=True)
        file = self.folder / "file"
        file.write_text("text")
        newer = self.folder / "newer"
        newer.mkdir(exist_ok=True)
        (newer / "rekindle_data_version").write_text("2\n")
        cases = {
            self.folder / "missing": "there is no data directory at",
            empty: "is empty",
            file: "is a file",
            newer: "another version of Rekindle",
        }
        for directory, text in cases.items():
            for words in (["check", directory], ["salvage", directory, "--to", self.folder / "unused"]):
                code, out, errors = run(*words)
                self.assertEqual((code, out), (2, ""), words)
                self.assertIn(text, errors)
        self.assertFalse((self.folder / "unused").exists())
        code, _, errors = run("salvage", self.folder / "stopped", "--to", newer)
        self.assertEqual(code, 2)
        self.assertIn("is not empty", errors)
        with node() as server:
            code, _, errors = run("check", server.directory / "data")
            self.assertEqual(code, 2)
            self.assertIn(f"in use by another process (pid {server.process.pid})", errors)

    def test_faults(self):
        """Each single fault is found, no wrong row is written, and none is missing without a word."""
        print(f"CHECK_SEED={SEED} CHECK_FAULTS={FAULTS}")
        tally = {"found": 0, "harmless": 0, "rows lost": 0}
        harmless = []
        for number in range(FAULTS):
            chance = random.Random(SEED * 100_000 + number)
            name = chance.choice(("stopped", "killed"))
            wanted = self.wanted if name == "stopped" else self.wanted_after
            directory = self.folder / "damaged"
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(self.folder / name, directory)
            fault = f"{damage(directory, chance)} ({name})"
            with self.subTest(f"fault {number} in {name}: {fault}"):
                code, report = check(directory)
                self.assertIn(code, (0, 1, 2), report)
                if code == 2:
                    # The file that names the directory, or a version, is damaged: nothing is read.
                    self.assertIn(fault.split(":")[0], ("rekindle_data_version",), report)
                    continue
                tally["rows lost"] += self.compare(directory, wanted, fault)
                tally["found" if code == 1 else "harmless"] += 1
                if code == 0:
                    harmless.append(fault)
                    # The end of these two may be an append that was not completed. No row is missing then, as `compare` found.
                    self.assertTrue("MANIFEST" in fault or ("killed" in fault and ".segment" in fault), "not found")
        print(tally, "harmless:", *harmless, sep="\n")

    def compare(self, directory, wanted, fault):
        """The number of rows that salvage did not find. Each row that it wrote must be right."""
        code, outcome, rows = salvaged(directory)
        self.assertIn(code, (0, 1), outcome)
        lost = 0
        # The log cannot tell its last append, after which no other came, from one that was not completed.
        is_torn = "killed" in fault and ".segment" in fault
        for table, expected in wanted.items():
            found = rows.get(table, {})
            if code == 0 and not is_torn:
                # Salvage says that it could read everything.
                self.assertEqual(found, expected, f"{fault}: {table}")
                continue
            for key, row in found.items():
                self.assertIn(row, self.versions(table, key), f"{fault}: {table} has a row that never existed")
            lost += sum(1 for key in expected if key not in found)
        return lost

    def versions(self, table, key):
        """All versions that a row had."""
        known = [rows[table][key] for rows in (self.wanted, self.wanted_after) if key in rows.get(table, {})]
        return [*known, article(key)] if table == "test.articles" and isinstance(key, int) else known


class DamagedServer(unittest.TestCase):
    """A damaged block while the server runs: its rows are refused, and all else goes on."""

    def test_one_bad_block(self):
        with node() as server:
            fill(server)
            wanted = by_key(rows_of(server))["test.articles"]
            with r.connect("127.0.0.1", server.driver_port) as connection:
                table_id = uuid.UUID(r.table("articles").info()["id"].run(connection)).bytes
            server.stop()
            path = max((server.directory / "data" / "engine").glob("*.sst"), key=lambda file: rows_in(file, table_id))
            content = bytearray(path.read_bytes())
            content[len(content) // 3] ^= 0x40
            path.write_bytes(content)
            server.start()
            with r.connect("127.0.0.1", server.driver_port) as connection:
                table = r.table("articles")
                refused = []
                for key, row in wanted.items():
                    try:
                        self.assertEqual(table.get(key).run(connection), row)
                    except r.errors.ReqlError as error:
                        refused.append(key)
                        self.assertIn(path.name, str(error))
                self.assertTrue(0 < len(refused) < 200, f"{len(refused)} rows are refused")
                issues = list(r.db("rethinkdb").table("current_issues").run(connection))
                found = [issue for issue in issues if issue["type"] == "data_damage"]
                self.assertEqual(len(found), 1, issues)
                self.assertIn(path.name, found[0]["description"])
                self.assertIn("`test.articles`", found[0]["description"])
                self.assertTrue(found[0]["critical"])
                with self.assertRaises(r.errors.ReqlError):
                    table.count(lambda row: row["text"].ne(None)).run(connection)
                # Writes go on, and rows that are written anew are whole.
                self.assertEqual(table.insert({"id": "new"}).run(connection)["inserted"], 1)
                self.assertEqual(table.get("new").run(connection), {"id": "new"})
            server.stop()
            code, report = check(server.directory / "data")
            self.assertEqual(code, 1, report)
            self.assertTrue(any(path.name in one["what"] for one in report["damages"]), report)


def metric(server, name):
    _, page = server.http("/metrics")
    return float(re.search(rf"^{name} (\S+)$", page, re.MULTILINE)[1])


def await_metric(server, name):
    """Returns as soon as the metric is not zero."""
    deadline = time.monotonic() + 60
    while not metric(server, name):
        assert time.monotonic() < deadline, f"{name} stays 0"
        time.sleep(0.05)


class BackgroundCheck(unittest.TestCase):
    """A running server finds damage by itself, without a query that meets it."""

    def test_damage_is_found_without_a_query(self):
        with node("--background-check", "100MB,1s") as server:
            fill(server)
            with r.connect("127.0.0.1", server.driver_port) as connection:
                table_id = uuid.UUID(r.table("articles").info()["id"].run(connection)).bytes
            await_metric(server, "rekindle_checks_completed_total")
            self.assertEqual(metric(server, "rekindle_check_damages_total"), 0)
            server.stop()
            path = max((server.directory / "data" / "engine").glob("*.sst"), key=lambda file: rows_in(file, table_id))
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 0x40
            path.write_bytes(content)
            server.start()
            await_metric(server, "rekindle_check_damages_total")
            with r.connect("127.0.0.1", server.driver_port) as connection:
                issues = list(r.db("rethinkdb").table("current_issues").run(connection))
                self.assertTrue(any(path.name in issue["description"] for issue in issues), issues)


def rows_in(path, table_id):
    """About the number of keys of a table's rows in a file. The keys of an index go on with its number, which is low."""
    content = path.read_bytes()
    return content.count(table_id) - content.count(table_id + bytes(3))


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(directory, chance):
    """Damages one file that says something about rows: `path: what was done`."""
    files = [path for path in directory.rglob("*") if path.stat().st_size > 0 and DATA.search(path.name)]
    kinds = {}
    for path in files:
        kinds.setdefault(path.suffix or path.name.split("-")[0], []).append(path)
    path = chance.choice(kinds[chance.choice(sorted(kinds))])
    before = path.read_bytes()
    bytes_ = bytearray(before)
    how = chance.choice(("flip", "zero", "truncate", "swap"))
    at = chance.randrange(len(bytes_))
    if how == "flip":
        bytes_[at] ^= 1 << chance.randrange(8)
    elif how == "zero":
        bytes_[at : at + 512] = bytes(len(bytes_[at : at + 512]))
    elif how == "truncate":
        del bytes_[at:]
    else:
        size = min(4096, max(1, len(bytes_) // 4))
        other = chance.randrange(len(bytes_) - size + 1)
        at = min(at, len(bytes_) - size)
        bytes_[at : at + size], bytes_[other : other + size] = bytes_[other : other + size], bytes_[at : at + size]
        del bytes_[len(before) :]
    if bytes_ == before:
        return damage(directory, chance)
    path.write_bytes(bytes_)
    return f"{path.relative_to(directory)}: {how} at byte {at} of {len(before)}"


if __name__ == "__main__":
    unittest.main()
