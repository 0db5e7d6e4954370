"""What a vacuum of a table of ours deletes, rule by rule, with both sides of every horizon. Pure: PROTOCOL.md 10.

Rules: PROTOCOL.md 10.1, 10.3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dbio_commit import RetentionError
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum.plan import Candidate, Contents, Horizons, by_directory, emptied
from dbio_commit.maintenance.vacuum.table_plan import (
    Judge,
    NeededMarkers,
    PurgeBy,
    checkpoint_is_due,
    checkpoints_to_purge_by,
    gone_files,
    purge,
    still_unknown,
    timed_out,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import removed_files
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, abort_marker
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import live_files
from vacuum import Deletion, Reason, VacuumOptions, VacuumReport

NOW = datetime(2026, 11, 20, tzinfo=UTC)
TICK = timedelta(microseconds=1)
HORIZONS = Horizons.at(NOW, VacuumOptions())
OLD, YOUNG = HORIZONS.data - TICK, HORIZONS.data
"""Just outside, and just inside, of the retention."""
TID, OTHER = "1000000000000000001", "1000000000000000002"

age = pytest.mark.parametrize(("at", "is_old"), [(OLD, True), (YOUNG, False)], ids=["old", "young"])


def data(tid: str = TID, directory: str = "", *, number: int = 0) -> str:
    name = names.format_data_file(tid=tid, job="job", task=0, attempt=0, number=number, suffix=".parquet")
    return names.join(directory, name)


def entry(path: str, at: datetime = NOW, size: int = 1) -> Entry:
    return Entry(path, size, at)


def committed(tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, at: datetime = NOW) -> Decided:
    return Decided(at, tid, CommitMarker(added=list(added), removed=list(removed)))


def aborted(tid: str, *, at: datetime = NOW) -> Decided:
    return Decided(at, tid, abort_marker(commit_id="x", timestamp=at))


def log_of(*entries: Entry) -> Log:
    return parse_log(entries)


def started(tid: str, at: datetime = NOW) -> Entry:
    return entry(names.started(tid), at, 0)


def marker(tid: str, at: datetime = NOW, size: int = 1) -> Entry:
    return entry(names.committed(tid), at, size)


def snapshot(
    *commits: Decided, log: Log | None = None, checkpoint: Checkpoint = NO_CHECKPOINT, columns: Sequence[str] = ()
) -> Snapshot:
    return Snapshot(
        url="memory://table",
        scope=Scope.TABLE,
        files=live_files(commits),
        partition_columns=tuple(columns),
        first_layout=tuple(columns),
        decided=commits,
        checkpoint=checkpoint,
        log=log or Log(),
    )


def judge(*commits: Decided, log: Log | None = None, columns: Sequence[str] = (), untracked: bool = False) -> Judge:
    return Judge.of(snapshot(*commits, log=log, columns=columns), HORIZONS, untracked=untracked)


def only(garbage: Sequence[Candidate]) -> Candidate:
    (it,) = garbage
    return it


# --- horizons and options -----------------------------------------------------------------------------------------


def test_horizons_count_back_from_the_clock() -> None:
    assert HORIZONS.now == NOW
    assert HORIZONS.data == NOW - timedelta(hours=48)
    assert HORIZONS.metadata == NOW - timedelta(minutes=30)


@pytest.mark.parametrize("hours", [0, 0.25])
def test_the_metadata_horizon_is_never_earlier_than_the_data_horizon(hours: float) -> None:
    horizons = Horizons.at(NOW, VacuumOptions(retention_hours=hours, force=True))
    assert horizons.metadata == horizons.data == NOW - timedelta(hours=hours)


@pytest.mark.parametrize("hours", [1, 1.5, 48, 876_000])
def test_a_retention_of_an_hour_or_more_is_fine(hours: float) -> None:
    VacuumOptions(retention_hours=hours).check()


@pytest.mark.parametrize("hours", [0, 0.5, 0.999999])
def test_a_retention_below_an_hour_must_be_forced(hours: float) -> None:
    with pytest.raises(RetentionError, match="force"):
        VacuumOptions(retention_hours=hours).check()
    VacuumOptions(retention_hours=hours, force=True).check()


@pytest.mark.parametrize("hours", [-1, -1e-9, float("nan"), float("inf"), float("-inf"), 1e300])
def test_a_retention_that_means_nothing_cannot_be_forced(hours: float) -> None:
    for force in (False, True):
        with pytest.raises(RetentionError, match="is not possible"):
            VacuumOptions(retention_hours=hours, force=force).check()


@pytest.mark.parametrize("days", [0, 7, 29.9, -1, float("nan"), float("inf"), 1e300])
def test_a_history_that_a_late_writer_could_outlive_is_refused(days: float) -> None:
    with pytest.raises(RetentionError, match="history_days"):
        VacuumOptions(history_days=days).check()
    VacuumOptions(history_days=30).check()


def test_a_checkpoint_after_a_negative_number_of_commits_is_refused() -> None:
    with pytest.raises(RetentionError, match="checkpoint_after"):
        VacuumOptions(checkpoint_after=-1).check()


# --- data files ---------------------------------------------------------------------------------------------------


@age
def test_a_removed_file_is_due_once_its_removal_is_older_than_the_retention(at: datetime, is_old: bool) -> None:  # I4
    found = only(
        judge(committed(TID, [data()], at=OLD - TICK), committed(OTHER, [], [data()], at=at)).garbage(
            [entry(data(), OLD, size=7)]
        )
    )
    assert found == Candidate(data(), 7, at, Reason.REMOVED, is_old, TID)


def test_a_file_that_was_removed_twice_was_removed_the_first_time() -> None:
    commits = [committed(TID, [], [data()], at=YOUNG), committed(OTHER, [], [data()], at=OLD)]
    assert removed_files(commits) == removed_files(commits[::-1]) == {data(): OLD}


def test_a_live_file_is_no_garbage_however_old() -> None:  # I4
    long_ago = NOW - timedelta(days=10_000)
    files = [data(), "named by a commit only.parquet"]
    it = judge(committed(TID, files, at=long_ago), untracked=True)
    assert it.garbage([entry(path, long_ago) for path in files]) == []


@pytest.mark.parametrize("at", [OLD, YOUNG, NOW])
def test_what_a_failed_task_attempt_or_an_aborted_transaction_left_is_due_at_once(at: datetime) -> None:
    it = judge(committed(TID, [data()], at=at), aborted(OTHER, at=at))
    attempt, leftover = data(number=1), data(OTHER)
    assert it.garbage([entry(attempt, at), entry(leftover, at)]) == [
        Candidate(attempt, 1, at, Reason.FAILED_ATTEMPT, True, TID),
        Candidate(leftover, 1, at, Reason.ABORTED, True, OTHER),
    ]


@age
def test_what_a_pending_transaction_writes_is_never_due(at: datetime, is_old: bool) -> None:  # I5: it is aborted first
    it = judge(log=log_of(started(TID, at)))
    assert it.garbage([entry(data(), OLD)]) == [Candidate(data(), 1, at, Reason.PENDING, False, TID)]


def test_a_dry_run_takes_for_aborted_what_would_be_aborted() -> None:
    pending = snapshot(log=log_of(started(TID, OLD)))
    it = Judge.of(pending, HORIZONS, untracked=False, assume_aborted=[TID])
    assert only(it.garbage([entry(data())])).reason is Reason.ABORTED


@age
def test_a_file_of_an_unknown_transaction_is_due_once_it_is_older_than_the_retention(
    at: datetime, is_old: bool
) -> None:
    assert judge().garbage([entry(data(), at)]) == [Candidate(data(), 1, at, Reason.UNKNOWN, is_old, TID)]


def test_a_file_whose_transaction_a_later_snapshot_knows_is_not_unknown_any_more() -> None:
    tids = [f"100000000000000000{i}" for i in range(5)]
    files = [entry(data(tid), OLD) for tid in tids]
    found = judge().garbage([*files, entry("export.csv", OLD)])
    later = snapshot(
        committed(tids[0], [data(tids[0])]), committed(tids[1]), aborted(tids[2]), log=log_of(started(tids[3]))
    )
    assert [it.path for it in still_unknown(later, found)] == [data(tids[4])]


@age
@pytest.mark.parametrize("is_asked", [False, True])
def test_an_untracked_file_is_due_once_it_is_old_and_somebody_asks_for_it(
    at: datetime, is_old: bool, is_asked: bool
) -> None:
    found = only(judge(untracked=is_asked).garbage([entry("export.csv", at)]))
    assert found == Candidate("export.csv", 1, at, Reason.UNTRACKED, is_old and is_asked, None)


COLUMNS = ("day", "hour")


@pytest.mark.parametrize(
    "directory",
    ["", "day=1", "hour=1", "hour=1/day=1", "day=1/hour=2/minute=3", "copy", "copy/day=1/hour=2", "day=1/hour=2/copy",
     "day=1/copy", "day=1/day=2", "month=1/hour=2"],
)  # fmt: skip
def test_a_file_outside_of_the_tables_partitions_is_untracked_whatever_its_name(directory: str) -> None:
    it = judge(committed(TID), columns=COLUMNS)
    for tid in (TID, "7"):
        assert only(it.garbage([entry(data(tid, directory), OLD)])).reason is Reason.UNTRACKED


@pytest.mark.parametrize("directory", ["copy", "copy/day=1/hour=2", "day=1/hour=2/copy", "day=1/copy", "day=1/day=2"])
def test_a_copy_of_what_did_not_commit_is_untracked_where_no_partition_can_be(directory: str) -> None:
    it = judge(aborted(OTHER), columns=COLUMNS)
    assert only(it.garbage([entry(data(OTHER, directory), OLD)])).reason is Reason.UNTRACKED


@pytest.mark.parametrize("directory", ["", "day=1", "hour=1/day=1", "day=1/hour=2/minute=3", "month=1"])
def test_what_did_not_commit_may_lie_in_a_partition_by_other_columns(directory: str) -> None:
    """An overwrite that was to change them."""
    it = judge(aborted(OTHER), columns=COLUMNS)
    assert only(it.garbage([entry(data(OTHER, directory), OLD)])).reason is Reason.ABORTED


@pytest.mark.parametrize("directory", ["day=1/hour=2", "day=a%2Fb/hour=__HIVE_DEFAULT_PARTITION__"])
def test_a_file_in_a_partition_of_the_table_is_its_transactions(directory: str) -> None:
    it = judge(committed(TID), columns=COLUMNS)
    assert only(it.garbage([entry(data(TID, directory), OLD)])).reason is Reason.FAILED_ATTEMPT


@pytest.mark.parametrize("kind", [names.started, names.committed])
@pytest.mark.parametrize("directory", ["day=1", "elsewhere"])
def test_a_strangers_file_in_the_directory_scope_is_reported_and_never_due(
    kind: Callable[[str], str], directory: str
) -> None:
    for it in (judge(columns=["day"], untracked=True), judge(committed(TID), columns=["day"]), judge(aborted(TID))):
        entries = [entry(f"{directory}/{kind(TID)}", OLD, 0), entry(data(TID, directory), OLD)]
        found = only(it.garbage(entries))
        assert (found.reason, found.due) == (Reason.FOREIGN, False)


@pytest.mark.parametrize(
    "elsewhere", [names.started(TID), "day=2/" + names.started(TID), "day=1/" + names.started(OTHER), "day=1/_started_"]
)
def test_a_marker_in_another_directory_or_of_another_transaction_makes_no_file_a_strangers(elsewhere: str) -> None:
    found = judge(columns=["day"]).garbage([entry(elsewhere, OLD), entry(data(TID, "day=1"), OLD)])
    assert [it.reason for it in found] == [Reason.UNKNOWN]


@pytest.mark.parametrize(
    "path",
    ["_metadata", ".hidden", "_temporary/0/x.parquet", ".staging/x.parquet", "day=1/_SUCCESS", "x.parquet._COPYING_",
     "_delta_log/00.json", f"_attic/{data()}", f".{data()}", f"_{data()}", f"{data()}._COPYING_",
     names.started(TID), names.committed(TID), names.DESCRIPTOR, names.checkpoint(1), names.turn(1)],
)  # fmt: skip
def test_what_readers_skip_is_never_garbage(path: str) -> None:
    assert judge(committed(OTHER, [], [path], at=OLD), untracked=True).garbage([entry(path, OLD)]) == []


def test_a_checksum_goes_with_its_file_and_stays_with_a_live_one() -> None:
    live, dead, young = data(), data(number=1), data(OTHER)
    it = judge(committed(TID, [live]), log=log_of(started(OTHER)))
    crc = {path: entry(f".{path}.crc", YOUNG, 12) for path in (live, dead, young)}
    found = it.garbage([entry(live), entry(dead), entry(young), *crc.values()])
    assert {(found.path, found.size, found.due) for found in found} == {
        (dead, 1, True),
        (f".{dead}.crc", 12, True),
        (young, 1, False),
        (f".{young}.crc", 12, False),
    }


@age
def test_a_checksum_whose_file_has_gone_before_it_is_due_once_it_is_old(at: datetime, is_old: bool) -> None:
    it = judge(committed(TID, [data()]), columns=[])
    lost = f".{data(OTHER)}.crc"
    found = it.garbage([entry(f".{data()}.crc", at), entry(lost, at), entry(".export.csv.crc", at)])
    assert [(found.path, found.reason, found.due) for found in found] == [(lost, Reason.CHECKSUM, True)] * is_old


# --- transactions that timed out ----------------------------------------------------------------------------------


@age
def test_a_transaction_times_out_once_its_start_marker_is_older_than_the_retention(at: datetime, is_old: bool) -> None:
    assert timed_out(snapshot(log=log_of(started(TID, at))), HORIZONS) == [TID] * is_old


def test_no_transaction_that_is_decided_times_out() -> None:
    log = log_of(started(TID, OLD), marker(TID, OLD), started(OTHER, OLD))
    covering = Checkpoint(1, commits=(committed(OTHER),))  # its commit marker is purged, or hidden by a late listing
    assert timed_out(snapshot(log=log, checkpoint=covering), HORIZONS) == []


def test_a_commit_marker_of_zero_length_decides_nothing() -> None:
    log = log_of(started(TID, OLD), marker(TID, OLD, size=0))
    assert timed_out(snapshot(log=log), HORIZONS) == [TID]


# --- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "new", "is_due"),
    [(20, 19, False), (20, 20, True), (1, 0, False), (1, 1, True), (0, 0, False), (0, 1, True)],
)
def test_a_checkpoint_is_due_after_so_many_commits_that_the_last_does_not_cover(
    after: int, new: int, is_due: bool
) -> None:
    covered = [str(number) for number in range(30)]
    tids = [str(number) for number in range(30, 30 + new)]
    it = snapshot(
        log=log_of(*[marker(tid) for tid in (*covered, *tids)]),
        checkpoint=Checkpoint(1, commits=tuple(map(committed, covered))),
    )
    assert checkpoint_is_due(it, VacuumOptions(checkpoint_after=after)) is is_due


def test_only_removed_files_that_are_not_there_any_more_are_gone() -> None:
    it = snapshot(committed(TID, ["a", "b", "live"]), committed(OTHER, [], ["a", "b"]))
    assert gone_files(it, {"b"}) == {"a"}


def test_the_checkpoints_to_purge_by_are_those_that_are_older_than_the_metadata_horizon() -> None:
    times = {1: NOW - timedelta(days=1), 2: HORIZONS.metadata - TICK, 3: HORIZONS.metadata, 4: NOW}
    log = log_of(*[entry(names.checkpoint(number), at) for number, at in times.items()])
    assert checkpoints_to_purge_by(log, 4, HORIZONS) == [2, 1]
    assert checkpoints_to_purge_by(log, 1, HORIZONS) == [1], "a higher one is another table's"
    assert checkpoints_to_purge_by(Log(), 0, HORIZONS) == []


# --- purge --------------------------------------------------------------------------------------------------------


def purged(
    log: Log, *commits: Decided, covered: Sequence[str] | None = None, number: int = 1, left: Sequence[Candidate] = ()
) -> list[set[str]]:
    checkpoint = PurgeBy(number, {it.tid for it in commits if covered is None or it.tid in covered})
    needed = NeededMarkers()
    needed.note(commits, left)
    steps = purge(log, checkpoint, commits, HORIZONS, needed=needed.among(commits), last_turn=log.last_turn)
    return [{it.path for it in step} for step in steps]


def test_start_markers_go_before_commit_markers_and_those_before_checkpoints_and_turns() -> None:
    log = log_of(
        started(TID), marker(TID), entry(names.checkpoint(1)), entry(names.checkpoint(2)),
        entry(names.turn(1), OLD), entry(names.turn(2), OLD),
    )  # fmt: skip
    assert purged(log, committed(TID), number=2) == [
        {names.started(TID)},
        {names.committed(TID)},
        {names.checkpoint(1), names.turn(1)},
    ]


def test_what_the_checkpoint_does_not_cover_stays() -> None:
    log = log_of(started(TID, OLD), marker(TID, OLD), started(OTHER, OLD), marker(OTHER, OLD), started("3", OLD))
    assert purged(log, committed(TID, at=OLD), committed(OTHER, at=OLD), covered=[OTHER]) == [
        {names.started(OTHER)},
        {names.committed(OTHER)},
        set(),
    ]


def test_nothing_is_purged_without_a_checkpoint() -> None:
    log = log_of(started(TID, OLD), marker(TID, OLD))
    assert purged(log, committed(TID, at=OLD), covered=[], number=0) == [set(), set(), set()]


def test_markers_carry_their_tid_so_that_a_commit_marker_can_wait_for_its_start_marker() -> None:
    log = log_of(started(TID), marker(TID), started(OTHER, OLD), marker(OTHER, NOW - timedelta(days=31)))
    commits = [committed(TID), aborted(OTHER, at=NOW - timedelta(days=31))]
    purge_by = PurgeBy(1, {it.tid for it in commits})
    starts, decisions, _ = purge(log, purge_by, commits, HORIZONS, needed=(), last_turn=0)
    assert [(it.tid, it.reason) for it in starts] == [(TID, Reason.START_MARKER), (OTHER, Reason.START_MARKER)]
    assert [(it.tid, it.reason) for it in decisions] == [(TID, Reason.COMMIT_MARKER), (OTHER, Reason.ABORT_MARKER)]


def garbage(path: str, reason: Reason, tid: str | None) -> Candidate:
    return Candidate(path, 1, OLD, reason, False, tid)


@pytest.mark.parametrize(
    ("left", "needed"),
    [
        (garbage(data(TID), Reason.REMOVED, TID), {TID, OTHER}),
        (garbage(data(TID, number=1), Reason.FAILED_ATTEMPT, TID), {TID}),
        (garbage(data("3"), Reason.REMOVED, "3"), set()),
        (garbage("named without a tid.parquet", Reason.REMOVED, None), {OTHER}),
        (garbage(data(TID, "copy"), Reason.UNTRACKED, TID), set()),
        (garbage(data(TID, "day=1"), Reason.FOREIGN, TID), set()),
    ],
)
def test_a_commit_marker_stays_while_what_it_makes_garbage_is_there(left: Candidate, needed: set[str]) -> None:
    log = log_of(started(TID), marker(TID), started(OTHER), marker(OTHER))
    commits = [committed(TID, [data(TID)]), committed(OTHER, [], [data(TID), "named without a tid.parquet"])]
    starts, decisions, _ = purged(log, *commits, left=[left])
    assert starts == {names.started(TID), names.started(OTHER)}
    assert decisions == {names.committed(tid) for tid in {TID, OTHER} - needed}


def test_while_something_is_left_that_an_adoption_removed_the_markers_that_hid_it_stay() -> None:
    """Databricks' readers know these markers only, and no checkpoint remembers which of them hid what."""
    before, later = committed(OTHER, at=OLD - TICK), committed("3", ["new"])
    info = CommitInfo(recorded="adopt", commit_id="x", timestamp=OLD)
    adoption = Decided(OLD, TID, CommitMarker(added=["seen"], removed=["hidden"], dbio_commit=info))
    log = log_of(marker(OTHER), marker("3"))
    commits = [before, adoption, later]
    assert purged(log, *commits, left=[garbage("hidden", Reason.REMOVED, None)])[1] == {names.committed("3")}
    assert purged(log, *commits)[1] == {names.committed(OTHER), names.committed("3")}


