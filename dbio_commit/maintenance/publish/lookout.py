"""Finds out whether others have published while a publisher prepared its objects. Rules: NOTES.md, Order.

An erasure waits, and then deletes old publications. Their numbers are free again, so a free number does not prove that
nobody was faster. A publisher that takes longer than the erasure waits looks again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.commit.turns import TRUST_S


class OvertakenError(Exception):
    """Another publisher was faster: look again."""


class Lookout:
    """Records when a publisher last looked at the publications in its format, and makes it look again."""

    def __init__(self, clock: Clock, looked: Moment) -> None:
        self._clock, self._began, self._looked = clock, looked, looked

    def look(self, is_overtaken: Callable[[], bool]) -> None:
        """Is called before an object is created. If the last look was too long ago, calls `is_overtaken`, and raises
        OvertakenError if others were faster."""
        if not self._clock.is_within(self._looked, TRUST_S):
            looked = self._clock.moment()
            if is_overtaken():
                raise OvertakenError
            self._looked = looked

    @contextmanager
    def creating(
        self,
        is_overtaken: Callable[[], bool],
        *,
        is_useless: Callable[[], bool],
        undo: Callable[[], object],
        is_erased: Callable[[], bool] | None = None,
        only_late: bool = False,
    ) -> Iterator[None]:
        """The block creates an object. If that took long, and others have made it useless meanwhile, this deletes it
        again with `undo`, and raises OvertakenError.

        `is_erased` also asks whether rows were erased meanwhile; with `only_late`, only if it took long. It is for
        objects by which an erasure is not noticed: the first of a format, which an erasure does not find before, and a
        list for Spark, of which an erasure creates no new one with the same files.
        """
        self.look(is_overtaken)
        yield
        try:
            self.look(is_useless)
            is_asked = not only_late or not self._clock.is_within(self._began, TRUST_S)
            if is_erased and is_asked and is_erased():
                raise OvertakenError
        except OvertakenError:
            undo()
            raise
