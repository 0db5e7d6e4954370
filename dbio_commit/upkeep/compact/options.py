"""The options of a compaction, their defaults, checks and help texts. Pure.

`Table.compact`, `dbio.compact`, `dbio compact` and the schedule of `vacuum` all make a CompactOptions and pass it on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbio_commit.base.errors import InvalidInputError

TARGET_BYTES = 128 * 1000 * 1000

MOST_Z_COLUMNS = 8
"""With so many columns, a thousandth of the rows still spans about half of the values of each column."""

HELP: Mapping[str, str] = {
    "target_size": "The approximate size of a new file: 128MB, 64MiB, 1GB.",
    "where": 'Compact only files that may have rows for which the condition is true: "day > 5".',
    "sort_by": "Sort the rows of each new file by these columns.",
    "z_order": "Instead of --sort-by: sort the rows of each new file along the Z-curve of these columns.",
    "min_files": "Leave files as they are if fewer than this would become one.",
    "rewrite_types": "Also rewrite files, of any size, that have columns of narrower types than the table.",
}
"""By the names of options, for a command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """What a compaction does. Raises InvalidInputError for values that are not allowed, when it is made."""

    target_size: int = TARGET_BYTES
    """About how many bytes a new file has, counted as the bytes of the files that go into it."""
    where: str | None = None
    """A condition in Spark's SQL. Only files that may have rows for which it is true are compacted."""
    sort_by: Sequence[str] = ()
    """Columns by which the rows of each new file are sorted."""
    z_order: Sequence[str] = ()
    """Columns along whose Z-curve the rows of each new file are sorted. Not together with `sort_by`."""
    min_files: int = 1
    """If fewer files than this would become one, they stay as they are."""
    rewrite_types: bool = False
    """Whether to rewrite files, of any size, with a column of a narrower type than the table, which was widened since.
    Not all readers convert such files. Looks at the footer of each file."""

    def __post_init__(self) -> None:
        if type(self.target_size) is not int or self.target_size < 1:
            raise InvalidInputError(f"target_size is {self.target_size!r:.100}, not a number of bytes from 1")
        if type(self.min_files) is not int or self.min_files < 1:
            raise InvalidInputError(f"min_files is {self.min_files!r:.100}, not a number from 1")
        if type(self.rewrite_types) is not bool:
            raise InvalidInputError(f"rewrite_types is {self.rewrite_types!r:.100}, not True or False")
        if self.sort_by and self.z_order:
            raise InvalidInputError("sort_by and z_order are two orders of the same rows; give only one of them")
        if len(self.z_order) > MOST_Z_COLUMNS:
            raise InvalidInputError(
                f"z_order has {len(self.z_order)} columns, and at most {MOST_Z_COLUMNS} are allowed: with more, a "
                "condition on one of them would leave out hardly any file"
            )

    @property
    def is_ordered(self) -> bool:
        """Whether the rows of new files are sorted."""
        return bool(self.sort_by or self.z_order)


def column_names(given: str | Sequence[str]) -> Sequence[str]:
    """One column may be given as a text alone."""
    return (given,) if isinstance(given, str) else tuple(given)


def is_small(size: int, target_size: int) -> bool:
    """Whether a compaction joins a file of this size with others, if it can. Larger files stay as they are."""
    return 4 * size < 3 * target_size
