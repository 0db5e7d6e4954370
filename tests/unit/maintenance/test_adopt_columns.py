"""An adoption looks at all footers: which columns the table has then, and what is refused or named.

No rewrite of any kind loses a column that a file has. Rules: PROTOCOL.md 6.4, 11.5.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.data.fitting import Alike, lost, respelled, unite
from dbio_commit.log import seen as memory
from dbio_commit.store.contract import Tail
from dbio_commit.table import Table
from tests.faults import calls_to
from tests.unit.adoptions import Place


def put(root: Path, **files: pa.Table) -> Table:
    """A directory of these files, of which each is younger than the one before."""
    for age, (name, rows) in enumerate(files.items()):
        path = root / f"{name.replace('__', '/')}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))
    return Table(root)


def types(table: Table) -> dict[str, Any]:
    schema = table.snapshot().schema
    assert schema is not None
    return {field["name"]: field["type"] for field in schema["fields"]}


def rows_of(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.snapshot().to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row.get("id")))


def append(table: Table, rows: pa.Table, **partition: str) -> None:
    with table.begin() as transaction:
        pq.write_table(rows, transaction.new_file(partition=partition))


# --- columns ------------------------------------------------------------------------------------------------------


def test_a_table_has_the_columns_of_all_files_whatever_they_are_called(tmp_path: Path) -> None:
    table = put(
        tmp_path,
        a=pa.table({"id": [1], "price": [9.5]}),
        b=pa.table({"id": pa.array([2], pa.int32()), "s": [{"x": 1}]}),
        z=pa.table({"id": [3], "s": [{"y": "new"}]}),
    )
    commit = table.adopt()
    assert commit.notes == ()
    assert commit.metrics["numOutputRows"] == 3
    struct = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}
                   for name, kind in (("y", "string"), ("x", "long"))],
    }  # fmt: skip
    assert types(table) == {"id": "long", "s": struct, "price": "double"}  # first those of the youngest
    assert rows_of(table) == [
        {"id": 1, "s": None, "price": 9.5},
        {"id": 2, "s": {"y": None, "x": 1}, "price": None},
        {"id": 3, "s": {"y": "new", "x": None}, "price": None},
    ]


@pytest.mark.parametrize("knows", [True, False], ids=["this process", "another"])
def test_a_write_after_an_adoption_knows_its_columns_and_waits_for_nobody(tmp_path: Path, knows: bool) -> None:
    table = put(tmp_path, a=pa.table({"id": [1], "price": [9.5]}), b=pa.table({"id": [2]}))
    table.adopt()
    for number in (3, 4):
        if not knows:
            memory._SEEN.clear()
        append(Table(tmp_path), pa.table({"id": [number]}))
    assert not list(tmp_path.glob("_serial_*"))
    assert types(table) == {"id": "long", "price": "double"}
    with pytest.raises(SchemaMismatchError, match="other is not in the table"):
        append(table, pa.table({"other": [1]}))
    with pytest.raises(SchemaMismatchError, match="price is string"):
        append(table, pa.table({"price": ["x"]}))


@pytest.mark.parametrize("is_aborted", [True, False])
def test_the_columns_stay_when_the_first_turn_is_over(tmp_path: Path, is_aborted: bool) -> None:
    table = put(tmp_path, a=pa.table({"id": [1], "price": [9.5]}), b=pa.table({"id": [2]}))
    table.adopt()
    transaction = table.begin("overwrite")
    pq.write_table(pa.table({"id": [7]}), transaction.new_file())
    if is_aborted:
        table.store.put_if_absent("_serial_00000000000000000001", f'{{"tid": "{transaction.tid}"}}'.encode())
        transaction.abort()
    else:
        transaction.commit()
    memory._SEEN.clear()
    append(Table(tmp_path), pa.table({"id": [8], "price": [1.0]}))
    table.checkpoint()
    assert types(table) == {"id": "long", "price": "double"}
    assert {row["id"] for row in rows_of(table)} == ({1, 2, 8} if is_aborted else {7, 8})


def test_a_begin_after_an_adoption_costs_the_same_once_it_is_known() -> None:
    place = Place()
    place.write("a.parquet")
    place.table().adopt()
    costs = []
    for _ in range(3):
        with calls_to(place) as calls:
            place.table().begin().abort()
        costs.append(len(calls))
    assert costs[1] == costs[2]


def test_types_that_clash_are_refused_with_the_names_of_files(tmp_path: Path) -> None:
    table = put(tmp_path, a=pa.table({"v": [1]}), b=pa.table({"v": ["text"]}), c=pa.table({"v": ["other"]}))
    with pytest.raises(SchemaMismatchError, match=r"v is string in c\.parquet and 1 more, and long in a\.parquet"):
        table.adopt()
    assert not (tmp_path / "_dbio_table").exists()


@pytest.mark.parametrize(
    "kind",
    [pa.float64(), pa.string(), pa.timestamp("us", "UTC"), pa.list_(pa.int64()), pa.decimal128(20, 0), pa.binary()],
    ids=str,
)
def test_types_of_which_neither_holds_the_other_clash(tmp_path: Path, kind: pa.DataType) -> None:
    table = put(tmp_path, a=pa.table({"v": pa.array([1], pa.int64())}), b=pa.table({"v": pa.array([None], kind)}))
    with pytest.raises(SchemaMismatchError, match="do not fit together: column v is"):
        table.adopt()


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(3)], ids=str)
def test_texts_and_bytes_clash_at_any_depth(tmp_path: Path, kind: pa.DataType) -> None:
    for place, text in (("v", pa.string()), ("l", pa.list_(pa.string())), ("s", pa.struct([("f", pa.string())]))):
        other = {"v": kind, "l": pa.list_(kind), "s": pa.struct([("f", kind)])}[place]
        files = {"a": pa.table({place: pa.array([None], text)}), "b": pa.table({place: pa.array([None], other)})}
        with pytest.raises(SchemaMismatchError, match=f"do not fit together: column {place}.* is binary in b"):
            put(tmp_path / place, **files).adopt()


def test_a_column_that_is_the_partitions_too_is_theirs(tmp_path: Path) -> None:
    table = put(tmp_path, day=pa.table({"id": [1]}))
    (tmp_path / "day.parquet").unlink()
    put(tmp_path, **{"day=2__a": pa.table({"id": [1], "day": [2]})})
    table.adopt()
    assert types(table) == {"id": "long", "day": "integer"}


def test_partition_values_that_no_write_can_have_are_texts_and_are_named(tmp_path: Path) -> None:
    table = put(tmp_path, **{"d=1.5__a": pa.table({"id": [1]}), "d=2__b": pa.table({"id": [2]})})
    (note,) = table.adopt().notes
    assert "'d' look like floating-point numbers" in note
    assert "1.5, 2" in note
    append(table, pa.table({"id": [3]}), d="1.5")
    assert [row["d"] for row in rows_of(table)] == ["1.5", "2", "1.5"]


# --- what is refused, or named ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"", "it is empty"), (b"rows and more rows", "does not end as Parquet does"), (b"123", "3 bytes")],
)
def test_empty_and_unreadable_files_are_refused_by_name(tmp_path: Path, body: bytes, why: str) -> None:
    table = put(tmp_path, a=pa.table({"id": [1]}))
    (tmp_path / "b.parquet").write_bytes(body)
    with pytest.raises(InvalidInputError, match=rf"b\.parquet is no Parquet file: .*{why}"):
        table.adopt()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize("inside", ["a", "A"])
def test_files_with_other_values_of_a_partition_column_than_their_directory_are_refused_by_name(
    tmp_path: Path, inside: str
) -> None:
    table = put(
        tmp_path,
        **{
            "a=1__good": pa.table({"v": [1, 2], inside: [1, 1]}),
            "a=1__bad": pa.table({"v": [1, 2], inside: [1, 5]}),
            "a=2__plain": pa.table({"v": [1]}),
        },
    )
    with pytest.raises(InvalidInputError, match=rf"of 1 files.*bad\.parquet holds the partition column '{inside}'"):
        table.adopt()
    (tmp_path / "a=1" / "bad.parquet").unlink()
    table.adopt()
    assert types(table) == {"v": "long", "a": "integer"}


def test_what_some_reader_cannot_read_is_refused_by_name(tmp_path: Path) -> None:
    table = put(tmp_path, a=pa.table({"id": [1], "at": pa.array([None], pa.timestamp("ns"))}))
    with pytest.raises(InvalidInputError, match=r"a\.parquet: column 'at' is a timestamp in nanoseconds"):
        table.adopt()


def test_all_refused_files_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    table = put(tmp_path, a=pa.table({"id": [1]}))
    for number in range(30):
        (tmp_path / f"{number:02d}.parquet").touch()
    with pytest.raises(InvalidInputError, match="because of 30 files") as caught:
        table.adopt()
    assert "and 20 more" in str(caught.value)


def test_files_that_spell_a_column_otherwise_are_named(tmp_path: Path) -> None:
    table = put(
        tmp_path,
        a=pa.table({"id": [1], "s": [{"x": 1}]}),
        b=pa.table({"id": [2], "s": [{"x": 1}]}),
        c=pa.table({"ID": [3], "s": [{"X": 1}]}),
        d=pa.table({"ID": [4], "s": [{"X": 1}], "more": [1]}),
        e=pa.table({"id": [5], "s": [{"x": 1}]}),
    )
    (note,) = table.adopt().notes
    assert "dbio compact" in note
    assert "c.parquet" in note
    assert "d.parquet" in note
    assert list(types(table)) == ["id", "s", "more"]  # as most files spell them
    assert [row["id"] for row in rows_of(table)] == [1, 2, 3, 4, 5]


def test_columns_of_one_file_that_are_one_to_spark_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'id' and 'ID'"):
        put(tmp_path, a=pa.table({"id": [1], "ID": [2]})).adopt()


# --- a compaction mends them --------------------------------------------------------------------------------------


def test_a_compaction_writes_files_anew_that_spell_a_column_otherwise_also_large_ones(tmp_path: Path) -> None:
    table = put(tmp_path, a=pa.table({"id": [1]}), b=pa.table({"id": [2]}), c=pa.table({"ID": [3]}))
    table.adopt()
    before = {file.path for file in table.snapshot().files}
    assert [it.files for it in table.compact(target_size=1, dry_run=True).compacted] == [1]
    report = table.compact(target_size=1, min_files=9)
    assert (report.files_before, report.files_after, report.left) == (1, 1, ())
    paths = {file.path for file in table.snapshot().files}
    assert before - paths == {"c.parquet"}
    assert {name for path in paths for name in pq.read_schema(tmp_path / path).names} == {"id"}
    assert [row["id"] for row in rows_of(table)] == [1, 2, 3]
    assert table.compact(target_size=1).compacted == ()


def test_a_compaction_looks_at_files_of_others_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = put(tmp_path, a=pa.table({"id": [1]}))
    table.adopt()
    append(table, pa.table({"id": [2]}))
    looked = list[str]()
    tail = table.store.get_tail

    def get_tail(path: str, length: int) -> Tail:
        looked.append(path)
        return tail(path, length)

    monkeypatch.setattr(table.store, "get_tail", get_tail)
    table.compact(target_size=1)
    assert looked == ["a.parquet"]


def test_a_restore_brings_back_files_that_a_compaction_writes_anew_again(tmp_path: Path) -> None:
    table = put(tmp_path, a=pa.table({"id": [1]}), b=pa.table({"id": [2]}), c=pa.table({"ID": [3]}))
    adopted = table.adopt()
    table.compact(target_size=1)
    table.restore(adopted.tid)
    with pytest.raises(InvalidInputError, match="ID is spelled id"):
        table.publish("delta")
    assert table.compact(target_size=1).files_before == 1
    table.publish("delta")


def test_a_table_is_published_for_delta_once_its_columns_are_spelled_alike(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = put(tmp_path, a=pa.table({"id": [1]}), b=pa.table({"id": [2]}), c=pa.table({"ID": [3]}))
    table.adopt()
    with pytest.raises(InvalidInputError, match=r"first c\.parquet: ID is spelled id.*dbio compact"):
        table.publish("delta")
    table.compact(target_size=1)
    table.publish("delta")
    assert sorted(deltalake.DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("inside", ["day", "Day", "DAY"])
@pytest.mark.parametrize("value", [1, 7, None])
def test_a_partition_column_inside_of_files_is_no_matter_to_publications_and_checks(
    tmp_path: Path, inside: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.maintenance.adopt.columns_inside", lambda *_, **__: "")  # as earlier versions
    table = put(tmp_path, **{"Day=1__a": pa.table({"id": [1], inside: pa.array([value], pa.int64())})})
    assert table.adopt().notes == ()
    (published,) = table.publish("delta")
    assert published.is_new
    assert (table.check(files=True).misread, table.check().ok) == ({}, True)
    assert table.compact().compacted == ()


def test_what_an_earlier_version_published_is_published_on_though_it_would_not_be_adopted_now(tmp_path: Path) -> None:
    nanos = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})
    table = put(tmp_path, a=nanos)
    table.inspector = None
    table.adopt()
    append(table, nanos)
    (published,) = table.publish("delta")
    assert published.added == 2
    assert list(table.check(files=True).misread) == [file.path for file in table.snapshot().files]


def test_bytes_of_a_fixed_number_and_instants_of_the_old_kind_are_the_same_everywhere(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    at = datetime(2026, 1, 1, 12, 0, 0, 5)
    rows = pa.table({"id": [1, 2], "x": pa.array([b"abcd", None], pa.binary(4)), "at": pa.array([at, None])})
    for name in ("a", "b"):
        pq.write_table(rows, tmp_path / f"{name}.parquet", use_deprecated_int96_timestamps=True)
    instants = [at.replace(tzinfo=UTC), None]
    told = {"id": "long", "x": "binary", "at": "timestamp"}
    before = Table(tmp_path).schema()
    assert before is not None
    assert {field["name"]: field["type"] for field in before["fields"]} == told

    def check() -> None:
        for where in ("x = X'61626364'", "at > timestamp'2025-01-01 00:00:00'", "at IS NULL OR x IS NULL"):
            assert len(table.snapshot().where(where, time_zone="UTC").files) == len(table.snapshot().files)
        table.publish("delta")
        for found in (table.snapshot().to_arrow(), deltalake.DeltaTable(tmp_path).to_pyarrow_table()):
            assert sorted(found["at"].to_pylist(), key=str) == sorted(instants * 2, key=str)
            assert sorted(found["x"].to_pylist(), key=str) == sorted([b"abcd", None] * 2, key=str)

    table = Table(tmp_path)
    table.adopt()
    assert types(table) == told
    check()
    assert table.compact().files_before == 2
    check()


# --- no rewrite loses a column ------------------------------------------------------------------------------------


def test_a_compaction_leaves_files_that_have_more_columns_or_fields_than_the_table(tmp_path: Path) -> None:
    table = put(tmp_path, a=pa.table({"s": [{"x": 1, "y": 2}]}), b=pa.table({"s": [{"x": 1}]}))
    table.inspector = None  # as earlier versions, which took the columns of one file
    table.adopt()
    (left,) = table.compact().left
    assert "the column 's.y', which the table does not have" in left.reason
    assert "merge_schema=True" in left.reason


# --- pure ---------------------------------------------------------------------------------------------------------


def schema_of(**kinds: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}


LIST = {"type": "array", "elementType": schema_of(v="long")}


def test_the_widest_type_is_taken_in_any_order() -> None:
    kinds = ["byte", "short", "integer", "long"]
    for some in (kinds, kinds[::-1]):
        groups = [Alike([kind], schema_of(v=kind)) for kind in some]
        assert unite(groups, where="t") == schema_of(v="long")
    decimals = [Alike([kind], schema_of(v=kind)) for kind in ("decimal(5,2)", "decimal(9,4)")]
    assert unite(decimals, where="t") == schema_of(v="decimal(9,4)")


def test_a_clash_inside_of_a_list_names_the_field_and_the_file_that_has_it() -> None:
    other = {"type": "array", "elementType": schema_of(V="string")}
    groups = [Alike(["a"], schema_of(id="long")), Alike(["b"], schema_of(l=LIST)), Alike(["c"], schema_of(l=other))]
    with pytest.raises(SchemaMismatchError, match=r"l\.element\.V is long in b, and string in c"):
        unite(groups, where="t")


def test_what_a_rewrite_would_lose() -> None:
    assert lost(schema_of(a="long"), schema_of(A="integer")) is None
    assert lost(schema_of(a="long", d="date"), schema_of(a="long"), ["D"]) is None
    assert lost(schema_of(a="long", d="date"), schema_of(a="long")) == "d"
    assert lost(schema_of(a=LIST), schema_of(a={**LIST, "elementType": schema_of(w="long")})) == "a.elementType.v"


def test_what_is_spelled_otherwise() -> None:
    assert respelled(schema_of(a=LIST), schema_of(a=LIST, b="long")) is None
    assert respelled(schema_of(A="long"), schema_of(a="long")) == "A is spelled a in the table"
