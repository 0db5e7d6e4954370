"""Converts transactions to rows of parts, and back: Arrow tables of files, of their statistics, and of commits. Pure.

A row of a file says that one transaction added or removed one path, or that this is forgotten. The rows of all parts
are a set: the order in which parts are read, and the part that a row is in, change nothing.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from msgspec.structs import replace

from dbio_commit.base.clock import FIRST_YEAR, LAST_YEAR
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.markers.bodies import decode_as, encode
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, bounds_in, columns_in
from dbio_commit.protocol.markers.files import AddedFiles, StoredBounds
from dbio_commit.protocol.markers.schema import NO_SCHEMA, check_schema
from dbio_commit.protocol.parts import PartKind
from dbio_commit.protocol.state import UNKNOWN_SIZE

_TEXTS: Any = pa.dictionary(pa.int32(), pa.string())
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FILES = pa.schema(
    [
        ("directory", _TEXTS),
        ("name", pa.string()),
        ("tid", _TEXTS),  # the transaction that added or removed the path
        ("writer", _TEXTS),  # the tid in the name, "" if there is none; null if it is `tid`
        ("added", pa.int32()),  # the place of the path in `added` of the marker; null if it does not add it
        ("removed", pa.int32()),  # its place in `removed`; null if it does not remove it
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
        ("first", pa.int64()),  # the checkpoint that covered the transaction first; null if that is not known
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


_KNOWN: Mapping[PartKind, Collection[str]] = {
    "files": ("directory", "name", "tid", "whole", "gone"),
    "commits": ("tid", "modified", "at", "rank", "number", "forgotten"),
}
"""Columns without nulls."""

_KNOWN_OF_COUNTED = (
    *("has_files", "has_whole", "statistics_left_out", "columns"),
    *("added", "removed", "forgotten_added", "forgotten_removed"),
)
"""Columns of commits without nulls in the rows of transactions that are not forgotten."""

_CLOCKS = [round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (FIRST_YEAR, LAST_YEAR + 1)]
"""The first valid time, and the first one that is too late, in µs since 1970."""


def check_rows(table: pa.Table, kind: PartKind) -> None:
    """Raises ValueError for values that no writer writes into the columns of a part."""
    table.validate(full=True)  # pyarrow reads texts that are not UTF-8
    known: list[Any] = table.select(_KNOWN[kind]).columns
    if kind == "commits":
        counted = table.filter(pc.invert(table["forgotten"]))
        known += [*counted.select(_KNOWN_OF_COUNTED).columns, pc.list_flatten(counted["columns"])]
    if any(column.null_count for column in known):
        raise ValueError("a value is missing")
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and name != "rank" and (pc.min(column).as_py() or 0) < 0:
            raise ValueError(f"a number of {name} is below 0")
        if pa.types.is_timestamp(column.type):
            found: Any = pc.min_max(column.cast(pa.int64())).as_py()  # a scalar of a time would import pandas
            if found["min"] is not None and not _CLOCKS[0] <= found["min"] <= found["max"] < _CLOCKS[1]:
                raise ValueError(f"a time of {name} is of no clock")


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows. `Schema.empty_table` would import pandas, which takes 0.5 s and 60 MB."""
    return pa.Table.from_batches([], schema)


def listed(values: Any) -> list[Any]:
    """The values of an array, as Python has them."""
    found: list[Any] = values.to_pylist()
    return found


def places_in(mask: Any) -> Any:
    """The indices at which the mask is true. Before PyArrow 26, `indices_nonzero` crashes if the mask has no chunks."""
    return pc.indices_nonzero(mask) if len(mask) else pa.nulls(0, pa.uint64())


class Key(NamedTuple):
    """The place of a commit among all that the parts hold."""

    at: int
    """In µs since 1970."""
    rank: int


class News(NamedTuple):
    """The rows that one checkpoint adds to the parts of the one before it."""

    files: pa.Table
    statistics: pa.Table | None
    """The statistics, with a row for each row of `files`; None if there are none."""
    commits: pa.Table
    moved: Mapping[str, Key]
    """The new places of other transactions, by tid."""


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


class Counts(NamedTuple):
    """How many rows of files a commit has."""

    added: int
    """Rows that add a path, without change files."""
    removed: int
    """Rows that remove one."""


