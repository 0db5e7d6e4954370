"""Copies objects from one store to another, or within one."""

import shutil

from dbio_commit.store.contract import Store

COPIES = 8
"""Objects copied at once. Each has a piece in memory, and on object stores an upload."""

QUEUED = 10_000
"""How many objects are queued for copying at once."""

_PIECE_BYTES = 8 * 1024 * 1024


def copy_object(source: Store, path: str, target: Store, copy: str) -> None:
    """Copies an object byte for byte: within the service if it can do that, otherwise through this process.

    The copy is durable only after `make_durable`. Raises ObjectNotFoundError, StoreError.
    """
    if target.copy_from(source, path, copy):
        return
    with source.open_read(path) as original, target.open_write(copy) as stream:
        shutil.copyfileobj(original, stream, _PIECE_BYTES)
