"""`dbio set`: what it changes, and how it shows what is set."""

from pathlib import Path

import pytest

from dbio_commit import Table
from tests.command_line import append, dbio, dbio_json, in_terminal, lines


def test_set_changes_settings_and_shows_all_of_them(table: Table) -> None:
    append(table, {"1": 10})
    assert lines(dbio("set", table.url, "publish=delta, spark").stdout) == [["publish", "delta,spark"]]
    assert table.settings() == {"publish": "delta,spark"}
    assert lines(dbio("set", table.url).stdout) == [["publish", "delta,spark"]]
    assert dbio_json("set", table.url) == {"url": table.url, "settings": {"publish": "delta,spark"}}
    assert in_terminal(80, "set", table.url) == (0, ["setting  value      ", "publish  delta,spark"])


def test_set_without_a_text_removes_a_setting(table: Table) -> None:
    append(table, {"1": 10})
    table.set({"publish": "delta"})
    assert dbio_json("set", table.url, "publish=") == {"url": table.url, "settings": {}}
    assert table.settings() == {}
    assert dbio("set", table.url).stdout == ""
    assert in_terminal(80, "set", table.url) == (0, ["no settings"])


def test_a_change_of_settings_is_a_commit_of_no_files(table: Table) -> None:
    append(table, {"1": 10})
    dbio("set", table.url, "publish=delta")
    tid, _, operation, added, removed, *_ = lines(dbio("log", table.url).stdout)[0]
    assert (operation, added, removed) == ("rewrite", "0", "0")
    shown = dbio("show", table.url, tid).stdout
    assert "rewrite" in shown
    assert "publish=delta" in shown
    assert dbio_json("show", table.url, tid)["settings"] == {"publish": "delta"}
    assert dbio("check", table.url).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["publish"], "'publish' is not NAME=TEXT; give each setting once, such as publish=delta,spark"),
        (["=delta"], "is not NAME=TEXT"),
        (["publish=delta", "publish=spark"], "'publish=spark' repeats a setting"),
        (["publish=csv"], "publish='csv' cannot be set: publish is one or more of delta, spark, symlink, iceberg"),
        (["compress=zstd"], "there is no setting 'compress'; those that can be set are publish"),
    ],
)
def test_what_cannot_be_set_is_wrong_usage_and_changes_nothing(table: Table, words: list[str], said: str) -> None:
    append(table, {"1": 10})
    result = dbio("set", table.url, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(table.history()) == 1
    assert dbio_json("set", table.url, *words)["error"] == "InvalidInputError"


def test_only_a_table_of_ours_can_have_settings(plain: Path, tmp_path: Path) -> None:
    result = dbio("set", plain, "publish=delta")
    assert (result.exit_code, "`dbio adopt`" in result.stderr) == (2, True)
    result = dbio("set", tmp_path / "nothing", "publish=delta")
    assert (result.exit_code, "check the path" in result.stderr) == (1, True)
    assert not (tmp_path / "nothing").exists()
