"""Fixtures that every kind of test may use: the stores, each as a fresh empty place, and one classic Spark session.

Spark Connect is not here: it and a classic session do not share a process.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from uuid import uuid4

import pytest
from hypothesis import settings

from tests import minio, spark35
from tests.servers import AzureServer, GcsServer, S3Server, azurite_server, fake_gcs_server, moto_server
from tests.tiers import has_part, spare_cases

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
_RANDOM = "DBIO_TEST_RANDOM" in os.environ
settings.register_profile("untimed", deadline=None, derandomize=not _RANDOM, max_examples=100 if _RANDOM else 50)
settings.load_profile("untimed")


WITHOUT_CASES = pytest.StashKey[set[tuple[str, str]]]()
"""The tests whose marker `long_for` names a part that no case has. It is kept only if every test was collected."""


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests that need a server, those that it cannot pass, long cases, and spare cases of tests with Spark."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    named, met = set[tuple[str, str]](), set[tuple[str, str]]()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if os.environ.get("DBIO_TEST_S3_SERVER") == "minio":
            for name in {item.name, item.originalname} & minio.LEFT_OUT.keys():
                item.add_marker(pytest.mark.skip(reason=minio.LEFT_OUT[name]))
        if spark35.IS_USED:
            for name in {item.name, item.originalname} & spark35.LEFT_OUT.keys():
                item.add_marker(pytest.mark.skip(reason=spark35.LEFT_OUT[name]))
        for part in (part for mark in item.iter_markers("long_for") for part in mark.args):
            named.add((item.originalname, part))
            if has_part(item.callspec.id, part):
                met.add((item.originalname, part))
                item.add_marker(pytest.mark.long)
        if {"s3_server", "azure_server", "gcs_server"} & set(item.fixturenames):
            item.add_marker(pytest.mark.server)
        if hasattr(item, "callspec") and "spark" in item.fixturenames and not item.get_closest_marker("long"):
            cases[item.path, item.originalname].append(item)
    for of_one in cases.values():
        for item in spare_cases(of_one):
            item.add_marker(pytest.mark.long)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.ignore:
        config.stash[WITHOUT_CASES] = named - met


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
        .config("spark.sql.ui.explainMode", "simple")  # Spark makes this text for each query; the default costs a tenth
        # Two tests of streams with state took a minute longer now and then, once Spark's upkeep of states had begun.
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "1h")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config(map=spark35.LATER_DEFAULTS)
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def parquet_stays_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves `enable(parquet=True)` to the next ones, whose plain reads would then be others."""
    yield
    if "spark" in request.fixturenames:
        from pyspark.sql import SparkSession

        session = SparkSession._instantiatedSession  # None on Spark Connect
        assert session is None or session.conf.get("spark.dbio.reads", None) is None, "use the fixture enabling"


@pytest.fixture
def enabling(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The session, for a test that calls `enable(parquet=True)`: that holds for this test only."""
    yield spark
    for setting in (
        "spark.sql.sources.commitProtocolClass",
        "spark.sql.streaming.commitProtocolClass",
        "spark.dbio.reads",
    ):
        spark.conf.unset(setting)
        spark.sparkContext._jsc.sc().conf().remove(setting)


@pytest.fixture
def enabled(enabling: "SparkSession") -> "SparkSession":
    """The session with `enable(parquet=True)`, for this test only."""
    import dbio_commit as dbio

    dbio.enable(enabling, parquet=True)
    return enabling
