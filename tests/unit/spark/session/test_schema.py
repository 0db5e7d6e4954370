"""Which Spark schemas can be written, and how a DataFrame's columns become a table's. No session is needed."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from dbio_commit import InvalidInputError, SchemaMismatchError
from dbio_commit.data.arrow import plain_schema
from dbio_commit.spark.session import schema as schemas
from tests import spark35
from tests.spark_columns import Layout, check_writable, map_columns, with_comments

WRITABLE: list[t.DataType] = [
    t.BooleanType(),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.FloatType(),
    t.DoubleType(),
    t.DecimalType(38, 10),
    t.StringType(),
    t.BinaryType(),
    t.DateType(),
    t.TimestampType(),
    t.TimestampNTZType(),
    t.CharType(3),
    t.VarcharType(3),
    *([t.VariantType()] if hasattr(t, "VariantType") else []),
]
NO_PARTITION = (t.FloatType, t.DoubleType, t.BinaryType, *([t.VariantType] if hasattr(t, "VariantType") else []))


class Point(t.UserDefinedType):
    @classmethod
    def sqlType(cls) -> t.DataType:
        return t.StringType()


NEW_TYPES: dict[str, tuple[Any, ...]] = {
    "CalendarIntervalType": (),
    "TimeType": (),
    "GeometryType": (4326,),
    "GeographyType": (4326,),
}
"""Which Spark 3.5 or 4.0 has not."""

UNWRITABLE: list[t.DataType] = [
    t.NullType(),
    t.DayTimeIntervalType(),
    t.YearMonthIntervalType(),
    t.StructType([]),
    Point(),
    *(getattr(t, name)(*args) for name, args in NEW_TYPES.items() if hasattr(t, name)),
    *([] if spark35.IS_USED else [t.StringType("UTF8_LCASE")]),
]


def nest(inner: t.DataType) -> list[t.DataType]:
    """The type as it is, and inside every kind of nested type."""
    struct = t.StructType([t.StructField("a", t.IntegerType()), t.StructField("b", inner)])
    return [
        inner,
        struct,
        t.ArrayType(inner),
        t.MapType(t.StringType(), inner),
        t.MapType(inner, t.StringType()),
        t.ArrayType(t.MapType(t.StringType(), struct)),
    ]


def columns(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


INT, TEXT, DATE = t.IntegerType(), t.StringType(), t.DateType()

# --- check_writable -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nested for kind in WRITABLE for nested in nest(kind)], ids=str)
def test_types_that_parquet_gives_back_equal_can_be_written(kind: t.DataType) -> None:
    check_writable(columns(id=INT, value=kind), [])


@pytest.mark.parametrize("kind", [nested for kind in UNWRITABLE for nested in nest(kind)], ids=str)
def test_other_types_are_refused_wherever_they_hide_and_the_place_is_named(kind: t.DataType) -> None:
    with pytest.raises(InvalidInputError, match="'value"):
        check_writable(columns(id=INT, value=kind), [])


@pytest.mark.parametrize("kind", WRITABLE, ids=str)
def test_partition_columns_are_of_types_that_a_directory_name_gives_back(kind: t.DataType) -> None:
    schema = columns(id=INT, value=kind)
    if isinstance(kind, NO_PARTITION):
        with pytest.raises(InvalidInputError, match="'Value'"):
            check_writable(schema, ["Value"])
    else:
        check_writable(schema, ["Value"])


@pytest.mark.parametrize("kind", nest(INT)[1:], ids=str)
def test_nested_partition_columns_are_refused(kind: t.DataType) -> None:
    with pytest.raises(InvalidInputError, match="'value'"):
        check_writable(columns(id=INT, value=kind), ["value"])


@pytest.mark.parametrize(
    ("names", "partition_by", "named"),
    [
        (["a", "A"], [], "'A'"),
        (["a", "a"], [], "'a'"),
        (["a"], ["b"], "'b'"),
        (["a"], ["a"], "no column is left"),
        ([], [], "there are no columns"),
        (["a", "b"], ["b", "A"], "no column is left"),
    ],
)
def test_impossible_columns_are_refused(names: list[str], partition_by: list[str], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        check_writable(t.StructType([t.StructField(name, INT) for name in names]), partition_by)


def test_the_same_field_twice_in_a_struct_is_refused() -> None:
    twice = t.StructType([t.StructField("x", INT), t.StructField("X", INT)])
    with pytest.raises(InvalidInputError, match=r"'value\.element'"):
        check_writable(columns(value=t.ArrayType(twice)), [])


# --- layout -------------------------------------------------------------------------------------------------------


def lay_out(
    schema: t.StructType, table: t.StructType | None = None, *, by: Sequence[str] = (), merge: bool = False
) -> Layout:
    return map_columns(schema, partition_columns=by, table=table, merge=merge, where="s3://lake/table")


def test_a_write_that_sets_the_schema_puts_partition_columns_last() -> None:
    layout = lay_out(columns(a=INT, b=TEXT, c=DATE), by=["b"])
    assert layout.columns == ((0, "a"), (2, "c"), (1, "b"))
    assert layout.schema.fieldNames() == ["a", "c", "b"]
    assert layout.data_schema.fieldNames() == ["a", "c"]
    assert layout.partition_columns == ("b",)


def test_partition_columns_keep_the_order_in_which_they_were_given() -> None:
    layout = lay_out(columns(a=INT, b=TEXT, c=DATE), by=["c", "a"])
    assert layout.columns == ((1, "b"), (2, "c"), (0, "a"))


def test_a_write_that_sets_the_schema_spells_partition_columns_as_the_directories_are_named() -> None:
    layout = lay_out(columns(a=INT, DAY=DATE), by=["day"])
    assert layout.columns == ((0, "a"), (1, "day"))
    assert layout.schema.fieldNames() == ["a", "day"]


def test_a_write_that_must_fit_takes_the_tables_order_and_spelling() -> None:
    layout = lay_out(columns(C=DATE, b=TEXT, A=INT), columns(a=INT, B=TEXT, c=DATE), by=["c"])
    assert layout.columns == ((2, "a"), (1, "B"), (0, "c"))
    assert layout.schema == columns(a=INT, B=TEXT, c=DATE)


@pytest.mark.parametrize(
    ("schema", "problems"),
    [
        (columns(a=INT), ["b is missing"]),
        (columns(x=INT), ["a is missing", "b is missing", "x is not in the table"]),
        (columns(a=INT, b=TEXT, x=INT), ["x is not in the table", "merge_schema=True"]),
        (columns(a=t.LongType(), b=TEXT), ["a is bigint, not int", "cast or select"]),
        (columns(A=TEXT, B=INT, c=INT), ["a is string, not int", "b is int, not string", "c is not in the table"]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_with_both_schemas(schema: t.StructType, problems: list[str]) -> None:
    table = columns(a=INT, b=TEXT)
    with pytest.raises(SchemaMismatchError) as caught:
        lay_out(schema, table)
    for part in (*problems, table.simpleString(), schema.simpleString(), "s3://lake/table"):
        assert part in str(caught.value)


def test_merge_adds_new_columns_before_the_partition_columns() -> None:
    table = columns(a=INT, day=DATE)
    layout = lay_out(columns(new=TEXT, day=DATE, a=INT), table, by=["day"], merge=True)
    assert layout.schema == columns(a=INT, new=TEXT, day=DATE)
    assert layout.columns == ((2, "a"), (0, "new"), (1, "day"))
    assert layout.casts == ()


def test_merge_lets_the_data_lack_columns_but_no_partition_column() -> None:
    table = columns(a=INT, b=TEXT, day=DATE)
    layout = lay_out(columns(day=DATE, b=TEXT), table, by=["day"], merge=True)
    assert layout.schema == table
    assert layout.columns == ((None, "a"), (1, "b"), (0, "day"))
    assert layout.casts == ("a",)
    with pytest.raises(SchemaMismatchError, match="day is missing"):
        lay_out(columns(a=INT, b=TEXT), table, by=["day"], merge=True)


WIDER: list[tuple[t.DataType, t.DataType]] = [
    (t.ByteType(), t.ShortType()),
    (t.ByteType(), t.LongType()),
    (t.ShortType(), t.IntegerType()),
    (INT, t.LongType()),
    (t.FloatType(), t.DoubleType()),
    (t.DecimalType(5, 2), t.DecimalType(7, 2)),
    (t.DecimalType(5, 2), t.DecimalType(7, 4)),
    (t.DecimalType(10, 0), t.DecimalType(38, 10)),
]
UNLIKE: list[tuple[t.DataType, t.DataType]] = [
    (INT, t.DoubleType()),
    (INT, t.DecimalType(38, 0)),
    (t.LongType(), t.DoubleType()),
    (t.DecimalType(5, 2), t.DecimalType(7, 5)),
    (t.DecimalType(5, 2), t.DoubleType()),
    (DATE, t.TimestampType()),
    (DATE, t.TimestampNTZType()),
    (t.TimestampType(), t.TimestampNTZType()),
    (INT, TEXT),
    (TEXT, t.BinaryType()),
    (t.BooleanType(), INT),
    (INT, t.ArrayType(INT)),
    (t.StructType().add("a", INT), t.MapType(TEXT, INT)),
]


@pytest.mark.parametrize(("narrow", "wide"), WIDER, ids=str)
def test_narrower_data_is_cast_and_wider_data_widens_the_table_if_it_may(narrow: t.DataType, wide: t.DataType) -> None:
    for inner, outer in zip(nest(narrow), nest(wide), strict=True):
        layout = lay_out(columns(v=inner, k=TEXT), columns(v=outer, k=TEXT))
        assert (layout.schema, layout.casts) == (columns(v=outer, k=TEXT), ("v",))
        with pytest.raises(SchemaMismatchError, match=r"v is .*pass merge_schema=True"):
            lay_out(columns(v=outer), columns(v=inner))
        layout = lay_out(columns(v=outer), columns(v=inner), merge=True)
        assert (layout.schema, layout.casts) == (columns(v=outer), ())
        with pytest.raises(SchemaMismatchError, match="v is "):
            map_columns(
                columns(v=outer), partition_columns=(), table=columns(v=inner), merge=True, where="x", widen=False
            )


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=str)
def test_types_that_spark_does_not_read_as_each_other_fit_in_neither_direction(
    one: t.DataType, other: t.DataType
) -> None:
    for data, table in ((one, other), (other, one)):
        for inner, outer in zip(nest(data), nest(table), strict=True):
            with pytest.raises(SchemaMismatchError, match=r"v is .*cast or select to fit\.\n"):
                lay_out(columns(v=inner), columns(v=outer), merge=True)


def test_a_partition_columns_directories_keep_their_names() -> None:
    for narrow, wide in ((INT, t.LongType()), (t.DecimalType(5, 2), t.DecimalType(9, 2))):
        assert lay_out(columns(a=INT, p=narrow), columns(a=INT, p=wide), by=["p"]).casts == ("p",)
        layout = lay_out(columns(a=INT, p=wide), columns(a=INT, p=narrow), by=["p"], merge=True)
        assert layout.schema == columns(a=INT, p=wide)
    scales = columns(a=INT, p=t.DecimalType(5, 2)), columns(a=INT, p=t.DecimalType(9, 4))
    assert lay_out(*scales, by=["p"]).casts == ("p",)
    with pytest.raises(SchemaMismatchError, match="p is decimal"):
        lay_out(*reversed(scales), by=["p"], merge=True)


@pytest.mark.parametrize("place", range(1, 4), ids=["struct", "array", "map"])
def test_fields_of_structs_are_matched_by_name_and_may_be_added_and_absent_under_merge(place: int) -> None:
    def inside(**fields: t.DataType) -> t.StructType:
        return columns(v=nest(columns(**fields))[place])

    table = inside(a=INT, B=TEXT)
    layout = lay_out(inside(b=TEXT, A=INT), table)
    assert (layout.schema, layout.casts) == (table, ("v",))
    for data, after in (
        (inside(a=INT), table),
        (inside(c=DATE, a=INT, b=TEXT), inside(a=INT, B=TEXT, c=DATE)),
        (inside(c=DATE, a=t.LongType()), inside(a=t.LongType(), B=TEXT, c=DATE)),
    ):
        with pytest.raises(SchemaMismatchError, match=r"pass merge_schema=True \(the option mergeSchema\)"):
            lay_out(data, table)
        layout = lay_out(data, table, merge=True)
        assert (layout.schema, layout.casts) == (after, ("v",))


VOID = t.NullType()


@pytest.mark.parametrize("kind", nest(TEXT), ids=str)
def test_void_is_what_the_table_has_and_refused_where_nothing_says_what(kind: t.DataType) -> None:
    for data, table in zip(nest(VOID), nest(TEXT), strict=True):
        if table != kind:
            continue
        check_writable(columns(id=INT, v=data), [], allow_void=True)
        layout = lay_out(columns(v=data), columns(v=table))
        assert (layout.schema, layout.casts) == (columns(v=table), ("v",))
        replacing = map_columns(
            columns(V=data, new=INT),
            partition_columns=(),
            table=None,
            merge=False,
            where="x",
            replaced=columns(v=table),
        )
        assert (replacing.schema, replacing.casts) == (columns(V=table, new=INT), ("V",))
        with pytest.raises(InvalidInputError, match="is void: it has only NULLs"):
            check_writable(lay_out(columns(v=data, id=INT)).schema, [])
        assert lay_out(columns(id=INT, v=data), columns(id=INT, v=table), by=["v"]).casts == ("v",)


def test_char_and_varchar_are_strings() -> None:
    for kind in (t.CharType(3), t.VarcharType(3)):
        layout = lay_out(columns(v=t.ArrayType(kind), id=INT))
        assert (layout.schema, layout.casts) == (columns(v=t.ArrayType(TEXT), id=INT), ())
        assert lay_out(columns(v=kind), columns(v=TEXT)).casts == ()


@pytest.mark.parametrize("kind", nest(INT), ids=str)
def test_nullability_and_metadata_make_no_difference_at_any_depth(kind: t.DataType) -> None:
    strict = t.StructType([t.StructField("v", _strict(kind), False, {"comment": "x"})])
    assert lay_out(strict, columns(v=kind)).schema == columns(v=kind)
    assert lay_out(strict).schema == columns(v=kind)


def _strict(kind: t.DataType) -> t.DataType:
    match kind:
        case t.StructType():
            return t.StructType([t.StructField(f.name, _strict(f.dataType), False, {"c": 1}) for f in kind.fields])
        case t.ArrayType():
            return t.ArrayType(_strict(kind.elementType), False)
        case t.MapType():
            return t.MapType(_strict(kind.keyType), _strict(kind.valueType), False)
    return kind


@given(st.permutations(["a", "B", "c", "D"]), st.sets(st.sampled_from(["a", "B", "c"])))
def test_each_column_of_the_table_comes_from_the_dataframes_column_of_its_name(names: list[str], by: set[str]) -> None:
    schema = t.StructType([t.StructField(name.swapcase(), INT) for name in names])
    table = t.StructType([t.StructField(name, INT) for name in (*sorted({"a", "B", "c", "D"} - by), *sorted(by))])
    layout = lay_out(schema, table, by=sorted(by))
    assert layout.schema == table
    assert [name for _, name in layout.columns] == table.fieldNames()
    assert all(i is not None and schema.fieldNames()[i].lower() == name.lower() for i, name in layout.columns)


# --- in Arrow's terms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nested for kind in WRITABLE[:13] for nested in nest(kind)], ids=str)
def test_the_columns_in_arrows_terms_are_those_that_spark_makes(kind: t.DataType) -> None:
    found = schemas.arrow_schema(columns(value=kind))
    assert plain_schema(found).equals(found)
    assert from_arrow_schema(found, prefer_timestamp_ntz=True) == columns(value=kind)


def test_a_type_without_any_in_arrow_is_a_clear_error() -> None:
    with pytest.raises(InvalidInputError, match="unknown type 'interval'"):
        schemas.arrow_schema(columns(value=t.CalendarIntervalType()))


# --- recorded schemas ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nested for kind in WRITABLE for nested in nest(kind)], ids=str)
def test_a_recorded_schema_is_read_back_equal(kind: t.DataType) -> None:
    schema = columns(value=kind)
    assert schemas.from_json(schema.jsonValue(), where="x") == schema


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"type": "struct"},
        {"type": "struct", "fields": 1},
        {"type": "struct", "fields": [1]},
        {"type": "struct", "fields": [{"name": "a"}]},
        {"type": "struct", "fields": [{"name": "a", "type": "int4", "nullable": True, "metadata": {}}]},
        {"type": "struct", "fields": [{"name": "a", "type": {"type": "list"}, "nullable": True, "metadata": {}}]},
        {"type": "struct", "fields": [{"name": 1, "type": "integer", "nullable": True, "metadata": {}}]},
        {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True, "metadata": 7}]},
        {"type": "struct", "fields": [{"name": "a", "type": {"type": "udt", "class": "x", "pyClass": "os.system"}}]},
        {"type": "struct", "fields": {"name": "a"}},
    ],
)
def test_a_recorded_schema_that_is_none_is_a_clear_error(recorded: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="s3://lake"):
        schemas.from_json(recorded, where="s3://lake")


def test_a_hostile_schema_that_names_a_class_to_load_is_refused_before_it_is_loaded() -> None:
    field = {"name": "a", "nullable": True, "metadata": {}}
    kind = {"type": "udt", "class": None, "pyClass": "antigravity.Point", "sqlType": "string"}
    with pytest.raises(InvalidInputError):
        schemas.from_json({"type": "struct", "fields": [{**field, "type": kind}]}, where="s3://lake")
    assert "antigravity" not in sys.modules


def commented(**comments: str) -> t.StructType:
    def field(name: str, kind: t.DataType) -> t.StructField:
        return t.StructField(name, kind, True, {"comment": comments[name]} if name in comments else None)

    inner = t.StructType([field("a", t.LongType())])
    return t.StructType(
        [
            field("id", t.LongType()),
            field("it", inner),
            field("list", t.ArrayType(t.StructType([field("b", t.LongType())]))),
            field("map", t.MapType(t.StringType(), t.StructType([field("c", t.LongType())]))),
        ]
    )


@pytest.mark.parametrize(
    ("own", "given", "is_new", "expected"),
    [
        ({"id": "own", "a": "own"}, {"id": "data", "it": "data", "b": "data"}, False, {"id": "own", "a": "own"}),
        ({"id": "own", "a": "own"}, {"id": "data", "b": "data"}, True, {"id": "data", "a": "own", "b": "data"}),
        (None, {"it": "data", "c": "data"}, False, {"it": "data", "c": "data"}),
    ],
)
def test_comments_are_those_of_the_table_or_of_new_columns(
    own: dict[str, str] | None, given: dict[str, str], is_new: bool, expected: dict[str, str]
) -> None:
    known = None if own is None else commented(**own)
    found = with_comments(schemas.plain_schema(commented()), commented(**given), known, new=is_new)
    assert found == commented(**expected)
