"""A file object for pyarrow that has only the byte ranges which were fetched."""

import io
from collections.abc import Mapping


class Pieces(io.RawIOBase):
    """A file with only some byte ranges, given by their offsets. Reading any other byte raises OSError."""

    def __init__(self, size: int, pieces: Mapping[int, bytes | memoryview]) -> None:
        self._size, self._at = size, 0
        self._pieces = sorted((at, memoryview(body)) for at, body in pieces.items())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        found = list[memoryview]()
        while self._at < end:
            start, body = next(
                ((at, it) for at, it in self._pieces if at <= self._at < at + len(it)), (0, memoryview(b""))
            )
            if not body:
                raise OSError(f"byte {self._at} was not fetched")
            piece = body[self._at - start : end - start]
            found.append(piece)
            self._at += len(piece)
        return b"".join(found)
