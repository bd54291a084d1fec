"""A file of tests that never ends, for `test_run`: by itself it is none that is run."""

import subprocess
import unittest


class Hangs(unittest.TestCase):
    def test_that_waits_for_what_it_started(self):
        print("begun")
        # As servers it stays when this process alone is killed, and holds the output open.
        subprocess.Popen(["sleep", "1000"]).wait()