def test_a_queue_that_a_vacuum_of_databricks_left_goes_once_it_is_older_than_the_metadata_horizon() -> None:
    log = log_of(
        entry(names.vacuum_queue("7"), HORIZONS.metadata - TICK), entry(names.vacuum_queue("8"), HORIZONS.metadata)
    )
    assert purged(log) == [set(), set(), {names.vacuum_queue("7")}]


@pytest.mark.parametrize(("days", "is_purged"), [(30, False), (31, True)])
def test_an_abort_marker_stays_for_30_days(days: int, is_purged: bool) -> None:
    at = NOW - timedelta(days=days)
    found = purged(log_of(started(TID, at), marker(TID, at)), aborted(TID, at=at))
    assert found == [{names.started(TID)}, {names.committed(TID)} if is_purged else set(), set()]


def test_an_abort_marker_younger_than_what_it_is_about_stays_for_30_days_from_its_own_time() -> None:
    tick_inside, tick_outside = NOW - timedelta(days=30), NOW - timedelta(days=30) - TICK
    for at, expected in ((tick_inside, set()), (tick_outside, {names.committed(TID)})):
        assert (
            purged(log_of(started(TID, NOW - timedelta(days=90)), marker(TID, at)), aborted(TID, at=at))[1] == expected
        )


