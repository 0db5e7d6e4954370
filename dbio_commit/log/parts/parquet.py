"""Encodes parts as Parquet files with checksums, and decodes them. No input or output.

A reader of files and commits checks the bytes of whole row groups, which the root describes. Statistics are read column
by column, and have the CRC-32 of each column chunk before their footer. So no reader takes changed bytes for a part.
Parquet's own checksums do not suffice: they leave out the headers of pages.

Footers and pages are checked before pyarrow reads them: damaged ones could crash pyarrow, or make it take gigabytes.
"""

import io
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbio_commit.data import pages
from dbio_commit.data.chunks import check_footer, decode_footer
from dbio_commit.data.parquet_file import parquet_file
from dbio_commit.log.parts.rows import FACTS, KINDS, KeysOf, beside, check_rows, listed
from dbio_commit.protocol.parts import Group, Key, Part, PartKind, Statistics

GROUP_ROWS = 65_536
"""The rows of a row group. A reader of one partition reads at least one group of each part."""

STATISTICS_ROWS = 32_768
"""The rows of a row group of statistics, which may have hundreds of columns."""

_MAGIC_BYTES = 8
"""The end of a Parquet file: the length of its footer, and four letters."""

_CRC_BYTES = 4

MOST_ROWS = 1024**2
"""No reader takes a row group with more rows."""

_MOST_VALUES = 64 * MOST_ROWS

_MOST_UNPACKED = 64 * 1024**2
_RATIO = 100
"""A row group of files or commits, or a column chunk of statistics, unpacks to at most `_MOST_UNPACKED` bytes, plus
`_RATIO` bytes for each of its bytes."""

_MOST_VALUE = 4 * 64 + 4
"""The bytes of the longest bound that dbio records: 64 characters, and their length."""

_PLAIN, _DICTIONARIES = 0, {2, 8}
_ENCODINGS = {_PLAIN, 3, 5, *_DICTIONARIES}
"""Parquet's numbers of the encodings that writers use: plain, run lengths, differences, dictionaries. In others, and in
a dictionary, few bytes may stand for very long texts, so texts are plain."""


def encode_part(
    tables: pa.Table | Iterable[pa.Table], *, kind: PartKind, name: str, since: int, until: int
) -> tuple[bytes, Part]:
    """The object of a part with these rows, and its description. The rows are sorted, also across the tables. The first
    table is not empty."""
    rest = iter([tables] if isinstance(tables, pa.Table) else tables)
    first = next(rest)
    sink = io.BytesIO()
    dictionaries: Any = [it.name for it in first.schema if pa.types.is_dictionary(it.type)]
    ends: list[tuple[Key, Key]] = []
    directories: list[list[str] | None] = []
    with pq.ParquetWriter(
        sink,
        first.schema,
        compression="zstd",
        use_dictionary=dictionaries,
        column_encoding=None if kind == "commits" else {"size": "DELTA_BINARY_PACKED"},
        write_statistics=["directory"] if kind == "files" else False,
        write_page_checksum=True,
    ) as writer:
        for some in _in_groups(chain([first], rest)):
            for group in _groups(some, dictionaries):
                writer.write_table(group)
                keys: Any = KeysOf(group) if kind == "files" else [[]]
                ends.append((keys[0], keys[len(keys) - 1]))
                directories.append(_directories(group) if kind == "files" else None)
    body = sink.getvalue()
    footer = pq.read_metadata(io.BytesIO(body))
    end = len(body) - footer.serialized_size - _MAGIC_BYTES
    starts = [_start(footer.row_group(i)) for i in range(footer.num_row_groups)]
    groups: list[Group] = []
    for i, (at, until_byte) in enumerate(zip(starts, [*starts[1:], end], strict=True)):
        crc, rows = zlib.crc32(memoryview(body)[at:until_byte]), footer.row_group(i).num_rows
        groups.append(
            Group(first=ends[i][0], rows=rows, at=at, bytes=until_byte - at, crc=crc, directories=directories[i])
        )
    part = Part(
        kind=kind,
        name=name,
        since=since,
        until=until,
        bytes=len(body),
        footer=len(body) - end,
        crc=zlib.crc32(memoryview(body)[end:]),
        groups=groups,
        last=ends[-1][1],
    )
    return body, part


