"""The end of a run: when everybody has gone, vacuum leaves the live files and a short log, and nothing else."""

from collections import Counter
from dataclasses import replace

from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.names import Kind
from dbio_commit.table import Table, vacuum_table

from .actors import Stage
from .directories import DirectoryModel
from .model import ADOPTED, Model
from .world import DAY_S, SimClock, Violation, World


def settle(world: World, stage: Stage) -> None:
    """When everybody has gone, vacuum leaves the live files and a short log, and nothing else."""
    table = Table.over(world.store, SimClock(world))
    if not world.store.objects or (isinstance(stage.model, Model) and names.DESCRIPTOR not in world.store.objects):
        return
    for _ in range(4):
        world.time_s += 40 * DAY_S
        report = vacuum_table(table, VacuumOptions(checkpoint_after=0, untracked=stage.untracked))
        if report.failed:
            raise Violation(f"an undisturbed vacuum failed: {report.failed}")
        if not world.store.objects:
            break
    else:
        world.time_s += DAY_S
        if again := vacuum_table(table, VacuumOptions(untracked=stage.untracked)).deleted:
            raise Violation(f"vacuum did not finish at once: {again}")
    world.store.check_now()
    data = {path for path in world.store.objects if names.is_data_file(path)}
    left, lost = data - stage.model.live, stage.model.live - data
    if isinstance(stage.model, Model):
        left = {path for path in left if not stage.model.is_kept(path)}
        if stage.model.strangers:  # beside them, vacuum keeps the files of transactions that it does not know
            left = {path for path in left if names.parse_data_file(names.split(path)[1]) in stage.model.started}
    if left or lost:
        raise Violation(f"vacuum left {sorted(left)}, and lost {sorted(lost)}")
    log = world.store.objects.keys() - data - {names.DESCRIPTOR}
    if isinstance(stage.model, Model):  # of a directory that was adopted, those below stay, and mean nothing
        log = {path for path in log if "/" not in path} - stage.model.strangers
    allowed = [Kind.CHECKPOINT]  # in the directory scope, of an adopter that died
    allowed += [Kind.TURN, Kind.PURGE] if isinstance(stage.model, Model) else []
    left_parts = {path for path in log if path.startswith(Kind.PART)}
    log -= left_parts
    if useless := left_parts - _named_parts(table):
        raise Violation(f"vacuum left the parts {sorted(useless)}")
    markers = {path for path in log if (it := names.parse_log_name(path)) is None or it.kind not in allowed}
    if isinstance(stage.model, DirectoryModel) and not data:  # one stays, with its queue, so that readers find a table
        kinds = Counter(it and it.kind for it in (names.parse_log_name(names.split(path)[1]) for path in markers))
        markers = markers if kinds.pop(Kind.COMMITTED, 0) > 1 or kinds.keys() - {Kind.VACUUM} else set()
    # Without a commit after an adoption, there is no checkpoint above those of earlier attempts.
    has_own = isinstance(stage.model, Model) and bool(stage.model.decided.keys() - {ADOPTED})
    if markers or (has_own and len(log) > 5):
        raise Violation(f"vacuum left the markers {sorted(log)}")
    # Nobody publishes again what was published once by hand, and what that names is deleted.
    if isinstance(stage.model, Model) or data:
        found = replace(table.check(), publications=())
        if isinstance(stage.model, Model):
            expected = {it for it in stage.model.strangers if it.startswith(Kind.COMMITTED)}
            found = replace(found, strange=()) if {*found.strange} == expected else found
        if not found.ok:
            raise Violation(f"check finds something wrong: {found}")
    if isinstance(stage.model, Model):
        stage.model.check_not_committed(stage.failed)


def _named_parts(table: Table) -> set[str]:
    """The parts that the newest checkpoint names, and those that it does not name any more."""
    newest = table.snapshot().checkpoint
    return {name for part in (*newest.parts, *(it.part for it in newest.dropped)) for name in part.objects}
