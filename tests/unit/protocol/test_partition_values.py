"""One text for each value of a partition column: what writers write, and what all readers take for the same value.

Rules: PROTOCOL.md 6.2.
"""

import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.arrow import format_values
from dbio_commit.data.columns import arrow_type, narrowest
from dbio_commit.data.conditions.pruning import prune
from dbio_commit.data.conditions.sql import parse_where
from dbio_commit.data.conform import parse_value
from dbio_commit.protocol import names
from dbio_commit.protocol import partition_values as values
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.state import DataFile
from dbio_commit.protocol.types import is_partition
from dbio_commit.table import Table
from tests.histories import columns
from tests.partition_texts import CANONICAL, READ_ALIKE, READ_DIFFERENTLY

CEST = timezone(timedelta(hours=2))


def singles() -> st.SearchStrategy[float]:
    return st.floats(width=32)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "decimal(5,2)": st.integers(-99999, 99999).map(lambda it: Decimal(it).scaleb(-2)),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal(3,3)": st.integers(-999, 999).map(lambda it: Decimal(it).scaleb(-3)),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "float": singles(),
    "double": st.floats(),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "varchar(9)": st.text(st.characters(exclude_categories=["Cs"])),
    "binary": st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_a_value_is_written_as_one_text_that_gives_it_back(kind: str, data: Any) -> None:
    value = data.draw(VALUES[kind])
    text = values.write(value, kind)
    again = values.read(text, kind)
    assert again == value or (math.isnan(again) and math.isnan(value))  # type: ignore[arg-type]
    assert values.canonical(text, kind) == text
    assert values.problem(text, kind) is None
    if isinstance(value, float) and value == 0:
        assert math.copysign(1, value) == math.copysign(1, again)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind in VALUES if is_partition(kind)])
@given(data=st.data())
def test_tasks_of_spark_and_users_write_the_same_text_and_arrow_reads_it(kind: str, data: Any) -> None:
    value = data.draw(VALUES[kind])
    assume(value != "")
    arrow = arrow_type(kind)
    (text,) = format_values("k", pa.array([value], arrow))
    assert text == values.write(value, kind) == values.spell(value, kind)
    assert parse_value(text, arrow) == value


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CANONICAL.items() for text in texts])
def test_canonical_texts_are_taken(kind: str, text: str) -> None:
    assert values.problem(text, kind) is None
    assert values.canonical(text, kind) == text


@pytest.mark.parametrize(
    ("kind", "text", "own"), [(kind, text, own) for kind, them in READ_ALIKE.items() for text, own in them.items()]
)
def test_what_all_readers_take_alike_is_read_and_not_written(kind: str, text: str, own: str) -> None:
    assert values.canonical(text, kind) == own
    why = values.problem(text, kind)
    assert why is not None
    assert repr(own) in why


@pytest.mark.parametrize(
    ("kind", "text", "own"),
    [(kind, text, own) for kind, them in READ_DIFFERENTLY.items() for text, own in them.items()],
)
def test_what_readers_take_for_different_values_is_refused_with_what_it_may_mean(
    kind: str, text: str, own: str | None
) -> None:
    with pytest.raises(ValueError, match=kind.split("(")[0]) as refused:
        values.read(text, kind)
    why = values.problem(text, kind)
    assert why is not None
    if kind not in ("interval",) and own is not None:
        assert f"write {own!r}" in why
        assert repr(own) in str(refused.value)
        assert values.write(values.meant(text, kind), kind) == own
    else:
        assert "; write '" not in why
        with pytest.raises(ValueError, match="is no"):
            values.meant(text, kind)


@given(st.text(), st.sampled_from([*VALUES, "void", "", "decimal", "decimal(99,99)", "array"]))
def test_any_text_is_a_value_or_refused_and_a_canonical_one_stays(text: str, kind: str) -> None:
    try:
        own = values.canonical(text, kind)
    except ValueError:
        assert values.problem(text, kind)
    else:
        assert values.canonical(own, kind) == own


@given(
    st.lists(
        st.from_regex(r"[+-]?[0-9]{1,3}(\.[0-9]{1,3})?|20[0-9]{2}-[01][0-9]-[0-3][0-9]( 0[0-9]:00:00)?", fullmatch=True)
    )
)
def test_what_is_inferred_from_directories_is_read_from_all_of_them(texts: list[str]) -> None:
    kind = narrowest(texts)
    for text in texts:
        values.read(text, kind)


