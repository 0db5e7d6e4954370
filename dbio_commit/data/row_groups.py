"""Which row groups of a Parquet file may hold rows that fulfil conditions, by the statistics in its footer? Pure.

`pruning` asks the same of files, by the statistics in markers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
import pyarrow.types as types

from dbio_commit.data.columns import file_schema, own_name
from dbio_commit.data.pruning import Condition, facts_of_file
from dbio_commit.data.statistics import bounds_in_group, leaf_types
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.names import Partition


def choose_groups(
    parquet: pq.ParquetFile, conditions: Sequence[Condition], types_of: Mapping[str, str], *, partition: Partition
) -> list[int]:
    """The numbers of the row groups that may hold rows which fulfil all conditions.

    `types_of` has the table's types, as `column_types` gives them. A column that the file has with another type leaves
    nothing out.
    """
    footer = parquet.metadata
    used = {column for condition in conditions for column in condition.columns()}
    leaves = _leaves(parquet, {column.lower(): types_of[column] for column in used if column in types_of})
    kept = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        told = {name: bounds_in_group(kind, footer, number, leaf) for name, (leaf, kind) in leaves.items()}
        info = FileInfo(path="", size=0, rows=group.num_rows, statistics=told, partition=dict(partition))
        facts_of = facts_of_file(info, used, types_of)
        if group.num_rows and all(condition.may_hold(facts_of) for condition in conditions):
            kept.append(number)
    return kept


def _leaves(parquet: pq.ParquetFile, wanted: Mapping[str, str]) -> dict[str, tuple[int, Any]]:
    """The columns whose statistics count: the number of the leaf, and Arrow's type."""
    found: dict[str, tuple[int, Any]] = {}
    leaf = 0
    for column, field in zip(file_schema(parquet), parquet.schema_arrow, strict=True):
        inside = list(leaf_types(field.name, field.type))
        is_flat = len(inside) == 1 and inside[0][0] == field.name
        kind = wanted.get(field.name.lower())
        if is_flat and not types.is_floating(field.type) and column.type == field.type and own_name(field.type) == kind:
            found[field.name] = leaf, field.type
        leaf += len(inside)
    return found if leaf == parquet.metadata.num_columns else {}
