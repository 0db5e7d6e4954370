"""Makes a pyarrow Dataset of a snapshot, if pyarrow's own reader finds the table's rows in the files."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pfs

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions.expressions import for_arrow
from dbio_commit.data.conform import partition_value
from dbio_commit.log.frames.dataset_ahead import ScannedAhead, filesystem_of
from dbio_commit.log.frames.matching import MatchedFile, match_files
from dbio_commit.log.frames.request import Request


def to_dataset(request: Request) -> ds.Dataset:
    """See `Snapshot.to_dataset`."""
    for column in request.condition.columns() if request.condition else ():
        if pa.types.is_floating(request.target.field(column).type):
            raise InvalidInputError(
                f"a dataset cannot be filtered by {column!r:.100}: pyarrow takes the bounds of such numbers in "
                "a footer for all values, and loses NaN, which many writers leave out of bounds. Use to_arrow, "
                "to_batches or to_lazy with this condition, or filter what the dataset returns"
            )
    matched = match_files(request, request.files, request.target)
    for it in matched:
        if it.why:
            url = request.store.url_of(it.file.path)
            raise InvalidInputError(
                f"pyarrow's own reader would not find the table's columns in {url}: {it.why}. Use to_arrow, to_batches "
                "or to_lazy, which convert the columns; or rewrite such files, with `dbio compact --rewrite-types`"
            )
    found = dataset_of(request, matched)
    return found if request.condition is None else found.filter(for_arrow(request.condition, request.target))


def dataset_of(request: Request, files: Sequence[MatchedFile]) -> ds.Dataset:
    """A dataset of these files, with the columns to read. pyarrow must find the table's rows in them."""
    store, target = request.store, request.target
    options: Any = ds.ParquetReadOptions  # its stubs lack defaults
    read_options = options(coerce_int96_timestamp_unit="us")
    format = ds.ParquetFileFormat(read_options=read_options)
    filesystem = pfs.LocalFileSystem() if store.is_disk else filesystem_of(store, files)
    fragments = [
        format.make_fragment(
            f"{store.url}/{it.file.path}" if store.is_disk else it.file.path,
            filesystem,
            partition_expression=_partition(it.file.partition, target, store.url_of(it.file.path)),
        )
        for it in files
    ]
    if store.is_disk:
        return ds.FileSystemDataset(fragments, target, format, filesystem)
    return ScannedAhead(fragments, target, format, filesystem).over(store, files)


def _partition(partition: Mapping[str, str | None], target: pa.Schema, where: str) -> Any:
    """The expression that is true for each row of a file, by the partition values in its directory's name."""
    lower = {name.lower(): text for name, text in partition.items()}
    found: Any = pc.scalar(True)
    for field in target:
        if field.name.lower() in lower:
            value = partition_value(lower[field.name.lower()], field, where)
            column = pc.field(field.name)
            found = found & (column.is_null() if value is None else column == pa.scalar(value, field.type))
    return found
