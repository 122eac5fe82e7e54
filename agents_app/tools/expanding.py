"""A summary opened one step, for a sub-agent and within its allowance of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from agents_app.tools.family import Found, find, load_family, wanted_id
from agents_app.tools.reading import place_of, text_of_message
from agents_app.tools.registry import ToolContext
from compaction_app.lineage import expand_messages, expand_step
from compaction_app.queries import load_summary
from mnesis_core.errors import InvalidRequest, PermissionDenied
from mnesis_core.lineage import SummaryRecord
from mnesis_core.tokens import characters_within, estimate_text
from sessions_app.conf import session_config
from sessions_app.queries import load_session, tool_outputs

PAGE_TOKENS = 4_000
"""Of one answer: what a small window holds beside everything else."""
MESSAGES = 50
"""Read at a time."""
LEFT_OVER = 64
"""Tokens of an answer that are kept for the lines around its texts."""

MAIN_AGENT = (
    "lcm_expand is for sub-agents, since what it returns may fill a context. Delegate with task: say what to look for "
    "and in which summary. lcm_grep with summary_id and lcm_read are yours."
)


def expand_for_sub_agent(context: ToolContext, summary_id: str, *, cursor: int) -> str:
    """A page of what a summary was made of.

    :raises PermissionDenied: the session is no sub-agent's.
    :raises InvalidRequest: the allowance is used up, or the id is no summary's.
    """
    family = load_family(context)
    if not (context.depth or family.line[0].is_sub_agent):
        raise PermissionDenied(MAIN_AGENT)
    found = find(family, wanted_id(summary_id))
    if found.kind != "sum":
        raise InvalidRequest(f"{found.id} is no summary; lcm_read reads it", field="summary_id")
    return expand(found, cursor=cursor, tokens=min(PAGE_TOKENS, _allowance_left(context)))


def expand(found: Found, *, cursor: int, tokens: int) -> str:
    """Texts of a summary's sources from the ``cursor``-th on, as many as fit into ``tokens``, but always one."""
    summary = load_summary(found.id, session_id=found.session_id)
    start = max(cursor, 0)
    shown: list[str] = []
    room = tokens - LEFT_OVER
    for id, text in _sources(summary, start):
        size = estimate_text(text)
        if shown and size > room:
            return "\n\n".join([*shown, f"[go on with cursor={start + len(shown)}]"])
        shown.append(text if size <= room else _cut(text, id, room))
        room -= min(size, room)
    return "\n\n".join(shown) or f"[{summary.id} has no source from {start} on]"


def _sources(summary: SummaryRecord, start: int) -> Iterator[tuple[str, str]]:
    if summary.kind == "condensed":
        for _, source in expand_step(summary)[start:]:
            span = f"messages {source.first_seq} to {source.last_seq}"
            yield source.id, f"{source.kind} summary {source.id} ({span}):\n{source.text}"
        return
    offset: int | None = start
    while offset is not None:
        page = expand_messages(summary, offset=offset, limit=MESSAGES)
        yield from ((message.id, f"{place_of(message)}:\n{text_of_message(message)}") for message in page.messages)
        offset = page.next_offset


def _cut(text: str, id: str, tokens: int) -> str:
    kept = text[: characters_within(text, max(tokens, 1))]
    return f"{kept}\n[cut at {len(kept)} of {len(text)} characters; lcm_read of {id} reads all of it]"


def _allowance_left(context: ToolContext) -> int:
    """Tokens that the sub-agent may still read. Calls that run beside this one are counted as full pages."""
    allowance = session_config(load_session(context.session_id).config).delegation.expand_tokens
    calls = tool_outputs(context.session_id, "lcm_expand")
    left = allowance - sum(PAGE_TOKENS if tokens is None else tokens for tokens in calls.values())
    own = PAGE_TOKENS if any(tokens is None for tokens in calls.values()) else 0
    if left + own <= LEFT_OVER:
        raise InvalidRequest(
            f"the allowance of {allowance:,} tokens for lcm_expand is used up. Answer with what you have; "
            "lcm_grep and lcm_read are still there"
        )
    return left + own