# --- from transactions --------------------------------------------------------------------------------------------


def file_rows(commit: Decided) -> dict[str, FileRow]:
    """The rows of a commit, by path. If its marker repeats a path, the first counts."""
    marker, info = commit.marker, commit.marker.dbio_commit
    files = info.files if info else None
    whole = set(info.whole or ()) if info else ()
    found: dict[str, FileRow] = {}
    for place, path in enumerate(marker.added):
        if path not in found:
            size, rows = (files.size[place], files.rows[place]) if files else (None, None)
            found[path] = FileRow(*_name_of(path, commit.tid), place, None, size, rows, path in whole)
    for place, path in enumerate(marker.removed):
        row = found.get(path) or FileRow(*_name_of(path, commit.tid), whole=path in whole)
        if row.removed is None:
            found[path] = row._replace(removed=place)
    return found


def gone_row(path: str, tid: str) -> FileRow:
    """The row that marks a path of a transaction as forgotten."""
    return FileRow(*_name_of(path, tid), gone=True)


def _name_of(path: str, tid: str) -> tuple[str, str, str, str]:
    """The first four columns of a row."""
    directory, name = names.split(path)
    return directory, name, tid, names.parse_data_file(name) or ""


def files_table(rows: Iterable[FileRow]) -> pa.Table:
    """The rows in the order of parts: by directory, writer, name and tid."""
    left = iter(rows)
    each = [empty(FILES)]
    while some := [*islice(left, _AT_ONCE)]:
        each.append(_in_columns(some))
    table = pa.concat_tables(each).unify_dictionaries()
    return table.take(order_of(table))


def _in_columns(rows: Sequence[FileRow]) -> pa.Table:
    found = FileRow(*zip(*rows, strict=True))  # type: ignore[arg-type]
    writers = [None if tid == writer else writer for tid, writer in zip(found.tid, found.writer, strict=True)]
    columns: Any = {**found._asdict(), "writer": writers}
    return pa.table({name: pa.array(columns[name], FILES.field(name).type) for name in FILES.names}, schema=FILES)


def commits_table(
    commits: Iterable[tuple[Decided, Key, Counts]], number: int, firsts: Mapping[str, int | None]
) -> pa.Table:
    """The rows of commits, which are given with their places and counts. `number` is the checkpoint's.

    `firsts` has the number of the first checkpoint that covered a transaction, if it is not this one.
    """
    rows = [
        {**_commit_row(commit, key, counts), "number": number, "first": firsts.get(commit.tid, number)}
        for commit, key, counts in commits
    ]
    return pa.Table.from_pylist(rows, COMMITS).sort_by([("at", "ascending"), ("rank", "ascending")])


def moved_commits(commits: pa.Table, moved: Mapping[str, Key], number: int) -> pa.Table:
    """New rows of the transactions in `moved`, with their new places."""
    found = []
    for row in commits.filter(pc.is_in(commits["tid"], value_set=pa.array([*moved], pa.string()))).to_pylist():
        key = moved[row["tid"]]
        found.append({**row, "at": EPOCH + timedelta(microseconds=key.at), "rank": key.rank, "number": number})
    return pa.Table.from_pylist(found, COMMITS)


def forgotten_commits(tids: Iterable[str], number: int) -> pa.Table:
    """The rows that leave out transactions from the checkpoint with this number on."""
    nothing = {"modified": EPOCH, "at": EPOCH, "rank": 0, "number": number, "first": number, "forgotten": True}
    return pa.Table.from_pylist([{"tid": tid, **nothing} for tid in tids], COMMITS)


def counts_of(commit: Decided, files: Mapping[str, FileRow]) -> Counts:
    """How many of these rows of a commit add a path, and how many remove one."""
    marker = commit.marker
    return Counts(
        sum(row.added is not None and not _is_change(row, marker) for row in files.values()),
        sum(row.removed is not None for row in files.values()),
    )


def _commit_row(commit: Decided, key: Key, counts: Counts) -> dict[str, Any]:
    marker, info = commit.marker, commit.marker.dbio_commit
    return {
        "tid": commit.tid,
        "modified": commit.modified,
        "at": EPOCH + timedelta(microseconds=key.at),
        "rank": key.rank,
        "forgotten": False,
        "info": info_text(commit),
        "schema": bytes(info.schema).decode() if info and info.schema else None,
        "has_files": bool(info and info.files),
        "statistics_left_out": bool(info and info.files and info.files.statistics_left_out),
        "has_whole": bool(info and info.whole is not None),
        "columns": list(columns_in(marker)),
        **counts._asdict(),
        "forgotten_added": commit.forgotten.added,
        "forgotten_removed": commit.forgotten.removed,
    }


