"""Defines what every write to a table needs, such as its store and its clock. Needs no pyarrow."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbio_commit.base.clock import Clock
from dbio_commit.commit.provenance import SparkRun
from dbio_commit.data.footers import Inspector
from dbio_commit.protocol import names
from dbio_commit.protocol.settings import Settings
from dbio_commit.store import Store

if TYPE_CHECKING:
    from dbio_commit.commit.joint import JointCommit

FollowUp = Callable[[Store, Clock, Settings | None], Iterator[None]]
"""The work after a commit, given the table's settings, in three steps. The first may go beside the PUT of the commit
marker, the second comes after it, and may go beside the look at the descriptor. Both only read, since the commit may
still fail. The third is for a commit that stands, and logs what fails. None raises an error."""


@dataclass(frozen=True, kw_only=True)
class WriteContext:
    """What every write to a table needs."""

    store: Store
    clock: Clock
    follow_up: FollowUp
    """Is called after the commit."""
    inspector: Inspector | None = None
    """Reads the footers of new files before the commit. None takes the files as they are."""
    limits: names.PathLimits | None = None
    """How long the path of a partition may be."""
    run: SparkRun | None = None
    """The Spark application that writes; None outside of Spark."""

    @property
    def url(self) -> str:
        return self.store.url


@dataclass(slots=True)
class Joining:
    """One operation of a joint transaction."""

    joint: "JointCommit"
    url: str
    """The table that it writes to."""
    is_taken: bool = False
    """Whether its transaction has begun."""

    def take(self, url: str) -> "JointCommit | None":
        """The joint transaction, for the first transaction of this operation in this table. Others do not join, such as
        those of a frame of the caller that writes while it is read."""
        if self.is_taken or url != self.url:
            return None
        self.is_taken = True
        return self.joint


JOINING: ContextVar[Joining | None] = ContextVar("joining", default=None)
"""The operation of a joint transaction that runs now. Only the methods of `JointTransaction` set it."""


_LONGEST_FILE_NAME = 160
"""The longest name of a data file, in bytes; a high estimate."""


def path_limits(*, is_disk: bool, root: str) -> names.PathLimits:
    """How long the path of a partition may be, by the limits of Linux file systems and of keys in object stores."""
    name, path = (255, 4095) if is_disk else (1024, 1024)
    return names.PathLimits(component=name, path=path - len(f"{root}/".encode()) - _LONGEST_FILE_NAME)