def test_a_single_is_read_as_the_single_that_it_is() -> None:
    assert values.read("0.1", "float") == struct.unpack("f", struct.pack("f", 0.1))[0] != 0.1


# --- what users give ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (date(2026, 11, 20), "date", "2026-11-20"),
        (datetime(2026, 11, 20), "date", "2026-11-20"),
        (pd.Timestamp("2026-11-20"), "date", "2026-11-20"),
        (pd.Timestamp("2026-11-20T10:00:00+02:00"), "timestamp", "2026-11-20 08:00:00"),
        (datetime(2026, 11, 20, 10, tzinfo=CEST), "timestamp", "2026-11-20 08:00:00"),
        (datetime(2026, 11, 20, 10, 0, 0, 1000), "timestamp_ntz", "2026-11-20 10:00:00.001"),
        (7, "byte", "7"),
        (np.int64(7), "integer", "7"),
        (np.int8(-7), "long", "-7"),
        (True, "boolean", "true"),
        (np.bool_(False), "boolean", "false"),
        (Decimal("1.5"), "decimal(5,2)", "1.50"),
        (Decimal("1.500"), "decimal(5,2)", "1.50"),
        (2, "decimal(5,2)", "2.00"),
        (1.5, "double", "1.5"),
        (np.float32(0.5), "float", "0.5"),
        (b"a", "binary", "a"),
        (np.datetime64("2026-11-20"), "date", "2026-11-20"),
        (np.datetime64("2026-11-20"), None, "2026-11-20"),
        (np.datetime64("2026-11-20T00:00", "s"), "date", "2026-11-20"),
        (np.datetime64("2026-11-20T10:00", "m"), "timestamp_ntz", "2026-11-20 10:00:00"),
        (np.datetime64("2026-11-20T10:00:00", "s"), None, "2026-11-20 10:00:00"),
        (np.datetime64("2026-11-20T10:00:00.001", "ms"), "timestamp_ntz", "2026-11-20 10:00:00.001"),
        (np.datetime64("2026-11-20T10:00:00.000001", "us"), "timestamp_ntz", "2026-11-20 10:00:00.000001"),
        (np.datetime64("2026-11-20T10:00:00.000001000", "ns"), "timestamp_ntz", "2026-11-20 10:00:00.000001"),
        ("x", "string", "x"),
        (np.str_("x"), "string", "x"),
        (2026, "string", "2026"),
        (date(2026, 11, 20), "string", "2026-11-20"),
        (date(2026, 11, 20), None, "2026-11-20"),
        (datetime(2026, 11, 20, tzinfo=UTC), None, "2026-11-20 00:00:00"),
        (7, None, "7"),
        (Decimal("1.50"), None, "1.50"),
        ("anything", None, "anything"),
    ],
)
def test_a_value_of_python_or_numpy_becomes_the_canonical_text(value: Any, kind: str | None, text: str) -> None:
    assert values.spell(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind", "what"),
    [
        (300, "byte", "out of the range"),
        (True, "integer", "is no integer"),
        (1, "boolean", "is no boolean"),
        (1.0, "integer", "is no integer"),
        (Decimal(1), "integer", "is no integer"),
        (Decimal("1.505"), "decimal(5,2)", "more digits after the point"),
        (Decimal(1000), "decimal(5,2)", "out of the range"),
        (1.5, "decimal(5,2)", "is no decimal"),
        (datetime(2026, 11, 20, 1), "date", "give a date"),
        (datetime(2026, 11, 20, tzinfo=UTC), "date", "give a date"),
        (date(2026, 11, 20), "timestamp", "with a zone"),
        (datetime(2026, 11, 20), "timestamp", "with a zone"),
        (datetime(2026, 11, 20, tzinfo=UTC), "timestamp_ntz", "without a zone"),
        (datetime(1, 1, 1, tzinfo=CEST), "timestamp", "date value out of range"),
        (pd.NaT, "timestamp", "None is null"),
        (pd.NA, "string", "None is null"),
        (float("nan"), None, "None is null"),
        (np.datetime64("2026-11-20T10:00:00.000000001"), "timestamp_ntz", "finer parts than microseconds"),
        (pd.Timestamp("2026-11-20T10:00:00.000000001"), "timestamp_ntz", "finer parts than microseconds"),
        (np.datetime64("2026-11-20T10:00:00", "s"), "date", "give a date"),
        (np.datetime64("2026-11-20T10:00:00", "s"), "timestamp", "with a zone"),
        (np.datetime64("2026-11"), "date", "no date or time"),
        (np.datetime64("10000-01-01"), "date", "no date or time"),
        (np.datetime64("2026-11-20", "ps"), "date", "no date or time"),
        (np.datetime64("NaT"), "date", "None is null"),
        (np.timedelta64(1, "ns"), "long", "give a text, a number, a date"),
        (datetime(2026, 11, 20), "string", "is no string"),
        (1.5, "string", "is no string"),
        (1.5, None, "by which no table is partitioned"),
        (["a"], "string", "give a text"),
        (7, "void", "is no void"),
        ("2024-1-1", "date", "write '2024-01-01'"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(value: Any, kind: str | None, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        values.spell(value, kind)


# --- transactions -------------------------------------------------------------------------------------------------

BAD = {
    "date": ["20.11.2026", "2026-1-5", "20261120"],
    "integer": ["seven", "007", "3000000000", "1.0"],
    "timestamp": ["2026-11-20T10:00:00+01:00", "2026-11-20T10:00:00Z", "2026-11-20"],
    "boolean": ["True", "yes"],
    "decimal(5,2)": ["1.5", "12345.00", "1.555"],
    "byte": ["300"],
    "long": ["9223372036854775808"],
}
GOOD: dict[str, Any] = {
    "date": date(2026, 11, 20), "integer": 7, "timestamp": datetime(2026, 11, 20, tzinfo=UTC), "boolean": True,
    "decimal(5,2)": Decimal("1.50"), "byte": 7, "long": 7,
}  # fmt: skip
EACH_BAD = pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in BAD.items() for text in texts])
ROWS = pa.table({"id": [2]})


def table_by(path: Path, kind: str) -> Table:
    table = Table(path)
    transaction = table.begin(partition_by=["k"])
    pq.write_table(pa.table({"id": [1]}), transaction.new_file(partition={"k": GOOD.get(kind, "good")}))
    transaction.commit(columns(id="long", k=kind))
    return table


@EACH_BAD
def test_a_text_that_is_not_canonical_is_refused_by_new_file_and_the_transaction_goes_on(
    kind: str, text: str, tmp_path: Path
) -> None:
    table = table_by(tmp_path / "t", kind)
    transaction = table.begin()
    with pytest.raises(InvalidInputError, match=r"partition column 'k' of .*t: ") as refused:
        transaction.new_file(partition={"k": text})
    assert repr(text) in str(refused.value)
    pq.write_table(ROWS, transaction.new_file(partition={"k": GOOD[kind]}))
    transaction.commit()
    assert table.snapshot().to_arrow()["k"].to_pylist() == [GOOD[kind]] * 2


@EACH_BAD
def test_a_text_that_is_not_canonical_is_refused_at_the_commit_that_sets_the_columns(
    kind: str, text: str, tmp_path: Path
) -> None:
    table = Table(tmp_path / "t")
    transaction = table.begin(partition_by=["k"])  # nothing says yet of which type it is
    pq.write_table(ROWS, transaction.new_file(partition={"k": text}))
    with pytest.raises(InvalidInputError, match=r"k=.*k = .*new_file\(partition=") as refused:
        transaction.commit(columns(id="long", k=kind))
    assert repr(text) in str(refused.value)
    assert not table.snapshot().files


def test_files_of_tasks_are_looked_at_when_they_are_added_and_with_the_columns_of_the_commit(tmp_path: Path) -> None:
    table = table_by(tmp_path / "t", "byte")

    def added(text: str) -> Any:
        transaction = table.begin()
        name = f"part-00000-tid-{transaction.tid}-x-0-0-c000.parquet"
        (tmp_path / f"t/k={text}").mkdir(exist_ok=True)
        pq.write_table(ROWS, tmp_path / f"t/k={text}/{name}")
        size = (tmp_path / f"t/k={text}/{name}").stat().st_size
        transaction.add([FileInfo(path=f"k={text}/{name}", size=size, partition={"k": text})])
        return transaction

    with pytest.raises(InvalidInputError, match="k = 'seven' is no long"):
        added("seven")
    with pytest.raises(InvalidInputError, match="k = '300' is no byte"):
        added("300").commit()
    added("300").commit(columns(id="long", k="short"))  # which widens the column
    assert set(table.snapshot().to_arrow()["k"].to_pylist()) == {7, 300}


def test_an_overwrite_may_write_values_of_another_type_than_the_column_has_now(tmp_path: Path) -> None:
    table = table_by(tmp_path / "t", "date")
    transaction = table.begin("overwrite")
    pq.write_table(ROWS, transaction.new_file(partition={"k": "20.11.2026"}))
    transaction.commit(columns(id="long", k="string"))
    assert table.snapshot().to_arrow()["k"].to_pylist() == ["20.11.2026"]
    transaction = table.begin("overwrite")
    pq.write_table(ROWS, transaction.new_file(partition={"k": "20.11.2026"}))
    with pytest.raises(InvalidInputError, match=r"k = '20\.11\.2026' is no date"):
        transaction.commit(columns(id="long", k="date"))


@pytest.mark.parametrize(
    ("kind", "value", "after"),
    [("date", "2026-11-21", "date"), ("date", date(2026, 11, 21), "date"), ("date", "21.11.2026", "string"),
     ("integer", 8, "integer"), ("integer", 3_000_000_000, "long"), ("byte", "8", "byte"),
     ("decimal(5,2)", 2, "decimal(5,2)"), ("string", date(2026, 11, 21), "string"), ("date", None, "date")],
)  # fmt: skip
def test_an_overwrite_with_other_columns_keeps_the_type_of_a_partition_column_where_its_values_fit(
    kind: str, value: Any, after: str, tmp_path: Path
) -> None:
    table = table_by(tmp_path / "t", kind)
    with table.begin("overwrite") as transaction:
        pq.write_table(pa.table({"other": ["x"]}), transaction.new_file(partition={"k": value}))
    assert table.snapshot().schema == columns(other="string", k=after)
    assert table.snapshot().to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("kind", "value", "after"),
    [("long", "x", "string"), ("date", "21.11.2026", "string"), ("integer", 3_000_000_000, "long"),
     ("date", 7, "long"), ("date", date(2026, 11, 21), "date"), ("byte", "8", "byte")],
)  # fmt: skip
@pytest.mark.parametrize("is_added", [False, True])
def test_an_overwrite_with_the_same_columns_gives_a_partition_column_the_type_of_its_values(
    kind: str, value: Any, after: str, is_added: bool, tmp_path: Path
) -> None:
    table = table_by(tmp_path / "t", kind)
    with table.begin("overwrite") as transaction:
        path = Path(transaction.new_file(partition={"k": value}))
        pq.write_table(ROWS, path)
        if is_added:
            text = path.parent.name.removeprefix("k=")
            file = FileInfo(path=f"k={text}/{path.name}", size=path.stat().st_size, rows=1, partition={"k": text})
            transaction.add([file])
    assert table.snapshot().schema == columns(id="long", k=after)
    assert table.snapshot().to_arrow().num_rows == 1


def test_an_overwrite_by_files_that_others_named_has_texts_where_their_values_do_not_fit(tmp_path: Path) -> None:
    for rows in (ROWS, pa.table({"other": ["x"]})):
        table = table_by(tmp_path / rows.schema.names[0], "long")
        transaction = table.begin("overwrite")
        name = f"part-00000-tid-{transaction.tid}-x-0-0-c000.parquet"
        path = Path(table.url.removeprefix("file://")) / "k=x" / name
        path.parent.mkdir()
        pq.write_table(rows, path)
        transaction.add([FileInfo(path=f"k=x/{name}", size=path.stat().st_size, partition={"k": "x"})])
        transaction.commit()
        assert table.snapshot().to_arrow()["k"].to_pylist() == ["x"]


def test_a_path_of_new_file_is_refused_with_another_next_step_than_one_that_was_made_up(tmp_path: Path) -> None:
    table = table_by(tmp_path / "t", "date")
    transaction = table.begin("overwrite")
    pq.write_table(ROWS, transaction.new_file(partition={"k": "x"}))
    with pytest.raises(InvalidInputError, match=r"'x' is no date.* Give new_file\(.*commit\(schema=…\)"):
        transaction.commit(columns(id="long", k="date"))


@pytest.mark.parametrize("kind", ["integer", "date"])
def test_no_commit_gives_a_partition_column_a_type_of_which_files_that_stay_have_no_values(
    kind: str, tmp_path: Path
) -> None:
    table = table_by(tmp_path / "t", "string")
    with pytest.raises(InvalidInputError, match=rf"'k' .* cannot be {kind} .*k=good/.* would stay"):
        table.begin().commit(columns(id="long", k=kind))
    assert table.snapshot().to_arrow()["k"].to_pylist() == ["good"]
    table.begin("overwrite").commit(columns(id="long", k=kind))


@pytest.mark.parametrize("kind", ["double", "float", "binary"])
def test_no_table_is_made_with_a_partition_column_of_which_tools_write_values_differently(
    kind: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=f"partition column 'k' .* cannot be {kind}"):
        table_by(tmp_path / "t", kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(date(2026, 11, 20), "date"), (7, "long"), (True, "boolean"), (Decimal("1.50"), "decimal(38,2)"), ("x", "string"),
     (datetime(2026, 11, 20, tzinfo=UTC), "timestamp"), (datetime(2026, 11, 20), "timestamp_ntz"), (None, "string")],
)  # fmt: skip
def test_of_a_new_table_the_values_that_are_given_tell_the_types_of_partition_columns(
    value: Any, kind: str, tmp_path: Path
) -> None:
    table = Table(tmp_path / "t")
    with table.begin(partition_by=["k"]) as transaction:
        pq.write_table(ROWS, transaction.new_file(partition={"k": value}))
    assert table.snapshot().schema == columns(id="long", k=kind)
    assert table.snapshot().to_arrow()["k"].to_pylist() == [value]
    with table.begin() as transaction:
        pq.write_table(ROWS, transaction.new_file(partition={"k": value}))
    assert table.snapshot().to_arrow(filter=[("k", "=", value)]).num_rows == 2


