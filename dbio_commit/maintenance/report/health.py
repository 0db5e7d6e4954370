"""Computes the health of a table as facts, which are bounded in size, however large the table is. Pure.

The texts of these facts come from outside. They are cut here, and can be encoded as UTF-8. The code that renders texts
must escape them.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from dbio_commit.commit.root import MAX_LIFE_S
from dbio_commit.feed.streams import StreamLag
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.check import CheckReport
from dbio_commit.maintenance.compact.options import TARGET_BYTES, is_small
from dbio_commit.maintenance.compact.spread import SpreadCount
from dbio_commit.protocol.applications import list_applications
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Format, published_forms
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile

MOST = 20
"""How many partitions, pending transactions, applications and paths are named. The others are only counted."""

MOST_PERIODS = 48
"""The most periods in which commits are counted."""

MOST_TEXT = 300
"""The most characters of a name."""

MOST_ADVICE = 3000
"""The most characters of longer texts."""

ABORTED = "aborted"
"""Stands beside the operations, for transactions that were aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How many objects, their size in bytes, and the age of the oldest if it is known."""

    objects: int = 0
    size: int = 0
    oldest: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What a vacuum freed, or would free, and what it kept, by reason."""

    retention_hours: float
    dry_run: bool
    freed: Mapping[Reason, Amount] = field(default_factory=dict)
    kept: Mapping[Reason, Amount] = field(default_factory=dict)
    left: Amount = Amount()
    """The garbage that is left and will be deleted, when it is old enough."""
    aborted: int = 0
    """How many pending transactions it aborted, or would abort."""
    failed: int = 0
    """How many actions failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """Live files of one directory."""

    name: str
    """The path of the directory. "" for the root."""
    files: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """The live files that are smaller than `below` bytes, and do not belong to the class before."""

    below: int
    files: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The transactions that were decided in a span of time."""

    begins: datetime
    decided: Mapping[str, int]
    """How many transactions, by operation or `ABORTED`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Commits over time: periods of one length, without gaps, up to the present."""

    length: timedelta
    periods: Sequence[Period]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWrite:
    """A transaction that is neither committed nor aborted."""

    tid: str
    started: datetime
    files: int | None = None
    """How many files it has written so far. None if that was not looked up."""
    size: int | None = None
    too_old: bool
    """Whether it is so old that it cannot commit any more."""
    home: str | None = None
    """The URL of the table that decides it, if that is another one. None also if that was not looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingApplication:
    """An application that writes to the table, and the highest version that it committed."""

    id: str
    version: int
    committed: datetime | None
    odd: bool
    """Whether no dbio writer can have committed these versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong with the table: the number of cases, and the first few."""

    what: str
    count: int
    first: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A publication that does not show the newest commits."""

    format: str
    since: datetime | None
    """When the oldest commit came that it does not show; None if that is not known."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """The newest commit."""

    tid: str
    at: datetime
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """A table at one moment. Sizes in bytes."""

    url: str
    scope: Scope
    at: datetime
    ok: bool | None
    """As `CheckReport.ok`. None if there was no check."""
    advice: str
    problems: Sequence[Problem]
    live_files: int
    live_size: int
    unknown_sizes: int
    """How many live files have a size that no marker records."""
    small: Amount
    """The live files that a compaction would join with others, by their size and partition."""
    clustering: Sequence[str]
    """How well a table with `cluster_by` is clustered, in sentences; none for another table."""
    median_size: int | None
    partition_columns: Sequence[str]
    partitions: Sequence[PartitionFiles]
    """The largest partitions, the largest first."""
    other_partitions: int
    other_files: int
    """The files in the partitions that are not named."""
    other_size: int
    size_classes: Sequence[SizeClass]
    """From the class of the smallest file to that of the largest."""
    activity: Activity | None
    """None if no transaction is known."""
    commits: int
    last_commit: LastCommit | None
    joint_with: Sequence[str]
    """The tables that joint transactions with this one wrote to, by the paths of their roots from this one."""
    other_joint_with: int
    checkpoint: datetime | None
    """When the newest checkpoint was written; None if there is none."""
    commits_since_checkpoint: int
    publications: Sequence[str]
    """The formats in which the table is published."""
    behind: Sequence[Behind]
    """The publications that do not show the newest commits."""
    pending: Sequence[PendingWrite] | None
    """The oldest first. None if they were not looked up."""
    other_pending: int
    vacuumed: Vacuumed | str
    """What a vacuum freed or would free, or why this is not known."""
    applications: Sequence[WritingApplication]
    """The applications that committed last come first."""
    other_applications: int
    streams: Sequence[StreamLag]


def look(
    snapshot: Snapshot,
    *,
    at: datetime,
    vacuumed: Vacuumed | str,
    check: CheckReport | None = None,
    advice: str = "",
    streams: Sequence[StreamLag] = (),
    behind: Mapping[str, tuple[datetime | None, str]] | None = None,
    target_size: int = TARGET_BYTES,
) -> TableHealth:
    """The health of the table. `check` and `advice` come from `dbio check`. Without them, it reports no problems.

    `behind` has the formats whose publication failed: when each was last published, and why it failed. A file counts as
    small if a compaction with this `target_size` would join it with others.
    """
    sizes, found, small = _count(snapshot.files, target_size)
    partitions = sorted(found, key=lambda it: (-it.size, it.name))
    others = partitions[MOST:]
    live = sum(it.files for it in partitions)
    committed = [commit for commit in snapshot.transactions if not commit.marker.is_abort]
    last = max(committed, key=lambda commit: commit.modified, default=None)
    pending = _pending(snapshot, check, at)
    applications = list_applications(snapshot.transactions, remembered=snapshot.checkpoint.apps, now=at)
    joint_with = sorted({path for it in committed for path in it.marker.joint_with})
    applications.sort(key=lambda it: (it.committed is None, -it.committed.timestamp() if it.committed else 0, it.id))
    return TableHealth(
        url=_text(snapshot.url),
        scope=snapshot.scope,
        at=at,
        ok=check.ok if check else None,
        advice=_text(advice, MOST_ADVICE),
        problems=_problems(check) if check else (),
        live_files=live,
        live_size=sum(sizes),
        unknown_sizes=live - len(sizes),
        small=small,
        clustering=_clustering(snapshot),
        median_size=_nth(sizes, len(sizes) // 2) if sizes else None,
        partition_columns=tuple(map(_text, snapshot.partition_columns)),
        partitions=[PartitionFiles(name=_text(it.name), files=it.files, size=it.size) for it in partitions[:MOST]],
        other_partitions=len(others),
        other_files=sum(it.files for it in others),
        other_size=sum(it.size for it in others),
        size_classes=_size_classes(sizes),
        activity=_activity([(it.modified, _operation(it)) for it in snapshot.transactions], at),
        commits=len(committed),
        last_commit=LastCommit(tid=_text(last.tid), at=last.modified, operation=_operation(last)) if last else None,
        joint_with=[_text(it) for it in joint_with[:MOST]],
        other_joint_with=max(0, len(joint_with) - MOST),
        checkpoint=_checkpointed(snapshot),
        commits_since_checkpoint=sum(not commit.marker.is_abort for commit in _news(snapshot)),
        publications=[str(it) for it in Format if it in published_forms(snapshot.settings)],
        behind=[
            Behind(format=str(it), since=_unseen_since(committed, at), why=_text(why, MOST_ADVICE))
            for it, (at, why) in (behind or {}).items()
        ],
        pending=pending[:MOST] if pending is not None else None,
        other_pending=max(0, len(pending or ()) - MOST),
        vacuumed=_text(vacuumed, MOST_ADVICE) if isinstance(vacuumed, str) else vacuumed,
        applications=[
            WritingApplication(id=_text(it.id), version=it.version, committed=it.committed, odd=bool(it.odd))
            for it in applications[:MOST]
        ],
        other_applications=max(0, len(applications) - MOST),
        streams=[replace(it, query=_text(it.query)) for it in streams],
    )


def _clustering(snapshot: Snapshot) -> list[str]:
    spread = SpreadCount(snapshot.settings, snapshot.schema, snapshot.partition_columns, where=snapshot.url)
    for some in snapshot.slices() if spread.is_wanted else ():
        spread.add(some)
    found = spread.result()
    return [_text(it, MOST_ADVICE) for it in found.sentences()] if found else []


def _text(text: str, most: int = MOST_TEXT) -> str:
    cut = text if len(text) <= most else text[:most] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()  # a name on a disk may not be UTF-8


def _operation(decided: Decided) -> str:
    marker = decided.marker
    return ABORTED if marker.is_abort else marker.dbio_commit.operation if marker.dbio_commit else "unknown"


# --- live files ---------------------------------------------------------------------------------------------------


def _count(files: Iterable[DataFile], target_size: int) -> tuple["array[int]", list[PartitionFiles], Amount]:
    """The known sizes, the partitions, and the small files. Partitions are counted by directory, which is fast.

    A table may have millions of files. Those of a large one are read from its checkpoint while they are counted.
    """
    each, counts, sizes = array("q"), Counter[str](), Counter[str]()
    small, small_sizes = Counter[str](), Counter[str]()
    for file in files:
        directory = file.path.rpartition("/")[0]
        counts[directory] += 1
        if file.size != UNKNOWN_SIZE:
            sizes[directory] += file.size
            each.append(file.size)
            if is_small(file.size, target_size):
                small[directory] += 1
                small_sizes[directory] += file.size
    several = [name for name, count in small.items() if count > 1]
    return (
        each,
        [PartitionFiles(name=name, files=count, size=sizes[name]) for name, count in counts.items()],
        Amount(objects=sum(small[name] for name in several), size=sum(small_sizes[name] for name in several)),
    )


_FEW_SIZES = 10_000
"""How many sizes are sorted at once."""


def _nth(sizes: "array[int]", n: int) -> int:
    """`sorted(sizes)[n]`, without a list of all sizes, which takes five times as much memory."""
    while len(sizes) > _FEW_SIZES:
        low, high = min(sizes), max(sizes)
        if low == high:
            return low
        width = (high - low) // 1000 + 1
        counts = Counter((size - low) // width for size in sizes)
        for number in sorted(counts):
            if n < counts[number]:
                sizes = array("q", (size for size in sizes if (size - low) // width == number))
                break
            n -= counts[number]
    return sorted(sizes)[n]


_BOUNDS = [digit * 10**power for power in range(3, 15) for digit in (1, 2, 5)]
"""1 kB, 2 kB, 5 kB, 10 kB and so on."""


def _size_classes(sizes: Sequence[int]) -> list[SizeClass]:
    counts, totals = Counter[int](), Counter[int]()
    for size in sizes:
        number = min(bisect_right(_BOUNDS, size), len(_BOUNDS) - 1)
        counts[number] += 1
        totals[number] += size
    if not counts:
        return []
    return [
        SizeClass(below=_BOUNDS[number], files=counts[number], size=totals[number])
        for number in range(min(counts), max(counts) + 1)
    ]


# --- commits ------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR = timedelta(days=365)
_LENGTHS = [
    *(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 360)),
    *(timedelta(days=days) for days in (1, 7, 30)),
]


def _activity(decided: Sequence[tuple[datetime, str]], at: datetime) -> Activity | None:
    if not decided:
        return None
    first = min(time for time, _ in decided)
    last = max(at, *(time for time, _ in decided))  # the store's clock may be ahead of this machine's
    years = _YEAR * (1 + (last - first) // (_YEAR * (MOST_PERIODS - 1)))
    length = next((it for it in _LENGTHS if (last - first) // it < MOST_PERIODS - 1), years)
    number = (first - _EPOCH) // length
    counts: dict[int, Counter[str]] = {it: Counter() for it in range(number, (last - _EPOCH) // length + 1)}
    for time, operation in decided:
        counts[(time - _EPOCH) // length][operation] += 1
    periods = [Period(begins=_EPOCH + it * length, decided=dict(count)) for it, count in counts.items()]
    return Activity(length=length, periods=periods)


def _checkpointed(snapshot: Snapshot) -> datetime | None:
    entry = snapshot.log.checkpoints.get(snapshot.checkpoint.number)
    return entry.modified if entry else None


def _news(snapshot: Snapshot) -> Sequence[Decided]:
    """The transactions that the checkpoint does not cover."""
    return snapshot.news if snapshot.checkpoint.number else snapshot.transactions


def _unseen_since(committed: Sequence[Decided], published: datetime | None) -> datetime | None:
    """The time of the oldest commit after the last publication, or of the newest if there is none after it."""
    later = [it.modified for it in committed if published is None or it.modified > published]
    return min(later, default=max((it.modified for it in committed), default=None))


# --- transactions, and what is wrong ------------------------------------------------------------------------------


def _pending(snapshot: Snapshot, check: CheckReport | None, at: datetime) -> list[PendingWrite] | None:
    most = timedelta(seconds=MAX_LIFE_S)
    if check:
        return [
            PendingWrite(
                tid=_text(it.tid),
                started=it.started,
                files=it.files,
                size=it.size,
                too_old=it.age > most,
                home=_text(it.home) if it.home else None,
            )
            for it in check.pending
        ]
    if snapshot.scope is Scope.DIRECTORY:
        return None
    log = snapshot.log
    tids = set(log.pending) - snapshot.checkpoint.covered
    started = sorted((log.started[tid].modified, tid) for tid in tids)
    return [PendingWrite(tid=_text(tid), started=time, too_old=at - time > most) for time, tid in started]


def _problems(check: CheckReport) -> list[Problem]:
    odd = [f"{it.id}: {it.odd}" for it in check.applications if it.odd]
    found: dict[str, Sequence[str]] = {
        "missing live files": check.missing,
        "live files of another size than their markers record": [
            f"{it.path}: {it.found:,} bytes, not {it.expected:,}" for it in check.wrong_size
        ],
        "live files that some engine cannot read as they are meant": [
            f"{path}: {problem}" for path, problem in check.misread.items()
        ],
        "corrupt markers, whose transactions this page takes for pending": list(check.corrupt.values()),
        "signs of another tool's vacuum": check.another_vacuum,
        "problems of what is published": check.publications,
        "settings that no writer evaluates": check.refused_settings,
        "versions of applications that no writer can have committed": odd,
        "markers by whose statistics no file is skipped": list(check.useless_statistics.values()),
        "commits whose statistics were left out": [
            f"{path}: of {count:,} files" for path, count in check.without_statistics.items()
        ],
        "statistics that readers do not keep": [check.unkept_statistics] if check.unkept_statistics else [],
    }
    return [
        Problem(what=what, count=len(cases), first=[_text(case) for case in cases[:MOST]])
        for what, cases in found.items()
        if cases
    ]
