"""Names of tids, markers, data files and partition directories, formatted and parsed. Pure.

The bodies of markers are in `markers`; what the markers of a table add up to is in `state`. All paths are relative to
the root of the table and use "/". Rules: PROTOCOL.md section 6. Escapes in names of directories are Hive's, as Spark
writes them.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import repeat
from operator import contains
from typing import Any, NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol.markers.bodies import INSPECT

DESCRIPTOR = "_dbio_table"
DROPPED = "_dropped"
"""The tombstone: while it exists, there is no table, whatever other objects exist."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

# --- tids ---------------------------------------------------------------------------------------------------------

TID_DIGITS = 19
RANDOM_BITS = 21
_MAX_MILLIS = (1 << 42) - 1


def format_tid(millis: int, random_bits: int) -> str:
    """The tid of a transaction that starts `millis` after 1970 (UTC): 42 bits of time, 21 random bits, 19 digits.

    Tids sort by start time, as numbers and as text.
    """
    if not 0 <= millis <= _MAX_MILLIS:
        raise InvalidInputError(f"the clock says {millis} ms since 1970, which no tid can hold; set the clock")
    return f"{millis << RANDOM_BITS | random_bits & ((1 << RANDOM_BITS) - 1):0{TID_DIGITS}d}"


_JOINT = "j"


def joint_tid(tid: str) -> str:
    """The tid of a joint transaction, by one of `format_tid`."""
    return tid + _JOINT


def is_joint(tid: str) -> bool:
    """Whether this is the tid of a joint transaction: only its home decides it."""
    return len(tid) == TID_DIGITS + 1 and tid.endswith(_JOINT) and tid[:-1].isdigit()


def parse_tid_time(tid: str) -> datetime | None:
    """When the transaction began, by its writer's clock; None if `format_tid` cannot have made the tid."""
    tid = tid.removesuffix(_JOINT)
    if len(tid) != TID_DIGITS or not (tid.isascii() and tid.isdigit()) or int(tid) >> 63:
        return None
    return datetime.fromtimestamp((int(tid) >> RANDOM_BITS) / 1000, UTC)


def is_tid(text: str) -> bool:
    """Whether the text can be a tid of any writer (DBIO's grammar), and so part of a file's name."""
    return len(text) <= _MAX_NAME and _TID.fullmatch(text) is not None


# --- the log: everything at the root that starts with "_" ---------------------------------------------------------


class Kind(StrEnum):
    """The kinds of objects in the log."""

    STARTED = "_started_"
    COMMITTED = "_committed_"
    VACUUM = "_committed_vacuum"  # DBIO's queue of markers to delete
    TURN = "_serial_"
    CHECKPOINT = "_checkpoint_"
    PART = "_part_"  # a part of the state that a checkpoint names
    PURGE = "_purged_"  # names the checkpoint that covers purged markers
    CLOCK = "_clock_"  # created and deleted by a vacuum, to ask for the store's time


@dataclass(frozen=True, slots=True)
class LogName:
    """The name of a marker: its kind, and a tid, a number (of a turn or checkpoint) or a vacuum id."""

    kind: Kind
    id: str


_TID = re.compile(r"[a-z0-9]+")
_NUMBER = re.compile(r"[0-9]{20}")
_PART = re.compile(r"[0-9]{20}-[0-9a-f]{32}")
_DATA = re.compile(r"[^_].*-tid-([a-z0-9]+)-.*")


def format_log_name(name: LogName) -> str:
    return name.kind + name.id


def parse_log_name(name: str) -> LogName | None:
    """The marker that has this name (one component, no directory); None for any other object."""
    if name.startswith(Kind.VACUUM):  # before COMMITTED, since it looks like a commit marker with the tid "vacuum…"
        return _log_name(Kind.VACUUM, name, _TID)
    for kind, grammar in _GRAMMARS.items():
        if name.startswith(kind):
            return _log_name(kind, name, grammar)
    return None


_GRAMMARS = {
    Kind.STARTED: _TID,
    Kind.COMMITTED: _TID,
    Kind.TURN: _NUMBER,
    Kind.CHECKPOINT: _NUMBER,
    Kind.PART: _PART,
    Kind.PURGE: _NUMBER,
    Kind.CLOCK: _TID,
}


def _log_name(kind: Kind, name: str, grammar: re.Pattern[str]) -> LogName | None:
    rest = name.removeprefix(kind)
    return LogName(kind, rest) if grammar.fullmatch(rest) else None


def started(tid: str) -> str:
    return format_log_name(LogName(Kind.STARTED, tid))


