"""A vacuum that found nothing to do says until when the next one would find nothing, either."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from dbio_commit.maintenance.vacuum.idle import WHOLE_LOOK, Idle, LastLook, digest_of
from dbio_commit.maintenance.vacuum.report import Control, VacuumOptions, VacuumReport, found_nothing
from dbio_commit.protocol import names
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.store.contract import Unfinished
from dbio_commit.table import vacuum_table
from tests.tiny_parts import tiny_parts
from tests.writers import WakingWorld, stage

MOMENT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
OPTIONS = VacuumOptions(retention_hours=24, checkpoint_after=3, untracked=True)


class Story(WakingWorld):
    """A random history of a table, the same for the same seed, with vacuums in between."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.open: list[Callable[[], object]] = []

    def vacuum(self, options: VacuumOptions = OPTIONS, *, dry_run: bool = False) -> tuple[VacuumReport, Idle | None]:
        found: list[Idle] = []
        report = vacuum_table(self.table, options, dry_run=dry_run, control=Control(idle=found.append))
        return report, found[0] if found else None

    def settle(self) -> Idle:
        """Vacuums until there is nothing to do."""
        for _ in range(8):
            if idle := self.vacuum()[1]:
                return idle
        raise AssertionError("each vacuum finds something to do")

    def log(self) -> Log:
        return parse_log(self.store.list_log())

    def step(self) -> None:
        day = self.random.choice("abc")
        match self.random.choice(
            ["append", "append", "replace", "overwrite", "abort", "begin", "stray", "upload", "end"]
        ):
            case "stray":
                self.store.put_if_absent(f"day={day}/stray-{self.random.random()}.parquet", b"")
            case "upload":
                self.store.unfinished.append(Unfinished("part-9", str(self.random.random()), 1, self.clock.now()))
            case "end" if self.open:
                self.open.pop()()
            case "end":
                self.vacuum()
            case kind:
                operation = {"replace": "overwrite_partitions", "overwrite": "overwrite"}.get(kind, "append")
                job = self.table.begin(operation, partition_by=["day"])  # type: ignore[arg-type]
                stage(self.table, job, partition={"day": day})
                match kind:
                    case "begin":
                        self.open.append(job.abort)
                    case "abort":
                        job.abort()
                    case _:
                        job.commit()


@pytest.mark.parametrize("seed", range(12))
def test_before_the_next_due_time_a_vacuum_finds_nothing_to_do(seed: int) -> None:
    """Each object that waits becomes due at its own time: the test goes from one to the next, until nothing waits."""
    world = Story(seed)
    if seed % 3 == 2:
        with tiny_parts():
            live_through(world)
    else:
        live_through(world)


def live_through(world: Story) -> None:
    world.table.begin(partition_by=["day"]).commit()
    for _ in range(world.random.randint(3, 10)):
        world.step()
        world.clock.advance(world.random.choice([HOUR / 60, HOUR, 20 * HOUR]))
    for _ in range(60):
        idle = world.settle()
        if idle.due is None:
            break
        before = world.log()
        assert digest_of(before) == digest_of(idle.snapshot.log)
        world.clock.advance((idle.due - world.clock.now()) * world.random.random())
        assert found_nothing(world.vacuum(dry_run=True)[0])
        world.clock.advance(max(idle.due - MOMENT - world.clock.now(), timedelta(0)))
        assert found_nothing(world.vacuum(dry_run=True)[0])
        assert world.log() == before
        world.clock.advance(2 * MOMENT)
    else:
        raise AssertionError("something becomes due again and again")
    world.clock.advance(400 * 24 * HOUR)
    assert found_nothing(world.vacuum()[0])