@pytest.mark.parametrize(
    ("last", "is_purged"), [(HORIZONS.metadata, False), (HORIZONS.metadata - TICK, True)], ids=["young", "old"]
)
def test_turns_go_once_the_last_one_is_older_than_the_metadata_horizon_and_the_last_stays(
    last: datetime, is_purged: bool
) -> None:
    log = log_of(entry(names.turn(7), OLD), entry(names.turn(8), OLD), entry(names.turn(9), last))
    assert purged(log)[2] == ({names.turn(7), names.turn(8)} if is_purged else set())


def test_checkpoints_below_the_one_that_is_purged_by_go_and_those_above_stay() -> None:
    log = log_of(*[entry(names.checkpoint(number), OLD) for number in (1, 2, 3, 4)])
    assert purged(log, number=3)[2] == {names.checkpoint(1), names.checkpoint(2)}


# --- directories --------------------------------------------------------------------------------------------------


def tree(**contents: int) -> Mapping[str, Contents]:
    """Directories with so many objects, by their paths; "__" is "/", "_is_" is "="."""
    by_path = {path.replace("_is_", "=").replace("__", "/").removeprefix("root"): n for path, n in contents.items()}
    return {
        path: Contents(objects, [it for it in by_path if it and it != path and names.split(it)[0] == path])
        for path, objects in by_path.items()
    }


