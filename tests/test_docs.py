"""The documents: every example in them is run, and what they name is there.

`python` blocks of a document run in order, in one namespace, in an empty directory. `console` blocks run where they say
`$ dbio …`; what a terminal of 132 columns then shows must be what the document shows, but for times, sizes and ids.
"""

import inspect
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import dbio_commit
from dbio_commit.base import errors
from dbio_commit.cli.commands import app
from dbio_commit.commit import provenance
from dbio_commit.commit.options import NOTE_OPTIONS
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitInfo, decode_commit, encode_home, read_parts
from dbio_commit.protocol.markers.descriptor import decode_descriptor
from dbio_commit.protocol.markers.files import AddedFiles
from dbio_commit.protocol.markers.joint import Joint
from dbio_commit.protocol.markers.purge import decode_purge
from dbio_commit.protocol.markers.start import decode_start
from dbio_commit.protocol.markers.tombstone import decode_tombstone
from dbio_commit.protocol.markers.turn import decode_turn, encode_turn
from dbio_commit.spark import datasource
from dbio_commit.spark.api import write
from dbio_commit.spark.feed import options, sink
from dbio_commit.spark.transfer.batches import Packing
from tests import site

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/REFERENCE.md"
SETUP = ROOT / "docs/SETUP.md"
WRITE = ROOT / "docs/WRITE.md"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a document."""

    kind: str
    text: str
    where: str


@cache
def tokens(document: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(site.text_of(document))


def blocks(document: Path) -> list[Block]:
    return [
        Block(token.info, token.content, f"{document.name}:{(token.map or [0])[0] + 1}")
        for token in tokens(document)
        if token.type == "fence"
    ]


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the output that follows."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def has_examples(document: Path) -> bool:
    return any(block.kind == "python" or "$ dbio " in block.text for block in blocks(document))


@pytest.mark.long_for("STREAMS.md")
@pytest.mark.slow("the examples of all documents but one are run")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", [*filter(has_examples, DOCUMENTS)], ids=lambda path: path.name)
def test_every_example_of_a_document_does_what_it_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    of_java = Path.cwd()  # where Spark was started
    before = {*of_java.glob("[!.]*")}
    monkeypatch.chdir(tmp_path)
    for name, value in {"TERM": "dumb", "COLUMNS": "132", "LINES": "50"}.items():
        monkeypatch.setenv(name, value)
    for name, known in {"_host": "etl-7", "_user": "spark", "_process": 4711}.items():
        monkeypatch.setattr(provenance, name, lambda known=known: known)
    if "SparkSession" in document.read_text():
        request.getfixturevalue("enabling")  # so that getOrCreate() gives this one
    namespace: dict[str, Any] = {}
    ids = Ids(tmp_path)
    for block in blocks(document):
        if block.kind == "python":
            exec(compile(block.text, block.where, "exec"), namespace)
        elif block.kind == "console":
            for command, expected in commands(block):
                if command.startswith("dbio "):
                    printed = in_terminal(ids.real(command).split()[1:])
                    assert ids.shape(printed, learn=expected) == ids.shape(expected), f"{block.where}: $ {command}"
    assert {*of_java.glob("[!.]*")} <= before, "an example leaves files in the directory in which Java was started"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def in_terminal(arguments: list[str]) -> list[str]:
    with redirect_stdout(Terminal()) as screen:
        app(arguments, standalone_mode=False)
    return screen.getvalue().splitlines()


class Ids:
    """Which transaction of this run is which of the document: they are the same where both first show a tid."""

    _TID = re.compile(r"\b\d{19}\b")
    _VARYING = (
        (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+)?"), "UUID"),
        (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "TIME"),
        (re.compile(r"[\d.,]+ (bytes|kB)"), "SIZE"),
        (re.compile(r"\b\d+ (s|min)\b"), "AGE"),
        (re.compile(r"(numOutputBytes|jobCommitTime) \d+"), r"\1 N"),
    )

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._real: dict[str, str] = {}

    def real(self, command: str) -> str:
        return self._TID.sub(lambda match: self._real[match[0]], command)

    def shape(self, lines: list[str], *, learn: list[str] | None = None) -> str:
        text = " ".join(" ".join(lines).split())  # where a line wraps depends on the name of the directory
        if learn is not None:
            for shown, real in zip(self._TID.findall(" ".join(learn)), self._TID.findall(text), strict=False):
                self._real.setdefault(shown, real)
        for shown, real in self._real.items():
            text = text.replace(real, shown)
        text = text.replace(f"{self._directory}/", "/data/")
        for pattern, name in self._VARYING:
            text = pattern.sub(name, text)
        return text


# --- what the documents name --------------------------------------------------------------------------------------


MADE = [page for page in site.MADE if page.name != "RULES.md"]
"""That one takes 2 s, and its links to sections are checked in `tests/unit/test_specification.py`."""


@pytest.mark.parametrize("document", [*DOCUMENTS, *MADE], ids=name_of)
def test_every_link_of_a_document_resolves(document: Path) -> None:
    for link in links(tokens(document)):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = document.parent / path if path else document
        assert target.exists() or target in MADE, link
        assert not anchor or anchor in anchors(target), link


def links(found: list[Token] | None) -> Iterator[str]:
    for token in found or ():
        if token.type == "link_open":
            yield str(token.attrs["href"])
        yield from links(token.children)


@cache
def anchors(document: Path) -> set[str]:
    """Those that GitHub makes from headings."""
    found = tokens(document)
    titles = [after.content for before, after in pairwise(found) if before.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_make_target_that_a_document_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:`|\$ )make ([a-z0-9-]+)", document.read_text()))
        assert named <= targets, document


def test_every_error_is_in_the_reference() -> None:
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert classes <= first_cells(REFERENCE, "Errors") | {"DbioError", "Cause"}  # which the text before the table names


def test_every_function_is_in_the_reference() -> None:
    functions = [name for name in dbio_commit.__all__ if inspect.isfunction(getattr(dbio_commit, name))]
    assert all(f"`{name}(" in section(REFERENCE, "Functions") for name in functions)


def test_every_page_is_one_click_from_the_start() -> None:
    """The site's navigation and README have each page."""
    pages = {path for path in site.pages() if path.parent == ROOT / "docs"}
    navigation = (ROOT / "docs/mkdocs.yml").read_text()
    assert all(f": docs/{path.name}\n" in navigation for path in pages)
    assert pages - {*site.MADE} <= {ROOT / link.partition("#")[0] for link in links(tokens(ROOT / "README.md"))}


