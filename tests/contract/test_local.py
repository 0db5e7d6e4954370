"""What only a local disk has: temporary files, permissions, links, and a power cut to survive. Rules: PROTOCOL.md 4."""

import errno
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import pytest

from dbio_commit import Table
from dbio_commit.base.errors import CommitStateUnknownError, CorruptMarkerError, StoreError
from dbio_commit.store import Listing, Store, Unfinished, beneath, local, open_store, parse_location
from tests.writers import stage

NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(parse_location(root))


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


# --- durability ---------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[Path]:
    """The files and directories that were fsynced, in order; on a disk of which it is known that it can do so."""
    monkeypatch.setattr(local, "_LOOKED_AT", {str(root)})
    paths: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_a_created_object_is_synced_and_then_its_directory(store: Store, root: Path, synced: list[Path]) -> None:
    root.mkdir()
    assert store.put_if_absent("_marker", b"x") is True
    body, *directories = synced
    assert body.parent == root  # the temporary file that became the object
    assert directories == [root]


def test_directories_that_gained_a_directory_are_synced(store: Store, root: Path, synced: list[Path]) -> None:
    store.put_if_absent("a=1/b=2/_started_1", b"")
    assert set(synced[1:]) == {root / "a=1/b=2", root / "a=1", root, root.parent}


def test_files_are_made_durable_with_all_their_directories(store: Store, root: Path, synced: list[Path]) -> None:
    paths = ["a=1/b=2/part-0", "a=1/b=3/part-1", "part-2"]
    for path in paths:
        with store.open_write(path) as file:
            file.write(b"x")
    synced.clear()
    store.make_durable(paths)
    directories = {root / "a=1/b=2", root / "a=1/b=3", root / "a=1", root, root.parent}
    assert set(synced) == {*(root / path for path in paths), *directories}