def test_values_of_several_types_for_a_new_column_are_refused(tmp_path: Path) -> None:
    transaction = Table(tmp_path / "t").begin(partition_by=["k"])
    for value in (date(2026, 11, 20), "2026-11-21"):
        pq.write_table(ROWS, transaction.new_file(partition={"k": value}))
    with pytest.raises(InvalidInputError, match=r"'k' .* several types, date, string; .*commit\(schema"):
        transaction.commit()


def test_a_partition_is_replaced_by_a_value_too(tmp_path: Path) -> None:
    table = table_by(tmp_path / "t", "date")
    with table.begin("overwrite_partitions") as transaction:
        transaction.overwrite_partition({"k": date(2026, 11, 20)})
    assert not table.snapshot().files
    with pytest.raises(InvalidInputError, match="partition column 'k'"):
        table.begin("overwrite_partitions").overwrite_partition({"k": 7})


# --- what an earlier version committed ----------------------------------------------------------------------------


def poisoned(path: Path, kind: str, text: str) -> Table:
    """A table in which an earlier version has put a file into a partition that names no value, or another."""
    table = table_by(path, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbio_commit.commit.file_checks.find_problem", lambda *_: None)
        patch.setattr("dbio_commit.commit.file_checks.spell", lambda value, _: value)
        with table.begin() as transaction:
            pq.write_table(ROWS, transaction.new_file(partition={"k": text}))
    return table


UNREAD = {"date": "20.11.2026", "integer": "seven", "boolean": "yes", "decimal(5,2)": "1.5", "byte": "300",
          "long": "9223372036854775808", "timestamp": "noon"}  # fmt: skip


def put_right(table: Table, text: str, kind: str) -> None:
    """As OPERATIONS.md shows."""
    (bad,) = table.check().unread_values
    with table.begin("rewrite") as transaction:
        pq.write_table(pq.ParquetFile(f"{table.url}/{bad}").read(), transaction.new_file(partition={"k": GOOD[kind]}))
        transaction.remove([bad])


def leave_out(table: Table, text: str, kind: str) -> None:
    with table.begin("overwrite_partitions") as transaction:
        transaction.overwrite_partition({"k": text})


def go_back(table: Table, text: str, kind: str) -> None:
    table.restore(table.history()[-1].tid)


@pytest.mark.parametrize("mend", [put_right, leave_out, go_back])
@pytest.mark.parametrize("kind", UNREAD)
def test_a_value_that_an_earlier_version_committed_is_named_and_can_be_put_right(
    kind: str, mend: Any, tmp_path: Path
) -> None:
    text = UNREAD[kind]
    table = poisoned(tmp_path / "t", kind, text)
    with pytest.raises(InvalidInputError, match=r"k=.*parquet names no value of the column 'k' .*OPERATIONS\.md"):
        table.snapshot().to_arrow()
    assert set(table.snapshot().to_arrow(columns=["id"])["id"].to_pylist()) == {1, 2}
    for form in ("delta", "spark", "symlink"):
        with pytest.raises(InvalidInputError, match="names no value of the column 'k'"):
            table.publish(form)
    report = table.check()
    assert not report.ok
    ((path, why),) = report.unread_values.items()
    assert path.startswith(f"k={text}/")
    assert repr(text) in why
    mend(table, text, kind)
    assert table.check().ok
    assert set(table.snapshot().to_arrow()["k"].to_pylist()) == {GOOD[kind]}
    assert len(table.publish("delta")) == 1


def test_what_lies_in_such_a_partition_is_compacted_and_restored_where_it_is(tmp_path: Path) -> None:
    table = poisoned(tmp_path / "t", "decimal(5,2)", "1.5")
    tid = poisoned(tmp_path / "t", "decimal(5,2)", "1.5").history()[0].tid
    report = table.compact()
    assert report.commits
    assert {path.partition("/")[0] for path in table.check().unread_values} == {"k=1.5"}
    with table.begin("overwrite_partitions") as transaction:
        transaction.overwrite_partition({"k": "1.5"})
    table.restore(tid)
    assert len(table.check().unread_values) == 2


ALIKE_IN_TABLES = [(kind, it) for kind, them in READ_ALIKE.items() if is_partition(kind) for it in them]


@pytest.mark.parametrize(("kind", "text"), ALIKE_IN_TABLES)
def test_texts_that_all_readers_take_alike_are_read_and_pruned_as_their_value(kind: str, text: str) -> None:
    own = values.canonical(text, kind)
    assert parse_value(text, arrow_type(kind)) == values.read(own, kind)
    is_plain = kind == "boolean" or "int" in kind or "decimal" in kind
    files = [DataFile(f"k={names.escape(text)}/a", 1, None, {"k": text})]
    for operator, kept in (("=", 1), ("!=", 0)):
        sql = f"k {operator} {own}" if is_plain else f"k {operator} '{own}'"
        assert len(prune(files, [], parse_where(sql, columns(k=kind), zone="UTC"), {"k": kind})) == kept


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, them in READ_DIFFERENTLY.items() for text in them])
def test_a_file_on_whose_partition_readers_do_not_agree_is_left_out_by_no_condition_on_it(kind: str, text: str) -> None:
    files = [DataFile(f"k={names.escape(text)}/a", 1, None, {"k": text})]
    for condition in ("k = 7", "k != 7", "k < '2026-01-01'", "k > '2026-01-01'", "k", "NOT k"):
        assert len(prune(files, [], parse_where(condition, columns(k=kind), zone="UTC"), {"k": kind})) == 1


def test_new_files_are_checked_once_for_each_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = table_by(tmp_path / "t", "date")
    asked: list[str] = []
    problem = values.problem

    def ask(text: str, kind: str) -> str | None:
        asked.append(text)
        return problem(text, kind)

    monkeypatch.setattr("dbio_commit.protocol.partitions.problem", ask)
    transaction = table.begin()
    files = [
        FileInfo(path=f"k=2026-11-2{i % 3}/part-{i}-tid-{transaction.tid}-x.parquet", size=1,
                 partition={"k": f"2026-11-2{i % 3}"})
        for i in range(3000)
    ]  # fmt: skip
    transaction.add(files)
    asked.clear()
    transaction._checks.check_partitions(files, None, {})
    assert len(asked) == 3
