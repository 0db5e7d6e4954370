"""Messages of errors: what they quote forges no line, and they come through a pickle, and through Spark's text."""

import inspect
import pickle

import pytest

from dbio_commit import errors
from dbio_commit.errors import CorruptMarkerError, DbioError, SchemaMismatchError
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.store.base import ClientFailure

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
    find_error = pytest.importorskip("dbio_commit.spark.job").find_error
    again = find_error(f"{type(error).__module__}.{type(error).__name__}: {error}")
    assert (type(again), str(again)) == (type(error), str(error))


def test_a_hint_to_paste_quotes_the_names_that_are_in_it() -> None:
    constraints = Constraints.of({"not_null.a; touch pwned #": "true"})
    with pytest.raises(DbioError, match=r"`dbio set '/lake/a b' 'not_null\.a; touch pwned #='`"):
        constraints.refuse_lost(["id"], where="/lake/a b")
