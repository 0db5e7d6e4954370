"""Cases `vacuum` and `read-10000`: what deleting garbage costs beside deltalake, and reading a long history.

The work itself is in vacuum_job.py. The tables are made in memory, and poured onto the disk and into moto.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from time import time
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.s3.utils import _VersionedKeyStore
from werkzeug.serving import make_server

import dbio_commit as dbio
from bench import report
from bench.cases_requests import kinds
from bench.measure import Bench, Timing, rotated
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.testing import MemoryStore
from tests import front
from tests.servers import Request, S3Server

FILES, IN_EACH, GARBAGE = 100_000, 100, 0.1
COMMITS = 10_000
AHEAD_DAYS = 3
OURS = "dbio vacuum"

Objects = Mapping[str, bytes]
"""By path from the root of the table."""


# --- vacuum -------------------------------------------------------------------------------------------------------


def vacuum(bench: Bench) -> report.Section:
    files = round(FILES * min(bench.scale, 1))
    partitions = files // IN_EACH
    garbage = round(files * GARBAGE)
    ways = {
        OURS: ("vacuum", our_table(files, garbage)),
        "deltalake vacuum(full=True)": ("delta-full", delta_table(files, garbage)),
        "deltalake vacuum()": ("delta", delta_table(files, garbage)),
    }
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    for place in places(bench):
        turns = bench.progress.add_task(f"vacuum, {place.name}", total=len(ways) * (place.rounds + 2))
        for table, objects in ways.values():
            place.put(table, objects)
            bench.progress.advance(turns)
        found: dict[str, list[Found]] = {way: [] for way in ways}
        for round_ in range(place.rounds + 1):
            for way in rotated(ways, round_):
                table, objects = ways[way]
                found[way].append(place.run(table, table))
                deleted = found[way][-1].answer["deleted"]
                assert len(deleted) == garbage, f"{way} deleted {len(deleted)} of {garbage} files: {deleted[:5]}"
                place.put(table, {path: objects[path] for path in deleted})  # for its next round
                bench.progress.advance(turns)
        for way, (_uncounted, *counted) in found.items():
            timing = Timing(tuple(one.answer["seconds"] for one in counted))
            peak = max(one.answer["peak_mb"] for one in counted)
            rows.append([place.name, way, kinds(counted[0].requests), *timing.cells(), peak])
        if place.options:
            most = round(1.2 * (files + garbage) / 1000 + 30)
            asked = max(len(one.requests) for one in found[OURS])
            targets.append(
                report.Target(what=f"vacuum of {files:,} files on S3", found=asked, at_most=most, unit="requests")
            )
    return report.Section(
        title="vacuum of many files",
        how=_VACUUM.format(
            files=files, partitions=partitions, garbage=garbage, days=AHEAD_DAYS, deltalake=version("deltalake")
        ),
        tables=[report.table(["store", "way", "requests", "median", "min", "max", "peak MB"], rows)],
        targets=targets,
    )


_VACUUM = """\
A table of {files:,} empty files in {partitions:,} partitions, of which an overwrite removed {garbage:,}. For the
vacuum, this was {days} days ago. Beside it, a Delta table of as many files, of which as many have a `remove`. Each has
four commits and no checkpoint. Each vacuum is a new process and deletes exactly the garbage, which is put back before
the next vacuum. Times count from opening the table to the report; memory is the peak of the process (VmHWM, MB of 2^20
bytes). `vacuum(full=True)` of deltalake {deltalake} lists the whole table, as `dbio.vacuum` does. Without `full` it
deletes what its log names, and cannot find what failed writers left. On S3 `dbio.vacuum` lists ranges of neighbouring
directories, so many listings run at once; one listing of all keys is a chain of requests. moto has no latency, answers
one request at a time and looks through all keys for each listing. Most of the time on moto is its own, so it gets only
2 rounds. The target is 1.2 × (files + garbage) / 1,000 + 30."""


def our_table(files: int, garbage: int) -> Objects:
    """A dbio table with so many files in all, the garbage evenly in all partitions."""
    store = MemoryStore()
    table = dbio.Table.over(store)
    partitions = files // IN_EACH
    live = files - garbage
    shares = [(garbage, "append"), (live // 3, "overwrite"), (live // 3, "append"), (live - live // 3 * 2, "append")]
    written: dict[str, bytes] = {}
    for count, operation in shares:
        transaction = table.begin(operation, partition_by=["part"])  # type: ignore[arg-type]
        job = transaction.terms.job
        added = []
        for number in range(count):
            partition = {"part": str(number % partitions)}
            name = names.format_data_file(
                tid=transaction.tid, job=job, task=number, attempt=number, number=0, suffix=".parquet"
            )
            added.append(dbio.FileInfo(path=f"{names.format_partition(partition)}/{name}", size=0, partition=partition))
        transaction.add(added)
        transaction.commit()
        written |= {file.path: b"" for file in added}
    return written | {path: body for path, (body, _) in store.objects.items()}


def delta_table(files: int, garbage: int) -> Objects:
    """A Delta table with as many, in as many commits."""
    partitions, now_ms = files // IN_EACH, round(time() * 1000)
    paths = [f"part={number % partitions}/part-{number:05d}-{number:032x}.snappy.parquet" for number in range(files)]
    old, live = paths[:garbage], paths[garbage:]
    third = len(live) // 3
    field = {"nullable": True, "metadata": {}}
    schema = {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", **field}, {"name": "part", "type": "string", **field}],
    }
    table = {
        "id": "b8a3d2a4-6d3e-4f55-9a3c-0d6a2f6f4c11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["part"],
        "configuration": {},
        "createdTime": now_ms,
    }

    def add(path: str) -> dict[str, Any]:
        return {"add": {**about(path), "size": 0, "modificationTime": now_ms, "dataChange": True}}

    def remove(path: str) -> dict[str, Any]:
        since = now_ms - AHEAD_DAYS * 86_400_000
        return {"remove": {**about(path), "size": 0, "deletionTimestamp": since, "dataChange": True}}

    def about(path: str) -> dict[str, Any]:
        return {"path": path, "partitionValues": {"part": path.partition("/")[0].removeprefix("part=")}}

    commits: list[Iterable[dict[str, Any]]] = [
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": table}, *map(add, old)],
        [*map(remove, old), *map(add, live[:third])],
        map(add, live[third : 2 * third]),
        map(add, live[2 * third :]),
    ]
    log = {
        f"_delta_log/{number:020d}.json": "\n".join(map(json.dumps, actions)).encode()
        for number, actions in enumerate(commits)
    }
    return dict.fromkeys(paths, b"") | log


# --- reading a long history ---------------------------------------------------------------------------------------


def long_history(bench: Bench) -> report.Section:
    commits = round(COMMITS * min(bench.scale, 1))
    objects = history(commits)
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    for place in places(bench):
        turns = bench.progress.add_task(f"read {commits:,} commits, {place.name}", total=place.rounds * 2 + 5)

        def read(what: str, size: float, place: Place = place, turns: Any = turns) -> list[Found]:
            found = []
            for _ in range(place.rounds + 1):
                found.append(place.run("history", "snapshot"))
                assert found[-1].answer["files"] == found[-1].answer["commits"] == commits
                bench.progress.advance(turns)
            timing = Timing(tuple(one.answer["seconds"] for one in found[1:]))
            peak = max(one.answer["peak_mb"] for one in found[1:])
            rows.append([place.name, what, f"{size / 1e6:.2f}", kinds(found[-1].requests), *timing.cells(), peak])
            return found

        place.put("history", objects)
        bench.progress.advance(turns)
        read(f"{commits:,} commit markers", sum(map(len, objects.values())))
        for days in (AHEAD_DAYS, AHEAD_DAYS + 1):  # the second purges what the first has covered
            place.run("history", "vacuum", days)
            bench.progress.advance(turns)
        found = read("a checkpoint, the rest purged", place.size("history", "_checkpoint_"))
        if place.options:
            asked = max(len(one.requests) for one in found)
            what = f"Table.snapshot() of {commits:,} commits after checkpoint and purge"
            targets.append(report.Target(what=what, found=asked, at_most=6, unit="requests"))
    return report.Section(
        title="reading a long history",
        how=_HISTORY.format(commits=commits),
        tables=[report.table(["store", "read from", "MB", "requests", "median", "min", "max", "peak MB"], rows)],
        targets=targets,
    )


_HISTORY = """\
`Table.snapshot()` of a table with {commits:,} commits, each of which appended a file with statistics of three columns:
first as its writers left it, then after two vacuums. The first vacuum writes a checkpoint, and the second purges the
markers that it covers. Each read is a new process; times count from opening the table, and memory is the peak of the
process. MB are those of the whole log, or of the checkpoint. moto has no latency, answers one request at a time, and
gets only 2 rounds."""


def history(commits: int) -> Objects:
    """The log of a table to which so many commits have appended one file each. Nobody reads the files themselves."""
    store = MemoryStore()
    table = dbio.Table.over(store)
    log: dict[str, bytes] = {}
    bounds = {"id": Bounds(1, 2, 0), "x": Bounds(1.0, 2.0, 0), "s": Bounds("a", "b", 0)}
    for _ in range(commits):
        transaction = table.begin()
        name = names.format_data_file(
            tid=transaction.tid, job=transaction.terms.job, task=0, attempt=0, number=0, suffix=".parquet"
        )
        transaction.add([dbio.FileInfo(path=name, size=1000, rows=2, statistics=bounds)])
        transaction.commit()
        log |= {path: body for path, (body, _) in store.objects.items()}
        for path in store.objects.keys() - {names.DESCRIPTOR}:  # or each commit would list all before it
            del store.objects[path]
    return log


# --- places -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What a job said, and what it asked of the store."""

    answer: Mapping[str, Any]
    requests: Sequence[Request]


