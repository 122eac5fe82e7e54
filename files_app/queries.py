"""Reads of file references, always of one session or of one owner's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Max, QuerySet, Sum

from files_app.contents import content_size, read_content
from files_app.models import FileReference as Row
from mnesis_core.errors import FileContentNotFound, FileReferenceNotFoundError, InvalidRequest
from mnesis_core.records import FileRange, FileReference
from mnesis_core.text import LONGEST_CHARACTER, character_start, encode_text


def load_file_reference(file_id: str, *, session_id: str | None = None, owner_id: int | None = None) -> FileReference:
    """:raises FileReferenceNotFoundError: there is no such file there."""
    row = _scope(session_id, owner_id).filter(id=file_id).first()
    if row is None:
        raise FileReferenceNotFoundError(file_id=file_id)
    return _value(row)


def load_file_references(file_ids: Sequence[str], *, session_ids: Sequence[str]) -> dict[str, FileReference]:
    rows = Row.objects.filter(session__deleted_at__isnull=True, session_id__in=session_ids)
    rows = rows.filter(id__in=list(file_ids))
    return {row.id: _value(row) for row in rows}


def find_file_by_content(
    content_id: str, *, session_id: str | None = None, owner_id: int | None = None
) -> FileReference | None:
    """Return the newest reference to this content (SHA-256, 64 hexadecimal digits)."""
    return _newest(session_id, owner_id, content_id=content_id)


def find_file_by_path(path: str, *, session_id: str | None = None, owner_id: int | None = None) -> FileReference | None:
    return _newest(session_id, owner_id, path=path)


def list_contents(session_id: str, *, using: str = "default") -> dict[str, str]:
    """Return each content of a session's files, deleted or not, with a path of it, in order of content ids."""
    rows = Row.objects.using(using).filter(session_id=session_id).order_by("content_id", "-added_seq")
    return dict(rows.values_list("content_id", "path"))


def list_files(
    *, owner_id: int, session_id: str | None = None, query: str = "", before: str | None = None, limit: int = 50
) -> list[FileReference]:
    """Return files of one owner, or of one of their sessions, newest first, before the file ``before``.

    :param query: part of their paths, in any case
    """
    rows = _scope(session_id, owner_id)
    if query:
        rows = rows.filter(path__icontains=encode_text(query))
    if before is not None:
        rows = rows.filter(id__lt=before)
    return [_value(row) for row in rows.order_by("-id")[:limit]]


def versions_of(file: FileReference) -> list[FileReference]:
    rows = _scope(file.session_id, None).filter(path=file.path)
    return [_value(row) for row in rows.order_by("added_seq")]


def find_exploration(
    content_id: str, *, file_type: str, explorer: str, model: str = "", prompt_version: str = ""
) -> FileReference | None:
    """Return a file of this content, of any account, that this explorer has explored.

    With ``model``, one that this model has described by this prompt; else one that no model was asked about.
    """
    rows = Row.objects.filter(content_id=content_id, file_type=file_type, exploration__explorer=explorer)
    if model:
        asked = {"model": model, "prompt": prompt_version, "problem": ""}
        rows = rows.filter(**{f"exploration__prose__{name}": value for name, value in asked.items()})
    else:
        rows = rows.filter(exploration__prose__isnull=True)
    row = rows.order_by("-id").first()
    return None if row is None else _value(row)


def read_of_session(session_id: str, content_id: str, offset: int, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a content of a session's file, deleted or not.

    :raises FileContentNotFound: no file of the session has it, or it is not kept here.
    """
    if not Row.objects.filter(session_id=session_id, content_id=content_id, size__isnull=False).exists():
        raise FileContentNotFound(content_id=content_id)
    return read_content(content_id, offset, limit)


def is_waiting(file_id: str) -> bool:
    return Row.objects.filter(id=file_id, exploration_summary__isnull=True).exists()


def bytes_of_person(owner_id: int) -> int:
    """Return the size of an account's files, each content once."""
    rows = Row.objects.filter(session__owner_id=owner_id, session__deleted_at__isnull=True, size__isnull=False)
    contents = rows.values("content_id").annotate(bytes=Max("size"))
    return contents.aggregate(total=Sum("bytes"))["total"] or 0


def kept_contents(session_id: str, *, using: str = "default") -> set[str]:
    """Return the contents of a session's files that were kept here; others were only ever named."""
    rows = Row.objects.using(using).filter(session_id=session_id, size__isnull=False)
    return set(rows.values_list("content_id", flat=True))


def read_range(
    file_id: str, *, offset: int = 0, limit: int, session_id: str | None = None, owner_id: int | None = None
) -> FileRange:
    """Return at most ``limit`` bytes of a file from ``offset`` on, of a session, or of one owner's sessions.

    No UTF-8 character is cut, so the range may begin and end up to three bytes earlier.

    :raises FileReferenceNotFoundError: there is no such file there.
    :raises FileContentNotFound: its content is not kept here.
    :raises InvalidRequest: ``offset`` is negative, or ``limit`` smaller than the longest character (4).
    """
    if offset < 0 or limit < LONGEST_CHARACTER:
        raise InvalidRequest(f"offset must be at least 0 and limit at least {LONGEST_CHARACTER}", field="offset")
    file = load_file_reference(file_id, session_id=session_id, owner_id=owner_id)
    size = content_size(file.content_id)
    begin = min(offset, size)
    before = max(0, begin - LONGEST_CHARACTER)
    around = read_content(file.content_id, before, limit + 2 * LONGEST_CHARACTER)
    first = character_start(around, begin - before)
    last = character_start(around, first + limit)
    return FileRange(file=file, data=around[first:last], offset=before + first, size=size)


def _scope(session_id: str | None, owner_id: int | None) -> QuerySet[Any]:
    if session_id is None and owner_id is None:
        raise ValueError("session_id or owner_id is required")
    rows: QuerySet[Any] = Row.objects.filter(session__deleted_at__isnull=True)
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    return rows if owner_id is None else rows.filter(session__owner_id=owner_id)


def _newest(session_id: str | None, owner_id: int | None, **where: str) -> FileReference | None:
    rows = _scope(session_id, owner_id).filter(**where)
    # Only time orders files of different sessions.
    row = rows.order_by("-created_at" if session_id is None else "-added_seq", "-id").first()
    return None if row is None else _value(row)


def _value(row: Row) -> FileReference:
    return FileReference(
        id=row.id,
        session_id=row.session_id,
        content_id=row.content_id,
        path=row.path,
        file_type=row.file_type,
        token_count=row.token_count,
        exploration_summary=row.exploration_summary or "",
        created_at=row.created_at,
        size=row.size,
        exploration=row.exploration,
        is_explored=row.exploration_summary is not None,
    )
