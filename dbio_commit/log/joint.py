"""Asks the home of a joint transaction whether it has committed it. Writes nothing. Rules: PROTOCOL.md, Joint
transactions."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, ObjectNotFoundError
from dbio_commit.base.texts import command
from dbio_commit.log.listing import covered_commits, has_start, read_checkpoint, read_markers
from dbio_commit.log.settled import Settled
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import newest_of, parse_log
from dbio_commit.protocol.markers.bodies import INSPECT
from dbio_commit.protocol.markers.commit import CommitMarker, decode_commit, read_parts
from dbio_commit.protocol.markers.descriptor import decode_descriptor
from dbio_commit.protocol.markers.start import StartMarker, decode_start
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.store import Store

ABORTED = b""
"""The decision of a home that commits nothing."""


@dataclass(frozen=True, slots=True)
class Home:
    """The table that decides a transaction which is pending in another table."""

    store: Store
    id: str
    """The id in its descriptor."""
    tid: str
    asker: Store
    """The other table."""
    asker_id: str

    @property
    def url(self) -> str:
        """The URL of its commit marker."""
        return self.store.url_of(names.committed(self.tid))

    def decision(self) -> bytes | None:
        """The commit marker for the other table; ABORTED; None if the transaction is undecided.

        The home keeps the markers of a transaction until it is committed in all its tables. So if both are gone, and
        the other table has no commit, it was aborted. Unless somebody else removed them: a checkpoint shows that.

        Raises CorruptMarkerError if the table is not there any more: then nobody knows the decision. Also if the
        transaction is not decided there, but in a third table: an abort there would not hold in the others.
        """
        path = names.committed(self.tid)
        body = get_if_there(self.store, path)
        is_started = has_start(self.store, self.tid)
        if body is None and not is_started:
            body = get_if_there(self.store, path)  # decided between the two looks
        self._refuse_other()
        if body is None and is_started:
            self._refuse_participant()
            return None
        if body is None:
            self._refuse_forgotten()
            return ABORTED
        if decode_commit(body, where=self.url, scope=Scope.TABLE).is_abort:
            return ABORTED
        part = read_parts(body, where=self.url).get(self.asker_id)
        if part is None:
            raise CorruptMarkerError(
                f"{self.url} commits nothing to {self.asker.url}, whose start marker names this home; {INSPECT}"
            )
        return part

    def _refuse_participant(self) -> None:
        if find_home(self.store, self.tid) is not None:
            raise CorruptMarkerError(
                f"{self.asker.url_of(names.started(self.tid))} names {self.store.url} as its home, and that table is "
                f"not the home of {self.tid}, since its start marker names another one; {INSPECT}"
            )

    def _refuse_forgotten(self) -> None:
        is_decided = get_if_there(self.asker, names.committed(self.tid)) is not None
        if is_decided or not has_start(self.asker, self.tid):
            return  # the home has forgotten it since
        if covered_commits(self.store, [self.tid]):
            raise CorruptMarkerError(
                f"{self.store.url} has committed {self.tid}, and {self.url}, which alone holds the commit to "
                f"{self.asker.url}, is gone, as in a copy of the table. Bring it back. If it is gone for good, "
                f"`{command('dbio', 'show', self.asker.url, self.tid)}` lists the files here: append copies of them, "
                f"and `{command('dbio', 'abort', self.asker.url, self.tid, '--alone')}`"
            )

    def _refuse_other(self) -> None:
        if table_id_at(self.store) != self.id:
            raise CorruptMarkerError(
                f"{self.asker.url_of(names.started(self.tid))} belongs to a joint transaction, which only the table "
                f"{self.store.url} decides, and that table is gone or is another one (its id was {self.id}). Bring it "
                f"back. If it is gone for good, see with `{command('dbio', 'show', 'TABLE', self.tid)}` whether "
                "another of its tables has the commit; "
                f"`{command('dbio', 'abort', self.asker.url, self.tid, '--alone')}` aborts it here without its home"
            )


def find_home(store: Store, tid: str) -> Home | None:
    """The home of a joint transaction that is pending here; None if this is the home, or if its start marker is
    gone."""
    if not names.is_joint(tid):
        return None
    path = names.started(tid)
    begun: StartMarker | None = None
    with suppress(ObjectNotFoundError):
        begun = decode_start(store.get(path), where=store.url_of(path))
    if begun is None or (home := begun.decided_in) is None:
        return None
    return Home(store.beside(home.path), home.id, tid, store, begun.table_id or "")


def home_of(store: Store, begun: StartMarker | None) -> str | None:
    """The URL of the table that decides a transaction with this start marker; None if this table does.

    The path from here, if it leads out of the bucket, container or disk, as in a table that was moved by itself.
    """
    home = begun.decided_in if begun else None
    if home is None:
        return None
    try:
        return store.beside(home.path).url
    except CorruptMarkerError:
        return home.path


def table_id_at(store: Store) -> str | None:
    """The id in the descriptor; None if there is none."""
    body = get_if_there(store, names.DESCRIPTOR)
    return decode_descriptor(body, where=store.url_of(names.DESCRIPTOR)).id if body else None


def get_if_there(store: Store, path: str) -> bytes | None:
    """The body; None if the object is absent, or empty, as a disk that failed may leave it."""
    with suppress(ObjectNotFoundError):
        return store.get(path) or None
    return None


# --- several tables at one moment -----------------------------------------------------------------------------------


def complete(stores: Sequence[Store], states: Sequence[Settled], *, is_sure: Callable[[], bool]) -> list[Settled]:
    """The states with each joint transaction in all of its tables, if one of them has its commit.

    `is_sure`: whether no marker that has come since the tables were listed can have been purged. Raises
    ObjectNotFoundError if a transaction was decided meanwhile: look again.
    """
    known = [_joint_tids(it) for it in states]
    everywhere = frozenset[str]().union(*known)

    def is_commit(tid: str) -> bool:
        return any(_has_commit(it, tid) for it in states)

    return [
        _with_parts(store, state, everywhere - own, is_commit, is_sure=is_sure) if everywhere - own else state
        for store, state, own in zip(stores, states, known, strict=True)
    ]


def refuse_half(snapshots: Sequence[Snapshot], states: Sequence[Settled], as_of: datetime) -> None:
    """Raises InvalidInputError if at this time a joint transaction had been committed to some of the tables only: its
    writer, or others after its death, put its markers one after the other."""
    then = [frozenset(filter(names.is_joint, it.tids)) for it in snapshots]
    everywhere = frozenset[str]().union(*then)
    for snapshot, state, had in zip(snapshots, states, then, strict=True):
        if half := sorted((everywhere - had) & _joint_tids(state)):
            raise InvalidInputError(
                f"at {as_of.isoformat()} the joint transaction {half[0]} was being committed: some tables had it, and "
                f"{snapshot.url} did not have it yet. Give a time a little before or after, or the tid"
            )


def _joint_tids(state: Settled) -> frozenset[str]:
    return frozenset(filter(names.is_joint, chain(state.log.committed, state.checkpoint.covered)))


def _has_commit(state: Settled, tid: str) -> bool:
    """Whether this is a commit in the state; False also for an abort."""
    entry = state.log.committed.get(tid)
    marker = state.markers.valid.get(entry.path) if entry else None
    found = [marker] if marker else [it.marker for it in state.checkpoint.whole([tid])]
    return any(not it.is_abort for it in found)


def _with_parts(
    store: Store,
    state: Settled,
    lacking: frozenset[str],
    is_commit: Callable[[str], bool],
    *,
    is_sure: Callable[[], bool],
) -> Settled:
    """The state with those of these transactions that have a part in this table."""
    now = parse_log(store.list_log(Kind.COMMITTED, Kind.STARTED))
    if not is_sure():
        _refuse_purged(store, state, filter(is_commit, lacking - now.started.keys()))
    added: dict[str, Entry] = {}
    valid: dict[str, CommitMarker] = {}
    for tid in filter(is_commit, sorted(lacking & now.started.keys())):
        entry = now.committed.get(tid)
        if entry is not None:
            markers = read_markers(store, [entry], scope=Scope.TABLE, table_id=state.descriptor.id).refuse_gone()
            valid |= markers.valid
        else:
            home = find_home(store, tid)
            part = home and home.decision()
            if home is None or not part:
                raise ObjectNotFoundError(f"{tid} was decided while {store.url} was read; look again")
            listed = {**now.committed, **now.started}
            entry = Entry(names.committed(tid), len(part), newest_of(listed))
            valid[entry.path] = decode_commit(part, where=home.url, scope=Scope.TABLE)
        added[tid] = entry
    if not added:
        return state
    log = replace(
        state.log,
        committed={**state.log.committed, **added},
        later={tid: it for tid, it in state.log.later.items() if tid not in added},
    )
    return replace(state, log=log, markers=state.markers._replace(valid={**state.markers.valid, **valid}))


def _refuse_purged(store: Store, state: Settled, tids: Iterable[str]) -> None:
    """Raises ObjectNotFoundError if one of these transactions was decided here after the state, and has no marker any
    more."""
    log = replace(state.log, checkpoints=parse_log(store.list_log(Kind.CHECKPOINT)).checkpoints)
    covered = read_checkpoint(store, log, table_id=state.descriptor.id).covered
    if purged := next((tid for tid in tids if tid in covered), None):
        raise ObjectNotFoundError(f"the markers of {purged} in {store.url} may have been purged since; look again")
