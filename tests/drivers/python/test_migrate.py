"""`rekindle migrate`: copies, goes on after an interruption, follows, compares, cuts over, and refuses bad inputs with reasons."""

import contextlib
import json
import re
import socket
import tempfile
import threading
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.ast import RqlQuery
from rethinkdb.ql2_pb2 import Term

from migration import Player, Recorder, Tool, Writes, until
from node import node
from rethinkdb_data import RAW, binary, needs_data, plain, records

FILES = Path(__file__).parent.parent / "tls"


class Sides(unittest.TestCase):
    """Two nodes for all tests of a class; each test has its own database."""

    maxDiff = 4000
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.source, cls.target = (cls.stack.enter_context(node(*cls.flags)) for _ in range(2))

    def setUp(self):
        self.db = self.id().rsplit(".", 1)[-1][:60]
        connect = lambda side: contextlib.closing(r.connect("127.0.0.1", side.driver_port))
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.at_source, self.at_target = (stack.enter_context(connect(side)) for side in (self.source, self.target))
        self.tool = Tool(self.source.driver_port, self.target.driver_port)
        r.db_create(self.db).run(self.at_source)
        self.tables = []

    def make(self, name, rows=(), **options):
        r.db(self.db).table_create(name, **options).run(self.at_source)
        table = r.db(self.db).table(name)
        if rows:
            self.assertEqual(table.insert(list(rows)).run(self.at_source)["errors"], 0)
        self.tables.append(name)
        return table

    def rows(self, table, connection):
        return [plain(row) for row in table.order_by(index=self.key(table)).run(connection, **RAW)]

    def key(self, table):
        return table.info()["primary_key"].run(self.at_source)

    def check_equal(self):
        for name in self.tables:
            table = r.db(self.db).table(name)
            self.assertEqual(self.rows(table, self.at_target), self.rows(table, self.at_source), name)

    def migrate(self, *arguments, code=0):
        found, out, err = self.tool.run("--only", self.db, *arguments)
        self.assertEqual(found, code, out + err)
        return out + err

    def refused(self, *arguments, tool=None):
        code, out, err = (tool or self.tool).run(*arguments)
        self.assertEqual(code, 1, out + err)
        return out + err


