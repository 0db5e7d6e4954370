"""Spark 3.5, for the tests: settings that later versions have by default, and the tests that it cannot pass.

Its environment also has Java 17, NumPy 1 and PyArrow 25. Before 26, PyArrow ended the process at a filter that left no
row of a part; Spark 3.5 itself gets a condition wrong in a DataFrame with 48 or more computed flags with `IN`.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

IS_USED = version("pyspark").startswith("3.5.")
IVY = Path(sys.prefix) / "ivy"

LATER_DEFAULTS: dict[str, bool | float | int | str | None] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Settings for the sessions of tests, which are written for Spark 4: there these are the defaults."""

NO_SOURCE = 'format("dbio") is a data source in Python, which needs Spark 4.0'
_NO_MERGE = "Spark Connect 3.5 cannot keep the rows of a merge's source"
_NO_COLLATION = "Spark 3.5 has no collations"
_NO_WIDENING = "the reader of Spark 3.5 reads no file as a wider type"
_NO_STAR = "Spark 3.5 takes no * in a condition, by which dbio also looks at values"
_NO_FUNCTIONS = "Spark 3.5 has no functions in SQL"
_NO_ROUNDING = "Spark 3.5 rounds no decimal to compare it: it finds no row, or raises NUMERIC_VALUE_OUT_OF_RANGE"
_REFUSED = "test_a_type_that_would_not_come_back_equal_is_refused_before_anything_is_written"
_LISTS = "Spark 3.5 lists before any rule sees the read"
LEFT_OUT = {
    "test_spark_lists_nothing_of_a_table": _LISTS,
    "test_recorded_types_win_and_those_of_the_caller_win_over_them": "Spark 3.5 guesses types that a schema leaves out",
    "test_a_cached_frame_stays_and_a_fresh_read_of_the_same_state_uses_it": (
        "Spark 3.5 does not find what it has cached of a partitioned table of its catalog"
    ),
    "test_statistics_of_another_type_leave_no_file_out": _NO_WIDENING,
    "test_the_demo_runs_to_its_end_and_can_be_run_again": "PySpark 3.5 makes no DataFrame of an Arrow table",
    "test_rows_are_merged_over_connect": _NO_MERGE,
    "test_a_star_means_the_columns_of_its_side_over_connect": _NO_MERGE,
    "test_the_data_source_works_over_connect": NO_SOURCE,
    "test_secrets_that_connect_does_not_give_out_are_asked_for": "Spark Connect 3.5 gives out secrets",
    "test_what_is_pickled_for_a_path_holds_the_secrets_of_its_own_bucket_only": NO_SOURCE,
    "test_columns_that_came_later_are_null_in_what_is_older": _NO_WIDENING,
    "test_new_fields_and_absent_columns_are_null_where_they_are_not": _NO_WIDENING,
    "test_files_of_narrower_types_are_read_as_the_wider_one_flat_and_nested": _NO_WIDENING,
    "test_a_partition_column_is_widened_and_its_directories_keep_their_names": _NO_WIDENING,
    "test_a_star_in_a_value_of_an_update_is_the_tables_columns": _NO_STAR,
    "test_a_star_in_a_condition_is_the_tables_columns": _NO_STAR,
    "test_over_connect_a_star_that_would_stand_for_more_is_refused": _NO_STAR,
    "test_a_star_in_a_merge_is_the_columns_of_its_side": _NO_STAR,
    "test_names_of_hidden_columns_are_free_for_variables": "Spark 3.5 has no variables of sessions",
    "test_functions_of_the_session_and_of_chance_are_values": _NO_FUNCTIONS,
    "test_functions_in_sql_see_the_columns_that_their_texts_see": _NO_FUNCTIONS,
    "test_a_query_in_a_function_in_sql_is_refused": _NO_FUNCTIONS,
    f"{_REFUSED}[calendar interval]": "PySpark 3.5 has no CalendarIntervalType",
    "test_a_write_is_refused[a variant]": "Spark 3.5 has no VARIANT",
    "test_a_variant_comes_back_whatever_writes_and_reads_it": "Spark 3.5 has no VARIANT",
    f"{_REFUSED}[collated string]": _NO_COLLATION,
    f"{_REFUSED}[collated key of a map]": _NO_COLLATION,
    "test_a_cancelled_job_commits_nothing_and_can_be_repeated[write]": "Spark 3.5 gives the next task a closed socket",
    "test_what_is_as_large_as_it_may_be_is_looked_at_in_a_bounded_number_of_steps[nullif]": (
        "Spark 3.5 makes so many parts of it that it is refused"
    ),
    "test_a_path_without_a_scheme_is_refused_wherever_a_session_is_beside_it[write_stream]": (
        "dbio.write_stream says first that it needs Spark 4.1"
    ),
    "test_a_type_without_any_in_arrow_is_a_clear_error": "PySpark 3.5 has no CalendarIntervalType",
    "test_no_file_is_left_out_by_what_is_read_in_two_ways[a collation]": _NO_COLLATION,
    "test_no_file_is_left_out_by_what_is_read_in_two_ways[a collation by a function]": _NO_COLLATION,
    "test_a_recorded_schema_that_is_none_is_a_clear_error[recorded8]": "PySpark 3.5 takes any metadata",
    "test_it_imports_no_parser_of_sql_and_nothing_of_rewrites[datasource]": NO_SOURCE,
    "test_the_row_is_found[w IN (5)-settings6]": _NO_ROUNDING,
    "test_the_row_is_found[v IN (12345678901)-settings7]": _NO_ROUNDING,
    "test_the_row_is_found[l IN (5.000000000000000001, 123456789012345678901234567890)-settings8]": _NO_ROUNDING,
    "test_the_row_is_found[n IN (5.001, 123456789012345678901234567890123456)-settings9]": _NO_ROUNDING,
    "test_the_row_is_found[w = 5-settings10]": _NO_ROUNDING,
}
"""The tests that it cannot pass, or cases of them, and why; conftest.py skips them."""

MODULES = {
    "tests/integration/test_datasource.py",
    "tests/unit/spark/feed/test_options.py",
    "tests/unit/spark/feed/test_sink.py",
    "tests/unit/spark/test_datasource.py",
}
"""The modules about data sources in Python, which 3.5 cannot import; conftest.py skips them as a whole."""


def skip_sources(patch: pytest.MonkeyPatch) -> None:
    """A test that asks for the data source is skipped as it does so."""
    from pyspark.sql import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    def skipping(kind: Any) -> None:
        own = kind.format

        def format(self: Any, source: str) -> Any:
            if source == "dbio":
                pytest.skip(NO_SOURCE)
            return own(self, source)

        patch.setattr(kind, "format", format)

    for kind in (DataFrameReader, DataFrameWriter, DataStreamReader, DataStreamWriter):
        skipping(kind)


def connect_jar() -> str:
    """The server of Spark Connect, which later versions of PySpark bring along; `fetch` gets it."""
    (jar,) = (IVY / "jars").glob("org.apache.spark_spark-connect_*.jar")
    return str(jar)


def fetch() -> None:
    """Has Spark's own Ivy fetch that jar from Maven, for `make test-spark`."""
    from pyspark.sql import SparkSession

    package = "org.apache.spark:spark-connect_2.12:3.5.7"  # the newest there is; it goes with each 3.5
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.jars.ivy", str(IVY)).config("spark.jars.packages", package).getOrCreate().stop()
