"""Daft, which reads what a table publishes for Iceberg, without dbio_commit.

Runs in an environment of its own, started by tests/integration/test_published_readers.py. Each line of stdin is JSON:
the URL of a metadata file, and a file for the rows, in Parquet. Each line is answered by one, with the number of rows.
"""

import json
import sys

import daft  # type: ignore[import-not-found]
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable


def main() -> None:
    print(json.dumps({"version": daft.__version__}), flush=True)
    for line in sys.stdin:
        url, target = json.loads(line)
        rows = daft.read_iceberg(StaticTable.from_metadata(url)).to_arrow()
        pq.write_table(rows, target)
        print(json.dumps({"rows": rows.num_rows}), flush=True)


if __name__ == "__main__":
    main()
