"""Spark drivers that merge and are killed, with their JVM and workers: each merge is there whole, or not at all.

How drivers are started, stopped at a step and killed: `test_processes_killed`. Invariants: PROTOCOL.md 5.
"""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from dbio_commit import Table
from dbio_commit.spark.write.run import Writing
from tests.conftest import Root
from tests.integration.test_processes_killed import (
    DEADLINE_S,
    SEED,
    Step,
    Target,
    check_vacuum,
    driver,
    is_half_written,
    kill_at_any_time,
    mortal_session,
    stop_at,
    wait_for_step,
)
from tests.integration.test_processes_killed import short_lease as short_lease
from tests.writers import contents, live

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:Spark cannot read")  # S3, and so it is read in Python

ROWS = 1000
"""In each batch. The first half of them updates the second half of the batch before, the rest are new."""
MOVES = ROWS // 2


def write(spark: "SparkSession", target: Target, number: int) -> bool:
    """Writes the first batch, or merges the one of that number, once: False where it was there."""
    table = target.table
    start = number * MOVES
    rows = spark.range(start, start + ROWS, 1, 2).selectExpr("id", f"{number} AS v", "concat('d', id % 2) AS day")
    options: dict[str, Any] = {"app": ("job", number), "storage_options": table.storage_options}
    if not number:
        return not dbio.write(rows, table.url, partition_by="day", **options).skipped
    return not dbio.merge(spark, table.url, rows, ["id"], **options).skipped


def merged(table: Table) -> int:
    """The number of the last batch that a reader sees; each up to it is there, once, as later ones have left it."""
    files = [pq.read_table(BytesIO(table.store.get(path)), columns=["id", "v"]) for path in live(table)]
    found = sorted((row["id"], row["v"]) for file in files for row in file.to_pylist())
    last: int = max(number for _, number in found)
    assert found == [(id, min(id // MOVES, last)) for id in range(last * MOVES + ROWS)]
    return last


def drive(targets: str, flags: str, step: Step | Literal["any"]) -> None:
    """A driver: writes to all targets at once, then merges, and stops at that step of it; or merges for ever.

    The file `name number` among the flags says that a batch is committed, `name stopped` that the step is reached.
    """
    spark = mortal_session(threads=4)
    tables = [Target(name, Table(url, options), native) for name, url, options, native in json.loads(targets)]
    stopped = {target.table.url: Path(flags, f"{target.name} stopped") for target in tables}

    def run(target: Target) -> None:
        session = spark.newSession()
        for setting, text in (("adaptive.enabled", "false"), ("shuffle.partitions", "2")):  # of two tasks, one waits
            session.conf.set(f"spark.sql.{setting}", text)
        for number in count() if step == "any" else range(2):
            if number and step != "any":
                stop_at(step, target.table, stopped[target.table.url])
            write(session, target, number)
            Path(flags, f"{target.name} {number}").touch()

    if step == "writing":
        wait_in_a_task(stopped)
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(run, tables))


def wait_in_a_task(stopped: dict[str, Path]) -> None:
    """Of the tasks that write what a merge makes of a table, the one with the last row waits, at its first attempt."""
    from pyspark.sql.functions import udf

    written = Writing.write

    def write(self: Writing, rows: "DataFrame", **options: Any) -> Any:
        flag = stopped[self._transaction._store.url]

        @udf("bigint")
        def waiting(id):  # type: ignore[no-untyped-def]  # Spark takes hints for orders
            if id == MOVES + ROWS - 1 and not flag.exists():
                flag.touch()
                time.sleep(2 * DEADLINE_S)
            return id

        return written(self, rows.withColumn("id", waiting("id")), **options)

    Writing.write = write  # type: ignore[method-assign]


@pytest.fixture
def targets(local_root: Root, s3_root: Root) -> list[Target]:
    """Both stores, for one driver: it takes seconds to start one."""
    return [Target("disk", Table(local_root.url)), Target("bucket", Table(s3_root.url, s3_root.storage_options))]


@pytest.mark.long  # `make test` kills a job that appends
@pytest.mark.parametrize("step", get_args(Step))
def test_of_a_merge_killed_at_a_step_all_or_nothing_is_seen_and_done_again_it_happens_once(
    spark: "SparkSession", targets: list[Target], tmp_path: Path, step: Step, short_lease: None
) -> None:  # I1, I2, I7, I8, I9
    with driver(targets, tmp_path, step, module=__name__) as process:
        wait_for_step(step, targets, tmp_path, process)
    for target in targets:
        committed = step == "committed"
        assert merged(target.table) == int(committed)
        assert is_half_written(target.table) is (step in ("writing", "written"))
        assert write(spark, target, 1) is not committed
        assert not write(spark, target, 1)
        assert merged(target.table) == 1
        check_vacuum(target.table, contents(target.table))


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_of_merges_killed_at_any_time_every_one_is_seen_whole_or_not_at_all(
    spark: "SparkSession", targets: list[Target], tmp_path: Path, number: int, short_lease: None
) -> None:  # I1, I2, I7, I8, I9
    killed = kill_at_any_time(targets, tmp_path, random.Random(SEED + number), last_s=6, module=__name__)
    for target in targets:
        reported = sum(flag.name.startswith(target.name) for flag in tmp_path.iterdir())
        seen = merged(target.table)
        print(
            f"DBIO_TEST_SEED={SEED}: {target.name}: {killed} workers, {reported} batches reported, the last is {seen}"
        )
        assert seen in (reported - 1, reported)  # the last one's answer was lost
        assert write(spark, target, reported) is (reported > seen)
        assert merged(target.table) == reported
        check_vacuum(target.table, contents(target.table))