class Place:
    """A local directory for several tables, by name."""

    name = "local disk"
    options: Mapping[str, str] = {}

    def __init__(self, root: str, rounds: int) -> None:
        self.root, self.rounds = root, rounds

    def put(self, table: str, objects: Objects) -> None:
        """Creates or replaces them."""
        made = set()
        for path, body in objects.items():
            target = Path(self.root, table, path)
            if target.parent not in made:
                target.parent.mkdir(parents=True, exist_ok=True)
                made.add(target.parent)
            target.write_bytes(body)

    def size(self, table: str, prefix: str) -> int:
        """The bytes of the objects at the root with names that begin so."""
        return sum(path.stat().st_size for path in Path(self.root, table).glob(f"{prefix}*"))

    def run(self, table: str, job: str, days: float = AHEAD_DAYS) -> Found:
        """The job in a new process."""
        arguments = json.dumps([job, f"{self.root}/{table}", self.options, days])
        command = [sys.executable, "-m", "bench.vacuum_job", arguments]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{job} failed: {done.stderr[-3000:]}")
        return Found(json.loads(done.stdout), self.requests())

    def requests(self) -> Sequence[Request]:
        """Those since the last call."""
        return ()


class Moto(Place):
    """Moto behind the front that counts requests, in this process: so objects can be put there without any."""

    name = "S3 (moto)"

    def __init__(self, server: S3Server, rounds: int) -> None:
        super().__init__("s3:/", rounds)
        self.options = server.storage_options
        self._server = server

    def put(self, table: str, objects: Objects) -> None:
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        if table not in backend.buckets:
            self._server.create_bucket(table)  # of its own: moto looks through a whole bucket for each list
            backend.buckets[table].keys = _Keys()
        for path, body in objects.items():
            backend.put_object(table, path, body)
        self._server.reset()

    def size(self, table: str, prefix: str) -> int:
        keys = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[table].keys
        return sum(key.size for name, key in keys.items() if name.startswith(prefix))

    def requests(self) -> Sequence[Request]:
        seen = self._server.requests()
        self._server.reset()
        return seen


class _Keys(_VersionedKeyStore):
    """Moto's own takes 0.3 s for each list of 100,000 keys, so that clients give up and ask again."""

    def items(self) -> Any:
        return ((key, versions[-1]) for key, versions in dict.items(self))


def places(bench: Bench) -> Iterator[Place]:
    """One after the other, each empty."""
    root = bench.directory / "vacuum"
    shutil.rmtree(root, ignore_errors=True)
    yield Place(str(root), bench.rounds)
    shutil.rmtree(root)
    with moto_here() as server:
        yield Moto(server, min(bench.rounds, 2))  # it is slow, and its times say little


@contextmanager
def moto_here() -> Iterator[S3Server]:
    app = front.Front("s3", front._moto())
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=front._Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    endpoint, key, secret = f"http://127.0.0.1:{server.server_port}", "bench-key", "bench-secret"
    env = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1"}
    try:
        yield S3Server(endpoint, {"endpoint_url": endpoint, "key": key, "secret": secret}, env)
    finally:
        server.shutdown()
        server.server_close()
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].reset()
