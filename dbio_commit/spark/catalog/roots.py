"""Names of tables in SQL: which path a name means, below the roots that `dbio.enable` got. Pure."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.store import parse_location

Path = str | os.PathLike[str]
"""The path or URL of a table, or of a root."""

_AS_A_DICT = 'give roots as a dict from names to paths, such as {"lake": "s3://bucket/lake"}'

Roots = Path | Sequence[Path] | Mapping[str, Path]
"""One root, several roots, or roots by the names that SQL uses for them."""


def paths_of(roots: Roots) -> list[Path]:
    """The roots, without their names. Raises InvalidInputError."""
    if isinstance(roots, str | os.PathLike):
        return [roots]
    if not isinstance(roots, Iterable):
        raise InvalidInputError(f"roots={roots!r:.100} are no paths; {_AS_A_DICT}")
    return [*roots.values()] if isinstance(roots, Mapping) else [*roots]


def named_roots(roots: Roots) -> dict[str, str]:
    """The roots by their names. A root without a name has that of its last directory, or of its bucket.

    Raises InvalidInputError if two roots have the same name, and for a name that SQL cannot use.
    """
    found: dict[str, str] = {}
    for name, root in _named(roots):
        if not isinstance(name, str) or not name or "/" in name:
            raise InvalidInputError(
                f"the root {os.fspath(root)!r:.200} has the name {name!r:.100}, which SQL cannot use; {_AS_A_DICT}"
            )
        location = parse_location(root)
        path = location.url if location.scheme == "file" else os.fspath(root)  # absolute, as it is later used again
        if found.setdefault(name, path) != path:
            raise InvalidInputError(
                f"the roots {found[name]!r:.200} and {path!r:.200} have the same name {name!r:.100}; {_AS_A_DICT}"
            )
    return found


def _named(roots: Roots) -> Iterator[tuple[str, Path]]:
    if isinstance(roots, Mapping):
        yield from roots.items()
        return
    for root in paths_of(roots):
        location = parse_location(root)
        yield names.split(location.prefix.rstrip("/"))[1] or location.container, root


def path_of(roots: Mapping[str, str], parts: Sequence[str]) -> str | None:
    """The path that a name of these parts means: a path itself, or a name below a root. None if there is no such root.

    Raises InvalidInputError for a part that would lead out of its root.
    """
    if len(parts) == 1:
        return parts[0] if "/" in parts[0] else None
    root, below = roots.get(parts[0]), parts[1:]
    if root is None:
        return None
    odd = next((part for part in below if part in ("", ".", "..") or "/" in part), None)
    if odd is not None:
        raise InvalidInputError(
            f"{'.'.join(parts)!r:.200} has the part {odd!r:.100}, which is no name of a directory; to name a table by "
            "its path, write dbio.`/path` or dbio.`s3://bucket/path`"
        )
    return "/".join([root.rstrip("/"), *below])
