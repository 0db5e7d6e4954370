"""The stream sink: what `df.writeStream.format("dbio")` calls. Needs Spark 4.1, which passes it Arrow batches.

Each batch is one transaction of the application (query id, batch id), so it is committed at most once (I8). One process
of Spark plans the batch, workers write it, and another process commits it. Only the workers know the query id and the
batch id. So the workers claim the tid, and the start marker has both ids. If an attempt fails before its commit, the
commit of a later attempt aborts it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from dbio_commit.base.errors import InvalidInputError, TransactionStateError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.options import NOTE_OPTIONS
from dbio_commit.commit.request import Terms
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.start import App
from dbio_commit.spark.session.worker import Travels
from dbio_commit.spark.transfer.batches import Packing
from dbio_commit.spark.write.plan import WritePlan
from dbio_commit.spark.write.run import TaskResult, add_up, run_with_actions
from dbio_commit.spark.write.task import TaskSpec, abort_files, commit_files, encode_file_info, run_task
from dbio_commit.table import Table

OPTIONS = NOTE_OPTIONS | {
    "path",
    "partitionby",
    "compression",
    "maxrecordsperfile",
    "mergeschema",
    "txnappid",
    "checkpointlocation",
    "queryname",  # this and checkpointlocation are options of Spark, which it passes on
    "secretstorageoptions",
    Packing.OPTION.lower(),
}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Written(WriterCommitMessage):
    """What a task has written. It has no secrets, as it passes through the driver."""

    terms: Terms
    result: TaskResult
    schema: Mapping[str, Any] | None = field(repr=False)

    @property
    def files(self) -> Sequence[str]:
        return self.result.files


class DbioStreamWriter(Travels, DataSourceStreamArrowWriter):
    """Writes one batch. Spark makes one object in the process that plans it, and one in the process that commits it."""

    def __init__(
        self, table: Table, plan: Callable[[], WritePlan], *, app_id: str | None, overwrite: bool, packing: Packing
    ) -> None:
        self._table, self._plan, self._overwrite = table, plan, overwrite
        self._app_id, self._packing = app_id, packing

    @cached_property
    def _begun(self) -> tuple[TaskSpec, Mapping[str, Any] | None]:
        """What the tasks need, and the table's columns after the batch."""
        plan = self._plan()
        columns = plan.mapping.partition_columns
        if plan.target.scope is None and columns:
            _log.info("%s is a new table, partitioned by %s", self._table.url, ", ".join(columns))
        elif plan.target.scope is None:
            _log.warning("%s is a new table without partitions; for partitions, set the option partitionBy: Spark does "
                         "not pass on writeStream.partitionBy(…)", self._table.url)  # fmt: skip
        self._check(plan)
        return plan.task_spec(plan.begin(claims=False).terms), plan.schema_to_record

    def _check(self, plan: WritePlan) -> None:
        """Raises InvalidInputError if the table has other constraints or types than those that rows are checked by."""
        if self._packing.settings is None:
            plan.refuse_unchecked()
        elif Constraints.of(self._packing.settings) != plan.constraints or plan.casts_rows:
            raise InvalidInputError(
                f"the constraints of {self._table.url}, or the types of its columns, have changed since this query "
                "started; nothing was written: start the query again, with the same checkpoint"
            )

    def __getstate__(self) -> dict[str, Any]:
        """For the workers. Only the process that plans the batch pickles this, maybe several times: all workers must
        have the same transaction."""
        return {"_begun": self._begun, "_app_id": self._app_id, "_packing": self._packing}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        context = TaskContext.get()
        assert context is not None, "runs in Spark's workers only"
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        spec, schema = self._begun
        app = App(id=self._app_id or str(query), version=int(str(batch)))
        spec = replace(spec, terms=replace(spec.terms, app=app))
        batches = self._packing.unpack(iterator)
        if self._packing.settings is None:
            result = TaskResult([encode_file_info(info) for info in run_task(spec, batches)], {}, {})
        else:
            result = run_with_actions(spec, batches, Constraints.of(self._packing.settings))
        return _Written(spec.terms, result, schema)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = _known(messages)
        files = [file for message in written for file in message.files]
        settings = self._packing.settings
        _, problem = add_up((it.result for it in written), Constraints.of(settings), where=self._table.url)
        if problem:
            raise InvalidInputError(f"{problem}; nothing of this batch was committed")
        if files or (self._overwrite and written):  # else no tid was claimed and no file written
            with self._table.resume(written[0].terms) as transaction:
                if settings is not None:
                    transaction.vouch_for_rows()
                commit_files(transaction, files, written[0].schema)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts the transaction and deletes the files of finished tasks. Those of failed tasks are not known here."""
        written = [message for message in _known(messages) if message.files]
        if written:
            transaction = self._table.resume(written[0].terms)
            with suppress(TransactionStateError):  # it was committed, and failed afterwards: Spark repeats the batch
                abort_files(transaction, [file for message in written for file in message.files])


def _known(messages: Sequence[WriterCommitMessage | None]) -> list[_Written]:
    """The messages of finished tasks; None is the message of any other."""
    return [message for message in messages if isinstance(message, _Written)]
