"""Settings of a table: their names, their values, and the result of a change. Pure.

Markers record them as texts by name. Only settings that are known here can be set. Settings of later versions are kept
and passed on. `state` decides as of which turn they hold (PROTOCOL.md 9.8).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.expressions import problem_of

Settings = Mapping[str, str]
"""Texts by name. In a change, an empty text removes a setting."""

MOST = 100
"""How many settings a table can have. Each commit marker repeats all of them."""

MAX_NAME = 100
"""The most characters of a name."""

MAX_TEXT = 4096
"""The most characters of a text."""

PUBLISH = "publish"
"""The forms in which other tools find the table's files after each commit."""

CHANGE_DATA = "change_data"
"""Whether rewrites write change files."""

CHANGE_TYPE = "_change_type"
"""The column of change files, and of change feeds, that says how a row changed. Delta has the same name."""

PROVENANCE = "provenance"
""""off" if commits are not to record who made them. Without the setting, they do."""

NOT_NULL, CHECK, GENERATED, DEFAULT = "not_null", "check", "generated", "default"
"""Kinds of settings, each with a name of its own after a dot. `constraints` has their meanings."""

STATISTICS = "statistics"
"""A kind of settings, with a column after a dot: new files and their markers have no statistics of it."""

CLUSTER_BY = "cluster_by"
"""The columns by whose values a compaction divides rows among files."""

MOST_CLUSTER_COLUMNS = 4
"""The most columns of CLUSTER_BY. With four, a condition on one still leaves out half of 16 files."""

PARTITION_COLUMNS = "partition_columns"
"""The layout, if an overwrite has changed it; otherwise it is the descriptor's. Only such an overwrite sets it."""

Layout = tuple[str, ...]
"""The partition columns of a table, in the order of its directories."""


class Format(StrEnum):
    """The formats in which a table is published for other tools."""

    DELTA = "delta"
    """A Delta log, for tools that read Delta tables."""
    SPARK = "spark"
    """The list of files that Spark's own file sink writes, for plain `spark.read.parquet`."""
    SYMLINK = "symlink"
    """Lists of files by partition, for Hive, Presto, Trino and Athena."""
    ICEBERG = "iceberg"
    """Metadata of an Iceberg table, for tools that read Iceberg tables."""


def words_of(text: str) -> tuple[str, ...]:
    """The words of a setting that lists words, such as PUBLISH, in their order and without spaces."""
    return tuple(word.strip() for word in text.split(","))


def published_forms(settings: Settings | None) -> tuple[str, ...]:
    """The formats in PUBLISH, in their order, with those that only later versions know."""
    return words_of(settings[PUBLISH]) if settings and PUBLISH in settings else ()


def gives_field_ids(settings: Settings | None) -> bool:
    """Whether writers give the columns of new files field ids, by which readers of Iceberg find them."""
    return Format.ICEBERG in published_forms(settings)


def bare_columns(settings: Settings | None) -> frozenset[str]:
    """The top-level columns, in lower case, of which new files and their markers have no statistics."""
    return frozenset(name.partition(".")[2].lower() for name in settings or () if name.startswith(f"{STATISTICS}."))


def cluster_columns(settings: Settings | None) -> tuple[str, ...]:
    """The columns of CLUSTER_BY; none if it is not set. Raises InvalidInputError for a text that no writer writes."""
    text = (settings or {}).get(CLUSTER_BY, "")
    try:
        return tuple(json.loads(_cluster_by(text))) if text else ()
    except ValueError as error:
        raise InvalidInputError(f"the setting {CLUSTER_BY}={text!r:.200} is not {error}: set it again") from None


def cluster_text(columns: Sequence[str]) -> str:
    """The text of CLUSTER_BY."""
    return json.dumps(columns, ensure_ascii=False)


def layout_of(settings: Settings | None, first: Sequence[str]) -> Layout:
    """The layout that these settings give. `first` is the descriptor's layout."""
    return _parse_layout(settings[PARTITION_COLUMNS]) if settings and PARTITION_COLUMNS in settings else tuple(first)


