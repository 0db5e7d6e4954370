"""The grammars in `names`: round trips, near misses, and input from hostile markers. No store, no file.

Rules: PROTOCOL.md 6.1, 6.2, 6.3.
"""

import posixpath
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.names import Kind, LogName

relaxed = settings(deadline=None)  # machines that run tests are noisy

MILLIS = st.integers(0, (1 << 42) - 1)
RANDOM = st.integers(0, (1 << 21) - 1)
TIDS = st.builds(names.format_tid, MILLIS, RANDOM)
ANY_TIDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=40)
NIGHT = 1_795_000_000_000
TID = names.format_tid(NIGHT, 5)

# --- tids ---------------------------------------------------------------------------------------------------------


@relaxed
@given(MILLIS, RANDOM)
@example(0, 0)
@example((1 << 42) - 1, (1 << 21) - 1)
def test_tid_gives_back_its_start_time_to_the_millisecond(millis: int, random_bits: int) -> None:
    tid = names.format_tid(millis, random_bits)
    assert names.parse_tid_time(tid) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    assert len(tid) == 19
    assert tid.isdigit()
    assert names.is_tid(tid)


@relaxed
@given(MILLIS, RANDOM, MILLIS, RANDOM)
def test_tids_sort_as_text_by_time_then_random_bits(millis: int, bits: int, other_millis: int, other_bits: int) -> None:
    tids = names.format_tid(millis, bits), names.format_tid(other_millis, other_bits)
    assert (tids[0] < tids[1]) == ((millis, bits) < (other_millis, other_bits))


def test_first_and_last_tid() -> None:
    assert names.format_tid(0, 0) == "0000000000000000000"
    assert names.format_tid((1 << 42) - 1, (1 << 21) - 1) == "9223372036854775807"


@relaxed
@given(MILLIS, st.integers())
def test_surplus_random_bits_never_reach_the_time(millis: int, random_bits: int) -> None:
    assert int(names.format_tid(millis, random_bits)) >> 21 == millis


@pytest.mark.parametrize("millis", [-1, 1 << 42, -(1 << 60), 1 << 100])
def test_clock_outside_the_range_of_tids_is_refused(millis: int) -> None:
    with pytest.raises(InvalidInputError, match=str(millis)):
        names.format_tid(millis, 0)


@pytest.mark.parametrize(
    "tid",
    [
        "",
        "0" * 18,
        "0" * 20,
        "9223372036854775808",
        "9999999999999999999",
        "-000000000000000001",
        "+000000000000000001",
        " 000000000000000001",
        "000000000000000001\n",
        "0000_00000000000001",
        "000000000000000000a",
        "\u0660" * 19,
        "²" * 19,
        "1" * 10_000,
    ],
)
def test_tid_of_another_writer_has_no_time(tid: str) -> None:
    assert names.parse_tid_time(tid) is None


@pytest.mark.parametrize("text", ["", "A", "1-2", "1_2", "1 ", "1\n", "é", "٣", "1.2", "../1"])
def test_text_outside_the_grammar_is_no_tid(text: str) -> None:
    assert not names.is_tid(text)


# --- log names ----------------------------------------------------------------------------------------------------


@relaxed
@given(TIDS, st.integers(0, 10**20 - 1))
def test_log_names_round_trip(tid: str, number: int) -> None:
    expected = {
        f"_started_{tid}": LogName(Kind.STARTED, tid),
        f"_committed_{tid}": LogName(Kind.COMMITTED, tid),
        f"_committed_vacuum{tid}": LogName(Kind.VACUUM, tid),
        f"_checkpoint_{number:020d}": LogName(Kind.CHECKPOINT, f"{number:020d}"),
        f"_serial_{number:020d}": LogName(Kind.TURN, f"{number:020d}"),
    }
    for text, name in expected.items():
        assert names.parse_log_name(text) == name
        assert names.format_log_name(name) == text
    assert [names.started(tid), names.committed(tid), names.turn(number), names.checkpoint(number)] == [
        f"_started_{tid}",
        f"_committed_{tid}",
        f"_serial_{number:020d}",
        f"_checkpoint_{number:020d}",
    ]


