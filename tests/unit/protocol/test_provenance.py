"""The key `provenance` of markers: PROTOCOL.md 7.8."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.protocol.markers.bodies import decode_as, encode
from dbio_commit.protocol.markers.provenance import (
    MOST_BYTES,
    MOST_LABELS,
    MOST_MESSAGE,
    MOST_TEXT,
    Provenance,
    cut,
    texts_of,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3000)
FACTS: dict[str, Any] = {
    **dict.fromkeys(["host", "user", "software", "spark_application", "spark_job", "message"], st.none() | TEXTS),
    "process": st.none() | st.integers(0, 1 << 40),
    "labels": st.none() | st.dictionaries(TEXTS, TEXTS, max_size=30),
}


@given(st.fixed_dictionaries(FACTS))
def test_whatever_is_given_is_bounded_and_comes_back_as_it_is(facts: dict[str, Any]) -> None:
    made = Provenance(**facts)
    assert sum(len(text.encode()) for text in texts_of(made)) <= MOST_BYTES
    assert decode_as(Provenance, encode(made)) == made


def test_a_reader_cuts_what_is_too_long_and_ignores_keys_that_it_does_not_know() -> None:
    labels = ",".join(f'"{number}":"x"' for number in range(MOST_LABELS + 5))
    long = "é" * MOST_MESSAGE
    body = f'{{"message":"{long}","host":"{long}","labels":{{{labels}}},"later":[1]}}'.encode()
    found = decode_as(Provenance, body)
    assert found.message == "é" * (MOST_MESSAGE // 2)
    assert found.host == "é" * (MOST_TEXT // 2)
    assert found.labels is not None
    assert len(found.labels) == MOST_LABELS


@given(TEXTS, st.integers(0, 50))
def test_a_text_is_cut_between_two_characters(text: str, most: int) -> None:
    assert text.startswith(cut(text, most))
    assert len(cut(text, most).encode()) <= most
