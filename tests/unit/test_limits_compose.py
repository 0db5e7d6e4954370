"""No sequence of valid writes makes a table that one of these operations refuses: snapshot, read, vacuum, checkpoint,
check, drop.

Two things show that. A table below lists each refusal by a bound in the code, and why valid writes never reach it; a
new one fails a test until it is listed. And sequences of valid writes go past each bound, most of them made small.
Rules: PROTOCOL.md 7.5, 8.1, 9.7.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode as encode_text

import dbio_commit
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log import listing
from dbio_commit.log.parts import parquet
from dbio_commit.maintenance.vacuum import directory_plan
from dbio_commit.maintenance.vacuum import table as table_vacuum
from dbio_commit.protocol import checkpoint as checkpoint_module
from dbio_commit.protocol import names, settings, versions
from dbio_commit.protocol.checkpoint import MAX_UNPACKED_BYTES, Checkpoint, encode_checkpoint, encode_root
from dbio_commit.protocol.markers.bodies import MAX_BYTES, encode
from dbio_commit.protocol.markers.commit import encode_commit
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.markers.provenance import MOST_LABEL_NAME, MOST_LABELS, MOST_MESSAGE, MOST_TEXT
from dbio_commit.protocol.markers.purge import Purge
from dbio_commit.protocol.markers.schema import MOST_NESTED, MOST_NESTED_READ, MOST_SCHEMA_BYTES
from dbio_commit.protocol.names import Kind
from dbio_commit.store.fsspec_store import FsspecStore
from dbio_commit.store.local import LocalStore
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns, marker
from tests.unit.remembering import memory  # noqa: F401  (a fixture)
from tests.writers import live, stage, write
from vacuum import VacuumOptions, vacuum_table

# --- each refusal by a bound --------------------------------------------------------------------------------------

SAME = "writers refuse to write what is larger, by the same constant"
FIRST = "only a writer refuses, before it writes anything"
NEVER = "no sequence of writes reaches the number"
ARGUMENT = "a bound on what a caller asks for"
TIME = "a bound on the age of a transaction, which its writer keeps"

REFUSALS: Mapping[str, str] = {
    "commit/directory_root.commit: MAX_LIFE_S": TIME,
    "commit/joint.home_for: MOST_TABLES": ARGUMENT,
    "commit/root.check_life: MAX_LIFE_S": TIME,
    "commit/provenance.check_note: MOST_LABELS": FIRST,
    "commit/provenance.check_note: MOST_LABEL_NAME MOST_TEXT": FIRST,
    "commit/provenance.check_note: MOST_MESSAGE": FIRST,
    "commit/turns.take_turn: PUT_ATTEMPTS": "a bound on attempts of one request; only a writer gives up",
    "commit/write/options.__post_init__: _LARGEST_FILE": "an option of one write, refused before anything is written",
    "log/listing.read_checkpoint: _MOST_STRANGE": (
        "each needs a process that sleeps from before a drop until after the next creation, with another number"
    ),
    "log/listing._refuse_lost: _MOST_STRANGE": "as for strange checkpoints",
    "log/listing.read_numbered_checkpoint: LAST_NUMBER": NEVER,
    "log/listing.read_last_turn: LAST_NUMBER": NEVER,
    "log/listing.read_marker: MAX_BYTES": SAME,
    "log/parts/parquet._check_chunks: _ENCODINGS _PLAIN": "no bound: writers write these encodings",
    "log/parts/parquet._check_chunks: _MOST_UNPACKED _RATIO": "writers split row groups at less, GROUP_BYTES",
    "log/parts/parquet._check_chunks: _MOST_VALUES": "writers split row groups at less, GROUP_BYTES",
    "log/parts/parquet._open_footer: MOST_ROWS": "writers split row groups at less, GROUP_ROWS",
    "log/parts/parquet._open_footer: _MOST_VALUES": "writers split row groups at less, GROUP_BYTES",
    "log/parts/rows.check_rows: _CLOCKS": "the years to which every body keeps, and a part has the times of bodies",
    "protocol/checkpoint._unpack_pieces: _PIECE_BYTES": "no bound: it finds bytes after the end",
    "protocol/expressions._tokens: MAX_CHARACTERS": FIRST,
    "protocol/expressions.read: MAX_SIZE": FIRST,
    "protocol/expressions._enter: MAX_DEPTH": FIRST,
    "protocol/expressions._argument: MAX_LAMBDAS": FIRST,
    "protocol/markers/bodies.decode_body: MAX_BYTES": SAME,
    "protocol/markers/commit.encode_home: MAX_BYTES": SAME,
    "protocol/markers/schema.pack_schema: MOST_NESTED": FIRST,
    "protocol/markers/schema.refuse_large: MOST_SCHEMA_BYTES": FIRST,
    "protocol/markers/schema.check_schema: MOST_NESTED_READ": "more than MOST_NESTED, to which writers keep",
    "protocol/names.format_tid: _MAX_MILLIS": NEVER,
    "protocol/names.check_partition_columns: _MAX_NAME": FIRST,
    "protocol/settings.layout_text: MAX_TEXT": FIRST,
    "protocol/settings._check_change: MAX_NAME": FIRST,
    "protocol/settings._cluster_by: MOST_CLUSTER_COLUMNS": FIRST,
    "protocol/settings.check_recorded: MAX_NAME MAX_TEXT": SAME,
    "protocol/settings.check_recorded: MOST": SAME,
    "protocol/versions.refuse_new_id: MOST_ID_BYTES": FIRST,
    "maintenance/vacuum/report.check: LEAST_RETENTION_HOURS": ARGUMENT,
    "maintenance/vacuum/report.check: MOST_HOURS": ARGUMENT,
    "maintenance/vacuum/report.check: HISTORY_DAYS MOST_HOURS": ARGUMENT,
}
"""By where it is and the constants of its condition: why no valid sequence of writes makes a reader refuse by it."""

ROOMS = ("protocol", "log", "commit", "store", "maintenance/vacuum", "maintenance/check.py", "maintenance/drop.py")
PACKAGE = Path(dbio_commit.__file__).parent


def found_refusals() -> Iterator[str]:
    """Where the code raises an error if something is larger or smaller than a constant."""
    for path in sorted(PACKAGE.rglob("*.py")):
        within = path.relative_to(PACKAGE).as_posix()
        if not within.startswith(ROOMS):
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for test in refusing_conditions(function):
                    if constants := sorted(constants_in(test)):
                        yield f"{within.removesuffix('.py')}.{function.name}: {' '.join(constants)}"


def refusing_conditions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.If) and any(isinstance(it, ast.Raise) for line in node.body for it in ast.walk(line)):
            yield node.test


def constants_in(test: ast.expr) -> set[str]:
    orders = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)
    compares = any(isinstance(op, orders) for it in ast.walk(test) if isinstance(it, ast.Compare) for op in it.ops)
    calls = {it.func.id for it in ast.walk(test) if isinstance(it, ast.Call) and isinstance(it.func, ast.Name)}
    if not compares and "_is_nested_deeper" not in calls:
        return set()
    named = {it.id for it in ast.walk(test) if isinstance(it, ast.Name)}
    named |= {it.attr for it in ast.walk(test) if isinstance(it, ast.Attribute)}
    return {it for it in named if it.isupper() and len(it) > 2}


def test_each_refusal_by_a_bound_is_listed_with_the_reason_why_valid_writes_never_reach_it() -> None:
    """A new one needs a line in REFUSALS. If readers refuse by it, it needs a sequence below that goes up to it."""
    assert {*found_refusals()} == REFUSALS.keys()


def test_the_bounds_of_writers_are_within_those_of_readers() -> None:
    assert MOST_NESTED < MOST_NESTED_READ
    for write_body in (encode_commit, encode_checkpoint, encode_root):
        assert defaults(write_body)["limit_bytes"] == MAX_BYTES
    assert TableRoot.refer_above <= MAX_BYTES
    stores: list[Any] = [MemoryStore, LocalStore, *FsspecStore.__subclasses__()]
    for store in stores:
        assert defaults(store.get)["limit_bytes"] == MAX_BYTES  # a reader gets all that a writer may have put
    assert MAX_BYTES <= listing.STATISTICS_BYTES  # so that a part of `in_parts` keeps its statistics, whatever it is
    assert MAX_BYTES <= listing._AT_ONCE_BYTES
    assert max(parquet.GROUP_ROWS, parquet.STATISTICS_ROWS) <= parquet.MOST_ROWS
    assert 2 * parquet.GROUP_BYTES <= parquet._MOST_UNPACKED  # lengths of texts and levels of lists come on top
    assert parquet.GROUP_BYTES <= parquet._MOST_VALUES
    longest = len(f'"{names.committed("9" * names._MAX_NAME)}",')
    assert directory_plan.MOST_QUEUED * longest < MAX_BYTES


def test_all_that_the_first_line_of_a_root_must_have_fits_into_one_object_without_being_packed() -> None:
    """The other things in it are parts, of which it leaves out lists and those that were dropped."""
    longest = (1 << 63) - 1
    most_of_a_character = len(encode_text("\0")) - 2
    texts = settings.MOST * ((settings.MAX_NAME + settings.MAX_TEXT) * most_of_a_character + len('"":"",'))
    ranges = versions.MOST_RANGES_IN_ALL * len(encode_text([[longest, longest]]))
    together = versions.MOST_ID_BYTES + ranges + MOST_SCHEMA_BYTES + texts
    assert together < MAX_BYTES - 8 * 1024**2
    assert names._MAX_PATH < parquet.DIRECTORIES_BYTES < MAX_BYTES // 1000


def defaults(function: Callable[..., object]) -> dict[str, object]:
    found: dict[str, object] = getattr(function, "__kwdefaults__", None) or {}
    return found


# --- sequences of valid writes ------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch
KNOWN = {"id": Bounds(1, 2, 0), "name": Bounds("a" * 30, "b" * 30, 0)}


def shrink(patch: Patch, most: int) -> None:
    """As if no object of the log could have more bytes than this; the other bounds in proportion."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("dbio_commit") and getattr(module, "MAX_BYTES", None) == MAX_BYTES:
            patch.setattr(module, "MAX_BYTES", most)
    for function in (encode_commit, encode_checkpoint, encode_root, MemoryStore.get):
        for option, value in [*defaults(function).items()]:
            if value == MAX_BYTES:
                patch.setitem(defaults(function), option, most)
    patch.setattr(TableRoot, "refer_above", most)
    patch.setattr(directory_plan, "MOST_QUEUED", 5)
    patch.setattr(listing, "STATISTICS_BYTES", most * (listing.STATISTICS_BYTES // MAX_BYTES))
    patch.setattr(listing, "_AT_ONCE_BYTES", most * (listing._AT_ONCE_BYTES // MAX_BYTES))
    patch.setattr(checkpoint_module, "MAX_UNPACKED_BYTES", most * (MAX_UNPACKED_BYTES // MAX_BYTES))
    patch.setattr(versions, "MOST_ID_BYTES", most * versions.MOST_ID_BYTES // MAX_BYTES)
    patch.setattr(versions, "MOST_RANGES_IN_ALL", max(most * versions.MOST_RANGES_IN_ALL // MAX_BYTES, 1))


def markers(table: Table) -> list[int]:
    """The sizes of the commit markers."""
    return [len(body) for path, (body, _) in objects(table).items() if path.startswith(Kind.COMMITTED)]


def objects(table: Table) -> dict[str, tuple[bytes, object]]:
    assert isinstance(table.store, MemoryStore)
    return dict(table.store.objects)


def fits_into_one_body(table: Table, most: int) -> bool:
    """Whether a checkpoint of version 1 could hold the table."""
    seen = table.snapshot()
    whole = Checkpoint(1, commits=seen.decided, apps=seen.app_versions, metadata=seen.metadata)
    try:
        return len(encode_checkpoint(whole, created=table.clock.now())) <= most
    except InvalidInputError:
        return False


def many_markers(table: Table, patch: Patch) -> None:
    """More bytes of uncovered markers than statistics are kept of, and no writer that makes a checkpoint."""
    patch.setattr(listing, "STATISTICS_BYTES", 20_000)
    patch.setattr(listing, "_AT_ONCE_BYTES", 5_000)
    for _ in range(40):
        write(table, bodies=[b"rows"] * 5, statistics=KNOWN)
        table.clock.sleep(20)
    assert sum(markers(table)) > 2 * 20_000


def wide_markers_in_one_second(table: Table, patch: Patch) -> None:
    """Markers of the same time are in one part if they fit. These do not."""
    patch.setattr(listing, "STATISTICS_BYTES", 5_000)
    for _ in range(20):
        write(table, bodies=[b"rows"] * 5, statistics=KNOWN)


def overwrites(table: Table, patch: Patch) -> None:
    patch.setattr(listing, "STATISTICS_BYTES", 10_000)
    for _ in range(15):
        write(table, bodies=[b"rows"] * 4, statistics=KNOWN)
        write(table, "overwrite", bodies=[b"rows"] * 2, statistics=KNOWN)
        table.clock.sleep(1)


def at_the_limit(table: Table, patch: Patch, commit: Callable[[Table], object], *, more: int = 0) -> int:
    """Makes the bound of a marker as large as the marker of this commit, and `more`, and commits. Returns the bound."""
    clock = ManualClock()
    twin = Table.over(MemoryStore(clock), clock)
    write(twin)
    commit(twin)
    most = max(markers(twin)) + more
    write(table)
    shrink(patch, most)
    commit(table)
    return most


def largest_marker_with_statistics(table: Table, patch: Patch) -> None:
    most = at_the_limit(table, patch, lambda it: write(it, bodies=[b"rows"] * 50, statistics=KNOWN))
    assert max(markers(table)) == most


def marker_that_loses_its_statistics(table: Table, patch: Patch) -> None:
    most = at_the_limit(table, patch, lambda it: write(it, bodies=[b"rows"] * 50, statistics=KNOWN), more=-1)
    assert max(markers(table)) < most


def largest_marker_without_statistics(table: Table, patch: Patch) -> None:
    most = at_the_limit(table, patch, lambda it: write(it, bodies=[b"rows"] * 50))
    assert max(markers(table)) == most


def many_largest_markers(table: Table, patch: Patch) -> None:
    """Together they are more than any bound on what is kept, and on what is read at a time."""
    at_the_limit(table, patch, lambda it: write(it, bodies=[b"rows"] * 20, statistics=KNOWN))
    for _ in range(12):
        write(table, bodies=[b"rows"] * 20, statistics=KNOWN)
        table.clock.sleep(20)
    assert sum(markers(table)) > 2 * listing.STATISTICS_BYTES


def overwrite_of_more_paths_than_a_marker_holds(table: Table, patch: Patch) -> None:
    at_the_limit(table, patch, lambda it: write(it, bodies=[b"rows"] * 20), more=50)
    for _ in range(5):
        write(table, bodies=[b"rows"] * 20)
    write(table, "overwrite", bodies=[b"rows"])


def many_files(table: Table, patch: Patch) -> None:
    """More names than fit into one object."""
    most = at_the_limit(table, patch, lambda it: write(it, bodies=[b"rows"] * 10), more=8000)
    for _ in range(120):
        write(table, bodies=[b"rows"] * 10)
        table.clock.sleep(20)
    assert not fits_into_one_body(table, most)


def longest_paths(table: Table, patch: Patch) -> None:
    """As long as paths may be. Their directories are the same, so a checkpoint packs them very well."""
    by = [f"p{number}" for number in range(12)]
    for _ in range(10):
        transaction = table.begin(partition_by=by)
        for _ in range(60):
            stage(table, transaction, partition=dict.fromkeys(by, "v" * 325))
        transaction.commit()
    longest = max(len(path) for path in objects(table))
    assert names._MAX_PATH - 50 < longest <= names._MAX_PATH


def nested(levels: int) -> dict[str, object]:
    """A schema with so many levels of JSON."""
    kind: object = "long"
    for _ in range((levels - 4) // 2):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    return {"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]}


def longest_notes(table: Table, patch: Patch) -> None:
    """Each has a message and labels of its own, as long as they may be, of characters that JSON writes as two."""

    def say(it: Table, number: int) -> None:
        each = f"{number:04}"
        labels = {
            f"{label}{each}".ljust(MOST_LABEL_NAME, '"'): each.ljust(MOST_TEXT, "\\") for label in range(MOST_LABELS)
        }
        with it.begin(message=each.ljust(MOST_MESSAGE, '"'), labels=labels) as transaction:
            stage(it, transaction)
        it.clock.sleep(20)

    most = at_the_limit(table, patch, lambda it: say(it, 0), more=8000)
    for number in range(1, 60):
        say(table, number)
    assert max(markers(table)) > MOST_MESSAGE + MOST_LABELS * (MOST_LABEL_NAME + MOST_TEXT)
    assert not fits_into_one_body(table, most // 8)


def deepest_schema(table: Table, patch: Patch) -> None:
    write(table, schema=nested(MOST_NESTED))


def many_schemas(table: Table, patch: Patch) -> None:
    """Each has other columns; together they are larger than an object may be."""

    def write_columns(it: Table, number: int) -> None:
        named = [sha256(bytes([number, column])).hexdigest() for column in range(10)]
        write(it, "overwrite", schema=columns(*named))
        it.clock.sleep(20)

    most = at_the_limit(table, patch, lambda it: write_columns(it, 0), more=8000)
    for number in range(1, 60):
        write_columns(table, number)
    assert not fits_into_one_body(table, most)


def most_settings(table: Table, patch: Patch) -> None:
    write(table, schema=columns("id"))
    sql = " OR ".join(["id > 0"] * 20)
    table.set({f"check.{number:094}": sql for number in range(settings.MOST)})
    assert len(table.settings()) == settings.MOST


def most_applications(table: Table, patch: Patch) -> None:
    for number in range(40):
        write(table, app=(f"{number:01000}", 1))


def applications_that_a_header_does_not_hold(table: Table, patch: Patch) -> None:
    """A new one is refused, and those that are there go on."""
    at_the_limit(table, patch, lambda it: write(it, app=(f"{0:01000}", 1)), more=20_000)
    for number in range(1, versions.MOST_ID_BYTES // 2200):
        write(table, app=(f"{number:01000}", 1))
    assert len(table.snapshot().app_versions) > 2
    with pytest.raises(InvalidInputError, match="Use one id for each job"):
        write(table, app=(f"{999:01000}", 1))
    write(table, app=(f"{0:01000}", 2))


def ranges_that_a_header_does_not_hold(table: Table, patch: Patch) -> None:
    patch.setattr(versions, "MOST_RANGES_IN_ALL", 12)
    for version in range(0, 30, 2):
        for id in ("a", "b", "c"):
            write(table, app=(id, version))
            table.clock.sleep(1)
    assert [len(it.ranges) for it in table.snapshot().app_versions.values()] == [4] * 3


def more_versions_than_are_remembered(table: Table, patch: Patch) -> None:
    patch.setattr(versions, "MOST_RANGES", 3)
    for version in range(0, 30, 2):
        write(table, app=("a", version))
    table.checkpoint()
    write(table, app=("a", 100))


def strange_objects(table: Table, patch: Patch) -> None:
    """As processes leave them that slept while the table was dropped and created again."""
    write(table)
    store = table.store
    for number in range(50):
        body = encode(marker([f"part-0-tid-{number:019}-x-0-0.parquet"], table_id="another"))
        assert store.put_if_absent(names.committed(f"{number:019}"), body)
    for number in range(100, 100 + listing._MOST_STRANGE):
        other = Checkpoint(number, table_id="another")
        assert store.put_if_absent(names.checkpoint(number), encode_checkpoint(other, created=table.clock.now()))
        assert store.put_if_absent(names.purge(number), encode(Purge(table_id="another", created=table.clock.now())))


def more_pending_than_a_vacuum_aborts(table: Table, patch: Patch) -> None:
    patch.setattr(table_vacuum, "MOST_ABORTS", 3)
    patch.setattr(table_vacuum, "ABORT_BATCH", 2)
    write(table)
    for _ in range(8):
        stage(table, table.begin())


def vacuumed_again_and_again(table: Table, patch: Patch) -> None:
    patch.setattr(listing, "STATISTICS_BYTES", 10_000)
    for _ in range(6):
        for _ in range(8):
            write(table, "overwrite", bodies=[b"rows"] * 3, statistics=KNOWN)
            table.clock.sleep(3600)
        assert vacuum_table(table, VacuumOptions()).ok
        table.clock.sleep(timedelta(days=2).total_seconds())


Sequence = Callable[[Table, Patch], None]
SEQUENCES: list[Sequence] = [
    many_markers,
    wide_markers_in_one_second,
    overwrites,
    largest_marker_with_statistics,
    marker_that_loses_its_statistics,
    largest_marker_without_statistics,
    many_largest_markers,
    overwrite_of_more_paths_than_a_marker_holds,
    many_files,
    longest_paths,
    longest_notes,
    deepest_schema,
    many_schemas,
    most_settings,
    most_applications,
    applications_that_a_header_does_not_hold,
    ranges_that_a_header_does_not_hold,
    more_versions_than_are_remembered,
    strange_objects,
    more_pending_than_a_vacuum_aborts,
    vacuumed_again_and_again,
]

# --- the operations -----------------------------------------------------------------------------------------------


def snapshot(table: Table, before: set[str]) -> None:
    assert live(table) == before


def read(table: Table, before: set[str]) -> None:
    """What a reader of rows asks for, and a writer."""
    seen = table.snapshot()
    if seen.tid:
        assert {it.path for it in table.snapshot(seen.tid).files} == before
    found = seen.where("id >= 0") if seen.schema and "id" in str(seen.schema) else seen
    assert {it.path for it in found.files} == before
    assert len(table.history()) == len(seen.tids)
    table.begin(partition_by=seen.partition_columns).commit()
    assert live(table) == before


def vacuum(table: Table, before: set[str]) -> None:
    assert not vacuum_table(table, VacuumOptions(), dry_run=True).failed
    for _ in range(3):
        table.clock.sleep(timedelta(days=10).total_seconds())
        report = vacuum_table(table, VacuumOptions())
        assert not report.failed
    assert live(table) == before


def checkpoint(table: Table, before: set[str]) -> None:
    table.begin(partition_by=table.snapshot().partition_columns).commit()  # or there may be nothing new
    assert table.checkpoint()
    assert live(table) == before


def check(table: Table, before: set[str]) -> None:
    report = table.check()
    assert report.live_files == len(before)
    assert not report.corrupt
    assert not report.missing


def drop(table: Table, before: set[str]) -> None:
    table.drop(everything=True)
    assert not objects(table)


Operation = Callable[[Table, set[str]], None]
OPERATIONS: list[Operation] = [snapshot, read, vacuum, checkpoint, check, drop]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda it: it.__name__)
def test_no_sequence_of_valid_writes_makes_a_table_that_an_operation_refuses(
    sequence: Sequence,
    operation: Operation,
    table: Table,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setenv("DBIO_CHECKPOINT_EVERY", "0")  # the worst case: nobody makes checkpoints
    sequence(table, monkeypatch)
    operation(table, live(table))


# --- the directory scope ------------------------------------------------------------------------------------------


@pytest.fixture
def directory(store: MemoryStore, clock: ManualClock) -> Table:
    """A directory without a descriptor, as DBIO writes it, in which every marker has statistics."""
    for number in range(30):
        tid, path = f"{number:019}", f"part-0-tid-{number:019}-x-0-0-c000.parquet"
        store.put(path, b"PAR1 and rows")
        files = pack_files([FileInfo(path=path, size=13, rows=1, statistics=KNOWN)])
        store.put(names.started(tid), b"")
        store.put(names.committed(tid), encode(marker([path], files=files)))
    return Table.over(store, clock)


def test_a_directory_is_read_and_vacuumed_however_large_its_markers_are_together(
    directory: Table, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    before = live(directory)
    assert len(before) == 30
    assert not caplog.records
    shrink(monkeypatch, max(markers(directory)))
    snapshot(directory, before)
    [warning] = [it.getMessage() for it in caplog.records if "not kept in memory" in it.getMessage()]
    assert f"`dbio vacuum {directory.url}` deletes those that no reader needs" in warning
    assert "not kept in memory" in directory.check().unkept_statistics
    check(directory, before)
    vacuum(directory, before)


def test_a_vacuum_of_a_directory_queues_no_more_markers_than_one_object_holds(
    directory: Table, monkeypatch: Patch
) -> None:
    """The next vacuum queues the others."""
    before = live(directory)
    shrink(monkeypatch, max(markers(directory)))
    queues = []
    for _ in range(30):
        directory.clock.sleep(timedelta(days=5).total_seconds())
        report = vacuum_table(directory, VacuumOptions())
        assert not report.failed
        queues.append(len(report.queued))
    assert max(queues) == directory_plan.MOST_QUEUED
    assert not markers(directory)
    assert live(directory) == before
