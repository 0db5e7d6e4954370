"""The golden directories, read by the core and by pyarrow. What each holds: `golden/generate.py`.

`golden_cases` and `GoldenCase.build` are for other readers' tests too. Rules: PROTOCOL.md 8.1, 11.2.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import DbioError
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Start
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.table import Table
from tests.builders import as_dbio_sees
from tests.command_line import dbio
from tests.golden import generate

GOLDEN = Path(generate.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One way to read a golden table, and what must come of it: an error, or files with their ids."""

    as_of: str | None = None
    ignore_corrupt_markers: bool = False
    without_descriptor: bool = False
    """The table is read as if we had never created it."""
    error: str | None = None
    """The name of its class."""
    files: Sequence[str] = ()
    ids: Sequence[int] = ()
    partition_columns: Sequence[str] = ()
    settings: Mapping[str, str] | None = None
    """None where the case does not say."""
    columns: Sequence[str] | None = None
    """The names of those that are recorded; None as above."""
    stream: Sequence[str] | str | None = None
    """What a stream of appended rows reads from the first commit on, in order, or how it fails; None as above."""
    log: Sequence[str] | None = None
    """What `dbio log` says that each commit did, the newest first; None as above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    name: str
    table: Path
    modified: Mapping[str, str]
    """Of the commit markers, in which order counts; all others are older."""
    reads: Sequence[Read]

    def build(self, target: Path, read: Read) -> str:
        """Copies the table to a path that does not exist yet, with the times that git does not keep."""
        shutil.copytree(self.table, target)
        for path in filter(Path.is_file, target.rglob("*")):
            at = self.modified.get(path.relative_to(target).as_posix())
            stamp = (datetime.fromisoformat(at) if at else datetime(2025, 1, 1, tzinfo=UTC)).timestamp()
            os.utime(path, (stamp, stamp))
        if read.without_descriptor:
            ours = as_dbio_sees({path.name: path for path in target.iterdir()})
            for path in target.iterdir():
                if path.name not in ours:
                    path.unlink()
        return str(target)


def golden_cases() -> list[GoldenCase]:
    return [_load(path) for path in sorted(GOLDEN.glob("*/expected.json"))]


def _load(path: Path) -> GoldenCase:
    expected: dict[str, Any] = json.loads(path.read_text())
    return GoldenCase(
        name=path.parent.name,
        table=path.parent / "table",
        modified=expected["modified"],
        reads=[Read(**read) for read in expected["reads"]],
    )


def _how(read: Read) -> str:
    how = [read.as_of and f"as-of-{read.as_of}", read.ignore_corrupt_markers and "ignoring", read.without_descriptor]
    return "+".join("as-dbio" if part is True else part for part in how if part) or "now"


READS = [(case, read) for case in golden_cases() for read in case.reads]


def each(reads: Sequence[tuple[GoldenCase, Read]], *, of: int = 1) -> pytest.MarkDecorator:
    """Each of them; but one `of` so many in `make test`."""
    params = [
        pytest.param(case, read, id=f"{case.name}:{_how(read)}", marks=pytest.mark.long if number % of else ())
        for number, (case, read) in enumerate(reads)
    ]
    return pytest.mark.parametrize(("case", "read"), params)


@each([(case, read) for case, read in READS if not read.error])
def test_reader_sees_exactly_the_files_of_a_golden_directory(case: GoldenCase, read: Read, tmp_path: Path) -> None:
    table = Table(case.build(tmp_path / "table", read))
    snapshot = table.snapshot(as_of=read.as_of, ignore_corrupt_markers=read.ignore_corrupt_markers)
    assert sorted(file.path for file in snapshot.files) == sorted(read.files)
    assert list(snapshot.partition_columns) == list(read.partition_columns)
    assert read.settings in (None, snapshot.settings)
    assert read.columns in (None, [field["name"] for field in (snapshot.schema or {"fields": ()})["fields"]])
    assert {f.path: f.size for f in snapshot.files} == {f: (case.table / f).stat().st_size for f in read.files}
    assert sorted(_ids(snapshot.urls())) == sorted(read.ids)


@each([(case, read) for case, read in READS if read.stream is not None])
def test_a_stream_reads_what_came_with_each_commit_of_a_golden_directory(
    case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    table = Table(case.build(tmp_path / "table", read))
    feed = Feed(Follower(table.store, table.clock).history(), FeedOptions())
    start = Start(begin="time", time=datetime(2025, 1, 1, tzinfo=UTC))
    try:
        found: Sequence[str] | str = [
            change.file.path for _, changes in feed.span(start, None) for change in changes if change.kind == "insert"
        ]
    except DbioError as error:
        found = type(error).__name__
    assert found == read.stream


@each([(case, read) for case, read in READS if read.log is not None])
def test_the_log_and_show_say_what_became_of_the_rows_of_a_golden_directory(
    case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    path = case.build(tmp_path / "table", read)
    commits = [line.split("\t") for line in dbio("log", path).stdout.splitlines()]
    # expected.json has the words of the markers, of which one is an old word to users.
    recorded = [commit[2].replace("overwrite_partitions", "replace_partitions") for commit in commits]
    assert recorded == read.log
    for tid, said in ((commit[0], commit[2]) for commit in commits):
        shown = " ".join(dbio("show", path, tid).stdout.split())
        metrics = json.loads((case.table / f"_committed_{tid}").read_text())["dbio_commit"].get("metrics", {})
        assert f" operation {said} added " in shown
        assert all(f" {name} {value}" in shown for name, value in metrics.items())


@each([(case, read) for case, read in READS if read.error])
def test_reader_refuses_a_golden_directory_with_the_error_that_says_why(
    case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    table = Table(case.build(tmp_path / "table", read))
    with pytest.raises(DbioError) as caught:
        _all_of(table.snapshot(as_of=read.as_of, ignore_corrupt_markers=read.ignore_corrupt_markers))
    assert read.error in [kind.__name__ for kind in type(caught.value).mro()]


@each([(case, read) for case, read in READS if not (read.error or read.as_of)])
def test_check_reads_every_golden_directory_that_a_reader_can(case: GoldenCase, read: Read, tmp_path: Path) -> None:
    """`check` reports what readers refuse, so it sees what those see who ignore corrupt markers."""
    report = Table(case.build(tmp_path / "table", read)).check()
    assert report.live_files == len(read.files)
    assert bool(report.corrupt) == read.ignore_corrupt_markers
    all_data = {e.relative_to(case.table).as_posix() for e in case.table.rglob("*") if e.is_file()}
    reported = {entry.path for entries in report.garbage.values() for entry in entries}
    reported |= {entry.path for entry in report.foreign}
    assert reported == {path for path in all_data if names.is_data_file(path)} - set(read.files)


def test_golden_directories_are_the_ones_that_the_generator_writes(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    assert _tree(tmp_path) == _tree(GOLDEN)


def _all_of(snapshot: Snapshot) -> object:
    """Parts are read when somebody needs what is in them."""
    return [*snapshot.files], [*snapshot.decided]


def _ids(urls: Sequence[str]) -> list[int]:
    return [row["id"] for url in urls for row in pq.ParquetFile(url).read().to_pylist()]


def _tree(root: Path) -> dict[str, str]:
    """All paths, and the expectations; Parquet's own bytes may differ with its version."""
    return {
        path.relative_to(root).as_posix(): path.read_text() if path.name == "expected.json" else ""
        for case in root.glob("[0-9]*-*")
        for path in case.rglob("*")
        if path.is_file()
    }
