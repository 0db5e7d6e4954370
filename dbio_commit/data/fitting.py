"""Decides whether the columns of files fit a table or one another, and which columns the table has then. Pure.

This is for files that other tools wrote; `mapping` is for new rows. All schemas are Spark's JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbio_commit.base.errors import SchemaMismatchError
from dbio_commit.data.footers import Footer
from dbio_commit.data.mapping import Schema, has_void
from dbio_commit.protocol.types import Family, decimal_digits, type_of, widens


def fit(files: Sequence[Footer], table: Schema | None, *, partition_columns: Sequence[str], where: str) -> Schema:
    """The table's columns after the files are added: its own, or those of the files if it has none recorded.

    A column that a file lacks is null in its rows. Raises SchemaMismatchError, with the names of file and column, for a
    column that the table lacks, spells otherwise, or has with a type that does not fit.
    """
    parts = {column.lower() for column in partition_columns}
    known = {field["name"].lower(): field for field in _fields(table)}
    for file in files:
        problems: list[str] = []
        for field in _fields(file.columns):
            name, kind = field["name"], field["type"]
            if name.lower() in parts:
                continue  # the directory has its value
            own = known.get(name.lower())
            if own is None and table is None and not has_void(kind):
                known[name.lower()] = field
            elif own is None and table is None:
                problems.append(f"{name} holds only nulls, without a type")
            elif own is None:
                problems.append(f"{name} is not in the table")
            elif other := respelled({"fields": [field]}, {"fields": [own]}):
                problems.append(f"{other}, which most readers of what is published tell apart")
            elif table is None and fits(own["type"], kind):
                known[name.lower()] = {**own, "type": kind}  # the wider one
            elif not fits(kind, own["type"]):
                problems.append(_difference(field, own))
        if problems:
            raise SchemaMismatchError(
                f"{file.path} does not fit the table {where}: {'; '.join(problems)}. Nothing was committed, and the "
                "transaction is aborted: write columns that fit, or pass all columns as commit(schema=...)"
            )
    if table is not None:
        return table
    text = ({"name": name, "type": "string", "nullable": True, "metadata": {}} for name in partition_columns)
    return {"type": "struct", "fields": [*known.values(), *text]}


def _difference(field: Schema, own: Schema) -> str:
    """Why a column of a file does not fit the table's, as text; for a nested column, with the place inside."""
    one, other = {"fields": [field]}, {"fields": [own]}
    if isinstance(field["type"], Mapping) and (inner := misfit(one, other)):
        return f"it holds {inner}"
    if more := lost(one, other):
        return f"{more} is not in the table"
    return f"{field['name']} is {_shown(field['type'])}, not {_shown(own['type'])}"


def _fields(schema: Schema | None) -> Iterator[Mapping[str, Any]]:
    fields = schema.get("fields") if schema else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, Mapping) and isinstance(field.get("name"), str) and "type" in field:
            yield field


def _compared(found: Schema, wanted: Schema, above: str = "") -> Iterator[tuple[str, str, str | None]]:
    """For each column of a file, and each field inside it: its path, its name, and the other schema's name for it, or
    None."""
    own = {field["name"].lower(): field for field in _fields(wanted)}
    for field in _fields(found):
        name, other = field["name"], own.get(field["name"].lower())
        yield above + name, name, other["name"] if other else None
        kind, wider = field["type"], other["type"] if other else None
        if isinstance(kind, Mapping) and isinstance(wider, Mapping):
            yield from _compared(_as_struct(kind), _as_struct(wider), f"{above}{name}.")


def respelled(found: Schema, wanted: Schema) -> str | None:
    """The first column or field that the two schemas spell differently, as text; None if there is none."""
    for path, name, own in _compared(found, wanted):
        if own is not None and own != name:
            return f"{path:.200} is spelled {own:.200} in the table"
    return None


def lost(found: Schema, wanted: Schema, partition_columns: Iterable[str] = ()) -> str | None:
    """The first column or field of a file that the table lacks. A rewrite of the file's rows would lose it."""
    parts = {column.lower() for column in partition_columns}
    return next((path for path, _, own in _compared(found, wanted) if own is None and path.lower() not in parts), None)


def misfit(found: Schema, wanted: Schema, is_fit: "LeafRule | None" = None) -> str | None:
    """The first column that both have, and whose type does not fit the wanted type by `fits`, as text; None if all
    fit."""
    own = {field["name"].lower(): field for field in _fields(wanted)}
    for field in _fields(found):
        as_wanted = own.get(field["name"].lower())
        if as_wanted is None:
            continue
        kind, other = field["type"], as_wanted["type"]
        if isinstance(kind, Mapping) and isinstance(other, Mapping) and kind.get("type") == other.get("type"):
            inner = misfit(_as_struct(kind), _as_struct(other), is_fit)
            if inner:
                return f"{field['name']}.{inner}"
        elif not fits(kind, other, is_fit):
            return f"{field['name']} as {_shown(kind)}, not {_shown(other)}"
    return None


def _as_struct(kind: Mapping[str, Any]) -> Schema:
    if kind.get("type") == "struct":
        return kind
    inner = (part for part in ("elementType", "keyType", "valueType") if part in kind)
    return {"type": "struct", "fields": [{"name": part, "type": kind[part]} for part in inner]}


# --- many files ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alike:
    """Files that have the same columns."""

    files: list[str]
    """Their paths."""
    columns: Schema


class _Clash(Exception):
    """One column has two types, neither of which holds all values of the other."""

    def __init__(self, column: str, own: Any, other: Any) -> None:
        super().__init__(column)
        self.column, self.own, self.other = column, own, other


