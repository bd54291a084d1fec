"""`rekindle bench units` keeps its results, however it ends."""

import json
import random
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from node import program

# A busy machine needs time to start four nodes.
SECONDS_MAX = 240
# The ports of the nodes before the offset: for drivers, for other nodes, for browsers.
PORTS = [28015, 29015, 8080]
# Node 2 never starts: tests 1 to 3 have two nodes, test 4 has four.
NO_THIRD_NODE = """#!/bin/sh
case "$*" in *"--server-name node2 "*) echo "there is no third node" >&2; exit 9;; esac
exec "{program}" "$@"
"""


def free_offset(nodes=4):
    """A --port-offset with free ports for so many nodes."""
    while True:
        offset = random.randrange(500, 3700)
        if all(is_free(port + offset + node) for port in PORTS for node in range(nodes)):
            return offset


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class Units(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="rekindle-test-")
        self.addCleanup(self.place.cleanup)
        self.output = Path(self.place.name) / "out"

    def start(self, *flags):
        """Starts short tests of small blocks."""
        command = [program(), "bench", "units", "--seconds", "1", "--block-bytes", "20000", "--no-quota", "--quiet"]
        command += ["--cache-size", "128", "--port-offset", str(free_offset()), "-o", str(self.output), *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(SECONDS_MAX, process.kill)
        timer.start()
        self.addCleanup(timer.cancel)
        return process

    def results(self):
        """The written results by test; there is no other file but the page."""
        names = sorted(path.name for path in self.output.iterdir())
        self.assertIn("report.html", names)
        results = [json.loads((self.output / name).read_text()) for name in names if name.endswith(".json")]
        self.assertEqual(len(names), len(results) + 1, names)
        return {result["label"]: result for result in results}

    def test_what_was_measured_before_a_signal_stays(self):
        process = self.start()
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("units: test 1: "):
                process.send_signal(signal.SIGTERM)
                break
        said += process.communicate()[1]
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, said)
        results = self.results()
        self.assertIn("test 1", results, said)
        self.assertNotIn("test 4", results, said)

    def test_what_was_measured_before_something_fails_stays(self):
        wrapper = Path(self.place.name) / "no_third_node"
        wrapper.write_text(NO_THIRD_NODE.format(program=program()))
        wrapper.chmod(0o755)
        process = self.start("--target-binary", str(wrapper))
        shown, said = process.communicate()
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("there is no third node", said)
        results = self.results()
        self.assertEqual(sorted(results), ["test 1", "test 2", "test 3"], said)
        # They are also shown.
        for test in results:
            self.assertRegex(shown, rf"(?m)^{test} +2 ")
        self.check_dealing(results)
        self.check_disks(results)

    def check_dealing(self, results):
        """Nodes have the published units, and ratios are those of these units."""
        wanted = {"test 1": ([2, 2], 1.0, 1.0), "test 2": ([2, 3], 1.25, 1.2), "test 3": ([2, 4], 1.5, 1.4)}
        for test, (units_by_node, expected, published) in wanted.items():
            units = results[test]["units"]
            self.assertEqual(units["units_by_node"], units_by_node)
            self.assertEqual(results[test]["loop"]["connections"], sum(units_by_node))
            self.assertEqual(units["expected_by_test_1"], expected)
            self.assertEqual(units["published_by_test_1"], published)
        self.assertEqual(results["test 1"]["units"]["by_test_1"], 1.0)

    def check_disks(self, results):
        """Each test begins with new folders, so that their growth belongs to the test."""
        for result in results.values():
            (disk,) = result["units"]["disk"]
            self.assertEqual((disk["role"], disk["nodes"]), ("primaries", ["node0", "node1"]))
            blocks = {unit["name"]: unit["total"] for unit in result["throughput"]["units"]}["bytes"]
            self.assertGreater(disk["grown_bytes"], 0)
            self.assertLess(disk["grown_bytes"], 3 * blocks + 50_000_000)

    def test_a_folder_that_cannot_be_made_is_refused_before_anything_starts(self):
        self.output = Path("/proc/no/such/place")
        process = self.start()
        shown, said = process.communicate()
        self.assertEqual((process.returncode, shown), (1, ""), said)
        self.assertIn(f"--output {self.output} cannot be used", said)
        self.assertNotIn("starting", said)


if __name__ == "__main__":
    unittest.main()
