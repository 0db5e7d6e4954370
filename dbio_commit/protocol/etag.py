"""What was committed since somebody looked: for writes that go by what was there then (PROTOCOL.md 9.5). Pure.

Whoever looked is known by the last commit that they saw. Blind appends that ran beside it may have come a moment later
and stand before it in the history, by a time that was rounded or came first; so those of that moment that they saw are
named, too, and others of it count as come since.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.names import is_tid

MOMENT = timedelta(seconds=2)
"""No store takes longer until an object of some time is there."""


def name_last(ordered: Sequence[Decided]) -> str:
    """The last of these commits, oldest first; before it what may have come later, with commas. "" where is none."""
    committed = [commit for commit in ordered if not commit.marker.is_abort]
    if not committed:
        return ""
    last = committed[-1]
    before = _surely_before(committed, [last], MOMENT)
    return ",".join(commit.tid for commit in committed if commit.tid not in before)


def check_if_tid(text: str | None) -> str | None:
    """What `name_last` says, or a tid. Raises InvalidInputError for what is neither."""
    if text is None or (isinstance(text, str) and (not text or all(map(is_tid, text.split(","))))):
        return text
    raise InvalidInputError(f"if_tid={text!r:.200} is no tid: give Snapshot.tid of what the write goes by, as text")


def refuse_changed(
    ordered: Sequence[Decided], if_tid: str, *, moment_s: float, known_since: datetime | None, where: str
) -> None:
    """Of the commits of a table, oldest first.

    Raises CommitConflictError where anything but those of `if_tid`, and what came before them, has changed the data.
    """
    seen = set(if_tid.split(",")) if if_tid else set[str]()
    ordered = [commit for commit in ordered if not commit.marker.is_abort]
    named = [commit for commit in ordered if commit.tid in seen]
    if unknown := seen - {commit.tid for commit in named}:
        raise CommitConflictError(
            f"{where} knows no commit {min(unknown)} (any more), so that nobody can tell what was committed since; "
            "nothing was committed: read the table again, and write with the tid of that snapshot"
        )
    i = max((i for i, commit in enumerate(ordered) if commit.tid in seen), default=-1)
    until = max((commit.modified for commit in ordered[: i + 1]), default=None)
    if until and known_since and known_since > until:
        raise CommitConflictError(
            f"{where} has forgotten commits since {if_tid}, and of some what they removed; nothing was committed: read "
            "the table again, and write with the tid of that snapshot"
        )
    before = _surely_before(ordered, named, timedelta(seconds=moment_s))
    late = [commit for commit in ordered if commit.tid not in seen | before and _changes_data(commit)]
    if late:
        beside = " or beside it" if if_tid and late[0].tid in {it.tid for it in ordered[:i]} else ""
        others = f" and {len(late) - 1} others" if len(late) > 1 else ""
        after = f"after {if_tid}{beside}" if if_tid else "to a table that had no commits"
        raise CommitConflictError(
            f"{late[0].tid}{others} committed to {where} {after}, on which this write rests; nothing was committed: "
            "read the table again, decide anew, and write with if_tid=Snapshot.tid of what you have read"
        )


def _changes_data(commit: Decided) -> bool:
    marker = commit.marker
    touched = marker.added or marker.removed or marker.removed_tids or any(commit.forgotten)
    return marker.is_data_change and bool(touched)


def _surely_before(ordered: Sequence[Decided], named: Sequence[Decided], moment: timedelta) -> set[str]:
    """Of these commits, oldest first, those that whoever saw the named ones has surely seen."""
    seen = [*named]
    tids = {commit.tid for commit in named}
    for commit in reversed(ordered):
        if commit.tid not in tids and any(_is_before(commit, it, moment) for it in seen):
            seen.append(commit)
    return {commit.tid for commit in seen} - tids


def _is_before(commit: Decided, last: Decided, moment: timedelta) -> bool:
    """Whether who saw `last` has surely seen the other: an earlier turn, what it rests on, or time enough."""
    own, others = commit.marker.dbio_commit, last.marker.dbio_commit
    if own and others and own.turn and own.turn <= max(others.turn or 0, others.schema_turn or 0):
        return True
    return commit.modified + moment < last.modified or not set(last.marker.removed).isdisjoint(commit.marker.added)
