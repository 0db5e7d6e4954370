"""Field ids: the same for each writer at any time, and two for two columns."""

from typing import Any

import pytest

from dbio_commit.protocol import field_ids as module
from dbio_commit.protocol.field_ids import field_id, field_ids
from tests.histories import columns


@pytest.mark.parametrize(
    ("path", "kind", "number"),
    [
        (("id",), "long", 319813434),
        (("ID",), "integer", 319813434),
        (("price",), "decimal(9,2)", 643513834),
        (("Ä", "element"), "string", 97860670),
        (("s",), {"type": "struct", "fields": []}, 893337630),
        (
            ("m",),
            {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "float"}},
            1060882528,
        ),
    ],
)
def test_the_ids_of_files_that_exist_never_change(path: tuple[str, ...], kind: Any, number: int) -> None:
    """NOTES.md, Iceberg."""
    assert field_id(path, kind) == number


def test_an_id_is_a_number_that_iceberg_allows() -> None:
    found = [field_id((f"column{i}",), "long") for i in range(1000)]
    assert all(number and 1 <= number <= 1 << 30 for number in found)
    assert len({*found}) == 1000


def test_there_are_no_ids_if_iceberg_lacks_a_type_or_two_columns_would_have_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert field_ids(columns(id="long", v="variant")) is None
    assert field_ids(columns(id="long", v={"type": "array", "elementType": "void"})) is None
    schema = columns(a="long", b="long", c="long")
    assert len(field_ids(schema) or {}) == 3
    monkeypatch.setattr(module, "_BITS", 1)
    assert field_ids(schema) is None
