"""Short ways to write foreign transcripts in tests, and to look at what became of them."""

from __future__ import annotations

import json
from typing import Any

from mnesis_core.messages import DataPart, TextPart, ToolPart
from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.values import ParseResult, Transcript, TranscriptMessage

SECOND = 1_700_000_000
CLOCK = "2026-02-10T21:00:{:02d}.000Z"


def parsed(format_name: str, *records: Any, **options: Any) -> ParseResult:
    """Parse records as JSON Lines; a record that is text stands as it is."""
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    return FORMATS[format_name](lines, **options)


def only(result: ParseResult) -> Transcript:
    """The one transcript of a result, once its account is seen to be in balance."""
    assert_balanced(result)
    assert len(result.transcripts) == 1
    return result.transcripts[0]


def assert_balanced(result: ParseResult) -> None:
    """Check that the records read of each kind are those stored and those skipped."""
    report = result.report
    for kind, count in report.read.items():
        skipped = sum(each.count for each in report.skipped if each.kind == kind)
        assert count == report.stored.get(kind, 0) + skipped, kind
    assert set(report.stored) <= set(report.read)


def notes(result: ParseResult) -> dict[str, int]:
    """The notes of the report."""
    return {note.text: note.count for note in result.report.notes}


def messages(transcript: Transcript) -> list[TranscriptMessage]:
    """All messages in order."""
    return list(transcript.messages)


def tree(transcript: Transcript) -> list[tuple[str, list[str]]]:
    """Return what each turn continues, with the ids of its messages."""
    return [(turn.continues, [message.external_id for message in turn.messages]) for turn in transcript.turns]


def spoken(transcript: Transcript) -> list[tuple[str, list[str]]]:
    """Role and texts of every message."""
    return [(message.role, texts(message)) for message in transcript.messages]


def texts(message: TranscriptMessage) -> list[str]:
    """The texts of one message."""
    return [part.text for part in message.parts if isinstance(part, TextPart)]


def tools(transcript: Transcript) -> list[ToolPart]:
    """All tool calls in order."""
    return [part for message in transcript.messages for part in message.parts if isinstance(part, ToolPart)]


def data(message: TranscriptMessage, label: str) -> list[str]:
    """The texts of a message's data parts of one label."""
    return [part.text for part in message.parts if isinstance(part, DataPart) and part.label == label]


def labels(message: TranscriptMessage) -> list[str]:
    """The labels of a message's data parts in order."""
    return [part.label for part in message.parts if isinstance(part, DataPart)]


def everything(result: ParseResult) -> str:
    """All that a result holds, as one text to search in."""
    return "\n".join(repr(transcript) for transcript in result.transcripts)


def said(uuid: str, content: Any, second: int = 0, **fields: Any) -> dict[str, Any]:
    """A Claude Code record of the user."""
    record = {"type": "user", "uuid": uuid, "parentUuid": None, "sessionId": "S", "isSidechain": False}
    return {**record, "timestamp": CLOCK.format(second), "message": {"role": "user", "content": content}, **fields}


def answered(uuid: str, message_id: str, *blocks: Any, second: int = 0, **message: Any) -> dict[str, Any]:
    """A Claude Code record of the assistant."""
    body = {"id": message_id, "role": "assistant", "model": "claude-x", "content": list(blocks), **message}
    record = {"type": "assistant", "uuid": uuid, "parentUuid": None, "sessionId": "S", "isSidechain": False}
    return {**record, "timestamp": CLOCK.format(second), "message": body}


def text(words: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": words}


def tool_use(call_id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    """A tool call block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def tool_result(call_id: str, content: Any = "done", **fields: Any) -> dict[str, Any]:
    """A tool result block."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def node(node_id: str, parent: str | None, role: str = "", said: Any = "", **message: Any) -> dict[str, Any]:
    """A node of a conversation in ChatGPT's export."""
    if not role:
        return {"id": node_id, "message": None, "parent": parent, "children": []}
    name = message.pop("name", None)
    content = said if isinstance(said, dict) else {"content_type": "text", "parts": [said]}
    body = {"id": node_id, "author": {"role": role, "name": name}, "content": content, "create_time": SECOND}
    return {"id": node_id, "message": {**body, **message}, "parent": parent, "children": []}


def exported(*nodes: dict[str, Any], current: str | None = None, **fields: Any) -> dict[str, Any]:
    """A conversation in ChatGPT's export."""
    mapping = {each["id"]: each for each in nodes}
    about = {"title": "A talk", "create_time": SECOND - 9, "conversation_id": "conv", "default_model_slug": "gpt-4o"}
    return {**about, "mapping": mapping, "current_node": current or nodes[-1]["id"], **fields}
