"""The pages of `docs/reference`: their contents, and the examples that run as tests.

A fenced `python` block is a session: `>>> ` lines, and below each expression its result. A `console` block is a shell
session: `$ ` lines and their output. (`tests/drivers/javascript` runs the `js` blocks.) In a result `...` stands for any
one value, the rest of a list, the other fields of an object (`{'inserted': 1, ...}`), or the rest of a line.
"""

import contextlib
import doctest
import io
import pprint
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rethinkdb import r
from rethinkdb.errors import ReqlError
from rethinkdb.net import Cursor

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"
SIGNATURES = ROOT / "crates" / "reql" / "src" / "signature.rs"

RESULT_COLUMNS_MAX = 100
UUID = re.compile(r"'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'")
COMMAND_SECONDS_MAX = 120
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TERMS = re.compile(r"^Terms?: (.+)\.$", re.MULTILINE)
TERM = re.compile(r"`([A-Z0-9_]+)` \((\d+)\)")
ROW = re.compile(r'^ {4}\w+ (\d+) "([A-Z0-9_]+)" (\d+) ?\.\. ?(\d*) \[(.*)\] \w+$', re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
OTHER_FIELDS = re.compile(r"(?<=[{,])(\s*)\.\.\.(\s*)}")


@dataclass
class Signature:
    """A row of the table of terms."""

    number: int
    name: str
    optargs: list


def signatures(text=None):
    """Every row of the table of terms, by name."""
    rows = ROW.findall(SIGNATURES.read_text() if text is None else text)
    return {name: Signature(int(number), name, re.findall(r'"(\w+)"', optargs)) for number, name, _, _, optargs in rows}


@dataclass
class Block:
    """A fenced block: its language, its text and the line of the page on which the text begins."""

    language: str
    text: str
    line: int


@dataclass
class Page:
    """A page, read from its Markdown."""

    path: Path
    text: str
    blocks: list = field(default_factory=list)

    @classmethod
    def read(cls, path):
        return cls.parse(path, path.read_text())

    @classmethod
    def parse(cls, path, text):
        blocks = [Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in FENCE.finditer(text)]
        return cls(path, text, blocks)

    @property
    def prose(self):
        """The text outside of the blocks."""
        return FENCE.sub("", self.text)

    @property
    def title(self):
        return self.text.split("\n", 1)[0].removeprefix("# ")

    @property
    def summary(self):
        """The first paragraph, in one line."""
        paragraphs = self.prose.split("\n\n", 2)
        return " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""

    def terms(self):
        """Names and numbers of the terms that the page describes."""
        found = TERMS.search(self.text)
        return {name: int(number) for name, number in TERM.findall(found[1])} if found else {}

    def examples(self):
        """The blocks that run here: (block, examples) for each."""
        for block in self.blocks:
            if block.language == "python":
                yield block, python_examples(block)
            elif block.language == "console":
                yield block, prompted(block, "$ ")

    def examples_elsewhere(self):
        """The blocks for the official JavaScript driver."""
        for block in self.blocks:
            if block.language == "js":
                yield block, prompted(block, "> ")

    def links(self):
        """Relative links: (path, anchor)."""
        return [(path, anchor) for path, anchor in LINK.findall(self.prose) if ":" not in path]

    def anchors(self):
        """The anchors of the headings of the page."""
        names = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


@dataclass
class Example:
    """One input of a session, with its continuation lines, and the expected result. `line` is its line in the page."""

    source: str
    want: str
    line: int
    lines_of_source: int
    shell: bool = False


def python_examples(block):
    parsed = doctest.DocTestParser().get_examples(block.text)
    return [
        Example(one.source, one.want, block.line + one.lineno, one.source.count("\n"))
        for one in parsed
    ]


def prompted(block, prompt):
    examples = []
    for number, line in enumerate(block.text.splitlines(keepends=True)):
        if line.startswith(prompt):
            examples.append(Example(line.removeprefix(prompt), "", block.line + number, 1, shell=True))
        elif examples:
            examples[-1].want += line
    return examples


class Session:
    """Runs the examples of one page, one after another, with the names they define."""

    def __init__(self, node, connection, environment):
        self.node = node
        self.names = {"r": r, "conn": connection}
        self.environment = environment

    def run(self, example):
        """The outcome of the example: ("value", v), ("text", printed) or ("nothing", None)."""
        source = with_ports(example.source, self.node)
        if example.shell:
            return "text", self.command(source)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                value = self.evaluate(source)
        except ReqlError as error:
            message = with_documented_ports(getattr(error, "message", str(error)), self.node)
            return "text", f"{type(error).__name__}: {message}\n"
        if printed.getvalue():
            return "text", printed.getvalue()
        return ("nothing", None) if value is NOTHING else ("value", drained(value))

    def evaluate(self, source):
        try:
            code = compile(source, "<example>", "eval")
        except SyntaxError:
            exec(compile(source, "<example>", "exec"), self.names)
            return NOTHING
        return eval(code, self.names)

    def command(self, source):
        done = subprocess.run(source, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=COMMAND_SECONDS_MAX, **self.environment)
        return with_documented_ports(done.stdout, self.node)


NOTHING = object()


def with_ports(source, node):
    """Replaces the default ports of the page by those of the node."""
    source = source.replace("r.connect()", "r.connect(port=28015)")
    return source.replace("28015", str(node.driver_port)).replace("8080", str(node.http_port))


def with_documented_ports(text, node):
    return text.replace(str(node.driver_port), "28015").replace(str(node.http_port), "8080")


def drained(value):
    if isinstance(value, Cursor):
        value = list(value)
    if isinstance(value, (list, tuple)):
        return type(value)(drained(item) for item in value)
    if isinstance(value, dict):
        return {key: drained(item) for key, item in value.items()}
    return bytes(value) if isinstance(value, bytes) else value


def agrees(outcome, example, names):
    """Whether an outcome equals the expected one of the page."""
    kind, got = outcome
    if kind == "nothing":
        return not example.want
    if kind == "text":
        return text_agrees(got, example.want)
    try:
        want = eval(OTHER_FIELDS.sub(r"\1...: ...\2}", example.want.strip()), dict(names))
    except Exception:
        return False
    return value_agrees(got, want)


def text_agrees(got, want):
    """Compares line by line; the value after an error message (`…:`) may be missing in the page."""
    got, want = got.rstrip("\n").expandtabs(), want.rstrip("\n")
    if not want or not got:
        return want == got
    if is_opened(want) and want == got.split("\n", 1)[0]:
        return True
    pattern = ".*".join(re.escape(part) for part in want.split("..."))
    return re.fullmatch(pattern, got, re.DOTALL) is not None


def value_agrees(got, want):
    if want is ...:
        return True
    if isinstance(want, dict) and isinstance(got, dict):
        named = {key: value for key, value in want.items() if key is not ...}
        whole = got.keys() == named.keys() or (... in want and named.keys() <= got.keys())
        return whole and all(value_agrees(got[key], value) for key, value in named.items())
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        if want and want[-1] is ...:
            want = want[:-1]
            got = got[: len(want)]
        return len(got) == len(want) and all(map(value_agrees, got, want))
    return type(got) is type(want) and got == want or numbers_agree(got, want)


def is_opened(line):
    """Whether an error's first line announces a value on the following lines."""
    return re.match(r"Reql\w+: .*:$", line) is not None


def numbers_agree(got, want):
    plain = (int, float)
    return type(got) in plain and type(want) in plain and got == want


def shown(outcome):
    """An outcome in the form of a page."""
    kind, got = outcome
    if kind == "nothing" or got == "":
        return ""
    if kind == "text":
        first = got.split("\n", 1)[0]
        return (first if is_opened(first) else got.rstrip("\n")) + "\n"
    if isinstance(got, (str, bytes)):
        return repr(got) + "\n"
    text = pprint.pformat(got, width=RESULT_COLUMNS_MAX, sort_dicts=False) + "\n"
    return UUID.sub("...", text)


def rewritten(page, outcomes):
    """The text of the page with the results of `outcomes` (example, outcome) instead of the expected ones."""
    lines = page.text.splitlines(keepends=True)
    for example, outcome in sorted(outcomes, key=lambda pair: -pair[0].line):
        start = example.line - 1 + example.lines_of_source
        end = start + example.want.count("\n")
        lines[start:end] = shown(outcome).splitlines(keepends=True)
    return "".join(lines)
