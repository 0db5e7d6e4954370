"""Vacuum: reads what is there, has `plan` decide, and does it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dbio_commit.table import Table
from vacuum.report import Control, VacuumOptions, VacuumReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def vacuum(
    path: str | os.PathLike[str],
    retention_hours: float = 48.0,
    dry_run: bool = False,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    spark: "SparkSession | None" = None,
    *,
    untracked: bool = False,
) -> VacuumReport:
    """Deletes what no reader needs any more from the table at the path."""
    options = VacuumOptions(retention_hours=retention_hours, force=force, untracked=untracked)
    return vacuum_table(Table(path, storage_options), options, dry_run=dry_run, spark=spark)


def vacuum_table(
    table: Table,
    options: VacuumOptions,
    *,
    dry_run: bool = False,
    spark: "SparkSession | None" = None,
    control: Control | None = None,
) -> VacuumReport:
    """The same for a table in hand, with everything that can be set."""
    raise NotImplementedError
