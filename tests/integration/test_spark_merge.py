"""`dbio.merge` and `dbio.update`: what DuckDB makes of the same rows is the truth; and what they do beside others.

Rules: PROTOCOL.md 9.9.
"""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.base.errors import CommitConflictError, InvalidInputError, SchemaMismatchError, TableNotFoundError
from dbio_commit.spark.rewrite.keys import Keys
from dbio_commit.spark.transfer import batches
from dbio_commit.spark.write.run import Writing
from dbio_commit.spark.write.task import commit_files
from tests import spark35
from tests.integration.test_types_roundtrip import comparable, everything
from tests.spark_tables import configured, data_files, ids, numbers
from tests.tiers import long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[int | None, ...]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"{tmp_path}/table"


def live(root: str) -> set[str]:
    return {file.path for file in dbio.Table(root).snapshot().files}


def rows(spark: "SparkSession", root: str) -> list[Any]:
    return sorted(map(tuple, dbio.read(spark, root).select("k", "n", "m").collect()), key=str)


# --- as DuckDB does it ------------------------------------------------------------------------------------------------


class Chance:
    """Random tables and merges of three columns of whole numbers: k, which is the key, n and m."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def rows(self, count: int, keys: list[int | None]) -> list[Row]:
        numbers = [None, 0, 1, 2, 3]
        return [(key, self.random.choice(numbers), self.random.choice(numbers)) for key in keys[:count]]

    def condition(self, sides: list[str]) -> str:
        side, other = self.random.choice(sides), self.random.choice(sides)
        return self.random.choice(
            [f"{side}.n > 1", f"{side}.m IS NULL", f"{side}.n = {other}.m", f"{side}.k % 3 = 1 OR {other}.n < 2"]
        )

    def value(self, sides: list[str]) -> str:
        side, other = self.random.choice(sides), self.random.choice(sides)
        return self.random.choice([f"{side}.n + 10", f"{side}.m", "7", "NULL", f"coalesce({side}.n, {other}.m)"])

    def clauses(self) -> list[tuple[str, str | None, str, dict[str, str] | None]]:
        """Of the rows they are for, the condition, the action and its values."""
        found = []
        sides = {
            "matched": ["target", "source"],
            "not_matched": ["source"],
            "not_matched_by_source": ["target"],
        }
        for rows, names in self.random.sample([*sides.items()], self.random.choice([1, 2, 2, 3])):
            for is_last in [False] * self.random.choice([0, 0, 1]) + [True]:
                where = None if is_last and self.random.random() < 0.6 else self.condition(names)
                action = self.random.choice(["update", "delete"]) if rows != "not_matched" else "insert"
                columns = self.random.choice([["n"], ["m", "n"], ["k", "m"]])
                values = None if action == "delete" else {column: self.value(names) for column in columns}
                if action != "delete" and rows != "not_matched_by_source" and self.random.random() < 0.4:
                    values = None
                found.append((rows, where, action, values))
        return found


def ours(clause: tuple[str, str | None, str, dict[str, str] | None]) -> Any:
    kind, where, action, values = clause
    rows = getattr(dbio, f"when_{kind}")(where)
    return getattr(rows, action)() if values is None else getattr(rows, action)(values)


def sql(clause: tuple[str, str | None, str, dict[str, str] | None]) -> str:
    rows, where, action, values = clause
    kind = {
        "matched": "MATCHED",
        "not_matched": "NOT MATCHED BY TARGET",
        "not_matched_by_source": "NOT MATCHED BY SOURCE",
    }
    if action != "delete" and values is None:
        values = {column: f"source.{column}" for column in ("k", "n", "m")}
    does = "DELETE"
    if values and action == "update":
        does = "UPDATE SET " + ", ".join(f"{column} = {value}" for column, value in values.items())
    if values and action == "insert":
        does = f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    return f"WHEN {kind[rows]} {f'AND ({where})' if where else ''} THEN {does}"


def merge_random(spark: "SparkSession", root: str, seed: int) -> None:
    chance = Chance(seed)
    keys = [*range(30), *range(12), None, None]
    chance.random.shuffle(keys)
    before = chance.rows(36, keys)
    came = chance.rows(14, chance.random.sample([*range(5, 45), None], 14))
    partition_by = chance.random.choice([[], [], ["n"]])
    for part in (before[:12], before[12:]):
        frame = spark.createDataFrame(part, "k int, n int, m int").repartitionByRange(2, "k")
        dbio.write(frame, root, partition_by=partition_by)
    source = spark.createDataFrame(came, "k int, n int, m int")
    clauses = chance.clauses()
    on = chance.random.choice(
        ["target.k = source.k", "source.k = target.k AND target.k < 20", "target.k - source.k = 0"]
    )
    told = f"seed {seed}: on {on}, {clauses}"
    with duckdb.connect() as peer:
        for name, values in (("target", before), ("source", came)):
            peer.execute(f"CREATE TABLE {name} (k INT, n INT, m INT)")
            peer.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", values)
        peer.execute(f"MERGE INTO target USING source ON {on} {' '.join(map(sql, clauses))}")
        expected = sorted(peer.execute("SELECT k, n, m FROM target").fetchall(), key=str)
        files = live(root)
        commit = dbio.merge(spark, root, source, on, [ours(clause) for clause in clauses])
    assert rows(spark, root) == expected, told
    assert commit.metrics["numTargetRowsInserted"] - commit.metrics["numTargetRowsDeleted"] == len(expected) - 36, told
    assert {*commit.removed} <= files, told


@pytest.mark.parametrize("seed", [0, *long(*range(1, 8))])
def test_a_random_merge_is_what_duckdb_makes_of_it(spark: "SparkSession", root: str, seed: int) -> None:
    merge_random(spark, root, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_merges_are_what_duckdb_makes_of_them(spark: "SparkSession", root: str, seed: int) -> None:
    merge_random(spark, root, seed)


@pytest.mark.parametrize("seed", [0, *long(1, 2)])
def test_a_random_update_is_what_duckdb_makes_of_it(spark: "SparkSession", root: str, seed: int) -> None:
    chance = Chance(seed)
    before = chance.rows(30, [*range(30)])
    dbio.write(spark.createDataFrame(before, "k int, n int, m int"), root, partition_by=[[], ["m"]][seed % 2])
    with duckdb.connect() as peer:
        peer.execute("CREATE TABLE target (k INT, n INT, m INT)")
        peer.executemany("INSERT INTO target VALUES (?, ?, ?)", before)
        for _ in range(3):
            where = chance.condition(["target"]).replace("target.", "")
            values = {column: chance.value(["target"]).replace("target.", "") for column in ("n", "m")}
            sets = ", ".join(f"{column} = {value}" for column, value in values.items())
            count = peer.execute(f"SELECT count(*) FROM target WHERE {where}").fetchall()[0][0]
            peer.execute(f"UPDATE target SET {sets} WHERE {where}")
            commit = dbio.update(spark, root, values, where)
            expected = sorted(peer.execute("SELECT k, n, m FROM target").fetchall(), key=str)
            assert rows(spark, root) == expected, (seed, where, values)
            assert commit.metrics["numUpdatedRows"] == count


# --- what is read and written -----------------------------------------------------------------------------------------


def test_only_files_with_rows_that_change_are_written_again(spark: "SparkSession", root: str) -> None:
    for start in (0, 10, 20):
        dbio.write(numbers(spark, start, start + 10, tasks=1), root)
    before = live(root)
    source = spark.createDataFrame([(12, "new"), (40, "new")], "id int, day string")  # a narrower id
    commit = dbio.merge(spark, root, source, ["id"])
    assert len(before & live(root)) == 2
    assert commit.operation == "rewrite"
    assert {name: count for name, count in commit.metrics.items() if name.startswith("numTarget")} == {
        "numTargetRowsInserted": 1, "numTargetRowsUpdated": 1, "numTargetRowsDeleted": 0, "numTargetRowsCopied": 9,
    }  # fmt: skip
    assert ids(dbio.read(spark, root).where("day = 'new'")) == [12, 40]


def test_files_in_which_no_key_of_the_source_can_be_are_not_read(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    for path in live(root):
        (Path(root) / path).write_bytes(b"broken")
    dbio.write(numbers(spark, 10, 20, tasks=1), root)
    dbio.merge(spark, root, numbers(spark, 15, 25), ["id"])
    dbio.merge(spark, root, numbers(spark, 18, 30), "target.id = source.id", [dbio.when_not_matched().insert()])
    numbers(spark, 18, 30).createOrReplaceTempView("news_of_two_keys")
    dbio.enable(spark)
    spark.sql(
        f"MERGE INTO dbio.`{root}` t USING news_of_two_keys s ON t.id = s.id AND t.day = s.day AND t.id > 1 "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    dbio.update(spark, root, {"day": "'x'"}, "id > 12")
    nobody = spark.createDataFrame([(None, "d1")], "id long, day string")
    assert not dbio.merge(spark, root, nobody, ["id"], [dbio.when_matched().delete()]).removed


def test_a_merge_that_only_inserts_rewrites_nothing(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10), root)
    twice = numbers(spark, 5, 15).union(numbers(spark, 5, 15))
    commit = dbio.merge(spark, root, twice, ["id"], [dbio.when_not_matched().insert({"id": "source.id"})])
    assert not commit.removed
    assert ids(dbio.read(spark, root)) == sorted([*range(10), *range(10, 15), *range(10, 15)])
    assert dbio.read(spark, root).where("day IS NULL").count() == 10


def test_an_update_moves_rows_to_other_partitions(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10), root, partition_by=["day"])
    commit = dbio.update(spark, root, {"DAY": "concat(day, '!')"}, "day = 'd1'")
    assert {path.split("/")[0] for path in live(root)} == {"day=d0", "day=d1!"}
    assert (commit.metrics["numUpdatedRows"], commit.metrics["numCopiedRows"]) == (5, 0)
    assert dbio.update(spark, root, {"id": "id * 2"}).metrics["numUpdatedRows"] == 10
    assert ids(dbio.read(spark, root)) == [*range(0, 20, 2)]


def test_the_source_is_read_once(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10), root)
    seen = spark.sparkContext.accumulator(0)

    def count(parts: Iterator[Any]) -> Iterator[Any]:
        for part in parts:
            seen.add(part.num_rows)
            yield part

    source = numbers(spark, 5, 15).mapInArrow(count, "id long, day string")
    dbio.merge(spark, root, source, ["id"])
    assert seen.value == 10


def test_values_are_fitted_to_their_columns(spark: "SparkSession", root: str) -> None:
    columns = "id long, small byte, price decimal(5,2), name string, at timestamp, tags array<int>"
    frame = spark.sql(
        "SELECT 1L id, 1Y small, 1.5BD price, 'a' name, TIMESTAMP '2026-01-01 00:00:00' at, array(1) tags"
    )
    dbio.write(frame.to(spark.createDataFrame([], columns).schema), root)
    values = {"small": "id + 4", "price": "price * 1.111", "name": "id", "at": "DATE '2026-11-22'", "tags": "NULL"}
    dbio.update(spark, root, values)
    found = dbio.read(spark, root).selectExpr("small", "cast(price AS string)", "name", "cast(at AS string)", "tags")
    assert tuple(found.collect()[0]) == (5, "1.67", "1", "2026-11-22 00:00:00", None)
    before = data_files(root)
    with pytest.raises(InvalidInputError, match=r"1 rows get values that their columns \(small\) cannot hold"):
        dbio.update(spark, root, {"small": "id + 400"})
    with pytest.raises(InvalidInputError, match="cannot hold"):
        dbio.merge(spark, root, spark.sql("SELECT 1 id, 1000 n"), ["id"], [dbio.when_matched().update({"small": "n"})])
    assert data_files(root) == before


@pytest.mark.parametrize("ansi", ["true", *long("false")])
def test_fields_go_by_name_however_deep(spark: "SparkSession", root: str, ansi: str) -> None:
    def values(struct: str) -> dict[str, str]:
        return {"s": struct, "l": f"array({struct})", "m": f"map('k', {struct})"}

    def select(struct: str, ids: str) -> Any:
        named = ", ".join(f"{value} AS {name}" for name, value in values(struct).items())
        return spark.sql(f"SELECT id, {named} FROM VALUES {ids} t(id)")

    with configured(spark, {"spark.sql.ansi.enabled": ansi}):
        dbio.write(select("named_struct('a', 1L, 'b', 'x')", "(1), (2), (3)"), root)
        turned = "named_struct('B', 'y', 'a', 2)"
        dbio.update(spark, root, values(turned), "id = 1")
        dbio.merge(spark, root, select(turned, "(2), (4)"), ["id"])
    found = {row.id: (row.s, row.l[0], row.m["k"]) for row in dbio.read(spark, root).collect()}
    assert found == {1: ((2, "y"),) * 3, 2: ((2, "y"),) * 3, 3: ((1, "x"),) * 3, 4: ((2, "y"),) * 3}


def test_a_value_is_computed_for_the_rows_of_its_clause_alone(spark: "SparkSession", root: str) -> None:
    """Where a value may not fit, it is computed twice: Spark did so once beforehand, for all rows."""
    dbio.write(spark.sql("SELECT id, cast(0 AS int) AS x FROM range(4)"), root)
    source = spark.sql("SELECT * FROM VALUES (0L, '12'), (1L, 'none'), (7L, '13'), (8L, 'none') AS t(id, v)")
    is_none, number = "source.v = 'none'", "cast(source.v AS bigint)"
    clauses = [
        dbio.when_matched(is_none).delete(),
        dbio.when_matched().update({"x": number}),
        dbio.when_not_matched(is_none).insert({"id": "source.id", "x": "-1"}),
        dbio.when_not_matched().insert({"id": "source.id", "x": number}),
    ]
    dbio.merge(spark, root, source, ["id"], when=clauses)
    assert sorted(map(tuple, dbio.read(spark, root).collect())) == [(0, 12), (2, 0), (3, 0), (7, 13), (8, -1)]


def test_columns_that_differ_by_case_are_told_apart_where_the_session_does(spark: "SparkSession", root: str) -> None:
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        dbio.write(spark.sql("SELECT 1 AS id, 'old' AS v"), root)
        source = spark.sql("SELECT 1 AS id, cast(NULL AS int) AS ID, 'new' AS v")
        clauses = [
            dbio.when_matched().update({"v": "source.v"}),
            dbio.when_not_matched().insert({"id": "source.id", "v": "source.v"}),
        ]
        dbio.merge(spark, root, source, "target.id = source.id", when=clauses)
    assert sorted(map(tuple, dbio.read(spark, root).collect())) == [(1, "new")]


def test_bytes_of_a_fixed_number_are_copied_as_spark_reads_them(spark: "SparkSession", root: str) -> None:
    Path(root).mkdir()
    pq.write_table(
        pa.table({"id": range(4), "x": pa.array([b"abcd", None, b"efgh", b"ijkl"], pa.binary(4))}),
        f"{root}/part-0.parquet",
    )
    dbio.Table(root).adopt()
    dbio.write(dbio.read(spark, root).limit(0), root)
    dbio.delete(spark, root, "id = 3")
    assert sorted(map(tuple, dbio.read(spark, root).collect())) == [(0, b"abcd"), (1, None), (2, b"efgh")]


def test_a_merge_in_the_name_of_an_application_happens_once(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 3), root)
    add = [dbio.when_matched().update({"id": "target.id + 10"})]
    for _ in range(2):
        last = dbio.merge(spark, root, numbers(spark, 0, 1), ["id"], add, app=("upserts", 4))
    assert last.skipped
    with pytest.raises(dbio.AppVersionError, match="never committed"):
        dbio.update(spark, root, {"id": "0"}, app=("upserts", 3), retries=3)
    assert dbio.delete(spark, root, "true", app=("upserts", 4)).skipped
    assert ids(dbio.read(spark, root)) == [1, 2, 10]


# --- rows that stay are copied ----------------------------------------------------------------------------------------


def every_way(spark: "SparkSession", root: str, key: str = "id") -> None:
    """An update, a merge and a delete of one row each, by a key of which there are 0 to 9 and more."""
    dbio.update(spark, root, {"n": "n + 100"}, f"{key} = 1")
    source = dbio.read(spark, root).where(f"{key} = 2 OR {key} = 3").withColumn("n", f.col("n") + 200)
    dbio.merge(spark, root, source.unionByName(source.withColumn(key, f.col(key) + 100)), [key])
    dbio.delete(spark, root, f"{key} = 4")


def test_rows_keep_their_places_where_none_moves(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.range(200_000).selectExpr("id", "id % 7 n", "array(id) tags").coalesce(1), root)
    dbio.update(spark, root, {"n": "-1", "tags": "array(-id)"}, "id % 1000 = 5")
    (file,) = live(root)
    found = pq.read_table(f"{root}/{file}")
    assert found["id"].to_pylist() == [*range(200_000)]
    changed = [(row["id"], row["tags"]) for row in found.to_pylist() if row["n"] == -1]
    assert changed == [(i, [-i]) for i in range(5, 200_000, 1000)]


@pytest.mark.parametrize(
    "settings", [{}, *long({"spark.sql.execution.arrow.useLargeVarTypes": "true"})], ids=["", "large"]
)
def test_values_of_every_type_stay_and_come(spark: "SparkSession", root: str, settings: dict[str, str]) -> None:
    frame = everything(spark).coalesce(1).withColumn("id", f.monotonically_increasing_id())
    count = frame.count()
    dbio.write(frame, root)
    names = [name for name in frame.columns if name != "id"]
    with configured(spark, settings):
        dbio.update(spark, root, {"id": "id + 100"}, "id % 2 = 1")
        stayed = frame.withColumn("id", f.expr("IF(id % 2 = 1, id + 100, id)"))
        assert comparable(dbio.read(spark, root)) == comparable(stayed)
        source = stayed.withColumn("id", f.expr("IF(id = 0, 7, IF(id = 101, 0, id))"))  # one new, one for another
        dbio.merge(spark, root, source.select("id", *names), ["id"])
    expected = stayed.where("id != 0").union(source.where("id IN (0, 7)").select(*stayed.columns))
    assert dbio.read(spark, root).count() == count + 1
    assert comparable(dbio.read(spark, root).select(*stayed.columns)) == comparable(expected)


def test_places_are_right_where_spark_skips_pages(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.range(600_000).selectExpr("id", "id n").coalesce(1), root)
    dbio.update(spark, root, {"n": "-id"}, "id >= 123456 AND id < 123460 OR id = 599999")
    dbio.delete(spark, root, "id > 400000 AND id < 400010")
    found = dbio.read(spark, root)
    assert {row.id for row in found.where("n < 0").collect()} == {123456, 123457, 123458, 123459, 599999}
    assert found.count() == 600_000 - 9
    assert found.where("id > 400000 AND id < 400010").count() == 0


def test_columns_that_no_clause_sets_are_not_read(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.range(10).selectExpr("id", "id n", "repeat('x', 10) other").coalesce(1), root)
    read: list[str] = []
    write_over = Writing.write_over

    def look(self: Writing, rows: "DataFrame", *args: Any, **options: Any) -> Any:
        jvm: Any = rows._jdf
        read.extend(re.findall(r"ReadSchema: (\S+)", jvm.queryExecution().sparkPlan().toString()))
        return write_over(self, rows, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writing, "write_over", look)
        dbio.update(spark, root, {"n": "n + 1"}, "id > 7")
        source = spark.sql("SELECT 3L id, 30L n UNION ALL SELECT 50L, 500L")
        new = dbio.when_not_matched().insert({"id": "source.id", "n": "source.n", "other": "'new'"})
        dbio.merge(spark, root, source, ["id"], [dbio.when_matched().update({"n": "source.n"}), new])
        dbio.delete(spark, root, "id = 0")
    assert len(read) == 3
    assert ["id" in it for it in read] == [True] * 3
    assert ["n:" in it for it in read] == [True, False, False]
    assert not [it for it in read if "other" in it]
    found = {row.id: (row.n, row.other) for row in dbio.read(spark, root).collect()}
    x = "x" * 10
    assert found == {**{i: (i, x) for i in range(1, 8)}, 3: (30, x), 8: (9, x), 9: (10, x), 50: (500, "new")}


@pytest.mark.parametrize("column", ["n", *long("_metadata")])
def test_paths_that_urls_escape_are_those_of_files(spark: "SparkSession", tmp_path: Path, column: str) -> None:
    root = f"{tmp_path}/a b%20+é#x=1;?/t"
    frame = spark.range(10).selectExpr("id", "id n", f"id AS `{column}2`", "concat('v +%=', id % 3, 'é:#') AS p")
    frame.withColumnRenamed(f"{column}2", column if column != "n" else "m").coalesce(1).write.partitionBy("p").parquet(
        root
    )
    dbio.Table(root).adopt()
    dbio.write(dbio.read(spark, root).limit(1).withColumn("id", f.lit(20).cast("long")), root)
    every_way(spark, root)
    found = {row.id: row.n for row in dbio.read(spark, root).collect()}
    assert {i: n for i, n in found.items() if n != i and i != 20} == {1: 101, 2: 202, 3: 203, 102: 202, 103: 203}
    assert found.keys() == {0, 1, 2, 3, 5, 6, 7, 8, 9, 20, 102, 103}


@pytest.mark.long
def test_days_of_an_old_calendar_stay_what_spark_reads(spark: "SparkSession", root: str) -> None:
    days = spark.sql("SELECT id, id n, date_add(DATE '1000-01-01', int(id)) day FROM range(10)").coalesce(1)
    with configured(spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}):
        days.write.parquet(root)
    dbio.Table(root).adopt()
    dbio.write(days.where("id = 0").withColumn("id", f.col("id") + 50), root)
    dbio.Table(root).set({"change_data": "true"})
    before = {row.id: str(row.day) for row in dbio.read(spark, root).collect()}
    start = dbio.Table(root).history()[0].tid
    every_way(spark, root)
    found = {row.id: (row.n, str(row.day)) for row in dbio.read(spark, root).collect()}
    assert {i: day for i, (_, day) in found.items() if i < 100} == {i: day for i, day in before.items() if i != 4}
    assert {i: n for i, (n, _) in found.items() if n != i % 50} == {1: 101, 2: 202, 3: 203, 102: 202, 103: 203}
    told = dbio.changes(spark, root, start).where("_change_type != 'insert'").collect()
    assert {(row.id, row._change_type, str(row.day)) for row in told} == {
        (i, kind, before[i])
        for i, kinds in {1: ("update_preimage", "update_postimage"), 2: ("update_preimage", "update_postimage"),
                         3: ("update_preimage", "update_postimage"), 4: ("delete",)}.items() for kind in kinds
    }  # fmt: skip


@pytest.mark.long
def test_keys_that_lie_far_apart_leave_out_the_files_between(spark: "SparkSession", root: str) -> None:
    for start in range(0, 50_000, 10_000):
        dbio.write(spark.range(start, start + 10_000).selectExpr("id", "id n").coalesce(1), root)
    between = sorted(dbio.Table(root).history()[1:4], key=lambda commit: commit.tid)
    for commit in between:
        (Path(root) / commit.added[0]).write_bytes(b"broken")
    far = spark.sql("SELECT explode(array(7L, 9L, 49990L, 70000L)) id").selectExpr("id", "-id n")
    commit = dbio.merge(spark, root, far, ["id"])
    assert (commit.metrics["numTargetRowsUpdated"], commit.metrics["numTargetRowsInserted"]) == (3, 1)
    assert len(commit.removed) == 2


@pytest.mark.parametrize("kind", [*long("byte", "short", "int", "long"), "date"])
def test_ranges_of_keys_hold_all_of_them(spark: "SparkSession", kind: str) -> None:
    chance = random.Random(kind)
    for _ in range(4):
        clusters = [chance.randrange(-30_000, 30_000) for _ in range(chance.choice([1, 3, 60]))]
        numbers = sorted({chance.randrange(at, at + chance.choice([1, 50, 2000])) for at in clusters for _ in range(5)})
        if kind == "byte":
            numbers = sorted({number % 120 for number in numbers})
        if kind == "long":
            numbers = [number * 2**47 for number in numbers]
        value = "date_add(DATE '1990-01-01', int(id))" if kind == "date" else f"CAST(id AS {kind})"
        source = spark.createDataFrame([(it,) for it in [*numbers, None]], "id long").selectExpr(f"{value} AS k")
        between = Keys.of("target.k = source.k", source.schema, source).between()
        assert between is not None
        assert source.where(between).count() == len(numbers), (between, numbers)


def test_keys_of_any_type_are_found_if_the_jvm_takes_no_class(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then fillers come after long rows, as over Spark Connect."""
    monkeypatch.setattr(batches, "pack_rows", lambda *_, **__: None)
    columns = ("concat('k', id) AS text", "CAST(id AS decimal(9,2)) AS price", "repeat('x', CAST(id AS int)) AS long")
    dbio.write(spark.range(40).selectExpr(*columns), root)
    news = spark.range(30, 50).selectExpr(*columns)
    metrics = dbio.merge(spark, root, news, ["text", "price", "long"]).metrics
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (10, 10)
    keys = Keys.of("target.text = source.text and target.price = source.price", news.schema, news)
    assert keys.between() == "((`text` >= 'k30' AND `text` <= 'k49')) AND ((`price` >= 30.00 AND `price` <= 49.00))"