def test_every_option_of_a_write_is_in_its_document() -> None:
    parameters = set(write.__annotations__) - {"df", "path", "return"}
    assert parameters <= first_cells(WRITE, "Write a DataFrame")
    told = WRITE.read_text().lower() + (ROOT / "docs/READ.md").read_text().lower()
    known = (datasource._READ_OPTIONS | datasource._WRITE_OPTIONS) - {"path"}
    assert all(f"`{name}`" in told for name in known)


def test_every_option_of_a_stream_is_in_its_document() -> None:
    told = (ROOT / "docs/STREAMS.md").read_text().lower()
    ours = {Packing.OPTION, "queryname"}  # the first is for ourselves, the second is Spark's own
    assert all(f"`{name}`" in told for name in (sink.OPTIONS | options.OPTIONS) - ours - NOTE_OPTIONS)
    known = datasource._FEED_OPTIONS - {"path", "secretstorageoptions"}
    assert all(f"`{name}`" in told for name in known)


def test_every_extra_is_in_its_document() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert first_cells(SETUP, "Install") == set(project["optional-dependencies"]) - {"bench", "demo", "dev"}


def section(document: Path, title: str) -> str:
    return document.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(document: Path, title: str) -> set[str]:
    """The code in the first column of the tables of a section."""
    cells = [line.split("|")[1] for line in section(document, title).splitlines() if line.startswith("|")]
    return set(re.findall(r"`(\w+)`", " ".join(cells)))


