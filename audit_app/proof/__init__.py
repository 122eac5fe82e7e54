"""The proof of the record: chains, rows, directory, damage.

Here is what starts a helper process of a verification and keeps garbage collection out of its way. Helpers import this
before Django is set up, so it imports no models.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import django

# Verification leaves next to no garbage, and allocates the default threshold of 700 objects in a moment.
GC_THRESHOLD = 50_000


def set_up_helper() -> None:
    """Set Django up in a helper process, and freeze its garbage collector for good."""
    django.setup()
    _raise_threshold()


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Within the block, keep Python's garbage collector from scanning the objects that are loaded already."""
    usual = gc.get_threshold()
    _raise_threshold()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


def _raise_threshold() -> None:
    gc.freeze()  # scanning the loaded modules would take a tenth of the time
    gc.set_threshold(GC_THRESHOLD)
