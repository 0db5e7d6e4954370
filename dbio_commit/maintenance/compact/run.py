"""Runs a compaction: several commits, each of which replaces files by new ones with the same rows.

`plan` chooses the files, and `rewrite` writes a new one. Other writers may append meanwhile. Files that they rewrite or
overwrite are left to the next compaction.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, InvalidInputError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.data import columns as kinds
from dbio_commit.data.clustering import fitted_columns
from dbio_commit.data.fitting import without
from dbio_commit.log.found_columns import table_columns
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.schema_drift import find_drifted, find_other_types
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.compact.cluster import cluster
from dbio_commit.maintenance.compact.options import MOST_BYTES, CompactOptions
from dbio_commit.maintenance.compact.placed import placed_files
from dbio_commit.maintenance.compact.plan import CLUSTERED_BYTES, Bin, in_commits, plan_bins
from dbio_commit.maintenance.compact.reading import Work
from dbio_commit.maintenance.compact.report import STOPPED, Compacted, CompactReport, LeftFiles
from dbio_commit.maintenance.compact.rewrite import BinOutcome, rewrite
from dbio_commit.maintenance.compact.runs import plan_groups
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import count_rows
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import bare_columns, cluster_columns, gives_field_ids
from dbio_commit.protocol.state import live_among
from dbio_commit.store import Store

_log = get_logger(__name__)

Rewriter = Callable[[Work, Sequence[Bin]], Sequence[BinOutcome]]
"""Rewrites the bins. The number of an outcome is the position of its bin."""

_THREADS = min(4, os.cpu_count() or 1)


def compact(
    store: Store,
    clock: Clock,
    options: CompactOptions,
    *,
    dry_run: bool = False,
    time_zone: str | None = None,
    rewriter: Rewriter | None = None,
    stop: Callable[[], bool] = lambda: False,
    note: Note = NO_NOTE,
    most: int = MOST_BYTES,
) -> CompactReport:
    """See `Table.compact`. `rewriter` rewrites files, by default in threads. `stop` is called before each commit.
    `note` has the message and labels of each commit. `most` is `CompactOptions.most`, if that is None."""
    where = options.where
    snapshot = read_snapshot(store, clock)
    if snapshot.scope is not Scope.TABLE:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so a rewrite would not be atomic; `dbio adopt` makes it a table"
        )
    if where is not None and snapshot.schema is None:
        raise InvalidInputError(
            f"no writer has recorded the columns of {store.url}, so where={where!r:.100} cannot leave out any file; "
            "compact without a condition"
        )
    clustered = cluster_columns(snapshot.settings)
    options.refuse_unfit(clustered, where=store.url)
    if not snapshot.files:
        return CompactReport(url=store.url, dry_run=dry_run, other_types=0 if options.rewrite_types else None)
    columns = _columns(snapshot, store)
    if clustered:
        clustered = fitted_columns(snapshot.settings, columns, snapshot.partition_columns, where=store.url)
    work = Work(
        tid="",
        job="",
        columns=json.dumps(columns),
        sort_by=_order_columns(options.sort_by, columns, snapshot),
        z_order=clustered or _order_columns(options.z_order, columns, snapshot),
        cluster_by=clustered,
        spill=options.spill,
        bare=bare_columns(snapshot.settings),
        has_ids=gives_field_ids(snapshot.settings),
    )
    chosen = snapshot if where is None else snapshot.where(where, time_zone=time_zone)
    anew = (find_other_types if options.rewrite_types else find_drifted)(store, chosen, columns)
    bins = _plan(chosen, columns, options, work, anew, most)
    other_types = len(anew) if options.rewrite_types else None
    if dry_run:
        planned = [_compacted(bin, None) for bin in bins]
        return CompactReport(
            url=store.url, dry_run=True, compacted=tuple(planned), other_types=other_types, cluster_by=clustered
        )
    rows = snapshot.rows_of([file for bin in bins for file in bin.files])
    run = _Run(store, clock, work, rewriter or in_threads(store), rows, note)
    for together in in_commits(bins, most_bytes=CLUSTERED_BYTES) if clustered else in_commits(bins):
        if stop():
            run.leave(together, STOPPED)
        else:
            run.commit(together)
    return replace(run.report(), other_types=other_types, cluster_by=clustered)


def _plan(
    chosen: Snapshot,
    columns: Mapping[str, Any],
    options: CompactOptions,
    work: Work,
    anew: Collection[str],
    most: int,
) -> list[Bin]:
    """The bins to rewrite, from the chosen files. The files with the paths `anew` are rewritten in any case."""
    if not work.cluster_by:
        return plan_bins(
            chosen.files,
            target_size=options.target_size,
            in_order=work.is_ordered,
            min_files=options.min_files,
            anew=anew,
        )
    return plan_groups(
        placed_files(chosen, columns, work.cluster_by, anew=anew),
        target_size=options.target_size,
        most=options.most or most,
        min_files=options.min_files,
        full=options.full,
    )


def in_threads(
    store: Store, *, at_once: int = _THREADS, sorts: int = _THREADS, stop: Callable[[], bool] = lambda: False
) -> Rewriter:
    """Rewrites bins in `at_once` threads, or `sorts` threads if rows are sorted: then a thread has all rows of a new
    file in memory. Begins no other bin once `stop` returns true."""

    def rewriter(work: Work, bins: Sequence[Bin]) -> Sequence[BinOutcome]:
        threads = min(at_once, sorts) if work.is_ordered else at_once

        def one(numbered: tuple[int, Bin]) -> BinOutcome:
            number, bin = numbered
            return (
                BinOutcome(number=number, problem=STOPPED)
                if stop()
                else rewrite(store, work, bin, number=number, attempt=0)
            )

        alone = [it for it in enumerate(bins) if it[1].pieces == 1]
        return [
            *store.in_parallel(one, alone, at_once=threads),
            *(
                cluster(store, work, bin, number=number, at_once=threads, stop=stop)
                for number, bin in enumerate(bins)
                if bin.pieces > 1
            ),
        ]

    return rewriter


class _Run:
    """One compaction, commit by commit."""

    def __init__(
        self, store: Store, clock: Clock, work: Work, rewriter: Rewriter, rows: Mapping[str, int | None], note: Note
    ) -> None:
        """`rows` are the recorded numbers of rows of files, by path."""
        self._store, self._clock, self._work, self._rewriter, self._rows = store, clock, work, rewriter, rows
        self._note = note
        self.compacted: list[Compacted] = []
        self.commits: list[str] = []
        self.left: list[LeftFiles] = []

    def report(self) -> CompactReport:
        return CompactReport(
            url=self._store.url,
            dry_run=False,
            compacted=tuple(self.compacted),
            commits=tuple(self.commits),
            left=tuple(self.left),
        )

    def commit(self, bins: Sequence[Bin]) -> None:
        """Rewrites these bins, and commits those that no other commit has changed meanwhile."""
        bins = [bin for bin, live in zip(bins, self._are_live(bins), strict=True) if live]
        if not bins:
            return
        target = look(self._store, self._clock)
        if target.scope is not Scope.TABLE:  # `begin` would make a new table
            raise CommitConflictError(f"{self._store.url} was dropped while it was compacted")
        intent = Intent(operation="rewrite", changes_rows=False, note=self._note)
        with begin(context_of(self._store, self._clock), intent, target=target) as transaction:
            terms = transaction.terms
            outcomes = self._rewriter(replace(self._work, tid=terms.tid, job=terms.job), bins)
            done = self._without_problems((bins[outcome.number], outcome) for outcome in outcomes)
            live = self._are_live([bin for bin, _ in done])
            lost = [it for (_, it), is_live in zip(done, live, strict=True) if not is_live]
            self._store.delete_many([file.path for it in lost for file in it.files])
            done = [it for it, is_live in zip(done, live, strict=True) if is_live]
            if not done:
                transaction.abort()
                return
            transaction.keep_partitions()
            transaction.record_clustering(self._work.cluster_by)
            transaction.add((file for _, it in done for file in it.files), looked_at=True)
            transaction.remove(path for bin, _ in done for path in bin.paths)
            try:
                commit = transaction.commit()
            except CommitConflictError as error:
                transaction.abort()
                _log.info("%s: %s", self._store.url, error)
                self.leave((bin for bin, _ in done), _CHANGED)
                return
        self.commits.append(commit.tid)
        self.compacted += [_compacted(bin, it) for bin, it in done]

    def _are_live(self, bins: Sequence[Bin]) -> list[bool]:
        """For each bin, whether all of its files are live. Reports the other bins as left."""
        now = read_snapshot(self._store, self._clock)
        live = live_among(now.files, {path for bin in bins for path in bin.paths})
        found = [live.issuperset(bin.paths) for bin in bins]
        self.leave((bin for bin, is_live in zip(bins, found, strict=True) if not is_live), _CHANGED)
        return found

    def _without_problems(self, outcomes: Iterable[tuple[Bin, BinOutcome]]) -> list[tuple[Bin, BinOutcome]]:
        """The bins that have new files. Reports the other bins as left."""
        done: list[tuple[Bin, BinOutcome]] = []
        for bin, outcome in outcomes:
            if outcome.missing:
                if all(self._are_live([bin])):
                    raise ObjectNotFoundError(f"{outcome.problem}; it is a live file: run `dbio check`")
            elif outcome.problem:
                self.leave([bin], outcome.problem)
            elif (recorded := count_rows(bin.paths, self._rows)) not in (None, outcome.rows):
                self._store.delete_many([file.path for file in outcome.files])
                held = f"they have {outcome.rows} rows, but their writers recorded {recorded}"
                self.leave([bin], f"{held}: somebody changed some of the files; run `dbio check` to find out more")
            else:
                done.append((bin, outcome))
        return done

    def leave(self, bins: Iterable[Bin], reason: str) -> None:
        self.left += [LeftFiles(paths=bin.paths, size=bin.size, reason=reason) for bin in bins]


_CHANGED = "another commit removed or rewrote some of them meanwhile"


def _compacted(bin: Bin, outcome: BinOutcome | None) -> Compacted:
    return Compacted(
        directory=bin.directory,
        files=len(bin.files),
        size=bin.size,
        path=outcome.files[0].path if outcome and outcome.files else None,
        new_size=sum(file.size for file in outcome.files) if outcome else None,
        rows=outcome.rows if outcome else None,
        new_files=len(outcome.files) if outcome else bin.pieces,
    )


# --- columns ------------------------------------------------------------------------------------------------------


def _columns(snapshot: Snapshot, store: Store) -> Mapping[str, Any]:
    """The table's columns without partition columns, as Spark's JSON.

    Raises InvalidInputError if no columns can be found, or if the recorded ones are not a valid schema.
    """
    found = table_columns(store, snapshot)
    kinds.arrow_schema(found, where=store.url)  # refuses an invalid schema
    return without(found, snapshot.partition_columns)


def _order_columns(sort_by: Sequence[str], columns: Mapping[str, Any], snapshot: Snapshot) -> tuple[str, ...]:
    """The columns as the table spells them. Leaves out partition columns, as a file has one value of each.

    Raises InvalidInputError.
    """
    schema = kinds.arrow_schema(columns, where=snapshot.url)
    spelling = {field.name.lower(): field for field in schema}
    partition = {column.lower() for column in snapshot.partition_columns}
    found: list[str] = []
    for name in sort_by:
        if not isinstance(name, str) or name.lower() not in spelling.keys() | partition:
            raise InvalidInputError(f"{name!r:.100} is no column of {snapshot.url}; see `dbio schema`")
        field = spelling.get(name.lower())
        if field is not None and pa.types.is_nested(field.type):
            raise InvalidInputError(f"column {name!r} is {field.type}, which has no order; name another column")
        if field is not None:
            found.append(field.name)
    return tuple(dict.fromkeys(found))
