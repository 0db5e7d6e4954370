"""A sequence that is read when it is first needed."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

_T = TypeVar("_T")


class Late(Sequence[_T]):
    """The items that `read` returns. It is called once, for the first of them."""

    def __init__(self, read: Callable[[], Sequence[_T]]) -> None:
        self._read = read

    @cached_property
    def _items(self) -> tuple[_T, ...]:
        return tuple(self._read())

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_T]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._items == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._items,)
