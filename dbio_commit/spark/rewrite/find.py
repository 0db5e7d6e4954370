"""Finds the files of a table that have rows for which a condition is true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.data.conform import parse_value
from dbio_commit.data.rows import refuse_other_rows
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.located import FILE, PLACE, Located
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.errors import errors_of_workers
from dbio_commit.spark.sql.conditions import goes_by_alone, holds
from dbio_commit.spark.sql.planned import Planned, Sql, text_of
from dbio_commit.spark.transfer.kept import Keep

if TYPE_CHECKING:
    from dbio_commit.spark.rewrite.base import Rewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the rows are for which a condition holds ("matching rows")."""

    whole: Sequence[DataFile] = ()
    """Files all of whose rows match."""
    partial: Located | None = None
    """All rows of the files in which some rows match and some do not."""
    rows: int | None = 0
    """How many rows match; None if the writer of a file did not record its number of rows."""
    kept_rows: int = 0
    """How many rows of `partial` do not match."""
    where: Sql = ""
    stored: DataFrame | None = None
    """FILE and PLACE of all matching rows, if these are kept."""

    def matching(self) -> DataFrame:
        """The rows of `partial` that match, with FILE and PLACE."""
        assert self.partial is not None
        if self.stored is not None:
            return self.stored.where(f.col(FILE).isin([*self.partial.files]))
        return self.partial.frame.where(holds(*self.partial.read(self.where)))


def find(rewrite: "Rewrite", where: Sql, keep: Keep) -> Found:
    """Finds the matching rows: by partitions alone if the condition uses no other columns, else by reading files.

    For a condition with a subquery, they are found once and kept, since the condition might hold for other rows later.
    """
    files = rewrite.files(text_of(where))
    if not files:
        return Found()
    by_partition = _by_partition(rewrite, files, where)
    if by_partition is not None:
        return Found(whole=by_partition, rows=rewrite.known_rows(by_partition))
    located, stored = rewrite.locate(files), None
    if isinstance(where, Planned) and where.reads_tables:
        stored = keep(located.frame.where(where.column).select(FILE, PLACE))
        counts = _count_stored(located, stored)
    else:
        counts = _count(located, where)
    for number, file in located.files.items():
        refuse_other_rows(
            rewrite.table.store.url_of(file.path), located.rows.get(number), counts.get(number, (0, 0))[0]
        )
    partial = {number: (rows, matching) for number, (rows, matching) in counts.items() if 0 < matching < rows}
    return Found(
        whole=[located.files[number] for number, (rows, matching) in counts.items() if 0 < matching == rows],
        partial=located.only(partial) if partial else None,
        rows=sum(matching for _, matching in counts.values()),
        kept_rows=sum(rows - matching for rows, matching in partial.values()),
        where=where,
        stored=stored,
    )


_NUMBER = "_dbio_partition"


def _by_partition(rewrite: "Rewrite", files: Sequence[DataFile], where: Sql) -> list[DataFile] | None:
    """The files for whose partition the condition holds; None if the condition also uses other columns."""
    columns, schema = rewrite.columns, rewrite.schema
    if isinstance(where, Planned):
        if where.reads_tables or not where.columns <= {*columns}:
            return None
    elif not goes_by_alone(where, columns, set(schema.fieldNames()) - {*columns}):
        return None
    fields = [schema[column] for column in columns]
    partitions = list(dict.fromkeys(tuple(file.partition.values()) for file in files))
    try:
        values = [
            (i, *(parse_value(text, schemas.arrow_type(it.dataType)) for text, it in zip(texts, fields, strict=True)))
            for i, texts in enumerate(partitions)
        ]
    except ValueError:  # readers disagree on such a value: reading the file raises the error
        return None
    numbered = rewrite.spark.createDataFrame(values, t.StructType([t.StructField(_NUMBER, t.IntegerType()), *fields]))
    condition = where.column if isinstance(where, Planned) else where
    wanted = {partitions[row[0]] for row in rewrite.named(numbered).where(condition).select(_NUMBER).collect()}
    return [file for file in files if tuple(file.partition.values()) in wanted]


def _count(rows: Located, where: Sql) -> Mapping[int, tuple[int, int]]:
    """By number of the file: how many rows it has, and for how many of them the condition holds."""
    matches = holds(*rows.read(where))
    counted = rows.frame.groupBy(FILE).agg(f.count(f.lit(1)), f.count_if(matches)).collect()
    return {number: (count, matching) for number, count, matching in counted}


def _count_stored(rows: Located, matching: DataFrame) -> Mapping[int, tuple[int, int]]:
    """As `_count`, by the kept FILE and PLACE of the matching rows."""
    with errors_of_workers():
        found: dict[int, int] = dict(matching.groupBy(FILE).count().collect())
    known = rows.rows
    if not rows.files.keys() <= known.keys():
        known = dict(rows.frame.groupBy(FILE).count().collect())
    return {number: (known.get(number, 0), found.get(number, 0)) for number in rows.files}
