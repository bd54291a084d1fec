"""Dumps and exports of a real RethinkDB, restored and imported by the unchanged tools: rows, indexes and hooks are as they were.

`rekindle restore` sets the hooks that the tool leaves out."""

import contextlib
import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from rethinkdb import r

from node import node, program
from rethinkdb_data import DATA, RAW, binary, needs_data, plain, records

ALL = DATA / "dumps" / "all-2.4.10.post1.tar.gz"
HOOKS = ["shop.hook_only", "shop.orders", "shop.users"]
FILES = Path(__file__).resolve().parents[1] / "tls"
EXPORTED = lambda name: name != "mix_Types_9.large"


def expected_tables():
    return json.loads((DATA / "dumps" / "expected" / "tables.json").read_text(encoding="utf-8"))


class Restored(unittest.TestCase):
    """A node, and checks of what was restored there."""

    maxDiff = 4000
    # The tool restores the hook of a table only if the table has indexes.
    without_hook = {"shop.hook_only"}

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.node = stack.enter_context(node())
        self.connection = stack.enter_context(contextlib.closing(r.connect("127.0.0.1", self.node.driver_port)))

    def run_query(self, query, **options):
        return query.run(self.connection, **options)

    def tool(self, name, *arguments):
        program = Path(sys.executable).parent / f"rethinkdb-{name}"
        command = [str(program), "-c", f"localhost:{self.node.driver_port}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def table_names(self):
        names = []
        for db in self.run_query(r.db_list().set_difference(["rethinkdb", "test"])):
            names += [f"{db}.{table}" for table in self.run_query(r.db(db).table_list())]
        return set(names)

    def check_rows(self, name, fields=None):
        db, table = name.split(".", 1)
        expected = records(f"dumps/expected/{name}.jsonl")
        if fields:
            expected = [{field: row[field] for field in fields if field in row} for row in expected]
        key = self.run_query(r.db(db).table(table).info()["primary_key"])
        rows = list(self.run_query(r.db(db).table(table).order_by(index=key), **RAW))
        self.assertEqual(len(rows), len(expected), name)
        for found, row in zip(rows, expected):
            self.assertEqual(plain(found), plain(row), name)

    def check_indexes(self, name, known, with_entries=True):
        db, table = name.split(".", 1)
        table = r.db(db).table(table)
        statuses = self.run_query(table.index_wait())
        self.assertEqual([status["index"] for status in statuses], sorted(known["indexes"], key=str.encode), name)
        for status in statuses:
            index = known["indexes"][status["index"]]
            self.assertEqual(bytes(status["function"]), binary(index), name)
            self.assertEqual((status["multi"], status["geo"]), (index["multi"], index["geo"]), name)
            if with_entries and not index["geo"]:
                entries = table.between(r.minval, r.maxval, index=status["index"]).count()
                distinct = table.distinct(index=status["index"]).count()
                found = [self.run_query(query) for query in (entries, distinct)]
                self.assertEqual(found, [index["entries"], index["distinct"]], f"{name} {status['index']}")

    def check_hook(self, name, known):
        db, table = name.split(".", 1)
        hook = self.run_query(r.db(db).table(table).get_write_hook())
        if known["write_hook"] is None or name in self.without_hook:
            self.assertIsNone(hook, name)
        else:
            self.assertEqual(bytes(hook["function"]), binary(known["write_hook"]), name)

    def check(self, is_included, with_hooks=True):
        tables = {name: known for name, known in expected_tables().items() if is_included(name)}
        self.assertEqual(self.table_names(), set(tables))
        for name, known in tables.items():
            db, table = name.split(".", 1)
            self.assertEqual(self.run_query(r.db(db).table(table).info()["primary_key"]), known["primary_key"])
            self.check_rows(name)
            self.check_indexes(name, known)
            self.check_hook(name, known if with_hooks else {"write_hook": None})


@needs_data
class Dumps(Restored):
    def test_a_dump_of_everything(self):
        self.tool("restore", DATA / "dumps" / "all-2.4.10.post1.tar.gz")
        self.check(lambda name: True)
        # What is rebuilt has the same functions.
        self.tool("index-rebuild", "--force", "-n", 3)
        self.check(lambda name: True)

    def test_a_dump_by_an_older_driver(self):
        self.tool("restore", DATA / "dumps" / "all-2.3.0.post6.tar.gz")
        self.check(lambda name: True, with_hooks=False)

    def test_a_dump_of_a_database(self):
        self.tool("restore", DATA / "dumps" / "shop-2.4.10.post1.tar.gz")
        self.check(lambda name: name.startswith("shop."))

    def test_a_dump_of_two_tables(self):
        self.tool("restore", DATA / "dumps" / "two-tables-2.4.10.post1.tar.gz")
        self.check(lambda name: name in {"shop.users", "mix_Types_9.empty"})

    def test_a_dump_of_ours_has_what_was_restored(self):
        self.tool("restore", DATA / "dumps" / "all-2.4.10.post1.tar.gz")
        archive = self.folder / "ours.tar.gz"
        self.tool("dump", "-f", archive)
        for db in ("shop", "mix_Types_9"):
            self.run_query(r.db_drop(db))
        self.tool("restore", archive)
        self.check(lambda name: True)
        # The files that describe tables name the same functions.
        unpacked = self.folder / "ours"
        shutil.unpack_archive(archive, unpacked)
        for name, known in expected_tables().items():
            db, table = name.split(".", 1)
            (info,) = unpacked.glob(f"*/{db}/{table}.info")
            indexes = json.loads(info.read_text(encoding="utf-8"))["indexes"]
            found = {index["index"]: binary({"function": index["function"]["data"]}) for index in indexes}
            self.assertEqual(found, {index: binary(status) for index, status in known["indexes"].items()})

    def test_an_export_in_json(self):
        self.tool("import", "-d", DATA / "export" / "json")
        self.check(EXPORTED)

    def test_an_export_of_some_fields(self):
        self.tool("import", "-d", DATA / "export" / "json-fields")
        self.check_rows("shop.users", ["email", "name"])

    def test_an_export_in_lines(self):
        self.run_query(r.expr(["shop", "mix_Types_9"]).for_each(lambda db: r.db_create(db)))
        for name, known in expected_tables().items():
            file = DATA / "export" / "ndjson" / (name.replace(".", "/", 1) + ".ndjson")
            if not EXPORTED(name) or not known["rows"]:
                continue
            # The tool chooses the format by the name of the file, and does not know this one.
            rows = Path(shutil.copy(file, self.folder / "rows.json"))
            self.tool("import", "-f", rows, "--table", name, "--pkey", known["primary_key"], "--format", "json")
            self.check_rows(name)

    def test_exports_in_csv(self):
        # The tool does not read the third export: it ignores `--delimiter`.
        for folder, name in (("csv-users", "shop.users"), ("csv-values", "mix_Types_9.values")):
            known = expected_tables()[name]
            self.tool("import", "-d", DATA / "export" / folder)
            file = DATA / "export" / folder / (name.replace(".", "/", 1) + ".csv")
            with open(file, encoding="utf-8", newline="") as lines:
                expected = [{field: text for field, text in row.items() if text} for row in csv.DictReader(lines)]
            db, table = name.split(".", 1)
            rows = list(self.run_query(r.db(db).table(table)))
            by_key = lambda row: row[known["primary_key"]]
            self.assertEqual(sorted(rows, key=by_key), sorted(expected, key=by_key))
            self.check_indexes(name, known, with_entries=False)
            self.check_hook(name, known)


@needs_data
class RestoreCommand(Restored):
    """`rekindle restore`."""

    without_hook = ()

    def restore(self, *arguments, code=0, port=None, **options):
        """What it printed, and its errors."""
        command = [program(), "restore", "-c", f"localhost:{port or self.node.driver_port}", *map(str, arguments)]
        options.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=self.environment(), **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def environment(self):
        tools = str(Path(sys.executable).parent)
        return {**os.environ, "PATH": os.pathsep.join([tools, os.environ["PATH"]]), "TMPDIR": str(self.folder)}

    def changed_dump(self, name, change):
        """The dump of everything, in which `change` was applied to the description of a table."""
        path = self.folder / "changed.tar.gz"
        with tarfile.open(ALL) as old, tarfile.open(path, "w:gz") as new:
            for member in old:
                content = old.extractfile(member).read()
                if member.name.endswith(f"/{name.replace('.', '/')}.info"):
                    info = json.loads(content)
                    change(info)
                    content = json.dumps(info).encode()
                    member.size = len(content)
                new.addfile(member, io.BytesIO(content))
        return path

    def hooks(self, connection=None):
        names = r.db("rethinkdb").table("table_config").filter(lambda row: row["write_hook"].ne(None))
        names = names.map(lambda row: row["db"] + "." + row["name"])
        return sorted(names.run(connection or self.connection))

    def said_hooks(self, out):
        return sorted(line.split(" of ")[1].split(":")[0] for line in out.splitlines() if "write hook of" in line)

    def test_all_hooks_are_set_and_act(self):
        out, err = self.restore(ALL)
        self.check(lambda name: True)
        self.assertEqual((self.said_hooks(out), err), (HOOKS, ""))
        self.assertEqual(self.hooks(), HOOKS)
        # As the function says: a merge with a captured text and the key of the context.
        table = r.db("shop").table("hook_only")
        self.run_query(table.insert({"id": 100}))
        self.assertEqual(self.run_query(table.get(100)), {"id": 100, "by": "cap", "pk": 100})
        self.run_query(table.get(100).delete())
        # Nothing is left behind, and no hook is set where the tool fails.
        self.assertEqual(list(self.folder.iterdir()), [])
        out, err = self.restore(ALL, code=1)
        self.assertIn("already exist", err)
        self.assertIn(f"not set, as rethinkdb-restore failed ({', '.join(HOOKS)})", err)
        # The tool lets the hooks of existing tables change what it writes.
        for name in HOOKS:
            self.run_query(r.db("shop").table(name.removeprefix("shop.")).set_write_hook(None))
        self.assertEqual(self.restore(ALL, "--force", "-q"), ("", ""))
        self.check(lambda name: True)

    def test_some_tables_from_standard_input(self):
        with open(ALL, "rb") as archive:
            out, _ = self.restore("-", "-i", "shop.hook_only", "--import=mix_Types_9.keys", "--clients", "2", "--temp-dir", self.folder, stdin=archive)
        self.check(lambda name: name in {"shop.hook_only", "mix_Types_9.keys"})
        self.assertEqual(self.said_hooks(out), ["shop.hook_only"])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_without_indexes_all_hooks_are_set(self):
        out, _ = self.restore(ALL, "--no-secondary-indexes")
        self.assertEqual((self.said_hooks(out), self.hooks()), (HOOKS, HOOKS))
        for name, known in expected_tables().items():
            self.check_rows(name)
            self.check_hook(name, known)
            db, table = name.split(".", 1)
            self.assertEqual(self.run_query(r.db(db).table(table).index_list()), [])

    def test_a_refused_hook_is_named(self):
        def spoil(info):
            info["write_hook"]["function"]["data"] = "AAAA"

        out, err = self.restore(self.changed_dump("shop.hook_only", spoil), code=1)
        self.assertIn("the server refused the write hook of shop.hook_only, whose rows are restored", err)
        self.assertEqual(self.said_hooks(out), [name for name in HOOKS if name != "shop.hook_only"])
        self.check_rows("shop.hook_only")

    def test_a_password(self):
        self.run_query(r.db("rethinkdb").table("users").get("admin").update({"password": "secret"}))
        file = self.folder / "password"
        file.write_text("secret\n", encoding="utf-8")
        self.restore(ALL, "-i", "shop.hook_only", "--password-file", file)
        self.assertEqual(self.hooks(), ["shop.hook_only"])
        file.write_text("wrong")
        _, err = self.restore(ALL, "-i", "shop.hook_only", "--password-file", file, code=2)
        self.assertIn("Wrong password", err)

    def test_a_password_from_the_terminal(self):
        self.run_query(r.db("rethinkdb").table("users").get("admin").update({"password": "secret"}))
        child, terminal = pty.fork()
        if child == 0:
            words = ["restore", "-pc", f"localhost:{self.node.driver_port}", str(ALL), "-i", "shop"]
            os.execve(program(), [program(), *words], self.environment())
        said = b""
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 4096):
                if b"Password for" in part:
                    os.write(terminal, b"secret\n")
                said += part
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, said)
        self.assertEqual(said.count(b"Password for"), 1, said)
        self.assertNotIn(b"secret", said)
        self.assertEqual(self.hooks(), HOOKS)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_tls(self):
        # The second and the third are as RethinkDB's documentation makes them.
        for certificate, authority in (("server", "authority"), ("self_signed", "self_signed"), ("nameless", "nameless")):
            keys = ("--driver-tls-key", str(FILES / f"{certificate}.key"), "--driver-tls-cert", str(FILES / f"{certificate}.pem"))
            trusted = str(FILES / f"{authority}.pem")
            with self.subTest(certificate), node(*keys) as server:
                out, _ = self.restore(ALL, "-i", "shop.hook_only", "--tls-cert", trusted, port=server.driver_port)
                self.assertEqual(self.said_hooks(out), ["shop.hook_only"])
                with r.connect("localhost", server.driver_port, ssl={"ca_certs": trusted}) as connection:
                    self.assertEqual(self.hooks(connection), ["shop.hook_only"])


if __name__ == "__main__":
    unittest.main()
