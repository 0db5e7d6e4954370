"""VACUUM on a schedule: `schedule` is the service (`python -m vacuum`). What it does is in `dbio_commit.vacuuming`."""

from dbio_commit.protocol.garbage import Reason
from dbio_commit.vacuuming.report import Control, Deletion, Failure, VacuumOptions, VacuumReport
from dbio_commit.vacuuming.run import vacuum, vacuum_table

__all__ = [
    "Control",
    "Deletion",
    "Failure",
    "Reason",
    "VacuumOptions",
    "VacuumReport",
    "vacuum",
    "vacuum_table",
]
