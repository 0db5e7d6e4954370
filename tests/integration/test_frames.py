"""A snapshot's rows in memory, without Spark, on every store: pyarrow, pandas, Polars and DuckDB."""

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from dbio_commit import FileInfo, InvalidInputError, Table
from dbio_commit.log.snapshot import _stores
from dbio_commit.protocol import names
from dbio_commit.store import Store
from tests.conftest import Root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in {
            "id": "long",
            "kind": "string",
            "price": "decimal(10,2)",
            "at": "timestamp",
            "tags": {"type": "array", "elementType": "string", "containsNull": True},
            "day": "date",
            "hour": "integer",
        }.items()
    ],
}
MORNING = datetime(2026, 11, 20, 7, 30, tzinfo=UTC)
Partition = Mapping[str, str | None]


@pytest.fixture(params=["local", "s3", "azure", "gcs"])
def root(request: pytest.FixtureRequest) -> Root:
    root: Root = request.getfixturevalue(f"{request.param}_root")
    return root


def put(table: Table, files: Sequence[tuple[Partition, pa.Table]], **how: Any) -> None:
    columns = list(files[0][0]) if files else []
    transaction = table.begin(partition_by=how.pop("partition_by", columns))
    for number, (partition, rows) in enumerate(files):
        name = names.format_data_file(
            tid=transaction.tid, job="job", task=0, attempt=0, number=number, suffix=".parquet"
        )
        path = names.join(names.format_partition(partition), name)
        with table.store.open_write(path) as stream:
            pq.write_table(rows, stream)
        table.store.make_durable([path])
        info = FileInfo(path=path, size=table.store.stat(path).size, partition=partition)
        transaction.add([info], looked_at=True)  # as writers do that look at nothing
    transaction.commit(**how)


def rows(ids: Sequence[int], **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), **more})


@pytest.fixture
def table(root: Root) -> Table:
    """Partitioned by typed columns, nulls among them; files with columns in another order and case, or without some."""
    table = Table(root.url, root.storage_options)
    full = rows(
        [1, 2],
        kind=["click", None],
        price=pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        at=pa.array([MORNING, None], pa.timestamp("us", "UTC")),
        tags=pa.array([["a"], []], pa.list_(pa.string())),
    )
    old = pa.table({"KIND": ["view"], "ID": pa.array([3], pa.int64())})
    put(
        table,
        [
            ({"day": "2026-11-20", "hour": "7"}, full),
            ({"day": "2026-11-21", "hour": None}, old),
            ({"day": None, "hour": "8"}, rows([4], kind=["click"])),
        ],
        schema=SCHEMA,
    )
    return table


def ids(frame: pa.Table) -> list[Any]:
    found: list[Any] = frame.column("id").to_pylist()
    return sorted(found)


def test_all_rows_have_the_columns_and_types_of_the_table(table: Table) -> None:
    found = table.snapshot().to_arrow()
    types: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "kind": pa.string(),
        "price": pa.decimal128(10, 2),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.field("element", pa.string())),
        "day": pa.date32(),
        "hour": pa.int32(),
    }
    assert found.schema == pa.schema(types)
    by_id = {row["id"]: row for row in found.to_pylist()}
    assert by_id[1] == {
        "id": 1, "kind": "click", "price": Decimal("1.50"), "at": MORNING, "tags": ["a"],
        "day": date(2026, 11, 20), "hour": 7,
    }  # fmt: skip
    assert by_id[3] == {
        "id": 3, "kind": "view", "price": None, "at": None, "tags": None, "day": date(2026, 11, 21), "hour": None,
    }  # fmt: skip
    assert (by_id[4]["day"], by_id[4]["hour"]) == (None, 8)


def test_pandas_polars_and_duckdb_get_the_same_rows(table: Table) -> None:
    snapshot = table.snapshot()
    frame = snapshot.to_pandas(["id", "day"])
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["id"]) == [1, 2, 3, 4]
    polars = snapshot.to_polars()
    assert isinstance(polars, pl.DataFrame)
    assert polars.schema["day"] == pl.Date
    assert sorted(polars["id"].to_list()) == [1, 2, 3, 4]
    connection = duckdb.connect()
    relation = snapshot.to_duckdb(connection, columns=["id", "price"])
    assert relation.aggregate("sum(id), sum(price)").fetchall() == [(10, Decimal("1.50"))]
    assert snapshot.to_duckdb().count("*").fetchall() == [(4,)]


def test_lazy_forms_get_the_same_rows(table: Table) -> None:
    """`tests/unit/log/frames` has more of them, on a disk and in memory."""
    snapshot = table.snapshot()
    where = "day = '2026-11-20' OR hour = 8"
    assert sorted(snapshot.to_lazy(where=where).collect()["id"].to_list()) == [1, 2, 4]
    assert ids(snapshot.to_batches(["id"], where=where).read_all()) == [1, 2, 4]
    assert sorted(snapshot.to_duckdb(where=where).select("id").fetchall()) == [(1,), (2,), (4,)]
    assert ids(table.scan(["id"], where="hour = 8").to_dataset().to_table()) == [4]
    with pytest.raises(InvalidInputError, match="as 'ID'"):
        snapshot.to_dataset()


