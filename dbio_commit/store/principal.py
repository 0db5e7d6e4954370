"""A text that identifies the credentials of a client without revealing them.

What one principal has read is not remembered for another. The text depends on a random key of this process, so that
nobody who sees it can guess secrets and compare.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4
from weakref import WeakKeyDictionary

_KEY = os.urandom(32)

_READ_BY_CLIENTS = (
    *("AWS_", "AZURE_", "IDENTITY_", "MSI_"),
    *("GOOGLE_", "GCSFS_", "CLOUDSDK_", "GCE_METADATA_", "NO_GCE_CHECK"),
)
"""The beginnings of the names of environment variables that affect credentials. HOME counts, too: files there may have
credentials."""


@runtime_checkable
class Principal(Protocol):
    """An option that is an object. Objects with the same `dbio_principal` have the same credentials."""

    def dbio_principal(self) -> object:
        """All that its credentials depend on, in plain values."""


def principal_of(options: Mapping[str, Any]) -> str:
    """The text for these options and the environment. Different credentials have different texts."""
    read = {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_CLIENTS) or name == "HOME"}
    return blake2b(_spelled((options, read)).encode(errors="surrogatepass"), key=_KEY, digest_size=16).hexdigest()


def _spelled(value: Any) -> str:
    """A text that is the same only for equal values."""
    match value:
        case Mapping():
            return f"{{{','.join(sorted(f'{_spelled(name)}:{_spelled(it)}' for name, it in value.items()))}}}"
        case list() | tuple():
            return f"[{','.join(map(_spelled, value))}]"
        case set() | frozenset():
            return f"<{','.join(sorted(map(_spelled, value)))}>"
        case None | str() | bytes() | bool() | int() | float():
            return f"{type(value).__name__} {value!r}"
        case Principal():
            return f"{type(value).__qualname__} {_spelled(value.dbio_principal())}"
        case _ if is_dataclass(value) and not isinstance(value, type):
            return f"{type(value).__qualname__} {_spelled({it.name: getattr(value, it.name) for it in fields(value)})}"
    return _token_of(value)


_TOKENS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _token_of(value: Any) -> str:
    """A text for this very object, which has no plain values. A new text each time if it has no weak references."""
    try:
        return _TOKENS.setdefault(value, f"object {uuid4().hex}")
    except TypeError:
        return f"object {uuid4().hex}"
