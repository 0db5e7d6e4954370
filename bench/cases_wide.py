"""Case `wide`: how the CPU time of each operation without Spark grows with the columns of a table."""

import gc
import shutil
from collections.abc import Callable
from math import inf, log2
from time import process_time

import dbio_commit as dbio
from bench import report
from bench.measure import Bench
from tests.wide_tables import OPERATIONS, made

COLUMNS = (500, 1000, 2000)
DOUBLINGS = len(COLUMNS) - 1


def wide(bench: Bench) -> report.Section:
    directory = bench.directory / "wide"
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    work = bench.progress.add_task("wide", total=len(OPERATIONS) * (1 + len(COLUMNS) * bench.rounds))
    for what, run in OPERATIONS.items():
        found_s: dict[int, float] = {}
        for columns in (8, *COLUMNS * bench.rounds):  # the first one imports what is needed
            bench.progress.update(work, advance=1, description=f"wide: {what}, {columns} columns")
            shutil.rmtree(directory, ignore_errors=True)
            table = made(columns, directory)
            found_s[columns] = min(_cpu_s(run, table, columns), found_s.get(columns, inf))
        exponent = log2(found_s[COLUMNS[-1]] / found_s[COLUMNS[0]]) / DOUBLINGS
        rows.append([what, *(f"{found_s[it]:.3f}" for it in COLUMNS), f"{exponent:.2f}"])
        targets.append(report.Target(what=f"growth of {what}", found=exponent, at_most=1.1, unit="as exponent"))
    shutil.rmtree(directory)
    return report.Section(
        title="tables with many columns",
        how=_HOW.format(rounds=bench.rounds),
        tables=[report.table(["what", *(f"{it:,} columns" for it in COLUMNS), "exponent"], rows)],
        targets=targets,
    )


_HOW = f"""\
Two files of nine rows, on a disk: seconds of CPU, least of {{rounds}} rounds. The exponent is that of the columns, by
which the time grows from {COLUMNS[0]} to {COLUMNS[-1]:,} columns: 1 is in proportion, 2 a square. Python's garbage
collector is off, since it makes steps."""


def _cpu_s(run: Callable[[dbio.Table, int], object], table: dbio.Table, columns: int) -> float:
    gc.collect()
    gc.disable()
    try:
        began_s = process_time()
        run(table, columns)
        return process_time() - began_s
    finally:
        gc.enable()