@relaxed
@given(st.text() | st.builds(str.__add__, st.sampled_from([*Kind, "_", "_committed", "_dbio_table"]), st.text()))
def test_whatever_parses_as_a_log_name_formats_back_to_the_same_text(text: str) -> None:
    name = names.parse_log_name(text)
    assert name is None or names.format_log_name(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "_",
        "_dbio_table",
        "_started_",
        "_started",
        "_started-1",
        "started_1",
        "_Started_1",
        "_started_A",
        "_started_1.tmp",
        "_started_1\n",
        " _started_1",
        "_started_1/",
        "x/_started_1",
        "_started_vacuum_1",
        "_committed_",
        "_committed_1_2",
        "_committed_vacuum",
        "_committed_vacuum_1",
        "_committed_vacuumA",
        "_committed_1.crc",
        "._committed_1.crc",
        "_serial_1",
        "_serial_" + "0" * 19,
        "_serial_" + "0" * 21,
        "_serial_" + "a" * 20,
        "_serial_" + "٣" * 20,
        "_serial_" + "0" * 20 + "\n",
        "_serial_-" + "0" * 19,
        "_checkpoint_",
        "_checkpoint_1",
        "_checkpoint_" + "1" * 19,  # of the draft, which had a tid there
        "_checkpoint_" + "1" * 21,
        "_checkpoint_" + "a" * 20,
        "_checkpoint_" + "1" * 20 + ".gz",
        "_success",
        "_SUCCESS",
        "_metadata",
        "_committed",
        "part-00000-tid-1-x-0-0-c000.parquet",
    ],
)
def test_near_miss_is_no_log_name(text: str) -> None:
    assert names.parse_log_name(text) is None


@pytest.mark.parametrize("number", [-1, 10**20])
@pytest.mark.parametrize("name", [names.turn, names.checkpoint])
def test_number_that_twenty_digits_cannot_hold_is_refused(name: Callable[[int], str], number: int) -> None:
    with pytest.raises(InvalidInputError):
        name(number)


@relaxed
@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1))
def test_turns_and_checkpoints_sort_as_text_by_number(number: int, other: int) -> None:
    assert (names.turn(number) < names.turn(other)) == (number < other)
    assert (names.checkpoint(number) < names.checkpoint(other)) == (number < other)


# --- patterns -----------------------------------------------------------------------------------------------------


@relaxed
@given(st.dictionaries(st.text(min_size=1, max_size=5), st.none() | st.text(min_size=1, max_size=8), max_size=3))
def test_no_partition_is_a_pattern_to_other_tools(partition: dict[str, str | None]) -> None:
    with suppress(InvalidInputError):
        assert not names.is_pattern(names.format_partition(partition))


@pytest.mark.parametrize("path", ["*.parquet", "a?.parquet", "[a].parquet", "a]", "{../victim/x}", "k={a/b.parquet"])
def test_patterns_are_known(path: str) -> None:
    assert names.is_pattern(path)


@pytest.mark.parametrize("path", ["part-00000-tid-1-x-0-0-c000.snappy.parquet", "k=a}b/f", "k=%2A%5B/f", "a^b", "a,b"])
def test_what_tools_take_literally_is_no_pattern(path: str) -> None:
    assert not names.is_pattern(path)


# --- disks that fold names ----------------------------------------------------------------------------------------

