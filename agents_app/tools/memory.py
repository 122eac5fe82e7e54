"""Memory tools (LCM paper 2.4): the model reaches what has left its context.

``lcm_expand`` is not among them: it is for sub-agents only (decision 23).
"""

from __future__ import annotations

from typing import Literal

from agents_app.tools.registry import ToolContext, tool
from compaction_app.lineage import describe
from compaction_app.queries import covering_summaries, load_summary
from mnesis_core.messages import StoredMessage, ToolPart
from sessions_app.queries import load_messages_by_ids
from sessions_app.search import Hit, Scope, search

READ_CHARACTERS = 8_000
"""Of one ``lcm_read``: enough for a page, too little to flood the context."""


@tool()
def lcm_grep(
    context: ToolContext, pattern: str, mode: Literal["text", "regex"] = "text", limit: int = 10, cursor: str = ""
) -> str:
    """Search the whole history of this conversation, also what is no longer in context.

    Mode text finds all the words of the pattern; "in quotes" side by side; begin* of words. Mode regex takes a
    regular expression (RE2). Returns excerpts with message ids, and the summary that stands for each.
    """
    scope = Scope(owner_id=context.owner_id, session_id=context.session_id)
    result = search(scope, pattern, mode=mode, limit=min(max(limit, 1), 50), cursor=cursor or None)
    covering = covering_summaries(context.session_id, [hit.message_seq for hit in result.hits if hit.message_id])
    lines = [_line(hit, covering.get(hit.message_seq, "")) for hit in result.hits]
    searched = f"{result.messages_searched} messages"
    if result.messages_searched < result.messages_total:
        searched = f"{result.messages_searched} of {result.messages_total} messages"
    more = f" There may be more: go on with cursor={result.next_cursor}" if result.more else ""
    return "\n".join([f"{len(lines)} hits in {searched} searched.{more}", *lines])


def _line(hit: Hit, covered_by: str) -> str:
    if hit.message_id is None:
        return f"- {hit.part_type} {hit.source_id} (messages {hit.message_seq} to {hit.last_seq}): {hit.snippet}"
    place = f"message {hit.message_seq} ({hit.message_id}, {hit.role}, {hit.part_type})"
    return f"- {place}{f', in summary {covered_by}' if covered_by else ''}: {hit.snippet}"


@tool()
def lcm_describe(context: ToolContext, id: str) -> str:
    """Describe a summary (sum_…) of this conversation: what it stands for, what stands for it, and its text."""
    found = describe(load_summary(id, session_id=context.session_id))
    summary = found.summary
    sources = ", ".join(source_id for _, source_id in summary.source_ids[:50])
    parents = ", ".join(node.id for node in found.above) or "none"
    newest = found.revisions[-1].id
    stale = "\nstale: something below it was revised since" if summary.freshness == "stale" else ""
    later = f"\nnewest revision: {newest}" if newest != summary.id else stale
    return (
        f"{summary.kind} summary {summary.id}, level {summary.level}, depth {summary.depth}, {summary.token_count} tokens, "
        f"for messages {summary.first_seq} to {summary.last_seq} ({summary.message_count} messages)\n"
        f"sources: {sources}\nparents: {parents}{later}\n"
        f"with all below: {found.cost.summaries} summaries, {found.cost.token_count} tokens\n\n{summary.text}"
    )


@tool()
def lcm_read(context: ToolContext, id: str, offset: int = 0) -> str:
    """Read the original of a message (msg_…) from a character offset on, as it was written."""
    message = load_messages_by_ids([id], session_id=context.session_id)[0]
    text = _whole_text(message)
    start = min(max(offset, 0), len(text))
    piece = text[start : start + READ_CHARACTERS]
    end = start + len(piece)
    rest = f"\n[characters {start} to {end} of {len(text)}; read on with offset={end}]" if end < len(text) else ""
    return piece + rest


def _whole_text(message: StoredMessage) -> str:
    texts = []
    for stored in message.parts:
        part = stored.part
        if isinstance(part, ToolPart):
            texts.append(f"[tool {part.tool_name} {part.input}]\n{part.output or part.error or ''}")
        else:
            texts.append(getattr(part, "text", ""))
    return "\n".join(texts)
