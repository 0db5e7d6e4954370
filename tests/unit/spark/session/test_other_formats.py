"""What users of other formats type first, and what dbio says to type instead."""

import pytest

from dbio_commit.spark.session.other_formats import OPTIONS, advice_for_option, advice_for_statement


@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("OPTIMIZE dbio.lake.events", "CALL dbio.system.compact('dbio.lake.events')"),
        ("optimize dbio.`/lake/my events` ;", "CALL dbio.system.compact('dbio.`/lake/my events`')"),
        (
            "OPTIMIZE events WHERE day = '2026-11-20' ZORDER BY (id, `a b`)",
            "CALL dbio.system.compact('events', where => 'day = \\'2026-11-20\\'', z_order => array('id', 'a b'))",
        ),
        ("OPTIMIZE events FULL", "CALL dbio.system.compact('events', full => true)"),
        ("OPTIMIZE events ZORDER BY id", "CALL dbio.system.compact('events', z_order => array('id'))"),
        ("VACUUM events", "CALL dbio.system.vacuum('events')"),
        (
            "VACUUM a . b RETAIN 100 HOURS DRY RUN",
            "CALL dbio.system.vacuum('a . b', retention_hours => 100, dry_run => true)",
        ),
        ("DESCRIBE HISTORY dbio.lake.events LIMIT 5", "CALL dbio.system.history('dbio.lake.events')"),
        ("desc detail events", "DESCRIBE EXTENDED events"),
        ("RESTORE TABLE events TO VERSION AS OF 5", "CALL dbio.system.restore('events', '5')"),
        (
            "RESTORE events TO TIMESTAMP AS OF '2026-11-20 12:00'",
            "CALL dbio.system.restore('events', '2026-11-20 12:00')",
        ),
        ("REORG TABLE events APPLY (PURGE)", "CALL dbio.system.compact('events')"),
    ],
)
def test_a_statement_of_deltas_sql_has_one_of_dbio_beside_it(statement: str, advice: str) -> None:
    assert advice_for_statement(statement) == f"For a dbio table, type: {advice}"


@pytest.mark.parametrize(
    "statement", ["BEGIN", "begin transaction read write", "START TRANSACTION", "COMMIT;", "ROLLBACK WORK"]
)
def test_a_transaction_in_sql_has_one_in_python_beside_it(statement: str) -> None:
    assert "dbio.transaction(spark)" in str(advice_for_statement(statement))


@pytest.mark.parametrize(
    "statement",
    ["", "SELECT 1", "BEGIN SELECT 1; END", "OPTIMIZE", "VACUUM events NOW", "DESCRIBE events", "OPTIMIZE a b"],
)
def test_other_statements_have_no_advice(statement: str) -> None:
    assert advice_for_statement(statement) is None


def test_an_option_of_another_format_has_one_of_dbio_beside_it() -> None:
    assert advice_for_option("STARTINGVERSION") == "startingVersion: use the option startingTid"
    advice = advice_for_option("timestampAsOf")
    assert advice is not None
    assert advice.startswith("timestampAsOf: use the option asOf")
    assert "timestampAsOf is for spark.read.table" in advice
    assert advice_for_option("asOf") is None
    assert all(advice_for_option(name) for name in OPTIONS)
