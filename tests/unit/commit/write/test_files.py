"""Which rows the task writer puts into which files, and what is left when it fails."""

import gc
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.write import files as task
from dbio_commit.data import arrow
from dbio_commit.data.data_file import collect
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.spark.versions import SHORT_DECIMALS
from dbio_commit.spark.write.task import decode_file_info, encode_file_info
from tests.task_sink import JOB, TID, DirectorySink, batch, spec, write

SHORT = pa.decimal64 if SHORT_DECIMALS else pa.decimal128
"""As which short decimals come from the JVM."""

Row = tuple[str | None, bool | None, int]


@pytest.fixture
def sink(tmp_path: Path) -> DirectorySink:
    return DirectorySink(tmp_path / "table")


@pytest.fixture
def small() -> Iterator[pytest.MonkeyPatch]:
    """Bounds so small that a few rows cross them."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def rows_of(infos: Sequence[FileInfo], sink: DirectorySink) -> dict[tuple[str | None, ...], list[Any]]:
    """The values of each partition, in the order of its files' numbers and of their rows."""
    found: dict[tuple[str | None, ...], list[Any]] = defaultdict(list)
    for info in sorted(infos, key=lambda info: int(info.path.split("-")[-2])):
        found[tuple(info.partition.values())] += sink.read(info).column("value").to_pylist()
    return dict(found)


# --- without partitions -------------------------------------------------------------------------------------------


def test_rows_of_all_batches_go_to_one_file_in_order(sink: DirectorySink) -> None:
    [info] = write(sink, batch(value=[3, 1]), batch(value=[]).cast(pa.schema({"value": pa.int64()})), batch(value=[2]))
    assert sink.read(info).column("value").to_pylist() == [3, 1, 2]
    assert info.path == f"part-00003-tid-{TID}-{JOB}-17-0-c000.snappy.parquet"
    assert (info.rows, info.size) == (3, os.path.getsize(sink.root / info.path))


@pytest.mark.parametrize(
    ("compression", "suffix", "codec"),
    [
        ("snappy", ".snappy.parquet", "SNAPPY"),
        ("zstd", ".zstd.parquet", "ZSTD"),
        ("gzip", ".gz.parquet", "GZIP"),
        ("none", ".parquet", "UNCOMPRESSED"),
    ],
)
def test_files_are_compressed_and_named_as_spark_does(
    sink: DirectorySink, compression: str, suffix: str, codec: str
) -> None:
    [info] = write(sink, batch(value=[1]), compression=compression)
    assert info.path.endswith(f"-c000{suffix}")
    assert pq.read_metadata(sink.root / info.path).row_group(0).column(0).compression == codec


def test_footer_carries_what_the_driver_gave_and_no_arrow_schema(sink: DirectorySink) -> None:
    metadata = {"org.apache.spark.version": "4.3.0", "org.apache.spark.sql.parquet.row.metadata": "{}"}
    [info] = write(sink, batch(value=[1]), spark_metadata=metadata)
    found = pq.read_metadata(sink.root / info.path).metadata
    assert found == {key.encode(): value.encode() for key, value in metadata.items()}


@pytest.mark.parametrize("partition_columns", [(), ("value",)])
def test_no_rows_write_no_file(sink: DirectorySink, partition_columns: tuple[str, ...]) -> None:
    empty = pa.RecordBatch.from_pylist([], pa.schema({"value": pa.int64(), "more": pa.int64()}))
    assert write(sink, empty, partition_columns=partition_columns) == []
    assert write(sink, partition_columns=partition_columns) == []
    assert sink.opened == []


@pytest.mark.parametrize("partition_columns", [(), ("p",)])
def test_a_file_of_the_target_size_gets_no_more_row_groups(
    sink: DirectorySink, partition_columns: tuple[str, ...]
) -> None:
    values = [(i * 2654435761) % 2**40 for i in range(20_000)]
    rows = batch(value=values, p=["a"] * len(values))
    infos = write(sink, rows, partition_columns=partition_columns, target_file_size=40_000)
    assert [value for info in infos for value in sink.read(info).column("value").to_pylist()] == values
    assert len(infos) in (3, 4)
    assert all(40_000 <= info.size < 65_000 for info in infos[:-1])
    [whole] = write(sink, rows, partition_columns=partition_columns, target_file_size=10**9)
    assert whole.rows == len(values)