def _in_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of `GROUP_ROWS`, the last of which may have fewer."""
    kept: list[pa.Table] = []
    count = 0
    for table in tables:
        kept.append(table)
        count += table.num_rows
        if count < GROUP_ROWS:
            continue
        joined = pa.concat_tables(kept)
        for start in range(0, count - count % GROUP_ROWS, GROUP_ROWS):
            yield joined.slice(start, GROUP_ROWS)
        count %= GROUP_ROWS
        kept = [joined.slice(joined.num_rows - count)]
    if count:
        yield pa.concat_tables(kept)


DIRECTORIES_BYTES = 16 * 1024
"""If the directories of a row group have more bytes together, the root does not list them."""


def _directories(table: pa.Table) -> list[str] | None:
    found = sorted(listed(pc.unique(table["directory"].cast(pa.string()))))
    return found if sum(len(it.encode()) + len('"",') for it in found) <= DIRECTORIES_BYTES else None


GROUP_BYTES = 32 * 1024**2
"""A row group of more than one row has at most so many bytes unpacked. So readers accept it, however small it is
packed."""


def _groups(table: pa.Table, dictionaries: Sequence[str]) -> Iterator[pa.Table]:
    """The rows as row groups: one, or more if it would have too many bytes."""
    group = _with_own_texts(table, dictionaries)
    if group.nbytes <= GROUP_BYTES or group.num_rows < 2:
        yield group
        return
    half = table.num_rows // 2
    yield from _groups(table.slice(0, half), dictionaries)
    yield from _groups(table.slice(half), dictionaries)


def _with_own_texts(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with dictionaries of only their own texts. Else each row group would have all texts of the table."""
    for name in columns:
        own = table[name].cast(pa.string()).dictionary_encode()
        table = table.set_column(table.column_names.index(name), table.schema.field(name), own)
    return table


def _start(group: Any) -> int:
    chunks = [group.column(i) for i in range(group.num_columns)]
    return min(int(it.dictionary_page_offset or it.data_page_offset) for it in chunks)


STATISTICS_BYTES = 256 * 1024**2
"""A row group of statistics with more than one row has at most so many bytes unpacked. With less, the footer of a wide
table, which each reader reads, would be larger than what it reads of the columns."""


def encode_statistics(tables: Iterator[pa.Table], *, name: str) -> tuple[bytes, Statistics]:
    """The object with these statistics, which have the same columns: a row group for each table, or more if readers
    would refuse it."""
    sink, writer = io.BytesIO(), None
    for table in tables:
        writer = writer or _statistics_writer(sink, table.schema)
        for group in _statistics_groups(table):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
        del table, group  # before the next one is made
        release()
    assert writer
    writer.close()
    with sink.getbuffer() as view:  # no copy: there may be hundreds of megabytes
        end = len(view) - _MAGIC_BYTES - int.from_bytes(view[-_MAGIC_BYTES:][:4], "little")
        own_footer = bytes(view[end:])
        sums = b"".join(_packed_crc(view[at:stop]) for group in pages.places(own_footer) for at, stop in group)
    footer = sums + own_footer
    sink.seek(end)
    sink.write(footer)
    body = sink.getvalue()
    return body, Statistics(name=name, bytes=len(body), footer=len(footer), crc=zlib.crc32(footer))


def _statistics_groups(table: pa.Table) -> Iterator[pa.Table]:
    """The rows as row groups: one, or more if it, or a column of it, would have too many bytes."""
    largest = max((column.nbytes for column in table.columns), default=0)
    if table.num_rows < 2 or (table.nbytes <= STATISTICS_BYTES and largest <= GROUP_BYTES):
        yield table
        return
    half = table.num_rows // 2
    yield from _statistics_groups(table.slice(0, half))
    yield from _statistics_groups(table.slice(half))


