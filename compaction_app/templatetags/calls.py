"""Filters that put model calls, and the blocks of what they were sent, on the pages of the inspector."""

from __future__ import annotations

import json
from collections.abc import Mapping

from django import template

from mnesis_core.context.blocks import Block, BlockKind
from mnesis_core.records import UsageRecord
from mnesis_core.text import excerpt
from sessions_app.pages.permissions import address_of

EXCERPT = 160
SOURCES = {
    "provider": "counted by the provider",
    "estimated": "our estimate",
    "imported": "as it was imported",
    "caller": "as the caller said",
}
"""Who says how many tokens a call took."""
KINDS: Mapping[BlockKind, str] = {
    BlockKind.SYSTEM: "System prompt",
    BlockKind.TOOL: "Tool",
    BlockKind.SUMMARY: "Summary",
    BlockKind.MESSAGE: "Message",
    BlockKind.TOOL_OUTPUT: "Tool call",
    BlockKind.TOMBSTONE: "Tombstone",
    BlockKind.FILE: "File",
    BlockKind.PATCH: "Change to files",
    BlockKind.GAP: "Left out",
}
COLOURS: Mapping[BlockKind, str] = {
    BlockKind.SYSTEM: "system",
    BlockKind.TOOL: "tools",
    BlockKind.SUMMARY: "summaries",
    BlockKind.MESSAGE: "messages",
    BlockKind.TOOL_OUTPUT: "tool_outputs",
    BlockKind.FILE: "files",
}
"""As in the meter of the context; what is not here has the one of anything else."""

register = template.Library()


@register.filter
def cached(usage: UsageRecord) -> str:
    """Return what was read from the provider's cache and written to it."""
    counts = [(usage.tokens_cache_read, "read"), (usage.tokens_cache_write, "written")]
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


@register.filter
def counted_by(usage: UsageRecord) -> str:
    return SOURCES.get(usage.usage_source or "", "")


@register.filter
def kind(block: Block) -> str:
    return KINDS[block.kind]


@register.filter
def colour(block: Block) -> str:
    return COLOURS.get(block.kind, "other")


@register.filter
def share_of(tokens: int, total: int) -> str:
    """A share in words: ``12 %``, ``<1 %``."""
    share = 100 * tokens / max(total, 1)
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"


@register.filter
def begins(block: Block) -> str:
    """How what a block says begins, on one line; of a summary, without the frame it stands in."""
    text = block.texts[-1][1]
    if block.kind is BlockKind.TOOL:
        text = str(json.loads(text)["description"])
    if block.kind is BlockKind.SUMMARY:
        text = text.partition("\n---\n")[2] or text
    if block.kind is BlockKind.TOOL_OUTPUT and not text:
        text = block.texts[0][1]
    return excerpt(text, EXCERPT)


@register.filter
def span_of(block: Block) -> str:
    """``message 7``, ``messages 7–12``; empty where a block is of none."""
    if not block.first_seq:
        return ""
    if block.first_seq == block.last_seq:
        return f"message {block.first_seq:,}"
    return f"messages {block.first_seq:,}–{block.last_seq:,}"


@register.filter
def origin_of(block: Block, session_id: str) -> str:
    """Where what a block was made of is shown."""
    if not block.item_id:
        return ""
    if block.kind is BlockKind.SUMMARY:
        return address_of("inspect-summary", session_id, block.item_id)
    message = address_of("inspect-sightings", session_id, block.item_id)
    return f"{message}#{block.part_id}" if message and block.part_id else message
