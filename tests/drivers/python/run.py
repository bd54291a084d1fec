"""Runs every test of this folder, two files at a time, and ends with `N passed, N failed, N skipped`.

Before that line it repeats which tests failed and why, for readers of the last lines only."""

import contextlib
import faulthandler
import os
import re
import signal
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Test files mostly wait for clusters.
AT_ONCE = 2
ONE_FAILED = (0, 1, 0)
# A file that runs for longer has hung: the slowest takes a few minutes.
SECONDS_MAX = 600
RUNNING = set()
# The prefixes of lines that name a failure.
FAILED = "failed: "


def closing(passed, failed, skipped):
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def run(name, seconds_max):
    """Runs one file in this process; returns the exit status. Prints its stacks shortly before the time limit."""
    faulthandler.dump_traceback_later(0.9 * seconds_max, file=sys.stdout)
    sys.path.insert(0, str(HERE))
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(verbosity=1, stream=sys.stdout).run(suite)
    broken = result.failures + result.errors
    failed, skipped = len(broken), len(result.skipped)
    for test, traceback in broken:
        print(in_one_line(test.id(), traceback))
    print(closing(result.testsRun - failed - skipped, failed, skipped))
    return 1 if failed or not result.testsRun else 0


def in_one_line(test, traceback):
    """The failed test, its place, and the beginning of the reason."""
    places = re.findall(rf'File "{re.escape(str(HERE))}/([^"]+)", line (\d+)', traceback)
    why = re.findall(r"^\w\S*(?:Error|Exception|Exit|Interrupt)\b.*", traceback, re.MULTILINE)
    at = " < ".join(f"{name}:{line}" for name, line in reversed(places))
    return f"{FAILED}{test} ({at}): {(why[-1] if why else traceback)[:300]!r}"


def run_apart(name, seconds_max=SECONDS_MAX):
    """Runs one file in a separate process; returns its output and the numbers that passed, failed and were skipped.

    At the time limit it is killed with the servers that it started, and has failed."""
    # A file keeps the output when the process is killed.
    command = [sys.executable, "-u", str(Path(__file__)), name, str(seconds_max)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, **output) as process:
        RUNNING.add(process)
        try:
            said = process.communicate(timeout=seconds_max)[0]
        except subprocess.TimeoutExpired:
            kill_group(process)
            said = process.communicate()[0]
            return f"{said}\n{name} was killed: it ran for more than {seconds_max} seconds", ONE_FAILED
        finally:
            RUNNING.discard(process)
    before, counts = said.rstrip().rpartition("\n")[::2]
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", counts)
    # A file without a count has failed.
    return (before, tuple(map(int, counts.groups()))) if counts else (said, ONE_FAILED)


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def main():
    if len(sys.argv) > 1:
        return run(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS_MAX)
    # Also kills the servers of the file, as an interruption does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    names = sorted(path.stem for path in HERE.glob("test_*.py"))
    total, broken = (0, 0, 0), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files = {pool.submit(run_apart, name): name for name in names}
        try:
            for file in as_completed(files):
                said, counts = file.result()
                print(f"{files[file]}: {said}", flush=True)
                total = tuple(map(sum, zip(total, counts)))
                named = [line for line in said.splitlines() if line.startswith(FAILED)]
                broken += named if named or not counts[1] else [f"{FAILED}{files[file]}: {said[-300:]!r}"]
        finally:
            # An interruption of this process does not reach the files.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(RUNNING):
                kill_group(process)
    print("\n".join(["", *broken, closing(*total)]))
    passed, failed, _ = total
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
