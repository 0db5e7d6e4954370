"""Commits transactions of several tables together: all of them, or none (PROTOCOL.md, Joint transactions).

Every transaction prepares its commit under a turn of its table. Then the commit marker in one table, the home, decides
all of them. It has the commit markers of the other tables in it, which this process puts there next. If it dies before
that, others do it: a process that would abort the transaction in a table asks the home first (`decision`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from msgspec import Raw, structs

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    AccessDeniedError,
    AppVersionError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.commit.decision import abort_many, refused
from dbio_commit.commit.request import CommitRequest
from dbio_commit.commit.root import Target
from dbio_commit.commit.table_root import Draft, TableRoot
from dbio_commit.commit.tids import new_tid
from dbio_commit.log.object_cache import holding
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.commit import encode_home
from dbio_commit.protocol.markers.joint import HERE, MOST_TABLES, Joint, OtherTable, Part
from dbio_commit.store import Store

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """The transaction of one table, with all its files."""

    root: TableRoot
    request: CommitRequest
    abort: Callable[[], None]
    conclude: Callable[[Commit], Commit]
    """Does what follows the decision."""

    @property
    def table_id(self) -> str:
        assert self.request.terms.origin
        return self.request.terms.origin.table_id


@dataclass(kw_only=True)
class JointCommit:
    """Collects the transactions of a joint transaction, and decides them."""

    tid: str | None = None
    """The id of all transactions; None before the first one begins."""
    home: Store | None = None
    """The table that decides: that of the first transaction."""
    _begun: dict[str, OtherTable] = field(default_factory=dict)
    """The tables in which a transaction has begun, by id, with their paths from the home."""
    _members: list[Member] = field(default_factory=list)
    _skipped: list[str] = field(default_factory=list)
    """The tables to which the application has committed its version before."""
    _may_be_decided: bool = False
    """Whether the commit marker in the home may have been put."""

    def check_place(self, store: Store) -> None:
        """Raises InvalidInputError for a table that no path leads to from the home. Called before it is created."""
        if self.home is not None:
            self.home.path_to(store)

    def home_for(self, store: Store, clock: Clock, target: Target, *, moves: bool, claims: bool) -> OtherTable:
        """The home, as seen from a table in which a transaction begins.

        Raises InvalidInputError for a table that cannot take part.
        """
        if target.origin is None or not claims:
            raise InvalidInputError(
                f"{store.url} has no {names.DESCRIPTOR}: its directories are committed one by one. Only dbio "
                "tables take part in joint transactions; `dbio adopt` makes it one"
            )
        if moves:
            raise InvalidInputError(
                f"this overwrite changes the partition columns of {store.url}, which aborts all that others write "
                "there; it cannot be part of a joint transaction: do it by itself"
            )
        table_id = target.origin.table_id
        if table_id in self._begun:
            raise InvalidInputError(
                f"this joint transaction writes to {store.url} already: it takes one operation for each table, since "
                "none sees what the others write"
            )
        if len(self._begun) >= MOST_TABLES:
            raise InvalidInputError(f"a joint transaction writes to at most {MOST_TABLES} tables")
        if self.home is None:
            self.home, self.tid = store, names.joint_tid(new_tid(clock))
            self._begun[table_id] = OtherTable(path=HERE, id=table_id)
            return self._begun[table_id]
        (home_id, _), path = next(iter(self._begun.items())), store.path_to(self.home)
        self._begun[table_id] = OtherTable(path=self.home.path_to(store), id=table_id)
        return OtherTable(path=path, id=home_id)

    def add(self, member: Member) -> Commit:
        """Takes a transaction that is complete. Returns what it would commit, if it were alone and nothing changed
        meanwhile."""
        self._members.append(member)
        request = member.request
        marker = request.marker(request.files, [*request.rewritten], request.metrics(0.0), now=member.root.clock.now())
        return member.root.result(request.terms.tid, marker)

    def skip(self, url: str) -> None:
        """Notes a table to which the application has committed this version before."""
        self._skipped.append(url)

    def commit(self) -> Mapping[str, Commit]:
        """Commits all transactions. Returns the commits by the URLs of their tables; none if all were skipped.

        Raises what `Transaction.commit` raises; AppVersionError if the application has committed this version to some
        of the tables only; CommitStateUnknownError also if all is decided, and a table cannot show it yet.
        """
        if not self._members:
            return {}
        with self._deciding():
            drafts = self._draft()
            if not drafts:
                self.abort()
                return {}
            home, draft = next(it for it in drafts if it[0].root.store is self.home)
            others = [it for it in drafts if it[0] is not home]
            bodies = [it.root.encode(own) for it, own in others]
            parts = [Part(id=it.table_id, marker=Raw(body)) for (it, _), body in zip(others, bodies, strict=True)]
            joint = structs.replace(self._joint_from(home.root.store), parts=parts)
            body = encode_home(home.root.encode(draft), joint)
            self._may_be_decided = True
            commits = [(home, home.root.decide(draft, body))]
        failed: dict[str, DbioError] = {}
        for (it, draft), part in zip(others, bodies, strict=True):
            commits.append((it, self._carry_out(it, draft, part, failed)))
        done = {it.root.store.url: it.conclude(commit) for it, commit in commits}
        if failed:
            url, error = next(iter(failed.items()))
            raise CommitStateUnknownError(
                f"the joint transaction {self.tid} is committed, and {url} {_lack(url, error)}"
            ) from error
        return done

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Aborts after an error, unless the outcome is unknown."""
        try:
            yield
        except CommitStateUnknownError:
            raise
        except BaseException as error:
            self._may_be_decided &= not isinstance(error, TransactionAbortedError)
            try:
                is_aborted = self.abort()
            except TransactionStateError:
                raise CommitStateUnknownError(
                    f"the joint transaction {self.tid} is committed, and this process failed: {error!r}. Its tables "
                    "get their markers from others. Look at `dbio show` before you write the same data again"
                ) from error
            if isinstance(error, AccessDeniedError) and not is_aborted and self.home and self.tid:
                raise refused(self.home, self.tid, error) from error
            raise

    def _draft(self) -> list[tuple[Member, Draft]]:
        """Takes the turns, in an order that is the same for all joint transactions. Empty if the version of the
        application is committed everywhere."""
        if failed := self._begun.keys() - {it.table_id for it in self._members}:
            url = self._store_of(self._begun[min(failed)]).url
            raise TransactionStateError(
                f"an operation on {url} failed in this joint transaction, and nothing was committed: begin again"
            )
        drafts: list[tuple[Member, Draft]] = []
        with ExitStack() as stack:
            for it in sorted(self._members, key=lambda it: it.table_id):
                stack.enter_context(holding(it.root.store))
                found = it.root.draft(replace(it.request, joint=self._joint_from(it.root.store)))
                if isinstance(found, Commit):
                    self._skipped.append(it.root.store.url)
                else:
                    drafts.append((it, found))
        if drafts and self._skipped:
            app, left = self._members[0].request.terms.app, [it.root.store.url for it, _ in drafts]
            raise AppVersionError(
                f"{app and app.id!r:.200} has committed version {app and app.version} to "
                f"{', '.join(self._skipped)[:1000]}, and not to {', '.join(left)[:1000]}; nothing was committed: it "
                "was committed to these tables one by one, or to fewer tables. Use another version or another id"
            )
        return drafts

    def _joint_from(self, store: Store) -> Joint:
        """The tables, with their paths from this one."""
        found = [OtherTable(path=store.path_to(self._store_of(it)), id=it.id) for it in self._begun.values()]
        return Joint(home=found[0], tables=found)

    def _store_of(self, table: OtherTable) -> Store:
        assert self.home is not None
        return self.home.beside(table.path)

    def _carry_out(self, member: Member, draft: Draft, body: bytes, failed: dict[str, DbioError]) -> Commit:
        """Commits a part that is decided. Adds a failure to `failed`: then others do it."""
        root = member.root
        try:
            return root.decide(draft, body)
        except CommitConflictError as error:
            _log.warning("%s: was dropped while the joint transaction %s was committed: %s",
                         root.store.url, self.tid, error)  # fmt: skip
        except DbioError as error:
            failed[root.store.url] = error
        return root.result(draft.request.terms.tid, draft.marker)

    def abort(self) -> bool:
        """Aborts all transactions: first in the home, which decides. Logs what fails: then others abort. Returns
        whether the home has aborted."""
        is_aborted = True
        for it in sorted(self._members, key=lambda it: it.root.store is not self.home):
            try:
                it.abort()
            except TransactionStateError:
                raise
            except DbioError as error:
                if failure := self._abort_alone(it, error):
                    _log.warning("%s: could not abort %s, vacuum will: %s", it.root.store.url, self.tid, failure)
                    is_aborted = is_aborted and it.root.store is not self.home
        return is_aborted

    def _abort_alone(self, member: Member, error: DbioError) -> DbioError | None:
        """Aborts in a table whose home was dropped meanwhile, if only this process knows that nothing was decided.
        Returns why it is not aborted. Vacuum deletes the files."""
        if not isinstance(error, CorruptMarkerError) or self._may_be_decided or self.tid is None:
            return error
        return abort_many(member.root.store, member.root.clock, [self.tid], alone=True)[self.tid]


def _lack(url: str, error: DbioError) -> str:
    """Why the table does not show what is decided, and what to do."""
    if isinstance(error, TransactionAbortedError):
        return (
            "lacks it for good, since somebody aborted it there without its home (`dbio abort --alone`) while this "
            f"process committed: write to {url} what it lacks, and nothing to the other tables"
        )
    return (
        f"does not show it yet, since its commit marker could not be put: {error}. The next writer there puts it, and "
        f"so does `{command('dbio', 'vacuum', url)}`; do not write the same data again"
    )