def _statistics_writer(sink: Any, schema: pa.Schema) -> Any:
    numbers: Any = [it.name for it in schema if not pa.types.is_string(it.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=numbers,
        write_statistics=False,  # no reader asks for the bounds of bounds, and each reads the whole footer
        write_page_checksum=True,
    )


def _packed_crc(chunk: memoryview | bytes) -> bytes:
    return zlib.crc32(chunk).to_bytes(_CRC_BYTES, "little")


# --- decode -------------------------------------------------------------------------------------------------------


class DamagedPart(ValueError):
    """The bytes of a part are not those that were written."""


def check(body: bytes | memoryview, *, crc: int, size: int, what: str) -> None:
    """Raises DamagedPart if these are not the bytes that the root describes."""
    if len(body) != size or zlib.crc32(body) != crc:
        raise DamagedPart(f"{what} is not as it was written")


def decode_groups(part: Part, footer: bytes, bodies: Mapping[int, bytes | memoryview], schema: pa.Schema) -> pa.Table:
    """The rows of some row groups, given by their numbers with their bytes, in order. Raises DamagedPart."""
    check(footer, crc=part.crc, size=part.footer, what="the footer")
    for i, body in bodies.items():
        check(body, crc=part.groups[i].crc, size=part.groups[i].bytes, what=f"row group {i}")
    pieces = Pieces(part.bytes, {part.groups[i].at: body for i, body in bodies.items()})
    _check_groups(footer, {i: (part.groups[i].at, body) for i, body in bodies.items()}, schema)
    with _damaged():
        parquet = parquet_file(pa.PythonFile(pieces), metadata=_open_footer(footer)[0])
        if [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)] != [
            group.rows for group in part.groups
        ]:
            raise DamagedPart("the row groups are not those that the root describes")
        names = [name for name in schema.names if name not in _LATER or name in parquet.schema_arrow.names]
        each = []
        for i in sorted(bodies):  # read at once, they would take twice as much memory
            each.append(parquet.read_row_group(i, columns=names, use_threads=False))
            pa.default_memory_pool().release_unused()
        table = pa.concat_tables(each)
        for i, field in enumerate(schema):
            if field.name not in names:
                table = table.add_column(i, field.name, pa.nulls(table.num_rows, field.type))
    if not table.schema.equals(schema):
        raise DamagedPart("the columns are not those of a part")
    try:
        check_rows(table, part.kind)
    except ValueError as error:
        raise DamagedPart(f"{error!s:.200}") from None
    return table


_LATER = {"first"}
"""Columns that parts of the first versions lack."""


def _required(schema: pa.Schema) -> set[str]:
    return {*schema.names} - _LATER


def _check_groups(footer: bytes, groups: Mapping[int, tuple[int, bytes | memoryview]], schema: pa.Schema) -> None:
    """Raises DamagedPart if pyarrow should not read these row groups, given by their places and bytes."""
    metadata, found = _open_footer(footer)
    with _damaged():
        columns = metadata.schema
        leaves = [columns.column(i).path.split(".")[0] for i in range(len(columns))]
        if not _required(schema) <= {*leaves} or not groups.keys() <= {*range(len(found))}:
            raise DamagedPart("the columns or row groups are not those of a part")
        for i, (start, body) in groups.items():
            if len(found[i]) != len(leaves):
                raise DamagedPart("the columns are not those of a part")
            _check_chunks(
                [
                    (body, at - start, stop - start, schema.field(name).type)
                    for name, (at, stop) in zip(leaves, found[i], strict=True)
                    if name in schema.names
                ]
            )


@lru_cache(maxsize=4)  # a reader of all row groups needs it for each of them
def _open_footer(footer: bytes) -> tuple[pq.FileMetaData, Sequence[Sequence[tuple[int, int]]]]:
    """The metadata in a footer, and (start, stop) of each column chunk of each row group.

    Raises DamagedPart for a footer that pyarrow cannot read, or that would end the process or fill memory.
    """
    with _damaged():
        decoded = decode_footer(footer)  # once, since a wide table has thousands of column chunks
        if problems := check_footer(decoded):
            raise DamagedPart(problems[0])
        found = pq.read_metadata(io.BytesIO(footer))
        schema = found.schema
        are_flat = [schema.column(i).max_repetition_level == 0 for i in range(found.num_columns)]
        for group in map(found.row_group, range(found.num_row_groups)):
            count = group.num_rows
            if not 0 <= count <= MOST_ROWS:
                raise DamagedPart(f"a row group has {count} rows, and at most {MOST_ROWS} are read")
            for i, is_flat in enumerate(are_flat):
                values = group.column(i).num_values
                if not 0 <= values <= _MOST_VALUES or (is_flat and values != count):
                    raise DamagedPart(f"a column has {values} values for {count} rows")
                if (size := group.column(i).total_uncompressed_size) < 0:
                    raise DamagedPart(f"a column has {size} bytes")
        return found, pages.places_in(decoded)


