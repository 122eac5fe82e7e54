"""Calls, blocks and differences as the pages show them: numbers as words, texts that are safe to show, addresses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction_app.inspector.opened import ComparedBlock
from mnesis_core.assembly.blocks import Block, BlockKind
from mnesis_core.record import CallRecord
from mnesis_core.visible import excerpt
from sessions_app.inspecting import address_of
from sessions_app.queries.call_headings import CallHeading
from sessions_app.rendering import format_duration, format_money, format_number, show_invisible

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
CHANGES = {
    "entered": "entered",
    "left": "left",
    "summarised": "summarised",
    "tombstoned": "tombstoned",
    "shortened": "shortened",
    "unshortened": "whole again",
    "omitted": "left out",
    "unomitted": "back in",
    "answered": "answered",
    "grew": "grew",
}
REASONS = {
    "first_call": "The first call: everything is new.",
    "new": "It was said since then.",
    "stands_for_earlier": "It stands for what the earlier prompt showed.",
    "fits_again": "There is room for it again.",
    "summarised": "A summary stands for it now.",
    "revised": "A revision took its place.",
    "over_budget": "There was no room for it.",
    "pruned": "Its output was pruned; a short mark stands in its place.",
    "result_came": "Its result came.",
    "more_parts": "More of it was written.",
    "offered": "It may be called now.",
    "not_offered": "It may not be called any more.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """A call as a line."""

    id: str
    number: str
    purpose: str
    model: str
    state: str
    error: str
    created_at: Any
    estimated: str
    input: str
    output: str
    cache: str
    """Read from and written to the provider's cache."""
    source: str
    cost: str
    duration: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBlock:
    """A block as a line."""

    number: int
    """Its place in the prompt, from 1."""
    block: Block
    kind: str
    colour: str
    name: str
    tokens: str
    share: str
    begins: str
    span: str
    """The messages it is of or stands for."""
    origin: str
    """Where what it was made of is shown; empty: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """All blocks of one kind, and their stretch of a bar of 1,000."""

    kind: str
    colour: str
    count: int
    tokens: str
    share: str
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A difference as a line."""

    change: str
    tone: str
    """Of its chip."""
    title: str
    name: str
    begins: str
    span: str
    origin: str
    reason: str
    by: str
    """Where the summary is that took its place."""
    tokens: str


def shown_call(call: CallHeading, number: int) -> ShownCall:
    """A call with its numbers as words."""
    usage = call.usage
    cached = [(usage.tokens_cache_read, "read"), (usage.tokens_cache_write, "written")]
    return ShownCall(
        id=call.id,
        number=f"{number:,}",
        purpose=show_invisible(call.purpose),
        model=show_invisible(call.model),
        state=call.state,
        error=show_invisible(call.error_code or ""),
        created_at=call.created_at,
        estimated=f"{call.estimated_tokens:,}",
        input=format_number(usage.tokens_input),
        output=format_number(usage.tokens_output),
        cache=", ".join(f"{count:,} {what}" for count, what in cached if count),
        source=SOURCES.get(usage.usage_source or "", ""),
        cost=format_money(usage.cost_micros),
        duration=format_duration(call.seconds),
    )


def facts_of(call: CallRecord) -> list[tuple[str, str]]:
    """The rest of what is known of a call, as (name, value)."""
    facts = [
        ("Asked as", call.provider_model),
        ("Attempts", "" if call.attempts in (None, 1) else str(call.attempts)),
        ("Outcome", call.outcome or ""),
        ("Finish reason", call.finish_reason or ""),
        *_parameters(call.parameters),
    ]
    return [(name, show_invisible(value)) for name, value in facts if value]


def _parameters(parameters: Any) -> list[tuple[str, str]]:
    given = parameters if isinstance(parameters, dict) else {}
    hidden = ("texts", "calibration")
    calibration = given.get("calibration")
    ratio = calibration.get("ratio") if isinstance(calibration, dict) else None
    facts = [(_label(name), _value(value)) for name, value in given.items() if name not in hidden]
    return [*facts, ("Estimate corrected by", f"× {ratio:g}")] if isinstance(ratio, int | float) else facts


