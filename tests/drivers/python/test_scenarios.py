"""tests/drivers/scenarios.txt through the official Python driver. `UPDATE=1` writes the results."""

import base64
import datetime
import json
import os
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlError

from node import node

FILE = Path(__file__).resolve().parent.parent / "scenarios.txt"


def cases(lines):
    """Scenario, query and result of each case, and the place of the result."""
    scenario, query = None, None
    for place, line in enumerate(lines):
        kind, _, rest = line.partition(" ")
        if kind == "==":
            scenario = rest
        elif kind == "py":
            query = rest
        elif kind == "->":
            yield scenario, query, rest, place


def plain(value):
    """The value as the file writes it."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        return {"ms": round(value.timestamp() * 1000)}
    if isinstance(value, dict):
        # Documents have texts for keys, groups may have anything.
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def answer(text, connection):
    """The result of the driver."""
    query = r.expr(eval(text, {"r": r}))
    try:
        value = query.run(connection, group_format="raw")
        if hasattr(value, "close"):
            return sorted(map(plain, value), key=dump)
    except ReqlError as error:
        return {"error": [type(error).__name__, error.message.split("\n")[0]]}
    if isinstance(value, dict) and value.get("$reql_type$") == "GROUPED_DATA":
        return {"groups": plain(value["data"])}
    return plain(value)


def dump(value):
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class Scenarios(unittest.TestCase):
    def test_all_of_them(self):
        lines = FILE.read_text().splitlines()
        before, scenarios = None, set()
        with node() as server, r.connect("127.0.0.1", server.driver_port) as connection:
            for scenario, query, expected, place in cases(lines):
                if scenario != before:
                    r.table_list().for_each(lambda name: r.table_drop(name)).run(connection)
                before = scenario
                scenarios.add(scenario)
                found = answer(query, connection)
                if "UPDATE" in os.environ:
                    lines[place] = f"-> {dump(found)}"
                else:
                    with self.subTest(scenario=scenario, query=query):
                        self.assertEqual(dump(found), dump(json.loads(expected)))
        if "UPDATE" in os.environ:
            FILE.write_text("\n".join(lines) + "\n")
        self.assertGreaterEqual(len(scenarios), 7)


if __name__ == "__main__":
    unittest.main()
