"""`rekindle bench units` keeps its results, however it ends; `rekindle bench feeds` finds every change; `rekindle bench
wiki` loads what `rekindle bench wiki-rows` makes."""

import json
import random
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from feed_proxy import FeedProxy
from node import Node, program

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


class Articles(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="rekindle-test-")
        self.addCleanup(self.place.cleanup)
        self.folder = Path(self.place.name)

    def bench(self, *arguments):
        command = [program(), "bench", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=self.folder)

    def test_rows_are_made_loaded_and_read(self):
        texts, rows = self.folder / "texts", self.folder / "rows.tsv"
        texts.mkdir()
        words = "the storage engine history city river population music system company".split()
        chance = random.Random(1)
        for number in range(40):
            paragraphs = (" ".join(chance.choices(words, k=80)) + f" {chance.random()}." for _ in range(80))
            (texts / f"{number}.txt").write_text("\n\n".join(paragraphs))
        made = self.bench("wiki-rows", "-o", str(rows), str(texts))
        self.assertEqual(made.returncode, 0, made.stderr)
        again = self.bench("wiki-rows", "-o", str(rows), str(texts))
        self.assertIn("cannot be created", again.stderr)
        lines = rows.read_bytes().splitlines()
        rows.write_bytes(b"\n".join([*lines, b"a\tb", lines[0], b"\xff"]) + b"\n")
        flags = ["--seconds", "1", "--warmup", "0.5", "--cache-size", "128", "--port-offset", str(free_offset(1)), "--quiet"]
        ran = self.bench("wiki", str(rows), *flags, "--small-memory", "256", "--archive", "--json", "out/")
        self.assertEqual(ran.returncode, 0, ran.stderr + ran.stdout)
        results = [json.loads(path.read_text()) for path in sorted((self.folder / "out").iterdir())]
        load = next(result for result in results if result["name"] == "Articles, load")
        figures = {figure["name"]: figure["value"] for figure in load["figures"]}
        self.assertEqual(load["throughput"]["units"][0]["total"], len(lines))
        for kind in ("not UTF-8", "repeated key", "wrong columns"):
            self.assertIn(f"1 lines left out: {kind}", load["notes"])
        self.assertGreater(figures["zstd -3 in blocks of 16 KB, of the JSON"], 5)
        self.assertEqual(figures["published, of the lines: MongoDB 3.2.13"], 57.1)
        self.check_xz(load, figures)
        self.assertGreater(figures["written to disk for each byte of JSON"], 0.1)
        self.assertGreater(figures["until the rows had settled"], 0)
        archive = next(result for result in results if result["name"] == "Articles, read from an archive")
        archived = {figure["name"]: figure["value"] for figure in archive["figures"]}
        share = "data folder without the log, of the JSON"
        self.assertLess(archived[share], figures[share])
        self.check_tests(results, ran.stderr)
        page = self.bench("report", "out", "-o", "report.html")
        self.assertEqual(page.returncode, 0, page.stderr)
        self.assertIn("terark-wikipedia-2017", (self.folder / "report.html").read_text())
        stopped = self.bench("wiki", str(rows), *flags, "--on-broken", "stop", "--no-xz")
        self.assertIn(f"line {len(lines) + 1} of", stopped.stderr)
        self.assertNotEqual(stopped.returncode, 0)


    def check_xz(self, load, figures):
        """Machines without xz say so."""
        share = figures["xz -9 of all, of the JSON"]
        if share is None:
            self.assertTrue(any("the mark of xz is unknown" in note for note in load["notes"]), load["notes"])
        else:
            self.assertLess(share, figures["zstd -3 in blocks of 16 KB, of the JSON"])

    def check_tests(self, results, said):
        """Tests with the whole memory, and with little memory where control groups can be made."""
        limited = [result for result in results if result["name"].endswith(" with 256 MB")]
        if not limited:
            self.assertIn("no tests with 256 MB (--small-memory)", said)
        # The load, three tests, and the archive.
        self.assertEqual(len(results), 1 + 3 + len(limited) + 1)
        for result in results:
            self.assertEqual((result["verification"]["wrong"], result["errors"]), (0, []), result["name"])
        for result in limited:
            figures = {figure["name"]: figure["value"] for figure in result["figures"]}
            self.assertLess(figures["peak memory with the page cache"], 256 * 1.049)
            disk = figures.get("the disk's own random reads of 4 KB")
            unknown = [note for note in result["notes"] if "the disk's own rate is unknown" in note]
            self.assertTrue(disk or unknown, result["notes"])


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