def info_text(commit: Decided) -> str | None:
    """`dbio_commit` of the marker as JSON, without what is in other columns or rows; None if the marker has none."""
    info = commit.marker.dbio_commit
    return encode(replace(info, schema=NO_SCHEMA, files=None, whole=None)).decode() if info else None


def _is_change(row: FileRow, marker: CommitMarker) -> bool:
    """Whether it is the row of a change file."""
    return row.added is not None and row.removed is not None and marker.is_recorded


def statistics_table(files: pa.Table, commits: Iterable[Decided]) -> pa.Table | None:
    """The statistics of the files in these rows, by what the commits record; None if they record none."""
    by_tid = {commit.tid: bounds for commit in commits if (bounds := bounds_in(commit.marker))}
    if not by_tid:
        return None
    columns = list(dict.fromkeys(column for bounds in by_tid.values() for column in bounds))
    places = [*zip(listed(files["tid"]), listed(files["added"]), strict=True)]
    found: dict[str, Any] = {}
    for column in columns:
        for fact in FACTS:
            each = {tid: getattr(bounds[column], fact) for tid, bounds in by_tid.items() if column in bounds}
            values = [each[tid][at] if at is not None and tid in each else None for tid, at in places]
            for kind, own in _by_kind(values).items():
                found[f"{fact}.{kind}.{column}"] = pa.array(own, KINDS[kind])
    return pa.table(found) if found else None


Fact = Literal["min", "max", "nulls"]
FACTS: Sequence[Fact] = ("min", "max", "nulls")

KINDS = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string(), "big": pa.string()}
"""The types of bounds. Each has a column of its own, since the bounds of a column may have had several types."""


def _by_kind(values: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
    """For each kind of `KINDS` the values, with None in the places of values of other kinds."""
    types = {*map(type, values)} - {type(None)}
    if len(types) == 1:  # as almost always
        known = [it for it in values if it is not None]
        ends = {_kind(min(known)), _kind(max(known))} if types == {int} else {_kind(known[0])}
        kind = ends.pop()
        if kind not in (None, "big") and not ends:
            return {kind: values}
    kinds = [*map(_kind, values)]
    found: dict[str, list[Any]] = {}
    for kind in dict.fromkeys(it for it in kinds if it):
        own = [value if it == kind else None for value, it in zip(values, kinds, strict=True)]
        found[kind] = [None if it is None else str(it) for it in own] if kind == "big" else own
    return found


def _kind(value: Any) -> str | None:
    """The kind of a bound; None if there is no bound. `big` is an integer of more than 64 bits, in decimal digits."""
    kind = _KINDS_OF.get(type(value))
    return "big" if kind == "int" and not -(1 << 63) <= value < 1 << 63 else kind


_KINDS_OF: Mapping[type, str] = {bool: "bool", int: "int", float: "float", str: "text"}


# --- to transactions ----------------------------------------------------------------------------------------------


def beside(tables: Sequence[pa.Table]) -> pa.Table:
    """The columns of all tables, which have the same rows."""
    found = tables[0]
    for table in tables[1:]:
        for field in table.schema:
            found = found.append_column(field, table[field.name])
    return found


def has_gone(files: pa.Table) -> bool:
    """Whether a row says that a path is forgotten."""
    return bool(pc.any(files["gone"]).as_py())


def without_gone(files: pa.Table, *, keep_gone: bool) -> pa.Table:
    """The rows without forgotten ones. `keep_gone` keeps the rows that mark paths as forgotten, each once."""
    if not has_gone(files):
        return files
    is_gone = files.filter(files["gone"])
    gone = set(zip(*(listed(is_gone[name]) for name in _IDENTITY), strict=True))
    may_be = pc.is_in(files["name"], value_set=joined(is_gone["name"]))
    places = places_in(may_be)
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
    return files.filter(pc.invert(pc.is_in(numbers(range(files.num_rows)), value_set=numbers(lost))))


_IDENTITY = ("directory", "name", "tid")


def latest_commits(commits: pa.Table, *, keep_forgotten: bool) -> pa.Table:
    """The row of the highest checkpoint for each tid, sorted by place. `keep_forgotten` keeps forgotten ones.

    Rows may be large, and are not copied if most are sorted already.
    """
    chosen = numbers(range(commits.num_rows))
    if len({*listed(commits["tid"])}) < commits.num_rows:
        newest: dict[str, tuple[int, int]] = {}
        for place, (tid, number) in enumerate(zip(listed(commits["tid"]), listed(commits["number"]), strict=True)):
            newest[tid] = max(newest.get(tid, (-1, -1)), (number, place))
        chosen = numbers(sorted(place for _, place in newest.values()))
    if not keep_forgotten:
        chosen = chosen.filter(pc.invert(commits["forgotten"].combine_chunks().take(chosen)))
    keys = commits.select(["at", "rank", "tid"]).take(chosen)
    chosen = chosen.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))
    return _rows_at(commits, chosen)


