"""Whole tables whose log and publications somebody has changed: each operation ends in a result or a DbioError."""

import pytest

from tests.fuzz import tables


@pytest.mark.parametrize("form", tables.FORMS)
def test_a_table_that_nobody_has_changed_fails_nowhere(form: str) -> None:
    objects = tables.good(form)
    for what, call in {**tables.READS, **tables.WRITES}.items():
        assert tables._attempt(what, call, objects) is not None or what in ("write", "delete", "checkpoint"), what
    assert tables.check_objects(objects)
