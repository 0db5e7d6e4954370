"""Files that a transaction took by `new_file` are looked at when it commits: Parquet, columns that fit, statistics.

Rules: PROTOCOL.md 6.4, 9.2.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import DbioError, InvalidInputError, SchemaMismatchError
from dbio_commit.data.fitting import fits, is_read, misfit
from dbio_commit.data.footers import Footer
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.histories import columns


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def put(
    table: Table, *files: pa.Table, operation: Any = "append", schema: Any = None, value: Any = "1", **begin: Any
) -> Any:
    transaction = table.begin(operation, **begin)
    for rows in files:
        columns = transaction.terms.partition_columns
        pq.write_table(rows, transaction.new_file(partition=dict.fromkeys(columns, value)))
    return transaction.commit(schema)


def types(table: Table) -> dict[str, Any]:
    schema = table.snapshot().schema
    assert schema is not None
    return {field["name"]: field["type"] for field in schema["fields"]}


ROWS = pa.table(
    {
        "id": pa.array([2, 1, None], pa.int64()),
        "name": ["b", "a", "c"],
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.00")], pa.decimal128(10, 2)),
        "day": [date(2026, 11, 20), date(2026, 11, 21), None],
        "at": pa.array([datetime(2026, 11, 20), None, None], pa.timestamp("us")),
        "ratio": [0.5, float("nan"), 1.0],
        "small": pa.array([7, 255, 1], pa.uint8()),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        "place": [{"x": 1}, None, {"x": 2}],
    }
)


# --- Parquet ------------------------------------------------------------------------------------------------------


NO_PARQUET = [b"", b"rows", b"PAR1 and then it was killed"]
NO_FOOTER = b"PAR1\0\0\0\0\xff\xff\xff\x7fPAR1"


@pytest.mark.parametrize("body", [*NO_PARQUET, NO_FOOTER])
def test_a_file_that_is_no_parquet_is_refused_by_name_and_nothing_is_committed(table: Table, body: bytes) -> None:
    transaction = table.begin()
    path = Path(transaction.new_file())
    path.write_bytes(body)
    with pytest.raises(InvalidInputError, match=f"{path.name} is no Parquet file"):
        transaction.commit()
    assert not path.exists()
    assert table.history() == []
    assert table.check().pending == []


def test_a_table_on_a_store_of_the_callers_making_takes_any_bytes_unless_told_otherwise() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    seen: list[str] = []

    def inspect(store: Any, paths: Any) -> list[Footer | None]:
        seen.extend(paths)
        return [Footer(path=path, size=4, rows=7) for path in paths]

    for inspector, rows in ((None, None), (inspect, 7)):
        transaction = Table.over(store, clock, inspector=inspector).begin()
        path = transaction.new_file().removeprefix(f"{store.url}/")
        store.put(path, b"rows")
        assert [file.rows for file in transaction.commit().files] == [rows]
    assert seen == [path]


# --- what is recorded ---------------------------------------------------------------------------------------------


def test_rows_and_statistics_come_from_the_footer(table: Table) -> None:
    commit = put(table, ROWS)
    (file,) = table.history()[0].files
    assert file.rows == 3
    assert commit.metrics["numOutputRows"] == 3
    assert file.statistics == {
        "id": Bounds(1, 2, 1),
        "name": Bounds("a", "c", 0),
        "price": Bounds("-2.00", "1.50", 1),
        "day": Bounds("2026-11-20", "2026-11-21", 1),
        "at": Bounds("2026-11-20T00:00:00", "2026-11-20T00:00:00", 2),
        "ratio": Bounds(None, None, 0),  # a footer does not say where there is NaN
        "small": Bounds(None, None, 0),
        "tags": Bounds(None, None, None),
        "place": Bounds(None, None, None),
    }


def test_the_first_files_say_what_the_columns_are(table: Table) -> None:
    put(table, pa.table({"id": pa.array([1], pa.int32())}), pa.table({"id": [2], "more": ["x"]}), partition_by=["day"])
    assert types(table) == {"id": "long", "more": "string", "day": "string"}
    assert sorted(row["id"] for row in table.snapshot().to_arrow().to_pylist()) == [1, 2]


def test_later_files_that_fit_change_no_column_and_wait_for_nobody(table: Table) -> None:
    put(table, ROWS)
    before = types(table)
    commit = put(table, pa.table({"id": pa.array([7], pa.int16()), "name": pa.nulls(1, pa.string())}))
    assert types(table) == before
    assert commit.marker.dbio_commit.turn is None
    assert table.snapshot().to_arrow(["id"], [("id", "=", 7)]).num_rows == 1


def test_a_given_schema_is_the_tables(table: Table) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("id", "long"), ("d", "date"))
    ]
    put(
        table,
        pa.table({"id": pa.array([1], pa.int32())}),
        partition_by=["d"],
        value=date(2026, 11, 20),
        schema={"type": "struct", "fields": fields},
    )
    assert types(table) == {"id": "long", "d": "date"}


@pytest.mark.parametrize(
    ("given", "kind"), [(datetime(2026, 1, 1), "timestamp"), (datetime(2026, 1, 1, tzinfo=UTC), "timestamp_ntz")]
)
def test_a_time_without_a_zone_becomes_none_with_one_when_the_columns_are_told(
    table: Table, given: datetime, kind: str
) -> None:
    with pytest.raises(InvalidInputError, match="a zone; give one that is of the column's type"):
        put(table, pa.table({"id": [1]}), partition_by=["at"], value=given, schema=columns(id="long", at=kind))


def test_an_overwrite_sets_its_own_columns_where_they_do_not_fit(table: Table) -> None:
    put(table, ROWS)
    put(table, pa.table({"id": pa.array([1], pa.int32())}), operation="overwrite")
    assert types(table)["id"] == "long"
    put(table, pa.table({"id": ["text"]}), operation="overwrite")
    assert types(table) == {"id": "string"}


@pytest.mark.parametrize(
    ("inside", "value"),
    [
        (pa.array([1, 1]), "1"),
        (pa.array(["1", "1"]), "1"),
        (pa.array([date(2026, 11, 20)] * 2), date(2026, 11, 20)),
        (pa.array([Decimal("1.50")] * 2, pa.decimal128(5, 2)), "1.50"),
        (pa.array([None, None], pa.int64()), None),
        (pa.array([], pa.int64()), "1"),
    ],
)
def test_a_partition_column_may_be_inside_a_file_where_all_its_rows_have_the_value_of_the_directory(
    inside: Any, value: Any, table: Table
) -> None:
    put(
        table,
        pa.table({"id": pa.array(range(len(inside)), pa.int64()), "Day": inside}),
        partition_by=["day"],
        value=value,
    )
    assert list(types(table)) == ["id", "day"]
    assert set(table.snapshot().to_arrow()["day"].to_pylist()) <= {value}


@pytest.mark.parametrize(
    ("inside", "value"),
    [
        (pa.array([7, 7]), "1"),
        (pa.array([1, 7]), "1"),
        (pa.array([1, None]), "1"),
        (pa.array([1, 1]), None),
        (pa.array([None, None], pa.int64()), "1"),
        (pa.array(["01", "01"]), "1"),
        (pa.array([1.0, 1.0]), "1"),  # of which a footer does not say whether there is NaN
        (pa.array([[1], [1]]), "1"),
        (pa.array(["1", "1"]).dictionary_encode(), "2"),
    ],
)
@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions"])
def test_a_file_is_refused_that_has_other_values_of_a_partition_column_inside_or_may_have(
    operation: str, inside: Any, value: Any, table: Table
) -> None:
    put(table, pa.table({"id": [0]}), partition_by=["day"])
    with pytest.raises(
        InvalidInputError, match=r"day=.*\.parquet holds the partition column 'Day'.*without that column"
    ):
        put(table, pa.table({"id": [1, 2], "Day": inside}), operation=operation, value=value)
    assert len(table.snapshot().files) == 1


def test_in_the_directory_scope_files_are_looked_at_too(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "old.parquet")
    assert put(Table(tmp_path), ROWS).files[0].rows == 3
    transaction = Table(tmp_path).begin()
    Path(transaction.new_file()).write_bytes(b"rows")
    with pytest.raises(InvalidInputError, match="no Parquet"):
        transaction.commit()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_files_that_others_wrote_are_looked_at_too_unless_their_writer_made_them_to_fit(
    table: Table, is_trusted: bool
) -> None:
    put(table, pa.table({"id": [1]}))
    for rows, problem in ((pa.table({"ID": [1]}), "spelled"), (pa.table({"x": pa.nulls(1)}), "only nulls")):
        transaction = table.begin()
        path = Path(transaction.new_file())
        pq.write_table(rows, path)
        transaction.add([FileInfo(path=path.name, size=path.stat().st_size)], looked_at=is_trusted)
        if is_trusted:
            transaction.commit()
        else:
            with pytest.raises(DbioError, match=problem):
                transaction.commit()
    assert len(table.history()) == (3 if is_trusted else 1)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [({"rows": 3}, "5 rows, but was added with 3"), ({"size": 7}, "bytes, but was added with 7")],
)
@pytest.mark.parametrize("is_table", [True, False])
def test_a_file_that_is_added_with_other_facts_than_its_footer_has_is_refused(
    facts: Any, problem: str, is_table: bool, tmp_path: Path
) -> None:
    table = Table(tmp_path)
    if is_table:
        put(table, pa.table({"id": [1]}))
    else:
        pq.write_table(pa.table({"id": [1]}), tmp_path / "old.parquet")
    for told in (facts, {"rows": 5}):
        transaction = table.begin()
        path = Path(transaction.new_file())
        pq.write_table(pa.table({"id": [1, 2, 3, 4, 5]}), path)
        transaction.add([FileInfo(path=path.name, **{"size": path.stat().st_size, **told})])
        if told is facts:
            with pytest.raises(InvalidInputError, match=rf"part-.*parquet holds \d*.*{problem}"):
                transaction.commit()
        else:
            transaction.commit()
    assert table.snapshot().to_arrow().num_rows == 6


def test_files_that_others_wrote_say_what_the_columns_are(table: Table) -> None:
    transaction = table.begin()
    path = Path(transaction.new_file())
    pq.write_table(pa.table({"id": [1]}), path)
    transaction.add([FileInfo(path=path.name, size=path.stat().st_size, rows=1)])
    transaction.commit()
    assert types(table) == {"id": "long"}


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (pa.table({"id": ["text"]}), "id is string, not long"),
        (pa.table({"id": [1], "other": [1]}), "other is not in the table"),
        (pa.table({"price": pa.array([Decimal("1.234")], pa.decimal128(10, 3))}), r"price is decimal\(10,3\)"),
        (pa.table({"place": [{"x": 1, "y": 2}]}), r"place\.y is not in the table"),
        (pa.table({"tags": [[1]]}), r"it holds tags\.elementType as long, not string"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(table: Table, rows: pa.Table, problem: str) -> None:
    put(table, ROWS)
    with pytest.raises(SchemaMismatchError, match=f"part-.*parquet does not fit .*{problem}"):
        put(table, rows)
    assert len(table.history()) == 1
    with pytest.raises(SchemaMismatchError), table.begin() as transaction:
        pq.write_table(rows, transaction.new_file())
    assert table.check().pending == []


TEXT, BYTES = pa.array(["a"]), pa.array([b"a"])


@pytest.mark.parametrize(
    ("own", "other", "problem"),
    [
        (pa.array([Decimal("1.00")], pa.decimal128(10, 2)), pa.array([7]), r"x is long, not decimal\(10,2\)"),
        (pa.array([Decimal("1.00")], pa.decimal128(38, 2)), pa.array([7], pa.int8()), "x is byte, not decimal"),
        (pa.array([1.5]), pa.array([7], pa.int32()), "x is integer, not double"),
        (pa.array([datetime(2026, 11, 20)]), pa.array([date(2026, 11, 20)]), "x is date, not timestamp_ntz"),
        (TEXT, BYTES, "x is binary, not string"),
        (TEXT, pa.array([b"abc"], pa.binary(3)), "x is binary, not string"),
        (BYTES, TEXT, "x is string, not binary"),
        (BYTES, pa.array(["a"], pa.large_string()), "x is string, not binary"),
        (pa.array([["a"]]), pa.array([[b"a"]]), r"it holds x\.elementType as binary, not string"),
        (pa.array([{"y": "a"}]), pa.array([{"y": b"a"}]), r"it holds x\.y as binary, not string"),
    ],
)
def test_values_that_polars_or_spark_do_not_read_as_the_tables_are_refused_and_named_where_they_are(
    own: Any, other: Any, problem: str, table: Table
) -> None:
    put(table, pa.table({"x": own}))
    with pytest.raises(SchemaMismatchError, match=f"part-.*parquet does not fit .*{problem}"):
        put(table, pa.table({"x": other}))
    with pytest.raises(SchemaMismatchError, match=r" does not fit the table "):
        put(Table(f"{table.url}-new"), pa.table({"x": own}), pa.table({"x": other}))
    transaction = table.begin()  # as earlier versions committed it
    path = Path(transaction.new_file())
    pq.write_table(pa.table({"x": other}), path)
    transaction.add([FileInfo(path=path.name, size=path.stat().st_size)], looked_at=True)
    transaction.commit()
    assert list(table.check(files=True).misread) == [path.name]
    assert table.snapshot().to_arrow().num_rows == 2


def test_whole_numbers_of_old_files_are_read_as_decimals_that_hold_them(table: Table) -> None:
    put(table, pa.table({"x": pa.array([Decimal("1.00")], pa.decimal128(5, 2))}))
    transaction = table.begin()
    path = Path(transaction.new_file())
    pq.write_table(pa.table({"x": [7, -999, None]}), path)
    transaction.add([FileInfo(path=path.name, size=path.stat().st_size)], looked_at=True)
    transaction.commit()
    found = {Decimal("1.00"), Decimal("7.00"), Decimal("-999.00"), None}
    assert set(table.snapshot().to_arrow()["x"].to_pylist()) == found
    assert not table.compact().left
    assert table.check(files=True).ok
    assert set(table.snapshot().to_arrow()["x"].to_pylist()) == found


def test_first_files_that_do_not_fit_one_another_are_refused(table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match="id is string, not long"):
        put(table, pa.table({"id": [1]}), pa.table({"id": ["x"]}))


@pytest.mark.parametrize("column", [pa.nulls(1), pa.array([[None]]), pa.array([{"a": None}])], ids=str)
def test_nulls_without_a_type_are_refused_in_new_columns_and_in_known_ones(table: Table, column: Any) -> None:
    put(table, pa.table({"id": [1], "known": ["x"]}))
    for name in ("note", "known"):
        with pytest.raises(InvalidInputError, match=f"column '{name}.*' holds only nulls, without a type"):
            put(table, pa.table({"id": [1], name: column}))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (pa.table({"ID": [1]}), "ID is spelled id in the table"),
        (pa.table({"id": [1], "At": [{"x": 1}]}), "At is spelled at in the table"),
        (pa.table({"at": [{"X": 1}]}), "at.X is spelled x in the table"),
        (pa.table({"many": [[{"X": 1}]]}), "many.*.X is spelled x in the table"),
    ],
)
def test_a_column_or_field_that_is_spelled_otherwise_is_refused_by_name(
    table: Table, rows: pa.Table, problem: str
) -> None:  # readers of Delta would take it for null
    put(table, pa.table({"id": [1], "at": [{"x": 1}], "many": [[{"x": 1}]]}))
    with pytest.raises(SchemaMismatchError, match=f"part-.*parquet does not fit .*{problem}"):
        put(table, rows)
    with pytest.raises(SchemaMismatchError, match="spelled"):
        put(Table(f"{table.url}-new"), pa.table({"id": [1]}), pa.table({"iD": [1]}))
    put(table, rows, operation="overwrite")  # sets its own columns
    assert list(types(table)) == rows.schema.names


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ("integer", "long", True),
        ("long", "integer", False),
        ("float", "double", True),
        ("integer", "double", False),
        ("timestamp", "timestamp_ntz", True),
        ("long", "double", False),
        ("decimal(5,2)", "decimal(7,3)", True),
        ("decimal(5,2)", "decimal(5,3)", False),
        ("string", "varchar(10)", True),
        ("binary", "string", False),
        ("void", {"type": "array", "elementType": "long"}, True),
        ("string", {"type": "array", "elementType": "string"}, False),
        (
            {"type": "map", "keyType": "string", "valueType": "integer"},
            {"type": "map", "keyType": "string", "valueType": "long"},
            True,
        ),
        (
            {"type": "struct", "fields": [{"name": "A", "type": "byte"}]},
            {"type": "struct", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]},
            True,
        ),
        ({"type": "struct", "fields": [{"name": "c", "type": "byte"}]}, {"type": "struct", "fields": []}, False),
    ],
)
def test_what_fits(found: Any, wanted: Any, expected: bool) -> None:
    assert fits(found, wanted) is expected


def schema_of(**kinds: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}


LIST_OF_LONG = {"type": "array", "elementType": "long", "containsNull": True}
LIST_OF_INTEGER = {**LIST_OF_LONG, "elementType": "integer"}


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        (schema_of(a="long"), schema_of(a="long"), None),
        (schema_of(a="integer"), schema_of(A="long"), None),
        (schema_of(a="long", b="string"), schema_of(a="long", c="date"), None),
        (schema_of(a="long"), schema_of(A="integer"), "a as long, not integer"),
        (schema_of(a=schema_of(b="long", c="string")), schema_of(a=schema_of(B="long")), None),
        (schema_of(a=schema_of(b="long")), schema_of(a=schema_of(B="short")), "a.b as long, not short"),
        (schema_of(a=LIST_OF_INTEGER), schema_of(a=LIST_OF_LONG), None),
        (schema_of(a=LIST_OF_LONG), schema_of(a=LIST_OF_INTEGER), "a.elementType as long, not integer"),
        (schema_of(a=LIST_OF_LONG), schema_of(a="long"), "a as array, not long"),
    ],
)
def test_which_columns_of_old_files_are_not_read_as_those_of_now(found: Any, wanted: Any, expected: str | None) -> None:
    assert misfit(found, wanted) == expected


@pytest.mark.parametrize(("found", "wanted"), [("string", "binary"), ("integer", "double"), ("date", "timestamp_ntz")])
def test_changes_are_read_as_types_that_no_new_file_may_have_for_them(found: str, wanted: str) -> None:
    assert misfit(schema_of(a=found), schema_of(a=wanted)) == f"a as {found}, not {wanted}"
    assert misfit(schema_of(a=found), schema_of(a=wanted), is_read) is None
    assert misfit(schema_of(a="long"), schema_of(a="short"), is_read) == "a as long, not short"