def _rows_at(table: pa.Table, places: Any) -> pa.Table:
    """The rows at these places. They are not copied if they are in few runs of neighbours."""
    each = listed(places)
    starts = [0, *(i for i, (one, other) in enumerate(pairwise(each), start=1) if other != one + 1), len(each)]
    if not each or (len(starts) > _MOST_RUNS and table.nbytes <= _MOST_TAKEN_BYTES):
        return table.take(places)
    return pa.concat_tables([table.slice(each[start], end - start) for start, end in pairwise(starts)])


_MOST_RUNS = 100
"""Columns of more pieces are slow."""

_MOST_TAKEN_BYTES = 1024**3
"""Arrow cannot take rows of a column with more than 2 GiB of texts: 70,000 commits that list 1,000 columns each."""


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
        """The number of the first row whose key is not less."""
        return bisect_left(self, key)


def located(files: pa.Table, part: int, *, first: int = 0) -> pa.Table:
    """The rows with two more columns: the number of their part, and the number of each in its part, from `first` on."""
    files = files.append_column("part", numbers([part] * files.num_rows))
    return files.append_column("place", numbers(range(first, first + files.num_rows)))


def together(tables: Iterable[pa.Table]) -> pa.Table:
    """Located rows in one table, also if there are none."""
    return pa.concat_tables([located(empty(FILES), 0), *tables])


def is_among(column: Any, wanted: Collection[str]) -> Any:
    """For each text of the column whether it is one of these."""
    whole = dictionary(column)
    return numbers(text in wanted for text in listed(whole.dictionary)).cast(pa.bool_()).take(whole.indices)


