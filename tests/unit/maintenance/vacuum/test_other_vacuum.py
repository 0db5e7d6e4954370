"""A DBIO writer's own vacuum in a table of ours purges markers that nothing else tells: what we keep then, and say.

Rules: PROTOCOL.md 10.3.
"""

import json
import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from dbio_commit import Table
from dbio_commit.protocol import names
from tests.builders import as_dbio_sees
from tests.garbage import DAY, HOUR, STRANGER, Scene, empty, file_of, leave
from tests.writers import contents, data_files, write
from vacuum import Reason, VacuumOptions, vacuum_table

AT_ONCE = VacuumOptions(checkpoint_after=0)


def vacuum_as_dbio(scene: Scene) -> None:
    """By the directory scope's rules: DBIO does not know the descriptor, nor turns and checkpoints."""
    theirs = as_dbio_sees(scene.store.objects)
    ours = {path: body for path, body in scene.store.objects.items() if path not in theirs}
    scene.store.objects = theirs
    vacuum_table(scene.table, VacuumOptions())
    scene.store.objects |= ours


def append_as_dbio(scene: Scene, number: int) -> None:
    tid = f"999999999999999{number:04d}"
    leave(scene, names.started(tid), b"")
    path = leave(scene, f"part-00000-tid-{tid}-x-0-c000.snappy.parquet", b"dbio")
    leave(scene, names.committed(tid), json.dumps({"added": [path], "removed": []}).encode())
    vacuum_as_dbio(scene)


def purged() -> Scene:
    """A table of three commits whose markers a DBIO writer has purged."""
    scene = empty()
    for _ in range(3):
        write(scene.table, bodies=[b"ours"])
    for number in range(3):
        scene.clock.advance(timedelta(minutes=40))
        append_as_dbio(scene, number)
    assert contents(scene.table).count(b"ours") == 0
    return scene


def test_the_files_of_commits_that_another_vacuum_purged_are_kept(caplog: pytest.LogCaptureFixture) -> None:  # I4
    scene = purged()
    before = data_files(scene.store)
    for _ in range(4):
        scene.clock.advance(3 * DAY)
        with caplog.at_level(logging.WARNING):
            report = vacuum_table(scene.table, AT_ONCE)
        assert data_files(scene.store) == before
        assert report.ok
        assert sum(it.reason is Reason.UNKNOWN for it in report.kept) >= 3
        (warning,) = report.warnings
        assert "another tool's vacuum has run here" in warning
        assert "_committed_vacuum" in warning
        assert warning in caplog.text
        caplog.clear()


def test_a_dry_run_says_the_same() -> None:
    scene = purged()
    scene.clock.advance(3 * DAY)
    dry, real = (vacuum_table(scene.table, AT_ONCE, dry_run=dry_run) for dry_run in (True, False))
    assert dry.warnings == real.warnings != []
    assert {it.path for it in dry.kept} == {it.path for it in real.kept}


def test_check_says_what_shows_that_another_vacuum_was_here() -> None:
    scene = purged()
    report = scene.table.check()
    assert not report.ok
    (sign,) = report.another_vacuum
    assert "lists of markers to delete that are newer than the table" in sign


def test_a_turn_whose_transaction_is_gone_shows_it_where_no_list_is_left() -> None:
    scene = empty()
    write(scene.table)
    lost = write(scene.table, "overwrite")
    for name in (names.started(lost.tid), names.committed(lost.tid)):
        del scene.store.objects[name]
    (sign,) = scene.table.check().another_vacuum
    assert "turn 1" in sign
    scene.clock.advance(3 * DAY)
    report = vacuum_table(scene.table, AT_ONCE)
    assert set(lost.added) <= data_files(scene.store)
    assert any("turn 1" in warning for warning in report.warnings)


def test_it_is_over_once_somebody_has_looked_and_removed_the_lists() -> None:
    scene = purged()
    scene.clock.advance(3 * DAY)
    vacuum_table(scene.table, AT_ONCE)
    for name in [*scene.store.objects]:
        if name.startswith("_committed_vacuum"):
            del scene.store.objects[name]
    assert scene.table.check().ok
    report = vacuum_table(scene.table, AT_ONCE)
    assert {it.reason for it in report.deleted} >= {Reason.UNKNOWN}
    assert not report.warnings


# --- no signs -----------------------------------------------------------------------------------------------------


def test_lists_from_before_an_adoption_are_no_sign_and_go() -> None:
    scene = empty()
    leave(scene, "part-0.parquet")
    for number in range(2):
        scene.clock.advance(HOUR)
        append_as_dbio_directory(scene, number)
    assert any(name.startswith("_committed_vacuum") for name in scene.store.objects)
    scene.clock.advance(HOUR)
    scene.table.adopt()
    leave(scene, file_of(STRANGER))
    scene.clock.advance(3 * DAY)
    report = vacuum_table(scene.table, AT_ONCE)
    assert not report.warnings
    assert {it.reason for it in report.deleted} >= {Reason.UNKNOWN, Reason.QUEUED}
    assert scene.table.check().ok


def append_as_dbio_directory(scene: Scene, number: int) -> None:
    leave(scene, names.DESCRIPTOR, b"")  # `append_as_dbio` takes it away, and puts it back
    append_as_dbio(scene, number)
    del scene.store.objects[names.DESCRIPTOR]


@pytest.mark.parametrize("days", [0, 1, 40, 80])
def test_what_our_own_vacuum_purges_is_no_sign(days: int) -> None:
    scene = empty()
    for _ in range(3):
        write(scene.table, "overwrite")
        aborted = scene.table.begin("overwrite")
        aborted.abort()
        for _ in range(4):
            assert not vacuum_table(scene.table, replace(AT_ONCE, retention_hours=1)).warnings
            assert scene.table.check().ok
            scene.clock.advance(timedelta(days=days / 4, hours=1))


def test_a_transaction_that_holds_the_turn_is_no_sign() -> None:
    scene = empty()
    write(scene.table)
    store, tables = scene.store, [scene.table, Table.over(scene.store, scene.clock)]
    transaction = tables[0].begin("overwrite")
    leave(scene, names.turn(1), json.dumps({"tid": transaction.tid}).encode())
    assert not vacuum_table(tables[1], AT_ONCE).warnings
    assert names.started(transaction.tid) in store.objects
