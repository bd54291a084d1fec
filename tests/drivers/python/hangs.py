"""A test file that never ends, for `test_run`. Its name excludes it from normal runs."""

import subprocess
import unittest


class Hangs(unittest.TestCase):
    def test_that_waits_for_what_it_started(self):
        print("begun")
        # Like a server it survives the death of this process and holds the output open.
        subprocess.Popen(["sleep", "1000"]).wait()