def _check_chunks(chunks: Sequence[tuple[bytes | memoryview, int, int, Any]]) -> int:
    """The unpacked size in bytes of column chunks, each given as (bytes, start, stop, type). Raises DamagedPart if that
    is more than any writer packs."""
    unpacked = packed = 0
    with _damaged():
        for body, at, stop, kind in chunks:
            measured = pages.measure_pages(body[max(at, 0) : stop] if at >= 0 else b"", 0, stop - at)
            is_text = pa.types.is_string(kind) or pa.types.is_list(kind)
            if not measured.encodings <= ({_PLAIN} if is_text else _ENCODINGS):
                raise DamagedPart("a column has an encoding that no writer uses")
            if measured.values > 2 * _MOST_VALUES:
                raise DamagedPart("a column has more values than any writer writes")
            unpacked, packed = unpacked + measured.unpacked_bytes, packed + stop - at
    if unpacked > _MOST_UNPACKED + _RATIO * packed:
        raise DamagedPart(f"{packed} bytes would unpack to {unpacked}, more than any writer packs")
    return unpacked


@contextmanager
def _damaged() -> Iterator[None]:
    try:
        yield
    except DamagedPart:
        raise
    except Exception as error:  # pyarrow may raise any error for bytes that are not Parquet
        raise DamagedPart(f"it cannot be read as Parquet: {error!s:.200}") from None


class OpenStatistics:
    """The statistics of a part, of which columns are read on demand.

    `fetch(start, size)` returns bytes of the object.
    """

    def __init__(self, statistics: Statistics, footer: bytes, fetch: Callable[[int, int], bytes]) -> None:
        check(footer, crc=statistics.crc, size=statistics.footer, what="the footer")
        self._get, self._size = fetch, statistics.bytes
        self._metadata, self._places = _open_footer(footer)
        with _damaged():
            self.schema = pq.read_schema(io.BytesIO(footer))
        self.columns: Sequence[str] = self.schema.names
        self._by_name = {name: j for j, name in enumerate(self.columns)}
        if any(len(group) != len(self.columns) for group in self._places):
            raise DamagedPart("the columns are not those of statistics")
        self._sums = footer[: -self._metadata.serialized_size - _MAGIC_BYTES]
        if len(self._sums) != _CRC_BYTES * len(self.columns) * len(self._places):
            raise DamagedPart("there are checksums for other columns")
        if not all(map(_is_fact, self.schema)):
            raise DamagedPart("the columns are not those of statistics")

    @property
    def group_rows(self) -> Sequence[int]:
        return [self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)]

    def unpacked_bytes(self, group: int, columns: Sequence[str] | None = None) -> int:
        """The size of a row group, or of some columns of it, unpacked, as its footer says."""
        return sum(self._sizes(group, self.columns if columns is None else columns))

    def _sizes(self, group: int, columns: Sequence[str]) -> list[int]:
        row_group = self._metadata.row_group(group)
        return [row_group.column(self._by_name[name]).total_uncompressed_size for name in columns]

    def read(self, columns: Sequence[str], group: int) -> pa.Table:
        """These columns of a row group. Raises DamagedPart."""
        self._refuse_many(columns, group)
        tables = [self._read(some, group) for some in self.batches(columns, group)]
        return beside(tables).select(list(columns))

    def batches(self, columns: Sequence[str], group: int) -> Iterator[list[str]]:
        """The columns, some at a time, so that those decoded together take little memory."""
        some: list[str] = []
        size = 0
        for column, more in zip(columns, self._sizes(group, columns), strict=True):
            if some and size + more > GROUP_BYTES:
                yield some
                some, size = [], 0
            some.append(column)
            size += more
        if some:
            yield some

    def _refuse_many(self, columns: Sequence[str], group: int) -> None:
        """Raises DamagedPart if the columns together unpack to more than any writer packs."""
        places = [self._places[group][self._by_name[column]] for column in columns]
        packed, rows = sum(stop - start for start, stop in places), self._metadata.row_group(group).num_rows
        most = max(2 * STATISTICS_BYTES, _MOST_UNPACKED + _RATIO * packed, rows * len(columns) * _MOST_VALUE)
        if (unpacked := self.unpacked_bytes(group, columns)) > most:
            raise DamagedPart(f"{packed} bytes would unpack to {unpacked}, more than any writer packs")

    def _read(self, columns: Sequence[str], group: int) -> pa.Table:
        wanted = _with_prefixes(self.columns, {*columns})
        pieces = self._fetch([(group, j) for j in wanted])
        with _damaged():
            parquet = parquet_file(pa.PythonFile(Pieces(self._size, pieces)), metadata=self._metadata)
            table = parquet.read_row_groups([group], columns=list(columns), use_threads=False).select(list(columns))
            table.validate(full=True)
            for name in columns:
                if name.split(".", 2)[1] == "big" and not _are_whole(table[name]):
                    raise DamagedPart(f"column {name!r:.200} has a text that is no whole number")
            return table

    def _fetch(self, chunks: Sequence[tuple[int, int]]) -> Mapping[int, memoryview]:
        """The bytes of chunks (row group, column), by their starts. One request fetches chunks that are near."""
        runs: list[tuple[int, int]] = []
        for start, stop in sorted(self._places[i][j] for i, j in chunks):
            if not 0 <= start <= stop <= self._size:
                raise DamagedPart("a column lies outside of the object")
            if runs and start - runs[-1][1] <= _HOLE_BYTES and stop - runs[-1][0] <= _RUN_BYTES:
                runs[-1] = runs[-1][0], max(stop, runs[-1][1])
            else:
                runs.append((start, stop))
        found: dict[int, memoryview] = {}
        for start, stop in runs:
            found[start] = memoryview(self._get(start, stop - start))
        for i, j in chunks:
            at, stop = self._places[i][j]
            run = max(start for start in found if start <= at)
            body = found[run][at - run : stop - run]
            place = _CRC_BYTES * (i * len(self.columns) + j)
            if len(body) != stop - at or _packed_crc(body) != self._sums[place : place + _CRC_BYTES]:
                raise DamagedPart(f"column {self.columns[j]!r:.200} is not as it was written")
            size = _check_chunks([(body, 0, stop - at, self.schema.field(j).type)])
            if size > self._metadata.row_group(i).column(j).total_uncompressed_size:
                raise DamagedPart(f"column {self.columns[j]!r:.200} unpacks to more than its footer says")
        return found