def committed(tid: str) -> str:
    return format_log_name(LogName(Kind.COMMITTED, tid))


def clock(tid: str) -> str:
    return format_log_name(LogName(Kind.CLOCK, tid))


def turn(number: int) -> str:
    return _numbered(Kind.TURN, number)


def checkpoint(number: int) -> str:
    return _numbered(Kind.CHECKPOINT, number)


def purge(number: int) -> str:
    return _numbered(Kind.PURGE, number)


def part(number: int, random: str) -> str:
    """The name of a part that is written for the checkpoint with this number. `random` is a UUID in hex."""
    return f"{_numbered(Kind.PART, number)}-{random}"


def part_number(name: str) -> int | None:
    """The number of the checkpoint for which the part with this name was written; None for any other name."""
    parsed = parse_log_name(name)
    return int(parsed.id.partition("-")[0]) if parsed and parsed.kind is Kind.PART else None


def vacuum_queue(id: str) -> str:
    return format_log_name(LogName(Kind.VACUUM, id))


LAST_NUMBER = 10**15
"""No turn or checkpoint gets this number: one in each microsecond would take thirty years."""


def _numbered(kind: Kind, number: int) -> str:
    if not 0 <= number < 10**20:
        raise InvalidInputError(
            f"{number} cannot be the number of a turn or checkpoint: it has at most 20 digits, and no sign"
        )
    return format_log_name(LogName(kind, f"{number:020d}"))


# --- data files ---------------------------------------------------------------------------------------------------


def format_data_file(
    *, tid: str, job: str, task: int, attempt: int, number: int, suffix: str, changes: bool = False
) -> str:
    """The name of a task attempt's `number`-th file, in DBIO's form. `suffix` is like ".snappy.parquet".

    `changes` makes it the name of a change file, which contains the rows that the transaction changed.
    """
    kind = _CHANGES if changes else "part"
    return f"{kind}-{task:05d}-tid-{tid}-{job}-{attempt}-{number}-c000{suffix}"


_CHANGES = "cdc"


def are_marked(paths: Collection[str], tid: str) -> bool:
    """Whether each path has this tid and no other, so that no other transaction wrote it. False if uncertain."""
    own = f"{_BEFORE_TID}{tid}-"
    in_all = "\0".join(paths).count(
        _BEFORE_TID
    )  # at least one for each tid in the paths, since tids of digits do not overlap
    return tid.isdigit() and in_all == len(paths) and all(map(contains, paths, repeat(own)))


_BEFORE_TID = "-tid-"


def is_change_file(path: str) -> bool:
    """Whether a file that a dbio transaction adds is a change file, and has no rows of the table."""
    return split(path)[1].startswith(f"{_CHANGES}-")


def parse_data_file(name: str) -> str | None:
    """The tid in the name of a data file (one component); None for a file that no transaction wrote."""
    match = _DATA.fullmatch(name)
    return match[1] if match else None


def is_of(path: str, tid: str) -> bool:
    """Whether this transaction wrote the data file, by its name."""
    return parse_data_file(split(path)[1]) == tid


def is_parquet(name: str) -> bool:
    """Whether a name (or path) ends as Parquet files do, whatever compression it names: ".snappy.parquet"."""
    return name[-len(_PARQUET) :].lower() == _PARQUET


_PARQUET = ".parquet"


def counts_as_data(name: str) -> bool:
    """Whether a file with this name (one component) can be a table's: its suffix is Parquet's, or it has a tid.

    All others are foreign: dbio neither reads, removes nor deletes them. For names with a tid and another suffix, the
    content decides (`parquet.is_parquet`).
    """
    return is_parquet(name) or parse_data_file(name) is not None


def is_hidden(component: str) -> bool:
    """Whether Spark, and therefore every reader, skips a file or directory of this name."""
    if not component or component.endswith(_COPYING):
        return True  # readers do not find objects with "//" in their key either
    return component.startswith(".") or (component.startswith("_") and "=" not in component)


_COPYING = "._COPYING_"
"""The end of Hadoop's names for copies in progress."""


def split(path: str) -> tuple[str, str]:
    """(directory, name) of a path; the directory of a file at the root is ""."""
    directory, _, name = path.rpartition("/")
    return directory, name


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def is_data_file(path: str) -> bool:
    """Whether a reader would take the path for data: none of its components is hidden."""
    return not any(map(is_hidden, path.split("/")))