FILTERS: dict[str, tuple[Any, list[int]]] = {
    "a partition": ([("day", "=", date(2026, 11, 20))], [1, 2]),
    "a partition as text": ([("day", "==", "2026-11-20")], [1, 2]),
    "a null partition": ([("day", "=", None)], [4]),
    "no null partition": ([("hour", "!=", None)], [1, 2, 4]),
    "not equal": ([("hour", "!=", 7)], [4]),
    "a range": ([("hour", ">=", 7), ("hour", "<", 8)], [1, 2]),
    "rows": ([("kind", "=", "click")], [1, 4]),
    "rows in a partition": ([("KIND", "=", "click"), ("Day", "<=", "2026-11-21")], [1]),
    "one of": ([("id", "in", [1, 3, 9])], [1, 3]),
    "none of": ([("kind", "not in", ["click"])], [3]),
    "either": ([[("hour", "=", 8)], [("id", ">", 2)]], [3, 4]),
    "either of two partitions": ([[("hour", "=", 8)], [("day", "=", "2026-11-21")]], [3, 4]),
    "nothing": ([("hour", ">", 100)], []),
    "a decimal": ([("price", ">=", Decimal("1.5"))], [1]),
    "a time": ([("at", "<", "2026-11-20T08:00:00")], [1]),
}


@pytest.mark.parametrize("root", ["local"], indirect=True)
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_selects_rows(table: Table, name: str) -> None:
    filter, expected = FILTERS[name]
    assert ids(table.snapshot().to_arrow(["id"], filter)) == expected


def test_files_of_other_partitions_are_not_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = table.snapshot()
    read: list[str] = []
    get = type(table.store).get

    def note(store: Any, path: str) -> bytes:
        read.append(path)
        return get(store, path)

    monkeypatch.setattr(type(table.store), "get", note)
    assert ids(snapshot.to_arrow(filter=[("day", "=", "2026-11-20"), ("id", "=", 1)])) == [1]
    assert [names.split(path)[0] for path in read] == ["day=2026-11-20/hour=7"]


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_columns_come_in_the_order_asked_for_and_partition_columns_alone_too(table: Table) -> None:
    assert table.snapshot().to_arrow(["hour", "ID"]).column_names == ["hour", "id"]
    assert sorted(table.snapshot().to_arrow(["hour"]).column("hour").to_pylist(), key=str) == [7, 7, 8, None]


