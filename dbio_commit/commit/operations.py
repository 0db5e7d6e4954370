"""Defines the operations: whether each takes a turn, whether it sets the columns, and which files it removes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dbio_commit.base.errors import CommitConflictError
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.partitions import partition_types, replaced_files
from dbio_commit.protocol.state import DataFile, live_among

if TYPE_CHECKING:
    from dbio_commit.commit.request import CommitRequest


class TableState(Protocol):
    """The state of the table in which an operation commits, such as a Snapshot."""

    @property
    def url(self) -> str: ...
    @property
    def files(self) -> Sequence[DataFile]: ...
    @property
    def partition_columns(self) -> Sequence[str]: ...
    @property
    def schema(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operation does to a table."""

    needs_state: bool
    """Whether the operation depends on the table's state. Then it takes a turn (I7)."""
    sets_schema: bool
    """Whether the commit sets the table's columns, whatever they were."""
    removes: "Callable[[CommitRequest, TableState], list[str]]"
    """Returns the paths of the live files that the operation removes. Raises CommitConflictError if it cannot be
    done."""


def _nothing(request: "CommitRequest", table: TableState) -> list[str]:
    return []


def _everything(request: "CommitRequest", table: TableState) -> list[str]:
    return [file.path for file in table.files]


def _what_lies_in_its_partitions(request: "CommitRequest", table: TableState) -> list[str]:
    replaced = request.replaced or [file.partition for file in request.files]
    types = partition_types(request.schema or table.schema, table.partition_columns)
    return [file.path for file in replaced_files(table.files, replaced, types)]


def _what_it_rewrites(request: "CommitRequest", table: TableState) -> list[str]:
    if gone := set(request.rewritten) - live_among(table.files, set(request.rewritten)):
        raise CommitConflictError(
            f"{len(gone)} of the {len(request.rewritten)} files that transaction {request.terms.tid} rewrites are not "
            f"live any more in {table.url}, first {min(gone)}; read the table again and begin again"
        )
    return sorted(request.rewritten)


RULES: Mapping[Operation, Rules] = {
    "append": Rules(needs_state=False, sets_schema=False, removes=_nothing),
    "overwrite": Rules(needs_state=True, sets_schema=True, removes=_everything),
    "overwrite_partitions": Rules(needs_state=True, sets_schema=False, removes=_what_lies_in_its_partitions),
    "rewrite": Rules(needs_state=True, sets_schema=False, removes=_what_it_rewrites),
}
"""The operations that a transaction may begin with. "adopt" and "abort" are in markers only."""
