"""Files of assistants: their bytes are kept once, and each version names those that its sessions are given (``files_app.given``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.utils.translation import gettext_noop

from files_app.contents import content_size, put_stream, read_content
from files_app.intake import room_of
from files_app.models import PATH_LENGTH
from mnesis_core.errors import FileReferenceNotFoundError, InvalidRequest
from mnesis_core.files.detection import MARK_BYTES, media_type_of
from mnesis_core.files.pictures import FORMATS
from mnesis_core.records import AssistantFileRecord, AssistantRecord, new_id
from mnesis_core.text import encode_text
from sessions_app.assistants.assistant_queries import load_assistant
from sessions_app.assistants.assistant_store import MOST_FILES

Upload = tuple[str, Iterable[bytes]]
"""A file that arrives in pieces: its path, and these."""


def keep_uploads(uploads: Sequence[Upload], *, owner_id: int) -> list[AssistantFileRecord]:
    """Keep the bytes of files for a version of an assistant that is to be made.

    :raises RequestTooLarge: a file is larger than files may be, or than what the account's files may still take.
    :raises InvalidRequest: a path is too long, or there are too many files.
    """
    if len(uploads) > MOST_FILES:
        raise InvalidRequest(gettext_noop("An assistant may have %(most)s files."), {"most": MOST_FILES}, field="file")
    if any(len(encode_text(path)) > PATH_LENGTH for path, _ in uploads):
        raise InvalidRequest(
            gettext_noop("path is longer than %(most)s characters"), {"most": PATH_LENGTH}, field="file"
        )
    kept: list[AssistantFileRecord] = []
    for path, chunks in uploads:
        room = room_of(owner_id, besides=sum(file.size for file in kept))
        content_id, size = put_stream(chunks, largest=room)
        kept.append(AssistantFileRecord(id=new_id("afile"), path=path, content_id=content_id, size=size))
    return kept


def load_assistant_file(assistant_id: str, file_id: str, *, user_id: int) -> AssistantFileRecord:
    """Return a file of an assistant's newest version.

    :raises AssistantNotFoundError: there is no such assistant, or this person may not use it.
    :raises FileReferenceNotFoundError: it has no such file.
    """
    files = load_assistant(assistant_id, user_id=user_id).files
    file = next((file for file in files if file.id == file_id), None)
    if file is None:
        raise FileReferenceNotFoundError(file_id=file_id)
    return file


def load_portrait(assistant: AssistantRecord | None) -> tuple[bytes, str]:
    """Return the bytes and the media type of a version's picture, which is what the bytes say.

    :raises FileReferenceNotFoundError: it has none.
    :raises FileContentNotFound: the bytes are not kept here.
    """
    if assistant is None or not assistant.picture:
        raise FileReferenceNotFoundError(file_id="picture")
    data = read_content(assistant.picture, 0, content_size(assistant.picture))
    media_type = media_type_of(data[:MARK_BYTES], "")
    if media_type not in FORMATS:
        raise FileReferenceNotFoundError(file_id="picture")
    return data, media_type
