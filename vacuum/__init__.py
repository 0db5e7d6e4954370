"""VACUUM: deletes what no reader needs, now or on a schedule.

`plan` decides, `run` does, `schedule` is the service (`python -m vacuum`).
"""

from dbio_commit.protocol.garbage import Reason
from vacuum.report import Control, Deletion, Failure, VacuumOptions, VacuumReport
from vacuum.run import vacuum, vacuum_table

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