SAME = [
    ("kind=Click/f", "kind=click/f"),
    ("k=\u00e9/f", "k=e\u0301/f"),
    ("k=stra\u00dfe/f", "k=STRASSE/f"),
    ("k=a./f", "k=a/f"),
    ("k=a . /f. ", "k=a/f"),
    ("k=\u00c9/f", "k=e\u0301/f"),
    ("k=\u1e9b\u0323/f", "k=\u1e61\u0323/f"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_what_some_disk_takes_for_the_same_folds_to_the_same(first: str, second: str) -> None:
    assert names.fold(first) == names.fold(second)


@relaxed
@given(st.text(max_size=12))
def test_folding_again_changes_nothing(path: str) -> None:
    once = names.fold(path)
    assert names.fold(once) == once
    assert names.fold(normalize("NFD", path)) == names.fold(normalize("NFC", path)) == once


def test_other_paths_stay_apart() -> None:
    paths = ["k=a/f", "k=b/f", "k=a/g", "k=a%2E/f", "k=a_/f", ".k=a/f"]
    assert len({names.fold(path) for path in paths}) == len(paths)


# --- data files ---------------------------------------------------------------------------------------------------

SUFFIXES = st.sampled_from([".parquet", ".snappy.parquet", ".zstd.parquet", ".csv.gz", ""])


@relaxed
@given(
    ANY_TIDS,
    st.uuids().map(str),
    st.integers(0, 1 << 31),
    st.integers(0, 1 << 31),
    st.integers(0, 1 << 31),
    SUFFIXES,
)
def test_data_file_gives_back_its_tid(tid: str, job: str, task: int, attempt: int, number: int, suffix: str) -> None:
    name = names.format_data_file(tid=tid, job=job, task=task, attempt=attempt, number=number, suffix=suffix)
    assert names.parse_data_file(name) == tid
    assert names.is_data_file(name)
    assert names.check_path(name, where="test") == name


def test_data_file_is_named_as_databricks_named_it() -> None:
    job = "5d9a6a6e-6f43-4a2a-8b8f-0d5b6a7f1c11"
    name = names.format_data_file(tid="42", job=job, task=3, attempt=7, number=1, suffix=".snappy.parquet")
    assert name == f"part-00003-tid-42-{job}-7-1-c000.snappy.parquet"


def test_task_above_99999_still_parses() -> None:
    name = names.format_data_file(tid=TID, job="j", task=123_456, attempt=0, number=0, suffix=".parquet")
    assert name.startswith("part-123456-tid-")
    assert names.parse_data_file(name) == TID


def test_data_files_of_different_task_attempts_have_different_names() -> None:
    def name(task: int, attempt: int, number: int) -> str:
        return names.format_data_file(tid=TID, job="j", task=task, attempt=attempt, number=number, suffix=".parquet")

    every = {name(task, attempt, number) for task in range(12) for attempt in range(12) for number in range(12)}
    assert len(every) == 12**3


@pytest.mark.parametrize(
    ("name", "tid"),
    [
        ("part-00000-tid-123-uuid-1-0-c000.snappy.parquet", "123"),
        ("x-tid-abc-", "abc"),
        ("x-tid-0-.parquet", "0"),
        (".part-00000-tid-123-x.crc", "123"),
        ("part-0-tid-111-x-tid-222-y.parquet", "222"),  # the first `.*` is greedy, in DBIO as here
        ("part-0-tid-111-tid-222-y", "222"),
        ("part-0-tid-111-tid-", "111"),
        ("part-0-tid-tid-y", "tid"),
    ],
)
def test_tid_is_where_the_regular_expression_of_dbio_finds_it(name: str, tid: str) -> None:
    assert names.parse_data_file(name) == tid


@pytest.mark.parametrize(
    "name",
    [
        "",
        "part-00000.parquet",
        "_part-0-tid-123-x",
        "-tid-123-x",
        "part-0-tid--x",
        "part-0-tid-ABC-x",
        "part-0-tid-123",
        "part-0-tid-12_3-x",
        "part-0-TID-123-x",
        "part-0_tid_123_x",
        "part-0-tid-٣-x",
        "part-0-tid-123-x\ny",
        "_started_1",
    ],
)
def test_name_without_a_tid_is_untracked(name: str) -> None:
    assert names.parse_data_file(name) is None


PIECES = st.sampled_from(["part", "-tid-", "tid", "-", "5", "6", "55", "-tid-5-", "-tid-6-", "-tid-55-", "/", "d=1"])
SOME_TIDS = st.sampled_from(["5", "6", "55", "tid"])


@settings(max_examples=2000, deadline=None)
@given(st.lists(PIECES).map("".join), st.lists(PIECES).map("".join), SOME_TIDS, SOME_TIDS)
@example("-tid-tid-5-", "part", "tid", "5")
def test_no_path_is_marked_as_that_of_two_transactions(path: str, beside: str, tid: str, other: str) -> None:
    if tid != other and names.are_marked([path, beside], tid):
        assert not names.are_marked([path], other)
        assert not names.are_marked([beside], other)


@relaxed
@given(TIDS)
def test_data_files_are_marked_as_their_transactions_and_nobody_elses(tid: str) -> None:
    made = (
        names.format_data_file(tid=tid, job="j", task=i, attempt=0, number=0, suffix=".parquet", changes=i > 1)
        for i in range(3)
    )
    paths = [f"day=1/{name}" for name in made]
    assert names.are_marked(paths, tid)
    assert not names.are_marked([*paths, "day=1/copied.parquet"], tid)
    assert not names.are_marked([*paths, f"{paths[0]}-tid-5-"], tid)
    assert not names.are_marked(paths, tid[:-1])


# --- what readers skip --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "component", ["_", "_SUCCESS", "_started_1", "_dbio_table", ".", ".x.crc", ".hidden=1", "_temporary"]
)
def test_reader_skips(component: str) -> None:
    assert names.is_hidden(component)
    assert not names.is_data_file(component)
    assert not names.is_data_file(f"{component}/a.parquet")
    assert not names.is_data_file(f"day=1/{component}")


@pytest.mark.parametrize("component", ["a", "a_", "a.", "day=1", "_day=1", "part-0.parquet", "a=_b", "a=.b"])
def test_reader_takes(component: str) -> None:
    assert not names.is_hidden(component)
    assert names.is_data_file(component)


def test_reader_skips_a_file_that_hadoop_is_still_copying() -> None:
    """Spark's HadoopFSUtils.shouldFilterOutPathName skips it too."""
    assert names.is_hidden("part-00000.parquet._COPYING_")


_ODD_PATHS = st.lists(
    st.lists(
        st.sampled_from(["a", "b._COPYING_", "_c=1", "_d", ".e", "..", "", "._x", "f\n", "g\\", "h["]), max_size=4
    ).map("/".join),
    max_size=5,
)


@relaxed
@given(_ODD_PATHS)
def test_many_paths_are_judged_as_each_of_them_is(paths: list[str]) -> None:
    inside = [_passes(names.check_path, path) for path in paths]
    assert _passes(names.check_paths, paths) == all(inside)
    each = [names.is_data_file(path) and not names.is_pattern(path) for path in paths]
    assert _passes(names.check_visible, paths) == all((*inside, *each))


@relaxed
@given(_ODD_PATHS)
def test_files_that_are_surely_visible_are_so_one_by_one(paths: list[str]) -> None:
    places = [names.split(path) for path in paths]
    files = [name for _, name in places]
    found = names.are_surely_visible(
        sorted({directory for directory, _ in places}),
        "".join(files).encode(),
        letters={name[:1] for name in files},
        longest=max(map(len, files), default=0),
    )
    one_by_one = all(_passes(names.check_visible, [path]) for path in paths)
    assert one_by_one or not found
    assert found or not one_by_one or any("_c=1" in name for name in files)  # a name that must be looked at by itself


def test_files_below_directories_are_surely_visible_in_paths_that_are_not_too_long() -> None:
    def are(directories: list[str], name: str) -> bool:
        return names.are_surely_visible(directories, name.encode(), letters=[name[:1]], longest=len(name))

    assert are(["", "day=1/x", "a"], "part-0")
    assert not are(["a/_b"], "part-0")
    assert not are(["a" * 4090], "part-0")


def _passes(check: Callable[..., object], told: str | list[str]) -> bool:
    with suppress(CorruptMarkerError):
        check(told, where="here")
        return True
    return False


@relaxed
@given(ANY_TIDS, st.sampled_from(Kind))
def test_no_marker_looks_like_data_or_a_data_file(tid: str, kind: Kind) -> None:
    name = names.format_log_name(LogName(kind, tid))
    assert names.is_hidden(name)
    assert names.parse_data_file(name) is None


# --- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "parts"), [("a", ("", "a")), ("d/a", ("d", "a")), ("d=1/e=2/a", ("d=1/e=2", "a")), ("", ("", ""))]
)
def test_split_and_join_are_inverse(path: str, parts: tuple[str, str]) -> None:
    assert names.split(path) == parts
    assert names.join(*parts) == path


HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "//",
    "../x",
    "../../etc/passwd",
    "a/..",
    "a/../b",
    "a/../../b",
    "./a",
    "a/.",
    "a/./b",
    "/a",
    "/etc/passwd",
    "//host/a",
    "a//b",
    "a/",
    "a/b/",
    "s3://bucket/a",
    "file:///a",
    "a\\b",
    "..\\a",
    "a\0",
    "\0",
    "a\0/../b",
    "a\n",
    "\n",
    "a\nb",
    "..\n",
    "a/..\n",
    "a\r",
    "a\tb",
    "a\x1fb",
    "a\x7f",
    "x" * 4097,
    "x/" * 4096 + "x",
    "x" * 10_000_000,
]


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: repr(path[:20]))
def test_path_that_could_leave_the_table_is_refused(path: str) -> None:
    with pytest.raises(CorruptMarkerError) as caught:
        names.check_path(path, where="s3://bucket/t/_committed_1")
    message = str(caught.value)
    assert "s3://bucket/t/_committed_1" in message
    assert len(message) < 2000
    assert not {"\n", "\0"} & set(message)


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "...",
        "..a",
        "a..",
        ".a",
        "_a",
        "a b",
        "day=1/part-0.parquet",
        "a/b/c/d",
        "day=2026-11-20 10%3A00%3A00/x",
        "a:b",
        "~",
        "é/ü",
        "%2e%2e/a",
        "x" * 4096,
        "day=../x",
        ".../x",
        "a/...",
    ],
    ids=lambda path: repr(path[:20]),
)
def test_path_inside_the_table_is_given_back_unchanged(path: str) -> None:
    assert names.check_path(path, where="test") == path


