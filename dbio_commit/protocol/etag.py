"""Finds what was committed since a state of the table was read, for conditional writes (PROTOCOL.md 9.5). Pure.

The etag of a state is the tid of its last commit, and the tids of other commits of the same moment. A blind append that
ran beside the last commit may get an earlier time, because the store rounds times or because it began earlier. So the
order within a moment is not known: commits of that moment that the etag does not name count as newer.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.names import is_tid

MOMENT = timedelta(seconds=2)
"""The longest settling time of a store (PROTOCOL.md 4)."""


def etag_of(ordered: Sequence[Decided]) -> str:
    """The etag of a state with these commits, oldest first; "" if there are none."""
    committed = [commit for commit in ordered if not commit.marker.is_abort]
    if not committed:
        return ""
    last = committed[-1]
    before = _surely_before(committed, [last], MOMENT)
    return ",".join(commit.tid for commit in committed if commit.tid not in before)


def check_etag(text: str | None) -> str | None:
    """The etag, if it has the form of one. Raises InvalidInputError otherwise."""
    if text is None or (isinstance(text, str) and (not text or all(map(is_tid, text.split(","))))):
        return text
    raise InvalidInputError(f"if_match={text!r:.200} is no etag: give Snapshot.etag of what you have read, as text")


def refuse_changed(
    ordered: Sequence[Decided],
    if_match: str,
    *,
    moment_s: float,
    known_since: datetime | None,
    where: str,
    but: Callable[[Decided], bool] = lambda commit: False,
) -> None:
    """Raises CommitConflictError if data changed since the state with the etag `if_match`.

    `ordered` are the commits of the table, oldest first. Commits that the etag names, and commits that surely came
    before them, do not count, and neither do those for which `but` is true.
    """
    seen = set(if_match.split(",")) if if_match else set[str]()
    ordered = [commit for commit in ordered if not commit.marker.is_abort]
    named = [commit for commit in ordered if commit.tid in seen]
    if unknown := seen - {commit.tid for commit in named}:
        raise CommitConflictError(
            f"{where} does not know the commit {min(unknown)} of if_match (any more), so nobody can say what was "
            f"committed since; nothing was committed: {_AGAIN}"
        )
    i = max((i for i, commit in enumerate(ordered) if commit.tid in seen), default=-1)
    until = max((commit.modified for commit in ordered[: i + 1]), default=None)
    if until and known_since and known_since > until:
        raise CommitConflictError(
            f"{where} has forgotten commits since {if_match}, or which files they removed, so nobody can say what "
            f"changed since; nothing was committed: {_AGAIN}"
        )
    before = _surely_before(ordered, named, timedelta(seconds=moment_s))
    newer = [commit for commit in ordered if commit.tid not in seen | before and _changes_data(commit)]
    late = [commit for commit in newer if not but(commit)]
    if late:
        beside = " or beside it" if if_match and late[0].tid in {it.tid for it in ordered[:i]} else ""
        others = f" and {len(late) - 1} others" if len(late) > 1 else ""
        after = f"after {if_match}{beside}" if if_match else "to a table that had no commits"
        raise CommitConflictError(
            f"{late[0].tid}{others} committed to {where} {after}, the state that this write is based on; nothing was "
            f"committed: {_AGAIN}"
        )


_AGAIN = (
    "read the table again, and write with if_match=Snapshot.etag of what you have read; for a restore, make a new plan"
)


def _changes_data(commit: Decided) -> bool:
    marker = commit.marker
    touched = marker.added or marker.removed or marker.removed_tids or any(commit.forgotten)
    return marker.is_data_change and bool(touched)


def _surely_before(ordered: Sequence[Decided], named: Sequence[Decided], moment: timedelta) -> set[str]:
    """The tids of commits that every reader of the named commits has surely seen. `ordered` is oldest first."""
    seen = [*named]
    tids = {commit.tid for commit in named}
    for commit in reversed(ordered):
        if commit.tid not in tids and any(_is_before(commit, it, moment) for it in seen):
            seen.append(commit)
    return {commit.tid for commit in seen} - tids


def _is_before(commit: Decided, last: Decided, moment: timedelta) -> bool:
    """Whether a reader of `last` has surely seen `commit`.

    True if `commit` had an earlier turn, if `last` removes one of its files, or if it is older by more than `moment`.
    """
    own, others = commit.marker.dbio_commit, last.marker.dbio_commit
    if own and others and own.turn and own.turn <= max(others.turn or 0, others.schema_turn or 0):
        return True
    return commit.modified + moment < last.modified or not set(last.marker.removed).isdisjoint(commit.marker.added)
