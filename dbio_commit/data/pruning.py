"""Which files may hold rows that fulfil a condition, by their partitions and by the statistics in markers. Pure.

Conservative: where nothing is known, a row may be there. How a condition is read from SQL is in `where`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers import Bounds, bounds_of
from dbio_commit.protocol.state import DataFile

# --- conditions ---------------------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """What is known of a column in a file, as values that Python compares; None where nothing is."""

    low: Any = None
    """At most every value that is not null."""
    high: Any = None
    """At least every value that is not null."""
    nulls: int | None = None
    rows: int | None = None

    @property
    def has_values(self) -> bool:
        """Whether some value may not be null."""
        return self.nulls is None or self.nulls != self.rows


NOTHING_KNOWN = Facts()

FactsOf = Callable[[str], Facts]
"""Of a column, by the table's spelling of its name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One of which nothing is known: any row may fulfil it."""

    def may_hold(self, facts_of: FactsOf) -> bool:
        """Whether it may be true in some row."""
        return True

    def columns(self) -> Iterator[str]:
        """That it goes by."""
        yield from ()

    def negated(self) -> "Condition":
        """What is true where this is false; where this is null, neither is true."""
        return UNKNOWN


UNKNOWN = Condition()

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
_OPPOSITE: Mapping[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Comparison(Condition):
    """Of a column with a value that lies somewhere from `low` to `high`."""

    column: str
    operator: Operator
    low: Any
    high: Any

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts = facts_of(self.column)
        if not facts.has_values:
            return False
        match self.operator:
            case "=":
                return (facts.low is None or facts.low <= self.high) and (facts.high is None or facts.high >= self.low)
            case "!=":
                return facts.low is None or not facts.low == facts.high == self.low == self.high
            case "<":
                return facts.low is None or bool(facts.low < self.high)
            case "<=":
                return facts.low is None or bool(facts.low <= self.high)
            case ">":
                return facts.high is None or bool(facts.high > self.low)
            case ">=":
                return facts.high is None or bool(facts.high >= self.low)

    def columns(self) -> Iterator[str]:
        yield self.column

    def negated(self) -> Condition:
        return Comparison(self.column, _OPPOSITE[self.operator], self.low, self.high)


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """Whether a column is null, or is not."""

    column: str
    is_null: bool = True

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts = facts_of(self.column)
        return facts.nulls != 0 if self.is_null else facts.has_values

    def columns(self) -> Iterator[str]:
        yield self.column

    def negated(self) -> Condition:
        return IsNull(self.column, not self.is_null)


@dataclass(frozen=True, slots=True)
class AllOf(Condition):
    """All of them; of none, it is true."""

    parts: tuple[Condition, ...]

    def may_hold(self, facts_of: FactsOf) -> bool:
        return all(part.may_hold(facts_of) for part in self.parts)

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()

    def negated(self) -> Condition:
        return AnyOf(tuple(part.negated() for part in self.parts))


@dataclass(frozen=True, slots=True)
class AtMost(Condition):
    """Something that holds only where another condition does, and perhaps not even there."""

    bound: Condition

    def may_hold(self, facts_of: FactsOf) -> bool:
        return self.bound.may_hold(facts_of)

    def columns(self) -> Iterator[str]:
        return self.bound.columns()


@dataclass(frozen=True, slots=True)
class AnyOf(Condition):
    """At least one of them."""

    parts: tuple[Condition, ...]

    def may_hold(self, facts_of: FactsOf) -> bool:
        return any(part.may_hold(facts_of) for part in self.parts)

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()

    def negated(self) -> Condition:
        return AllOf(tuple(part.negated() for part in self.parts))


# --- values -------------------------------------------------------------------------------------------------------


def column_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """The table's columns whose type has a name in Spark's JSON, such as `long`; others cannot be compared here."""
    return {
        field["name"]: field["type"]
        for field in schema.get("fields", ())
        if isinstance(field["type"], str) and "__COLLATIONS" not in field.get("metadata", {})
    }


def value_of(bound: Any, kind: str) -> Any:
    """A bound from a marker as a value that can be compared; None for what is none of the column's type."""
    if bound is None:
        return None
    match kind:
        case "byte" | "short" | "integer" | "long":
            return bound if type(bound) is int else None
        case "float" | "double":
            return bound if type(bound) in (int, float) else None
        case "boolean":
            return bound if type(bound) is bool else None
        case "string":
            return bound if type(bound) is str else None
    parse = _PARSERS.get(kind.partition("(")[0])
    try:
        return parse(str(bound)) if parse and type(bound) in (str, int) else None
    except (ValueError, InvalidOperation):
        return None


def _decimal(text: str) -> Decimal | None:
    value = Decimal(text)
    return value if value.is_finite() and abs(value.adjusted()) < 100 else None


def _instant(text: str) -> datetime | None:
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else None


def _local_time(text: str) -> datetime | None:
    value = datetime.fromisoformat(text)
    return None if value.tzinfo else value


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "decimal": _decimal,
    "date": date.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": _local_time,
}


