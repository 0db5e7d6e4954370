"""vacuum.toml: what it means, and what is said about mistakes."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.compact.options import CompactOptions
from vacuum import VacuumOptions
from vacuum.config import CompactConfig, Config, HttpConfig, TableConfig, read_config, secrets

DOCUMENT = Path(__file__).parents[3] / "docs/SCHEDULE.md"
FRIDAY = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)

Read = Callable[[str], Config]
Mistakes = Callable[[str], list[str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> Config:
        path = tmp_path / "vacuum.toml"
        path.write_text(text)
        return read_config(path)

    return read


@pytest.fixture
def mistakes(read: Read, tmp_path: Path) -> Mistakes:
    """What is said about the text, without the name of the file."""

    def mistakes(text: str) -> list[str]:
        with pytest.raises(InvalidInputError) as caught:
            read(text)
        lines = str(caught.value).splitlines()
        assert all(line.startswith(f"{tmp_path}/vacuum.toml: ") for line in lines)
        return [line.partition(": ")[2] for line in lines]

    return mistakes


def table(*lines: str) -> str:
    return "\n".join(["[[tables]]", 'path = "/data/orders"', *lines, ""])


# --- what it means ------------------------------------------------------------------------------------------------


def test_a_path_is_enough(read: Read) -> None:
    config = read(table())
    (entry,) = config.entries
    assert entry.name == "/data/orders"
    assert not entry.is_pattern
    assert entry.cron == "0 3 * * *"
    assert (entry.timezone, entry.jitter_s, entry.dry_run) == ("UTC", 0, False)
    assert entry.options == VacuumOptions()
    assert (config.http.host, config.concurrency) == ("127.0.0.1", 4)


def test_a_table_takes_from_the_top_level_what_it_does_not_say(read: Read) -> None:
    top = 'cron = "0 4 * * *"\nretention_hours = 72\ndry_run = true\ncheckpoint_after = 5\nhistory_days = 60\n'
    own = table('cron = "0 5 * * *"', "retention_hours = 2.5", "dry_run = false", "untracked = true")
    plain, special = read(top + '[[tables]]\npath = "/data/other"\n' + own).entries
    assert (plain.cron, plain.dry_run) == ("0 4 * * *", True)
    assert plain.options == VacuumOptions(retention_hours=72, checkpoint_after=5, history_days=60)
    assert (special.cron, special.dry_run) == ("0 5 * * *", False)
    assert special.options == VacuumOptions(retention_hours=2.5, untracked=True, checkpoint_after=5, history_days=60)


def test_a_table_is_compacted_where_it_or_the_top_level_says_so(read: Read) -> None:
    others = '[[tables]]\npath = "/data/a"\n[[tables]]\npath = "/data/b"\ncompact = false\n'
    own = table(
        'compact = { target_size = "64MiB", where = "day > 5", z_order = ["a", "b"], min_files = 8, '
        "rewrite_types = true }"
    )
    special = CompactOptions(target_size=1 << 26, where="day > 5", z_order=("a", "b"), min_files=8, rewrite_types=True)
    assert [it.compact for it in read(others + own).entries] == [None, None, special]
    plain = CompactOptions(min_files=2)
    assert [it.compact for it in read("compact = true\n" + others + own).entries] == [plain, None, special]
    top = 'compact = { sort_by = "id", target_size = 1000 }\n' + others + table("compact = true")
    assert [it.compact for it in read(top).entries] == [
        CompactOptions(sort_by=("id",), target_size=1000, min_files=2), None, plain
    ]  # fmt: skip


def test_compaction_may_be_switched_off(read: Read) -> None:
    assert read(table("compact = false")).entries[0].compact is None


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (table("compact = 3"), "[[tables]] number 1 compact", "dictionary"),
        ('compact = "yes"\n' + table(), "compact", "dictionary"),
        (table('compact = { sort = "id" }'), "[[tables]] number 1 compact",
         "unknown key 'sort'; known are enabled, min_files, most, rewrite_types, sort_by, spill, target_size, where, "
         "z_order"),
        ("compact = { min_file = 3 }\n" + table(), "compact", "unknown key 'min_file'; known are enabled"),
        (table('compact = { target_size = "large" }'), "[[tables]] number 1 compact target_size", "is no size"),
        (table("compact = { target_size = 0 }"), "[[tables]] number 1 compact target_size", "greater than"),
        (table("compact = { min_files = 0 }"), "[[tables]] number 1 compact min_files", "greater than"),
        (table('compact = { sort_by = ["a"], z_order = ["b"] }'), "[[tables]] number 1 compact", "two orders"),
        (table('compact = { z_order = ["a","b","c","d","e","f","g","h","i"] }'), "[[tables]] number 1 compact", "8"),
    ],
)  # fmt: skip
def test_a_mistake_about_compaction_is_said(mistakes: Mistakes, text: str, place: str, said: str) -> None:
    (mistake,) = mistakes(text)
    assert mistake.startswith(f"{place}: ")
    assert said in mistake


def test_a_storage_option_can_come_from_the_environment(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "a-very-secret-text")
    options = (
        'storage_options = { secret = { env = "LAKE_SECRET" }, anon = false, '
        'client_kwargs = { region_name = "eu-west-1", aws_session_token = { env = "LAKE_SECRET" } } }'
    )
    config = read(f'[[tables]]\npath = "s3://lake/orders"\n{options}\n')
    assert config.entries[0].resolved_options() == {
        "secret": "a-very-secret-text",
        "anon": False,
        "client_kwargs": {"region_name": "eu-west-1", "aws_session_token": "a-very-secret-text"},
    }
    assert "a-very-secret-text" not in repr(config) + repr(config.entries)
    assert "a-very-secret-text" in secrets(config)


def test_the_secret_parts_of_a_connection_string_are_secrets(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=lakeaccount;AccountKey=c2VjcmV0IGtleQ==;EndpointSuffix=core"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    found = secrets(read(table()))
    assert {text, "c2VjcmV0IGtleQ=="} <= found
    assert "lakeaccount" not in found


# --- mistakes -----------------------------------------------------------------------------------------------------


def test_all_mistakes_are_said_at_once_with_their_places(mistakes: Mistakes) -> None:
    said = mistakes(
        'timezone = "Mars/Base"\nconcurrency = 0\nretention_hour = 3\njitter_s = "5"\n'
        + '[http]\nport = 70000\nhots = "x"\n'
        + table('cron = "0 25 * * *"', "retention_hours = 0.5", "history_days = 7")
        + '[[tables]]\ndry_run = "no"\ncorn = "0 1 * * *"\n'
    )
    places = [line.partition(": ")[0] for line in said]
    assert sorted(places) == sorted(
        [
            "timezone",
            "concurrency",
            "unknown key 'retention_hour'; known are checkpoint_after, compact, concurrency, cron, deadline_s, "
            "dry_run, history_days, http, jitter_s, memory_mb, retention_hours, state_file, tables, timezone",
            "jitter_s",
            "[http] port",
            "[http]",
            "[[tables]] number 1 cron",
            "[[tables]] number 1 retention_hours",
            "[[tables]] number 1 history_days",
            "[[tables]] number 2 path",
            "[[tables]] number 2 dry_run",
            "[[tables]] number 2",
        ]
    )
    assert any("'corn'; known are checkpoint_after, compact, cron," in line for line in said)
    assert any("'hots'; known are host, port" in line for line in said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "tables: is missing"),
        ("tables = []", "tables: List should have at least 1 item"),
        ("[[tables]]\npath = 3", "[[tables]] number 1 path: Input should be a valid string"),
        (table("retention_hours = inf"), "[[tables]] number 1 retention_hours: Input should be a finite number"),
        (table("checkpoint_after = 1.0"), "[[tables]] number 1 checkpoint_after: Input should be a valid integer"),
        (table() + table(), "/data/orders is configured more than once"),
        (table() + '[[tables]]\npath = "file:/data//orders/"', "/data/orders is configured more than once"),
        ('[[tables]]\npath = "ftp://host/orders"', "[[tables]] number 1 path: no store is known for ftp"),
        ('[[tables]]\npath = "s3://*/orders"', "[[tables]] number 1 path: a pattern needs the name of the bucket"),
        ('[[tables]]\npath = "/data/**/orders"', "[[tables]] number 1 path: ** is not supported"),
        (table("storage_options = { anon = true }"), "[[tables]] number 1: a local path takes no storage_options"),
        ('jitter_s = 3600\ncron = "0 * * * *"\n' + table(), "jitter_s = 3600 would skip runs of '0 * * * *'"),
        ("cron = 'x'x", "Expected newline"),
        (table("streams = ['ftp://host/checkpoint']"), "[[tables]] number 1: no store is known for ftp"),
        (
            '[[tables]]\npath = "/data/*/orders"\nstreams = ["/data/checkpoint"]',
            "[[tables]] number 1: streams belong to one table, and path is a pattern",
        ),
    ],
)
def test_a_mistake_is_said(mistakes: Mistakes, text: str, said: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith(said)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot read .*nothing\.toml: No such file"):
        read_config(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ('secret = "hunter2hunter2"', "secret"),
        ('key = "hunter2hunter2"', "key"),
        ('account_key = "hunter2hunter2"', "account_key"),
        ('sas_token = "hunter2hunter2"', "sas_token"),
        ('client_kwargs = { aws_secret_access_key = "hunter2hunter2" }', "client_kwargs.aws_secret_access_key"),
        ('anything = "DefaultEndpointsProtocol=https;AccountKey=hunter2hunter2"', "anything"),
        ('endpoint_url = "https://me:hunter2hunter2@host"', "endpoint_url"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(mistakes: Mistakes, options: str, name: str) -> None:
    (line,) = mistakes(f'[[tables]]\npath = "s3://lake/orders"\nstorage_options = {{ {options} }}\n')
    assert line.startswith(f"[[tables]] number 1 storage_options: {name} looks like a secret")
    assert '{env = "NAME"}' in line
    assert "hunter2" not in line


def test_a_secret_in_the_wrong_place_or_in_a_path_is_not_shown(mistakes: Mistakes) -> None:
    said = mistakes('token = "hunter2hunter2"\n[[tables]]\npath = "s3://me:hunter2hunter2@lake/orders"\n')
    assert len(said) == 2
    assert any("unknown key 'token'" in line and "looks like a secret" in line for line in said)
    assert "hunter2" not in "".join(said)


def test_a_variable_that_is_not_set_is_said(mistakes: Mistakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    (line,) = mistakes('[[tables]]\npath = "s3://b/t"\nstorage_options = { key = { env = "NO_SUCH" } }\n')
    assert line.endswith("key is to come from the environment, where NO_SUCH is not set")


# --- cron expressions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "@daily",
        "60 * * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "a * * * *",
        "5-1 * * * *",
        "*/0 * * * *",
        "0 0 1 * 1",
        "0 0 30 2 *",
    ],
)
def test_a_bad_expression_is_refused_when_the_file_is_read(mistakes: Mistakes, cron: str) -> None:
    (line,) = mistakes(table(f'cron = "{cron}"'))
    assert line.startswith("[[tables]] number 1 cron: ")


# --- the document -------------------------------------------------------------------------------------------------


def toml_blocks() -> list[str]:
    tokens = MarkdownIt("commonmark").parse(DOCUMENT.read_text())
    return [token.content for token in tokens if token.type == "fence" and token.info == "toml"]


def test_the_examples_of_the_document_are_right(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", "example-key")
    monkeypatch.setenv("LAKE_SECRET", "example-secret")
    blocks = toml_blocks()
    assert len(blocks) >= 2
    for block in blocks:
        assert read(block).entries


def test_the_document_names_every_key() -> None:
    text = DOCUMENT.read_text()
    for model in (Config, HttpConfig, TableConfig, CompactConfig):
        assert all(f"`{name}`" in text or f"`[{name}]`" in text for name in model.model_fields)


def test_a_state_file_has_a_name_that_a_disk_can_have(tmp_path: Path) -> None:
    path = tmp_path / "vacuum.toml"
    path.write_text('state_file = "a\\u0000b"\n[[tables]]\npath = "/t"\n')
    with pytest.raises(InvalidInputError, match="state_file: a path has no character 0"):
        read_config(path)