class Slices:
    """The rows of files, sorted by transaction and by their places in its marker. -1 stands for null."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.partitions = Partitions(())
        """The partitions of the directories, by their numbers."""
        self.directories = array("i")
        """For each path, the number of its directory."""
        self.added = array("i")
        self.removed = array("i")
        self.sizes = array("q")
        self.rows = array("q")
        self.whole = array("b")
        self.parts = array("q")
        """For each row, the number of its part, to find its statistics."""
        self.places = array("q")
        """The number of each row in its part."""
        self.ranges: dict[str, range] = {}
        """The rows of each tid. Those that add a path come first."""


class Partitions:
    """The partition values of directories, which are given by their numbers."""

    def __init__(self, directories: Iterable[str]) -> None:
        self._each = [names.parse_partition(directory) for directory in directories]
        self._values: dict[str, list[str | None]] = {}

    def values(self, directories: Sequence[int]) -> dict[str, list[str | None]]:
        """For each partition column of the first directory its value in each of these directories."""
        columns = self._each[directories[0]] if directories else ()
        return {column: [*map(self._of(column).__getitem__, directories)] for column in columns}

    def _of(self, column: str) -> list[str | None]:
        if column not in self._values:
            self._values[column] = [it.get(column) for it in self._each]
        return self._values[column]


def slices(files: pa.Table) -> Slices:
    """The rows, which are `located`, without forgotten ones, sorted by transaction."""
    files = without_gone(files, keep_gone=False).unify_dictionaries()
    found = Slices()
    if not files.num_rows:
        return found
    directories = _texts_in(files["directory"])
    found.partitions = Partitions(directories)
    paths: list[str] = []
    for start in range(0, files.num_rows, _AT_ONCE):  # since each text is in memory twice, for Arrow and for Python
        paths += listed(paths_of(files.slice(start, _AT_ONCE)))
    files = files.drop_columns(["name"])
    keys = files.select(["tid", "added", "removed"]).set_column(0, "tid", _codes(files["tid"]))
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    files = files.take(order)
    found.paths = [*map(paths.__getitem__, integers(order.cast(pa.int64())))]
    found.directories = integers(_codes(files["directory"]))
    found.added, found.removed = integers(files["added"]), integers(files["removed"])
    found.sizes, found.rows = integers(files["size"]), integers(files["rows"])
    found.whole = integers(files["whole"].cast(pa.int8()))
    found.parts, found.places = integers(files["part"]), integers(files["place"])
    tids, codes = _texts_in(files["tid"]), integers(_codes(files["tid"]))
    start = 0
    while start < len(codes):
        stop = bisect_right(codes, codes[start], lo=start)
        found.ranges[tids[codes[start]]] = range(start, stop)
        start = stop
    return found


def _texts_in(column: Any) -> list[str]:
    """The dictionary, which all chunks share."""
    return listed(column.chunk(0).dictionary)


def _codes(column: Any) -> Any:
    """The places of the texts in the dictionary."""
    return pa.chunked_array([chunk.indices for chunk in column.chunks])


_AT_ONCE = 16_384
"""How many rows of files are made Python values at a time."""

_NULL = UNKNOWN_SIZE
"""Stands for null among integers that are never negative."""


def numbers(values: Iterable[int]) -> Any:
    """An Arrow array of integers. `pa.array` would import pandas, which takes 0.5 s and 60 MB."""
    body = array("q", values.astype(np.int64).tobytes() if isinstance(values, np.ndarray) else values)
    return pa.Array.from_buffers(pa.int64(), len(body), [None, pa.py_buffer(body)])


def texts(values: Iterable[str]) -> Any:
    """An Arrow array of texts, made without pandas as in `numbers`."""
    each = [text.encode() for text in values]
    ends = array("i", accumulate(map(len, each), initial=0))
    return pa.Array.from_buffers(pa.string(), len(each), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(each))])


def integers(values: Any) -> "array[int]":
    """The integers of an Arrow array, with -1 for null."""
    values = joined(values) if isinstance(values, pa.ChunkedArray) else values
    values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
    values = values.fill_null(numbers([_NULL])[0].cast(values.type))
    found = array({8: "b", 32: "i", 64: "q"}[values.type.bit_width])
    body = memoryview(values.buffers()[1])
    found.frombytes(body[values.offset * found.itemsize :][: len(values) * found.itemsize])
    return found


def dictionary(column: Any) -> Any:
    """The column as one array with one dictionary."""
    found = joined(column)
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def joined(column: Any) -> Any:
    """The column as one array. pyarrow's own function would import pandas for a column without chunks."""
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def paths_of(files: pa.Table) -> Any:
    """The path of each row."""
    directory = dictionary(files["directory"])
    prefixes = texts([f"{text}/" if text else "" for text in listed(directory.dictionary)])
    join: Any = pc.binary_join_element_wise
    return join(prefixes.take(directory.indices), joined(files["name"]), texts([""])[0])


def body_of(texts: Any) -> bytes:
    """The texts of an Arrow array without nulls, in UTF-8, one directly after the other."""
    if not len(texts):
        return b""
    ends = memoryview(texts.buffers()[1]).cast("i")
    return bytes(memoryview(texts.buffers()[2])[ends[texts.offset] : ends[texts.offset + len(texts)]])


def of_paths(files: pa.Table, paths: Collection[str]) -> pa.Table:
    """The rows of these paths."""
    files = files.filter(pc.is_in(files["name"], value_set=texts({names.split(path)[1] for path in paths})))
    return files.filter(numbers(path in paths for path in listed(paths_of(files))).cast(pa.bool_()))


BoundsOf = Callable[[Sequence[str], Sequence[int], Sequence[int]], StoredBounds]
"""The statistics of some columns, for rows that are given by the numbers of their parts and by their places in them."""


