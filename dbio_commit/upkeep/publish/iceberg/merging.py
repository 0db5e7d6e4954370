"""Which manifests of Iceberg a publication writes anew as fewer, larger ones. Pure."""

from collections.abc import Sequence
from math import log10

from dbio_commit.upkeep.publish.iceberg.avro import MOST_MANIFEST_BYTES
from dbio_commit.upkeep.publish.iceberg.manifests import Manifest

FULL_BYTES = MOST_MANIFEST_BYTES // 8
"""A publisher begins another manifest at this size."""

_TOGETHER = 10
"""How many manifests of one level become one of the next level."""


def level(live: int, length: int) -> int | None:
    """The level of a manifest with so many live files; None for one that is large enough to stay."""
    return None if length >= FULL_BYTES // 2 else int(log10(max(live, 1)))


def to_merge(manifests: Sequence[Manifest], new_files: int) -> list[Manifest]:
    """The manifests that are written together with the new files, or by themselves: those of the lowest level that has
    many. So each entry is written once for each level, and a table has few manifests for each level.
    """
    levels = [level(it.live, it.length) for it in manifests]
    new = [level(new_files, 0)] if new_files else []
    full = sorted({it for it in levels if it is not None and [*levels, *new].count(it) >= _TOGETHER})
    return [it for it, own in zip(manifests, levels, strict=True) if own == full[0]] if full else []
