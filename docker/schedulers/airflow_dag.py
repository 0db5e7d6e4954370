"""Airflow 3: each night, loads the orders of the day before exactly once, then compacts and vacuums the table.

Put this file into the folder of DAGs, and install `dbio-commit[spark,s3]` and its store's extra beside Airflow. The
variables ORDERS_LANDING and ORDERS_TABLE say where the rows come from and where they go. Credentials come from the
environment of the workers.
"""

import os
from datetime import UTC, date, datetime, timedelta
from typing import Any

from airflow.sdk import dag, task

LANDING = os.environ.get("ORDERS_LANDING", "s3://landing/orders")
TABLE = os.environ.get("ORDERS_TABLE", "s3://lake/orders")


def load_day(day: date) -> dict[str, Any]:
    """Appends the rows of a day. A second load of the same day commits nothing, and says so."""
    import pandas

    import dbio_commit as dbio  # in the task, so that the scheduler parses this file fast

    frame = pandas.read_parquet(f"{LANDING}/{day}.parquet")
    with dbio.Table(TABLE).begin(partition_by=["day"], app=("airflow/load_orders", day)) as transaction:
        # Without nanoseconds, which pandas writes by default and other readers do not take.
        frame.to_parquet(transaction.new_file(partition={"day": day}), index=False, coerce_timestamps="us")
        commit = transaction.commit()
    return {"day": str(day), "rows": len(frame), "tid": commit.tid, "skipped": commit.skipped}


def look_after() -> dict[str, Any]:
    """Compacts, then vacuums. Both may run again at any time, and beside writers."""
    import dbio_commit as dbio

    table = dbio.Table(TABLE)
    compacted = table.compact(min_files=2)
    vacuumed = table.vacuum(retention_hours=48)
    if vacuumed.failed:
        raise RuntimeError(f"{len(vacuumed.failed)} things failed, first {vacuumed.failed[0]}")
    return {"compacted": compacted.files_before, "deleted": len(vacuumed.deleted)}


@dag(
    schedule="30 2 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=True,  # days may be loaded in any order, so backfills are safe
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
)
def load_orders() -> None:
    @task
    def load(logical_date: datetime | None = None) -> dict[str, Any]:
        # The logical date is the same for each retry. A time of day such as now() would load the rows twice.
        assert logical_date, "give a logical date, from which the day follows"
        return load_day((logical_date.astimezone(UTC) - timedelta(days=1)).date())

    @task(execution_timeout=timedelta(hours=6))
    def upkeep() -> dict[str, Any]:
        return look_after()

    load() >> upkeep()


load_orders()
