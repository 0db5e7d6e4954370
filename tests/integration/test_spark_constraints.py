"""Constraints, generated columns and defaults: every way to write keeps them, and says which row does not.

What files' statistics prove is in tests/unit/data/conditions/test_proof.py. Rules: PROTOCOL.md 9.8.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from tests.spark_tables import SPARK_ERRORS, objects
from tests.streams import ALL, Files, finish, needs_sink, sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RULES = {
    "not_null.id": "true",
    "check.positive": "n > 0",
    "check.kinds": "kind IN ('click', 'view')",
    "generated.day": "CAST(ts AS DATE)",
    "default.kind": "'click'",
}


def events(spark: "SparkSession", *rows: tuple[Any, ...], columns: str = "id, n, kind, ts") -> "DataFrame":
    """Their columns as texts, which are cast to what the table has."""
    names = columns.split(", ")
    kinds = {"id": "bigint", "n": "int", "kind": "string", "ts": "timestamp", "day": "date"}
    frame = spark.createDataFrame([tuple(None if it is None else str(it) for it in row) for row in rows],
                                  ", ".join(f"{name} string" for name in names))  # fmt: skip
    return frame.selectExpr(*(f"CAST({name} AS {kinds[name]}) AS {name}" for name in names))


@pytest.fixture(scope="module")
def made(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with one good row, and RULES."""
    path = f"{tmp_path_factory.mktemp('made')}/events"
    first = events(spark, (1, 1, "view", "2026-11-20 10:00:00", "2026-11-20"), columns="id, n, kind, ts, day")
    dbio.write(first, path, partition_by="day")
    dbio.constrain(spark, path, RULES)
    return path


@pytest.fixture
def path(made: str, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copytree(made, tmp_path / "events"))


def ids(spark: "SparkSession", path: str) -> list[int]:
    return sorted(row.id for row in dbio.read(spark, path).collect())


def only(spark: "SparkSession", path: str, id: int) -> Any:
    found = dbio.read(spark, path).where(f"id = {id}").collect()
    assert len(found) == 1
    return found[0]


BAD: list[tuple[tuple[Any, ...], str]] = [
    ((None, 1, "click", "2026-11-21 10:00:00"), "1 row violates not_null.id of .*such as id=null"),
    ((2, 0, "click", "2026-11-21 10:00:00"), r"1 row violates check\.positive \(n > 0\) of .*such as n=0"),
    ((2, None, "click", "2026-11-21 10:00:00"), r"1 row violates check\.positive \(n > 0\) of .*such as n=null"),
    ((2, 1, "scroll", "2026-11-21 10:00:00"), r"1 row violates check.kinds \(kind IN .*such as kind='scroll'"),
]


@pytest.mark.parametrize(
    ("mode", "row", "message"),
    [*(("append", *bad) for bad in BAD), ("overwrite", *BAD[1]), ("overwrite_partitions", *BAD[3])],
)
def test_a_write_with_a_row_that_violates_a_constraint_writes_nothing(
    spark: "SparkSession", path: str, mode: Any, row: tuple[Any, ...], message: str
) -> None:
    before = objects(path)
    good = (7, 7, "view", "2026-11-21 10:00:00")
    with pytest.raises(InvalidInputError, match=message):
        dbio.write(events(spark, good, row), path, mode=mode)
    assert ids(spark, path) == [1]
    assert {it for it in objects(path) if it.endswith(".parquet")} <= {*before}


def test_all_rows_that_violate_a_constraint_are_counted_whichever_task_has_them(
    spark: "SparkSession", path: str
) -> None:
    frame = spark.range(-3, 5, numPartitions=4).selectExpr(
        "id", "int(id) n", "'view' kind", "timestamp'2026-11-21 10:00:00' ts"
    )
    with pytest.raises(InvalidInputError, match=r"4 rows violate check\.positive \(n > 0\) of .*nothing was committed"):
        dbio.write(frame, path)


