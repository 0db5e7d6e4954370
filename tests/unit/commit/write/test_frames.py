"""Frames become commits without Spark: modes, columns, partitions, constraints, errors under way."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write import frames as module
from dbio_commit.commit.write import parallel
from dbio_commit.data import frames
from dbio_commit.data.footers import has_old_calendar, spark_version
from dbio_commit.testing import ManualClock, MemoryStore
from tests.unit.commit.write.test_rewrite import recorded

DAY, NEXT = date(2026, 11, 20), date(2026, 11, 21)
ROWS = pa.table({"id": [1, 2, 3], "day": [DAY, NEXT, None], "text": ["a", "b", None]})


@pytest.fixture
def table() -> dbio.Table:
    return dbio.Table.over(MemoryStore(), ManualClock())


def added_rows(commit: dbio.Commit) -> int:
    info = commit.marker.dbio_commit
    assert info is not None
    assert info.files is not None
    return sum(rows or 0 for rows in info.files.rows)


def rows(table: dbio.Table) -> list[dict[str, Any]]:
    return sorted(table.snapshot().to_arrow().to_pylist(), key=lambda it: str(it))


def kinds(table: dbio.Table) -> dict[str, Any]:
    return {it["name"]: it["type"] for it in table.schema()["fields"]}


def test_a_frame_is_one_commit_and_partition_columns_keep_their_type(table: dbio.Table) -> None:
    commit = table.write(ROWS, partition_by="day")
    assert (commit.operation, commit.added_files, added_rows(commit), commit.skipped) == ("append", 3, 3, False)
    assert kinds(table) == {"id": "long", "text": "string", "day": "date"}
    directories = {file.path.partition("/")[0] for file in table.snapshot().files}
    assert directories == {"day=2026-11-20", "day=2026-11-21", "day=__HIVE_DEFAULT_PARTITION__"}
    assert table.snapshot().to_arrow().select(ROWS.column_names).sort_by("id") == ROWS


@pytest.mark.parametrize(
    ("mode", "left"), [("append", 4), ("overwrite", 1), ("overwrite_partitions", 3), ("ignore", 3)]
)
def test_each_mode_does_what_it_does_with_spark(table: dbio.Table, mode: Any, left: int) -> None:
    table.write(ROWS, partition_by=["day"])
    commit = table.write(pa.table({"id": [9], "day": [DAY], "text": ["z"]}), mode)
    assert (len(rows(table)), commit.skipped) == (left, mode == "ignore")


def test_a_frame_without_rows_is_a_commit_and_an_overwrite_by_it_empties_the_table(table: dbio.Table) -> None:
    table.write(ROWS.slice(0, 0), partition_by="day")
    assert (rows(table), kinds(table)["day"]) == ([], "date")
    table.write(ROWS)
    table.write(ROWS.slice(0, 0), "overwrite")
    assert rows(table) == []


def test_mode_error_refuses_a_table_and_an_unknown_mode_is_refused(table: dbio.Table) -> None:
    table.write(ROWS, "error")
    with pytest.raises(dbio.TableExistsError):
        table.write(ROWS, "error")
    with pytest.raises(dbio.InvalidInputError, match="mode 'upsert' is none of append"):
        table.write(ROWS, "upsert")  # type: ignore[arg-type]
    assert len(table.history()) == 1


def test_an_application_commits_a_version_once(table: dbio.Table) -> None:
    assert not table.write(ROWS, app=("nightly", 1)).skipped
    assert table.write(ROWS, app=("nightly", 1)).skipped
    assert len(rows(table)) == 3


def test_if_match_holds_and_retries_need_rows_that_can_be_read_again(table: dbio.Table) -> None:
    table.write(ROWS)
    etag = table.snapshot().etag
    table.write(ROWS)
    with pytest.raises(dbio.CommitConflictError):
        table.write(ROWS, "overwrite", if_match=etag)
    with pytest.raises(dbio.InvalidInputError, match="retries=3 needs rows that can be read again"):
        table.write(ROWS.to_reader(), retries=3)
    assert len(rows(table)) == 6


def test_columns_are_respelled_cast_and_null_if_the_data_lacks_them(table: dbio.Table) -> None:
    table.write(ROWS)
    table.write(pl.DataFrame({"TEXT": ["z"], "Id": pl.Series([7], dtype=pl.Int8)}))
    assert {"id": 7, "day": None, "text": "z"} in rows(table)
    with pytest.raises(dbio.SchemaMismatchError, match=r"more is not in the table.*merge_schema=True"):
        table.write(pa.table({"id": [1], "more": [1]}))
    with pytest.raises(dbio.SchemaMismatchError, match="id is double, not bigint"):
        table.write(pa.table({"id": [1.5]}))
    table.write(pa.table({"id": [8], "more": [1.5]}), merge_schema=True)
    assert kinds(table) == {"id": "long", "day": "date", "text": "string", "more": "double"}
    assert {"id": 8, "day": None, "text": None, "more": 1.5} in rows(table)


def test_merge_schema_widens_a_column_and_an_append_that_changes_nothing_records_no_columns(table: dbio.Table) -> None:
    table.write(pa.table({"id": pa.array([1], pa.int32())}))
    table.write(pa.table({"id": pa.array([2**40], pa.int64())}), merge_schema=True)
    commit = table.write(pa.table({"id": pa.array([3], pa.int16())}))
    assert kinds(table) == {"id": "long"}
    assert rows(table) == [{"id": 2**40}, {"id": 1}, {"id": 3}]
    assert commit.marker.dbio_commit is not None


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_not_all_readers_have_is_refused(table: dbio.Table, name: str) -> None:
    inside = pa.array([{name: 1}], pa.struct([(name, pa.int8())]))
    for rows in (pa.table([pa.array([1]), pa.array([2])], names=["a", name]), pa.table({"a": inside})):
        with pytest.raises(dbio.InvalidInputError, match="not all readers can name it"):
            table.write(rows)
    with pytest.raises(dbio.TableNotFoundError):
        table.schema()


def test_impossible_columns_are_refused_before_anything_is_written(table: dbio.Table) -> None:
    for given, said in (
        (pa.table({"a": [1], "A": [2]}), "two columns are named"),
        (pa.table({"a": pa.nulls(1)}), "has no type, since all its values are missing"),
        (pa.table({"a": [1.5], "b": [1]}), "partition column 'a' is double"),
        (pa.table({"a": [1]}), "no column is left"),
    ):
        with pytest.raises(dbio.InvalidInputError, match=said):
            table.write(given, partition_by=None if "void" in said or "named" in said else "a")
    assert not table.store.list_files()


# --- files --------------------------------------------------------------------------------------------------------


def many(count: int) -> pa.Table:
    columns = {"id": range(count), "part": [i % 3 for i in range(count)], "text": [f"text {i}" for i in range(count)]}
    return pa.table(columns)


@pytest.mark.parametrize("partition_by", [None, "part"])
def test_files_have_about_the_target_size_and_rows_keep_their_order(
    table: dbio.Table, partition_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "BATCH_ROWS", 500)
    commit = table.write(many(20_000), partition_by=partition_by, target_file_size=40_000)
    sizes = [file.size for file in table.snapshot().files]
    assert added_rows(commit) == 20_000
    assert len(sizes) > 3
    assert max(sizes) < 80_000
    found = table.snapshot().to_arrow().sort_by("id")
    assert found.column("id").to_pylist() == list(range(20_000))
    table.write(many(100), "overwrite", max_records_per_file=30, partition_by=[])
    assert sorted(file_rows(table)) == [10, 30, 30, 30]


def file_rows(table: dbio.Table) -> list[Any]:
    snapshot = table.snapshot()
    return list(snapshot.rows_of(snapshot.files).values())


@pytest.mark.parametrize("partition_by", [None, "part"])
def test_several_threads_write_the_same_rows_as_one(
    table: dbio.Table, partition_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: Any = import_module("dbio_commit.commit.write.files")

    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr(files, "BUFFER_ROWS", 4000)
    monkeypatch.setattr(frames, "BATCH_ROWS", 500)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    table.write(many(30_000), partition_by=partition_by)
    found = table.snapshot().to_arrow().sort_by("id").select(["id", "part", "text"])
    assert found.to_pydict() == many(30_000).to_pydict()
    tasks = {file.path.rpartition("/")[2].split("-")[1] for file in table.snapshot().files}
    assert (len(tasks) > 1, len(table.snapshot().files) <= 3) == (True, True)


def test_a_file_has_statistics_no_bounds_for_nan_and_its_columns_as_spark_writes_them(tmp_path: Path) -> None:
    table = dbio.Table(tmp_path)
    table.write(pa.table({"id": [1, 2], "x": [1.5, float("nan")]}))
    [file] = table.snapshot().files
    footer = pq.ParquetFile(tmp_path / file.path).metadata
    assert b"org.apache.spark.sql.parquet.row.metadata" in (footer.metadata or {})
    assert spark_version(footer) == "3.1.0", "Spark's readers go by it to find out the calendar"
    assert not has_old_calendar(footer)
    assert table.snapshot(where="id > 1").files
    assert footer.row_group(0).column(1).statistics is None
    assert table.snapshot(where="id > 2").files == []


def test_the_memory_of_a_stream_is_bounded_by_that_of_a_few_row_groups(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": range(50_000), "text": ["x" * 100] * 50_000})

    def stream() -> Iterator[pa.RecordBatch]:
        for _ in range(60):
            most.append(pa.total_allocated_bytes())
            yield pa.record_batch([pa.concat_arrays([column, column.slice(0, 1)]) for column in batch.columns],
                                  names=batch.schema.names)  # fmt: skip

    most: list[int] = []
    begin = pa.total_allocated_bytes()
    dbio.Table(tmp_path).write(pa.RecordBatchReader.from_batches(batch.schema, stream()))
    whole = 60 * batch.nbytes
    assert max(most) - begin < 300 * 1024 * 1024 < whole


# --- errors under way ---------------------------------------------------------------------------------------------


def broken() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise RuntimeError("the source is gone")

    return pa.RecordBatchReader.from_batches(ROWS.schema, batches())


def test_an_error_of_the_frame_aborts_the_transaction_and_deletes_its_files(
    table: dbio.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write(ROWS, partition_by="day")
    before = {entry.path for entry in table.store.list_files() if entry.path.endswith(".parquet")}
    with pytest.raises(RuntimeError, match="the source is gone"):
        table.write(broken())
    late = pa.table({"id": [7, 8], "day": [DAY, date(9999, 12, 31)], "text": ["x", "y"]})
    far = late.set_column(1, "day", pa.array([0, 10**7], pa.int32()).cast(pa.date32()))
    with pytest.raises(dbio.InvalidInputError, match="column 'day' has days outside"):
        table.write(pa.Table.from_batches([*late.to_batches(), *far.to_batches()]))
    assert {entry.path for entry in table.store.list_files() if entry.path.endswith(".parquet")} == before
    assert not table.check().pending
    assert len(rows(table)) == 3


def test_an_error_in_a_thread_reaches_the_caller_and_leaves_no_file(
    table: dbio.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: Any = import_module("dbio_commit.commit.write.files")

    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr(frames, "BATCH_ROWS", 500)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    real, calls = files.DataFileWriter.write, list[int]()

    def write(self: Any, group: pa.Table) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        real(self, group)

    monkeypatch.setattr(files.DataFileWriter, "write", write)
    with pytest.raises(OSError, match="No space left"):
        table.write(many(30_000))
    assert not [entry.path for entry in table.store.list_files() if entry.path.endswith(".parquet")]


# --- constraints --------------------------------------------------------------------------------------------------


def constrained(table: dbio.Table, **settings: str) -> None:
    table.write(ROWS.slice(0, 2))
    table.set({name.replace("__", "."): text for name, text in settings.items()})


def test_rows_that_violate_a_constraint_are_refused_with_an_example(table: dbio.Table) -> None:
    constrained(table, check__positive="id > 0 AND text != 'bad'", not_null__day="true")
    table.write(pa.table({"id": [5], "day": [DAY], "text": ["x"]}))
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"id": [0, 5], "day": [DAY] * 2, "text": ["x"] * 2},
            r"at least 1 row violates check.positive .*id=0",
        ),
        ({"id": [5], "day": [DAY], "text": [None]}, "check.positive"),
        ({"id": [5], "text": ["x"]}, "not_null.day of .*day=null"),
    ]
    for bad, said in cases:
        with pytest.raises(dbio.InvalidInputError, match=said):
            table.write(pa.table(bad, schema=pa.schema([it for it in ROWS.schema if it.name in bad])))
    assert len(rows(table)) == 3


def test_defaults_and_generated_columns_are_filled_in_and_given_values_are_checked(table: dbio.Table) -> None:
    constrained(table, default__text="'new'", generated__day="DATE '2026-11-20'")
    table.write(pa.table({"id": [7]}))
    assert {"id": 7, "day": DAY, "text": "new"} in rows(table)
    with pytest.raises(dbio.InvalidInputError, match=r"violates generated\.day"):
        table.write(pa.table({"id": [7], "day": [NEXT]}))
    table.write(pa.table({"id": [8], "day": [DAY], "text": pa.array([None], pa.string())}))
    assert {"id": 8, "day": DAY, "text": None} in rows(table)


@pytest.mark.parametrize("setting", ["check.a", "generated.text", "default.text"])
def test_what_only_spark_evaluates_is_refused_before_anything_is_written(table: dbio.Table, setting: str) -> None:
    constrained(table, **{setting.replace(".", "__"): "upper(text) = 'A'" if setting == "check.a" else "upper('a')"})
    with pytest.raises(dbio.InvalidInputError, match=rf"the setting {setting}=.* is evaluated by Spark only: "):
        table.write(pa.table({"id": [1], "day": [DAY]}))
    assert len(table.history()) == 2


def test_a_default_of_the_current_time_is_that_of_the_write(table: dbio.Table) -> None:
    table.write(pa.table({"id": [1], "at": pa.array([None], pa.timestamp("us", "UTC"))}))
    table.set({"default.at": "current_timestamp()"})
    table.write(pa.table({"id": [2, 3]}))
    times = [row["at"] for row in table.snapshot().to_arrow().sort_by("id").to_pylist()]
    assert times[1] == times[2]
    assert timedelta(0) <= times[1].astimezone(UTC) - datetime(2026, 11, 20, tzinfo=UTC) < timedelta(hours=1)


def test_a_conflict_is_tried_again_with_the_same_rows(table: dbio.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = module._write, list[int]()

    def write(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise dbio.CommitConflictError("another commit was faster")
        return real(*args)

    monkeypatch.setattr(module, "_write", write)
    table.write(ROWS, retries=1)
    assert (len(rows(table)), len(calls), CommitOptions().retries) == (3, 2, 0)


# --- replace_where ------------------------------------------------------------------------------------------------


def rows_of(table: dbio.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist()), key=str)


def numbers(*ids: int, day: date = date(2026, 11, 20)) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [day] * len(ids)})


@pytest.mark.parametrize("where", ["id = 2 OR id > 3", [[("id", "=", 2)], [("id", ">", 3)]]])
def test_rows_for_which_a_condition_holds_are_replaced_by_one_commit(table: dbio.Table, where: Any) -> None:
    table.write(numbers(1, 2))
    table.write(numbers(3))
    table.write(numbers(4, 5))
    before = {file.path for file in table.snapshot().files}
    commit = table.write(numbers(2, 7, 9), "overwrite", replace_where=where)
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 7, 9]
    info = commit.marker.dbio_commit
    assert info is not None
    assert (commit.kind, info.metrics["numDeletedRows"], info.metrics["numInsertedRows"]) == ("replace", 3, 3)
    assert len(before & {file.path for file in table.snapshot().files}) == 1
    assert table.write(numbers(), "overwrite", replace_where=where).metrics["numDeletedRows"] == 3
    assert [row[0] for row in rows_of(table)] == [1, 3]


def test_rows_that_do_not_fulfil_the_condition_or_for_which_it_is_null_are_refused(table: dbio.Table) -> None:
    table.write(numbers(1, 2))
    table.set({"default.day": "DATE '2026-11-21'"})
    wrong = [
        (numbers(2, 3), "id = 2", "does not hold for at least 1 rows"),
        (pa.table({"id": pa.array([2, None], pa.int64())}), "id = 2", "does not hold for at least 1 rows"),
        (pa.table({"id": [2]}), "id = 2 AND day = '2026-11-20'", "does not hold for at least 1 rows"),
        (numbers(2), "upper(day) = 'A'", "is not evaluated row by row without Spark"),
        (numbers(2), "nope = 1", "no column of the table"),
    ]
    for frame, where, said in wrong:
        with pytest.raises(dbio.InvalidInputError, match=said):
            table.write(frame, "overwrite", replace_where=where)
    with pytest.raises(
        dbio.InvalidInputError, match="replace_where goes with mode='overwrite', not with mode='append'"
    ):
        table.write(numbers(2), replace_where="id = 2")
    assert [row[0] for row in rows_of(table)] == [1, 2]
    table.write(pa.table({"id": [2]}), "overwrite", replace_where="id = 2 AND day = '2026-11-21'")
    assert [str(row[1]) for row in rows_of(table)] == ["2026-11-20", "2026-11-20", "2026-11-21"]


def test_a_table_that_does_not_exist_yet_has_no_rows_to_replace(table: dbio.Table) -> None:
    with pytest.raises(dbio.InvalidInputError, match="does not hold"):
        table.write(numbers(1), "overwrite", replace_where="id = 2")
    table.write(numbers(2), "overwrite", replace_where="id = 2")
    assert rows_of(table) == [(2, date(2026, 11, 20))]
    other = dbio.Table.over(MemoryStore(), ManualClock())
    other.write(numbers(2), "overwrite", "day", replace_where="id = 2")
    assert (rows_of(other), other.snapshot().partition_columns) == (rows_of(table), ("day",))


def test_a_replacement_by_partitions_reads_no_file_and_conflicts_as_a_delete_does(
    table: dbio.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = date(2026, 11, 21)
    table.write(numbers(1, 2), partition_by="day")
    table.write(numbers(3, day=other))

    def beside(write: Any) -> Any:
        def first(*args: Any) -> Any:
            monkeypatch.undo()
            write()
            return parallel.write_rows(*args)

        monkeypatch.setattr("dbio_commit.data.rows.open_file", None)
        monkeypatch.setattr("dbio_commit.commit.write.rewrite.write_rows", first)

    def replace(**options: Any) -> dbio.Commit:
        return table.write(numbers(7), "overwrite", replace_where="day = '2026-11-20'", **options)

    beside(lambda: table.write(numbers(4, day=other), "overwrite_partitions"))
    replace()
    assert [row[0] for row in rows_of(table)] == [4, 7]
    beside(lambda: table.write(numbers(8)))
    replace()
    assert [row[0] for row in rows_of(table)] == [4, 7, 8]
    beside(lambda: table.write(numbers(9)))
    with pytest.raises(dbio.CommitConflictError):
        replace(isolation="serializable")
    beside(lambda: table.delete("id = 7"))
    replace(retries=1)
    assert [row[0] for row in rows_of(table)] == [4, 7]


def test_a_replacement_records_its_changes_and_takes_new_columns(table: dbio.Table) -> None:
    table.write(numbers(1, 2))
    table.set({"change_data": "true"})
    commit = table.write(numbers(2), "overwrite", replace_where="id = 2")
    assert [it[-1] for it in recorded(table, commit)] == ["delete", "insert"]
    more = numbers(2).append_column("n", pa.array([5]))
    with pytest.raises(dbio.SchemaMismatchError):
        table.write(more, "overwrite", replace_where="id = 2")
    table.write(more, "overwrite", replace_where="id = 2 AND n = 5 OR n IS NULL", merge_schema=True)
    assert [(row[0], row[-1]) for row in rows_of(table)] == [(2, 5)]


def test_a_write_may_not_add_a_column_of_the_name_that_change_files_use(table: dbio.Table) -> None:
    table.write(numbers(1))
    table.set({"change_data": "true"})
    before = list(table.store.list_files())
    taken = numbers(2).append_column("_change_type", pa.array(["x"]))
    for mode in ("append", "overwrite"):
        with pytest.raises(dbio.InvalidInputError, match="cannot have a column _change_type"):
            table.write(taken, mode, merge_schema=True)
    assert list(table.store.list_files()) == before
    table.set({"change_data": ""})
    table.write(taken, merge_schema=True)
    table.update({"_change_type": "'y'"}, "id = 2")


def test_spark_writers_word_for_the_mode_error_is_taken(table: dbio.Table) -> None:
    table.write(numbers(1), "errorifexists")
    with pytest.raises(dbio.TableExistsError):
        table.write(numbers(1), "errorifexists")
