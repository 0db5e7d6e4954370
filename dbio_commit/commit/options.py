"""The options of a commit: the one place that names, types, explains, checks and reads them.

A new option is a key of a class of keywords, with its explanation, and a field of `CommitOptions`, with its default.
Then all functions and methods with that class take it, show it in their signatures, and explain it. What the option
does is in the room that does it.
"""

import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ParamSpec, TypedDict, TypeVar, get_args

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Isolation
from dbio_commit.commit.isolation import check_isolation
from dbio_commit.commit.provenance import Labels, Note, SparkRun
from dbio_commit.protocol.versions import AppVersion, parse_version

_P = ParamSpec("_P")
_R = TypeVar("_R")


class NoteKeywords(TypedDict, total=False):
    """What each function takes that commits. A function that takes only some of the options has a class for them."""

    message: Annotated[str | None, "a text about the commit. `dbio log` shows it."]
    labels: Annotated[Labels | None, "short texts about the commit, by name."]


class AppKeywords(NoteKeywords, total=False):
    """What a joint transaction takes."""

    app: Annotated[
        AppVersion | None,
        "an (application id, version), committed at most once: the result of a second write is `skipped`. A version "
        "that is a number counts up; a version that is a day or a time may come in any order.",
    ]


class BeginKeywords(AppKeywords, total=False):
    """What a transaction takes."""

    if_match: Annotated[
        str | None,
        "the `Snapshot.etag` of a state. If data has changed since that state, nothing is committed.",
    ]


class RetryKeywords(NoteKeywords, total=False):
    """What a function takes that can try again."""

    retries: Annotated[
        int,
        "how often to try again, after a pause, if another commit was in the way; not together with `if_match`.",
    ]


class JointKeywords(AppKeywords, RetryKeywords, total=False):
    """What a function takes that makes a joint transaction, and can try again."""


class CommitKeywords(BeginKeywords, RetryKeywords, total=False):
    """All options."""

    isolation: Annotated[
        Isolation,
        '"serializable" makes rows that others append meanwhile a conflict, if they may match the condition; '
        '"write_serializable" leaves such rows as they are. Rows of other rewrites and overwrites are always a '
        "conflict, if they may match. A write without a condition depends on no rows, and takes either.",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """The options of a commit, checked; `note` checks the texts. Raises InvalidInputError."""

    app: AppVersion | None = None
    if_match: str | None = None
    message: str | None = None
    labels: Labels | None = None
    isolation: Isolation = "write_serializable"
    retries: int = 0

    def __post_init__(self) -> None:
        check_isolation(self.isolation)
        if type(self.retries) is not int or self.retries < 0:
            raise InvalidInputError(f"retries={self.retries!r:.100} is no number from 0 on")
        if self.retries and self.if_match is not None:
            raise InvalidInputError("if_match and retries do not go together: what was committed since stays committed")

    def note(self, run: SparkRun | None) -> Note:
        """What the commit records of its caller, which runs in this job of Spark. Raises InvalidInputError."""
        return Note(message=self.message, labels=self.labels, run=run)


def takes_options(function: Callable[_P, _R], *records: type[Any]) -> Callable[_P, _R]:
    """For a function with `**kwargs: Unpack[SomeKeywords]`: `help`, signatures and completion show these options.

    The docstring has a line such as "Options of the commit: `SomeKeywords`.", below which the explanations are put. As
    for any function, a call with another keyword raises TypeError. Options that are fields of the `records` come first.
    """
    own = inspect.signature(function)
    parameters = dict(own.parameters)
    _, given = parameters.popitem()
    (keywords,) = get_args(given.annotation)
    explained = keywords.__annotations__
    options = [it for record in (*records, CommitOptions) for it in fields(record) if it.name in explained]
    for it in options:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters[it.name] = inspect.Parameter(it.name, kind, default=it.default, annotation=it.type)

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in parameters:
                raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}")
        return function(*args, **kwargs)

    shown: Any = wrapper
    shown.__signature__ = own.replace(parameters=[*parameters.values()])
    shown.__annotations__ = {
        **{name: it.annotation for name, it in parameters.items()},
        "return": own.return_annotation,
    }
    texts = [_item(it.name, *get_args(explained[it.name])[1:]) for it in options]
    doc = inspect.cleandoc(function.__doc__ or "")  # with python -OO there is none
    shown.__doc__ = doc.replace(f": `{keywords.__name__}`.", "\n".join([":", "", *texts]))
    return wrapper


def _item(name: str, text: str) -> str:
    return textwrap.fill(f"- `{name}`: {text}", 116, subsequent_indent="  ")


# --- as texts: options and settings of Spark ----------------------------------------------------------------------

NOTE_OPTIONS = frozenset(NoteKeywords.__annotations__)
"""The options that each write of Spark takes, in lower case, as all names here."""

BEGIN_OPTIONS = NOTE_OPTIONS | {"txnappid", "txnversion", "ifmatch"}


def begin_options(options: Mapping[str, str]) -> BeginKeywords:
    """What the options of a write of Spark say. Raises InvalidInputError."""
    return {**note_options(options), "app": app_option(options), "if_match": options.get("ifmatch")}


def note_options(options: Mapping[str, str], *, prefix: str = "") -> NoteKeywords:
    """The message, a text, and the labels, a JSON object, in options with these names. Raises InvalidInputError."""
    found = NoteKeywords()
    if (text := options.get(f"{prefix}message")) is not None:
        found["message"] = text
    if (text := options.get(f"{prefix}labels")) is not None:
        try:
            found["labels"] = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidInputError(
                f'{prefix}labels is {text!r:.200}, not a JSON object of short texts, such as {{"team": "sales"}}'
            ) from None
    return found


def note_texts(note: Note) -> dict[str, str]:
    """The options from which `note_options` reads the same."""
    texts = {"message": note.message, "labels": None if note.labels is None else json.dumps(dict(note.labels))}
    return {name: text for name, text in texts.items() if text is not None}


def app_option(options: Mapping[str, str]) -> AppVersion | None:
    """The application and its version; None if neither is given. Raises InvalidInputError if only one is given."""
    id, version = options.get("txnappid"), options.get("txnversion")
    if (id is None) != (version is None):
        raise InvalidInputError("options txnAppId and txnVersion go together")
    if id is None or version is None:
        return None
    try:
        return id, parse_version(version)
    except ValueError:
        raise InvalidInputError(
            f"option txnVersion is {version!r:.100}, not a number from 0, a day such as 2026-11-20, or a time such as "
            "2026-11-20T13:00:00"
        ) from None
