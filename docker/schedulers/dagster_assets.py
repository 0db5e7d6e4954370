"""Dagster: a table with a partition for each day. Materializing a day again replaces its rows, in one commit.

Install `dbio-commit[spark,s3]` and its store's extra beside Dagster, then run `dagster dev -f dagster_assets.py`. The
variables ORDERS_LANDING and ORDERS_TABLE say where the rows come from and where they go. Credentials come from the
environment.
"""

import os
from datetime import date

import dagster as dg
import pandas

import dbio_commit as dbio

LANDING = os.environ.get("ORDERS_LANDING", "s3://landing/orders")
TABLE = os.environ.get("ORDERS_TABLE", "s3://lake/orders")

days = dg.DailyPartitionsDefinition(start_date="2026-11-01")


@dg.asset(partitions_def=days, retry_policy=dg.RetryPolicy(max_retries=3, delay=60))
def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """The orders of a day. A retry, or two runs at once, leave the rows of the day once."""
    day = date.fromisoformat(context.partition_key)
    frame = pandas.read_parquet(f"{LANDING}/{day}.parquet")
    with dbio.Table(TABLE).begin("overwrite_partitions", partition_by=["day"]) as transaction:
        transaction.overwrite_partition({"day": day})  # also if the day has no row any more
        if len(frame):
            # Without nanoseconds, which pandas writes by default and other readers do not take.
            frame.to_parquet(transaction.new_file(partition={"day": day}), index=False, coerce_timestamps="us")
        commit = transaction.commit()
    return dg.MaterializeResult(metadata={"rows": len(frame), "tid": commit.tid, "removed files": commit.removed_files})


@dg.asset(deps=[orders])
def orders_upkeep() -> dg.MaterializeResult:
    """The table after a compaction and a vacuum. Both may run again at any time, and beside writers."""
    table = dbio.Table(TABLE)
    compacted = table.compact(min_files=2)
    vacuumed = table.vacuum(retention_hours=48)
    if vacuumed.failed:
        raise dg.Failure(f"{len(vacuumed.failed)} things failed, first {vacuumed.failed[0]}")
    return dg.MaterializeResult(metadata={"compacted": compacted.files_before, "deleted": len(vacuumed.deleted)})


load = dg.define_asset_job("load_orders", selection=[orders], partitions_def=days)
upkeep = dg.define_asset_job("upkeep_of_orders", selection=[orders_upkeep])

defs = dg.Definitions(
    assets=[orders, orders_upkeep],
    jobs=[load, upkeep],
    schedules=[
        dg.build_schedule_from_partitioned_job(load, hour_of_day=2, minute_of_hour=30),
        dg.ScheduleDefinition(job=upkeep, cron_schedule="30 4 * * *", execution_timezone="UTC"),
    ],
)
