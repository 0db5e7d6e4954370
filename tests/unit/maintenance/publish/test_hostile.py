"""Publications that somebody else has written to: numbers, sizes, and files of others, on a store in memory.

Rules: NOTES.md, Bounds and ownership.
"""

import io
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import (
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.commit import probe as probe_module
from dbio_commit.maintenance.publish import bounds, delta_checkpoint, delta_replay, places, reading, symlink
from dbio_commit.maintenance.publish import delta as delta_module
from dbio_commit.maintenance.publish import delta_log as delta_log_module
from dbio_commit.maintenance.publish.delta_log import (
    DeltaListing,
    DeltaShown,
    DeltaState,
    checkpoint_path,
    version_path,
)
from dbio_commit.maintenance.publish.places import DIRECTORIES, in_sequence
from dbio_commit.maintenance.vacuum.report import Control, VacuumReport
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import LAST_NUMBER
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import Killed, Killer, calls_to, heal
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)
from tests.writers import live, stage
from vacuum import VacuumOptions

FORMATS = tuple(Format)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock, url="s3://lake/table")


def memory_of(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


def commit(table: Table, operation: Any = "append") -> None:
    transaction = table.begin(operation)
    stage(table, transaction, statistics={"id": Bounds(1, 1, 0)})
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(seconds=1))
    transaction.commit(columns("id"))


def published(table: Table, *, versions: int = 1, to: Any = "delta") -> None:
    for _ in range(versions):
        commit(table)
        table.publish(to)


def vacuum(table: Table, *, days: float = 5) -> VacuumReport:
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(days=days))
    return vacuum_table(table, VacuumOptions(), control=Control())


def log_of(table: Table, directory: str = "_delta_log") -> set[str]:
    return {path for path in memory_of(table).objects if path.startswith(f"{directory}/")}


# --- numbers ------------------------------------------------------------------------------------------------------

FAR = [LAST_NUMBER - 1, LAST_NUMBER, 10**19, 10**20 - 1]
FAR_NAMES = [
    *((Format.DELTA, version_path(number)) for number in FAR),
    *((Format.DELTA, checkpoint_path(number)) for number in FAR),
    *(
        (Format.SPARK, f"_spark_metadata/{number - 1}.compact")
        for number in (LAST_NUMBER, LAST_NUMBER + 10, 10**18, 10**19)
    ),
    *((Format.SYMLINK, f"_symlink_format_manifest/.dbio-{number:020d}") for number in FAR),
    *((Format.ICEBERG, f"_iceberg/metadata/v{number}.metadata.json") for number in FAR),
]


