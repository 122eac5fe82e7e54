"""Files that a turn is given: looked at before it begins, and put into the user's message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from files_app.contents import content_size, read_content
from files_app.exploring import explore_file
from files_app.queries import load_file_reference, versions_of
from mnesis_core.attachments import part_of_file
from mnesis_core.errors import FileContentNotFound, InvalidRequest
from mnesis_core.messages import Part
from mnesis_core.record import FileReference
from mnesis_core.text import text_of_bytes
from sessions_app.conf import session_config, site_config
from sessions_app.database import db, work
from sessions_app.queries import load_session

MOST_FILES = 50
"""Of one message."""
WORKER_SECONDS = 3.0
"""How long a worker has for an exploration before this process has it made: there may be none."""
LOOK_SECONDS = 0.1


async def explored(session_id: str, file_ids: Sequence[str], *, owner_id: int) -> None:
    """Wait until these files of a session are explored, for ``files.wait_seconds`` at the most.

    :raises FileReferenceNotFoundError: the session has no such file.
    :raises InvalidRequest: there are too many.
    """
    if not file_ids:
        return
    if len(file_ids) > MOST_FILES:
        raise InvalidRequest(f"a message may have {MOST_FILES} files", field="files")
    waiting = [file for file in await db(_load, session_id, file_ids, owner_id) if not file.is_explored]
    if not waiting:
        return
    try:
        async with asyncio.timeout(site_config().files.wait_seconds):
            await asyncio.gather(*(_explored(file, owner_id) for file in waiting))
    except TimeoutError:
        pass  # the message says that they were not explored yet


async def _explored(file: FileReference, owner_id: int) -> None:
    is_explored = False
    while not is_explored:
        for _ in range(int(WORKER_SECONDS / LOOK_SECONDS)):
            if (await db(load_file_reference, file.id, owner_id=owner_id)).is_explored:
                return
            await asyncio.sleep(LOOK_SECONDS)
        # It is not while a worker asks a model about it.
        is_explored = (await work(explore_file, file.id, owner_id=owner_id)).is_explored


def parts_of_files(session_id: str, file_ids: Sequence[str], *, owner_id: int) -> tuple[Part, ...]:
    """The parts of a message that give a model these files: short texts whole, others by reference.

    :raises FileReferenceNotFoundError: the session has no such file.
    """
    threshold = session_config(load_session(session_id).config).files.inline_threshold if file_ids else 0
    return tuple(_part(file, threshold) for file in _load(session_id, file_ids, owner_id))


def _load(session_id: str, file_ids: Sequence[str], owner_id: int) -> list[FileReference]:
    return [load_file_reference(id, session_id=session_id, owner_id=owner_id) for id in dict.fromkeys(file_ids)]


def _part(file: FileReference, threshold: int) -> Part:
    def read() -> str:
        return text_of_bytes(read_content(file.content_id, 0, content_size(file.content_id)))

    same_path = versions_of(file)
    try:
        return part_of_file(file, read, threshold=threshold, same_path=same_path)
    except FileContentNotFound:
        return part_of_file(file, read, threshold=0, same_path=same_path)