# --- what Spark and sqlglot do not read in the same way ---------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_a_column_with_the_name_of_a_function_is_a_column(
    spark: "SparkSession", root: str, partition_by: list[str]
) -> None:
    users = [("bob", 1, "a"), ("eve", 2, "a"), ("bob", 3, "b")]
    frame = spark.createDataFrame(users, "`current_user` string, id int, day string").coalesce(1)
    dbio.write(frame, root, partition_by=partition_by)
    dbio.delete(spark, root, "day = 'a' AND current_user <> 'bob'")
    dbio.update(spark, root, {"id": "id + 10"}, "current_user = 'bob' AND day = 'a'")
    assert ids(dbio.read(spark, root)) == [3, 11]
    days = spark.sql("SELECT id, date_add(DATE '2000-01-01', CAST(id AS int)) AS `current_date` FROM range(3)")
    dbio.write(days, f"{root}-days")
    assert dbio.delete(spark, f"{root}-days", "current_date > DATE '2020-01-01'").metrics["numDeletedRows"] == 0


A_QUOTE = "bobs" if spark35.IS_USED else "bob's"  # two texts side by side, before Spark 4.0
ODD: dict[str, tuple[dict[str, str], str, str, str]] = {
    "a collation": ({}, "ABC", "abc", "target.name = source.name COLLATE UTF8_LCASE"),
    "a collation by a function": ({}, "ABC", "abc", "target.name = collate(source.name, 'UTF8_LCASE')"),
    "a quote in a text": ({}, A_QUOTE, "bob", "target.name = concat(source.name, '''s')"),
    "a function of the source": ({}, "  7", "7", "target.name = to_char(CAST(source.name AS int), '999')"),
    "double quotes": (
        {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
        "b",
        "b",
        'target.name = source.name AND target.name = "other"',
    ),
    "escapes": ({"spark.sql.parser.escapedStringLiterals": "true"}, r"\101", "A", r"target.name = '\101'"),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_no_file_is_left_out_by_what_is_read_in_two_ways(spark: "SparkSession", root: str, odd: Any) -> None:
    settings, there, comes, on = odd
    for name in (there, "zz"):
        dbio.write(spark.createDataFrame([(name, name, 1)], "name string, other string, n int").coalesce(1), root)
    source = spark.createDataFrame([(comes, 5)], "name string, n int")
    clauses = [dbio.when_matched().update({"n": "source.n"}), dbio.when_not_matched().insert({"n": "-1"})]
    with configured(spark, settings):
        dbio.merge(spark, root, source, on, clauses)
    assert {row.name: row.n for row in dbio.read(spark, root).collect()} == {there: 5, "zz": 1}


def test_keys_that_python_does_not_know_are_matched(spark: "SparkSession", root: str) -> None:
    days = spark.sql("SELECT explode(array(DATE '-0044-03-15', DATE '2026-11-23', DATE '+12000-01-01')) AS day, 1 AS n")
    dbio.write(days, root)
    commit = dbio.merge(spark, root, days.selectExpr("day", "2 AS n"), ["day"])
    assert commit.metrics["numTargetRowsUpdated"] == 3


def test_a_condition_for_rows_that_match_none_is_not_asked_of_others(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.createDataFrame([(1, 0), (2, 5)], "id int, n int").coalesce(1), root)
    clause = dbio.when_not_matched_by_source("10 / target.n > 1").delete()
    dbio.merge(spark, root, spark.createDataFrame([(1,)], "id int"), ["id"], [clause])
    assert ids(dbio.read(spark, root)) == [1]


def test_rows_that_match_twice_are_found_where_nobody_counted_the_rows_of_a_file(
    spark: "SparkSession", root: str
) -> None:
    numbers(spark, 0, 3, tasks=1).write.parquet(root)
    dbio.Table(root).adopt()
    dbio.write(numbers(spark, 10, 11), root)
    twice = numbers(spark, 1, 2).union(numbers(spark, 1, 2))
    with pytest.raises(InvalidInputError, match="match more than one row"):
        dbio.merge(spark, root, twice, ["id"], [dbio.when_matched().update()])
    assert ids(dbio.read(spark, root)) == [0, 1, 2, 10]
    commit = dbio.merge(spark, root, twice, ["id"], [dbio.when_matched().delete()])  # as Spark's own MERGE
    assert commit.metrics["numTargetRowsDeleted"] == 1
    assert ids(dbio.read(spark, root)) == [0, 2, 10]


def test_rows_that_match_twice_stay_once_where_nothing_becomes_of_them(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 3, tasks=1), root)
    twice = numbers(spark, 1, 2).union(numbers(spark, 1, 2))
    keep = [
        dbio.when_matched("source.day = 'nope'").delete(),
        dbio.when_not_matched_by_source("target.id = 0").delete(),
    ]
    dbio.merge(spark, root, twice, ["id"], keep)
    assert ids(dbio.read(spark, root)) == [1, 2]


# --- what is refused --------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[["SparkSession", str, "DataFrame"], object], type[Exception], str]] = {
    "a source that matches a row twice": (
        lambda spark, root, source: dbio.merge(spark, root, source.union(source), ["id"]),
        InvalidInputError,
        r"rows of the table match more than one row of the source by on='target.`id` = source.`id`'",
    ),
    "a condition that holds for others each time": (
        lambda spark, root, source: dbio.merge(spark, root, source, "rand() < source.id"),
        InvalidInputError,
        "is not deterministic",
    ),
    "another table in a condition": (
        lambda spark, root, source: dbio.merge(
            spark, root, source, ["id"], [dbio.when_matched("source.id IN (SELECT 1)").delete()]
        ),
        InvalidInputError,
        "reads other tables",
    ),
    "a column that is not there": (
        lambda spark, root, source: dbio.merge(spark, root, source, ["nope"]),
        InvalidInputError,
        "the table has no column 'nope'",
    ),
    "a source without all columns": (
        lambda spark, root, source: dbio.merge(spark, root, source.drop("day"), ["id"]),
        SchemaMismatchError,
        "the source has no column 'day'",
    ),
    "a clause that never applies": (
        lambda spark, root, source: dbio.merge(
            spark, root, source, ["id"], [dbio.when_matched().delete(), dbio.when_matched("true").update()]
        ),
        InvalidInputError,
        "can never apply",
    ),
    "no clauses": (
        lambda spark, root, source: dbio.merge(spark, root, source, ["id"], []),
        InvalidInputError,
        "clauses",
    ),
    "half a clause": (
        lambda spark, root, source: dbio.merge(spark, root, source, ["id"], [dbio.when_matched()]),  # type: ignore[list-item]
        InvalidInputError,
        "clauses",
    ),
    "a condition on the other side": (
        lambda spark, root, source: dbio.merge(
            spark, root, source, ["id"], [dbio.when_not_matched("target.id > 1").insert()]
        ),
        Exception,
        "target",
    ),
    "a name that both sides have": (
        lambda spark, root, source: dbio.merge(spark, root, source, ["id"], [dbio.when_matched("id > 1").delete()]),
        Exception,
        "AMBIGUOUS",
    ),
    "a column in the place of a condition": (
        lambda spark, root, source: dbio.merge(spark, root, source, "id"),
        InvalidInputError,
        r"give \['id'\]",
    ),
    "an aggregate for a value": (
        lambda spark, root, source: dbio.update(spark, root, {"id": "max(id)"}),
        InvalidInputError,
        "does not depend on one row",
    ),
    "a window for a value": (
        lambda spark, root, source: dbio.update(spark, root, {"id": "count(*) OVER ()"}),
        InvalidInputError,
        "does not depend on one row",
    ),
    "chance that must be fitted": (
        lambda spark, root, source: dbio.update(spark, root, {"id": "rand()"}),
        InvalidInputError,
        "is not deterministic",
    ),
    "a value of another type": (
        lambda spark, root, source: dbio.update(spark, root, {"id": "day"}),
        SchemaMismatchError,
        "has the type bigint, which cannot take 'day' of the type string",
    ),
    "a value for no column": (
        lambda spark, root, source: dbio.update(spark, root, {"nope": "1"}),
        InvalidInputError,
        "no column 'nope'; it has id, day",
    ),
    "a value that the column does not have": (
        lambda spark, root, source: dbio.update(spark, root, {"id": 1.5}),
        InvalidInputError,
        "the value 1.5 of column 'id' does not fit it",
    ),
    "a column for a value": (
        lambda spark, root, source: dbio.update(spark, root, {"id": f.rand()}),
        InvalidInputError,
        "does not fit it",
    ),
    "a column for a value of a clause": (
        lambda spark, root, source: dbio.merge(
            spark,
            root,
            source,
            ["id"],
            [dbio.when_matched().update({"day": f.lit("x")})],
        ),
        InvalidInputError,
        "does not fit it",
    ),
    "no values": (
        lambda spark, root, source: dbio.update(spark, root, {}),
        InvalidInputError,
        "gives no column a value",
    ),
    "a column that the table lacks": (
        lambda spark, root, source: dbio.merge(spark, root, source.withColumn("op", f.lit("d")), ["id"]),
        SchemaMismatchError,
        "the source has the column 'op', which",
    ),
    "a path for a source": (
        lambda spark, root, source: dbio.merge(spark, root, root, ["id"]),  # type: ignore[arg-type]
        InvalidInputError,
        "takes a Spark DataFrame",
    ),
    "an isolation that nobody knows": (
        lambda spark, root, source: dbio.delete(spark, root, "true", isolation="snapshot"),  # type: ignore[arg-type]
        InvalidInputError,
        "none of write_serializable, serializable",
    ),
    "retries of what cannot come true": (
        lambda spark, root, source: dbio.delete(spark, root, "true", if_match="", retries=1),
        InvalidInputError,
        "do not go together",
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_and_leaves_nothing(spark: "SparkSession", root: str, wrong: Any) -> None:
    act, error, match = wrong
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    before = data_files(root)
    with pytest.raises(error, match=match):
        act(spark, root, numbers(spark, 5, 15))
    assert len(dbio.Table(root).history()) == 1
    assert data_files(root) == before
    assert not dbio.Table(root).check().pending


def test_where_there_is_no_table_there_is_nothing_to_change(spark: "SparkSession", root: str) -> None:
    with pytest.raises(TableNotFoundError):
        dbio.merge(spark, root, numbers(spark, 0, 1), ["id"])
    with pytest.raises(TableNotFoundError):
        dbio.update(spark, root, {"id": "1"})


# --- beside others ----------------------------------------------------------------------------------------------------


@contextmanager
def beside(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> Iterator[None]:
    """Acts between what a rewrite has read and its commit, once for each rewrite."""
    waiting, is_acting = [*acts], False

    def late(*args: Any, **options: Any) -> Any:
        nonlocal is_acting
        if waiting and not is_acting:
            is_acting = True
            waiting.pop(0)()
            is_acting = False
        return commit_files(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr("dbio_commit.spark.write.run.commit_files", late)
        yield
    assert not waiting


INSERT = [dbio.when_not_matched().insert()]


def test_two_upserts_of_the_same_new_row_do_not_insert_it_twice(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 4), root)

    def upsert(**options: Any) -> dbio.Commit:
        return dbio.merge(spark, root, numbers(spark, 9, 10), ["id"], **options)

    for act in (upsert, lambda: dbio.write(numbers(spark, 9, 10), root, "overwrite")):
        with beside(monkeypatch, act), pytest.raises(CommitConflictError, match="might have changed their rows"):
            upsert()
        assert ids(dbio.read(spark, root)).count(9) == 1
        dbio.delete(spark, root, "id = 9")
        dbio.write(numbers(spark, 1, 3), root)
    with beside(monkeypatch, upsert):
        assert upsert(retries=2, when=INSERT).metrics["numTargetRowsInserted"] == 0
    assert ids(dbio.read(spark, root)).count(9) == 1


def test_other_rows_of_other_rewrites_are_no_conflict(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 10):
        dbio.write(numbers(spark, start, start + 10, tasks=1), root)
    with beside(monkeypatch, lambda: dbio.update(spark, root, {"day": "'x'"}, "id = 15")):
        dbio.merge(spark, root, numbers(spark, 3, 5), ["id"])
    with beside(monkeypatch, lambda: dbio.update(spark, root, {"day": "'y'"}, "id = 15")):
        dbio.delete(spark, root, "id = 5")
    with beside(monkeypatch, lambda: dbio.delete(spark, root, "id = 16")), pytest.raises(CommitConflictError):
        dbio.update(spark, root, {"day": "'z'"}, "id >= 17")
    assert ids(dbio.read(spark, root)) == [*range(5), *range(6, 16), *range(17, 20)]


def test_rows_that_are_appended_meanwhile_are_a_conflict_where_all_must_come_one_after_the_other(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 10), root)

    def append(start: int) -> Callable[[], object]:
        return lambda: dbio.write(numbers(spark, start, start + 1), root)

    with beside(monkeypatch, append(3)):
        dbio.delete(spark, root, "id = 3")
    assert ids(dbio.read(spark, root)) == [*range(10)]
    with beside(monkeypatch, append(30)):  # where the statistics say that it fulfils no such condition
        dbio.delete(spark, root, "id = 3", isolation="serializable")
    with beside(monkeypatch, append(4)), pytest.raises(CommitConflictError, match="might have changed their rows"):
        dbio.delete(spark, root, "id = 4", isolation="serializable")
    with beside(monkeypatch, append(5), append(5)):
        commit = dbio.delete(spark, root, "id = 5", isolation="serializable", retries=2)
    assert commit.metrics["numDeletedRows"] == 3
    assert ids(dbio.read(spark, root)) == [0, 1, 2, 4, 4, 6, 7, 8, 9, 30]
    data = numbers(spark, 4, 5)
    with beside(monkeypatch, append(4)), pytest.raises(CommitConflictError):
        dbio.write(data, root, "overwrite", replace_where="id = 4", isolation="serializable")


@pytest.mark.long
def test_a_compaction_brings_no_rows_but_those_that_were_appended_before_it(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 2, 4, 6):
        dbio.write(numbers(spark, start, start + 2, tasks=1), root, partition_by=["day"])

    def compact() -> None:
        dbio.Table(root).compact(where="day = 'd1'")

    def append_and_compact() -> None:
        for _ in range(2):
            dbio.write(numbers(spark, 9, 10), root)
        compact()

    with beside(monkeypatch, compact):
        dbio.delete(spark, root, "id = 4", isolation="serializable")
    with beside(monkeypatch, append_and_compact):
        dbio.merge(spark, root, numbers(spark, 8, 9), ["id"])
    with beside(monkeypatch, append_and_compact), pytest.raises(CommitConflictError):
        dbio.update(spark, root, {"id": "8"}, "id >= 8 AND id < 100", isolation="serializable")


@pytest.mark.long
def test_the_last_conflict_is_told_when_the_retries_are_over(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)

    def other() -> None:
        dbio.update(spark, root, {"day": "'x'"}, "id = 1")

    with beside(monkeypatch, other, other), pytest.raises(CommitConflictError, match="not live any more"):
        dbio.delete(spark, root, "id = 2", retries=1)
    assert ids(dbio.read(spark, root)) == [*range(10)]


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_that_its_column_cannot_hold_is_not_inserted_as_another_one(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.sql("SELECT 2 AS id, DATE '2026-01-01' AS day, 'a' AS v"), root)
    halves = spark.sql("SELECT 2.5D AS id, DATE '2026-01-02' AS day, 'half' AS v")
    noon = spark.sql("SELECT 3 AS id, TIMESTAMP '2026-01-01 12:00:00' AS day, 'noon' AS v")
    for source, on in ((halves, ["id"]), (halves, "target.id = source.id"), (noon, ["day"])):
        with pytest.raises(InvalidInputError, match=r"1 rows get values that their columns \((id|day)\) cannot hold"):
            dbio.merge(spark, root, source, on)
    assert dbio.merge(spark, root, spark.sql("SELECT 2.0D AS id, current_date() AS day, 'b' AS v"), ["id"]).added
    assert [(row.id, row.v) for row in dbio.read(spark, root).collect()] == [(2, "b")]


@pytest.mark.parametrize(
    ("kind", "other"),
    [("bigint", "double"), ("int", "string"), ("string", "int"), ("decimal(20,2)", "double"), ("int", "float"),
     ("decimal(38,0)", "decimal(38,20)"), ("date", "string"), ("boolean", "string")],
)  # fmt: skip
def test_keys_that_a_cast_would_make_others_of_do_not_match(
    spark: "SparkSession", root: str, kind: str, other: str
) -> None:
    dbio.write(spark.sql(f"SELECT CAST(NULL AS {kind}) AS k, 1 AS n"), root)
    source = spark.sql(f"SELECT CAST(NULL AS {other}) AS k, 2 AS n")
    with pytest.raises(SchemaMismatchError, match="by a cast that takes different keys for equal ones"):
        dbio.merge(spark, root, source, ["k"], [dbio.when_matched().delete()])
    assert len(dbio.Table(root).history()) == 1


def test_a_merge_with_an_empty_source_starts_one_job_and_commits_nothing(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    last = dbio.Table(root).history()[0].tid
    empty, context = numbers(spark, 0, 0), cast(Any, spark.sparkContext)
    scheduler = context._jsc.sc().dagScheduler()
    for on in (["id"], "target.id = source.id + 1"):
        before = scheduler.numTotalJobs()
        commit = dbio.merge(spark, root, empty, on)
        assert scheduler.numTotalJobs() - before == 1
        assert (commit.skipped, commit.tid, commit.metrics["numTargetRowsInserted"]) == (True, last, 0)
    assert len(dbio.Table(root).history()) == 1
    assert not dbio.merge(spark, root, empty, ["id"], app=("upserts", 1)).skipped
    assert dbio.merge(spark, root, empty, ["id"], app=("upserts", 1)).skipped
    gone = dbio.merge(spark, root, empty, ["id"], [dbio.when_not_matched_by_source("target.id > 4").delete()])
    assert gone.metrics["numTargetRowsDeleted"] == 5


def test_a_merge_with_an_empty_source_asks_what_was_committed_since(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    first, empty = dbio.Table(root).snapshot().etag, numbers(spark, 0, 0)
    assert dbio.merge(spark, root, empty, ["id"], if_match=first).skipped
    dbio.write(numbers(spark, 10, 20, tasks=1), root)
    with pytest.raises(CommitConflictError, match="the state that this write is based on"):
        dbio.merge(spark, root, empty, ["id"], if_match=first)
    assert dbio.merge(spark, root, empty, ["id"], if_match=dbio.Table(root).snapshot().etag).skipped
    assert len(dbio.Table(root).history()) == 2


def test_names_of_columns_have_no_case_whatever_the_session_says(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.sql("SELECT 1 AS Id, 'a' AS Name"), root)
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        dbio.merge(spark, root, spark.sql("SELECT 1 AS ID, 'b' AS NAME"), ["id"])
        dbio.update(spark, root, {"NAME": "concat(Name, 'c')"}, "Id = 1")
        dbio.constrain(spark, root, {"check.positive": "id > 0", "default.NAME": "'e'"})
        dbio.write(spark.sql("SELECT 2 AS iD, 'd' AS namE"), root)
        dbio.write(spark.sql("SELECT 3 AS iD"), root)
        with pytest.raises(InvalidInputError, match=r"check\.positive"):
            dbio.update(spark, root, {"ID": "Id - 1"})
        assert sorted(map(tuple, dbio.read(spark, root).collect())) == [(1, "bc"), (2, "d"), (3, "e")]


@pytest.mark.parametrize("takes_index", [True, False])
def test_columns_of_files_have_no_case_whatever_the_session_says(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch, takes_index: bool
) -> None:
    dbio.write(numbers(spark, 0, 4, tasks=1), root)
    (path,) = live(root)
    file = Path(root) / path
    file.write_bytes(file.read_bytes().replace(b"day", b"DaY"))
    if not takes_index:
        for module in ("scan", "file_index"):
            monkeypatch.setattr(f"dbio_commit.spark.read.{module}.takes_index", lambda spark: False)
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        assert dbio.read(spark, root, where="day IS NULL").count() == 0
        assert dbio.delete(spark, root, "day IS NULL").metrics["numDeletedRows"] == 0
        dbio.update(spark, root, {"id": "id + 10"}, "day = 'd1'")
        assert {row.day for row in dbio.read(spark, root).collect()} == {"d0", "d1"}
    assert ids(dbio.read(spark, root)) == [0, 2, 11, 13]
