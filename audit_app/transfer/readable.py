"""A session for people to read: its messages in order, and where it was compacted. Markdown and HTML are made from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from compaction_app.queries import list_runs_after, load_summaries
from mnesis_core.files.references import given_file
from mnesis_core.messages import (
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
)
from mnesis_core.records import RunRecord, SessionRecord, SummaryRecord
from sessions_app.pages.lookup import shown_title
from sessions_app.pages.markdown import format_count, format_duration, format_money, show_invisible
from sessions_app.record.call_queries import usage_of
from sessions_app.record.message_queries import load_message_rows, load_messages

# Read at a time: each may hold many long texts.
MESSAGES = 20
SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    label: str
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of a message or of a compaction: prose in Markdown, or passages under a title."""

    prose: str = ""
    title: str = ""
    facts: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    heading: str
    at: datetime | None
    facts: tuple[str, ...]
    blocks: tuple[Block, ...]
    # Empty for a compaction.
    seq: int | None = None
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    title: str
    facts: tuple[tuple[str, str], ...]
    system_prompt: str


def opening_of(session: SessionRecord) -> Opening:
    labels = ", ".join(f"{key}: {value}" if value else key for key, value in session.labels.items())
    facts = {
        "Session": session.id,
        "Model": session.model,
        "Began": format_time(session.created_at),
        "Last changed": format_time(session.updated_at),
        "Messages": f"{session.message_seq:,}",
        "Labels": show_invisible(labels),
        "Comes from": "" if session.origin == "chat" else session.origin,
    }
    return Opening(
        title=shown_title(session.title),
        facts=tuple((name, value) for name, value in facts.items() if value),
        system_prompt=show_invisible(session.system_prompt),
    )


def entries_of(session_id: str) -> Iterator[Entry]:
    """Yield the messages and compactions of a session in order, reading ``MESSAGES`` messages at a time."""
    after = 0
    while messages := load_messages(session_id, after=after, limit=MESSAGES):
        rows = load_message_rows(session_id, [message.id for message in messages])
        runs = [
            run
            for run in list_runs_after(session_id, after + 1, messages[-1].seq)
            if run.summary_ids or run.pruned_parts or run.state in ("failed", "superseded")
        ]
        for message in messages:
            yield _message_entry(message, rows[message.id])
            yield from (_compaction_entry(run) for run in runs if run.after_message_seq == message.seq)
        after = messages[-1].seq


def format_time(time: datetime) -> str:
    return f"{time:%-d %B %Y, %H:%M:%S} UTC"


def _message_entry(message: StoredMessage, row: Any) -> Entry:
    usage = usage_of(row)
    tokens = f"{format_count(usage.tokens_input)} tokens in, {format_count(usage.tokens_output)} out"
    facts = (
        show_invisible(row.model),
        tokens if usage.tokens_input is not None or usage.tokens_output is not None else "",
        format_money(usage.cost_micros),
        "summary that it came with" if message.is_summary else "",
        "" if row.outcome in (None, "complete") else f"ended {row.outcome}",
        show_invisible(f"{row.error_code}: {row.error_message or ''}") if row.error_code else "",
    )
    return Entry(
        heading=SPEAKERS.get(message.role, message.role),
        at=message.created_at,
        facts=tuple(filter(None, facts)),
        blocks=_blocks(message.parts),
        seq=message.seq,
        role=message.role,
    )


def _blocks(parts: Sequence[StoredPart]) -> tuple[Block, ...]:
    # Imported records that are kept with the parts come in one block at the end.
    said = [_block(stored.part) for stored in parts if not isinstance(stored.part, DataPart)]
    kept = [stored.part for stored in parts if isinstance(stored.part, DataPart)]
    if not kept:
        return tuple(said)
    title = f"{len(kept)} imported record{'s' if len(kept) > 1 else ''}"
    return (*said, Block(title=title, passages=tuple(_passage(show_invisible(one.label), one.text) for one in kept)))


