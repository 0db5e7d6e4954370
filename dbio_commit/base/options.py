"""The values that a write's options can have, and the environment variables of writers."""

import os
from typing import Literal, cast

from dbio_commit.base.errors import InvalidInputError

Mode = Literal["append", "overwrite", "overwrite_partitions", "error", "errorifexists", "ignore"]
"""What a write does to an existing table: `write` explains each. "errorifexists" is Spark's word for "error"."""

Compression = Literal["snappy", "zstd", "gzip", "none"]
"""The compression of the Parquet files that are written."""

Isolation = Literal["write_serializable", "serializable"]
"""What a rewrite does if others meanwhile append rows that it would have changed.

"write_serializable" leaves such rows as they are; "serializable" makes them a conflict. Rows of other rewrites and
overwrites always conflict. The names are Delta's.
"""


def plain_mode(mode: Mode) -> Mode:
    """The mode in lower case, with "error" for "errorifexists". Raises InvalidInputError if it is no text."""
    if not isinstance(mode, str):
        raise InvalidInputError(f"mode={mode!r:.100} is no text; partition columns are given as partition_by=…")
    word = cast(Mode, mode.lower())
    return "error" if word == "errorifexists" else word


def check_replaced(mode: Mode, condition: object) -> None:
    """Raises InvalidInputError for a condition (`replace_where`) with another mode than "overwrite"."""
    if condition is not None and plain_mode(mode) != "overwrite":
        raise InvalidInputError(f"replace_where goes with mode='overwrite', not with mode={mode!r:.100}")


CHECKPOINT_EVERY = "DBIO_CHECKPOINT_EVERY"
"""The environment variable that `checkpoint_every` reads."""


PROVENANCE = "DBIO_PROVENANCE"
"""The environment variable that `records_provenance` reads."""


def records_provenance() -> bool:
    """Whether the commits of this process record who made them. Raises InvalidInputError for another text."""
    text = os.environ.get(PROVENANCE, "on")
    if text not in ("on", "off"):
        raise InvalidInputError(f"{PROVENANCE}={text!r:.100} is neither on nor off; change it, or unset it")
    return text == "on"


def checkpoint_every() -> int:
    """After about how many commits a writer writes a checkpoint. Checkpoints keep reads fast if nobody vacuums the
    table.

    64 by default; 0 is never. Raises InvalidInputError if the environment variable is no number.
    """
    text = os.environ.get(CHECKPOINT_EVERY, "64")
    if not (text.isascii() and text.isdecimal()):
        raise InvalidInputError(
            f"{CHECKPOINT_EVERY}={text!r:.100} is no number of commits; give 0 for never, or unset it"
        )
    return int(text)
