"""Columns in Iceberg's form: ids that stay and never come again, names that files have, types that Iceberg lacks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.fitting import misfit
from dbio_commit.maintenance.publish.iceberg.schema import (
    fits_iceberg,
    has_other_ids,
    has_other_types,
    iceberg_schema,
    iceberg_type,
    name_mapping,
    partition_fields,
    spellings_in,
)
from dbio_commit.protocol import field_ids as field_ids_module
from dbio_commit.protocol.field_ids import field_ids
from dbio_commit.protocol.types import TYPES

pytest.importorskip("pyiceberg", reason="the lowest versions do not go together with it")
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json

_KINDS = st.recursive(
    st.sampled_from(["byte", "integer", "long", "float", "double", "decimal(5,2)", "decimal(9,2)", "decimal(9,4)",
                     "string", "date", "timestamp", "timestamp_ntz", "boolean", "binary"]),
    lambda inner: st.one_of(
        inner.map(lambda it: {"type": "array", "elementType": it, "containsNull": True}),
        inner.map(lambda it: {"type": "map", "keyType": "string", "valueType": it, "valueContainsNull": True}),
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(lambda it: struct(it)),
    ), max_leaves=4,
)  # fmt: skip


def struct(kinds: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


_COLUMNS = st.dictionaries(st.sampled_from("abcd"), _KINDS, min_size=1, max_size=4).map(struct)


def ids(fields: Any) -> dict[int, tuple[str, ...]]:
    """Each id, with the names that lead to it."""
    found: dict[int, tuple[str, ...]] = {}

    def inside(kind: Any, above: tuple[str, ...]) -> None:
        if isinstance(kind, str):
            return
        parts = {"struct": [], "list": ["element"], "map": ["key", "value"]}[kind["type"]]
        for field in kind.get("fields", ()):
            add(field["id"], (*above, field["name"]), field["type"])
        for part in parts:
            add(kind[f"{part}-id"], (*above, part), kind[part])

    def add(number: int, path: tuple[str, ...], kind: Any) -> None:
        assert number not in found
        found[number] = path
        inside(kind, path)

    inside({"type": "struct", "fields": fields}, ())
    return found


@given(st.lists(_COLUMNS, min_size=1, max_size=6))
def test_an_id_is_of_one_column_for_ever_and_follows_from_the_column_alone(history: list[Any]) -> None:
    last_id, ever = 0, dict[int, tuple[str, ...]]()
    for columns in history:
        found = iceberg_schema(columns, last_id, where="here")
        now = ids(found.fields)
        assert all(ever.get(number, path) == path for number, path in now.items())
        ever |= now
        assert {path: number for number, path in now.items()} == field_ids(columns)
        assert found.last_id == max([last_id, *now])
        Schema.model_validate({"type": "struct", "schema-id": 0, "fields": [*found.fields]})
        last_id = found.last_id


def test_two_columns_with_the_same_id_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_ids_module, "_BITS", 1)
    with pytest.raises(InvalidInputError, match=r"the columns '[ab]' and '[bc]' of here have the same field id, [12],"):
        iceberg_schema(struct({"a": "long", "b": "long", "c": "long"}), where="here")


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        ("byte", "short", True),
        ("short", "long", True),
        ("long", "integer", True),
        ("float", "double", True),
        ("integer", "double", False),
        ("decimal(5,2)", "decimal(9,2)", True),
        ("decimal(9,2)", "decimal(5,2)", True),
        ("decimal(5,2)", "decimal(9,4)", False),
        ("char(3)", "string", True),
        ("timestamp", "timestamp_ntz", False),
        ("string", {"type": "array", "elementType": "string"}, False),
        ({"type": "array", "elementType": "integer"}, {"type": "array", "elementType": "long"}, True),
        ({"type": "array", "elementType": "integer"}, {"type": "array", "elementType": "string"}, False),
    ],
)
def test_a_column_keeps_its_id_if_its_type_becomes_wider_or_narrower_by_icebergs_rules(
    old: Any, new: Any, stays: bool
) -> None:
    before, after = (iceberg_schema(struct({"c": kind}), where="here").fields for kind in (old, new))
    assert (after[0]["id"] == before[0]["id"]) is stays
    assert has_other_ids(before, after) is not stays


@given(_KINDS, _KINDS)
def test_a_file_whose_types_iceberg_reads_as_the_tables_has_the_tables_ids(found: Any, wanted: Any) -> None:
    if misfit(struct({"c": found}), struct({"c": wanted}), fits_iceberg) is None:
        ids, others = field_ids(struct({"c": found})) or {}, field_ids(struct({"c": wanted})) or {}
        assert all(others.get(path, number) == number for path, number in ids.items())


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ({"a": "integer"}, {"a": "integer", "b": "date"}, False),
        ({"a": "integer", "b": "date"}, {"a": "integer"}, False),
        ({"a": "integer"}, {"a": "long"}, True),
        ({"a": "decimal(5,2)"}, {"a": "decimal(9,4)"}, True),
        ({"a": struct({"b": "decimal(5,2)"})}, {"a": struct({"b": "decimal(9,4)"})}, True),
        ({"a": struct({"b": "byte"})}, {"a": struct({"b": "byte", "c": "byte"})}, False),
        ({"a": "byte"}, {"a": "short"}, False),
    ],
)
def test_manifests_are_of_use_while_columns_keep_their_types(old: Any, new: Any, other: bool) -> None:
    before, after = (iceberg_schema(struct(columns), where="here").fields for columns in (old, new))
    assert has_other_types(before, after) is other


@pytest.mark.parametrize("kind", ["variant", "void", "decimal(5,-2)", "interval day to second", "time"])
def test_a_type_that_iceberg_lacks_is_named_with_its_place(kind: str) -> None:
    inner = struct({"x": {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}})
    with pytest.raises(InvalidInputError, match=r"column 'c\.x\.value' of here is .*, which version 2 of"):
        iceberg_schema(struct({"c": inner}), where="here")


def test_each_type_of_the_table_of_types_has_a_name_of_icebergs_or_is_refused() -> None:
    for row in TYPES:
        kind = row.name + {"decimal": "(5,2)", "char": "(3)", "varchar": "(3)"}.get(row.name, "")
        name = iceberg_type(kind)
        assert (name is None) == (row.name in ("variant", "void"))
        assert name is None or fits_iceberg(kind, kind)


def test_comments_are_docs() -> None:
    field = {"name": "c", "type": "long", "nullable": True, "metadata": {"comment": "what it is", "other": 1}}
    assert iceberg_schema({"fields": [field]}, where="here").fields[0]["doc"] == "what it is"


def test_the_mapping_has_all_names_that_files_have_also_inside() -> None:
    columns = struct({"Id": "long", "s": struct({"In": "long"}), "l": {"type": "array", "elementType": "long"}})
    schema = iceberg_schema(columns, where="here")
    first = name_mapping(schema, None, {("id",): {"ID"}, ("s", "in"): {"IN"}})
    text = name_mapping(schema, first, {("id",): {"id"}, ("l", "element"): {"element"}})
    numbers = field_ids(columns) or {}
    names = {it["field-id"]: it["names"] for it in json.loads(text)}
    assert names == {numbers["id",]: ["Id", "ID", "id"], numbers["s",]: ["s"], numbers["l",]: ["l"]}
    assert json.loads(text)[1]["fields"] == [{"field-id": numbers["s", "in"], "names": ["In", "IN"]}]
    parse_mapping_from_json(text)


def test_spellings_are_found_at_any_depth() -> None:
    columns = struct({"A": {"type": "array", "elementType": struct({"B": "long"})}, "m": {
        "type": "map", "keyType": "string", "valueType": struct({"C": "long"})}})  # fmt: skip
    assert [*spellings_in(columns)] == [
        (("a",), "A"), (("a", "element"), "element"), (("a", "element", "b"), "B"),
        (("m",), "m"), (("m", "key"), "key"), (("m", "value"), "value"), (("m", "value", "c"), "C"),
    ]  # fmt: skip


def test_a_partition_field_keeps_its_id_while_its_column_does() -> None:
    schema = iceberg_schema(struct({"a": "date", "b": "long"}), where="here")
    a, b = (it["id"] for it in schema.fields)
    first, last = partition_fields(schema, ["A"], (), 999, where="here")
    second, last = partition_fields(schema, ["b", "a"], first, last, where="here")
    assert [(it["name"], it["source-id"], it["field-id"]) for it in second] == [("b", b, 1001), ("a", a, 1000)]
    assert last == 1001
    with pytest.raises(InvalidInputError, match="lack the partition column 'c'"):
        partition_fields(schema, ["c"], (), 999, where="here")
    nested = iceberg_schema(struct({"a": struct({"b": "long"})}), where="here")
    with pytest.raises(InvalidInputError, match="'a' of here is nested"):
        partition_fields(nested, ["a"], (), 999, where="here")
