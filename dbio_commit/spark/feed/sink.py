"""The stream sink: what `df.writeStream.format("dbio")` calls. Needs Spark 4.1, which hands it Arrow.

Each batch is one transaction of the application (query id, batch id), so it is committed at most once (I8). A process
of Spark's plans the batch, workers write it, another process commits it: only the workers know which batch of which
query it is, so they claim its tid, with that in the start marker. What a batch leaves that never came to its commit is
aborted by the commit of a later attempt.
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
from dbio_commit.commit.draft import Terms
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.start import App
from dbio_commit.spark.ship.batches import Packing
from dbio_commit.spark.write.plan import WritePlan
from dbio_commit.spark.write.task import TaskSpec, abort_files, commit_files, encode_file_info, run_task
from dbio_commit.spark.write.written import TaskResult, add_up, run_with_fates
from dbio_commit.table import Table

OPTIONS = {
    "path",
    "partitionby",
    "compression",
    "maxrecordsperfile",
    "mergeschema",
    "txnappid",
    "checkpointlocation",
    "queryname",  # as the one before, Spark's own, which it hands on
    "secretstorageoptions",
    Packing.OPTION.lower(),
}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Written(WriterCommitMessage):
    """What a task has written. It goes by way of the driver, so no secrets are in it."""

    terms: Terms
    result: TaskResult
    schema: Mapping[str, Any] | None = field(repr=False)

    @property
    def files(self) -> Sequence[str]:
        return self.result.files


class DbioStreamWriter(DataSourceStreamArrowWriter):
    """One batch; Spark makes it anew for the process that plans it and for the one that commits it."""

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
            _log.warning("%s is a new table without partitions; Spark passes over writeStream.partitionBy(…), so set "
                         "the option partitionBy if it is to have some", self._table.url)  # fmt: skip
        self._check(plan)
        return plan.task_spec(plan.begin(claims=False).terms), plan.schema_to_record

    def _check(self, plan: WritePlan) -> None:
        """Raises InvalidInputError where rows come that are not checked as the table now asks for."""
        if self._packing.settings is None:
            plan.refuse_unchecked()
        elif Constraints.of(self._packing.settings) != plan.constraints or plan.casts_rows:
            raise InvalidInputError(
                f"the constraints of {self._table.url}, or the types of its columns, have changed since this query "
                "started; nothing was written: start it again, from its checkpoint"
            )

    def __getstate__(self) -> dict[str, Any]:
        """For the workers. Only who plans the batch pickles it, and more than once: all must have one transaction."""
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
            result = run_with_fates(spec, batches, Constraints.of(self._packing.settings))
        return _Written(spec.terms, result, schema)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = _known(messages)
        files = [file for message in written for file in message.files]
        settings = self._packing.settings
        _, problem = add_up((it.result for it in written), Constraints.of(settings), where=self._table.url)
        if problem:
            raise InvalidInputError(f"{problem}; nothing of this batch was committed")
        if files or (self._overwrite and written):  # else nothing was claimed, and nothing is left
            with self._table.resume(written[0].terms) as transaction:
                if settings is not None:
                    transaction.vouch_for_rows()
                commit_files(transaction, files, written[0].schema)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """As far as it is known what there is: of a task that failed, nothing is."""
        written = [message for message in _known(messages) if message.files]
        if written:
            transaction = self._table.resume(written[0].terms)
            with suppress(TransactionStateError):  # what failed came after its commit: Spark makes the batch again
                abort_files(transaction, [file for message in written for file in message.files])


def _known(messages: Sequence[WriterCommitMessage | None]) -> list[_Written]:
    """None stands for a task that did not finish."""
    return [message for message in messages if isinstance(message, _Written)]