def fold(path: str) -> str:
    """One text for all paths that some disk treats as equal: by case, composed letters, dots or spaces at the end."""
    folded = path.lower() if path.isascii() else normalize("NFC", normalize("NFD", path).casefold())
    return _CUT_OFF.sub("", folded) if "./" in folded or " /" in folded or folded.endswith((".", " ")) else folded


_CUT_OFF = re.compile(r"[. ]+(?=/|$)")


def is_pattern(path: str) -> bool:
    """Whether Hadoop, DuckDB and others would take the path for a pattern, and read other files by it.

    `escape` leaves none of these characters in dbio's own names. A `}` without a `{` is literal everywhere.
    """
    return any(char in path for char in _PATTERN)  # over a long text, many times as fast as a regular expression


_PATTERN = "*?[]{"


def check_paths(paths: Sequence[str], *, where: str) -> None:
    """Checks all paths as `check_path` does, by a few scans of long texts: a reader checks tens of thousands."""
    for some in _in_runs(paths):
        joined = _as_one(some)
        if not _lacks(joined, _SUSPECT) or _MAY_LEAD_OUT.search(joined) or max(map(len, some)) > _MAX_PATH:
            for path in some:
                check_path(path, where=where)


def check_visible(paths: Sequence[str], *, where: str) -> None:
    """As `check_paths`, for paths that a marker adds: readers must also take each for data, and other tools for one
    file."""
    for some in _in_runs(paths):
        if not _are_surely_visible(_as_one(some)) or max(map(len, some)) > _MAX_PATH:
            _check_each_visible(some, where=where)


def _check_each_visible(paths: Sequence[str], *, where: str) -> None:
    for path in paths:
        check_path(path, where=where)
        if is_pattern(path):
            raise CorruptMarkerError(f"{where} adds {path[:200]!r}, which other tools take for a pattern; {INSPECT}")
        if not is_data_file(path):
            raise CorruptMarkerError(f"{where} adds {path[:200]!r}, which readers skip by its name; {INSPECT}")


def are_surely_visible(directories: Sequence[str], files: bytes, *, letters: Iterable[str], longest: int) -> bool:
    """Whether `check_visible` accepts the paths of all files in some directories. If it is False, one may be wrong.

    `files` has the names of the files in UTF-8, one directly after the other. `letters` has the first letter of each,
    or "" for an empty name. `longest` is the length of the longest name.
    """
    above = [directory for directory in directories if directory]
    return (
        (not above or _are_surely_visible(_as_one(above)))
        and not {"", "_", "."} & {*letters}
        and _MAY_BE_COPIED not in files
        and _lacks(files, _SUSPECT_IN_NAMES)
        and max(map(len, above), default=0) + 1 + longest <= _MAX_PATH
    )


def _are_surely_visible(joined: bytes) -> bool:
    """The same for paths in one text in UTF-8, each between slashes. Their lengths are not checked."""
    may_hide = _MAY_HIDE.search(joined) or _MAY_BE_COPIED in joined
    return not may_hide and _lacks(joined, _SUSPECT_IN_VISIBLE)


_CHECKED_AT_ONCE = 16_384
"""How many paths are checked as one text, of which there are several copies meanwhile."""


def _in_runs(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _CHECKED_AT_ONCE):
        yield paths[start : start + _CHECKED_AT_ONCE]


def _as_one(paths: Sequence[str]) -> bytes:
    """The paths, each between slashes. Characters that UTF-8 does not have become question marks."""
    return f"/{'/'.join(paths)}/".encode(errors="replace")


def _lacks(text: bytes, chars: bytes) -> bool:
    return len(text.translate(None, chars)) == len(text)


def check_path(path: str, *, where: str) -> str:
    """The path itself, if it stays inside the table. `where` is the marker that names it.

    Paths in markers come from outside. Raises CorruptMarkerError for anything except plain components joined by "/".
    """
    if len(path) <= _MAX_PATH and _SAFE_PATH.fullmatch(path):
        return path
    raise CorruptMarkerError(
        f"{where} names the path {path[:200]!r}, which is not inside the table; nothing was read or deleted "
        f"because of it; {INSPECT}"
    )


_MAX_PATH = 4096
_MAX_NAME = 255
"""The longest name of a file or directory on most disks."""
_SUSPECT = bytes([*range(0x20), 0x7F]) + b"\\?"
_SUSPECT_IN_VISIBLE = _SUSPECT + _PATTERN.encode()
_SUSPECT_IN_NAMES = _SUSPECT_IN_VISIBLE + b"/"
_MAY_LEAD_OUT = re.compile(rb"/[/.]")
_MAY_HIDE = re.compile(rb"/[/_.]")
_MAY_BE_COPIED = _COPYING.encode()
_SAFE_PATH = re.compile(r"(?:(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f\ud800-\udfff]+(?:/(?!$)|$))+")