FRAGMENTS = st.sampled_from(["..", ".", "/", "//", "a", "\\", "\0", "\n", "", "%2e", " ", "=", "...", "é"])
HOSTILE_TEXT = st.lists(FRAGMENTS | st.text(max_size=3), max_size=8).map("".join)


@settings(deadline=None, max_examples=1000)
@given(HOSTILE_TEXT)
def test_accepted_path_stays_strictly_inside_the_root(path: str) -> None:
    try:
        names.check_path(path, where="test")
    except CorruptMarkerError:
        return
    joined = posixpath.join("/base/t", path)
    assert posixpath.normpath(joined) == joined
    assert joined.startswith("/base/t/")
    assert joined != "/base/t/"


@relaxed
@given(st.lists(st.text("ab.=%_ é-", min_size=1, max_size=6), min_size=1, max_size=5))
def test_path_of_plain_components_is_refused_only_for_dots(components: list[str]) -> None:
    path = "/".join(components)
    if {".", ".."} & set(components):
        with pytest.raises(CorruptMarkerError):
            names.check_path(path, where="test")
    else:
        assert names.check_path(path, where="test") == path


def test_path_that_is_not_text_in_utf8_is_refused() -> None:
    """Python lists such names on a local disk; no JSON can hold them."""
    with pytest.raises(CorruptMarkerError):
        names.check_path("part-\udcff.parquet", where="test")


# --- partitions ---------------------------------------------------------------------------------------------------

# What ExternalCatalogUtils.escapePathName of Spark 4.3 gave for U+0001 to U+017F, one by one.
SPARK_ESCAPES = {
    **{chr(code): f"%{code:02X}" for code in range(0x01, 0x20)},
    '"': "%22",
    "#": "%23",
    "%": "%25",
    "'": "%27",
    "*": "%2A",
    "/": "%2F",
    ":": "%3A",
    "=": "%3D",
    "?": "%3F",
    "\\": "%5C",
    "\x7f": "%7F",
    "{": "%7B",
    "[": "%5B",
    "]": "%5D",
    "^": "%5E",
}


@pytest.mark.parametrize("code", range(1, 0x180))
def test_character_is_escaped_as_spark_escapes_it(code: int) -> None:
    character = chr(code)
    assert names.escape(character) == SPARK_ESCAPES.get(character, character)


