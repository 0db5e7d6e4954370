"""The body of any marker: JSON with a version, encoded and decoded. Pure.

Bytes from outside are validated when they are decoded, once. A decoded body is safe to act on. Each kind of marker has
a module beside this one. Formats: PROTOCOL.md section 7.
"""

import re
from abc import ABC, abstractmethod
from array import array
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import force_setattr

from dbio_commit.base.clock import FIRST_YEAR, LAST_YEAR, is_of_a_clock
from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, UnsupportedTableError

MAX_BYTES = 64 * 1024 * 1024
"""A marker fits in one PUT (PROTOCOL.md 7.5). No writer writes a larger one."""

VERSION: Final = 1
"""The version of the table scope's protocol that this software writes."""

REFERRING: Final = 2
"""The version of a commit marker with `removed_tids`. Software that does not know this key must not take its files for
live."""

JOINT: Final = 3
"""The version of the commit marker in the home of a joint transaction. Software that does not know it must not purge
the marker."""

_T = TypeVar("_T")

TableId = Annotated[str, Meta(max_length=100)]
"""The `id` of a descriptor, a UUID, as other objects repeat it."""

MOST: Final = (1 << 63) - 1
"""The highest number that a body may have."""

Count = Annotated[int, Meta(ge=0, le=MOST)]


def written(value: _T) -> _T:
    """The default of a key that is written even if it has the default."""
    default: _T = msgspec.field(default_factory=lambda: copy(value))
    return default


class Body(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A JSON body. Unknown keys are ignored, so that later versions and other writers may add some.

    Types are checked when a body is decoded, not when it is made. A field that is None has no key, unless its default
    is `written`.
    """

    NEWEST: ClassVar[int] = VERSION
    """The latest version of such a body that this software reads."""

    @classmethod
    def version_in(cls, body: bytes) -> int | float | str:
        """The version of the protocol that a body names. Raises ValueError if it cannot be read."""
        return decode_as(_Version, body).version


def in_utc(body: Body, *fields: str) -> None:
    """Converts these times of a new body to UTC. Raises ValueError for a time without a zone, or one that UTC does not
    have."""
    for name in fields:
        time: datetime | None = getattr(body, name)
        if time is not None and time.tzinfo is not UTC:
            if time.tzinfo is None:
                raise ValueError(f"{name} has no time zone")
            try:
                force_setattr(body, name, time.astimezone(UTC))
            except OverflowError:
                raise ValueError(f"{name} does not exist in UTC") from None


def in_utc_of_a_clock(body: Body, *fields: str) -> None:
    """As `in_utc`, for times that a writer takes from a clock. Raises ValueError also for a time of no clock
    (`is_of_a_clock`)."""
    in_utc(body, *fields)
    if wrong := next((name for name in fields if (it := getattr(body, name)) and not is_of_a_clock(it)), None):
        raise ValueError(f"{wrong} is a time of no clock, before {FIRST_YEAR} or after {LAST_YEAR}")


class Deferred(ABC):
    """A value of a body that is read when it is needed, or when the body is encoded or pickled."""

    @abstractmethod
    def raw(self) -> Raw:
        """The value as JSON."""

    def __reduce__(self) -> tuple[type[Raw], tuple[bytes]]:
        return Raw, (bytes(self.raw()),)


def encode(body: Body) -> bytes:
    """Compact JSON, without keys that have their defaults."""
    return _ENCODER.encode(body)


def _as_list(values: Any) -> Any:
    if isinstance(values, array):
        return values.tolist()
    if isinstance(values, Deferred):
        return values.raw()
    raise TypeError(f"{type(values).__name__} is no JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_as_list)


def pack_json(value: Any, *, what: str) -> Raw:
    try:
        return Raw(_ENCODER.encode(value))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"these {what} cannot be committed: {error!s:.200}") from None


INSPECT = (
    "do not delete it, since it may be all that records a commit: bring back what its writer wrote, from a version of "
    "the bucket or from a backup. If no writer can have made it, move it out of the table, and keep it"
)
"""What to do about an object of the log that cannot be read. It may have been valid."""

_B = TypeVar("_B", bound=Body)


class _Version(Struct):
    """Only the version of a body, to see whether a later version wrote it."""

    version: int | float | str = VERSION


def decode_body(model: type[_B], body: bytes, *, where: str, mend: str = INSPECT, limit_bytes: int | None = None) -> _B:
    """Decodes a body. `mend` says what to do if it cannot be read. `limit_bytes` is the most that a writer writes, by
    default MAX_BYTES.

    Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol.
    """
    if len(body) > (most := MAX_BYTES if limit_bytes is None else limit_bytes):
        raise CorruptMarkerError(f"{where} has {len(body)} bytes, and no writer writes more than {most}; {mend}")
    try:
        return decode_as(model, body)
    except ValueError as error:
        reason = str(error)
    version, known = _version(model, body), model.NEWEST
    if version > known:
        raise UnsupportedTableError(
            f"{where} was written by version {version!s:.20} of the protocol, and this software knows {known}; "
            "upgrade dbio-commit"
        )
    name = model.__name__.strip("_")
    raise CorruptMarkerError(f"{where} ({len(body)} bytes) cannot be read as a {name}: {reason}; {mend}")


def _version(model: type[Body], body: bytes) -> float:
    with suppress(ValueError):
        version = model.version_in(body)
        return float(version) if isinstance(version, str) else version
    return VERSION


def decode_as(kind: type[_T], text: bytes | Raw) -> _T:
    """Decodes JSON of a type. Raises ValueError, in few words and without values, for a text of another type."""
    key: Any = kind
    try:
        # msgspec does not check text that it skips: unknown keys, and what it leaves as `Raw`
        found: _T = _decoder(key).decode(str(text, "utf-8"))
        return found
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{_ENUM_VALUE.sub('Invalid value', str(error)):.300}") from None


_ENUM_VALUE = re.compile(r"Invalid enum value .*?(?=$| - at `[^`]*`$)", re.DOTALL)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
