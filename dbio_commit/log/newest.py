"""The newest commits of a table, without what a reader needs of all others."""

from collections.abc import Sequence

from dbio_commit.base.clock import Clock
from dbio_commit.log.listing import until_quiet
from dbio_commit.log.opening import open_log
from dbio_commit.log.settled import Settled
from dbio_commit.log.snapshot import commit_of
from dbio_commit.log.table_log import TableLog
from dbio_commit.log.table_state import snapshot_of_parts
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint, decode_lines, removed_by
from dbio_commit.protocol.commits import Commit, Decided
from dbio_commit.store import Store


def newest_commits(store: Store, clock: Clock, count: int) -> list[Commit]:
    """The first commits of `Snapshot.history`, at most so many. Raises what `read_snapshot` raises.

    Of a table, the places of all commits are read, since a late marker may belong anywhere, and the rest of those that
    are returned only. Markers that no checkpoint covers are read as a whole: their bodies decide their places, too. So
    are all of a directory without a descriptor, which has no checkpoint.
    """

    def read() -> list[Commit]:
        found = open_log(store, clock)
        return _newest(found, count) if isinstance(found, TableLog) else found.snapshot().history()[:count]

    return until_quiet(store, read)


def _newest(found: TableLog, count: int) -> list[Commit]:
    bodies: dict[int, bytes] = {}

    def decode(body: bytes, *, number: int, where: str) -> Checkpoint:
        bodies[number] = body
        return decode_checkpoint(body, number=number, where=where, briefly=True)

    settled = found.settled(decode)
    settled.markers.only_valid(ignore_corrupt=False)
    checkpoint = settled.checkpoint
    if checkpoint.is_root:
        from dbio_commit.log.parts.commits import StoredCommits  # imports pyarrow, which small tables do without

        stored, news = checkpoint.commits, settled.news
        assert isinstance(stored, StoredCommits)
        chosen = _last(in_order([*stored.in_brief(removed_by(news)), *news]), count)
        outlines = {it.tid: it for it in stored.outlines_of([it.tid for it in chosen if it.place is not None])}
        return snapshot_of_parts(found.store, settled).entries([outlines.get(it.tid, it) for it in chosen])
    if any(it.marker.removed_tids for it in checkpoint.commits) or _may_be_misplaced(settled):
        return found.snapshot().history()[:count]  # it finds what these remove, and refuses a file outside
    chosen = _last(in_order(settled.decided), count)
    places = {it.place for it in chosen if it.place is not None}
    where, number = found.store.url_of(names.checkpoint(checkpoint.number)), checkpoint.number
    whole = decode_lines(bodies[number], places, number=number, where=where) if places else {}
    return [commit_of(whole[it.place] if it.place is not None else it) for it in chosen]


def _may_be_misplaced(settled: Settled) -> bool:
    """Whether a commit adds a file outside of all partitions. Readers refuse it if it is live (PROTOCOL.md 8.1)."""
    layout = settled.layout(settled.metadata(settled.news))
    directories = {names.split(path)[0] for it in settled.decided for path in it.marker.added}
    return any(tuple(names.parse_partition(directory)) != layout for directory in directories)


def _last(commits: Sequence[Decided], count: int) -> list[Decided]:
    """The newest commits first, without aborted transactions."""
    return [commit for commit in reversed(commits) if not commit.marker.is_abort][:count]
