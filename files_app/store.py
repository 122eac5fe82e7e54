"""The only writer of file references."""

from __future__ import annotations

import re
from typing import Any

from django.utils.translation import gettext_noop

from files_app.models import PATH_LENGTH, TYPE_LENGTH, FileReference
from mnesis_core.errors import InvalidRequest
from mnesis_core.events import MAX_INTEGER, EventType
from mnesis_core.records import new_id
from mnesis_core.text import encode_text
from sessions_app.database.tables import Table
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
    exploration: dict[str, Any] | None = None,
) -> str:
    """Write what is known of a file; return the reference's id.

    An equal reference is reused, unless a ``file_id`` made before is given. Another summary of the same content makes
    another reference: nothing is replaced (the seed's store replaces).

    :param exploration_summary: ``None`` until ``finish_exploration``
    :param size: bytes
    :param exploration: of a file that is not explored later, such as a rendition
    :raises InvalidRequest: ``content_id`` is not a SHA-256, the path or type is too long or the count out of range.
    """
    if not _CONTENT_ID.fullmatch(content_id):
        raise InvalidRequest(
            gettext_noop("content_id must be a SHA-256: 64 hexadecimal digits in lower case"), field="content_id"
        )
    for name, text, limit in (("path", path, PATH_LENGTH), ("file_type", file_type, TYPE_LENGTH)):
        if len(encode_text(text)) > limit:
            raise InvalidRequest(
                gettext_noop("%(name)s is longer than %(most)s characters"), {"name": name, "most": limit}, field=name
            )
    if not 0 <= token_count <= MAX_INTEGER:
        raise InvalidRequest(
            gettext_noop("token_count must lie between 0 and %(most)s"),
            {"most": str(MAX_INTEGER)},
            field="token_count",
        )
    known: dict[str, Any] = {
        "content_id": content_id,
        "path": path,
        "file_type": file_type,
        "token_count": token_count,
        "size": size,
    }
    known |= {"exploration_summary": exploration_summary, "exploration": exploration}
    if file_id is None:
        rows = FileReference.objects.filter(session_id=record.session_id, content_id=content_id, path=path)
        newest = rows.order_by("-added_seq").first()
        # A file that is still to be explored equals an explored one of the same content.
        compared = known.keys() - ({"exploration_summary", "exploration"} if exploration_summary is None else set())
        if newest is not None and all(getattr(newest, name) == known[name] for name in compared):
            return str(newest.id)
    place = {"session_id": record.session_id, "added_seq": record.next_seq, "after_message_seq": record.message_seq}
    row = _FILES.row(id=file_id or new_id("file"), created_at=record.now, **place, **known)
    record.insert(_FILES, row)
    index.add_row(record, "files", row)
    record.publish(EventType.FILE_ADDED, file_id=row.id, token_count=token_count)
    return str(row.id)


def finish_exploration(record: Change, file_id: str, *, summary: str, exploration: dict[str, Any]) -> bool:
    """Write the result of an exploration, once; return False if it is already written."""
    kept = {"exploration_summary": summary, "exploration": exploration}
    if not record.update(_FILES, kept, id=file_id, session_id=record.session_id, exploration_summary=None):
        return False
    row = FileReference.objects.get(id=file_id)
    row.exploration_summary = encode_text(summary)  # the index has texts as they are stored
    index.add_row(record, "files", row)
    record.publish(EventType.FILE_EXPLORED, file_id=file_id)
    return True
