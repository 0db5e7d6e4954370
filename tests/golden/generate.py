"""Writes the golden directories: `make generate`.

Each is `<nn-name>/table/` and `<nn-name>/expected.json`, which says what a reader must see. Nothing here uses
dbio_commit: names, markers and expectations are spelled out by hand from the protocol, so that they can disagree with
the code. Every data file has one row, and its `id` is unlike all others of its table, but for copies: ids tell which
files were read.
"""

import gzip
import json
import shutil
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

JOB = "4f1c2b6e-93d7-4a55-8e0b-1d2c3b4a5f60"
NULL = "__HIVE_DEFAULT_PARTITION__"
BEGAN = datetime(2025, 3, 1, tzinfo=UTC)


class Case:
    """A table that nobody of ours created: the directory scope."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self.objects: dict[str, bytes] = {}
        self.ids: dict[str, int] = {}
        self.modified: dict[str, str] = {}
        self.marks = 0
        self.reads: list[dict[str, Any]] = []

    # --- what is there ---

    def file(self, path: str) -> str:
        self.ids[path] = len(self.ids) + 1
        self.objects[path] = b""  # written when its id is known: see `save`
        return path

    def data(self, tid: str, directory: str = "", *, task: int = 0, attempt: int = 0) -> str:
        """A file as DBIO names it."""
        name = f"part-{task:05d}-tid-{tid}-{JOB}-{attempt}-{task}-c000.snappy.parquet"
        return self.file(join(directory, name))

    def copy(self, path: str, tid: str, *, task: int = 0) -> str:
        """Another file with the same row, in the same partition."""
        copied = self.data(tid, path.rpartition("/")[0], task=task)
        self.ids[copied] = self.ids[path]
        return copied

    def put(self, path: str, body: bytes | Mapping[str, Any] = b"") -> None:
        self.objects[path] = body if isinstance(body, bytes) else json.dumps(body).encode()

    def start(self, tid: str, *directories: str) -> None:
        for directory in directories or ("",):
            self.put(join(directory, f"_started_{tid}"))

    def commit(
        self, tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, start: bool = True, **more: Any
    ) -> None:
        """A marker in each directory that gains or loses a file, with the names that are local to it."""
        for directory in sorted({path.rpartition("/")[0] for path in (*added, *removed)}):
            if start:
                self.start(tid, directory)
            body = {"added": local(added, directory), "removed": local(removed, directory), **more}
            self.mark(join(directory, f"_committed_{tid}"), body)

    def mark(self, path: str, body: bytes | Mapping[str, Any]) -> None:
        """A commit marker; each was created a minute after the one before."""
        self.put(path, body)
        self.modified[path] = (BEGAN + timedelta(minutes=self.marks)).isoformat()
        self.marks += 1

    # --- what a reader sees ---

    def sees(self, *files: str, by: Sequence[str] = (), **how: Any) -> None:
        self.reads.append(
            {
                **how,
                "files": sorted(files),
                "ids": sorted(self.ids[file] for file in files),
                "partition_columns": list(by),
            }
        )

    def refused(self, error: str, **how: Any) -> None:
        self.reads.append({**how, "error": error})

    def save(self, target: Path) -> None:
        for path, body in self.objects.items():
            place = target / "table" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(parquet(self.ids[path]) if path in self.ids else body)
        expected = {"about": self.about, "modified": self.modified, "reads": self.reads}
        (target / "expected.json").write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")


class OurTable(Case):
    """A table that carries a descriptor: the table scope."""

    def __init__(self, name: str, about: str, by: Sequence[str] = ()) -> None:
        super().__init__(name, about)
        self.by = by
        self.put("_dbio_table", descriptor(by))

    def sees(self, *files: str, by: Sequence[str] = (), **how: Any) -> None:
        super().sees(*files, by=by or self.by, **how)

    def commit(
        self,
        tid: str,
        added: Sequence[str] = (),
        removed: Sequence[str] = (),
        *,
        start: bool = True,
        operation: str = "append",
        columns: Sequence[str] = ("id", "name"),
        by: Sequence[str] | None = None,
        **more: Any,
    ) -> None:
        by = self.by if by is None else by
        if start:
            self.start(tid)
        info = {
            "version": 1,
            "operation": operation,
            "commit_id": f"commit-of-{tid}",
            "timestamp": (BEGAN + timedelta(minutes=self.marks)).isoformat(),
            **more,
        }
        if operation != "abort":
            info["schema"] = {"type": "struct", "fields": [column(name) for name in (*columns, *by)]}
            info["schema_turn"] = more.get("schema_turn", 0)
            info["files"] = {
                "size": [len(parquet(self.ids[path])) for path in added],
                "rows": [1] * len(added),
                "partition": {name: [value_of(name, path) for path in added] for name in by},
            }
        self.mark(f"_committed_{tid}", {"added": list(added), "removed": list(removed), "dbio_commit": info})

    def abort(self, tid: str, *, start: bool = True) -> None:
        self.commit(tid, start=start, operation="abort")

    # --- checkpoints: PROTOCOL.md 7.4 ---

    def line(self, tid: str, **more: Any) -> dict[str, Any]:
        """Of a commit whose marker is there, as a checkpoint tells it."""
        path = f"_committed_{tid}"
        marker = json.loads(self.objects[path])
        ours = marker.get("dbio_commit", {})
        schema = {"table_schema": 0} if ours.pop("schema", None) else {}
        return {"tid": tid, "modified": self.modified[path], **schema, "marker": marker, **more}

    def checkpoint(self, number: int, lines: Sequence[Mapping[str, Any]], **header: Any) -> None:
        columns = {"type": "struct", "fields": [column(name) for name in ("id", "name", *self.by)]}
        first = {
            "version": 1,
            "number": number,
            "created": (BEGAN + timedelta(days=1)).isoformat(),
            "commits": len(lines),
            "apps": {},
            "schemas": [columns],
            "table_schema": 0,
            "schema_turn": 0,
            **header,
        }
        self.put(checkpoint(number), packed([first, *lines]))

    # --- roots and parts: PROTOCOL.md 7.7 ---

    def root(self, number: int, tids: Sequence[str], **header: Any) -> None:
        """A checkpoint of version 2, with one part of files and one of commits."""
        lines = [self.line(tid) for tid in tids]
        files = [row for line in lines for row in file_rows(line)]
        files.sort(key=lambda row: (row["directory"], row["writer"], row["name"], row["tid"]))
        added = {path for line in lines for path in line["marker"]["added"]}
        live = added - {path for line in lines for path in line["marker"]["removed"]}
        parts = [
            self.part(number, 1, "files", [{**it, "writer": other(it)} for it in files], FILES, files),
            self.part(number, 2, "commits", [commit_row(line, number, self.by) for line in lines], COMMITS, []),
        ]
        state = {
            "files": len(live),
            "bytes": sum(len(parquet(self.ids[path])) for path in live),
            "unknown": 0,
            "layouts": [list(self.by)],
            "absent": [],
            "hides": False,
        }
        self.checkpoint(number, [], version=2, parts=parts, state=state, **header)

    def part(
        self,
        number: int,
        nth: int,
        kind: str,
        rows: Sequence[Mapping[str, Any]],
        schema: pa.Schema,
        keys: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Puts the part, and returns what the root says of it."""
        sink = pa.BufferOutputStream()
        texts: Any = [it.name for it in schema if pa.types.is_dictionary(it.type)]
        pq.write_table(pa.Table.from_pylist(list(rows), schema), sink, use_dictionary=texts)
        body = bytes(sink.getvalue().to_pybytes())
        footer = int.from_bytes(body[-8:-4], "little") + 8
        end = len(body) - footer
        name = f"_part_{number:020d}-{nth:032x}"
        self.put(name, body)
        key = [[row["directory"], row["writer"]] for row in keys] or [[]]
        group = {"first": key[0], "rows": len(rows), "at": 4, "bytes": end - 4, "crc": zlib.crc32(body[4:end])}
        return {
            "kind": kind,
            "name": name,
            "since": number,
            "until": number,
            "bytes": len(body),
            "footer": footer,
            "crc": zlib.crc32(body[end:]),
            "groups": [group],
            "last": key[-1],
        }

    def purge(self, *tids: str) -> None:
        for tid in tids:
            for path in (f"_started_{tid}", f"_committed_{tid}"):
                del self.objects[path]
                self.modified.pop(path, None)

    def vacuum(self, *files: str) -> None:
        for file in files:
            del self.objects[file]


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def local(paths: Iterable[str], directory: str) -> list[str]:
    split = (path.rpartition("/") for path in paths)
    return [name for parent, _, name in split if parent == directory]


