"""Files of this machine that are uploaded, imported or written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, BinaryIO

PIECE_BYTES = 4_194_304
"""A larger file is uploaded in pieces of this size by the tus protocol, which resumes after a break."""


class LocalFile:
    """A file that is uploaded piece by piece, and the name that it gets on the server."""

    def __init__(self, path: str | Path, name: str | None) -> None:
        self._path = Path(path)
        self.name = name or self._path.name
        self.size = self._path.stat().st_size

    def piece(self, offset: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(min(PIECE_BYTES, max(self.size - offset, 0)))

    def digest(self) -> str:
        """Return the SHA-256 of the content, which is the server's ``content_id``."""
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def opened_files(paths: Sequence[str | Path]) -> Iterator[list[tuple[str, BinaryIO]]]:
    """Keep files open, each with its name, until they were sent."""
    with ExitStack() as stack:
        yield [(Path(path).name, stack.enter_context(Path(path).open("rb"))) for path in paths]


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Write a file that gets its name only once it is whole: a failure leaves an older file as it was."""
    target = Path(path)
    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            yield file
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(target)