class Feeds(unittest.TestCase):
    """Bars depend on the machine; checks do not."""

    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="rekindle-test-")
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def start_nodes(self):
        """The flags with which the command starts a node."""
        flags = ["--nodes", "1", "--port-offset", str(free_offset(1)), "--cache-size", "128"]
        return [*flags, "--folder", str(self.place / "nodes")]

    def measure(self, measures, *flags):
        """The results by measurement."""
        command = [program(), "bench", "feeds", "--measure", measures, "--quiet", "--seed", "7"]
        command += ["--json", f"{self.place}/", "--seconds", "1", "--other-rows", "2000", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
        results = [json.loads(path.read_text()) for path in self.place.glob("*.json")]
        self.assertEqual(len(results), measures.count(",") + 1, done.stderr)
        return {result["settings"]["measure"]: result for result in results}

    def check(self, result):
        wrong = [check for check in result["checks"] if not check["ok"]]
        self.assertEqual((wrong, result["errors"]), ([], []), result["notes"])
        # Short runs take too little processor time for a figure of one event.
        unknown = [figure["name"] for figure in result["figures"] if figure["value"] is None]
        self.assertEqual([name for name in unknown if "per event" not in name and "delivered event" not in name], [])
        return {figure["name"]: figure for figure in result["figures"]}

    def test_feeds_of_all_kinds_have_each_event_once(self):
        flags = ["--feeds", "40", "--feed-connections", "3", "--writes-per-second", "400", "--match-every", "2"]
        results = self.measure("delivery,idle,churn", *flags, "--opens", "200", *self.start_nodes())
        figures = self.check(results["delivery"])
        self.assertEqual(figures["commit to delivery, p99"]["bar"], 5000)
        operations = {operation["name"]: operation for operation in results["delivery"]["operations"]}
        for kind in ["DOCUMENT", "RANGE", "FILTER", "LIMIT"]:
            self.assertGreater(operations[f"DELIVERY-{kind}"]["ok"], 10)
        self.check(results["idle"])
        self.check(results["churn"])

    def test_a_feed_that_is_not_read_accounts_for_each_write(self):
        flags = ["--slow-feeds", "3", "--slow-queue", "50", "--writes-per-second", "400", "--throughput-rate", "500"]
        results = self.measure("slow,throughput", *flags, "--table-feeds", "2", *self.start_nodes())
        dropped = self.check(results["slow"])["changes that were dropped, by feed"]["value"]
        self.assertGreater(dropped, 100)
        self.check(results["throughput"])

    def test_one_event_that_is_dropped_or_doubled_is_found(self):
        node = Node()
        self.addCleanup(node.remove)
        node.start()
        for alter, name in [(lambda rows: rows[1:], "missed"), (lambda rows: [rows[0], *rows], "came again")]:
            proxy = FeedProxy(node.driver_port, alter)
            self.addCleanup(proxy.close)
            flags = ["--port", str(proxy.port), "--feeds", "8", "--writes-per-second", "200", "--match-every", "2"]
            flags += ["--server-pid", str(node.process.pid), "--drain", "1", "--label", name]
            result = self.measure("delivery", *flags)["delivery"]
            wrong = {check["name"]: check["found"] for check in result["checks"] if not check["ok"]}
            self.assertEqual(wrong.get(f"events that were {name}", wrong.get(f"events that {name}")), 1, wrong)
            self.assertIn("check-failed", [alarm["kind"] for alarm in result["alarms"]])
            for path in self.place.glob("*.json"):
                path.unlink()


if __name__ == "__main__":
    unittest.main()
