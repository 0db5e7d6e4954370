"""The specification and who cites it: sections and invariants are there, and the picture of a table is a table.

Its bodies, links and anchors are checked in `test_docs`, with those of all documents.
"""

import gzip
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dbio_commit.commit import checkpoints
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.log.listing import read_checkpoint
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint
from dbio_commit.protocol.commits import Forgotten
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.commit import decode_commit
from dbio_commit.protocol.names import LogName
from dbio_commit.protocol.parts import Dropped, Group, Part, State, Statistics
from dbio_commit.protocol.versions import Versions
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests import rules_index
from tests.rules_index import rules_cited, sections_cited
from vacuum import Reason, VacuumOptions, vacuum_table

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/PROTOCOL.md"
TEXT = DOCUMENT.read_text()
NOTES = (ROOT / "docs/NOTES.md").read_text()
"""Has the example of parts."""

# --- citations ----------------------------------------------------------------------------------------------------

_OWN = re.compile(r"\((\d{1,2}(?:\.\d{1,2})?)\b(?:, step \d)?\)")
"""How the document refers to its own sections, beside "section 2.1"."""


def sections() -> list[str]:
    return re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", TEXT, re.MULTILINE)


def sources() -> Iterator[Path]:
    """All that may cite the document, but for this module, whose examples are wrong on purpose."""
    yield from ROOT.glob("*.md")
    for folder in ("dbio_commit", "vacuum", "tests", "bench", "docker", "docs"):
        for suffix in ("py", "md", "toml", "yaml"):
            yield from (path for path in (ROOT / folder).rglob(f"*.{suffix}") if path != Path(__file__))


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Rules: PROTOCOL.md 3.1 (I3, I7), 3.2 step 4, 3.3.", {"3.1", "3.2", "3.3"}),
        ("# PROTOCOL.md 8.2 and\n    # 10.2; the model", {"8.2", "10.2"}),
        ("Follows PROTOCOL.md 3.4 there, and section 2 elsewhere.", {"3.4", "2"}),
        ("[PROTOCOL.md](../PROTOCOL.md), 6.3), and so on", {"6.3"}),
        ("[PROTOCOL.md](PROTOCOL.md#5-invariants) section 4", {"4"}),
        ("the rules of PROTOCOL.md, section 10, call garbage", {"10"}),
        ("(`docs/PROTOCOL.md` sections 2 to 4)", {"2", "4"}),
        ("PROTOCOL 99.1", {"99.1"}),
        ("by 3.5 of PROTOCOL.md", {"3.5"}),
        ("Numbers I1 to I10: section 5.", {"5"}),
        ("def test_it() -> None:  # 6.3", {"6.3"}),
        ("PROTOCOL.md says so 2 times; I5 of PROTOCOL.md", set()),
    ],
)
def test_a_citation_is_found_in_every_form(text: str, cited: set[str]) -> None:
    assert sections_cited(text) == cited


def test_the_sections_are_numbered_without_gaps() -> None:
    found = [tuple(map(int, number.split("."))) for number in sections()]
    assert found == sorted(set(found))
    for number in found:
        assert number[-1] == 1 or (*number[:-1], number[-1] - 1) in found, f"there is nothing before {number}"
        assert number[:-1] in ((), *found)


def test_every_section_that_is_cited_is_there() -> None:
    wrong = {
        f"{path.relative_to(ROOT)} cites section {number} of PROTOCOL.md"
        for path in sources()
        for number in sections_cited(path.read_text()) - {*sections()}
    }
    assert not wrong
    assert set(_OWN.findall(TEXT)) <= {*sections()}


def test_every_anchor_of_the_document_that_is_cited_is_there() -> None:
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for path in sources():
        assert set(re.findall(r"PROTOCOL\.md#([\w-]+)", path.read_text())) <= anchors, path


def test_every_invariant_that_is_cited_is_specified() -> None:
    specified = re.findall(r"^- \*\*(I\d+)\*\* ", TEXT, re.MULTILINE)
    assert specified == [f"I{number}" for number in range(1, 11)]
    for path in sources():
        assert set(re.findall(r"\bI\d+\b", path.read_text())) <= {*specified}, path


# --- the index of rules and their tests ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules_index.rules(TEXT))
def test_every_invariant_and_promise_has_a_test_that_cites_it(rule: str) -> None:
    assert any(Path(path).name.startswith("test_") for path, _ in rules_index.find_citations()[rule])