@given(sizes=st.lists(st.integers(0, 12), max_size=6), bound=st.integers(1, 7), group=st.integers(1, 9))
def test_every_file_but_the_last_holds_exactly_max_records(sizes: list[int], bound: int, group: int) -> None:
    with pytest.MonkeyPatch.context() as small, tempfile.TemporaryDirectory() as root:
        small.setattr(task, "ROW_GROUP_ROWS", group)
        sink = DirectorySink(Path(root))
        values = list(range(sum(sizes)))
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        batches = [batch(value=pa.array(values[s : s + n], pa.int64())) for s, n in zip(starts, sizes, strict=True)]
        infos = write(sink, *batches, max_records_per_file=bound)
        assert [info.rows for info in infos] == [min(bound, len(values) - s) for s in range(0, len(values), bound)]
        assert rows_of(infos, sink).get((), []) == values


def test_a_row_group_ends_with_its_rows_or_bytes(sink: DirectorySink, small: pytest.MonkeyPatch) -> None:
    small.setattr(task, "ROW_GROUP_ROWS", 100)
    small.setattr(task, "ROW_GROUP_BYTES", 10_000)

    def groups(table: pa.Table) -> list[int]:
        [info] = write(sink, *table.to_batches(max_chunksize=10))
        footer = pq.read_metadata(sink.root / info.path)
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    assert groups(pa.table({"value": range(250)})) == [100, 100, 50]
    assert groups(pa.table({"value": ["x" * 1000] * 25})) == [10, 10, 5]


