"""Results as a notebook and a prompt show them: HTML tables, and texts of bounded length. Pure.

Names in results come from outside. Each text is escaped and cut, and a table has few rows. The HTML has no script, no
link and nothing to load. A formula in a name is shown as text. A table shows what is in memory, and nothing is read for
it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from html import escape
from itertools import islice
from typing import Any, ClassVar

from dbio_commit.base.figures import age_text, number_text, size_text, time_text
from dbio_commit.base.texts import shortened, visible

MOST_ROWS = 20
"""The most rows of a table. The others are only counted."""

MOST_TEXT = 200
"""The most characters of a cell."""

MOST_ITEMS = 3
MOST_ITEM = 100
"""The most items of a sequence in a repr, and the most characters of each."""

_PLAIN = ("version", "number", "batch")
"""Fields whose numbers are no counts: they get no separators of thousands."""

_TABLE = '<table class="tex2jax_ignore mathjax_ignore">'
_LEFT = ' style="text-align:left"'


class Shown:
    """A dataclass with the result of an operation. Its repr is short, and a notebook shows it as tables.

    Both leave out what is empty.
    """

    __slots__ = ()

    _first: ClassVar[Sequence[str]] = ()
    """Properties that the tables show before the fields."""

    def __repr__(self) -> str:
        shown = (f"{name}={_brief(value)}" for name, value in _fields(self) if not _is_empty(value))
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Tables of its fields, for notebooks."""
        found = [*((name, getattr(self, name)) for name in self._first), *_fields(self)]
        filled = [(name, value) for name, value in found if not _is_empty(value)]
        single = {name: value for name, value in filled if not _is_many(value)}
        many = [(name, value) for name, value in filled if _is_many(value)]
        return facts(type(self).__name__, single) + "".join(_items(name, value) for name, value in many)


def facts(title: str, values: Mapping[str, object]) -> str:
    """A table with a row for each name and value."""
    lines = (f"<tr><th{_LEFT}>{_cell(_words(name))}</th>{_data(value, name)}</tr>" for name, value in values.items())
    return _table(title, "", lines)


def rows(title: str, columns: Sequence[str], cells: Iterable[Sequence[object]], *, count: int) -> str:
    """A table with the first rows, and how many there are beyond them. `count` is the number of all rows."""
    head = "".join(f"<th{_LEFT}>{_cell(_words(name))}</th>" for name in columns)
    lines = [f"<tr>{''.join(map(_data, row, columns))}</tr>" for row in islice(cells, MOST_ROWS)]
    if count > len(lines):
        lines.append(f'<tr><td colspan="{len(columns)}"{_LEFT}>… {number_text(count - len(lines))} more</td></tr>')
    return _table(f"{title}: {number_text(count)}", f"<thead><tr>{head}</tr></thead>", lines)


# --- tables -------------------------------------------------------------------------------------------------------


def _table(title: str, head: str, lines: Iterable[str]) -> str:
    return f"{_TABLE}<caption{_LEFT}>{_cell(title)}</caption>{head}<tbody>{''.join(lines)}</tbody></table>"


def _items(name: str, value: Any) -> str:
    title = _words(name)
    if isinstance(value, Mapping):
        return rows(title, ["", "value"], value.items(), count=len(value))
    first = next(iter(value))
    names = _names(first)
    if names:
        return rows(title, names, ([getattr(it, key) for key in names] for it in value), count=len(value))
    return rows(title, [title], ([it] for it in value), count=len(value))


def _data(value: object, name: str = "") -> str:
    return f"<td{_LEFT}>{_cell(_text(value, name))}</td>"


def _cell(text: str) -> str:
    return escape(visible(shortened(text, MOST_TEXT)))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: object, name: str) -> str:
    """The value in words. `name` says what it is: a size has a unit."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            if name in _PLAIN:
                return str(value)
            return size_text(value) if value >= 0 and {"size", "bytes"} & {*name.split("_")} else number_text(value)
        case str():
            return value
        case datetime():
            return time_text(value)
        case timedelta():
            return age_text(value)
        case tuple() if all(isinstance(it, str | int) for it in value):
            return ", ".join(map(str, value[:MOST_ROWS]))
        case Mapping() | Sequence():
            return number_text(len(value))
    return repr(value)


# --- what an object has -------------------------------------------------------------------------------------------


def _fields(it: Any) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(it, field.name)) for field in fields(it) if field.repr)


def _names(it: object) -> list[str]:
    """The fields of a dataclass or of a named tuple; [] for other values."""
    if is_dataclass(it):
        return [field.name for field in fields(it) if field.repr]
    return list(getattr(it, "_fields", ()))


def _is_many(value: object) -> bool:
    """Whether the value is a collection, such as paths, and neither a text nor a named tuple."""
    is_one = isinstance(value, str | bytes) or hasattr(value, "_fields")
    return isinstance(value, Mapping | Sequence) and not is_one


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str | Mapping | Sequence) and len(value) == 0)


def _brief(value: Any) -> str:
    if not _is_many(value):
        return shortened(repr(value), MOST_TEXT)
    if isinstance(value, Mapping):
        items = [f"{key!r}: {_brief(it)}" for key, it in islice(value.items(), MOST_ITEMS)]
    else:
        items = [_brief(it) for it in islice(value, MOST_ITEMS)]
    items = [shortened(it, MOST_ITEM) for it in items]
    if len(value) > MOST_ITEMS:
        items.append(f"… {number_text(len(value) - MOST_ITEMS)} more")
    opening, closing = "{}" if isinstance(value, Mapping) else "()" if isinstance(value, tuple) else "[]"
    return f"{opening}{', '.join(items)}{closing}"
