"""Why a data file is not live."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers import CommitMarker


class Garbage(StrEnum):
    """Why a data file is not live."""

    REMOVED = "removed by a commit"
    FAILED_ATTEMPT = "left by a failed task attempt"
    ABORTED = "its transaction was aborted"
    PENDING = "its transaction is pending"
    UNKNOWN = "its transaction left no marker"
    UNTRACKED = "no transaction wrote it"


def classify(
    entries: Iterable[Entry], *, live: Collection[str], log: Log, markers: Mapping[str, CommitMarker]
) -> dict[Garbage, list[Entry]]:
    """The data files in a listing of a table (table scope) that are not live, by reason."""
    removed = {path for marker in markers.values() for path in marker.removed}
    garbage: dict[Garbage, list[Entry]] = {}
    for entry in entries:
        if entry.path in live or is_foreign(entry.path) or not names.is_data_file(entry.path):
            continue
        reason = _reason(entry.path, removed, log, markers)
        garbage.setdefault(reason, []).append(entry)
    return garbage


def is_foreign(path: str) -> bool:
    """Whether what lies there in the open is no data by its name: nobody's but its owner's."""
    return names.is_data_file(path) and not names.counts_as_data(names.split(path)[1])


def _reason(path: str, removed: Collection[str], log: Log, markers: Mapping[str, CommitMarker]) -> Garbage:
    tid = names.parse_data_file(names.split(path)[1])
    if path in removed:
        return Garbage.REMOVED
    if tid is None:
        return Garbage.UNTRACKED
    if tid in markers:
        return Garbage.ABORTED if markers[tid].is_abort else Garbage.FAILED_ATTEMPT
    return Garbage.PENDING if tid in log.started else Garbage.UNKNOWN
