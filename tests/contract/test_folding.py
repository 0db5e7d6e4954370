"""Disks that ignore case, compose letters or cut names off: two partitions must never share a directory there.

Rules: PROTOCOL.md 6.3.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from dbio_commit import FileInfo, InvalidInputError, Table
from dbio_commit.base.clock import Clock
from dbio_commit.store import beneath
from tests.contract.folding import make_fold
from tests.writers import contents, live, stage
from vacuum import VacuumOptions, vacuum_table

DISKS: dict[str, Callable[[str], str]] = {
    "case": str.casefold,
    "composition": lambda name: normalize("NFC", name),
    "case and composition": lambda name: normalize("NFC", normalize("NFD", name).casefold()),
    "ends": lambda name: name.rstrip(" ."),
}
COMPOSED, DECOMPOSED = (normalize(form, "é") for form in ("NFC", "NFD"))
PAIRS = [
    ("case", "Click", "click"),
    ("case", "straße", "STRASSE"),
    ("composition", COMPOSED, DECOMPOSED),
    ("composition", DECOMPOSED, COMPOSED),
    ("case and composition", COMPOSED, DECOMPOSED),
    ("case and composition", "a", "A"),
    ("ends", "a", "a."),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def write(table: Table, value: str, operation: Any = "append") -> str:
    transaction = table.begin(operation, partition_by=["kind"])
    path = stage(table, transaction, value.encode(), {"kind": value})
    transaction.commit()
    return path


@pytest.mark.parametrize(("disk", "first", "second"), PAIRS)
@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions"])
def test_a_second_spelling_of_a_partition_is_refused_before_anything_is_written(
    table: Table, monkeypatch: pytest.MonkeyPatch, disk: str, first: str, second: str, operation: str
) -> None:
    make_fold(monkeypatch, Path(table.url), DISKS[disk])
    write(table, first)
    write(table, first)  # the same again is fine
    before = live(table)
    with pytest.raises(InvalidInputError, match="another spelling"):
        write(table, second, operation)
    assert live(table) == before
    assert [name for name in os.listdir(table.url) if "=" in name] == [f"kind={first}"]


def test_two_spellings_in_one_transaction_are_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    make_fold(monkeypatch, Path(table.url), str.casefold)
    transaction = table.begin(partition_by=["kind"])
    stage(table, transaction, b"", {"kind": "Click"})
    for spell in (
        lambda: transaction.new_file(partition={"kind": "click"}),
        lambda: table.store.open_write("kind=click/part-0"),
        lambda: table.store.put_if_absent("kind=click/_started_1", b""),
    ):
        with pytest.raises(InvalidInputError, match=r"kind=click cannot be written.*another spelling"):
            spell()


def test_files_that_somebody_else_wrote_under_a_second_spelling_are_refused_at_the_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fold(monkeypatch, Path(table.url), str.casefold)
    write(table, "Click")
    before = live(table)
    transaction = table.begin()
    name = f"part-00000-tid-{transaction.tid}-x-0-0-c000.parquet"
    Path(table.url, "kind=Click", name).touch()
    transaction.add([FileInfo(path=f"kind=click/{name}", size=0, partition={"kind": "click"})])
    with pytest.raises(InvalidInputError, match="another spelling"):
        transaction.commit()
    assert live(table) == before


@pytest.mark.parametrize(("first", "second"), [(first, second) for _, first, second in PAIRS])
def test_a_disk_that_keeps_names_takes_both_spellings(table: Table, first: str, second: str) -> None:
    paths = {write(table, first), write(table, second)}
    assert live(table) == paths
    assert contents(table) == sorted([first.encode(), second.encode()])


def test_other_disks_are_not_asked_for_their_lists(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    write(table, "a")
    monkeypatch.setattr(os, "listdir", None)
    write(table, "a")
    write(table, "b")


class Later(Clock):
    def now(self) -> Any:
        return super().now() + timedelta(hours=1)


@pytest.mark.parametrize(("disk", "first", "second"), PAIRS)
def test_vacuum_keeps_the_live_and_the_young_files_of_two_spellings_that_share_a_directory(
    table: Table, monkeypatch: pytest.MonkeyPatch, disk: str, first: str, second: str
) -> None:
    """As earlier versions wrote them."""
    make_fold(monkeypatch, Path(table.url), DISKS[disk])
    write(table, first)
    with monkeypatch.context() as without:
        without.setattr(beneath, "refuse_other_spelling", lambda *_: None)
        without.setattr(type(table.store), "check_spelling", lambda *_: None)
        write(table, second)
        reader = table.snapshot()
        write(table, second, "overwrite_partitions")
    before = contents(table)
    assert len(before) == 2
    later = Table.over(table.store, Later())
    report = vacuum_table(later, VacuumOptions(checkpoint_after=1))
    assert not [it for it in report.deleted if it.path.endswith(".parquet")]
    assert contents(table) == before
    assert all(os.path.exists(url) for url in reader.urls())
    assert len(report.kept) == 1  # what the replacement removed; it is due once a reader needs it no more
    assert report.kept[0].path in live_paths(reader)
    vacuum_table(later, VacuumOptions(retention_hours=0, force=True))
    assert contents(table) == before
    assert not os.path.exists(f"{table.url}/{report.kept[0].path}")


def live_paths(snapshot: Any) -> set[str]:
    return {file.path for file in snapshot.files}
