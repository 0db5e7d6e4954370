"""What whoever may write markers cannot have a writer or a reader do: SQL, metadata and names that lie in a table.

Rules: PROTOCOL.md 9.8.
"""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.settings import change_settings
from dbio_commit.protocol.expressions import FUNCTIONS, problem_of
from dbio_commit.spark.sql.conditions import SPARKS_OWN, classes_of
from tests.spark_tables import ids
from tests.streams import SPARK, needs_sink
from tests.tiers import long
from tests.unit.protocol.test_expressions import GOOD, WORDS

SECRET = "DBIO_TEST_SECRET"


@pytest.fixture
def session(enabled: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """With what somebody who may only write to the table must not get: a variable of it, a view, a function."""
    enabled.conf.set("spark.dbio_test.secret", "of the session")
    enabled.sql("CREATE OR REPLACE TEMP VIEW v_private AS SELECT 'row of another table' AS secret")
    yield enabled
    enabled.conf.unset("spark.dbio_test.secret")
    enabled.catalog.dropTempView("v_private")


def property_of(spark: SparkSession, name: str) -> Any:
    assert spark._jvm is not None
    return spark._jvm.java.lang.System.getProperty(name)


def hostile(spark: SparkSession, path: str, settings: dict[str, str]) -> dbio.Table:
    """A table whose markers say so, as anybody who may write them can have it."""
    dbio.write(spark.sql("SELECT 1 AS id, 'a' AS note"), path)
    table = dbio.Table(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbio_commit.protocol.settings.problem_of", lambda sql: None)
        patch.setattr("dbio_commit.maintenance.settings._refuse_unfit", lambda *args, **more: None)
        change_settings(table.store, table.clock, settings)
    return table


PWNED = "java_method('java.lang.System','setProperty','pwned','by-a-table')"
SETTINGS = [
    {"default.note": PWNED},
    *long({"generated.note": f"concat({PWNED}, '')"}),
    {"check.c": f"{PWNED} IS NULL"},
    *long({"default.note": "'${spark.dbio_test.secret}'"}),
    {"default.note": "(TABLE v_private)"},
    {"check.c": "note <> (FROM v_private SELECT secret)"},
    *long({"default.note": "(" * 300 + "select secret from v_private" + ")" * 300}),
]


def write_without_spark(spark: SparkSession, path: str) -> None:
    with dbio.Table(path).begin() as transaction:
        pq.write_table(pa.table({"id": pa.array([2], pa.int32()), "note": ["b"]}), transaction.new_file())


def merge(spark: SparkSession, path: str) -> None:
    clause = dbio.when_not_matched().insert({"id": "source.id"})
    dbio.merge(spark, path, spark.sql("SELECT 2 AS id"), ["id"], [clause])


WRITERS: dict[str, Callable[[SparkSession, str], object]] = {
    "write": lambda spark, path: dbio.write(spark.sql("SELECT 2 AS id"), path),
    "data source": lambda spark, path: (
        spark.sql("SELECT 2 AS id, 'b' AS note").write.format("dbio").mode("append").save(path)
    ),
    "unchanged code": lambda spark, path: spark.sql("SELECT 2 AS id, 'b' AS note").write.mode("append").parquet(path),
    "update": lambda spark, path: dbio.update(spark, path, {"id": "2"}, where="id = 1"),
    "merge": merge,
    "constrain": lambda spark, path: dbio.constrain(spark, path, {"check.other": "id > 0"}),
    "no Spark": write_without_spark,
}


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda it: f"{next(iter(it))} {next(iter(it.values()))[:30]}")
def test_no_writer_evaluates_what_is_more_than_an_expression(
    session: SparkSession, tmp_path: Path, settings: dict[str, str]
) -> None:
    path = f"{tmp_path}/lake/table"
    dbio.enable(session, parquet=True, roots=[tmp_path / "lake"])
    hostile(session, path, settings)
    for name, write in WRITERS.items():
        with pytest.raises(Exception, match="is not evaluated") as raised:
            write(session, path)
        assert name == "data source" or isinstance(raised.value, InvalidInputError), name
        assert "of the session" not in str(raised.value)
    assert property_of(session, "pwned") is None
    assert ids(dbio.read(session, path)) == [1], "readers are no writers"


@needs_sink
def test_no_stream_evaluates_it(session: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/table"
    hostile(session, path, {"default.note": PWNED})
    session.sql("SELECT 2 AS id").write.json(f"{tmp_path}/in")
    stream = session.readStream.schema("id int").json(f"{tmp_path}/in")
    with pytest.raises(InvalidInputError, match="is not evaluated"):
        dbio.write_stream(stream, path, f"{tmp_path}/checkpoint")
    assert property_of(session, "pwned") is None


def test_a_function_of_a_user_does_not_take_the_place_of_one_of_sparks(session: SparkSession, tmp_path: Path) -> None:
    path, other = f"{tmp_path}/table", session.newSession()
    hostile(session, path, {"check.c": "upper(note) <> 'X'"})
    more = other.sql("SELECT 2 AS id, 'b' AS note")
    dbio.write(more, path)
    other.udf.register("upper", lambda text: "never")
    if other.sql("SELECT upper('a') AS a").collect()[0].a == "never":  # until 4.2, where it is the session's
        with pytest.raises(InvalidInputError, match="Spark reads a name in it as PythonUDF"):
            dbio.write(more, path)
    assert ids(dbio.read(session, path)) == [1, 2]


@pytest.mark.skipif(SPARK < (4, 0), reason="Spark 4.0 has variables of sessions")
@pytest.mark.parametrize("sql", ["api_token", "session.api_token", "system.session.api_token", "`api_token`"])
def test_a_variable_of_the_session_is_no_column(session: SparkSession, tmp_path: Path, sql: str) -> None:
    path = f"{tmp_path}/table"
    session.sql("DECLARE OR REPLACE VARIABLE api_token STRING DEFAULT 'token of the writer'")
    try:
        for setting in ("default.note", "generated.note", "check.c"):
            hostile(session, f"{path}-{setting}", {setting: sql if setting != "check.c" else f"note <> {sql}"})
            with pytest.raises(InvalidInputError, match="is no column that the expression may use"):
                dbio.write(session.sql("SELECT 2 AS id"), f"{path}-{setting}", merge_schema=True)
        variable = session.sql("SELECT 1 AS id").selectExpr("api_token")
        assert [it for it in classes_of(variable) if not SPARKS_OWN.fullmatch(it)], "and where a plan can be seen"
    finally:
        session.sql("DROP TEMPORARY VARIABLE IF EXISTS api_token")


HEAVY = [
    "CASE WHEN id > 1 THEN 'x' ELSE " * 14 + "'y'" + " END" * 14,
    "nullif(" * 9 + "note" + ", 'x')" * 9,
    "(" * 9 + "id" + " BETWEEN 1 AND 2)" * 1 + ")" * 8,
    " OR ".join(f"id = {i}" for i in range(300)),
]


@pytest.mark.parametrize("sql", HEAVY, ids=["CASE", "nullif", "brackets", "OR"])
def test_what_is_as_large_as_it_may_be_is_looked_at_in_a_bounded_number_of_steps(
    session: SparkSession, tmp_path: Path, sql: str
) -> None:
    assert problem_of(sql, ["id", "note"]) is None
    found = list(classes_of(session.sql("SELECT 1 AS id, 'a' AS note").selectExpr(sql)))
    assert len(found) < 5_000
    assert all(map(SPARKS_OWN.fullmatch, found))


# --- Spark reads an expression as `protocol/expressions` does -----------------------------------------------------


def functions_in(tree: list[Any]) -> set[str]:
    """Those that a parsed expression calls by name."""
    calls = [node for node in tree if str(node["class"]).endswith(".UnresolvedFunction")]
    return {str(node["nameParts"]).strip("[]'\"").lower() for node in calls}


def test_what_spark_parses_of_an_accepted_text_has_no_query_and_no_other_function(spark: SparkSession) -> None:
    """Random texts of hostile words: it must not depend on what was thought of."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    chance, accepted, parsed = random.Random(35), 0, 0
    texts = [*GOOD, *(" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(60_000))]
    for sql in texts:
        if problem_of(sql) is not None:
            continue
        accepted += 1
        with suppress(PySparkException, Py4JJavaError):  # what Spark does not read either
            tree = json.loads(parser.parseExpression(sql).toJSON())
            parsed += 1
            names = {str(node["class"]).rpartition(".")[2] for node in tree}
            assert not {
                it for it in names if "Query" in it or "query" in it or it in ("Exists", "ScriptTransformation")
            }
            assert functions_in(tree) <= {*FUNCTIONS, "and", "or", "not", "between", "extract"}, sql
    assert accepted > 300
    assert parsed > 200


def test_every_function_that_is_accepted_is_sparks_own_of_one_row(spark: SparkSession) -> None:
    known = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    classes = {}
    for name in sorted(FUNCTIONS & known):
        described = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION {name}").collect())
        classes[name] = described.partition("Class: ")[2].splitlines()[0]
    wrong = {
        name: it for name, it in classes.items() if not SPARKS_OWN.fullmatch(it.replace("expressions.xml.", "xml."))
    }
    builders = {name for name, it in wrong.items() if "Builder" in it}
    assert {*wrong} == builders


@pytest.mark.parametrize(
    "sql",
    [
        "java_method('java.util.UUID', 'randomUUID')",
        "(SELECT 1)",
        "EXISTS (SELECT 1)",
        "id IN (SELECT 1)",
        "sum(id)",
    ],
)
def test_the_plan_of_what_is_refused_says_so_too(spark: SparkSession, sql: str) -> None:
    assert [it for it in classes_of(spark.sql("SELECT 1 AS id").selectExpr(sql)) if not SPARKS_OWN.fullmatch(it)]


# --- metadata and names of columns --------------------------------------------------------------------------------


def forge(path: str, metadata: dict[str, str]) -> None:
    """Has a marker say so of the column note."""
    table = dbio.Table(path)
    schema = json.loads(json.dumps(table.snapshot().schema))
    for field in schema["fields"]:
        field["metadata"] = metadata if field["name"] == "note" else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbio_commit.commit.transaction.decode_schema", lambda text: json.loads(bytes(text)))
        table.begin().commit(schema=schema)
    assert any(
        json.dumps(text)[1:-1] in it.read_text() for text in metadata.values() for it in Path(path).glob("_committed_*")
    )


def test_a_reader_takes_no_value_from_the_metadata_of_a_column(session: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/table"
    dbio.write(session.sql("SELECT 1 AS id, 'a' AS note"), path)
    forge(path, {"EXISTS_DEFAULT": PWNED, "CURRENT_DEFAULT": PWNED, "__CHAR_VARCHAR_TYPE_STRING": "char(2000)"})
    with dbio.Table(path).begin() as transaction:
        pq.write_table(pa.table({"id": pa.array([7], pa.int32())}), transaction.new_file())
    assert sorted(map(tuple, dbio.read(session, path).collect())) == [(1, "a"), (7, None)]
    assert dbio.Table(path).snapshot().schema["fields"][1]["metadata"] == {}  # type: ignore[index]
    assert property_of(session, "pwned") is None


def test_a_footer_brings_no_metadata_but_comments(session: SparkSession, tmp_path: Path) -> None:
    fields = [
        {"name": "id", "type": "integer", "nullable": True, "metadata": {"comment": "a number", "x": "y"}},
        {"name": "note", "type": "string", "nullable": True, "metadata": {"EXISTS_DEFAULT": PWNED}},
    ]
    told = {"org.apache.spark.sql.parquet.row.metadata": json.dumps({"type": "struct", "fields": fields})}
    table, path = pa.table({"id": pa.array([1], pa.int32()), "note": ["a"]}), tmp_path / "table"
    path.mkdir()
    pq.write_table(table.replace_schema_metadata(told), path / "part-0.parquet")
    pq.write_table(table.drop(["note"]), path / "part-1.parquet")
    dbio.Table(path).adopt()
    rows = dbio.read(session, path)
    assert "note" not in rows.columns or sorted(map(str, rows.toPandas().note)) == ["None", "a"]
    assert [field.metadata for field in rows.schema.fields] in ([{"comment": "a number"}, {}], [{}, {}])
    assert property_of(session, "pwned") is None


EVIL = "'x') USING csv OPTIONS (header 'true') COMMENT '${env:HOME}' -- "


ODD = "${env:HOME}"
"""One of SQL's variables. (With one of Hadoop's, such as `${user.home}`, Spark's own reader finds no such column.)"""


def test_register_puts_names_and_comments_into_the_catalog_as_they_are(session: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/table"
    field = f"`x` int) -- {ODD}"
    columns: dict[str, Any] = {
        "id": pa.array([1], pa.int32()),
        "note": pa.array(["a"]),
        ODD: pa.array(["v"]),
        "a` int) USING csv -- ": pa.array(["w"]),
        "s": pa.array([{field: "b"}], pa.struct([pa.field(field, pa.string())])),
    }
    with dbio.Table(path).begin() as transaction:
        pq.write_table(pa.table(columns), transaction.new_file())
    dbio.write(session.sql("SELECT 2 AS id, 'b' AS note"), path, merge_schema=True)
    forge(path, {"CURRENT_DEFAULT": EVIL, "EXISTS_DEFAULT": "'x'", "comment": EVIL})
    dbio.register(session, "registered", path)
    try:
        assert session.table("registered").columns == [*columns]
        assert ids(session.table("registered")) == [1, 2]
        described = {row.col_name: row for row in session.sql("DESCRIBE EXTENDED registered").collect()}
        assert described["note"].comment == EVIL
        assert described["Provider"].data_type == "parquet"
    finally:
        session.sql("DROP TABLE registered")


@pytest.mark.long
def test_a_column_named_as_a_variable_is_a_column_like_any_other(session: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/table"
    plain = session.createDataFrame([], "id int, a string, s struct<a: string, t: array<struct<a: string>>>").schema
    kinds = StructType.fromJson(json.loads(plain.json().replace('"a"', json.dumps(ODD))))
    dbio.write(session.createDataFrame([(1, "x", ("y", [("z",)])), (2, "u", None)], kinds), path)
    dbio.constrain(session, path, {"default.id": "7"})
    assert dbio.read(session, path).columns == ["id", ODD, "s"]
    dbio.update(session, path, {"id": "id + 10"}, where="id = 2")
    source = session.createDataFrame([(1, "X", None), (3, "w", None)], kinds)
    dbio.merge(session, path, source, ["id"])
    dbio.merge(session, path, source, [ODD])
    assert sorted((row.id, row[ODD]) for row in dbio.read(session, path).collect()) == [(1, "X"), (3, "w"), (12, "u")]