class Copies(Sides):
    def test_everything_of_a_database(self):
        values = [
            {"id": [1, "x"], "when": r.now(), "bytes": r.binary(bytes(range(200))), "place": r.point(5, 6)},
            {"id": "text", "deep": {"a": [[1, [2.5, {"b": []}]]]}, "quote": '"[\\'},
            {"id": 7, "number": 0.1, "small": -0.0, "none": None},
            {"id": r.time(2020, 1, 1, "Z"), "zone": r.now().in_timezone("+05:00")},
            {"id": True, "name\0zero": 1},
        ]
        self.make("values", values)
        keyed = self.make("keyed", [{"k": n, "n": n % 7} for n in range(3000)], primary_key="k", durability="soft")
        keyed.config().update({"write_acks": "single"}).run(self.at_source)
        keyed.index_create("n").run(self.at_source)
        keyed.index_create("tags", r.row["tags"], multi=True).run(self.at_source)
        keyed.index_wait().run(self.at_source)
        keyed.set_write_hook(lambda context, old, new: r.branch(new == None, None, new.merge({"hooked": True}))).run(self.at_source)
        self.make("empty", shards=2)
        said = self.migrate()
        self.assertIn(f"{self.db}.keyed: 3000 rows copied", said)
        self.check_equal()
        config = r.db(self.db).table("keyed").config().pluck("primary_key", "durability", "write_acks").run(self.at_target)
        self.assertEqual(config, {"primary_key": "k", "durability": "soft", "write_acks": "single"})
        self.assertEqual(len(r.db(self.db).table("empty").config()["shards"].run(self.at_target)), 2)
        both = [keyed.index_status().without("query").run(side) for side in (self.at_source, self.at_target)]
        self.assertEqual(*both)
        self.assertEqual(*(keyed.get_write_hook()["function"].run(side) for side in (self.at_source, self.at_target)))
        self.assertIn("both sides are equal", self.migrate("--verify"))

    def test_a_complete_copy_says_that_it_is_not_repeated(self):
        self.make("a", [{"id": 1}])
        self.assertIn("a: 1 rows copied", self.migrate())
        said = self.migrate()
        self.assertIn("a: complete already, with 1 rows; nothing was copied again", said)
        self.assertIn("--verify", said)
        self.assertNotIn("rows copied", said)

    def test_only_one_table(self):
        self.make("a", [{"id": 1}])
        self.make("b", [{"id": 1}])
        code, out, err = self.tool.run("--only", f"{self.db}.b")
        self.assertEqual(code, 0, out + err)
        self.assertEqual(r.db(self.db).table_list().run(self.at_target), ["b"])

    def test_a_dry_run_changes_nothing(self):
        table = self.make("a", [{"id": 1}])
        table.index_create("i").run(self.at_source)
        code, events, err = self.tool.json("--only", self.db, "--dry-run")
        self.assertEqual(code, 0, err)
        (plan,) = events["plan"]
        (planned,) = plan["tables"]
        self.assertEqual((plan["databases"], planned["table"], planned["indexes"]), ([self.db], f"{self.db}.a", ["i"]))
        self.assertTrue(any("users and permissions" in what for what in plan["not_copied"]))
        self.assertNotIn(self.db, r.db_list().run(self.at_target))

    def test_an_interrupted_copy_goes_on(self):
        self.make("a", [{"id": n, "text": "x" * 200} for n in range(20000)])
        running = self.tool.start("--only", self.db, "--max-rate", "6000", "--readers", "2")
        until(lambda: self.tool.copied(f"{self.db}.a") > 0)
        running.kill()
        # Another migration does not take the state.
        other = Tool(self.target.driver_port, self.source.driver_port, self.tool.state)
        self.assertIn("this is the state of a migration from", self.refused("--only", self.db, tool=other))
        code, events, err = self.tool.json("--only", self.db)
        self.assertEqual(code, 0, err)
        self.check_equal()
        # What an earlier run has stored is not copied again, but for the chunks on their way.
        self.assertLess(events["done"][0]["tables"][0]["rows"], 40000)
        self.assertIn("equal", self.migrate("--verify"))

    def test_existing_tables_are_merged_on_request(self):
        self.make("a", [{"id": 1, "from": "source"}, {"id": 2, "from": "source"}])
        r.db_create(self.db).run(self.at_target)
        r.db(self.db).table_create("a").run(self.at_target)
        table = r.db(self.db).table("a")
        table.insert([{"id": 1, "from": "target"}, {"id": 3, "from": "target"}]).run(self.at_target)
        self.assertIn("--into-existing", self.migrate(code=1))
        self.assertEqual(table.count().run(self.at_target), 2)
        self.migrate("--into-existing")
        found = table.order_by("id")["from"].run(self.at_target)
        self.assertEqual(found, ["source", "source", "target"])
        self.assertIn("1 rows of the target alone, which stay", self.migrate("--verify"))

    def test_a_row_that_differs_only_in_a_zone_or_a_sign_is_replaced(self):
        time_of = lambda zone: {"$reql_type$": "TIME", "epoch_time": 5, "timezone": zone}
        self.make("a", [{"id": 1, "t": time_of("+01:00")}, {"id": 2, "n": 0}, {"id": 3, "n": 1}])
        r.db_create(self.db).run(self.at_target)
        r.db(self.db).table_create("a").run(self.at_target)
        other = [{"id": 1, "t": time_of("+00:00")}, {"id": 2, "n": -0.0}, {"id": 3, "n": 1}]
        r.db(self.db).table("a").insert(other).run(self.at_target)
        self.migrate("--into-existing")
        self.check_equal()
        self.assertIn("equal", self.migrate("--verify"))

    def test_a_refused_row_is_named_and_the_rest_goes_on(self):
        self.make("a", [{"id": n} for n in range(500)] + [{"id": "bad", "marker": "too long"}])
        player = Player(self.source.driver_port)
        self.addCleanup(player.close)
        long = b"[" + b",".join([b"1"] * 100_001) + b"]"
        player._body = lambda body: body.replace(b'"too long"', long)
        code, out, err = Tool(player.port, self.target.driver_port).run("--only", self.db)
        self.assertEqual(code, 1, err)
        self.assertIn(f'{self.db}.a: row "bad" was refused: ', out)
        self.assertEqual(r.db(self.db).table("a").count().run(self.at_target), 500)

    def test_the_way_back(self):
        self.make("a", [{"id": n} for n in range(100)])
        self.migrate()
        r.db(self.db).table("a").get(5).update({"new": True}).run(self.at_target)
        back = Tool(self.target.driver_port, self.source.driver_port)
        code, out, err = back.run("--only", self.db, "--into-existing")
        self.assertEqual(code, 0, out + err)
        self.check_equal()


