"""Writes that read the table that they change, while another writer commits: forms of writes, and kinds of commits.

The other writer commits in this process when the write is about to commit, and so has read all that it reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.commit.transaction import Transaction
from dbio_commit.spark.write.plan import WritePlan
from tests.spark_tables import configured

Write = Callable[[SparkSession, str, str], object]
"""Writes into a table, given by its name in SQL and by its path."""

COLUMNS = "id, 1 * n AS n, day"
OTHERS: Mapping[str, Callable[[str], object]] = {
    "delete": lambda path: dbio.Table(path).delete("id = 3"),  # of a file of its own, which is only removed
    "update": lambda path: dbio.Table(path).update({"n": "n + 100"}, "id = 3"),
    "append": lambda path: dbio.Table(path).write(table_of([9], "b")),
    "overwrite": lambda path: dbio.Table(path).write(table_of([9], "b"), "overwrite"),
    "compaction": lambda path: dbio.Table(path).compact(where="day = 'b'"),
}


def sql(statement: str, **settings: str) -> Write:
    def write(spark: SparkSession, name: str, path: str) -> None:
        with configured(spark, {setting.replace("_", "."): text for setting, text in settings.items()}):
            spark.sql(statement.format(t=name, path=path, columns=COLUMNS))

    return write


def frames(run: Callable[[DataFrame, str, str], object]) -> Write:
    """With rows of the table as of now, read by its path."""

    def write(spark: SparkSession, name: str, path: str) -> None:
        run(dbio.read(spark, path, where="id < 9").where("id > 0").selectExpr(*COLUMNS.split(", ")), name, path)

    return write


def named(run: Callable[[DataFrame, str, str], object]) -> Write:
    """With rows of the table, read by its name."""
    return lambda spark, name, path: run(spark.table(name).selectExpr(*COLUMNS.split(", ")), name, path)


def viewed(statement: str) -> Write:
    """With a view `own_frame` of rows of the table, read by its path."""

    def run(df: DataFrame, name: str, path: str) -> None:
        df.createOrReplaceTempView("own_frame")
        df.sparkSession.sql(statement.format(t=name))

    return frames(run)


REPLACES: Mapping[str, Write] = {
    "create or replace": sql("CREATE OR REPLACE TABLE {t} PARTITIONED BY (day) AS SELECT {columns} FROM {t}"),
    "replace, by path": sql("REPLACE TABLE {t} PARTITIONED BY (day) AS SELECT {columns} FROM dbio.`{path}`"),
    "replace, in a subquery": sql(
        "CREATE OR REPLACE TABLE {t} PARTITIONED BY (day) AS WITH m AS (SELECT max(n) AS n FROM {t}) "
        "SELECT 1L AS id, CAST((SELECT n FROM m) AS BIGINT) AS n, 'a' AS day"
    ),
    "overwrite": sql("INSERT OVERWRITE {t} SELECT {columns} FROM {t}"),
    "overwrite, a view": sql("INSERT OVERWRITE {t} SELECT * FROM own_rows"),
    "overwrite, a view of a frame": viewed(
        "INSERT OVERWRITE {t} SELECT a.* FROM own_frame a JOIN own_frame USING (id)"
    ),
    "overwrite, dynamic": sql(
        "INSERT OVERWRITE {t} SELECT {columns} FROM {t} WHERE day = 'a'",
        spark_sql_sources_partitionOverwriteMode="dynamic",
    ),
    "createOrReplace": named(lambda df, name, path: df.writeTo(name).partitionedBy(f.col("day")).createOrReplace()),
    "replace": frames(lambda df, name, path: df.writeTo(name).partitionedBy(f.col("day")).replace()),
    "overwritePartitions": named(lambda df, name, path: df.writeTo(name).overwritePartitions()),
    "saveAsTable": frames(
        lambda df, name, path: df.write.mode("overwrite").partitionBy("day").format("dbio").saveAsTable(name)
    ),
    "insertInto": named(lambda df, name, path: df.write.insertInto(name, overwrite=True)),
    "dbio.write": frames(lambda df, name, path: dbio.write(df, path, "overwrite", retries=3)),
    "dbio.write, by name": named(lambda df, name, path: dbio.write(df, path, "overwrite")),
    "dbio.write, joined": frames(lambda df, name, path: dbio.write(df.join(df, ["id", "n", "day"]), path, "overwrite")),
    "dbio.write, partitions": frames(lambda df, name, path: dbio.write(df, path, "overwrite_partitions")),
}
"""They commit only if nothing at all was committed meanwhile."""

REWRITES: Mapping[str, Write] = {
    "overwrite a partition": sql(
        "INSERT OVERWRITE {t} PARTITION (day = 'a') SELECT 1L, CAST(max(n) AS BIGINT) FROM {t}"
    ),
    "replace where": sql("INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1L, CAST(max(n) AS BIGINT), 'a' FROM {t}"),
    "update": sql("UPDATE {t} SET n = (SELECT max(n) FROM dbio.`{path}`) WHERE id = 1"),
    "update, a view of a frame": viewed("UPDATE {t} SET n = (SELECT max(n) FROM own_frame) WHERE id = 1"),
    "delete": sql("DELETE FROM {t} WHERE day = 'a' AND n + 2 = (SELECT max(n) FROM {t})"),
    "merge": sql(
        "MERGE INTO {t} t USING (SELECT 1L AS id, max(n) AS n FROM {t}) s ON t.id = s.id AND t.day = 'a' "
        "WHEN MATCHED THEN UPDATE SET n = s.n",
        spark_dbio_retries="3",
    ),
    "merge, in a clause": sql(
        "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id AND t.day = 'a' "
        "WHEN MATCHED AND t.n < (SELECT max(n) FROM own_rows) THEN UPDATE SET n = 7"
    ),
    "merge, of changes": sql(
        "MERGE INTO {t} t USING (SELECT 1L AS id, max(n) AS n FROM dbio_changes('{t}', '2020-01-01')) s "
        "ON t.id = s.id AND t.day = 'a' WHEN MATCHED THEN UPDATE SET n = s.n"
    ),
    "overwrite a condition": frames(
        lambda df, name, path: df.where("id = 1").writeTo(name).overwrite(f.col("id") == 1)
    ),
    "dbio.write, replace_where": frames(
        lambda df, name, path: dbio.write(df.where("id = 1"), path, "overwrite", replace_where="id = 1")
    ),
    "dbio.merge": frames(
        lambda df, name, path: dbio.merge(
            df.sparkSession,
            path,
            df.selectExpr("1L AS id", "n").agg(f.max("id").alias("id"), f.max("n").alias("n")),
            "source.id = target.id AND target.day = 'a'",
            [dbio.when_matched().update({"n": "source.n"})],
            retries=3,
        )
    ),
}
"""They leave rows as they are that others append meanwhile, and commit beside compactions of other files."""


def table_of(ids: list[int], day: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(ids, pa.int64()), "day": [day] * len(ids)})


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own")
    dbio.enable(spark, roots={"own": path})
    return path


@contextmanager
def beside(act: Callable[[str], object], path: str) -> Iterator[None]:
    """Another writer acts once, before the next commit."""
    inner, waiting = Transaction.commit, [act]

    def commit(transaction: Transaction, *args: Any, **more: Any) -> Any:
        if waiting:
            waiting.pop()(path)
        return inner(transaction, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "commit", commit)
        yield
    assert not waiting, "the write has not come to its commit"


def made(spark: SparkSession, root: Path, name: str) -> tuple[str, str]:
    """A table and its path: a row of the day a, with the id 1, and two of the day b, each row in a file of its own."""
    path = str(root / name)
    for id, day in ((1, "a"), (2, "b"), (3, "b")):
        dbio.Table(path).write(table_of([id], day), partition_by=["day"])
    spark.sql(f"CREATE OR REPLACE TEMP VIEW own_rows AS SELECT {COLUMNS} FROM dbio.`{path}`")
    return f"dbio.own.{name}", path


def outcome(write: Callable[[], object]) -> str:
    """Whether it has committed. A conflict must say what to do."""
    try:
        write()
    except dbio.CommitConflictError as error:
        return "conflict" if "make the DataFrame again" in str(error) else str(error)
    return "committed"


QUICK = (
    *("replace, in a subquery", "overwrite, dynamic", "createOrReplace", "saveAsTable", "dbio.write"),
    *("replace where", "update", "merge", "merge, in a clause", "merge, of changes", "dbio.merge"),
)
"""The forms that take ways of their own through the code."""


@pytest.mark.parametrize(
    ("kind", "forms"),
    [("delete", QUICK), *(pytest.param(it, [*REPLACES, *REWRITES], marks=pytest.mark.long) for it in OTHERS)],
    ids=["quick", *OTHERS],
)
def test_no_write_of_rows_of_its_own_table_undoes_or_overlooks_another_commit(
    spark: SparkSession, root: Path, kind: str, forms: Sequence[str]
) -> None:
    allowed = {"compaction": {*REPLACES, *REWRITES}, "append": {*REWRITES}}.get(kind, set())
    expected = {form: ("committed", 1) if form in allowed else ("conflict", 0) for form in forms}
    found = {}
    for i, form in enumerate(forms):
        name, path = made(spark, root, f"{kind}{len(forms)}_{i}")
        with beside(OTHERS[kind], path):
            ended = outcome(partial({**REPLACES, **REWRITES}[form], spark, name, path))
        found[form] = (ended, len(dbio.Table(path).history()) - 4)
    assert found == expected


def test_rows_of_a_frame_are_those_of_the_state_that_it_was_made_with(spark: SparkSession, root: Path) -> None:
    """What was appended after that is in neither the frame nor the condition: a rewrite of newer rows would lose it."""
    _, path = made(spark, root, "frames")
    seen, frame = dbio.Table(path).snapshot(), dbio.read(spark, path, where="id = 1")
    dbio.Table(path).write(table_of([1], "b"))
    for write in (
        lambda: dbio.write(frame, path, "overwrite", retries=3),
        lambda: dbio.write(frame, path, "overwrite", replace_where="id = 1", retries=3),
        lambda: dbio.merge(spark, path, frame, on=["id", "day"], retries=3),
        lambda: dbio.write(frame.union(dbio.read(spark, path)), path, "overwrite"),
    ):
        assert outcome(write) == "conflict"
    assert len(dbio.Table(path).history()) == 4
    assert not dbio.write(frame, path).skipped  # an append of old rows undoes nothing
    earlier = dbio.read(spark, path, as_of=seen.tid)  # the caller wants these rows, whatever came since
    assert dbio.write(earlier, path, "overwrite").operation == "overwrite"
    spark.sql(f"INSERT OVERWRITE dbio.`{path}` SELECT * FROM dbio.`{path}` VERSION AS OF '{seen.tid}'")
    with pytest.raises(dbio.CommitConflictError, match="if_match"):
        dbio.write(dbio.read(spark, path), path, "overwrite", if_match=seen.etag)


def test_changes_up_to_now_are_a_state_of_the_table_and_changes_until_a_commit_are_not(
    spark: SparkSession, root: Path
) -> None:
    name, path = made(spark, root, "changes")
    until = dbio.Table(path).snapshot().tid
    feeds = [dbio.changes(spark, path, "2020-01-01T00:00Z", end) for end in (None, until)]
    dbio.Table(path).delete("id = 3")
    found = [
        outcome(partial(dbio.merge, spark, path, feed.where("id = 1").select("id", "n", "day"), on=["id", "day"]))
        for feed in feeds
    ]
    assert found == ["conflict", "committed"]
    with beside(OTHERS["delete"], path):
        spark.sql(f"UPDATE {name} SET n = (SELECT max(n) FROM dbio_changes('{name}', '2020-01-01', '{until}'))")


def test_rows_of_a_table_by_its_name_may_be_newer_than_its_frame_so_each_append_is_a_conflict(
    spark: SparkSession, root: Path
) -> None:
    """Since Spark 4.1. Else rows that are appended before Spark reads the table would be there twice."""
    name, path = made(spark, root, "newer")
    frame, inner = spark.table(name).where("day = 'b'"), WritePlan.begin

    def begin(plan: WritePlan, **options: Any) -> Any:
        patch.undo()
        dbio.Table(path).write(table_of([9], "b"))
        return inner(plan, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WritePlan, "begin", begin)
        assert outcome(partial(dbio.write, frame, path, "overwrite", replace_where="day = 'b'")) == "conflict"
    assert sorted(row.id for row in dbio.read(spark, path).collect()) == [1, 2, 3, 9]


def test_an_empty_table_that_gets_rows_meanwhile_is_not_replaced(spark: SparkSession, root: Path) -> None:
    _, path = made(spark, root, "empty")
    dbio.Table(path).delete("true")
    for frame in (dbio.read(spark, path), spark.table(f"dbio.`{path}`")):
        new = frame.union(spark.sql("SELECT 1L, 1L, 'a'"))
        with beside(OTHERS["append"], path):
            assert outcome(partial(dbio.write, new, path, "overwrite")) == "conflict"
