"""Foreign transcripts as core values. One module per format, all with the same ``parse`` (see ``Parser``).

Parsing is pure: no file is opened, no clock is read, nothing is stored. An unreadable record is kept as text.

    name = detect_format("session.jsonl", first_bytes)
    result = FORMATS[name](lines, name="session.jsonl")
"""

from __future__ import annotations

from mnesis_core.transcripts import chatgpt, claude_code, locomo, openai_chat
from mnesis_core.transcripts.claude_code import is_companion
from mnesis_core.transcripts.detection import detect_format
from mnesis_core.transcripts.values import (
    FORMAT_NAMES,
    LinkKind,
    NamedSource,
    Parser,
    ParseResult,
    Transcript,
    TranscriptMessage,
    TranscriptTurn,
)

FORMATS: dict[str, Parser] = {
    "chatgpt": chatgpt.parse,
    "claude_code": claude_code.parse,
    "locomo": locomo.parse,
    "openai_chat": openai_chat.parse,
}

__all__ = [
    "FORMATS",
    "FORMAT_NAMES",
    "LinkKind",
    "NamedSource",
    "ParseResult",
    "Transcript",
    "TranscriptMessage",
    "TranscriptTurn",
    "detect_format",
    "is_companion",
]