def test_columns_that_the_data_lacks_are_generated_or_have_their_defaults(spark: "SparkSession", path: str) -> None:
    dbio.write(events(spark, (2, 2, "2026-11-21 10:00:00"), columns="id, n, ts"), path)
    row = only(spark, path, 2)
    assert (row.kind, str(row.day)) == ("click", "2026-11-21")
    assert any(name.startswith("day=2026-11-21/") for name in objects(path))


def test_a_generated_column_that_is_given_must_be_what_it_would_be(spark: "SparkSession", path: str) -> None:
    columns = "id, n, kind, ts, day"
    dbio.write(events(spark, (2, 2, "view", "2026-11-21 10:00:00", "2026-11-21"), columns=columns), path)
    with pytest.raises(InvalidInputError, match=r"1 row violates generated\.day \(CAST\(ts AS DATE\)\).*day=2026"):
        dbio.write(events(spark, (3, 3, "view", "2026-11-21 10:00:00", "2026-11-22"), columns=columns), path)
    assert ids(spark, path) == [1, 2]


def test_a_null_that_is_given_is_no_column_that_is_lacking(spark: "SparkSession", path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"check\.kinds"):
        dbio.write(events(spark, (2, 2, None, "2026-11-21 10:00:00")), path)


def test_an_overwrite_keeps_the_constraints_and_needs_their_columns(spark: "SparkSession", path: str) -> None:
    fewer = events(spark, (5, 5, "2026-11-21 10:00:00"), columns="id, n, ts")
    dbio.write(fewer, path, mode="overwrite")
    assert (only(spark, path, 5).kind, dbio.Table(path).settings()) == ("click", RULES)
    with pytest.raises(InvalidInputError, match=r"not_null\.id, .* no such column.*`dbio set .* not_null\.id="):
        dbio.write(fewer.withColumnRenamed("id", "key"), path, mode="overwrite")
    with pytest.raises(
        InvalidInputError,
        match=r"the setting check\.positive='n > 0' cannot be evaluated.*'n', .* is no column",
    ):
        dbio.write(fewer.withColumnRenamed("n", "m"), path, mode="overwrite")
    assert ids(spark, path) == [5]


def test_data_of_narrower_types_is_checked_as_what_the_table_has(spark: "SparkSession", path: str) -> None:
    dbio.constrain(spark, path, {"check.doubled": "id * 2000000000 >= 0"})  # too large for an int
    frame = events(spark, (3, 3, "view", "2026-11-21 10:00:00")).selectExpr("int(id) id", "tinyint(n) n", "kind", "ts")
    dbio.write(frame, path)
    assert ids(spark, path) == [1, 3]


def test_an_update_computes_what_is_generated_and_checks_the_rows_that_it_changes(
    spark: "SparkSession", path: str
) -> None:
    dbio.update(spark, path, {"ts": "ts + INTERVAL 2 DAYS"}, "id = 1")
    assert str(only(spark, path, 1).day) == "2026-11-22"
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.positive"):
        dbio.update(spark, path, {"n": "n - 1"}, "id = 1")
    with pytest.raises(InvalidInputError, match=r"1 row violates generated\.day"):
        dbio.update(spark, path, {"day": "day + INTERVAL 1 DAY"}, "id = 1")


@pytest.mark.long
def test_rows_that_a_rewrite_only_copies_are_not_checked(spark: "SparkSession", path: str) -> None:
    table = dbio.Table(path)
    dbio.write(events(spark, (2, 2, "view", "2026-11-20 10:00:00")).coalesce(1), path)
    dbio.write(events(spark, (3, 3, "view", "2026-11-20 10:00:00")).coalesce(1), path)
    dbio.compact(spark, path)
    table.set({"check.many": "n > 1"})  # which nobody looks for in the rows that are there
    dbio.delete(spark, path, "id = 3")
    dbio.update(spark, path, {"n": "n + 5"}, "id = 2")
    assert ids(spark, path) == [1, 2]
    with pytest.raises(InvalidInputError, match="1 row violates"):
        dbio.update(spark, path, {"kind": "'click'"}, "id = 1")


