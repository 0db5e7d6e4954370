"""Transactions as rows of parts, and back: Arrow tables of files, of their statistics, and of commits. No input or
output.

A row of a file says that one transaction added or removed one path, or that this is forgotten. The rows of all parts
are a set: which parts they are in, and in which order these are read, changes nothing.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from msgspec.structs import replace

from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.markers.bodies import decode_as, encode
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, bounds_in, columns_in
from dbio_commit.protocol.markers.files import AddedFiles, StoredBounds
from dbio_commit.protocol.markers.schema import NO_SCHEMA, check_schema
from dbio_commit.protocol.state import UNKNOWN_SIZE

_TEXTS: Any = pa.dictionary(pa.int32(), pa.string())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FILES = pa.schema(
    [
        ("directory", _TEXTS),
        ("name", pa.string()),
        ("tid", _TEXTS),  # the transaction that added or removed the path
        ("writer", _TEXTS),  # the tid in the name, "" if there is none; null if it is `tid`
        ("added", pa.int32()),  # the place of the path in `added` of the marker; null if it does not add it
        ("removed", pa.int32()),  # the same of `removed`
        ("size", pa.int64()),  # null if it is not known
        ("rows", pa.int64()),
        ("whole", pa.bool_()),  # whether `whole` of the marker names it
        ("gone", pa.bool_()),  # the path is forgotten, with all rows of the same path and tid
    ]
)

COMMITS = pa.schema(
    [
        ("tid", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        ("at", pa.timestamp("us", "UTC")),  # the commits are in the order of `at` and `rank`
        ("rank", pa.int64()),
        ("number", pa.int64()),  # the checkpoint of which this row is; of rows with one tid, the highest counts
        ("forgotten", pa.bool_()),  # whether the transaction is left out from this checkpoint on
        (
            "info",
            pa.string(),
        ),  # `dbio_commit` of the marker, without `schema`, `files` and `whole`; null if it has none
        ("schema", _TEXTS),
        ("has_files", pa.bool_()),
        ("has_whole", pa.bool_()),
        ("statistics_left_out", pa.bool_()),  # as the marker records under `files`
        ("columns", pa.list_(pa.string())),  # the columns with statistics, as the files spell them
        ("added", pa.int64()),  # how many rows of files, without change files, add a path
        ("removed", pa.int64()),  # how many rows of files remove one
        ("forgotten_added", pa.int64()),  # how many more paths were forgotten before there were parts
        ("forgotten_removed", pa.int64()),
    ]
)


def listed(values: Any) -> list[Any]:
    """The values of an array, as Python has them."""
    found: list[Any] = values.to_pylist()
    return found


class Key(NamedTuple):
    """The place of a commit among all that the parts hold."""

    at: int
    """In µs since 1970."""
    rank: int


class News(NamedTuple):
    """What one checkpoint adds to the parts of the one before it."""

    files: pa.Table
    statistics: pa.Table | None
    """With a row for each row of `files`."""
    commits: pa.Table
    moved: Mapping[str, Key]
    """Other transactions whose places change."""


class FileRow(NamedTuple):
    """A row of `FILES`."""

    directory: str
    name: str
    tid: str
    writer: str
    added: int | None = None
    removed: int | None = None
    size: int | None = None
    rows: int | None = None
    whole: bool = False
    gone: bool = False


# --- from transactions --------------------------------------------------------------------------------------------


def file_rows(commit: Decided) -> dict[str, FileRow]:
    """The rows of a commit, by path. Of a path that its marker repeats, the first counts."""
    marker, info = commit.marker, commit.marker.dbio_commit
    files = info.files if info else None
    whole = set(info.whole or ()) if info else ()
    found: dict[str, FileRow] = {}
    for place, path in enumerate(marker.added):
        if path not in found:
            row = _row(path, commit.tid)._replace(added=place, whole=path in whole)
            found[path] = row._replace(size=files.size[place], rows=files.rows[place]) if files else row
    for place, path in enumerate(marker.removed):
        row = found.get(path) or _row(path, commit.tid)._replace(whole=path in whole)
        if row.removed is None:
            found[path] = row._replace(removed=place)
    return found


def gone_row(path: str, tid: str) -> FileRow:
    """The row by which a path of a transaction is forgotten."""
    return _row(path, tid)._replace(gone=True)


def _row(path: str, tid: str) -> FileRow:
    directory, name = names.split(path)
    return FileRow(directory, name, tid, names.parse_data_file(name) or "")


def files_table(rows: Iterable[FileRow]) -> pa.Table:
    """The rows in the order of parts: by directory, writer, name and tid."""
    columns = list(zip(*sorted(rows, key=lambda it: (it.directory, it.writer, it.name, it.tid)), strict=True))
    found = FileRow(*(columns or [()] * len(FileRow._fields)))  # type: ignore[arg-type]
    writers = [None if tid == writer else writer for tid, writer in zip(found.tid, found.writer, strict=True)]
    told: Any = {**found._asdict(), "writer": writers}
    return pa.table({name: pa.array(told[name], FILES.field(name).type) for name in FILES.names}, schema=FILES)


def commits_table(commits: Iterable[tuple[Decided, Key, Mapping[str, FileRow]]], number: int) -> pa.Table:
    """The rows of commits, each with its place and its rows of files. `number` is that of the checkpoint."""
    rows = [_commit_row(commit, key, files, number) for commit, key, files in commits]
    return pa.Table.from_pylist(rows, COMMITS).sort_by([("at", "ascending"), ("rank", "ascending")])


def moved_commits(commits: pa.Table, moved: Mapping[str, Key], number: int) -> pa.Table:
    """The rows of transactions with other places."""
    found = []
    for row in commits.filter(pc.is_in(commits["tid"], value_set=pa.array([*moved], pa.string()))).to_pylist():
        key = moved[row["tid"]]
        found.append({**row, "at": _EPOCH + timedelta(microseconds=key.at), "rank": key.rank, "number": number})
    return pa.Table.from_pylist(found, COMMITS)


def forgotten_commits(tids: Iterable[str], number: int) -> pa.Table:
    """The rows by which transactions are left out from the checkpoint with this number on."""
    nothing = {"modified": _EPOCH, "at": _EPOCH, "rank": 0, "number": number, "forgotten": True}
    return pa.Table.from_pylist([{"tid": tid, **nothing} for tid in tids], COMMITS)


def _commit_row(commit: Decided, key: Key, files: Mapping[str, FileRow], number: int) -> dict[str, Any]:
    marker, info = commit.marker, commit.marker.dbio_commit
    plain = replace(info, schema=NO_SCHEMA, files=None, whole=None) if info else None
    return {
        "tid": commit.tid,
        "modified": commit.modified,
        "at": _EPOCH + timedelta(microseconds=key.at),
        "rank": key.rank,
        "number": number,
        "forgotten": False,
        "info": encode(plain).decode() if plain else None,
        "schema": bytes(info.schema).decode() if info and info.schema else None,
        "has_files": bool(info and info.files),
        "statistics_left_out": bool(info and info.files and info.files.statistics_left_out),
        "has_whole": bool(info and info.whole is not None),
        "columns": list(columns_in(marker)),
        "added": sum(row.added is not None and row.removed is None for row in files.values()),
        "removed": sum(row.removed is not None for row in files.values()),
        "forgotten_added": commit.forgotten.added,
        "forgotten_removed": commit.forgotten.removed,
    }


def statistics_table(files: pa.Table, commits: Iterable[Decided]) -> pa.Table | None:
    """The statistics of the files in these rows, as far as the commits record them; None if they record none."""
    told = {commit.tid: bounds for commit in commits if (bounds := bounds_in(commit.marker))}
    columns = list(dict.fromkeys(column for bounds in told.values() for column in bounds))
    places = [*zip(listed(files["tid"]), listed(files["added"]), strict=True)]
    found: dict[str, Any] = {}
    for column in columns:
        for fact in FACTS:
            each = {tid: getattr(bounds[column], fact) for tid, bounds in told.items() if column in bounds}
            values = [each[tid][at] if at is not None and tid in each else None for tid, at in places]
            for kind in dict.fromkeys(map(_kind, values)):
                if kind:
                    own: list[Any] = [it if _kind(it) == kind else None for it in values]
                    own = [it and str(it) for it in own] if kind == "big" else own
                    found[f"{fact}.{kind}.{column}"] = pa.array(own, KINDS[kind])
    return pa.table(found) if found else None


Fact = Literal["min", "max", "nulls"]
FACTS: Sequence[Fact] = ("min", "max", "nulls")

KINDS = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string(), "big": pa.string()}
"""The types of bounds. Each has a column of its own, since the bounds of a column may have had several types."""


def _kind(value: Any) -> str | None:
    """The type of a bound; None if nothing is bound. `big` is an integer of more than 64 bits, in decimal digits."""
    match value:
        case bool():
            return "bool"
        case int():
            return "int" if -(1 << 63) <= value < 1 << 63 else "big"
        case float():
            return "float"
        case str():
            return "text"
    return None


# --- to transactions ----------------------------------------------------------------------------------------------


def without_gone(files: pa.Table, *, keep_gone: bool) -> pa.Table:
    """The rows without those that are forgotten. `keep_gone` keeps the rows that say so, each once."""
    if not pc.any(files["gone"]).as_py():
        return files
    is_gone = files.filter(files["gone"])
    gone = set(zip(*(listed(is_gone[name]) for name in _IDENTITY), strict=True))
    may_be = pc.is_in(files["name"], value_set=is_gone["name"].combine_chunks())
    places = pc.indices_nonzero(may_be)
    some = files.take(places)
    lost: list[int] = []
    kept: set[tuple[Any, ...]] = set()
    for place, *key, says_so in zip(
        listed(places), *(listed(some[name]) for name in _IDENTITY), listed(some["gone"]), strict=True
    ):
        identity = tuple(key)
        if identity not in gone or (says_so and keep_gone and identity not in kept):
            kept.add(identity)
        else:
            lost.append(place)
    mask = pc.invert(pc.is_in(pa.array(range(files.num_rows), pa.int64()), value_set=pa.array(lost, pa.int64())))
    return files.filter(mask)


_IDENTITY = ("directory", "name", "tid")


def latest_commits(commits: pa.Table, *, keep_forgotten: bool) -> pa.Table:
    """Of rows with one tid, the one of the highest checkpoint. In their order, without forgotten ones."""
    newest: dict[str, tuple[int, int]] = {}
    for place, (tid, number) in enumerate(zip(listed(commits["tid"]), listed(commits["number"]), strict=True)):
        newest[tid] = max(newest.get(tid, (-1, -1)), (number, place))
    found = commits.take(pa.array(sorted(place for _, place in newest.values()), pa.int64()))
    if not keep_forgotten:
        found = found.filter(pc.invert(found["forgotten"]))
    return found.sort_by([("at", "ascending"), ("rank", "ascending"), ("tid", "ascending")])


def order_of(files: pa.Table) -> Any:
    """The indices of the rows in the order of parts: by directory, writer, name and tid."""
    ranks = [_ranks(files["directory"]), _ranks(_writers(files)), files["name"], _ranks(files["tid"])]
    table = pa.table(ranks, names=["directory", "writer", "name", "tid"])
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])


def _writers(files: pa.Table) -> Any:
    """The tid in each name, "" if there is none."""
    writer, tid = files["writer"].cast(pa.string()), files["tid"].cast(pa.string())
    return pc.coalesce(writer, tid).dictionary_encode()


def _ranks(column: Any) -> Any:
    """For each text its place among all texts of the column."""
    whole = dictionary(column.unify_dictionaries())
    texts = listed(whole.dictionary)
    rank = {text: i for i, text in enumerate(sorted(texts))}
    return pa.array([rank[text] for text in texts], pa.int32()).take(whole.indices)


class KeysOf(Sequence[Any]):
    """The keys of sorted rows of files."""

    def __init__(self, files: pa.Table) -> None:
        self._files = files

    def __len__(self) -> int:
        return self._files.num_rows

    def __getitem__(self, index: Any) -> Any:
        directory, tid, writer = (self._files[name][index].as_py() for name in ("directory", "tid", "writer"))
        return [directory, tid if writer is None else writer]

    def first_from(self, key: list[str]) -> int:
        """The first row whose key is not less."""
        return bisect_left(self, key)


class Slices(NamedTuple):
    """The rows of files, sorted by tid."""

    paths: list[str]
    directories: list[int]
    """For each path, the index of its directory in `partitions`."""
    partitions: list[names.Partition]
    added: list[int | None]
    removed: list[int | None]
    sizes: list[int | None]
    rows: list[int | None]
    whole: list[bool]
    places: Sequence[int]
    """Where each row is among all rows of the parts, to find its statistics."""
    ranges: Mapping[str, range]
    """The rows of each tid."""


def slices(files: pa.Table) -> Slices:
    """The rows, without those that are forgotten, sorted by the transactions that they are of."""
    files = files.append_column("place", pa.array(range(files.num_rows), pa.int64()))
    files = without_gone(files, keep_gone=False).unify_dictionaries().combine_chunks()
    if not files.num_rows:
        return Slices([], [], [], [], [], [], [], [], [], {})
    tids = dictionary(files["tid"])
    order = pc.sort_indices(
        pa.table([tids.indices, files["added"], files["removed"]], names=["tid", "added", "removed"]),
        sort_keys=[("tid", "ascending"), ("added", "ascending"), ("removed", "ascending")],
    )
    files = files.take(order)
    codes = tids.indices.take(order).to_pylist()
    directory = dictionary(files["directory"])
    texts = listed(directory.dictionary)
    return Slices(
        paths=listed(paths_of(files)),
        directories=listed(directory.indices),
        partitions=[names.parse_partition(text) for text in texts],
        added=listed(files["added"]),
        removed=listed(files["removed"]),
        sizes=listed(files["size"]),
        rows=listed(files["rows"]),
        whole=listed(files["whole"]),
        places=array("q", listed(files["place"])),
        ranges=_ranges(codes, listed(tids.dictionary)),
    )


def dictionary(column: Any) -> Any:
    """The column as one array with one dictionary."""
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def paths_of(files: pa.Table) -> Any:
    """The path of each row."""
    directory = dictionary(files["directory"])
    prefixes = [f"{text}/" if text else "" for text in listed(directory.dictionary)]
    join: Any = pc.binary_join_element_wise
    return join(pa.array(prefixes, pa.string()).take(directory.indices), files["name"].combine_chunks(), "")


def _ranges(codes: Sequence[int], tids: Sequence[str]) -> dict[str, range]:
    found: dict[str, range] = {}
    start = 0
    for place in range(1, len(codes) + 1):
        if place == len(codes) or codes[place] != codes[start]:
            found[tids[codes[start]]] = range(start, place)
            start = place
    return found


BoundsOf = Callable[[Sequence[str], Sequence[int]], StoredBounds]
"""The statistics of some columns, for the rows at some places among those of all parts."""


def decode_commits(commits: pa.Table, of: Slices, *, bounds: BoundsOf) -> list[Decided]:
    """The transactions in these rows, in their order. Raises ValueError for rows that no writer makes."""
    found: list[Decided] = []
    schemas: dict[str | None, Raw] = {None: NO_SCHEMA}
    for text in pc.unique(commits["schema"].cast(pa.string())).to_pylist():
        if text is not None:
            check_schema(text.encode(), where="a part")
    modified = commits.column_names.index("modified")
    commits = commits.set_column(modified, "modified", commits["modified"].cast(pa.int64()))
    for row in commits.to_pylist():
        if not names.is_tid(row["tid"]):
            raise ValueError(f"{row['tid'][:100]!r} is not a tid")
        rows = of.ranges.get(row["tid"], range(0))
        schema = schemas.setdefault(row["schema"], Raw((row["schema"] or "").encode()))
        found.append(_decode(row, rows, of, schema, bounds)._replace(place=len(found)))
    return found


def _decode(row: Mapping[str, Any], rows: range, of: Slices, schema: Raw, bounds: BoundsOf) -> Decided:
    tid = row["tid"]
    adds = [i for i in rows if of.added[i] is not None]
    removes = sorted((i for i in rows if of.removed[i] is not None), key=lambda i: of.removed[i] or 0)
    changes = sum(of.removed[i] is not None for i in adds)
    lost = Forgotten(
        row["forgotten_added"] + row["added"] - (len(adds) - changes),
        row["forgotten_removed"] + row["removed"] - len(removes),
    )
    if min(lost) < 0:
        raise ValueError(f"there are more paths of transaction {tid} than it added or removed")
    info: CommitInfo | None = None
    if row["info"] is not None:
        info = decode_as(CommitInfo, row["info"].encode())
        files = whole = None
        if row["has_files"]:
            files = AddedFiles(
                size=[_known(of.sizes[i]) for i in adds],
                rows=[of.rows[i] for i in adds],
                partition=_partition(of, adds),
                statistics_left_out=row["statistics_left_out"],
                statistics=_statistics(row["columns"] if adds else (), [of.places[i] for i in adds], bounds),
            )
        if row["has_whole"]:
            whole = [of.paths[i] for i in rows if of.whole[i]]
        info = replace(info, schema=schema, files=files, whole=whole)
    marker = CommitMarker(added=[of.paths[i] for i in adds], removed=[of.paths[i] for i in removes], dbio_commit=info)
    return Decided(_EPOCH + timedelta(microseconds=row["modified"]), tid, marker, lost)


def _statistics(columns: Sequence[str], places: Sequence[int], bounds: BoundsOf) -> Any:
    return bounds(columns, array("q", places)) if columns else Raw(b"{}")


def _known(size: int | None) -> int:
    return UNKNOWN_SIZE if size is None else size


def _partition(of: Slices, adds: Sequence[int]) -> dict[str, list[str | None]]:
    """The partition values of added files, which are those of their directories."""
    columns = of.partitions[of.directories[adds[0]]] if adds else ()
    return {column: [of.partitions[of.directories[i]].get(column) for i in adds] for column in columns}