RECORDS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
_LINK = r"\[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\)"
_LINKS = rf"{_LINK}(, {_LINK})*( and {_LINK})?"
_STATUS = re.compile(rf"(accepted|superseded by {_LINK})(, (supersedes|amends) {_LINKS})?(, amended by {_LINKS})?")


@dataclass(frozen=True, slots=True)
class Decision:
    """What the first lines of a record say, and a row of the table of all records."""

    file: str
    title: str
    date: str
    status: str


def read_decision(record: Path) -> Decision:
    title, blank, second, *_ = record.read_text().splitlines()
    decided, _, status = second.partition(" · ")
    assert title.startswith(f"# {record.name[:4]} ")
    assert not blank
    assert date.fromisoformat(decided) >= date(2026, 11, 20), "the first day of the project"
    assert _STATUS.fullmatch(status), status
    return Decision(record.name, title[7:], decided, status)


def test_the_table_of_decisions_has_a_row_for_each_record() -> None:
    text = (ROOT / "docs/adr/README.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert [Decision(*cells) for _, *cells in rows] == [*map(read_decision, RECORDS)]
    assert all(file.startswith(number) for number, file, *_ in rows)
    assert [int(number) for number, *_ in rows] == [*range(1, len(RECORDS) + 1)]


def test_a_decision_that_changes_an_earlier_one_is_named_there() -> None:
    def named(word: str) -> set[tuple[str, str]]:
        """Each record with this word in its status, and each record that the status names after the word."""
        statuses = {record.name[:4]: read_decision(record).status for record in RECORDS}
        found = {own: re.search(rf"\b{word} (\[.*?)(, [a-z]|$)", status) for own, status in statuses.items()}
        return {(own, it) for own, match in found.items() if match for it in re.findall(r"\[(\d{4})\]", match[1])}

    for word, back in (("supersedes", "superseded by"), ("amends", "amended by")):
        assert named(word) == {(later, earlier) for earlier, later in named(back)}


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem[:4])
def test_every_decision_names_its_alternatives(record: Path) -> None:
    superseded = read_decision(record).status.startswith("superseded")
    parts = re.split(r"^\*\*(\w+)\.\*\*", record.read_text(), flags=re.MULTILINE)
    if superseded and parts[1::2] == ["Decision"]:
        return
    assert parts[1::2] == ["Context", "Alternatives", "Decision", "Consequences"]
    alternatives = [line for line in parts[4].splitlines() if line.startswith("- ")]
    assert alternatives
    assert all(re.match(r"- \*.+\*: ", line) for line in alternatives)


def test_the_bodies_in_the_protocol_are_those_that_the_code_reads_and_writes() -> None:
    bodies = {block.kind.removeprefix("json "): block.text.encode() for block in blocks(ROOT / "docs/PROTOCOL.md")}
    descriptor = decode_descriptor(bodies["descriptor"], where="the document")
    commit = decode_commit(bodies["commit"], where="the document")
    abort = decode_commit(bodies["abort"], where="the document")
    referring = decode_commit(bodies["referring"], where="the document")
    compaction = decode_commit(bodies["compaction"], where="the document")
    recorded = decode_commit(bodies["recorded"], where="the document")
    begun = decode_start(bodies["begun"], where="the document")
    turn = decode_turn(bodies["turn"], where="the document")
    tombstone = decode_tombstone(bodies["tombstone"], where="the document")
    purge = decode_purge(bodies["purge"], where="the document")
    assert commit.dbio_commit
    assert commit.dbio_commit.files
    assert referring.dbio_commit
    assert compaction.dbio_commit
    assert recorded.dbio_commit
    assert begun
    joint = decode_commit(bodies["joint"], where="the document")
    told = (it.dbio_commit for it in (commit, referring, compaction, recorded, joint))
    shown = {key for info in told if info for key in json.loads(encode(info))}
    assert shown == {*CommitInfo.__struct_encode_fields__}, "a key is not shown"
    examples = {"descriptor": descriptor, "commit": commit, "begun": begun, "turn": turn, "tombstone": tombstone}
    examples |= {"purge": purge}
    for name, example in examples.items():
        of_joint = json.loads(bodies.get(f"joint-{name}", b"{}")).keys()
        assert json.loads(bodies[name]).keys() | of_joint == {*example.__struct_fields__}, "a key is not shown"
    files = [json.loads(bodies[name])["dbio_commit"]["files"] for name in ("commit", "recorded")]
    assert all(any(it.get(key) for it in files) for key in AddedFiles.__struct_fields__), "a key is not shown"
    assert abort.is_abort
    decoded = {"descriptor": descriptor, "commit": commit, "abort": abort, "referring": referring,
               "compaction": compaction, "recorded": recorded, "begun": begun, "turn": turn,
               "tombstone": tombstone, "purge": purge}  # fmt: skip
    for name, body in decoded.items():
        assert json.loads(encode(body)) == json.loads(bodies[name])


