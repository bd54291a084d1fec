"""`docs/reference` and the README's first screen: every example runs against a node, and no page is missing.

`UPDATE=1` writes results that differ into the pages; read that diff before you commit it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rethinkdb import r
from rethinkdb.ast import Func
from rethinkdb.net import Connection

import pages
from node import Node, program
from pages import REFERENCE, ROOT, Page

SAMPLES = REFERENCE / "examples.md"
SECTIONS = ["**Returns.**", "**Errors.**", "**Cost.**", "**See.**"]
UPDATE = os.environ.get("UPDATE") == "1"
# The data of examples need not survive a crash; a folder in memory saves some hundred disk syncs.
FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def all_pages():
    return [Page.read(path) for path in sorted(REFERENCE.rglob("*.md"))]


def name_of(page):
    return str(page.path.relative_to(REFERENCE))


def contents_line(page):
    """The entry of a page in the table of contents: its title and its first sentence."""
    return f"- [{page.title}]({name_of(page)}): {page.summary.split('. ')[0].removesuffix('.')}"


def faults_of_examples(page):
    """The faults of a page before its examples run."""
    faults, count = [], 0
    for block, examples in [*page.examples(), *page.examples_elsewhere()]:
        if not examples:
            faults.append(f"line {block.line}: a {block.language} block without an example")
        count += sum(1 for example in examples if example.want)
        faults += [f"line {example.line}: no result below `{example.source.strip()}`"
                   for example in examples if not example.want and is_question(example)]
    if not count:
        faults.append("no example")
    return faults


def is_question(example):
    """Whether there must be a result: an expression, or a command that is not silent."""
    if example.shell:
        return not example.source.endswith(">/dev/null\n")
    try:
        compile(example.source, "<example>", "eval")
    except SyntaxError:
        return False
    return True


def faults_of_terms(every_page, table):
    """Terms without a page, pages of terms that are not, terms described twice, forgotten options and sections."""
    faults, seen = [], {}
    for page in every_page:
        for name, number in page.terms().items():
            row = table.get(name)
            if row is None or row.number != number:
                faults.append(f"{page.path.name}: there is no term `{name}` ({number})")
                continue
            if name in seen:
                faults.append(f"`{name}` is described by {seen[name]} and {page.path.name}")
            seen[name] = page.path.name
            faults += [f"{page.path.name}: the option `{optarg}` of `{name}` is not described"
                       for optarg in row.optargs if f"`{optarg}`" not in page.prose]
        if page.terms():
            faults += [f"{page.path.name}: has no {section}" for section in SECTIONS if section not in page.text]
        elif page.path.parent != REFERENCE and page.path.name != "README.md":
            faults.append(f"{page.path.name}: a page without a term")
    return faults + [f"`{name}` has no page" for name in table if name not in seen]


class Examples(unittest.TestCase):
    """One test for each page; all share a node, and each has its database."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="rekindle-reference-", dir=FAST_FOLDER))
        (cls.folder / "rekindle").symlink_to(program())
        flags = ["--enable-js", "--http-allow-private", "--server-name", "ada"]
        cls.node = Node(*flags, directory=cls.folder)
        try:
            cls.node.start()
        except BaseException:
            shutil.rmtree(cls.folder, ignore_errors=True)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.node.remove()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        # The driver numbers the variables of all functions of a process. Pages show these numbers, so each page begins at 1.
        Func.nextVarId = 1
        self.connection = r.connect("127.0.0.1", self.node.driver_port)
        run = lambda query: query.run(self.connection)
        for name in set(run(r.db_list())) - {"rethinkdb"}:
            run(r.db_drop(name))
        run(r.db_create("test"))
        run(r.db("rethinkdb").table("users").filter(r.row["id"] != "admin").delete())
        place = self.folder / "shell"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = os.pathsep.join([str(self.folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.session = pages.Session(self.node, self.connection, {"cwd": place, "env": {**os.environ, "PATH": path}})

    def tearDown(self):
        opened = [value for value in self.session.names.values() if isinstance(value, Connection)]
        for connection in {self.connection, *opened}:
            connection.close(noreply_wait=False)

    def samples(self, page):
        """Creates the tables of `examples.md` that the page mentions and does not create."""
        for _, examples in Page.read(SAMPLES).examples():
            table = re.search(r"table_create\('(\w+)'\)", examples[0].source if examples else "")
            if table and f"'{table[1]}'" in page.text and table[0] not in page.text:
                for example in examples:
                    self.session.run(example)

    def check(self, page):
        self.assertTrue(UPDATE or not faults_of_examples(page), "\n".join(faults_of_examples(page)))
        self.samples(page)
        wrong = []
        for _, examples in page.examples():
            for example in examples:
                outcome = self.session.run(example)
                if not pages.agrees(outcome, example, self.session.names):
                    wrong.append((example, outcome))
        if UPDATE and wrong:
            page.path.write_text(pages.rewritten(page, wrong))
            return
        said = [f"line {example.line}: {example.source}  says {example.want}  gave {pages.shown(outcome)}"
                for example, outcome in wrong]
        self.assertFalse(said, "\n".join(said))

    def test_readme(self):
        page = Page.read(ROOT / "README.md")
        self.check(page)
        log = re.sub(r"\d+", "N", "".join(self.node.lines))
        for line in next(block.text for block in page.blocks if "Server ready" in block.text).splitlines():
            if line.startswith(("Listening", "Server ready")):
                self.assertIn(re.sub(r"\d+", "N", line.split(", ")[0].split(' "')[0]), log)
        self.connection.close()
        self.node.kill()
        self.node.start()
        self.connection = r.connect("127.0.0.1", self.node.driver_port)
        self.assertEqual(r.table("heroes").count().run(self.connection), 2)


def add_test(page):
    name = "test_" + re.sub(r"\W", "_", name_of(page).removesuffix(".md"))
    setattr(Examples, name, lambda self: self.check(page))


for one in all_pages():
    add_test(one)


class Completeness(unittest.TestCase):
    """Everything that exists is described, and everything described exists."""

    def test_terms_and_pages_are_one_to_one(self):
        faults = faults_of_terms(all_pages(), pages.signatures())
        self.assertFalse(faults, "\n".join(faults))

    def test_the_table_of_contents_has_every_page(self):
        index = Page.read(REFERENCE / "README.md")
        wanted = {contents_line(page) for page in all_pages() if page.path != index.path}
        found = {line for line in index.prose.splitlines() if line.startswith("- [")}
        self.assertFalse(wanted - found, "missing in docs/reference/README.md:\n" + "\n".join(sorted(wanted - found)))
        self.assertFalse(found - wanted, "not a page:\n" + "\n".join(sorted(found - wanted)))

    def test_links_lead_somewhere(self):
        by_path = {page.path.resolve(): page for page in all_pages()}
        for page in by_path.values():
            for path, anchor in page.links():
                target = (page.path.parent / path).resolve() if path else page.path.resolve()
                self.assertTrue(target.exists(), f"{name_of(page)}: {path}")
                if anchor and target in by_path:
                    self.assertIn(anchor, by_path[target].anchors(), f"{name_of(page)}: {path}#{anchor}")


class Lists(unittest.TestCase):
    """Pages that list features of a server are complete and list nothing else."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="rekindle-reference-", dir=FAST_FOLDER)
        cls.node = Node(directory=cls.folder).start()

    @classmethod
    def tearDownClass(cls):
        cls.node.remove()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def test_metrics(self):
        page = Page.read(REFERENCE / "http.md")
        listed = set(re.findall(r"^\| (`(?:rekindle|process)_.*?) \|", page.text, re.MULTILINE))
        named = {name for row in listed for name in re.findall(r"`(\w+)`", row)}
        self.assertEqual(named, set(re.findall(r"^# TYPE (\w+) ", self.node.http("/metrics")[1], re.MULTILINE)))

    def test_paths(self):
        http = ROOT / "crates/server/src/http"
        routers = (http / "mod.rs").read_text() + (http / "console/mod.rs").read_text()
        paths = set(re.findall(r"\.route\(\"(\S+)\"", routers)) | {"/"}
        cells = re.findall(r"^\| (`/[^|]*) \|", Page.read(REFERENCE / "http.md").text, re.MULTILINE)
        self.assertEqual(paths, {path for cell in cells for path in re.findall(r"`(/[^`]*)`", cell)})

    def test_flags(self):
        page = Page.read(REFERENCE / "command-line.md")
        known, missing = page.prose.split("## Flags of RethinkDB that do not exist")
        help_text = subprocess.run([program(), "help", "serve"], text=True, stdout=subprocess.PIPE, check=True).stdout
        flags = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", help_text, re.MULTILINE)) - {"help"}
        rows = "\n".join(re.findall(r"^\| (.*?) \|", known.split("## Flags of a server")[1], re.MULTILINE))
        self.assertEqual(set(re.findall(r"--([a-z-]+)", rows)), flags)
        options = (ROOT / "crates/server/src/config/options.rs").read_text().split("pub const MISSING")[1].split("];")[0]
        self.assertEqual(set(re.findall(r"--([a-z-]+)", missing)), set(re.findall(r'^ {4}\("([a-z-]+)", ', options, re.MULTILINE)))

    def test_fields_of_system_tables(self):
        page = Page.read(REFERENCE / "system-tables.md")
        sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page.text, re.MULTILINE | re.DOTALL))
        with r.connect("127.0.0.1", self.node.driver_port) as connection:
            r.table_create("t").run(connection)
            r.db("rethinkdb").table("users").insert({"id": "bob", "password": "x"}).run(connection)
            for grant in [r.grant("bob", {"read": True}), r.table("t").grant("bob", {"read": True})]:
                grant.run(connection)
            tables = r.db("rethinkdb").table_list().run(connection)
            self.assertEqual(set(sections), set(tables))
            for table in tables:
                for row in r.db("rethinkdb").table(table).run(connection):
                    missing = {name for name in fields(row) if not re.search(rf"`[\w.]*\b{name}\b", sections[table])}
                    self.assertFalse(missing, f"{table}: {missing}")


# Below these, keys are names of things and not of fields.
NAMES = {"connected_to"}


def fields(value):
    """The names of all fields, at any depth."""
    if isinstance(value, list):
        return {name for item in value for name in fields(item)}
    if not isinstance(value, dict):
        return set()
    inner = {name for key, item in value.items() if key not in NAMES for name in fields(item)}
    return set(value) | inner


class TheChecks(unittest.TestCase):
    """The checks above can fail."""

    TABLE = '    Get 16 "GET" 2..2 ["index"] Read\n    Or 66 "OR" 0.. [] Closed\n'
    GOOD = "# get\n\nTerm: `GET` (16).\n\n`index`\n\n" + " ".join(SECTIONS) + "\n\n```python\n>>> 1 + 1\n2\n```\n"
    OR = "# or\n\nTerm: `OR` (66).\n\n" + " ".join(SECTIONS) + "\n\n```python\n>>> 1\n1\n```\n"

    def page(self, text, name="family/x.md"):
        return Page.parse(REFERENCE / name, text)

    def terms(self, *texts):
        return faults_of_terms([self.page(text) for text in texts], pages.signatures(self.TABLE))

    def test_a_good_page_has_no_fault(self):
        self.assertEqual(faults_of_examples(self.page(self.GOOD)), [])
        self.assertEqual(self.terms(self.GOOD, self.OR), [])

    def test_examples_are_wanted_with_their_results(self):
        self.assertEqual(faults_of_examples(self.page("# get\n")), ["no example"])
        silent = self.page("```python\n>>> 1 + 1\n```\n")
        self.assertEqual(faults_of_examples(silent), ["line 2: no result below `1 + 1`", "no example"])
        empty = self.page(self.GOOD + "```python\n1 + 1\n```\n")
        self.assertEqual(faults_of_examples(empty), ["line 14: a python block without an example"])
        shell = self.page(self.GOOD + "```console\n$ true\n```\n")
        self.assertEqual(faults_of_examples(shell), ["line 14: no result below `true`"])

    def test_terms_are_wanted_once(self):
        self.assertEqual(self.terms(self.GOOD), ["`OR` has no page"])
        self.assertEqual(self.terms(self.GOOD, self.OR, "# z\n"), ["x.md: a page without a term"])
        self.assertIn("`OR` is described by x.md and x.md", self.terms(self.GOOD, self.OR, self.OR))
        self.assertIn("x.md: there is no term `GET` (17)", self.terms(self.GOOD.replace("16", "17")))
        forgotten = self.terms(self.GOOD.replace("`index`", ""), self.OR)
        self.assertEqual(forgotten, ["x.md: the option `index` of `GET` is not described"])
        self.assertEqual(self.terms(self.GOOD.replace("**Cost.**", ""), self.OR), ["x.md: has no **Cost.**"])

    def test_results_are_compared(self):
        for got, want, same in [
            ({"a": 1, "b": 2}, "{'b': 2, 'a': 1}", True), ({"a": 1, "b": 2}, "{'a': 1}", False),
            ({"a": 1, "b": 2}, "{'a': 1, ...}", True), ({"a": 1}, "{'b': ..., ...}", False),
            ([1, 2, 3], "[1, 2]", False), ([1, 2, 3], "[1, ...]", True), ([1], "[1, 2, ...]", False),
            (True, "1", False), (1, "1.0", True), (b"a", "b'a'", True), (None, "None", True), ("a", "nonsense", False),
        ]:
            example = pages.Example("", want + "\n", 1, 1)
            self.assertEqual(pages.agrees(("value", got), example, {}), same, (got, want))
        self.assertTrue(pages.text_agrees("ReqlError: no `a` in:\n{}\n", "ReqlError: no `a` in:\n"))
        self.assertFalse(pages.text_agrees("ReqlError: no `a` in:\n{}\n", "ReqlError: no `b` in:\n"))
        self.assertTrue(pages.text_agrees("one 15 two\n", "one ... two\n"))
        self.assertFalse(pages.text_agrees("one\n", ""))

    def test_results_are_written_in_their_places(self):
        page = self.page("x\n```python\n>>> (1 +\n...  1)\n3\n>>> 5\n```\n")
        (_, examples), = page.examples()
        text = pages.rewritten(page, [(examples[0], ("value", 2)), (examples[1], ("value", 5))])
        self.assertEqual(text, "x\n```python\n>>> (1 +\n...  1)\n2\n>>> 5\n5\n```\n")
