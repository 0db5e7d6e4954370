"""`dbio restore`: what it says."""

import time

from dbio_commit import Table
from tests.command_line import append, dbio, dbio_json


def test_restore_brings_back_an_earlier_state_and_says_what_it_took(table: Table) -> None:
    append(table, {"1": 10})
    (first,) = table.snapshot().tids
    time.sleep(0.2)  # no two commits of one moment
    append(table, {"2": 10})
    said = dbio("restore", table.url, first)
    assert said.exit_code == 0
    assert "0 files came back as copies, 1 went" in said.stdout
    assert len(table.snapshot().files) == 1
    again = dbio_json("restore", table.url, first)
    assert (again["added"], again["removed"], again["as_of"]) == (0, 0, first)


def test_what_is_no_state_is_wrong_usage(table: Table) -> None:
    append(table, {"1": 10})
    assert dbio("restore", table.url, "yesterday").exit_code == 2
    assert dbio_json("restore", table.url, "yesterday")["error"] == "InvalidInputError"
