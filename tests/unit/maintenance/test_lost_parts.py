"""A part of a checkpoint that is gone or damaged: what can be rebuilt, from what, and what is refused."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from dbio_commit.base.errors import CheckpointLostError, DbioError, InvalidInputError
from dbio_commit.cli import commands
from dbio_commit.commit import checkpoints
from dbio_commit.commit import parts as writers
from dbio_commit.log.listing import read_numbered_checkpoint
from dbio_commit.log.parts import parquet
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.rebuild import Rebuilt, rebuild_checkpoint
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.maintenance.vacuum.run import run_vacuum
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import HISTORY, Checkpoint
from dbio_commit.protocol.commits import recorded_files
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.parts import Limits, Part, plan_merges
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import once
from tests.tiers import long
from tests.unit.remembering import forget

HOUR = timedelta(hours=1)
DAYS = ("1", "2", "3")


@pytest.fixture(autouse=True)
def tiny_parts() -> Iterator[None]:
    with (
        patch.object(checkpoints, "LARGE_FILES", 0),
        patch.object(writers, "LIMITS", Limits(split=12, budget=8, most=6)),
        patch.object(parquet, "GROUP_ROWS", 3),
        patch.object(parquet, "STATISTICS_ROWS", 2),
    ):
        yield


class Writer:
    """Makes a table with statistics, without Parquet files."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock(seed=seed)
        self.store = MemoryStore(self.clock)
        self.table = Table.over(self.store, self.clock)
        self.chance = random.Random(seed)
        self.count = 0

    def commit(self, operation: Any = "append", *, files: int = 1, removed: int = 0, **more: Any) -> str:
        live = sorted(file.path for file in self.table.snapshot().files) if operation == "rewrite" else []
        transaction = self.table.begin(operation, partition_by=["day"], **more)
        transaction.inspector = None
        if live:
            transaction.remove(self.chance.sample(live, min(removed, len(live))))
        for _ in range(files):
            self.count += 1
            day = self.chance.choice(DAYS)
            path = transaction.new_file(partition={"day": day}).removeprefix(f"{self.table.url}/")
            body = b"x" * (10 + self.count)
            with self.store.open_write(path) as stream:
                stream.write(body)
            bounds = {"a": Bounds(self.count, self.count + 5, 0)} if self.chance.random() < 0.8 else None
            info = FileInfo(path=path, size=len(body), rows=self.count, partition={"day": day}, statistics=bounds)
            transaction.add([info], looked_at=True)
        self.clock.advance(timedelta(seconds=7))
        return transaction.commit(columns("a") | {"fields": [*columns("a")["fields"], *_day()]}).tid

    def step(self) -> None:
        match self.chance.choice(["append", "append", "append", "rewrite", "overwrite_partitions", "abort", "app"]):
            case "append":
                self.commit(files=self.chance.randint(1, 4))
            case "rewrite":
                self.commit("rewrite", files=self.chance.randint(0, 2), removed=self.chance.randint(1, 3))
            case "overwrite_partitions":
                self.commit("overwrite_partitions", files=self.chance.randint(1, 2))
            case "abort":
                self.table.begin("append", partition_by=["day"]).abort()
            case "app":
                self.commit(app=("nightly", self.count))

    def vacuum(self, retention: timedelta = HOUR) -> None:
        options = VacuumOptions(retention_hours=retention / HOUR, checkpoint_after=1, force=True)
        assert run_vacuum(self.store, self.clock, options).ok

    # --- what readers see -----------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, Any]:
        snapshot = self.table.snapshot()
        told = recorded_files(snapshot.decided)
        commits = [it for it in snapshot.history() if it.added_files or it.removed_files]
        return {
            "files": {(file.path, file.size) for file in snapshot.files},
            "commits": [(it.tid, it.timestamp, it.operation, it.added_files, it.removed_files) for it in commits],
            "metadata": snapshot.metadata,
            "apps": snapshot.app_versions,
            "recorded": {file.path: told[file.path] for file in snapshot.files},
        }

    @property
    def root(self) -> Checkpoint:
        log = parse_log(self.store.list_log())
        return read_numbered_checkpoint(self.store, log, log.last_checkpoint)

    def newest(self, kind: str) -> Part:
        return max((part for part in self.root.parts if part.kind == kind), key=lambda part: part.until)

    def move_to_a_copy(self) -> None:
        """From now on, the table is a copy of what it was."""
        original, self.store = self.store, MemoryStore(self.clock)
        copy_table(original, self.store, self.clock)
        self.table = Table.over(self.store, self.clock)

    def rebuild(self) -> Rebuilt:
        forget()
        return rebuild_checkpoint(self.store, self.clock)


