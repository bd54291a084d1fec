"""Write hooks through the official Python driver: every write passes them, also after `kill -9`."""

import unittest

from rethinkdb import r

from node import Node


class WriteHooks(unittest.TestCase):
    def setUp(self):
        self.node = Node().start()
        self.connection = r.connect("127.0.0.1", self.node.driver_port)
        r.table_create("t").run(self.connection)

    def tearDown(self):
        self.connection.close()
        self.node.remove()

    def test_a_hook_outlives_the_process(self):
        hook = lambda context, old, new: new.merge({"stamp": context["timestamp"].type_of(), "key": context["primary_key"]})
        self.assertEqual(r.table("t").set_write_hook(hook).run(self.connection), {"created": 1})
        before = r.table("t").get_write_hook().run(self.connection)
        self.connection.close()
        self.node.kill()
        self.node.start()
        self.connection = r.connect("127.0.0.1", self.node.driver_port)
        self.assertEqual(r.table("t").get_write_hook().run(self.connection), before)
        stamped = {"stamp": "PTYPE<TIME>"}
        r.table("t").insert([{"id": n} for n in range(300)]).run(self.connection)
        r.table("t").insert({"id": "one"}).run(self.connection)
        r.table("t").get(7).update({"a": 1}).run(self.connection)
        self.assertEqual(r.table("t").filter(stamped).count().run(self.connection), 301)
        self.assertEqual(r.table("t").get(7).run(self.connection), {"id": 7, "a": 1, "key": 7, **stamped})

    def test_a_hook_moves_to_another_table(self):
        r.table("t").set_write_hook(lambda context, old, new: new.merge({"n": 1})).run(self.connection)
        r.table_create("u").run(self.connection)
        function = r.table("t").get_write_hook()["function"].run(self.connection)
        self.assertEqual(r.table("u").set_write_hook(function).run(self.connection), {"created": 1})
        r.table("u").insert({"id": 1}).run(self.connection)
        self.assertEqual(r.table("u").get(1).run(self.connection), {"id": 1, "n": 1})
