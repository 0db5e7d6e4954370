"""Vacuums of another day, on real stores: their clock is ahead, and they believe that the store's is, too."""

import time
from datetime import datetime, timedelta
from unittest.mock import patch

from dbio_commit.base.clock import Clock
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.table import Table
from vacuum import VacuumOptions, VacuumReport, vacuum_table

_ASK = Executor._ask_for_the_time


class Ahead(Clock):
    """The machine's own, so far ahead."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


def vacuum_later(table: Table, options: VacuumOptions, *, by: timedelta, dry_run: bool = False) -> VacuumReport:
    """What is there now is so old then. The store is asked for its time, too, as in any vacuum."""
    with patch.object(Executor, "_ask_for_the_time", lambda self: _ASK(self) + by):
        return vacuum_table(Table.over(table.store, Ahead(by)), options, dry_run=dry_run)


def wait_for_the_next_second() -> None:
    """On stores whose times are whole seconds: what was done before is older than what comes now."""
    time.sleep(1.05 - time.time() % 1)
