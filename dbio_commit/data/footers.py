"""Reads the footer of a file: its rows, statistics and columns, and whether all readers can read it.

This is for files that no dbio writer made: files of `new_file`, and those of a directory that is adopted. `physical`
knows what all readers can read, and `fitting` decides whether the columns fit a table.
"""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.data.chunks import check_chunks
from dbio_commit.data.known_footers import KnownFooters
from dbio_commit.data.parquet import MAGIC, ROW_METADATA, check_beginning, footer_bytes
from dbio_commit.data.physical import problems
from dbio_commit.data.variants import with_variants
from dbio_commit.protocol import names
from dbio_commit.protocol.field_ids import FieldIds
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.store import Store
from dbio_commit.store.contract import Tail

if TYPE_CHECKING:
    import pyarrow.parquet as pq


SPARK_VERSION = "org.apache.spark.version"
"""The key in a file's metadata with the version of the Spark that wrote it."""

_LEGACY = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
_NEW_CALENDAR = (3, 1)
"""From this version of Spark on, files without the keys above use the calendar that all others use."""
CALENDAR: Mapping[str, str] = {SPARK_VERSION: f"{_NEW_CALENDAR[0]}.{_NEW_CALENDAR[1]}.0"}
"""Metadata for a file that is written without Spark. Spark concludes from the version that days before 1582-10-15 and
instants before 1900 are in the calendar that all others use. Without a version, a setting of the session decides: by
default, Spark 3 refuses such values, and Spark 4 reads them as they are."""

_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 32 * 1024 * 1024


TAIL_BYTES = 64 * 1024
"""The last bytes of a file that are read first. Few footers are larger."""


