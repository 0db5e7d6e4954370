"""Case `cluster`: which bytes conditions leave to read after clustering, and what that rewrites, beside the peers.

All numbers are counts. What a condition leaves is computed for all ways alike, by the bounds in the footers of the live
files. The peers on Spark take part if their environments are there (`make bench-peers`).
"""

import datetime
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake

import dbio_commit as dbio
from bench import report
from bench.duels import Peer, started
from bench.measure import Bench
from dbio_commit.commit.write import files as written
from dbio_commit.data.data_file import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from dbio_commit.maintenance.compact import cluster as clustering
from dbio_commit.maintenance.compact import rewrite as rewriting
from dbio_commit.maintenance.compact.options import TARGET_BYTES

LOADS, APPENDS = 40, 10
FILES = 40
BY = ["l_shipdate", "l_partkey"]
DRAWS = 100
"""Conditions of each kind, at random places: a single one may lie across the bounds of files, or not."""
BALANCED = 90
"""Percent of the bytes in files: a layout helps a column if conditions on it leave less."""
DELTA_RS_ROWS = 1024 * 1024
"""In a row group of delta-rs, unless it is given another number."""

Range = tuple[Any, Any]
Condition = Mapping[str, Sequence[Range]]
"""For each column some ranges, one of which must hold."""
Conditions = Mapping[str, Sequence[Condition]]
"""By kind."""


@dataclass(frozen=True, slots=True)
class Way:
    append: Callable[[Path], object]
    run: Callable[[bool], object]
    """Whether all files are rewritten."""
    files: Callable[[], Sequence[str]]


@dataclass(slots=True)
class _Counted:
    """What one way left, and wrote."""

    full: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    after: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    rewritten: float = 0.0
    """Bytes for each byte appended."""


