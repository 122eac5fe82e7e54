"""A session as Autobyteus keeps its memory (seed 004, sections 6, 7 and 21): raw traces, episodes, facts.

Raw traces are events: what was said, each tool call, each result. Those still in context stand in
``raw_traces.jsonl``, the others in ``raw_traces_archive.jsonl``, numbered within their turn across both. An episode is
a leaf summary, and a semantic item a live fact. Reasoning, imported data and summaries of
summaries have no place in that layout; the session's own export (``mnesis_core.transcripts.session_file``) has everything.
What came from the layout (``autobyteus_reading``) goes back as it came: its traces with their own ids and fields, and its episodes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from mnesis_core.facts.values import HIGHEST_SALIENCE, FactRecord, FactState
from mnesis_core.messages import DataPart, StoredMessage, ToolPart, ToolState, text_of
from mnesis_core.records import SummaryRecord

FORMAT = "autobyteus"
EPISODE = "episodic"
TRACE_TYPES = ("user", "assistant", "tool_call", "tool_result")
_RECORDS, _EPISODE = f"{FORMAT}:records", f"{FORMAT}:{EPISODE}"
_TOLD = ("content", "tool_name", "tool_args", "tool_result", "tool_error")
_FIRST = ("id", "ts", "turn_id", "seq")
Trace = dict[str, Any]

# For each role: trace_type, source_event, tags. The layout has no system trace.
_SAID = {
    "user": ("user", "LLMUserMessageReadyEvent", ["processed"]),
    "system": ("user", "LLMUserMessageReadyEvent", ["system"]),
    "assistant": ("assistant", "LLMCompleteResponseReceivedEvent", ["final"]),
}
CERTAIN = 1.0  # The confidence of a fact: its words are in the record, or a person vouches for it.
NOT_RATED = 0.0  # The salience of an unrated episode, as in Autobyteus.


def raw_traces(messages: Iterable[StoredMessage], in_context: Collection[str]) -> Iterator[Trace]:
    """Yield the lines of ``raw_traces.jsonl``. All messages of the session are needed: traces are numbered across both files."""
    return (trace for message, trace in _traces(messages) if message.id in in_context)


def archived_traces(messages: Iterable[StoredMessage], in_context: Collection[str]) -> Iterator[Trace]:
    """Yield the lines of ``raw_traces_archive.jsonl``: traces of the messages that are not in context."""
    return (trace for message, trace in _traces(messages) if message.id not in in_context)


def turn_id_of(message: StoredMessage) -> str:
    """Return the turn that the traces of a message name."""
    return next(
        (str(record["turn_id"]) for record in _records(message) if record.get("turn_id")), message.turn_id or ""
    )


def imported_episodes(messages: Iterable[StoredMessage]) -> Iterator[dict[str, Any]]:
    """Yield the episodes that came from the layout, as they came."""
    return (episode for message in messages for episode in _kept(message, _EPISODE) if isinstance(episode, dict))


def episodic_items(summaries: Iterable[SummaryRecord], turn_of: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``episodic.jsonl``: leaf summaries that are not superseded, in the order of their turns."""
    for summary in sorted(summaries, key=lambda summary: summary.first_seq):
        if summary.kind == "leaf" and summary.superseded_seq is None:
            turns = [turn_of[id] for kind, id in summary.source_ids if kind == "message" and id in turn_of]
            yield {
                "id": summary.id,
                "ts": summary.created_at.timestamp(),
                "turn_ids": list(dict.fromkeys(turns)),
                "summary": summary.text,
                "tags": [],
                "salience": NOT_RATED,
            }


def semantic_items(facts: Iterable[FactRecord]) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``semantic.jsonl``: facts that are live."""
    for fact in facts:
        if fact.state is FactState.LIVE:
            yield {
                "id": fact.id,
                "ts": fact.said_at.timestamp(),
                "fact": fact.statement,
                "tags": [fact.kind, *([fact.subject] if fact.subject else [])],
                "confidence": CERTAIN,
                "salience": fact.salience / HIGHEST_SALIENCE,
            }


def _traces(messages: Iterable[StoredMessage]) -> Iterator[tuple[StoredMessage, Trace]]:
    seqs: Counter[str] = Counter()
    for message in messages:
        labels = {stored.part.label if isinstance(stored.part, DataPart) else "" for stored in message.parts}
        if labels == {_EPISODE}:
            continue
        turn_id = turn_id_of(message)
        records = _records(message)
        for trace in _traces_of(message):
            seqs[turn_id] += 1
            own = _take(records, trace)
            if own is not None:
                told = {name: trace[name] for name in _TOLD if name in trace} | own
                yield message, {name: told[name] for name in (*_FIRST, *trace) if name in told} | told
            else:
                yield message, {"id": trace["id"], "ts": trace["ts"], "turn_id": turn_id, "seq": seqs[turn_id], **trace}


def _traces_of(message: StoredMessage) -> Iterator[Trace]:
    """Yield a message's traces in order, without turn and number."""
    text = text_of(tuple(stored.part for stored in message.parts))
    calls = [(stored.id, stored.part) for stored in message.parts if isinstance(stored.part, ToolPart)]
    if text or not calls:
        trace_type, source_event, tags = _SAID[message.role]
        media: Trace = {"media": {"images": [], "audio": [], "video": []}} if trace_type == "user" else {}
        said = {"trace_type": trace_type, "content": text, "source_event": source_event}
        yield {"id": message.id, "ts": message.created_at.timestamp(), **said, **media, "tags": tags}
    for part_id, part in calls:
        tool = {"tool_name": part.tool_name, "tool_call_id": part.tool_call_id}
        began = part.started_at or message.created_at
        try:
            arguments = json.loads(part.input)
        except (ValueError, RecursionError):
            arguments = None
        called = {"trace_type": "tool_call", "content": "", "source_event": "PendingToolInvocationEvent"}
        tool_args = arguments if isinstance(arguments, dict) else part.input
        yield {"id": f"{part_id}:call", "ts": began.timestamp(), **called, **tool, "tool_args": tool_args}
        if part.state in (ToolState.COMPLETED, ToolState.ERROR):
            answered = {"trace_type": "tool_result", "content": "", "source_event": "ToolResultEvent"}
            results = {"tool_result": part.output, "tool_error": part.error}
            given = {name: result for name, result in results.items() if result is not None}
            ended = (part.completed_at or began).timestamp()
            yield {"id": f"{part_id}:result", "ts": ended, **answered, **tool, **given}


def _take(records: list[Trace], trace: Trace) -> Trace | None:
    """Take out the record that a trace was made of, if it came from the layout."""
    wanted = (trace["trace_type"], trace.get("tool_call_id"))
    for place, record in enumerate(records):
        if (record.get("trace_type"), record.get("tool_call_id")) == wanted:
            return records.pop(place)
    return None


def _records(message: StoredMessage) -> list[Trace]:
    kept = _kept(message, _RECORDS)
    return [record for records in kept if isinstance(records, list) for record in records if isinstance(record, dict)]


def _kept(message: StoredMessage, label: str) -> Iterator[Any]:
    for stored in message.parts:
        if isinstance(stored.part, DataPart) and stored.part.label == label:
            try:
                yield json.loads(stored.part.text)
            except (ValueError, RecursionError):
                continue
