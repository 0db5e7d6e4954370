"""The options of a compaction, their defaults, checks and help texts. Pure.

`Table.compact`, `dbio.compact`, `dbio compact` and the schedule of `vacuum` all make a CompactOptions and pass it on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dbio_commit.base.arguments import check_flags
from dbio_commit.base.errors import InvalidInputError

TARGET_BYTES = 128 * 1000 * 1000

MOST_BYTES = 16 * 1000**3
MOST_BYTES_IN_SPARK = 256 * 1000**3
"""The most bytes of a partition that are clustered together, by default."""

MOST_Z_COLUMNS = 8
"""With so many columns, a thousandth of the rows still spans about half of the values of each column."""

HELP: Mapping[str, str] = {
    "target_size": "The approximate size of a new file: 128MB, 64MiB, 1GB.",
    "where": 'Compact only files that may have rows for which the condition is true: "day > 5".',
    "sort_by": "Sort the rows of each new file by these columns.",
    "z_order": "Instead of --sort-by: sort the rows of each new file along the Z-curve of these columns.",
    "min_files": "Leave files as they are if fewer than this would become one.",
    "full": "Of a table with cluster_by: rewrite all files, also those that are clustered.",
    "most": "Of a table with cluster_by: the most bytes that are rewritten together.",
    "rewrite_types": "Also rewrite files, of any size, that have columns of narrower types than the table.",
}
"""Help texts for a command line, by the names of options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """The options of a compaction. The constructor raises InvalidInputError for values that are not allowed."""

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

    full: bool = False
    """Of a table with `cluster_by`: whether all files are rewritten, also those that are clustered."""
    most: int | None = None
    """Of a table with `cluster_by`: the most bytes that are rewritten together. None is MOST_BYTES, and with Spark
    MOST_BYTES_IN_SPARK. The more, the fewer files a condition reads."""
    spill: str | None = None
    """The directory of the local disk in which rows wait for their new file. None is the system's."""

    def __post_init__(self) -> None:
        if type(self.target_size) is not int or self.target_size < 1:
            raise InvalidInputError(f"target_size is {self.target_size!r:.100}, not a number of bytes from 1")
        if type(self.min_files) is not int or self.min_files < 1:
            raise InvalidInputError(f"min_files is {self.min_files!r:.100}, not a number from 1")
        check_flags(rewrite_types=self.rewrite_types, full=self.full)
        if self.most is not None and (type(self.most) is not int or self.most < 1):
            raise InvalidInputError(f"most is {self.most!r:.100}, not a number of bytes from 1")
        if self.sort_by and self.z_order:
            raise InvalidInputError("sort_by and z_order are two orders of the same rows; give only one of them")
        if len(self.z_order) > MOST_Z_COLUMNS:
            raise InvalidInputError(
                f"z_order has {len(self.z_order)} columns, and at most {MOST_Z_COLUMNS} are allowed: with more, a "
                "condition on one of them would leave out hardly any file"
            )

    def refuse_unfit(self, cluster_by: Sequence[str], *, where: str) -> None:
        """Raises InvalidInputError for options that a table cannot have with this `cluster_by`, which may be empty."""
        if cluster_by and self.is_ordered:
            raise InvalidInputError(
                f"{where} is clustered by {', '.join(cluster_by)}, so a compaction takes no sort_by and no z_order: "
                "leave them out, or remove the setting cluster_by"
            )
        if not cluster_by and (self.full or self.most is not None):
            raise InvalidInputError(
                f"{where} has no setting cluster_by, to which full and most belong: set it, or leave them out"
            )

    @property
    def is_ordered(self) -> bool:
        """Whether the rows of new files are sorted."""
        return bool(self.sort_by or self.z_order)


def column_names(given: str | Sequence[str]) -> Sequence[str]:
    """The columns as a sequence. One column may be given as a text alone. Raises InvalidInputError for no columns."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise InvalidInputError(f"{wrong[0]!r:.100} is no column to sort by: give a list of names, or () for none")
    return names


def is_small(size: int, target_size: int) -> bool:
    """Whether a compaction joins a file of this size with others, if it can. Larger files stay as they are."""
    return 4 * size < 3 * target_size
