"""Collects rows for change files, which record how a rewrite changes each row (the setting `change_data`)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Self, TypeVar

import pyarrow as pa

from dbio_commit.commit.write.files import FilesSpec
from dbio_commit.commit.write.spill import Spill, Waiting
from dbio_commit.data.constants import scalar
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.protocol.settings import CHANGE_TYPE

INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
"""The values of CHANGE_TYPE. Delta has the same values."""

_Spec = TypeVar("_Spec", bound=FilesSpec)


def of_changes(spec: _Spec) -> _Spec:
    """The spec of change files beside the files of `spec`. No reader of the table reads them."""
    metadata = {key: text for key, text in spec.spark_metadata.items() if key != ROW_METADATA}
    columns = (*spec.columns, (len(spec.columns), CHANGE_TYPE))
    return replace(spec, columns=columns, changes=True, spark_metadata=metadata)


class ChangedRows:
    """The rows that a rewrite changes, on the local disk until it has written the files of the table."""

    def __init__(self) -> None:
        self._spill, self._waiting = Spill(), Waiting()

    def __enter__(self) -> Self:
        self._spill.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._spill.__exit__(*error)

    @property
    def any(self) -> bool:
        return self._waiting.rows > 0

    def add(self, rows: pa.RecordBatch, change: str) -> None:
        types = pa.repeat(scalar(change, pa.string()), rows.num_rows)
        names = [*map(str, range(rows.num_columns)), CHANGE_TYPE]
        self._waiting.add(pa.Table.from_arrays([*rows.columns, types], names=names), self._spill)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._waiting.batches(self._spill)
