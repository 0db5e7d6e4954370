"""Pairs of operations at once: `pairs.py` says what must hold. All of them take eight hours of one core."""

import random
from typing import get_args

import pytest

from dbio_commit.base.options import Mode
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table

from .pairs import BY_NAME, NOT_SERIAL, OPERATIONS, Wrong, calls_of, pairs, require_serial

READS = {
    "over", "url", "snapshot", "to_pandas", "to_arrow", "to_polars", "count", "scan", "read", "history", "trace",
    "changes", "lag", "schema", "settings", "check", "show", "diff", "plan_restore", "context",
    "refuse_partition", "note", "run", "resume",
}  # fmt: skip
"""What changes nothing in a table, or only goes on with a transaction that `begin` made."""


def test_every_operation_of_a_table_is_in_the_pairs() -> None:
    public = {name for name in vars(Table) if not name.startswith("_")}
    assert public - READS == {it.method for it in OPERATIONS}


def test_every_mode_and_format_is_in_the_pairs() -> None:
    assert {"append", "overwrite", "overwrite_partitions", "error", "errorifexists", "ignore"} == set(get_args(Mode))
    assert BY_NAME["publish"], [*Format]
    assert all(names <= BY_NAME.keys() and why for names, why in NOT_SERIAL.items())


def test_a_sample_of_operations_at_once_leaves_what_an_order_of_them_leaves() -> None:
    chance, refused = random.Random("pairs"), 0
    for form, count in (("table", 60), ("parts", 5), ("directory", 12)):
        for first, second in chance.sample([*pairs(form)], min(count, len([*pairs(form)]))):
            refused += any(require_serial(form, first, second, chance.randint(1, calls_of(form, first.name))).refused)
    assert refused > 20  # else nothing was in the way of anything


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ["table", "parts", "directory"])
@pytest.mark.parametrize("name", [it.name for it in OPERATIONS])
def test_all_operations_at_once_leave_what_an_order_of_them_leaves(form: str, name: str) -> None:
    wrong = []
    for first, second in pairs(form):
        for stop in range(1, calls_of(form, name) + 1) if first.name == name else ():
            try:
                require_serial(form, first, second, stop)
            except Wrong as error:
                wrong.append(str(error))
    assert not wrong, "\n".join(wrong)
