"""The worker's task. Do not rename it: rows of the queue name it, and nothing queues an exploration again."""

from __future__ import annotations

from contextlib import suppress
from time import sleep
from typing import Any

from files_app.intake import explore_file
from mnesis_core.actor import read_actor
from mnesis_core.errors import NotFound
from sessions_app.record.actor import acting_as

LOOK_SECONDS = 1.0


def explore(file_id: str, *, owner_id: int, actor: str = "", **_later: Any) -> None:
    """Explore a file. The task may run twice or late, since an exploration is written once."""
    with acting_as(read_actor(actor).later("exploration")), suppress(NotFound):  # its session was deleted meanwhile
        while not explore_file(file_id, owner_id=owner_id).is_explored:
            # A turn's process asks a model about it; this worker takes over if that process dies.
            sleep(LOOK_SECONDS)
