"""Whole directories that somebody else may have filled, and what an independent reading says is live in them.

The reading takes nothing from the package: PROTOCOL.md in a few lines, with Python's own JSON and pyarrow's Parquet, and lenient where the
package is strict.
"""

import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
from hypothesis import strategies as st

from dbio_commit import DbioError, Snapshot, Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.fuzz import bodies
from tests.fuzz.bodies import TIDS, data
from tests.fuzz.properties import assert_inside
from vacuum import VacuumOptions, vacuum_table

AGES = [timedelta(0), timedelta(minutes=1), timedelta(hours=2), timedelta(days=3), timedelta(days=60)]
PLACES = [
    "",
    "day=1/",
    "day=2/",
    "day=1/hour=2/",
    "day=/",
    "day=__HIVE_DEFAULT_PARTITION__/",
    "_hidden/",
    "x/",
    "../",
    "day=1/../",
]
OTHER_NAMES = [
    "_SUCCESS", "_committed_", "_committed_X", "_started_1x-", "_serial_1", "_checkpoint_" + "9" * 20, ".a.crc",
    f".{data('1')}.crc", "._started_1.crc", "a b", "é", "a\nb", "\x1b[2J", "a._COPYING_", "part-tid--", "-tid-1-", "..",
    "_delta_log/0.json", "_dbio_table",
]  # fmt: skip

# --- directories --------------------------------------------------------------------------------------------------


def number(value: int) -> str:
    return f"{value:020d}"


Paths = st.SearchStrategy[list[str]]


def _some(paths: Sequence[str]) -> Paths:
    return st.lists(st.sampled_from(paths), max_size=4, unique=True)


LOCAL = _some(bodies.NAMES)
IN_PARTITIONS = _some([path for path in bodies.PATHS if path.startswith("day=")])


def _body_of(name: str, paths: Paths) -> st.SearchStrategy[bytes]:
    """A good body for the name."""
    if name == "_dbio_table":
        return bodies.descriptors().map(bodies.to_json)
    if name.startswith("_committed_vacuum"):
        return bodies.queues().map(bodies.to_json)
    if name.startswith("_committed_"):
        return bodies.commits(paths).map(bodies.to_json)
    if name.startswith("_serial_"):
        return bodies.turns().map(bodies.to_json)
    if name.startswith("_checkpoint_"):
        return bodies.checkpoints(int(name[-20:]), paths).map(bodies.to_lines).map(bodies.pack)
    return st.sampled_from([b"", b"rows"])


DECISIONS = [f"_{kind}_{tid}" for kind in ("started", "committed") for tid in TIDS]
OTHER_MARKERS = [
    "_committed_vacuum1",
    "_committed_vacuum2",
    *(f"_serial_{number(n)}" for n in (1, 2, 10**15, 2**63 - 1, 10**20 - 1)),
    *(f"_checkpoint_{number(n)}" for n in (1, 2, 2**63 - 1)),
]


@st.composite
def directories(draw: st.DrawFn) -> dict[str, tuple[bytes, timedelta]]:
    """By path: body and age. A table in half of the cases, hostile in half of them."""
    objects: dict[str, tuple[bytes, timedelta]] = {}
    hostile = draw(st.booleans())

    def put(place: str, names: Sequence[str], paths: Paths) -> None:
        for name in names:
            body = b"" if name.startswith("_started_") else draw(_body_of(name, paths))
            if hostile and draw(st.integers(0, 3)) == 0:
                body = draw(bodies.damaged(st.just(body)) | bodies.bodies(bodies.commits()))
            objects[place + name] = (body, draw(st.sampled_from(AGES)))

    if draw(st.booleans()):
        columns = draw(st.sampled_from([[], ["day"]]))
        descriptor = {"version": 1, "id": "t", "created": bodies.STAMP, "partition_columns": columns}
        objects["_dbio_table"] = (bodies.to_json(descriptor), AGES[-1])
        paths = IN_PARTITIONS if columns else LOCAL
        put("", draw(st.lists(st.sampled_from(DECISIONS), min_size=2, max_size=6, unique=True)), paths)
        put("", draw(st.lists(st.sampled_from(OTHER_MARKERS), max_size=2)), paths)
        put("", draw(paths), paths)
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        put(place, draw(st.lists(st.sampled_from(bodies.NAMES), max_size=5)), LOCAL)
        put(place, draw(st.lists(st.sampled_from(DECISIONS), max_size=4)), LOCAL)
        put(place, draw(st.lists(st.sampled_from(OTHER_MARKERS), max_size=2)), LOCAL)
        if hostile:
            put(place, draw(st.lists(st.sampled_from(OTHER_NAMES), max_size=2)), LOCAL)
    return objects


