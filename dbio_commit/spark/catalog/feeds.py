"""Streams of the catalog: out of tables by Spark's own reader (`spark.readStream.table`), and into tables (`toTable`).

Spark keeps the offsets, which are those of `format("dbio")`. So a checkpoint of either goes on with the other.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from cachetools import LRUCache
from pyspark.sql import DataFrame, SparkSession

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.commit.options import NOTE_OPTIONS, note_options
from dbio_commit.commit.write.options import write_options
from dbio_commit.feed.position import Position, Start, decode_position, encode_position
from dbio_commit.spark.catalog.creation import schema_of_json
from dbio_commit.spark.catalog.statements import commit_options
from dbio_commit.spark.feed.batches import Batches, columns_changed
from dbio_commit.spark.feed.options import OPTIONS, StreamOptions
from dbio_commit.spark.read.scan import scan_files
from dbio_commit.spark.rewrite.frame import write_frame
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.conf import open_table
from dbio_commit.table import Table

_TOKEN = "__dbio_table"
"""As `StreamedTable.java` has it."""
_KNOWN = OPTIONS - {"path", "readchangefeed", "secretstorageoptions"}
_KNOWN_TO_WRITES = NOTE_OPTIONS | {"txnappid", "compression", "maxrecordsperfile", "mergeschema"}
_OF_SPARK = {"checkpointlocation", "queryname", "path"}
"""Options that Spark passes on."""
_MOST_STREAMS = 100


class SqlFeeds:
    """Answers for the streams of all sessions. A stream that was forgotten is made again, by its description."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._streams: LRUCache[str, _Stream] = LRUCache(_MOST_STREAMS)

    def check(self, spark: SparkSession, options: str) -> None:
        """Raises InvalidInputError for options that a stream out of a table does not have."""
        StreamOptions.parse(_options(options)[1])

    def newest(self, spark: SparkSession, described: Sequence[str], *_: Any) -> str:
        return _text(self._stream(spark, described).batches.newest())

    def next_end(self, spark: SparkSession, described: Sequence[str], start: str, how: Sequence[str]) -> str:
        """Where the next batch ends; "" if nothing is new."""
        batches = self._stream(spark, described).batches
        at = _position(start, batches)
        unlimited, target = how
        wanted = _position(target, batches) if target else None
        end = batches.next_end(at, unlimited=bool(unlimited), target=wanted if isinstance(wanted, Position) else None)
        return "" if end == at else _text(end)

    def behind(self, spark: SparkSession, described: Sequence[str], end: str, *_: Any) -> str:
        batches = self._stream(spark, described).batches
        return json.dumps(batches.behind(_position(end, batches)))

    def rows(self, spark: SparkSession, described: Sequence[str], start: str, end: str) -> Any:
        """A LogicalPlan that reads the rows of a batch."""
        stream = self._stream(spark, described)
        changes = stream.batches.changes(_position(start, stream.batches), _position(end, stream.batches))
        frame: Any = scan_files(spark, stream.table, [change.file for change in changes], stream.schema)
        return frame._jdf.queryExecution().optimizedPlan()

    def end(self, spark: SparkSession, described: Sequence[str], *_: Any) -> None:
        with self._lock:
            self._streams.pop(described[0], None)

    def write(
        self, spark: SparkSession, token: str, rows: Any, query: str, batch: int, is_complete: bool, options: Any
    ) -> None:
        """Writes a batch, which the table commits once. Raises what `dbio.write` raises.

        A batch without rows that would add rows is no commit: if Spark makes this batch again, it has no rows either.
        """
        given = {name.lower(): value for name, value in dict(options).items()}
        _refuse_unknown(given, _KNOWN_TO_WRITES, "a stream into the catalog dbio")
        write_frame(
            DataFrame(rows, spark),
            open_table(spark, _path(token), None),
            mode="overwrite" if is_complete else "append",
            partition_by=None,
            options=write_options(given),
            commit=replace(commit_options(spark), app=(given.get("txnappid", query), batch), **note_options(given)),
            only_rows=not is_complete,
        )

    def _stream(self, spark: SparkSession, described: Sequence[str]) -> "_Stream":
        id, options, schema = described
        with self._lock:
            found = self._streams.get(id)
        if found is None:
            token, given = _options(options)
            found = _Stream(open_table(spark, _path(token), None), StreamOptions.parse(given), schema)
            with self._lock:
                self._streams[id] = found
        return found


class _Stream:
    """A stream out of a table."""

    def __init__(self, table: Table, options: StreamOptions, schema: str) -> None:
        """`schema`: the columns with which the query was planned, as JSON. Raises SchemaMismatchError if the table has
        others."""
        self.table, self.schema = table, schema_of_json(schema)
        self.batches = Batches(table, options, columns=None)
        recorded = self.batches.recorded_columns()
        if recorded is not None:
            now = schemas.from_json(recorded, where=table.url)
            if schemas.plain_schema(now) != schemas.plain_schema(self.schema):
                raise columns_changed(table.url)
        self.batches.columns = recorded


def _options(options: str) -> tuple[str, Mapping[str, str]]:
    """The token, and the other options by their names in lower case. Raises InvalidInputError for an unknown one."""
    each = iter(options.split("\0"))
    given = {name.lower(): value for name, value in zip(each, each, strict=True)}
    token = given.pop(_TOKEN)
    if "readchangefeed" in given:
        raise InvalidInputError(
            "spark.readStream.table has the columns of the table, and a change feed has more: read it with "
            'spark.readStream.format("dbio").option("readChangeFeed", "true").load(path), or with dbio.for_each_batch'
        )
    _refuse_unknown(given, _KNOWN, "spark.readStream.table of the catalog dbio")
    return token, given


def _refuse_unknown(options: Mapping[str, str], known: Set[str], where: str) -> None:
    if unknown := sorted(options.keys() - known - _OF_SPARK):
        raise InvalidInputError(f"{where} knows no option {', '.join(unknown)}; it knows {', '.join(sorted(known))}")


def _path(token: str) -> str:
    return str(json.loads(token)[0])


def _text(position: Position | Start) -> str:
    return json.dumps(encode_position(position))


def _position(text: str, batches: Batches) -> Position | Start:
    """The position in an offset; without one, the start of the stream."""
    return decode_position(json.loads(text)) if text else batches.options.start