def _label(name: str) -> str:
    words = excerpt(str(name), 40).replace("_", " ")
    return words[:1].upper() + words[1:]


def _value(value: Any) -> str:
    return f"{value:,}" if type(value) is int else excerpt(str(value), 200)


def shown_blocks(blocks: Sequence[Block], session_id: str, *, first: int, count: int) -> list[ShownBlock]:
    """Some of the blocks of a prompt, from the place ``first`` on."""
    total = sum(block.tokens for block in blocks)
    chosen = enumerate(blocks[first : first + count], start=first + 1)
    return [_shown_block(block, number, total, session_id) for number, block in chosen]


def _shown_block(block: Block, number: int, total: int, session_id: str) -> ShownBlock:
    return ShownBlock(
        number=number,
        block=block,
        kind=KINDS[block.kind],
        colour=COLOURS.get(block.kind, "other"),
        name=excerpt(block.name, 80),
        tokens=f"{block.tokens:,}",
        share=share_of(block.tokens, total),
        begins=begins(block),
        span=span_of(block),
        origin=origin_of(block, session_id),
    )


def shares_of(blocks: Iterable[Block]) -> list[Share]:
    """How much of a prompt is of what kind, in the order of ``KINDS``."""
    counts, tokens = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for block in blocks:
        counts[block.kind] += 1
        tokens[block.kind] += block.tokens
    total, at, shares = sum(tokens.values()), 0, []
    for kind in [kind for kind in KINDS if counts[kind]]:
        x, end = 1_000 * at / max(total, 1), 1_000 * (at + tokens[kind]) / max(total, 1)
        at += tokens[kind]
        shares.append(
            Share(
                kind=KINDS[kind],
                colour=COLOURS.get(kind, "other"),
                count=counts[kind],
                tokens=f"{tokens[kind]:,}",
                share=share_of(tokens[kind], total),
                x=round(x, 2),
                width=round(end - x, 2),
            )
        )
    return shares


def share_of(tokens: int, total: int) -> str:
    """A share in words: ``12 %``, ``<1 %``."""
    share = 100 * tokens / max(total, 1)
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"


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


def span_of(block: Block) -> str:
    """``message 7``, ``messages 7–12``; empty where a block is of none."""
    if not block.first_seq:
        return ""
    if block.first_seq == block.last_seq:
        return f"message {block.first_seq:,}"
    return f"messages {block.first_seq:,}–{block.last_seq:,}"


def origin_of(block: Block, session_id: str) -> str:
    """Where what a block was made of is shown."""
    if not block.item_id:
        return ""
    if block.kind is BlockKind.SUMMARY:
        return address_of("inspect-summary", session_id, block.item_id)
    message = address_of("inspect-sightings", session_id, block.item_id)
    return f"{message}#{block.part_id}" if message and block.part_id else message


def shown_change(change: ComparedBlock, session_id: str) -> ShownChange:
    """A difference with its numbers and reasons as words."""
    difference, block = change.difference, change.block
    span = span_of(block) if block else ""
    is_plain = block is not None and block.kind is BlockKind.MESSAGE
    return ShownChange(
        change=CHANGES[difference.change],
        tone=_tone(difference.change),
        title=span.capitalize() if is_plain else KINDS[block.kind] if block else difference.kind.capitalize(),
        name=excerpt(block.name if block else difference.id, 80),
        begins=begins(block) if block else "",
        span="" if is_plain else span,
        origin=origin_of(block, session_id) if block else "",
        reason=REASONS.get(difference.reason, ""),
        by=address_of("inspect-summary", session_id, difference.by) if difference.by else "",
        tokens=signed(change.tokens),
    )


def _tone(change: str) -> str:
    if change in ("entered", "unomitted", "unshortened", "answered", "grew"):
        return "accent"
    return "warning" if change in ("shortened", "omitted", "tombstoned") else ""


def signed(tokens: int | None) -> str:
    """``+1,203``, ``±0``; empty where it is not known."""
    if tokens is None:
        return ""
    return f"{tokens:+,}".replace("-", "\N{MINUS SIGN}") if tokens else "±0"
