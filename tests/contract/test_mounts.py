"""File systems that cannot commit, or not safely: known by the table of mounts and by what they answer, and named.

Rules: PROTOCOL.md 4.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbio_commit import StoreError, Table, UnsupportedStoreError
from dbio_commit.store import Store, local, mounts, open_store, parse_location
from dbio_commit.store.mounts import Mount, find_mount, instead_of_mount, mount_of, parse_mounts
from tests.writers import contents, write

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 27 0:40 / /mnt/with\040space rw,relatime shared:20 master:3 - nfs4 filer:/export rw,vers=4.2,hard,addr=10.0.0.1
37 27 0:41 / /mnt/fuse rw,nosuid,nodev - fuse.s3fs s3fs rw,user_id=0
38 37 0:42 / /mnt/fuse/below rw - xfs /dev/vdb rw
39 27 0:43 / /mnt/twice rw - xfs /dev/vdc rw
40 27 0:44 / /mnt/twice rw - fuse.gcsfuse lake rw
not a line of such a table
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/", "ext4 of /dev/vda, mounted at /"),
        ("/data/t", "ext4 of /dev/vda, mounted at /"),
        ("/mnt/fuse", "fuse.s3fs, mounted at /mnt/fuse"),
        ("/mnt/fuse/a/t", "fuse.s3fs, mounted at /mnt/fuse"),
        ("/mnt/fused", "ext4 of /dev/vda, mounted at /"),
        ("/mnt/fuse/below/t", "xfs of /dev/vdb, mounted at /mnt/fuse/below"),
        ("/mnt/twice/t", "fuse.gcsfuse of lake, mounted at /mnt/twice"),
        ("/mnt/with space/t", "nfs4 of filer:/export, mounted at /mnt/with space"),
    ],
)
def test_a_path_lies_on_the_last_of_the_deepest_mounts(path: str, mount: str) -> None:
    assert str(mount_of(path, parse_mounts(MOUNTS))) == mount


@pytest.mark.parametrize("text", ["", "\n", " - ", "a b c d e f - g", "1 2 3:4 / /x rw\n"])
def test_of_another_table_nothing_is_known(text: str) -> None:
    assert mount_of("/data", parse_mounts(text)) is None


@pytest.mark.parametrize(
    ("kind", "source", "instead"),
    [
        ("fuse.s3fs", "s3fs", "s3://BUCKET/"),
        ("fuse", "mountpoint-s3", "s3://BUCKET/"),
        ("fuse", "s3://lake/", "s3://BUCKET/"),
        ("fuse.goofys", "lake", "s3://BUCKET/"),
        ("fuse.geesefs", "lake", "s3://BUCKET/"),
        ("fuse.blobfuse", "blobfuse", "abfss://CONTAINER@"),
        ("fuse", "blobfuse2", "abfss://CONTAINER@"),
        ("fuse.gcsfuse", "lake", "the bucket itself"),
        ("fuse.rclone", "remote:lake", "the store itself"),
        ("fuse.ossfs", "ossfs", "the store itself"),
        ("fuse", "dbfsfuse", "the store itself"),
        ("fuse.alluxio-fuse", "alluxio", "the store itself"),
    ],
)
def test_an_object_store_behind_fuse_is_known_by_its_mount(kind: str, source: str, instead: str) -> None:
    url = Mount("/mnt", kind, source).object_store
    assert url is not None
    assert instead in url


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("ext4", "/dev/s3fs"),
        ("nfs4", "s3fs:/rclone"),
        ("fuse.sshfs", "me@host:/data"),
        ("fuse.juicefs", "JuiceFS:lake"),
        ("fuse.glusterfs", "host:/volume"),
        ("fuse.ceph-fuse", "ceph-fuse"),
        ("fuseblk", "/dev/sda1"),
        ("fuse", "/dev/fuse"),
    ],
)
def test_no_other_file_system_is_taken_for_one(kind: str, source: str) -> None:
    assert Mount("/mnt", kind, source).object_store is None


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/Volumes/main/sales/lake/t", "DESCRIBE VOLUME"),
        ("/dbfs/mnt/lake/t", r"dbutils\.fs\.mounts\(\)"),
        ("/lakehouse/default/Files/t", r"abfss://WORKSPACE@onelake\.dfs\.fabric\.microsoft\.com/LAKEHOUSE\.Lakehouse/"),
        ("/data/t", "a disk, or the URL of an object store"),
        ("/dbfsx", "a disk, or the URL of an object store"),
    ],
)
def test_what_platforms_mount_has_a_url_of_its_own(path: str, instead: str) -> None:
    assert re.search(instead, instead_of_mount(path, None))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a table"


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(parse_location(root))


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the system's table say that a directory above the root is a mount of this kind, source and options."""

    def mount(what: str) -> None:
        table = tmp_path / "mountinfo"
        point = str(tmp_path.resolve()).replace(" ", r"\040")
        table.write_text(f"1 0 8:1 / / rw - ext4 /dev/vda rw\n2 1 0:50 / {point} rw,relatime - {what}\n")
        monkeypatch.setattr(mounts, "_TABLE", str(table))

    return mount


@pytest.mark.parametrize(
    ("what", "instead"),
    [
        ("fuse.s3fs s3fs rw", "give s3://BUCKET/"),
        ("fuse blobfuse2 rw", "give abfss://CONTAINER@"),
        ("fuse.gcsfuse lake rw", "give the URL of the bucket itself"),
    ],
)
def test_nothing_is_created_on_an_object_store_behind_fuse(
    mounted: Callable[[str], None], root: Path, what: str, instead: str
) -> None:
    mounted(what)
    for _ in range(2):
        with pytest.raises(UnsupportedStoreError, match=f"mounted as a disk.*{instead}"):
            Table(root).begin()
    assert not root.exists()


