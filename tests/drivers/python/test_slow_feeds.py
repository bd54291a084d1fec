"""Clients that hardly read their changefeeds: others are served meanwhile."""

import threading
import time
import unittest

from rethinkdb import r

from feed_case import (
    CHANGES,
    CONTINUE,
    SERVED_SECONDS_MAX,
    START,
    TABLE,
    FeedCase,
    RawClient,
    large,
    take,
    wait_until,
)

# The type of a response after which more follow.
PARTIAL = 3
# Together more than the rows that wait for a client.
LARGE_ROWS = 80
SLOW_CLIENTS = 10
SKIPPED = "Changefeed cache over array size limit, skipped "


class SlowClients(FeedCase):
    def test_clients_that_read_a_byte_a_second_delay_no_other(self):
        slow = [RawClient(self) for _ in range(SLOW_CLIENTS)]
        for raw in slow:
            raw.send(f'[{START},[{CHANGES},[[{TABLE},["{self.name}"]]]],{{}}]')
            self.assertEqual(raw.receive()["t"], PARTIAL)
            raw.send(f"[{CONTINUE}]")
        begun, stop = [b""] * len(slow), threading.Event()

        def dribble():
            while not stop.wait(1):
                for at, raw in enumerate(slow):
                    begun[at] += raw.exactly(1)

        reader = threading.Thread(target=dribble)
        reader.start()
        longest = self.serve_others()
        wait_until("the slow clients have read two bytes", lambda: len(begun[-1]) >= 2)
        stop.set()
        reader.join()
        self.assertLess(longest, SERVED_SECONDS_MAX)
        self.assertEqual(self.feed_jobs(), len(slow))
        # One of them reads on: delivered and skipped changes are all changes.
        delivered, skipped = 0, 0
        response = slow[0].receive(begun[0])
        while True:
            self.assertEqual(response["t"], PARTIAL)
            for element in response["r"]:
                if "error" in element:
                    self.assertTrue(element["error"].startswith(SKIPPED))
                    skipped += int(element["error"].removeprefix(SKIPPED).split()[0])
                else:
                    delivered += 1
            if delivered + skipped >= LARGE_ROWS:
                break
            slow[0].send(f"[{CONTINUE}]")
            response = slow[0].receive()
        self.assertEqual(delivered + skipped, LARGE_ROWS)
        self.assertGreater(skipped, 0)
        self.assertGreater(delivered, 0)
        for raw in slow:
            raw.socket.close()
        wait_until("the feeds have ended", lambda: self.feed_jobs() == 0)

    def serve_others(self):
        """Writes large rows while other clients have a feed and queries; returns the seconds of the slowest of these."""
        with self.connect() as follower, self.connect() as other:
            feed = self.table.without("a").changes().run(follower)
            longest = 0
            for id in range(LARGE_ROWS):
                self.run_query(self.table.insert({"id": id, "a": large(1)}, durability="soft"))
                began = time.monotonic()
                self.assertEqual(take(feed, 1), [{"old_val": None, "new_val": {"id": id}}])
                self.assertEqual(self.table.get(id)["id"].run(other), id)
                longest = max(longest, time.monotonic() - began)
            return longest


if __name__ == "__main__":
    unittest.main()
