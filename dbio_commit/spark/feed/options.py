"""The options of a stream source, checked. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.write.options import flag_option, number_option
from dbio_commit.feed.feed import BatchLimits, FeedOptions
from dbio_commit.feed.position import Start
from dbio_commit.spark.feed import columns as feeds

OPTIONS = {
    "path",
    "startingtid",
    "startingtime",
    "maxfilespertrigger",
    "maxbytespertrigger",
    "skipchangecommits",
    "ignorechanges",
    "failondataloss",
    "readchangefeed",
    "secretstorageoptions",
}

_FILES_AT_ONCE = 1000
"""The default number of files in a batch, so that a stream does not begin with the whole of a large table."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream, checked."""

    start: Start
    wanted: FeedOptions
    most: BatchLimits

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "StreamOptions":
        """Parses options, a mapping that ignores the case of names. Raises InvalidInputError."""
        wanted = FeedOptions(
            changes=flag_option(options, "readChangeFeed"),
            skip_change_commits=flag_option(options, "skipChangeCommits"),
            ignore_changes=flag_option(options, "ignoreChanges"),
            fail_on_data_loss=flag_option(options, "failOnDataLoss", default=True),
        )
        if wanted.changes + wanted.skip_change_commits + wanted.ignore_changes > 1:
            raise InvalidInputError(
                "readChangeFeed, skipChangeCommits and ignoreChanges are three ways to treat commits that remove rows; "
                "set only one of them"
            )
        files, size = (number_option(options, name) for name in ("maxFilesPerTrigger", "maxBytesPerTrigger"))
        if 0 in (files, size):
            raise InvalidInputError("maxFilesPerTrigger and maxBytesPerTrigger must be at least 1")
        if files is None and size is None:
            files = _FILES_AT_ONCE
        start = feeds.start_of(options.get("startingtid"), options.get("startingtime"), default=Start())
        return cls(start, wanted, BatchLimits(files=files, size_bytes=size))