def test_a_merge_fills_in_and_checks_what_it_inserts_and_updates(spark: "SparkSession", path: str) -> None:
    source = events(spark, (1, 5, "2026-11-25 10:00:00"), (2, 6, "2026-11-26 10:00:00"), columns="id, n, ts")
    clauses = [
        dbio.when_matched().update({"n": "source.n", "ts": "source.ts"}),
        dbio.when_not_matched().insert({"id": "source.id", "n": "source.n", "ts": "source.ts"}),
    ]
    dbio.merge(spark, path, source, ["id"], clauses)
    old, new = only(spark, path, 1), only(spark, path, 2)
    assert (old.n, old.kind, str(old.day)) == (5, "view", "2026-11-25")
    assert (new.n, new.kind, str(new.day)) == (6, "click", "2026-11-26")
    dbio.merge(spark, path, source.selectExpr("id + 5 AS id", "n", "ts"), ["id"], [dbio.when_not_matched().insert()])
    assert only(spark, path, 7).kind == "click"
    for values, setting in (({"n": "-1"}, "check.positive"), ({"day": "DATE'2020-01-01'"}, "generated.day")):
        with pytest.raises(InvalidInputError, match=f"2 rows violate {setting}"):
            dbio.merge(spark, path, source, ["id"], [dbio.when_matched().update(values)])


