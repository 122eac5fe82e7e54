"""What the page of a call says beside the record: its parameters, the shares of its prompt, and its differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compaction_app.inspector.calls import ComparedBlock
from compaction_app.templatetags.calls import COLOURS, KINDS, begins, origin_of, share_of, span_of
from mnesis_core.context.blocks import Block, BlockKind
from mnesis_core.records import CallRecord
from mnesis_core.text import excerpt
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import address_of

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
class ChangeView:
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


def view_change(change: ComparedBlock, session_id: str) -> ChangeView:
    """A difference with its numbers and reasons as words."""
    difference, block = change.difference, change.block
    span = span_of(block) if block else ""
    is_plain = block is not None and block.kind is BlockKind.MESSAGE
    return ChangeView(
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
