"""`Scan`: some rows and columns of a snapshot, and the forms in which tools get them."""

from typing import TYPE_CHECKING

import pyarrow as pa

from dbio_commit.base.internal import internal
from dbio_commit.base.packages import require
from dbio_commit.log.frames.reading import batch_reader, count, read_table
from dbio_commit.log.frames.request import Request

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow.dataset

    from dbio_commit.log.frames.pandas_frame import TypesMapper
    from dbio_commit.log.snapshot import Snapshot


@internal("request")
class Scan:
    """Some rows and columns of a snapshot. `Table.scan` and `Snapshot.scan` return it. Nothing is read before one of
    its methods is called, and each call reads anew.

        scan = dbio.Table("s3://lake/events").scan(["id", "amount"], "day = '2026-11-20' AND amount > 100")
        for batch in scan.to_batches():
            ...
    """

    request: Request

    def __init__(self, request: Request) -> None:
        self.request = request

    def __repr__(self) -> str:
        files, columns = len(self.request.files), len(self.request.wanted)
        return f"Scan({self.snapshot.url!r}: {columns} columns of at most {files:,} files)"

    @property
    def snapshot(self) -> "Snapshot":
        """The state of the table that is read."""
        return self.request.snapshot

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the types that all forms have."""
        return pa.schema([self.request.target.field(name) for name in self.request.wanted])

    def count(self) -> int:
        """How many rows there are. Reads only the columns of the condition; without one, no rows."""
        return count(self.request)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table in memory."""
        return read_table(self.request)

    def to_pandas(self, *, types_mapper: "TypesMapper | None" = None) -> "pandas.DataFrame":
        """The rows as a pandas DataFrame, with exactly the values of the table.

        Whole numbers beside nulls are in a column of pandas' nullable type, such as Int64. `types_mapper` is as in
        pyarrow: it gets a type of Arrow, and returns the type of pandas for such columns, or None for the usual one.
        With `pandas.ArrowDtype`, all columns have types of Arrow. Raises MissingPackageError without pandas.
        """
        require("pandas", what="to_pandas")
        from dbio_commit.log.frames.pandas_frame import pandas_frame

        return pandas_frame(self.to_arrow(), types_mapper)

    def to_polars(self) -> "polars.DataFrame":
        """The rows as a Polars DataFrame in memory. Raises MissingPackageError without Polars."""
        require("polars", what="to_polars")
        from dbio_commit.log.frames.polars_scan import frame_of

        return frame_of(self.to_arrow())

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows batch by batch, in bounded memory: a few files are read ahead.

        A reader is read once. Close it if you stop before its end.
        """
        return batch_reader(self.request)

    def to_lazy(self) -> "polars.LazyFrame":
        """The rows as a Polars LazyFrame. Files are read when a query runs, and only those, and of them only the
        columns and row groups, that its filters and columns need. Raises MissingPackageError without Polars.
        """
        from dbio_commit.log.frames.polars_scan import to_lazy

        return to_lazy(self.request)

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """The rows as a relation of the DuckDB connection, or of DuckDB's default connection.

        The call looks at the footers of the files. DuckDB reads the rows when a query runs, as often as queries
        run, and leaves out partitions, columns and row groups that the query does not need. The rows of files that
        neither DuckDB nor pyarrow can read with the table's columns are in memory; `dbio compact --rewrite-types`
        rewrites such files. Raises MissingPackageError without DuckDB.
        """
        from dbio_commit.log.frames.duckdb_view import to_duckdb

        return to_duckdb(self.request, connection)

    def to_dataset(self) -> "pyarrow.dataset.Dataset":
        """The rows as a Dataset of pyarrow, with the columns that the condition uses.

        The call looks at the footers of the files. Raises InvalidInputError for a file in which pyarrow's own reader
        does not find the table's columns, and says what to use.
        """
        from dbio_commit.log.frames.dataset import to_dataset

        return to_dataset(self.request)
