"""Servers whose disk is full or hangs while they run."""

import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlOpFailedError, ReqlOpIndeterminateError

from node import Node
from test_cluster import TIMEOUT_SECONDS, ask, connect, wait_until

TABLES = ("t", "unused")


def mounted(kind, folder, *options):
    """Whether a file system of this kind can be mounted there."""
    done = subprocess.run(["mount", "-t", kind, *options, str(folder)], capture_output=True, check=False)
    return done.returncode == 0


class Disks(unittest.TestCase):
    """Three servers; the last is the leader, and has a separate file system."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rekindle-disk-"))
        self.addCleanup(self.folder.rmdir)

    def start(self):
        self.nodes = []
        for nth in range(3):
            join = [flag for node in self.nodes[:1] for flag in ("--join", f"127.0.0.1:{node.cluster_port}")]
            node = Node("--server-name", f"s{nth}", *join, directory=self.folder if nth == 2 else None)
            self.addCleanup(node.remove)
            self.nodes.append(node.start())
        first, _, third = self.nodes
        for name in TABLES:
            ask(first, r.table_create(name, replicas=3))
            shard = {"primary_replica": "s2", "replicas": ["s0", "s1", "s2"]}
            ask(first, r.table(name).config().update({"shards": [shard]}))
            wait_until("the third leads", lambda name=name: self.leader(first, name) == ["s2"])
            ask(first, r.table(name).insert({"id": 1, "n": 0}))
        self.assertEqual(self.read(third), 0)

    def leader(self, node, name):
        return ask(node, r.table(name).status()["shards"][0]["primary_replicas"])

    def read(self, node):
        return ask(node, r.table("t").get(1)["n"])

    def issues(self):
        return ask(self.nodes[0], r.db("rethinkdb").table("current_issues")["type"].coerce_to("array"))

    def others_go_on(self):
        """Other servers lead the tables of the third, also those without writes, and the third uses these leaders."""
        first, second, third = self.nodes

        def write():
            with connect(first) as connection:
                try:
                    return r.table("t").get(1).update({"n": r.row["n"] + 1}).run(connection)["replaced"] == 1
                except (ReqlOpFailedError, ReqlOpIndeterminateError):
                    return False

        # Without this, some more writes would still fit.
        led_by_others = lambda name: self.leader(second, name) in (["s0"], ["s1"])
        wait_until("another leader", lambda: write() and led_by_others("t"))
        wait_until("another leader of the table without writers", lambda: led_by_others("unused"))
        written = self.read(first)
        self.assertGreater(written, 0)
        wait_until("the third reads what others wrote", lambda: self.read(third) == written)
        wait_until("an issue", lambda: "disk_error" in self.issues())
        told = r.db("rethinkdb").table("current_issues").filter({"type": "disk_error"})["info"]["message"]
        messages = [ask(second, told.coerce_to("array")), time.sleep(1.1), ask(second, told.coerce_to("array"))]
        self.assertEqual(messages[0], messages[2], "an issue that has not changed has the same text")
        # Tables can be configured, also through the third server.
        ask(third, r.db_create("through_the_third"))
        ask(second, r.db_create("meanwhile"))

    def all_is_well(self):
        wait_until("no issue", lambda: not self.issues())
        for name in TABLES:
            ask(self.nodes[0], r.table(name).wait(wait_for="all_replicas_ready", timeout=TIMEOUT_SECONDS))
        wait_until("the third has the news", lambda: "meanwhile" in ask(self.nodes[2], r.db_list()))

    def test_a_full_disk(self):
        if not mounted("tmpfs", self.folder, "-o", "size=200m", "tmpfs"):
            self.skipTest("no file system may be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.folder)], check=True)
        self.start()
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1 << 9, 1):
                fill(file, b"x" * size)
        self.others_go_on()
        ballast.unlink()
        self.all_is_well()

    def test_a_disk_that_hangs(self):
        image = tempfile.NamedTemporaryFile(prefix="rekindle-image-")
        self.addCleanup(image.close)
        os.truncate(image.name, 300 << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", image.name], capture_output=True, check=False)
        if made.returncode != 0 or not mounted("ext4", self.folder, "-o", "loop", image.name):
            self.skipTest("no file system may be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.folder)], check=True)
        self.start()
        thaw = ["fsfreeze", "-u", str(self.folder)]
        self.addCleanup(subprocess.run, thaw, capture_output=True, check=False)
        subprocess.run(["fsfreeze", "-f", str(self.folder)], check=True)
        self.others_go_on()
        subprocess.run(thaw, check=True)
        self.all_is_well()


def fill(file, block):
    """Writes until no block of this size fits."""
    try:
        while True:
            file.write(block)
    except OSError:
        pass


if __name__ == "__main__":
    unittest.main()