def layout_text(layout: Layout) -> str:
    """The text of PARTITION_COLUMNS. Raises InvalidInputError if it is too long."""
    text = json.dumps(layout, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        raise InvalidInputError(
            f"the names of {len(layout)} partition columns take {len(text)} characters, and a setting has {MAX_TEXT}"
        )
    return text


def _parse_layout(text: str) -> Layout:
    """The layout in a text of PARTITION_COLUMNS. Raises ValueError for a text that `layout_text` does not write."""
    try:
        columns = json.loads(text)
    except RecursionError:
        columns = None
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise ValueError(f"the setting {PARTITION_COLUMNS} is a list of columns")
    try:
        return names.check_partition_columns(columns)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None


def _some_of(allowed: tuple[str, ...]) -> Callable[[str], str]:
    def check(text: str) -> str:
        words = words_of(text)
        if not set(words) <= set(allowed) or len(set(words)) < len(words):
            raise ValueError(f"one or more of {', '.join(allowed)}, each once, with commas between them")
        return ",".join(words)

    return check


def _true(text: str) -> str:
    if text.strip().lower() != "true":
        raise ValueError("true, or empty")
    return "true"


def _off(text: str) -> str:
    if text.strip().lower() != "off":
        raise ValueError("off, or empty")
    return "off"


def _sql(text: str) -> str:
    sql = text.strip()
    if problem := problem_of(sql):
        raise ValueError(f"an expression in a part of Spark's SQL, which REFERENCE.md describes; here {problem}")
    return sql


def _cluster_by(text: str) -> str:
    """A list of columns as JSON, or with commas between them."""
    columns: Any = None
    if text.strip().startswith("["):
        with suppress(ValueError, RecursionError):
            columns = json.loads(text)
    else:
        columns = [*words_of(text)]
    is_list = isinstance(columns, list) and all(isinstance(it, str) and it for it in columns)
    if not is_list or not 0 < len({it.lower() for it in columns}) == len(columns) <= MOST_CLUSTER_COLUMNS:
        raise ValueError(f"1 to {MOST_CLUSTER_COLUMNS} columns, each once, with commas between them or as a JSON list")
    return cluster_text(columns)


KNOWN: dict[str, Callable[[str], str]] = {
    PUBLISH: _some_of(tuple(Format)),
    CHANGE_DATA: _true,
    PROVENANCE: _off,
    CLUSTER_BY: _cluster_by,
}
"""For each setting: converts the caller's text to the text in markers. Raises ValueError with the allowed texts."""

KINDS: Mapping[str, Callable[[str], str]] = {
    NOT_NULL: _true,
    CHECK: _sql,
    GENERATED: _sql,
    DEFAULT: _sql,
    STATISTICS: _off,
}
"""The same for each kind of setting of which a table may have several, such as `check.positive`."""

_OF_COLUMNS = (NOT_NULL, GENERATED, DEFAULT, STATISTICS)
"""The kinds whose names are columns, in any case. Names of checks differ by case: all of them are enforced."""


def check_changes(changes: Mapping[str, str]) -> Settings:
    """The changes as markers record them. An empty text removes a setting, also one that only a later version knows.

    Raises InvalidInputError for a setting that is not known, for a text that it does not allow, and for two settings of
    one column.
    """
    if not isinstance(changes, Mapping) or not all(isinstance(it, str) for both in changes.items() for it in both):
        raise InvalidInputError(
            f"{changes!r:.200} are not settings; give texts by name, such as {{'publish': 'delta'}}"
        )
    found: dict[str, str] = {}
    for name in changes:
        if (other := found.setdefault(_without_case(name), name)) != name:
            raise InvalidInputError(
                f"{other!r:.200} and {name!r:.200} are one setting, because case makes no difference in names of "
                "columns; nothing was changed: give one of them"
            )
    return {name: _check_change(name, text) for name, text in changes.items()}


def _without_case(name: str) -> str:
    """The name, with the column that it may end with in lower case: the same text for the same setting."""
    kind, dot, column = name.partition(".")
    return f"{kind}{dot}{column.lower()}" if kind in _OF_COLUMNS else name


def _check_change(name: str, text: str) -> str:
    if name == PARTITION_COLUMNS:
        raise InvalidInputError(
            f"{PARTITION_COLUMNS} cannot be set by itself, because all files would have to move: overwrite the table "
            "with partition_by=[…], which changes both"
        )
    if not text.strip():
        return ""
    kind, _, rest = name.partition(".")
    check = KNOWN.get(name) or (KINDS.get(kind) if rest else None)
    if check is None:
        known = ", ".join([*KNOWN, *(f"{kind}.NAME" for kind in KINDS)])
        raise InvalidInputError(f"there is no setting {name!r:.200}; those that can be set are {known}")
    if len(name) > MAX_NAME:
        raise InvalidInputError(f"a setting's name has at most {MAX_NAME} characters, not {len(name)}: {name!r:.200}")
    try:
        return check(text)
    except ValueError as error:
        raise InvalidInputError(f"{name}={text!r:.200} cannot be set: {name} is {error}") from None


def change(before: Settings | None, changes: Settings) -> Settings | None:
    """The settings after the changes; None for a table that has none and had none: then markers do not record any.

    A change of a column's setting replaces that setting in every case in which the table spells it.
    """
    changed = {_without_case(name) for name in changes}
    kept = {it: text for it, text in (before or {}).items() if it in changes or _without_case(it) not in changed}
    after = {name: text for name, text in {**kept, **changes}.items() if text}
    return after if after or before is not None else None


def check_recorded(settings: Any) -> Any:
    """Checks settings in a body from outside, or None. Raises ValueError for settings that no writer writes."""
    if settings is None:
        return None
    if not isinstance(settings, dict) or len(settings) > MOST:
        raise ValueError(f"settings are at most {MOST} texts by name")
    for name, text in settings.items():
        if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT or not 0 < len(name) <= MAX_NAME:
            raise ValueError(f"settings have names of 1 to {MAX_NAME} characters, and texts of 1 to {MAX_TEXT}")
    layout_of(settings, ())  # or ValueError
    return settings
