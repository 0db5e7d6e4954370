"""The columns that a table cannot be clustered by are refused by name, with the reason."""

from typing import Any

import pytest

from dbio_commit import InvalidInputError
from dbio_commit.data.clustering import fitted_columns, with_own_spelling
from dbio_commit.protocol.types import TYPES

STRUCT = {"type": "struct", "fields": []}


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


SCHEMA = {
    "type": "struct",
    "fields": [
        field("Day", "date"),
        field("part", "string"),
        field("raw", "binary"),
        field("inner", STRUCT),
        field("code", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"),
        field("name", "string", __COLLATIONS={"name": "icu.UNICODE_CI"}),
        field("month", "integer"),
    ],
}


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("Raw", "it has type binary, of which files have no statistics that readers use"),
        ("inner", r"it is nested \(struct\), and has no order"),
        ("code", "it is CHAR, VARCHAR or has a collation"),
        ("name", "it is CHAR, VARCHAR or has a collation"),
        ("MONTH", "it is a partition column"),
        ("hour", "the table has no such column"),
        ("part", r"its statistics are off \(setting statistics\.part\)"),
    ],
)
def test_a_column_that_does_not_fit_is_named_with_the_reason_and_the_next_step(column: str, problem: str) -> None:
    settings = {"cluster_by": f'["day", "{column}"]', "statistics.Part": "off"}
    with pytest.raises(InvalidInputError, match=f"^/t cannot be clustered by '{column}': {problem}.*dbio set /t"):
        fitted_columns(settings, SCHEMA, ["month"], where="/t")


def test_columns_are_recorded_as_the_table_spells_them() -> None:
    changes = with_own_spelling({"cluster_by": '["PART", "day"]'}, None, SCHEMA, [], where="/t")
    assert changes == {"cluster_by": '["part", "Day"]'}
    assert fitted_columns(changes, SCHEMA, [], where="/t") == ("part", "Day")


def test_a_column_keeps_its_statistics_while_the_table_is_clustered_by_it() -> None:
    before = {"cluster_by": '["part"]'}
    with pytest.raises(InvalidInputError, match="its statistics are off"):
        with_own_spelling({"statistics.part": "off"}, before, SCHEMA, [], where="/t")
    assert with_own_spelling({"cluster_by": "", "statistics.part": "off"}, before, SCHEMA, [], where="/t")
    assert with_own_spelling({"publish": "delta"}, {"cluster_by": '["gone"]'}, SCHEMA, [], where="/t")


@pytest.mark.parametrize("kind", [row.name for row in TYPES if row.bound])
def test_a_table_can_be_clustered_by_each_type_with_bounds(kind: str) -> None:
    kind = "decimal(10,2)" if kind == "decimal" else kind
    schema = {"type": "struct", "fields": [field("c", kind)]}
    assert fitted_columns({"cluster_by": '["c"]'}, schema, [], where="/t") == ("c",)