@pytest.mark.parametrize(("to", "path"), FAR_NAMES)
def test_a_number_that_no_publisher_reaches_is_an_error_that_names_the_object_and_stops_no_writer(
    to: Format, path: str, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    published(table, to=to)
    memory_of(table).put(path, b"")
    with pytest.raises(CorruptMarkerError, match=f"s3://lake/table/{path} has a number that no publisher reaches"):
        table.publish(to)
    (problem,) = table.check().publications
    assert path in problem
    with caplog.at_level(logging.WARNING):
        table.set({"publish": to})
        commit(table)
    assert caplog.text.count(path) == (1 if to is Format.ICEBERG else 2), "Iceberg's lists only if it must"
    assert len(live(table)) == 2
    assert vacuum(table).failed == []
    del memory_of(table).objects[path]
    assert table.publish(to)[0].is_new is (to is not Format.ICEBERG), "which is up to date"
    assert table.check().ok


@pytest.mark.parametrize("last", [10**9, LAST_NUMBER - 2])
@pytest.mark.parametrize("remembered", [True, False])
def test_a_gap_of_any_length_among_versions_is_found_without_counting_through_it(
    last: int, remembered: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looked at each number would look for longer than any test may take."""
    published(table, versions=2)
    memory_of(table).put(version_path(last), b"{}")
    if not remembered:
        forget()
    with calls_to(memory_of(table)) as calls, pytest.raises(CorruptMarkerError, match=r"0002\.json is missing"):
        table.publish("delta")
    assert not [path for operation, path in calls if operation == "get" and "_delta_log" in path]


def test_a_checkpoint_far_ahead_of_the_versions_is_a_torn_log(table: Table) -> None:
    published(table, versions=2)
    memory_of(table).put(checkpoint_path(10**14), b"")
    for _ in range(2):
        with pytest.raises(CorruptMarkerError, match=r"00100000000000000\.json is missing"):
            table.publish("delta")
        forget()
    assert not table.check().ok


def test_numbers_are_in_sequence_up_to_the_first_that_is_missing() -> None:
    assert in_sequence({0, 1, 2}, first=1) == ([1, 2], None)
    assert in_sequence({0, 10**14}, first=0) == ([0, 10**14], 1)
    assert in_sequence({10**14}, first=3) == ([10**14], 3)
    assert in_sequence({0}, first=1) == ([], None)


@pytest.mark.parametrize(
    "name", ["0", "10", "10.compact", "009.compact", "+19.compact", "٣.compact", "9" * 25 + ".compact", "-1"]
)
def test_what_spark_takes_for_a_batch_of_a_stream_is_refused(name: str, table: Table) -> None:
    published(table, to="spark")
    memory_of(table).put(f"_spark_metadata/{name}", b"v1")
    with pytest.raises(UnsupportedTableError, match="of a Spark stream"):
        table.publish("spark")
    assert "of a Spark stream" in table.check().publications[0]


def test_a_list_that_a_stream_has_compacted_is_refused_though_nothing_else_of_the_stream_is_left(table: Table) -> None:
    commit(table)
    line = {"path": "s3a://lake/table/part-0.parquet", "size": 1, "modificationTime": 1763634000000, "action": "add"}
    memory_of(table).put("_spark_metadata/19.compact", b"v1\n" + json.dumps(line).encode())
    with pytest.raises(UnsupportedTableError, match=r"'19\.compact' of a Spark stream"):
        table.publish("spark")
    assert log_of(table, "_spark_metadata") == {"_spark_metadata/19.compact"}


def test_a_claim_below_a_partition_is_none(table: Table) -> None:
    published(table, to="symlink")
    other = "_symlink_format_manifest/day=1/.dbio-99999999999999999999"
    memory_of(table).put(other, b"")
    commit(table)
    assert table.publish("symlink")[0].number == 3
    assert other in memory_of(table).objects


# --- bounds -------------------------------------------------------------------------------------------------------


def version(table: Table, *actions: Any) -> bytes:
    """That says that it is this table's."""
    mark = {"commitInfo": {"dbio_commit": {"table_id": table.snapshot().table_id, "tid": "1"}}}
    return "".join(json.dumps(action) + "\n" for action in (mark, *actions)).encode()


def additions(count: int, length: int = 10) -> list[dict[str, Any]]:
    return [{"add": {"path": f"{number:0{length}d}"}} for number in range(count)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that tests reach."""
    for module in (bounds, delta_replay, delta_log_module):
        monkeypatch.setattr(module, "MOST_BYTES_TOGETHER", 40_000)
    monkeypatch.setattr(bounds, "MOST_PATHS_BYTES", 30_000)
    for module in (bounds, reading, delta_log_module, delta_module, symlink):
        monkeypatch.setattr(module, "MOST_BYTES", 20_000)
    for module in (bounds, reading, delta_log_module):
        monkeypatch.setattr(module, "MOST_LINE_BYTES", 8_000, raising=False)
    for module in (delta_log_module, symlink):
        monkeypatch.setattr(module, "MOST_PATHS_BYTES", 30_000)


HOSTILE: dict[str, tuple[str, Callable[[Table], bytes]]] = {
    "many paths": (version_path(0), lambda table: version(table, *additions(300))),
    "a long line": (version_path(0), lambda table: version(table, {"x": "a" * 9_000})),
    "zeros": (version_path(0), lambda table: bytes(9_000)),
    "a large version": (version_path(0), lambda table: version(table) + b"{}\n" * 10_000),
    "a long path": (version_path(0), lambda table: version(table, {"add": {"path": "a" * 4097}})),
    "a path outside": (version_path(0), lambda table: version(table, {"remove": {"path": "..%2Fother/x"}})),
    "an absolute path": (version_path(0), lambda table: version(table, {"add": {"path": "/x"}})),
    "a large list": ("_spark_metadata/9.compact", lambda table: b"v1" + b'\n{"path":"a"}' * 3000),
    "a list of many paths": (
        "_spark_metadata/9.compact",
        lambda table: b"v1" + b"".join(b'\n{"path":"s3a://lake/table/%d"}' % i for i in range(400)),
    ),
    "a list with a path outside": ("_spark_metadata/9.compact", lambda table: b'v1\n{"path":"s3a://lake/table/../x"}'),
    "a list without lines": ("_spark_metadata/9.compact", lambda table: b"v1\n" + bytes(9_000)),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_more_than_a_publisher_writes_is_refused_with_the_object_and_the_next_step(
    what: str, table: Table
) -> None:
    commit(table)
    path, make = HOSTILE[what]
    memory_of(table).put(path, make(table))
    to = next(it for it, directory in DIRECTORIES.items() if path.startswith(directory))
    with pytest.raises(CorruptMarkerError, match=f"s3://lake/table/{path}"):
        table.publish(to)
    (problem,) = table.check().publications
    assert path in problem
    assert len(problem) < 1000


@pytest.mark.usefixtures("small")
def test_versions_that_are_too_large_together_are_refused_before_any_is_read(table: Table) -> None:
    commit(table)
    for number in range(3):
        memory_of(table).put(version_path(number), version(table) + b"{}\n" * 6_000)
    with calls_to(memory_of(table)) as calls, pytest.raises(CorruptMarkerError, match="40000 are read at most"):
        table.publish("delta")
    assert not [path for _, path in calls if path.startswith("_delta_log/")]


@pytest.mark.usefixtures("small")
def test_versions_whose_paths_are_too_many_together_are_refused(table: Table) -> None:
    commit(table)
    for number in range(4):
        actions = [{"add": {"path": f"{number}-{i}"}} for i in range(100)]
        memory_of(table).put(version_path(number), version(table, *actions))
    with pytest.raises(CorruptMarkerError, match="_delta_log has more than any publisher writes"):
        table.publish("delta")


@pytest.mark.usefixtures("small")
def test_what_versions_remove_again_counts_no_more(table: Table) -> None:
    commit(table)
    for number in range(10):
        actions = [{"add": {"path": f"{number}-{i}"}} for i in range(50)]
        actions += [{"remove": {"path": f"{number - 1}-{i}"}} for i in range(50)]
        memory_of(table).put(version_path(number), version(table, *actions))
    assert table.publish("delta")[0].removed == 50


def test_an_object_that_grows_whenever_it_is_read_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    published(table)
    monkeypatch.setattr(DeltaShown, "unseen", lambda self, tids: None)  # so that the whole log is read
    forget()
    store = memory_of(table)

    def grow(operation: str, path: str) -> None:
        if operation == "get" and path == version_path(0):
            store.put(path, store.objects[path][0] + b"{}\n" * 1000)

    store.before = grow
    with pytest.raises(ObjectNotFoundError, match=r"0000\.json was replaced since it was listed"):
        table.publish("delta")


@pytest.mark.usefixtures("small")
def test_manifests_that_are_too_large_together_are_refused(table: Table) -> None:
    commit(table)
    for day in range(3):
        memory_of(table).put(f"_symlink_format_manifest/day={day}/manifest", b"x" * 9_000)
    with pytest.raises(CorruptMarkerError, match="_symlink_format_manifest has 27000 bytes"):
        table.publish("symlink")
    assert "27000 bytes" in table.check().publications[0]


@pytest.mark.usefixtures("small")
def test_manifests_of_many_lines_are_refused_before_these_are_split(table: Table) -> None:
    commit(table)
    memory_of(table).put("_symlink_format_manifest/manifest", b"\n" * 9_000)
    with pytest.raises(CorruptMarkerError, match="_symlink_format_manifest has more than any publisher writes"):
        table.publish("symlink")


def test_a_manifest_of_any_size_is_looked_at_for_its_first_line_only(table: Table) -> None:
    published(table, to="symlink")
    memory_of(table).put("_symlink_format_manifest/manifest", b"s3://elsewhere/" + b"x" * 1_000_000)
    with calls_to(memory_of(table)) as calls:
        (problem,) = table.check().publications
    assert "names 's3://elsewhere/xxx" in problem
    assert len(problem) < 1000
    assert [path for operation, path in calls if "manifest" in path and operation == "get"] == [
        "_symlink_format_manifest/manifest"
    ]


# --- and who writes keeps to them ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_a_version_that_would_be_too_large_goes_without_statistics_else_it_is_refused(table: Table) -> None:
    transaction = table.begin()
    for _ in range(85):
        stage(table, transaction)
    transaction.commit(columns("id"))
    table.publish("delta")
    body = memory_of(table).objects[version_path(0)][0]
    assert 15_000 < len(body) <= 20_000
    assert b'"stats"' not in body
    transaction = table.begin()
    for _ in range(120):
        stage(table, transaction)
    transaction.commit(columns("id"))
    with pytest.raises(InvalidInputError, match="compact the table"):
        table.publish("delta")
    assert log_of(table) == {version_path(0)}


@pytest.mark.usefixtures("small")
def test_columns_that_nobody_would_read_back_are_refused(table: Table) -> None:
    transaction = table.begin()
    stage(table, transaction)
    transaction.commit(columns(*(f"column_{number}" for number in range(200))))
    with pytest.raises(InvalidInputError, match="with fewer columns"):
        table.publish("delta")
    assert not log_of(table)


@pytest.mark.usefixtures("small")
def test_before_versions_are_too_many_bytes_together_there_is_a_checkpoint(table: Table) -> None:
    for _ in range(6):
        transaction = table.begin("overwrite")
        for _ in range(25):
            stage(table, transaction)
        transaction.commit(columns("id"))
        table.publish("delta")
        forget()
    assert DeltaListing.of(memory_of(table)._entries("_delta_log/"), root=table.url).checkpoints
    assert table.check().ok


# --- checkpoints of a Delta log -----------------------------------------------------------------------------------


def parquet(table_id: str, paths: list[str | None], *, identified: int = 1) -> bytes:
    """A checkpoint that adds these paths, and says so many times whose it is."""
    rows: list[dict[str, Any]] = [{"add": {"path": path}} for path in paths]
    meta = {"id": table_id, "schemaString": "{}", "partitionColumns": ["a", "b", "a"]}
    rows += [{"metaData": meta}] * identified
    rows += [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
    names = pa.list_(pa.string())
    kinds = {
        "add": pa.struct([("path", pa.string())]),
        "metaData": pa.struct([("id", pa.string()), ("schemaString", pa.string()), ("partitionColumns", names)]),
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
    }
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), body, compression="zstd", row_group_size=40_000)
    return body.getvalue()


def test_a_checkpoint_of_several_row_groups_and_dictionaries_is_read_whole() -> None:
    paths: list[str | None] = [f"part-{number % 60_000}%2B.parquet" for number in range(100_000)]
    state = delta_checkpoint.decode_checkpoint(parquet("t", paths), where="c")
    assert state.paths == {f"part-{number}+.parquet" for number in range(60_000)}
    assert state.metadata == {"id": "t", "schemaString": "{}", "partitionColumns": ["a", "b", "a"]}
    assert state.protocol == {"minReaderVersion": 1, "minWriterVersion": 2}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "no checkpoint"),
        (parquet("t", ["a"], identified=0), "no checkpoint"),
        (parquet("t", ["a"], identified=2), "several records"),
        (parquet("t", ["../x"]), "which is not inside the table"),
        (parquet("t", ["a"] * 200_000), "more than any publisher writes"),
        (parquet("t", [None] * 200_000), "more than any publisher writes"),
        (parquet("t", ["x" * 3_000_000]), "more than any publisher writes"),
        (parquet("t", ["a"])[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1", "its footer has more than"),
        (parquet("t", ["a"])[:-40] + parquet("t", ["a"])[-8:], "no checkpoint"),
    ],
    ids=["empty", "nobody's", "twice", "outside", "equal rows", "rows of nothing", "a long text", "footer", "cut"],
)
def test_a_checkpoint_that_is_none_or_unpacks_to_too_much_is_refused(body: bytes, what: str) -> None:
    with pytest.raises(CorruptMarkerError, match=f"^_delta_log/c .*{what}|names the path"):
        delta_checkpoint.decode_checkpoint(body, where="_delta_log/c")


def test_a_checkpoint_whose_footer_contradicts_itself_does_not_end_the_process() -> None:
    """As it does where pyarrow is asked for a column of a row group: `path` is no optional column any more."""
    body = parquet("t", ["a"])
    contradictory = body.replace(b"\x25\x02\x18\x04path", b"\x25\x06\x18\x04path")
    assert contradictory != body
    with suppress(CorruptMarkerError):  # pyarrow 19 and later see it: they compare it with the sizes of pages
        delta_checkpoint.decode_checkpoint(contradictory, where="c")


@pytest.mark.parametrize("statistics", [None, '{"numRecords":1}'])
@pytest.mark.parametrize(
    "name", ["{}.parquet", "day=2026-11-20/part-{:05d}-tid-3764747161343079266-6def5b7b-{}-c000.parquet"]
)
def test_what_the_package_packs_of_many_files_stays_far_below_the_bound(name: str, statistics: str | None) -> None:
    """The shortest names pack best."""
    paths = [name.format(number, number) for number in range(50_000)]
    files = [delta_log_module.DeltaFile(path, 1000, 1763634000000, {}, statistics) for path in paths]
    metadata = {"id": "t", "schemaString": "", "partitionColumns": [], "format": {}, "configuration": {}}
    writer = delta_checkpoint.CheckpointWriter(metadata=metadata, protocol={"minReaderVersion": 1})
    writer.add(files, {})
    _, body = writer.finish()
    assert delta_checkpoint.decode_checkpoint(body, where="c").paths == set(paths)
    assert DeltaState(frozenset(paths)).memory_bytes < bounds.most_unpacked(len(body)) / 4


# --- vacuum -------------------------------------------------------------------------------------------------------

STRANGER = b'{"commitInfo":{"engineInfo":"delta-rs:1"}}\n{"add":{"path":"x.parquet"}}\n'


def test_vacuum_deletes_nothing_of_a_delta_log_that_another_writer_wrote(table: Table) -> None:
    commit(table)
    store = memory_of(table)
    for number in range(4):
        store.put(version_path(number), STRANGER)
    store.put(checkpoint_path(3), parquet("another", ["x.parquet"]))
    before = log_of(table)
    report = vacuum(table)
    assert log_of(table) == before
    (warning,) = report.warnings
    assert "nothing of _delta_log is deleted: version 3" in warning
    assert "delta-rs:1" in warning


def test_vacuum_deletes_nothing_of_a_delta_log_of_the_table_that_was_here_before(table: Table) -> None:
    published(table, versions=12)
    log = {path: memory_of(table).objects[path] for path in log_of(table)}
    assert checkpoint_path(10) in log
    table.drop(everything=True)
    commit(table)
    memory_of(table).objects.update(log)
    assert "is of the table" in vacuum(table).warnings[0]
    assert log_of(table) == log.keys()


def test_vacuum_deletes_nothing_where_another_has_written_after_us(table: Table) -> None:
    published(table, versions=12)
    memory_of(table).put(version_path(12), STRANGER)
    before = log_of(table)
    assert "version 12" in vacuum(table).warnings[0]
    assert log_of(table) == before


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize(
    "planted", [lambda table_id: b"", lambda table_id: b"PAR1", lambda table_id: parquet("another", ["a"])],
    ids=["empty", "no Parquet", "another's"],
)  # fmt: skip
def test_a_checkpoint_that_somebody_planted_makes_vacuum_delete_nothing(
    planted: Callable[[str], bytes], remembered: bool, table: Table
) -> None:
    published(table, versions=3)
    memory_of(table).put(checkpoint_path(2), planted(table.snapshot().table_id or ""))
    before = log_of(table)
    if not remembered:
        forget()
    (warning,) = vacuum(table).warnings
    assert "0002.checkpoint.parquet" in warning
    assert log_of(table) == before


def test_a_checkpoint_without_its_version_makes_vacuum_delete_nothing(table: Table) -> None:
    published(table, versions=12)
    del memory_of(table).objects[version_path(10)]
    before = log_of(table)
    assert "is missing" in vacuum(table).warnings[0]
    assert log_of(table) == before


def test_an_older_checkpoint_that_cannot_be_read_makes_vacuum_delete_nothing_though_the_last_one_can(
    table: Table,
) -> None:
    published(table, versions=11)
    memory_of(table).put(checkpoint_path(10), b"PAR1")
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(days=5))
    forget_not = log_of(table)
    published(table, versions=1)
    report = vacuum_table(table, VacuumOptions(), control=Control())
    assert "0010.checkpoint.parquet" in report.warnings[0]
    assert forget_not <= log_of(table)


def test_vacuum_reads_nothing_of_a_log_of_which_nothing_is_superseded(table: Table) -> None:
    published(table, versions=5)
    forget()
    with calls_to(memory_of(table)) as calls:
        vacuum(table)
    assert [operation for operation, path in calls if path.startswith("_delta_log/")] == []


def test_vacuum_of_a_table_that_is_published_reads_one_checkpoint_and_its_version(table: Table) -> None:
    published(table, versions=12)
    table.set({"publish": "delta"})
    with calls_to(memory_of(table)) as calls:
        report = vacuum(table)
    own = [(operation, path) for operation, path in calls if path.startswith("_delta_log/")]
    assert [it for it in own if it[0] != "delete"] == [("get", version_path(10)), ("get", checkpoint_path(10))]
    assert len([it for it in own if it[0] == "delete"]) == 10
    assert report.warnings == []


# --- drop ---------------------------------------------------------------------------------------------------------

OTHERS = {
    "_delta_log/notes.txt": b"not ours",
    "_delta_log/_sidecars/a.parquet": b"PAR1",
    version_path(5): STRANGER,
    version_path(6): b"",
    version_path(7): b"{",
    checkpoint_path(5): parquet("another", ["x"]),
    checkpoint_path(99): b"",
    "_delta_log/00000000000000000005.crc": b"{}",
    "_delta_log/_last_checkpoint": b'{"version":5}',
    "_spark_metadata/0": b"v1\n",
    "_spark_metadata/29.compact": b'v1\n{"path":"s3a://lake/table/x","modificationTime":1763634000000}',
    "_spark_metadata/39.compact": b"v1",
    "_spark_metadata/.9.compact.crc": b"crc",
    "_symlink_format_manifest/notes": b"",
    "_symlink_format_manifest/.dbio-00000000000000000099": b"not empty",
}


def test_a_drop_leaves_and_names_what_others_put_beside_publications(table: Table) -> None:
    published(table, versions=2, to=FORMATS)
    own = {path for directory in DIRECTORIES.values() for path in log_of(table, directory)}
    for path, body in OTHERS.items():
        memory_of(table).put(path, body)
    assert table.drop(everything=True).left == tuple(sorted(OTHERS))
    assert memory_of(table).objects.keys() == OTHERS.keys()
    assert own


def test_a_drop_leaves_a_delta_log_of_another_table_of_ours_and_manifests_that_nobody_claimed(table: Table) -> None:
    published(table, versions=12, to=["delta", "symlink"])
    kept = {path: content for path, content in memory_of(table).objects.items() if path.startswith("_delta_log/")}
    kept |= {path: content for path, content in memory_of(table).objects.items() if path.endswith("/manifest")}
    table.drop(everything=True)
    assert not memory_of(table).objects
    commit(table)
    memory_of(table).objects.update(kept)
    assert table.drop(everything=True).left == tuple(sorted(kept))
    assert memory_of(table).objects.keys() == kept.keys()


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_a_drop_that_was_killed_at_any_call_leaves_nothing_of_ours_to_the_next(stride: int) -> None:
    def prepared() -> Table:
        forget()
        probe_module._PROBED.clear()
        clock = ManualClock()
        fresh = Table.over(MemoryStore(clock, url="s3://lake/table"), clock)
        published(fresh, versions=11, to=FORMATS)
        return fresh

    call = 0
    while True:
        it = prepared()
        Killer(memory_of(it), call, after=False)
        try:
            it.drop(everything=True)
        except Killed:
            pass
        else:
            break
        heal(memory_of(it))
        try:
            assert it.drop(everything=True).left == ()
        except DbioError:
            assert not [path for path in memory_of(it).objects if path.startswith("_d")]
        assert not memory_of(it).objects
        call += stride
    assert call > 30


def test_a_name_is_looked_at_as_text_where_it_is_left(table: Table) -> None:
    commit(table)
    path = f"_delta_log/{'9' * 20}.checkpoint.parquet"
    memory_of(table).put(path, b"")
    assert places.is_published(path)
    assert table.drop(everything=True).left == (path,)
