"""Spark 3.5, for the tests: settings that later versions have by default, and the tests that it cannot pass."""

from importlib.metadata import version

IS_USED = version("pyspark").startswith("3.5.")

LATER_DEFAULTS: dict[str, bool | float | int | str | None] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Settings for the sessions of tests, which are written for Spark 4: there these are the defaults."""

LEFT_OUT: dict[str, str] = {}
"""The tests that it cannot pass, or cases of them, and why; conftest.py skips them."""