def test_one_huge_batch_becomes_row_groups_of_the_usual_size(sink: DirectorySink, small: pytest.MonkeyPatch) -> None:
    small.setattr(task, "ROW_GROUP_ROWS", 100)
    [info] = write(sink, batch(value=list(range(1000))))
    footer = pq.read_metadata(sink.root / info.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [100] * 10


# --- partitions ---------------------------------------------------------------------------------------------------

rows = st.lists(st.tuples(st.sampled_from(["a", "b/=%", "é", "z " * 3, None]), st.none() | st.booleans()), max_size=60)


def table_of(keys: Sequence[tuple[str | None, bool | None]]) -> pa.Table:
    """A row for each; what is in the other columns follows from `value`."""
    values = range(len(keys))
    return pa.table(
        {
            "p": pa.array([p for p, _ in keys], pa.string()),
            "value": pa.array(values, pa.int64()),
            "q": pa.array([q for _, q in keys], pa.bool_()),
            "text": pa.array(map(text_of, values), pa.string()),
            "price": pa.array(map(Decimal, values), pa.decimal128(9, 2)),
        }
    )


def text_of(value: int) -> str | None:
    return None if value % 4 == 0 else f"text {value % 3}"


def as_packed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As rows come in values from the JVM, each with a dictionary of its own."""
    *others, text, price = batch.columns
    packed = pa.RecordBatch.from_arrays(
        [*others, text.dictionary_encode(), price.cast(SHORT(9, 2))], names=batch.schema.names
    )
    return packed.replace_schema_metadata(batch.schema.metadata)


def assert_whole(table: pa.Table, info: FileInfo) -> None:
    values: list[Any] = table.column("value").to_pylist()
    texts = [text_of(value) for value in values]
    assert table.schema.names == ["value", "text", "price"]
    assert table.column("text").to_pylist() == texts
    assert table.column("price").to_pylist() == values
    assert info.statistics is not None
    known = [text for text in texts if text is not None]
    assert info.statistics["text"] == Bounds(min(known, default=None), max(known, default=None), texts.count(None))
    assert info.statistics["price"] == Bounds(f"{min(values)}.00", f"{max(values)}.00", 0)


@given(
    keys=rows,
    chunk=st.integers(1, 20),
    buffer_rows=st.integers(1, 40),
    group_rows=st.integers(1, 15),
    most_open=st.integers(1, 3),
    bound=st.sampled_from([0, 1, 4]),
    clustered=st.booleans(),
    coded=st.booleans(),
)
def test_each_row_lands_once_in_its_partition_in_order(
    keys: list[tuple[str | None, bool | None]],
    chunk: int,
    buffer_rows: int,
    group_rows: int,
    most_open: int,
    bound: int,
    clustered: bool,
    coded: bool,
) -> None:
    if clustered:
        keys = sorted(keys, key=str)
    table = table_of(keys)
    expected: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for value, (p, q) in enumerate(keys):
        expected[p, None if q is None else str(q).lower()].append(value)
    with pytest.MonkeyPatch.context() as small, tempfile.TemporaryDirectory() as root:
        small.setattr(task, "BUFFER_ROWS", buffer_rows)
        small.setattr(task, "ROW_GROUP_ROWS", group_rows)
        small.setattr(task, "MAX_OPEN", most_open)
        sink = DirectorySink(Path(root))
        batches = [as_packed(it) if coded else it for it in table.to_batches(max_chunksize=chunk)]
        infos = write(sink, *batches, partition_columns=("p", "q"), max_records_per_file=bound)
        assert rows_of(infos, sink) == expected
        assert sink.files() == sorted(info.path for info in infos)
        assert sink.most_open <= most_open + task.CLOSING
        for info in infos:
            directory, _ = names.split(info.path)
            assert names.parse_partition(directory) == info.partition == dict(info.partition)
            assert list(info.partition) == ["p", "q"]
            assert_whole(sink.read(info), info)
            assert info.rows == sink.read(info).num_rows
            assert info.size == os.path.getsize(sink.root / info.path)
            assert not bound or (info.rows or 0) <= bound


@given(keys=rows, chunk=st.integers(1, 20), buffer_rows=st.integers(1, 40), group_rows=st.integers(1, 15),
       most_complete=st.integers(0, 5), coded=st.booleans())  # fmt: skip
def test_partitions_that_come_whole_get_their_files_as_they_come(
    keys: list[tuple[str | None, bool | None]],
    chunk: int,
    buffer_rows: int,
    group_rows: int,
    most_complete: int,
    coded: bool,
) -> None:
    """After rows of all, mixed; some never come whole."""
    expected: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    wholes = list(dict.fromkeys(keys))[:most_complete]
    table = table_of(keys)
    late = [value for value, key in enumerate(keys) if key in wholes and value % 2]
    early = [value for value in range(len(keys)) if value not in late]
    batches = table.take(pa.array(early, pa.int64())).to_batches(max_chunksize=chunk)
    for key in wholes:
        own = [value for value in late if keys[value] == key]
        parts = table.take(pa.array(own, pa.int64())).combine_chunks().to_batches(max_chunksize=chunk)
        batches += [*parts[:-1], *map(arrow.completing, parts[-1:])]
    for row in (row for each in batches for row in each.to_pylist()):
        expected[row["p"], None if row["q"] is None else str(row["q"]).lower()].append(row["value"])
    with pytest.MonkeyPatch.context() as small, tempfile.TemporaryDirectory() as root:
        small.setattr(task, "BUFFER_ROWS", buffer_rows)
        small.setattr(task, "ROW_GROUP_ROWS", group_rows)
        sink = DirectorySink(Path(root))
        infos = write(sink, *(map(as_packed, batches) if coded else batches), partition_columns=("p", "q"))
        assert rows_of(infos, sink) == expected
        for info in infos:
            assert_whole(sink.read(info), info)


def test_a_partition_that_is_complete_waits_for_no_other(sink: DirectorySink) -> None:
    seen: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for p in "ab":
            yield batch(p=[p], value=[1])
            yield arrow.completing(batch(p=[p, p], value=[2, 3]))
            yield arrow.completing(batch(p=[p], value=[4])).slice(0, 0)  # all of whose rows were left out
            seen.append(len(sink.opened))

    infos = task.write_files(
        spec(sink.root, columns=COLUMNS, partition_columns=("p",)), batches(), task=0, attempt=0, files=sink
    )
    assert seen == [1, 2]
    assert rows_of(infos, sink) == {("a",): [1, 2, 3], ("b",): [1, 2, 3]}


def test_a_file_tells_no_text_of_another(sink: DirectorySink) -> None:
    texts = pa.array(["unused", "only a", "only b", "shared"])
    codes: Any = pa.DictionaryArray.from_arrays(pa.array([1, 3, 2, None, 3], pa.int32()), texts)
    infos = write(sink, batch(p=["a", "a", "b", "b", "b"], text=codes), partition_columns=("p",), compression="none")
    told = {p: (sink.root / info.path).read_bytes() for info in infos for p in info.partition.values()}
    assert [text for text in texts.to_pylist() if str(text).encode() in told["a"]] == ["only a", "shared"]
    assert [text for text in texts.to_pylist() if str(text).encode() in told["b"]] == ["only b", "shared"]
    assert {info.statistics["text"] for info in infos if info.statistics} == {
        Bounds("only a", "shared", 0),
        Bounds("only b", "shared", 1),
    }


def test_partitions_smaller_than_a_row_group_get_one_file_each(sink: DirectorySink, small: pytest.MonkeyPatch) -> None:
    small.setattr(task, "BUFFER_ROWS", 50)
    table = pa.table({"p": [i % 40 for i in range(1000)], "value": range(1000)})
    infos = write(sink, *table.to_batches(max_chunksize=10), partition_columns=("p",))
    assert len(infos) == 40
    assert {info.rows for info in infos} == {25}
    assert all(pq.read_metadata(sink.root / info.path).num_row_groups == 1 for info in infos)
    assert sink.most_open <= 1 + task.CLOSING


def test_nested_and_null_values_survive_the_wait_on_disk(sink: DirectorySink, small: pytest.MonkeyPatch) -> None:
    small.setattr(task, "BUFFER_ROWS", 2)
    values: list[Any] = [{"a": [1, None], "b": "x"}, None, {"a": [], "b": None}, {"a": None, "b": "y" * 100}] * 3
    table = pa.table({"p": [0, 1] * 6, "value": values})
    infos = write(sink, *table.to_batches(max_chunksize=1), partition_columns=("p",))
    found = {key: sink.read(info).column("value").to_pylist() for info in infos for key in info.partition.values()}
    assert found == {"0": values[0::2], "1": values[1::2]}


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array(["", "ä"]).slice(1), ["ä"]),
        (pa.array(["x", None], pa.large_string()), ["x", None]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([-128, 127], pa.int8()), ["-128", "127"]),
        (pa.array([-(2**63), 2**63 - 1]), ["-9223372036854775808", "9223372036854775807"]),
        (pa.array([0, -719162, 2932896], pa.int32()).cast(pa.date32()), ["1970-01-01", "0001-01-01", "9999-12-31"]),
        (pa.array(["1.10", "-0.01", "0.00"]).cast(pa.decimal128(38, 2)), ["1.10", "-0.01", "0.00"]),
        (pa.array(["0.0000000001"]).cast(pa.decimal128(20, 10)), ["0.0000000001"]),
        (pa.array(["1.10", "-0.01"]).cast(SHORT(9, 2)), ["1.10", "-0.01"]),
        (pa.array([0, 1_500_000, -1], pa.timestamp("us", "Asia/Kolkata")),
         ["1970-01-01 00:00:00", "1970-01-01 00:00:01.5", "1969-12-31 23:59:59.999999"]),
        (pa.array([10_000_000, 100_010], pa.timestamp("us")), ["1970-01-01 00:00:10", "1970-01-01 00:00:00.10001"]),
    ],
)  # fmt: skip
def test_partition_values_are_spelled_as_spark_spells_them_in_utc(values: Any, texts: list[str | None]) -> None:
    assert arrow.format_values("p", values) == texts


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1.5]), "column 'p' has the type double"),
        (pa.array([b"x"]), "column 'p' has the type binary"),
        (pa.array([[1]]), "column 'p' has the type list"),
        (pa.array([2932897], pa.int32()).cast(pa.date32()), "years 1 to 9999"),
        (pa.array([-719163], pa.int32()).cast(pa.date32()), "years 1 to 9999"),
        (pa.array([2**62], pa.timestamp("us", "UTC")), "years 1 to 9999"),
        (pa.array([b"\xff"]).view(pa.string()), "UTF-8"),
        (pa.array([""]), "'p' holds ''"),
        (pa.array([names.HIVE_NULL]), "'p' holds '__HIVE_DEFAULT_PARTITION__'"),
    ],
)
def test_values_that_cannot_name_a_directory_are_refused(sink: DirectorySink, values: Any, message: str) -> None:
    data = pa.record_batch({"p": values, "value": pa.array([1])})
    with pytest.raises(InvalidInputError, match=message):
        write(sink, data, partition_columns=("p",))
    assert sink.files() == []


# --- failures -----------------------------------------------------------------------------------------------------


COLUMNS = ((0, "p"), (1, "value"))


class Boom(Exception):
    pass


def failing_after(*batches: pa.RecordBatch, error: BaseException) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise error


@pytest.mark.long_for("partition_columns0-error1", "partition_columns0-error2", "partition_columns1-error0")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", [Boom("lost"), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("partition_columns", [(), ("p",)])
def test_a_failed_attempt_leaves_no_file(
    sink: DirectorySink, small: pytest.MonkeyPatch, error: BaseException, partition_columns: tuple[str, ...]
) -> None:
    small.setattr(task, "ROW_GROUP_ROWS", 2)
    small.setattr(task, "BUFFER_ROWS", 4)
    source = failing_after(*[batch(p=[1, 2, 1, 2], value=[1, 2, 3, 4])] * 3, error=error)
    with pytest.raises(type(error)) as raised:
        task.write_files(
            spec(sink.root, columns=COLUMNS, partition_columns=partition_columns, max_records_per_file=3),
            source,
            task=0,
            attempt=0,
            files=sink,
        )
    gc.collect()  # a writer left open would complain now
    assert raised.value is error
    assert len(sink.opened) >= 2  # some were finished, some half-written
    assert sink.files() == []
    assert sink.open_now == 0


class FailingSink(DirectorySink):
    """Fails at its second file, when it is opened, written or closed."""

    fail_at = ""

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        fails = len(self.opened) == 1
        with super().open(path) as stream:
            if fails and self.fail_at == "open":
                raise Boom("open")
            if fails and self.fail_at == "write":
                stream.close()
            yield stream
        if fails and self.fail_at == "close":
            raise Boom("close")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("fail_at", "error"), [("open", Boom), ("write", ValueError), ("close", Boom)])
def test_a_store_that_fails_is_reported_and_nothing_is_left(tmp_path: Path, fail_at: str, error: type) -> None:
    sink = FailingSink(tmp_path / "table")
    sink.fail_at = fail_at
    with pytest.raises(error):
        write(sink, batch(value=[1, 2, 3]), max_records_per_file=1)
    gc.collect()
    assert len(sink.opened) == (3 if fail_at == "close" else 2)  # files are closed beside the next ones
    assert sink.files() == []


class UndeletingSink(DirectorySink):
    def delete(self, paths: Sequence[str]) -> None:
        raise PermissionError("read-only")


def test_a_failing_cleanup_is_noted_on_the_error_and_does_not_replace_it(tmp_path: Path) -> None:
    sink = UndeletingSink(tmp_path)
    with pytest.raises(Boom) as raised:
        task.write_files(
            spec(sink.root, columns=((0, "value"),)),
            failing_after(batch(value=[1]), error=Boom("first")),
            task=0,
            attempt=0,
            files=sink,
        )
    assert raised.value.__notes__ == ["cleaning up after this also failed: PermissionError: read-only"]


def test_a_type_that_parquet_cannot_hold_leaves_no_open_file(sink: DirectorySink) -> None:
    with pytest.raises(pa.ArrowNotImplementedError):
        write(sink, batch(value=pa.array([(1, 2, 3)], pa.month_day_nano_interval())))
    assert (sink.files(), sink.open_now) == ([], 0)


# --- messages -----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
infos = st.builds(
    FileInfo,
    path=texts,
    size=st.integers(0, 2**63 - 1),
    rows=st.none() | st.integers(0, 2**63 - 1),
    partition=st.dictionaries(texts, st.none() | texts),
    statistics=st.none() | st.dictionaries(texts, st.builds(Bounds, scalars, scalars, st.none() | st.integers(0))),
)


@given(infos)
def test_a_file_info_comes_back_as_it_was(info: FileInfo) -> None:
    back = decode_file_info(encode_file_info(info))
    assert back == info
    assert [list(map(type, b)) for b in (back.statistics or {}).values()] == [
        list(map(type, b)) for b in (info.statistics or {}).values()
    ]  # True == 1 == 1.0


def test_batches_without_rows_are_none() -> None:
    """As those are of which no row stays; the rows of a table without any have no partition."""
    empty, full = pa.record_batch({"a": pa.array([], pa.int64())}), pa.record_batch({"a": [1]})
    assert list(collect([empty, empty], rows=10, size_bytes=1000)) == []
    assert [table.num_rows for table in collect([empty, full, empty], rows=1, size_bytes=1000)] == [1]
