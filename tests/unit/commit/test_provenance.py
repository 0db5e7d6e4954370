"""Who made a commit, and what its caller says of it: PROTOCOL.md 7.8."""

import getpass
import os
import pickle
import socket
from pathlib import Path

import pytest

from dbio_commit import Commit, InvalidInputError, Table, __version__
from dbio_commit.base.options import PROVENANCE
from dbio_commit.commit.provenance import Note, SparkRun, amended, provenance_of
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.provenance import MOST_LABELS, MOST_MESSAGE, MOST_TEXT, Provenance
from dbio_commit.protocol.markers.start import decode_start
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import stage, write

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # the example of a key in AWS's documents


def test_a_commit_records_who_made_it_and_a_start_marker_who_began_it(table: Table, store: MemoryStore) -> None:
    transaction = table.begin(message="first load", labels={"team": "sales"})
    stage(table, transaction)
    body = store.get(names.started(transaction.tid))
    commit = transaction.commit()
    by = commit.provenance
    assert by is not None
    assert (by.host, by.process) == (socket.gethostname(), os.getpid())
    assert by.user
    assert by.software == f"dbio-commit {__version__}"
    assert (commit.message, commit.labels) == ("first load", {"team": "sales"})
    assert table.history()[0].provenance == by
    begun = decode_start(body, where="here")
    assert begun is not None
    assert begun.provenance == by
    assert pickle.loads(pickle.dumps(commit)).provenance == by


def test_the_user_comes_from_the_system_and_not_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody else")
    assert getpass.getuser() == "somebody else"
    by = provenance_of(Note(), None)
    assert by is not None
    assert by.user != "somebody else"


def test_a_message_at_the_commit_replaces_the_first_and_labels_add_to_the_first(table: Table) -> None:
    with table.begin(message="before", labels={"a": "1", "b": "2"}) as transaction:
        stage(table, transaction)
        commit = transaction.commit(message="after", labels={"b": "3", "c": "4"})
    assert (commit.message, commit.labels) == ("after", {"a": "1", "b": "3", "c": "4"})
    with table.begin(message="before") as other:
        stage(table, other)
        assert other.commit().message == "before"


