"""The key `provenance` of start and commit markers: who made a transaction, and what its caller says of it. Pure.

No code decides anything by it. Its texts are short, so that checkpoints keep them for as long as they keep the
transaction.
"""

from msgspec.structs import force_setattr

from dbio_commit.protocol.markers.bodies import Body, Count

MOST_TEXT = 200
"""The most bytes of UTF-8 of a text that the software finds by itself, and of the text of a label."""

MOST_MESSAGE = 1000
"""Bytes of UTF-8."""

MOST_LABELS = 10

MOST_LABEL_NAME = 50
"""Bytes of UTF-8."""

MOST_BYTES = 5 * MOST_TEXT + MOST_MESSAGE + MOST_LABELS * (MOST_LABEL_NAME + MOST_TEXT)
"""Bytes of UTF-8 of all texts together."""


class Provenance(Body, frozen=True, kw_only=True):
    """Who made a commit, and what its caller says of it. Each fact is None if it is not known, or was not given.

    The limits in this module hold for what is read, too: a longer text is cut.
    """

    host: str | None = None
    """The name of the machine; of the driver for a write with Spark."""
    user: str | None = None
    """The user of the operating system."""
    process: Count | None = None
    """The id of the process on the host."""
    software: str | None = None
    """The writer and its version, such as "dbio-commit 1.0.0"."""
    spark_application: str | None = None
    """The id of Spark's application."""
    spark_job: str | None = None
    """The description of Spark's job, or else the id of its group, as the caller has set them."""
    message: str | None = None
    """A text about the commit, from its caller."""
    labels: dict[str, str] | None = None
    """Short texts by name, from the caller."""

    def __post_init__(self) -> None:
        for name in ("host", "user", "software", "spark_application", "spark_job"):
            self._limit(name, MOST_TEXT)
        self._limit("message", MOST_MESSAGE)
        if self.labels is not None:
            some = [*self.labels.items()][:MOST_LABELS]
            kept = {cut(name, MOST_LABEL_NAME): cut(text, MOST_TEXT) for name, text in some}
            force_setattr(self, "labels", kept or None)

    def _limit(self, name: str, most: int) -> None:
        text: str | None = getattr(self, name)
        if text is not None:
            force_setattr(self, name, cut(text, most) or None)


NOBODY = Provenance()


def said_in(by: Provenance) -> Provenance:
    """Only the caller's message and labels."""
    return Provenance(message=by.message, labels=by.labels)


def texts_of(by: Provenance) -> list[str]:
    """All its texts, with the names of labels."""
    own = (getattr(by, name) for name in by.__struct_fields__)
    labels = (text for both in (by.labels or {}).items() for text in both)
    return [text for text in (*own, *labels) if isinstance(text, str)]


def cut(text: str, most: int) -> str:
    """The beginning of the text, with at most `most` bytes of UTF-8."""
    if len(text) <= most // 4:  # a character has at most 4 bytes
        return text
    return text.encode(errors="replace")[:most].decode(errors="ignore")
