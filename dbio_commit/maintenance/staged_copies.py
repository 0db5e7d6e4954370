"""Stages copies of data files under new names, for a transaction: of a restore, or of a copy of an earlier state.

A path is never used twice, so a file that comes back gets a new name.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dbio_commit.base.errors import HistoryLostError, InvalidInputError, ObjectNotFoundError, StoreError
from dbio_commit.commit.transaction import Transaction
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.doubtful import doubtful_files
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile
from dbio_commit.store import Store
from dbio_commit.store.copying import COPIES, copy_object

_SUFFIX = re.compile(r"(\.[a-z0-9]+)?\.parquet$")


class Copied(NamedTuple):
    """How much was copied."""

    files: int = 0
    size: int = 0
    """In bytes."""
    resumed: int = 0
    """How many more copies existed already."""

    def plus(self, other: "Copied") -> "Copied":
        return Copied(self.files + other.files, self.size + other.size, self.resumed + other.resumed)


def refuse_before_first(then: Snapshot, as_of: AsOf, *, why: str) -> None:
    """Raises InvalidInputError if the state has no commit yet, so that a restore or a copy of it would lose all rows.

    `why` says what it would do, and that nothing was done.
    """
    if as_of is not None and not then.tids:
        raise InvalidInputError(f"{then.url} had no commit as of {as_of}, and {why}: `dbio log` lists the states")


def stage_copies(
    source: Store,
    target: Store,
    transaction: Transaction,
    files: Iterable[DataFile],
    known: Mapping[str, FileInfo],
    *,
    looked_at: bool = True,
    name: Callable[[DataFile], str] | None = None,
    has: Collection[str] = (),
) -> Copied:
    """Stages a copy of each file, in its partition, with what its writer recorded.

    The transaction writes to `target`. `looked_at` is as in `Transaction.add`. `name` returns the path of a copy, by
    default a new one. The paths in `has` are there already, as whole copies, and are not copied again. Raises
    HistoryLostError if vacuum deletes a file meanwhile; StoreError, also for a copy of another size than recorded.
    """
    copies = [(file, name(file) if name else _name_copy(target, transaction, file)) for file in files]

    def copy(pair: tuple[DataFile, str]) -> int:
        file, path = pair
        return file.size if path in has else _copy_file(source, file, target, path)

    sizes = source.in_parallel(copy, copies, at_once=COPIES)
    target.make_durable([path for _, path in copies])  # before the marker that names them (I2)
    for (file, path), size in zip(copies, sizes, strict=True):
        info = known.get(file.path) or FileInfo(path=path, size=size)
        added = replace(info, path=path, partition=names.parse_partition(names.split(path)[0]))
        transaction.add([added], looked_at=looked_at)
    new = [size for (_, path), size in zip(copies, sizes, strict=True) if path not in has]
    return Copied(len(new), sum(new), len(sizes) - len(new))


def suffix_of(path: str) -> str:
    """The end of the name of a data file, from which tools know its compression: ".snappy.parquet"."""
    suffix = _SUFFIX.search(path)
    return suffix[0] if suffix else ".parquet"


def _name_copy(target: Store, transaction: Transaction, file: DataFile) -> str:
    url = transaction.new_file(suffix_of(file.path), file.partition)
    return url.removeprefix(f"{target.url}/")


def _copy_file(source: Store, file: DataFile, target: Store, copy: str) -> int:
    """Returns the size of the copy."""
    try:
        copy_object(source, file.path, target, copy)
        size = target.stat(copy).size
    except ObjectNotFoundError as error:
        raise HistoryLostError(
            f"{source.url_of(file.path)} was deleted while it was copied; nothing was committed: take a later state"
        ) from error
    if file.size not in (UNKNOWN_SIZE, size):
        raise StoreError(
            f"the marker of {source.url_of(file.path)} records {file.size} bytes, but its copy has {size}; nothing was "
            "committed: see `dbio check`"
        )
    return size


def doubtful_among(files: Sequence[DataFile], of: Snapshot) -> int:
    """How many of these files of the table may differ from its columns, so that their copies may, too."""
    names = [field["name"] for field in (of.schema or {"fields": ()})["fields"]]
    return len(doubtful_files(of.transactions, files, names, columns_of=of.columns_of))