# --- the independent reading --------------------------------------------------------------------------------------


Objects = Mapping[str, tuple[bytes, datetime]]
"""By path: body and modification time."""


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError, OSError, zlib.error)


def _json(text: bytes) -> Any:
    """A number of more digits than Python takes for a whole one is JSON, too, in the place of a key that nobody knows."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4000 else float(digits))


def live(objects: Objects) -> set[str] | None:
    """The paths of the live files; None where a marker that decides cannot be read."""
    with suppress(*_UNREADABLE):
        return _live_in_table(objects) if "_dbio_table" in objects else _live_by_directory(objects)
    return None


def settings(objects: Objects) -> list[dict[str, str]] | None:
    """Those that a reader may find: any that were told as of the highest turn. None where a marker cannot be read."""
    with suppress(*_UNREADABLE):
        return _settings_of_table(objects) if "_dbio_table" in objects else [{}]
    return None


def _settings_of_table(objects: Objects) -> list[dict[str, str]]:
    header, markers = _told_in_table(objects)
    infos = [info for info in (marker.get("dbio_commit") for marker in markers.values()) if info]
    told = [header, *(info for info in infos if info["operation"] != "abort")]
    told = [it for it in told if it.get("settings") is not None and it.get("schema_turn") is not None]
    last = max((it["schema_turn"] for it in told), default=0)
    found = [it["settings"] for it in told if it["schema_turn"] == last]
    return [it for i, it in enumerate(found) if it not in found[:i]] or [{}]


def _told_in_table(objects: Objects) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the last checkpoint says of the table, and the commit markers by tid."""
    checkpoints = [path for path in objects if re.fullmatch(r"_checkpoint_(?!0{20})[0-9]{20}", path)]
    header, lines = {}, list[Any]()
    if checkpoints:
        header, *lines = [_json(line) for line in _lines(gzip.decompress(objects[max(checkpoints)][0]))]
    markers: dict[str, Any] = {line["tid"]: line["marker"] for line in lines}
    markers |= _told_in_parts(header, objects)
    for path, (body, _) in objects.items():
        tid = _COMMIT.fullmatch(path)
        if tid and body and tid[1] not in markers:
            markers[tid[1]] = _json(body)
    return header, markers


def _told_in_parts(header: dict[str, Any], objects: Objects) -> dict[str, Any]:
    """What the parts that a root names say: the paths of each transaction."""
    markers: dict[str, Any] = {}
    files: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for part in header.get("parts", ()):
        for row in pq.read_table(io.BytesIO(objects[part["name"]][0])).to_pylist():
            if part["kind"] == "commits":
                markers[row["tid"]] = {"added": [], "removed": []}
            else:
                path = f"{row['directory']}/{row['name']}" if row["directory"] else row["name"]
                files.setdefault((row["tid"], path), []).append(row)
    for (tid, path), rows in files.items():
        for key in ("added", "removed"):
            if any(row[key] is not None for row in rows) and not any(row["gone"] for row in rows):
                markers[tid][key].append(path)
    return markers


def _lines(text: bytes) -> list[bytes]:
    """Ended by line feeds; a carriage return is white space, like any other."""
    return text.removesuffix(b"\n").split(b"\n")


def _live_in_table(objects: Objects) -> set[str]:
    _, markers = _told_in_table(objects)
    added, removed = set[str](), set[str]()
    for marker in markers.values():
        added.update(marker["added"])
        removed.update(marker["removed"])
        for referred in (marker.get("dbio_commit") or {}).get("removed_tids") or ():
            removed.update(markers[referred]["added"] if referred in markers else ())
    return added - removed


