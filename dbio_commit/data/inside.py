"""Checks files that also contain a partition column: do its values agree with the directory? Pure.

Readers of tables take the value from the directory. Tools that read single files take it from the file. Both must find
the same value, and the statistics of the file must prove that.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.footers import Footer
from dbio_commit.data.pruning import value_of
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.partition_values import read


def refuse_inside(
    files: Iterable[FileInfo], footers: Mapping[str, Footer], columns: Sequence[str], *, url: str
) -> None:
    """Raises InvalidInputError for a new file with a partition column whose values differ from the directory's, or may
    differ.

    `footers` has the footers that were read, by path. `url` is the table's.
    """
    parts = frozenset(column.lower() for column in columns)
    for file in files:
        footer = footers.get(file.path)
        kinds = {it["name"]: it["type"] for it in footer.columns["fields"]} if footer and footer.columns else {}
        for name in _in(parts, (*kinds, *(file.statistics or ()))):
            text = next(text for column, text in file.partition.items() if column.lower() == name.lower())
            bounds, kind = (file.statistics or {}).get(name, Bounds()), kinds.get(name)
            if file.rows != 0 and not _is_alike(text, bounds, file.rows, kind if isinstance(kind, str) else ""):
                raise InvalidInputError(
                    f"{url}/{file.path} holds the partition column {name!r}, too, and its statistics do not prove that "
                    f"the column is {text!r:.200} in all rows, as in the name of its directory: some readers would "
                    "find one value, others another. Write the file without that column"
                )


@lru_cache(maxsize=256)  # most files have the same columns
def _in(parts: frozenset[str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name.lower() in parts)


def _is_alike(text: str | None, bounds: Bounds, rows: int | None, kind: str) -> bool:
    if text is None:
        return bounds.nulls is not None and bounds.nulls == rows
    try:
        value = read(text, kind)
    except ValueError:
        return False
    least, most = value_of(bounds.min, kind), value_of(bounds.max, kind)
    return bounds.nulls == 0 and least is not None and least == most == value
