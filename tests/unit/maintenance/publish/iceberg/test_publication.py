"""Publications for Iceberg on a store in memory: requests and bytes, ids of columns, writers of other tools, readers of
old versions, moved tables, and what is refused by name. Rules: NOTES.md, Iceberg."""

import io
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    InvalidInputError,
    MissingPackageError,
    StoreError,
    UnsupportedTableError,
)
from dbio_commit.data.footers import inspect_files
from dbio_commit.maintenance.publish.iceberg import publication as iceberg_module
from dbio_commit.maintenance.publish.iceberg import schema as schema_module
from dbio_commit.maintenance.publish.iceberg import writing
from dbio_commit.protocol.field_ids import field_id
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.store.many import ManyCalls
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests import iceberg_reader
from tests.builders import columns
from tests.faults import calls_to, fail_with, heal, once, unwatched
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)
from tests.writers import live, stage

DIRECTORY = iceberg_reader.DIRECTORY


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock, url="s3://lake/table")


def memory_of(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


def commit(
    table: Table,
    operation: Any = "append",
    *,
    files: int = 1,
    schema: Mapping[str, Any] | None = None,
    remove: list[str] | None = None,
    statistics: Mapping[str, Bounds] | None = None,
) -> str:
    transaction = table.begin(operation)
    for _ in range(files):
        stage(table, transaction, statistics=statistics or {"id": Bounds(1, 9, 0)})
    if remove:
        transaction.remove(remove)
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(seconds=1))
    return transaction.commit(schema or columns("id")).tid


