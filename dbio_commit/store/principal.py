"""As whom a client asks, as a text that gives nothing away: what was told to one is not remembered for another.

The text is of this process only, since its key is: nobody can try secrets against one that he sees.
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
"""What names of variables start with that decide about credentials; and the home directory, where files have some."""


@runtime_checkable
class Principal(Protocol):
    """An option that is an object, and that another one may stand for."""

    def dbio_principal(self) -> object:
        """All that decides about its credentials, in plain values."""


def principal_of(options: Mapping[str, Any]) -> str:
    """Two options, or two environments, with different credentials have different texts."""
    read = {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_CLIENTS) or name == "HOME"}
    return blake2b(_spelled((options, read)).encode(errors="surrogatepass"), key=_KEY, digest_size=16).hexdigest()


def _spelled(value: Any) -> str:
    """The same for the same value only."""
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
    """A text for this very object, which says nothing plain about itself; where it cannot be known again, a new one."""
    try:
        return _TOKENS.setdefault(value, f"object {uuid4().hex}")
    except TypeError:
        return f"object {uuid4().hex}"