def _live_by_directory(objects: Objects) -> set[str]:
    by_place: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
    for path, (body, _) in objects.items():
        place, slash, name = path.rpartition("/")
        by_place[place + slash][name] = body
    found: set[str] = set()
    for place, own in by_place.items():
        if place and any(map(_is_skipped, place[:-1].split("/"))):
            continue
        decided = {name: _json(body) for name, body in own.items() if _COMMIT.fullmatch(name) and body}
        removed = set().union(*(marker["removed"] for marker in decided.values()))
        for name in own:
            tid = _DATA.fullmatch(name)
            marker = decided.get(f"_committed_{tid[1]}") if tid else None
            is_pending = tid is not None and marker is None and f"_started_{tid[1]}" in own
            is_left_out = marker is not None and name not in marker["added"]
            is_data = name.lower().endswith(".parquet") or (tid is not None and _is_parquet(own[name]))
            if is_data and not (_is_skipped(name) or name in removed or is_pending or is_left_out):
                found.add(place + name)
    return found


def _is_parquet(body: bytes) -> bool:
    return len(body) >= 12 and body[:4] == body[-4:] == b"PAR1"


def _is_skipped(name: str) -> bool:
    return name[:1] in ("", ".") or (name[:1] == "_" and "=" not in name) or name.endswith("._COPYING_")


_COMMIT = re.compile(r"_committed_(?!vacuum)([a-z0-9]+)")
_DATA = re.compile(r"[^_].*-tid-([a-z0-9]+)-.*")

# --- a table of such a directory ----------------------------------------------------------------------------------


@dataclass
class Hostile:
    """The directory in a store that keeps account of what is listed and deleted."""

    objects: Mapping[str, tuple[bytes, timedelta]]
    clock: ManualClock = field(default_factory=ManualClock)
    known: set[str] = field(default_factory=set)
    """What was there at the start, or was put there since."""
    deleted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        for path, (body, age) in self.objects.items():
            self.store.put(path, body, modified=self.clock.now() - age)
        self.before: dict[str, tuple[bytes, datetime]] = dict(self.store.objects)
        self.known |= self.before.keys()
        self.store.before = self._note
        self.table = Table.over(self.store, self.clock)
        self.live = live(self.before)

    def _note(self, operation: str, path: str) -> None:
        if operation == "delete" and (path in self.before or not path.startswith("_clock_")):  # its own goes again
            self.deleted.add(path)
        if operation in ("put_if_absent", "write"):
            directory, _, name = path.rpartition("/")
            assert_inside([name])
            if not any(known.startswith(f"{directory}/") for known in self.known):
                assert_inside([path])
            self.known.add(path)

    def check_read(self) -> Snapshot | None:
        """What a reader gets, or None where it gets an error, is what the independent reading says."""
        snapshot = None
        with suppress(DbioError):
            snapshot = self.table.snapshot()
            assert {file.path for file in snapshot.files} == self.live
            assert len(snapshot.files) == len(self.live or ())
            assert dict(snapshot.settings) in (settings(self.before) or ())
            assert all(file.size >= -1 for file in snapshot.files)
        assert self.store.objects == self.before, "a reader changed something"
        return snapshot

    def check_vacuum(self, options: VacuumOptions) -> None:
        """It deletes nothing that is live, nothing that was not there, and nothing at all that it cannot judge."""
        is_judged = False
        with suppress(DbioError):
            report = vacuum_table(self.table, options)
            is_judged = True
            assert {it.path for it in report.deleted if it.path in self.known} <= self.deleted
        assert self.deleted <= self.known
        if self.live is None:
            assert not is_judged
            assert not self.deleted
            return
        assert not self.deleted & self.live
        assert self.live & self.before.keys() <= self.store.objects.keys()
        assert live(self.store.objects) == self.live, "readers see another table than before"
        before = settings(self.before)
        assert before is None or all(it in before for it in settings(self.store.objects) or ()), "and other settings"