def test_the_index_knows_every_rule() -> None:
    assert [*rules_index.rules(TEXT)] == [*(f"I{number}" for number in range(1, 11)), "R1", "R2", "R3"]
    assert "### R3\n" in rules_index.page()


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("def test_it() -> None:  # I2, I10", {"I2", "I10"}),
        ('raise Violation(f"I4: {path} was deleted")', {"I4"}),
        ("# --- what a reader sees (R1 to R3) ---", {"R1", "R2", "R3"}),
        ("Numbers I1 to I10: PROTOCOL.md 5.", set()),
        ("I11, R4, PAR1, XI1", set()),
    ],
)
def test_a_rule_is_found_in_every_form(text: str, cited: set[str]) -> None:
    assert rules_cited(text) == cited


# --- the picture of a table's directory -----------------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 10, 50, tzinfo=UTC)
LAST_NIGHT = datetime(2026, 11, 20, 3, tzinfo=UTC)
NUMBERED = ("_checkpoint_", "_purged_")


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", TEXT + NOTES, re.MULTILINE | re.DOTALL)
    return str(found)


def checkpoint_body(number: int) -> bytes:
    """The checkpoint of the document; the next one records the same."""
    return gzip.compress(block("json checkpoint").replace('"number": 1,', f'"number": {number},').encode())


@dataclass
class Picture:
    """The listing of section 3: the objects at the root, and what it says about each data file ("live")."""

    log: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def said(self, *words: str) -> set[str]:
        return {path for path, word in self.files.items() if word in words}


def picture() -> Picture:
    shown, directory, path = Picture(), "", ""
    for line in block("text listing").splitlines():
        if line.endswith("/"):
            directory = line.removesuffix("/")
        elif line.startswith(" " * 8):
            shown.files[path] = line.split(":")[0].strip()
        elif line.startswith(" " * 4):
            path = names.join(directory, line.strip())
        else:
            shown.log.append(line.split()[0])
    return shown


def table(shown: Picture) -> Table:
    """The table of the picture, with the bodies that the document shows; C is a plain append of its files."""
    c, d, e = sorted(parse_log(Entry(name, 1, NOW) for name in shown.log).committed)
    b = decode_checkpoint(checkpoint_body(1), number=1, where="the document").commits[-1].tid
    bodies = {
        names.DESCRIPTOR: block("json descriptor").encode(),
        names.checkpoint(1): checkpoint_body(1),
        names.checkpoint(2): checkpoint_body(2),
        names.purge(1): block("json purge").encode(),
        names.turn(2): json.dumps({"tid": b}).encode(),
        names.turn(3): block("json turn").encode(),
        names.started(d): block("json begun").encode(),
        names.committed(c): json.dumps({"added": [path for path in shown.files if c in path], "removed": []}).encode(),
        names.committed(d): block("json commit").encode(),
        names.committed(e): block("json abort").encode(),
    }
    assert bodies.keys() <= {*shown.log}
    clock = ManualClock(NOW)
    store = MemoryStore(clock)
    for path in [*shown.log, *shown.files]:
        body = bodies.get(path, b"")
        tid = re.search(r"\d{19}", body.decode() if "_serial_" in path else path)
        began = names.parse_tid_time(tid[0]) if tid and not path.startswith(NUMBERED) else LAST_NIGHT
        store.put(path, body, modified=began)
    return Table.over(store, clock)


def tids(paths: Iterable[str]) -> set[str]:
    return {names.parse_data_file(names.split(path)[1]) or "" for path in paths}


def test_every_name_in_the_picture_is_one_of_the_grammar() -> None:
    shown = picture()
    assert shown.log[0] == names.DESCRIPTOR
    assert all(isinstance(names.parse_log_name(name), LogName) for name in shown.log[1:])
    for path in shown.files:
        directory, name = names.split(path)
        assert names.format_partition(names.parse_partition(directory)) == directory
        assert names.parse_tid_time(names.parse_data_file(name) or "")
        assert names.is_data_file(path)


def test_a_reader_of_the_picture_sees_the_files_that_it_calls_live() -> None:
    shown = picture()
    snapshot = table(shown).snapshot()
    assert {file.path for file in snapshot.files} == shown.said("live")
    assert len(snapshot.files) == 5
    days = Versions(ranges=((20261116, 20261116), (20261120, 20261120)), known_from=20261116)
    assert snapshot.app_versions == {"nightly": days}
    assert snapshot.metadata.turn == 3
    assert [commit.tid for commit in snapshot.history()] == sorted(tids(shown.said("live")), reverse=True)


def test_a_vacuum_of_the_picture_deletes_what_it_says() -> None:
    shown = picture()
    report = vacuum_table(table(shown), VacuumOptions(), dry_run=True)
    assert {(it.path, it.reason) for it in report.deleted} == {
        *((path, Reason.FAILED_ATTEMPT) for path in shown.said("unnamed")),
        *((path, Reason.ABORTED) for path in shown.said("aborted")),
    }
    assert {it.path for it in report.kept} == shown.said("removed", "pending")
    assert not report.aborted
    assert not report.warnings


