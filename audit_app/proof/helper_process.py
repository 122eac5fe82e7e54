"""How a process that helps to verify starts. Imported before Django is set up there, so it imports no models."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import django

OBJECTS_BETWEEN_LOOKS = 50_000
"""Of Python's collector: verifying leaves next to no garbage, and makes the usual 700 objects in a moment."""


def start() -> None:
    """Set Django up, and have little looked through for garbage."""
    django.setup()
    _look_seldom()


@contextmanager
def little_garbage() -> Iterator[None]:
    """What ``start`` does, for the length of the block."""
    usual = gc.get_threshold()
    _look_seldom()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


def _look_seldom() -> None:
    gc.freeze()  # looking through what was loaded would take a tenth of the time
    gc.set_threshold(OBJECTS_BETWEEN_LOOKS)
