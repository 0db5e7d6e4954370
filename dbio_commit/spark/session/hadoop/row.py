"""A row of the tables of settings: a setting of Hadoop, and a function that adds it to a store's options. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dbio_commit.base.errors import InvalidInputError

INSTEAD = "give storage_options, or credentials in the environment of the driver and of the workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """An AWS role to assume: the request to STS, its endpoint, and the key to sign with (None: the environment's)."""

    request: Mapping[str, str | int]
    """The parameters of STS' AssumeRole."""
    endpoint: str | None
    region: str | None
    key: str | None
    secret: str | None = field(repr=False)
    proxies: Mapping[str, str] = field(repr=False)


class OptionsBuilder:
    """Collects the options of a store, while the rows of the table are applied one after the other."""

    def __init__(
        self,
        prefix: str,
        settings: Mapping[str, str],
        explicit: Mapping[str, Any],
        *,
        takes_credentials: bool,
        container: str,
    ) -> None:
        """`explicit`: the caller's options. `takes_credentials`: whether they have none, so the settings give them."""
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
        """Sets an option. The path has the names of nested mappings, and last the name of the option."""
        into = self.options
        for name in path[:-1]:
            into = into.setdefault(name, {})
        into[path[-1]] = value

    def has_explicit(self, *of_requests: str) -> bool:
        """Whether the caller gives one of these arguments of S3's requests in the explicit options."""
        given = self.explicit.get("s3_additional_kwargs")
        return isinstance(given, Mapping) and any(name in given for name in of_requests)

    def ignore(self, name: str, why: str) -> None:
        self.ignored.append(f"dbio does not honour the session's setting {self._prefix}{name}: {why}")

    def refuse(self, name: str, why: str, *, value: str = "") -> NoReturn:
        """The message shows `value`: leave it out if it could be a secret."""
        shown = f"{self._prefix}{name}{'=' if value else ''}{value}"
        raise InvalidInputError(f"dbio cannot honour the session's setting {shown}: {why}")


Apply = Callable[[OptionsBuilder, str, str], None]
"""Gets the builder, and the name and value of a setting; adds it to the options."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    """Without "fs.s3a.", "fs.azure." or "fs.gs."."""
    apply: Apply
    aliases: tuple[str, ...] = ()
    """Deprecated names."""
    secret: bool = False
    """Whether Hadoop looks for the setting in its credential stores too."""


def part(builder: OptionsBuilder, name: str, value: str) -> None:
    """Does nothing: another row, or the choice of credentials, reads this setting."""


def if_true(*path: str, value: Any) -> Apply:
    def apply(builder: OptionsBuilder, name: str, _: str) -> None:
        if builder.is_true(name):
            builder.put(*path, value=value)

    return apply


def refused(why: str) -> Apply:
    return lambda builder, name, _: builder.refuse(name, why)


def ignored(why: str) -> Apply:
    return lambda builder, name, _: builder.ignore(name, why)


def ignored_credential(why: str) -> Apply:
    def apply(builder: OptionsBuilder, name: str, _: str) -> None:
        if builder.takes_credentials:
            builder.ignore(name, f"{why}; {INSTEAD}")

    return apply


def class_name(text: str) -> str:
    """The name of a Java class without its package."""
    return text.rpartition(".")[2]
