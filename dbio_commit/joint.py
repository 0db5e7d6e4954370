"""Joint transactions: writes to several tables that are committed together, or not at all."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from dbio_commit.base.errors import TransactionStateError
from dbio_commit.base.options import Isolation, Mode
from dbio_commit.commit.begin import check_app
from dbio_commit.commit.context import JOINING, Joining
from dbio_commit.commit.joint import JointCommit
from dbio_commit.commit.options import AppKeywords, CommitOptions, JointKeywords, takes_options
from dbio_commit.commit.provenance import Labels
from dbio_commit.commit.write.options import FileKeywords, takes_write_options, try_again
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.versions import AppVersion
from dbio_commit.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbio_commit.commit.write.clauses import Clause
    from dbio_commit.data.conditions.terms import Where

Target = Table | str | os.PathLike[str]
"""A `Table`, or the path of one."""


class JointTransaction:
    """Writes to several tables, which are committed together when the block ends. `transaction` makes it.

    Each method writes the files of one table at once, and commits nothing. It takes a `Table`, or a path, which is
    opened with the credentials of the environment or of the Spark session. There is one operation for each table, and
    none sees what the others write. If the block raises, nothing is committed.
    """

    commits: Mapping[str, Commit]
    """After the block: the commits by the URLs of their tables. Empty if nothing was to be committed."""

    def __init__(
        self,
        spark: "SparkSession | None" = None,
        *,
        app: AppVersion | None = None,
        message: str | None = None,
        labels: Labels | None = None,
    ) -> None:
        check_app(app)
        CommitOptions(message=message, labels=labels).note(None)
        self._spark = spark
        self._options: dict[str, Any] = {"message": message, "labels": labels}
        self._app = app
        self._joint: JointCommit | None = None
        self._is_over = False
        self.commits = {}

    def __repr__(self) -> str:
        tid = self._joint.tid if self._joint else None
        return f"<JointTransaction {tid or 'that has not begun'}>"

    # --- operations -----------------------------------------------------------------------------------------------

    @takes_write_options
    def write(
        self,
        frame: Any,
        table: Target,
        mode: Mode = "append",
        partition_by: str | Sequence[str] | None = None,
        *,
        replace_where: "Where | None" = None,
        **files: Unpack[FileKeywords],
    ) -> None:
        """Writes a frame, as `Table.write` does.

        `mode` and `partition_by` are those of `dbio.write`, but the partition columns of a table cannot change. Raises
        what `Table.write` raises.

        Options of the files: `FileKeywords`.
        """
        options: Any = {"replace_where": replace_where, **files}

        def write(it: Table, keywords: Any) -> Commit:
            return it.write(frame, mode, partition_by, **options, **keywords)

        self._do(table, write, ignores=mode == "ignore")

    @takes_write_options
    def replace(self, frame: Any, table: Target, where: "Where", **files: Unpack[FileKeywords]) -> None:
        """Replaces the rows for which a condition holds by those of a frame, as `Table.write(replace_where=)` does.

        Options of the files: `FileKeywords`.
        """
        self.write(frame, table, "overwrite", replace_where=where, **files)

    def delete(
        self,
        table: Target,
        where: "Where",
        *,
        time_zone: str | None = None,
        isolation: Isolation = "write_serializable",
    ) -> None:
        """Deletes the rows for which a condition holds, as `Table.delete` does."""
        more: Any = {"time_zone": time_zone, "isolation": isolation, "spark": self._spark}
        self._do(table, lambda it, keywords: it.delete(where, **more, **keywords))

    def update(
        self,
        table: Target,
        updates: Mapping[str, Any] | None = None,
        where: "Where" = "true",
        *,
        values: Mapping[str, Any] | None = None,
        time_zone: str | None = None,
        isolation: Isolation = "write_serializable",
    ) -> None:
        """Gives columns new values in the rows for which a condition holds, as `Table.update` does."""
        more: Any = {"values": values, "time_zone": time_zone, "isolation": isolation, "spark": self._spark}
        self._do(table, lambda it, keywords: it.update(updates, where, **more, **keywords))

    def merge(
        self,
        source: Any,
        table: Target,
        on: str | Sequence[str],
        when: "Sequence[Clause] | None" = None,
        *,
        isolation: Isolation = "write_serializable",
    ) -> None:
        """Merges rows into the table, as `Table.merge` does."""
        self._do(table, lambda it, keywords: it.merge(source, on, when, isolation=isolation, **keywords))

    def require(self, table: Target, snapshot: Snapshot) -> None:
        """Commits only if the data of this table, from which the caller has read a snapshot, have not changed since.

        The table gets a commit without files. Raises InvalidInputError if this transaction writes to the table: what it
        writes there is compared with the table anyhow.
        """

        def require(it: Table, keywords: Any) -> Commit:
            return it.begin(if_match=snapshot.etag, **keywords).commit()

        self._do(table, require)

    def _do(self, target: Target, operation: Callable[[Table, Any], Commit], *, ignores: bool = False) -> None:
        """Does an operation of one table. `ignores`: it is skipped if the table exists, whatever its versions are."""
        if self._joint is None or self._is_over:
            raise TransactionStateError(
                "a joint transaction writes within its block only: with dbio.transaction() as tx: tx.write(…)"
            )
        table = target if isinstance(target, Table) else Table(target)
        joining = Joining(self._joint, table.url)
        token = JOINING.set(joining)
        try:
            commit = operation(table, {**self._options, "app": self._app})
        finally:
            JOINING.reset(token)
        if commit.skipped and self._app is not None and not ignores:
            self._joint.skip(table.url)
        assert commit.skipped or joining.is_taken, "it was committed by itself"

    # --- the block ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._joint is not None:
            raise TransactionStateError("this joint transaction has begun before; make a new one for each block")
        self._joint = JointCommit()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._joint is not None
        self._is_over = True
        if kind is None:
            self.commits = self._joint.commit()
        else:
            self._joint.abort()


@takes_options
def transaction(spark: "SparkSession | None" = None, **commit: Unpack[AppKeywords]) -> JointTransaction:
    """A joint transaction: what its block writes to several tables is committed together, or not at all.

    `spark` is the session in which deletes and updates run. Without one, this process does them. Frames of PySpark
    bring their own.

    Each of the tables records `app`. If all of them have this version already, nothing is committed; if only some have
    it, AppVersionError is raised.

    All tables lie in one bucket, container or disk. Commits of others to one of the tables that conflict with what is
    written there abort everything: CommitConflictError. `transact` repeats a function then. If it is not known whether
    the commit was made, CommitStateUnknownError is raised, and the tables agree on it even so.

    Options of the commit: `AppKeywords`.

        with dbio.transaction(app=("orders", 17)) as tx:
            tx.write(orders, "s3://lake/orders")
            tx.merge(customers, "s3://lake/customers", on="id")
    """
    return JointTransaction(spark, **commit)


@takes_options
def transact(
    function: Callable[[JointTransaction], object],
    spark: "SparkSession | None" = None,
    **commit: Unpack[JointKeywords],
) -> Mapping[str, Commit]:
    """Calls a function with a joint transaction, and commits it. Returns the commits by the URLs of their tables.

    After a CommitConflictError it waits and calls the function again, up to `retries` times. So the function reads
    anew what it depends on. The other parameters are those of `transaction`.

    Options of the commit: `JointKeywords`.

        def move(tx):
            rows = dbio.Table(inbox).to_pandas()
            tx.write(rows, archive)
            tx.delete(inbox, [("id", "in", list(rows["id"]))])

        dbio.transact(move, retries=5)
    """
    options = CommitOptions(**commit)

    def once() -> Mapping[str, Commit]:
        with JointTransaction(spark, app=options.app, message=options.message, labels=options.labels) as tx:
            function(tx)
        return tx.commits

    return try_again(once, options.retries)
