"""The proof that a store has put-if-absent: it refuses to create once more what is there."""

from dbio_commit.errors import StoreError, UnsupportedStoreError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers import decode_descriptor
from dbio_commit.store import Store

_PROBED: set[str] = set()  # of this process: every write opens a store of its own


def probe(store: Store, path: str, body: bytes, *, created: bool = True) -> None:
    """Raises UnsupportedStoreError if the store creates once more what is there, with the same body.

    `created` says that we have created it just now; then it is deleted.
    """
    if store.identity in _PROBED:
        return
    try:
        is_created_twice = store.put_if_absent(path, body)
    except StoreError as error:
        raise type(error)(
            f"cannot try out whether {store.url} refuses to create {path} twice, which stays as it is: {error}"
        ) from error
    if is_created_twice:
        if created:
            store.delete_many([path])
        raise UnsupportedStoreError(
            f"the store of {store.url} created {path} twice: it ignores If-None-Match, so two writers could both win. "
            "Nothing was written; use a store with conditional writes (S3, Azure, Google Cloud, MinIO, Ceph, a disk)"
        )
    _PROBED.add(store.identity)


def prove_store(store: Store) -> None:
    """`probe` for those who decide about others' transactions, in a table that is there. Changes nothing.

    The descriptor never changes, so creating it once more is refused, or makes no difference. Raises
    UnsupportedStoreError, ObjectNotFoundError where there is no table.
    """
    if store.identity not in _PROBED:
        body = store.get(names.DESCRIPTOR)
        decode_descriptor(body, where=store.url_of(names.DESCRIPTOR))
        probe(store, names.DESCRIPTOR, body, created=False)
