"""Writes a frame of pandas, Polars, Arrow or DuckDB as one transaction, without Spark: `Table.write`."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError, TableExistsError
from dbio_commit.base.options import Mode
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.file_sink import StoreSink
from dbio_commit.commit.write.files import FilesSpec
from dbio_commit.commit.write.lanes import write_in_lanes
from dbio_commit.commit.write.options import CommitOptions, WriteOptions, no_commit
from dbio_commit.commit.write.place import Place
from dbio_commit.commit.write.plan import WritePlan, plan_write
from dbio_commit.data.columns import arrow_schema, arrow_type
from dbio_commit.data.footers import CALENDAR
from dbio_commit.data.frames import Frame, fitted, read_frame
from dbio_commit.data.mapping import has_variant
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.row_checks import RowChecks
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.files import FileInfo

TARGET_BYTES = 128 * 1000 * 1000
"""The size of the files if the caller gives none: that of a compaction."""


def write_frame(
    place: Place,
    frame: Any,
    *,
    mode: Mode,
    partition_by: str | Sequence[str] | None,
    options: WriteOptions,
    commit: CommitOptions,
) -> Commit:
    """Writes the rows in this mode. Raises what `Table.write` raises."""
    rows = read_frame(frame)
    if rows.is_stream and commit.retries:
        raise InvalidInputError(
            f"retries={commit.retries} needs rows that can be read again, and a stream of Arrow gives them once: give "
            "a table or a DataFrame, or leave retries out"
        )

    def attempt() -> Commit:
        plan = plan_write(
            place,
            rows.columns,
            mode=mode,
            partition_by=partition_by,
            options=options,
            commit=commit,
            may_lack=True,
            by_value=True,
        )
        return _write(plan, rows)

    try:
        return commit.attempt(place.store, place.clock, attempt)
    except TableExistsError:
        if mode != "ignore":
            raise
        return no_commit(place.store, place.clock, None)


def _write(plan: WritePlan, frame: Frame) -> Commit:
    target = arrow_schema(plan.mapping.schema, where=plan.place.url)
    checks = RowChecks.of(
        plan.constraints, plan.mapping.schema, lacks=plan.filled, where=plan.place.url, now=plan.place.clock.now()
    )
    with plan.begin() as transaction:
        batches = checks.apply(fitted(frame.batches(), plan.mapping, target))
        transaction.add(write_rows(plan, transaction, batches), looked_at=True)
        transaction.vouch_for_rows()
        return transaction.commit(schema=plan.schema_to_record)


def write_rows(
    plan: WritePlan,
    transaction: Transaction,
    batches: Iterable[pa.RecordBatch],
    change: Callable[[FilesSpec], FilesSpec] = lambda spec: spec,
) -> list[FileInfo]:
    """Writes rows with the table's columns to new files. On any error, it deletes these files."""
    schema, terms = plan.mapping.schema, transaction.terms
    target = plan.options.target_file_size or TARGET_BYTES
    spec = FilesSpec(
        terms=terms,
        columns=tuple(enumerate(it["name"] for it in schema["fields"])),
        variants={it["name"]: arrow_type(it["type"]) for it in schema["fields"] if has_variant(it["type"])},
        options=replace(plan.options, target_file_size=target),
        limits=plan.place.limits,
        spark_metadata={**CALENDAR, ROW_METADATA: json.dumps(plan.mapping.data_schema)},
    )
    place = plan.place
    sink = StoreSink(place.store, place.clock, terms)
    return write_in_lanes(change(spec), batches, attempt=place.clock.random_bits(31), files=sink)
