"""What lies in publications, and may be anybody's: bodies, names, and whole directories of them beside a small table.

What is somebody else's is told by the few rules of NOTES.md, Publications, with Python's own JSON.
"""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import dbio_commit.maintenance.publish
from dbio_commit.base.errors import CorruptMarkerError, DbioError
from dbio_commit.log import object_cache
from dbio_commit.log.object_cache import ObjectCache
from dbio_commit.maintenance.publish import remembered
from dbio_commit.maintenance.publish.delta_checkpoint import decode_checkpoint
from dbio_commit.maintenance.publish.delta_log import (
    DeltaListing,
    DeltaState,
    Version,
    checkpoint_path,
    decode_version,
    is_version,
    version_of_checkpoint,
    version_path,
)
from dbio_commit.maintenance.publish.places import DIRECTORIES, is_published
from dbio_commit.maintenance.publish.sink_log import SinkList, decode_list
from dbio_commit.maintenance.publish.spark import SparkListing, list_path
from dbio_commit.maintenance.publish.symlink import SymlinkListing, claim_path
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.fuzz import bodies
from tests.fuzz.directories import AGES
from tests.fuzz.properties import MAX_MESSAGE, WHERE, assert_inside, assert_message
from vacuum import VacuumOptions, vacuum_table

ROOT = "s3a://lake/table"
Objects = Mapping[str, tuple[bytes, timedelta]]

# --- bodies -------------------------------------------------------------------------------------------------------


def version(body: bytes) -> Version | None:
    """The version, or None where it was refused, or is somebody else's."""
    try:
        found = decode_version(io.BytesIO(body), where=WHERE)
    except CorruptMarkerError as error:
        assert_message(error)
        return None
    assert len(found.engine) <= 200
    assert_inside([*found.added, *found.removed])
    assert found.mark or not (found.added or found.removed)
    state = DeltaState().then([found], where=WHERE)
    assert state.paths == found.added
    assert state.memory_bytes >= sum(map(len, state.paths))
    return found if found.mark else None


def spark_list(body: bytes) -> SinkList | None:
    try:
        found = decode_list(io.BytesIO(body), ROOT, where=WHERE)
    except CorruptMarkerError as error:
        assert_message(error)
        return None
    assert_inside(found.paths)
    assert found.elsewhere is None or len(found.elsewhere) <= 300
    return found


def delta_checkpoint(body: bytes) -> DeltaState | None:
    try:
        found = decode_checkpoint(body, where=WHERE)
    except CorruptMarkerError as error:
        assert_message(error)
        return None
    assert_inside(found.paths)
    return found


def name(text: str) -> object:
    """A name in each of the directories: of a number that gives the name back, an error, or nothing."""
    found: list[object] = []
    for directory in DIRECTORIES.values():
        entries = [Entry(f"{directory}/{text}", 0, datetime.min)]
        listings: list[tuple[Callable[[], Mapping[int, Entry]], Callable[[int], str]]] = [
            (lambda: DeltaListing.of(entries, root=WHERE).versions, version_path),  # noqa: B023
            (lambda: DeltaListing.of(entries, root=WHERE).checkpoints, checkpoint_path),  # noqa: B023
            (lambda: SparkListing.of(entries, root=WHERE).lists, list_path),  # noqa: B023
            (lambda: SymlinkListing.of(entries, root=WHERE).claims, claim_path),  # noqa: B023
        ]
        for numbers, path_of in listings:
            try:
                for number, entry in numbers().items():
                    assert path_of(number) == entry.path
                    assert number < 10**15
                    found.append(number)
            except CorruptMarkerError as error:
                assert_message(error)
        assert is_version(entries[0].path) == bool(re.fullmatch(r"_delta_log/[0-9]{20}\.json", entries[0].path))
        made = version_of_checkpoint(entries[0].path)
        assert made is None or is_version(made)
    return found or None


# --- steps --------------------------------------------------------------------------------------------------------

MOST_STEPS = 200_000
"""Lines of the code of publications that any of these directories takes; those that are tried take some thousands."""

_CODE = (
    str(Path(dbio_commit.maintenance.publish.__file__).parent),
    str(Path(__file__).with_name("test_publications.py")),
)
"""What counts; in the tests, what is put back of the code as it was."""


@contextmanager
def bounded_steps(most: int = MOST_STEPS) -> Iterator[None]:
    """Raises AssertionError where the code of publications takes more: it counts to a number that a name gives."""
    left = most

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        left -= event == "line"
        assert left > 0, f"more than {most} steps"
        return count

    def watch(frame: FrameType, event: str, arg: object) -> Any:
        return count(frame, event, arg) if frame.f_code.co_filename.startswith(_CODE) else None

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


# --- directories --------------------------------------------------------------------------------------------------

