"""Streaming queries that are killed with SIGKILL, at each step and at random: every row comes through exactly once.

Each driver runs five queries at once: files to a table on a disk and to one in a bucket, by the sink; a table to a
table, by source and sink; and a table to a table by `for_each_batch`, and by their names in the catalog.
Kills of other writers: test_processes_killed.py.
Rules: PROTOCOL.md 8.4, 9.1.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from dbio_commit import Table
from tests.conftest import Root
from tests.integration.test_processes_killed import check_vacuum, is_alive, kill, mortal_session
from tests.stops import STEPS, Step
from tests.streams import ALL, Files, finish, needs_source
from tests.writers import contents

pytestmark = needs_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROJECT = Path(__file__).parents[2]
SEED = int(os.environ.get("DBIO_TEST_SEED", time.time_ns() % 1_000_000))
DEADLINE_S = 300.0
ROWS = 20
"""In each batch."""

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}

VICTIMS = {"driver": "import drive", "JVM": "bin/java", "workers": "pyspark.daemon"}
"""What their command lines have in them."""


class Way(NamedTuple):
    """A query: where it reads, where it writes, and how."""

    source: str
    url: str
    options: dict[str, Any]
    checkpoint: str
    most: int = 1
    """Files in a batch."""
    rows: int = 0
    """It begins again before so many are there."""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def table(self) -> Table:
        return Table(self.url, self.options)

    def start(self, spark: "SparkSession") -> "StreamingQuery":
        if self.name == "each":
            return dbio.for_each_batch(
                spark,
                self.source,
                self.copy,
                self.checkpoint,
                starting_tid=self.first,
                max_files=self.most,
                trigger=ALL,
            )
        if self.name == "sql":
            dbio.enable(spark)
            reader = spark.readStream.option("maxFilesPerTrigger", self.most).option("startingTid", self.first)
            writer = reader.table(f"dbio.`{self.source}`").repartition(2).writeStream
            return writer.option("checkpointLocation", self.checkpoint).trigger(**ALL).toTable(f"dbio.`{self.url}`")
        if self.name != "disk" and self.name != "bucket":
            dbio.enable(spark)
            reader = spark.readStream.format("dbio").option("maxFilesPerTrigger", self.most)
            stream = reader.option("startingTid", self.first).load(self.source)
        else:
            stream = Files(Path(self.source)).stream(spark)
        return dbio.write_stream(
            stream.repartition(2), self.url, self.checkpoint, trigger=ALL, storage_options=self.options
        )

    def copy(self, batch: "DataFrame", number: int) -> None:
        dbio.write(batch.repartition(2), self.url, app=("each", number))

    @property
    def first(self) -> str:
        return Table(self.source).history()[-1].tid


class Place(NamedTuple):
    """What there is to read, and where the five queries write."""

    ways: list[Way]
    expected: list[int]

    def check(self) -> None:
        """Every row is there once; nothing is pending; vacuum leaves the live files and the log."""
        for way in self.ways:
            assert found(way.table) == self.expected, way.name
            commits = way.table.history()
            apps = [commit.app for commit in reversed(commits) if commit.app]
            created = way.name == "sql"  # `toTable` has created the table, in a commit of its own
            assert len(apps) == len(commits) - created == len({version for _, version in apps})
            assert [version for _, version in apps] == sorted(version for _, version in apps)
            assert len({id for id, _ in apps}) == 1
            assert not way.table.check().pending, way.name
            check_vacuum(way.table, contents(way.table))

    def finish(self, flags: Path) -> None:
        """In a driver of its own, which stops nowhere."""
        with driver(self, flags, "nowhere") as process:
            assert process.wait(DEADLINE_S) == 0
        assert not [name for name in os.listdir(flags) if name.endswith("failed")]


def found(table: Table) -> list[int]:
    files = [pq.read_table(BytesIO(table.store.get(file.path)), columns=["id"]) for file in table.snapshot().files]
    return sorted(id for file in files for id in file["id"].to_pylist() if id is not None)


def make_place(tmp_path: Path, bucket: Root, batches: int) -> Place:
    files, source = Files(tmp_path / "files"), Table(tmp_path / "source")
    for number in range(batches):
        files.add(range(number * ROWS, (number + 1) * ROWS))
        transaction = source.begin()
        name = f"{files.count:05}.parquet"
        Path(transaction.new_file()).write_bytes((files.directory / name).read_bytes())
        transaction.commit()
    places = [
        (str(files.directory), str(tmp_path / "disk"), {}),
        (str(files.directory), f"{bucket.url}/bucket", bucket.storage_options),
        (source.url, str(tmp_path / "copy"), {}),
        (source.url, str(tmp_path / "each"), {}),
        (source.url, str(tmp_path / "sql"), {}),
    ]
    ways = [Way(from_, to, options, f"{tmp_path}/checkpoint-{n}") for n, (from_, to, options) in enumerate(places)]
    return Place(ways, list(range(batches * ROWS)))


# --- a driver -----------------------------------------------------------------------------------------------------


def drive(ways: str, flags: str, step: str) -> None:
    """Runs the queries to their end, again and again where they fail "any" time; leaves `started` and `NAME ended`."""
    from pyspark.errors import StreamingQueryException

    spark = mortal_session(threads=8)

    def run(way: Way) -> None:
        while True:
            try:
                finish(way.start(spark.newSession()))
            except StreamingQueryException as error:
                if step == "any" or "connect back" in str(error):  # for which Spark gives it ten seconds
                    continue
                Path(flags, f"{way.name} failed").write_text(str(error))
            else:
                if len(found(way.table)) < way.rows:
                    continue
                Path(flags, f"{way.name} ended").touch()
            return

    Path(flags, "started").touch()
    all_ways = [Way(*values) for values in json.loads(ways)]
    with ThreadPoolExecutor(len(all_ways)) as pool:
        list(pool.map(run, all_ways))


@contextmanager
def driver(place: Place, flags: Path, step: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Killed at the end of the block: it, its JVM and its workers, at once."""
    flags.mkdir()
    code = f"from {__name__} import drive; import sys; drive(*sys.argv[1:])"
    path = os.pathsep.join([str(PROJECT / "tests/stopping"), str(PROJECT)])  # whose sitecustomize stops at the step
    env = {**os.environ, "DBIO_TEST_STOP": step, "DBIO_TEST_FLAGS": str(flags), "PYTHONPATH": path}
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(place.ways), str(flags), step],
        cwd=PROJECT,
        env=env,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        while kill(process, ""):
            pass
        process.wait()


