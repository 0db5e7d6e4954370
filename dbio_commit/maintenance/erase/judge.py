"""Decides which files that are not live an erasure deletes at once. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields

from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.vacuum.packed import Paths
from dbio_commit.maintenance.vacuum.plan import Candidate
from dbio_commit.maintenance.vacuum.table_plan import Judge
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason, Why


@dataclass(frozen=True, slots=True)
class Doomed:
    """The removed files that may have held rows to erase."""

    paths: Paths = field(default_factory=Paths)
    flagged: frozenset[str] = frozenset()
    """The transactions whose commit markers have statistics or names of such files. A marker can be deleted only if no
    file is left whose removal it records, so these files are deleted, too."""


@dataclass(frozen=True, slots=True)
class ErasureJudge(Judge):
    """Decides for each file that is not live whether it is deleted at once."""

    doomed: Doomed = field(default_factory=Doomed)
    also: frozenset[str] = frozenset()
    """The files of this share that flagged transactions removed."""
    below: list[str] = field(default_factory=list)
    """The markers below the root are added to these. The judges of all shares have one list."""

    @classmethod
    def made_of(cls, judge: Judge, doomed: Doomed, share: Snapshot, below: list[str]) -> "ErasureJudge":
        values = {it.name: getattr(judge, it.name) for it in fields(Judge)}
        return cls(**values, doomed=doomed, also=_removed_by(doomed.flagged, share), below=below)

    def within(self, share: Snapshot) -> "ErasureJudge":
        return ErasureJudge.made_of(Judge.within(self, share), self.doomed, share, self.below)

    def garbage(self, entries: Sequence[Entry]) -> list[Candidate]:
        inside = (entry for entry in entries if entry.size and "/" in entry.path)
        self.below.extend(it.path for it in inside if names.parse_log_name(names.split(it.path)[1]))
        return Judge.garbage(self, entries)

    def _is_due(self, entry: Entry, why: Why) -> bool:
        if why.reason is not Reason.REMOVED:
            return Judge._is_due(self, entry, why)
        return entry.path in self.doomed.paths or entry.path in self.also or why.tid in self.doomed.flagged


def _removed_by(tids: Collection[str], share: Snapshot) -> frozenset[str]:
    return frozenset(path for commit in share.decided if commit.tid in tids for path in commit.marker.removed)