def test_what_is_there_on_one_is_read_and_nobody_decides_about_it(mounted: Callable[[str], None], root: Path) -> None:
    table = Table(root)
    write(table)
    tid = table.begin().tid
    local._LOOKED_AT.clear()  # as in another process, which sees the bucket by its mount
    mounted("fuse.s3fs s3fs rw")
    assert contents(table) == [b"rows"]
    with pytest.raises(UnsupportedStoreError, match="mounted as a disk"):
        table.abort(tid)
    assert [it.tid for it in table.check().pending] == [tid]


def copy_for_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        at = f"/proc/self/fd/{dst_dir_fd}/{target}"
        if os.path.lexists(at):
            raise FileExistsError(errno.EEXIST, "there")
        shutil.copy2(f"/proc/self/fd/{src_dir_fd}/{source}", at)

    monkeypatch.setattr(os, "link", link)


def test_a_fuse_mount_that_copies_instead_of_linking_is_found_out(
    mounted: Callable[[str], None], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted("fuse.unheard-of somewhere rw")
    copy_for_link(monkeypatch)
    with pytest.raises(UnsupportedStoreError, match=r"fuse\.unheard-of of somewhere.* makes a copy instead of a hard"):
        Table(root).begin()
    assert list(root.iterdir()) == []


def test_a_fuse_mount_that_links_is_used_and_tried_out_once(
    mounted: Callable[[str], None], store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted("fuse.sshfs me@host:/data rw")
    links, link = list[str](), os.link

    def counted(source: str, target: str, **where: Any) -> None:
        links.append(target)
        link(source, target, **where)

    monkeypatch.setattr(os, "link", counted)
    assert store.put_if_absent("_a", b"1")
    assert store.put_if_absent("_b", b"2")
    assert [name[:2] for name in links] == ["._", "_a", "_b"]
    assert sorted(path.name for path in root.iterdir()) == ["_a", "_b"]


def failing(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)


@pytest.mark.parametrize(
    ("call", "number", "lack"),
    [
        *(("link", number, "has no hard links") for number in (errno.ENOSYS, errno.EPERM, errno.ENOTSUP, errno.EXDEV)),
        *(("fsync", number, "cannot sync") for number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)),
        *(("utime", number, "set the times of files") for number in (errno.EPERM, errno.ENOSYS)),
    ],
)
def test_what_a_file_system_lacks_is_named_with_what_it_is_and_nothing_is_left(
    mounted: Callable[[str], None], root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, lack: str
) -> None:
    mounted("vfat /dev/sdz1 rw")
    failing(monkeypatch, call, number)
    with pytest.raises(UnsupportedStoreError, match=rf"\(vfat of /dev/sdz1, mounted at .*{lack}.*: give a disk, or"):
        Table(root).begin()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOSPC, "make room there"),
        (errno.EDQUOT, "make room there"),
        (errno.EROFS, "mount it for writing"),
        (errno.EIO, "check the path and the disk"),
    ],
)
def test_what_a_disk_fails_at_stays_an_error_of_the_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    failing(monkeypatch, "link", number)
    with pytest.raises(StoreError, match=step):
        store.put_if_absent("_a", b"1")


@pytest.mark.parametrize("call", ["fsync", "utime"])
def test_what_fails_once_an_object_has_its_name_says_nothing_of_the_file_system(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It is there, perhaps for good: the one who asked reads back, and does not take it for refused."""
    store.put_if_absent("_first", b"")
    link, real = os.link, getattr(os, call)
    linked = list[str]()

    def note(source: str, target: str, **where: Any) -> None:
        link(source, target, **where)
        linked.append(target)

    def fail(*args: Any, **options: Any) -> None:
        if linked:
            raise OSError(errno.ENOTSUP, "not any more")
        real(*args, **options)

    monkeypatch.setattr(os, "link", note)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StoreError, match="not any more"):
        store.put_if_absent("_second", b"2")
    assert store.get("_second") == b"2"


@pytest.mark.parametrize("options", ["rw", "rw,noac", "rw,lookupcache=none"])
@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
def test_the_first_write_to_nfs_says_what_that_means(
    mounted: Callable[[str], None], root: Path, caplog: pytest.LogCaptureFixture, kind: str, options: str
) -> None:
    mounted(f"{kind} filer:/export {options}")
    table = Table(root)
    write(table)
    write(table)
    (record,) = [record for record in caplog.records if "caches names" in record.getMessage()]
    assert record.levelname == "WARNING"
    assert f"{root} lies on {kind} of filer:/export, mounted at" in record.getMessage()
    assert "noac,lookupcache=none" in record.getMessage()


@pytest.mark.parametrize(
    "what", ["nfs4 filer:/export rw,noac,lookupcache=none", "ext4 /dev/vda rw", "fuse.sshfs h:/ rw"]
)
def test_no_other_write_is_warned_of(
    mounted: Callable[[str], None], root: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    mounted(what)
    write(Table(root))
    assert not [record for record in caplog.records if "caches names" in record.getMessage()]


def test_readers_are_not_warned(mounted: Callable[[str], None], root: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(Table(root))
    local._LOOKED_AT.clear()
    mounted("nfs4 filer:/export rw")
    assert contents(Table(root)) == [b"rows"]
    assert not caplog.records


def test_where_the_system_has_no_such_table_nothing_is_known(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_TABLE", "/no/such/table")
    assert find_mount("/") is None
    write(Table(root))


def test_this_system_tells_what_a_path_lies_on(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/mountinfo"):
        pytest.skip("only Linux tells")
    mount = find_mount(str(tmp_path))
    assert mount is not None
    assert str(tmp_path.resolve()).startswith(mount.point)