LIVE = bodies.data("1")
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
TABLE: Objects = {
    "_dbio_table": (bodies.to_json({"version": 1, "id": "t", "created": bodies.STAMP}), AGES[4]),
    "_committed_1": (
        bodies.to_json(
            {
                "added": [LIVE],
                "removed": [],
                "dbio_commit": {
                    "version": 1, "operation": "append", "commit_id": "c", "timestamp": bodies.STAMP, "turn": 1,
                    "metrics": {}, "schema": SCHEMA, "schema_turn": 1, "files": {"size": [12], "rows": [1]},
                },
            }
        ),
        AGES[4],
    ),
    "_serial_00000000000000000001": (b'{"tid":"1"}', AGES[4]),
    LIVE: (b"PAR1rowsPAR1", AGES[4]),
}  # fmt: skip


def unpack_checkpoint(body: bytes) -> bytes:
    """As `pack_checkpoint` takes it. Raises ArrowInvalid where it is no Parquet."""
    table = pq.read_table(io.BytesIO(body))
    return "\n".join([*_told(table["metaData"], "id")[:1], *_told(table["add"], "path")]).encode()


def _told(column: Any, name: str) -> list[str]:
    return [row[name] for row in column.drop_null().to_pylist()]


def pack_checkpoint(text: bytes) -> bytes:
    """The Parquet of a checkpoint that says whose it is in the first line, and in the others which files there are."""
    table_id, *paths = text.decode(errors="replace").split("\n")
    rows: list[dict[str, Any]] = [{"add": {"path": path}} for path in paths]
    rows += [{"metaData": {"id": table_id, "schemaString": "{}", "partitionColumns": []}}]
    rows += [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _CHECKPOINT), body)
    return body.getvalue()


_CHECKPOINT = pa.schema(
    {
        "add": pa.struct([("path", pa.string())]),
        "metaData": pa.struct(
            [("id", pa.string()), ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))]
        ),
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
    }
)


@dataclass
class Beside:
    """A table of one file, and publications that may be anybody's."""

    objects: Objects
    clock: ManualClock = field(default_factory=ManualClock)
    deleted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock, url="s3://lake/table")
        for path, (body, age) in {**self.objects, **TABLE}.items():
            self.store.put(path, body, modified=self.clock.now() - age)
        self.table = Table.over(self.store, self.clock)
        self.others = {path for path, (body, _) in self.objects.items() if is_strangers(path, body)}

    def check(self) -> object:
        """Checked, published, vacuumed and dropped. None where something kept a publication back."""
        self.store.before = self._note
        self._check_problems()
        done = [self._check_publication(to) for to in Format]
        self._check_vacuum()
        self._check_drop()
        return done if all(done) else None

    def _note(self, operation: str, path: str) -> None:
        if operation == "delete":
            self.deleted.add(path)

    def _try(self, action: Callable[[], object]) -> Any:
        try:
            return action()
        except DbioError as error:
            assert len(str(error)) < MAX_MESSAGE
            assert "\n" not in str(error)
        return None

    def _check_problems(self) -> None:
        before = dict(self.store.objects)
        report = self.table.check()  # nothing of a publication makes it fail
        assert all("\n" not in problem and len(problem) < MAX_MESSAGE for problem in report.publications)
        assert self.store.objects == before
        assert report.live_files == 1

    def _check_publication(self, to: Format) -> object:
        before = {*self.store.objects}
        published = self._try(lambda: self.table.publish(to))
        for path in self.store.objects.keys() - before:
            assert not is_strangers(path, self.store.objects[path][0]), "nobody will know it again"
            if is_version(path):
                assert_inside(_paths_in(self.store.objects[path][0]))
        gone = self.deleted & self.others
        assert all(path.endswith(".compact") for path in gone), "lists before the last are known by their number only"
        if published:
            assert self.table.publish(to)[0].is_new is False
        return published

    def _check_vacuum(self) -> None:
        versions = [path for path in self.store.objects if is_version(path)]
        last_is_others = bool(versions) and is_strangers(max(versions), self.store.objects[max(versions)][0])
        there = dict(self.store.objects)
        self.deleted.clear()
        self._try(lambda: vacuum_table(self.table, VacuumOptions(retention_hours=1.0)))
        of_iceberg = {path for path in self.deleted if path.startswith("_iceberg/metadata/")}
        assert not any(is_strangers(path, there[path][0]) for path in of_iceberg)
        gone = {path for path in self.deleted if path.startswith("_delta_log/")}
        if gone:
            assert not last_is_others, "the log of another was cleaned"
            left = [path for path in self.store.objects if version_of_checkpoint(path)]
            told = [path for path in left if path > max(gone) and _is_checkpoint(self.store.objects[path][0])]
            assert told, "what was deleted, no checkpoint tells"
            assert any(version_of_checkpoint(path) in self.store.objects for path in told)
        assert there.keys() - self.store.objects.keys() <= gone | of_iceberg
        assert LIVE in self.store.objects

    def _check_drop(self) -> None:
        others = {path for path, (body, _) in self.store.objects.items() if is_strangers(path, body)}
        report = self._try(lambda: self.table.drop(everything=True))
        assert others <= self.store.objects.keys(), "what was deleted is not ours"
        assert report is None or others <= {*report.left}
        assert report is None or {*report.left} == self.store.objects.keys()


