"""What users of Delta Lake and Iceberg type first, and what to type for a dbio table instead. Pure."""

import re
from collections.abc import Callable, Mapping

_BY_STATE = "use the option asOf, which takes a tid or a time"

OPTIONS: Mapping[str, tuple[str, str]] = {
    name.lower(): (name, advice)
    for advice, names in {
        f"{_BY_STATE}; %s is for spark.read.table, of tables in the catalog dbio": "versionAsOf timestampAsOf",
        f"{_BY_STATE}, such as asOf='2026-11-20 12:00:00'": "as-of-timestamp snapshot-id",
        "use the option startingTid": "startingVersion start-snapshot-id",
        "use the option startingTime": "startingTimestamp",
        "use the option endingTid": "endingVersion end-snapshot-id",
        "use the option endingTime": "endingTimestamp",
        "use the option readChangeFeed": "readChangeData",
        "mode overwrite always takes the columns of the data; for mode append, use the option mergeSchema":
            "overwriteSchema",
        "a data source in Python cannot look for the rows to remove; use dbio.write(df, path, mode='overwrite', "
        "replace_where=…)": "replaceWhere",
        "use dbio.compact, whose commits streams pass over": "dataChange",
        "use the option mergeSchema": "merge-schema",
        "use dbio.write(df, path, target_file_size=…), which takes bytes": "target-file-size-bytes",
        "use the option compression": "compression-codec",
        "dbio has no branches and tags; use the option asOf with the tid of a commit": "branch tag",
    }.items()
    for name in names.split()
}  # fmt: skip
"""By option of another format, in lower case: the name as users know it, and what to do. `%s` is the name."""


def advice_for_option(name: str) -> str | None:
    """The name of an option of another format, given in any case, and what to do instead; None for any other name."""
    if (found := OPTIONS.get(name.lower())) is None:
        return None
    known, advice = found
    return f"{known}: {advice % known if '%s' in advice else advice}"


_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME = rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)"


def _optimize(found: re.Match[str]) -> str:
    where = f", where => {_text(found['where'])}" if found["where"] else ""
    columns = ", ".join(_text(it.strip().strip("`")) for it in (found["columns"] or "").split(",") if it.strip())
    order = f", z_order => array({columns})" if columns else ""
    full = ", full => true" if found["full"] else ""
    return f"CALL dbio.system.compact({_text(found['name'])}{where}{order}{full})"


def _vacuum(found: re.Match[str]) -> str:
    hours = f", retention_hours => {found['hours']}" if found["hours"] else ""
    return f"CALL dbio.system.vacuum({_text(found['name'])}{hours}{', dry_run => true' if found['dry'] else ''})"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_STATEMENTS: Mapping[re.Pattern[str], Callable[[re.Match[str]], str]] = {
    re.compile(pattern, re.IGNORECASE | re.DOTALL): write
    for pattern, write in {
        rf"OPTIMIZE\s+{_NAME}(?P<full>\s+FULL)?(?:\s+WHERE\s+(?P<where>.+?))?(?:\s+ZORDER\s+BY\s+\(?(?P<columns>[^()]+)\)?)?":
            _optimize,
        rf"VACUUM\s+{_NAME}(?:\s+(?:LITE|FULL))?(?:\s+RETAIN\s+(?P<hours>\d+(?:\.\d+)?)\s+HOURS)?(?P<dry>\s+DRY\s+RUN)?":
            _vacuum,
        rf"DESC(?:RIBE)?\s+HISTORY\s+{_NAME}(?:\s+LIMIT\s+\d+)?":
            lambda found: f"CALL dbio.system.history({_text(found['name'])})",
        rf"DESC(?:RIBE)?\s+DETAIL\s+{_NAME}":
            lambda found: f"DESCRIBE EXTENDED {found['name']}",
        rf"RESTORE\s+(?:TABLE\s+)?{_NAME}\s+TO\s+(?:VERSION|TIMESTAMP)\s+AS\s+OF\s+'?(?P<state>[^']+?)'?":
            lambda found: f"CALL dbio.system.restore({_text(found['name'])}, {_text(found['state'])})",
        rf"REORG\s+(?:TABLE\s+)?{_NAME}\b.*":
            lambda found: f"CALL dbio.system.compact({_text(found['name'])})",
        r"(?:BEGIN|START)\s+(?:WORK|TRAN(?:SACTION)?)\b.*|(?:BEGIN|COMMIT|ROLLBACK|END)(?:\s+(?:WORK|TRANSACTION))?":
            lambda found:
                "with dbio.transaction(spark) as tx: … in Python; each statement of SQL is committed by itself",
    }.items()
}  # fmt: skip


def advice_for_statement(statement: str) -> str | None:
    """A sentence with what to type instead of a statement of other SQL, such as Delta Lake's, that Spark lacks.

    None for any other statement.
    """
    text = statement.strip().rstrip(";").rstrip()
    for pattern, write in _STATEMENTS.items():
        if found := pattern.fullmatch(text):
            return f"For a dbio table, type: {write(found)}"
    return None
