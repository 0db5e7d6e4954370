"""The options of a stream source, as users write them."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from dbio_commit import InvalidInputError
from dbio_commit.feed.feed import BatchLimits, FeedOptions
from dbio_commit.feed.position import Start
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.feed.options import StreamOptions


def parse(**options: str) -> StreamOptions:
    return StreamOptions.parse(CaseInsensitiveDict(options))


def test_without_options_a_stream_begins_with_the_state_in_pieces_and_fails_on_changes() -> None:
    found = parse()
    assert found.start == Start()
    assert found.wanted == FeedOptions()
    assert found.wanted.fail_on_data_loss
    assert found.most == BatchLimits(files=1000)


def test_options_do_what_they_say_whatever_their_case() -> None:
    found = parse(MAXFILESPERTRIGGER="3", maxBytesPerTrigger="5", skipchangecommits="TRUE", failOnDataLoss="false")
    assert found.most == BatchLimits(files=3, size_bytes=5)
    assert found.wanted == FeedOptions(skip_change_commits=True, fail_on_data_loss=False)
    assert parse(maxBytesPerTrigger="5").most == BatchLimits(size_bytes=5)
    assert parse(ignoreChanges="true").wanted == FeedOptions(ignore_changes=True)
    assert parse(readChangeFeed="true").wanted == FeedOptions(changes=True)
    assert parse(startingTid="7").start == Start(begin="tid", tid="7")
    time = datetime(2026, 11, 20, 9, tzinfo=UTC)
    assert parse(startingTime="2026-11-20T10:00:00+01:00").start == Start(begin="time", time=time)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"maxFilesPerTrigger": "0"}, "must be at least 1"),
        ({"maxBytesPerTrigger": "0"}, "must be at least 1"),
        ({"maxBytesPerTrigger": "1g"}, "option maxBytesPerTrigger is '1g'"),
        ({"skipChangeCommits": "true", "ignoreChanges": "true"}, "set only one of them"),
        ({"readChangeFeed": "true", "ignoreChanges": "true"}, "set only one of them"),
        ({"startingTid": "1", "startingTime": "2026-01-01T00:00:00Z"}, "set only one of them"),
        ({"startingTime": "yesterday"}, "startingTime='yesterday' is neither"),
        ({"startingTime": "2026-01-01"}, r"startingTime=2026-01-01T00:00:00 has no time zone; add one"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss is 'perhaps'"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        parse(**options)


def test_a_feed_needs_one_start_and_at_most_one_end() -> None:
    with pytest.raises(InvalidInputError, match="needs a start"):
        feeds.start_of(None, None)
    with pytest.raises(InvalidInputError, match="endingTid and endingTime are both given"):
        feeds.end_of("1", "2026-01-01T00:00:00Z")
    with pytest.raises(InvalidInputError, match="endingTime='tomorrow'"):
        feeds.end_of(None, "tomorrow")
    assert feeds.end_of("1", None) == "1"
    assert feeds.end_of(None, None) is None
