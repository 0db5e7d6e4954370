"""Steps of a streaming transaction at which whoever takes it waits, in whichever process that is.

Nothing of the package is imported before a process does so itself: Spark gives a Python worker ten seconds to come.
"""

import importlib.util
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from dbio_commit.protocol.markers.start import App

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

    def stop(kind: str) -> Callable[[ModuleType], None]:
        return lambda module: _patch(getattr(module, kind), step, flags)

    def end_leases(module: ModuleType) -> None:
        vars(module)["LEASE_S"] = 0.0

    changes = {
        "dbio_commit.store.local": stop("LocalStore"),
        "dbio_commit.store.s3": stop("S3Store"),
        "dbio_commit.commit.turns": end_leases,
    }
    sys.meta_path.insert(0, _Changing(changes))


class _Changing:
    """Changes modules once they are imported."""

    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        change = self._changes.pop(name, None)
        spec = importlib.util.find_spec(name) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        vars(spec.loader)["exec_module"] = execute_and_change
        return spec


def _patch(kind: Any, step: str, flags: Path) -> None:
    put = kind.put_if_absent

    def stopping(store: Any, path: str, body: bytes) -> bool:
        def stop_where(at: Step, marker: str) -> None:
            app = _app(path, body) if at == step and path.startswith(marker) else None
            name = store.url.rpartition("/")[2]
            if app and app.version == VERSION and not (flags / f"{name} stopped").exists():
                (flags / f"{name} stopped").touch()
                while not (flags / "release").exists():
                    time.sleep(0.05)

        stop_where("committing", "_committed_")
        created: bool = put(store, path, body)
        stop_where("claimed", "_started_")
        stop_where("committed", "_committed_")
        return created

    kind.put_if_absent = stopping


def _app(path: str, body: bytes) -> "App | None":
    from dbio_commit.protocol.markers.commit import decode_commit
    from dbio_commit.protocol.markers.start import decode_start

    if path.startswith("_started_"):
        begun = decode_start(body, where=path)
        return begun.app if begun else None
    marker = decode_commit(body, where=path)
    return marker.dbio_commit.app if marker.dbio_commit else None