def cluster(bench: Bench) -> report.Section:
    directory = bench.directory / "cluster"
    shutil.rmtree(directory, ignore_errors=True)
    loads = _loads(bench.directory, bench.scale)
    target = sum(path.stat().st_size for path in loads[:LOADS]) // FILES
    conditions = _conditions(loads)
    counted: dict[str, _Counted] = {}
    scale = target / TARGET_BYTES
    with ExitStack() as stack:
        rows, size = round(ROW_GROUP_ROWS * scale), round(ROW_GROUP_BYTES * scale)
        for module in (clustering, rewriting, written):
            stack.enter_context(patch.multiple(module, ROW_GROUP_ROWS=rows, ROW_GROUP_BYTES=size))
        ways = _ways(directory, target) | _peers(stack, directory, target)
        turns = bench.progress.add_task("cluster", total=len(ways) * (APPENDS + 1))
        for name, way in ways.items():
            counted[name] = _play(way, loads, conditions, lambda: bench.progress.advance(turns))
    shutil.rmtree(directory)
    return report.Section(
        title="files that conditions leave out after clustering",
        how=_HOW.format(loads=LOADS, appends=APPENDS, target_kb=target // 1000, draws=DRAWS),
        tables=[_table(counted, conditions, "full"), _table(counted, conditions, "after")],
        targets=_targets(counted, conditions),
    )


OURS = "dbio, cluster_by"
_HOW = """\
lineitem without comments in {loads} loads by ranges of its orders, so that dates and parts are in random order; then
{appends} appends of 2.5 % with a run of each way after each. New files have about {target_kb} kB instead of 128 MB, and
row groups are as many times smaller than each way's usual ones, so that there are as many of both as in a table that is
as many times larger. Percent of the bytes in row groups that conditions leave, by the bounds in the footers, and in
brackets in files: the mean of {draws} conditions of each kind, at random places. The first table is after a full run,
the second after the last append and its run. *Rewritten* are bytes in new files of the runs for each byte appended."""


def _loads(directory: Path, scale: float) -> list[Path]:
    made = directory / f"loads-{scale:g}"
    if not made.exists():
        unfinished = made.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [str(Path(sys.executable).with_name("tpchgen-cli")), "parquet", "--scale-factor", f"{scale:g}"]
        options = ["--tables=lineitem", f"--parts={LOADS + APPENDS}", "--quiet", f"--output-dir={unfinished}"]
        subprocess.run(command + options, check=True)
        for path in sorted((unfinished / "lineitem").glob("*.parquet")):
            rows = pq.read_table(path).drop_columns(["l_comment"])
            pq.write_table(rows, path, store_schema=False, store_decimal_as_integer=True)
        unfinished.rename(made)
    return sorted((made / "lineitem").glob("*.parquet"), key=lambda path: int(path.name.split(".")[1]))


def _conditions(loads: Sequence[Path]) -> Conditions:
    rows = pq.read_table(loads[0], columns=BY)
    found: list[list[Any]] = [sorted({*rows[column].to_pylist()}) for column in BY]
    days, parts = found
    chance, some = random.Random(3), parts[-1] // 100

    def month() -> list[Range]:
        first = chance.choice(days[:-30])
        return [(first, first + datetime.timedelta(29))]

    def hundredth() -> list[Range]:
        low = chance.randrange(parts[-1] - some)
        return [(low, low + some)]

    def each(count: int) -> list[Range]:
        return [(key, key) for key in chance.sample(parts, count)]

    draw: Mapping[str, Callable[[], Condition]] = {
        "30 days": lambda: {BY[0]: month()},
        "1 % of the parts": lambda: {BY[1]: hundredth()},
        "both": lambda: {BY[0]: month(), BY[1]: hundredth()},
        "one part": lambda: {BY[1]: each(1)},
        "5 parts": lambda: {BY[1]: each(5)},
    }
    return {kind: [one() for _ in range(DRAWS)] for kind, one in draw.items()}


# --- the ways -----------------------------------------------------------------------------------------------------


def _ways(directory: Path, target: int) -> dict[str, Way]:
    clustered, ordered = dbio.Table(directory / "clustered"), dbio.Table(directory / "ordered")
    delta = str(directory / "delta-rs")

    def ours(full: bool) -> None:
        if not clustered.settings():
            clustered.set({"cluster_by": ",".join(BY)})
        assert not clustered.compact(target, full=full).left

    def live(table: dbio.Table) -> Sequence[str]:
        return [f"{table.url}/{file.path}" for file in table.snapshot().files]

    def order_again(full: bool) -> None:
        rows = WriterProperties(max_row_group_size=round(DELTA_RS_ROWS * target / TARGET_BYTES))
        DeltaTable(delta).optimize.z_order(BY, target_size=target, writer_properties=rows)

    return {
        OURS: Way(lambda path: clustered.write(pq.read_table(path)), ours, partial(live, clustered)),
        "dbio, z_order": Way(
            lambda path: ordered.write(pq.read_table(path)),
            lambda full: ordered.compact(target, z_order=BY),
            partial(live, ordered),
        ),
        "delta-rs, z_order": Way(
            lambda path: write_deltalake(delta, pq.read_table(path), mode="append"),
            order_again,
            lambda: [f"{delta}/{path}" for path in _paths(delta)],
        ),
    }


def _paths(delta: str) -> list[str]:
    actions: Any = DeltaTable(delta).get_add_actions(flatten=True)
    return [str(path) for path in actions["path"].to_pylist()]


def _peers(stack: ExitStack, directory: Path, target: int) -> dict[str, Way]:
    """Those whose environments are installed."""
    found: dict[str, Way] = {}
    for name, orders in (("delta", ("liquid", "zorder")), ("iceberg", ("sort", "zorder"))):
        with suppress(FileNotFoundError):
            (peer,) = stack.enter_context(started(directory, name))
            for order in orders:
                found[f"{name}, {order}"] = _peer(peer, name, order, target)
    return found


def _peer(peer: Peer, way: str, order: str, target: int) -> Way:
    table = f"clustered_{order}"

    def ask(job: str, *arguments: object) -> Any:
        return peer.ask(job, way, table, order, *arguments)

    return Way(
        lambda path: ask("cluster_append", str(path), BY),
        lambda full: ask("cluster_run", BY, target, full),
        lambda: ask("cluster_files"),
    )


# --- counts -------------------------------------------------------------------------------------------------------


def _play(way: Way, loads: Sequence[Path], conditions: Conditions, tick: Callable[[], object]) -> _Counted:
    counted = _Counted()
    for path in loads[:LOADS]:
        way.append(path)
    way.run(True)
    counted.full = _left(way.files(), conditions)
    tick()
    appended = rewritten = 0
    for path in loads[LOADS:]:
        before = {*way.files()}
        way.append(path)
        with_it = {*way.files()}
        appended += sum(Path(it).stat().st_size for it in with_it - before)
        way.run(False)
        rewritten += sum(Path(it).stat().st_size for it in {*way.files()} - with_it)
        tick()
    live = way.files()
    counted.after = _left(live, conditions)
    counted.files, counted.size = len(live), sum(Path(it).stat().st_size for it in live)
    counted.rewritten = rewritten / appended
    return counted


def _left(files: Sequence[str], conditions: Conditions) -> dict[str, tuple[float, float]]:
    """For each kind of condition, the share of the bytes in row groups that it leaves, and in files."""
    groups = [[*_groups(path)] for path in files]
    whole = [
        {column: (min(it[column][0] for _, it in each), max(it[column][1] for _, it in each)) for column in BY}
        for each in groups
    ]
    size = sum(own for each in groups for own, _ in each)

    def left(condition: Condition) -> tuple[int, int]:
        inside = in_files = 0
        for each, bounds in zip(groups, whole, strict=True):
            if _may_hold(condition, bounds):
                in_files += sum(own for own, _ in each)
                inside += sum(own for own, its in each if _may_hold(condition, its))
        return inside, in_files

    def share(each: Sequence[Condition]) -> tuple[float, float]:
        inside, in_files = zip(*map(left, each), strict=True)
        return 100 * sum(inside) / size / len(each), 100 * sum(in_files) / size / len(each)

    return {kind: share(each) for kind, each in conditions.items()}


def _groups(path: str) -> Iterator[tuple[int, dict[str, Range]]]:
    """The bytes of each row group, and its bounds."""
    footer = pq.read_metadata(path)
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        statistics: dict[str, Any] = {column: chunks[names.index(column)].statistics for column in BY}
        bounds = {column: (it.min, it.max) for column, it in statistics.items()}
        yield sum(it.total_compressed_size for it in chunks), bounds


def _may_hold(condition: Condition, bounds: Mapping[str, Range]) -> bool:
    return all(
        any(bounds[column][0] <= high and bounds[column][1] >= low for low, high in ranges)
        for column, ranges in condition.items()
    )


# --- report -------------------------------------------------------------------------------------------------------


def _table(counted: Mapping[str, _Counted], conditions: Conditions, when: str) -> str:
    def cells(one: _Counted) -> list[str]:
        shares = one.full if when == "full" else one.after
        more = [] if when == "full" else [f"{one.files}", f"{one.size / 1e6:.0f}", f"{one.rewritten:.1f}"]
        return [*(f"{groups:.1f} ({files:.1f})" for groups, files in (shares[it] for it in conditions)), *more]

    more = [] if when == "full" else ["files", "MB", "rewritten"]
    return report.table(["way", *conditions, *more], [[name, *cells(one)] for name, one in counted.items()])


def _targets(counted: Mapping[str, _Counted], conditions: Conditions) -> list[report.Target]:
    """Beside the better of the peers' layouts that are balanced: conditions on each column leave out many files."""
    own = counted[OURS]
    peers = [
        name
        for name, it in counted.items()
        if not name.startswith("dbio") and max(it.full["30 days"][1], it.full["one part"][1]) < BALANCED
    ]

    def target(name: str) -> report.Target:
        best = min(counted[peer].full[name][0] for peer in peers)
        at_most = 0.5 if len(conditions[name][0]) > 1 else 0.6
        return report.Target(
            what=name, found=own.full[name][0] / best, at_most=at_most, unit="× the best balanced peer"
        )

    rewritten = next((it.rewritten for name, it in counted.items() if name.endswith("liquid")), None)
    found = [target(name) for name in conditions] if peers else []
    if rewritten is not None:
        times = own.rewritten / rewritten
        found.append(report.Target(what="bytes rewritten", found=times, at_most=0.25, unit="× liquid clustering"))
    return found
