"""Options of the data source that need no Spark session. What it reads and writes is in tests/integration."""

import pytest

from dbio_commit import InvalidInputError
from dbio_commit.spark.datasource import DbioDataSource


def test_the_option_if_match_is_the_etag() -> None:
    assert DbioDataSource({"ifMatch": "1,2"})._if_match() == "1,2"
    assert DbioDataSource({"ifMatch": ""})._if_match() == ""
    assert DbioDataSource({})._if_match() is None


def test_if_tid_is_the_old_word_for_it() -> None:
    with pytest.warns(DeprecationWarning, match="the option ifTid is deprecated.*use the option ifMatch"):
        assert DbioDataSource({"ifTid": "1"})._if_match() == "1"


def test_both_words_are_refused() -> None:
    source = DbioDataSource({"ifTid": "1", "ifMatch": "1"})
    with pytest.warns(DeprecationWarning, match="ifTid"), pytest.raises(InvalidInputError, match="give ifMatch alone"):
        source._if_match()
