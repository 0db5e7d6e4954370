"""Vacuum on a local disk, S3, Azure and Google Cloud: garbage of every kind goes, nothing else does, and what it costs.

Garbage is old by a clock that is ahead. What is garbage, and in which order it goes, is tested in tests/unit.
Rules: PROTOCOL.md 10.2.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dbio_commit import StoreError, Table
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.store.contract import Unfinished
from dbio_commit.store.local import LocalStore
from tests.command_line import forked
from tests.conftest import Root
from tests.later import vacuum_later, wait_for_the_next_second
from tests.servers import AzureServer, Fault, Kind, S3Server, Server
from tests.tiers import long
from tests.writers import live, stage
from vacuum import Reason, VacuumOptions, VacuumReport

VALUES = ("100% sure", "a b ", "%41", "x=y/z?", "a+b&c;#", "ünï 漢字 🦆", "'\"<&>", None)
"""Of the partition column `name`."""


def sweep(table: Table, days: float, *, dry_run: bool = False, **options: Any) -> VacuumReport:
    """A vacuum so many days from now."""
    options = {"checkpoint_after": 1, **options}
    return vacuum_later(table, VacuumOptions(**options), by=timedelta(days=days), dry_run=dry_run)


# --- tables with garbage ------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A table, and what is known of its objects. Paths are relative to the root."""

    table: Table
    garbage: dict[str, Reason] = field(default_factory=dict)
    """Data files that no reader needs."""
    kept: set[str] = field(default_factory=set)
    """What is neither live nor ever deleted."""

    def put(self, path: str, body: bytes = b"garbage") -> str:
        with self.table.store.open_write(path) as stream:
            stream.write(body)
        return path

    def write(self, operation: Operation, values: Iterable[str | None]) -> str:
        """A file in each partition, and as many that a failed attempt of the same task left. Returns the tid."""
        transaction = self.table.begin(operation, partition_by=["name"])
        attempt = self.table.resume(transaction.terms)  # elsewhere, so that its files have other names
        before = live(self.table) if operation == "overwrite" else set()
        for value in values:
            stage(self.table, transaction, f"{transaction.tid} {value}".encode(), {"name": value})
            self.garbage[stage(self.table, attempt, b"garbage", {"name": value})] = Reason.FAILED_ATTEMPT
        transaction.commit()
        self.garbage |= dict.fromkeys(before, Reason.REMOVED)
        return transaction.tid

    def leave_pending(self, reason: Reason) -> str:
        """A transaction that wrote a file to each partition and went away. Returns its tid."""
        transaction = self.table.begin(partition_by=["name"])
        for value in VALUES:
            self.garbage[stage(self.table, transaction, b"garbage", {"name": value})] = reason
        return transaction.tid

    def objects(self) -> dict[str, Entry]:
        return {entry.path: entry for entry in self.table.store.list_files()}

    def state(self) -> tuple[dict[str, Entry], list[Unfinished], set[str]]:
        return self.objects(), self.table.store.list_unfinished(), directories(self.table)


def directories(table: Table) -> set[str]:
    """Where they are real."""
    root = Path(table.url)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}


def make_table(root: Root) -> Made:
    """A table of ours with garbage of every kind. The last partition holds nothing else."""
    made = Made(Table(*root))
    store = made.table.store
    made.write("append", VALUES)
    made.write("overwrite", VALUES[:-1])
    made.write("append", VALUES[:2])
    made.table.abort(made.leave_pending(Reason.ABORTED))
    made.leave_pending(Reason.ABORTED)  # once it has timed out
    store.delete_many([names.started(made.leave_pending(Reason.UNKNOWN))])
    first = min(path for path, reason in made.garbage.items() if reason is Reason.REMOVED)
    directory, name = names.split(first)
    made.garbage[made.put(names.join(directory, f".{name}.crc"))] = made.garbage[first]
    made.kept |= {made.put("plain.parquet"), made.put(f"{directory}/plain.parquet")}  # untracked
    made.kept |= {made.put(f"{directory}/copy/{name}")}  # outside of the partitions
    made.kept |= {made.put(f"{directory}/_started_1"), made.put(f"{directory}/part-0-tid-1-x.parquet")}  # a stranger's
    made.kept |= {made.put(f"_temporary/0/{name}"), made.put(f".hidden/{name}"), made.put("_SUCCESS")}
    return made


