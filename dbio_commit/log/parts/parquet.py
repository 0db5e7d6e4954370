"""The Parquet files of parts: bytes with checksums, and back. No input or output.

A reader of files and commits checks the bytes of whole row groups, which the root describes. Statistics are read column
by column, so their pages have checksums. A part that was changed on its way is never read as another one.
"""

import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbio_commit.log.parts.rows import KeysOf, listed
from dbio_commit.protocol.parts import Group, Part, PartKind, Statistics

GROUP_ROWS = 65_536
"""The rows of a row group. A reader of one partition reads at least one group of each part."""

STATISTICS_ROWS = 32_768
"""The rows of a row group of statistics, which may have hundreds of columns."""

_MAGIC_BYTES = 8
"""The end of a Parquet file: the length of its footer, and four letters."""


def encode_part(table: pa.Table, *, kind: PartKind, name: str, since: int, until: int) -> tuple[bytes, Part]:
    """The object of a part with these rows, which are sorted, and its description."""
    sink = io.BytesIO()
    dictionaries: Any = [it.name for it in table.schema if pa.types.is_dictionary(it.type)]
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        use_dictionary=dictionaries,
        column_encoding=None if kind == "commits" else {"size": "DELTA_BINARY_PACKED"},
        write_statistics=["directory"] if kind == "files" else False,
        write_page_checksum=True,
    ) as writer:
        for start in range(0, table.num_rows, GROUP_ROWS):
            writer.write_table(_with_own_texts(table.slice(start, GROUP_ROWS), dictionaries))
    body = sink.getvalue()
    footer = pq.read_metadata(io.BytesIO(body))
    end = len(body) - footer.serialized_size - _MAGIC_BYTES
    starts = [_start(footer.row_group(i)) for i in range(footer.num_row_groups)]
    keys: Any = KeysOf(table) if kind == "files" else [[]] * table.num_rows
    groups: list[Group] = []
    row = 0
    for i, (at, until_byte) in enumerate(zip(starts, [*starts[1:], end], strict=True)):
        crc, rows = zlib.crc32(memoryview(body)[at:until_byte]), footer.row_group(i).num_rows
        directories = _directories(table.slice(row, rows)) if kind == "files" else None
        groups.append(Group(first=keys[row], rows=rows, at=at, bytes=until_byte - at, crc=crc, directories=directories))
        row += rows
    part = Part(
        kind=kind,
        name=name,
        since=since,
        until=until,
        bytes=len(body),
        footer=len(body) - end,
        crc=zlib.crc32(memoryview(body)[end:]),
        groups=groups,
        last=keys[row - 1],
    )
    return body, part


def _with_own_texts(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with dictionaries of the texts that occur in them: each row group would have all texts of the table."""
    for name in columns:
        own = table[name].cast(pa.string()).dictionary_encode()
        table = table.set_column(table.column_names.index(name), table.schema.field(name), own)
    return table


MOST_DIRECTORIES = 4096
"""If a row group has files in more directories, the root does not list them."""


def _directories(table: pa.Table) -> list[str] | None:
    found = sorted(listed(pc.unique(table["directory"].cast(pa.string()))))
    return found if len(found) <= MOST_DIRECTORIES else None


def _start(group: Any) -> int:
    chunks = [group.column(i) for i in range(group.num_columns)]
    return min(int(it.dictionary_page_offset or it.data_page_offset) for it in chunks)


def encode_statistics(tables: Iterator[pa.Table], *, name: str) -> tuple[bytes, Statistics]:
    """The object with these statistics, which have the same columns, a row group for each table."""
    sink, writer = io.BytesIO(), None
    for table in tables:
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd", write_page_checksum=True)
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    assert writer
    writer.close()
    body = sink.getvalue()
    footer = pq.read_metadata(io.BytesIO(body)).serialized_size + _MAGIC_BYTES
    return body, Statistics(name=name, bytes=len(body), footer=footer, crc=zlib.crc32(memoryview(body)[-footer:]))


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
    with _damaged():
        parquet = pq.ParquetFile(pa.PythonFile(pieces), metadata=pq.read_metadata(io.BytesIO(footer)))
        if [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)] != [
            group.rows for group in part.groups
        ]:
            raise DamagedPart("the row groups are not those that the root describes")
        each = [parquet.read_row_group(i, columns=schema.names, use_threads=False) for i in sorted(bodies)]
        table = pa.concat_tables(each)  # read at once, they would take twice as much memory
    if not table.schema.equals(schema):
        raise DamagedPart("the columns are not those of a part")
    return table


@contextmanager
def _damaged() -> Iterator[None]:
    try:
        yield
    except DamagedPart:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DamagedPart(f"it cannot be read as Parquet: {error!s:.200}") from None


class OpenStatistics:
    """The statistics of a part, of which columns are read when they are needed. `source` is the whole object."""

    def __init__(self, statistics: Statistics, footer: bytes, source: Any) -> None:
        check(footer, crc=statistics.crc, size=statistics.footer, what="the footer")
        with _damaged():
            self._parquet = pq.ParquetFile(
                source, metadata=pq.read_metadata(io.BytesIO(footer)), page_checksum_verification=True, pre_buffer=True
            )
        self.schema = self._parquet.schema_arrow
        self.columns: Sequence[str] = self.schema.names

    @property
    def group_rows(self) -> Sequence[int]:
        footer = self._parquet.metadata
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    def read(self, columns: Sequence[str], group: int | None = None) -> pa.Table:
        """These columns, of all rows or of one row group. Raises DamagedPart."""
        groups = range(self._parquet.metadata.num_row_groups) if group is None else [group]
        with _damaged():
            return self._parquet.read_row_groups(list(groups), columns=list(columns), use_threads=False)


class Pieces(io.RawIOBase):
    """A file of which only some pieces are known, by their places. Reading anything else is an error."""

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
