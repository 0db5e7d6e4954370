"""Recorded schemas and Parquet footers: whole, broken and damaged ones, without a Spark session.

Rules: PROTOCOL.md 6.4.
"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import columns
from tests.fuzz.bodies import DEEP, HOSTILE, SCHEMA, bodies, damaged


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda kind: {"type": "array", "elementType": kind, "containsNull": True}, inner),
        st.builds(
            lambda key, value: {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True},
            inner, inner,
        ),
        st.builds(lambda kind, name: {"type": "struct", "fields": [_field(name, kind)]}, inner, st.text(max_size=3)),
        st.builds(lambda kind: {"type": "udt", "class": "x", "pyClass": "antigravity.x", "sqlType": kind}, inner),
    )  # fmt: skip


def _field(name: Any, kind: Any, metadata: Any = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


KINDS = st.recursive(st.sampled_from(columns.TYPES), _nested, max_leaves=6)
METADATA = st.sampled_from([
    {}, None, 1, {"__COLLATIONS": 1}, {"__COLLATIONS": {"a": "icu.UNICODE"}}, {"__COLLATIONS": {"a": "x"}},
    {"__CHAR_VARCHAR_TYPE_STRING": "char(1)"}, {"__CHAR_VARCHAR_TYPE_STRING": 7}, {"a": [None]},
])  # fmt: skip
SCHEMAS = st.builds(
    lambda fields: {"type": "struct", "fields": fields},
    st.lists(st.builds(_field, st.sampled_from(["a", "A", "id", "day", "", "a.b", "`", "\0"]), KINDS, METADATA)),
)


def test_the_good_ones_are_accepted() -> None:
    assert columns.recorded(SCHEMA) is not None
    assert columns.footer(columns.parquet()) is not None
    assert columns.footer(columns.parquet(json.dumps(SCHEMA).encode())) is not None


@settings(max_examples=300)
@given(SCHEMAS)
def test_a_recorded_schema_is_read_or_refused_whatever_its_types_are(schema: Any) -> None:
    columns.recorded(schema)


@settings(max_examples=200)
@given(bodies(st.just(SCHEMA) | SCHEMAS))
def test_a_broken_record_is_read_or_refused(body: bytes) -> None:
    try:
        schema = json.loads(body)
    except (ValueError, RecursionError):
        return  # decoded with its marker, long before
    columns.recorded(schema)


@settings(max_examples=100)
@given(
    bodies(st.just(SCHEMA) | SCHEMAS)
    | st.sampled_from(DEEP + HOSTILE).map(lambda it: str(it).encode("utf8", "replace"))
)
def test_a_record_in_a_footer_is_read_or_refused(record: bytes) -> None:
    columns.footer(columns.parquet(record))


GOOD = columns.parquet()


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_footer_is_read_or_refused(data: st.DataObject) -> None:
    """Only the footer is damaged, at the end; a file of some hundred bytes."""
    size = int.from_bytes(GOOD[-8:-4], "little") + 8
    columns.footer(GOOD[:-size] + data.draw(damaged(st.just(GOOD[-size:]))))


@given(st.lists(st.text(max_size=12) | st.sampled_from(["9" * 5000, "1e999", "²", "+1", "0001-01-01", "9999-99-99"])))
def test_partition_values_of_any_text_have_a_type(values: list[str]) -> None:
    columns.footer(GOOD, [f"day={value}" for value in values] or ["day=1"])