def schema_of(**kinds: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


def ids(store: MemoryStore) -> dict[str, int]:
    """The id of each column of the last version."""
    body = iceberg_reader.metadata(store)
    (current,) = [it for it in body["schemas"] if it["schema-id"] == body["current-schema-id"]]
    return {field["name"]: field["id"] for field in current["fields"]}


# --- what it costs ------------------------------------------------------------------------------------------------


def costs(table: Table, *, files: int) -> tuple[list[str], int]:
    """The requests of the publication of one more append, without those of the snapshot, and the bytes that it puts."""
    commit(table, files=files)
    store = memory_of(table)
    before = {path: body for path, (body, _) in store.objects.items()}
    with calls_to(store) as calls:
        table.publish("iceberg")
    own = [operation for operation, path in calls if path.startswith("_iceberg")]
    put = sum(len(body) for path, (body, _) in store.objects.items() if before.get(path) != body)
    return own, put


def test_an_append_takes_five_requests_whatever_was_appended_before(table: Table) -> None:
    commit(table)
    table.publish("iceberg")
    for number in range(120):
        requests, put = costs(table, files=2)
        assert requests == ["get", *["put_if_absent"] * 3, "write"], number
        assert put < 40_000
    body = iceberg_reader.metadata(memory_of(table))
    assert len(json.dumps(body)) < 25_000
    assert len(iceberg_reader.manifests(memory_of(table))) < 30
    assert iceberg_reader.paths(memory_of(table)) == live(table)


def test_another_process_takes_two_more_requests(table: Table) -> None:
    commit(table)
    table.publish("iceberg")
    forget()
    requests, _ = costs(table, files=1)
    assert requests == ["list_directory", "get", "get", *["put_if_absent"] * 3, "write"]


def test_what_an_append_puts_grows_with_its_own_files_alone(table: Table) -> None:
    commit(table, files=1000)
    table.publish("iceberg")
    _, few = costs(table, files=1)
    _, many = costs(table, files=101)
    assert few < 10_000
    assert many - few < 100 * 400


@pytest.mark.long
@pytest.mark.timeout(2400)  # a quarter of an hour on a busy machine
def test_metadata_stays_small_over_ten_thousand_commits(table: Table) -> None:
    store, read = memory_of(table), 0
    for number in range(10_000):
        commit(table, "overwrite" if number % 500 == 499 else "append")
        with calls_to(store) as calls:
            table.publish("iceberg")
        own = [operation for operation, path in calls if path.startswith("_iceberg")]
        assert len(own) <= (6 if number % 500 < 499 else 60), (number, own)
        read += own.count("get")
        table.clock.advance(timedelta(hours=1))  # type: ignore[attr-defined]
        if number % 200 == 199:
            table.vacuum()
            assert len(iceberg_reader.numbers(store)) < 100
    assert len(json.dumps(iceberg_reader.metadata(store))) < 25_000
    assert len(iceberg_reader.manifests(store)) < 60
    assert read < 11_500
    assert iceberg_reader.paths(store) == live(table)


def test_a_removal_writes_anew_only_the_manifests_that_name_the_file(table: Table) -> None:
    for _ in range(8):
        commit(table, files=2)
        table.publish("iceberg")
    store = memory_of(table)
    before = {it["manifest_path"] for it in iceberg_reader.manifests(store)}
    path = next(file.path for file in table.snapshot().files)
    forget()
    commit(table, "rewrite", files=0, remove=[path])
    with calls_to(store) as calls:
        table.publish("iceberg")
    read = [path for operation, path in calls if operation == "get" and "-snap-" not in path and path.endswith(".avro")]
    assert len(read) == 2, "the one manifest with commits of that time is looked at, and read for its rewriting"
    after = {it["manifest_path"] for it in iceberg_reader.manifests(store)}
    assert len(before - after) == 1
    assert iceberg_reader.paths(store) == live(table)
    statuses = [entry["status"] for it in iceberg_reader.manifests(store) if it["manifest_path"] not in before
                for entry in iceberg_reader.avro(store, it["manifest_path"])]  # fmt: skip
    assert sorted(statuses) == [0, 2]


def test_a_file_whose_time_has_changed_is_found_in_another_manifest(table: Table) -> None:
    for _ in range(5):
        commit(table, files=2)
        table.publish("iceberg")
    store = memory_of(table)
    for path, (body, modified) in [*store.objects.items()]:
        if path.startswith("_committed_"):
            store.objects[path] = body, modified + timedelta(seconds=300)
    table.clock.advance(timedelta(seconds=600))  # type: ignore[attr-defined]
    forget()
    commit(table, "rewrite", files=0, remove=[next(file.path for file in table.snapshot().files)])
    table.publish("iceberg")
    assert iceberg_reader.paths(store) == live(table)


# --- ids of columns -----------------------------------------------------------------------------------------------


def test_a_column_has_the_id_that_follows_from_its_name_and_type(table: Table) -> None:
    store, highest = memory_of(table), list[int]()

    def published(operation: Any = "append", **kinds: Any) -> None:
        commit(table, operation, schema=schema_of(**kinds), statistics={"id": Bounds(1, 1, 0)})
        table.publish("iceberg")
        assert ids(store) == {name: field_id((name,), kind) for name, kind in kinds.items()}
        highest.append(iceberg_reader.metadata(store)["last-column-id"])

    published(id="integer", name="string")
    published(id="long", name="string", more="date")
    published("overwrite", id="long", more="date")
    published("overwrite", id="long", name="string", more="date")
    published("overwrite", id="string", name="string")
    forget()
    published("overwrite", id="string", name="integer")
    assert highest == sorted(highest)


def test_a_version_whose_columns_have_other_ids_than_before_forgets_the_snapshots_before(table: Table) -> None:
    """By the name mapping of now, their readers would find nulls."""
    commit(table, schema=schema_of(id="long", name="string"))
    table.publish("iceberg")
    commit(table, "overwrite", schema=schema_of(id="integer", name="string"))
    table.publish("iceberg")
    assert len(iceberg_reader.metadata(memory_of(table))["snapshots"]) == 2
    for kind, snapshots in (("date", 1), ("string", 1), ("string", 2)):
        commit(table, "overwrite", schema=schema_of(id=kind, name="string"))
        table.publish("iceberg")
        body = iceberg_reader.metadata(memory_of(table))
        assert (len(body["snapshots"]), len(body["schemas"])) == (snapshots, 1)
        assert iceberg_reader.paths(memory_of(table)) == live(table)


def test_columns_that_were_numbered_one_by_one_get_their_ids_and_all_manifests_are_written_anew(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first publishers for Iceberg numbered them."""
    commit(table, schema=columns("day", "id"))
    numbers = iter(range(1, 100))
    with monkeypatch.context() as patch:
        patch.setattr(schema_module, "field_id", lambda path, kind: next(numbers))
        table.publish("iceberg")
    assert ids(memory_of(table)) == {"day": 1, "id": 2}
    commit(table, schema=columns("day", "id"))
    table.publish("iceberg")
    assert ids(memory_of(table)) == {"day": field_id(("day",), "long"), "id": field_id(("id",), "long")}
    assert iceberg_reader.paths(memory_of(table)) == live(table)
    bounds = [
        [it["key"] for it in entry["data_file"]["lower_bounds"]] for entry in iceberg_reader.entries(memory_of(table))
    ]
    assert bounds == [[field_id(("id",), "long")]] * 2


def test_widened_columns_have_bounds_of_their_new_type(table: Table) -> None:
    store = memory_of(table)
    commit(table, schema=schema_of(id="integer"))
    table.publish("iceberg")
    commit(table, schema=schema_of(id="long"))
    (done,) = table.publish("iceberg")
    assert (done.added, done.removed, done.files) == (1, 0, 2)
    bounds = [entry["data_file"]["lower_bounds"] for entry in iceberg_reader.entries(store)]
    assert bounds == [[{"key": field_id(("id",), "long"), "value": (1).to_bytes(8, "little")}]] * 2


def test_a_partition_of_null_says_that_its_files_have_only_nulls(table: Table) -> None:
    """Trino takes a null partition value for less than any other, and skips such files by their counts alone."""
    with table.begin(partition_by=["day"]) as transaction:
        for day in ("7", None):
            stage(table, transaction, partition={"day": day}, statistics={"id": Bounds(1, 1, 0)})
        transaction.commit(schema_of(id="long", day="integer"))
    table.publish("iceberg")
    store = memory_of(table)
    files = [entry["data_file"] for entry in iceberg_reader.entries(store)]
    names = {number: name for name, number in ids(store).items()}

    def counts(key: str) -> dict[Any, dict[str, int]]:
        return {it["partition"]["day"]: {names[pair["key"]]: pair["value"] for pair in it[key]} for it in files}

    assert counts("value_counts") == {7: {"id": 1}, None: {"id": 1, "day": 1}}
    assert counts("null_value_counts") == {7: {"id": 0}, None: {"id": 0, "day": 1}}


def test_a_change_of_columns_alone_is_published(table: Table) -> None:
    commit(table)
    table.publish("iceberg")
    commit(table, files=0, schema=columns("id", "more"))
    (done,) = table.publish("iceberg")
    assert (done.is_new, done.added) == (True, 0)
    assert [*ids(memory_of(table))] == ["id", "more"]


def test_no_version_has_a_partition_spec_whose_column_is_gone(table: Table) -> None:
    store = memory_of(table)

    def overwrite(**kinds: str) -> Any:
        (partition,) = [name for name in kinds if name != "id"]
        with table.begin("overwrite", partition_by=[partition]) as transaction:
            stage(table, transaction, partition={partition: "7"}, statistics={"id": Bounds(1, 9, 0)})
            transaction.commit(schema_of(**kinds))
        table.publish("iceberg")
        body = iceberg_reader.metadata(store)
        (current,) = [it for it in body["schemas"] if it["schema-id"] == body["current-schema-id"]]
        known = {field["id"] for field in current["fields"]}
        assert all(field["source-id"] in known for spec in body["partition-specs"] for field in spec["fields"])
        used = {it["partition_spec_id"] for it in iceberg_reader.manifests(store)}
        assert used <= {spec["spec-id"] for spec in body["partition-specs"]}
        assert iceberg_reader.paths(store) == live(table)
        return len(body["snapshots"]), body["default-spec-id"]

    overwrite(id="long", day="string")
    assert overwrite(id="long", hour="string") == (1, 1)  # the column of the spec before is gone, with its snapshots
    assert overwrite(id="long", hour="integer") == (1, 2)  # another column with the same name
    assert overwrite(id="long", hour="long") == (2, 2)  # the same column, wider


# --- versions, and who else writes --------------------------------------------------------------------------------


def test_the_hint_names_the_last_version_also_after_a_publisher_was_killed_before_it_wrote_it(table: Table) -> None:
    store = memory_of(table)
    commit(table)
    table.publish("iceberg")
    commit(table)
    table.store.before = fail_with(OSError("killed"), "write", "*version-hint.text")  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="killed"):
        table.publish("iceberg")
    heal(store)
    assert (iceberg_reader.hinted(store), iceberg_reader.numbers(store)) == (1, [1, 2])
    forget()
    (done,) = table.publish("iceberg")
    assert (done.number, done.is_new) == (2, False)
    assert iceberg_reader.hinted(store) == 2


def test_a_publisher_that_was_slow_to_point_does_not_leave_the_hint_behind(table: Table) -> None:
    store = memory_of(table)
    commit(table)

    def slow(operation: str, path: str) -> None:
        if operation == "write" and path.endswith("version-hint.text"):
            heal(store)
            forget()
            commit(table)
            table.publish("iceberg")
            table.clock.advance(timedelta(seconds=5))  # type: ignore[attr-defined]

    store.before = slow
    table.publish("iceberg")
    assert iceberg_reader.numbers(store) == [1, 2]
    assert iceberg_reader.hinted(store) == 2


@pytest.mark.parametrize("again", [True, False])
def test_a_version_that_is_withdrawn_leaves_no_hint_to_it(
    again: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory_of(table)
    monkeypatch.setattr(MemoryStore, "in_parallel", staticmethod(ManyCalls.in_parallel))  # as in an object store
    for _ in range(2):
        commit(table)
        table.publish("iceberg")
    commit(table)

    def replace_table() -> None:
        table.drop(everything=True)
        if again:
            forget()
            commit(table)
            table.publish("iceberg")

    store.before = once("put_if_absent", "*/v3.metadata.json", replace_table)
    with pytest.raises(CommitConflictError, match="dropped"):
        table.publish("iceberg")
    assert iceberg_reader.numbers(store) == ([1] if again else [])
    hint = f"{DIRECTORY}/version-hint.text"
    assert iceberg_reader.hinted(store) == 1 if again else hint not in store.objects


def foreign(store: MemoryStore, **changes: Any) -> None:
    """A version that another tool wrote above the last one, with all properties of the table."""
    number, body = iceberg_reader.numbers(store)[-1], iceberg_reader.metadata(store)
    snapshot = {**body["snapshots"][-1], "snapshot-id": 7, "summary": {"operation": "append", "engine-name": "spark"}}
    body = {**body, "snapshots": [*body["snapshots"], snapshot], "current-snapshot-id": 7, **changes}
    store.put(f"{DIRECTORY}/v{number + 1}.metadata.json", json.dumps(body).encode())
    store.put(f"{DIRECTORY}/version-hint.text", str(number + 1).encode())


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_version_of_another_tool_is_named_and_not_followed(remembered: bool, is_new: bool, table: Table) -> None:
    store = memory_of(table)
    commit(table)
    table.publish("iceberg")
    foreign(store)
    (problem,) = table.check().publications
    assert "v2.metadata.json was written by spark (append), not by dbio" in problem
    if not remembered:
        forget()
    if is_new:
        commit(table)
    (done,) = table.publish("iceberg")
    assert (done.number, done.is_new) == (3, True)
    assert iceberg_reader.paths(store) == live(table)
    assert iceberg_reader.hinted(store) == 3
    assert [it["snapshot-id"] for it in iceberg_reader.metadata(store)["snapshots"]].count(7) == 0
    assert not table.check().publications


def test_what_a_catalog_and_its_writers_leave_is_named(table: Table) -> None:
    store = memory_of(table)
    commit(table)
    table.publish("iceberg")
    body = {"current-snapshot-id": 1, "snapshots": [{"snapshot-id": 1, "summary": {"operation": "append"}}]}
    store.put(f"{DIRECTORY}/00001-aa.metadata.json", json.dumps(body).encode())
    store.put("_iceberg/data/00000-0-aa.parquet", b"PAR1")
    problems = table.check().publications
    assert len(problems) == 2
    assert "00001-aa.metadata.json was written by a tool that does not say its name (append), through a" in problems[0]
    assert "another tool wrote 1 files below s3://lake/table/_iceberg, first _iceberg/data/" in problems[1]
    commit(table)
    table.publish("iceberg")
    assert iceberg_reader.paths(store) == live(table)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"format-version": 2}', b"\xff"])
def test_a_directory_of_another_table_is_left_alone(body: bytes, table: Table) -> None:
    commit(table)
    memory_of(table).put(f"{DIRECTORY}/v4.metadata.json", body)
    with pytest.raises(UnsupportedTableError, match="versions up to 4, and none was written by dbio for this table"):
        table.publish("iceberg")
    (problem,) = [it for it in table.check().publications if "none was written by dbio" in it]
    assert problem


def test_a_table_at_another_place_gets_manifests_of_its_own_and_keeps_its_ids(table: Table, clock: ManualClock) -> None:
    commit(table, schema=columns("a"))
    table.publish("iceberg")
    commit(table, "overwrite", schema=columns("id"))
    table.publish("iceberg")
    other = MemoryStore(clock, url="s3://lake/moved")
    other.objects = dict(memory_of(table).objects)
    moved = Table.over(other, clock)
    (problem,) = moved.check().publications
    assert "is of 's3://lake/table/_iceberg', and the table is at s3://lake/moved" in problem
    (done,) = moved.publish("iceberg")
    assert (done.number, done.is_new, done.added) == (3, True, 1)
    assert iceberg_reader.paths(other) == live(moved)
    assert ids(other) == {"id": field_id(("id",), "long")}
    assert len(iceberg_reader.metadata(other)["snapshots"]) == 1
    assert not moved.check().publications


@pytest.mark.parametrize("has_news", [True, False])
@pytest.mark.parametrize("lost", ["dbio-snap-*", "dbio-[0-9]*"])
def test_lost_manifests_are_named_and_written_anew(lost: str, has_news: bool, table: Table) -> None:
    store = memory_of(table)
    for _ in range(3):
        commit(table)
        table.publish("iceberg")
    forget()
    for path in [it for it in store.objects if Path(it).match(f"{DIRECTORY}/{lost}")]:
        del store.objects[path]
    (problem,) = table.check().publications
    assert "missing" in problem or "not found" in problem
    if has_news:
        commit(table, "rewrite", files=1, remove=[next(iter(sorted(live(table))))])
    table.publish("iceberg")
    assert iceberg_reader.paths(store) == live(table)
    assert not table.check().publications


@pytest.mark.parametrize("has_news", [True, False])
@pytest.mark.parametrize("lost", ["dbio-snap-*", "dbio-[0-9]*"])
def test_manifests_that_somebody_deletes_together_with_the_last_version_are_written_anew(
    lost: str, has_news: bool, table: Table
) -> None:
    """As a purge through a catalog does, of which this process remembers all."""
    store = memory_of(table)
    for _ in range(2):
        commit(table)
        table.publish("iceberg")
    for path in [it for it in store.objects if any(Path(it).match(name) for name in (lost, "v2.metadata.json"))]:
        del store.objects[path]
    if has_news:
        commit(table)
    (done,) = table.publish("iceberg")
    assert done.is_new
    assert iceberg_reader.paths(store) == live(table)
    assert not table.check().publications


def test_a_damaged_manifest_is_written_anew(table: Table) -> None:
    store = memory_of(table)
    commit(table, files=3)
    table.publish("iceberg")
    forget()
    (path,) = [it for it in store.objects if Path(it).match(f"{DIRECTORY}/dbio-[0-9]*")]
    body, modified = store.objects[path]
    store.objects[path] = body[:-30] + bytes(30), modified
    commit(table, "rewrite", files=1, remove=[next(iter(sorted(live(table))))])
    table.publish("iceberg")
    assert iceberg_reader.paths(store) == live(table)


def test_a_version_whose_answer_was_lost_keeps_its_manifests(table: Table) -> None:
    store = memory_of(table)
    commit(table)
    table.publish("iceberg")
    commit(table)
    store.after = fail_with(StoreError("no answer"), "put_if_absent", "*v2.metadata.json")
    with pytest.raises(StoreError, match="no answer"):
        table.publish("iceberg")
    heal(store)
    assert iceberg_reader.paths(store, 2) == live(table)
    forget()
    (done,) = table.publish("iceberg")
    assert (done.number, done.is_new) == (2, False)


def test_removed_files_that_no_manifest_names_lead_to_a_comparison(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, files=3)
    table.publish("iceberg")
    first, second, _ = sorted(live(table))
    commit(table, "rewrite", files=0, remove=[first, second])
    seen: list[Any] = []

    def compared(*given: Any) -> tuple[()]:
        seen.append(given)
        return ()

    monkeypatch.setattr(writing, "paths_in", lambda entries, root, where: frozenset({first}))
    monkeypatch.setattr(iceberg_module, "compared", compared)
    table.publish("iceberg")
    assert seen


def test_a_publisher_that_lost_the_race_leaves_no_manifests(table: Table) -> None:
    store = memory_of(table)
    commit(table)
    table.publish("iceberg")
    commit(table)

    def other() -> None:
        with unwatched(store):
            forget()
            table.publish("iceberg")

    def race(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.endswith("v2.metadata.json"):
            heal(store)
            other()

    store.before = race
    (done,) = table.publish("iceberg")
    assert (done.number, done.is_new) == (2, False)
    named = {it["manifest_path"].rpartition("/")[2] for it in iceberg_reader.manifests(store)}
    assert {
        it.rpartition("/")[2] for it in store.objects if "_iceberg" in it and ".avro" in it and "-snap-" not in it
    } == named


# --- what goes ----------------------------------------------------------------------------------------------------


def test_vacuum_deletes_what_no_reader_since_the_horizon_needs(table: Table, clock: ManualClock) -> None:
    store = memory_of(table)
    for _ in range(30):
        commit(table, "overwrite")
        table.publish("iceberg")
        clock.advance(timedelta(hours=4))
    ages = {it: clock.now() - store.objects[f"{DIRECTORY}/v{it}.metadata.json"][1] for it in range(1, 31)}
    at_horizon = [number for number, age in ages.items() if age > timedelta(hours=48)]
    long_ago = clock.now() - timedelta(days=4)
    store.put(f"{DIRECTORY}/dbio-1-2-{'0' * 32}.avro", b"of a publisher that was killed", modified=long_ago)
    store.put(f"{DIRECTORY}/mine.avro", b"of somebody else", modified=long_ago)
    table.vacuum()
    kept = iceberg_reader.numbers(store)
    assert kept == list(range(at_horizon[-1], 31))
    assert f"{DIRECTORY}/dbio-1-2-{'0' * 32}.avro" not in store.objects
    assert f"{DIRECTORY}/mine.avro" in store.objects
    for number in kept:
        body = iceberg_reader.metadata(store, number)
        for snapshot in body["snapshots"]:
            for it in iceberg_reader.avro(store, snapshot["manifest-list"]):
                iceberg_reader.avro(store, it["manifest_path"])
    assert iceberg_reader.paths(store) == live(table)


def test_vacuum_keeps_an_old_version_of_another_tool(table: Table, clock: ManualClock) -> None:
    store = memory_of(table)
    commit(table)
    table.publish("iceberg")
    foreign(store)
    for _ in range(3):
        clock.advance(timedelta(days=3))
        commit(table)
        table.publish("iceberg")
    table.vacuum()
    assert iceberg_reader.numbers(store) == [2, 4, 5]


def test_vacuum_deletes_nothing_below_a_version_of_another_tool(table: Table, clock: ManualClock) -> None:
    store = memory_of(table)
    for _ in range(3):
        commit(table)
        table.publish("iceberg")
        clock.advance(timedelta(days=3))
    foreign(store)
    before = {path for path in store.objects if path.startswith("_iceberg")}
    report = table.vacuum()
    assert {path for path in store.objects if path.startswith("_iceberg")} == before
    assert any("nothing of _iceberg is deleted" in it for it in report.warnings)


# --- what is refused ----------------------------------------------------------------------------------------------


def write(table: Table, rows: Any, schema: Mapping[str, Any] | None = None) -> None:
    transaction = table.begin()
    transaction.inspector = inspect_files
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    with table.store.open_write(transaction.new_file().removeprefix(f"{table.url}/")) as stream:
        stream.write(sink.getvalue())
    transaction.commit(schema)


def test_decimals_of_another_scale_are_refused_and_longer_ones_are_not(table: Table) -> None:
    def rows(*digits: int) -> Any:
        return pa.table({"x": pa.array([1, 2], pa.decimal128(*digits))})

    write(table, rows(5, 2), schema_of(x="decimal(5,2)"))
    table.publish("iceberg")
    write(table, rows(9, 2), schema_of(x="decimal(9,2)"))
    table.publish("iceberg")
    write(table, rows(12, 4), schema_of(x="decimal(12,4)"))
    with pytest.raises(InvalidInputError, match="x with 2 digits after the point, not 4"):
        table.publish("iceberg")


def test_decimals_without_bounds_are_looked_at(table: Table) -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "decimal(5,2)", "nullable": True, "metadata": {}}]}
    rows = pa.table({"s": pa.array([{"x": 1}], pa.struct([("x", pa.decimal128(5, 2))]))})
    write(table, rows, schema_of(s=inner))
    table.publish("iceberg")
    wider = json.loads(json.dumps(inner).replace("decimal(5,2)", "decimal(9,4)"))
    write(table, pa.table({"s": pa.array([{"x": 1}], pa.struct([("x", pa.decimal128(9, 4))]))}), schema_of(s=wider))
    with pytest.raises(InvalidInputError, match=r"s\.x as decimal\(5,2\), not decimal\(9,4\)"):
        table.publish("iceberg")


def test_files_with_field_ids_of_another_table_are_refused_until_a_compaction_drops_the_ids(tmp_path: Path) -> None:
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"})
    inner = pa.field("s", pa.struct([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "9"})]))
    for i, one in enumerate((field, inner)):
        table = Table(tmp_path / str(i))
        with table.begin() as transaction:
            pq.write_table(
                pa.Table.from_arrays([pa.array([], one.type)], schema=pa.schema([one])), transaction.new_file()
            )
        assert table.history()[0].metrics["numFilesWithIds"] == 1
        with pytest.raises(InvalidInputError, match="has field ids of another table"):
            table.publish("iceberg")
        with table.begin() as transaction:
            pq.write_table(pa.table([pa.array([], one.type)], names=[one.name]), transaction.new_file())
        table.compact()
        table.publish("iceberg")


def test_a_file_whose_rows_nobody_counted_is_looked_at(table: Table) -> None:
    transaction = table.begin()
    transaction.inspector = None
    path = transaction.new_file().removeprefix(f"{table.url}/")
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3]}), sink)
    with table.store.open_write(path) as stream:
        stream.write(sink.getvalue())
    transaction.commit(columns("id"))
    table.publish("iceberg")
    assert [entry["data_file"]["record_count"] for entry in iceberg_reader.entries(memory_of(table))] == [3]


def test_without_fastavro_the_error_names_the_extra(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(table)
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(MissingPackageError, match=r'pip install "dbio-commit\[iceberg\]"'):
        table.publish("iceberg")
