"""Foreign transcripts as core values. One module per format, all with the same ``parse`` (see ``Parser``).

Parsing is pure: no file is opened, no clock is read, nothing is stored. An unreadable record is kept as text.

    name = detect_format("session.jsonl", first_bytes)
    result = FORMATS[name](lines, name="session.jsonl")
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from mnesis_core.errors import InvalidRequest, gettext_noop
from mnesis_core.transcripts import autobyteus, chatgpt, claude_code, locomo, openai_chat
from mnesis_core.transcripts.autobyteus import TRACE_TYPES
from mnesis_core.transcripts.reading import UnreadableRecord, load_json, one_line
from mnesis_core.transcripts.values import FORMAT_NAMES, Parser

FORMATS: dict[str, Parser] = {
    "autobyteus": autobyteus.parse,
    "chatgpt": chatgpt.parse,
    "claude_code": claude_code.parse,
    "locomo": locomo.parse,
    "openai_chat": openai_chat.parse,
}
_GZIP = b"\x1f\x8b"
_LINES_LOOKED_AT = 20
_CLAUDE_CODE_TYPES = ("file-history-snapshot", "queue-operation", "summary", "custom-title", "ai-title")

# A quote inside a JSON string stands after a backslash, so these find keys and never text about them.
_KEYS = (
    ("autobyteus", re.compile(r'"trace_type"\s*:\s*"(user|assistant|tool_call|tool_result)"')),
    ("claude_code", re.compile(r'"(parentUuid|isSidechain|leafUuid|isSnapshotUpdate)"\s*:')),
    ("chatgpt", re.compile(r'"mapping"\s*:\s*\{|"current_node"\s*:')),
    ("locomo", re.compile(r'"(speaker_a|dia_id|session_1_date_time)"\s*:|"qa"\s*:\s*\[')),
    ("openai_chat", re.compile(r'"messages"\s*:\s*\[|"role"\s*:\s*"(system|developer|user|assistant|tool|function)"')),
)
_RECORDS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    ("autobyteus", lambda record: record.get("trace_type") in TRACE_TYPES),
    ("claude_code", lambda record: "type" in record and bool({"parentUuid", "sessionId", "uuid"} & record.keys())),
    ("claude_code", lambda record: record.get("type") in _CLAUDE_CODE_TYPES),
    ("chatgpt", lambda record: isinstance(record.get("mapping"), dict)),
    ("locomo", lambda record: isinstance(record.get("conversation"), dict)),
    ("openai_chat", lambda record: "role" in record or isinstance(record.get("messages"), list)),
)


def detect_format(name: str, first_bytes: bytes) -> str:
    """Return the name of a file's format.

    :param name: the file's name, used only if the content is ambiguous
    :param first_bytes: the file's beginning, possibly compressed with gzip; 64 KiB are enough
    :raises InvalidRequest: the file is empty or of no known format
    """
    if first_bytes.startswith(_GZIP):
        try:
            first_bytes = zlib.decompressobj(wbits=31).decompress(first_bytes, 262_144)
        except zlib.error:
            first_bytes = b""
    text = first_bytes.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if not text:
        raise InvalidRequest(
            gettext_noop("'%(name)s' is empty."), {"name": one_line(name, 200)}, formats=list(FORMAT_NAMES)
        )
    for line in text.split("\n")[:_LINES_LOOKED_AT]:
        try:
            record = load_json(line)
        except UnreadableRecord:
            continue
        first = record[0] if isinstance(record, list) and record else record
        if isinstance(first, dict) and (fitting := [format_name for format_name, fits in _RECORDS if fits(first)]):
            return fitting[0]
    found = next((format_name for format_name, key in _KEYS if key.search(text)), "")
    if found or PurePath(name).name == "conversations.json":
        return found or "chatgpt"
    raise InvalidRequest(
        gettext_noop(
            "'%(name)s' is no transcript of a known format. Formats: %(formats)s. What 'manage.py export' wrote is brought in by import_session."
        ),
        {"name": one_line(name, 200), "formats": ", ".join(FORMAT_NAMES)},
        formats=list(FORMAT_NAMES),
    )