def test_a_removed_file_and_a_pending_transaction_are_due_at_the_end_of_their_retention() -> None:
    world = Story()
    job = world.table.begin()
    stage(world.table, job)
    job.commit()
    world.clock.advance(30 * HOUR)
    removal = world.table.begin("overwrite")
    stage(world.table, removal)
    removal.commit()
    removed = world.clock.now()
    world.clock.advance(HOUR)
    assert world.settle().due == removed + 24 * HOUR
    world.clock.advance(24 * HOUR)
    assert [it.path for it in world.vacuum()[0].deleted] != []
    world.settle()
    late = world.table.begin()
    began = world.clock.now()
    world.clock.advance(HOUR)
    assert world.settle().due == began + 24 * HOUR
    world.clock.advance(24 * HOUR)
    assert world.vacuum()[0].aborted == [late.tid]


def test_a_vacuum_that_did_something_or_warns_says_nothing_of_the_next_one() -> None:
    world = Story()
    job = world.table.begin()
    stage(world.table, job)
    job.abort()
    world.store.put_if_absent(names.join("", "part-0-tid-1-x.parquet"), b"")
    world.clock.advance(48 * HOUR)
    report, idle = world.vacuum(dry_run=True)
    assert report.deleted
    assert idle is None
    world.settle()
    assert world.vacuum(dry_run=True)[1] is not None


def test_a_table_to_which_others_commit_meanwhile_is_not_idle() -> None:
    world = Story()
    world.table.begin().commit()
    world.clock.advance(HOUR)
    world.settle()
    done: list[object] = []

    def commit(operation: str, path: str) -> None:
        if operation == "list_log" and not done:
            done.append(True)
            world.table.begin().commit()

    world.store.after = commit
    assert world.vacuum()[1] is None


def test_a_table_with_a_publication_is_never_idle() -> None:
    world = Story()
    world.table.begin().commit()
    world.table.set({"publish": "symlink"})
    world.clock.advance(HOUR)
    assert world.vacuum()[1] is None


# --- by what the next vacuum is left out ------------------------------------------------------------------------------


def look(world: Story) -> LastLook:
    idle = world.settle()
    return LastLook.of(idle, key="k", at=world.clock.now())


def test_a_look_holds_until_something_is_due_or_a_week_has_passed() -> None:
    world = Story()
    world.table.begin().commit()
    world.clock.advance(48 * HOUR)
    found = look(world)
    assert found.may_hold(key="k", now=found.at)
    assert found.may_hold(key="k", now=found.at + WHOLE_LOOK - MOMENT)
    assert not found.may_hold(key="k", now=found.at + WHOLE_LOOK)
    world.table.begin()
    assert look(world).due == world.clock.now() + HOUR / 2  # a checkpoint of that time would be purged by


def test_a_look_does_not_hold_with_other_options_or_a_clock_that_was_set_back() -> None:
    world = Story()
    world.table.begin().commit()
    found = look(world)
    assert not found.may_hold(key="other", now=found.at)
    assert not found.may_hold(key="k", now=found.at - MOMENT)
    assert not found.may_hold(key="k", now=datetime(2027, 12, 1, tzinfo=UTC))


def test_each_change_of_the_log_is_a_change_of_its_digest() -> None:
    world = Story()
    world.table.begin().commit()
    seen = {digest_of(world.log())}
    for change in (
        lambda: world.table.begin(),
        lambda: world.table.begin("overwrite").commit(),
        lambda: world.table.checkpoint(),
        lambda: world.store.put_if_absent(names.clock("1"), b""),
        lambda: world.store.put_if_absent(names.purge(1), b""),
        lambda: world.store.put_if_absent(names.part(1, "0" * 32), b""),
        lambda: world.store.put_if_absent(names.vacuum_queue("1"), b"x"),
        lambda: world.store.delete_many([names.clock("1")]),
        lambda: world.store.delete_many([names.DESCRIPTOR]),
        lambda: world.store.put_if_absent(names.DESCRIPTOR, b"of another table"),
        lambda: world.store.put_if_absent(names.DROPPED, b""),
    ):
        change()
        world.clock.advance(HOUR)
        found = digest_of(world.log())
        assert found not in seen
        seen.add(found)