def _partition_value(text: str, kind: str) -> Any:
    """The value that a directory is named after; None where it is none of the column's type."""
    match kind:
        case "byte" | "short" | "integer" | "long":
            return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None
        case "boolean":
            return {"true": True, "false": False}.get(text)
        case "timestamp":
            value = value_of(text, "timestamp_ntz")
            return value.replace(tzinfo=UTC) if value else None
    return value_of(text, kind)


# --- files --------------------------------------------------------------------------------------------------------


def prune(
    files: Sequence[DataFile], commits: Iterable[Decided], condition: Condition, types: Mapping[str, str]
) -> tuple[DataFile, ...]:
    """Those of the files that may hold a row which fulfils the condition. `types` are those of `column_types`."""
    columns = [column for column in dict.fromkeys(condition.columns()) if column in types]
    if condition is UNKNOWN:
        return tuple(files)
    kept = _by_partition(files, condition, columns, types)
    if kept and set(columns) - _names(kept[0].partition, columns):
        useless = set(_by_statistics(kept, commits, condition, columns, types))
        kept = [file for file in kept if file.path not in useless]
    return tuple(kept)


def _by_partition(
    files: Sequence[DataFile], condition: Condition, columns: Sequence[str], types: Mapping[str, str]
) -> list[DataFile]:
    verdicts: dict[int, bool] = {}  # files of a directory share what was parsed from it
    kept: list[DataFile] = []
    for file in files:
        verdict = verdicts.get(id(file.partition))
        if verdict is None:
            facts = _partition_facts(file.partition, columns, types)
            verdict = verdicts[id(file.partition)] = condition.may_hold(_getter(facts))
        if verdict:
            kept.append(file)
    return kept


def _by_statistics(
    files: Sequence[DataFile],
    commits: Iterable[Decided],
    condition: Condition,
    columns: Sequence[str],
    types: Mapping[str, str],
) -> Iterator[str]:
    """The paths of those of the files that cannot hold such a row."""
    partitions = {file.path: file.partition for file in files}
    in_partitions: dict[int, dict[str, Facts]] = {}
    for commit in commits:
        info = commit.marker.dbio_commit.files if commit.marker.dbio_commit else None
        told = info.statistics if info else {}
        spelling = {name.lower(): name for name in told}
        listed = {column: told[spelling[column.lower()]] for column in columns if column.lower() in spelling}
        if not info or not listed:
            continue
        for i, path in enumerate(commit.marker.added):
            partition = partitions.get(path)
            if partition is None:
                continue
            facts = in_partitions.get(id(partition))
            if facts is None:
                facts = in_partitions[id(partition)] = _partition_facts(partition, columns, types)
            own = {column: _facts(bounds_of(it, i), info.rows[i], types[column]) for column, it in listed.items()}
            if not condition.may_hold(_getter(own | facts)):
                yield path


def _facts(bounds: Bounds, rows: int | None, kind: str) -> Facts:
    return Facts(value_of(bounds.min, kind), value_of(bounds.max, kind), bounds.nulls, rows)


def _partition_facts(
    partition: Mapping[str, str | None], columns: Sequence[str], types: Mapping[str, str]
) -> dict[str, Facts]:
    values = {name.lower(): value for name, value in partition.items()}
    facts: dict[str, Facts] = {}
    for column in columns:
        if column.lower() in values:
            text = values[column.lower()]
            value = None if text is None else _partition_value(text, types[column])
            if text is None:
                facts[column] = Facts(nulls=1, rows=1)
            elif value is not None:
                facts[column] = Facts(value, value, nulls=0)
    return facts


def _names(partition: Mapping[str, str | None], columns: Collection[str]) -> set[str]:
    lower = {name.lower() for name in partition}
    return {column for column in columns if column.lower() in lower}


def _getter(facts: Mapping[str, Facts]) -> FactsOf:
    return lambda column: facts.get(column, NOTHING_KNOWN)