@relaxed
@given(st.text())
def test_unescape_reverses_escape(text: str) -> None:
    assert names.unescape(names.escape(text)) == text


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        ("a%20b", "a b"),
        ("%2f", "/"),
        ("%2F", "/"),
        ("%", "%"),
        ("%2", "%2"),
        ("%zz", "%zz"),
        ("%+1", "%+1"),
        ("%-1", "%-1"),
        ("%%41", "%A"),
        ("%2541", "%41"),
        ("%e9", "é"),
        ("%00", "\0"),
    ],
)
def test_unescape_reads_what_spark_reads(escaped: str, text: str) -> None:
    assert names.unescape(escaped) == text


COLUMNS = st.text(min_size=1, max_size=10).filter(lambda c: c[0] not in "_." and "\0" not in c)
VALUES = st.none() | st.text(min_size=1, max_size=20).filter(
    lambda v: v != names.HIVE_NULL and "\0" not in v and not v.endswith("._COPYING_")
)
PARTITIONS = st.dictionaries(COLUMNS, VALUES, max_size=4)


@relaxed
@given(PARTITIONS)
@example({"a": None, "b": "None"})
@example({"a": "../..", "b": "."})
@example({"a=b": "c=d/e=f"})
def test_partition_round_trips_in_order(partition: dict[str, str | None]) -> None:
    directory = names.format_partition(partition)
    assert list(names.parse_partition(directory).items()) == list(partition.items())
    assert directory.count("/") == max(0, len(partition) - 1)


@relaxed
@given(PARTITIONS.filter(bool))
def test_file_of_any_partition_is_data_inside_the_table(partition: dict[str, str | None]) -> None:
    path = names.join(names.format_partition(partition), "part-0.parquet")
    assert names.check_path(path, where="test") == path
    assert names.is_data_file(path)


def test_null_is_the_partition_that_hive_named() -> None:
    directory = "a=1/b=__HIVE_DEFAULT_PARTITION__"
    assert names.format_partition({"a": "1", "b": None}) == directory
    assert names.parse_partition(directory) == {"a": "1", "b": None}


def test_no_columns_are_the_root() -> None:
    assert names.format_partition({}) == ""
    assert names.parse_partition("") == {}


def test_columns_keep_the_order_of_the_directory() -> None:
    assert list(names.parse_partition("b=1/a=2/c=3")) == ["b", "a", "c"]
    assert names.format_partition({"b": "1", "a": "2"}) == "b=1/a=2"


def test_components_without_a_value_say_nothing() -> None:
    assert names.parse_partition("raw/day=1/x/hour=2") == {"day": "1", "hour": "2"}


def test_value_keeps_its_equals_signs() -> None:
    assert names.parse_partition("a=b=c") == {"a": "b=c"}


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__", "\0", "a\0b"])
def test_value_that_no_directory_can_hold_is_refused_with_its_column(value: str) -> None:
    with pytest.raises(InvalidInputError, match="'day'"):
        names.format_partition({"day": value})


@pytest.mark.parametrize("column", ["", "_a", ".a", "_", ".", "..", "a\0", "_dbio_table"])
def test_column_that_readers_would_skip_is_refused(column: str) -> None:
    with pytest.raises(InvalidInputError):
        names.check_partition_columns(["ok", column])


@pytest.mark.parametrize("columns", [["a", "a"], ["a", "A"], ["a", "b", "a"]])
def test_column_named_twice_is_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="have a duplicate"):
        names.check_partition_columns(columns)


def test_good_columns_come_back_in_order() -> None:
    assert names.check_partition_columns(["b", "a", "a_", "é", "x y", "p/q"]) == ("b", "a", "a_", "é", "x y", "p/q")
    assert names.check_partition_columns([]) == ()


@pytest.mark.parametrize(
    ("directories", "columns"),
    [
        ([], ()),
        ([""], ()),
        (["a=1", "a=2"], ("a",)),
        (["a=1/b=2", "a=2/b=__HIVE_DEFAULT_PARTITION__"], ("a", "b")),
        (["a=1", ""], None),
        (["a=1", "b=1"], None),
        (["a=1/b=2", "b=2/a=1"], None),
    ],
)
def test_common_columns_of_directories(directories: list[str], columns: tuple[str, ...] | None) -> None:
    assert names.common_partition_columns(directories) == columns
