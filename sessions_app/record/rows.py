"""The mapping between the core's parts and the columns of ``message_parts``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_call, estimate_part, estimate_text
from mnesis_core.messages import (
    UNANSWERED_STATES,
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    Part,
    PatchPart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import UsageRecord
from mnesis_core.text import decode_text, encode_text
from mnesis_core.values import dataclass
from sessions_app.database.fast_sql import time_of
from sessions_app.models import USAGE_COLUMNS
from sessions_app.search.index import Text, texts_of_part, with_words

_AS_JSON: dict[str, type[Part]] = {
    part.type: part for part in (FileRefPart, CompactionMarkerPart, StepStartPart, StepFinishPart)
}

_STATES = {state.value: state for state in ToolState}


def columns_of(part: Part) -> dict[str, Any]:
    """Return the columns that hold a part; text is encoded."""
    # A tool's result is counted in a separate column, because it comes later and may become a tombstone.
    tokens = estimate_call(part) if isinstance(part, ToolPart) else estimate_part(part)
    values: dict[str, Any] = {"part_type": part.type, "token_estimate": tokens}
    if isinstance(part, TextPart | ReasoningPart):
        values["content"] = encode_text(part.text)
    elif isinstance(part, DataPart):
        values |= {"content": encode_text(part.text), "label": encode_text(part.label)[:200]}
    elif isinstance(part, PatchPart):
        values |= {"content": encode_text(part.unified_diff), "label": encode_text(",".join(part.files_changed))[:200]}
    elif isinstance(part, ToolPart):
        values |= _columns_of_tool(part)
    else:
        values["content"] = encode_text(json.dumps(asdict(part), ensure_ascii=False))
    return values


def _columns_of_tool(part: ToolPart) -> dict[str, Any]:
    return {
        "tool_name": encode_text(part.tool_name)[:200],
        "tool_call_id": encode_text(part.tool_call_id)[:200],
        "tool_input": encode_text(part.input),
        "tool_state": part.state.value,
        "output": None if part.output is None else encode_text(part.output),
        "error_message": None if part.error is None else encode_text(part.error),
        "started_at": part.started_at,
        "completed_at": part.completed_at,
        "compacted_at": part.compacted_at,
        "decision_note": None if part.decision_note is None else encode_text(part.decision_note),
        "late_output": None if part.late_output is None else encode_text(part.late_output),
        "output_token_estimate": None
        if part.state in UNANSWERED_STATES
        else estimate_text(part.output or part.error or ""),
    }


# The order in which ``part_of`` reads a row.
PART_COLUMNS = (
    "id",
    "part_index",
    "part_type",
    "token_estimate",
    "output_token_estimate",
    "content",
    "label",
    "tool_name",
    "tool_call_id",
    "tool_input",
    "tool_state",
    "output",
    "error_message",
    "started_at",
    "completed_at",
    "compacted_at",
    "decision_note",
    "late_output",
)


def part_of(columns: Sequence[Any]) -> StoredPart:
    """Return the part of a row; ``columns`` are ``PART_COLUMNS`` (``fast_sql.select_columns``)."""
    id, index, part_type, tokens, result_tokens, content, label, *call = columns
    if part_type == "text":  # nearly every part is one or the other
        part: Part = TextPart(text=decode_text(content))
    elif part_type == "tool":
        part = _tool_part(call)
    else:
        part = _other_part(part_type, decode_text(content), decode_text(label))
    return StoredPart(id=id, index=index, part=part, token_estimate=tokens + (result_tokens or 0))


def _tool_part(columns: Sequence[Any]) -> ToolPart:
    name, call_id, input, state, output, error, started_at, completed_at, compacted_at, note, late = columns
    return ToolPart(
        tool_name=decode_text(name),
        tool_call_id=decode_text(call_id),
        input=decode_text(input),
        output=output and decode_text(output),
        error=error and decode_text(error),
        state=_STATES[state],
        compacted_at=compacted_at and time_of(compacted_at),
        started_at=started_at and time_of(started_at),
        completed_at=completed_at and time_of(completed_at),
        decision_note=note and decode_text(note),
        late_output=late and decode_text(late),
    )


def _other_part(part_type: str, content: str, label: str) -> Part:
    if part_type == ReasoningPart.type:
        return ReasoningPart(text=content)
    if part_type == DataPart.type:
        return DataPart(label=label, text=content)
    if part_type == PatchPart.type:
        return PatchPart(unified_diff=content, files_changed=tuple(name for name in label.split(",") if name))
    return _AS_JSON[part_type](**json.loads(content))


# The order in which ``messages_of`` reads a message.
MESSAGE_COLUMNS = ("id", "seq", "turn_id", "role", "is_summary", "created_at")
_PART = len(MESSAGE_COLUMNS)
_END = _PART + len(PART_COLUMNS)


def messages_of(rows: Iterable[Sequence[Any]]) -> Iterator[StoredMessage]:
    """Yield messages with their parts from joined rows: ``MESSAGE_COLUMNS``, then ``PART_COLUMNS``, then any others.

    The rows of a message are consecutive, in the order of its parts; a message without parts has one row.
    """
    for _, group in groupby(rows, key=itemgetter(0)):
        own = list(group)
        id, seq, turn_id, role, is_summary, created_at = own[0][:_PART]
        parts = tuple([part_of(row[_PART:_END]) for row in own if row[_PART] is not None])
        yield StoredMessage(
            id=id,
            seq=seq,
            turn_id=turn_id,
            role=role,
            parts=parts,
            created_at=time_of(created_at),
            is_summary=bool(is_summary),
            token_estimate=MESSAGE_FRAMING + sum([part.token_estimate for part in parts]),
        )


def usage_columns(usage: UsageRecord) -> dict[str, Any]:
    return {column: getattr(usage, column) for column in USAGE_COLUMNS}


_NO_TEXTS = dict.fromkeys(("id", "content", "label", "tool_name", "tool_input"), "") | dict.fromkeys(
    ("output", "error_message")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPart:
    """The columns of a part and its findable texts."""

    columns: dict[str, Any]
    texts: tuple[Text, ...]

    def texts_of(self, part_id: str, message_seq: int) -> list[Text]:
        """Return the texts of the part at its place."""
        return [text._replace(source_id=part_id, first_seq=message_seq, last_seq=message_seq) for text in self.texts]


def prepare_part(part: Part | PreparedPart) -> PreparedPart:
    """Prepare a part; a prepared one is returned as it is."""
    if isinstance(part, PreparedPart):
        return part
    columns = columns_of(part)
    texts = texts_of_part(SimpleNamespace(**_NO_TEXTS | columns), 0)
    return PreparedPart(columns=columns, texts=tuple(map(with_words, texts)))


def prepare_parts(parts: Iterable[Part]) -> list[PreparedPart]:
    """Parts prepared for writing before a session's lock is taken: encoded, counted, and their words extracted.

    Under the lock all other writers wait, on SQLite those of the whole site. Store functions prepare plain parts themselves.
    """
    return [prepare_part(part) for part in parts]
