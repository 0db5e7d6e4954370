"""Which file system a path lies on, and which path or URL to use instead of one where no commit is possible.

Only Linux lists its mounts. On other systems nothing is known. Pure except `read_mounts`.
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
        """The URL to use instead, if this is an object store behind FUSE: there hard links are copies, or fail."""
        if not self.is_fuse:
            return None
        name = f"{self.kind.partition('.')[2]} {self.source}".lower()
        return next((url for pattern, url in _OBJECT_STORES.items() if re.search(pattern, name)), None)

    @property
    def caches_names(self) -> bool:
        """Whether it is NFS, mounted so that a new name may appear late on other machines."""
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
    "/Volumes": "the URL of the volume's storage location (`DESCRIBE VOLUME` shows it): " + f"{_S3} or {_AZURE}",
    "/dbfs": f"the URL of what is mounted there (`dbutils.fs.mounts()` lists it), {_S3} or {_AZURE}",
    "/lakehouse/default": "abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/LAKEHOUSE.Lakehouse/Files/…",
}
"""Where platforms mount object stores, and the URL to use instead."""


def parse_mounts(text: str) -> list[Mount]:
    """The mounts in a text in the form of /proc/self/mountinfo. Lines in another form are skipped."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        own, general = before.split(" "), after.split(" ")
        if len(own) >= 6 and len(general) >= 3:
            options = frozenset([*own[5].split(","), *general[2].split(",")])
            found.append(Mount(_plain(own[4]), general[0], _plain(general[1]), options))
    return found


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that an absolute path, without symbolic links, lies on: the deepest one, and of several the last."""
    above = [it for it in mounts if path == it.point or path.startswith(f"{it.point.rstrip('/')}/")]
    return max(reversed(above), key=lambda it: len(it.point), default=None)


def find_mount(path: str) -> Mount | None:
    return mount_of(os.path.realpath(path), read_mounts())


def instead_of_mount(path: str, mount: Mount | None) -> str:
    """What to use instead of a path where nothing can be committed."""
    place = next((url for place, url in _PLACES.items() if path == place or path.startswith(f"{place}/")), None)
    return place or (mount and mount.object_store) or f"a disk, or the URL of an object store, {_S3} or {_AZURE}"


def read_mounts() -> list[Mount]:
    with suppress(OSError), open(_TABLE, encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts(file.read())
    return []


def _plain(text: str) -> str:
    """The text with its octal codes, such as those of spaces, replaced by their characters."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