def test_the_picture_has_a_transaction_in_each_state() -> None:
    shown = picture()
    log = parse_log(table(shown).store.list_log())
    number = log.last_checkpoint
    told = decode_checkpoint(checkpoint_body(number), number=number, where="the document")
    assert [*log.checkpoints] == [*log.purges, number], "two checkpoints record what was purged (10.4)"
    assert tids(shown.said("pending")) == {*log.pending}
    assert tids(shown.said("live")) == told.covered | {*sorted(log.committed)[:2]}
    assert tids(shown.said("aborted")) == {*sorted(log.committed)[2:]}
    assert [tuple(commit.forgotten) for commit in told.commits] == [(1, 0), (0, 1)]


def test_the_start_marker_of_the_picture_tells_what_its_transaction_committed_for() -> None:
    commit, begun = json.loads(block("json commit")), json.loads(block("json begun"))
    assert commit["dbio_commit"]["app"] == begun["app"]
    assert all(f"-{begun['job']}-" in path for path in commit["added"])


def test_the_last_turn_of_the_picture_is_that_of_the_commit_which_took_it() -> None:
    commit, turn = json.loads(block("json commit")), json.loads(block("json turn"))
    assert names.turn(commit["dbio_commit"]["turn"]) == max(name for name in picture().log if "_serial_" in name)
    assert tids(commit["added"]) == {turn["tid"]}


# --- the root checkpoint and its parts (7.7) ------------------------------------------------------------------------

G = "3766194480865280000"
LETTERS = "ABCDEFG"


@dataclass(frozen=True)
class Shown:
    """The table of the picture after checkpoints 3 to 6, which are root checkpoints."""

    store: MemoryStore
    roots: Mapping[int, Checkpoint]

    @property
    def body(self) -> Any:
        """The body of the last one, with its numbers of bytes and checksums."""
        return json.loads(gzip.decompress(self.store.get(names.checkpoint(6))))

    @property
    def tids(self) -> list[str]:
        return [commit.tid for commit in self.roots[6].commits]

    def rows(self, part: Part) -> list[dict[str, Any]]:
        return PartReader(self.store, 6).table(part).to_pylist()


def with_parts() -> Shown:
    shown = picture()
    begun = table(shown)
    store, clock = begun.store, begun.clock
    assert isinstance(store, MemoryStore)
    assert isinstance(clock, ManualClock)
    dated = json.loads(block("json commit"))["dbio_commit"]["dated"]
    store.put(names.DESCRIPTOR, store.get(names.DESCRIPTOR), modified=datetime.fromisoformat(dated))
    (f,) = tids(shown.said("pending"))
    roots: dict[int, Checkpoint] = {}

    def commit(tid: str, at: datetime, paths: Iterable[str]) -> None:
        store.put(names.committed(tid), json.dumps({"added": [*paths], "removed": []}).encode(), modified=at)

    def write(at: datetime, *, gone: Collection[str] = ()) -> None:
        clock.advance(at - clock.now())
        with patch.object(checkpoints, "LARGE_FILES", 0):
            assert write_checkpoint(store, clock, begun.snapshot(), gone=gone, again=True)
        read = read_checkpoint(store, parse_log(store.list_log()))
        roots[read.number] = read

    write(time(20, "12:00:02"))
    commit(f, time(20, "12:03:40"), (path for path in shown.files if f in path))
    write(time(23, "03:00:09"), gone=shown.said("removed"))
    job = "0b9f6d1e-5a7c-4d0e-8b52-6f1c3a9e7d24"
    files = [names.format_data_file(tid=G, job=job, task=i, attempt=i, number=0, suffix=".parquet") for i in range(3)]
    commit(G, time(24, "10:38:17"), (f"day=2026-11-24/{name}" for name in files))
    write(time(24, "11:00:31"))
    write(time(24, "12:00:05"))
    return Shown(store, roots)


