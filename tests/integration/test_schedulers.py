"""docker/schedulers: the examples for Airflow and Dagster load each day once, and look after the table.

Airflow and Dagster need other versions of packages than the tests have. `make test` imports the examples with small
modules in their place, and calls their functions. `make test-schedulers` runs them on the real Airflow and Dagster.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pandas
import pytest

from dbio_commit import Table

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker/schedulers"
DAYS = [date(2026, 11, 20), date(2026, 11, 21)]
PLACE = os.environ.get("DBIO_TEST_SCHEDULERS", "")

on_real_ones = pytest.mark.skipif(not PLACE, reason="make test-schedulers")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rows of two days, to be loaded into the table `orders`."""
    (tmp_path / "landing").mkdir()
    for day in DAYS:
        put(tmp_path, day, ids=[1, 2])
    monkeypatch.setenv("ORDERS_LANDING", str(tmp_path / "landing"))
    monkeypatch.setenv("ORDERS_TABLE", str(tmp_path / "orders"))
    return tmp_path


def put(lake: Path, day: date, *, ids: list[int]) -> None:
    frame = pandas.DataFrame({"id": ids, "at": pandas.to_datetime([f"{day}T12:00:00"] * len(ids))})
    frame.to_parquet(lake / f"landing/{day}.parquet")


def rows(lake: Path) -> list[tuple[str, int]]:
    frame = Table(lake / "orders").to_pandas()
    return sorted((str(day), id) for day, id in zip(frame["day"], frame["id"], strict=True))


def example(name: str, **modules: ModuleType) -> Any:
    """The example, imported with these modules in the place of the scheduler's."""
    with pytest.MonkeyPatch.context() as patched:
        for module, it in modules.items():
            patched.setitem(sys.modules, module.replace("__", "."), it)
        spec = spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
        assert spec
        assert spec.loader
        found = module_from_spec(spec)
        spec.loader.exec_module(found)
        return found


# --- Airflow ------------------------------------------------------------------------------------------------------


class Airflow(ModuleType):
    """Keeps the tasks of a DAG, and their order."""

    def __init__(self) -> None:
        super().__init__("airflow.sdk")
        self.options: dict[str, Any] = {}
        self.tasks: dict[str, Callable[..., Any]] = {}
        self.order: list[tuple[str, str]] = []

    def dag(self, **options: Any) -> Callable[[Any], Any]:
        self.options = options
        return lambda function: function

    def task(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return self.task
        self.tasks[function.__name__] = function
        return lambda: _Step(self, function.__name__)


class _Step:
    def __init__(self, airflow: Airflow, name: str) -> None:
        self.airflow, self.name = airflow, name

    def __rshift__(self, other: "_Step") -> "_Step":
        self.airflow.order.append((self.name, other.name))
        return other


def test_the_dag_loads_the_day_before_its_logical_date_exactly_once_and_then_looks_after_the_table(lake: Path) -> None:
    airflow = Airflow()
    package = ModuleType("airflow")
    example("airflow_dag", airflow=package, airflow__sdk=airflow)
    assert airflow.order == [("load", "upkeep")]
    assert airflow.options["start_date"].tzinfo
    night = datetime(2026, 11, 22, 2, 30, tzinfo=UTC)
    load, upkeep = airflow.tasks["load"], airflow.tasks["upkeep"]
    assert load(logical_date=night)["skipped"] is False
    assert load(logical_date=night)["skipped"] is True, "a retry"
    assert load(logical_date=datetime(2026, 11, 21, 2, 30, tzinfo=UTC))["rows"] == 2, "a day that comes late"
    assert upkeep() == {"compacted": 0, "deleted": 0}
    assert rows(lake) == [(str(day), id) for day in DAYS for id in (1, 2)]
    assert [it.app for it in Table(lake / "orders").history()] == [
        ("airflow/load_orders", 20261120),
        ("airflow/load_orders", 20261121),
    ]


# --- Dagster ------------------------------------------------------------------------------------------------------


def dagster() -> ModuleType:
    """Its decorators return the functions, and its results keep their arguments."""
    module = MagicMock(spec_set=[*_USED])
    module.asset = lambda function=None, **options: function or (lambda it: it)
    module.MaterializeResult = lambda metadata: metadata
    return module


_USED = ("asset", "AssetExecutionContext", "DailyPartitionsDefinition", "Definitions", "Failure", "MaterializeResult",
         "RetryPolicy", "ScheduleDefinition", "build_schedule_from_partitioned_job", "define_asset_job")  # fmt: skip


def test_the_asset_replaces_the_rows_of_its_day(lake: Path) -> None:
    module = example("dagster_assets", dagster=dagster())
    first, second = (SimpleNamespace(partition_key=str(day)) for day in DAYS)
    assert module.orders(first)["rows"] == 2
    module.orders(second)
    put(lake, DAYS[0], ids=[7])
    assert module.orders(first)["removed files"] == 1
    assert rows(lake) == [("2026-11-20", 7), ("2026-11-21", 1), ("2026-11-21", 2)]
    put(lake, DAYS[0], ids=[])
    module.orders(first)
    assert rows(lake) == [("2026-11-21", 1), ("2026-11-21", 2)]
    assert module.orders_upkeep() == {"compacted": 0, "deleted": 0}


# --- the real ones ------------------------------------------------------------------------------------------------


def run(scheduler: str, *command: str, **env: str) -> str:
    program, *arguments = command
    path = Path(PLACE, scheduler, "bin", program)
    done = subprocess.run([path, *arguments], capture_output=True, text=True, env=os.environ | env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@on_real_ones
def test_airflow_runs_the_dag_and_a_run_with_the_same_logical_date_commits_nothing(lake: Path, tmp_path: Path) -> None:
    env = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    (tmp_path / "airflow/dags").mkdir(parents=True)
    (tmp_path / "airflow/dags/airflow_dag.py").symlink_to(FOLDER / "airflow_dag.py")
    run("airflow", "airflow", "db", "migrate", **env)
    run("airflow", "airflow", "dags", "reserialize", **env)
    for skipped in (False, True):
        said = run("airflow", "airflow", "dags", "test", "load_orders", "2026-11-21T02:30:00+00:00", **env)
        assert f"'skipped': {skipped}" in said
    assert rows(lake) == [("2026-11-20", 1), ("2026-11-20", 2)]


PROGRAM = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import dagster as dg, dagster_assets
for day in ("2026-11-20", "2026-11-21", "2026-11-20"):
    assert dg.materialize([dagster_assets.orders], partition_key=day).success
assert dg.materialize([dagster_assets.orders_upkeep]).success
dg.Definitions.validate_loadable(dagster_assets.defs)
"""


@on_real_ones
def test_dagster_materializes_the_days_and_has_a_job_and_a_schedule_for_them(lake: Path) -> None:
    run("dagster", "python", "-c", PROGRAM)
    assert rows(lake) == [(str(day), id) for day in DAYS for id in (1, 2)]