def make_directory(root: Root) -> Made:
    """A directory as DBIO has it, with garbage of every kind."""
    made = Made(Table(*root))
    for value in VALUES[:-1]:
        made.put(f"{names.format_partition({'name': value})}/plain.parquet", b"plain")
    made.write("append", VALUES)
    made.write("overwrite", VALUES[:-1])
    made.write("append", VALUES[:2])
    made.leave_pending(Reason.PENDING)
    first = min(path for path, reason in made.garbage.items() if reason is Reason.REMOVED)
    directory, name = names.split(first)
    made.garbage[made.put(names.join(directory, f".{name}.crc"))] = made.garbage[first]
    made.put(f"{directory}/plain again.parquet", b"plain")
    made.put(f"{directory}/part-0-tid-1-x.parquet", b"purged")  # without markers: live for good
    made.put(f"{directory}/_started_2", b"")
    made.put(f"{directory}/_committed_2", b"")  # of no length: still pending
    made.garbage[made.put(f"{directory}/part-0-tid-2-x.parquet")] = Reason.PENDING
    made.kept |= {made.put(f"_temporary/0/{name}"), made.put(f".hidden/{name}"), made.put("_SUCCESS")}
    return made


@pytest.fixture(params=["local", "s3", "azure", "gcs"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


@pytest.fixture
def server(root: Root, request: pytest.FixtureRequest) -> Server | None:
    """Behind the root; None for a disk."""
    kind = root.url.partition("://")[0] if "://" in root.url else ""
    servers = {"s3": "s3_server", "az": "azure_server", "gs": "gcs_server"}
    found: Server | None = request.getfixturevalue(servers[kind]) if kind else None
    return found


@pytest.fixture(params=[make_table, make_directory])
def made(request: pytest.FixtureRequest, root: Root) -> Made:
    found: Made = request.param(root)
    return found


def reasons(report: VacuumReport) -> dict[str, Reason]:
    assert report.failed == []
    assert len({it.path for it in report.deleted}) == len(report.deleted)
    return {it.path: it.reason for it in report.deleted}


# --- what goes, and what stays ------------------------------------------------------------------------------------


@pytest.mark.long_for("azure", "gcs")
def test_a_table_is_left_with_its_live_files_and_the_log_that_must_stay(root: Root) -> None:
    made = make_table(root)
    table, snapshot = made.table, made.table.snapshot()
    stay = live(table) | made.kept | {"_dbio_table"}
    log = snapshot.log

    report = sweep(table, 3)

    assert report.scope is Scope.TABLE
    deleted = reasons(report)
    empty = names.format_partition({"name": VALUES[-1]})
    assert deleted.pop(empty, None) == (Reason.DIRECTORY if table.store.has_directories else None)
    assert deleted == made.garbage
    assert list(report.aborted) == log.pending
    assert report.checkpoint == names.checkpoint(1)
    decided = {names.committed(tid) for tid in (*log.committed, *log.pending)}
    started, turns = set(map(names.started, log.started)), set(map(names.turn, log.turns))
    assert set(made.objects()) == stay | decided | started | turns | {names.checkpoint(1)}

    purged = set(reasons(sweep(table, 3.1)))  # once the checkpoint is older than the metadata horizon

    aborted = {names.committed(commit.tid) for commit in table.snapshot().decided if commit.marker.is_abort}
    assert len(aborted) == 2
    stay |= {names.checkpoint(1), names.checkpoint(2), names.purge(1), names.turn(log.last_turn)}
    assert set(made.objects()) == stay | aborted
    assert purged == (decided - aborted) | started | turns - stay
    assert set(reasons(sweep(table, 40))) == aborted | {names.checkpoint(1)}  # after 30 days
    stay = (stay - {names.checkpoint(1)}) | {names.checkpoint(3), names.purge(2)}
    assert set(made.objects()) == stay
    assert table.snapshot().files == snapshot.files
    tids = table.snapshot().tids
    assert [tid for tid in snapshot.tids if tid in tids] == list(tids)  # but for what is forgotten after 30 days
    assert table.check().ok
    assert set(reasons(sweep(table, 41))) == {names.purge(1)}
    assert not sweep(table, 42).deleted


@pytest.mark.long_for("azure", "gcs")
def test_a_directory_is_left_with_its_live_files(root: Root) -> None:
    made = make_directory(root)
    table, visible = made.table, live(made.table)
    assert visible.isdisjoint(made.garbage)

    report = sweep(table, 3)

    assert report.scope is Scope.DIRECTORY
    deleted = reasons(report)
    assert {path: reason for path, reason in deleted.items() if path in made.garbage} == made.garbage
    markers = {path: reason for path, reason in deleted.items() if path not in made.garbage}
    assert set(markers.values()) == {Reason.START_MARKER, Reason.EMPTY_MARKER}
    assert live(table) == visible
    queued = set(report.queued)
    decided = {path for path in made.objects() if re.search(r"(^|/)_committed_\d", path)}
    assert decided
    assert queued > decided
    assert queued < set(made.objects())

    report = sweep(table, 3.1)

    empty = names.format_partition({"name": VALUES[-1]})
    deleted = reasons(report)
    assert deleted.pop(empty, None) == (Reason.DIRECTORY if table.store.has_directories else None)
    assert queued < set(deleted)
    assert set(deleted.values()) == {Reason.QUEUED}
    assert report.queued == []
    assert set(made.objects()) == visible | made.kept
    assert live(table) == visible
    assert not sweep(table, 40).deleted


@pytest.mark.long_for("azure", "gcs")
def test_untracked_files_go_only_where_they_are_asked_for(root: Root) -> None:
    made = make_table(root)
    sweep(made.table, 3)
    untracked = {path for path in made.kept if path.endswith("/plain.parquet") or path == "plain.parquet"}
    outside = {path for path in made.kept if path.count("/") == 2 and "name=" in path}
    deleted = reasons(sweep(made.table, 3, untracked=True))
    copies = {f"{path.rpartition('/')[0]}" for path in outside if made.table.store.has_directories}
    assert {path for path, reason in deleted.items() if reason is Reason.DIRECTORY} == copies
    files = {path: reason for path, reason in deleted.items() if path not in copies and names.is_data_file(path)}
    assert files == dict.fromkeys(untracked | outside, Reason.UNTRACKED)
    assert made.kept - untracked - outside < set(made.objects())


@pytest.mark.long_for("azure", "gcs")
def test_nothing_young_goes_but_what_no_commit_names(root: Root) -> None:
    made = make_table(root)
    before, live_before = set(made.objects()), live(made.table)
    report = sweep(made.table, 0)
    at_once = {path for path, reason in made.garbage.items() if reason in (Reason.FAILED_ATTEMPT, Reason.ABORTED)}
    deleted = {path for path, reason in reasons(report).items() if reason is not Reason.DIRECTORY}
    assert deleted < at_once  # the files of the pending transaction are kept
    kept = {it.path: it.reason for it in report.kept}
    assert at_once - deleted == {path for path, reason in kept.items() if reason is Reason.PENDING}
    assert {path for path, reason in made.garbage.items() if reason is Reason.REMOVED} <= set(kept)
    assert not report.aborted
    assert set(made.objects()) == before - deleted | {names.checkpoint(1)}
    assert live(made.table) == live_before


@pytest.mark.long_for("make_directory", "azure", "gcs")
def test_a_dry_run_says_what_would_be_done_and_changes_nothing(made: Made, server: Server | None) -> None:
    for days in (3, 3.1):  # the second time there is something to purge
        before = made.state()
        if server:
            server.reset()
        dry = sweep(made.table, days, dry_run=True)
        if server:
            assert {request.method for request in server.requests()} <= {"GET", "HEAD"}
        assert made.state() == before
        done = sweep(made.table, days)
        assert dry.dry_run
        assert reasons(dry) == reasons(done)
        assert {it.path: it.size for it in dry.deleted} == {it.path: it.size for it in done.deleted}
        assert (dry.aborted, dry.checkpoint, dry.queued) == (done.aborted, done.checkpoint, done.queued)
        assert sorted(it.path for it in dry.kept) == sorted(it.path for it in done.kept)
        assert made.state() != before


# --- the command line ---------------------------------------------------------------------------------------------


def dbio(server: Server | None, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "AZURE_"))}
    return forked("vacuum", *args, env=kept | dict(server.env if server else {}) | env)