class CommitRow(NamedTuple):
    """A row of `COMMITS`, decoded: a transaction without its files and without its place."""

    tid: str
    modified: datetime
    info: CommitInfo | None
    added: int
    """How many rows of files add a path, without change files."""
    removed: int
    """How many rows of files remove one."""
    forgotten: Forgotten
    """How many more paths were forgotten before there were parts."""
    has_files: bool
    has_whole: bool
    statistics_left_out: bool
    columns: Sequence[str]


def commit_rows(commits: pa.Table) -> list[CommitRow]:
    """The decoded rows. Raises ValueError for rows that no writer makes."""
    found: list[CommitRow] = []
    schemas: dict[str | None, Raw] = {None: NO_SCHEMA}
    columns: dict[tuple[str, ...], tuple[str, ...]] = {}
    for text in pc.unique(commits["schema"].cast(pa.string())).to_pylist():
        if text is not None:
            check_schema(text.encode(), where="a part")
    modified = commits.column_names.index("modified")
    commits = commits.set_column(modified, "modified", commits["modified"].cast(pa.int64()))
    for row in commits.drop_columns(["at", "rank", "number", "first", "forgotten"]).to_pylist():
        if not names.is_tid(row["tid"]):
            raise ValueError(f"{row['tid'][:100]!r} is not a tid")
        schema = schemas.get(row["schema"])
        if schema is None:
            schema = schemas[row["schema"]] = Raw(row["schema"].encode())
        info = None
        if row["info"] is not None:
            info = replace(decode_as(CommitInfo, row["info"].encode()), schema=schema, files=None, whole=None)
        each = tuple(row["columns"])
        found.append(
            CommitRow(
                tid=row["tid"],
                modified=EPOCH + timedelta(microseconds=row["modified"]),
                info=info,
                added=row["added"],
                removed=row["removed"],
                forgotten=Forgotten(row["forgotten_added"], row["forgotten_removed"]),
                has_files=row["has_files"],
                has_whole=row["has_whole"],
                statistics_left_out=row["statistics_left_out"],
                columns=columns.setdefault(each, each),
            )
        )
    return found


def decode_commits(commits: Iterable[CommitRow], of: Slices, *, bounds: BoundsOf) -> list[Decided]:
    """The transactions in these rows, in their order. Raises ValueError for rows that no writer makes."""
    return [_decode(row, of, bounds)._replace(place=place) for place, row in enumerate(commits)]


def _decode(row: CommitRow, of: Slices, bounds: BoundsOf) -> Decided:
    rows = of.ranges.get(row.tid, range(0))
    removes: list[int] = []
    if max(of.removed[rows.start : rows.stop], default=_NULL) != _NULL:
        # Paths that were removed by reference have the same place.
        removes = sorted((i for i in rows if of.removed[i] != _NULL), key=lambda i: (of.removed[i], of.paths[i]))
    adds = slice(rows.start, rows.stop - of.added[rows.start : rows.stop].count(_NULL))
    added = of.paths[adds]
    changes = sum(i < adds.stop for i in removes) if row.has_whole else 0
    lost = Forgotten(
        row.forgotten.added + row.added - (len(added) - changes),
        row.forgotten.removed + row.removed - len(removes),
    )
    if min(lost) < 0:
        raise ValueError(f"there are more paths of transaction {row.tid} than it added or removed")
    info = row.info
    if info is not None and (row.has_files or row.has_whole):
        files = whole = None
        if row.has_files:
            files = AddedFiles(
                size=of.sizes[adds],
                rows=_known(of.rows[adds]),
                partition=of.partitions.values(of.directories[adds]),
                statistics_left_out=row.statistics_left_out,
                statistics=_statistics(row.columns if added else (), of.parts[adds], of.places[adds], bounds),
            )
        if row.has_whole:
            whole = [of.paths[i] for i in rows if of.whole[i]]
        info = replace(info, files=files, whole=whole)
    marker = CommitMarker(added=added, removed=[of.paths[i] for i in removes], dbio_commit=info)
    return Decided(row.modified, row.tid, marker, lost)


def _statistics(columns: Sequence[str], parts: Sequence[int], places: Sequence[int], bounds: BoundsOf) -> Any:
    return bounds(columns, parts, places) if columns else Raw(b"{}")


def _known(numbers: Sequence[int]) -> Sequence[int | None]:
    return [None if it == _NULL else it for it in numbers] if _NULL in numbers else numbers
