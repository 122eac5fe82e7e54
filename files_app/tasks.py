"""Tasks for the worker. A task may run twice or late: what is written once says whether it is still to be done."""

from __future__ import annotations

from contextlib import suppress
from time import sleep
from typing import Any

from files_app.exploring import explore_file
from mnesis_core.errors import NotFound

LOOK_SECONDS = 1.0


def explore(file_id: str, *, owner_id: int, **_later: Any) -> None:
    """Explore a file, unless somebody has."""
    # Of a session that was deleted meanwhile nobody asks.
    with suppress(NotFound):
        while not explore_file(file_id, owner_id=owner_id).is_explored:
            # A turn asks a model about it; should that process die, nobody else is left.
            sleep(LOOK_SECONDS)
