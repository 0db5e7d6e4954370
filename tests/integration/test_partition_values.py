"""Partition directories are named as Spark itself names them. Rules: PROTOCOL.md 6.2."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from dbio_commit.data import arrow
from dbio_commit.protocol import names
from tests.spark_tables import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHARACTERS = [*map(chr, range(1, 128)), "\x80", "\xa0", "é", "ß", "Ā", "€", "\u2028", "漢", "\ufeff", "😀"]

VALUES = {
    "boolean": "true false",
    "tinyint": "-128 0 127",
    "smallint": "-32768 32767",
    "int": "-2147483648 2147483647",
    "bigint": "-9223372036854775808 -1 9223372036854775807",
    "date": "0001-01-01 1582-10-04 1582-10-15 1969-12-31 2024-02-29 9999-12-31",
    "decimal(1,0)": "-9 0",
    "decimal(10,2)": "0.00 -0.01 1.10 12345678.90",
    "decimal(38,0)": f"{'9' * 38} -1",
    "decimal(38,38)": f"0.{'0' * 37}1 0.{'9' * 38} 0",
    "decimal(20,10)": "0.0000000001 1E-7 100",
    "timestamp": "0001-01-01T00:00:00Z 1582-10-04T12:00:00Z 1969-12-31T23:59:59.999999Z 1970-01-01T00:00:00Z "
    "2026-03-29T02:30:00+05:30 2026-10-25T00:30:00Z 2026-11-20T10:20:30.1Z 2026-11-20T10:20:30.000120Z "
    "9999-12-31T23:59:59.999999Z",
    "timestamp_ntz": "0001-01-01T00:00:00 1969-12-31T23:59:59.5 2026-03-29T02:30:00 2026-11-20T10:20:00.001 "
    "9999-12-31T23:59:59.999999",
}


def test_names_are_escaped_as_spark_escapes_them(spark: "SparkSession") -> None:
    utils = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils  # type: ignore[union-attr]
    for char in CHARACTERS:
        text = f"a{char}b"
        assert names.escape(text) == utils.escapePathName(text), repr(char)
        assert names.unescape(names.escape(text)) == text == utils.unescapePathName(names.escape(text))


@pytest.mark.parametrize("time_zone", ["UTC", "America/New_York"])
def test_values_are_spelled_as_spark_casts_them_in_utc(spark: "SparkSession", time_zone: str) -> None:
    """The Arrow data comes from a session in any time zone; what Spark itself would write in UTC is the truth."""
    texts = {kind: [f"'{text}'" for text in values.split(" ")] for kind, values in VALUES.items()}
    columns = [
        f"array({', '.join(f'CAST({text} AS {kind})' for text in [*values, 'NULL'])}) AS `{kind}`"
        for kind, values in texts.items()
    ]
    query = f"SELECT {', '.join(columns)}"
    try:
        spark.conf.set("spark.sql.session.timeZone", time_zone)
        found = to_arrow(spark.sql(query))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    casts = [f"CAST(`{kind}` AS array<string>) AS `{kind}`" for kind in VALUES]
    expected = spark.sql(f"SELECT {', '.join(casts)} FROM ({query})").collect()[0].asDict()
    for kind in VALUES:
        values: Any = found.column(kind).combine_chunks()
        assert arrow.format_values("v", values.flatten()) == expected[kind], kind
        assert len(expected[kind]) == len(texts[kind]) + 1


def test_text_is_spelled_as_it_is(spark: "SparkSession") -> None:
    text = "".join(CHARACTERS)
    values: Any = to_arrow(spark.createDataFrame([(text,), (None,)], "v string")).column("v").combine_chunks()
    assert arrow.format_values("v", values) == [text, None]
    assert values.type in (pa.string(), pa.large_string())