@pytest.mark.parametrize(
    "said",
    [
        {"message": "é" * (MOST_MESSAGE // 2 + 1)},
        {"message": 7},
        {"labels": ["a"]},
        {"labels": {"a": 1}},
        {"labels": {"": "empty"}},
        {"labels": {"a": "x" * (MOST_TEXT + 1)}},
        {"labels": {str(number): "" for number in range(MOST_LABELS + 1)}},
    ],
)
def test_what_is_too_long_or_no_text_is_refused_before_anything_is_written(
    said: dict[str, object], table: Table, store: MemoryStore
) -> None:
    with pytest.raises(InvalidInputError):
        table.begin(**said)  # type: ignore[arg-type]
    assert store.objects == {}
    transaction = table.begin()
    stage(table, transaction)
    with pytest.raises(InvalidInputError):
        transaction.commit(**said)  # type: ignore[arg-type]
    assert transaction.commit().message is None  # it is still open


def test_labels_of_the_start_and_of_the_commit_count_together(table: Table) -> None:
    transaction = table.begin(labels={f"a{number}": "" for number in range(MOST_LABELS)})
    stage(table, transaction)
    with pytest.raises(InvalidInputError, match="labels"):
        transaction.commit(labels={"one": "more"})


def test_secrets_are_left_out_and_what_would_not_show_is_escaped(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    said = f"with {SECRET}, https://user:password@host/, password=hunter22\nand \u202e\ud800\x1b[2J"
    commit = write_with(table, message=said, labels={"key": SECRET, "\x1b": "x"})
    body = str(commit.provenance)
    assert SECRET not in body
    assert "password@" not in body
    assert "hunter22" not in body
    assert commit.message == (r"with ***, https://***@host/, password=***" + "\n" + r"and \u202e\ud800\x1b[2J")
    assert commit.labels == {"key": "***", r"\x1b": "x"}
    assert write_with(table, labels={"Password": "hunter22", "pass": "3"}).labels == {"Password": "***", "pass": "3"}


def write_with(table: Table, message: str | None = None, labels: dict[str, str] | None = None) -> Commit:
    with table.begin(message=message, labels=labels) as transaction:
        stage(table, transaction)
    return table.history()[0]


def test_the_setting_switches_it_off_and_leaves_what_the_caller_says(table: Table) -> None:
    write(table)
    setting = table.set({"provenance": "off"}, message="as the works council asked")
    assert setting.provenance == Provenance(message="as the works council asked")
    assert write(table).provenance is None
    assert write_with(table, "hello").provenance == Provenance(message="hello")
    table.set({"provenance": ""})
    again = write(table).provenance
    assert again is not None
    assert again.host
    with pytest.raises(InvalidInputError, match="provenance is off, or empty"):
        table.set({"provenance": "no"})


def test_a_process_that_says_nothing_of_itself_does_so_from_the_first_commit_on(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROVENANCE, "off")
    assert write(table).provenance is None
    monkeypatch.setenv(PROVENANCE, "yes")
    with pytest.raises(InvalidInputError, match="neither on nor off"):
        write(table)


def test_what_spark_says_is_cut_and_cleaned_as_all_texts_are() -> None:
    run = SparkRun(application="application_1_2", job=f"load {SECRET} password=abcdefgh " + "x" * 300)
    by = provenance_of(Note(run=run), None)
    assert by is not None
    assert by.spark_application == "application_1_2"
    assert by.spark_job is not None
    assert by.spark_job.startswith("load ")
    assert "abcdefgh" not in by.spark_job
    assert len(by.spark_job) == MOST_TEXT


def test_amending_without_anything_changes_nothing() -> None:
    assert amended(None, Note()) is None
    assert amended(None, Note(message="later")) == Provenance(message="later")


def test_checkpoints_and_copies_keep_it(table: Table, clock: ManualClock, tmp_path: Path) -> None:
    check_that_it_is_kept(table, clock, tmp_path)


@pytest.mark.usefixtures("tiny_parts")
def test_so_do_checkpoints_in_parts(table: Table, clock: ManualClock, tmp_path: Path) -> None:
    check_that_it_is_kept(table, clock, tmp_path)
    assert table.snapshot().checkpoint.is_root


def check_that_it_is_kept(table: Table, clock: ManualClock, tmp_path: Path) -> None:
    for number in range(4):
        with table.begin(message=f"load {number}", labels={"number": str(number)}) as transaction:
            stage(table, transaction)
        clock.sleep(1)
    before = [commit.provenance for commit in table.history()]
    table.checkpoint()
    assert table.snapshot().news == ()
    assert [commit.provenance for commit in table.history()] == before
    assert [commit.message for commit in table.history()] == [f"load {number}" for number in (3, 2, 1, 0)]
    write(table)
    table.checkpoint()
    assert [commit.provenance for commit in table.history()][1:] == before
    table.copy(str(tmp_path / "copy"))
    assert [commit.provenance for commit in Table(tmp_path / "copy").history()][1:] == before


def test_commits_of_a_directory_without_a_descriptor_record_it_too(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "old.parquet").write_bytes(b"PAR1")
    table = Table(root)
    with table.begin(message="into a directory") as transaction:
        stage(table, transaction)
    assert table.history()[0].message == "into a directory"


def test_an_adoption_records_it(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    table = Table(root)
    table.inspector = None
    (root / "old.parquet").write_bytes(b"PAR1")
    table.adopt(message="moved from Hive")
    (commit,) = table.history()
    assert commit.message == "moved from Hive"
    assert commit.provenance is not None
    assert commit.provenance.host == socket.gethostname()
