"""Adoptions that are killed, and two at once: `Table.adopt`, on a store in memory.

What is visible before is live afterwards, or nothing has changed. Numbers I1 to I10: PROTOCOL.md 5.
Rules: PROTOCOL.md 11.5.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    InvalidInputError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedStoreError,
)
from dbio_commit.commit import probe as probe_module
from dbio_commit.protocol import names
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from tests.faults import Killed, Killer, calls_to, heal
from tests.unit.adoptions import (
    CHECKPOINT,
    Place,
    Stepper,
    calls_of_adopt,
    every_place,
    interrupt,
    is_table,
    plain,
    try_adopt,
    visible,
)
from tests.writers import live, stage

# --- killed, and two at once --------------------------------------------------------------------------------------


@every_place
@pytest.mark.parametrize("after", [False, True])
def test_an_adoption_that_is_killed_at_any_call_leaves_a_directory_or_a_table(
    make: Callable[[], Place], after: bool
) -> None:  # I9
    calls = calls_of_adopt(make)
    scopes = []
    for call in range(calls):
        probe_module._PROBED.clear()
        place = make()
        expected = visible(place.table())
        Killer(place, call, after=after)
        with pytest.raises(Killed):
            place.table().adopt()
        heal(place)
        assert visible(place.table()) == expected
        scopes.append(place.table().snapshot().scope)
        assert place.table().check().ok
        if scopes[-1] is Scope.TABLE:
            with pytest.raises(TableExistsError):
                place.table().adopt()
        else:
            place.table().adopt()
        assert visible(place.table()) == expected
        assert place.table().snapshot().scope is Scope.TABLE
        assert [commit.operation for commit in place.table().history()].count("adopt") == 1
    assert scopes == sorted(scopes)  # a directory, and then a table


def test_a_directory_that_changed_after_a_killed_adoption_is_adopted_as_it_is_now() -> None:
    for call in range(calls_of_adopt(plain)):
        place = plain()
        Killer(place, call, after=True)
        with suppress(Killed):
            place.table().adopt()
        heal(place)
        if is_table(place):
            break
        place.write("later.parquet")
        place.delete_many(["a.parquet"])
        place.table().adopt()
        assert live(place.table()) == {"b c é.parquet", "later.parquet"}
        assert place.table().check().ok
    else:
        pytest.fail("never became a table")


def test_what_a_killed_adoption_left_is_not_taken_for_the_content_of_a_new_table() -> None:  # I1
    """Its directory is emptied, and then written to by somebody who finds nothing there."""
    place = plain()
    Killer(place, [path for _, path in calls_made(place)].index(CHECKPOINT), after=True)
    with pytest.raises(Killed):
        place.table().adopt()
    heal(place)
    place.delete_many([path for path in place.objects if path.endswith((".parquet", ".crc"))])
    with pytest.raises(TableNotFoundError):
        place.table().snapshot()
    try:
        with place.table().begin() as transaction:
            new = stage(place.table(), transaction, b"new")
    except InvalidInputError as error:
        assert CHECKPOINT in str(error)  # noqa: PT017
    else:
        assert live(place.table()) == {new}


def calls_made(place: Place) -> list[tuple[str, str]]:
    """By an adoption, without any effect."""
    before = dict(place.objects)
    with calls_to(place) as calls:
        place.table().adopt()
    place.objects = before
    return calls


def someone_else_adopts(place: Place) -> None:
    """And writes to the table at once."""
    place.table().adopt()
    with place.table().begin(app=("job", 7)) as transaction:
        stage(place.table(), transaction, b"new", dict.fromkeys(transaction.terms.partition_columns, "1"))
    with place.table().begin("rewrite") as transaction:
        transaction.remove([min(live(place.table()))])


def checkpoint_and_purge(place: Place) -> None:
    place.table().checkpoint()
    log = [path for path in place.objects if path.startswith(("_committed_", "_started_"))]
    place.delete_many([path for path in log if "vacuum" not in path])
    place.delete_many([path for path in sorted(place.objects) if path.startswith("_checkpoint_")][:-1])


@every_place
@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("purged", [False, True])
def test_of_two_adoptions_at_once_one_wins_and_nothing_is_lost_of_what_is_written_then(
    make: Callable[[], Place], leftover: bool, purged: bool
) -> None:  # I9
    """The slower one is suspended before any of its calls until the other's table is in use, or even checkpointed."""

    def prepared() -> Place:
        place = make()
        if leftover:
            Killer(place, [path for _, path in calls_made(place)].index(CHECKPOINT), after=True)
            with pytest.raises(Killed):
                place.table().adopt()
            heal(place)
        return place

    losers = 0
    for call in range(calls_of_adopt(prepared)):
        place = prepared()
        seen: list[object] = []

        def meanwhile(place: Place = place, seen: list[object] = seen) -> None:
            with suppress(TableExistsError):
                someone_else_adopts(place)
                if purged:
                    checkpoint_and_purge(place)
                seen += [visible(place.table()), dict(place.table().snapshot().app_versions)]

        interrupt(place, (call, meanwhile))
        error = try_adopt(place)
        if not seen:  # too late for the other
            assert error is None
            continue
        losers += 1
        # Unsupported: its own checkpoint was purged before it could probe the store with that.
        expected = (TableExistsError, CommitConflictError, *([UnsupportedStoreError] if purged else []))
        assert isinstance(error, expected)
        assert [visible(place.table()), dict(place.table().snapshot().app_versions)] == seen
        assert place.table().check().ok
        checkpoint_and_purge(place)
        assert [visible(place.table()), dict(place.table().snapshot().app_versions)] == seen
    assert losers >= 6


@every_place
def test_an_adoption_that_resumes_after_another_has_begun_and_before_it_ends_loses_nothing(
    make: Callable[[], Place],
) -> None:  # I9
    """Two adoptions, call by call, in every order of their puts; a file comes at any moment between."""
    calls = calls_of_adopt(make)
    for first in range(1, calls):
        for late in range(first + 1):
            place = make()
            partition = names.format_partition(dict.fromkeys(place.table().snapshot().partition_columns, "1"))
            new = names.join(partition, "new.parquet")
            before = live(place.table())
            other = Stepper(place, Table.adopt)
            other.advance(first)
            interrupt(place, (late, partial(place.write, new)), (calls - 2, partial(other.advance, 2)))
            mine = try_adopt(place, others=other)
            if new not in place.objects:
                place.write(new)
                continue
            told = any(isinstance(error, StoreError) for error in (mine, other.error))
            assert live(place.table()) == {*before, new} or (told and live(place.table()) == before), (first, late)
