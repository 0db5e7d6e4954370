"""What must be true of a table, whatever happens: the invariants I1 to I9, checked before others see a change.

It sees objects appear and disappear, and reads commit markers by itself; of the package's code it uses the names, and
a reader on a copy of the store that nothing disturbs. The directory scope has its own model, in `directories`.
"""

import gzip
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import DbioError, HistoryLostError, InvalidInputError, TableNotFoundError
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.places import is_published
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.log import REFUSAL
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.settings import PARTITION_COLUMNS, Layout, layout_of, layout_text
from tests.builders import as_dbio_sees

from .world import EPOCH, ROW_BYTES, Actor, SerialStore, Violation, World

ADOPTED = "adopted"
"""Stands for the transaction that added what was there before the table."""

FORGOTTEN_AFTER = timedelta(days=28)
"""The history may leave out what is older; it promises 30 days, by a clock that may be a day ahead."""

OURS = ("writer", "query", "job", "restorer")
"""What the names of those begin with who write, and abort what is their own."""

LEASE_ENDED = "a writer that waited aborted the holder of the turn"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a commit marker says, and when it was created."""

    step: int
    modified: datetime
    added: frozenset[str]
    removed: frozenset[str]
    info: Mapping[str, Any]

    @property
    def operation(self) -> str | None:
        """What it did, in the word that writers use: markers have an older one for one operation."""
        recorded: str | None = self.info.get("operation")
        return "overwrite_partitions" if recorded == "replace_partitions" else recorded

    @property
    def is_abort(self) -> bool:
        return self.info.get("operation") == "abort"

    @property
    def is_blind(self) -> bool:
        """Whether it depends on nothing that others do."""
        return self.info.get("operation", "append") == "append" and "turn" not in self.info


@dataclass(slots=True)
class Asked:
    """What a writer wants of its transaction."""

    operation: str
    added: set[str] = field(default_factory=set)
    copies: list[set[str]] = field(default_factory=list)
    """What copies of it that run elsewhere add instead."""
    removed: frozenset[str] = frozenset()
    """Of a rewrite."""
    replaced: frozenset[str] = frozenset()
    """The partitions that it names; none for those that it writes to."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """The settings that it changes; an empty text removes one."""
    restores: datetime | None = None
    """It brings back the state as of then, by whatever operation."""
    written: set[frozenset[str] | None] = field(default_factory=set)
    """The columns for which its files are written; several if copies of it differ. None, and no entry, is unknown."""


@dataclass(frozen=True, slots=True)
class State:
    """The table, from one commit to the next."""

    step: int
    """From which it held."""
    live: frozenset[str]
    tids: frozenset[str] = frozenset()
    """What is committed."""
    apps: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The versions that each application has committed."""
    columns: frozenset[str] | None = None
    settings: Mapping[str, str] | None = None


