"""The data of a real RethinkDB, which lies beside the checkout: functions with their results, dumps, and what they must give."""

import base64
import json
import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("REKINDLE_RETHINKDB_DATA", HERE.parents[3] / "shared" / "rethinkdb-data"))
RAW = {"time_format": "raw", "binary_format": "raw", "group_format": "raw"}

needs_data = unittest.skipUnless(DATA.is_dir(), f"no data of a RethinkDB in {DATA}")


def records(name):
    with open(DATA / name, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def environment():
    """The names that the sources of the records use, without the table `T`."""
    sys.path.insert(0, str(DATA / "make"))
    import gen_index

    return dict(gen_index.ENV)


def binary(record):
    return base64.b64decode(record["function"])


def plain(value):
    """A value for comparisons: numbers as doubles with their sign, binaries without line breaks."""
    if isinstance(value, dict):
        if value.get("$reql_type$") == "BINARY":
            return {**value, "data": "".join(value["data"].split())}
        return {name: plain(part) for name, part in sorted(value.items())}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value).hex()
    return value
