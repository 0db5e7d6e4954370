"""`maintenance/doctor`: what it finds out about stores that lack something."""

from datetime import timedelta

import pytest

from dbio_commit.base.errors import AccessDeniedError, StoreError
from dbio_commit.maintenance.doctor import Finding, Verdict, look_at_store
from dbio_commit.testing import ManualClock, MemoryStore


def problems(store: MemoryStore, clock: ManualClock) -> dict[str, Finding]:
    found = {it.what: it for it in look_at_store(store, clock, "s3") if it.verdict is Verdict.PROBLEM}
    assert all(it.advice for it in found.values())
    return found


def test_a_good_store_has_no_problems_and_keeps_nothing(store: MemoryStore, clock: ManualClock) -> None:
    assert problems(store, clock) == {}
    assert store.objects == {}


def test_a_store_without_put_if_absent_is_found_even_if_this_process_has_proved_it_before(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(store, clock) == {}
    monkeypatch.setattr(store, "put_if_absent", lambda path, body: True)
    assert problems(store, clock).keys() == {"put-if-absent"}


def test_a_store_that_does_not_answer_is_asked_nothing_more(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise AccessDeniedError("no")

    def fails(*_: object) -> None:
        raise StoreError("no")

    for answer in (refuses, fails):
        monkeypatch.setattr(store, "list_log", answer)
        (found,) = look_at_store(store, clock, "s3")
        assert (found.what, found.verdict) == ("access", Verdict.PROBLEM)
    assert "network" in found.advice


@pytest.mark.parametrize(("ahead_s", "word"), [(-300, "ahead of"), (300, "behind")])
def test_a_clock_that_is_wrong_is_named_with_its_direction(
    ahead_s: int, word: str, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = store.stat

    def other(path: str) -> object:
        entry = stat(path)
        return entry._replace(modified=entry.modified + timedelta(seconds=ahead_s))

    monkeypatch.setattr(store, "stat", other)
    assert f"300 s {word} the store" in problems(store, clock)["clock"].text


def test_an_object_that_cannot_be_deleted_is_named(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "delete_many", lambda paths: {path: StoreError("no") for path in paths})
    (left,) = problems(store, clock).values()
    (path,) = store.objects
    assert path in left.advice
