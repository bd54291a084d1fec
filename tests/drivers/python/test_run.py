"""The runner of these tests."""

import unittest

import run


class Run(unittest.TestCase):
    def test_a_file_that_hangs_is_killed_with_what_it_started_and_has_failed(self):
        said, counts = run.run_apart("hangs", seconds_max=10)
        self.assertEqual(counts, (0, 1, 0))
        for words in ["begun", "test_that_waits_for_what_it_started", "hangs was killed"]:
            self.assertIn(words, said)

    def test_what_failed_is_said_in_one_line_with_where_and_why(self):
        traceback = "\n".join([
            "Traceback (most recent call last):",
            f'  File "{run.HERE}/test_x.py", line 7, in test_it',
            "    node.wait()",
            f'  File "{run.HERE}/node.py", line 90, in wait',
            "    run(query)",
            '  File "/elsewhere/rethinkdb/net.py", line 3, in run',
            "    raise it",
            "ValueError: the first one",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "rethinkdb.errors.ReqlDriverError: Connection is closed.",
        ])
        line = "test_x.X.test_it (node.py:90 < test_x.py:7): 'rethinkdb.errors.ReqlDriverError: Connection is closed.'"
        self.assertEqual(run.in_one_line("test_x.X.test_it", traceback), run.FAILED + line)
        no_error = run.in_one_line("test_x.X.test_it", "killed\n" * 100)
        self.assertNotIn("\n", no_error)
        self.assertIn("killed", no_error)


if __name__ == "__main__":
    unittest.main()