def time(day: int, at: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-{day:02d}T{at}Z")


def without_bytes(body: Any, objects: list[str]) -> Any:
    """The body with a number for each name of a part, and without what depends on the version of pyarrow."""
    match body:
        case dict():
            left = {key: value for key, value in body.items() if key not in ("bytes", "footer", "crc")}
            if "rows" in left:
                del left["at"]  # of a row group: where its bytes begin
            return {key: without_bytes(value, objects) for key, value in left.items()}
        case list():
            return [without_bytes(value, objects) for value in body]
        case str() if names.part_number(body) is not None:
            if body not in objects:
                objects.append(body)
            return (names.part_number(body), objects.index(body))
    return body


def test_the_root_checkpoint_of_the_document_is_the_one_that_is_written() -> None:
    text = block("json root")
    told = decode_checkpoint(gzip.compress(text.replace("\n", " ").encode() + b"\n"), number=6, where="the document")
    assert without_bytes(json.loads(text), []) == without_bytes(with_parts().body, [])
    assert [part.until for part in told.parts] == [3, 3, 5, 5]
    assert all(dropped.at == time(24, "11:00:31") for dropped in told.dropped)


def test_every_key_of_a_part_is_shown() -> None:
    root = json.loads(block("json root"))
    assert {key for part in root["parts"] for key in part} == {*Part.__struct_fields__}
    assert {key for it in root["dropped"] for key in it} == {*Dropped.__struct_fields__}
    assert root["state"].keys() == {*State.__struct_fields__}
    for part in root["parts"]:
        of_files = {"directories"} if part["kind"] == "files" else set()
        assert all(group.keys() | {"directories"} == {*Group.__struct_fields__} for group in part["groups"])
        assert all(group.keys() & {"directories"} == of_files for group in part["groups"])
        assert part.get("statistics", dict.fromkeys(Statistics.__struct_fields__)).keys() == {
            *Statistics.__struct_fields__
        }


def columns_of(heading: str) -> list[str]:
    """The first column of the table below these words."""
    below = TEXT[TEXT.index(heading) :].split("\n\n")[1]
    return re.findall(r"^\| `(\w+)` \|", below, re.MULTILINE)


def test_every_column_of_a_part_is_specified() -> None:
    assert columns_of("**Rows of a files part.**") == rows.FILES.names
    assert columns_of("**Rows of a commits part.**") == rows.COMMITS.names


def shown_rows(shown: Shown, kind: str) -> list[str]:
    """The rows of all parts of this kind, as the document shows them: texts are cut, nulls are left out."""
    letters = dict(zip(shown.tids, LETTERS, strict=True))
    lines: list[str] = []
    for part in shown.roots[6].parts:
        if part.kind == kind:
            lines.append(f"part of checkpoint {part.until}, with news since {part.since}")
            for row in shown.rows(part):
                cells = {key: _cell(value, letters) for key, value in row.items()}
                lines.append((_FILE if kind == "files" else _COMMIT).format(**cells).rstrip())
    return lines


_FILE = "{directory:14}  {name:16}  {tid:3}  {writer:6}  {added:5}  {removed:7}  {size:4}  {rows:4}  {whole:5}  {gone}"
_COMMIT = (
    "{tid:3}  {at:8}  {rank:4}  {number:6}  {forgotten:9}  {has_files:9}  {added:5}  {removed:7}  "
    "{forgotten_added:15}  {forgotten_removed}"
)


def _cell(value: Any, letters: Mapping[str, str]) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else ""
        case datetime():
            return f"{value:%d %H:%M}"
        case str() if found := re.fullmatch(r"(part-\d+-tid-)(\d+)-.*", value):
            return found[1] + letters[found[2]]
    return letters.get(str(value), str(value))


@pytest.mark.parametrize("kind", ["files", "commits"])
def test_the_rows_of_the_document_are_those_that_are_written(kind: str) -> None:
    title, *lines = block(f"text {kind}").splitlines()
    assert lines == shown_rows(with_parts(), kind)
    assert title.split() == re.findall(r"{(\w+)", _FILE if kind == "files" else _COMMIT)


def test_a_reader_of_the_root_checkpoint_gets_the_lines_of_a_checkpoint_of_version_1() -> None:
    shown = with_parts()
    read = read_checkpoint(shown.store, parse_log(shown.store.list_log()))
    a, b, c, d, e, f, g = read.commits
    assert [it.tid for it in (a, b)] == [
        it.tid for it in decode_checkpoint(checkpoint_body(2), number=2, where="").commits
    ]
    assert [it.forgotten for it in read.commits] == [
        Forgotten(1, 0), Forgotten(0, 1), Forgotten(1, 0), Forgotten(0, 1), Forgotten(), Forgotten(), Forgotten()
    ]  # fmt: skip
    told = decode_commit(block("json commit").encode(), where="the document")
    assert (*d.marker.added, *d.marker.removed) == (*told.added,)
    assert d.marker.dbio_commit
    assert told.dbio_commit
    assert d.marker.dbio_commit.files
    assert told.dbio_commit.files
    assert d.marker.dbio_commit.files.bounds() == told.dbio_commit.files.bounds()
    assert d.marker.dbio_commit.files.partition == told.dbio_commit.files.partition
    assert e.marker.is_abort
    assert [len(it.marker.added) for it in (c, f, g)] == [1, 1, 3]
