"""Decides what a stream reads next: the rows that came with each commit, in the order of the history. Pure.

The position of a stream is in `position`. Rules: PROTOCOL.md 8.4.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from dbio_commit.base.errors import ChangedRowsError, HistoryLostError, InvalidInputError
from dbio_commit.feed.position import WATCHED, CommitPart, Position, Start, position_of
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.files_in_order import FilesInOrder, Totals
from dbio_commit.protocol.history import FileChange, History, recorded_operation, takes_rows
from dbio_commit.protocol.state import DataFile
from dbio_commit.protocol.timeline import Had


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The options of a stream, or of one read of the changes between two commits."""

    is_stream: bool = True
    changes: bool = False
    """Whether it reads removed rows, too. Each row is then marked as added or removed."""
    skip_change_commits: bool = False
    """Whether it skips commits that remove rows, with the files that they add."""
    ignore_changes: bool = False
    """Whether it reads all files that such commits add, also rows that were only rewritten."""
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a batch. A batch has at least one file, whatever its size."""

    files: int | None = None
    size_bytes: int | None = None

    def count(self, files: Iterable[DataFile]) -> int:
        """How many of these files fit into a batch, in their order."""
        count = size = 0
        for file in files:
            size += max(file.size, 0)
            if count == self.files or (self.size_bytes is not None and size > self.size_bytes and count):
                break
            count += 1
        return count

    def less(self, files: Sequence[DataFile]) -> "BatchLimits | None":
        """The limits that are left after these files; None if the batch is full."""
        size = sum(max(file.size, 0) for file in files)
        if (self.files is not None and self.files <= len(files)) or (
            self.size_bytes is not None and self.size_bytes <= size
        ):
            return None
        return BatchLimits(
            files=None if self.files is None else self.files - len(files),
            size_bytes=None if self.size_bytes is None else self.size_bytes - size,
        )


ALL = BatchLimits()


class Lag(NamedTuple):
    """What a stream has not read yet."""

    commits: int
    files: int
    size_bytes: int
    oldest: datetime | None
    """The time of the oldest of these commits."""


class Feed:
    """A table's history, as one stream reads it."""

    def __init__(self, history: History, wanted: FeedOptions) -> None:
        self._history, self._wanted = history, wanted
        self.warnings: list[str] = []
        """Warnings about lost files, if `fail_on_data_loss` is False."""

    def newest(self) -> Position:
        """The position of a stream that has read everything."""
        return self._position(self._history.timeline.all())

    def after(
        self, at: Position | Start, most: BatchLimits = ALL, *, target: Position | None = None
    ) -> Position | Start:
        """The position at which the next batch ends; `at` itself if nothing is new. Only commits that the position
        `target` includes count as new.

        Raises HistoryLostError, ChangedRowsError, and InvalidInputError for a start that the history does not have.
        """
        if isinstance(at, Start) and at.begin == "state":
            known = self._history.timeline.all() if target is None else self._had(target)
            part = CommitPart(done=0, files=len(self._history.state(known)))
            return self._within_state(self._position(known, part), most) if len(known) else at
        self._check(at)
        if isinstance(at, Position) and at.part and at.part.tid is None and at.part.done < at.part.files:
            return self._within_state(at, most)
        done, cut = list[Decided](), None
        left: BatchLimits | None = most
        for commit in self._rest(at):
            if target is not None and not target.had(commit):
                continue
            try:
                changes = self._changes(commit)
            except (ChangedRowsError, HistoryLostError):
                if done:
                    break  # the changes before it are still read
                raise
            files = [change.file for change in changes]
            skip = _done(at, commit.tid, len(files))
            had = skip + (left.count(files[skip:]) if left else 0)
            if any(change.kind == "recorded" for change in changes[skip:had]):
                had = len(files)  # the old and the new row may be in two files: both are read in one batch
            if had < len(files):
                cut = CommitPart(tid=commit.tid, done=had, files=len(files)) if had else None
                break
            done.append(commit)
            left = left and left.less(files[skip:])
        if not done and cut == (at.part if isinstance(at, Position) and at.part and at.part.tid else None):
            return at
        until = at.until if isinstance(at, Position) else None
        return self._position(self._had(at).plus(done), cut, until=until)

    def between(self, start: Position | Start, end: Position) -> list[FileChange]:
        """The changes that the batch between two positions reads, in order. The same for each call. Raises as `after`
        does."""
        self._check(start)
        self._check(end)
        if end.part and end.part.tid is None:
            return [*self._of_state(end, _done(start, None, end.part.files))]
        found = list[FileChange]()
        places = self._history.timeline.places
        parts = [at.part.tid or "" for at in (start, end) if isinstance(at, Position) and at.part]
        last = max(self._had(end).last_place(), *(places.get(tid, -1) for tid in parts), -1)
        for commit in takewhile(lambda it: places[it.tid] <= last, self._rest(start)):
            is_part = end.part is not None and end.part.tid == commit.tid
            if end.had(commit) or is_part:
                changes = self._changes(commit)
                stop = _done(end, commit.tid, len(changes)) if is_part else None
                found += changes[_done(start, commit.tid, len(changes)) : stop]
        return found

    def lag(self, at: Position | Start) -> Lag:
        """What the stream has not read at a position, whatever its options."""
        history, had = self._history, self._had(at)
        if isinstance(at, Start) and at.begin == "state":
            left = _totals_of(history.state(history.timeline.all()), 0)
        else:
            left = history.totals_without(had)
            part = at.part if isinstance(at, Position) else None
            place = history.timeline.places.get(part.tid or "") if part else None
            if part and place is not None and not had.has(commit := history.commits[place]):
                done = [change.file for change in history.added(commit)[: self._added(at, commit)]]
                left = left.less(Totals(len(done), sum(max(file.size, 0) for file in done)))
            if isinstance(at, Position) and part and part.tid is None:
                left = left.plus(_totals_of(self._state(at), part.done))
        return Lag(had.rest_count(), left.files, left.bytes, had.rest_since())

    def span(self, start: Start, end: datetime | str | None) -> Iterator[tuple[Decided, list[FileChange]]]:
        """The commits from `start` to `end`, inclusive, each with the changes that the stream would read.

        `end` is a time or a tid; None is now. Raises HistoryLostError, InvalidInputError.
        """
        self._check(start)
        commits = [*self._rest(start)]
        if isinstance(end, datetime):
            commits = [commit for commit in commits if commit.modified <= end]
        elif end is not None:
            tids = [commit.tid for commit in commits]
            if end not in tids:
                raise InvalidInputError(
                    f"{self._history.url} has no commit {end!r:.100} at or after the start; `dbio log` lists them"
                )
            commits = commits[: tids.index(end) + 1]
        return ((commit, self._changes(commit)) for commit in commits)

    def doubtful(self, changes: Sequence[FileChange]) -> list[str]:
        """The paths of files that vacuum may have deleted, since a commit has removed them."""
        return self._history.removed_among(changes)

    def lose(self, what: str) -> None:
        """Raises HistoryLostError, or warns if the stream does not want to fail."""
        if not self._wanted.is_stream:
            raise HistoryLostError(
                f"{what}; begin with a later commit (`dbio log` lists them). Vacuum with a longer retention, so that "
                "there is time to read"
            )
        if self._wanted.fail_on_data_loss:
            raise HistoryLostError(
                f"{what}; begin anew with another checkpoint, or set failOnDataLoss=false to go on without them. "
                "Vacuum with a longer retention, so that a stream has the time to read"
            )
        self.warnings.append(what)

    # --- commits --------------------------------------------------------------------------------------------------

    def _had(self, at: Position | Start) -> Had:
        """The commits that the stream has read, or that come before its start."""
        timeline = self._history.timeline
        if isinstance(at, Position):
            return timeline.until(at.until, at.tids)
        if at.begin == "state":
            return timeline.none()
        if at.time is not None:
            return timeline.before(at.time)
        place = timeline.places.get(at.tid or "")
        if place is None:
            raise InvalidInputError(
                f"{self._history.url} has no commit {at.tid!r:.100} to begin with; `dbio log` lists those it has"
            )
        return timeline.before_place(place)

    def _rest(self, at: Position | Start) -> Iterator[Decided]:
        """The commits that the stream has not read, oldest first. A partly read commit comes before them."""
        had, timeline = self._had(at), self._history.timeline
        tid = at.part.tid if isinstance(at, Position) and at.part else None
        begun = [] if tid not in timeline.places else [timeline.commits[timeline.places[tid]]]
        begun = [commit for commit in begun if not had.has(commit)]
        return chain(begun, (commit for commit in had.rest() if commit not in begun))

    def _added(self, at: Position | Start, commit: Decided) -> int:
        """How many of the files that a commit added have been read. The files that it removed are read before them."""
        removed = len(self._history.removed(commit)) if self._wanted.changes else 0
        return max(_done(at, commit.tid) - removed, 0)

    def _position(self, had: Had, part: CommitPart | None = None, *, until: datetime | None = None) -> Position:
        at_least = {} if until is None else {"at_least": until}
        history = self._history
        return position_of(
            had, table_id=history.origin.table_id, redated_until=history.redated_until, part=part, **at_least
        )

    def _check(self, at: Position | Start) -> None:
        """Raises HistoryLostError or warns, as `lose` does, if the history lacks something that comes after the
        position."""
        history = self._history
        if isinstance(at, Position) and at.table != history.origin.table_id:
            raise HistoryLostError(
                f"{history.url} is another table than the one that this stream began to read, which was removed; "
                "begin again with another checkpoint"
            )
        if history.redated_until and self._rests_on_times(at, history.redated_until):
            until = history.redated_until.isoformat()
            advice = (
                "which of the commits before that time this stream has read, or is to begin with; begin with the state "
                "of the table, in a new checkpoint"
                if self._wanted.is_stream
                else "with which of the commits before that time to begin; begin with a later one"
            )
            raise HistoryLostError(
                f"{history.url} was copied, and its objects got new times until {until}: nobody knows {advice}. Copy "
                "tables with `dbio copy`, which keeps times"
            )
        if isinstance(at, Position) and (late := _late(at, history.timeline.times)):
            self.lose(
                f"{late} commits of {history.url} have come with times before {at.until.isoformat()}, a position of "
                "this stream: the store's clock was set back, or somebody restored old markers. A batch that covers "
                "the time of such a commit has its rows if it is read, or read again, after the commit came; no other "
                "batch has them"
            )
        if isinstance(at, Position) and (gone := _gone(at, history.timeline.times, history.now)):
            self.lose(
                f"{gone} commits of {history.url} that this stream has read have gone, or have later times: somebody "
                "deleted commit markers, or brought them back with new times. If they are back, the stream would read "
                "their rows again; `dbio check` may say which are missing. Begin with the state of the table, in a new "
                "checkpoint, or bring the markers back with the times that they had"
            )
        last = self._last(at)
        if history.known_since and last is not None and last < min(history.known_since, history.now - _REMEMBERED):
            self.lose(
                f"{history.url} has forgotten commits since {last.isoformat()}, where this read begins: of commits "
                "that are older than 30 days, the table keeps only files that are still live"
            )

    def _rests_on_times(self, at: Position | Start, until: datetime) -> bool:
        """Whether the position uses times of commits that a copy has changed."""
        if isinstance(at, Position):
            return at.redated_until != until
        return at.begin != "state" and (since := self._had(at).rest_since()) is not None and since <= until

    def _last(self, at: Position | Start) -> datetime | None:
        """The time since which the history must be complete; None if no part of it is needed."""
        if isinstance(at, Start) and at.begin != "tid":
            return at.time
        if isinstance(at, Position):
            return self._had(at).newest() or at.until
        return next((commit.modified for commit in self._rest(at)), None)

    def _changes(self, commit: Decided) -> list[FileChange]:
        """The changes that the stream reads of a commit."""
        wanted, marker = self._wanted, commit.marker
        if not marker.is_data_change:
            return []
        takes = takes_rows(commit)
        if takes and not wanted.changes:
            if wanted.skip_change_commits:
                return []
            if not wanted.ignore_changes:
                writer = recorded_operation(commit) or "another writer"
                raise ChangedRowsError(
                    f"commit {commit.tid} of {self._history.url} ({writer}) has removed "
                    "rows, which a stream of appended rows cannot show; set skipChangeCommits=true to skip "
                    "such commits, ignoreChanges=true to read all that they add, or readChangeFeed=true"
                )
        commit = self._history.whole(commit)
        if lost := commit.forgotten.added + (commit.forgotten.removed if takes and wanted.changes else 0):
            self.lose(
                f"{lost} files of commit {commit.tid} of {self._history.url} were removed, and vacuumed or erased, "
                "before they were read"
            )
        return self._history.all_changes(commit) if wanted.changes else self._history.added(commit)

    # --- the state that a stream begins with ------------------------------------------------------------------------

    def _within_state(self, at: Position, most: BatchLimits) -> Position:
        assert at.part
        state, done = self._state(at), at.part.done
        if most.size_bytes is None:
            done = len(state) if most.files is None else min(done + most.files, len(state))
        else:
            done += most.count(state.some(done))
        return replace(at, part=CommitPart(done=done, files=at.part.files))

    def _of_state(self, end: Position, start: int) -> Iterator[FileChange]:
        assert end.part
        commits, places = self._history.commits, self._history.timeline.places
        for file in self._state(end).some(start, end.part.done):
            yield FileChange(file, "insert", str(file.tid), commits[places[str(file.tid)]].modified)

    def _state(self, at: Position) -> FilesInOrder:
        """The files that were live after exactly the commits that the position includes."""
        found = self._history.state(self._had(at))
        if at.part and at.part.files != len(found):
            raise HistoryLostError(
                f"of {at.part.files} files that were live in {self._history.url} when this stream began, "
                f"{at.part.files - len(found)} were removed, and vacuumed or erased, before the stream had read them "
                "all; begin anew with another checkpoint, and vacuum with a longer retention"
            )
        return found


