"""What `dbio serve` makes of its options."""

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.cli.serve import pairs


def test_a_value_may_have_any_text() -> None:
    assert pairs(["a=b=c", "d=e f"], "--conf") == {"a": "b=c", "d": "e f"}


@pytest.mark.parametrize("texts", [["name"], ["=secret"], ["name="], ["name=secret", "name=other secret"]])
def test_a_bad_option_is_refused_and_its_value_is_not_shown(texts: list[str]) -> None:
    with pytest.raises(InvalidInputError, match=r"--conf '(name)?' is not NAME=VALUE") as caught:
        pairs(texts, "--conf")
    assert "secret" not in str(caught.value)
