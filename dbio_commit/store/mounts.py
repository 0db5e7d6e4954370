"""What file system a path lies on, by the system's table of mounts, and what to give instead of one that cannot commit.

Linux tells; elsewhere nothing is known. Pure but for `read_mounts`.
"""

import os.path
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_TABLE = "/proc/self/mountinfo"


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system, and where it is mounted."""

    point: str
    kind: str
    """As the kernel names it: "ext4", "nfs4", "fuse.s3fs"."""
    source: str = ""
    options: frozenset[str] = frozenset()

    def __str__(self) -> str:
        source = f" of {self.source}" if self.source not in ("", "none", self.kind.partition(".")[2]) else ""
        return f"{self.kind}{source}, mounted at {self.point}"

    @property
    def is_fuse(self) -> bool:
        return self.kind == "fuse" or self.kind.startswith("fuse.")

    @property
    def object_store(self) -> str | None:
        """What to give instead, where this is an object store behind FUSE, whose links are copies, or fail."""
        if not self.is_fuse:
            return None
        name = f"{self.kind.partition('.')[2]} {self.source}".lower()
        return next((url for pattern, url in _OBJECT_STORES.items() if re.search(pattern, name)), None)

    @property
    def caches_names(self) -> bool:
        """Whether it is NFS, mounted so that a name may be seen later than it is there."""
        return self.kind in ("nfs", "nfs4") and not {"noac", "lookupcache=none"} <= self.options


_S3, _AZURE = "s3://BUCKET/…", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…"

_OBJECT_STORES = {
    r"\b(?:s3fs|yas3fs|goofys|geesefs|riofs|mountpoint-s3)\b|^ ?s3://": _S3,
    r"\bblobfuse2?\b|\bcloudfuse\b|\badlfs\b": _AZURE,
    r"\bgcsfuse\b": "the URL of the bucket itself",
    r"\b(?:rclone|ossfs2?|cosfs|obsfs|jindo\w*|alluxio\S*|fuse_dfs|dbfs\w*)\b": f"the URL of the store itself, {_S3} "
    f"or {_AZURE}",
}

_PLACES = {
    "/Volumes": "the URL of the volume's storage location (`DESCRIBE VOLUME` tells it): " + f"{_S3} or {_AZURE}",
    "/dbfs": f"the URL of what is mounted there (`dbutils.fs.mounts()` lists it), {_S3} or {_AZURE}",
    "/lakehouse/default": "abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/LAKEHOUSE.Lakehouse/Files/…",
}
"""Where platforms mount object stores, and what to give instead."""


def parse_mounts(text: str) -> list[Mount]:
    """The mounts in the form of /proc/self/mountinfo; lines in another form are passed over."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        own, general = before.split(" "), after.split(" ")
        if len(own) >= 6 and len(general) >= 3:
            options = frozenset([*own[5].split(","), *general[2].split(",")])
            found.append(Mount(_plain(own[4]), general[0], _plain(general[1]), options))
    return found


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The one that an absolute path, without symbolic links, lies on: the last of those that are mounted deepest."""
    above = [it for it in mounts if path == it.point or path.startswith(f"{it.point.rstrip('/')}/")]
    return max(reversed(above), key=lambda it: len(it.point), default=None)


def find_mount(path: str) -> Mount | None:
    return mount_of(os.path.realpath(path), read_mounts())


def instead_of_mount(path: str, mount: Mount | None) -> str:
    """What to give instead of a path where nothing can be committed."""
    place = next((url for place, url in _PLACES.items() if path == place or path.startswith(f"{place}/")), None)
    return place or (mount and mount.object_store) or f"a disk, or the URL of an object store, {_S3} or {_AZURE}"


def read_mounts() -> list[Mount]:
    with suppress(OSError), open(_TABLE, encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts(file.read())
    return []


def _plain(text: str) -> str:
    """Spaces and the like are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
