"""The options of a stream source, checked. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.feed.feed import Most, Wanted
from dbio_commit.feed.position import Start
from dbio_commit.spark.feed import columns as feeds
from dbio_commit.spark.write.options import flag_option, number_option

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
"""In a batch, where no option says: a stream that begins with a large table must not take it whole."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream, checked."""

    start: Start
    wanted: Wanted
    most: Most

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "StreamOptions":
        """From options whose names do not care for case. Raises InvalidInputError."""
        wanted = Wanted(
            changes=flag_option(options, "readChangeFeed"),
            skip_change_commits=flag_option(options, "skipChangeCommits"),
            ignore_changes=flag_option(options, "ignoreChanges"),
            fail_on_data_loss=flag_option(options, "failOnDataLoss", default=True),
        )
        if wanted.changes + wanted.skip_change_commits + wanted.ignore_changes > 1:
            raise InvalidInputError(
                "readChangeFeed, skipChangeCommits and ignoreChanges each say what becomes of rows that were taken "
                "away; set one of them"
            )
        files, size = (number_option(options, name) for name in ("maxFilesPerTrigger", "maxBytesPerTrigger"))
        if 0 in (files, size):
            raise InvalidInputError("maxFilesPerTrigger and maxBytesPerTrigger count from 1")
        if files is None and size is None:
            files = _FILES_AT_ONCE
        start = feeds.start_of(options.get("startingTid"), options.get("startingTime"), default=Start())
        return cls(start, wanted, Most(files=files, size_bytes=size))
