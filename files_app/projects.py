"""Files of projects, which each session of the project is given (``files_app.given``)."""

from __future__ import annotations

from collections.abc import Iterable

from files_app.contents import put_stream
from files_app.intake import room_of
from files_app.models import ProjectFile
from files_app.project_store import MOST_FILES, put_project_file, remove_project_file
from mnesis_core.errors import FileReferenceNotFoundError
from mnesis_core.records import ProjectFileRecord, record_of
from sessions_app.record.projects.project_queries import load_project
from sessions_app.record.projects.project_store import load_own_project


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
    return [record_of(ProjectFileRecord, row) for row in rows[:MOST_FILES]]


def load_project_file(project_id: str, file_id: str, *, user_id: int) -> ProjectFileRecord:
    """:raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    :raises FileReferenceNotFoundError: the project has no such file.
    """
    load_project(project_id, user_id=user_id)
    row = ProjectFile.objects.filter(project_id=project_id, pk=file_id).first()
    if row is None:
        raise FileReferenceNotFoundError(file_id=file_id)
    return record_of(ProjectFileRecord, row)