def test_the_bodies_of_a_joint_transaction_are_those_that_the_code_reads_and_writes() -> None:
    bodies = {block.kind.removeprefix("json "): block.text.encode() for block in blocks(ROOT / "docs/PROTOCOL.md")}
    begun, turn = bodies["joint-begun"], bodies["joint-turn"]
    start = decode_start(begun, where="the document")
    assert start
    assert json.loads(encode(start)) == json.loads(begun)
    assert json.loads(encode_turn(decode_turn(turn, where="the document"))) == json.loads(turn)
    marker = decode_commit(bodies["joint"], where="the document")
    shown = json.loads(bodies["joint"])["dbio_commit"]["joint"]
    found = msgspec.json.decode(json.dumps(shown), type=Joint)
    assert marker.dbio_commit
    assert marker.dbio_commit.joint == msgspec.structs.replace(found, parts=None)
    assert json.loads(encode_home(encode(marker), found)) == json.loads(bodies["joint"])
    for body in read_parts(bodies["joint"], where="the document").values():
        assert json.loads(encode(decode_commit(body, where="the document"))) == json.loads(body)


def test_the_version_is_the_same_everywhere() -> None:
    version = dbio_commit.__version__
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"dbio_commit-{version}-py3" in SETUP.read_text()


def test_the_command_line_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "dbio_commit.cli", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ)
    named = set(re.findall(r"^\| `dbio ([a-z]+) (?:PATH|FILE|--root)", REFERENCE.read_text(), re.MULTILINE))
    assert set(re.findall(r"`dbio ([a-z]+)", (ROOT / "docs/CHEATSHEET_CLI.md").read_text())) == named
    registered = [command for command in app.registered_commands if command.callback]
    assert named == {command.name or command.callback.__name__ for command in registered if command.callback}
    assert all(name in shown.stdout for name in named)
    examples = (block.text for document in DOCUMENTS for block in blocks(document) if block.kind == "console")
    run = {name for text in examples for name in re.findall(r"^\$ dbio ([a-z]+)", text, re.MULTILINE)}
    others = {"drop", "jar", "serve", "doctor", "erase"}
    where = "drop takes a minute, jar is in test_committer_sessions, the others in tests of their names"
    assert run == named - others, where


@each_document
def test_json_in_documents_can_be_read(document: Path) -> None:
    for block in blocks(document):
        if block.kind == "json":
            json.loads(block.text)


def test_rules_that_free_old_versions_take_nothing_that_is_current() -> None:
    """VACUUM.md: one for S3, one for Azure."""
    s3, azure = (
        json.loads(it.text) for it in blocks(ROOT / "docs/VACUUM.md") if it.kind == "json" and "ules" in it.text
    )
    (rule,) = s3["Rules"]
    assert rule["Expiration"] == {"ExpiredObjectDeleteMarker": True}
    assert "Transitions" not in rule
    (policy,) = azure["rules"]
    assert list(policy["definition"]["actions"]) == ["version"]