def is_strangers(path: str, body: bytes) -> bool:
    """Whether no publisher of the table wrote it, for sure."""
    directory, _, last = path.rpartition("/")
    match directory:
        case "_delta_log" if re.fullmatch(r"[0-9]{20}\.json", last):
            return not _is_own_version(body)
        case "_delta_log" if re.fullmatch(r"[0-9]{20}\.checkpoint\.parquet|_last_checkpoint", last):
            return False  # it hangs on its version
        case "_spark_metadata" if re.fullmatch(r"[0-9]*9\.compact", last):
            return re.search(rb'"modificationTime": ?[1-9]', b"".join(body.split(b"\n")[1:2])) is not None
        case "_symlink_format_manifest" if re.fullmatch(r"\.dbio-[0-9]{20}", last):
            return bool(body)
        case "_iceberg/metadata" if match := re.fullmatch(r"v([0-9]{1,30})\.metadata\.json", last):
            return not _is_own_metadata(body, int(match[1]))
        case "_iceberg/metadata" if re.fullmatch(r"version-hint\.text|dbio-(snap-)?[0-9-]+-[0-9a-f]{32}\.avro", last):
            return False  # it hangs on its version
    return last != "manifest" and directory.split("/")[0] in DIRECTORIES.values()


def _is_own_version(body: bytes) -> bool:
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        first = json.loads(body.lstrip().partition(b"\n")[0].decode(errors="replace"), strict=False)
        told: bool = first["commitInfo"]["dbio_commit"]["table_id"] == "t"
        return told
    return False


def _is_own_metadata(body: bytes, number: int) -> bool:
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        told = json.loads(body)["properties"]
        return (told["dbio.table-id"], told["dbio.number"]) == ("t", str(number))
    return False


def _is_checkpoint(body: bytes) -> bool:
    with suppress(pa.ArrowException, OSError, KeyError):
        return _told(pq.read_table(io.BytesIO(body))["metaData"], "id") == ["t"]
    return False


def _paths_in(body: bytes) -> list[str]:
    actions = [json.loads(line) for line in body.splitlines()]
    return [unquote(it["path"]) for action in actions for it in (action.get("add"), action.get("remove")) if it]


def directory(objects: Objects) -> object:
    """Each begins with nothing remembered."""
    with (
        patch.object(object_cache, "CACHE", memory := ObjectCache()),
        patch.object(remembered, "CACHE", memory),
        bounded_steps(),
    ):
        return Beside({path: it for path, it in objects.items() if is_published(path)}).check()


# --- what others may have put there -------------------------------------------------------------------------------

NUMBERS = [0, 1, 2, 3, 9, 10, 12, 19, 29, 10**9, 10**14, 10**15 - 1, 10**15, 10**18 + 9, 10**20 - 1]
PLACES = ["day=1/", "../", "x/", ""]
NOTES = ["notes.txt", "_last_checkpoint", "00000000000000000001.crc", "manifest", "v1", "9", "+9.compact", "09.compact"]

ICEBERG_NOTES = [
    "metadata/version-hint.text",
    "metadata/00001-a.metadata.json",
    "metadata/snap-1.avro",
    "data/a.parquet",
]


@st.composite
def paths(draw: st.DrawFn) -> str:
    number = draw(st.sampled_from(NUMBERS))
    near = draw(st.sampled_from(NOTES))
    return draw(
        st.sampled_from(
            [
                f"_delta_log/{number:020d}.json",
                f"_delta_log/{number:020d}.json",
                f"_delta_log/{number:020d}.checkpoint.parquet",
                f"_spark_metadata/{number}.compact",
                f"_symlink_format_manifest/.dbio-{number:020d}",
                f"_symlink_format_manifest/{draw(st.sampled_from(PLACES))}manifest",
                f"_iceberg/metadata/v{number}.metadata.json",
                f"_iceberg/metadata/v{number}.metadata.json",
                f"_iceberg/metadata/dbio-{number}-{number}-{'0' * 32}.avro",
                f"_iceberg/{draw(st.sampled_from(ICEBERG_NOTES))}",
                *(f"{directory}/{near}" for directory in DIRECTORIES.values()),
            ]
        )
    )


