"""Streams to objects that are being written, and from such that are read, whose failures are errors of this package."""

import io
from collections.abc import Callable
from typing import Any, BinaryIO

Guard = Callable[[Callable[[], Any]], Any]
"""Calls a function and translates what its client raises."""


class _Guarded(io.RawIOBase):
    """The stream that `open` gives, which goes through `guard`."""

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
    """Writing to it and closing it are guarded, as opening it is."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        written: int = self._guard(lambda: self._stream.write(data))
        return written


class Download(_Guarded):
    """Of an object that is there: most of it is fetched when it is read, and may be gone by then."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        found: bytes = self._guard(lambda: self._stream.read(size))
        return found

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)  # the size is known, so that nothing is fetched
