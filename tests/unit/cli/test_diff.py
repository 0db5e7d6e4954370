"""`dbio diff`."""

from dbio_commit import Table
from tests.command_line import append, dbio, dbio_json, in_terminal, lines, new_files


def test_diff_says_what_came_and_went_between_two_states(table: Table) -> None:
    first = append(table, {"1": 10, "2": 20}, rows=5)
    with table.begin("overwrite_partitions") as transaction:
        new_files(transaction, {"2": 30}, rows=2)
    table.set({"change_data": "true"})

    found = dbio_json("diff", table.url, first)

    assert (found["from"], found["to"]) == (first, table.snapshot().tid)
    assert found["before"] == {"files": 2, "size": 30, "rows": 10}
    assert found["after"] == {"files": 2, "size": 40, "rows": 7}
    assert found["settings"] == [{"name": "change_data", "before": None, "after": "true"}]
    (partition,) = found["partitions"]
    assert partition["directory"] == "day=2"
    assert (partition["removed"]["rows"], partition["added"]["rows"]) == (5, 2)
    told = lines(dbio("diff", table.url, first).stdout)
    assert [(line[0], line[2]) for line in told] == [("removed", "20"), ("added", "30")]
    _, shown = in_terminal(100, "diff", table.url, first)
    assert any("10 -> 7 (-3)" in line for line in shown)
    assert any(line.split() == ["change_data", "true"] for line in shown)


def test_states_that_do_not_differ_say_so(table: Table) -> None:
    tid = append(table, {"1": 10})
    _, shown = in_terminal(100, "diff", table.url, tid)
    assert "the states do not differ" in shown
    assert dbio("diff", table.url, "nothing").exit_code == 2