class Comparison(Sides):
    def test_planted_differences_are_found(self):
        time_of = lambda zone: {"$reql_type$": "TIME", "epoch_time": 5, "timezone": zone}
        rows = [{"id": n, "n": n / 10, "t": time_of("+00:00"), "text": "x" * 50} for n in range(12000)]
        table = self.make("a", rows)
        self.migrate()
        change = lambda key, fields: table.get(key).update(fields).run(self.at_target)
        change(1, {"text": "y"})
        table.get(2).delete().run(self.at_target)
        table.insert({"id": 2.5}).run(self.at_target)
        change(3, {"n": 0.30000000000000004})
        # Written over the row, another zone alone would be no change.
        row = table.get(9000).run(self.at_target, **RAW)
        table.get(9000).delete().run(self.at_target)
        table.insert({**row, "t": time_of("+01:00")}).run(self.at_target)
        # Another order of fields is no difference.
        table.get(5).replace(r.object("text", "x" * 50, "n", 0.5, "id", 5, "t", r.epoch_time(5).in_timezone("+00:00"))).run(self.at_target)
        code, events, err = self.tool.json("--only", self.db, "--verify")
        self.assertEqual(code, 1, err)
        (found,) = events["table"]
        self.assertEqual(found["differences"], 5)
        named = {one["key"]: one["what"] for one in found["named"]}
        self.assertIn("`text` is", named["1"])
        self.assertIn("missing in the target", named["2"])
        self.assertIn("only in the target", named["2.5"])
        self.assertIn("0.3 in the source and 0.30000000000000004", named["3"])
        self.assertIn("timezone", named["9000"])
        self.assertEqual([found["source_rows"], found["target_rows"]], [12000, 12000])

    def test_a_hundred_differences_are_named_and_all_counted(self):
        table = self.make("a", [{"id": n} for n in range(300)])
        self.migrate()
        table.delete().run(self.at_target)
        code, events, err = self.tool.json("--only", self.db, "--verify")
        self.assertEqual((code, events["table"][0]["differences"], len(events["table"][0]["named"])), (1, 300, 100), err)

    def test_a_missing_table_is_a_difference(self):
        self.make("a")
        self.assertIn("a: missing in the target", self.migrate("--verify", code=1))