@pytest.mark.parametrize("by_sql", [False, True])
def test_a_generated_column_that_all_clauses_of_a_merge_give_must_be_what_it_would_be(
    spark: "SparkSession", path: str, by_sql: bool
) -> None:
    dbio.enable(spark)
    columns = "id, n, kind, ts, day"
    good = events(spark, (1, 5, "click", "2026-11-25 10:00:00", "2026-11-25"), columns=columns)

    def merge(source: "DataFrame") -> None:
        if not by_sql:
            dbio.merge(spark, path, source, ["id"])
            return
        source.createOrReplaceTempView("given")
        spark.sql(
            f"MERGE INTO dbio.`{path}` t USING given s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    merge(good)
    assert str(only(spark, path, 1).day) == "2026-11-25"
    for other in (1, 2):
        with pytest.raises(InvalidInputError, match=r"1 row violates generated\.day"):
            merge(good.selectExpr(f"bigint({other}) AS id", "n", "kind", "ts", "DATE'2020-01-01' AS day"))


def test_data_that_replaces_rows_by_a_condition_is_filled_in_before_it_is_asked(
    spark: "SparkSession", path: str
) -> None:
    good = events(spark, (9, 9, "2026-11-20 12:00:00"), columns="id, n, ts")
    dbio.write(good, path, mode="overwrite", replace_where="day = DATE'2026-11-20'")
    assert ids(spark, path) == [9]
    with pytest.raises(InvalidInputError, match=r"check\.positive"):
        dbio.write(good.selectExpr("id", "-n AS n", "ts"), path, mode="overwrite", replace_where="id = 9")


def test_a_filter_on_what_a_partition_is_generated_from_leaves_out_partitions(spark: "SparkSession", path: str) -> None:
    for day in (21, 22, 23):
        dbio.write(events(spark, (day, 1, f"2026-11-{day} 10:00:00"), columns="id, n, ts"), path)
    kept = dbio.Table(path).snapshot().where("ts >= '2026-11-22 00:00:00'", time_zone="UTC").files
    assert {str(file.partition["day"]) for file in kept} == {"2026-11-22", "2026-11-23"}


# --- how they are set ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"check.bad": "nope > 1"},
            r"check\.bad='nope > 1' cannot be evaluated .*'nope'.* is no column.*dbio set .* check\.bad=",
        ),
        ({"check.bad": "n >"}, r"check\.bad"),
        ({"check.bad": "n"}, r"check\.bad"),
        ({"check.bad": "uuid() > '5'"}, "is not deterministic"),
        ({"check.bad": "n IN (SELECT 1)"}, "'select', at character 7, is not expected there"),
        ({"check.bad": "sum(n) > 0"}, r"check\.bad"),
        ({"generated.n": "current_date()"}, r"generated\.n"),
        ({"generated.n": "n + 1"}, r"generated\.n.*'n', at character 1, is no column that the expression may use"),
        ({"generated.kind": "array(1)"}, "which cannot take"),
        ({"default.kind": "n"}, r"default\.kind"),
        ({"default.n": "3000000000"}, "column 'n' is int, and cannot hold this value"),
        ({"not_null.nope": "true"}, r"not_null\.nope, and would have no such column"),
        ({"not_null.n": "yes"}, "not_null.n is true, or empty"),
        ({"check.": "true"}, "there is no setting 'check.'"),
        ({"check.one": "n > 1"}, r"1 row violates check\.one \(n > 1\) of .*such as n=1"),
        ({"check.odd": "n % 2 = 0"}, r"1 row violates check\.odd"),
    ],
)
def test_a_constraint_that_cannot_be_or_that_rows_violate_is_not_set(
    spark: "SparkSession", path: str, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        dbio.constrain(spark, path, changes)
    assert dbio.Table(path).settings() == RULES


def test_a_constraint_that_statistics_tell_of_all_rows_is_set_without_reading_any(
    spark: "SparkSession", path: str
) -> None:
    for name in objects(path):
        if name.endswith(".parquet"):
            (Path(path) / name).write_bytes(b"broken")
    dbio.constrain(spark, path, {"check.one": "n >= 1 AND n < 2"})
    with pytest.raises(Exception, match=r"(?i)parquet"):
        dbio.constrain(spark, path, {"check.odd": "n % 2 = 1"})


@pytest.mark.long
def test_a_table_that_changes_while_a_constraint_is_set_is_looked_at_again(
    spark: "SparkSession", path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbio_commit.maintenance.settings import change_settings as real

    late = [events(spark, (2, 2, "view", "2026-11-20 11:00:00"))]

    def after_another(*args: Any, **options: Any) -> Any:
        if late:
            dbio.write(late.pop(), path)
        return real(*args, **options)

    monkeypatch.setattr("dbio_commit.spark.write.constraints.change_settings", after_another)
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.one \(n < 2\)"):
        dbio.constrain(spark, path, {"check.one": "n < 2"}, retries=2)
    late.append(events(spark, (3, 3, "view", "2026-11-20 11:00:00")))
    with pytest.raises(CommitConflictError):
        dbio.constrain(spark, path, {"check.few": "n < 100"})


def test_a_commit_under_a_turn_fails_where_the_constraints_changed_since_it_began(
    spark: "SparkSession", path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbio_commit.spark.write.task import commit_files as real

    changes = [{"check.few": "n < 5"}]

    def after_a_change(*args: Any, **options: Any) -> Any:
        if changes:
            dbio.Table(path).set(changes.pop())
        return real(*args, **options)

    monkeypatch.setattr("dbio_commit.spark.write.run.commit_files", after_a_change)
    many = events(spark, (8, 8, "view", "2026-11-20 11:00:00"))
    with pytest.raises(CommitConflictError, match=r"constraints of .* were changed by another commit"):
        dbio.write(many, path, mode="overwrite")
    dbio.Table(path).set({"check.few": ""})
    changes.append({"check.few": "n < 4"})
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.few \(n < 4\)"):
        dbio.write(many, path, mode="overwrite", retries=1)


# --- other ways to write ------------------------------------------------------------------------------------------


def by_source(frame: "DataFrame", path: str) -> None:
    frame.write.format("dbio").mode("append").save(path)


@pytest.mark.long
def test_the_data_source_goes_by_statistics_and_refuses_what_they_never_tell(spark: "SparkSession", path: str) -> None:
    dbio.enable(spark)
    full = events(spark, (2, 2, "view", "2026-11-20 11:00:00", "2026-11-20"), columns="id, n, kind, ts, day")
    with pytest.raises(SPARK_ERRORS, match=r"cannot check whether rows keep generated\.day.*use dbio\.write"):
        by_source(full, path)
    with pytest.raises(SPARK_ERRORS, match=r"lacks the column 'day', which .* fills in"):
        by_source(full.drop("day"), path)
    dbio.Table(path).set({"generated.day": "", "default.kind": ""})
    by_source(full, path)
    assert ids(spark, path) == [1, 2]
    for bad in ("CAST(NULL AS bigint) AS id, n", "id, -n AS n", "id, CAST(NULL AS int) AS n"):
        with pytest.raises(SPARK_ERRORS, match="do not prove that its rows keep"):
            by_source(full.selectExpr(*bad.split(", "), "kind", "ts", "day"), path)
    assert ids(spark, path) == [1, 2]


def test_unchanged_code_is_checked_by_reading_what_it_wrote(enabled: "SparkSession", path: str) -> None:
    dbio.enable(enabled, parquet=True)
    columns = "id, n, kind, ts, day"
    good = events(enabled, (2, 2, "view", "2026-11-20 11:00:00", "2026-11-20"), columns=columns)
    good.write.mode("append").partitionBy("day").parquet(path)
    assert ids(enabled, path) == [1, 2]
    bad = events(enabled, (3, 3, "view", "2026-11-20 11:00:00", "2026-11-21"), columns=columns)
    with pytest.raises(InvalidInputError, match=r"1 row violates generated\.day.*nothing was committed"):
        bad.write.mode("append").partitionBy("day").parquet(path)
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.kinds"):
        good.selectExpr("id", "n", "'scroll' kind", "ts", "day").write.mode("append").partitionBy("day").parquet(path)
    with pytest.raises(SchemaMismatchError, match="lacks the column 'kind'"):
        good.drop("kind").write.mode("append").partitionBy("day").parquet(path)
    assert ids(enabled, path) == [1, 2]


def test_files_that_were_written_without_spark_go_by_their_statistics(spark: "SparkSession", path: str) -> None:
    table = dbio.Table(path)
    table.set({"generated.day": "", "check.kinds": ""})

    def append(**values: Any) -> None:
        with table.begin() as transaction:
            url = transaction.new_file(partition={"day": "2026-11-20"})
            pq.write_table(pa.table({"id": [4], "n": pa.array([4], pa.int32()), **values}), url)

    append()
    assert ids(spark, path) == [1, 4]
    for values in (
        {"n": pa.array([0], pa.int32())},
        {"n": pa.array([None], pa.int32())},
        {"id": pa.nulls(1, pa.int64())},
    ):
        with pytest.raises(InvalidInputError, match="do not prove that its rows keep"):
            append(**values)
    table.set({"check.kinds": "kind IN ('click', 'view')"})
    with pytest.raises(InvalidInputError, match=r"check\.kinds"):
        append()


def test_a_restore_brings_back_rows_whatever_the_constraints_are_now(spark: "SparkSession", path: str) -> None:
    table = dbio.Table(path)
    then = table.snapshot().tid
    dbio.write(events(spark, (5, 5, "view", "2026-11-21 10:00:00")), path, mode="overwrite")
    dbio.constrain(spark, path, {"check.large": "n > 4"})
    table.restore(then)
    assert (ids(spark, path), table.settings()["check.large"]) == ([1], "n > 4")


# --- streams ------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(spark: "SparkSession", tmp_path: Path) -> str:
    path = f"{tmp_path}/counted"
    dbio.write(spark.sql("SELECT 0L AS id, 'd0' AS day, 0L AS twice"), path)
    dbio.constrain(
        spark, path, {"generated.twice": "id * 2", "check.few": "id < 100", "check.days": "day IN ('d0', 'd1')"}
    )
    return path


@needs_sink
def test_a_stream_fills_in_and_checks_each_row(spark: "SparkSession", counted: str, tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    files.add(range(1, 5))

    def run() -> None:
        finish(dbio.write_stream(files.stream(spark), counted, tmp_path / "checkpoint", trigger=ALL))

    run()
    assert {(row.id, row.twice) for row in dbio.read(spark, counted).collect()} == {(i, 2 * i) for i in range(5)}
    files.add([6, 100, 101])
    with pytest.raises(SPARK_ERRORS, match=r"2 rows violate check\.few \(id < 100\).*nothing of this batch"):
        run()
    assert ids(spark, counted) == [*range(5)]
    dbio.Table(counted).set({"check.few": ""})
    run()
    assert ids(spark, counted) == [*range(5), 6, 100, 101]


@pytest.mark.long
@needs_sink
def test_a_stream_whose_rows_nobody_looks_at_is_refused_where_statistics_never_tell(
    spark: "SparkSession", counted: str, tmp_path: Path
) -> None:
    dbio.enable(spark)
    files = Files(tmp_path / "in")
    files.add([1])
    frame = files.stream(spark).selectExpr("*", "id * 2 AS twice")
    with pytest.raises(SPARK_ERRORS, match=r"cannot check whether rows keep generated\.twice"):
        finish(sink(frame, counted, tmp_path / "checkpoint").trigger(**ALL).start())
    assert ids(spark, counted) == [0]


@needs_sink
def test_a_stream_ends_where_the_constraints_change_under_it(
    spark: "SparkSession", counted: str, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    files.add([1])
    query = dbio.write_stream(files.stream(spark), counted, tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        dbio.Table(counted).set({"check.few": "id < 5"})
        files.add([2])
        with pytest.raises(SPARK_ERRORS, match=r"constraints of .* have changed since this query started"):
            query.processAllAvailable()
    finally:
        query.stop()
    finish(dbio.write_stream(files.stream(spark), counted, tmp_path / "checkpoint", trigger=ALL))
    assert ids(spark, counted) == [0, 1, 2]


def test_batches_of_a_stream_are_checked_as_writes_are(spark: "SparkSession", path: str) -> None:
    write = dbio.batch_writer(path, "stream")
    write(events(spark, (2, 2, "2026-11-21 10:00:00"), columns="id, n, ts"), 0)
    with pytest.raises(InvalidInputError, match=r"check\.positive"):
        write(events(spark, (3, 0, "2026-11-21 10:00:00"), columns="id, n, ts"), 1)
    assert ids(spark, path) == [1, 2]


# --- what looked right and was not --------------------------------------------------------------------------------


@pytest.mark.long
def test_what_lies_inside_of_other_values_is_asked_as_the_table_has_it(spark: "SparkSession", tmp_path: Path) -> None:
    path = f"{tmp_path}/nested"
    dbio.write(spark.sql("SELECT 1L AS id, named_struct('a', 1.5D, 'b', 1L) AS s, '1.5' AS told"), path)
    dbio.constrain(spark, path, {"generated.told": "string(s.a)", "check.b": "s.b * 2 > 0"})
    dbio.write(spark.sql("SELECT 2L AS id, named_struct('b', 2000000000, 'a', float(0.1)) AS s"), path)
    assert only(spark, path, 2).told == "0.10000000149011612"
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.b"):
        dbio.write(spark.sql("SELECT 3L AS id, named_struct('a', 1.0D) AS s"), path, merge_schema=True)
    dbio.write(
        spark.sql("SELECT 4L AS id, named_struct('b', 1S) AS s, CAST(NULL AS string) AS told"), path, merge_schema=True
    )
    assert only(spark, path, 4).s.a is None


def test_a_default_goes_by_no_column_whatever_the_columns_are_called(spark: "SparkSession", tmp_path: Path) -> None:
    path = f"{tmp_path}/named"
    old = "DATE'2000-01-01'"
    dbio.write(spark.sql(f"SELECT 1 AS id, {old} AS current_date, {old} AS d"), path)
    dbio.constrain(spark, path, {"default.d": "current_date"})
    dbio.write(spark.sql(f"SELECT 2 AS id, {old} AS current_date"), path)
    source = spark.sql(f"SELECT 3 AS id, {old} AS current_date")
    dbio.merge(spark, path, source, ["id"], [dbio.when_not_matched().insert()])
    assert [only(spark, path, id).d.year >= 2026 for id in (2, 3)] == [True, True]
    for sql in ("(SELECT 1)", "_dbio_action", "id"):
        with pytest.raises(InvalidInputError, match=r"default\.id"):
            dbio.constrain(spark, path, {"default.id": sql})


def test_a_generated_column_may_be_named_as_the_one_to_partition_by(spark: "SparkSession", path: str) -> None:
    rows = events(spark, (2, 2, "2026-11-21 10:00:00"), columns="id, n, ts")
    dbio.write(rows, path, partition_by="day")
    assert str(only(spark, path, 2).day) == "2026-11-21"


def test_a_row_that_python_cannot_hold_is_shown_nevertheless(spark: "SparkSession", tmp_path: Path) -> None:
    path = f"{tmp_path}/late"
    dbio.write(spark.sql("SELECT 1 AS id, DATE'2026-01-01' AS d"), path)
    dbio.constrain(spark, path, {"check.d": "d < DATE'3000-01-01'"})
    late = spark.sql("SELECT 2 AS id, date_add(DATE'9999-01-01', 1000000) AS d")
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.d \(d < DATE'3000-01-01'\)"):
        dbio.write(late, path)
    dbio.Table(path).set({"check.d": ""})
    dbio.write(late, path)
    with pytest.raises(InvalidInputError, match=r"1 row violates check\.d .*such as d=\+12736-"):
        dbio.constrain(spark, path, {"check.d": "d < DATE'3000-01-01'"})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("generated.m", r"generated\.m=.* cannot be evaluated.*map"),
        ("check.a", r"check\.a='id \+ nope > 1' .*: \S.*\. Nothing"),
    ],
)
def test_what_cannot_be_asked_says_why(spark: "SparkSession", tmp_path: Path, setting: str, message: str) -> None:
    path = f"{tmp_path}/maps"
    dbio.write(spark.sql("SELECT 'a' AS id, map('a', 'b') AS m"), path)
    with pytest.raises(InvalidInputError, match=f"(?i){message}"):
        dbio.constrain(spark, path, {setting: "map('a', id)" if setting == "generated.m" else "id + nope > 1"})


def test_a_name_of_ours_is_refused_where_rows_are_checked(spark: "SparkSession", tmp_path: Path) -> None:
    path = f"{tmp_path}/ours"
    dbio.write(spark.sql("SELECT 1 AS id, 2 AS _DBIO_action"), path)
    dbio.Table(path).set({"check.id": "id > 0"})
    with pytest.raises(InvalidInputError, match="_DBIO_action"):
        dbio.write(spark.sql("SELECT 1 AS id, 2 AS _DBIO_action"), path)
    with pytest.raises(InvalidInputError, match="_DBIO_action"):
        dbio.constrain(spark, path, {"check.other": "id % 2 = 1"})


@pytest.mark.long
@needs_sink
def test_a_stream_ends_where_the_columns_are_widened_under_it(
    spark: "SparkSession", counted: str, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    files.add([1])
    dbio.write(spark.sql("SELECT 0 AS id, 'd0' AS day, 0 AS twice"), counted, mode="overwrite")
    query = dbio.write_stream(files.stream(spark).selectExpr("int(id) AS id", "day"), counted, tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        wider = spark.sql("SELECT 5L AS id, 'd0' AS day, 10L AS twice")
        dbio.write(wider, counted, merge_schema=True)
        files.add([2])
        with pytest.raises(SPARK_ERRORS, match="types of its columns, have changed since this query"):
            query.processAllAvailable()
    finally:
        query.stop()
