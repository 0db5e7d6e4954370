"""What a row of the tables is: the name of a setting, and what it adds to the options of a store. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dbio_commit.base.errors import InvalidInputError

INSTEAD = "give storage_options, or credentials in the environment of the driver and of the workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role of AWS: what to ask STS for, where, and with whose key; without a key, with the environment's."""

    request: Mapping[str, str | int]
    """As STS' AssumeRole takes it."""
    endpoint: str | None
    region: str | None
    key: str | None
    secret: str | None = field(repr=False)
    proxies: Mapping[str, str] = field(repr=False)


class Draft:
    """What the rows make of the settings, one after the other."""

    def __init__(
        self,
        prefix: str,
        settings: Mapping[str, str],
        explicit: Mapping[str, Any],
        *,
        takes_credentials: bool,
        container: str,
    ) -> None:
        """`explicit` are the caller's own options; `takes_credentials`, whether these leave credentials to us."""
        self.explicit, self.takes_credentials, self.container = explicit, takes_credentials, container
        self.options: dict[str, Any] = {}
        self.role: AssumedRole | None = None
        self.ignored: list[str] = []
        self._settings, self._prefix = settings, prefix

    def get(self, name: str) -> str | None:
        return self._settings.get(self._prefix + name)

    def is_true(self, name: str) -> bool:
        return (self.get(name) or "").lower() == "true"

    def is_false(self, name: str) -> bool:
        return (self.get(name) or "").lower() == "false"

    def put(self, *path: str, value: Any) -> None:
        """Sets an option. All but the last of the path are mappings, each in the one before."""
        into = self.options
        for name in path[:-1]:
            into = into.setdefault(name, {})
        into[path[-1]] = value

    def has_explicit(self, *of_requests: str) -> bool:
        """Whether the caller says one of these himself, as an argument of S3's requests."""
        given = self.explicit.get("s3_additional_kwargs")
        return isinstance(given, Mapping) and any(name in given for name in of_requests)

    def ignore(self, name: str, why: str) -> None:
        self.ignored.append(f"dbio_commit does not honour the session's setting {self._prefix}{name}: {why}")

    def refuse(self, name: str, why: str, *, value: str = "") -> NoReturn:
        """`value` is shown: leave it out where it could be a secret."""
        shown = f"{self._prefix}{name}{'=' if value else ''}{value}"
        raise InvalidInputError(f"dbio_commit cannot honour the session's setting {shown}: {why}")


Apply = Callable[[Draft, str, str], None]
"""What a setting, given its name and its value, adds to the draft."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    """Without "fs.s3a.", "fs.azure." or "fs.gs."."""
    apply: Apply
    aliases: tuple[str, ...] = ()
    """Deprecated names."""
    secret: bool = False
    """Whether Hadoop looks for it in its credential stores too."""


def part(draft: Draft, name: str, value: str) -> None:
    """Another row, or the choice of the credentials, reads it."""


def if_true(*path: str, value: Any) -> Apply:
    def apply(draft: Draft, name: str, _: str) -> None:
        if draft.is_true(name):
            draft.put(*path, value=value)

    return apply


def refused(why: str) -> Apply:
    return lambda draft, name, _: draft.refuse(name, why)


def ignored(why: str) -> Apply:
    return lambda draft, name, _: draft.ignore(name, why)


def ignored_credential(why: str) -> Apply:
    def apply(draft: Draft, name: str, _: str) -> None:
        if draft.takes_credentials:
            draft.ignore(name, f"{why}; {INSTEAD}")

    return apply


def class_name(text: str) -> str:
    """Of a Java class, without its package."""
    return text.rpartition(".")[2]
