"""The proof that a store has put-if-absent: of several calls that create the same object at once, one does it.

A store that ignores the condition lets all of them do it; one that looks first, and then writes, lets several.
"""

from dbio_commit.base.errors import StoreError, UnsupportedStoreError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.descriptor import decode_descriptor
from dbio_commit.store import Store

_PROBED: set[str] = set()  # of this process: every write opens a store of its own
_REFUSES = "refuses: "
"""Before the identity of a store of which only `prove_store` knows."""


def create(store: Store, path: str, body: bytes) -> bool:
    """As `Store.put_if_absent`. The first object that a process creates on a store is the proof.

    `Store.contenders` calls race for it then, with the same body, so that nothing else is left of that; where they
    cannot race, a second call comes after the first. Raises UnsupportedStoreError where more than one creates it.
    """
    if store.identity in _PROBED:
        return store.put_if_absent(path, body)
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
    """The same for those who decide about others' transactions, in a table that is there. Changes nothing.

    The descriptor never changes, so creating it once more is refused, or makes no difference; a race takes an object
    that is not there, so writers alone have one. Raises UnsupportedStoreError, ObjectNotFoundError where there is no
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
        f"cannot try out whether {store.url} refuses to create {path} twice, which stays as it is: {error}"
    )


def _unsupported(store: Store, path: str, who: str, *, left: StoreError | None = None) -> UnsupportedStoreError:
    stays = f"Nothing but {path} was written, which could not be deleted ({left})"
    return UnsupportedStoreError(
        f"the store of {store.url} let {who} create {path}, which one alone may: it ignores If-None-Match, or looks "
        f"first and writes then, so two writers could both win. {stays if left else 'Nothing was written'}; use a "
        "store with conditional writes (S3, Azure, Google Cloud, MinIO, Ceph, a disk)"
    )
