"""Finds out which files are Parquet: by their names, or else by their first and last bytes. Needs no pyarrow."""

from collections.abc import Iterable, Sequence

from dbio_commit.base.errors import ObjectNotFoundError
from dbio_commit.protocol import names
from dbio_commit.store import Store

MAGIC = b"PAR1"

ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
"""The key in a file's metadata with its columns in Spark's JSON."""

MOST_BYTES = 64 * 1024 * 1024
"""The largest footer that is read. No writer makes a larger one, and a footer is in memory as a whole."""

_LEAST_BYTES = 12
"""The smallest Parquet file: the magic bytes twice, and the length of the footer between them."""


_ENCRYPTED = b"PARE"


def footer_bytes(size: int, end: bytes) -> int:
    """How many of a file's last bytes are its footer. The file has `size` bytes, of which `end` are the last.

    Raises ValueError, with the reason, for a file that is not Parquet.
    """
    if size < _LEAST_BYTES:
        raise ValueError("it is empty" if size == 0 else f"it has {size} bytes")
    if end[-4:] != MAGIC:
        raise ValueError(
            "its footer is encrypted, and readers have no key"
            if end[-4:] == _ENCRYPTED
            else f"it has {size} bytes, and does not end as Parquet does"
        )
    found = int.from_bytes(end[-8:-4], "little") + 8
    if found > min(size - len(MAGIC), MOST_BYTES):
        raise ValueError(f"its last bytes announce a footer of {found} bytes, and it has {size}")
    return found


def check_beginning(first: bytes) -> None:
    """Raises ValueError if a file does not begin as Parquet does."""
    if first[: len(MAGIC)] != MAGIC:
        raise ValueError("it does not begin with the bytes of Parquet")


def has_magic(store: Store, path: str, size: int) -> bool:
    """Whether the object, which has `size` bytes, begins and ends as a Parquet file does. Raises StoreError."""
    if size < _LEAST_BYTES:
        return False
    edges = [store.get_range(path, start, len(MAGIC)) for start in (size - len(MAGIC), 0)]
    return edges == [MAGIC, MAGIC]


def not_parquet(store: Store, files: Iterable[tuple[str, int]]) -> list[str]:
    """The files, given by path and size, that are not Parquet. A file that was removed meanwhile is not among them.

    A name that ends in .parquet is trusted. Raises StoreError.
    """
    doubtful = [(path, size) for path, size in files if not names.is_parquet(path)]

    def is_other(file: tuple[str, int]) -> bool:
        try:
            return not has_magic(store, *file)
        except ObjectNotFoundError:
            return False

    verdicts: Sequence[bool] = store.in_parallel(is_other, doubtful)
    return [path for (path, _), other in zip(doubtful, verdicts, strict=True) if other]
