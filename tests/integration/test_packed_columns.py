"""Where Spark reads columns, they are packed as they are; the rows are what they are without that."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.spark.transfer.batches import BATCH_BYTES, arrow_batches, pack
from dbio_commit.spark.transfer.packed import VALUE_BYTES
from tests.packing import KINDS, assert_same, columns, come_together, kinds, takes_columns, unpacked
from tests.spark_tables import configured

ROWS = 12_000

COLUMNS = [f"c{number}" for number in range(len(KINDS))]


def named(kind: str) -> str:
    return COLUMNS[list(KINDS).index(kind)]


@pytest.fixture(scope="module")
def make_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """All kinds of columns, as Parquet with and without dictionaries, and as ORC."""

    @cache
    def make(which: str) -> Path:
        made = tmp_path_factory.mktemp("columns")
        df = spark.range(0, ROWS, 1, 2).selectExpr(*columns(nulls=which == "with nulls")).toDF(*COLUMNS)
        df.write.parquet(str(made / "dictionaries"))
        df.write.option("parquet.enable.dictionary", "false").parquet(str(made / "plain"))
        df.drop(named("timestamp_ntz")).write.orc(str(made / "orc"))
        return made

    return make


@pytest.fixture(params=["full", "with nulls"])
def files(make_files: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    return make_files(request.param)


with_nulls = pytest.mark.parametrize("files", ["with nulls"], indirect=True)
"""For what is the same of full columns, once these come as they are."""


def read(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.orc(str(path)) if path.name == "orc" else spark.read.parquet(str(path))


@pytest.mark.long_for("with nulls-coded-orc")
@pytest.mark.parametrize("kind", ["dictionaries", "plain", "orc"])
@pytest.mark.parametrize("coded", [False, True], ids=["decoded", "coded"])
def test_columns_of_all_kinds_come_as_spark_itself_converts_them(
    spark: SparkSession, files: Path, kind: str, coded: bool
) -> None:
    df = read(spark, files / kind)
    assert takes_columns(df)
    assert_same(unpacked(df, coded=coded), df)


@with_nulls
@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.parquet.columnarReaderBatchSize": "7"},
        {"spark.sql.parquet.columnarReaderBatchSize": "10000"},
        {"spark.sql.columnVector.offheap.enabled": "true"},
        {"spark.sql.files.maxPartitionBytes": "100000"},
        {"spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    ],
    ids=["few at once", "many at once", "off the heap", "many tasks", "interpreted"],
)
def test_however_spark_reads_them_they_are_the_same(spark: SparkSession, files: Path, settings: dict[str, str]) -> None:
    with configured(spark, settings):
        df = read(spark, files / "dictionaries").where(f"{named('long')} % 5 != 0")
        assert takes_columns(df)
        assert_same(unpacked(df, coded=True), df)


COMPUTED = [
    f"upper({named('few texts')}) AS up",
    f"{named('small decimal')} * 2 AS twice",
    f"cast({named('int')} AS double) AS wide",
    f"trunc({named('date')}, 'month') AS month",
    f"concat({named('long text')}, '!') AS loud",
    f"{named('large decimal')} - 1 AS less",
    f"{named('boolean')} IS NULL AS missing",
    "X'0011' AS bytes",
    "cast(NULL AS string) AS none",
]


@with_nulls
@pytest.mark.parametrize(
    "make",
    [
        lambda df: df.where(f"{named('int')} > 0"),
        lambda df: df.where(f"{named('long')} IS NULL"),
        lambda df: df.where("c1 = 7 AND length(c10) > 3"),
        lambda df: df.where("c1 > 127"),
        lambda df: df.selectExpr("*", *COMPUTED),
        lambda df: df.selectExpr(*COMPUTED),
        lambda df: df.where("c2 % 3 = 0").selectExpr(*reversed(COMPUTED), "c11", "c0", "c11 AS again"),
        lambda df: df.select("c5").distinct().join(df.limit(3), "c5"),
        lambda df: df.select(*[f"c{7 * number % len(KINDS)}" for number in range(len(KINDS))] * 4),
    ],
    ids=["filtered", "nulls", "rare", "none", "and computed", "computed", "both", "joined", "many"],
)
def test_rows_that_are_filtered_and_projected_are_those_that_spark_makes(
    spark: SparkSession, files: Path, make: Callable[[DataFrame], DataFrame]
) -> None:
    df = make(read(spark, files / "dictionaries"))
    df = df.toDF(*map(str, range(len(df.columns))))
    assert_same(unpacked(df, coded=True), df)


def test_cached_columns_and_those_of_directories_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    made = spark.range(0, 5000, 1, 1).selectExpr("id", "cast(id AS string) AS text", "id % 3 AS p", "id % 2 AS q")
    made.write.partitionBy("p", "q").parquet(str(tmp_path / "plain"))
    df = spark.read.parquet(str(tmp_path / "plain"))
    assert takes_columns(df)
    assert_same(unpacked(df, coded=True), df)
    told = df.select("*", "_metadata.file_name", "_metadata.file_size")
    assert_same(unpacked(told, coded=True), told)
    cached = df.cache()
    try:
        assert_same(unpacked(cached, coded=True), cached)
    finally:
        cached.unpersist()


def test_columns_of_our_own_tables_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    made = spark.range(0, 5000, 1, 1).selectExpr("id", "cast(id AS string) AS text", "id % 3 AS p")
    dbio.write(made, tmp_path / "table", partition_by="p")
    df = dbio.read(spark, tmp_path / "table").where("id % 2 = 0")
    assert takes_columns(df)
    assert_same(unpacked(df), df)


IN_ROWS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "chance": lambda df: df.selectExpr("*", "rand(7) AS chance"),
    "numbered": lambda df: df.where("monotonically_increasing_id() % 2 = 0"),
    "the file's name": lambda df: df.selectExpr("*", "input_file_name() AS file"),
    "beside another query": lambda df: df.where("id > (SELECT 40)").selectExpr("*", "(SELECT max(1)) AS one"),
    "limited": lambda df: df.limit(50),
    "united": lambda df: df.union(df),
    "shuffled": lambda df: df.repartition(2, "id").sortWithinPartitions("id"),
}


@pytest.mark.parametrize("make", IN_ROWS.values(), ids=IN_ROWS)
def test_where_there_is_more_than_a_scan_rows_are_made(
    spark: SparkSession, tmp_path: Path, make: Callable[[DataFrame], DataFrame]
) -> None:
    spark.range(0, 3000, 1, 1).selectExpr("id", "cast(id AS string) AS text").write.parquet(str(tmp_path / "plain"))
    df = make(spark.read.parquet(str(tmp_path / "plain")))
    assert_same(unpacked(df, coded=True), df)


@with_nulls
@pytest.mark.parametrize("off", ["spark.sql.parquet.enableVectorizedReader", "spark.sql.codegen.wholeStage"])
def test_where_spark_reads_rows_they_are_taken(spark: SparkSession, files: Path, off: str) -> None:
    with configured(spark, {off: "false"}):
        df = read(spark, files / "dictionaries")
        assert not takes_columns(df)
        assert_same(unpacked(df, coded=True), df)


@pytest.mark.parametrize(
    "by",
    ["id % 5", "cast(id % 7 AS string)", "id % 2 = 0", "IF(id % 3 = 0, NULL, cast(id % 9 AS byte))", "double(id % 4)",
     "cast(id % 11 AS decimal(4, 1))", "cast(id % 11 AS decimal(20, 1))", "float(id % 4)", "smallint(id % 4)"],
)  # fmt: skip
def test_groups_of_a_scans_rows_are_those_of_rows(spark: SparkSession, tmp_path: Path, by: str) -> None:
    made = spark.range(0, 30_000, 1, 1).selectExpr("id", f"{by} AS own", "repeat('x', cast(id % 90 AS int)) AS text")
    made.write.parquet(str(tmp_path / "plain"))
    scanned = (
        spark.read.parquet(str(tmp_path / "plain")).where("id % 4 != 1").selectExpr("id", "own", f"{by} AS p", "text")
    )
    assert takes_columns(scanned)
    together = [[1, 2], [2, 3]] if by in ("id % 5", "cast(id % 7 AS string)") else []
    for positions in ([1], [2], *together):
        found = come_together(scanned, *positions)
        assert found == come_together(scanned.where("monotonically_increasing_id() >= 0"), *positions)
        assert sorted(id for _, ids, _ in found for id in ids) == [id for id in range(30_000) if id % 4 != 1]
        assert all(completes for _, _, completes in found)


def test_texts_of_a_scan_come_as_codes_as_those_of_rows_do(spark: SparkSession, tmp_path: Path) -> None:
    texts = [
        "cast(id % 256 AS string)",
        "cast(id % 257 AS string)",
        "repeat(cast(id % 9 AS string), 65)",
        "cast(id AS string)",
    ]
    made = spark.range(0, 50_000, 1, 1).selectExpr(*(f"{text} AS t{number}" for number, text in enumerate(texts)))
    for name in ("true", "false"):
        made.write.option("parquet.enable.dictionary", name).parquet(str(tmp_path / name))
        df = spark.read.parquet(str(tmp_path / name))
        assert takes_columns(df)
        assert kinds(df)[0][:1] == ["dictionary<values=string, indices=int32, ordered=0>"]
        assert {tuple(it[1:]) for it in kinds(df)} == {("string", "string", "string")}


@pytest.mark.parametrize("text_bytes", [10, 5_000, VALUE_BYTES // 2])
def test_a_batch_is_bounded_whatever_a_scans_rows_weigh(spark: SparkSession, tmp_path: Path, text_bytes: int) -> None:
    rows = min(200_000, 3 * BATCH_BYTES // text_bytes)
    made = spark.range(0, rows, 1, 1).selectExpr("id", f"repeat('x', {text_bytes}) AS text", "id % 2 AS p")
    made.write.parquet(str(tmp_path / "plain"))
    df = spark.read.parquet(str(tmp_path / "plain"))
    assert takes_columns(df)

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"bytes": [batch.nbytes for batch in batches]})

    for together in ([], [2]):
        with arrow_batches(spark, df.schema):
            packed = pack(df, together=together)[0].mapInArrow(measure, "bytes bigint")
            sizes = [row[0] for row in packed.collect()]
        assert sum(sizes) > rows * text_bytes
        assert max(sizes) < BATCH_BYTES + VALUE_BYTES + 2 * text_bytes


def test_sparks_metrics_count_the_rows_that_are_read_and_kept(spark: SparkSession, files: Path) -> None:
    df = read(spark, files / "dictionaries").where("c1 = 7")
    kept = df.count()
    plan: Any = pack(df)[0]._jdf.queryExecution().executedPlan()
    plan.execute().count()
    counted = {}
    while plan.children().nonEmpty():
        plan = plan.children().head()
        metric = plan.metrics().get("numOutputRows")
        if metric.isDefined():
            counted[plan.nodeName()] = metric.get().value()
    assert kept > 0
    assert counted["Filter"] == kept
    assert counted["ColumnarToRow"] >= kept
    assert counted["ColumnarToRow"] in (counted.get("Scan parquet "), ROWS)


def test_a_session_plans_it_once(spark: SparkSession) -> None:
    def strategies() -> int:
        return str(spark._jsparkSession.experimental().extraStrategies()).count("PackColumns")

    for _ in range(3):
        pack(spark.range(3))
        assert strategies() == 1


def test_a_row_that_fails_fails_as_without_us(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 100, 1, 1).write.parquet(str(tmp_path / "plain"))
    df = spark.read.parquet(str(tmp_path / "plain")).selectExpr("IF(id = 50, raise_error('row 50'), id) AS id")
    with pytest.raises(Exception, match="row 50"):
        dbio.write(df.withColumn("id", df["id"].cast("long")), tmp_path / "table")
    assert not dbio.Table(tmp_path / "table").history()


@pytest.mark.parametrize("make", [lambda df: df, lambda df: df.coalesce(1).union(df.limit(0))], ids=["columns", "rows"])
def test_a_group_that_came_before_there_were_too_many_texts_may_leave_after_others(
    spark: SparkSession, tmp_path: Path, make: Callable[[DataFrame], DataFrame]
) -> None:
    made = spark.range(0, 330_000, 1, 1).selectExpr(
        "IF(id < 2048, 0, 1) AS p", "IF(id < 2048, 'few', cast(id AS string)) AS text"
    )
    made.write.parquet(str(tmp_path / "plain"))
    df = make(spark.read.parquet(str(tmp_path / "plain")))
    dbio.write(df, tmp_path / "table", partition_by="p")
    found = dbio.read(spark, tmp_path / "table").select("p", "text")
    sums = ["count(*)", "sum(cast(xxhash64(p, text) AS decimal(38)))"]
    assert found.selectExpr(*sums).collect() == df.selectExpr(*sums).collect()
    assert found.count() == 330_000
