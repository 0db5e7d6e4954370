"""A service that vacuums tables on a schedule: `python -m vacuum`.

The vacuum itself is in `dbio_commit.maintenance.vacuum`. The names below are imported at first use, so that commands
start fast.
"""

TYPE_CHECKING = False  # without an import of `typing`
if TYPE_CHECKING:
    from dbio_commit.maintenance.vacuum.report import Control, Deletion, Failure, VacuumOptions, VacuumReport
    from dbio_commit.protocol.garbage import Reason
    from dbio_commit.table import vacuum, vacuum_table

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


def __getattr__(name: str) -> object:
    if name in __all__:
        from dbio_commit import table
        from dbio_commit.maintenance.vacuum import report

        return getattr(table if hasattr(table, name) else report, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
