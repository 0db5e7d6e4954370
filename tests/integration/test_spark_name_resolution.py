"""Texts of users in rewrites mean what they mean beside the columns that their writers see, and nothing more."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError
from tests.spark_tables import SPARK_ERRORS, ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def root(spark: "SparkSession", tmp_path: Path) -> str:
    """Rows of id (0 to 3), v and js, which is null."""
    path = str(tmp_path / "table")
    dbio.write(spark.range(4, numPartitions=1).selectExpr("id", "id * 2 AS v", "string(null) AS js"), path)
    return path


@pytest.fixture
def source(spark: "SparkSession") -> "DataFrame":
    return spark.range(2, 6, numPartitions=1).selectExpr("id", "id * 20 AS v", "string(null) AS js")


def texts(spark: "SparkSession", root: str) -> list[str | None]:
    return [row.js for row in dbio.read(spark, root).orderBy("id").collect()]


def test_a_star_in_a_value_of_an_update_is_the_tables_columns(spark: "SparkSession", root: str) -> None:
    dbio.update(spark, root, {"js": "to_json(struct(*))", "v": "int(hash(*))"}, "id = 1")
    assert texts(spark, root) == [None, '{"id":1,"v":2}', None, None]
    (expected,) = spark.sql("SELECT hash(*) h FROM VALUES (1L, 2L, string(null)) t(id, v, js)").collect()
    assert [row.v for row in dbio.read(spark, root, where="id = 1").collect()] == [expected.h]


def test_a_star_in_a_condition_is_the_tables_columns(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = spark.range(32, numPartitions=2).selectExpr("id", "id * 2 AS v", "id % 2 AS part")
    dbio.write(rows, path, partition_by="part")
    where = "hash(*) % 3 = 0"
    gone, old = ids(rows.where(where)), ids(rows)
    assert 0 < len(gone) < len(old)
    dbio.delete(spark, path, where)
    assert ids(dbio.read(spark, path)) == [it for it in old if it not in gone]
    assert ids(dbio.read(spark, path, where=where)) == []
    dbio.write(rows, path, "overwrite", replace_where="hash(*) IS NOT NULL")
    assert ids(dbio.read(spark, path)) == old


@pytest.mark.long
def test_a_star_in_a_merge_is_the_columns_of_its_side(spark: "SparkSession", root: str, source: "DataFrame") -> None:
    differs = "hash(target.id, target.v) <> hash(source.id, source.v)"
    clauses = [
        dbio.when_matched(f"hash(target.*) <> hash(source.*) AND {differs}").update({"js": "concat_ws('|', *)"}),
        dbio.when_not_matched("size(array(id, v)) = 2").insert({"id": "id", "v": "-1", "js": "to_json(struct(*))"}),
        dbio.when_not_matched_by_source("id = 1").update({"js": "to_json(struct(*))"}),
    ]
    dbio.merge(spark, root, source, "target.id = source.id AND hash(target.*) IS NOT NULL", clauses)
    told = ['{"id":4,"v":80}', '{"id":5,"v":100}']
    assert texts(spark, root) == [None, '{"id":1,"v":2}', "2|4|2|40", "3|6|3|60", *told]
    few = source.where("id = 2")
    dbio.merge(spark, root, few, "hash(target.id) = hash(source.id)", [dbio.when_matched().update({"v": "source.v"})])
    dbio.merge(spark, root, few, ["id"], [dbio.when_matched("hash(source.*) <> 0").update({"js": "source.js"})])
    assert texts(spark, root)[2] is None


def test_names_of_hidden_columns_are_free_for_variables(
    spark: "SparkSession", root: str, source: "DataFrame", variables: list[str]
) -> None:
    told = ", ".join(variables)
    dbio.update(spark, root, {"js": f"concat_ws(' ', {told})"}, "id = 1 AND _dbio_place = 7")
    update = dbio.when_matched("_dbio_source = 7").update({"js": f"concat_ws(' ', {told})"})
    dbio.merge(spark, root, source, "target.id = source.id AND _dbio_file = 7", [update])
    sevens = " ".join(["7"] * len(variables))
    assert texts(spark, root) == [None, sevens, sevens, sevens]


@pytest.fixture
def variables(spark: "SparkSession") -> Iterator[list[str]]:
    names = [f"_dbio_{name}" for name in ("file", "place", "action", "clause", "source", "partition", "default_v")]
    for name in names:
        spark.sql(f"DECLARE VARIABLE {name} INT DEFAULT 7")
    yield names
    for name in names:
        spark.sql(f"DROP TEMPORARY VARIABLE {name}")


def test_functions_of_the_session_and_of_chance_are_values(spark: "SparkSession", root: str) -> None:
    spark.udf.register("tens", lambda it: it * 10, "bigint")
    spark.sql("CREATE TEMPORARY FUNCTION hundreds(it BIGINT) RETURN it * 100")
    dbio.update(spark, root, {"v": "tens(v) + hundreds(id) + tens(1)", "js": "uuid()"}, "tens(id) > 10")
    assert [row.v for row in dbio.read(spark, root).orderBy("id").collect()] == [0, 2, 250, 370]
    assert len({*texts(spark, root)}) == 3


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"v": "(SELECT max(id) FROM range(9))"}, "true"),
        ({"v": "(SELECT max(t.id) FROM range(9) t WHERE t.id < v)"}, "true"),
        ({"v": "v"}, "id IN (TABLE nine)"),
        ({"v": "v"}, "EXISTS (TABLE nine)"),
        ({"v": "id AS other", "js": "string(other)"}, "true"),
        ({"v": "id", "js": "string(`0`)"}, "true"),
        ({"v": "*"}, "true"),
        ({"v": "id, v"}, "true"),
        ({"v": "explode(array(1, 2))"}, "true"),
        ({"v": "_dbio_file"}, "true"),
        ({"v": "v"}, "_dbio_place >= 0"),
        ({"js": "_metadata.file_path"}, "true"),
        ({"js": "to_json(struct(*, _metadata))"}, "true"),
    ],
)
def test_what_is_no_value_of_the_row_is_refused(
    spark: "SparkSession", root: str, values: dict[str, str], where: str
) -> None:
    spark.range(9).createOrReplaceTempView("nine")
    with pytest.raises((InvalidInputError, *SPARK_ERRORS)):
        dbio.update(spark, root, values, where)
    sides = spark.range(1).selectExpr("id", "id AS n", "id AS m")
    with pytest.raises((InvalidInputError, *SPARK_ERRORS)):
        dbio.merge(spark, root, sides, ["id"], [dbio.when_not_matched_by_source(where).update(values)])
    assert len(dbio.Table(root).history()) == 1


def test_over_connect_a_star_that_would_stand_for_more_is_refused(
    spark: "SparkSession", root: str, source: "DataFrame", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.spark.sql.name_resolution.is_connect", lambda spark: True)
    attempts: list[Any] = [
        lambda: dbio.update(spark, root, {"js": "to_json(struct(*))"}),
        lambda: dbio.delete(spark, root, "hash(*) > 0"),
        lambda: dbio.merge(spark, root, source, ["id"], [dbio.when_matched().update({"js": "concat_ws('', *)"})]),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInputError, match="name the columns"):
            attempt()
    assert len(dbio.Table(root).history()) == 1
    update = dbio.when_matched().update({"js": "to_json(struct(source.*))"})
    dbio.merge(spark, root, source, ["id"], [update])
    assert texts(spark, root) == [None, None, '{"id":2,"v":40}', '{"id":3,"v":60}']


def test_over_connect_a_star_is_refused_under_a_name_too(
    spark: "SparkSession", root: str, source: "DataFrame", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.spark.sql.name_resolution.is_connect", lambda spark: True)
    for text in ("to_json(struct(*)) AS js", "concat_ws('|', *) js", "named_struct('js', to_json(struct(*))).js AS it"):
        for clause in (dbio.when_matched(), dbio.when_not_matched_by_source()):
            with pytest.raises(InvalidInputError, match="name the columns"):
                dbio.merge(spark, root, source, ["id"], [clause.update({"js": text})])
        with pytest.raises(InvalidInputError, match="name the columns"):
            dbio.update(spark, root, {"js": text})
    for text in ("*", "id, v"):
        with pytest.raises((InvalidInputError, *SPARK_ERRORS)):
            dbio.update(spark, root, {"js": text})
    dbio.update(spark, root, {"js": "to_json(struct(id, v)) AS it"}, "id = 1")
    assert texts(spark, root) == [None, '{"id":1,"v":2}', None, None]


def test_over_connect_a_struct_that_is_called_like_a_side_is_refused(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.spark.sql.name_resolution.is_connect", lambda spark: True)
    path = str(tmp_path / "table")
    rows = spark.range(4, numPartitions=1).selectExpr("id", "id * 2 AS v", "named_struct('id', id + 100) AS source")
    dbio.write(rows, path)
    others = spark.range(2, 6).selectExpr("id", "named_struct('v', 777L, 'id', 0L) AS target")
    refused = [
        dbio.when_not_matched().insert({"id": "source.id", "v": "target.v"}),
        dbio.when_not_matched("target.v = 777").insert({"id": "source.id"}),
        dbio.when_not_matched_by_source().update({"v": "source.id"}),
        dbio.when_not_matched_by_source("source.id = 100").delete(),
    ]
    for clause in refused:
        with pytest.raises(InvalidInputError, match="name the columns"):
            dbio.merge(spark, path, others, ["id"], [clause])
    dbio.merge(
        spark,
        path,
        others,
        ["id"],
        [
            dbio.when_not_matched("source.target.v = 777").insert({"id": "source.id", "v": "source.target.v"}),
            dbio.when_not_matched_by_source("target.source.id = 100").update({"v": "target.source.id"}),
        ],
    )
    found = {row.id: row.v for row in dbio.read(spark, path).collect()}
    assert found == {0: 100, 1: 2, 2: 4, 3: 6, 4: 777, 5: 777}


@pytest.fixture
def hundreds(spark: "SparkSession") -> Iterator[str]:
    """A function of the session, in SQL: of which Spark makes more than one look at a row."""
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION hundred_times(it BIGINT) RETURN it * 100")
    yield "hundred_times"
    spark.sql("DROP TEMPORARY FUNCTION hundred_times")


def test_functions_in_sql_see_the_columns_that_their_texts_see(
    spark: "SparkSession", root: str, source: "DataFrame", hundreds: str
) -> None:
    (one,) = spark.sql("SELECT hash(*) h FROM VALUES (1L, 2L, string(null)) t(id, v, js)").collect()
    values = {"v": f"{hundreds}(hash(*) + {hundreds}(0)) AS h", "js": "to_json(struct(*)) AS j"}
    dbio.update(spark, root, values, f"{hundreds}(id) = 100")
    assert texts(spark, root) == [None, '{"id":1,"v":2}', None, None]
    assert [row.v for row in dbio.read(spark, root, where="id = 1").collect()] == [one.h * 100]
    clauses = [
        dbio.when_not_matched(f"{hundreds}(v) > 0").insert(
            {"id": "id", "v": f"{hundreds}(v)", "js": "to_json(struct(*))"}
        ),
        dbio.when_not_matched_by_source(f"{hundreds}(id) = 0").update({"v": f"{hundreds}(v) + 1", "js": "string(id)"}),
    ]
    dbio.merge(spark, root, source.drop("js"), f"{hundreds}(target.id) = {hundreds}(source.id)", clauses)
    assert texts(spark, root) == ["0", '{"id":1,"v":2}', None, None, '{"id":4,"v":80}', '{"id":5,"v":100}']
    dbio.merge(
        spark, root, source, ["id"], [dbio.when_matched(f"{hundreds}(source.v) > 4000").update({"v": "source.v"})]
    )
    found = {row.id: row.v for row in dbio.read(spark, root).collect()}
    assert found == {0: 1, 1: one.h * 100, 2: 4, 3: 60, 4: 80, 5: 100}
    with_chance = {"v": f"{hundreds}(bigint(rand() * 0))", "js": "to_json(struct(id)) AS j"}
    dbio.update(spark, root, with_chance, "id = 2")
    with pytest.raises(InvalidInputError, match="name the columns"):
        dbio.update(spark, root, {"v": f"{hundreds}(bigint(rand() * hash(*))) AS h"}, "id = 2")
    assert texts(spark, root)[2] == '{"id":2}'


def test_a_query_in_a_function_in_sql_is_refused(spark: "SparkSession", root: str, hundreds: str) -> None:
    spark.range(9).createOrReplaceTempView("nine")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION most() RETURNS BIGINT RETURN (SELECT max(id) FROM nine)")
    for text in ("most()", f"{hundreds}(most())", f"{hundreds}({hundreds}(most())) + 1"):
        with pytest.raises((InvalidInputError, *SPARK_ERRORS)):
            dbio.update(spark, root, {"v": text})
        with pytest.raises((InvalidInputError, *SPARK_ERRORS)):
            dbio.delete(spark, root, f"v < {text}")
    spark.sql("DROP TEMPORARY FUNCTION most")
    assert len(dbio.Table(root).history()) == 1
