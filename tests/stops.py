"""Steps of a streaming transaction at which whoever takes it waits, in whichever process that is."""

import time
from pathlib import Path
from typing import Any, Literal, get_args

from dbio_commit import turns
from dbio_commit.protocol import names
from dbio_commit.protocol.markers import App, decode_begun, decode_commit
from dbio_commit.store.local import LocalStore
from dbio_commit.store.s3 import S3Store

Step = Literal["claimed", "committing", "committed"]
"""The start marker has come, from the first task that writes; all is written, and the turn is taken; the commit marker
is there, and nobody was told."""

STEPS: tuple[Step, ...] = get_args(Step)

VERSION = 1
"""The batch that stops."""


def stop_at(step: str, flags: Path) -> None:
    """Of each table, the first that comes there leaves `NAME stopped`, and waits until `release` is there.

    And whoever comes next waits no minute for a turn whose holder is dead.
    """
    turns.LEASE_S = 0.0
    for kind in (LocalStore, S3Store):
        _patch(kind, step, flags)


def _patch(kind: Any, step: str, flags: Path) -> None:
    put = kind.put_if_absent

    def stopping(store: Any, path: str, body: bytes) -> bool:
        def stop_where(at: Step, marker: names.Kind) -> None:
            app = _app(path, body) if at == step and path.startswith(marker) else None
            name = store.url.rpartition("/")[2]
            if app and app.version == VERSION and not (flags / f"{name} stopped").exists():
                (flags / f"{name} stopped").touch()
                while not (flags / "release").exists():
                    time.sleep(0.05)

        stop_where("committing", names.Kind.COMMITTED)
        created: bool = put(store, path, body)
        stop_where("claimed", names.Kind.STARTED)
        stop_where("committed", names.Kind.COMMITTED)
        return created

    kind.put_if_absent = stopping


def _app(path: str, body: bytes) -> App | None:
    if path.startswith(names.Kind.STARTED):
        begun = decode_begun(body, where=path)
        return begun.app if begun else None
    marker = decode_commit(body, where=path)
    return marker.dbio_commit.app if marker.dbio_commit else None