def _day() -> list[dict[str, Any]]:
    return [{"name": "day", "type": "string", "nullable": True, "metadata": {}}]


def lose(store: MemoryStore, path: str) -> None:
    del store.objects[path]


def flip(store: MemoryStore, path: str) -> None:
    body, modified = store.objects[path]
    place = len(body) // 2
    store.put(path, body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :], modified=modified)


def cut(store: MemoryStore, path: str) -> None:
    body, modified = store.objects[path]
    store.put(path, body[:-9], modified=modified)


Harm = Callable[[MemoryStore, str], None]
ALL_HARM = pytest.mark.parametrize("harm", [lose, flip, cut])


# --- any object of random tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 4, *long(1, 2, 3, 5, 6, 7)])
def test_a_rebuild_gives_the_same_state_or_refuses_whichever_object_is_lost(seed: int) -> None:
    writer = Writer(seed)
    writer.commit(files=3)
    for _ in range(writer.chance.randint(1, 9)):
        for _ in range(writer.chance.randint(1, 3)):
            writer.step()
        writer.table.checkpoint()
        writer.clock.advance(timedelta(minutes=writer.chance.choice([1, 20, 50])))
        if writer.chance.random() < 0.4:
            writer.vacuum(timedelta(minutes=writer.chance.choice([30, 300])))
    if writer.chance.random() < 0.5:
        writer.commit()
    assert _lose_each(writer)["rebuilt"]


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in (7, 54, *range(20, 40)))])
def test_a_rebuild_of_a_copy_which_has_no_markers_gives_the_same_state_or_refuses(seed: int) -> None:
    writer = Writer(seed)
    chance = writer.chance
    writer.commit(files=chance.randint(1, 4))
    for _ in range(chance.randint(1, 6)):
        for _ in range(chance.randint(1, 3)):
            writer.step()
        writer.table.checkpoint()
        writer.clock.advance(timedelta(minutes=chance.choice([1, 20, 50])))
        if chance.random() < 0.2:
            writer.vacuum(timedelta(minutes=chance.choice([30, 300])))
    if chance.random() < 0.5:
        writer.commit()
    writer.move_to_a_copy()
    writer.clock.advance(HOUR)
    for _ in range(chance.choice([0, 0, 1, 3])):
        writer.step()
    if chance.random() < 0.3:
        writer.table.checkpoint()
        writer.clock.advance(HOUR)
    if chance.random() < 0.3:
        writer.vacuum(timedelta(minutes=chance.choice([30, 300])))
    if chance.random() < 0.6:
        only_newest_checkpoint(writer)
    assert sum(_lose_each(writer).values())


def _check_same(writer: Writer, state: Mapping[str, Any]) -> None:
    """What was left out of the history after 30 days may come back."""
    again = writer.state()
    assert {**again, "recorded": 0, "commits": 0} == {**state, "recorded": 0, "commits": 0}
    assert [commit for commit in again["commits"] if commit in state["commits"]] == state["commits"]
    more = [commit for commit in again["commits"] if commit not in state["commits"]]
    assert all(commit[1] < writer.clock.now() - HISTORY for commit in more)


def _try_rebuild(writer: Writer) -> Rebuilt | DbioError:
    try:
        return writer.rebuild()
    except (CheckpointLostError, InvalidInputError) as error:
        return error


def _lose_each(writer: Writer) -> dict[str, int]:
    store, before, found = writer.store, dict(writer.store.objects), {"rebuilt": 0, "refused": 0}
    state, top, root = writer.state(), max(parse_log(store.list_log()).checkpoints), writer.root
    harms = (lose, flip, cut)
    parts = [name for part in root.parts for name in part.objects]
    single = [[name] for name in (*parts, names.checkpoint(top))]
    pairs = [writer.chance.sample(parts, 2) for _ in range(2) if len(parts) > 1]
    for lost in (*single, *pairs):
        store.objects = dict(before)
        if writer.chance.random() < 0.3:  # what vacuum deletes some day
            oldest = min(parse_log(store.list_log()).checkpoints)
            free = [name for it in root.dropped if it.by <= oldest for name in it.part.objects if name in store.objects]
            for name in writer.chance.sample(free, writer.chance.randint(0, len(free))):
                lose(store, name)
        for name in lost:
            writer.chance.choice(harms)(store, name)
        harmed = dict(store.objects)
        done = _try_rebuild(writer)
        if isinstance(done, CheckpointLostError):
            found["refused"] += 1
            told = str(done)
            assert store.objects == harmed
            assert "bring" in told.lower()
            assert lost[0] in told or names.checkpoint(top) in told or lost[0] == names.checkpoint(top)
            continue
        if isinstance(done, InvalidInputError):  # an older checkpoint is there, or the bits are in a byte nobody reads
            statistics = {part.statistics.name for part in root.parts if part.statistics}
            assert "nothing to rebuild" in str(done)
            assert statistics | {names.checkpoint(top)} >= {*lost}
            _check_same(writer, state)
            continue
        assert isinstance(done, Rebuilt)
        found["rebuilt"] += 1
        forget()
        assert harmed.items() <= store.objects.items()
        again = writer.state()
        _check_same(writer, state)
        assert done.loses or again["recorded"] == state["recorded"]
        with pytest.raises(InvalidInputError, match="nothing to rebuild"):
            writer.rebuild()
        writer.table.check()
        writer.commit()
        writer.table.checkpoint()
        assert {path for path, _ in again["files"]} < {file.path for file in writer.table.snapshot().files}
    store.objects = before
    return found


