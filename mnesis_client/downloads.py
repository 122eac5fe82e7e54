"""A file of this machine that is written as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that has its name only once it is whole: what breaks off leaves nothing, and an older one as it was."""
    target = Path(path)
    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            yield file
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).replace(target)
