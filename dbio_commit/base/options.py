"""The words that options of a write can have, on every way to write, and what the environment sets."""

import os
from typing import Literal

from dbio_commit.base.errors import InvalidInputError

Mode = Literal["append", "overwrite", "overwrite_partitions", "error", "ignore"]
"""What a write does to a table that is there: `dbio_commit.write` says it of each."""

Compression = Literal["snappy", "zstd", "gzip", "none"]
"""Of the Parquet files that are written."""


CHECKPOINT_EVERY = "DBIO_CHECKPOINT_EVERY"
"""The environment variable that `checkpoint_every` reads."""


def checkpoint_every() -> int:
    """After about so many commits a writer makes a checkpoint, so that a table which nobody vacuums is read fast.

    64 by default; 0 is never. Raises InvalidInputError where the environment says something else than a number.
    """
    said = os.environ.get(CHECKPOINT_EVERY, "64")
    if not (said.isascii() and said.isdecimal()):
        raise InvalidInputError(
            f"{CHECKPOINT_EVERY}={said!r:.100} is no number of commits; give 0 for never, or unset it"
        )
    return int(said)