# --- each source ------------------------------------------------------------------------------------------------------


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """A table whose parts are not merged, until a test says so."""
    monkeypatch.setattr(writers, "plan_merges", lambda parts, cuts, limits: [])
    return Writer()


def merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "plan_merges", plan_merges)


def purge(writer: Writer) -> None:
    """Deletes the markers of all transactions that two checkpoints cover."""
    for _ in range(2):
        writer.table.checkpoint()
        writer.clock.advance(HOUR)
        writer.commit()
    writer.vacuum(timedelta(days=10))
    for tid in writer.root.covered:  # vacuum keeps the markers of removed files that exist
        writer.store.delete_many([names.started(tid), names.committed(tid)])
    assert any(path.startswith("_purged_") for path in writer.store.objects)


def only_newest_checkpoint(writer: Writer) -> None:
    newest = names.checkpoint(writer.root.number)
    for path in [*writer.store.objects]:
        if path.startswith("_checkpoint_") and path != newest:
            lose(writer.store, path)


def check_lines(writer: Writer) -> str:
    forget()
    with pytest.raises(CheckpointLostError) as caught:
        writer.table.check()
    return str(caught.value)


@ALL_HARM
def test_a_merged_part_is_replaced_by_the_parts_of_which_it_was_made(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, harm: Harm
) -> None:
    writer.commit(files=3)
    purge(writer)
    merging(monkeypatch)
    writer.commit(files=4)
    writer.table.checkpoint()
    state, root = writer.state(), writer.root
    merged = next(it.into[0] for it in root.dropped if it.by == root.number and it.part.kind == "files")
    inputs = [it.part.name for it in root.dropped if merged in it.into]
    harm(writer.store, merged)
    told = check_lines(writer)
    assert f"Lost: {merged} (files, checkpoints" in told
    assert f"Intact: {sum(len(part.objects) for part in root.parts) - 1} other objects" in told
    assert "--rebuild` rebuilds the checkpoint, and loses nothing" in told
    done = writer.rebuild()
    assert done.loses == ()
    assert [all(name in used for name in inputs) for used in done.used] == [True]
    assert writer.state() == state
    named = {part.name for part in writer.root.parts}
    assert not named & {it.part.name for it in writer.root.dropped}