@dataclass
class Model:
    """What has been decided so far, and every state that there was."""

    world: World
    promised: timedelta
    """How long what was removed stays for readers, whatever the clocks say."""
    is_dbio: bool = False
    """Unpartitioned, and so still a valid directory for DBIO's own readers."""
    adopted: frozenset[str] = frozenset()
    untracked: bool = False
    """Vacuum is to delete what no transaction wrote."""
    live: frozenset[str] = field(init=False)
    states: list[State] = field(init=False)
    decided: dict[str, Decision] = field(default_factory=dict)
    """In the order of decisions."""
    started: dict[str, int] = field(default_factory=dict)
    """Tid -> the step in which it began."""
    turns: dict[str, int] = field(default_factory=dict)
    """Tid -> the step in which it took its last turn."""
    moves: set[str] = field(default_factory=set)
    """Tids whose turn said that they change the partition columns."""
    recolumns: set[str] = field(default_factory=set)
    """Tids whose turn said that they give the table other columns."""
    first_layout: Layout | None = None
    """The descriptor's; None of a directory that was adopted."""
    asked: dict[str, Asked] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    """Tids that no copy of their writer will commit, since their version was committed before they began."""
    apps: dict[str, frozenset[int]] = field(default_factory=dict)
    created: int | None = None
    """The step in which the table was."""
    schemas: list[tuple[int, frozenset[str] | None]] = field(default_factory=lambda: [(0, None)])
    """(the turn from which it held, the columns)"""
    settings: list[tuple[int, Mapping[str, str] | None]] = field(default_factory=lambda: [(0, None)])
    """(the turn from which they held, the settings; None where there never were any)"""
    deletions: int = 0
    keys: dict[str, frozenset[str]] = field(default_factory=dict)
    """The keys of the rows in a file that somebody merged; each is in one live file at the most."""
    rows: dict[str, bytes] = field(default_factory=dict)
    """What is in each file, one row after the other, also when it is gone."""
    restoring: dict[str, Asked] = field(default_factory=dict)
    """By who is about to restore the table: its transaction begins within the package."""
    erasing: dict[str, frozenset[bytes]] = field(default_factory=dict)
    """By who erases them: the rows."""
    erased: set[bytes] = field(default_factory=set)
    """The rows of which an erasure has said that nothing is left."""
    strangers: set[str] = field(default_factory=set)
    """Markers that came late, for a table that was here before: vacuum reports them, and leaves them alone."""
    _writers: dict[str, tuple[Actor, int, int]] = field(default_factory=dict)
    """Who wrote each checkpoint and publication last, how many failures they had had, and in which step."""
    _erased: set[str] = field(default_factory=set)
    """Files that an erasure deleted, earlier than a vacuum would."""
    _removed_at: dict[str, datetime] = field(default_factory=dict)
    _written: dict[str, datetime] = field(default_factory=dict)
    """What no transaction wrote, and when it came."""
    _checkpointed: int = 0
    """The step in which a checkpoint was written last."""
    _checkpoints: dict[int, int] = field(default_factory=dict)
    """By number: the step in which the checkpoint was written."""
    _late: set[str] = field(default_factory=set)
    """Files that were written after their transaction was decided, or by none: DBIO's readers see them."""
    _redecided: set[str] = field(default_factory=set)
    _owners: dict[str, str] = field(default_factory=dict)
    """Tid -> the name of who began it."""
    _begun: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Tid -> the application that its start marker tells."""
    _again: set[str] = field(default_factory=set)
    """Tids whose start marker a late task put again: what they committed is hidden from DBIO's readers."""

    def __post_init__(self) -> None:
        self.live = self.adopted
        self.states = [State(self.world.steps, self.adopted)]
        if self.adopted:
            self.decided[ADOPTED] = Decision(0, EPOCH, self.adopted, frozenset(), {"operation": "adopt"})

    # --- what happens ---------------------------------------------------------------------------------------------

    def on_put(self, path: str, body: bytes) -> None:
        directory, name = names.split(path)
        marker = names.parse_log_name(name)
        if (actor := self.world.current()) and (is_published(path) or path.startswith(Kind.CHECKPOINT)):
            self._writers[path] = actor, actor.failures, self.world.steps
        if (marker and directory) or is_published(path):
            return  # a stranger's, which means nothing here
        if marker is None:
            tid = names.parse_data_file(name)
            self.rows[path] = body
            if names.is_data_file(path) and (back := self.erased.intersection(rows_in(body))):
                raise Violation(f"erased rows came back: {sorted(back)} in {path}")
            if path == names.DESCRIPTOR:
                self.created = self.world.steps
                self.first_layout = tuple(json.loads(body)["partition_columns"])
            elif tid is None:
                self._written[path] = self.world.now
                self._late.add(path)
            elif tid in self.decided or tid in self.skipped:
                self._late.add(path)
                self.world.happened("a file came after its transaction was decided")
            return
        if marker.kind is Kind.STARTED:
            self._on_start(marker.id, body)
        elif marker.kind is Kind.TURN:
            self._on_turn(**json.loads(body))
        elif marker.kind is Kind.CHECKPOINT:
            self._checkpointed = self._checkpoints[int(marker.id)] = self.world.steps
            self.world.happened("checkpoint")
        elif marker.kind is Kind.COMMITTED and body:
            self._on_decision(marker.id, json.loads(body))
        elif marker.kind is Kind.COMMITTED:
            self.world.happened("a marker was left empty")
        self._check_later(f"{path} was created")

    def on_delete(self, path: str) -> None:
        self.deletions += 1
        if is_published(path):
            return
        if path in self.live:
            raise Violation(f"I4: the live file {path} was deleted")
        at = self._removed_at.get(path)
        if at is not None and self.world.now - at < self.promised:
            if not self._may_be_erased(path):
                raise Violation(f"I4: {path} was deleted {self.world.now - at} after it was removed")
            self._erased.add(path)
        if (came := self._written.get(path)) is not None:
            if not self.untracked or self.world.now - came < self.promised:
                raise Violation(f"I4: {path}, which no transaction wrote, was deleted {self.world.now - came} later")
            self.world.happened("a file that no transaction wrote was deleted")
        if not self.adopted and self.is_foreign(path):
            raise Violation(f"I4: {path} was deleted, and a stranger's markers are beside it")
        tid = names.parse_data_file(names.split(path)[1])
        if tid in self.started and tid not in self.decided and tid not in self.skipped:
            raise Violation(f"I5: {path} was deleted, and its transaction is not decided")
        if path.startswith("_"):
            is_part = path.startswith(Kind.PART)
            self.world.happened(f"purge of {Kind.PART if is_part else path.rstrip('0123456789j')}")
            self._check_later(f"{path} was deleted")

    def _may_be_erased(self, path: str) -> bool:
        """Whether an erasure deletes the file: for its rows, or since a marker goes that alone shows what it is."""
        rows = self.erasing.get(self._who())
        if rows is None:
            return False

        def is_doomed(path: str) -> bool:
            return path not in self.world.store.objects or not rows.isdisjoint(self.rows_of(path))

        return is_doomed(path) or any(
            path in it.added | it.removed and any(map(is_doomed, it.added)) for it in self.decided.values()
        )

    @property
    def removed(self) -> Collection[str]:
        """All files that some commit removed."""
        return self._removed_at.keys()

    def is_foreign(self, path: str) -> bool:
        directory, name = names.split(path)
        if not directory or (tid := names.parse_data_file(name)) is None:
            return False
        markers = {names.join(directory, names.started(tid)), names.join(directory, names.committed(tid))}
        return not markers.isdisjoint(self.world.store.objects)

    def is_kept(self, path: str) -> bool:
        """Whether vacuum leaves the file where it is, though it is not live."""
        return self.is_foreign(path) or (path in self._written and not self.untracked)

    def _on_start(self, tid: str, body: bytes) -> None:
        if tid in self.started and tid in self.decided:
            self.world.happened("a late task began its transaction once more")
            self._again.add(tid)
        self.started.setdefault(tid, self.world.steps)
        self._owners.setdefault(tid, self._who())
        if (asked := self.restoring.get(self._who())) is not None:
            self.asked.setdefault(tid, asked)
        if body:
            app = json.loads(body).get("app")
            if app:
                self._begun[tid] = app["id"], app["version"]

    def _on_turn(
        self, tid: str, table_id: str | None = None, *, new_layout: bool = False, new_columns: bool = False
    ) -> None:
        if new_layout:
            self.moves.add(tid)
        if new_columns:
            self.recolumns.add(tid)
        if tid in self.turns:
            self.world.happened("a turn was taken again")
        self.turns[tid] = self.world.steps

    def _added(self, tid: str) -> frozenset[str]:
        """What a transaction added; that of an adoption has no marker."""
        return self.decided[tid if tid in self.decided else ADOPTED].added

    def _on_decision(self, tid: str, body: Mapping[str, Any]) -> None:
        info = body.get("dbio_commit") or {}
        referred = frozenset[str]().union(*(self._added(it) & self.live for it in info.get("removed_tids") or ()))
        if referred:
            self.world.happened("files were removed by the names of their transactions")
        decision = Decision(
            self.world.steps,
            self.world.store.objects[names.committed(tid)][1],
            frozenset(body["added"]),
            frozenset([*body["removed"], *referred]),
            info,
        )
        if (before := self.decided.get(tid)) is not None:
            if (before.info.get("commit_id"), before.added) != (decision.info.get("commit_id"), decision.added):
                self._check_redecision(tid, before, decision)
            return
        self.decided[tid] = decision
        if decision.is_abort and tid in self.turns and self._who().startswith(OURS):
            self.world.happened("a writer gave up its turn" if self._who() == self._owners.get(tid) else LEASE_ENDED)
        if decision.is_abort:
            self._check_abort(tid)
        if missing := decision.added - self.world.store.objects.keys():
            raise Violation(f"I5: {tid} commits files that are not there: {sorted(missing)}")
        if decision.info and (lost := decision.added - self.world.store.durable):
            raise Violation(f"I2: {tid} commits files that a power cut may take: {sorted(lost)}")
        before_it, self.live = self.live, (self.live | decision.added) - decision.removed
        self._removed_at |= dict.fromkeys(decision.removed - self._removed_at.keys(), decision.modified)
        if not decision.is_abort:
            if tid in self.skipped:
                raise Violation(f"I8: {tid} was to be skipped, and is committed")
            self._check_asked(tid, decision)
            self._check_order(tid, decision, before_it)
            self._check_app(tid, decision)
            self._check_schema(tid, decision)
            self._check_settings(tid, decision)
            self._check_layout(tid, decision)
            self._check_columns()
            self._check_keys(tid, decision)
            self.states.append(
                State(
                    self.world.steps,
                    self.live,
                    self.states[-1].tids | {tid},
                    dict(self.apps),
                    self.schemas[-1][1],
                    self.settings[-1][1],
                )
            )

    def _who(self) -> str:
        actor = self.world.current()
        return actor.name.removeprefix("of ") if actor else ""

    def _check_abort(self, tid: str) -> None:
        """A writer aborts its own, who held the turn for too long, and attempts that could only be skipped."""
        who, owner, app = self._who(), self._owners.get(tid, ""), self._begun.get(tid)
        is_own = not owner or who.partition("-")[0] == owner.partition("-")[0]  # it may have begun before an adoption
        if not who.startswith(OURS) or tid in self.turns:
            return
        if self._holds_one_of(self.moves):
            self.world.happened("what began in another layout was aborted")
            return
        begun, _ = self.world.store.objects.get(names.started(tid), (b"", None))
        if not is_own and self._holds_one_of(self.recolumns) and not (begun and json.loads(begun).get("takes_turn")):
            self.world.happened("an append was aborted that began before other columns")
            return
        if app is not None and app[1] in self.apps.get(app[0], ()):
            if who != owner:
                self.world.happened("an attempt that came to nothing was aborted")
        elif not is_own:
            raise Violation(f"I3: {who} aborted {tid} of {owner}, an attempt at {app}, and {self.apps} are committed")

    def _holds_one_of(self, turns: Collection[str]) -> bool:
        """Whether it is the owner of one of these transactions who acts."""
        who = self._who().partition("-")[0]
        return any(self._owners.get(it, "").partition("-")[0] == who for it in turns)

    def _check_redecision(self, tid: str, before: Decision, decision: Decision) -> None:
        """Who believed for long that it was pending may still abort it, where a checkpoint says what it was.

        Or commit what another copy of it had staged, by a request that comes late. DBIO's readers believe either.
        """
        if before.is_abort and decision.is_abort:
            self.world.happened("an abort came once more, after a purge")
            return
        is_own = before.info.get("commit_id") == decision.info.get("commit_id")
        if not (decision.is_abort or is_own) or tid not in self.undisturbed().checkpoint.covered:
            raise Violation(f"I3: {tid} was decided twice: {before} and {decision}")
        self._redecided.add(tid)
        self._late |= decision.added
        self.world.happened("a marker came after a commit was purged, and said nothing")

    def _check_asked(self, tid: str, decision: Decision) -> None:
        """I2, I9: it adds what its writer staged, and removes nothing that its writer did not ask for."""
        if not decision.info:  # a stranger's
            return
        asked = self.asked[tid]
        if asked.restores is not None:
            return self._check_restored(tid, decision, asked.restores)
        if decision.operation != asked.operation or decision.added not in (asked.added, *asked.copies):
            raise Violation(f"I9: {tid} is {decision}, and its writer wanted {asked}")
        match asked.operation:
            case "overwrite":
                may = decision.removed
            case "overwrite_partitions":
                parts = asked.replaced or _directories(decision.added)
                may = frozenset(path for path in decision.removed if names.split(path)[0] in parts)
            case _:
                may = asked.removed
        if decision.removed != may:
            raise Violation(f"I9: {tid} removes {sorted(decision.removed)}, and its writer wanted {asked}")

    def _check_restored(self, tid: str, decision: Decision, at: datetime) -> None:
        """I2, I7, I9: it copies files of then alone; their rows are all that there is, but for blind appends beside it.

        Those that came before its turn it must have known of: they would be undone, and nobody asked for that.
        """
        then = self.as_of(at)
        known = {(names.split(path)[0], self.rows[path]): path for path in then.live}
        for path in decision.added:
            source = known.get((names.split(path)[0], self.rows[path]))
            if source is None:
                raise Violation(f"I9: {tid} restores the state as of {at}, and {path} is a copy of no file of it")
            if source in self.keys:
                self.keys[path] = self.keys[source]
        taken = self.turns.get(tid, 0)
        beside = {path for path in self.live - decision.added - then.live if self._is_beside(path, taken)}
        found, wanted = self._rows_of(self.live - beside), self._rows_of(then.live)
        if found != wanted:
            raise Violation(
                f"I7: {tid} restores the state as of {at}, loses {wanted - found}, and has {found - wanted}"
            )
        columns = columns_in(decision.info.get("schema"))
        if columns != (wanted_columns := then.columns or self.schemas[-1][1]):
            raise Violation(f"I7: {tid} restores the columns {wanted_columns} as of {at}, and leaves {columns}")
        self.world.happened(f"a state was restored by {decision.info['operation']}")
        self.world.happened("files came back as copies" if decision.added else "nothing had to be copied")

    def _is_beside(self, path: str, turn_taken: int) -> bool:
        """Whether a blind append brought the file, later than somebody took a turn."""
        writer = self.decided[self._adder(path)]
        return writer.step > turn_taken and writer.is_blind

    def rows_of(self, path: str) -> Collection[bytes]:
        """Of a file, also when it is gone; none of one that was there before the simulation."""
        return rows_in(self.rows.get(path, b""))

    def _rows_of(self, paths: Iterable[str]) -> Counter[bytes]:
        return Counter(row for path in paths for row in rows_in(self.rows[path]))

    def as_of(self, at: datetime) -> State:
        return self._state_of({tid for tid, decision in self.decided.items() if decision.modified <= at})

    def _check_order(self, tid: str, decision: Decision, before: frozenset[str]) -> None:
        """I7: a commit that depends on the table's state has seen all that came before its turn."""
        operation = decision.operation
        if not decision.removed <= before:
            raise Violation(f"I7: {tid} removes files that were not live: {sorted(decision.removed - before)}")
        if operation not in ("overwrite", "overwrite_partitions"):
            return
        replaced: frozenset[str] | None = None
        if operation == "overwrite_partitions":
            replaced = self.asked[tid].replaced or _directories(decision.added)
        taken = self.turns.get(tid, self.started.get(tid, 0))
        for path in self.live - decision.added:
            if replaced is not None and names.split(path)[0] not in replaced:
                continue
            if not self._is_beside(path, taken):
                writer = self._adder(path)
                raise Violation(f"I7: {tid} overwrites, and {path} of {writer}, committed before its turn, is left")

    def _check_keys(self, tid: str, decision: Decision) -> None:
        """I7: who merges a row has seen it, wherever others have merged it before, or brought it elsewhere."""
        for path in decision.added & self.keys.keys():
            for other in self.live - {path}:
                if twice := self.keys[path] & self.keys.get(other, frozenset()):
                    raise Violation(f"I7: {tid} merged {sorted(twice)}, which is in {other}, too")

    def _adder(self, path: str) -> str:
        return next(tid for tid, decision in self.decided.items() if path in decision.added)

    def _check_app(self, tid: str, decision: Decision) -> None:
        if app := decision.info.get("app"):
            before, version = self.apps.get(app["id"], frozenset()), app["version"]
            if version in before or (version < max(before, default=-1) and not app.get("any_order")):
                raise Violation(f"I8: {tid} commits version {version} of {app['id']} after {self.apps}")
            if version < max(before, default=-1):
                self.world.happened("a day was committed after later ones")
            self.apps[app["id"]] = before | {version}

    def _check_schema(self, tid: str, decision: Decision) -> None:
        """I7: changes of schema come one after the other, and all others record what they saw."""
        columns, turn = columns_in(decision.info.get("schema")), decision.info.get("turn")
        last_turn, current = self.schemas[-1]
        if turn is None:
            as_of = decision.info.get("schema_turn")
            then = next((was for since, was in reversed(self.schemas) if as_of is not None and since <= as_of), columns)
            if columns != then:
                raise Violation(f"I7: {tid} says that the columns were {columns} as of turn {as_of}, not {then}")
            return
        if turn <= last_turn:
            raise Violation(f"I7: {tid} commits in turn {turn}, after turn {last_turn}")
        if decision.info.get("operation") != "overwrite" and not (current or set()) <= (columns or set()):
            raise Violation(f"I7: {tid} adds columns to {current}, and leaves {columns}")
        if columns != current:
            self.world.happened("the schema was changed")
        self.schemas.append((turn, columns))

    def _check_columns(self) -> None:
        """6.4: the table has all columns for which its live files were written."""
        columns = self.schemas[-1][1]
        if columns is None:
            return
        for tid in {names.parse_data_file(names.split(path)[1]) for path in self.live}:
            asked = self.asked.get(tid or "")
            if asked and asked.written and not any(it is None or it <= columns for it in asked.written):
                raise Violation(f"6.4: files of {tid} were written for {asked.written}, and the table has {columns}")

    def _check_settings(self, tid: str, decision: Decision) -> None:
        """I7: changes of settings come one after the other, each on those before it; all others tell what they saw."""
        told, turn, as_of = (decision.info.get(key) for key in ("settings", "turn", "schema_turn"))
        if turn is None:
            then = next((was for since, was in reversed(self.settings) if as_of is not None and since <= as_of), None)
            if told != then:
                raise Violation(f"I7: {tid} says that the settings were {told} as of turn {as_of}, not {then}")
            return
        before, sets, restores = self.settings[-1][1], self.asked[tid].sets, self.asked[tid].restores
        if restores is not None:
            layout = self.layout_by(self.as_of(restores).settings)
            if layout != self.layout:
                sets = {PARTITION_COLUMNS: layout_text(layout)}
                self.world.happened("a restore brought partition columns back")
        wanted = {name: text for name, text in {**(before or {}), **sets}.items() if text}
        if told != (wanted if wanted or before is not None else None):
            raise Violation(f"I7: {tid} sets {sets} where the settings were {before}, and leaves {told}")
        if told != before:
            self.world.happened("a setting was changed")
        self.settings.append((turn, told))

    @property
    def layout(self) -> Layout:
        """The partition columns now."""
        return self.layout_by(self.settings[-1][1])

    def layout_by(self, settings: Mapping[str, str] | None) -> Layout:
        return layout_of(settings, self.first_layout or ())

    def _check_layout(self, tid: str, decision: Decision) -> None:
        """I10: what a transaction adds lies in the partition columns that the table then has."""
        layouts = {tuple(names.parse_partition(names.split(path)[0])) for path in decision.added}
        if self.first_layout is not None and layouts - {self.layout}:
            raise Violation(f"I10: {tid} adds files in the partitions {layouts} of a table with {self.layout}")
        before = self.states[-1]
        if before.tids and self.layout_by(before.settings) != self.layout:
            self.world.happened("the partition columns were changed")

    # --- the store at this instant --------------------------------------------------------------------------------

    def _check_later(self, change: str) -> None:
        self.world.store.check_before_others(partial(self._check_store, change))

    def _check_store(self, change: str) -> None:
        """What a reader that nothing disturbs makes of it."""
        if names.DESCRIPTOR not in self.world.store.objects:
            return
        if difference := next(self._differences(self.undisturbed(), self.states[-1]), None):
            raise Violation(f"{difference}: {change}")
        if self.is_dbio:
            self._check_dbio(change)

    def _differences(self, snapshot: Snapshot, state: State) -> Iterator[str]:
        """How the snapshot is not that state."""
        if (found := {file.path for file in snapshot.files}) != state.live:
            yield f"I9: lost {sorted(state.live - found)}, too many {sorted(found - state.live)}"
        if (apps := _app_versions(snapshot)) != state.apps:
            yield f"I8: {apps} instead of {state.apps}"
        if (columns := columns_in(snapshot.schema)) != state.columns:
            yield f"I7: the columns {columns} instead of {state.columns}"
        if dict(snapshot.settings) != (state.settings or {}):
            yield f"I7: the settings {snapshot.settings} instead of {state.settings}"
        yield from self._wrong_history(snapshot, state)

    def _wrong_history(self, snapshot: Snapshot, state: State) -> Iterator[str]:
        """Each commit at its time, in the order of time, and of turns within it; long forgotten ones may be missing."""
        told = [(it.modified, it.tid) for it in snapshot.decided if not it.marker.is_abort and it.tid in self.decided]
        if {(self.decided[tid].modified, tid) for _, tid in told} != {*told}:
            yield f"I6: a history with other times: {told}"
        missing = state.tids - {tid for _, tid in told}
        if len(told) + len(missing) != len(state.tids) or any(map(self.must_be_told, missing)):
            yield f"I6: the history {told} instead of {sorted(state.tids)}"
        turns = [turn for _, tid in told if (turn := self.decided[tid].info.get("turn"))]
        times = [] if self.world.risks.steps else [at for at, _ in told]
        if turns != sorted(turns) or times != sorted(times):
            yield f"I6: the history is out of order: {told}"

    def must_be_told(self, tid: str) -> bool:
        decision = self.decided[tid]
        return self.world.now - decision.modified < FORGOTTEN_AFTER or bool(decision.added & self.live)

    def _check_dbio(self, change: str) -> None:
        """What DBIO's own reader makes of an unpartitioned table; late files are the known limit of its protocol."""
        objects = as_dbio_sees({path: it for path, it in self.world.store.objects.items() if not is_published(path)})
        try:
            found = {file.path for file in read_snapshot(SerialStore(objects), Clock()).files}
        except TableNotFoundError:
            found = set()
        redecided = _union(self.decided[tid].added for tid in self._redecided | self._again)
        lost, more = self.live - found - redecided, found - self.live - self._late
        if lost or more:
            raise Violation(f"DBIO: {change}, and its readers lose {sorted(lost)}, and see {sorted(more)} too many")

    def undisturbed(self) -> Snapshot:
        try:
            return read_snapshot(SerialStore(self.world.store.objects), Clock())
        except DbioError as error:
            raise Violation(f"I9: nobody can read the table any more: {error!r}") from error

    # --- what actors see ------------------------------------------------------------------------------------------

    def check_read(self, snapshot: Snapshot, *, since: int, waited: bool) -> None:
        """R1 to R3 of a read that began in step `since`, and that what it got adds up.

        `waited`: for what was still to appear, of the time of what it had listed.
        """
        commits = {tid: decision for tid, decision in self.decided.items() if not decision.is_abort}
        told = {it.tid for it in snapshot.decided if not it.marker.is_abort}
        known = max(since, self._checkpoints.get(snapshot.checkpoint.number, 0))  # a read may take a month
        forgotten = {tid for tid, it in commits.items() if it.step <= known and not self.must_be_told(tid)}
        seen = (told | forgotten | {ADOPTED}) & commits.keys()
        missed = {tid: commits[tid] for tid in commits.keys() - seen}
        if lost := [tid for tid, it in missed.items() if it.step <= since]:
            raise Violation(f"R1: a reader that began in step {since} missed {sorted(lost)}")
        self._check_prefix({tid: commits[tid] for tid in seen}, missed)
        self._check_times(commits, missed, seen - snapshot.checkpoint.covered if waited else None)
        if difference := next(self._differences(snapshot, self._state_of(seen)), None):
            raise Violation(f"{difference}: read since step {since}")
        if any(it.step > since for it in commits.values()):
            self.world.happened("a commit came during a read")
        if snapshot.log.later:
            self.world.happened("a read left out a commit that it had listed")

    def _check_prefix(self, seen: Mapping[str, Decision], missed: Mapping[str, Decision]) -> None:
        last_turn = max((it.info.get("turn", 0) for it in seen.values()), default=0)
        if skipped := [tid for tid, it in missed.items() if 0 < it.info.get("turn", 0) < last_turn]:
            raise Violation(f"R3: a reader saw turn {last_turn}, and missed the earlier turns of {sorted(skipped)}")
        if self.world.risks.steps:
            return
        for tid in seen:
            knew = max(self.started.get(tid, 0), self.turns.get(tid, 0))
            if below := [other for other, it in missed.items() if it.step <= knew]:
                raise Violation(f"R2: a reader saw {tid}, and missed {sorted(below)}, on which it may rest")

    def _check_times(
        self, commits: Mapping[str, Decision], missed: Mapping[str, Decision], waited_for: Collection[str] | None
    ) -> None:
        """R3 where times tell the order; who waited knows the order also of objects that come after their time."""
        if self.world.risks.steps or (self.world.risks.slow and waited_for is None):
            return
        of = commits if waited_for is None or not self.world.risks.slow else waited_for
        newest = max((commits[tid].modified for tid in of if tid not in missed), default=EPOCH)
        if older := [tid for tid, it in missed.items() if it.modified < newest]:
            raise Violation(f"R3: a reader saw a commit of {newest}, and missed {sorted(older)}, which are older")

    def _state_of(self, tids: Collection[str]) -> State:
        """What these commits add up to."""
        commits = [it for tid, it in self.decided.items() if tid in tids]
        apps: dict[str, frozenset[int]] = {}
        for app in filter(None, (it.info.get("app") for it in commits)):
            apps[app["id"]] = apps.get(app["id"], frozenset()) | {app["version"]}
        turn = max((it.info.get("turn", 0) for it in commits), default=0)
        live = _union(it.added for it in commits) - _union(it.removed for it in commits)
        columns, settings = dict(self.schemas)[turn], dict(self.settings)[turn]
        return State(0, frozenset(live), frozenset(tids) - {ADOPTED}, apps, columns, settings)

    def check_held(self, snapshot: Snapshot) -> None:
        """What a reader finds in its snapshot later is the state that its commits add up to."""
        told = {it.tid for it in snapshot.decided if not it.marker.is_abort}
        forgotten = {tid for tid, it in self.decided.items() if not it.is_abort and not self.must_be_told(tid)}
        seen = (told | {tid for tid in forgotten if tid in snapshot.checkpoint.covered}) & self.decided.keys()
        if difference := next(self._differences(snapshot, self._state_of(seen)), None):
            raise Violation(f"{difference}: read late")

    def check_absent(self, *, since: int) -> None:
        """A reader that began in step `since` was told that there is no table."""
        if self.created is not None and self.created <= since:
            raise Violation(f"I9: a reader that began in step {since} found no table")

    def check_past(self, snapshot: Snapshot, at: datetime) -> None:
        """What a reader got as of a time."""
        then = [decision for decision in self.decided.values() if decision.modified <= at]
        added, removed = _union(d.added for d in then), _union(d.removed for d in then)
        got = {file.path for file in snapshot.files}
        if got != added - removed:
            raise Violation(f"I6: as of {at} a reader saw {sorted(got)} instead of {sorted(added - removed)}")
        tids = frozenset(tid for tid, decision in self.decided.items() if decision in then and not decision.is_abort)
        if wrong := next(self._wrong_history(snapshot, State(0, frozenset(), tids - {ADOPTED})), None):
            raise Violation(f"I6: as of {at} a reader saw {wrong}")
        self.world.happened("a state of the past was read")

    def check_pinned(self, snapshot: Snapshot, *, age: timedelta) -> None:
        """I4: what a reader has pinned is there for as long as the retention says."""
        gone = {file.path for file in snapshot.files} - self.world.store.objects.keys() - self._erased
        if gone and age < self.promised:
            raise Violation(f"I4: a reader's files were deleted {age} after its snapshot: {sorted(gone)}")

    def check_erased(self, rows: frozenset[bytes], *, looked: int) -> None:
        """10.6: no file has these rows, whoever wrote it, and nothing names such a file. What came after the eraser's
        last look is judged at the end (`check_late`): its writer takes it back."""
        objects = self.world.store.objects
        if left := {path for path in objects if names.is_data_file(path) and not rows.isdisjoint(self.rows_of(path))}:
            raise Violation(f"an erasure left the files {sorted(left)}")
        held = self._holders(rows)
        if left := {names.committed(tid) for tid in held.values()} & objects.keys():
            raise Violation(f"an erasure left the markers {sorted(left)}")
        for name, left in self._naming(held):
            if name not in self._writers or self._writers[name][2] <= looked:
                raise Violation(f"an erasure left the paths {sorted(left)} in {name}")
        self.erased |= rows

    def check_late(self) -> None:
        """At the end: nothing that came after an erasure names what it erased, unless its writer died, or its calls
        failed, before it could take that back."""
        for name, left in self._naming(self._holders(self.erased)):
            actor, failures, _ = self._writers[name]
            if not actor.doomed and actor.failures == failures and not actor.name.startswith("of "):
                raise Violation(f"erased paths came back: {sorted(left)} in {name}")

    def _holders(self, rows: Collection[bytes]) -> dict[str, str]:
        """The committed files that have had these rows, each with its transaction."""
        return {
            path: tid
            for tid, decision in self.decided.items()
            for path in decision.added
            if not set(rows).isdisjoint(self.rows_of(path))
        }

    def _naming(self, held: Collection[str]) -> Iterator[tuple[str, set[str]]]:
        """The checkpoints and publications that name some of these files."""
        for name, (body, _) in self.world.store.objects.items():
            if name.startswith(Kind.CHECKPOINT) and body != REFUSAL:
                text = gzip.decompress(body).decode()
            elif is_published(name):
                text = body.decode(errors="replace")
            else:
                continue
            if left := {path for path in held if names.split(path)[1] in text}:
                yield name, left

    def check_committed(self, tid: str, commit: Commit | None = None) -> None:
        """What a writer was told is so; leaving `with` tells nothing but that."""
        decision = self.decided.get(tid)
        if decision is None or decision.is_abort:
            raise Violation(f"I9: the commit of {tid} was reported, and is {decision}")
        if commit:
            told, there = (frozenset(commit.added), frozenset(commit.removed)), self.world.store.objects.keys()
            left_out = decision.added - told[0]
            if not commit.marker.removed_tids:  # else the table could not be read after it, which names the paths
                left_out |= decision.removed - told[1]
            if not (told[0] <= decision.added and told[1] <= decision.removed) or left_out & there:
                raise Violation(f"I9: {tid} was reported as {commit.added}, {commit.removed}, and is {decision}")

    def check_aborted(self, tid: str) -> None:
        decision = self.decided.get(tid)
        if (decision is None or not decision.is_abort) and tid not in self.skipped:
            raise Violation(f"I3: {tid} was reported as aborted, and is {decision}")

    def check_too_late(self, tid: str) -> None:
        """Its writer was told that it cannot be aborted any more."""
        decision = self.decided.get(tid)
        if decision is None or decision.is_abort:
            raise Violation(f"I3: {tid} was reported as committed, and is {decision}")

    def check_refused(self, asked: Asked, error: DbioError, *, since: int) -> None:
        """Who wants to restore a state, since that step, was told that it cannot be: for a reason that there is."""
        assert asked.restores is not None
        there, own = self.world.store.objects.keys(), {tid for tid, it in self.asked.items() if it is asked}
        match error:
            case InvalidInputError():  # by then, or later still: what an older commit had removed is told no longer
                vacuumed = [path for path, at in self._removed_at.items() if at > asked.restores and path not in there]
                is_so = bool(vacuumed) or not self.as_of(asked.restores).live  # nor is an empty one, before all commits
                is_so |= self._is_doubtful(asked.restores)
                self.world.happened("a state was past restoring")
            case HistoryLostError():
                is_so = not self.as_of(asked.restores).live <= there
                self.world.happened("a file was gone before it was copied")
            case _:
                is_so = any(it.step > since and not it.is_abort for tid, it in self.decided.items() if tid not in own)
                is_so |= self._checkpointed > since  # which may forget what told of two commits which was the first
                self.world.happened("something was committed while a state was restored")
        if not is_so:
            raise Violation(f"I9: the state as of {asked.restores} could not be restored since step {since}: {error!r}")

    def _is_doubtful(self, at: datetime) -> bool:
        """Whether a marker came an hour after its writer had made it, and the time is between."""
        hour, skew = timedelta(hours=1), self.world.risks.skew + timedelta(seconds=2)  # stores may cut off fractions
        told = (
            (datetime.fromisoformat(it.info["timestamp"]), it.modified)
            for it in self.decided.values()
            if not it.is_abort and "timestamp" in it.info
        )
        return any(made - 26 * hour - skew <= at <= came and came - made > hour - skew for made, came in told)

    def check_first(self, tid: str) -> None:
        """I7: it was to be the first commit of its table; those that depend on nothing may slip in."""
        for other, decision in self.decided.items():
            if other == tid:
                return
            if not decision.is_abort and (decision.step <= self.turns.get(tid, 0) or not decision.is_blind):
                raise Violation(f"I7: {tid} was to be the first commit, and comes after {other}")

    def check_skipped(self, app: App) -> None:
        if app.version not in self.apps.get(app.id, ()):
            raise Violation(f"I8: {app} was skipped, and only {self.apps} are committed")

    def check_too_low(self, app: App) -> None:
        """That its version comes too late."""
        committed = self.apps.get(app.id, frozenset())
        if app.any_order or app.version in committed or app.version > max(committed, default=-1):
            raise Violation(f"I8: {app} was refused, and {self.apps} are committed")

    def check_not_committed(self, tids: Iterable[str]) -> None:
        """At the end: what was reported as failed for good."""
        for tid in tids:
            decision = self.decided.get(tid)
            if decision is not None and not decision.is_abort:
                raise Violation(f"I3: {tid} was reported as not committed, and is")


def rows_in(body: bytes) -> list[bytes]:
    """The rows in a file."""
    return [body[i : i + ROW_BYTES] for i in range(0, len(body), ROW_BYTES)]


def _directories(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(names.split(path)[0] for path in paths)


def _app_versions(snapshot: Snapshot) -> dict[str, frozenset[int]]:
    return {
        id: frozenset(version for first, last in it.ranges for version in range(first, last + 1))
        for id, it in snapshot.app_versions.items()
    }


def columns_in(schema: Mapping[str, Any] | None) -> frozenset[str] | None:
    return None if schema is None else frozenset(field["name"] for field in schema["fields"])


def _union(sets: Iterable[frozenset[str]]) -> set[str]:
    return set().union(*sets)