def _is_fact(field: Any) -> bool:
    """Whether this is a column of statistics."""
    fact, _, rest = field.name.partition(".")
    kind, dot, _ = rest.partition(".")
    kinds = ("int",) if fact == "nulls" else KINDS
    return bool(fact in FACTS and kind in kinds and dot and field.type == KINDS[kind])


def _are_whole(texts: Any) -> bool:
    """Whether all texts, also none, are whole numbers that Python reads."""
    length_of: Any = pc.binary_length
    are_digits = pc.all(pc.match_substring_regex(texts, "^-?[0-9]+$")).as_py()
    return are_digits is not False and (pc.max(length_of(texts)).as_py() or 0) < _MOST_DIGITS


_MOST_DIGITS = 4000
"""A whole number has fewer characters than this."""

_HOLE_BYTES, _RUN_BYTES = 64 * 1024, 32 * 1024**2
"""One request fetches chunks with at most `_HOLE_BYTES` between them, and at most `_RUN_BYTES` in all."""


def _with_prefixes(names: Sequence[str], wanted: Collection[str]) -> list[int]:
    """The columns that pyarrow reads for these names. It also reads columns whose names continue one after a dot."""

    def prefixes(name: str) -> Iterator[str]:
        components = name.split(".")
        return (".".join(components[:count]) for count in range(1, len(components) + 1))

    return [i for i, name in enumerate(names) if any(it in wanted for it in prefixes(name))]


# --- a file of which only some bytes were fetched -------------------------------------------------------------------


class Pieces(io.RawIOBase):
    """A file with only some byte ranges, given by their offsets. Reading any other byte raises OSError."""

    def __init__(self, size: int, pieces: Mapping[int, bytes | memoryview]) -> None:
        self._size, self._at = size, 0
        self._pieces = sorted((at, memoryview(body)) for at, body in pieces.items())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        found = list[memoryview]()
        while self._at < end:
            start, body = next(
                ((at, it) for at, it in self._pieces if at <= self._at < at + len(it)), (0, memoryview(b""))
            )
            if not body:
                raise OSError(f"byte {self._at} was not fetched")
            piece = body[self._at - start : end - start]
            found.append(piece)
            self._at += len(piece)
        return b"".join(found)


# --- memory ---------------------------------------------------------------------------------------------------------


def release() -> None:
    """Returns freed memory to the operating system. Otherwise the process would keep it for a while.

    The system's pool also returns the memory of large Python objects.
    """
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()
