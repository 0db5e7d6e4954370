"""Changes of the comments of columns, by a commit without files."""

from typing import Any

import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.maintenance.settings import change_comments
from tests.writers import stage, write


def column(name: str, kind: Any, comment: str = "") -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {"comment": comment} if comment else {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [*fields]}


def schema(id: str = "", a: str = "", c: str = "", k: str = "") -> dict[str, Any]:
    items = {"type": "array", "elementType": struct(column("c", "integer", c)), "containsNull": True}
    pairs = {"type": "map", "keyType": struct(column("k", "long", k)), "valueType": "long", "valueContainsNull": True}
    inner = struct(column("a", "long", a), column("items", items), column("pairs", pairs))
    return struct(column("id", "long", id), column("it", inner))


@pytest.fixture
def filled(table: Table) -> Table:
    with table.begin() as transaction:
        stage(table, transaction)
        transaction.commit(schema(id="old"))
    return table


def test_columns_and_fields_get_comments_and_lose_them(filled: Table) -> None:
    before = filled.snapshot()
    paths = {("ID",): "new", ("it", "a"): "x", ("it", "items", "element", "c"): "y", ("it", "pairs", "key", "k"): "z"}
    commit = change_comments(filled.store, filled.clock, paths)
    after = filled.snapshot()
    assert after.schema == schema(id="new", a="x", c="y", k="z")
    assert (after.files, commit.operation) == (before.files, "rewrite")
    change_comments(filled.store, filled.clock, {("id",): "", ("it", "a"): ""})
    assert filled.snapshot().schema == schema(c="y", k="z")


@pytest.mark.parametrize("path", [("no",), ("it", "no"), ("id", "a"), ("it", "items", "c"), ("it", "items", "element")])
def test_what_is_no_column_gets_no_comment(filled: Table, path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError, match="has no column"):
        change_comments(filled.store, filled.clock, {path: "x"})
    assert len(filled.history()) == 1


def test_a_table_without_recorded_columns_has_no_comments(table: Table) -> None:
    write(table)
    with pytest.raises(InvalidInputError, match="no recorded columns"):
        change_comments(table.store, table.clock, {("id",): "x"})
