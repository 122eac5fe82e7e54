"""Files that sessions are given by their project and their assistant: kept once, and referred to when the next turn
begins. The only writer of files of projects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from files_app.contents import content_size, put_stream, read_content
from files_app.intake import refer, room_of
from files_app.models import PATH_LENGTH, FileReference, ProjectFile
from mnesis_core.errors import FileReferenceNotFoundError, InvalidRequest
from mnesis_core.files.detection import MARK_BYTES, media_type_of
from mnesis_core.files.pictures import FORMATS
from mnesis_core.records import (
    AssistantFileRecord,
    AssistantRecord,
    ProjectFileRecord,
    SessionRecord,
    new_id,
    record_of,
)
from mnesis_core.text import encode_text
from sessions_app.assistants.assistant_store import MOST_FILES, files_given_to, load_assistant
from sessions_app.record.project_store import load_own_project, load_project

MOST_PROJECT_FILES = 50  # as many as a message may have
Upload = tuple[str, Iterable[bytes]]
"""A file that arrives in pieces: its path, and these."""


def put_project_file(project_id: str, *, path: str, content_id: str, size: int) -> str:
    """Add a file to a project, in place of one at the same path, and return its id.

    :raises InvalidRequest: the path is too long, or the project has too many files.
    """
    if len(encode_text(path)) > PATH_LENGTH:
        raise InvalidRequest(
            gettext_noop("path is longer than %(most)s characters"), {"most": PATH_LENGTH}, field="file"
        )
    with transaction.atomic():
        files = ProjectFile.objects.filter(project_id=project_id)
        files.filter(path=path).delete()
        if files.count() >= MOST_PROJECT_FILES:
            raise InvalidRequest(
                gettext_noop("A project may have %(most)s files."), {"most": MOST_PROJECT_FILES}, field="file"
            )
        row = files.create(
            id=new_id("pfile"),
            project_id=project_id,
            path=path,
            content_id=content_id,
            size=size,
            added_at=timezone.now(),
        )
    return str(row.id)


def remove_project_file(project_id: str, file_id: str) -> None:
    """:raises FileReferenceNotFoundError: the project has no such file."""
    gone, _ = ProjectFile.objects.filter(project_id=project_id, pk=file_id).delete()
    if not gone:
        raise FileReferenceNotFoundError(file_id=file_id)


# Files of projects, which each session of the project is given.


def keep_project_file(project_id: str, *, owner_id: int, path: str, chunks: Iterable[bytes]) -> ProjectFileRecord:
    """Keep a file that arrives in pieces for a project, in place of one at the same path.

    :raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    :raises ProjectNotYours: this person is not its owner.
    :raises RequestTooLarge: the file is larger than files may be, or than what the account's files may still take.
    :raises InvalidRequest: the path is too long, or the project has too many files.
    """
    load_own_project(project_id, owner_id=owner_id)
    content_id, size = put_stream(chunks, largest=room_of(owner_id))
    file_id = put_project_file(project_id, path=path, content_id=content_id, size=size)
    return load_project_file(project_id, file_id, user_id=owner_id)


def drop_project_file(project_id: str, file_id: str, *, owner_id: int) -> None:
    """Give a file to no more sessions of a project; those that have it keep it.

    :raises ProjectNotFoundError, ProjectNotYours: as ``keep_project_file`` does.
    :raises FileReferenceNotFoundError: the project has no such file.
    """
    load_own_project(project_id, owner_id=owner_id)
    remove_project_file(project_id, file_id)


def list_project_files(project_id: str, *, user_id: int) -> list[ProjectFileRecord]:
    """Return the files of a project, in the order in which they were added.

    :raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    """
    load_project(project_id, user_id=user_id)
    rows = ProjectFile.objects.filter(project_id=project_id).order_by("pk")
    return [record_of(ProjectFileRecord, row) for row in rows[:MOST_PROJECT_FILES]]


def load_project_file(project_id: str, file_id: str, *, user_id: int) -> ProjectFileRecord:
    """:raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    :raises FileReferenceNotFoundError: the project has no such file.
    """
    load_project(project_id, user_id=user_id)
    row = ProjectFile.objects.filter(project_id=project_id, pk=file_id).first()
    if row is None:
        raise FileReferenceNotFoundError(file_id=file_id)
    return record_of(ProjectFileRecord, row)


# Files of assistants: their bytes are kept once, and each version names those that its sessions are given
# .


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


# Files that a session is given by its project and its assistant: kept once, and referred to when its next turn begins.


def refer_to_given_files(session: SessionRecord) -> list[str]:
    """Let a session refer to the files of its project and its assistant; return the ids of those that no message has brought yet.

    That is said of a reference behind which there is a message. So none are made while a turn runs, whose messages bring
    nothing.

    :raises SessionArchived: it takes nothing new.
    """
    if session.running_turn_id:
        return []
    found: list[AssistantFileRecord | ProjectFile] = list(files_given_to(session))
    if session.project_id:
        found += ProjectFile.objects.filter(project_id=session.project_id).order_by("pk")
    given = {(file.content_id, file.path): file for file in found}
    known = FileReference.objects.filter(session_id=session.id, content_id__in=[id for id, _ in given])
    there = {(row.content_id, row.path): row for row in known} if given else {}
    files = []
    for place, file in given.items():
        row = there.get(place)
        if row is None:
            of = session.owner_id
            new = refer(session.id, owner_id=of, path=file.path, content_id=file.content_id, size=file.size)
            files.append(new.id)
        elif row.after_message_seq == session.message_seq:
            files.append(str(row.id))
    return files