def test_the_directory_above_the_root_is_synced_again_only_if_it_has_changed(
    store: Store, root: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_durable() -> int:
        synced.clear()
        store.make_durable(["part-0"])
        return synced.count(root.parent)

    with store.open_write("part-0") as file:
        file.write(b"x")
    assert [make_durable(), make_durable()] == [1, 1], "it changed just now: another change may get the same time"
    monkeypatch.setattr(beneath, "_SAME_TIME_NS", 0)
    assert [make_durable(), make_durable()] == [1, 0]
    root.rename(root.parent / "moved")
    (root.parent / "moved").rename(root)
    assert make_durable() == 1


def test_a_large_file_is_on_its_way_to_the_disk_before_it_is_closed(store: Store, synced: list[Path]) -> None:
    with store.open_write("f") as file:
        for _ in range(3):
            file.write(bytes(9_000_000))
    assert set(synced) == {Path(store.url) / "f"}
    assert store.stat("f").size == 27_000_000


def test_a_disk_that_fails_in_the_background_fails_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    file = store.open_write("f")
    file.write(bytes(9_000_000))
    with pytest.raises(StoreError, match="Input/output error"):
        file.close()


def test_whoever_finds_an_object_there_syncs_its_directory(store: Store, root: Path, synced: list[Path]) -> None:
    """The one who created it may not have come to that, and never will."""
    store.put_if_absent("_committed_1", b"x")
    synced.clear()
    assert store.put_if_absent("_committed_1", b"y") is False
    assert root in synced


def broken_after(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[str]:
    """Directories cannot be synced any more once the path is there. Returns what was tried."""
    fsync, tried = os.fsync, list[str]()

    def fail(descriptor: int) -> None:
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(place) and path.exists():
            tried.append(place)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    return tried


def test_a_commit_that_may_not_survive_a_power_cut_is_not_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(root)
    transaction = table.begin()
    stage(table, transaction)
    tried = broken_after(monkeypatch, root / f"_committed_{transaction.tid}")
    with pytest.raises(CommitStateUnknownError, match="Input/output error"):
        transaction.commit()
    assert tried


def test_a_commit_of_an_earlier_call_is_not_reported_before_it_survives_a_power_cut(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(root)
    transaction = table.begin("overwrite")
    copy = table.resume(transaction.terms)
    transaction.commit()
    broken_after(monkeypatch, root / f"_committed_{transaction.tid}")
    with pytest.raises(StoreError, match="Input/output error"):
        copy.commit()


def test_an_object_that_could_not_be_synced_was_not_created(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match=f"cannot create {root}/_marker: Input/output error; check"):
        store.put_if_absent("_marker", b"x")
    assert everything(root) == []


# --- temporary files ----------------------------------------------------------------------------------------------


def test_no_temporary_files_are_left(store: Store, root: Path) -> None:
    for number in range(3):
        store.put_if_absent("_marker", bytes(number))
    (root / "directory").mkdir()
    assert store.put_if_absent("directory", b"") is False
    assert everything(root) == ["_marker"]


def test_the_temporary_file_of_a_killed_writer_is_in_no_listing(store: Store, root: Path) -> None:
    program = (
        "import os, pickle, signal, sys\n"
        "store = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.put_if_absent('_marker', b'x')"
    )
    child = run(program, pickle.dumps(store).hex())
    assert child.returncode == -9, child.stderr
    assert len(everything(root)) == 1
    assert store.list_log() == store.list_files() == []
    assert store.put_if_absent("_marker", b"y") is True


def test_temporary_files_of_killed_writers_are_unfinished_uploads(store: Store, root: Path, tmp_path: Path) -> None:
    store.put_if_absent("day=1/part-0", b"")
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
    for path, size in {"._dbio-1": 3, "day=1/._dbio-2": 0}.items():
        (root / path).write_bytes(bytes(size))
        os.utime(root / path, (began.timestamp(),) * 2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/._dbio-3").touch()
    (root / "day=2").symlink_to(tmp_path / "elsewhere")
    (root / "._dbio-4").symlink_to(tmp_path / "elsewhere/._dbio-3")
    found = store.list_unfinished()
    assert [(item.path, item.size, item.started) for item in found] == [
        ("._dbio-1", 3, began),
        ("day=1/._dbio-2", 0, began),
    ]
    assert store.list_directory("day=1").entries == store.list_files("day=1")
    behind_link = Unfinished("day=2/._dbio-3", "day=2/._dbio-3", 0, began)
    assert store.abort_unfinished([*found, behind_link]) == {}
    assert store.abort_unfinished(found) == {}
    assert store.list_unfinished() == []
    assert everything(root) == ["._dbio-4", "day=1/part-0"]
    assert everything(tmp_path / "elsewhere") == ["._dbio-3"]


# --- permissions --------------------------------------------------------------------------------------------------


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )


AS_NOBODY = f"""
import os, sys
from dbio_commit.store import open_store, parse_location
store = open_store(parse_location(sys.argv[1]))
import dbio_commit.store.upload, encodings.idna
if os.getuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
def said(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
"""


@pytest.fixture
def readable_root(store: Store, root: Path) -> Iterator[Path]:
    """A table that nobody may write to."""
    for path in ["_marker", "day=1/part-0", "hidden/part-0"]:
        store.put_if_absent(path, b"x")
    locked = [root / "day=1", root]
    for directory in root.parents:
        if "pytest-" in str(directory):  # which pytest makes for its user alone
            directory.chmod(0o755)
    (root / "hidden").chmod(0o000)
    for directory in locked:
        directory.chmod(0o555)
    yield root
    for directory in [*locked, root / "hidden"]:
        directory.chmod(0o755)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("store.put_if_absent('_new', b'')", "_new"),
        ("store.put_if_absent('_marker', b'')", "_marker"),
        ("store.put_if_absent('day=2/_new', b'')", "day=2/_new"),
        ("store.open_write('part-0')", "part-0"),
        ("store.prepare('day=2/part-0')", "day=2/part-0"),
        ("store.get('hidden/part-0')", "hidden/part-0"),
        ("store.stat('hidden/part-0')", "hidden/part-0"),
        ("store.list_files()", "hidden"),
        ("store.make_durable(['hidden/part-0'])", "hidden/part-0"),
    ],
)
def test_what_is_not_permitted_is_access_denied(readable_root: Path, call: str, place: str) -> None:
    child = run(f"{AS_NOBODY}\nprint(said(lambda: {call}))", str(readable_root))
    assert child.stdout.startswith("AccessDeniedError: cannot "), (child.stdout, child.stderr)
    assert f"{readable_root}/{place}: Permission denied; give this user access" in child.stdout
    assert sorted(os.listdir(readable_root)) == ["_marker", "day=1", "hidden"]


def test_what_is_readable_is_read_without_write_permission(readable_root: Path) -> None:
    program = f"{AS_NOBODY}\nprint(said(lambda: (store.get('_marker'), [e.path for e in store.list_files('day=1')])))"
    assert run(program, str(readable_root)).stdout == "(b'x', ['day=1/part-0'])\n"


def test_what_may_not_be_deleted_is_returned_and_the_rest_is_gone(store: Store, readable_root: Path) -> None:
    readable_root.chmod(0o777)
    program = f"{AS_NOBODY}\nprint(said(lambda: store.delete_many(['day=1/part-0', '_marker', 'missing'])))"
    child = run(program, str(readable_root))
    assert child.stdout.startswith("{'day=1/part-0': AccessDeniedError("), (child.stdout, child.stderr)
    assert child.stdout.count("AccessDeniedError") == 1
    assert [entry.path for entry in store.list_files()] == ["day=1/part-0", "hidden/part-0"]


# --- what lies in the way -----------------------------------------------------------------------------------------


def test_a_directory_in_the_place_of_a_file_is_not_deleted(store: Store, root: Path) -> None:
    store.put_if_absent("directory/part-0", b"")
    store.put_if_absent("part-1", b"")
    failures = store.delete_many(["directory", "part-1"])
    assert list(failures) == ["directory"]
    assert type(failures["directory"]) is StoreError
    assert str(root / "directory") in str(failures["directory"])
    assert [entry.path for entry in store.list_files()] == ["directory/part-0"]


def test_a_file_in_the_place_of_the_root_is_an_error_that_says_so(store: Store, root: Path) -> None:
    root.write_bytes(b"")
    assert store.list_log() == []
    with pytest.raises(StoreError, match=f"cannot create {root}/_marker: .*check the path") as failure:
        store.put_if_absent("_marker", b"")
    assert type(failure.value) is StoreError


def test_a_written_object_is_not_written_again(store: Store) -> None:
    with store.open_write("part-0") as file:
        file.write(b"first")
    with pytest.raises(StoreError, match="File exists"):
        store.open_write("part-0")
    assert store.get("part-0") == b"first"


def test_a_disk_without_room_is_a_store_error_and_leaves_no_temporary_file(store: Store, root: Path) -> None:
    program = f"""{AS_NOBODY.partition("if os.getuid()")[0]}
import resource
from dbio_commit import Table
from dbio_commit.base.errors import CommitStateUnknownError, CorruptMarkerError, StoreError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
def write():
    with store.open_write("part-0") as file:
        file.write(bytes(100_000))
for call in [lambda: store.put_if_absent("_marker", bytes(2000)), write]:
    try:
        call()
    except StoreError as error:
        print(error)
"""
    child = run(program, str(root))
    assert child.stdout.splitlines() == [
        f"cannot {action}: File too large; check the path and the disk, then try again"
        for action in [f"create {root}/_marker", f"write {root}/part-0"]
    ], child.stderr
    assert everything(root) == ["part-0"]


def test_readers_follow_links_to_data(store: Store, root: Path, tmp_path: Path) -> None:
    store.put_if_absent("day=1/part-0", b"")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/part-1").write_bytes(b"12")
    (root / "day=2").symlink_to(tmp_path / "elsewhere")
    (root / "part-2").symlink_to(tmp_path / "elsewhere/part-1")
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    (root / "itself").symlink_to(root / "itself")
    assert {entry.path: entry.size for entry in store.list_files()} == {
        "day=1/part-0": 0,
        "day=2/part-1": 2,
        "part-2": 2,
    }
    assert store.get("day=2/part-1") == store.get("part-2") == store.open_read("part-2").read() == b"12"
    assert [entry and entry.size for entry in store.stat_many(["day=2/part-1", "part-2", "dangling"])] == [2, 2, None]


def test_a_walk_comes_to_each_directory_once_wherever_links_lead(store: Store, root: Path) -> None:
    """Two links in each of 40 directories would be 2^40 ways; and those to themselves have no end."""
    for number in range(40):
        (root / f"d{number:02d}").mkdir(parents=True)
        for name in "ab":
            (root / f"d{number:02d}" / name).symlink_to(f"../d{number + 1:02d}")
    (root / "d39/part-0").touch()
    (root / "circle").symlink_to(root)
    (root / "dot").symlink_to(".")
    (root / "a-second-name").symlink_to("d39")
    assert [entry.path for entry in store.list_files()] == ["d39/part-0"]  # under its own path, not a link's


def test_a_hidden_name_that_is_a_link_to_a_directory_is_not_walked(store: Store, root: Path, tmp_path: Path) -> None:
    store.put_if_absent("part-0", b"")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/part-1").touch()
    (root / "_hidden").symlink_to(tmp_path / "outside")
    assert "_hidden/part-1" not in [entry.path for entry in store.list_files()]


NAMES = [b"part-\xff.parquet", b"part\n0.parquet", b"part\t\x1b[1m.parquet", b"\xc3\x28"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_that_a_disk_can_hold_is_listed_read_and_deleted(store: Store, root: Path, name: bytes) -> None:
    directory = os.fsencode(root) + b"/in " + name
    os.makedirs(directory)
    with open(directory + b"/" + name, "wb") as file:
        file.write(b"12")
    path = os.fsdecode(b"in " + name + b"/" + name)
    assert [(entry.path, entry.size) for entry in store.list_files()] == [(path, 2)]
    assert store.list_directory(os.path.dirname(path)).entries == [store.stat(path)]
    assert store.get(path) == b"12"
    store.make_durable([path])
    assert store.delete_many([path]) == {}
    assert store.remove_directories([os.path.dirname(path)]) == [os.path.dirname(path)]


# --- nothing is written or deleted through a link -----------------------------------------------------------------


@pytest.fixture
def victim(store: Store, root: Path, tmp_path: Path) -> Path:
    """Somebody else's directory, to which a partition of the table is a link."""
    store.put_if_absent("_marker", b"")
    (tmp_path / "victim/below").mkdir(parents=True)
    (tmp_path / "victim/part-0").write_bytes(b"mine")
    (root / "day=1").symlink_to(tmp_path / "victim")
    return tmp_path / "victim"


@pytest.mark.parametrize("directory", ["day=1", "day=1/below", "day=1/new"])
@pytest.mark.parametrize(
    "call",
    [
        lambda store, directory: store.put_if_absent(f"{directory}/_started_1", b""),
        lambda store, directory: store.open_write(f"{directory}/part-1"),
        lambda store, directory: store.prepare(f"{directory}/part-1"),
        lambda store, directory: store.make_durable([f"{directory}/part-0"]),
    ],
    ids=["put_if_absent", "open_write", "prepare", "make_durable"],
)
def test_nothing_is_written_through_a_link(
    store: Store, root: Path, victim: Path, call: Callable[[Store, str], object], directory: str
) -> None:
    before = everything(victim)
    with pytest.raises(StoreError, match=f"{root}/day=1 is a symbolic link.*use the path of the directory") as failure:
        call(store, directory)
    assert type(failure.value) is StoreError
    assert everything(victim) == before
    assert not (victim / "new").exists()


def test_nothing_is_deleted_through_a_link_and_nothing_counts_as_deleted(store: Store, victim: Path) -> None:
    failures = store.delete_many(["day=1/part-0", "day=1/below", "day=1/missing", "_marker"])
    assert sorted(failures) == ["day=1/below", "day=1/missing", "day=1/part-0"]
    assert {type(error) for error in failures.values()} == {StoreError}
    assert "symbolic link" in str(failures["day=1/part-0"])
    assert everything(victim) == ["part-0"]


def test_a_link_is_deleted_and_not_what_it_leads_to(store: Store, root: Path, victim: Path) -> None:
    (root / "part-1").symlink_to(victim / "part-0")
    assert store.delete_many(["part-1"]) == {}
    assert not (root / "part-1").is_symlink()
    assert everything(victim) == ["part-0"]


@pytest.mark.parametrize("call", ["os.unlink", "os.rmdir", "os.link", "os.open"])
def test_a_directory_that_becomes_a_link_at_the_last_moment_leads_nowhere(
    store: Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As if somebody had waited for the moment between the look at the directory and the deed."""
    store.put_if_absent("day=1/part-0", b"")
    store.put_if_absent("day=1/empty/x", b"")
    store.delete_many(["day=1/empty/x"])
    (tmp_path / "victim/empty").mkdir(parents=True)
    (tmp_path / "victim/part-0").write_bytes(b"mine")
    before, deed = everything(tmp_path / "victim"), getattr(os, call.removeprefix("os."))

    def swapping(*args: object, **options: object) -> object:
        if not (root / "day=1").is_symlink() and str(args[0]) not in (str(root), "day=1"):
            (root / "day=1").rename(root / "_gone")
            (root / "day=1").symlink_to(tmp_path / "victim")
        return deed(*args, **options)

    monkeypatch.setattr(os, call.removeprefix("os."), swapping)
    match call:
        case "os.unlink":
            store.delete_many(["day=1/part-0"])
        case "os.rmdir":
            store.remove_directories(["day=1/empty"])
        case "os.link":
            store.put_if_absent("day=1/_started_1", b"")
        case "os.open":
            store.open_write("day=1/part-1").close()
    assert (root / "day=1").is_symlink()
    assert everything(tmp_path / "victim") == before
    assert (tmp_path / "victim/empty").is_dir()


def test_a_temporary_file_that_becomes_a_link_is_not_followed(
    store: Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    link = os.link

    def swapping(source: str, target: str, **options: Any) -> None:
        (root / source).unlink()
        (root / source).symlink_to(tmp_path / "secret")
        link(source, target, **options)

    monkeypatch.setattr(os, "link", swapping)
    store.put_if_absent("_marker", b"x")
    assert (tmp_path / "secret").stat().st_nlink == 1
    with pytest.raises(CorruptMarkerError, match="link"):
        store.get("_marker")


# --- what is no regular file --------------------------------------------------------------------------------------


def no_file(kind: str, path: Path, target: Path) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            target.write_bytes(b"{}")
            path.symlink_to(target)
        case "dangling":
            path.symlink_to(target)
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.relpath(path))  # which must be short
        case "directory":
            path.mkdir()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "device", "socket", "directory"])
def test_a_marker_that_is_no_regular_file_is_there_and_corrupt(
    store: Store, root: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir()
    monkeypatch.chdir(root)
    no_file(kind, root / "_committed_1", tmp_path / "target")
    listed = [entry.path for entry in store.list_log()]
    assert listed == [] if kind == "directory" else ["_committed_1"]
    assert [entry.path for entry in store.list_files()] == listed
    assert list(store.stat_log("_committed_1")) == listed
    assert store.put_if_absent("_committed_1", b"x") is False
    for read in (store.get, store.open_read):
        with pytest.raises(CorruptMarkerError, match=f"{root}/_committed_1 is not a regular file"):
            read("_committed_1")
    assert store.stat("_committed_1").path == "_committed_1"
    if kind != "directory":
        assert store.delete_many(["_committed_1"]) == {}
        assert store.list_log() == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_data_that_is_no_regular_file_is_not_listed_and_not_read(
    store: Store, root: Path, tmp_path: Path, kind: str
) -> None:
    root.mkdir()
    no_file(kind, root / "part-0.parquet", tmp_path / "target")
    assert store.list_files() == []
    assert store.list_directory() == Listing([], [])
    for read in (store.get, store.open_read):
        with pytest.raises(StoreError, match="not a regular file"):
            read("part-0.parquet")


@pytest.fixture
def linked(store: Store, root: Path, tmp_path: Path) -> Path:
    """What lies outside of the table, to which links in it lead."""
    store.put_if_absent("day=1/part-0", b"")
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "part-1").write_bytes(b"12")
    (root / "to_directory").symlink_to(outside)
    (root / "to_empty").symlink_to(outside / "empty")
    (root / "to_file").symlink_to(outside / "part-1")
    (root / "dangling").symlink_to(outside / "nowhere")
    (root / "day=1/circle").symlink_to(root)
    (root / "day=1/itself").symlink_to(root / "day=1/itself")
    return outside


def test_links_are_left_out_on_demand(store: Store, linked: Path) -> None:
    assert [entry.path for entry in store.list_files(links=False)] == ["day=1/part-0"]
    assert store.list_files("day=1", links=False) == store.list_files(links=False)
    assert store.list_directory() == Listing([], ["day=1"])
    assert store.list_directory("day=1") == Listing(store.list_files(links=False), [])


@pytest.mark.parametrize("under", ["to_directory", "to_directory/empty", "day=1/circle", "day=1/circle/day=1"])
def test_nothing_is_listed_behind_a_link(store: Store, linked: Path, under: str) -> None:
    assert store.list_directory(under) == Listing([], [])
    assert store.list_files(under, links=False) == []


def test_no_directory_is_removed_that_is_or_lies_behind_a_link(store: Store, linked: Path, root: Path) -> None:
    before = everything(root), everything(linked)
    removed = store.remove_directories(["to_directory/empty", "to_directory", "to_empty", "dangling", "day=1/circle"])
    assert removed == []
    assert (everything(root), everything(linked)) == before
    assert all((root / path).is_symlink() for path in ["to_directory", "to_empty", "dangling", "day=1/circle"])
    assert (linked / "empty").is_dir()


def test_two_names_of_one_file_are_the_same(store: Store, root: Path) -> None:
    store.put_if_absent("day=1/part-0", b"")
    os.link(root / "day=1/part-0", root / "part-1")
    (root / "part-2").symlink_to(root / "part-1")
    assert store.is_same("day=1/part-0", "part-1")
    assert not store.is_same("day=1/part-0", "part-2")  # to delete a link deletes nothing else


def test_the_root_itself_may_be_a_link(store: Store, root: Path, tmp_path: Path) -> None:
    store.put_if_absent("day=1/part-0", b"")
    (root / "day=2").mkdir()
    (tmp_path / "link").symlink_to(root)
    linked = open_store(parse_location(tmp_path / "link"))
    assert linked.list_directory() == Listing([], ["day=1", "day=2"])
    assert [entry.path for entry in linked.list_files(links=False)] == ["day=1/part-0"]
    assert linked.remove_directories(["day=1", "day=2"]) == ["day=2"]


# --- emptied directories ------------------------------------------------------------------------------------------


def test_a_directory_that_may_not_be_removed_is_an_error_after_the_rest_was(readable_root: Path) -> None:
    (readable_root / "day=1/empty").mkdir()
    (readable_root / "hidden").chmod(0o777)
    (readable_root / "hidden/empty").mkdir()
    child = run(
        f"{AS_NOBODY}\nprint(said(lambda: store.remove_directories(['day=1/empty', 'hidden/empty'])))",
        str(readable_root),
    )
    assert child.stdout.startswith(
        f"AccessDeniedError: cannot remove the directory {readable_root}/day=1/empty: Permission denied; give"
    ), (child.stdout, child.stderr)
    assert (readable_root / "day=1/empty").is_dir()
    assert not (readable_root / "hidden/empty").exists()


def test_files_and_missing_directories_are_left_be(store: Store, root: Path) -> None:
    store.put_if_absent("day=1/part-0", b"")
    (root / "empty").mkdir()
    assert store.remove_directories(["day=1/part-0", "missing", "day=1/part-0/x", "empty"]) == ["empty"]
    assert everything(root) == ["day=1/part-0"]


CREATE = [
    lambda store: store.put_if_absent("a/b/c/part-0", b"x"),
    lambda store: write(store, "a/b/c/part-0"),
]


def write(store: Store, path: str) -> bool:
    with store.open_write(path) as file:
        file.write(b"x")
    return True


def below(root: str, path: str, dir_fd: int | None) -> str:
    """The path relative to the root, of something in an open directory."""
    parent = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else ""
    return os.path.relpath(os.path.join(parent, path), root)


def removing(monkeypatch: pytest.MonkeyPatch, store: Store, *, after: str, times: int) -> None:
    """As if a vacuum ran right after the writer has made the directory, so many times."""
    mkdir, left = os.mkdir, [times]

    def make(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        if below(store.url, path, dir_fd) == after and left[0]:
            left[0] -= 1
            assert store.remove_directories([after])[0] == after

    monkeypatch.setattr(os, "mkdir", make)


@pytest.mark.parametrize("create", CREATE, ids=["put_if_absent", "open_write"])
@pytest.mark.parametrize("after", ["a", "a/b", "a/b/c"])
def test_a_writer_makes_again_the_directory_that_vacuum_removes(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, create: Callable[[Store], bool], after: str
) -> None:
    removing(monkeypatch, store, after=after, times=3)
    assert create(store) is True
    assert everything(root) == ["a/b/c/part-0"]


def test_directories_that_had_to_be_made_again_are_synced(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, synced: list[Path]
) -> None:
    (root / "a/b").mkdir(parents=True)
    removing(monkeypatch, store, after="a/b/c", times=1)
    store.put_if_absent("a/b/c/part-0", b"x")
    assert set(synced[1:]) == {root / "a/b/c", root / "a/b", root / "a", root}


@pytest.mark.parametrize("create", CREATE, ids=["put_if_absent", "open_write"])
def test_directories_that_another_writer_makes_first_are_used(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, create: Callable[[Store], bool]
) -> None:
    mkdir = os.mkdir

    def make(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        mkdir(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make)
    assert create(store) is True
    assert everything(root) == ["a/b/c/part-0"]


@pytest.mark.parametrize("create", CREATE, ids=["put_if_absent", "open_write"])
def test_a_directory_that_never_stays_is_a_store_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, create: Callable[[Store], bool]
) -> None:
    removing(monkeypatch, store, after="a/b/c", times=10_000)
    with pytest.raises(StoreError, match="No such file or directory; check the path") as failure:
        create(store)
    assert type(failure.value) is StoreError


def test_writers_and_a_vacuum_that_removes_their_directories_all_succeed(store: Store, root: Path) -> None:
    done = Event()

    def vacuum() -> int:
        removed = 0
        while not done.is_set():
            removed += len(store.remove_directories(["a/b/c", "a/x"]))
            done.wait(0.001)  # a vacuum does not come back in the same moment, again and again
        return removed

    with ThreadPoolExecutor(1) as pool:
        removed = pool.submit(vacuum)
        try:
            for number in range(300):
                paths = [f"a/b/c/part-{number}", f"a/x/part-{number}"]
                assert store.put_if_absent(paths[0], b"x") is True
                assert write(store, paths[1])
                assert store.delete_many(paths) == {}
        finally:
            done.set()
        assert removed.result() > 0
    assert everything(root) == []


# --- times --------------------------------------------------------------------------------------------------------


def test_a_marker_is_as_old_as_its_appearance_however_long_the_disk_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a read as of a time in between would not see it first, and then would."""
    fsync, written = os.fsync, []

    def slow(descriptor: int) -> None:
        fsync(descriptor)
        written.append(time.time_ns())
        time.sleep(0.05)

    monkeypatch.setattr(os, "fsync", slow)
    store.put_if_absent("_committed_1", b"x")
    assert store.stat("_committed_1").modified.timestamp() >= written[0] / 1e9 + 0.04


def now() -> float:
    return datetime.now(UTC).timestamp()


def age_s(store: Store, path: str) -> float:
    (listed,) = [entry for entry in store.list_log() if entry.path == path]
    assert listed == store.stat(path)
    return now() - listed.modified.timestamp()


def test_a_marker_is_as_old_as_its_appearance_however_long_its_writer_slept_before(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else vacuum would take what it removes for removed long ago."""
    link = os.link

    def late(source: str, target: str, **options: Any) -> None:
        slept_since = time.time() - 3 * 86400
        os.utime(root / source, (slept_since, slept_since))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", late)
    store.put_if_absent("_committed_1", b"x")
    assert abs(age_s(store, "_committed_1")) < 3600


def test_the_time_of_a_marker_never_changes_before_a_readers_eyes(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while its writer is held up between its steps."""
    seen: list[datetime] = []

    def looking(call: Callable[..., None]) -> Callable[..., None]:
        def wrapper(*args: Any, **options: Any) -> None:
            time.sleep(0.02)
            call(*args, **options)
            seen.extend(entry.modified for entry in store.list_log())
            time.sleep(0.02)

        return wrapper

    for name in ("link", "utime", "unlink", "fsync"):
        monkeypatch.setattr(os, name, looking(getattr(os, name)))
    store.put_if_absent("_committed_1", b"x")
    monkeypatch.undo()
    assert len(seen) >= 4
    assert {*seen, store.stat("_committed_1").modified} == {seen[0]}


def test_a_marker_of_a_writer_that_was_killed_right_after_its_link_is_as_old_as_that(store: Store, root: Path) -> None:
    program = (
        "import os, pickle, signal, sys\n"
        "store, link = pickle.loads(bytes.fromhex(sys.argv[1])), os.link\n"
        "os.link = lambda *args, **options: (link(*args, **options), os.kill(os.getpid(), signal.SIGKILL))\n"
        "store.put_if_absent('_committed_1', b'x')"
    )
    child = run(program, pickle.dumps(store).hex())
    assert child.returncode == -9, child.stderr
    assert len(everything(root)) == 2  # the temporary name, too
    assert abs(age_s(store, "_committed_1")) < 3600
    before = store.stat("_committed_1")
    (unfinished,) = store.list_unfinished()
    assert abs(now() - unfinished.started.timestamp()) < 3600
    time.sleep(0.02)
    assert store.abort_unfinished([unfinished]) == {}
    assert everything(root) == ["_committed_1"]
    assert store.stat("_committed_1") == before


# --- a disk that answers at once, and one behind a network --------------------------------------------------------


@pytest.mark.parametrize(("waits_s", "worked_s", "in_turn"), [(0, 0, 40), (0.0001, 0.001, 40), (0.005, 0.001, 5)])
def test_calls_go_to_threads_only_where_the_disk_lets_them_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch, waits_s: float, worked_s: float, in_turn: int
) -> None:
    clock = {"passed": 0.0, "worked": 0.0}
    monkeypatch.setattr("dbio_commit.store.local.perf_counter", lambda: clock["passed"])
    monkeypatch.setattr("dbio_commit.store.local.thread_time", lambda: clock["worked"])
    callers: list[int] = []

    def ask(number: int) -> int:
        callers.append(get_ident())
        clock["passed"] += waits_s + worked_s
        clock["worked"] += worked_s
        return number

    assert store.ask_each(ask, range(40)) == [*range(40)]
    assert callers.count(get_ident()) == in_turn
