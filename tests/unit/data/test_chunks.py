"""Column chunks that no reader reads are refused by name, and none of them ends the process. Rules: PROTOCOL.md 6.4."""

import base64
import io
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import Table
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.chunks import check_chunks, first_codec
from tests.fuzz import bodies


def written(rows: pa.Table, **how: Any) -> bytes:
    body = io.BytesIO()
    pq.write_table(rows, body, **how)
    return body.getvalue()


class Keys(pe.KmsClient):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(key_bytes).decode()

    def unwrap_key(self, wrapped_key: Any, master_key_identifier: str) -> Any:
        return base64.b64decode(wrapped_key)


def encrypted(columns: list[str]) -> bytes:
    body, rows = io.BytesIO(), pa.table({"x": [1, 2], "y": ["a", "b"]})
    how = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": columns}, plaintext_footer=True)
    properties = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(pe.KmsConnectionConfig(), how)
    with pq.ParquetWriter(body, rows.schema, encryption_properties=properties) as writer:
        writer.write_table(rows)
    return body.getvalue()


def footer_at(body: bytes) -> int:
    return len(body) - 8 - int.from_bytes(body[-8:-4], "little")


def with_codec(number: int) -> bytes:
    """Of a small file; its codec is zstd, 6, which Thrift writes as 12, after a head that says i32 and field 4."""
    body = written(pa.table({"x": pa.array([1], pa.int32())}), compression="zstd", store_schema=False)
    start = footer_at(body)
    assert body[start:].count(b"\x15\x0c") == 1
    return body[:start] + body[start:].replace(b"\x15\x0c", bytes([0x15, number * 2]))


def infinite() -> bytes:
    """As DuckDB has it."""
    return written(pa.table({"d": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}))


def endless() -> bytes:
    return written(pa.table({"t": pa.array([2**62], pa.timestamp("ms"))}))


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "an encrypted column": (lambda: encrypted(["x"]), "column 'x' is encrypted"),
    "another encrypted column": (lambda: encrypted(["y"]), "column 'y' is encrypted"),
    "a codec of the future": (lambda: with_codec(9), "column 'x' is compressed by codec 9, which is unknown"),
    "milliseconds that no microseconds hold": (endless, "column 't' holds days outside of the years 1 to 9999"),
    "an infinite date": (infinite, "column 'd' holds days outside of the years 1 to 9999"),
}
UNREADABLE = [case for case in FILES if case != "an infinite date"]


def with_files(root: Path, body: bytes) -> Table:
    """A table with two such files, as earlier versions committed and adopted them."""
    table = Table(root)
    table.inspector = None
    with table.begin() as transaction:
        for _ in range(2):
            Path(transaction.new_file()).write_bytes(body)
    return Table(root)


@pytest.mark.parametrize("case", FILES)
def test_a_commit_refuses_them_by_name(tmp_path: Path, case: str) -> None:
    write, problem = FILES[case]
    with pytest.raises(InvalidInputError, match=problem), Table(tmp_path / "t").begin() as transaction:
        Path(transaction.new_file()).write_bytes(write())


@pytest.mark.parametrize("case", FILES)
def test_an_adoption_names_them(tmp_path: Path, case: str) -> None:
    write, problem = FILES[case]
    (tmp_path / "a.parquet").write_bytes(write())
    with pytest.raises(InvalidInputError, match=f"a.parquet: {problem}"):
        Table(tmp_path).adopt()


@pytest.mark.parametrize("case", FILES)
def test_a_check_of_files_names_them(tmp_path: Path, case: str) -> None:
    write, problem = FILES[case]
    found = with_files(tmp_path / "t", write()).check(files=True).misread
    assert len(found) == 2
    assert all(problem in text for text in found.values())


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_compaction_leaves_those_that_nobody_reads_and_says_which(tmp_path: Path, case: str) -> None:
    table = with_files(tmp_path / "t", FILES[case][0]())
    (left,) = table.compact().left
    assert any(f"{path} " in left.reason for path in left.paths)


@pytest.mark.parametrize("case", UNREADABLE)
def test_reading_them_ends_in_an_error_that_names_the_file(tmp_path: Path, case: str) -> None:
    table = with_files(tmp_path / "t", FILES[case][0]())
    with pytest.raises(InvalidInputError, match=r"part-.*\.parquet"):
        table.snapshot().to_arrow()


