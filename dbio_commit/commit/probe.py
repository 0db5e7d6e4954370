"""Proves that a store has put-if-absent: of several calls that create the same object at once, one succeeds.

On a store that ignores the condition, all succeed. On a store that checks first and then writes, several do.
"""

from dbio_commit.base.errors import StoreError, UnsupportedStoreError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.descriptor import decode_descriptor
from dbio_commit.store import Store

_PROBED: set[str] = set()  # identities of stores that this process has proved; every write opens a new store
_REFUSES = "refuses: "
"""Prefix in `_PROBED` of the identity of a store that only `prove_store` has proved."""


def create(store: Store, path: str, body: bytes) -> bool:
    """As `Store.put_if_absent`. The first object that a process creates on a store serves as the proof.

    `Store.contenders` calls race to create this object, with the same body, so that the race leaves no other object.
    If there is only one contender, a second call follows the first. Raises UnsupportedStoreError if more than one call
    creates the object.
    """
    return store.put_if_absent(path, body) if store.identity in _PROBED else race(store, path, body)


def race(store: Store, path: str, body: bytes) -> bool:
    """As the first `create` of a process: proves the store, even if this process has proved it already."""
    answers = store.in_parallel(lambda _: _put(store, path, body), range(store.contenders))
    failures = [answer for answer in answers if isinstance(answer, StoreError)]
    if True not in answers:
        if failures:
            raise failures[0]
        return False  # it was there
    if store.contenders == 1:
        answers = [*answers, again := _put(store, path, body)]
        failures = [again] if isinstance(again, StoreError) else []
    if (winners := answers.count(True)) > 1:
        left = store.delete_many([path])
        raise _unsupported(store, path, f"{winners} of {len(answers)} calls", left=next(iter(left.values()), None))
    if failures:
        raise _untried(store, path, failures[0]) from failures[0]
    _PROBED.add(store.identity)
    return True


def prove_store(store: Store) -> None:
    """Proves the store for callers that decide other writers' transactions in an existing table. Changes nothing.

    It creates the descriptor again, with the same body: that is refused, or makes no difference. A race needs an object
    that does not exist yet, so only writers make one. Raises UnsupportedStoreError, ObjectNotFoundError if there is no
    table.
    """
    if not _PROBED.isdisjoint({store.identity, _REFUSES + store.identity}):
        return
    body = store.get(names.DESCRIPTOR)
    decode_descriptor(body, where=store.url_of(names.DESCRIPTOR))
    answer = _put(store, names.DESCRIPTOR, body)
    if isinstance(answer, StoreError):
        raise _untried(store, names.DESCRIPTOR, answer) from answer
    if answer:
        raise _unsupported(store, names.DESCRIPTOR, "a second call")
    _PROBED.add(_REFUSES + store.identity)


def _put(store: Store, path: str, body: bytes) -> bool | StoreError:
    try:
        return store.put_if_absent(path, body)
    except StoreError as error:
        return error


def _untried(store: Store, path: str, error: StoreError) -> StoreError:
    return type(error)(
        f"cannot prove that {store.url} refuses to create {path} twice; the object stays as it is: {error}"
    )


def _unsupported(store: Store, path: str, who: str, *, left: StoreError | None = None) -> UnsupportedStoreError:
    stays = f"Only {path} was written, and it could not be deleted ({left})"
    return UnsupportedStoreError(
        f"the store of {store.url} let {who} create {path}, which only one may: it ignores If-None-Match, or checks "
        f"first and then writes, so two writers could both win. {stays if left else 'Nothing was written'}; use a "
        "store with conditional writes (S3, Azure, Google Cloud, MinIO, Ceph, a disk)"
    )