@pytest.mark.long_for("azure", "gcs", "s3")
def test_the_command_line_deletes_what_its_dry_run_says(root: Root, server: Server | None) -> None:
    made = make_table(root)
    visible, before = live(made.table), made.state()
    now = (root.url, "--retention-hours", "0", "--force", "--json")
    wait_for_the_next_second()

    refused = dbio(server, *now[:3])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert len(refused.stderr.splitlines()) == 1
    dry = dbio(server, *now, "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert made.state() == before
    done = dbio(server, *now)
    assert (done.returncode, done.stderr) == (0, "")
    said, did = json.loads(dry.stdout), json.loads(done.stdout)
    assert {it["path"]: it["reason"] for it in said["deleted"]} == {it["path"]: it["reason"] for it in did["deleted"]}
    assert {it["path"] for it in did["deleted"]} >= set(made.garbage)
    assert (did["ok"], did["dry_run"], len(did["aborted"])) == (True, False, 1)
    assert made.garbage.keys().isdisjoint(made.objects())
    assert live(made.table) == visible
    assert dbio(server, *now[:4]).stdout == ""  # in a pipe: a line for each deleted object


def test_a_path_without_a_table_is_one_message(root: Root, server: Server | None) -> None:
    result = dbio(server, root.url)
    assert (result.returncode, result.stdout) == (1, "")
    assert "there is no table" in result.stderr
    assert len(result.stderr.splitlines()) == 1


# --- uploads that nobody finished ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_table, *long(make_directory)])
def test_old_multipart_uploads_under_the_root_are_aborted_and_reported(
    s3_root: Root, s3_server: S3Server, make: Any
) -> None:
    made: Made = make(s3_root)
    client, prefix = s3_server.client(), s3_root.url.removeprefix("s3://tables/")
    uploads = [f"{names.format_partition({'name': value})}/part-0.parquet" for value in VALUES]
    for key in (*(f"{prefix}/{path}" for path in uploads), f"{prefix}-other/part-0.parquet"):
        upload = client.create_multipart_upload(Bucket="tables", Key=key)["UploadId"]
        client.upload_part(Bucket="tables", Key=key, UploadId=upload, PartNumber=1, Body=b"part")

    def left() -> set[str]:
        uploads = client.list_multipart_uploads(Bucket="tables").get("Uploads", ())
        return {upload["Key"] for upload in uploads if upload["Key"].startswith(prefix)}

    # Moto says of all uploads that they began in 2010, so that none is young.
    assert left() > {f"{prefix}/{path}" for path in uploads}
    found = {path for path, reason in reasons(sweep(made.table, 3)).items() if reason is Reason.UPLOAD}
    assert found == set(uploads)
    assert left() == {f"{prefix}-other/part-0.parquet"}


def test_uploads_that_may_not_be_listed_are_a_failure_and_the_rest_is_done(s3_root: Root, s3_server: S3Server) -> None:
    made = make_table(s3_root)
    s3_server.inject(Fault(method="GET", path=r"\?.*uploads", kind="403", times=1000))
    report = sweep(made.table, 3)
    s3_server.reset()
    (failure,) = report.failed
    assert "unfinished uploads" in failure.message
    assert {it.path for it in report.deleted} == set(made.garbage)


@pytest.mark.parametrize("make", [make_table, make_directory])
def test_temporary_files_that_a_writer_left_on_a_disk_are_deleted(local_root: Root, make: Any) -> None:
    made: Made = make(local_root)
    null = names.format_partition({"name": None})
    paths = ["._dbio-1", f"{null}/._dbio-2"]
    for path in paths:
        Path(local_root.url, path).write_bytes(b"half")
    assert Reason.UPLOAD not in reasons(sweep(made.table, 0)).values()
    deleted = {it.path: it for it in sweep(made.table, 3).deleted}
    assert [(deleted[path].reason, deleted[path].size) for path in paths] == [(Reason.UPLOAD, 4)] * 2
    assert not any(Path(local_root.url, path).exists() for path in paths)
    sweep(made.table, 3.1)
    assert not Path(local_root.url, null).exists()  # which they did not keep from being removed


# --- what is special on a disk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_table, make_directory])
def test_what_lies_behind_symbolic_links_is_not_touched(local_root: Root, tmp_path: Path, make: Any) -> None:
    made: Made = make(local_root)
    root, outside = Path(local_root.url), tmp_path / "outside"
    outside.mkdir()
    aborted = next(path for path, reason in sorted(made.garbage.items()) if reason is Reason.FAILED_ATTEMPT)
    name = names.split(aborted)[1]
    for path in (name, "plain.parquet", "._dbio-1", "_started_7", "part-0-tid-7-x.parquet"):
        (outside / path).write_bytes(b"outside")
    (outside / "empty").mkdir()
    (root / "name=link").symlink_to(outside)
    (root / "name=broken").symlink_to(tmp_path / "nowhere")
    (root / f"name=a b /linked-{name}").symlink_to(outside / name)
    seen = {path: path.read_bytes() for path in outside.iterdir() if path.is_file()}
    for days in (3, 3.1, 40):
        report = sweep(made.table, days, untracked=True)
        assert not report.failed
        assert not [it.path for it in report.deleted if "link" in it.path or "broken" in it.path]
    assert {path: path.read_bytes() for path in outside.iterdir() if path.is_file()} == seen
    assert (outside / "empty").is_dir()
    assert (root / "name=link").is_symlink()
    assert (root / "name=broken").is_symlink()
    assert (root / f"name=a b /linked-{name}").is_symlink()


def test_a_root_that_is_a_symbolic_link_is_vacuumed(tmp_path: Path) -> None:
    made = make_table(Root(str(tmp_path / "table"), {}))
    (tmp_path / "link").symlink_to(tmp_path / "table")
    report = sweep(Table(tmp_path / "link"), 3)
    assert set(reasons(report)) >= set(made.garbage)
    assert made.garbage.keys().isdisjoint(made.objects())


def test_directories_that_somebody_else_made_stay(local_root: Root) -> None:
    made = make_table(local_root)
    root = Path(local_root.url)
    (root / "name=emptied by others").mkdir()
    (root / "on purpose" / "empty").mkdir(parents=True)
    report = sweep(made.table, 3)
    assert {path for path, reason in reasons(report).items() if reason is Reason.DIRECTORY} == {
        "name=emptied by others",
        names.format_partition({"name": VALUES[-1]}),
    }
    assert (root / "on purpose" / "empty").is_dir()


def test_files_that_may_not_be_deleted_are_reported_and_the_rest_goes(local_root: Root) -> None:
    """One that is in use, say, on a network share."""
    made = make_table(local_root)
    stuck = next(path for path, reason in sorted(made.garbage.items()) if reason is Reason.UNKNOWN)

    class Stuck(LocalStore):
        def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
            failures = super().delete_many([path for path in paths if path != stuck])
            return {**failures, stuck: StoreError(f"cannot delete {stuck}: busy")} if stuck in paths else failures

    made.table.store.__class__ = Stuck
    report = sweep(made.table, 3)
    assert [failure.path for failure in report.failed] == [stuck]
    assert set(made.garbage) & set(made.objects()) == {stuck}


# --- services that are busy ---------------------------------------------------------------------------------------

DELETIONS = {"s3": ("POST", r"\?delete"), "az": ("POST", "comp=batch"), "gs": ("POST", "/batch/")}


def refusing(root: Root, kind: Kind, times: int) -> Fault:
    method, path = DELETIONS[root.url.partition("://")[0]]
    return Fault(method=method, path=path, kind=kind, times=times)


@pytest.fixture(params=["s3", "azure", "gcs"])
def remote(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_root"), request.getfixturevalue(f"{request.param}_server")


@pytest.mark.long_for("azure", "gcs")
def test_deletions_that_the_service_throttles_are_asked_for_again(remote: tuple[Root, Server]) -> None:
    root, server = remote
    made = make_table(root)
    server.inject(refusing(root, "503", 1))
    report = sweep(made.table, 3)
    assert "503" in {request.fault for request in server.requests()}
    server.reset()
    assert reasons(report) == made.garbage
    assert made.garbage.keys().isdisjoint(made.objects())


@pytest.mark.long_for("azure", "s3")
def test_deletions_that_keep_failing_are_reported_one_by_one_and_done_by_the_next_run(
    remote: tuple[Root, Server],
) -> None:
    root, server = remote
    made = make_table(root)
    visible = live(made.table)
    now = (root.url, "--retention-hours", "0", "--force", "--json")
    wait_for_the_next_second()
    # The clients of Azure and Google are patient with 503: that takes half a minute.
    kind: Kind = "503" if isinstance(server, S3Server) else "403"
    server.inject(refusing(root, kind, 100_000), Fault(method="DELETE", path=".", kind=kind, times=100_000))
    failed = dbio(server, *now, AWS_MAX_ATTEMPTS="1")
    server.reset()
    said = json.loads(failed.stdout)
    assert failed.returncode == 1
    assert {failure["path"] for failure in said["failed"]} >= set(made.garbage)
    assert all("cannot delete" in failure["message"] for failure in said["failed"])
    assert all(root.url in failure["message"] for failure in said["failed"])
    assert said["deleted"] == []
    assert set(made.garbage) < set(made.objects())
    assert live(made.table) == visible

    again = dbio(server, *now)

    assert again.returncode == 0
    assert made.garbage.keys().isdisjoint(made.objects())
    assert live(made.table) == visible


def test_one_object_that_may_not_be_deleted_does_not_stop_the_rest(s3_root: Root, s3_server: S3Server) -> None:
    made = make_table(s3_root)
    stuck = max(path for path, reason in made.garbage.items() if reason is Reason.REMOVED)
    key = s3_root.url.removeprefix("s3://") + "/" + stuck
    client = s3_server.client()
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{key}"}
    client.put_bucket_policy(Bucket="tables", Policy=json.dumps({"Statement": [deny]}))
    try:
        report = sweep(made.table, 3)
        assert [failure.path for failure in report.failed] == [stuck]
        assert "AccessDenied" in report.failed[0].message
        assert set(made.garbage) & set(made.objects()) == {stuck}
        sweep(made.table, 3.1)
        assert stuck not in live(made.table)  # what says that it was removed is still there
        remover = next(c.tid for c in made.table.snapshot().decided if stuck in c.marker.removed)
        assert names.committed(remover) in made.objects()
    finally:
        client.delete_bucket_policy(Bucket="tables")
    assert stuck in {it.path for it in sweep(made.table, 3.2).deleted}
    assert stuck not in made.objects()


# --- what it costs ------------------------------------------------------------------------------------------------


def partitions(*, columns: int, each: int) -> list[dict[str, str]]:
    values = product(map(str, range(each)), repeat=columns)
    return [{f"c{column}": value for column, value in enumerate(it)} for it in values]


def overwritten(table: Table, where: list[dict[str, str]], *, columns: int, files: int) -> None:
    """A table of one file in each partition, beside so many that were overwritten."""
    writes: list[tuple[Operation, int]] = [("append", files), ("overwrite", 1)]
    for operation, count in writes:
        transaction = table.begin(operation, partition_by=[f"c{column}" for column in range(columns)])
        transaction.inspector = None  # no Parquet
        paths = [transaction.new_file(partition=it).removeprefix(f"{table.url}/") for it in where * count]
        table.store.in_parallel(lambda path: table.store.put_if_absent(path, b""), paths)
        transaction.commit()


MORE_SHAPES = [(1, 3, 2), (1, 300, 1), (2, 4, 2), (3, 4, 1), (0, 1, 1100)]


@pytest.mark.parametrize(
    ("columns", "each", "files"),
    [(0, 1, 5), (1, 40, 1), *(pytest.param(*it, marks=pytest.mark.long) for it in MORE_SHAPES)],
)
def test_a_vacuum_costs_a_request_for_each_thousand_objects_and_30_besides_however_many_directories_there_are(
    s3_root: Root, s3_server: S3Server, columns: int, each: int, files: int
) -> None:
    table, where = Table(*s3_root), partitions(columns=columns, each=each)
    overwritten(table, where, columns=columns, files=files)
    garbage, found = len(where) * files, len(where) * (files + 1)
    directories = {
        "/".join(names.format_partition(it).split("/")[:depth]) for it in where for depth in range(columns + 1)
    }
    pages = found // 1000 + garbage // 1000
    at_most = min(pages + len(directories) + 20, 1.2 * pages + 30)  # the latter however many directories there are
    s3_server.reset()

    report = sweep(table, 3)

    assert len(reasons(report)) == garbage
    requests = s3_server.requests()
    assert len(requests) <= at_most, [(request.method, request.path, request.query) for request in requests]
    s3_server.reset()
    sweep(table, 3.1)  # and a purge
    assert len(s3_server.requests()) <= at_most


@pytest.mark.parametrize(
    ("columns", "each", "files"),
    [(0, 1, 5), *(pytest.param(*it, marks=pytest.mark.long) for it in [(1, 300, 1), (2, 8, 2)])],
)
def test_on_azure_a_vacuum_costs_what_its_bulk_deletions_do_and_30_besides(
    azure_root: Root, azure_server: AzureServer, columns: int, each: int, files: int
) -> None:
    """One deletes 256 at most. A listing has 5,000 blobs, in however many directories they are."""
    table, where = Table(*azure_root), partitions(columns=columns, each=each)
    overwritten(table, where, columns=columns, files=files)
    azure_server.reset()

    report = sweep(table, 3)

    assert len(reasons(report)) == len(where) * files
    assert len(azure_server.requests()) <= len(where) * files / 256 + 30
