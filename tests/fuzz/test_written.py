"""Names on their ways to people and programs, stores by their options; and that each old hole is found."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbio_commit.base import errors, logs, texts
from dbio_commit.store import fsspec_store, principal, s3
from tests.fuzz import stores
from tests.fuzz.harnesses import HARNESSES
from tests.fuzz.stores import OPTIONS, URLS, to_bytes
from tests.fuzz.written import NAMES, written
from vacuum import log, metrics, process

ANY_NAME = (
    st.text(st.characters(), max_size=30)
    | st.binary(max_size=30).map(lambda it: it.decode(errors="surrogateescape"))
    | st.lists(
        st.sampled_from([*"\n\r\t\x1b\x9b\\'\"`$;{}%&<\0", "\udcff", "\u202e", "\u2028", "x1b", "n", "\\n"])
    ).map("".join)
)


@settings(max_examples=150)
@given(ANY_NAME)
def test_any_name_is_one_line_that_steers_nothing_wherever_it_is_written(name: str) -> None:
    written(name)


ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(ATOMS, lambda it: st.lists(it, max_size=3) | st.dictionaries(st.text(max_size=5), it, max_size=3))
NAMED = st.sampled_from([*stores.SECRETS, "endpoint_url", "profile", "account_name", "client_kwargs", "a"])
SOME_OPTIONS = st.sampled_from(OPTIONS) | st.recursive(
    st.dictionaries(NAMED, VALUES, max_size=4), lambda it: st.dictionaries(NAMED, it, max_size=3), max_leaves=5
)


@settings(max_examples=300)
@given(st.sampled_from(URLS), SOME_OPTIONS, SOME_OPTIONS)
def test_any_two_stores_are_told_apart_by_what_shows_no_secret(url: str, one: object, other: object) -> None:
    assert stores.stores(to_bytes(url, one, other)) is not None


def test_seeds_are_good_inputs() -> None:
    assert all(HARNESSES["stores"].check(seed) is not None for seed in HARNESSES["stores"].seeds())
    assert len({written(name) for name in NAMES}) == len(NAMES)


# --- each hole, put back ------------------------------------------------------------------------------------------


def _as_it_is(text: str, **options: Any) -> str:
    return text


def _flat(options: Any) -> set[str]:
    """As it was: texts and mappings, and nothing else."""
    return (
        {it for it in options.values() if isinstance(it, str) and len(it) >= 8} if isinstance(options, dict) else set()
    )


def _options_of_s3(store: s3.S3Store) -> str:
    options = store.storage_options
    return f"s3:{options.get('endpoint_url') or options.get('client_kwargs', {}).get('endpoint_url', '')}:{store._container}"


def _dump(answer: Any) -> bytes:
    return process._ANSWER.dump_json(answer)


def _clean(it: log._Clean, logger: Any, method: str, event: Any) -> Any:
    return json.loads(json.dumps(event))


HOLES: dict[str, tuple[str, Any, str, Any]] = {
    "names as they are": ("written", texts, "visible", _as_it_is),
    "labels that are no more than visible": ("written", texts, "label", texts.visible),
    "labels of metrics as they are": ("written", metrics, "label", _as_it_is),
    "messages as they are": ("written", errors.DbioError, "__init__", Exception.__init__),
    "log lines as they are": ("written", logs, "visible", _as_it_is),
    "the service's log as it is": ("written", log._Clean, "__call__", _clean),
    "answers of processes as they are": ("written", process, "written", _dump),
    "hints that quote nothing": ("written", texts, "_quoted", _as_it_is),
    "identities by options": ("stores", s3.S3Store, "identify", _options_of_s3),
    "identities with passwords": ("stores", s3, "without_user", _as_it_is),
    "everybody is one principal": ("stores", fsspec_store, "principal_of", lambda options: ""),
    "principals that can be read": ("stores", fsspec_store, "principal_of", repr),
    "principals by names of options": ("stores", principal, "_spelled", lambda value: str(sorted(value[0]))),
    "secrets of flat options only": ("stores", fsspec_store, "secrets_in", _flat),
}


@pytest.mark.parametrize("hole", HOLES.values(), ids=HOLES)
def test_a_hole_that_is_put_back_is_found(
    hole: tuple[str, Any, str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness, owner, name, wrong = hole
    monkeypatch.setattr(owner, name, wrong)
    found = []
    for seed in HARNESSES[harness].seeds():
        try:
            HARNESSES[harness].check(seed)
        except Exception as error:
            found.append(error)
    capsys.readouterr()  # what logging says of texts that are no UTF-8, which no report could hold
    assert found
