"""What a task makes of a file's rows and of those that change in it: as if they were changed one by one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from dbio_commit import InvalidInputError, StoreError
from dbio_commit.data.footers import SPARK_VERSION
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.scan import ReadSpec
from dbio_commit.spark.write.actions import RowAction
from dbio_commit.spark.write.copied import CopyCounts, OldFiles, copy
from dbio_commit.table import Table

SCHEMA = t.StructType(
    [
        t.StructField("id", t.LongType()),
        t.StructField("name", t.StringType()),
        t.StructField("tags", t.ArrayType(t.IntegerType())),
        t.StructField("day", t.StringType()),
    ]
)
Row = tuple[int | None, str | None, list[int] | None]
Change = tuple[int, RowAction]
"""A place, and what becomes of the row there."""

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 99), st.none() | st.text("ab", max_size=3), st.none() | st.lists(st.integers(0, 9))
    ),
    min_size=1,
    max_size=40,
)


def write(root: Path, name: str, rows: Sequence[Row], metadata: dict[str, str] | None = None) -> DataFile:
    """A file of the partition day=x, in row groups of 7 rows."""
    path = root / "day=x" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns(rows))
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=7)
    return DataFile(f"day=x/{name}", path.stat().st_size, None, {"day": "x"})


def columns(rows: Sequence[Row]) -> dict[str, Any]:
    ids, names, tags = zip(*rows, strict=True) if rows else ((), (), ())
    return {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array(names, pa.string()),
        "tags": pa.array(tags, pa.list_(pa.int32())),
    }


def batches(
    rows: Sequence[Row], told: Sequence[tuple[RowAction, int | None, int | None]], size: int
) -> Iterator[pa.RecordBatch]:
    """As they come from Spark: columns, action, file and place."""
    arrays = [*columns(rows).values(), pa.array(["x"] * len(rows), pa.string())]
    actions, files, places = zip(*told, strict=True) if told else ((), (), ())
    arrays += [pa.array(actions, pa.int8()), pa.array(files, pa.int64()), pa.array(places, pa.int64())]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def run(old: OldFiles, sent: Iterator[pa.RecordBatch]) -> tuple[list[tuple[Any, ...]], CopyCounts]:
    """The rows with their actions, in any order, and what the task says."""
    copied = CopyCounts()
    found = [tuple(row.values()) for batch in copy(old, sent, copied) for row in batch.to_pylist()]
    return found, copied


def old_of(root: Path, files: dict[int, DataFile], **how: Any) -> OldFiles:
    spec = ReadSpec(Table(root), SCHEMA)
    how = {"sets": frozenset({"id", "name", "tags"}), **how}
    return OldFiles(spec=spec, files=files, columns=("id", "name", "tags", "day"), **how)


def expected(rows: Sequence[Row], changes: dict[int, RowAction], new: Row, sets: set[str], *, tells: bool) -> list[Any]:
    found: list[Any] = []
    for place, row in enumerate(rows):
        becomes = changes.get(place, RowAction.KEPT)
        if becomes is RowAction.UPDATED:
            value = tuple(after if name in sets else before
                          for name, before, after in zip(("id", "name", "tags"), row, new, strict=True))  # fmt: skip
            found.append((*value, "x", int(becomes)))
            found += [(*row, "x", int(RowAction.WAS))] if tells else []
        else:
            found.append((*row, "x", int(becomes)))
    return found


@given(
    files=st.lists(ROWS, min_size=1, max_size=3),
    changes=st.lists(
        st.dictionaries(st.integers(0, 39), st.sampled_from([RowAction.UPDATED, RowAction.DELETED])), min_size=3
    ),
    sets=st.sets(st.sampled_from(["id", "name", "tags"])),
    size=st.integers(1, 9),
    tells=st.booleans(),
    shipped=st.booleans(),
    news=st.integers(0, 5),
)
def test_the_rows_of_files_come_with_what_changes_in_them(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[Row]],
    changes: list[dict[int, RowAction]],
    sets: set[str],
    size: int,
    tells: bool,
    shipped: bool,
    news: int,
) -> None:
    root = tmp_path_factory.mktemp("table")
    new: Row = (7, "new", [1, 2])
    sent: list[Row] = [new] * news
    told: list[tuple[RowAction, int | None, int | None]] = [(RowAction.INSERTED, None, None)] * news
    want: list[Any] = [(*new, "x", int(RowAction.INSERTED))] * news
    known, touched = {}, []
    for number, (rows, all_changes) in enumerate(zip(files, changes, strict=False)):
        known[number] = file = write(root, f"{number}.parquet", rows)
        own = {place: action for place, action in all_changes.items() if place < len(rows)}
        if not own:
            continue
        touched.append(file.path)
        for place, row in enumerate(rows):
            if place in own:
                sent.append(new if own[place] is RowAction.UPDATED else (None, None, None))
                told.append((own[place], number, place))
            if shipped:
                sent.append(row)
                told.append((RowAction.KEPT, number, place))
        want += expected(rows, own, new, sets, tells=tells)
    old = old_of(root, known, sets=frozenset(sets), records_changes=tells,
                 shipped=frozenset(known) if shipped else frozenset())  # fmt: skip
    found, copied = run(old, batches(sent, told, size))
    assert sorted(map(repr, found)) == sorted(map(repr, want))
    assert copied.paths == touched
    assert not copied.twice
    assert not copied.only_for_spark


def test_rows_keep_their_order(tmp_path: Path) -> None:
    file = write(tmp_path, "a.parquet", [(i, "old", None) for i in range(20)])
    sent: list[Row] = [(i, "new", [i]) for i in (3, 4, 19)]
    found, _ = run(old_of(tmp_path, {5: file}), batches(sent, [(RowAction.UPDATED, 5, it[0]) for it in sent], 2))
    assert [row[0] for row in found] == [*range(20)]
    assert [row[0] for row in found if row[1] == "new"] == [3, 4, 19]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("shipped", [False, True])
def test_two_changes_of_a_row_are_told(tmp_path: Path, size: int, shipped: bool) -> None:
    file = write(tmp_path, "a.parquet", [(i, None, None) for i in range(3)])
    sent: list[Row] = [(i, "new", None) for i in (1, 1)]
    told: list[Any] = [(RowAction.UPDATED, 5, 1), (RowAction.DELETED, 5, 1)]
    if shipped:
        sent, told = [*sent, (1, None, None)], [*told, (RowAction.KEPT, 5, 1)]
    _, copied = run(old_of(tmp_path, {5: file}, shipped=frozenset({5} if shipped else ())), batches(sent, told, size))
    assert copied.twice


@pytest.mark.parametrize("shipped", [False, True])
def test_a_row_that_is_not_there_is_an_error(tmp_path: Path, shipped: bool) -> None:
    file = write(tmp_path, "a.parquet", [(i, None, None) for i in range(3)])
    old = old_of(tmp_path, {5: file}, shipped=frozenset({5} if shipped else ()))
    with pytest.raises(StoreError, match=r"1 rows that Spark saw in .*a\.parquet are not there"):
        run(old, batches([(3, "new", None)], [(RowAction.UPDATED, 5, 3)], 1))


def test_rows_in_disorder_are_no_reason_to_write_a_file_twice(tmp_path: Path) -> None:
    rows: list[Row] = [(i, None, None) for i in range(30)]
    files = {1: write(tmp_path, "a.parquet", rows), 2: write(tmp_path, "b.parquet", rows)}
    for told, size, match in (
        ([(1, 0), (2, 0), (1, 5)], 1, "do not arrive together"),
        ([(1, 0), (2, 0), (1, 5)], 3, "order of their files"),
        ([(1, 0), (None, None)], 2, "order of their files"),
        ([(1, 5), (1, 3)], 2, "do not arrive in order"),
        ([(3, 0)], 1, "by another path"),
    ):
        sent: list[Row] = [(0, "new", None)] * len(told)
        with pytest.raises(AssertionError, match=match):
            run(old_of(tmp_path, files), batches(sent, [(RowAction.UPDATED, *at) for at in told], size))


@pytest.mark.parametrize("version", [None, "2.4.8"], ids=["", "of an old calendar"])
def test_a_file_with_a_column_that_the_table_lacks_is_not_written_anew_without_it(
    tmp_path: Path, version: str | None
) -> None:
    metadata = {SPARK_VERSION: version} if version else None
    file = write(tmp_path, "a.parquet", [(1, "a", None)], metadata)
    rows = pa.table({"id": [1], "NAME": ["a"], "day": ["x"], "price": [9.5]})  # the day is the directory's
    pq.write_table(rows.replace_schema_metadata(metadata), tmp_path / file.path)
    file = file._replace(size=(tmp_path / file.path).stat().st_size)
    with pytest.raises(InvalidInputError, match=r"a\.parquet has the column 'price'.*merge_schema=True"):
        run(old_of(tmp_path, {1: file}), batches([(1, "new", None)], [(RowAction.UPDATED, 1, 0)], 1))


def test_a_file_whose_calendar_only_spark_knows_is_left_to_it(tmp_path: Path) -> None:
    rows: list[Row] = [(i, None, None) for i in range(3)]
    files = {1: write(tmp_path, "a.parquet", rows, {SPARK_VERSION: "2.4.8"}), 2: write(tmp_path, "b.parquet", rows)}
    told: list[Any] = [(RowAction.UPDATED, 1, 0), (RowAction.UPDATED, 1, 2), (RowAction.DELETED, 2, 1)]
    found, copied = run(old_of(tmp_path, files), batches([(0, "n", None)] * 3, told, 1))
    assert copied.only_for_spark == [1]
    assert copied.paths == [files[2].path]
    assert [row[-1] for row in found] == [RowAction.KEPT, RowAction.DELETED, RowAction.KEPT]
