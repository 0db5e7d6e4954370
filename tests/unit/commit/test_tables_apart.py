"""Tables lie apart: no table is made in another one, by any way that makes a table (PROTOCOL.md 2.1)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import AccessDeniedError, InvalidInputError, Table
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store
from dbio_commit.store.local import LocalStore

ROWS = pa.table({"day": ["a", "b"], "id": [1, 2]})


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    Table(tmp_path / "outer").write(ROWS, partition_by=["day"])
    return tmp_path / "outer"


@pytest.fixture
def other(tmp_path: Path) -> Table:
    other = Table(tmp_path / "other")
    other.write(ROWS)
    return other


def adopt(place: Path, other: Table) -> object:
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS, place / "rows.parquet")
    return Table(place).adopt()


WAYS: dict[str, Callable[[Path, Table], object]] = {
    "write": lambda place, other: Table(place).write(ROWS),
    "begin": lambda place, other: Table(place).begin(),
    "copy": lambda place, other: other.copy(str(place)),
    "copy of a state": lambda place, other: other.copy(str(place), as_of=other.history()[-1].tid),
    "incremental copy": lambda place, other: other.copy(str(place), incremental=True),
    "adopt": adopt,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inside", ["sub", "a/b/c", "day=a/sub", "_delta_log", "_dbio_iceberg/t"])
def test_no_table_is_made_inside_of_a_table(outer: Path, other: Table, way: str, inside: str) -> None:
    with pytest.raises(InvalidInputError, match=f"lies in the table {outer}.*nothing was written"):
        WAYS[way](outer / inside, other)
    assert not [*(outer / inside).glob("_*")]
    assert Table(outer).vacuum(dry_run=True).ok
    assert Table(outer).check().ok


def test_no_table_is_made_inside_of_a_table_behind_a_link(outer: Path, tmp_path: Path) -> None:
    (outer / "sub").mkdir()
    (tmp_path / "link").symlink_to(outer / "sub")
    with pytest.raises(InvalidInputError, match="lies in the table"):
        Table(tmp_path / "link" / "inner").write(ROWS)


def test_a_directory_above_that_may_not_be_read_refuses_nothing(outer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = LocalStore.stat

    def refused(self: LocalStore, path: str) -> Entry:
        if path == names.DESCRIPTOR and outer.is_relative_to(self.url):
            raise AccessDeniedError(f"{self.url} may not be read")
        return stat(self, path)

    monkeypatch.setattr(LocalStore, "stat", refused)
    Table(outer / "sub").write(ROWS)


def test_only_the_first_write_looks_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    around = LocalStore.around

    def look(self: LocalStore) -> Sequence[Store]:
        looked.append(self.url)
        return around(self)

    monkeypatch.setattr(LocalStore, "around", look)
    table = Table(tmp_path / "table")
    for _ in range(3):
        table.write(ROWS)
    table.delete("id = 1")
    table.vacuum()
    assert looked == [str(tmp_path / "table")]


def test_the_vacuum_of_a_table_around_another_names_it_and_says_what_to_do(
    outer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that make both at once do not see each other."""
    monkeypatch.setattr(LocalStore, "around", lambda self: ())
    Table(outer / "sub").write(ROWS)
    with pytest.raises(
        InvalidInputError,
        match=rf"holds another table, {outer}/sub.*dbio copy {outer}/sub .*dbio drop {outer}/sub --everything",
    ):
        Table(outer).vacuum()
    assert len(Table(outer).snapshot().files) == 2
