"""Files of this machine that are sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

SMALL_BYTES = 4_194_304
"""A file up to here is sent in one request; a larger one by the tus protocol, which goes on after a break."""
PIECE_BYTES = 4_194_304
"""Of a larger one, in one request."""


class LocalFile:
    """A file that goes piece by piece, and the name that it has for the server."""

    def __init__(self, path: str | Path, name: str | None) -> None:
        self._path = Path(path)
        self.name = name or self._path.name
        self.size = self._path.stat().st_size

    def piece(self, offset: int) -> bytes:
        """The next bytes from an offset on."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(min(PIECE_BYTES, max(self.size - offset, 0)))

    def digest(self) -> str:
        """SHA-256 of its content: by which the server knows it."""
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def opened_files(paths: Sequence[str | Path]) -> Iterator[list[tuple[str, BinaryIO]]]:
    """Files and their names, open until they were sent."""
    with ExitStack() as stack:
        yield [(Path(path).name, stack.enter_context(Path(path).open("rb"))) for path in paths]