def _totals_of(state: FilesInOrder, start: int) -> Totals:
    return Totals(len(state) - start, state.bytes_from(start))


def _late(at: Position, times: Sequence[datetime]) -> int:
    """How many commits with earlier times have appeared since the position was made."""
    watched, older = at.count_watched(times)
    return max(watched - at.commits, 0) + max(older - at.older, 0)


def _gone(at: Position, times: Sequence[datetime], now: datetime) -> int:
    """How many of the commits from the 7 days before `until` (WATCHED) are missing. No checkpoint has forgotten
    them."""
    if at.until <= now - _REMEMBERED + WATCHED:
        return 0
    watched, _ = at.count_watched(times)
    return max(at.commits - watched, 0)


_REMEMBERED = HISTORY - timedelta(days=1)
"""A checkpoint remembers all commits that are younger than this, by the store's and by the writer's clock."""


def _done(at: Position | Start, tid: str | None, files: int | None = None) -> int:
    """How many files of the commit, or of the state if `tid` is None, were read. `files` is how many it has now."""
    if not isinstance(at, Position) or not at.part or at.part.tid != tid:
        return 0
    if files is not None and at.part.files != files:
        raise HistoryLostError(
            f"commit {tid} had {at.part.files} files when this stream had read {at.part.done} of them, and has "
            f"{files} now: the others were removed, and vacuumed or erased; begin anew with another checkpoint"
        )
    return at.part.done
