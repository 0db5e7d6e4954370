"""What is a Parquet file: by its name, and by its first and last bytes where its name says something else.

Needs no pyarrow, and reads a few bytes of the files in question only.
"""

from collections.abc import Iterable, Sequence

from dbio_commit.errors import ObjectNotFoundError
from dbio_commit.protocol import names
from dbio_commit.store import Store

MAGIC = b"PAR1"

_LEAST_BYTES = 12
"""Of a Parquet file: the magic bytes twice, and the length of the footer between them."""


def has_magic(store: Store, path: str, size: int) -> bool:
    """Whether the object of so many bytes begins and ends as a Parquet file does. Raises StoreError."""
    if size < _LEAST_BYTES:
        return False
    edges = [store.get_range(path, start, len(MAGIC)) for start in (size - len(MAGIC), 0)]
    return edges == [MAGIC, MAGIC]


def not_parquet(store: Store, files: Iterable[tuple[str, int]]) -> list[str]:
    """Those of the files, by path and size, that are no Parquet; one that has gone meanwhile is not among them.

    A name that ends in .parquet is believed. Raises StoreError.
    """
    doubtful = [(path, size) for path, size in files if not names.is_parquet(path)]

    def is_other(file: tuple[str, int]) -> bool:
        try:
            return not has_magic(store, *file)
        except ObjectNotFoundError:
            return False

    verdicts: Sequence[bool] = store.in_parallel(is_other, doubtful)
    return [path for (path, _), other in zip(doubtful, verdicts, strict=True) if other]
