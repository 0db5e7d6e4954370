"""What vacuum puts into checkpoints and purges, and that all of the past that it keeps can be read.

Numbers I1 to I10: PROTOCOL.md 5. Rules: PROTOCOL.md 10.4.
"""

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from dbio_commit import (
    InvalidInputError,
    Table,
    TableExistsError,
    TransactionStateError,
)
from dbio_commit.protocol import names
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import once
from tests.garbage import (
    ALL,
    AT_ONCE,
    DAY,
    HOUR,
    Scene,
    abort_with_leftovers,
    begin_writing,
    empty,
    empty_partition,
    empty_table,
    everything,
    overwritten,
    paths,
    run,
)
from tests.writers import contents, data_files, live, stage, write, write_days
from vacuum import Reason, VacuumOptions

# --- checkpoints and purge ----------------------------------------------------------------------------------------


def test_a_checkpoint_is_written_once_so_many_commits_have_come_since_the_last() -> None:
    scene = empty()
    options = VacuumOptions(checkpoint_after=5)
    written = []
    for _ in range(13):
        write(scene.table)
        written.append(run(scene, options).checkpoint)
    assert [number for number, name in enumerate(written, 1) if name] == [5, 10]
    assert written[9] == names.checkpoint(2)
    assert not run(empty_table(), VacuumOptions()).checkpoint


def test_what_a_checkpoint_covers_is_purged_once_the_checkpoint_is_half_an_hour_old() -> None:
    scene = empty()
    tids = [write(scene.table).tid for _ in range(3)]
    run(scene, AT_ONCE)
    later = write(scene.table).tid
    scene.clock.advance(timedelta(minutes=30))
    assert not run(scene).deleted
    scene.clock.advance(timedelta(seconds=1))
    report = run(scene)
    assert paths(report, Reason.START_MARKER) == {names.started(tid) for tid in tids}
    assert paths(report, Reason.COMMIT_MARKER) == {names.committed(tid) for tid in tids}
    assert scene.names - data_files(scene.store) == {
        names.DESCRIPTOR,
        names.purge(1),
        names.checkpoint(1),
        names.checkpoint(2),
        names.started(later),
        names.committed(later),
    }
    assert len(contents(scene.table)) == 4


def test_a_checkpoint_that_another_vacuum_purges_before_it_is_read_leaves_nothing_to_do() -> None:
    scene = overwritten()
    scene.table.checkpoint()
    scene.clock.advance(HOUR)
    write(scene.table)
    scene.table.checkpoint()

    def later() -> None:
        scene.clock.advance(HOUR)
        assert names.checkpoint(1) in paths(run(scene), Reason.CHECKPOINT)

    scene.store.before = once("get", names.checkpoint(1), later)
    report = run(scene)
    assert names.checkpoint(1) not in scene.names
    assert (report.failed, report.deleted) == ([], [])
    assert contents(scene.table) == [b"new", b"rows"]


def test_start_markers_go_before_commit_markers_and_data_before_both() -> None:
    scene = everything()
    deleted: list[str] = []
    scene.store.before = lambda operation, path: deleted.append(path) if operation == "delete" else None
    run(scene, ALL)
    kinds = [kind for path in deleted if (kind := kind_of(path)) not in (None, "_clock_")]
    empty_marker = kinds.index("_committed_")
    del kinds[empty_marker]  # the one without content, before its transaction is aborted
    assert kinds == sorted(kinds, key=["data", "_started_", "_committed_", "_checkpoint_", "_serial_"].index)
    assert set(kinds) == {"data", "_started_", "_committed_", "_checkpoint_", "_serial_"}


def kind_of(path: str) -> str:
    marker = names.parse_log_name(path)
    return str(marker.kind) if marker else "data"


def test_a_version_of_an_application_is_committed_once_also_when_its_commit_is_forgotten() -> None:  # I8
    scene = empty()
    write(scene.table, app=("nightly", 7))
    for _ in range(3):
        write(scene.table, "overwrite", bodies=[b"kept"])
        scene.clock.advance(40 * DAY)
        run(scene, AT_ONCE)
    assert ("nightly", 7) not in [commit.app for commit in scene.table.history()]
    assert write(scene.table, bodies=[b"twice"], app=("nightly", 7)).skipped
    assert contents(scene.table) == [b"kept"]
    assert not write(scene.table, bodies=[b"next"], app=("nightly", 8)).skipped