def versions() -> st.SearchStrategy[list[dict[str, Any]]]:
    """The actions of one, of ours in half of the cases."""
    some = st.lists(st.sampled_from([*bodies.PATHS, *bodies.HOSTILE_PATHS[:12]]), max_size=3)
    mark = st.sampled_from([{"table_id": "t", "tid": "1"}] * 2 + [{"table_id": "u"}, None])
    meta = {"id": "t", "schemaString": "{}", "partitionColumns": []}
    return st.builds(
        lambda mark, added, removed, engine: [
            {"commitInfo": {"engineInfo": engine, **({"dbio_commit": mark} if mark else {})}},
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": meta},
            *({"remove": {"path": path}} for path in removed),
            *({"add": {"path": path, "size": 1, "stats": "{}"}} for path in added),
        ],
        mark,
        some,
        some,
        st.sampled_from(["dbio-commit/1", "Apache-Spark/3.5 Delta-Lake", "x\n\x1b[2J" * 100]),
    )


def lists() -> st.SearchStrategy[list[dict[str, Any]]]:
    some = st.lists(st.sampled_from([*bodies.PATHS, *bodies.HOSTILE_PATHS[:12]]), max_size=3)
    place, time = st.sampled_from([ROOT, ROOT, "file:///other"]), st.sampled_from([0, 0, 1763634000000])
    return st.builds(
        lambda root, time, paths: [{"path": f"{root}/{path}", "modificationTime": time} for path in paths],
        place,
        time,
        some,
    )


@st.composite
def iceberg_metadata(draw: st.DrawFn) -> dict[str, Any]:
    """What dbio really wrote, or what another wrote above it, or something between."""
    body: dict[str, Any] = json.loads(really_published(1)["_iceberg/metadata/v1.metadata.json"][0])
    body["properties"]["dbio.number"] = str(draw(st.sampled_from([1, 2, 3, 10**14])))
    body["properties"]["dbio.table-id"] = draw(st.sampled_from(["t", "t", "u"]))
    changes: dict[str, list[Any]] = {
        "location": ["s3://other/_iceberg", ""], "current-snapshot-id": [1, -1], "last-column-id": [0, 10**30],
        "schemas": [[], [{"schema-id": 0, "fields": [{"id": 1, "name": "id", "type": {"type": "?"}}]}]],
        "partition-specs": [[{"spec-id": 0, "fields": [{"source-id": 9, "field-id": 1, "name": "x"}]}]],
        "snapshots": [[]],
    }  # fmt: skip
    for key in draw(st.lists(st.sampled_from([*changes]), max_size=1)):
        body[key] = draw(st.sampled_from(changes[key]))
    return body


def to_list(lines: Any) -> bytes:
    return b"v1\n" + bodies.to_lines(lines).rstrip(b"\n")


@st.composite
def directories(draw: st.DrawFn) -> dict[str, tuple[bytes, timedelta]]:
    """What was really published, and what others have put over it."""
    found = dict(really_published(draw(st.integers(0, 3))) if draw(st.booleans()) else {})
    for path in draw(st.lists(paths(), max_size=4)):
        if ".metadata.json" in path:
            body = draw(bodies.bodies(iceberg_metadata(), bodies.to_json))
        elif ".json" in path:
            body = draw(bodies.bodies(versions(), bodies.to_lines) | versions().map(bodies.to_lines))
        elif ".checkpoint" in path:
            body = draw(st.sampled_from([b"", b"PAR1", *(pack_checkpoint(it) for it in CHECKPOINTS)]))
        elif ".compact" in path:
            body = draw(bodies.bodies(lists(), to_list))
        else:
            body = draw(st.sampled_from([b"", b"", b"s3://lake/table/x\n", b"v1\n", b"\n" * 100, b"\xff"]))
        found[path] = (body, draw(st.sampled_from(AGES)))
    return found


CHECKPOINTS = [f"t\n{LIVE}".encode(), b"t", b"u\na", b"t\n../x", b"t\na\na%20b"]


def _adding(path: str) -> dict[str, Any]:
    info = {"version": 1, "operation": "append", "commit_id": "c", "timestamp": bodies.STAMP}
    return {"added": [path], "removed": [], "dbio_commit": {**info, "files": {"size": [12], "rows": [1]}}}


@cache
def really_published(times: int) -> Objects:
    """By a table of this id and file, so many times in all formats, with a checkpoint of the last version."""
    it = Beside({}, clock=ManualClock(seed=9))  # other random names than those that come later
    for number in range(times):
        it.table.publish([*Format])
        it.store.put(f"_committed_2{number}", bodies.to_json(_adding(bodies.data("2", number))))
    found = {
        path: (body, AGES[3])
        for path, (body, _) in it.store.objects.items()
        if path.split("/")[0] in DIRECTORIES.values()
    }
    if times > 1:
        found[checkpoint_path(times - 1)] = (pack_checkpoint(CHECKPOINTS[0]), AGES[3])
    return found
