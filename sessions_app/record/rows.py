"""The mapping between the values of the core and the rows of the record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any, TypeVar

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
from mnesis_core.records import MessageEnd, UsageRecord
from mnesis_core.text import decode_text, encode_text
from mnesis_core.values import dataclass
from sessions_app.database.tables import time_of
from sessions_app.models import USAGE_COLUMNS
from sessions_app.search.index import Text, texts_of_part, with_words

R = TypeVar("R")

_AS_JSON: dict[str, type[Part]] = {
    part.type: part for part in (FileRefPart, CompactionMarkerPart, StepStartPart, StepFinishPart)
}
_STATES = {state.value: state for state in ToolState}
# The order in which ``part_of`` reads a row.
PART_COLUMNS = (
    *("id", "part_index", "part_type", "token_estimate", "output_token_estimate", "content", "label"),
    *("tool_name", "tool_call_id", "tool_input", "tool_state", "output", "error_message"),
    *("started_at", "completed_at", "compacted_at", "decision_note", "late_output"),
)
# The order in which ``messages_of`` reads a message.
MESSAGE_COLUMNS = ("id", "seq", "turn_id", "role", "is_summary", "created_at")
_PART = len(MESSAGE_COLUMNS)
_END = _PART + len(PART_COLUMNS)
_NO_TEXTS = {
    "id": "",
    "content": "",
    "label": "",
    "tool_name": "",
    "tool_input": "",
    "output": None,
    "error_message": None,
}


def record_of(kind: type[R], row: Any, **given: Any) -> R:
    """Return a value of the dataclass ``kind``: fields that are not given are the row's attributes of the same names."""
    names, read = _reader_of(kind, *given)  # type: ignore[arg-type]  # classes are hashable
    return kind(**dict(zip(names, read(row), strict=True)), **given)


@cache
def _reader_of(kind: Any, *given: str) -> tuple[tuple[str, ...], attrgetter[Any]]:
    names = tuple(field.name for field in fields(kind) if field.name not in given)
    return names, attrgetter(*names)


def usage_of(row: Any) -> UsageRecord:
    return record_of(UsageRecord, row)


def usage_columns(usage: UsageRecord) -> dict[str, Any]:
    return {column: getattr(usage, column) for column in USAGE_COLUMNS}


def end_columns(end: MessageEnd) -> dict[str, Any]:
    return {
        "finish_reason": end.finish_reason,
        "outcome": end.outcome,
        "error_code": end.error_code,
        "error_message": end.error_message,
        **usage_columns(end.usage),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPart:
    """The columns of a part, encoded, and its findable texts."""

    columns: dict[str, Any]
    texts: tuple[Text, ...]

    def texts_of(self, part_id: str, message_seq: int) -> list[Text]:
        return [text._replace(source_id=part_id, first_seq=message_seq, last_seq=message_seq) for text in self.texts]


def prepare_parts(parts: Iterable[Part | PreparedPart]) -> list[PreparedPart]:
    """Prepare parts for writing before a session's lock is taken: encode them, count their tokens, extract their words.

    Under the lock all other writers wait, on SQLite those of the whole site. Store functions prepare plain parts
    themselves; a prepared one is returned as it is.
    """
    return [part if isinstance(part, PreparedPart) else prepare_part(part) for part in parts]


def prepare_part(part: Part) -> PreparedPart:
    # A tool's result is counted in a separate column, because it comes later and may become a tombstone.
    tokens = estimate_call(part) if isinstance(part, ToolPart) else estimate_part(part)
    columns: dict[str, Any] = {"part_type": part.type, "token_estimate": tokens}
    if isinstance(part, TextPart | ReasoningPart):
        columns["content"] = encode_text(part.text)
    elif isinstance(part, DataPart):
        columns |= {"content": encode_text(part.text), "label": encode_text(part.label)[:200]}
    elif isinstance(part, PatchPart):
        columns |= {"content": encode_text(part.unified_diff), "label": encode_text(",".join(part.files_changed))[:200]}
    elif isinstance(part, ToolPart):
        is_open = part.state in UNANSWERED_STATES
        columns |= {
            "tool_name": encode_text(part.tool_name)[:200],
            "tool_call_id": encode_text(part.tool_call_id)[:200],
            "tool_input": encode_text(part.input),
            "tool_state": part.state.value,
            "output": part.output and encode_text(part.output),
            "error_message": part.error and encode_text(part.error),
            "started_at": part.started_at,
            "completed_at": part.completed_at,
            "compacted_at": part.compacted_at,
            "decision_note": part.decision_note and encode_text(part.decision_note),
            "late_output": part.late_output and encode_text(part.late_output),
            "output_token_estimate": None if is_open else estimate_text(part.output or part.error or ""),
        }
    else:
        columns["content"] = encode_text(json.dumps(asdict(part), ensure_ascii=False))
    texts = texts_of_part(SimpleNamespace(**_NO_TEXTS | columns), 0)
    return PreparedPart(columns=columns, texts=tuple(map(with_words, texts)))


def part_of(columns: Sequence[Any]) -> StoredPart:
    """Return the part of a row; ``columns`` are ``PART_COLUMNS`` (``tables.select_columns``)."""
    id, index, part_type, tokens, result_tokens, content, label, *call = columns
    if part_type == "text":  # nearly every part is one or the other
        part: Part = TextPart(text=decode_text(content))
    elif part_type == "tool":
        name, call_id, input, state, output, error, started_at, completed_at, compacted_at, note, late = call
        part = ToolPart(
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
    elif part_type == "reasoning":
        part = ReasoningPart(text=decode_text(content))
    elif part_type == "data":
        part = DataPart(label=decode_text(label), text=decode_text(content))
    elif part_type == "patch":
        names = tuple(name for name in decode_text(label).split(",") if name)
        part = PatchPart(unified_diff=decode_text(content), files_changed=names)
    else:
        part = _AS_JSON[part_type](**json.loads(decode_text(content)))
    return StoredPart(id=id, index=index, part=part, token_estimate=tokens + (result_tokens or 0))


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
