"""The only writer of file references."""

from __future__ import annotations

import re
from typing import Any

from files_app.models import PATH_LENGTH, TYPE_LENGTH, FileReference
from mnesis_core.errors import InvalidRequest
from mnesis_core.events import EventType
from mnesis_core.ledger import MAX_INTEGER, new_salt
from mnesis_core.text import encode_text
from mnesis_core.values import new_id
from sessions_app.database.fast_sql import Table
from sessions_app.record.change import Change
from sessions_app.search import index

_FILES = Table(FileReference)
_CONTENT_ID = re.compile("[0-9a-f]{64}")


def store_file_reference(
    record: Change,
    *,
    content_id: str,
    path: str,
    file_type: str = "unknown",
    token_count: int = 0,
    exploration_summary: str | None = "",
    size: int | None = None,
    file_id: str | None = None,
) -> str:
    """Keep what is known of a file; returns the reference's id.

    The same again is the reference that is there, unless it is to have a ``file_id`` which was made before. Another
    summary of the same content is another reference: nothing is replaced (the seed's store replaces).

    :param exploration_summary: ``None`` while its exploration is still to come (``finish_exploration``)
    :param size: bytes
    :raises InvalidRequest: ``content_id`` is no SHA-256, the path or type is too long or the count out of range.
    """
    known = {
        "content_id": _checked(content_id),
        "path": _fitting("path", path, PATH_LENGTH),
        "file_type": _fitting("file_type", file_type, TYPE_LENGTH),
        "token_count": _counted(token_count),
        "exploration_summary": exploration_summary,
        "size": size,
    }
    if file_id is None and (there := _same(record, known)):
        return there
    row = _FILES.row(
        id=file_id or new_id("file"),
        session_id=record.session_id,
        added_seq=record.next_seq,
        after_message_seq=record.message_seq,
        created_at=record.now,
        salt=new_salt(),
        **known,
    )
    record.insert(_FILES, row)
    index.add_row(record, "files", row)
    record.publish(EventType.FILE_ADDED, file_id=row.id, token_count=token_count)
    return str(row.id)


def _same(record: Change, known: dict[str, Any]) -> str | None:
    """The newest reference to this content at this path, if nothing else is known of it."""
    at_path = {name: known[name] for name in ("content_id", "path")}
    newest = FileReference.objects.filter(session_id=record.session_id, **at_path).order_by("-added_seq").first()
    return str(newest.id) if newest is not None and _is_same(newest, known) else None


def finish_exploration(record: Change, file_id: str, *, summary: str, exploration: dict[str, Any]) -> bool:
    """Write what was found in a file, once; False if somebody has."""
    kept = {"exploration_summary": summary, "exploration": exploration}
    if not record.update(_FILES, kept, id=file_id, session_id=record.session_id, exploration_summary=None):
        return False
    row = FileReference.objects.get(id=file_id)
    row.exploration_summary = encode_text(summary)  # the index has texts as they are stored
    index.add_row(record, "files", row)
    record.publish(EventType.FILE_EXPLORED, file_id=file_id)
    return True


def _is_same(newest: FileReference, known: dict[str, Any]) -> bool:
    """Whether a row says the same; one whose exploration is to come, or has come, is that of the same content."""
    wanted = (
        known
        if known["exploration_summary"] is not None
        else known | {"exploration_summary": newest.exploration_summary}
    )
    return all(getattr(newest, name) == value for name, value in wanted.items())


def _checked(content_id: str) -> str:
    if not _CONTENT_ID.fullmatch(content_id):
        raise InvalidRequest("content_id must be a SHA-256: 64 hexadecimal digits in lower case", field="content_id")
    return content_id


def _fitting(name: str, text: str, limit: int) -> str:
    if len(encode_text(text)) > limit:
        raise InvalidRequest(f"{name} is longer than {limit:,} characters", field=name)
    return text


def _counted(tokens: int) -> int:
    if not 0 <= tokens <= MAX_INTEGER:
        raise InvalidRequest(f"token_count must lie between 0 and {MAX_INTEGER}", field="token_count")
    return tokens
