"""A server whose disk takes very long to read: queries about documents in memory do not wait for it."""

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from rethinkdb import r

from node import Node
from test_cluster import ask, connect
from test_disks import mounted

ROWS = 40_000
HOT = range(10)
COLD = range(1_000, ROWS, 5_000)
READS_PER_SECOND = 4
GROUPS = Path("/sys/fs/cgroup/blkio")


class SlowReads(unittest.TestCase):
    def setUp(self):
        folder = Path(tempfile.mkdtemp(prefix="rekindle-disk-"))
        self.addCleanup(folder.rmdir)
        image = tempfile.NamedTemporaryFile(prefix="rekindle-image-")
        self.addCleanup(image.close)
        os.truncate(image.name, 600 << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", image.name], capture_output=True, check=False)
        if made.returncode != 0 or not mounted("ext4", folder, "-o", "loop", image.name):
            self.skipTest("no file system may be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(folder)], check=True)
        self.group = GROUPS / folder.name
        try:
            self.group.mkdir()
        except OSError:
            self.skipTest("there is no control group for block devices here")
        self.addCleanup(self.group.rmdir)
        # All connections share one thread.
        self.node = Node("--cores", "1", "--cache-size", "100", directory=folder)
        self.addCleanup(self.node.remove)
        self.node.start()
        self.fill()

    def fill(self):
        ask(self.node, r.table_create("t"))
        with connect(self.node) as connection:
            for start in range(0, ROWS, 2_000):
                rows = [{"id": n, "n": 0, "text": secrets.token_hex(500)} for n in range(start, start + 2_000)]
                r.table("t").insert(rows, durability="soft").run(connection)
            r.table("t").sync().run(connection)
        # With empty caches.
        self.node.stop()
        self.node.start()

    def forget_files(self):
        """The system has to read the files of the server again."""
        for path in self.node.directory.rglob("*.sst"):
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)

    @contextlib.contextmanager
    def slow_disk(self):
        device = self.node.directory.stat().st_dev
        limit = self.group / "blkio.throttle.read_iops_device"
        limit.write_text(f"{os.major(device)}:{os.minor(device)} {READS_PER_SECOND}")
        (self.group / "cgroup.procs").write_text(str(self.node.process.pid))
        try:
            yield
        finally:
            limit.write_text(f"{os.major(device)}:{os.minor(device)} 0")
            (GROUPS / "cgroup.procs").write_text(str(self.node.process.pid))

    def queries_in_memory(self, during):
        """The longest time that a query about a document in memory takes while `during` runs, and how many run."""
        threads = [threading.Thread(target=ask, args=(self.node, query)) for query in during]
        longest, count = 0, 0
        with connect(self.node) as connection:
            for n in (*HOT, *HOT):
                r.table("t").get(n).update({"n": r.row["n"] + 1}).run(connection)
                r.table("t").get(n)["n"].run(connection)
            self.forget_files()
            with self.slow_disk():
                for thread in threads:
                    thread.start()
                started = time.monotonic()
                while any(thread.is_alive() for thread in threads) and time.monotonic() - started < 60:
                    before = time.monotonic()
                    n = HOT[count % len(HOT)]
                    self.assertGreater(r.table("t").get(n).run(connection)["n"], 1)
                    r.table("t").get(n).update({"n": 2}, durability="soft").run(connection)
                    r.table("t").insert({"id": ROWS + count, "n": 2}, durability="soft").run(connection)
                    longest, count = max(longest, time.monotonic() - before), count + 1
        for thread in threads:
            thread.join()
        took = time.monotonic() - started
        self.assertGreater(took, 1, "the disk was not slow")
        return longest, count

    def test_reads_and_writes_from_disk_hold_up_no_others(self):
        reads = [r.table("t").get(n)["n"] for n in COLD]
        writes = [r.table("t").get(n + 1).update({"n": 1}) for n in COLD]
        several = [r.table("t").get_all(*range(n + 100, n + 2_000, 100)) for n in COLD[:2]]
        longest, count = self.queries_in_memory(reads + writes + several)
        self.assertLess(longest, 0.4, f"of {count} queries about documents in memory")
        self.assertGreater(count, 20)
        self.assertEqual(ask(self.node, r.table("t").get(COLD[0] + 1)["n"]), 1)


if __name__ == "__main__":
    unittest.main()
