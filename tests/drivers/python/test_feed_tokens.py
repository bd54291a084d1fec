"""Resume tokens of changefeeds that are damaged, forged, or of another place."""

import base64
import contextlib
import random
import struct
import unittest
from collections import Counter

from rethinkdb import r
from rethinkdb.errors import ReqlError, ReqlQueryLogicError

from feed_case import TIMEOUT_SECONDS, FeedCase, take

SEED = random.randrange(1 << 32)


def crc32c(data):
    """The checksum at the end of a token."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def token_bytes(token):
    return bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-4])


def token_text(content):
    content = bytes(content)
    return base64.urlsafe_b64encode(content + struct.pack("<I", crc32c(content))).decode().rstrip("=")


class BadTokens(FeedCase):
    def resume(self, token):
        """The row of the first element after the token, or the error."""
        query = self.table.changes(include_resume_token=True, resume_after=token)
        try:
            with contextlib.closing(query.run(self.connection)) as feed:
                return feed.next(wait=TIMEOUT_SECONDS)["new_val"]
        except ReqlError as error:
            return error.message

    def setUp(self):
        super().setUp()
        feed = self.feed(self.table.changes(include_resume_token=True))
        self.run_query(self.table.insert({"id": 1}))
        self.token = take(feed, 1)[0]["resume_token"]
        self.run_query(self.table.insert({"id": 2}))
        self.assertEqual(self.resume(self.token), {"id": 2})

    def refused(self, why):
        return f"The token in `resume_after` cannot be used: {why}."

    def test_tokens_with_any_damage_are_refused(self):
        damaged = [self.token[:length] for length in range(len(self.token))]
        damaged += [self.token + more for more in ("A", "AAAA", "=", "\n", " ")]
        for at, letter in enumerate(self.token):
            other = "A" if letter != "A" else "B"
            damaged.append(self.token[:at] + other + self.token[at + 1 :])
        damaged += ["x" * 100_000, "é", "\0", self.token.lower(), self.token[::-1], self.token * 2]
        for token in damaged:
            self.assertEqual(self.resume(token), self.refused("it was cut or altered"), token[:200])
        for token, kind in [(5, "NUMBER"), (["x"], "ARRAY"), ({}, "OBJECT"), (True, "BOOL"), (r.binary(b"x"), "PTYPE<BINARY>")]:
            self.assertEqual(self.resume(token), f"Expected type STRING but found {kind}.")
        with self.assertRaisesRegex(ReqlQueryLogicError, "cannot be used together"):
            self.run_query(self.table.changes(include_initial=True, resume_after=self.token))

    def test_tokens_of_later_versions_and_other_clusters_are_refused(self):
        content = token_bytes(self.token)
        self.assertEqual(token_text(content), self.token)
        for version in (2, 3, 255):
            later = bytearray(content)
            later[0] = version
            # The rest of it may have another form.
            for token in (token_text(later), token_text(bytes([version]) + b"form")):
                self.assertEqual(self.resume(token), self.refused("a later version of the server made it"))
        other = bytearray(content)
        other[1] ^= 1
        self.assertEqual(self.resume(token_text(other)), self.refused("it is of another cluster"))

    def test_forged_tokens_do_no_harm(self):
        print(f"seed {SEED}")
        chance = random.Random(SEED)
        content = token_bytes(self.token)
        counts = Counter()
        for _ in range(150):
            forged = bytearray(content)
            for _ in range(chance.randrange(1, 4)):
                forged[chance.randrange(len(forged))] = chance.choice([0, 1, 2, 127, 128, 255])
            if chance.random() < 0.3:
                del forged[chance.randrange(len(forged)) :]
            query = self.table.changes(include_resume_token=True, resume_after=token_text(forged))
            try:
                query.run(self.connection).close()
                counts["opened"] += 1
            except ReqlError as error:
                counts[type(error).__name__] += 1
        self.assertLessEqual(set(counts), {"opened", "ReqlQueryLogicError", "ReqlOpFailedError"})
        self.assertIsNone(self.node.process.poll())
        self.assertEqual(self.resume(self.token), {"id": 2})
        self.assertEqual([line for line in self.node.lines if "panic" in line], [])


if __name__ == "__main__":
    unittest.main()
