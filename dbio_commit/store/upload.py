"""A stream to an object that is being written, whose failures are errors of this package."""

import io
from collections.abc import Callable
from typing import Any, BinaryIO

Guard = Callable[[Callable[[], Any]], Any]
"""Calls a function and translates what its client raises."""


class Upload(io.RawIOBase):
    """The stream that `open` gives; writing to it and closing it go through `guard`, as opening it does."""

    def __init__(self, open: Callable[[], BinaryIO], guard: Guard) -> None:
        self._guard = guard
        self._stream: BinaryIO = guard(open)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        written: int = self._guard(lambda: self._stream.write(data))
        return written

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            if hasattr(self, "_stream"):  # it was opened
                self._guard(self._stream.close)
