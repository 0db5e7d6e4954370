"""Collects who makes a transaction, and checks the message and labels of its caller.

Nothing comes from the environment or from command lines, which may hold secrets. What looks like a secret is left out
of all texts.
"""

import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from msgspec.structs import replace

from dbio_commit import __version__
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import records_provenance
from dbio_commit.base.redaction import names_secret, redact, secrets_of_clients
from dbio_commit.base.texts import visible
from dbio_commit.protocol.markers.provenance import (
    MOST_LABEL_NAME,
    MOST_LABELS,
    MOST_MESSAGE,
    MOST_TEXT,
    NOBODY,
    Provenance,
    cut,
    said_in,
)
from dbio_commit.protocol.settings import PROVENANCE, Settings

Labels = Mapping[str, str]
"""Short texts by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRun:
    """The application and the job of a Spark session. Each is None if it is not known."""

    application: str | None = None
    """Spark's id of the application."""
    job: str | None = None
    """The description of the job, or else the id of its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The message and the labels that the caller gives a commit, and the Spark application and job that it runs in."""

    message: str | None = None
    labels: Labels | None = None
    run: SparkRun | None = None

    def __post_init__(self) -> None:
        check_note(self.message, self.labels)


def check_note(message: str | None, labels: Labels | None) -> None:
    """Raises InvalidInputError for a message or labels that are too long, or that are not texts."""
    if message is not None and not isinstance(message, str):
        raise InvalidInputError(f"message={message!r:.100} is not a text")
    if message is not None and _bytes(message) > MOST_MESSAGE:
        raise InvalidInputError(
            f"the message has {_bytes(message):,} bytes, and a commit keeps {MOST_MESSAGE:,}; shorten it, or give the "
            "address of a longer text"
        )
    if labels is None:
        return
    if not isinstance(labels, Mapping) or not all(isinstance(it, str) for both in labels.items() for it in both):
        raise InvalidInputError(f"labels={labels!r:.200} are not texts by name; give such as {{'team': 'sales'}}")
    if len(labels) > MOST_LABELS:
        raise InvalidInputError(f"there are {len(labels)} labels, and a commit keeps {MOST_LABELS}; leave some out")
    for name, text in labels.items():
        if not 0 < _bytes(name) <= MOST_LABEL_NAME or _bytes(text) > MOST_TEXT:
            raise InvalidInputError(
                f"the label {name!r:.100} is too long, or has no name: a name has 1 to {MOST_LABEL_NAME} bytes, and a "
                f"text at most {MOST_TEXT}"
            )


NO_NOTE = Note()


def provenance_of(note: Note, settings: Settings | None) -> Provenance | None:
    """The note, and who makes the transaction, unless the table's settings or the environment switch the latter off.
    None if nothing is left.

    Raises InvalidInputError for an environment variable that cannot be read.
    """
    said = _say(NOBODY, note)
    if records_provenance() and not _is_off(settings):
        run = note.run or SparkRun()
        said = replace(
            said,
            host=_host(),
            user=_user(),
            process=_process(),
            software=f"dbio-commit {__version__}",
            spark_application=_clean(run.application, MOST_TEXT),
            spark_job=_clean(run.job, MOST_TEXT),
        )
    return said if said != NOBODY else None


def allowed(by: Provenance | None, settings: Settings | None) -> Provenance | None:
    """The provenance that a commit marker may record: only the note, if the table's settings switch the rest off."""
    if by is None or not _is_off(settings):
        return by
    said = said_in(by)
    return said if said != NOBODY else None


def _is_off(settings: Settings | None) -> bool:
    return (settings or {}).get(PROVENANCE) == "off"


def amended(before: Provenance | None, note: Note) -> Provenance | None:
    """The provenance of the start marker with another message and more labels. Raises InvalidInputError."""
    if note.message is None and note.labels is None:
        return before
    known = before or NOBODY
    message = known.message if note.message is None else note.message
    return _say(known, Note(message=message, labels={**(known.labels or {}), **(note.labels or {})}))


def _say(by: Provenance, note: Note) -> Provenance:
    cleaned = {
        _clean(name, MOST_LABEL_NAME): "***" if names_secret(name) else _clean(text, MOST_TEXT)
        for name, text in (note.labels or {}).items()
    }
    texts = {name: text or "" for name, text in cleaned.items() if name}
    return replace(by, message=_clean(note.message, MOST_MESSAGE, keep="\n"), labels=texts or None)


def _clean(text: str | None, most: int, *, keep: str = "") -> str | None:
    """The text without secrets, as printable UTF-8, cut to `most` bytes; None if nothing is left."""
    if not text:
        return None
    return cut(visible(redact(text, secrets_of_clients()), keep=keep), most) or None


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


@cache
def _host() -> str | None:
    return _clean(socket.gethostname(), MOST_TEXT)


def _process() -> int:
    return os.getpid()


def _user() -> str | None:
    return _name_of(os.geteuid())


@cache
def _name_of(number: int) -> str | None:
    """The name of a user, or its number if the machine knows no name, as in many containers."""
    try:
        return _clean(pwd.getpwuid(number).pw_name, MOST_TEXT)
    except KeyError:
        return f"uid {number}"