# --- partitions ---------------------------------------------------------------------------------------------------

Partition = Mapping[str, str | None]
"""Column -> value as in the directory's name, unescaped; None is SQL null. In the order of the partition columns."""

_ESCAPED = re.compile("[\x01-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")


def escape(text: str) -> str:
    """A column's name or value as Spark (ExternalCatalogUtils.escapePathName) writes it into a directory's name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def escapes_utf8(text: str) -> bool:
    """Whether a tool that escapes the bytes of UTF-8, as pandas and pyarrow do, wrote the text: `unescape` reads other
    characters then. Spark escapes no character above 0x7F."""
    return any(int(match[1], 16) > 0x7F for match in _ESCAPE.finditer(text))


def unescape_utf8(text: str) -> str | None:
    """The text as a tool that escapes the bytes of UTF-8 meant it; None if these bytes are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def format_partition(partition: Partition) -> str:
    """The directory of a partition, "a=1/b=x%2Fy", null as __HIVE_DEFAULT_PARTITION__; "" for no columns."""
    return "/".join(f"{escape(column)}={_format_value(column, value)}" for column, value in partition.items())


def parse_partition(directory: str) -> Partition:
    """The partition of a directory, from its components of the form column=value. Other components are ignored."""
    pairs = (component.partition("=") for component in directory.split("/") if "=" in component)
    return {unescape(column): None if value == HIVE_NULL else unescape(value) for column, _, value in pairs}


def _format_value(column: str, value: str | None) -> str:
    if value is None:
        return HIVE_NULL
    if value in ("", HIVE_NULL) or "\0" in value or value.endswith("._COPYING_"):
        raise InvalidInputError(
            f"partition column {column!r} holds {value!r}, which a directory name cannot hold (Spark would read it "
            "back as null, or not at all); replace it by null or by another value before writing"
        )
    return escape(value)


def check_partition_columns(columns: str | Sequence[str]) -> tuple[str, ...]:
    """The columns, or the only one, as a tuple.

    Raises InvalidInputError for duplicates, for names that readers would skip, and for what is no name.
    """
    given: Any = columns
    is_list = isinstance(columns, Iterable) and not isinstance(columns, str)
    columns = tuple(given) if is_list else (given,)
    for column in columns:
        if not isinstance(column, str):
            raise InvalidInputError(
                f"partition_by={given!r:.200} is no list of names: {column!r:.100} is no text; name columns, as in "
                "partition_by=['day']"
            )
        if not column or column[0] in "_." or "\0" in column:
            raise InvalidInputError(
                f"{column!r:.100} cannot be a partition column: readers skip directories whose names start with '_' or "
                "'.', and the log lives under '_'; rename the column"
            )
        if len(column) > _MAX_NAME:
            raise InvalidInputError(f"{column!r:.100} is too long for a directory's name; rename the column")
    if len({c.lower() for c in columns}) != len(columns):
        raise InvalidInputError(f"the partition columns have a duplicate: {list(columns)!s:.300}")
    return columns


class PathLimits(NamedTuple):
    """The longest names of partitions that a store takes, in bytes of UTF-8."""

    component: int
    """The name of one directory."""
    path: int
    """The path of a directory relative to the root of the table."""


def check_length(partition: Partition, limits: PathLimits) -> None:
    """Raises InvalidInputError, with the column, for a partition whose directory has a name that is too long for the
    store."""
    sizes = {column: len(format_partition({column: value}).encode()) for column, value in partition.items()}
    column = max(sizes, key=lambda name: sizes[name], default="")
    if not sizes or (sizes[column] <= limits.component and sum(sizes.values()) + len(sizes) <= limits.path):
        return
    is_name = sizes[column] > limits.component
    most = f"{limits.component} bytes in a name" if is_name else f"{limits.path} bytes in all directory names below it"
    raise InvalidInputError(
        f"partition column {column!r} with the value {str(partition[column])[:40]!r} makes a directory name of "
        f"{sizes[column]} bytes, and the table's store takes {most}; shorten the values, or partition by another column"
    )


def common_partition_columns(directories: Iterable[str]) -> tuple[str, ...] | None:
    """The partition columns that all directories share, in order; None if they differ."""
    found = {tuple(parse_partition(directory)) for directory in directories}
    return found.pop() if len(found) == 1 else None if found else ()
