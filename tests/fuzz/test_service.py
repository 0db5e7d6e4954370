"""vacuum.toml, URLs, and the command line: hostile arguments, and hostile tables that it prints."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz import service
from tests.fuzz.bodies import HOSTILE_PATHS, TIDS, damaged
from tests.fuzz.directories import directories
from tests.test_golden import GOLDEN

# --- vacuum.toml --------------------------------------------------------------------------------------------------

ATOMS = st.sampled_from([
    "true", "0", "1", "-1", "9" * 30, "9" * 5000, "1e308", "1e999", "nan", "inf", "-inf", "0x7f", "1.5", '""', '"x"',
    "'''\n'''", '"\\u0000"', '"\\ud800"', '"\\U0010ffff"', "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "[]", "{}",
    '{env = "HOME"}', '{env = "NOT_SET_ANYWHERE"}', '{env = 1}', '["a"]', '[1, "a"]', "[" * 3000, "{a=" * 3000, '"~"',
    '"/x"', '"s3://b/x"', '"s3://b*/x"', '"az://c/x"', '"abfss://c@a.dfs.core.windows.net/x"', '"http://x"', '"file:x"',
    '"s3://"', '"/a/**"', '"\\u0001"', '"* * * * *"', '"0 0 31 2 *"', '"*/0 * * * *"', '"60 * * * *"', '"0 0 29 2 *"',
    '"0 0 * * 7-0/7"', '"0 0 1 * 1"', '"@daily"', '"a b c d e"', '"0 0 last * *"', '"UTC"', '"../etc/passwd"',
    '"Europe"', '"zone.tab"', '"é"',
])  # fmt: skip
KEYS = st.sampled_from([
    "cron", "timezone", "jitter_s", "concurrency", "retention_hours", "dry_run", "checkpoint_after", "history_days",
    "http", "http.host", "http.port", "tables", "path", "untracked", "storage_options", "storage_options.key",
    "storage_options.a.b", "secret", "state_file", '""', '"a b"', "é", "a" + ".a" * 500,
])  # fmt: skip
LINES = st.builds("{} = {}".format, KEYS, ATOMS) | st.sampled_from(["[[tables]]", "[tables]", "[http]", "[a.b]", ""])
DOCUMENTS = st.lists(LINES, max_size=8).map("\n".join) | st.builds(
    "{}\n[[tables]]\npath = {}\n{}".format,
    st.lists(st.builds("{} = {}".format, KEYS, ATOMS), max_size=3).map("\n".join),
    ATOMS,
    st.lists(LINES, max_size=3).map("\n".join),
)


def test_the_good_configuration_is_accepted() -> None:
    found = service.config(service.GOOD_CONFIG)
    assert found is not None
    assert len(found.entries) == 2


@settings(max_examples=150)
@given(
    st.binary()
    | damaged(st.just(service.GOOD_CONFIG))
    | DOCUMENTS.map(lambda text: text.encode(errors="surrogatepass"))
)
def test_a_configuration_is_read_or_refused_by_its_name(text: bytes) -> None:
    service.config(text)


# --- URLs ---------------------------------------------------------------------------------------------------------

URL_PIECES = st.sampled_from([
    "s3:", "s3a:", "az:", "abfss:", "file:", "http:", "//", "/", "bucket", "c@acc.dfs.core.windows.net", "user:pw@", "@",
    ":", "..", ".", "?", "?sig=x", "#", "*", "%2e%2e", "\\", "\0", " ", "é", "\u202e", "[", "]", "a", "=", "\ud800",
])  # fmt: skip


@settings(max_examples=300)
@given(st.text() | st.lists(URL_PIECES, max_size=8).map("".join) | st.sampled_from(HOSTILE_PATHS))
def test_a_url_is_refused_or_has_one_spelling(text: str) -> None:
    service.location(text)


# --- the command line ---------------------------------------------------------------------------------------------

ARGUMENTS = st.lists(st.sampled_from(service.TOKENS) | st.text(max_size=5), max_size=6)
CALLS = st.builds(
    lambda command, more: [command, "t", *more], st.sampled_from(service.COMMANDS), ARGUMENTS
) | ARGUMENTS.map(list)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(CALLS, st.sampled_from(["08-removed", "54-replace-partitions", "66-time-travel"]))
def test_any_arguments_end_in_a_result_or_a_message(args: list[str], table: str) -> None:
    assume("\0" not in "".join(args))  # no argument of a process can hold it
    service.arguments(args, GOLDEN / table / "table")


LOCAL_NAMES = [
    "a\nb", "a\tb", "\x1b[2J", "\udcff", "\u202ex", "\x9b2J", "[red]", "a\\b", "~", "day=/x", "day=%/x", "day=%zz/x",
    "day=a%2Fb/x", "day=%00/x", "day=\udcff/x", "=/x", "==/x", "day=1/day=2/x", "day=\n/x", "%0a=1/x", "x" * 250,
]  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_directory_is_shown_without_a_traceback_and_without_steering_the_terminal(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("table")
    objects = {path: body for path, (body, _) in data.draw(directories()).items() if ".." not in path}
    objects |= dict.fromkeys(data.draw(st.lists(st.sampled_from(LOCAL_NAMES), max_size=3)), b"rows")
    service.fill(root, objects)
    for args in service.command_lines(root, TIDS[:2]):
        printed = service.shown(args)
        if "--json" in args:
            json.loads(printed, parse_constant=_no_json)


def _no_json(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")