def unite(groups: Sequence[Alike], *, where: str) -> Schema:
    """The columns of a table that consists of all these files. Columns of the first group come first.

    If types differ, the widest is used. If spellings differ, that of most files is used. Raises SchemaMismatchError,
    with the names of files, if neither of two types holds the values of the other.
    """
    whole: Any = {"type": "struct", "fields": []}
    for group in groups:
        try:
            whole = _united(whole, group.columns, "")
        except _Clash as clash:
            raise SchemaMismatchError(_describe(clash, groups, group, where)) from None
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in groups:
        for path, name, _ in _compared(group.columns, group.columns):
            spellings[path.lower()][name] += len(group.files)
    spelled: Schema = _as_most(whole, "", spellings)
    return spelled


def _united(own: Any, other: Any, path: str) -> Any:
    """A type that holds all values of both. Raises _Clash."""
    match own, other:
        case {"type": "struct"}, {"type": "struct"}:
            fields = {field["name"].lower(): field for field in _fields(own)}
            for field in _fields(other):
                name, known = field["name"], fields.get(field["name"].lower())
                inside = f"{path}.{name}" if path else name
                kind = _united(known["type"], field["type"], inside) if known else field["type"]
                fields[name.lower()] = {**(known or field), "type": kind}
            return {**own, "fields": [*fields.values()]}
        case {"type": "array"}, {"type": "array"}:
            return {**own, **_parts(own, other, path, "elementType")}
        case {"type": "map"}, {"type": "map"}:
            return {**own, **_parts(own, other, path, "keyType", "valueType")}
        case str(), str() if own == other or widens(other, own):
            return own
        case str(), str() if widens(own, other):
            return other
    raise _Clash(path, own, other)


def _parts(own: Any, other: Any, path: str, *parts: str) -> dict[str, Any]:
    return {part: _united(own[part], other[part], f"{path}.{part.removesuffix('Type')}") for part in parts}


def _describe(clash: _Clash, groups: Sequence[Alike], group: Alike, where: str) -> str:
    first = next(it for it in groups if it is group or not _unites(it, group))
    return (
        f"the files of {where} do not fit together: column {clash.column:.200} is {_shown(clash.own)} in "
        f"{_named(first.files)}, and {_shown(clash.other)} in {_named(group.files)}, and neither type holds all values "
        "of the other; nothing has changed. Write those of one type anew with the other, or move them elsewhere"
    )


def _unites(one: Alike, other: Alike) -> bool:
    try:
        _united(one.columns, other.columns, "")
    except _Clash:
        return False
    return True


def _named(files: Sequence[str]) -> str:
    return files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _as_most(kind: Any, path: str, spellings: Mapping[str, Counter[str]]) -> Any:
    """The type, with its fields spelled as in most files."""
    if not isinstance(kind, Mapping):
        return kind
    if kind.get("type") == "struct":
        fields = []
        for field in _fields(kind):
            inside = path + field["name"]
            ((name, _),) = spellings[inside.lower()].most_common(1)
            fields.append({**field, "name": name, "type": _as_most(field["type"], f"{inside}.", spellings)})
        return {**kind, "fields": fields}
    parts = [part for part in ("elementType", "keyType", "valueType") if part in kind]
    return {**kind, **{part: _as_most(kind[part], f"{path}{part}.", spellings) for part in parts}}


# --- types --------------------------------------------------------------------------------------------------------


LeafRule = Callable[[str, str], bool]
"""Whether one type, which is not nested, fits another."""


def fits(found: Any, wanted: Any, is_fit: LeafRule | None = None) -> bool:
    """Whether all readers read a file's type as the table's without loss. `is_fit` replaces the rule for types that are
    not nested."""
    match found, wanted:
        case {"type": "struct"}, {"type": "struct"}:
            own = {field["name"].lower(): field["type"] for field in _fields(wanted)}
            return all(
                field["name"].lower() in own and fits(field["type"], own[field["name"].lower()], is_fit)
                for field in _fields(found)
            )
        case {"type": "array"}, {"type": "array"}:
            return fits(found.get("elementType"), wanted.get("elementType"), is_fit)
        case {"type": "map"}, {"type": "map"}:
            return all(fits(found.get(part), wanted.get(part), is_fit) for part in ("keyType", "valueType"))
        case str(), str():
            return (is_fit or _leaf_fits)(found, wanted)
    return bool(found == "void")


def _leaf_fits(found: str, wanted: str) -> bool:
    """Stricter than `is_read`: Polars does not read whole numbers as decimals, bytes as text, or days as times."""
    if found in (wanted, "void"):
        return True
    narrow, wide = type_of(found), type_of(wanted)
    if narrow is None or wide is None:
        return False
    families = {narrow.family, wide.family}
    if families == {Family.TEXT} or families <= {Family.INSTANT, Family.LOCAL_TIME}:
        return True
    digits = decimal_digits(found)
    return widens(found, wanted) or (digits is not None and digits == decimal_digits(wanted))


def is_read(found: str, wanted: str) -> bool:
    """Whether dbio's reader and Spark's try to read values of one type, which is not nested, as the other."""
    if found in (wanted, "void"):
        return True
    import pyarrow as pa

    from dbio_commit.data.columns import arrow_type
    from dbio_commit.data.widen import fit as fit_values

    try:
        fit_values(pa.array([], arrow_type(found)), arrow_type(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return False
    return True


def without(schema: Schema, columns: Iterable[str]) -> Schema:
    """The columns without these, such as partition columns, whose values are in names of directories."""
    others = {column.lower() for column in columns}
    return {"type": "struct", "fields": [it for it in _fields(schema) if it["name"].lower() not in others]}


def _shown(kind: Any) -> str:
    return str(kind.get("type", kind)) if isinstance(kind, Mapping) else str(kind)
