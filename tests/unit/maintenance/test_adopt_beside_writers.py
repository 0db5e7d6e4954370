"""Making a table of a directory while others write to it: `Table.adopt`, on a store in memory.

What is visible before is live afterwards, or nothing has changed, or somebody is told. Numbers I1 to I10: PROTOCOL.md
5. Rules: PROTOCOL.md 11.5.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    StoreError,
    TransactionStateError,
)
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.log import REFUSAL
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from tests.faults import calls_to, heal
from tests.unit.adoptions import (
    CHECKPOINT,
    FIRST,
    LATE,
    Place,
    Stepper,
    calls_of_adopt,
    data,
    dbio,
    interrupt,
    is_table,
    plain,
    plain_partitioned,
    try_adopt,
)
from tests.writers import contents, live, stage

# --- others write meanwhile ---------------------------------------------------------------------------------------


def next_of(steps: list[partial[None]]) -> None:
    steps.pop(0)()


@pytest.mark.parametrize("directories", [("",), ("day=1", "day=3")])
def test_a_dbio_writer_at_any_moment_of_an_adoption_is_counted_or_told(directories: tuple[str, ...]) -> None:
    """It begins before one call, and commits before the same or a later one, or after the last."""

    def make() -> Place:
        return dbio(*("day=1", "day=2") if directories != ("",) else ("",))

    calls = calls_of_adopt(make)
    outcomes = set()
    for first in range(calls):
        for second in range(first, calls + 1):
            place = make()
            old = live(place.table())
            steps = [partial(place.start, LATE, *directories), partial(place.commit, LATE, *directories)]
            interrupt(place, (first, partial(next_of, steps)), (second, partial(next_of, steps)))
            error = try_adopt(place)
            for step in steps:  # where the adoption ended before
                step()
            new = {names.join(directory, data(LATE)) for directory in directories}
            if is_table(place) and isinstance(error, StoreError):
                assert new.isdisjoint(live(place.table())) or directories == ("",)
                assert live(place.table()) - new == old
                outcomes.add("told")
            elif is_table(place):
                assert error is None
                assert live(place.table()) == old | new
                outcomes.add("counted")
            else:
                assert isinstance(error, CommitConflictError | TransactionStateError)
                assert live(place.table()) == old | new
                place.table().adopt()
                assert live(place.table()) == old | new
                outcomes.add("refused")
            assert place.table().check().ok
    assert outcomes == ({"refused", "counted"} if directories == ("",) else {"refused", "counted", "told"})


@pytest.mark.parametrize("path", ["late.parquet", "day=2/late.parquet", "day=7/late.parquet"])
def test_a_plain_file_that_comes_at_any_moment_of_an_adoption_is_counted_or_told(path: str) -> None:
    make = plain_partitioned if "day" in path else plain
    outcomes = []
    for call in range(calls_of_adopt(make)):
        place = make()
        old = live(place.table())
        interrupt(place, (call, partial(place.write, path)))
        error = try_adopt(place)
        if is_table(place) and error:
            assert isinstance(error, StoreError)
            assert path in str(error)
            assert live(place.table()) == old
            outcomes.append("told")
        else:
            assert is_table(place) == (error is None)
            assert live(place.table()) == {*old, path}
            outcomes.append("counted" if error is None else "refused")
    assert set(outcomes) == {"counted", "refused", "told"}


def test_a_file_that_is_deleted_while_its_directory_is_adopted_is_refused_or_missed() -> None:
    place = plain()
    with calls_to(place) as calls:
        place.table().adopt()
    *_, comparison, _ = (i for i, (operation, _) in enumerate(calls) if operation == "list_files")
    for call in range(comparison + 1):
        place = plain()
        interrupt(place, (call, partial(place.delete_many, ["a.parquet"])))
        error = try_adopt(place)
        assert is_table(place) == (error is None)
        assert live(place.table()) == {"b c é.parquet"}


def test_a_writer_of_the_new_table_is_no_late_writer() -> None:
    """It begins as soon as there is a descriptor, before the adoption looks back."""
    for make in (plain, plain_partitioned, lambda: dbio("day=1", "day=2")):
        place = make()
        begun: list[Transaction] = []

        def begin(place: Place = place, begun: list[Transaction] = begun) -> None:
            begun.append(place.table().begin())
            stage(place.table(), begun[0], b"new", dict.fromkeys(begun[0].terms.partition_columns, "1"))

        interrupt(place, (calls_of_adopt(make) - 1, begin))
        assert try_adopt(place) is None
        assert begun[0].terms.scope is Scope.TABLE
        begun[0].commit()
        assert b"new" in contents(place.table())


# --- our own writers, who began by the old rules ------------------------------------------------------------------


def append(table: Table) -> None:
    transaction = table.begin()
    for day in ("1", "3"):
        stage(table, transaction, b"new", {"day": day})
    transaction.commit()


def overwrite(table: Table) -> None:
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new", {"day": "1"})
    transaction.commit()


def delete_all(table: Table) -> None:
    table.begin("overwrite").commit()


def replace(table: Table) -> None:
    transaction = table.begin("overwrite_partitions")
    stage(table, transaction, b"new", {"day": "2"})
    transaction.commit()


def rewrite(table: Table) -> None:
    transaction = table.begin("rewrite")
    transaction.remove(path for path in live(table) if path.startswith("day=1/"))
    stage(table, transaction, b"new", {"day": "1"})
    transaction.commit()


def give_up(table: Table) -> None:
    transaction = table.begin()
    stage(table, transaction, b"new", {"day": "1"})
    transaction.abort()


WORKS = {
    "append": append,
    "overwrite": overwrite,
    "delete all": delete_all,
    "replace": replace,
    "rewrite": rewrite,
    "give up": give_up,
}


def two_days() -> Place:
    place = Place()
    place.start(FIRST, "day=1", "day=2")
    place.commit(FIRST, "day=1", "day=2")
    return place


def interleavings(writer_calls: int, adopt_calls: int) -> Iterator[tuple[int, int, int]]:
    """The writer makes `first` calls; the adoption some, the writer `second` more; then each goes on to its end."""
    for first in range(writer_calls + 1):
        yield first, adopt_calls, 0
        for paused in range(1, adopt_calls):
            for second in {1, 2, 3, writer_calls - first}:
                if 0 < second <= writer_calls - first:
                    yield first, paused, second


def count_calls(work: Callable[[Table], object]) -> int:
    place = two_days()
    with calls_to(place) as calls:
        work(place.table())
    return len(calls)


def check_writer_and_adoption(work: Callable[[Table], None]) -> set[str]:
    """Either both count, or one of the two has an error and nothing is lost of the other; or both have one."""
    outcomes = set()
    old = contents(two_days().table())
    done = two_days()
    work(done.table())
    new = contents(done.table())
    for first, paused, second in interleavings(count_calls(work), count_calls(Table.adopt)):
        place = two_days()
        writer = Stepper(place, work)
        writer.advance(first)
        interrupt(place, (paused, partial(writer.advance, second)))
        adopt_error = try_adopt(place, others=writer)
        seen = contents(place.table())
        context = (first, paused, second, adopt_error, writer.error)
        if writer.error is None:
            assert seen == new or isinstance(adopt_error, StoreError), context
        else:
            assert isinstance(writer.error, CommitConflictError | CommitStateUnknownError | StoreError), context
            assert seen == old or isinstance(writer.error, CommitStateUnknownError), context
        assert is_table(place) == (adopt_error is None or isinstance(adopt_error, StoreError)), context
        outcomes.add(f"{type(adopt_error).__name__} / {type(writer.error).__name__}")
    return outcomes


every_work = pytest.mark.parametrize(
    "work",
    [pytest.param(work, id=name) for name, work in WORKS.items()],
)


@pytest.mark.long_for("delete all", "give up", "overwrite", "replace")
@every_work
def test_a_writer_of_ours_and_an_adoption_that_overlap_lose_nothing(work: Callable[[Table], None]) -> None:
    assert check_writer_and_adoption(work) >= {"NoneType / NoneType", "TransactionStateError / NoneType"} or (
        work is delete_all
    )


@pytest.mark.parametrize("work", [append, overwrite, replace, rewrite, delete_all])
def test_a_transaction_that_began_by_the_old_rules_says_that_it_is_a_table_now(work: Callable[[Table], None]) -> None:
    place = two_days()
    begin = place.table().begin

    class Late(Table):
        """Adopted as soon as a transaction has begun."""

        def begin(self, operation: Operation = "append") -> Transaction:  # type: ignore[override]
            transaction = begin(operation)
            place.table().adopt()
            return transaction

    before = contents(place.table())
    with pytest.raises(CommitConflictError, match="was made a table"):
        work(Late.over(place, place.clock))
    assert contents(place.table()) == before
    work(place.table())
    assert contents(place.table()) != before
    assert place.table().check().ok


@pytest.mark.parametrize("is_late", [True, False])
def test_a_descriptor_that_arrives_when_its_adopter_has_given_up_loses_no_commit_of_ours(is_late: bool) -> None:
    place = two_days()
    arrives: list[Callable[[], object]] = []
    put_if_absent = place.put_if_absent

    def time_out(path: str, body: bytes) -> bool:
        if path == names.DESCRIPTOR:
            arrives.append(lambda: put_if_absent(path, body))
            raise StoreError("timed out")
        return put_if_absent(path, body)

    place.put_if_absent = time_out  # type: ignore[method-assign]
    early = place.table().begin()
    with pytest.raises(StoreError):
        place.table().adopt()
    with pytest.raises(CommitConflictError, match=r"adoption .* has begun"):
        append(place.table())
    stage(place.table(), early, b"early", {"day": "1"})
    with pytest.raises(CommitConflictError, match=r"adoption .* has begun"):
        early.commit()
    before = contents(place.table())
    place.put_if_absent = put_if_absent  # type: ignore[method-assign]
    if is_late:
        arrives.pop()()
    else:
        place.table().adopt()
    assert contents(place.table()) == before
    append(place.table())
    assert len(contents(place.table())) > len(before)


def test_an_adoption_that_is_refused_leaves_nothing_that_stops_writers() -> None:
    place = two_days()
    place.before = lambda operation, path: place.write("day=1/late.parquet") if path == CHECKPOINT else None
    with pytest.raises(CommitConflictError, match="another process wrote"):
        place.table().adopt()
    heal(place)
    append(place.table())


def test_what_a_refused_adoption_asked_for_may_land_late_and_harms_no_other_adoption() -> None:
    place = two_days()
    deleted: list[str] = []

    def disturb(operation: str, path: str) -> None:
        if operation == "delete":
            deleted.append(path)
        if path == CHECKPOINT:
            place.write("day=1/late.parquet")

    place.before = disturb
    with pytest.raises(CommitConflictError, match="another process wrote"):
        place.table().adopt()
    heal(place)
    asked_for = {path: body for path, (body, _) in place.objects.items() if path.startswith("_checkpoint_")}
    visible = live(place.table())
    place.table().adopt()
    assert not any(place.put_if_absent(path, body) for path, body in asked_for.items())
    assert not deleted
    assert live(place.table()) == visible
    append(place.table())
    assert place.table().checkpoint() not in asked_for
    assert visible < live(place.table())


def test_a_refusal_that_lands_behind_an_adoption_of_the_same_number_puts_nothing_out_of_use() -> None:
    """An operator has removed the checkpoint of an adoption that was not dead."""
    place = two_days()
    visible = live(place.table())
    place.table().adopt()
    assert place.put_if_absent(names.checkpoint(2), REFUSAL)
    assert live(place.table()) == visible
    append(place.table())
    assert place.table().checkpoint() == names.checkpoint(3)
    assert visible < live(place.table())


@pytest.mark.parametrize("path", ["_a=1.parquet", "day=1/_x=2.parquet", "_day=1/x.parquet"])
def test_what_readers_see_in_spite_of_its_underscore_is_seen_after_the_adoption_or_refused(path: str) -> None:
    place = Place()
    place.write(path)
    with suppress(DbioError):
        place.table().adopt()
    assert live(place.table()) == {path}