def test_a_directory_is_emptied_when_all_that_was_in_it_is_deleted() -> None:
    found = tree(root=5, day_is_1=2, day_is_2=2)
    assert emptied(found, by_directory(["day=1/a", "day=1/b", "day=2/a"])) == ["day=1"]


def test_directories_are_emptied_from_below_and_the_root_never() -> None:
    found = tree(root=0, a_is_1=0, a_is_1__b_is_1=1, a_is_1__b_is_2=1, a_is_2=0, a_is_2__b_is_1=2)
    deleted = ["a=1/b=1/x", "a=1/b=2/x", "a=2/b=1/x"]
    assert emptied(found, by_directory(deleted)) == ["a=1/b=1", "a=1/b=2", "a=1"]
    assert emptied(tree(root=1), {"": 1}) == []
    assert emptied({}, {}) == []


def test_a_directory_that_holds_one_that_readers_skip_is_not_empty() -> None:
    assert emptied({"": Contents(1, ["day=1"]), "day=1": Contents(1, ["day=1/_temporary"])}, {"day=1": 1}) == []


def test_of_directories_that_held_nothing_only_partitions_go() -> None:
    found = tree(root=0, day_is_1=0, on_purpose=0, day_is_2=0, day_is_2__on_purpose=0)
    assert emptied(found, {}) == ["day=1"]


# --- reports ------------------------------------------------------------------------------------------------------


def report(**found: Sequence[Deletion]) -> VacuumReport:
    empty = VacuumReport(url="u", scope=Scope.TABLE, dry_run=False, retention_hours=48)
    return replace(empty, **found)  # type: ignore[arg-type]


def test_the_oldest_garbage_is_not_what_will_never_be_deleted() -> None:
    def kept(days: int, reason: Reason) -> Deletion:
        return Deletion(path="x", size=1, age=timedelta(days=days), reason=reason)

    assert report().oldest_garbage is None
    assert report(kept=[kept(9, Reason.UNTRACKED), kept(8, Reason.FOREIGN)]).oldest_garbage is None
    both = [kept(9, Reason.UNTRACKED), kept(1, Reason.REMOVED), kept(2, Reason.PENDING)]
    assert report(kept=both).oldest_garbage == timedelta(days=2)
