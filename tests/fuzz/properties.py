"""What must hold of whatever is read from outside; each check stands on its own, not on the package's own checks.

All raise AssertionError, and let anything but the package's own errors through.
"""

import posixpath
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from dbio_commit.base.errors import CorruptMarkerError, DbioError, InvalidInputError, UnsupportedTableError
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import committed_by
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import (
    CommitMarker,
    bounds_in,
    check_statistics,
    decode_commit,
    encode_commit,
    unpack_files,
)
from dbio_commit.protocol.markers.descriptor import Descriptor, decode_descriptor
from dbio_commit.protocol.markers.turn import Turn, decode_turn
from dbio_commit.protocol.state import current_metadata, live_files
from tests.fuzz.expressions import assert_known_metadata

WHERE = "s3://bucket/t/_object"
MAX_MESSAGE = 4000


def assert_inside(paths: Iterable[str]) -> None:
    for path in paths:
        components = path.split("/")
        assert not path.startswith("/"), path
        assert all(components), f"an empty component: {path!r}"
        assert not {".", ".."} & set(components), path
        assert "\\" not in path, path
        assert not [c for c in path if ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000], repr(path)
        assert posixpath.normpath(f"/table/{path}") == f"/table/{path}", path
        assert len(path) <= 4096


def assert_message(error: DbioError, where: str = WHERE) -> None:
    text = str(error)
    assert where in text
    assert len(text) < MAX_MESSAGE, len(text)
    assert text.isprintable(), repr(text)


def commit(body: bytes) -> CommitMarker | None:
    """The marker, or None where it was refused."""
    try:
        marker = decode_commit(body, where=WHERE)
    except (CorruptMarkerError, UnsupportedTableError) as error:
        assert_message(error)
        return None
    assert_inside([*marker.added, *marker.removed])
    assert_known_metadata(marker.dbio_commit.table_schema if marker.dbio_commit else None)
    files = unpack_files(marker)
    try:
        check_statistics(marker, where=WHERE)
    except CorruptMarkerError as error:
        assert_message(error)
        assert bounds_in(marker) == {}
        with pytest.raises(InvalidInputError):
            encode_commit(marker)
        return marker
    assert [file.path for file in files] in ([], marker.added)
    assert not (marker.is_abort and (marker.added or marker.removed))
    again = decode_commit(encode_commit(marker), where=WHERE)
    assert (again.added, again.removed, again.is_abort) == (marker.added, marker.removed, marker.is_abort)
    return marker


def descriptor(body: bytes) -> Descriptor | None:
    try:
        found = decode_descriptor(body, where=WHERE)
    except (CorruptMarkerError, UnsupportedTableError) as error:
        assert_message(error)
        return None
    for column in found.partition_columns:
        assert column
        assert column[0] not in "_."
        try:
            directory = names.format_partition({column: "x"})
        except InvalidInputError:
            continue
        if len(directory) > 4096:  # no marker can name a file there
            continue
        assert_inside([directory])
        assert dict(names.parse_partition(directory)) == {column: "x"}
    assert decode_descriptor(encode(found), where=WHERE) == found
    return found


def turn(body: bytes) -> Turn | None:
    try:
        found = decode_turn(body, where=WHERE)
    except (CorruptMarkerError, UnsupportedTableError) as error:
        assert_message(error)
        return None
    assert found.tid.isascii()
    assert found.tid.isalnum()
    assert_inside([names.started(found.tid), names.committed(found.tid)])
    return found


def assert_parts(found: Checkpoint) -> None:
    """The parts of a root lie at the root of the table, and no two of them are the same object."""
    parts = [*found.parts, *(it.part for it in found.dropped)]
    objects = [name for part in parts for name in part.objects]
    assert len({*objects}) == len(objects)
    assert_inside(objects)
    assert all(re.fullmatch(r"_part_\d{20}-[0-9a-f]{32}", name) for name in objects)
    for part in parts:
        ends = [0]
        for group in part.groups:
            assert group.at >= ends[-1]
            ends.append(group.at + group.bytes)
        assert ends[-1] + part.footer <= part.bytes


def checkpoint(body: bytes, number: int = 1) -> tuple[Decided, ...] | None:
    """The commits, or None where it was refused."""
    try:
        found = decode_checkpoint(body, number=number, where=WHERE)
    except (CorruptMarkerError, UnsupportedTableError) as error:
        assert_message(error)
        return None
    assert found.number == number
    assert_parts(found)
    assert len(found.covered) == len(found.commits)
    for commit in found.commits:
        assert_inside([*commit.marker.added, *commit.marker.removed, names.committed(commit.tid)])
        assert "/" not in names.committed(commit.tid)
    assert len(committed_by(found.commits, None)) == len(found.commits)
    removed = {path for commit in found.commits for path in commit.marker.removed}
    live = {file.path for file in live_files(found.commits)}
    assert live == {path for commit in found.commits for path in commit.marker.added} - removed
    current_metadata(commit.marker for commit in found.commits)
    return tuple(found.commits)


def name(text: str) -> names.LogName | str | None:
    """One component of a path, as a store lists it: a marker, a data file's tid, or None for neither."""
    parsed = names.parse_log_name(text)
    if parsed is not None:
        assert names.format_log_name(parsed) == text
        assert names.is_hidden(text)
        assert names.parse_data_file(text) is None
        assert_inside([text])
    tid = names.parse_data_file(text)
    if tid is not None:
        assert names.is_tid(tid)
        assert f"-tid-{tid}-" in text
        names.parse_tid_time(tid)
    return parsed or tid


def path(text: str) -> str | None:
    """A path as a marker names it: refused, or inside the table; alone and among others."""
    try:
        accepted = [names.check_path(text, where=WHERE)]
    except CorruptMarkerError as error:
        assert_message(error)
        accepted = []
    assert_inside(accepted)
    for paths in ([text], ["a", text], [text, "b/c"], ["a", text, "b"]):
        try:
            names.check_paths(paths, where=WHERE)
        except CorruptMarkerError as error:
            assert_message(error)
            assert not accepted
        else:
            assert accepted
    directory, last = names.split(text)
    if directory:
        assert names.join(directory, last) == text
    names.is_data_file(text)
    partition(directory)
    return accepted[0] if accepted else None


def partition(directory: str) -> names.Partition | None:
    """What a directory says, or None where no directory can say that again; if one can, it lies in the table."""
    found = names.parse_partition(directory)
    try:
        formatted = names.format_partition(found)
        columns = names.check_partition_columns(list(found))
    except InvalidInputError:
        return None
    assert names.parse_partition(formatted) == found
    assert len(formatted.split("/")) == max(len(columns), 1)
    if columns and not any("\ud800" <= c < "\ue000" for c in directory):  # no value of a column holds those
        assert_inside([formatted])
        assert names.is_data_file(formatted)
    assert names.common_partition_columns([directory, formatted]) == columns
    return found or None


COMMITS = [
    Decided(datetime(2026, 11, day, tzinfo=UTC), str(day), CommitMarker(added=[str(day)], removed=[]))
    for day in range(1, 4)
]


def as_of(text: str) -> list[Decided] | None:
    """A time or tid that somebody asks for: refused, or the first so many commits."""
    try:
        found = committed_by(COMMITS, text)
    except InvalidInputError as error:
        assert "ISO 8601" in str(error) or "time zone" in str(error)
        return None
    assert found == COMMITS[: len(found)]
    return found