def test_the_schema_stays_when_the_commit_that_set_it_is_forgotten() -> None:
    scene = empty()
    columns = {"type": "struct", "fields": [{"name": "id", "type": "long"}]}
    write(scene.table, schema=columns)
    for _ in range(3):
        write(scene.table, "overwrite")
        scene.clock.advance(40 * DAY)
        run(scene, AT_ONCE)
        write(scene.table)
        assert scene.table.snapshot().schema == columns
        assert scene.table.begin().terms.metadata.schema == columns


def test_the_schema_of_an_empty_table_stays_when_no_commit_is_remembered() -> None:
    scene = empty()
    columns = {"type": "struct", "fields": [{"name": "id", "type": "long"}]}
    write(scene.table, bodies=[], schema=columns)
    for _ in range(4):
        scene.table.begin().abort()
        run(scene, AT_ONCE)
        scene.clock.advance(20 * DAY)
        run(scene, AT_ONCE)
        assert scene.table.snapshot().schema == columns
        assert scene.table.begin().terms.metadata.schema == columns
    assert not scene.table.history()


def test_a_table_whose_commit_markers_are_all_purged_is_one_that_exists() -> None:
    scene = overwritten()
    run(scene, AT_ONCE)
    scene.clock.advance(3 * DAY)
    run(scene)
    assert not [name for name in scene.names if name.startswith(("_started_", "_committed_"))]
    with pytest.raises(TableExistsError):
        scene.table.begin(must_be_empty=True)
    for tid in scene.table.snapshot().tids:
        with pytest.raises(TransactionStateError, match="decided long ago"):
            scene.table.abort(tid)
    assert contents(scene.table) == [b"new"]


def test_the_log_of_a_table_stays_small_over_500_commits() -> None:
    scene = empty()
    most = 0
    for day in range(50):
        for hour in range(10):
            write(scene.table, "overwrite" if hour % 5 == 4 else "append", bodies=[f"{day} {hour}".encode()])
            scene.clock.advance(DAY / 10)
        if day % 3 == 0:
            scene.table.begin()  # whose writer dies
        assert run(scene).ok
        most = max(most, len([name for name in scene.names if name.startswith("_")]))
    assert most < 120
    assert len(data_files(scene.store)) < 60
    assert contents(scene.table) == [b"49 9"]
    history = scene.table.history()
    since = scene.clock.now() - 30 * DAY
    assert sum(commit.timestamp >= since for commit in history) == 300
    assert len(history) < 400


def test_the_history_of_what_is_gone_is_kept_for_as_long_as_asked_for() -> None:
    for days, is_known in ((30, False), (60, True)):
        scene = overwritten()
        first = scene.table.history()[-1].tid
        scene.clock.advance(HOUR)
        write(scene.table, "overwrite")
        scene.clock.advance(50 * DAY)
        for _ in range(3):
            run(scene, VacuumOptions(checkpoint_after=0, history_days=days))
            write(scene.table, "overwrite")
            scene.clock.advance(HOUR)
        assert (first in [commit.tid for commit in scene.table.history()]) is is_known


# --- time travel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_over_months_the_past_is_told_right_or_refused_and_never_refused_within_the_retention(seed: int) -> None:  # I4
    scene = empty()
    chance = random.Random(seed)
    options = VacuumOptions(retention_hours=chance.choice([1, 24, 48, 200]), checkpoint_after=chance.choice([0, 1, 5]))
    states: list[tuple[datetime, str, set[str]]] = []
    told = refused = 0
    for number in range(80):
        commit = act_at_random(scene, chance, number)
        states.append((scene.clock.now(), commit, live(scene.table)))
        scene.clock.advance(chance.choice([timedelta(seconds=1), HOUR, HOUR, DAY, 7 * DAY]))
        if chance.random() < 0.4:
            assert run(scene, options).ok
        for at, tid, files in chance.sample(states, k=min(len(states), 3)) + states[-1:]:
            for as_of in (at, tid):
                try:
                    found = {file.path for file in scene.table.snapshot(as_of=as_of).files}
                except InvalidInputError:
                    refused += 1
                    assert at < scene.clock.now() - timedelta(hours=options.retention_hours)
                else:
                    told += 1
                    assert found == files
                    assert found <= scene.names
    assert told > 50
    assert refused > 50
    assert scene.table.check().ok


