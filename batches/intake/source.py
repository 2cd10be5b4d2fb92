"""A file that can be read from its start as often as needed, in chunks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batches.domain.errors import InvalidInputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 1024 * 1024


class FileRefusedError(InvalidInputError):
    """The file as a whole cannot be used; its problem says what it is and what cures it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A name and a way to read the bytes from the start again."""

    name: str
    open: Callable[[], Iterator[bytes]]


def source_of(name: str, data: bytes, chunk: int = CHUNK_BYTES) -> Source:
    """A source over bytes in memory."""

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(data), chunk):
            yield data[start : start + chunk]

    return Source(name, pieces)


def rechunk(pieces: Iterable[bytes], size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The same bytes in pieces of exactly `size`, the last one shorter."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


class ChunkReader(io.RawIOBase):
    """An iterator of chunks as a raw stream, so that the io module can buffer and decode it."""

    def __init__(self, chunks: Iterator[bytes], skip: int = 0) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        while skip > 0:
            chunk = next(chunks, b"")
            if not chunk:
                break
            self._rest = memoryview(chunk)[skip:]
            skip -= len(chunk)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        view = memoryview(buffer)
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
