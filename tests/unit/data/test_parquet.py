"""What lies beside a table's files and is no Parquet: nobody reads it, removes it or deletes it, and it is named.

Rules: PROTOCOL.md 6.1.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta

import pytest

from dbio_commit.base.errors import TableNotFoundError
from dbio_commit.data.parquet import has_magic, not_parquet
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to
from tests.writers import live, stage

PARQUET = b"PAR1 rows PAR1"
TID = "1187324659120348471"


def data(suffix: str, tid: str = TID) -> str:
    return f"part-00000-tid-{tid}-5f8a2c1e-0000-4000-8000-000000000000-0-0-c000{suffix}"


def place(objects: Mapping[str, bytes]) -> Table:
    clock = ManualClock()
    store = MemoryStore(clock)
    for path, body in objects.items():
        store.put(path, body)
    return Table.over(store, clock)


PARQUET_FILES = {
    "old.parquet": b"rows",
    "SHOUTED.SNAPPY.PARQUET": b"rows",
    data(".gz.parquet"): b"rows",
    data(""): PARQUET,
    data(".bin", "2"): PARQUET,
}
FOREIGN_FILES = {
    "README.txt": b"read me",
    "export.csv": b"a,b",
    "secret.key": PARQUET,  # without a tid only the name counts
    "parquet": PARQUET,
    data(".csv"): b"a,b and more",
    data(".json", "2"): b"PAR1",  # too short to be one
    data(".orc", "3"): b"PAR1 and something else",
}


@pytest.fixture
def mixed() -> Table:
    """A directory that no transaction wrote to."""
    return place({**PARQUET_FILES, **FOREIGN_FILES, "_SUCCESS": b""})


def bodies(table: Table) -> dict[str, bytes]:
    assert isinstance(table.store, MemoryStore)
    return {path: body for path, (body, _) in table.store.objects.items()}


@pytest.mark.parametrize("name", [*PARQUET_FILES, data(".csv")])
def test_a_parquet_suffix_or_a_tid_counts_as_data(name: str) -> None:
    assert names.counts_as_data(name)


@pytest.mark.parametrize("name", ["README.txt", "export.csv", "secret.key", "parquet", "a.parquet.bak", "000000_0", ""])
def test_any_other_name_does_not(name: str) -> None:
    assert not names.counts_as_data(name)


def test_a_snapshot_has_the_parquet_files_and_names_the_others(mixed: Table) -> None:
    snapshot = mixed.snapshot()
    assert {file.path for file in snapshot.files} == PARQUET_FILES.keys()
    assert set(snapshot.foreign) == FOREIGN_FILES.keys()


def test_only_names_with_a_tid_and_another_suffix_are_looked_into(mixed: Table) -> None:
    assert isinstance(mixed.store, MemoryStore)
    with calls_to(mixed.store) as calls:
        mixed.snapshot()
    read = {path for operation, path in calls if operation == "get"}
    assert read == {data(""), data(".bin", "2"), data(".csv"), data(".orc", "3")}


def test_an_overwrite_leaves_what_is_no_parquet(mixed: Table, caplog: pytest.LogCaptureFixture) -> None:
    with mixed.begin("overwrite") as transaction:
        new = stage(mixed, transaction)
    (commit,) = mixed.history()
    assert set(commit.removed) == PARQUET_FILES.keys()
    assert live(mixed) == {new}
    assert FOREIGN_FILES.items() <= bodies(mixed).items()
    assert "7 files are not Parquet" in caplog.text


def test_an_overwrite_says_what_it_left(mixed: Table) -> None:
    assert set(mixed.begin("overwrite").commit().foreign) == FOREIGN_FILES.keys()


def test_an_adoption_leaves_what_is_no_parquet_and_says_so(mixed: Table) -> None:
    commit = mixed.adopt()
    assert set(commit.added) == PARQUET_FILES.keys()
    assert commit.removed == []
    assert set(commit.foreign) == FOREIGN_FILES.keys()
    assert live(mixed) == PARQUET_FILES.keys()
    assert FOREIGN_FILES.items() <= bodies(mixed).items()


def test_an_adoption_removes_hidden_parquet_only() -> None:
    hidden = {data(".parquet"): b"rows", data(""): PARQUET, data(".csv"): b"a,b and more"}
    marker = {f"_started_{TID}": b"", f"_committed_{TID}": b'{"added": [], "removed": []}'}
    table = place({**hidden, **marker, "old.parquet": b"rows"})
    assert set(table.adopt().removed) == {data(".parquet"), data("")}


@pytest.mark.parametrize("adopted", [False, True])
def test_check_names_what_is_no_parquet_and_calls_it_no_garbage(mixed: Table, adopted: bool) -> None:
    if adopted:
        mixed.adopt()
    report = mixed.check()
    assert report.ok
    assert report.live_files == len(PARQUET_FILES)
    by_name = {path for path in FOREIGN_FILES if not names.counts_as_data(path)}
    foreign = {entry.path for entry in report.foreign}
    assert foreign == (by_name if adopted else FOREIGN_FILES.keys())
    assert not foreign & {entry.path for entries in report.garbage.values() for entry in entries}


def test_a_late_readme_does_not_trouble_an_adoption() -> None:
    table = place({"old.parquet": b"rows"})
    assert isinstance(table.store, MemoryStore)
    store = table.store
    store.after = lambda operation, path: (
        store.put("README.txt", b"late") if (operation, path) == ("put_if_absent", names.DESCRIPTOR) else None
    )
    table.adopt()


def test_a_directory_of_other_files_is_no_table() -> None:
    table = place({"passwd": b"root", "ssl/key.pem": b"secret"})
    with pytest.raises(TableNotFoundError, match="no Parquet file"):
        table.snapshot()
    with pytest.raises(TableNotFoundError):
        table.check()
    with pytest.raises(TableNotFoundError):
        table.adopt()


def test_a_first_write_beside_other_files_makes_a_table_and_names_them(caplog: pytest.LogCaptureFixture) -> None:
    table = place({"README.txt": b"read me"})
    with table.begin() as transaction:
        new = stage(table, transaction)
    assert table.snapshot().scope is Scope.TABLE
    assert live(table) == {new}
    assert "README.txt" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


def test_partition_columns_are_those_of_the_parquet_files() -> None:
    table = place({"README.txt": b"read me", "docs/guide.md": b"guide", "day=1/a.parquet": b"rows"})
    assert table.snapshot().partition_columns == ("day",)
    assert table.adopt().added == ["day=1/a.parquet"]


def test_a_file_that_goes_while_it_is_looked_into_is_no_error() -> None:
    table = place({})
    assert not_parquet(table.store, [(data(".csv"), 100)]) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [(PARQUET, True), (b"PAR1PAR1", False), (b"", False), (b"PAR1 rows PARE", False), (b"rows rows rows PAR1", False)],
)
def test_the_magic_bytes_are_at_both_ends(body: bytes, expected: bool) -> None:
    table = place({"a": body})
    assert has_magic(table.store, "a", len(body)) is expected


def test_what_an_adoption_left_is_never_deleted(mixed: Table) -> None:
    mixed.adopt()
    assert isinstance(mixed.clock, ManualClock)
    mixed.clock.advance(timedelta(days=40))
    report = vacuum_table(mixed, VacuumOptions())
    assert report.ok
    assert FOREIGN_FILES.items() <= bodies(mixed).items()


def test_a_plain_directory_that_was_overwritten_keeps_what_is_no_parquet(mixed: Table) -> None:
    mixed.begin("overwrite").commit()
    assert isinstance(mixed.clock, ManualClock)
    mixed.clock.advance(timedelta(days=40))
    assert vacuum_table(mixed, VacuumOptions()).deleted
    assert {path for path in bodies(mixed) if not path.startswith("_")} == FOREIGN_FILES.keys()
