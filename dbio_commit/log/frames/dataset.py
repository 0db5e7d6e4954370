"""Makes a pyarrow Dataset of a snapshot, if pyarrow's own reader finds the table's rows in the files."""

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pfs

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.data.conditions.expressions import for_arrow
from dbio_commit.data.conform import partition_value
from dbio_commit.log.frames import ahead
from dbio_commit.log.frames.ahead import FilesAhead
from dbio_commit.log.frames.matching import MatchedFile, match_files
from dbio_commit.log.frames.request import Request
from dbio_commit.store import Store
from dbio_commit.store.contract import cut_short


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


# --- files of an object store, fetched ahead ------------------------------------------------------------------------


class ScannedAhead(ds.FileSystemDataset):
    """A dataset of which each scan fetches files ahead.

    All methods of a dataset that read rows call `scanner`. Only there it is known which files will be read.
    """

    _store: Store
    _files: Mapping[str, MatchedFile]
    _all: ds.FileSystemDataset | None = None
    """For a filtered dataset: the unfiltered one. pyarrow shows no files of a filtered dataset."""
    _kept: Any = None
    """The filter."""

    def over(self, store: Store, files: Sequence[MatchedFile]) -> Self:
        self._store, self._files = store, {it.file.path: it for it in files}
        return self

    def filter(self, expression: Any) -> Self:
        found: Self = super().filter(expression)
        found._store, found._files, found._all = self._store, self._files, self._whole()
        found._kept = _both(self._kept, expression)
        return found

    def _whole(self) -> ds.FileSystemDataset:
        return self if self._all is None else self._all

    def scanner(self, columns: Any = None, filter: Any = None, *arguments: Any, **options: Any) -> ds.Scanner:
        keep = _both(self._kept, filter)
        fragments: list[Any] = [*self._whole().get_fragments(keep)]
        files = [self._files[it.path] for it in fragments]
        small = ((it.file.path, it.end.size) for it in files if _is_fetched(it))
        filesystem = filesystem_of(self._store, files, FilesAhead(self._store, small))
        read = [
            self.format.make_fragment(it.path, filesystem, partition_expression=it.partition_expression)
            for it in fragments
        ]
        dataset = ds.FileSystemDataset(read, self.schema, self.format, filesystem)
        return dataset.scanner(columns, keep, *arguments, **options)


def _is_fetched(file: MatchedFile) -> bool:
    return len(file.end.body) < file.end.size <= ahead.WHOLE_IF_PART


def _both(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one & other


def filesystem_of(store: Store, files: Sequence[MatchedFile], fetched: FilesAhead | None = None) -> pfs.FileSystem:
    """The files for pyarrow, with the credentials of the store. `fetched` has those that are fetched whole."""
    found = _file_system()()
    found.open_known, found.known = partial(_Opened, store, fetched), {it.file.path: it for it in files}
    handler: Any = pfs.FSSpecHandler  # its stubs take it for abstract
    return pfs.PyFileSystem(handler(found))


@cache
def _file_system() -> Any:
    """A class for fsspec. All scans share it, since a class is in a cycle of references, and would keep files."""
    with needs("to_dataset"):
        from fsspec.spec import AbstractFileSystem

    class Files(AbstractFileSystem):  # type: ignore[misc]
        cachable = False
        protocol = "dbio"
        known: Mapping[str, MatchedFile]
        open_known: Callable[[MatchedFile], Any]

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            return {"name": path, "size": self.known[path].end.size, "type": "file"}

        def _open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> Any:
            if mode != "rb":
                raise io.UnsupportedOperation(mode)
            return self.open_known(self.known[path])

    return Files


class _Opened(io.RawIOBase):
    """A file of which the size, and maybe the end, are known."""

    def __init__(self, store: Store, fetched: FilesAhead | None, file: MatchedFile) -> None:
        self._store, self._path, self._end = store, file.file.path, file.end
        self._fetched = fetched if fetched and self._path in fetched else None
        self._at, self._whole = 0, b""
        self._stream: BinaryIO | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        rest = max(0, self._end.size - self._at)
        length = rest if size < 0 else min(size, rest)
        found = self._bytes(self._at, length) if length else b""
        self._at += length
        return found

    def close(self) -> None:
        if not self.closed:
            if self._fetched:
                self._fetched.done(self._path)
            if self._stream:
                self._stream.close()
        super().close()

    def _bytes(self, start: int, length: int) -> bytes:
        size, end = self._end
        if start >= size - len(end):
            at = start - (size - len(end))
            return end[at : at + length]
        if self._fetched is None:
            self._stream = self._stream or self._store.open_read(self._path)
            self._stream.seek(start)
            return self._stream.read(length)
        self._whole = self._whole or self._fetched.fetch(self._path)
        if len(self._whole) != size:
            raise cut_short(self._store.url_of(self._path), len(self._whole), size)
        return self._whole[start : start + length]