@pytest.mark.parametrize("root", ["local"], indirect=True)
@pytest.mark.parametrize(
    ("columns", "filter", "message"),
    [
        (["nope"], None, "'nope' is no column of the table; it has id, kind"),
        ([], None, "no column"),
        (None, [("nope", "=", 1)], "'nope' is no column"),
        (None, [("id", "~", 1)], "is no filter"),
        (None, "id = 1", "is no filter"),
        (None, [], "is no filter"),
        (None, [("id",)], "is no filter"),
        (None, [("id", "=", "one")], "does not fit column 'id'"),
        (None, [("id", "in", 7)], "does not fit column 'id'"),
        (None, [("day", "=", 7.5)], "does not fit column 'day'"),
    ],
)
def test_what_is_asked_for_wrongly_is_named(table: Table, columns: Any, filter: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        table.snapshot().to_arrow(columns, filter)


def test_a_flat_table_without_recorded_columns_has_those_of_its_newest_file(root: Root) -> None:
    table = Table(root.url, root.storage_options)
    put(table, [({}, rows([1]))])
    put(table, [({}, rows([2], extra=pa.array([7], pa.uint16())))])
    found = table.snapshot().to_arrow()
    assert found.schema == pa.schema([("id", pa.int64()), ("extra", pa.int32())])
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [{"id": 1, "extra": None}, {"id": 2, "extra": 7}]


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_partition_columns_that_nobody_recorded_have_the_narrowest_type(root: Root) -> None:
    table = Table(root.url, root.storage_options)
    put(table, [({"n": "1", "t": "x"}, rows([1])), ({"n": "3000000000", "t": None}, rows([2]))])
    schema = table.snapshot().to_arrow().schema
    assert (schema.field("n").type, schema.field("t").type) == (pa.int64(), pa.string())


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_an_empty_table_has_its_columns_and_no_rows(root: Root) -> None:
    table = Table(root.url, root.storage_options)
    table.begin(partition_by=["day", "hour"]).commit(schema=SCHEMA)
    found = table.snapshot().to_arrow(filter=[("day", "=", "2026-11-20")])
    assert (found.num_rows, found.column_names[-2:]) == (0, ["day", "hour"])
    other = Table(f"{root.url}-2", root.storage_options)
    other.begin().commit()
    with pytest.raises(InvalidInputError, match="no recorded columns"):
        other.snapshot().to_arrow()


@pytest.mark.parametrize("root", ["local"], indirect=True)
def test_a_file_that_is_no_parquet_is_named(root: Root) -> None:
    table = Table(root.url, root.storage_options)
    put(table, [({}, rows([1]))], schema={"type": "struct", "fields": [SCHEMA["fields"][0]]})
    (file,) = table.snapshot().files
    Path(root.url, file.path).write_bytes(b"x" * file.size)
    with pytest.raises(InvalidInputError, match=f"{file.path} cannot be read as Parquet"):
        table.snapshot().to_arrow()


@pytest.mark.parametrize("kind", ["time(6)", {"type": "udt", "pyClass": "os.system"}, "decimal(99,1)"])
def test_a_recorded_type_that_arrow_lacks_is_named(local_root: Root, kind: Any) -> None:
    table = Table(local_root.url)
    put(table, [({}, rows([1]))], schema={"type": "struct", "fields": [{"name": "id", "type": kind}]})
    with pytest.raises(InvalidInputError, match="recorded schema"):
        table.snapshot().to_arrow()


def test_a_snapshot_carries_no_credential_when_it_is_pickled_or_shown(
    s3_root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(s3_root.url, {**s3_root.storage_options, "secret": "VERYSECRET1"})
    store: Store = Table(s3_root.url, s3_root.storage_options).store
    put(Table(s3_root.url, s3_root.storage_options), [({}, rows([1]))])
    snapshot = table.snapshot()
    assert snapshot.source.store is table.store is not store
    pickled = pickle.dumps(snapshot)
    assert b"VERYSECRET1" not in pickled
    assert "VERYSECRET1" not in repr(snapshot)
    assert pickle.loads(pickled).source.store is snapshot.source.store
    monkeypatch.setattr("dbio_commit.log.snapshot._stores", type(_stores)())  # as in another process
    with pytest.raises(InvalidInputError, match="another process"):
        pickle.loads(pickled).to_arrow()


def test_a_snapshot_that_was_pickled_is_read_in_the_same_process(tmp_path: Path) -> None:
    put(Table(tmp_path), [({}, rows([1, 2]))])
    pickled = pickle.dumps(Table(tmp_path).snapshot())
    again = [pickle.loads(pickled), pickle.loads(pickle.dumps(pickle.loads(pickled))), deepcopy(pickle.loads(pickled))]
    assert [it.to_arrow().num_rows for it in again] == [2, 2, 2]
    for _ in range(100):  # what is remembered has a bound
        pickle.dumps(Table(tmp_path).snapshot())
    with pytest.raises(InvalidInputError, match="long ago"):
        pickle.loads(pickled).to_arrow()


MISSING = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {blocked!r}:
            raise ImportError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Blocker())
import dbio_commit
snapshot = dbio_commit.Table({url!r}).snapshot()
try:
    print(len(getattr(snapshot, {method!r})()))
except dbio_commit.MissingPackageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("method", "blocked", "printed"),
    [
        ("to_arrow", ["pyspark"], "1"),
        ("to_pandas", ["pandas"], "pip install pandas"),
        ("to_polars", ["polars"], "pip install polars"),
        ("to_duckdb", ["duckdb"], "pip install duckdb"),
    ],
)
def test_what_is_not_installed_is_named(local_root: Root, method: str, blocked: list[str], printed: str) -> None:
    put(Table(local_root.url), [({}, rows([1]))])
    program = MISSING.format(blocked=blocked, url=local_root.url, method=method)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    assert printed in done.stdout


# --- the calendar -------------------------------------------------------------------------------------------------


def test_spark_reads_the_old_days_of_a_frame_as_they_are_whatever_its_setting(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """EXCEPTION is the default of Spark 3, and CORRECTED that of Spark 4."""
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    days = [date(1, 1, 1), date(1582, 10, 4), date(1899, 12, 31)]
    times = [datetime(it.year, it.month, it.day, 7, 30) for it in days]
    at: Any = pa.array(times, pa.timestamp("us", "UTC"))
    table = Table(tmp_path)
    table.write(pa.table({"id": [1, 2, 3], "day": days, "at": at, "clock": pa.array(times, pa.timestamp("us"))}))
    table.update({"id": "id + 10"}, "id = 2")  # rewrites the file
    files = [str(tmp_path / file.path) for file in table.snapshot().files]
    expected = {str((str(day), *[str(time)] * 2)) for day, time in zip(days, times, strict=True)}
    before = str(spark.conf.get(setting))
    try:
        for mode in ("EXCEPTION", "LEGACY", "CORRECTED"):
            spark.conf.set(setting, mode)
            for found in (dbio.read(spark, tmp_path), spark.read.parquet(*files)):
                told = found.selectExpr("CAST(day AS STRING)", "CAST(at AS STRING)", "CAST(clock AS STRING)").collect()
                assert {str(tuple(row)) for row in told} == expected, mode
    finally:
        spark.conf.set(setting, before)