def wait_for(names: set[str], flags: Path, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + DEADLINE_S
    while not names <= set(os.listdir(flags)):
        assert time.monotonic() < until, f"of {names} there are only {os.listdir(flags)}"
        assert process.poll() is None, "the driver ended before it got that far"
        time.sleep(0.02)


def is_running(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is None and is_alive(process.pid, process.pid, "")


# --- kills --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_queries_that_are_killed_at_a_step_go_on_and_every_row_comes_once(
    s3_root: Root, tmp_path: Path, step: Step
) -> None:  # I8
    place = make_place(tmp_path, s3_root, batches=3)
    with driver(place, tmp_path / "flags", step) as process:
        wait_for({f"{way.name} stopped" for way in place.ways}, tmp_path / "flags", process)
    for way in place.ways:
        assert found(way.table) == place.expected[: ROWS * (2 if step == "committed" else 1)]
        assert len(way.table.check().pending) == (step != "committed")
    place.finish(tmp_path / "others")
    place.check()


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_second_driver_on_the_same_checkpoint_takes_over_and_the_first_does_no_harm(
    s3_root: Root, tmp_path: Path, step: Step
) -> None:  # I3, I8
    place, flags = make_place(tmp_path, s3_root, batches=3), tmp_path / "flags"
    with driver(place, flags, step) as process:
        wait_for({f"{way.name} stopped" for way in place.ways}, flags, process)
        place.finish(tmp_path / "others")
        for way in place.ways:
            assert found(way.table) == place.expected
        (flags / "release").touch()
        process.wait(DEADLINE_S)
    for way in place.ways:  # Spark notices, or it does not; we do
        assert {f"{way.name} ended", f"{way.name} failed"} & set(os.listdir(flags))
    place.check()


@pytest.mark.long
@pytest.mark.parametrize("victim", ["JVM", "workers"])
def test_queries_that_are_killed_in_part_go_on_and_every_row_comes_once(
    s3_root: Root, tmp_path: Path, victim: str
) -> None:  # I8
    place, flags = make_place(tmp_path, s3_root, batches=3), tmp_path / "flags"
    with driver(place, flags, "claimed") as process:
        wait_for({f"{way.name} stopped" for way in place.ways}, flags, process)
        assert kill(process, VICTIMS[victim])
        (flags / "release").touch()  # for what stopped in the driver
        process.wait(DEADLINE_S)
    place.finish(tmp_path / "others")
    place.check()


def kill_at_random(place: Place, times: int, tmp_path: Path) -> None:
    """And restart it each time; what is killed is all of it at once, or one of its parts."""
    chance = random.Random(SEED)
    killed: Counter[str] = Counter()
    while killed.total() < times:
        flags = tmp_path / f"flags-{killed.total()}-{chance.random()}"
        with driver(place, flags, "any") as process:
            wait_for({"started"}, flags, process)
            while killed.total() < times and is_running(process):
                if chance.random() < 0.8:  # on a busy machine it would else be dead before it begins
                    wait_for_a_commit(place, process)
                time.sleep(chance.uniform(0, 2))
                victim = chance.choice(["all", "all", "driver", "JVM", "workers", "workers"])
                if not kill(process, VICTIMS.get(victim, "")):
                    continue
                killed[victim] += 1
                if victim == "all":
                    break
                if victim != "workers":
                    process.wait(DEADLINE_S)
        print(f"DBIO_TEST_SEED={SEED}: {killed}", {way.name: len(commits(way)) for way in place.ways}, flush=True)


def wait_for_a_commit(place: Place, process: "subprocess.Popen[bytes]") -> None:
    def markers() -> int:
        tables = [Path(way.url) for way in place.ways if not way.options]
        return sum(len([*table.glob("_committed_*")]) for table in tables)

    before, until = markers(), time.monotonic() + 30
    while markers() == before and is_running(process) and time.monotonic() < until:
        time.sleep(0.02)


def commits(way: Way) -> list[dbio.Commit]:
    try:
        return way.table.history()
    except dbio.TableNotFoundError:
        return []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_queries_that_are_killed_fifty_times_at_random_bring_every_row_once(
    s3_root: Root, tmp_path: Path
) -> None:  # I8
    place = make_place(tmp_path, s3_root, batches=40)
    kill_at_random(place, 50, tmp_path)
    place.finish(tmp_path / "flags")
    place.check()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_pipeline_of_a_thousand_commits_that_is_killed_at_random_ends_equal(tmp_path: Path) -> None:
    """From a table to a table to a table, while the first is written to; some of its transactions end late."""
    chance = random.Random(SEED)
    count = 1000
    source = Table(tmp_path / "source")
    held: list[dbio.Transaction] = []

    def commit(number: int) -> None:
        transaction = source.begin()
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), transaction.new_file())
        held.append(transaction)
        while len(held) > 3 or (number == count - 1 and held):
            held.pop(chance.randrange(len(held))).commit(schema=SCHEMA)

    middle, target = tmp_path / "middle", tmp_path / "target"
    ways = [
        Way(source.url, str(middle), {}, str(tmp_path / "checkpoint-1"), most=5, rows=count * ROWS),
        Way(str(middle), str(target), {}, str(tmp_path / "checkpoint-2"), most=7, rows=count * ROWS),
    ]
    Table(middle).begin().commit(schema=SCHEMA)  # a stream begins at a table that is there
    place = Place(ways, list(range(count * ROWS)))
    for number in range(count // 2):
        commit(number)
    with ThreadPoolExecutor(1) as pool:

        def go_on() -> None:
            for number in range(count // 2, count):
                commit(number)
                time.sleep(0.2)

        writing = pool.submit(go_on)
        kill_at_random(place, 20, tmp_path)
        writing.result()
    place.finish(tmp_path / "flags")
    assert len(source.history()) == count
    for way in ways:
        assert found(way.table) == place.expected
        assert not way.table.check().pending
        check_vacuum(way.table, contents(way.table))
