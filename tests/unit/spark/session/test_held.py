"""Settings of a session that hold for a while: what threads that overlap see, and what is there afterwards."""

from contextlib import ExitStack
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from dbio_commit.spark.session.held import holding, own


class FakeSession:
    """A session, which is its own settings; some it refuses."""

    def __init__(self, **settings: str) -> None:
        self.settings, self.conf = dict(settings), self
        self.session_id = str(id(self))

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        if value == "refused":
            raise ValueError(name)
        self.settings[name] = value

    def unset(self, name: str) -> None:
        self.settings.pop(name, None)


def session(**settings: str) -> tuple[SparkSession, dict[str, str]]:
    fake: Any = FakeSession(**settings)
    return cast(SparkSession, fake), fake.settings


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_the_least_number_holds_until_the_last_one_leaves(first_leaves_first: bool) -> None:
    spark, settings = session(size="7", other="x")
    with ExitStack() as one, ExitStack() as two:
        one.enter_context(holding(spark, {"size": 30, "mode": "on"}))
        two.enter_context(holding(spark, {"size": 200, "more": 1}))
        assert settings == {"size": "30", "mode": "on", "more": "1", "other": "x"}
        assert (own(spark, "size"), own(spark, "mode"), own(spark, "other")) == ("7", None, "x")
        if first_leaves_first:
            one.close()
            assert settings == {"size": "200", "more": "1", "other": "x"}
        else:
            two.close()
            assert settings == {"size": "30", "mode": "on", "other": "x"}
    assert settings == {"size": "7", "other": "x"}


def test_settings_come_back_after_an_error() -> None:
    spark, settings = session(a="1")
    with pytest.raises(ZeroDivisionError), holding(spark, {"a": "2", "b": 3}):
        settings["seen"] = str(1 // 0)
    assert settings == {"a": "1"}


def test_one_that_the_session_refuses_leaves_no_trace() -> None:
    spark, settings = session(a="1")
    with pytest.raises(ValueError, match="bad"), holding(spark, {"a": "2", "bad": "refused", "c": "4"}):
        pass
    assert settings == {"a": "1"}
    with holding(spark, {"a": "5"}):
        assert own(spark, "a") == "1"
    assert settings == {"a": "1"}
