"""Importing what takes seconds only when it is needed, beside everything else that goes on."""

from __future__ import annotations

import asyncio
from importlib import import_module
from threading import Lock
from types import ModuleType

_ONE_AT_A_TIME = Lock()
_LOADED: dict[str, ModuleType] = {}


async def load(name: str) -> ModuleType:
    """A module of ours that needs a large package, imported in a thread at the first call.

    Never two at a time: the modules of some packages (the MCP SDK) import each other in circles, and two threads that enter such a circle
    at different places meet modules that are half made. Python breaks that deadlock with an ``ImportError``.
    """
    return _LOADED[name] if name in _LOADED else await asyncio.to_thread(_load, name)


def _load(name: str) -> ModuleType:
    with _ONE_AT_A_TIME:
        return _LOADED.setdefault(name, import_module(name))