def test_parts_of_which_one_is_gone_replace_nothing(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.commit(files=3)
    purge(writer)
    merging(monkeypatch)
    writer.commit(files=4)
    writer.table.checkpoint()
    root = writer.root
    merged = next(it.into[0] for it in root.dropped if it.by == root.number and it.part.kind == "files")
    lose(writer.store, merged)
    only_newest_checkpoint(writer)
    old = min((it.part for it in root.dropped if merged in it.into), key=lambda part: part.until)
    lose(writer.store, old.name)
    done = writer.rebuild()  # no file was ever removed, so a listing has them all
    assert any("a listing" in used for used in done.used)


def test_what_a_root_records_of_a_merge_stays_whole(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    merging(monkeypatch)
    writer.commit(files=1)
    writer.table.checkpoint()
    writer.commit(files=2)
    writer.table.checkpoint()
    merge = [it for it in writer.root.dropped if it.part.kind == "files"]
    assert len(merge) == 2
    for name in merge[0].part.objects:
        lose(writer.store, name)
    writer.commit(files=1)
    writer.table.checkpoint()
    assert {it.part.name for it in merge} <= {it.part.name for it in writer.root.dropped}


@pytest.mark.parametrize("harm", [lose, cut])
@pytest.mark.parametrize("kind", ["files", "commits", "statistics"])
def test_new_parts_are_made_of_the_markers(writer: Writer, harm: Harm, kind: str) -> None:
    writer.commit(files=3)
    purge(writer)
    writer.commit("rewrite", files=2, removed=2)
    writer.commit("overwrite_partitions", files=1)
    writer.table.checkpoint()
    state = writer.state()
    if kind == "statistics":
        told = writer.newest("files").statistics
        assert told
        harm(writer.store, told.name)
        assert "Can be replaced by: the statistics in the commit markers of" in check_lines(writer)
    else:
        harm(writer.store, writer.newest(kind).name)
        assert "Can be replaced by: the commit markers of" in check_lines(writer)
    only_newest_checkpoint(writer)
    done = writer.rebuild()
    assert "markers of" in done.used[0]
    assert done.loses == ()
    assert writer.state() == state
    assert writer.table.check().ok


def test_a_checkpoint_of_version_1_before_the_parts_replaces_them(writer: Writer) -> None:
    with patch.object(checkpoints, "LARGE_FILES", 1000):
        writer.commit(files=3)
        purge(writer)
        writer.table.checkpoint()
    writer.commit(files=2)
    writer.table.checkpoint()
    state = writer.state()
    assert writer.root.parts
    lose(writer.store, writer.newest("files").name)
    assert "Can be replaced by: _checkpoint_" in check_lines(writer)
    done = writer.rebuild()
    assert done.used == [f"{names.checkpoint(writer.root.number - 2)} and the commit markers"]
    assert writer.state() == state


@pytest.mark.parametrize("harm", [lose, cut])
def test_a_root_without_lost_statistics_is_the_same_but_skips_no_files(
    writer: Writer, harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        writer.commit(files=3)
    purge(writer)
    state = writer.state()
    lost = min((part for part in writer.root.parts if part.statistics), key=lambda part: part.until)
    assert lost.statistics
    only_newest_checkpoint(writer)
    harm(writer.store, lost.statistics.name)
    told = check_lines(writer)
    done = writer.rebuild()
    assert done.used == (f"{lost.name} without statistics",)
    assert "skip none of these files" in done.loses[0]
    assert f"Can be replaced by: {done.used[0]}" in told
    assert "is without the statistics of" in caplog.text
    assert {**writer.state(), "recorded": 0} == {**state, "recorded": 0}
    assert writer.table.check().ok


@pytest.mark.parametrize("harm", [lose, cut])
def test_a_reader_without_statistics_names_them_and_what_makes_them_again(
    writer: Writer, harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    writer.commit(files=3)
    writer.table.checkpoint()
    part = writer.newest("files")
    assert part.statistics
    harm(writer.store, part.statistics.name)
    assert PartReader(writer.store, writer.root.number).statistics(part) is None
    assert f"{part.statistics.name}, the statistics of a part of" in caplog.text
    assert "--rebuild" in caplog.text
    assert "do not remove it" not in caplog.text


@ALL_HARM
def test_a_listing_has_the_lost_files_if_there_are_as_many_as_the_counts_leave(writer: Writer, harm: Harm) -> None:
    for _ in range(4):
        writer.commit(files=3)
    purge(writer)
    state, lost = writer.state(), min((it for it in writer.root.parts if it.kind == "files"), key=lambda it: it.until)
    only_newest_checkpoint(writer)
    harm(writer.store, lost.name)
    assert "a listing of the table, in which 12 files are as many" in check_lines(writer)
    done = writer.rebuild()
    assert done.loses == ("the numbers of rows and the statistics of 12 files",)
    assert {**writer.state(), "recorded": 0} == {**state, "recorded": 0}
    assert writer.root.known_since is None
    assert writer.table.check().ok
    assert writer.table.history()[-1].added_files == 3


def test_of_removed_files_that_are_deleted_a_listing_forgets_the_paths(writer: Writer) -> None:
    first = writer.commit(files=3)
    writer.commit("rewrite", files=1, removed=2)
    purge(writer)
    removed = writer.table.history()[-2].removed
    writer.store.delete_many(list(removed))  # and the vacuum that did so wrote no checkpoint
    state, lost = writer.state(), min((it for it in writer.root.parts if it.kind == "files"), key=lambda it: it.until)
    assert writer.root.known_since is None
    only_newest_checkpoint(writer)
    lose(writer.store, lost.name)
    done = writer.rebuild()
    assert "earlier states cannot be read" in done.loses[-1]
    assert {**writer.state(), "recorded": 0} == {**state, "recorded": 0}
    assert writer.root.known_since == writer.table.history()[-2].timestamp
    with pytest.raises(InvalidInputError):
        writer.table.snapshot(as_of=first)


@pytest.mark.parametrize("what", ["a removed file", "a failed attempt", "one too few"])
def test_a_listing_with_another_count_proves_nothing(writer: Writer, what: str) -> None:
    tid = writer.commit(files=3)
    if what == "a removed file":
        writer.commit("rewrite", files=1, removed=1)
    purge(writer)
    added = next(path for path in writer.store.objects if tid in path and path.startswith("day="))
    if what == "a failed attempt":
        writer.store.put(added.replace("-c000", "-c001").replace(f"tid-{tid}-", f"tid-{tid}-9"), b"x" * 11)
    if what == "one too few":
        lose(writer.store, added)
    lost = min((it for it in writer.root.parts if it.kind == "files"), key=lambda it: it.until)
    only_newest_checkpoint(writer)
    lose(writer.store, lost.name)
    before = dict(writer.store.objects)
    with pytest.raises(CheckpointLostError, match="files exist that may be live, and by the counts") as caught:
        writer.rebuild()
    told = str(caught.value)
    assert f"{names.checkpoint(writer.root.number)} lacks an object of its parts: {lost.name} (files" in told
    root = names.checkpoint(writer.root.number)
    for source in (f"{root} with the parts that merges replaced", "an older checkpoint", f"{root} with a listing"):
        assert f"Not from {source}" in told
    assert f"bring {lost.name} back as it was" in told
    assert "delete" not in told.replace("has deleted", "")
    assert told.splitlines()[-1] in check_lines(writer)
    assert writer.store.objects == before


def test_a_path_that_a_lost_row_adds_and_an_intact_row_removes_is_not_counted_as_live(writer: Writer) -> None:
    """Otherwise a removed file, whose removal is lost, could take its place in the count."""
    writer.commit(files=8)
    writer.table.checkpoint()
    first = {file.path for file in writer.table.snapshot().files}
    writer.commit(files=1)
    [new] = {file.path for file in writer.table.snapshot().files} - first
    for path, removes in ((min(first), [min(first)]), (new, [new])):
        transaction = writer.table.begin("rewrite", partition_by=["day"])
        transaction.remove(removes)
        transaction.commit()
        if path == min(first):
            writer.table.checkpoint()
    writer.table.checkpoint()
    writer.move_to_a_copy()
    root = writer.root
    assert root.known_since is None
    [lost] = [it for it in root.parts if it.kind == "files" and it.rows == 2]
    lose(writer.store, lost.name)
    with pytest.raises(CheckpointLostError, match="8 files exist that may be live, and by the counts of the commits 7"):
        writer.rebuild()


def test_commits_that_may_be_purged_are_not_made_of_markers(writer: Writer) -> None:
    writer.commit(files=3)
    purge(writer)
    lost = min((it for it in writer.root.parts if it.kind == "commits"), key=lambda it: it.until)
    only_newest_checkpoint(writer)
    lose(writer.store, lost.name)
    with pytest.raises(CheckpointLostError, match="vacuum has purged commit markers that _checkpoint_"):
        writer.rebuild()


def test_who_is_slower_than_another_rebuild_leaves_no_part(writer: Writer) -> None:
    writer.commit(files=3)
    writer.table.checkpoint()
    lose(writer.store, writer.newest("files").name)
    before = {path for path in writer.store.objects if path.startswith("_part_")}
    other = once("put_if_absent", names.checkpoint(2), lambda: writer.store.put(names.checkpoint(2), b"another"))
    writer.store.before = other
    assert writer.rebuild().name is None
    assert {path for path in writer.store.objects if path.startswith("_part_")} == before


def test_the_command_says_what_it_used(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.commit(files=3)
    writer.table.checkpoint()
    part = writer.newest("files").name
    kept = writer.store.objects[part]
    monkeypatch.setattr(commands, "Table", lambda path: writer.table)
    for options in ([], ["--json"]):
        lose(writer.store, part)
        result = CliRunner().invoke(commands.app, ["checkpoint", "memory://table", "--rebuild", *options])
        assert result.exit_code == 0, result.output
        if options:
            told = json.loads(result.stdout)
            assert told["used"] == ["the commit markers of 1 transactions"]
            assert told["loses"] == []
        else:
            assert result.stdout.splitlines() == [
                "used the commit markers of 1 transactions",
                "wrote _checkpoint_" + "2".zfill(20),
            ]
            lose(writer.store, names.checkpoint(2))
            writer.store.objects[part] = kept
