"""Objects that somebody cut off, and answers that end early: an error of this package that names the object."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from dbio_commit import DbioError, ObjectNotFoundError, StoreError, Table
from dbio_commit.log.frames import ahead, reading
from dbio_commit.maintenance.publish.reading import read_lines, read_whole
from dbio_commit.store.copying import copy_object
from dbio_commit.store.upload import Download
from dbio_commit.testing import MemoryStore

ROWS = pa.table({"id": range(1000), "v": [f"value {n}" for n in range(1000)]})

READS: dict[str, Callable[[Table], object]] = {
    "to_arrow": lambda table: table.snapshot().to_arrow(),
    "where": lambda table: table.snapshot().to_arrow(where="id < 900"),
    "to_polars": lambda table: table.snapshot().to_polars(),
    "to_duckdb": lambda table: table.snapshot().to_duckdb().fetchall(),
    "to_dataset": lambda table: table.snapshot().to_dataset().to_table(),
    "compact": lambda table: table.compact(dry_run=True),
}


@pytest.fixture
def path(tmp_path: Path, tiny_parts: None) -> Path:
    """A table with each kind of object; parts cover all commits but the last."""
    table = Table(tmp_path / "table")
    for _ in range(3):
        table.write(ROWS)
    table.checkpoint()
    table.write(ROWS)
    table.delete("id = 3")
    return tmp_path / "table"


def objects(path: Path) -> list[Path]:
    """The last object of each kind."""
    found = {it.name.split("_")[1] if it.name.startswith("_") else "data": it for it in sorted(path.glob("*"))}
    assert found.keys() >= {"committed", "started", "checkpoint", "part", "serial", "data"}
    return [*found.values()]


def problem_of(call: Callable[[], object]) -> str | None:
    try:
        call()
    except DbioError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("whole", [True, False], ids=["in one piece", "in parts"])
def test_an_object_that_was_cut_off_is_named(
    path: Path, name: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(reading, "WHOLE_BYTES", 0)
        monkeypatch.setattr(ahead, "WHOLE_IF_PART", 0)
    expected = READS[name](Table(path))
    for victim in objects(path):
        body = victim.read_bytes()
        victim.write_bytes(body[: len(body) // 2])
        problem = problem_of(lambda: READS[name](Table(path)))
        victim.write_bytes(body)
        if problem is not None:
            assert victim.name in problem
        else:
            assert not victim.name.startswith(("_committed", "_checkpoint", "_dbio_table"))
            assert victim.name.startswith("_") or name == "compact"
    assert type(READS[name](Table(path))) is type(expected)


class Short(MemoryStore):
    """Answers each request for a part of an object with all but the last byte."""

    def get_some(self, path: str, start: int, length: int) -> bytes:
        return super().get_some(path, start, length)[:-1]

    def open_read(self, path: str) -> BinaryIO:
        whole = super().open_read(path)

        class Stream:
            seek, tell, close = whole.seek, whole.tell, whole.close

            def read(self, size: int = -1) -> bytes:
                found = whole.read(size)
                whole.seek(-1, 1)
                return found[:-1]

        def guard(function: Callable[[], Any]) -> Any:
            try:
                return function()
            except OSError as error:
                raise StoreError(f"cannot read {self.url_of(path)}: {error}") from None

        opened: Any = Download(Stream, guard)  # type: ignore[arg-type]
        return opened  # type: ignore[no-any-return]


@pytest.mark.parametrize("read", [read_whole, lambda store, entry: list(read_lines(store, entry))])
def test_lines_of_a_publication_that_are_missing_are_no_end(
    store: MemoryStore, read: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("_delta_log/0.json", b"1\n2\n")
    entry = store.stat("_delta_log/0.json")
    assert read(store, entry) in (b"1\n2\n", [b"1\n", b"2\n"])
    monkeypatch.setattr(store, "get", lambda path, limit_bytes: b"1\n")
    with pytest.raises(StoreError, match=r"0\.json was read with 2 of 4 bytes"):
        read(store, entry)


@pytest.mark.parametrize("body", [b"1\n", b"1\n2\n3\n"], ids=["shorter", "longer"])
@pytest.mark.parametrize("read", [read_whole, lambda store, entry: list(read_lines(store, entry))])
def test_an_object_of_a_publication_that_was_replaced_since_it_was_listed_is_looked_for_again(
    store: MemoryStore, read: Callable[..., object], body: bytes
) -> None:
    """An erasure deletes objects of publications, and another publisher takes their numbers."""
    store.put("_delta_log/0.json", b"1\n2\n")
    entry = store.stat("_delta_log/0.json")
    store.put("_delta_log/0.json", body)
    with pytest.raises(ObjectNotFoundError, match=r"0\.json was replaced since it was listed; look again"):
        read(store, entry)


def test_an_answer_that_ends_early_is_no_shorter_object(store: MemoryStore) -> None:
    short = Short()
    short.put("part-0", bytes(range(100)))
    reads: list[Callable[[], object]] = [
        lambda: short.get_range("part-0", 10, 20),
        lambda: short.get_tail("part-0", 20),
        lambda: copy_object(short, "part-0", store, "copy"),
    ]
    for read in reads:
        with pytest.raises(StoreError, match=r"part-0.*(19 of 20|99 of 100) bytes"):
            read()
