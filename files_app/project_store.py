"""The only writer of files of projects."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from files_app.models import PATH_LENGTH, ProjectFile
from mnesis_core.errors import FileReferenceNotFoundError, InvalidRequest
from mnesis_core.records import new_id
from mnesis_core.text import encode_text

MOST_FILES = 50  # as many as a message may have


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
        if files.count() >= MOST_FILES:
            raise InvalidRequest(gettext_noop("A project may have %(most)s files."), {"most": MOST_FILES}, field="file")
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
