"""Runs every test of this folder, two files at a time, and ends with `N passed, N failed, N skipped`."""

import re
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Most of the time they wait for clusters.
AT_ONCE = 2
ONE_FAILED = (0, 1, 0)


def closing(passed, failed, skipped):
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def run(name):
    """Runs one file in this process; the exit status."""
    sys.path.insert(0, str(HERE))
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(verbosity=1, stream=sys.stdout).run(suite)
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(closing(result.testsRun - failed - skipped, failed, skipped))
    return 1 if failed or not result.testsRun else 0


def run_apart(name):
    """Runs one file in a process of its own; what it said, and how many passed, failed and were skipped."""
    command = [sys.executable, str(Path(__file__)), name]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    said, counts = ended.stdout.rstrip().rpartition("\n")[::2]
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", counts)
    # One that ends before it has counted has failed.
    return (said, tuple(map(int, counts.groups()))) if counts else (ended.stdout, ONE_FAILED)


def main():
    if len(sys.argv) > 1:
        return run(sys.argv[1])
    names = sorted(path.stem for path in HERE.glob("test_*.py"))
    total = (0, 0, 0)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, (said, counts) in zip(names, pool.map(run_apart, names)):
            print(f"{name}: {said}", flush=True)
            total = tuple(map(sum, zip(total, counts)))
    print(closing(*total))
    passed, failed, _ = total
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