@pytest.mark.parametrize("case", FILES)
def test_a_publication_does_not_end_the_process(tmp_path: Path, case: str) -> None:
    (published,) = with_files(tmp_path / "t", FILES[case][0]()).publish("delta")
    assert published.files == 2


def test_a_compaction_takes_dates_that_are_no_days_as_they_are(tmp_path: Path) -> None:
    table = with_files(tmp_path / "t", infinite())
    (done,) = table.compact().compacted
    assert done.rows == 2
    assert table.snapshot().to_arrow()["d"].cast(pa.int32()).to_pylist() == [2**31 - 1] * 2


def test_milliseconds_that_no_microseconds_hold_are_refused(tmp_path: Path) -> None:
    for kind in (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ms", "UTC")):
        rows = pa.table({"s": pa.array([{"t": 2**62}], pa.struct([("t", kind)]))})
        with pytest.raises(InvalidInputError, match=r"'s\.t' holds"), Table(tmp_path).begin() as transaction:
            pq.write_table(rows, transaction.new_file())


def test_the_first_and_the_last_days_are_accepted_in_each_zone(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    days = [date.min, date.max]
    instants = pa.array([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)])
    hour = pa.scalar(14 * 3600 * 1_000_000, pa.duration("us"))
    east, west = (pa.compute.subtract(instants, hour), pa.compute.add(instants, hour))
    with table.begin() as transaction:
        pq.write_table(pa.table({"d": days, "t": instants, "e": east, "w": west}), transaction.new_file())
    assert table.snapshot().to_arrow().num_rows == 2


def test_duckdbs_infinite_dates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'d' holds days outside"), Table(tmp_path).begin() as transaction:
        duckdb.sql(f"copy (select 'infinity'::date d) to '{transaction.new_file()}' (format parquet)")


def test_codecs_that_spark_lacks_are_found_in_each_row_group_and_column() -> None:
    rows = pa.table({"x": [1, 2], "y": ["a", "b"]})
    body = written(rows, compression={"x": "snappy", "y": "brotli"}, row_group_size=1)
    (problem,) = check_chunks(body)
    assert "BROTLI" in problem
    assert first_codec(body) == "SNAPPY"
    assert first_codec(written(rows.schema.empty_table(), compression="zstd")) in (None, "ZSTD")


# --- damage -------------------------------------------------------------------------------------------------------

ROWS = pa.table(
    {
        "x": [1],
        "s": ["a"],
        "l": [[1]],
        "t": pa.array([1], pa.timestamp("us", "UTC")),
        "d": pa.array([1], pa.date32()),
        "b": pa.array([b"1234"], pa.binary(4)),
        "m": pa.array([[("k", {"f": True})]], pa.map_(pa.string(), pa.struct([("f", pa.bool_())]))),
    }
)


@given(bodies.damaged(st.just(written(ROWS))) | st.binary(max_size=100))
def test_whatever_a_footer_holds_there_are_problems_or_a_value_error(body: bytes) -> None:
    try:
        found = check_chunks(body)
    except ValueError:
        return
    assert all(isinstance(problem, str) for problem in found)


def test_a_footer_that_is_whole_has_no_problems() -> None:
    for how in ({}, {"use_deprecated_int96_timestamps": True}, {"store_schema": False}, {"write_page_index": True}):
        assert check_chunks(written(ROWS, **how)) == []


def test_no_flipped_bit_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """In a process of its own, which parses and reads each."""
    body = written(ROWS)
    (tmp_path / "body").write_bytes(body)
    script = textwrap.dedent(f"""
        import random
        import pyarrow as pa
        from dbio_commit.data.footers import parse_footer
        from dbio_commit.data.rows import open_parquet, read_footer, read_rows
        from dbio_commit.data.chunks import first_codec
        from dbio_commit.base.errors import InvalidInputError
        body = open({str(tmp_path / "body")!r}, "rb").read()
        chance = random.Random(37)
        for _ in range(400):
            at = chance.randrange({footer_at(body)}, len(body) - 8)
            damaged = bytearray(body)
            damaged[at] ^= 1 << chance.randrange(8)
            found = parse_footer(bytes(damaged), "a.parquet", size=len(body))
            print("broken" if found.broken else "problem" if found.problems else "whole")
            try:
                first_codec(read_footer(pa.BufferReader(bytes(damaged))))
            except ValueError:
                pass
    """)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert (found.returncode, found.stderr) == (0, "")
    assert len(found.stdout.splitlines()) == 400
    assert set(found.stdout.split()) == {"broken", "problem", "whole"}