_MOST_NAMED = 10
"""At most this many problems of one file are in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The facts about one file from its footer. Fields are None if the file is broken."""

    path: str
    size: int
    """The size of the file in bytes."""
    rows: int | None = None
    statistics: Mapping[str, Bounds] | None = None
    columns: Mapping[str, Any] | None = None
    """As Spark's JSON."""
    broken: str = ""
    """Why the file is no Parquet file; empty if it is one."""
    ids: FieldIds = FieldIds.NONE
    """Its field ids."""
    problems: Sequence[str] = ()
    """Problems in words: what some reader cannot read, or reads as something else."""

    @property
    def problem(self) -> str:
        """The first problems as text; empty if there are none."""
        more = len(self.problems) - _MOST_NAMED
        return "; ".join(self.problems[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")

    def refusal(self, where: str) -> str:
        """Why the file at this URL is refused, as text; empty if it is not."""
        if self.broken:
            return f"{where} is no Parquet file: {self.broken}"
        return f"not all readers can read {where}: {self.problem}" if self.problems else ""


Inspector = Callable[[Store, Sequence[str]], list[Footer | None]]
"""Reads the footers of new files before they are committed, by their paths; None for one that is absent.

Raises InvalidInputError for a file that cannot be committed.
"""


def inspect_files(store: Store, paths: Sequence[str]) -> list[Footer | None]:
    """The footers, in order. Raises InvalidInputError, with the file's name, for what not all readers can read;
    StoreError."""
    found = store.in_parallel(lambda path: look_at(store, path), paths)
    for footer in found:
        if footer is not None:
            refuse(footer, store.url_of(footer.path))
    return found


def refuse(footer: Footer, where: str) -> None:
    """Raises InvalidInputError for a new file that not all readers can read."""
    if refusal := footer.refusal(where):
        closed = "; close each file before you commit" if footer.broken else ""
        raise InvalidInputError(f"{refusal}. Nothing was committed, and the transaction is aborted{closed}")


def look_at(
    store: Store,
    path: str,
    *,
    statistics: bool = True,
    known: KnownFooters | None = None,
    bounds_of: Collection[str] = (),
) -> Footer | None:
    """The footer of a file, by one request, or by two if it is large; None if the file is absent. Raises StoreError.

    Without `statistics`, footers like those that are `known` take less time. A file that has one of the columns
    `bounds_of`, in any case, gets its statistics nevertheless.
    """
    try:
        size, end = store.get_tail(path, TAIL_BYTES)
        try:
            end = _with_footer(store, path, size, end)
            if not names.is_parquet(path):  # readers check both ends of such a file
                check_beginning(end if len(end) == size else store.get_range(path, 0, len(MAGIC)))
        except ValueError as error:
            return Footer(path=path, size=size, broken=str(error))
    except ObjectNotFoundError:
        return None
    if known is None or statistics:
        return parse_footer(end, path, size=size, statistics=statistics)
    if found := known.find(end):
        footer = Footer(path=path, size=size, rows=found.rows, columns=found.columns, ids=found.ids)
    else:
        footer = parse_footer(end, path, size=size, statistics=False)
        if footer.columns is not None:
            known.learn(end, footer.columns, footer.ids)
    wanted = {column.lower() for column in bounds_of}
    if wanted and footer.columns and any(it["name"].lower() in wanted for it in footer.columns["fields"]):
        return replace(footer, statistics=parse_footer(end, path, size=size).statistics)
    return footer


def read_end(store: Store, path: str) -> Tail:
    """The size of a file and its last bytes, with its whole footer, by one request, or by two if the footer is large.

    Raises ValueError if the file does not end as Parquet files do, ObjectNotFoundError, StoreError.
    """
    size, end = store.get_tail(path, TAIL_BYTES)
    return Tail(size, _with_footer(store, path, size, end))


def _with_footer(store: Store, path: str, size: int, end: bytes) -> bytes:
    wanted = footer_bytes(size, end)
    return end if wanted <= len(end) else store.get_range(path, size - wanted, wanted - len(end)) + end


def parse_footer(end: bytes, path: str, *, size: int, statistics: bool = True) -> Footer:
    """Parses the footer at the `end` of a file of `size` bytes."""
    import pyarrow as pa

    from dbio_commit.data.columns import file_schema, spark_schema
    from dbio_commit.data.field_ids import field_ids_in
    from dbio_commit.data.parquet_file import parquet_file

    try:
        found = check_chunks(end)  # before pyarrow: it ends the process if it does not know a chunk
        file = parquet_file(io.BytesIO(end))
        rows = file.metadata.num_rows
        found += problems(file)
        recorded = (file.metadata.metadata or {}).get(ROW_METADATA.encode())
        schema = file_schema(file)
        columns = None if found else with_variants(spark_schema(schema, where="it"), schema, recorded)
    except InvalidInputError as error:
        return Footer(path=path, size=size, problems=[str(error)])
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        return Footer(path=path, size=size, broken=f"{error!s:.200}")
    bounds = _statistics(file) if statistics and not found else None
    return Footer(
        path=path,
        size=size,
        rows=rows,
        statistics=bounds,
        columns=columns,
        ids=field_ids_in(schema, columns),
        problems=found,
    )


def _statistics(file: "pq.ParquetFile") -> Mapping[str, Bounds]:
    from dbio_commit.data.statistics import bounds, leaf_types

    footer, schema = file.metadata, file.schema_arrow  # here the old INT96 has nanoseconds, which have no bounds
    nulls: list[int | None] = []
    leaf = 0
    for field in schema:
        leaves = list(leaf_types(field.name, field.type))
        is_flat = len(leaves) == 1 and leaves[0][0] == field.name
        nulls.append(_nulls(footer, leaf) if is_flat else None)
        leaf += len(leaves)
    if leaf != footer.num_columns:  # Parquet stores some type otherwise than Arrow's schema suggests
        return {}
    found = bounds(schema, footer, nulls=nulls)
    return {field.name: found[field.name] if _is_recorded(field.type) else Bounds(nulls=found[field.name].nulls)
            for field in schema}  # fmt: skip


def _nulls(footer: "pq.FileMetaData", leaf: int) -> int | None:
    groups: list[Any] = [footer.row_group(i).column(leaf).statistics for i in range(footer.num_row_groups)]
    counts: list[int] = [group.null_count for group in groups if group is not None and group.has_null_count]
    return sum(counts) if len(counts) == len(groups) else None


def _is_recorded(kind: Any) -> bool:
    """Whether a footer's min and max of this type are bounds in the sense of PROTOCOL.md 7.3.

    A footer does not record NaN, and stores unsigned numbers as signed ones.
    """
    import pyarrow.types as types

    return not (types.is_floating(kind) or types.is_unsigned_integer(kind))


def spark_version(footer: "pq.FileMetaData") -> str | None:
    """The version of the Spark that wrote the file; None for other writers."""
    version = (footer.metadata or {}).get(SPARK_VERSION.encode())
    return None if version is None else version.decode(errors="replace")


def parse_version(text: str) -> tuple[int, ...]:
    """Major and minor number of a version, for comparison; 0 for a part that is no number."""
    parts = text.split(".")[:2]
    return tuple(int(part) if part.isdecimal() and part.isascii() else 0 for part in parts)


def has_old_calendar(footer: "pq.FileMetaData") -> bool:
    """Whether old days and instants may be in a calendar that only Spark's own reader converts."""
    version = spark_version(footer)
    return not _LEGACY.isdisjoint(footer.metadata or {}) or bool(version and parse_version(version) < _NEW_CALENDAR)


def rows_at_once(footer: "pq.FileMetaData") -> int:
    """How many rows to read at once, so that a batch is small, judged by the encoded size.

    Dictionaries hide the size that values have in memory. A batch is therefore never larger than a row group, which its
    writer had in memory, too.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size, most = sum(group.total_byte_size for group in groups), max((group.num_rows for group in groups), default=1)
    return max(1, min(_BATCH_ROWS, most, _BATCH_BYTES * footer.num_rows // max(size, 1)))