def value_of(name: str, path: str) -> str | None:
    """As in the directory's name; the cases with escapes unescape by hand."""
    [value] = [part.removeprefix(f"{name}=") for part in path.split("/") if part.startswith(f"{name}=")]
    return None if value == NULL else value.replace("%2F", "/").replace("%3A", ":").replace("%25", "%")


def column(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long" if name == "id" else "string", "nullable": True, "metadata": {}}


def descriptor(by: Sequence[str] = (), *, version: int = 1) -> dict[str, Any]:
    return {
        "version": version,
        "id": "0d7c1f4a-5b52-4a0e-9f59-6f0f2f2f7a11",
        "created": BEGAN.isoformat(),
        "partition_columns": list(by),
        "properties": {},
    }


def checkpoint(number: int) -> str:
    return f"_checkpoint_{number:020d}"


_TEXTS: Any = pa.dictionary(pa.int32(), pa.string())
FILES = pa.schema(
    [
        ("directory", _TEXTS),
        ("name", pa.string()),
        ("tid", _TEXTS),
        ("writer", _TEXTS),
        ("added", pa.int32()),
        ("removed", pa.int32()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("whole", pa.bool_()),
        ("gone", pa.bool_()),
    ]
)
COMMITS = pa.schema(
    [
        ("tid", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        ("at", pa.timestamp("us", "UTC")),
        ("rank", pa.int64()),
        ("number", pa.int64()),
        ("forgotten", pa.bool_()),
        ("info", pa.string()),
        ("schema", _TEXTS),
        ("has_files", pa.bool_()),
        ("has_whole", pa.bool_()),
        ("statistics_left_out", pa.bool_()),
        ("columns", pa.list_(pa.string())),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("forgotten_added", pa.int64()),
        ("forgotten_removed", pa.int64()),
    ]
)


def file_rows(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the files that a commit adds or removes."""
    marker, found = line["marker"], list[dict[str, Any]]()
    files = marker["dbio_commit"]["files"]
    for what in ("added", "removed"):
        for place, path in enumerate(marker[what]):
            directory, _, name = path.rpartition("/")
            row = {"directory": directory, "name": name, "tid": line["tid"], "whole": False, "gone": False}
            row |= {what: place, "writer": name.partition("-tid-")[2].partition("-")[0]}
            if what == "added":
                row |= {"size": files["size"][place], "rows": files["rows"][place]}
            found.append(row)
    return found


def other(row: Mapping[str, Any]) -> str | None:
    """The tid in the name of a file, unless it is that of the row."""
    return None if row["writer"] == row["tid"] else row["writer"]


def commit_row(line: Mapping[str, Any], number: int, by: Sequence[str]) -> dict[str, Any]:
    marker, at = line["marker"], datetime.fromisoformat(line["modified"])
    info = {key: value for key, value in marker["dbio_commit"].items() if key != "files"}
    schema = {"type": "struct", "fields": [column(name) for name in ("id", "name", *by)]}
    return {
        "tid": line["tid"],
        "modified": at,
        "at": at,
        "rank": 0,
        "number": number,
        "forgotten": False,
        "info": json.dumps(info),
        "schema": json.dumps(schema),
        "has_files": True,
        "has_whole": False,
        "statistics_left_out": False,
        "columns": [],
        "added": len(marker["added"]),
        "removed": len(marker["removed"]),
        "forgotten_added": 0,
        "forgotten_removed": 0,
    }


def packed(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines), mtime=0)


def without(line: Mapping[str, Any], *gone: str) -> dict[str, Any]:
    """The line less these added or removed files, which are removed and vacuumed."""
    marker = json.loads(json.dumps(line["marker"]))
    kept = [i for i, path in enumerate(marker["added"]) if path not in gone]
    added, removed = [marker["added"][i] for i in kept], [path for path in marker["removed"] if path not in gone]
    if files := marker.get("dbio_commit", {}).get("files"):
        files["size"] = [files["size"][i] for i in kept]
        files["rows"] = [files["rows"][i] for i in kept]
        files["partition"] = {name: [values[i] for i in kept] for name, values in files["partition"].items()}
    forgotten = {
        "forgotten_added": len(marker["added"]) - len(added),
        "forgotten_removed": len(marker["removed"]) - len(removed),
    }
    return {**line, **forgotten, "marker": {**marker, "added": added, "removed": removed}}


def parquet(number: int) -> bytes:
    table = pa.table({"id": pa.array([number], pa.int64()), "name": [f"file {number}"]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, write_statistics=False)
    return bytes(sink.getvalue().to_pybytes())


def our_tid(hour: int, random: int = 7) -> str:
    """42 bits of milliseconds since 1970, 21 random bits, 19 digits."""
    millis = int((BEGAN + timedelta(hours=hour)).timestamp()) * 1000
    return f"{millis << 21 | random:019d}"


# --- directory scope: PROTOCOL.md section 11 ----------------------------------------------------------------------

A, B, C = "1187324659120348471", "2903475610298347561", "5561029384756102938"  # decimal tids, as Databricks wrote them


def no_markers() -> Iterable[Case]:
    t = Case("plain-parquet", "No marker anywhere: everything is visible.")
    t.sees(t.file("a.parquet"), t.file("b.parquet"))
    yield t

    t = Case("plain-partitioned", "No marker anywhere, in partitions.")
    t.sees(t.file("day=2025-03-01/a.parquet"), t.file("day=2025-03-02/b.parquet"), by=["day"])
    yield t


def commits() -> Iterable[Case]:
    t = Case("committed", "A file that its commit lists is visible; one of a failed attempt, not listed, is not.")
    winner, _loser = t.data(A, attempt=1), t.data(A, attempt=0)
    t.commit(A, [winner])
    t.sees(winner)
    yield t

    t = Case("committed-start-purged", "The same, after vacuum has taken the start marker.")
    winner, _loser = t.data(A, attempt=1), t.data(A, attempt=0)
    t.commit(A, [winner], start=False)
    t.sees(winner)
    yield t

    t = Case(
        "started-only", "A start marker and no commit marker: hidden. Nothing else is there, and that is no error."
    )
    t.data(A)
    t.start(A)
    t.sees()
    yield t

    t = Case("untracked", "Files without a tid are visible beside a transaction of any state.")
    mine, _pending, foreign = t.data(A), t.data(B), t.file("copied-by-hand.parquet")
    t.commit(A, [mine])
    t.start(B)
    t.sees(mine, foreign)
    yield t

    t = Case("purged", "A file whose tid has no marker at all is visible: vacuum has purged the markers.")
    old, new = t.data(A), t.data(B)
    t.commit(B, [new])
    t.sees(old, new)
    yield t


def removals() -> Iterable[Case]:
    t = Case("removed", "Hidden by a later commit: a committed file, a purged one and an untracked one.")
    first, kept, purged, foreign = t.data(A), t.data(A, task=1), t.data(C), t.file("untracked.parquet")
    t.commit(A, [first, kept])
    new = t.data(B)
    t.commit(B, [new], [first, purged, foreign])
    t.sees(kept, new)
    yield t

    t = Case("removed-before-added", "Removal wins, whatever the order of the tids and of the commits.")
    gone, new = t.data(B), t.data(A)
    t.commit(A, [new], [gone])
    t.commit(B, [gone])
    t.sees(new)
    yield t

    t = Case("pending-removal", "What a transaction without a commit marker would remove stays.")
    old = t.data(A)
    t.commit(A, [old])
    t.data(B)
    t.start(B)
    t.put(f"_committed_{B}")
    t.sees(old)
    yield t


def local_names() -> Iterable[Case]:
    t = Case("names-are-local", "A name removed in one directory stays in another; so does a tid's commit.")
    gone, kept = t.data(A, "day=1"), t.data(A, "day=2")
    t.commit(A, [gone, kept])
    t.commit(B, [], [gone])
    t.sees(kept, by=["day"])
    yield t

    t = Case("committed-in-one-directory", "Atomic per directory only: a crash between two commit markers.")
    landed, _not_yet = t.data(A, "day=1"), t.data(A, "day=2")
    t.commit(A, [landed])
    t.start(A, "day=2")
    t.sees(landed, by=["day"])
    yield t

    t = Case("markers-of-the-parent", "Markers at the root say nothing about files further down.")
    deep, top = t.data(A, "day=1"), t.data(A)
    t.commit(A, [], [top])
    t.start(A)
    t.sees(deep, by=["day"])
    yield t


def broken_markers() -> Iterable[Case]:
    t = Case("empty-commit-marker", "A zero-length commit marker counts as absent: the start marker hides.")
    t.data(A)
    other = t.data(B)
    t.start(A)
    t.mark(f"_committed_{A}", b"")
    t.commit(B, [other])
    t.sees(other)
    yield t

    t = Case("empty-commit-marker-alone", "Zero-length and no start marker: as if there were no marker at all.")
    purged = t.data(A)
    t.mark(f"_committed_{A}", b"")
    t.sees(purged)
    yield t

    t = Case("corrupt-marker", "An error; ignored, the start marker decides, and what it removed stays.")
    old = t.data(A)
    t.commit(A, [old])
    new = t.data(B)
    t.start(B)
    t.mark(f"_committed_{B}", json.dumps({"added": [new], "removed": [old]}).encode()[:40])
    t.refused("CorruptMarkerError")
    t.sees(old, ignore_corrupt_markers=True)
    yield t

    t = Case("corrupt-marker-alone", "An error; ignored, there is no marker left that would hide the file.")
    new = t.data(B)
    t.mark(f"_committed_{B}", b"\x00\x00\x00\x00")
    t.refused("CorruptMarkerError")
    t.sees(new, ignore_corrupt_markers=True)
    yield t

    t = Case("wrong-types", "JSON, but not of a marker.")
    other = t.data(A)
    t.commit(A, [other])
    t.start(B)
    t.mark(f"_committed_{B}", {"added": {"a": 1}, "removed": 7})
    t.refused("CorruptMarkerError")
    t.sees(other, ignore_corrupt_markers=True)
    yield t


def marker_keys() -> Iterable[Case]:
    t = Case("unknown-keys", "Keys that we do not know are ignored.")
    new = t.data(A)
    t.commit(A, [new], author="somebody", version=7, nested={"added": ["x"]})
    t.sees(new)
    yield t

    t = Case(
        "missing-keys", "JSON that says nothing is no marker of any writer; taken for one, it would hide its files."
    )
    t.data(A)
    t.start(A)
    t.mark(f"_committed_{A}", {})
    t.refused("CorruptMarkerError")
    t.sees(ignore_corrupt_markers=True)
    yield t

    t = Case("vacuum-queue", "What a _committed_vacuum marker lists are markers; it decides about no file.")
    old, new = t.data(A), t.data(B)
    t.commit(A, [old])
    t.commit(B, [new], [old])
    t.data(C)
    t.start(C)
    names = [f"_committed_{A}", f"_started_{C}", "_committed_vacuum8812"]
    t.mark("_committed_vacuum8812", {"added": [], "removed": names})
    t.sees(new)
    yield t

    t = Case("vacuum-queue-corrupt", "A _committed_vacuum marker that cannot be read hides nothing either.")
    old = t.data(A)
    t.commit(A, [old])
    t.mark("_committed_vacuum8812", b"{")
    t.sees(old)
    yield t


def partitions_and_names() -> Iterable[Case]:
    t = Case("nested-partitions", "Two levels; null, escaped and other values; each directory on its own.")
    places = [
        "day=2025-03-01/kind=a%2Fb%3Ac",
        f"day=2025-03-01/kind={NULL}",
        f"day={NULL}/kind=100%25 é",
        "day=2025-03-02/kind=x",
    ]
    files = [t.data(A, place) for place in places]
    for place in places:
        t.data(A, place, attempt=9)
    t.commit(A, files)
    t.data(B, places[3])
    t.start(B, places[3])
    t.sees(*files, by=["day", "kind"])
    yield t

    t = Case("hidden-names", "Names that readers skip are never data.")
    seen = t.data(A)
    t.commit(A, [seen])
    t.put("_SUCCESS")
    t.put("._SUCCESS.crc", b"crc\x00")
    t.put(".DS_Store", b"x")
    t.file("_temporary/0/task_1/part-00000.parquet")
    t.file(".hive-staging_1/part-00000.parquet")
    t.file(".part-00000.parquet")
    t.sees(seen)
    yield t

    t = Case("hidden-markers", "Markers in a directory that readers skip are not read.")
    seen = t.file("a.parquet")
    t.put(f"_temporary/_committed_{A}", b"no JSON")
    t.sees(seen)
    yield t


def overwrites() -> Iterable[Case]:
    t = Case("overwrite", "DBIO's overwrite: each directory's old files are in its marker's `removed`.")
    old = [t.data(A, "day=1"), t.data(A, "day=1", task=1), t.data(A, "day=2")]
    t.commit(A, old)
    new = [t.data(B, "day=1"), t.data(B, "day=3")]
    t.commit(B, new, old)
    t.sees(*new, by=["day"])
    yield t

    t = Case("two-overwrites-at-once", "A known limit of DBIO: neither saw the other, and both survive.")
    old = [t.data(A)]
    t.commit(A, old)
    one, other = t.data(B), t.data(C)
    t.commit(B, [one], old)
    t.commit(C, [other], old)
    t.sees(one, other)
    yield t

    t = Case("rewrite-chain", "Three generations, all markers still there.")
    first, second, third = t.data(A), t.data(B), t.data(C)
    t.commit(A, [first])
    t.commit(B, [second], [first])
    t.commit(C, [third], [second])
    t.sees(third)
    t.sees(second, as_of=B)
    t.sees(first, as_of=A)
    t.sees(second, as_of="2025-03-01T00:01:30+00:00")
    t.refused("InvalidInputError", as_of="999")
    yield t


def tids() -> Iterable[Case]:
    t = Case("alphanumeric-tid", "The grammar of a tid: [a-z0-9]+.")
    winner, _loser = t.data("7f3a9c"), t.data("7f3a9c", attempt=1)
    t.data("abc")
    t.start("abc")
    t.commit("7f3a9c", [winner])
    t.sees(winner)
    yield t

    t = Case(
        "no-tid", "Upper case, dashes and an underscore in front make no tid: such names are untracked, or hidden."
    )
    upper = t.file(f"part-00000-tid-ABC-{JOB}-0-0-c000.parquet")
    ends = t.file("part-00000-tid-123.parquet")
    t.file(f"_part-00000-tid-123-{JOB}-0-0-c000.parquet")
    t.put("_started_ABC")
    t.put("_started_123.parquet")
    t.sees(upper, ends)
    yield t


def hostile_removals() -> Iterable[Case]:
    t = Case("added-is-missing", "A listed file that is not there is nothing to read; the others are.")
    there = t.data(A)
    t.commit(A, [there, f"part-00001-tid-{A}-{JOB}-0-1-c000.snappy.parquet"])
    t.sees(there)
    yield t

    t = Case("marker-of-another-directory", "Without a descriptor, a marker speaks of its own directory only.")
    other = t.data(B)
    t.commit(B, [other])
    deep = t.data(A, "day=1")
    t.start(A)
    t.mark(f"_committed_{A}", {"added": [deep], "removed": []})
    t.refused("CorruptMarkerError")
    t.sees(other, deep, ignore_corrupt_markers=True)
    yield t

    for name, path in HOSTILE.items():
        t = Case(f"hostile-{name}", f"A marker that removes {path!r}.")
        other = t.data(B)
        t.commit(B, [other])
        t.start(A)
        t.mark(f"_committed_{A}", {"added": [], "removed": [path]})
        t.refused("CorruptMarkerError")
        t.sees(other, ignore_corrupt_markers=True)
        yield t


def no_table() -> Iterable[Case]:
    t = Case("nested-table", "A table of ours further down has rules of its own: refused.")
    t.file("a.parquet")
    t.put("lake/_dbio_table", descriptor())
    t.file("lake/b.parquet")
    t.refused("InvalidInputError")
    yield t

    t = Case("nothing", "No data file and no marker: there is no table.")
    t.put("_SUCCESS")
    t.refused("TableNotFoundError")
    yield t


def directory_scope_at_once() -> Iterable[Case]:
    t = Case("all-at-once", "Every rule in one partitioned directory.")
    one, two = "day=1", f"day={NULL}"
    seen = [t.data(A, one), t.data(A, two), t.file(f"{one}/copied.parquet"), t.data("11", two)]
    gone = [t.data("12", one), t.file(f"{two}/old.parquet")]
    t.data(A, one, attempt=5)
    t.data(B, one)
    t.data(B, two)
    t.start(B, one, two)
    t.mark(f"{two}/_committed_{B}", b"")
    t.commit(A, seen[:2], gone, start=False)
    t.mark(f"{one}/_committed_vacuum77", {"added": [], "removed": [f"_started_{B}", "_committed_vacuum77"]})
    t.put("_SUCCESS")
    t.put(f"{one}/.copied.parquet.crc.tmp", b"x")
    t.file("_temporary/0/part-00000.parquet")
    t.sees(*seen, by=["day"])
    yield t


HOSTILE = {
    "parent": "../outside.parquet",
    "absolute": "/etc/passwd",
    "nul": "a\0.parquet",
    "newline": "a\nb.parquet",
    "backslash": "..\\outside.parquet",
    "empty": "",
}

# --- table scope: PROTOCOL.md sections 6 and 8 --------------------------------------------------------------------

P, Q, R, S = (our_tid(hour) for hour in range(4))


def appends() -> Iterable[Case]:
    t = OurTable("append", "Two appends; a failed attempt of one. Flat, so a plain DBIO directory too.")
    one, two = t.data(P, attempt=3), t.data(Q)
    t.data(P, attempt=2)
    t.commit(P, [one])
    t.commit(Q, [two], start=False)
    t.sees(one, two)
    t.sees(one, as_of=P)
    t.sees(one, two, without_descriptor=True)
    yield t

    t = OurTable(
        "append-partitioned", "Null, escaped and other values; the log is at the root alone.", by=["day", "kind"]
    )
    places = [
        f"day=2025-03-01/kind={NULL}",
        "day=2025-03-01/kind=a%2Fb%3Ac",
        f"day={NULL}/kind=100%25 é",
    ]
    files = [t.data(P, place) for place in places]
    for place in places:
        t.data(P, place, attempt=1)
    t.commit(P, files)
    t.sees(*files)
    t.refused("CorruptMarkerError", without_descriptor=True)  # its paths are no names of one directory
    yield t


def turns() -> Iterable[Case]:
    t = OurTable("overwrite", "One commit adds the new files and removes all old ones.")
    old, new = [t.data(P), t.data(Q)], [t.data(R), t.data(R, task=1)]
    t.commit(P, old[:1])
    t.commit(Q, old[1:])
    t.put(f"_serial_{1:020d}", {"tid": R})
    t.commit(R, new, old, operation="overwrite", turn=1)
    t.sees(*new)
    t.sees(*old, as_of=Q)
    t.sees(*new, without_descriptor=True)
    yield t

    t = OurTable("replace-partitions", "A dynamic overwrite of one partition, in one marker at the root.", by=["day"])
    kept, replaced = t.data(P, "day=1"), t.data(P, "day=2")
    t.commit(P, [kept, replaced])
    new_one = t.data(Q, "day=2")
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.commit(Q, [new_one], [replaced], operation="replace_partitions", turn=1)
    t.sees(kept, new_one)
    t.sees(kept, replaced, as_of=P)
    yield t

    t = OurTable("rewrite", "Two small files become one.")
    small = [t.data(P), t.data(P, task=1), t.data(P, task=2)]
    t.commit(P, small)
    large = t.data(Q)
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.commit(Q, [large], small[:2], operation="rewrite", turn=1)
    t.sees(small[2], large)
    t.sees(small[2], large, without_descriptor=True)
    yield t


def undecided() -> Iterable[Case]:
    t = OurTable(
        "aborted", "The files of an aborted transaction are never seen (I1), also when its start marker is purged."
    )
    seen = t.data(P)
    t.commit(P, [seen])
    t.data(Q)
    t.abort(Q)
    t.data(R)
    t.abort(R, start=False)
    t.sees(seen)
    t.sees(seen, without_descriptor=True)
    yield t

    t = OurTable("pending", "Nor those of a pending one.")
    seen = t.data(P)
    t.commit(P, [seen])
    t.data(Q)
    t.start(Q)
    t.sees(seen)
    t.sees(seen, without_descriptor=True)
    yield t

    t = OurTable("pending-partitioned", "Nor those in a partition, where no marker lies.", by=["day"])
    seen = t.data(P, "day=1")
    t.commit(P, [seen])
    t.data(Q, "day=1")
    t.data(Q, "day=2")
    t.start(Q)
    t.sees(seen)
    yield t

    t = OurTable("turn-held", "A pending overwrite holds the turn: nothing has changed yet.")
    old = t.data(P)
    t.commit(P, [old])
    t.data(Q)
    t.start(Q)
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.sees(old)
    yield t

    t = OurTable(
        "unnamed", "A file that no commit names is never seen (I1): unknown tid, zombie, untracked.", by=["day"]
    )
    seen = t.data(P, "day=1")
    t.commit(P, [seen])
    t.data(S, "day=1")
    t.data(P, "day=1", attempt=99)
    t.file("day=1/copied-by-hand.parquet")
    t.file("day=3/copied-by-hand.parquet")
    t.sees(seen)
    yield t


def set_algebra() -> Iterable[Case]:
    t = OurTable("removed-is-removed", "live = all added - all removed, whichever commit came first.")
    gone, kept = t.data(Q), t.data(Q, task=1)
    new = t.data(P)
    t.commit(P, [new], [gone], operation="rewrite")
    t.commit(Q, [gone, kept])
    t.sees(new, kept)
    t.sees(gone, kept, as_of=Q)
    t.sees(new, kept, as_of=P)  # who removes what another adds came after it, whatever the times say
    t.sees(new, kept, without_descriptor=True)
    yield t

    t = OurTable("removed-unknown", "A removal of what was never added removes nothing else.")
    seen = t.data(P)
    t.commit(P, [seen], [f"part-00009-tid-{S}-{JOB}-0-9-c000.parquet"], operation="rewrite")
    t.sees(seen)
    yield t


def strangers() -> Iterable[Case]:
    t = OurTable("stranger-at-the-root", "Another DBIO writer, in our flat table: its markers are like ours.")
    ours = t.data(P)
    t.commit(P, [ours])
    theirs = t.data(A)
    t.data(A, attempt=4)
    Case.commit(t, A, [theirs])
    t.data(B)
    t.start(B)
    t.sees(ours, theirs)
    t.sees(ours, theirs, without_descriptor=True)
    yield t

    t = OurTable("stranger-overwrites", "Another DBIO writer removes our files by name.")
    ours = t.data(P)
    t.commit(P, [ours])
    theirs = t.data(A)
    Case.commit(t, A, [theirs], [ours])
    t.sees(theirs)
    t.sees(ours, as_of=P)
    t.sees(theirs, without_descriptor=True)
    yield t

    t = OurTable("stranger-in-a-partition", "Markers below the root decide nothing in a table of ours.", by=["day"])
    ours = t.data(P, "day=1")
    t.commit(P, [ours])
    theirs = t.data(A, "day=1")
    Case.commit(t, A, [theirs], [ours])
    t.put(f"day=1/_committed_{B}", b"no JSON")
    t.sees(ours)
    yield t


def time_travel() -> Iterable[Case]:
    t = OurTable("time-travel", "By the time of the commit, not by that of the start, which the tid tells.")
    late, early = t.data(P), t.data(Q)
    t.commit(Q, [early])  # 00:00
    t.commit(P, [late])  # 00:01, though it began first
    new = t.data(R)
    t.commit(R, [new], [early, late], operation="overwrite")  # 00:02
    t.abort(S)  # 00:03
    t.sees(new)
    t.sees(early, as_of=Q)
    t.sees(early, late, as_of=P)
    t.sees(new, as_of=R)
    t.sees(as_of="2025-02-28T23:59:59+00:00")
    t.sees(early, as_of="2025-03-01T00:00:00+00:00")
    t.sees(early, late, as_of="2025-03-01T01:01:59+01:00")
    t.sees(new, as_of="2025-03-01T00:02:00Z")
    t.refused("InvalidInputError", as_of="2025-03-01T00:02:00")
    t.refused("InvalidInputError", as_of=our_tid(9))
    t.refused("InvalidInputError", as_of="yesterday")
    yield t


def empty_tables() -> Iterable[Case]:
    t = OurTable("empty", "A descriptor and nothing else.")
    t.sees()
    yield t

    t = OurTable("empty-with-schema", "An empty transaction was committed: no file, but columns.", by=["day"])
    t.commit(P)
    t.sees()
    yield t

    t = OurTable("emptied", "Everything was deleted; what nobody committed since stays unseen.")
    old = t.data(P)
    t.commit(P, [old])
    t.commit(Q, [], [old], operation="overwrite", turn=1)
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.sees()
    t.sees(old, as_of=P)
    t.sees(without_descriptor=True)
    yield t


def broken_table() -> Iterable[Case]:
    t = OurTable("empty-commit-marker", "A zero-length commit marker counts as absent here too.")
    seen = t.data(P)
    t.commit(P, [seen])
    t.data(Q)
    t.start(Q)
    t.mark(f"_committed_{Q}", b"")
    t.sees(seen)
    t.sees(seen, without_descriptor=True)
    yield t

    t = OurTable("corrupt-marker", "An error; ignored, its transaction counts as pending.")
    seen = t.data(P)
    t.commit(P, [seen])
    t.data(Q)
    t.start(Q)
    t.mark(f"_committed_{Q}", b'{"added": ["part-')
    t.refused("CorruptMarkerError")
    t.sees(seen, ignore_corrupt_markers=True)
    yield t

    t = OurTable("unknown-keys", "Keys that we do not know are ignored, also within dbio_commit.")
    seen = t.data(P)
    t.commit(P, [seen], color="blue")
    t.put("_note", b"not a marker")
    t.sees(seen)
    yield t


def later_versions() -> Iterable[Case]:
    t = OurTable("checkpoint", "What a checkpoint covers, and a commit since; the markers are all there still.")
    old, new, since = t.data(P), t.data(Q), t.data(R)
    t.commit(P, [old])
    t.commit(Q, [new], [old], operation="overwrite", turn=1)
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.checkpoint(1, [t.line(P), t.line(Q)])
    t.commit(R, [since])
    t.put(f"_checkpoint_{Q}", b"of the draft, which had a tid there")
    t.sees(new, since)
    t.sees(new, as_of=Q)
    t.sees(old, as_of=P)
    t.sees(new, since, without_descriptor=True)
    yield t

    t = OurTable("later-version", "A descriptor of version 2.")
    t.put("_dbio_table", descriptor(version=2))
    t.commit(P, [t.data(P)])
    t.refused("UnsupportedTableError")
    t.refused("UnsupportedTableError", ignore_corrupt_markers=True)
    yield t

    t = OurTable("later-commit", "A commit marker of version 3: not corrupt, so it cannot be ignored.")
    t.commit(P, [t.data(P)], version=4)
    t.refused("UnsupportedTableError")
    t.refused("UnsupportedTableError", ignore_corrupt_markers=True)
    yield t

    t = OurTable("corrupt-descriptor", "Without its descriptor nobody knows the table's scope: nothing to ignore.")
    t.put("_dbio_table", b"{}")
    t.commit(P, [t.data(P)])
    t.refused("CorruptMarkerError")
    t.refused("CorruptMarkerError", ignore_corrupt_markers=True)
    yield t


def hostile_additions() -> Iterable[Case]:
    hidden = {"hidden-file": "_secret.parquet", "hidden-directory": "_temporary/a.parquet", "dot": "day=1/.a.parquet"}
    for name, path in {**HOSTILE, **hidden}.items():
        t = OurTable(f"hostile-{name}", f"A marker that adds {path!r}.")
        seen = t.data(P)
        t.commit(P, [seen])
        t.start(A)
        t.mark(f"_committed_{A}", {"added": [path], "removed": []})
        t.refused("CorruptMarkerError")
        t.sees(seen, ignore_corrupt_markers=True)
        yield t


def table_scope_at_once() -> Iterable[Case]:
    t = OurTable("all-at-once", "Every rule in one partitioned table.", by=["day"])
    one, two, three = "day=1", "day=2", f"day={NULL}"
    first = [t.data(P, place) for place in (one, two, three)]
    t.commit(P, first, start=False)
    t.data(Q, one)
    t.abort(Q)
    replaced = t.data(R, two)
    t.data(R, two, attempt=1)
    t.put(f"_serial_{1:020d}", {"tid": R})
    t.commit(R, [replaced], [first[1]], operation="replace_partitions", turn=1)
    t.data(S, three)
    t.start(S)
    t.put(f"_serial_{2:020d}", {"tid": S})
    t.file(f"{one}/copied.parquet")
    t.put(f"{one}/_committed_{A}", {"added": [], "removed": [first[0].rpartition("/")[2]]})
    t.put("_SUCCESS")
    t.file("_temporary/0/part-00000.parquet")
    t.sees(first[0], replaced, first[2])
    t.sees(*first, as_of=P)
    yield t


# --- checkpoints: PROTOCOL.md 7.4, 8.1 and 8.3 --------------------------------------------------------------------


def purged() -> Iterable[Case]:
    t = OurTable("checkpoint-purged", "The covered markers are purged, an abort's too; another commit, one pending.")
    old, new, since = t.data(P), t.data(Q), t.data(R)
    t.commit(P, [old])
    t.commit(Q, [new], [old], operation="overwrite", turn=1)
    t.put(f"_serial_{2:020d}", {"tid": Q})
    aborted = our_tid(5)
    t.abort(aborted)
    t.checkpoint(1, [t.line(P), t.line(Q), t.line(aborted)])
    t.purge(P, Q, aborted)
    t.commit(R, [since])
    t.data(S)
    t.start(S)
    t.sees(new, since)
    t.sees(old, as_of=P)
    t.sees(new, as_of=Q)
    t.sees(old, as_of="2025-03-01T00:00:59Z")
    t.sees(new, since, old, without_descriptor=True)  # until vacuum has deleted the old one
    yield t

    t = OurTable(
        "checkpoint-partitioned", "Null, escaped and other values; a partition is replaced since.", by=["day", "kind"]
    )
    places = [f"day=2025-03-01/kind={NULL}", "day=2025-03-01/kind=a%2Fb%3Ac", f"day={NULL}/kind=100%25 é"]
    files = [t.data(P, place) for place in places]
    t.commit(P, files)
    t.checkpoint(1, [t.line(P)])
    t.purge(P)
    replacing = t.data(Q, places[1])
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.commit(Q, [replacing], [files[1]], operation="replace_partitions", turn=1)
    t.sees(files[0], replacing, files[2])
    t.sees(*files, as_of=P)
    yield t


def which_checkpoint() -> Iterable[Case]:
    t = OurTable("checkpoint-stale", "Only the highest number counts; a late vacuum wrote the lower one.")
    old, kept, new = t.data(P), t.data(P, task=1), t.data(Q)
    t.commit(P, [old, kept])
    t.commit(Q, [new], [old], operation="rewrite", turn=1)
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.checkpoint(9, [t.line(P)])
    t.checkpoint(10, [t.line(P), t.line(Q)])
    t.purge(P, Q)
    t.vacuum(old)
    t.sees(kept, new)
    t.sees(kept, new, without_descriptor=True)
    yield t

    t = OurTable("checkpoint-late-marker", "A covered marker that turns up again is not read, whatever it says.")
    seen = t.data(P)
    t.commit(P, [seen])
    t.checkpoint(1, [t.line(P)])
    t.mark(f"_committed_{P}", b"no JSON")
    t.commit(Q, [], [])
    t.sees(seen)
    t.sees(seen, as_of=P)
    yield t


def condensed() -> Iterable[Case]:
    t = OurTable("checkpoint-condensed", "Vacuum has deleted what was removed: the past is told since then.")
    first, second, third, fourth = t.data(P), t.data(Q), t.data(Q, task=1), t.data(R)
    t.commit(P, [first])  # 00:00; nothing is left of it, and it is forgotten
    t.commit(Q, [second, third], [first], operation="rewrite", turn=1)  # 00:01
    t.commit(R, [fourth], [third], operation="rewrite", turn=2)  # 00:02; its file is still there
    t.put(f"_serial_{2:020d}", {"tid": R})
    lines = [without(t.line(Q), first), t.line(R)]
    t.checkpoint(1, lines, known_since=t.modified[f"_committed_{Q}"])
    t.purge(P, Q, R)
    t.vacuum(first)
    late = t.data(S)
    t.commit(S, [late])
    t.sees(second, fourth, late)
    t.sees(second, fourth, as_of=R)
    t.sees(second, third, as_of=Q)
    t.sees(second, third, as_of="2025-03-01T00:01:59Z")
    t.refused("InvalidInputError", as_of="2025-03-01T00:00:59Z")
    t.refused("InvalidInputError", as_of=P)
    yield t

    t = OurTable("checkpoint-condensed-at-once", "The state of the second 00:01 is incomplete, and so refused by tid.")
    first, second = t.data(P), t.data(P, task=1)
    t.commit(P, [first, second])
    t.commit(Q, [], [first], operation="rewrite", turn=1)
    t.modified[f"_committed_{Q}"] = t.modified[f"_committed_{P}"]
    t.put(f"_serial_{1:020d}", {"tid": Q})
    lines = [without(t.line(P), first), without(t.line(Q), first)]
    t.checkpoint(4, lines, known_since=t.modified[f"_committed_{Q}"])
    t.purge(P, Q)
    t.vacuum(first)
    t.sees(second)
    t.sees(second, as_of=Q)
    t.refused("InvalidInputError", as_of=P)
    yield t


def adopted() -> Iterable[Case]:
    t = OurTable(
        "adopted", "A directory of DBIO that was made a table: its markers decide nothing any more.", by=["day"]
    )
    one, two = "day=1", "day=2"
    old, kept, copied = t.data(A, one), t.data(A, two), t.file(f"{two}/copied.parquet")
    Case.commit(t, A, [old, kept])
    new = t.data(B, one)
    failed = t.data(B, one, attempt=8)
    Case.commit(t, B, [new], [old])
    visible = [new, kept, copied]
    t.checkpoint(1, [adoption(t, P, visible, [old, failed])], schemas=[], table_schema=None, known_since=ADOPTED)
    late = t.data(C, two)
    Case.commit(t, C, [late], [kept])
    t.sees(*visible)
    t.sees(*visible, as_of=P)
    t.refused("InvalidInputError", as_of=A)
    t.refused("InvalidInputError", as_of="2025-03-01T00:00:30Z")
    t.sees(new, copied, late, by=["day"], without_descriptor=True)
    yield t

    t = OurTable("adopted-flat", "At the root, markers from before are covered, and those since count.")
    old, new, copied = t.data(A), t.data(B), t.file("copied.parquet")
    Case.commit(t, A, [old])
    Case.commit(t, B, [new], [old])
    covered = [{"tid": tid, "modified": BEGAN.isoformat(), "marker": {"added": [], "removed": []}} for tid in (A, B)]
    lines = [*covered, adoption(t, P, [new, copied], [old])]
    t.checkpoint(1, lines, schemas=[], table_schema=None, known_since=ADOPTED)
    late = t.data(C)
    Case.commit(t, C, [late], [copied])
    ours = t.data(Q)
    t.commit(Q, [ours])
    t.modified |= {path: later(minutes) for minutes, path in enumerate((f"_committed_{C}", f"_committed_{Q}"))}
    t.sees(new, late, ours)
    t.sees(new, copied, as_of=P)
    t.sees(new, late, as_of=C)
    t.refused("InvalidInputError", as_of=A)
    t.refused("InvalidInputError", as_of=B)
    t.sees(new, late, ours, without_descriptor=True)
    yield t


ADOPTED = (BEGAN + timedelta(hours=1)).isoformat()


def later(minutes: int) -> str:
    return (BEGAN + timedelta(hours=2, minutes=minutes)).isoformat()


def adoption(t: OurTable, tid: str, visible: Sequence[str], hidden: Sequence[str]) -> dict[str, Any]:
    info = {
        "version": 1,
        "operation": "adopt",
        "commit_id": f"commit-of-{tid}",
        "timestamp": ADOPTED,
        "files": {
            "size": [len(parquet(t.ids[path])) for path in visible],
            "rows": [None] * len(visible),
            "partition": {name: [value_of(name, path) for path in visible] for name in t.by},
        },
    }
    marker = {"added": list(visible), "removed": list(hidden), "dbio_commit": info}
    return {"tid": tid, "modified": ADOPTED, "marker": marker}


def adopted_columns() -> Iterable[Case]:
    t = OurTable("adopted-columns", "An adoption recorded the columns, before any turn; an append knows them.")
    t.put("_dbio_table", {**descriptor(), "properties": {"adopted": P}})
    old, copied, new = t.data(A), t.file("copied.parquet"), t.data(Q)
    told = adoption(t, P, [old, copied], [])
    told["marker"]["dbio_commit"]["schema_turn"] = 0
    t.checkpoint(1, [{**told, "table_schema": 0}], known_since=ADOPTED)
    t.commit(Q, [new])
    t.modified[f"_committed_{Q}"] = later(1)
    t.sees(old, copied, new, columns=["id", "name"])
    t.sees(old, copied, as_of=P, columns=["id", "name"])
    yield t


def broken_checkpoints() -> Iterable[Case]:
    for name, about, error in (
        ("corrupt", "No gzip: what it covers is told nowhere else, so it cannot be ignored.", "CorruptMarkerError"),
        ("cut-off", "It breaks off.", "CorruptMarkerError"),
        ("later-version", "Of version 3.", "UnsupportedTableError"),
    ):
        t = OurTable(f"checkpoint-{name}", about)
        t.commit(P, [t.data(P)])
        t.checkpoint(1, [t.line(P)])
        bodies = {
            "corrupt": b"no gzip",
            "cut-off": t.objects[checkpoint(1)][:-9],
            "later-version": packed([{"version": 3, "rows": "somewhere else"}]),
        }
        t.put(checkpoint(1), bodies[name])
        t.refused(error)
        t.refused(error, ignore_corrupt_markers=True)
        yield t

    t = OurTable("checkpoint-hostile", "A checkpoint that adds a file outside the table.")
    t.commit(P, [t.data(P)])
    outside = t.line(P)
    outside["marker"]["added"] = ["../outside.parquet"]
    t.checkpoint(1, [outside])
    t.refused("CorruptMarkerError")
    t.refused("CorruptMarkerError", ignore_corrupt_markers=True)
    yield t

    t = OurTable("checkpoint-renamed", "A checkpoint that says that it is another one.")
    t.commit(P, [t.data(P)])
    t.checkpoint(2, [t.line(P)])
    t.put(checkpoint(1), t.objects.pop(checkpoint(2)))
    t.refused("CorruptMarkerError")
    yield t


def interrupted_adoption() -> Iterable[Case]:
    t = Case("checkpoint-without-descriptor", "Left by an adoption that was killed: there is no table of ours yet.")
    one, two = t.file("a.parquet"), t.file("b.parquet")
    info = {"version": 1, "operation": "adopt", "commit_id": f"commit-of-{P}", "timestamp": ADOPTED}
    line = {"tid": P, "modified": ADOPTED, "marker": {"added": [one], "removed": [], "dbio_commit": info}}
    header = {"version": 1, "number": 1, "created": ADOPTED, "commits": 1, "apps": {}, "schemas": [], "schema_turn": 0}
    t.put(checkpoint(1), packed([header, line]))
    t.sees(one, two)
    yield t


def foreign_files() -> Iterable[Case]:
    t = Case("foreign-files", "Only Parquet counts: by its suffix, or by its content where there is a tid.")
    mine, other = t.data(A), t.data(B)
    t.commit(A, [mine])
    shouted, unnamed = t.file("COPIED.PARQUET"), t.file(f"part-00000-tid-{C}-job-0-0-c000")
    for name in ("README.txt", "export.csv", "secret.key", f"part-00000-tid-{C}-job-0-0-c000.csv"):
        t.put(name, b"a,b and more")
    t.sees(mine, other, shouted, unnamed)
    yield t


def by_reference() -> Iterable[Case]:
    t = OurTable(
        "overwrite-by-reference", "A marker of version 2 names transactions, all of whose files go.", by=["day"]
    )
    old = [t.data(P, "day=1"), t.data(P, "day=2"), t.data(Q, "day=1")]
    t.commit(P, old[:2])
    t.commit(Q, old[2:])
    rewritten, new = t.data(R, "day=1"), t.data(S, "day=2")
    t.put(f"_serial_{1:020d}", {"tid": R})
    t.commit(R, [rewritten], old[:1], operation="rewrite", turn=1)
    t.put(f"_serial_{2:020d}", {"tid": S})
    t.commit(S, [new], operation="overwrite", turn=2, version=2, removed_tids=[P, Q, R])
    t.sees(new)
    t.sees(rewritten, *old[1:], as_of=R)
    t.sees(*old, as_of=Q)
    yield t

    t = OurTable("reference-beside-a-checkpoint", "Which keeps the reference to an append that it does not cover.")
    covered, late, new = t.data(P), t.data(Q), t.data(R)
    t.commit(P, [covered])
    t.commit(R, [new], operation="overwrite", turn=1, version=2, removed_tids=[P, Q])
    t.put(f"_serial_{1:020d}", {"tid": R})
    t.checkpoint(1, [t.line(P), t.line(R)])
    t.commit(Q, [late])
    t.sees(new)
    yield t

    t = OurTable("reference-of-version-1", "Who knows version 1 only would take the files for live: corrupt.")
    seen = t.data(P)
    t.commit(P, [seen])
    t.commit(Q, [], operation="overwrite", turn=1, removed_tids=[P])
    t.refused("CorruptMarkerError")
    t.sees(seen, ignore_corrupt_markers=True)
    yield t


def dropped() -> Iterable[Case]:
    t = OurTable("dropped", "A tombstone: there is no table, whatever is left of it.", by=["day"])
    old = t.data(P, "day=1")
    t.commit(P, [old])
    t.put("_dropped", {"version": 1, "everything": True, "created": ADOPTED})
    t.refused("TableNotFoundError")
    t.refused("TableNotFoundError", as_of=P)
    t.refused("TableNotFoundError", without_descriptor=True)
    yield t


def table_settings() -> Iterable[Case]:
    publish, more = {"publish": "delta"}, {"publish": "delta,spark", "of_a_later_version": "kept"}

    t = OurTable(
        "settings", "Those of the highest turn that tells any hold: not a late append's, nor an older writer's."
    )
    first, late, new = t.data(P), t.data(R), t.data(S)
    t.commit(P, [first])
    for turn, (tid, told) in enumerate({Q: publish, A: more}.items(), start=1):
        t.put(f"_serial_{turn:020d}", {"tid": tid})
        t.commit(tid, operation="rewrite", turn=turn, schema_turn=turn, settings=told)
    t.commit(R, [late], schema_turn=1, settings=publish)
    t.put(f"_serial_{3:020d}", {"tid": S})
    t.commit(S, [new], [first, late], operation="overwrite", turn=3, schema_turn=3)
    t.sees(new, settings=more)
    t.sees(first, late, as_of=R, settings=more)
    t.sees(first, as_of=Q, settings=publish)
    t.sees(first, as_of=P, settings={})
    yield t

    t = OurTable("settings-none-any-more", "An empty object says that there are none, whatever was told before.")
    seen = t.data(P)
    t.commit(P, [seen])
    for turn, (tid, told) in enumerate({Q: publish, R: {}}.items(), start=1):
        t.put(f"_serial_{turn:020d}", {"tid": tid})
        t.commit(tid, operation="rewrite", turn=turn, schema_turn=turn, settings=told)
    t.sees(seen, settings={})
    yield t

    t = OurTable("settings-in-a-checkpoint", "Its header tells them when it remembers no commit that did.")
    seen, late = t.data(P), t.data(R)
    t.commit(P, [seen])
    t.put(f"_serial_{2:020d}", {"tid": Q})
    t.checkpoint(1, [t.line(P)], schema_turn=2, settings=more)
    t.purge(P)
    t.commit(R, [late], schema_turn=1, settings=publish)
    t.sees(seen, late, settings=more)
    yield t

    t = OurTable("settings-too-long", "Longer than any that a writer writes: corrupt.")
    seen = t.data(P)
    t.commit(P, [seen])
    t.commit(Q, operation="rewrite", turn=1, schema_turn=1, settings={"publish": "x" * 4097})
    t.refused("CorruptMarkerError")
    t.sees(seen, ignore_corrupt_markers=True, settings={})
    yield t


def streams() -> Iterable[Case]:
    t = OurTable(
        "start-markers-with-bodies",
        "They tell for which application a transaction began; whatever they say, commit markers decide.",
    )
    first, done = t.data(P), t.data(A)
    t.commit(P, [first])
    bodies: dict[str, bytes | dict[str, Any]] = {Q: begun(6), R: b"rows", S: {"version": 2}, B: begun(7)}
    for tid, body in bodies.items():
        t.data(tid)
        t.put(f"_started_{tid}", body)
    t.put(f"_started_{A}", begun(7))
    t.put(f"_serial_{1:020d}", {"tid": A})
    t.commit(A, [done], start=False, turn=1, schema_turn=1, app={"id": "nightly", "version": 7})
    t.abort(B, start=False)
    t.sees(first, done, stream=[first, done])
    yield t

    t = OurTable("rows-that-stay", "A rewrite that changes no rows: readers see its files, streams pass over it.")
    first, second, whole, last = t.data(P), t.data(Q), t.data(R), t.data(S)
    t.commit(P, [first])
    t.commit(Q, [second])
    t.put(f"_serial_{1:020d}", {"tid": R})
    t.commit(R, [whole], [first, second], operation="rewrite", turn=1, schema_turn=1, data_change=False)
    t.commit(S, [last], schema_turn=1)
    t.sees(whole, last, stream=[first, second, last])
    t.sees(first, second, as_of=Q)
    yield t

    t = OurTable(
        "rows-that-may-change", "A rewrite that says nothing of it: a stream of what was appended stops there."
    )
    first, other = t.data(P), t.data(Q)
    t.commit(P, [first])
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.commit(Q, [other], [first], operation="rewrite", turn=1, schema_turn=1, data_change=True)
    t.sees(other, stream="ChangedRowsError")
    yield t


def provenances() -> Iterable[Case]:
    by = {"host": "etl-7", "user": "spark", "process": 4711, "software": "dbio-commit 0.1.0", "later": [1]}
    said = {**by, "message": "first\nload", "labels": {"team": "sales"}}
    long = {"host": "x" * 5000, "message": "\u202e" * 5000, "labels": {str(n) * 300: "x" * 300 for n in range(30)}}
    t = OurTable("provenance", "Who made a commit, in any length: a reader takes the files, whatever it says.")
    first, second, third = t.data(P), t.data(Q), t.data(R)
    t.put(f"_started_{P}", {"version": 1, "provenance": by, "job": JOB})
    t.commit(P, [first], start=False, provenance=said)
    t.commit(Q, [second], provenance=long)
    t.commit(R, [third], provenance={})
    t.sees(first, second, third, log=["append", "append", "append"])
    yield t


def rewrites() -> Iterable[Case]:
    def changed(name: str, about: str, **metrics: int) -> OurTable:
        """Of three files, the first was rewritten without its row, or with another, and the second went."""
        t = OurTable(name, about, by=["day"])
        old = [t.data(P, "day=1"), t.data(P, "day=1", task=1), t.data(P, "day=2")]
        t.commit(P, old)
        new = [t.data(Q, "day=1", task=task) for task in range(metrics["numFiles"])]
        t.put(f"_serial_{1:020d}", {"tid": Q})
        t.commit(Q, new, old[:2], operation="rewrite", turn=1, schema_turn=1, metrics=sizes(new) | metrics)
        t.sees(*new, old[2], stream="ChangedRowsError", log=[f"rewrite ({name.removeprefix('rows-')})", "append"])
        t.sees(*old, as_of=P)
        return t

    yield changed("rows-delete", "Rows for which a condition held have gone.", numFiles=0, numDeletedRows=2)
    yield changed(
        "rows-update",
        "Rows for which a condition held have other values.",
        numFiles=2,
        numUpdatedRows=1,
        numCopiedRows=1,
    )
    yield changed("rows-replace", "Others are there in their place.", numFiles=1, numDeletedRows=2, numInsertedRows=1)
    yield changed(
        "rows-merge",
        "Rows that a source matched have gone or have other values, and new ones have come.",
        numFiles=3,
        numTargetRowsInserted=2,
        numTargetRowsUpdated=1,
        numTargetRowsDeleted=1,
        numTargetRowsCopied=0,
    )

    t = OurTable("rows-told", "An update with change data: its change file, which it adds and removes, is never live.")
    first = t.data(P)
    t.commit(P, [first])
    new, changes = t.data(Q), t.file(f"cdc-00000-tid-{Q}-{JOB}-0-0-c000.snappy.parquet")
    t.put(f"_serial_{1:020d}", {"tid": Q})
    metrics = sizes([new]) | {"numUpdatedRows": 1, "numCopiedRows": 0}
    t.commit(Q, [new, changes], [first, changes], operation="rewrite", turn=1, schema_turn=1, metrics=metrics, whole=[])
    t.sees(new, stream="ChangedRowsError", log=["rewrite (update)", "append"])
    t.sees(first, as_of=P)
    yield t

    t = OurTable(
        "restored", "What was added since goes, what was removed comes back as a copy, and the rest stays.", by=["day"]
    )
    stays, comes_back = t.data(P, "day=1"), t.data(P, "day=2")
    t.commit(P, [stays, comes_back])
    goes = t.data(Q, "day=2")
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.commit(Q, [goes], [comes_back], operation="replace_partitions", turn=1, schema_turn=1)
    copied = t.copy(comes_back, R)
    t.put(f"_serial_{2:020d}", {"tid": R})
    metrics = {**sizes([copied]), "numRestoredFiles": 1}
    t.commit(R, [copied], [goes], operation="rewrite", turn=2, schema_turn=2, metrics=metrics)
    log = ["rewrite (restore)", "replace_partitions", "append"]
    t.sees(stays, copied, stream="ChangedRowsError", log=log)
    t.sees(stays, goes, as_of=Q)
    yield t

    t = OurTable("restored-columns", "They were others: an overwrite sets them, of copies of all files.")
    first = t.data(P)
    t.commit(P, [first])
    wider = t.data(Q)
    t.put(f"_serial_{1:020d}", {"tid": Q})
    t.commit(Q, [wider], columns=["id", "name", "more"], turn=1, schema_turn=1)
    copied = t.copy(first, R)
    t.put(f"_serial_{2:020d}", {"tid": R})
    metrics = {**sizes([copied]), "numRestoredFiles": 1}
    t.commit(R, [copied], [first, wider], operation="overwrite", turn=2, schema_turn=2, metrics=metrics)
    t.sees(copied, columns=["id", "name"], stream="ChangedRowsError", log=["overwrite (restore)", "append", "append"])
    t.sees(first, wider, as_of=Q, columns=["id", "name", "more"])
    yield t


def layouts() -> Iterable[Case]:
    by_kind, columns = {"partition_columns": '["kind"]'}, ("id", "name", "day")

    def changed(name: str, about: str) -> tuple[OurTable, str, str]:
        """By day first, then by kind."""
        t = OurTable(name, about, by=["day"])
        first, moved = t.data(P, "day=1"), t.data(Q, "kind=x")
        t.commit(P, [first], columns=("id", "name", "kind"))
        t.put(f"_serial_{1:020d}", {"tid": Q, "new_layout": True})
        t.commit(Q, [moved], [first], operation="overwrite", turn=1, schema_turn=1,
                 settings=by_kind, by=["kind"], columns=columns)  # fmt: skip
        return t, first, moved

    t, first, moved = changed(
        "partition-columns", "An overwrite has changed them; before it, they are the descriptor's."
    )
    more = t.data(R, "kind=__HIVE_DEFAULT_PARTITION__")
    t.commit(R, [more], schema_turn=1, settings=by_kind, by=["kind"], columns=columns)
    t.sees(moved, more, by=["kind"], settings=by_kind, stream="ChangedRowsError")
    t.sees(first, as_of=P)
    yield t

    t, _, moved = changed(
        "partition-columns-late-append", "No writer lets an append into those of before: corrupt (I10)."
    )
    late = t.data(R, "day=2")
    t.commit(R, [late], columns=("id", "name", "kind"))
    t.refused("CorruptMarkerError")
    t.sees(moved, as_of=Q, by=["kind"])
    yield t

    t, _, moved = changed("partition-columns-in-a-checkpoint", "Its header tells them when nothing else does.")
    schema = {"type": "struct", "fields": [column(name) for name in (*columns, "kind")]}
    t.checkpoint(1, [t.line(Q)], schemas=[schema], schema_turn=1, settings=by_kind)
    t.purge(P, Q)
    t.vacuum("day=1/" + next(path for path in t.ids if path.startswith("day=1/")).partition("/")[2])
    t.sees(moved, by=["kind"], settings=by_kind)
    yield t

    t = OurTable("partition-columns-hostile", "Columns that readers would skip: corrupt.", by=["day"])
    seen = t.data(P, "day=1")
    t.commit(P, [seen])
    t.commit(Q, operation="rewrite", turn=1, schema_turn=1, settings={"partition_columns": '["_a"]'})
    t.refused("CorruptMarkerError")
    t.sees(seen, ignore_corrupt_markers=True, settings={})
    yield t


def roots() -> Iterable[Case]:
    def covered(name: str, about: str) -> tuple[OurTable, list[str]]:
        t = OurTable(name, about, by=["day"])
        one, two, three = t.data(P, "day=1"), t.data(P, "day=2", task=1), t.data(Q, f"day={NULL}")
        t.commit(P, [one, two])
        t.commit(Q, [three], [one], operation="rewrite", turn=1, schema_turn=1)
        t.root(1, [P, Q])
        t.purge(P, Q)
        return t, [two, three]

    t, live = covered("root", "A checkpoint whose transactions are in parts, and a commit since.")
    since = t.data(R, "day=1")
    t.commit(R, [since])
    t.sees(*live, since)
    yield t

    for nth, kind in ((1, "files"), (2, "commits")):
        part = f"_part_{1:020d}-{nth:032x}"
        t, _ = covered(f"root-without-its-{kind}", "A part of the newest checkpoint is gone.")
        del t.objects[part]
        t.refused("CheckpointLostError")
        t.refused("CheckpointLostError", ignore_corrupt_markers=True)
        yield t

        t, _ = covered(f"root-with-damaged-{kind}", "A bit of a part is not as it was written.")
        body = bytearray(t.objects[part])
        body[100] ^= 1
        t.put(part, bytes(body))
        t.refused("CheckpointLostError")
        t.refused("CheckpointLostError", ignore_corrupt_markers=True)
        yield t

    t, _ = covered("root-of-a-later-version", "Its parts may be anything.")
    t.checkpoint(1, [], version=3, parts=[{"kind": "of later", "name": "_part_of_later"}])
    t.refused("UnsupportedTableError")
    t.refused("UnsupportedTableError", ignore_corrupt_markers=True)
    yield t


def sizes(added: Sequence[str]) -> dict[str, int]:
    """What any commit counts."""
    parts = {path.rpartition("/")[0] for path in added} - {""}
    return {"numFiles": len(added), "numOutputRows": len(added), "numParts": len(parts), "jobCommitTime": 40}


def begun(version: int) -> dict[str, Any]:
    return {"version": 1, "app": {"id": "nightly", "version": version}, "job": JOB}


DIRECTORY_SCOPE = [
    no_markers,
    commits,
    removals,
    local_names,
    broken_markers,
    marker_keys,
    partitions_and_names,
    overwrites,
    tids,
    hostile_removals,
    no_table,
    directory_scope_at_once,
    interrupted_adoption,
    foreign_files,
]


def clustered() -> Iterable[Case]:
    t = OurTable("clustered", "A compaction that names columns: a reader takes the files, whatever these are.")
    first, second, one, last = t.data(P), t.data(Q), t.data(R), t.data(S)
    t.commit(P, [first])
    t.commit(Q, [second])
    t.put(f"_serial_{1:020d}", {"tid": R})
    t.commit(
        R,
        [one],
        [first, second],
        operation="rewrite",
        turn=1,
        schema_turn=1,
        data_change=False,
        clustered=["id", "no such column", ""],
    )
    t.commit(S, [last], schema_turn=1, settings={"cluster_by": '["id", "no such column"]'})
    t.sees(one, last, stream=[first, second, last])
    t.sees(first, second, as_of=Q)
    yield t


def joint() -> Iterable[Case]:
    """What the death of a joint transaction's writer leaves in one of its tables (PROTOCOL.md 15)."""
    tid = f"{R}j"
    home = {"path": "../customers", "id": "0871"}
    tables = [home, {"path": ".", "id": "5b0d"}]

    def begun(name: str, description: str, *, home: dict[str, str] = home) -> tuple[OurTable, str, str]:
        t = OurTable(name, description)
        first, own = t.data(P), t.data(tid)
        t.commit(P, [first])
        t.put(f"_started_{tid}", {"version": 1, "takes_turn": True, "home": home, "job": JOB})
        t.put(f"_serial_{1:020d}", {"version": 2, "holder": tid, "tables": 2})
        return t, first, own

    t, first, _ = begun("joint-pending", "Its home may have decided: a reader of this table need not know that.")
    t.sees(first, stream=[first])
    yield t

    t, first, own = begun("joint-part", "Its home has decided, and the part is put here.")
    t.commit(tid, [own], turn=1, schema_turn=1, joint={"home": home, "tables": tables})
    t.sees(first, own, stream=[first, own])
    yield t

    here = {"path": ".", "id": "0871"}
    both = [here, {"path": "../orders", "id": "5b0d"}]
    part = {"id": "5b0d", "marker": {"added": [], "removed": []}}
    t, first, own = begun("joint-home", "A home has the parts of the others, which concern no reader.", home=here)
    t.commit(tid, [own], turn=1, schema_turn=1, version=3, joint={"home": here, "tables": both, "parts": [part]})
    t.sees(first, own, stream=[first, own])
    yield t

    t, _, own = begun("joint-home-without-parts", "What other tables commit is lost.", home=here)
    t.commit(tid, [own], turn=1, schema_turn=1, version=3, joint={"home": here, "tables": both})
    t.refused("CorruptMarkerError")
    yield t

    t, first, _ = begun("joint-aborted", "Its home has aborted it, and so has this table.")
    t.commit(tid, [], operation="abort")
    t.sees(first, stream=[first])
    yield t


TABLE_SCOPE = [
    appends,
    turns,
    undecided,
    set_algebra,
    strangers,
    time_travel,
    empty_tables,
    broken_table,
    later_versions,
    hostile_additions,
    table_scope_at_once,
    purged,
    which_checkpoint,
    condensed,
    adopted,
    broken_checkpoints,
    dropped,
    by_reference,
    table_settings,
    streams,
    rewrites,
    layouts,
    adopted_columns,
    roots,
    provenances,
    clustered,
    joint,
]


def generate(target: Path) -> None:
    """Writes every case below `target`, in place of those that are there."""
    for old in target.glob("[0-9][0-9]*-*"):
        shutil.rmtree(old)
    for first, groups in ((1, DIRECTORY_SCOPE), (51, TABLE_SCOPE)):
        for number, case in enumerate((case for group in groups for case in group()), start=first):
            case.save(target / f"{number:02d}-{case.name}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
