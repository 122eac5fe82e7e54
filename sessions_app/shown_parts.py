"""One part as the session page shows it: the beginnings of its texts, never a whole long one, and what is made of them."""

from __future__ import annotations

import json
import re
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Length, Substr

from mnesis_core.attachments import GivenFile, given_file, referred_file
from mnesis_core.ids import is_id
from mnesis_core.outputs import file_of_output
from mnesis_core.text import ESCAPE, decode_text
from mnesis_core.visible import excerpt
from sessions_app.models import MessagePart
from sessions_app.rendering import (
    MARKDOWN_LIMIT,
    LongText,
    format_count,
    format_duration,
    render_markdown,
    show_invisible,
)
from sessions_app.shown import ShownPart

HEAD = 2_000
"""Characters of a folded text that come with its message."""
_FIRST_TEXT = re.compile(r':\s*"((?:[^"\\]|\\.)+)')
_CUT_ESCAPE = re.compile(f"{ESCAPE}[0-9A-F]{{0,3}}$")


def part_heads(rows: QuerySet[MessagePart]) -> QuerySet[MessagePart, dict[str, Any]]:
    """Rows of parts with the beginnings of their texts, for ``show_part``."""
    plain = ("id", "message_id", "part_index", "part_type", "label", "tool_name", "tool_state")
    times = ("started_at", "completed_at", "compacted_at", "decision_note")
    cut = {
        "content_head": Substr("content", 1, MARKDOWN_LIMIT),
        "content_length": Length("content"),
        "input_head": Substr("tool_input", 1, HEAD),
        "input_length": Length("tool_input"),
        "output_head": Substr("output", 1, HEAD),
        "output_length": Length("output"),
        "error_head": Substr("error_message", 1, HEAD),
        "error_length": Length("error_message"),
        "late_head": Substr("late_output", 1, HEAD),
        "late_length": Length("late_output"),
    }
    heads: QuerySet[MessagePart, dict[str, Any]] = rows.values(*plain, *times, **cut)
    return heads


def show_part(row: dict[str, Any]) -> ShownPart:
    """A row of ``part_heads`` as the page shows it."""
    kind = row["part_type"]
    if kind == "tool":
        return _tool(row)
    if kind in ("text", "reasoning", "patch", "data"):
        return _written(row)
    if kind == "file_ref":
        return _file(row, referred_file(_json(decode_text(row["content_head"]))))
    return ShownPart(id=row["id"], index=row["part_index"], kind=kind, label=_described(row))


def _written(row: dict[str, Any]) -> ShownPart:
    kind, head, length = row["part_type"], row["content_head"], row["content_length"]
    given = given_file(decode_text(head[:HEAD])) if kind == "text" else None
    if given:
        return _file(row, given)
    is_prose = kind == "text" and length <= MARKDOWN_LIMIT
    return ShownPart(
        id=row["id"],
        index=row["part_index"],
        kind=kind,
        label=show_invisible(decode_text(row["label"])),
        html=render_markdown(decode_text(head)) if is_prose else None,
        content=stretch(row["id"], "content", head if is_prose else head[:HEAD], offset=0, length=length),
    )


def _file(row: dict[str, Any], given: GivenFile) -> ShownPart:
    content = stretch(row["id"], "content", row["content_head"][:HEAD], offset=0, length=row["content_length"])
    detail = [given.file_type, f"{format_count(given.token_count)} tokens" if given.token_count else ""]
    return ShownPart(
        id=row["id"],
        index=row["part_index"],
        kind="file",
        label=show_invisible(given.path or given.file_id or "a file"),
        file_id=given.file_id if is_id(given.file_id) else "",
        detail=show_invisible(" · ".join(filter(None, detail))),
        content=content if row["part_type"] == "text" else None,
    )


def _tool(row: dict[str, Any]) -> ShownPart:
    started, completed = row["started_at"], row["completed_at"]
    return ShownPart(
        id=row["id"],
        index=row["part_index"],
        kind="tool",
        label=show_invisible(decode_text(row["tool_name"])) or "unnamed tool",
        state=row["tool_state"],
        preview=excerpt(first_words(decode_text(row["input_head"])), 120),
        input=_readable(_head_of(row, "input")),
        output=_head_of(row, "output"),
        error=_head_of(row, "error"),
        whole_file=file_of_output(decode_text(row["output_head"] or row["error_head"] or "")),
        late=_head_of(row, "late"),
        note=show_invisible(decode_text(row["decision_note"] or "")),
        duration=format_duration((completed - started).total_seconds()) if started and completed else "",
        running_since=started if row["tool_state"] == "running" else None,
        compacted_at=row["compacted_at"],
    )


def _head_of(row: dict[str, Any], field: str) -> LongText | None:
    head = row[f"{field}_head"]
    return stretch(row["id"], field, head, offset=0, length=row[f"{field}_length"]) if head is not None else None


def stretch(part_id: str, field: str, stored: str, *, offset: int, length: int) -> LongText:
    """What was read of a stored text from ``offset`` on; ``length`` is the whole text's, in stored characters."""
    end = offset + len(stored)
    if end < length:
        # Do not end inside an escape of the text codec.
        stored = _CUT_ESCAPE.sub("", stored) or stored
        end = offset + len(stored)
    return LongText(part_id=part_id, field=field, text=show_invisible(decode_text(stored)), end=end, length=length)


def _readable(text: LongText | None) -> LongText | None:
    """Arguments with line breaks and indents, where they are whole and JSON."""
    if text is None or text.rest:
        return text
    value = _json(text.text)
    if not isinstance(value, dict | list) or not value:
        return text
    pretty = json.dumps(value, indent=2, ensure_ascii=False)
    return LongText(
        part_id=text.part_id, field=text.field, text=show_invisible(pretty), end=text.end, length=text.length
    )


def first_words(arguments: str) -> str:
    """The first text among a call's arguments, which says most: a command, a path, a pattern. They may be cut off."""
    found = _FIRST_TEXT.search(arguments)
    if found is None:
        return "" if arguments in ("{}", "") else arguments
    text = _json(f'"{found[1]}"')
    return text if isinstance(text, str) else found[1]


def _described(row: dict[str, Any]) -> str:
    value = _json(decode_text(row["content_head"]))
    known = value if isinstance(value, dict) else {}
    if row["part_type"] == "compaction":
        return f"{known.get('compacted_message_count', 0)} messages were compacted here by the system this history comes from"
    return f"step {known.get('step_index', '')}"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