class BadInputs(Sides):
    def test_the_source_is_no_such_server(self):
        self.assertIn("no server answers", self.refused(tool=Tool(1, self.target.driver_port)))
        wrong = Tool(self.source.http_port, self.target.driver_port)
        self.assertIn("driver port", self.refused(tool=wrong))
        self.assertIn("--from", self.refused_words("--to", "localhost"))
        self.assertIn("HOST:PORT", self.refused_words("--from", "localhost:x"))

    def refused_words(self, *words):
        self.tool.command = lambda *_, **__: [*Tool.command(self.tool)[:2], *words]
        said = self.refused()
        del self.tool.command
        return said

    def test_an_old_server(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.recv(4)
                    client.sendall(b"ERROR: Received an unsupported protocol version. This port is for RethinkDB queries.\0")
                    client.close()

        threading.Thread(target=answer, daemon=True).start()
        said = self.refused(tool=Tool(listener.getsockname()[1], self.target.driver_port))
        self.assertIn("RethinkDB 2.3 or later", said)

    def test_a_damaged_state(self):
        self.make("a", [{"id": 1}])
        (Path(self.tool.state) / "state.json").write_text("{")
        for arguments in ([], ["--verify"], ["--dry-run"]):
            self.assertIn("give another --state", self.refused("--only", self.db, *arguments))

    def test_a_server_that_says_nothing(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        said = self.refused(tool=Tool(listener.getsockname()[1], self.target.driver_port))
        self.assertIn("no answer within 10 s", said)

    def test_the_login(self):
        self.assertIn("unknown_user", self.refused("--user", "unknown_user"))
        self.assertIn("--password-file", self.refused("--password-file", "/no/such/file"))

    def test_names(self):
        self.make("Users")
        self.assertIn("there is `Users`", self.refused("--only", f"{self.db}.users"))
        self.assertIn("no database `nothing`", self.refused("--only", "nothing"))
        r.db_create(self.db).run(self.at_target)
        r.db(self.db).table_create("users").run(self.at_target)
        self.assertIn("names differ by case", self.migrate("--dry-run"))

    def test_one_server_is_not_both(self):
        said = self.refused("--only", self.db, tool=Tool(self.source.driver_port, self.source.driver_port))
        self.assertIn("same server", said)

    def test_a_user_without_rights(self):
        self.make("a", [{"id": 1}])
        users = r.db("rethinkdb").table("users")
        users.insert({"id": "reader", "password": False}).run(self.at_source)
        self.assertIn(f"{self.db}.a cannot be read by this user", self.refused("--only", self.db, "--user", "reader"))
        r.db(self.db).grant("reader", {"read": True}).run(self.at_source)
        said = self.migrate("--user", "reader")
        self.assertIn("rethinkdb.table_config cannot be read by this user", said)
        self.check_equal()
        users.get("reader").delete().run(self.at_source)

    def test_a_source_that_dies(self):
        self.make("a", [{"id": n} for n in range(2000)])
        with node() as other:
            connection = r.connect("127.0.0.1", other.driver_port)
            r.table_create("a").run(connection)
            r.table("a").insert([{"id": n, "t": "x" * 500} for n in range(5000)]).run(connection)
            tool = Tool(other.driver_port, self.target.driver_port)
            running = tool.start("--only", "test.a", "--max-rate", "1500", "--retry-seconds", "1")
            until(lambda: tool.copied("test.a") > 0)
            other.kill()
            self.assertEqual(running.end(), 1)
            self.assertIn("source", running.said())
            other.start()
            code, out, err = tool.run("--only", "test.a")
            self.assertEqual(code, 0, out + err)
            self.assertEqual(r.table("a").count().run(self.at_target), 5000)
        r.table_drop("a").run(self.at_target)


    def test_a_password_that_changes_meanwhile(self):
        with node() as other:
            connection = r.connect("127.0.0.1", other.driver_port)
            r.table_create("a").run(connection)
            r.table("a").insert([{"id": n} for n in range(100)]).run(connection)
            users = r.db("rethinkdb").table("users")
            users.insert({"id": "mover", "password": "old"}).run(connection)
            r.grant("mover", {"read": True}).run(connection)
            tool = Tool(other.driver_port, self.target.driver_port)
            file = Path(tool.folder.name) / "password"
            file.write_text("old")
            login = ("--only", "test.a", "--user", "mover", "--password-file", str(file))
            running = tool.start(*login, "--follow")
            self.addCleanup(running.kill)
            running.wait_for("all rows are copied")
            users.get("mover").update({"password": "new"}).run(connection)
            r.table("a").insert({"id": "later"}).run(connection)
            other.kill()
            other.start()
            self.assertEqual(running.end(), 1, running.said())
            self.assertIn("refuses the login of user `mover`, which it accepted before (Wrong password)", running.said())
            self.assertIn("Put the present password into the file of --password-file", running.said())
            file.write_text("new")
            running = tool.start(*login, "--follow")
            self.addCleanup(running.kill)
            running.wait_for("all rows are copied")
            until(lambda: r.table("a").get("later").run(self.at_target) is not None)
        r.table_drop("a").run(self.at_target)


class WholeCluster(Sides):
    def test_users_and_permissions(self):
        users = r.db("rethinkdb").table("users")
        users.insert([
            {"id": "ann", "password": "old"}, {"id": "bob", "password": "old"}, {"id": "eve", "password": False}
        ]).run(self.at_source)
        self.make("a", [{"id": 1}])
        r.db(self.db).table("a").grant("ann", {"read": True}).run(self.at_source)
        r.db(self.db).grant("bob", {"read": True}).run(self.at_source)
        r.grant("eve", {"read": True, "write": False}).run(self.at_source)
        file = Path(tempfile.mkdtemp()) / "passwords.json"
        file.write_text(json.dumps({"ann": "new"}))
        code, out, err = self.tool.run("--new-passwords", str(file))
        self.assertEqual(code, 0, out + err)
        self.assertIn("not copied: user `bob`", out)
        found = {user["id"] for user in users.run(self.at_target)}
        self.assertEqual(found, {"admin", "ann", "eve"})
        with r.connect("127.0.0.1", self.target.driver_port, user="ann", password="new") as connection:
            self.assertEqual(r.db(self.db).table("a").count().run(connection), 1)
        granted = r.db("rethinkdb").table("permissions").filter({"user": "eve"})["permissions"].run(self.at_target)
        self.assertEqual(list(granted), [{"read": True, "write": False}])
        file.write_text("[]")
        self.assertIn("JSON object", self.refused("--new-passwords", str(file)))


class Following(Sides):
    def follow(self, tool=None, *arguments):
        running = (tool or self.tool).start("--only", self.db, "--follow", *arguments)
        self.addCleanup(running.kill)
        running.wait_for("all rows are copied")
        return running

    def cut_over(self, tool=None, wait=30):
        code, out, err = (tool or self.tool).cut_over("--quiet-seconds", "1", "--wait-seconds", str(wait))
        return code, out + err

    def test_changes_arrive_until_the_cut_over(self):
        table = self.make("a", [{"id": n, "n": 0} for n in range(3000)])
        table.set_write_hook(lambda context, old, new: new.merge({"hooked": True})).run(self.at_source)
        self.assertIn("no migration with --follow", self.cut_over()[1])
        writes = Writes(self.source, self.db, "a")
        self.addCleanup(writes.stop)
        running = self.follow()
        self.assertIn("not yet", self.cut_over(wait=0)[1])
        writes.stop()
        code, said = self.cut_over()
        self.assertEqual(code, 0, said + running.said())
        self.assertIn("switch now", said)
        self.assertEqual(running.end(), 0, running.said())
        self.assertGreater(writes.done, 0)
        self.check_equal()
        self.assertIsNotNone(table.get_write_hook().run(self.at_target))
        # The application writes to the target now: no run with this state undoes that.
        table.get(1).replace({"id": 1, "new": True}).run(self.at_target)
        for refused in (self.migrate("--follow", code=1), self.migrate(code=1), self.cut_over()[1]):
            self.assertIn("has said `switch now`", refused)
        self.assertTrue(table.get(1)["new"].run(self.at_target))

    def test_a_change_after_the_comparison_is_followed_on(self):
        table = self.make("a", [{"id": n} for n in range(100)])
        running = self.follow()
        table.insert({"id": 1000, "t": r.epoch_time(5)}).run(self.at_source)
        until(lambda: table.get(1000).run(self.at_target))
        # The request of a cut-over that has seen no change.
        (Path(self.tool.state) / "finish.json").write_text('{"changes": 0, "losses": 0}')
        running.wait_for("the source is followed on")
        answer = json.loads((Path(self.tool.state) / "answer.json").read_text())
        self.assertEqual(answer, {"changes": 1, "losses": 0, "level": True})
        table.get(1000).delete().run(self.at_source)
        table.insert({"id": 1000, "t": r.epoch_time(5).in_timezone("+01:00")}).run(self.at_source)
        self.assertEqual(self.cut_over()[0], 0, running.said())
        self.assertEqual(running.end(), 0, running.said())
        self.check_equal()

    def test_what_the_source_got_meanwhile_stops_the_cut_over(self):
        table = self.make("a", [{"id": n} for n in range(100)])
        running = self.follow()
        table.index_create("late").run(self.at_source)
        self.make("b", [{"id": 1}])
        code, said = self.cut_over()
        self.assertEqual(code, 1, said)
        self.assertIn(f"not copied: index late of {self.db}.a, table {self.db}.b. End `rekindle migrate --follow`, run", said)
        running.kill()
        running = self.follow()
        code, said = self.cut_over()
        self.assertEqual(code, 0, said + running.said())
        self.assertEqual(table.index_list().run(self.at_target), ["late"])
        self.check_equal()

    def test_a_dropped_table_does_not_end_the_others(self):
        table = self.make("a", [{"id": n} for n in range(100)])
        self.make("gone", [{"id": n} for n in range(100)])
        running = self.follow()
        r.db(self.db).table_drop("gone").run(self.at_source)
        self.tables.remove("gone")
        running.wait_for(f"{self.db}.gone: the source has dropped this table")
        table.insert({"id": 1000}).run(self.at_source)
        code, said = self.cut_over()
        self.assertEqual(code, 0, said + running.said())
        self.assertIn(f"{self.db}.gone: the source has dropped it; the target keeps its copy", said)
        self.assertEqual(running.end(), 0, running.said())
        self.check_equal()
        self.assertEqual(r.db(self.db).table("gone").count().run(self.at_target), 100)

    def test_a_hook_that_the_target_refuses_is_no_success(self):
        table = self.make("a", [{"id": 1}])
        table.set_write_hook(lambda context, old, new: new.merge({"hooked": True})).run(self.at_source)
        player = Player(self.source.driver_port)
        self.addCleanup(player.close)
        player._body = lambda body: re.sub(rb'("write_hook":\{"function":\{[^}]*?"data":")[^"]*"', rb'\1AAAA"', body)
        tool = Tool(player.port, self.target.driver_port)
        running = self.follow(tool)
        code, said = self.cut_over(tool)
        self.assertEqual(code, 1, said + running.said())
        self.assertIn(f"not copied: write hook of {self.db}.a", said)
        self.assertIn("switch now", said)

    def test_a_difference_stops_the_cut_over(self):
        table = self.make("a", [{"id": n} for n in range(100)])
        running = self.follow()
        table.get(5).update({"odd": True}).run(self.at_target)
        code, said = self.cut_over()
        self.assertEqual(code, 1, said)
        self.assertIn("row 5: `odd` is missing in the source", said)
        self.assertIn("do not switch", said)
        table.get(5).replace({"id": 5}).run(self.at_target)
        self.assertEqual(self.cut_over()[0], 0)
        self.assertEqual(running.end(), 0, running.said())

    def test_a_killed_follower_finds_what_it_missed(self):
        table = self.make("a", [{"id": n, "n": 0} for n in range(3000)])
        running = self.follow()
        running.kill()
        table.get_all(*range(50)).update({"n": 1}).run(self.at_source)
        table.get_all(*range(100, 150)).delete().run(self.at_source)
        table.insert([{"id": n} for n in range(5000, 5050)]).run(self.at_source)
        running = self.follow()
        code, said = self.cut_over()
        self.assertEqual(code, 0, said + running.said())
        self.assertEqual(running.end(), 0, running.said())
        self.check_equal()

    @needs_data
    def test_a_feed_that_skips_and_ends_as_rethinkdb_does(self):
        rows = [{"id": n, "b": r.binary(bytes(100)), "n": 0} for n in range(1000)]
        table = self.make("a", rows)
        player = Player(self.source.driver_port, skips=3, ends_after=400)
        self.addCleanup(player.close)
        tool = Tool(player.port, self.target.driver_port)
        writes = Writes(self.source, self.db, "a")
        self.addCleanup(writes.stop)
        running = self.follow(tool)
        running.wait_for("Changefeed cache over array size limit, skipped 3825 elements.")
        running.wait_for("Changefeed aborted (unavailable).")
        writes.stop()
        code, said = self.cut_over(tool)
        self.assertEqual(code, 0, said + running.said())
        self.assertEqual(running.end(), 0, running.said())
        self.check_equal()
        self.assertGreater(table.count().run(self.at_target), 0)


class Real(Sides):
    """Rows, functions and hooks that a real RethinkDB made."""

    @needs_data
    def test_functions_and_rows_of_a_rethinkdb(self):
        table = self.make("a", records("rows.jsonl"))
        functions = records("index-functions.jsonl")[::20]
        for function in functions:
            table.index_create(function["name"], r.binary(binary(function))).run(self.at_source)
        hook = records("write-hooks.jsonl")[0]
        table.set_write_hook(r.binary(binary(hook))).run(self.at_source)
        player = Player(self.source.driver_port)
        self.addCleanup(player.close)
        code, out, err = Tool(player.port, self.target.driver_port).run("--only", self.db)
        self.assertEqual(code, 0, out + err)
        self.check_equal()
        statuses = table.index_wait().run(self.at_target)
        self.assertEqual({status["index"]: bytes(status["function"]) for status in statuses},
                         {function["name"]: binary(function) for function in functions})
        self.assertEqual(bytes(table.get_write_hook()["function"].run(self.at_target)), binary(hook))


class Raw(RqlQuery):
    """A term as it was sent."""

    def __init__(self, term):
        super().__init__()
        self.term = term

    def build(self):
        return self.term


def term_number(name):
    return getattr(Term.TermType, name)


# What reads rows.
READ = re.compile("|".join(rf"\[{term_number(name)}," for name in ("BETWEEN", "GET_ALL", "ORDER_BY")))


class Check(Sides):
    flags = ("--enable-js",)

    def test_differences_that_touch_an_application_are_named(self):
        table = self.make("a", [{"id": 1}])
        table.index_create("s", r.row["t"].seconds()).run(self.at_source)
        table.set_write_hook(lambda context, old, new: new.merge({"at": context["timestamp"].to_json_string()})).run(self.at_source)
        feed = table.changes().run(self.at_source)
        self.addCleanup(lambda: feed.close())
        code, events, err = self.tool.json("--only", self.db, "--watch-seconds", "0.2", command=("check",))
        self.assertEqual(code, 0, err)
        found = {one["difference"]: one["places"] for one in events["difference"]}
        self.assertIn(f"index s of {self.db}.a", found["seconds"])
        self.assertIn(f"write hook of {self.db}.a", found["base64"])
        self.assertTrue(any("changes()" in place for place in found["feeds"]), found)

    def test_the_queries_of_a_migration_are_not_named(self):
        self.make("a", [{"id": n} for n in range(100)])
        running = self.tool.start("--only", self.db, "--follow")
        self.addCleanup(running.kill)
        running.wait_for("all rows are copied")
        code, events, err = self.tool.json("--only", self.db, "--watch-seconds", "0.5", command=("check",))
        self.assertEqual((code, events.get("difference"), events["check"][0]["queries"]), (0, None, 0), err)

    def test_no_read_of_a_comparison_is_named(self):
        """The reads that a comparison sends to the source run, each after something slow, while a check looks."""
        self.make("a", [{"id": n, "n": 0} for n in range(50)])
        self.migrate()
        table = r.db(self.db).table("a")
        table.filter({"n": 0}).update({"n": 1}).run(self.at_target)
        recorder = Recorder(self.source.driver_port)
        self.addCleanup(recorder.close)
        tool = Tool(recorder.port, self.target.driver_port)
        self.assertEqual(tool.run("--only", self.db, "--verify")[0], 1)
        reads = [term for term in recorder.terms() if READ.search(json.dumps(term, separators=(",", ":")))]
        for number in (term_number("GET_ALL"), term_number("DESC")):
            self.assertTrue(any(f"[{number}," in json.dumps(term) for term in reads), (number, reads))
        slow = r.range(10**12).filter(lambda n: False).count()
        with r.connect("127.0.0.1", self.source.driver_port) as connection:
            for term in reads:
                r.expr([slow, Raw(term)]).run(connection, noreply=True)
            jobs = r.db("rethinkdb").table("jobs").filter({"type": "query"}).count()
            until(lambda: jobs.run(self.at_source) > len(reads))
            code, events, err = self.tool.json("--only", self.db, "--watch-seconds", "0.2", command=("check",))
            connection.close(noreply_wait=False)
        self.assertEqual((code, events.get("difference"), events["check"][0]["queries"]), (0, None, 0), err)


class Tls(unittest.TestCase):
    def test_both_sides_with_tls(self):
        keys = ("--driver-tls-key", str(FILES / "server.key"), "--driver-tls-cert", str(FILES / "server.pem"))
        authority = str(FILES / "authority.pem")
        with node(*keys) as source, node(*keys, "--driver-tls-ca", authority) as target:
            connection = r.connect("127.0.0.1", source.driver_port, ssl={"ca_certs": authority})
            r.table_create("a").run(connection)
            r.table("a").insert([{"id": n, "t": "x" * 3000} for n in range(1000)]).run(connection)
            tool = Tool(source.driver_port, target.driver_port)
            tool.command = localhost(tool)
            to_target = ["--to-tls-ca", authority, "--to-tls-cert", str(FILES / "client.pem"), "--to-tls-key", str(FILES / "client.key")]
            code, out, err = tool.run("--only", "test", "--tls-ca", authority, *to_target)
            self.assertEqual(code, 0, out + err)
            code, out, err = tool.run("--only", "test", "--tls-ca", authority, "--verify", *to_target)
            self.assertEqual(code, 0, out + err)
            code, out, err = tool.run("--only", "test", *to_target)
            self.assertEqual(code, 1, out + err)
            code, out, err = tool.run("--tls-ca", "/no/such/file", "--only", "test")
            self.assertIn("--tls-ca: /no/such/file", err)


def localhost(tool):
    """The certificate is one of localhost."""
    command = Tool.command
    return lambda *words, **options: [
        word.replace("127.0.0.1", "localhost") for word in command(tool, *words, **options)
    ]


if __name__ == "__main__":
    unittest.main()
