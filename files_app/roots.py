"""Files of this machine that may be taken in by path: those under the site's roots (``MNESIS_FILE_ROOTS``), nothing else.

Every folder on the way is opened from the one before, and a symbolic link is never followed: between a look at a path
and its opening somebody may put a link in its place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

from django.conf import settings

from mnesis_core.errors import FileNotAllowed

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not to wait for whoever writes into a pipe; a pipe is refused below.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_allowed(path: str) -> IO[bytes]:
    """An ordinary file under one of the roots, to be read.

    :raises FileNotAllowed: it is under no root, is reached by a link, is no ordinary file, or is not there.
    """
    for root in settings.MNESIS["FILE_ROOTS"]:
        if (steps := _steps_below(path, root)) is not None:
            return _open_below(root, steps, path)
    raise FileNotAllowed(path=path)


def _steps_below(path: str, root: Path) -> tuple[str, ...] | None:
    """The names from the root to the file; ``None`` where the path leads elsewhere or goes back."""
    wanted = PurePosixPath(path)
    if "\0" in path or ".." in wanted.parts or not wanted.is_relative_to(root) or wanted == PurePosixPath(root):
        return None
    return wanted.relative_to(root).parts


def _open_below(root: Path, steps: tuple[str, ...], path: str) -> IO[bytes]:
    try:
        with ExitStack() as opened:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, folder)
            for step in steps[:-1]:
                folder = os.open(step, _FOLDER, dir_fd=folder)
                opened.callback(os.close, folder)
            handle = os.open(steps[-1], _FILE, dir_fd=folder)
    except (OSError, ValueError):
        raise FileNotAllowed(path=path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotAllowed(path=path)
    return os.fdopen(handle, "rb")


def chunks_of(file: IO[bytes], size: int) -> Iterator[bytes]:
    """What is in a file, so many bytes at a time."""
    while data := file.read(size):
        yield data
