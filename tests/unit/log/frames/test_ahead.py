"""Files that are fetched ahead of a reader: in which order, how many, and how many bytes of them are held."""

import threading
from collections import Counter
from random import Random
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from dbio_commit.base.errors import ObjectNotFoundError, StoreError
from dbio_commit.log.frames import ahead, matching
from dbio_commit.log.frames.ahead import FilesAhead
from dbio_commit.store.many import CONCURRENCY
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore

SIZE = 10


class Fetched(MemoryStore):
    """Counts the objects that are fetched whole."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: Counter[str] = Counter()

    def get(self, path: str, **options: int) -> bytes:
        self.whole[path] += 1
        return super().get(path, **options)


def files_ahead(count: int, *, size: int = SIZE) -> tuple[Fetched, list[str], FilesAhead]:
    store, paths = Fetched(), [f"part-{number:03}" for number in range(count)]
    for path in paths:
        store.replace(path, path.encode().ljust(size))
    return store, paths, FilesAhead(store, [(path, size) for path in paths])


@pytest.mark.parametrize("bound", [1, 3 * SIZE, 1000 * SIZE])
@pytest.mark.parametrize("shuffled", [False, True])
def test_each_file_is_fetched_once_and_few_bytes_are_held(
    monkeypatch: pytest.MonkeyPatch, bound: int, shuffled: bool
) -> None:
    monkeypatch.setattr(ahead, "HELD_BYTES", bound)
    store, paths, files = files_ahead(100)
    for path in Random(1).sample(paths, 100) if shuffled else paths:
        with files.open(path) as source:
            assert source.read() == path.encode().ljust(SIZE)
            assert files._held_bytes <= max(bound, 2 * SIZE), "the one that is read, beside those ahead"
            assert len(files._fetched) <= CONCURRENCY + 1
    files.close()
    assert store.whole == Counter(paths)
    assert not files._fetched
    assert files._held_bytes == 0


def test_more_are_fetched_ahead_the_more_were_read() -> None:
    _, paths, files = files_ahead(200)
    found = []
    for path in paths[:20]:
        files.fetch(path)
        found.append(len(files._fetched))
        files.done(path)
    assert found[0] == 6
    assert found == sorted(found)
    assert found[-1] == CONCURRENCY
    files.close()


def test_a_file_that_is_not_read_gives_its_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "HELD_BYTES", 3 * SIZE)
    store, paths, files = files_ahead(100)
    files.fetch(paths[0])
    for path in paths[:50]:
        files.done(path)
    files.fetch(paths[50])
    files.close()
    assert sum(store.whole.values()) <= 6


def test_only_the_reader_of_an_absent_file_gets_its_error() -> None:
    store, paths, files = files_ahead(5)
    store.delete_many([paths[2]])
    for path in paths:
        if path == paths[2]:
            with pytest.raises(ObjectNotFoundError, match=path):
                files.fetch(path)
        else:
            assert files.fetch(path)
    files.close()


# --- in the forms of a table ------------------------------------------------------------------------------------------


@pytest.fixture
def filled() -> tuple[Fetched, Table]:
    """40 files that are larger than the end which is looked at first."""
    store, chance = Fetched(), Random(1)
    table = Table.over(store)
    ids = [*range(40)]
    table.write(pa.table({"p": ids, "id": ids, "body": [chance.randbytes(70_000) for _ in ids]}), partition_by="p")
    store.whole.clear()
    return store, table


@pytest.mark.parametrize("ends", [0, 1_000_000, 100_000_000], ids=["no ends", "some ends", "all ends"])
@pytest.mark.parametrize("whole", [0, 1_000_000], ids=["in parts", "whole"])
def test_a_dataset_has_the_rows_whatever_is_kept_and_fetched(
    filled: tuple[Fetched, Table], monkeypatch: pytest.MonkeyPatch, ends: int, whole: int
) -> None:
    monkeypatch.setattr(matching, "_ENDS_BYTES", ends)
    monkeypatch.setattr(ahead, "WHOLE_IF_PART", whole)
    store, table = filled
    snapshot = table.snapshot()
    expected = snapshot.to_arrow().sort_by("id")
    store.whole.clear()
    dataset: Any = snapshot.to_dataset()
    assert dataset.to_table().sort_by("id").equals(expected)
    data = Counter({path: count for path, count in store.whole.items() if path.endswith(".parquet")})
    assert data == (Counter(file.path for file in snapshot.files) if whole else Counter())


def test_a_reader_that_stops_early_has_fetched_few_files(filled: tuple[Fetched, Table]) -> None:
    store, table = filled
    reader = table.scan().to_batches()
    reader.read_next_batch()
    reader.close()
    assert 1 <= sum(path.endswith(".parquet") for path in store.whole) <= 20


@pytest.mark.parametrize("form", ["dataset", "begun dataset", "batches", "begun batches"])
def test_no_thread_is_left_when_a_read_is_over(filled: tuple[Fetched, Table], form: str) -> None:
    table = filled[1]

    def read() -> None:
        dataset: Any = table.scan().to_dataset() if "dataset" in form else None
        if dataset is None:
            reader = table.scan().to_batches()
            reader.read_next_batch() if "begun" in form else reader.read_all()
            reader.close()
        elif "begun" in form:
            dataset.head(1)
        else:
            dataset.to_table()

    read()
    until = monotonic() + 20
    while left := [it.name for it in threading.enumerate() if it.name.startswith(("dbio-fetch", "dbio-read"))]:
        assert monotonic() < until, left
        sleep(0.01)


def test_a_file_that_became_shorter_since_its_footer_was_read_is_named(filled: tuple[Fetched, Table]) -> None:
    store, table = filled
    dataset: Any = table.snapshot().to_dataset()
    path = table.snapshot().files[7].path
    store.replace(path, store.get(path)[:-1])
    with pytest.raises((StoreError, OSError), match=path.rpartition("/")[2]):
        dataset.to_table()
