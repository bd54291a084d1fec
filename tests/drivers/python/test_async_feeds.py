"""Changefeeds through the official asyncio driver: hundreds of feeds on one connection, feeds that are closed in the middle,
tasks that are cancelled, and connections that end."""

import asyncio
import contextlib
import time
import unittest

from rethinkdb import RethinkDB, r
from rethinkdb.errors import ReqlCursorEmpty, ReqlDriverError, ReqlError, ReqlOpFailedError, ReqlTimeoutError

from feed_case import QUIET_SECONDS, TIMEOUT_SECONDS, FeedCase, wait_until

FEEDS = 300
ROUNDS = 6
IMPATIENT_SECONDS = 0.001
CLOSED = "Connection is closed"


def change(id, n):
    """The change of row `id` by which its `n` becomes this."""
    return {"old_val": {"id": id, "n": n - 1}, "new_val": {"id": id, "n": n}}


async def soon(waiting):
    """The result of an awaitable; fails if it does not come in time."""
    return await asyncio.wait_for(waiting, TIMEOUT_SECONDS)


async def until(what, is_so):
    """Returns when `is_so()` is true; fails if that takes too long."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come about"
        await asyncio.sleep(IMPATIENT_SECONDS)


async def take(feed, count):
    return [await soon(feed.next()) for _ in range(count)]


async def is_quiet(feed):
    """Whether no element is waiting, nor comes for a moment."""
    try:
        element = await feed.next(wait=QUIET_SECONDS)
    except ReqlTimeoutError:
        return True
    raise AssertionError(f"an unexpected element: {element}")


class AsyncFeeds(FeedCase, unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        super().setUp()
        self.rdb = RethinkDB()
        self.rdb.set_loop_type("asyncio")

    async def asyncSetUp(self):
        loop = asyncio.get_running_loop()
        # The debug mode reports each callback that takes long.
        loop.set_debug(False)
        # The driver leaves tasks behind whose connection has died. The results of tasks of the tests are asserted.
        loop.set_exception_handler(lambda loop, context: None)

    async def open(self):
        connection = await self.rdb.connect("127.0.0.1", self.port)
        self.addAsyncCleanup(self.close, connection)
        return connection

    async def close(self, connection):
        # A connection that has died is reset when it is closed.
        with contextlib.suppress(ConnectionError):
            await connection.close(noreply_wait=False)

    def followed(self, id):
        """A query for the changes of one row; its kind depends on the row."""
        alone = self.table.between(id, id, right_bound="closed")
        kinds = [
            self.table.get(id),
            alone,
            self.table.get_all(id),
            self.table.filter({"id": id}),
            alone.order_by(index="id").limit(1),
            alone.union(self.table.get_all("none")),
        ]
        return kinds[id % len(kinds)].changes()

    async def write(self, connection, ids, values):
        """Sets `n` of each row to each of the values; the rows at once, the values in order."""

        async def one(id):
            for n in values:
                await self.table.get(id).update({"n": n}).run(connection, durability="soft")

        await asyncio.gather(*map(one, ids))

    def insert_rows(self, count):
        self.run_query(self.table.insert([{"id": id, "n": 0} for id in range(count)]))

    async def test_hundreds_of_feeds_on_a_connection_have_their_own_changes(self):
        self.insert_rows(FEEDS)
        connection, writer = await self.open(), await self.open()
        feeds = await asyncio.gather(*(self.followed(id).run(connection) for id in range(FEEDS)))
        self.assertEqual(self.feed_jobs(), FEEDS)
        received = [[] for _ in feeds]

        async def read(id):
            with contextlib.suppress(ReqlCursorEmpty):
                async for element in feeds[id]:
                    received[id].append(element)

        readers = [asyncio.create_task(read(id)) for id in range(FEEDS)]
        writing = asyncio.create_task(self.write(writer, range(FEEDS), range(1, ROUNDS + 1)))
        # Half of them are closed while changes of all come, each after its first change.
        for id in range(0, FEEDS, 2):
            await until("the first change", lambda: received[id] or readers[id].done())
            await feeds[id].close()
        await soon(writing)
        await soon(connection.noreply_wait())
        expected = lambda id: [change(id, n) for n in range(1, ROUNDS + 1)]
        for id in range(1, FEEDS, 2):
            await until("the last change", lambda: len(received[id]) >= ROUNDS or readers[id].done())
            self.assertEqual(received[id], expected(id))
        for id in range(0, FEEDS, 2):
            # A reader notices the end by the response to its request.
            await soon(readers[id])
            self.assertEqual(received[id], expected(id)[: len(received[id])])
        self.assertEqual(self.feed_jobs(), FEEDS // 2)
        # Each request of a closed feed has had one response: the driver knows the open feeds only.
        self.assertEqual(len(connection._instance._cursor_cache), FEEDS // 2)
        self.assertEqual(await self.table.count().run(connection), FEEDS)
        for reader in readers:
            reader.cancel()
        self.assertTrue(await is_quiet(feeds[1]))

    async def test_waits_that_time_out_and_tasks_that_are_cancelled_lose_nothing(self):
        self.insert_rows(1)
        connection, writer = await self.open(), await self.open()
        feed = await self.table.changes().run(connection)
        received = []

        async def read_on():
            async for element in feed:
                received.append(element)

        async def read_shortly():
            reader = asyncio.create_task(read_on())
            await asyncio.sleep(IMPATIENT_SECONDS)
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

        async def wait_shortly():
            with contextlib.suppress(asyncio.TimeoutError):
                received.append(await asyncio.wait_for(feed.next(), IMPATIENT_SECONDS))

        async def next_shortly():
            with contextlib.suppress(ReqlTimeoutError):
                received.append(await feed.next(wait=IMPATIENT_SECONDS))

        shortly = [read_shortly, wait_shortly, next_shortly]
        for n in range(1, 200):
            # There is no change: this wait ends without one.
            await shortly[n % 3]()
            self.assertEqual(len(received), n - 1)
            writing = asyncio.create_task(self.write(writer, [0], [n]))
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while len(received) < n:
                self.assertLess(time.monotonic(), deadline, f"change {n} was lost")
                await shortly[n // 3 % 3]()
            self.assertEqual(received[n - 1 :], [change(0, n)])
            await writing
        self.assertTrue(await is_quiet(feed))

    async def test_a_closed_feed_has_no_more_elements(self):
        self.insert_rows(1)
        connection = await self.open()
        feed, other = await self.table.changes().run(connection), await self.table.changes().run(connection)
        waiting = asyncio.create_task(feed.next())
        await self.write(connection, [0], [1])
        self.assertEqual(await soon(waiting), change(0, 1))
        waiting = asyncio.create_task(feed.next())
        await asyncio.sleep(0)
        await feed.close()
        with self.assertRaises(ReqlCursorEmpty):
            await soon(waiting)
        await self.write(connection, [0], [2])
        with self.assertRaises(ReqlCursorEmpty):
            await soon(feed.next())
        await feed.close()
        self.assertEqual(await take(other, 2), [change(0, 1), change(0, 2)])
        self.assertEqual(self.feed_jobs(), 1)

    async def test_feeds_do_not_hold_up_noreply_wait(self):
        self.insert_rows(1)
        connection = await self.open()
        feeds = [await self.table.changes().run(connection) for _ in range(20)]
        readers = [asyncio.create_task(take(feed, 100)) for feed in feeds]
        for n in range(1, 101):
            await self.table.get(0).update({"n": n}).run(connection, noreply=True)
        await soon(connection.noreply_wait())
        self.assertEqual((await self.table.get(0).run(connection))["n"], 100)
        for elements in await soon(asyncio.gather(*readers)):
            self.assertEqual(elements, [change(0, n) for n in range(1, 101)])
        # A feed without a reader ends at once.
        await self.table.changes().run(connection, noreply=True)
        await soon(connection.noreply_wait())
        self.assertEqual(self.feed_jobs(), len(feeds))
        waiting = [asyncio.create_task(feed.next()) for feed in feeds]
        await asyncio.sleep(0)
        await soon(connection.close(noreply_wait=True))
        for error in await soon(asyncio.gather(*waiting, return_exceptions=True)):
            self.assertIsInstance(error, ReqlError)
            self.assertIn(CLOSED, str(error))
        wait_until("the feeds have ended", lambda: self.feed_jobs() == 0)

    async def test_a_connection_that_dies_takes_its_feeds_along(self):
        self.insert_rows(FEEDS)
        wait_until("feeds of other tests have ended", lambda: self.subscriptions() == 0)
        connection, survivor = await self.open(), await self.open()
        kept = await self.table.get(1).changes().run(survivor)
        feeds = await asyncio.gather(*(self.followed(id).run(connection) for id in range(FEEDS)))
        waiting = [asyncio.create_task(feed.next()) for feed in feeds]
        writing = asyncio.create_task(self.write(survivor, range(1, FEEDS), range(1, 4)))
        await soon(waiting[1])
        wait_until("the subscriptions are counted", lambda: self.subscriptions() > FEEDS)
        connection._instance._streamwriter.transport.abort()
        ends = await soon(asyncio.gather(*waiting, return_exceptions=True))
        self.assertIsInstance(ends[0], ReqlError)
        for end in ends:
            # A wait that had a change before has it.
            self.assertIn(CLOSED if isinstance(end, ReqlError) else "new_val", str(end))
        with self.assertRaisesRegex(ReqlDriverError, CLOSED):
            await self.table.count().run(connection)
        await soon(writing)
        wait_until("the jobs have ended", lambda: self.feed_jobs() == 1)
        wait_until("the subscriptions have ended", lambda: self.subscriptions() == 1)
        self.assertEqual(await take(kept, 3), [change(1, n) for n in range(1, 4)])

    async def test_feeds_are_resumed_after_their_server_died(self):
        self.insert_rows(1)
        connection = await self.open()
        query = lambda **options: self.table.changes(include_resume_token=True, **options)
        feeds = [await query().run(connection) for _ in range(20)]
        await self.write(connection, [0], range(1, 4))
        # Each feed has come to another place.
        tokens = [(await take(feed, 1 + at % 3))[-1]["resume_token"] for at, feed in enumerate(feeds)]
        waiting = [asyncio.create_task(take(feed, 9)) for feed in feeds]
        self.node.kill()
        for error in await soon(asyncio.gather(*waiting, return_exceptions=True)):
            self.assertIn(CLOSED, str(error))
        self.node.start()
        self.connection.reconnect(noreply_wait=False)
        connection = await self.open()
        self.run_query(self.table.wait())
        await self.write(connection, [0], [4, 5])
        for at, token in enumerate(tokens):
            feed = await query(resume_after=token).run(connection)
            elements = await take(feed, 5 - (1 + at % 3))
            bare = [{key: element[key] for key in ("old_val", "new_val")} for element in elements]
            self.assertEqual(bare, [change(0, n) for n in range(2 + at % 3, 6)])

    async def test_a_union_of_feeds_has_the_changes_of_all(self):
        other = f"{self.name}x"
        self.run_query(r.table_create(other))
        self.insert_rows(3)
        connection, writer = await self.open(), await self.open()
        streams = [
            self.table.get(0).changes(),
            self.table.filter(r.row["n"] > 0).changes()["new_val"]["id"],
            r.table(other).changes(include_initial=True, include_states=True),
        ]
        feed = await self.rdb.union(*streams).run(connection)
        self.assertEqual(await take(feed, 2), [{"state": "initializing"}, {"state": "ready"}])
        await self.write(writer, [0], [1, 2])
        self.assertCountEqual(await take(feed, 4), [change(0, 1), change(0, 2), 0, 0])
        await r.table(other).insert({"id": "x"}).run(writer)
        self.assertEqual(await take(feed, 1), [{"old_val": None, "new_val": {"id": "x"}}])
        # The end of one part is the end of all.
        await r.table_drop(other).run(writer)
        with self.assertRaisesRegex(ReqlOpFailedError, f"Table `test.{other}` does not exist."):
            await soon(feed.next())
        self.assertEqual(self.feed_jobs(), 0)

    async def test_a_feed_of_a_union_is_read_by_tasks(self):
        other = f"{self.name}x"
        self.run_query(r.table_create(other))
        self.insert_rows(1)
        connection, writer = await self.open(), await self.open()
        union = self.table.union(r.table(other))
        feeds = [await union.changes(include_initial=True).run(connection) for _ in range(50)]
        readers = [asyncio.create_task(take(feed, 4)) for feed in feeds]
        await self.write(writer, [0], [1])
        await r.table(other).insert({"id": "x", "n": 1}).run(writer)
        await self.write(writer, [0], [2])
        ours = [{"new_val": {"id": 0, "n": 0}}, change(0, 1), change(0, 2)]
        for elements in await soon(asyncio.gather(*readers)):
            of = lambda id: [element for element in elements if element["new_val"]["id"] == id]
            self.assertEqual(of(0), ours)
            self.assertEqual(of("x"), [{"old_val": None, "new_val": {"id": "x", "n": 1}}])


if __name__ == "__main__":
    unittest.main()
