"""Places for workers that work on runs: so many of a machine's workers do at a time, the others are for other jobs.

A place is a lock on a file, which the kernel takes back when its holder dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

_FOLDER = "operators"


@contextmanager
def place(count: int) -> Iterator[bool]:
    """Take one of so many places for the length of the block; False where none is free."""
    handle = next(filter(None, (_take(number) for number in range(count))), None)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def _take(number: int) -> int | None:
    """The handle of a locked file; closing it gives the place back."""
    folder = Path(settings.DATA_DIR) / _FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / f"worker-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    os.close(handle)
    return None
