"""Fixtures that every kind of test may use: the stores, each as a fresh empty place, and one classic Spark session.

Spark Connect is not here: it and a classic session do not share a process.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from uuid import uuid4

import pytest
from hypothesis import settings

from tests import minio, spark35
from tests.servers import AzureServer, GcsServer, S3Server, azurite_server, fake_gcs_server, moto_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the Makefile exports, for a pytest that was started by hand.
os.environ.setdefault("JAVA_HOME", str(Path(__file__).parents[1] / ".ci/java"))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

# As in servers.py, for what the tests themselves do with gcsfs.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

os.environ.setdefault("DBIO_CHECKPOINT_EVERY", "0")  # by chance: for the tests that ask for it

# The same examples each time, so that what passes here passes elsewhere; DBIO_TEST_RANDOM=1 looks for new ones.
settings.register_profile("untimed", deadline=None, derandomize="DBIO_TEST_RANDOM" not in os.environ)
settings.load_profile("untimed")


SLOW_TWINS = {
    "test_2500_objects_in_nested_directories_are_deleted_by_batches": {"azure", "gcs"},
    "test_2500_objects_are_listed_and_deleted": {"azure", "gcs"},
    "test_2500_objects_are_listed_by_directory": {"azure", "gcs"},
    "test_the_descriptor_and_the_turns_cost_the_same_beside_pages_of_other_markers": {"azure", "gcs"},
    "test_two_neighbours_are_looked_for_by_one_request_beside_1100_turns": {"azure", "gcs"},
    "test_an_unreachable_service_is_a_store_error_within_seconds": {"azure", "gcs"},
    "test_a_busy_service_is_a_store_error_with_the_url_and_the_next_step": {"s3"},
    "test_pages_make_no_difference": {"azure-1", "gcs-1"},
    "test_rows_change_on_the_store": {"azure", "gcs"},
    "test_the_command_line_compacts_and_writes_a_report": {"azure", "gcs"},
    "test_a_directory_is_left_with_its_live_files": {"azure", "gcs"},
    "test_a_table_is_left_with_its_live_files_and_the_log_that_must_stay": {"azure", "gcs"},
    "test_deletions_that_the_service_throttles_are_asked_for_again": {"azure", "gcs"},
    "test_on_azure_a_vacuum_costs_what_its_bulk_deletions_do_and_30_besides": {"1-300-1"},
    "test_a_vacuum_costs_a_request_for_each_thousand_objects_and_30_besides_however_many_directories_there_are": {
        "1-300-1"
    },
    "test_executors_list_the_partitions_and_delete": {"local"},
    "test_a_stream_of_changes_has_them_row_by_row": {"True"},
    "test_the_fuzzer_finds": {"a path outside the table, in one kind of marker", "too much memory"},
    "test_random_conditions_delete_what_sparks_own_filter_finds": {"False"},
    "test_a_worker_stays_below_one_gigabyte": {"4-20-10000-250-2000", "100-1000-100-60-300"},
    "test_every_example_of_a_document_does_what_it_says": {"STREAMS.md"},
    "test_deletions_that_keep_failing_are_reported_one_by_one_and_done_by_the_next_run": {"s3"},
    "test_of_a_writer_killed_at_any_call_all_or_nothing_is_seen_and_the_next_one_works": {
        "s3-append",
        "gcs-append",
        "s3-overwrite",
        "gcs-overwrite",
        "s3-replace",
        "gcs-replace",
        "s3-restore",
        "gcs-restore",
        "s3-rewrite",
        "gcs-rewrite",
    },
    "test_of_a_spark_job_killed_at_a_step_all_or_nothing_is_seen_and_a_repetition_works": {
        "begun",
        "writing",
        "written",
    },
    "test_of_a_spark_job_killed_in_part_all_or_nothing_is_seen_and_a_repetition_works": {"workers", "driver", "JVM"},
    "test_a_vacuum_with_spark_does_and_reports_the_same": {
        "s3-make_directory",
        "local-make_table",
        "local-make_directory",
    },
    "test_the_command_line_deletes_what_its_dry_run_says": {"azure", "s3"},
    "test_all_commands_work_with_the_credentials_of_the_environment": {"azure", "gcs"},
    "test_ten_processes_write_at_once_and_no_row_is_lost_or_doubled": {"s3-5", "gcs-5"},
    "test_small_files_become_one_in_each_partition": {"azure-sort", "azure-z", "gcs-sort", "gcs-none"},
    "test_few_files_and_those_of_other_partitions_stay": {"azure", "gcs"},
    "test_few_files_are_written_and_small_ones_put_together_on_the_store": {"azure", "gcs"},
    "test_a_dry_run_says_what_would_be_done_and_changes_nothing": {
        "make_table-azure",
        "make_table-gcs",
        "make_directory-local",
        "make_directory-s3",
    },
    "test_of_many_processes_that_create_one_table_exactly_one_wins": {"2"},
    "test_many_processes_that_append_to_a_table_which_is_not_there_yet_all_write_to_the_same": {"2"},
    "test_a_random_merge_is_what_duckdb_makes_of_it": {"4", "5", "6", "7"},
}
"""Cases of tests that take long, and whose other cases `make test` runs: they are `long`."""

LOST_TWINS = pytest.StashKey[list[str]]()
"""What `lost_twins` found. It is kept only if every test was collected."""


def lost_twins(twins: Mapping[str, Iterable[str]], cases: Iterable[tuple[str, str]]) -> list[str]:
    """The twins, as `test[case]`, that are none of the cases of tests."""
    return sorted(f"{name}[{case}]" for name, case in {(name, it) for name in twins for it in twins[name]} - {*cases})


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests that need a server, as their fixtures tell, those that it cannot pass, and slow twins."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.ignore:
        functions = [item for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
        config.stash[LOST_TWINS] = lost_twins(SLOW_TWINS, ((it.originalname, it.callspec.id) for it in functions))
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if os.environ.get("DBIO_TEST_S3_SERVER") == "minio":
            for name in {item.name, item.originalname} & minio.LEFT_OUT.keys():
                item.add_marker(pytest.mark.skip(reason=minio.LEFT_OUT[name]))
        if spark35.IS_USED:
            for name in {item.name, item.originalname} & spark35.LEFT_OUT.keys():
                item.add_marker(pytest.mark.skip(reason=spark35.LEFT_OUT[name]))
        if hasattr(item, "callspec") and item.callspec.id in SLOW_TWINS.get(item.originalname, ()):
            item.add_marker(pytest.mark.long)
        if {"s3_server", "azure_server", "gcs_server"} & set(item.fixturenames):
            item.add_marker(pytest.mark.server)


class Root(NamedTuple):
    """An empty place for one table."""

    url: str
    storage_options: dict[str, Any]


@pytest.fixture(scope="session", autouse=True)
def plain_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """PySpark's own logger, once there is one, makes JSON of all that the handlers write which pytest adds to it."""
    plugin: Any = request.config.pluginmanager.get_plugin("logging-plugin")
    with pytest.MonkeyPatch.context() as patch:
        for handler in (plugin.caplog_handler, plugin.report_handler):
            patch.setattr(handler, "setFormatter", lambda formatter: None)
        yield


