"""Whether the columns of new files fit a table, and what the table's columns are after them. Pure.

For files that Spark did not write; `spark.schema` is for DataFrames. All schemas are Spark's JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dbio_commit.data.footers import Footer
from dbio_commit.errors import SchemaMismatchError

Schema = Mapping[str, Any]


def fit(files: Sequence[Footer], table: Schema | None, *, partition_columns: Sequence[str], where: str) -> Schema:
    """The table's columns after the files were added: its own, or those of the files where it has none recorded.

    Names are matched without regard to case. A file may lack columns, which are null then. Raises SchemaMismatchError,
    with the names of file and column, for a column that the table lacks or that does not fit its type.
    """
    parts = {column.lower() for column in partition_columns}
    known = {field["name"].lower(): field for field in _fields(table)}
    for file in files:
        problems: list[str] = []
        for field in _fields(file.columns):
            name, kind = field["name"], field["type"]
            if name.lower() in parts:
                continue  # the directory says what it is
            own = known.get(name.lower())
            if own is None and table is None and not _has_void(kind):
                known[name.lower()] = field
            elif own is None and table is None:
                problems.append(f"{name} holds nothing but nulls without a type")
            elif own is None:
                problems.append(f"{name} is not in the table")
            elif table is None and fits(own["type"], kind):
                known[name.lower()] = {**own, "type": kind}  # the wider one
            elif not fits(kind, own["type"]):
                problems.append(f"{name} is {_shown(kind)}, not {_shown(own['type'])}")
        if problems:
            raise SchemaMismatchError(
                f"{file.path} does not fit the table {where}: {'; '.join(problems)}. Nothing was committed, and the "
                "transaction is aborted: write columns that fit, or pass all columns as commit(schema=...)"
            )
    if table is not None:
        return table
    text = ({"name": name, "type": "string", "nullable": True, "metadata": {}} for name in partition_columns)
    return {"type": "struct", "fields": [*known.values(), *text]}


def _fields(schema: Schema | None) -> Iterator[Mapping[str, Any]]:
    fields = schema.get("fields") if schema else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, Mapping) and isinstance(field.get("name"), str) and "type" in field:
            yield field


def misfit(found: Schema, wanted: Schema) -> str | None:
    """The first column that both have, and that is not read as the one that is wanted; in words."""
    own = {field["name"].lower(): field for field in _fields(wanted)}
    for field in _fields(found):
        as_wanted = own.get(field["name"].lower())
        if as_wanted is None:
            continue
        kind, other = field["type"], as_wanted["type"]
        if isinstance(kind, Mapping) and isinstance(other, Mapping) and kind.get("type") == other.get("type"):
            inner = misfit(_as_struct(kind), _as_struct(other))
            if inner:
                return f"{field['name']}.{inner}"
        elif not fits(kind, other):
            return f"{field['name']} as {_shown(kind)}, not {_shown(other)}"
    return None


def _as_struct(kind: Mapping[str, Any]) -> Schema:
    if kind.get("type") == "struct":
        return kind
    inner = (part for part in ("elementType", "keyType", "valueType") if part in kind)
    return {"type": "struct", "fields": [{"name": part, "type": kind[part]} for part in inner]}


# --- types --------------------------------------------------------------------------------------------------------


def fits(found: Any, wanted: Any) -> bool:
    """Whether each value of a file's type is one of the table's, without loss."""
    match found, wanted:
        case {"type": "struct"}, {"type": "struct"}:
            own = {field["name"].lower(): field["type"] for field in _fields(wanted)}
            return all(
                field["name"].lower() in own and fits(field["type"], own[field["name"].lower()])
                for field in _fields(found)
            )
        case {"type": "array"}, {"type": "array"}:
            return fits(found.get("elementType"), wanted.get("elementType"))
        case {"type": "map"}, {"type": "map"}:
            return all(fits(found.get(part), wanted.get(part)) for part in ("keyType", "valueType"))
        case str(), str():
            return _leaf_fits(found, wanted)
    return bool(found == "void")


def _leaf_fits(found: str, wanted: str) -> bool:
    if found in (wanted, "void"):
        return True
    import pyarrow as pa  # whoever knows the columns of a file has it

    from dbio_commit.data.columns import arrow_type
    from dbio_commit.data.widen import fit as fit_values

    try:
        fit_values(pa.array([], arrow_type(found)), arrow_type(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return False
    return True


def _has_void(kind: Any) -> bool:
    if not isinstance(kind, Mapping):
        return bool(kind == "void")
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    return any(map(_has_void, [*inner, *(field["type"] for field in _fields(kind))]))


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type", kind))
