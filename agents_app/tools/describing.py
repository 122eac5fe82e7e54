"""What a thing of the record is, by its id: where it stands, what stands for it, and which tool leads on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents_app.queries import load_run as load_map
from agents_app.tools.describing_files import describe_file
from agents_app.tools.describing_maps import told
from agents_app.tools.family import Found
from agents_app.tools.reading import neighbours, text_of_part
from compaction_app.lineage import describe as describe_node
from compaction_app.lineage import trace_message
from compaction_app.queries import load_run, load_summary
from files_app.queries import load_file_reference
from mnesis_core.messages import StoredPart, ToolPart
from mnesis_core.record import UsageRecord
from mnesis_core.visible import excerpt
from sessions_app.queries import (
    load_call,
    load_children,
    load_message,
    load_part,
    load_session,
    load_turn,
    message_of_part,
)

MOST_IDS = 50
"""Ids of one list."""
LONGEST_TEXT = 8_000
"""Characters of a text that are told with it."""
EXCERPT = 160


def describe(found: Found, *, offset: int = 0) -> str:
    """What something is, as text for a model; of a list of files those from the ``offset``-th on."""
    if found.kind == "file":
        return describe_file(load_file_reference(found.id, session_id=found.session_id), offset)
    return _DESCRIBE.get(found.kind, describe_session)(found)


def describe_summary(found: Found) -> str:
    """A summary: what it stands for, what stands for it, its newest revision and its text."""
    node = describe_node(load_summary(found.id, session_id=found.session_id))
    summary = node.summary
    newest = node.revisions[-1].id
    stale = "\nstale: something below it was revised since" if summary.freshness == "stale" else ""
    later = f"\nnewest revision: {newest}" if newest != summary.id else stale
    return (
        f"{summary.kind} summary {summary.id}, level {summary.level}, depth {summary.depth}, {summary.token_count} tokens, "
        f"for messages {summary.first_seq} to {summary.last_seq} ({summary.message_count} messages)\n"
        f"sources: {_ids([id for _, id in summary.source_ids])}\nparents: {_ids([above.id for above in node.above])}{later}\n"
        f"with all below: {node.cost.summaries} summaries, {node.cost.token_count} tokens\n\n"
        f"{_beginning(summary.text, summary.id)}"
    )


def describe_message(found: Found) -> str:
    """A message: its place, its parts, and what stands for it in the context."""
    message = load_message(found.id, session_id=found.session_id)
    lineage = trace_message(message.id, session_id=found.session_id)
    parts = [f"- {_part_line(stored)}" for stored in message.parts[:MOST_IDS]]
    more = [f"- and {len(message.parts) - MOST_IDS} more"] if len(message.parts) > MOST_IDS else []
    return "\n".join(
        [
            f"message {message.seq} of session {found.session_id}: {message.id}, {message.role}, "
            f"{message.created_at:%Y-%m-%d %H:%M} UTC, about {message.token_estimate} tokens, turn {message.turn_id}",
            _standing(message.id, lineage.in_context),
            f"summarised by: {_ids([node.id for node in lineage.above])}",
            "parts:",
            *parts,
            *more,
            neighbours(found.session_id, message),
        ]
    )


def describe_part(found: Found) -> str:
    """A part: its message, and what became of a tool's output."""
    stored = load_part(found.id, session_id=found.session_id)
    message_id = message_of_part(found.id, session_id=found.session_id)
    return f"part {_part_line(stored)}\nof message {message_id}\nlcm_read with its id gives all of it."


def describe_run(found: Found) -> str:
    """A compaction: how it went and what it wrote."""
    run = load_run(found.id, session_id=found.session_id)
    error = f"\n{run.error_code}: {run.error_message}" if run.error_code else ""
    return (
        f"compaction {run.id}: {run.state}, asked for by {run.trigger}, outcome {run.outcome or 'none yet'}, "
        f"{len(run.tries)} tries\ncontext: {_count(run.tokens_before)} tokens before, {_count(run.tokens_after)} after; "
        f"{run.pruned_parts or 0} tool outputs left it\nsummaries: {_ids(run.summary_ids)}{error}"
    )


def describe_turn(found: Found) -> str:
    """A turn: how it ended and what was said in it."""
    turn = load_turn(found.id, session_id=found.session_id)
    error = f"\n{turn.error_code}: {turn.error_message}" if turn.error_code else ""
    return (
        f"turn {turn.seq} of session {found.session_id}: {turn.id}, {turn.state}, model {turn.model}, "
        f"{_usage(turn.usage)}\nmessages: {_ids(turn.message_ids)}{error}"
    )


def describe_call(found: Found) -> str:
    """A model call: for what, how it ended, what it used."""
    call = load_call(found.id)
    error = f"\n{call.error_code}: {call.error_message}" if call.error_code else ""
    return (
        f"model call {call.id} for a {call.purpose}: {call.state}, model {call.model}, {_usage(call.usage)}\n"
        f"turn {call.turn_id or 'none'}, message {call.message_id or 'none'}{error}"
    )


def describe_session(found: Found) -> str:
    """A session: its parent, its size and what it launched."""
    session = load_session(found.id)
    return (
        f"session {session.id}: {excerpt(session.title, EXCERPT) or 'untitled'}, {session.state}, model {session.model}, "
        f"{session.message_seq} messages in {session.turn_seq} turns\nparent: {session.parent_id or 'none'}\n"
        f"launched or forked from it: {_ids([kin.id for kin in load_children(session.id)])}"
    )


def describe_map(found: Found) -> str:
    """A run of an operator: how far it is, and its first failures."""
    return told(load_map(found.id, session_id=found.session_id))


_DESCRIBE: dict[str, Callable[[Found], str]] = {
    "sum": describe_summary,
    "msg": describe_message,
    "part": describe_part,
    "run": describe_run,
    "map": describe_map,
    "turn": describe_turn,
    "call": describe_call,
}


def _part_line(stored: StoredPart) -> str:
    part = stored.part
    line = f"{stored.id}, {part.type}, about {stored.token_estimate} tokens"
    if isinstance(part, ToolPart):
        line += f", tool {excerpt(part.tool_name, EXCERPT)}, {part.state.value}"
    if isinstance(part, ToolPart) and part.compacted_at is not None:
        line += f", its output is out of context since {part.compacted_at:%Y-%m-%d %H:%M} UTC"
    return f"{line}: {excerpt(text_of_part(stored), EXCERPT)}"


def _standing(message_id: str, in_context: str | None) -> str:
    if in_context is None:
        return "in context: no"
    return "in context: yes" if in_context == message_id else f"in context: {in_context} stands for it"


def _ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_IDS} more" if len(ids) > MOST_IDS else ""
    return f"{', '.join(ids[:MOST_IDS])}{more}" if ids else "none"


def _beginning(text: str, id: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[{len(text):,} characters; lcm_read of {id} goes on with offset={LONGEST_TEXT}]"


def _usage(usage: UsageRecord) -> str:
    return f"{_count(usage.tokens_input)} tokens in, {_count(usage.tokens_output)} out"


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)
