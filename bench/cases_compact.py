"""Case `compact`: a scan of very many small files before and after compaction, beside Delta's OPTIMIZE.

What is measured runs in the peer's own environment: see peers_job.py.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial

from bench import data, report
from bench.duels import Duel, cells_of, duel, home_of, said, started, target_of
from bench.measure import Bench, take_turns

FILES = 10_000
TARGET_BYTES = 128_000_000
TABLE = "small"


def compact(bench: Bench) -> report.Section:
    home_of("delta")
    directory = bench.directory / "compact"
    shutil.rmtree(directory, ignore_errors=True)
    files = max(200, round(FILES * min(bench.scale, 1)))
    source = str(data.make_small_files(bench.directory, data.make_lineitem(bench.directory, bench.scale), files))
    with started(directory, "delta") as (delta,):
        table, targets = _measure(bench, duel(delta, "delta"), source, files)
        versions = said(delta.versions)
    shutil.rmtree(directory)
    return report.Section(
        title="compaction beside Delta's OPTIMIZE",
        how=_HOW.format(versions=versions, files=files, target_mb=TARGET_BYTES // 1_000_000),
        tables=[table],
        targets=targets,
    )


_HOW = """\
Both run on the same Spark, in the same session: {versions}. lineitem is in {files:,} files by ranges of its orders, in
one directory, the same for both: the files existed before, and each tool converted them to a table. They are compacted
to files of {target_mb} MB, by `dbio.compact` and by OPTIMIZE without an order. Before each turn, the table is restored,
and caches of it are emptied. A scan includes making the DataFrame, in a process that has read the table before. A scan
of one column is `sum(l_extendedprice)`. Files are those that a scan reads."""


def _measure(bench: Bench, both: Duel, source: str, files: int) -> tuple[str, list[report.Target]]:
    contenders = {one.name: one for one in (both.ours, both.theirs)}
    against = {both.ours.name: both.theirs.name}
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    made = bench.progress.add_task(f"compact: tables of {files:,} files", total=len(contenders))
    for one in contenders.values():
        one.ask("take", TABLE, source)
        one.ask("keep", TABLE)
        bench.progress.advance(made)

    def renew(name: str) -> None:
        contenders[name].ask("bring_back", TABLE)
        os.sync()

    def measure(what: str, job: str, *arguments: object, before: Callable[[str], None] | None = None) -> None:
        ways = {name: partial(one.ask, job, TABLE, *arguments) for name, one in contenders.items()}
        timings = take_turns(bench, f"compact: {what}", ways, before=before)
        for name, cells in cells_of(timings, against).items():
            rows.append([what, name, *cells, f"{contenders[name].ask('live_files', TABLE):,}"])
        targets.append(target_of(what, timings, against, peer="Delta"))

    for when in ("before", "after"):
        measure(f"scan one column {when}", "read_one_column")
        measure(f"scan all columns {when}", "read_all_columns")
        sums = {name: one.ask("checksum", TABLE) for name, one in contenders.items()}
        if when == "before":
            expected = sums
            measure("compact", "compact", TARGET_BYTES, before=renew)
    assert sums == expected, f"a compaction changed rows: {expected} became {sums}"
    return report.table(["what", "way", "median", "min", "max", "× Delta", "files"], rows), targets
