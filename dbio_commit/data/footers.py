"""What the footer of a new file tells: whether it is Parquet, its rows, statistics and columns.

For files that a transaction took by `new_file`, of which only their writer knows anything. Without pyarrow only the
first and last bytes are looked at. Whether the columns fit a table is in `fitting`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from dbio_commit.data.parquet import has_magic
from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers import Bounds
from dbio_commit.store import Store
from dbio_commit.texts import Cause

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark keeps the columns of a file in its own terms."""

SPARK_VERSION = "org.apache.spark.version"
"""The key under which Spark keeps its own version."""

_LEGACY = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
_NEW_CALENDAR = (3, 1)
"""From this version of Spark on, files without the keys above have the calendar that all others use."""

_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What is known of one file; None where only pyarrow would tell."""

    path: str
    rows: int | None = None
    statistics: Mapping[str, Bounds] | None = None
    columns: Mapping[str, Any] | None = None
    """As Spark's JSON."""


Inspector = Callable[[Store, Sequence[Entry]], list[Footer]]
"""Looks at new files before they are committed. Raises InvalidInputError for what cannot be committed."""


def inspect_files(store: Store, files: Sequence[Entry]) -> list[Footer]:
    """The footers, in order. Raises InvalidInputError, with its name, for a file that is no Parquet; StoreError."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        read = _look
    else:
        read = _read
    return store.in_parallel(lambda file: read(store, file), files)


def _look(store: Store, file: Entry) -> Footer:
    if not has_magic(store, file.path, file.size):
        raise _no_parquet(store.url_of(file.path), f"it has {file.size} bytes, and not Parquet's at both ends")
    return Footer(path=file.path)


def _read(store: Store, file: Entry) -> Footer:
    _look(store, file)
    with store.open_read(file.path) as stream:
        return read_footer(stream, file.path, where=store.url_of(file.path))


def read_footer(source: BinaryIO, path: str, *, where: str) -> Footer:
    """The footer of the file that the source holds, or the end of: `path` is its path, `where` its URL.

    Raises InvalidInputError where it is none of Parquet's.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dbio_commit.data.columns import file_schema, spark_schema

    try:
        file = pq.ParquetFile(source)
        footer, schema = file.metadata, file_schema(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _no_parquet(where, f"{error!s:.200}") from Cause.of(error)
    return Footer(
        path=path,
        rows=footer.num_rows,
        statistics=_statistics(schema, footer),
        columns=spark_schema(schema, where=where),
    )


def _no_parquet(where: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where} is no Parquet file: {why}. Nothing was committed, and the transaction is aborted; "
        "close each file before you commit"
    )


def _statistics(schema: "pa.Schema", footer: "pq.FileMetaData") -> Mapping[str, Bounds]:
    from dbio_commit.data.statistics import bounds, leaf_types

    nulls: list[int | None] = []
    leaf = 0
    for field in schema:
        leaves = list(leaf_types(field.name, field.type))
        is_flat = len(leaves) == 1 and leaves[0][0] == field.name
        nulls.append(_nulls(footer, leaf) if is_flat else None)
        leaf += len(leaves)
    if leaf != footer.num_columns:  # a type that Parquet stores in another way than Arrow says
        return {}
    found = bounds(schema, footer, nulls=nulls)
    return {field.name: found[field.name] if _is_told(field.type) else Bounds(nulls=found[field.name].nulls)
            for field in schema}  # fmt: skip


def _nulls(footer: "pq.FileMetaData", leaf: int) -> int | None:
    groups: list[Any] = [footer.row_group(i).column(leaf).statistics for i in range(footer.num_row_groups)]
    counts: list[int] = [group.null_count for group in groups if group is not None and group.has_null_count]
    return sum(counts) if len(counts) == len(groups) else None


def _is_told(kind: Any) -> bool:
    """Whether a footer's min and max are bounds as PROTOCOL.md 7.3 wants them.

    It does not say where there is NaN, and unsigned numbers are stored as signed ones.
    """
    import pyarrow.types as types

    return not (types.is_floating(kind) or types.is_unsigned_integer(kind))


def spark_version(footer: "pq.FileMetaData") -> str | None:
    """That of the Spark which wrote the file; None for other writers."""
    version = (footer.metadata or {}).get(SPARK_VERSION.encode())
    return None if version is None else version.decode(errors="replace")


def parse_version(text: str) -> tuple[int, ...]:
    """Major and minor number of a version, to be compared; 0 for what is no number."""
    parts = text.split(".")[:2]
    return tuple(int(part) if part.isdecimal() and part.isascii() else 0 for part in parts)


def has_old_calendar(footer: "pq.FileMetaData") -> bool:
    """Whether old days and instants mean others than they seem to, as only Spark's own reader knows."""
    version = spark_version(footer)
    return not _LEGACY.isdisjoint(footer.metadata or {}) or bool(version and parse_version(version) < _NEW_CALENDAR)


def rows_at_once(footer: "pq.FileMetaData") -> int:
    """So many rows that a batch is small, by what they take encoded.

    A dictionary hides what they take when they are read: so no more than a row group, whose writer had it in memory.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size, most = sum(group.total_byte_size for group in groups), max((group.num_rows for group in groups), default=1)
    return max(1, min(_BATCH_ROWS, most, _BATCH_BYTES * footer.num_rows // max(size, 1)))