def act_at_random(scene: Scene, chance: random.Random, number: int) -> str:
    table, body = scene.table, str(number).encode()
    match chance.randrange(8):
        case 0:
            return write_days(table, "overwrite", a=body).tid
        case 1 | 2:
            return write_days(table, "overwrite_partitions", **one_day(chance, body)).tid
        case 3:
            abort_with_leftovers(scene, {"day": "a"}) if number else None
        case 4:
            begin_writing(table, body, "p")
        case 5 if number:
            empty_partition(table, chance.choice("abc"))
            return table.history()[0].tid
    return write_days(table, d=body, **one_day(chance, body)).tid


def one_day(chance: random.Random, body: bytes) -> Any:
    return {chance.choice("abc"): body}


def test_the_past_stays_refused_when_what_removed_its_files_is_forgotten() -> None:
    scene = empty()
    first = write(scene.table, bodies=[b"old"]).tid
    at = scene.clock.now()
    scene.clock.advance(HOUR)
    remover = write(scene.table, "overwrite", bodies=[]).tid
    write(scene.table, bodies=[b"live"])
    for _ in range(15):
        scene.clock.advance(5 * DAY)
        run(scene, AT_ONCE)
        for as_of in (at, first):
            with pytest.raises(InvalidInputError):
                scene.table.snapshot(as_of=as_of)
        write(scene.table, bodies=[b"more"])
    assert first not in scene.table.snapshot().tids
    assert len(scene.table.snapshot(as_of=scene.clock.now() - 70 * DAY).files) == 2
    assert remover in scene.table.snapshot().tids  # of one instant with what is live


def test_a_state_within_the_instant_of_a_removal_stays_refused_when_the_removal_is_forgotten() -> None:
    """As on S3, whose times are whole seconds."""
    orders: set[bool] = set()
    for seed in range(8):
        clock = ManualClock(seed=seed)
        scene = Scene(Table.over(MemoryStore(clock), clock))
        write_days(scene.table, a=b"old")
        clock.advance(HOUR)
        append = write_days(scene.table, b=b"live").tid
        empty_partition(scene.table, "a")
        is_first = scene.table.history()[0].tid != append
        orders.add(is_first)
        for _ in range(10):
            clock.advance(5 * DAY)
            run(scene, AT_ONCE)
            write_days(scene.table, c=b"more")
        if is_first:
            with pytest.raises(InvalidInputError):
                scene.table.snapshot(as_of=append)
        else:
            assert len(scene.table.snapshot(as_of=append).files) == 1
    assert orders == {True, False}


def test_commits_of_one_instant_stay_in_their_order() -> None:
    """As on S3, whose times are whole seconds: no vacuum makes a commit come before the one that it depends on."""
    for seed in range(8):
        clock = ManualClock(seed=seed)
        scene = Scene(Table.over(MemoryStore(clock), clock))
        write(scene.table)
        clock.advance(HOUR)
        overwrite = scene.table.begin("overwrite")
        stage(scene.table, overwrite, b"new")
        append = write(scene.table)
        overwrite.commit()
        before = [commit.tid for commit in scene.table.history()]
        clock.advance(3 * DAY)
        run(scene, AT_ONCE)
        assert [commit.tid for commit in scene.table.history()] == before
        with pytest.raises(InvalidInputError, match="vacuumed"):
            scene.table.snapshot(as_of=append.tid)
        assert live(scene.table) == {file.path for file in scene.table.snapshot(as_of=overwrite.tid).files}


def test_a_state_whose_files_are_gone_is_refused_also_before_a_checkpoint_tells_so() -> None:
    scene = overwritten()
    first = scene.table.history()[-1].tid
    scene.clock.advance(3 * DAY)
    assert not run(scene).checkpoint
    with pytest.raises(InvalidInputError, match="vacuumed"):
        scene.table.snapshot(as_of=first)
