"""Lists the applications that have committed to a table, and finds versions that no writer can have written. Pure.

If a version that no writer committed is recorded, the application's own write of it is skipped without an error (I8).
`dbio check` looks for such versions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import HISTORY
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.versions import Versions

UNREACHABLE = 1 << 62
"""No application counts so far: nanoseconds since 1970 reach it in the year 2116."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application id of the table, with its highest committed version."""

    id: str
    """The application id."""
    version: int
    """The version; a day or a time is a number."""
    tid: str | None
    """The transaction that committed it; None if a checkpoint remembers only the version."""
    committed: datetime | None
    """When it was committed, by the store's clock."""
    odd: str
    """Why no writer can have written this version; "" if one can."""


def list_applications(
    commits: Iterable[Decided], *, remembered: Mapping[str, Versions], now: datetime
) -> list[Application]:
    """The applications by id. `commits` are those of the log and of the checkpoint, `remembered` the versions in the
    checkpoint."""
    by_id: dict[str, list[tuple[App, Decided]]] = {}
    for commit in in_order(commits):
        info = commit.marker.dbio_commit
        if info and info.app and not commit.marker.is_abort:
            by_id.setdefault(info.app.id, []).append((info.app, commit))
    return [
        _application(id, by_id.get(id, []), remembered.get(id), now) for id in sorted(by_id.keys() | remembered.keys())
    ]


def _application(id: str, commits: list[tuple[App, Decided]], known: Versions | None, now: datetime) -> Application:
    highest, last = max(commits, key=lambda it: it[0].version, default=(None, None))
    version = highest.version if highest else -1
    if known is not None and known.highest > version:
        odd = _unsupported(known.highest, commits, now)
        return Application(id=id, version=known.highest, tid=None, committed=None, odd=odd)
    assert last is not None, "recorded by the checkpoint or by a commit"
    odd = _unreachable(version) or _without_turn(commits) or _disordered(commits)
    return Application(id=id, version=version, tid=last.tid, committed=last.modified, odd=odd)


def _unreachable(version: int) -> str:
    if version < UNREACHABLE:
        return ""
    return f"no writer counts up to {version}, and hardly any version is left above it"


def _unsupported(known: int, commits: list[tuple[App, Decided]], now: datetime) -> str:
    """Why no commit can have recorded `known`: only old commits are forgotten, and later ones that count up are not
    lower."""
    later = [app.version for app, commit in commits if commit.modified > now - HISTORY and not app.any_order]
    if later:
        return f"the checkpoint says {known}, but no commit does, and {max(later)} was committed since"
    return _unreachable(known)


def _without_turn(commits: list[tuple[App, Decided]]) -> str:
    for app, commit in commits:
        if commit.marker.dbio_commit and commit.marker.dbio_commit.turn is None:
            return f"version {app.version} was committed without a turn, as no writer does ({commit.tid})"
    return ""


def _disordered(commits: list[tuple[App, Decided]]) -> str:
    seen, highest = set[int](), -1
    for app, commit in commits:
        if app.version in seen:
            return f"version {app.version} was committed twice, and would have been skipped ({commit.tid})"
        if app.version < highest and not app.any_order:
            return f"version {app.version} was committed after {highest}, and would have been refused ({commit.tid})"
        seen.add(app.version)
        highest = max(highest, app.version)
    return ""
