"""Streams that write or read objects, and raise the failures of their clients as errors of this package."""

import io
from collections.abc import Callable
from typing import Any, BinaryIO

Guard = Callable[[Callable[[], Any]], Any]
"""Calls a function, and raises the errors of its client as errors of this package."""


class _Guarded(io.RawIOBase):
    """The stream that `open` returns, whose calls go through `guard`."""

    def __init__(self, open: Callable[[], BinaryIO], guard: Guard) -> None:
        self._guard = guard
        self._stream: BinaryIO = guard(open)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            if hasattr(self, "_stream"):  # it was opened
                self._guard(self._stream.close)


class Upload(_Guarded):
    """A stream whose opening, writing and closing are guarded."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        written: int = self._guard(lambda: self._stream.write(data))
        return written


class Download(_Guarded):
    """A stream of an object. Reading is guarded, too: it fetches most of the object, which may be gone by then.

    A read that ends before the object's end is a failure, because the caller would take it for the end.
    """

    def __init__(self, open: Callable[[], BinaryIO], guard: Guard) -> None:
        super().__init__(open, guard)
        self._size = self._stream.seek(0, io.SEEK_END)  # the size is known, so nothing is fetched
        self._stream.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        def read() -> bytes:
            rest = max(0, self._size - self._stream.tell())
            found = self._stream.read(size)
            if len(found) < (wanted := rest if size < 0 else min(size, rest)):
                raise OSError(f"the answer ended after {len(found)} of {wanted} bytes")
            return found

        found: bytes = self._guard(read)
        return found

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)