class LeftOut(pytest.Module):
    """A module that Spark 3.5 cannot import, skipped as a whole, also if the command line names it."""

    def collect(self) -> NoReturn:
        pytest.skip(spark35.NO_SOURCE, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    left_out = {parent.config.rootpath / module for module in spark35.MODULES}
    return LeftOut.from_parent(parent, path=module_path) if spark35.IS_USED and module_path in left_out else None


@pytest.fixture(scope="session", autouse=spark35.IS_USED)
def without_sources() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        spark35.skip_sources(patch)
        yield


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Has a bucket `tables`."""
    with moto_server() as server:
        server.create_bucket("tables")
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Has a container `tables`."""
    with azurite_server() as server:
        server.create_container("tables")
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """Has a bucket `tables`."""
    with fake_gcs_server() as server:
        server.create_bucket("tables")
        yield server


def _url(scheme: str) -> str:
    """Of a directory that no other test has. The prefix keeps its digits out of what the path of a `Fault` may say."""
    return f"{scheme}://tables/test-{uuid4().hex}"


@pytest.fixture
def tiny_parts() -> Iterator[None]:
    """The checkpoints of this test put their state into parts, a few rows in each."""
    from tests.tiny_parts import tiny_parts  # imports pyarrow

    with tiny_parts():
        yield


@pytest.fixture
def state_form(request: pytest.FixtureRequest) -> str:
    """How the checkpoints of this test store the state: in one body, or in tiny parts."""
    form: str = request.param
    if form == "tiny parts":
        request.getfixturevalue("tiny_parts")
    return form


@pytest.fixture
def s3_root(s3_server: S3Server) -> Root:
    s3_server.reset()
    return Root(_url("s3"), s3_server.storage_options)


@pytest.fixture
def azure_root(azure_server: AzureServer) -> Root:
    azure_server.reset()
    return Root(_url("az"), azure_server.storage_options)


@pytest.fixture
def gcs_root(gcs_server: GcsServer) -> Root:
    gcs_server.reset()
    return Root(_url("gs"), gcs_server.storage_options)


@pytest.fixture
def local_root(tmp_path: Path) -> Root:
    return Root(str(tmp_path / "table"), {})


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config(map=spark35.LATER_DEFAULTS)
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def enabled(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The session with `enable(parquet=True)`, for this test only."""
    import dbio_commit as dbio

    dbio.enable(spark, parquet=True)
    yield spark
    for setting in ("spark.sql.sources.commitProtocolClass", "spark.sql.streaming.commitProtocolClass"):
        spark.conf.unset(setting)
        spark.sparkContext._jsc.sc().conf().remove(setting)