def _block(part: Part) -> Block:
    if isinstance(part, TextPart):
        return _text(part)
    if isinstance(part, ToolPart):
        return _tool(part)
    if isinstance(part, FileRefPart):
        return _file(part)
    if isinstance(part, ReasoningPart):
        return Block(title="Reasoning", passages=(_passage("", part.text),))
    if isinstance(part, PatchPart):
        files = show_invisible(", ".join(part.files_changed))
        return Block(title="Change to files", facts=(files,), passages=(_passage("", part.unified_diff, "diff"),))
    if isinstance(part, CompactionMarkerPart):
        count = f"{part.compacted_message_count:,}"
        return Block(title=f"{count} messages were compacted here by the system this history comes from")
    if isinstance(part, StepStartPart | StepFinishPart):
        return Block(title=f"Step {part.step_index} {'begins' if isinstance(part, StepStartPart) else 'ends'}")
    return Block(title=part.type)


def _text(part: TextPart) -> Block:
    given = given_file(part.text)
    if given is None:
        return Block(prose=show_invisible(part.text))
    title = f"File {show_invisible(given.path)}"
    return Block(title=title, facts=(given.file_id,), passages=(_passage("In the message", part.text),))


def _file(part: FileRefPart) -> Block:
    tokens = f"{part.token_count:,} tokens" if part.token_count else ""
    facts = (show_invisible(part.file_id), show_invisible(part.file_type), tokens)
    found = (_passage("What was found in it", part.exploration_summary),) if part.exploration_summary else ()
    return Block(title=f"File {show_invisible(part.path)}", facts=tuple(filter(None, facts)), passages=found)


def _tool(part: ToolPart) -> Block:
    seconds = (part.completed_at - part.started_at).total_seconds() if part.started_at and part.completed_at else None
    pruned = f"out of the context since {format_time(part.compacted_at)}" if part.compacted_at else ""
    texts = {"Output": part.output, "Error": part.error, "Output that came late": part.late_output}
    decided = {"What was said to the decision": part.decision_note}
    try:
        input = _passage("Input", json.dumps(json.loads(part.input), indent=2, ensure_ascii=False), "json")
    except (ValueError, RecursionError):
        input = _passage("Input", part.input)
    return Block(
        title=f"Tool: {show_invisible(part.tool_name) or 'unnamed'}",
        facts=tuple(filter(None, (part.state.value, format_duration(seconds), pruned))),
        passages=(
            input,
            *(_passage(label, text) for label, text in (texts | decided).items() if text is not None),
        ),
    )


def _passage(label: str, text: str, language: str = "") -> Passage:
    return Passage(label=label, text=show_invisible(text), language=language)


def _compaction_entry(run: RunRecord) -> Entry:
    seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else None
    facts = (
        run.trigger,
        "" if run.state == "completed" else f"{run.state} {run.error_code or ''}".strip(),
        f"{format_count(run.tokens_before)} to {format_count(run.tokens_after)} tokens"
        if run.tokens_after is not None
        else "",
        f"level {run.level}" if run.level else "",
        f"{run.source_count} sources" if run.source_count else "",
        f"{run.pruned_parts} tool outputs left the context" if run.pruned_parts else "",
        format_duration(seconds),
        format_money(run.cost_micros),
    )
    summaries = load_summaries(run.summary_ids, session_id=run.session_id) if run.summary_ids else []
    return Entry(
        heading="Compaction",
        at=run.ended_at,
        facts=tuple(filter(None, facts)),
        blocks=tuple(map(_summary, summaries)),
    )


def _summary(summary: SummaryRecord) -> Block:
    title = f"Summary of messages {summary.first_seq:,} to {summary.last_seq:,}"
    facts = (summary.id, f"level {summary.level}", f"{summary.token_count:,} tokens", show_invisible(summary.model))
    return Block(title=title, facts=tuple(filter(None, facts)), passages=(_passage("", summary.text),))
