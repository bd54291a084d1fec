"""The runner of these tests."""

import unittest

import run


class Run(unittest.TestCase):
    def test_a_file_that_hangs_is_killed_with_what_it_started_and_has_failed(self):
        said, counts = run.run_apart("hangs", seconds_max=10)
        self.assertEqual(counts, (0, 1, 0))
        for words in ["begun", "test_that_waits_for_what_it_started", "hangs was killed"]:
            self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
