"""Messages of errors: what they quote forges no line, and they come through a pickle, and through Spark's text."""

import ast
import inspect
import pickle
import re
import time
from pathlib import Path

import pytest

from dbio_commit.base import errors
from dbio_commit.base.errors import CorruptMarkerError, DbioError, SchemaMismatchError
from dbio_commit.base.redaction import redact
from dbio_commit.base.texts import Cause, visible
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.store.fsspec_store import ClientFailure

ROOT = Path(__file__).parents[3]

HOSTILE = "x\n2026-11-26 ERROR root: forged \x1b[2J\x9b\u2028\u202e\udcff"
KINDS = [it for _, it in inspect.getmembers(errors, inspect.isclass) if issubclass(it, DbioError)]


@pytest.mark.parametrize("kind", [*KINDS, ClientFailure])
def test_no_error_of_ours_shows_a_line_break_or_an_escape_sequence_of_a_table(kind: type[Exception]) -> None:
    shown = str(kind(f"{HOSTILE} is wrong"))
    assert shown.isprintable()
    assert shown == r"x\n2026-11-26 ERROR root: forged \x1b[2J\x9b\u2028\u202e\udcff is wrong"


def test_the_lines_of_a_message_are_those_that_its_author_wrote() -> None:
    error = SchemaMismatchError("does not fit:", f"  table: {HOSTILE}", "   data: y")
    assert [line.isprintable() for line in str(error).splitlines()] == [True] * 3


@pytest.mark.parametrize("error", [CorruptMarkerError(HOSTILE), SchemaMismatchError("a", f"b {HOSTILE}"), DbioError()])
def test_an_error_is_the_same_after_a_pickle(error: DbioError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)


@pytest.mark.parametrize("error", [CorruptMarkerError(HOSTILE), SchemaMismatchError("a", f"b {HOSTILE}")])
def test_an_error_is_the_same_after_spark_has_passed_on_its_text(error: DbioError) -> None:
    find_error = pytest.importorskip("dbio_commit.spark.session.errors").find_error
    again = find_error(f"{type(error).__module__}.{type(error).__name__}: {error}")
    assert (type(again), str(again)) == (type(error), str(error))


def test_a_hint_to_paste_quotes_the_names_that_are_in_it() -> None:
    constraints = Constraints.of({"not_null.a; touch pwned #": "true"})
    with pytest.raises(DbioError, match=r"`dbio set '/lake/a b' 'not_null\.a; touch pwned #='`"):
        constraints.refuse_lost(["id"], where="/lake/a b")


def test_what_a_library_says_of_a_file_is_escaped_as_a_cause() -> None:
    cause = Cause.of(ValueError(HOSTILE))
    assert str(cause) == rf"builtins.ValueError: {visible(HOSTILE)}"
    assert str(cause).isprintable()


@pytest.mark.parametrize("name", ["maintenance/compact/reading", "data/conform", "data/rows"])
def test_no_error_of_arrow_s_of_a_file_is_a_cause_as_it_is(name: str) -> None:
    """What a file holds, its writer says, and Arrow quotes."""
    tree = ast.parse((ROOT / f"dbio_commit/{name}.py").read_text())
    every = [it for it in ast.walk(tree) if isinstance(it, ast.ExceptHandler)]
    handlers = [it for it in every if re.search("Arrow|_UNREADABLE", ast.unparse(it.type or it))]
    raised = [it for handler in handlers for it in ast.walk(handler) if isinstance(it, ast.Raise) and it.cause]
    quoting = [it for it in raised if "where" in ast.unparse(it)]
    assert quoting
    assert {ast.unparse(it.cause) for it in quoting if it.cause} == {"Cause.of(error)"}


@pytest.mark.parametrize("length", [4_100, 200_000])
@pytest.mark.parametrize("secret", ["ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P", "it is in an option", "known+to/the+caller"])
def test_no_part_of_a_secret_is_left_where_a_long_line_is_cut(
    secret: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later, `redact` finds only whole secrets."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "it is in an option")
    parts = {secret[at : at + 5] for at in range(len(secret) - 4)}
    for cut in (2_975, length - 975):  # about where the beginning ends, and where the end begins
        for at in range(cut - 50, cut + 20, 8):
            line = f"{'a ' * (at // 2)}{secret} ".ljust(length, ".")
            shown = redact(str(DbioError(line)), {"known+to/the+caller"})
            assert not [it for it in parts if it in shown], at


def test_the_time_for_a_message_of_many_megabytes_is_short() -> None:
    start = time.process_time()
    assert "left out" in str(DbioError("password=x, " * 1_000_000))
    assert time.process_time() - start < 1
