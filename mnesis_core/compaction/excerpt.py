"""Level 3, which always works: an excerpt of the span, without a model, a worker or a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mnesis_core.context.entries import SummaryEntry
from mnesis_core.context.fitting import common_cap
from mnesis_core.files.footers import NO_IDS, Named, with_footer, without_footer
from mnesis_core.llm.tokens import characters_within, estimate_text
from mnesis_core.messages import StoredMessage, TextPart, ToolPart

HEADER = "[Level 3 excerpt, written without a model: beginnings and ends only]"
VERSION = "excerpt.1"
SHORTEST_QUOTE = 16  # Tokens; a text that gets less is not quoted.
LABEL_TOKENS = 8  # tokens of the name of a quoted text, roughly
SMALLEST_BODY = 48  # tokens
USER_SHARE = 2 / 3  # What the user said comes first.
_ELLIPSIS = " […] "


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotable:
    order: int
    label: str
    text: str
    is_user: bool = False


def message_quotables(messages: Sequence[StoredMessage]) -> tuple[Quotable, ...]:
    """Return what can be quoted of messages: what was said, and the results of tools."""
    found: list[Quotable] = []
    for message in messages:
        for part in (stored.part for stored in message.parts):
            if isinstance(part, TextPart) and part.text.strip():
                label, text, is_user = f"{message.seq} {message.role}", part.text.strip(), message.role == "user"
            elif isinstance(part, ToolPart):
                text = f"{part.input} {part.output or ''} {part.error or ''}".strip()
                label, is_user = f"{message.seq} tool {part.tool_name[:40]}", False
            else:
                continue
            found.append(Quotable(order=len(found), label=label, text=text, is_user=is_user))
    return tuple(found)


def summary_quotables(summaries: Sequence[SummaryEntry]) -> tuple[Quotable, ...]:
    return tuple(
        Quotable(order=order, label=f"{entry.first_seq}-{entry.last_seq}", text=without_footer(entry.text))
        for order, entry in enumerate(summaries)
    )


def excerpt(quotables: Sequence[Quotable], limit: int, source_tokens: int, named: Named = NO_IDS) -> str:
    """Return the beginnings and ends of texts, those of users first, within ``limit`` tokens; never fails.

    The excerpt is smaller than ``source_tokens`` when that is above 60, or, with summaries to name, when those stand in
    it. Ids are named whatever ``limit`` says, since a lost id is a lost file: ``naming`` keeps them few.
    """
    largest = source_tokens - 1
    footer = estimate_text(with_footer("-", named)) if named != NO_IDS else 0
    # Some tokens are left to quotations, however many files have to be named.
    room = max(min(limit, largest) - footer, min(SMALLEST_BODY, largest - footer))
    return with_footer(_quotations(quotables, room), named)


def _quotations(quotables: Sequence[Quotable], limit: int) -> str:
    room = limit - estimate_text(HEADER)
    while room > SHORTEST_QUOTE:
        users = [quotable for quotable in quotables if quotable.is_user]
        others = [quotable for quotable in quotables if not quotable.is_user]
        said = _quotes(users, int(room * USER_SHARE) if others else room)
        rest = _quotes(others, room - sum(estimate_text(line) for line in said.values()))
        text = "\n".join([HEADER, *(line for _, line in sorted((said | rest).items()))])
        if estimate_text(text) <= limit:
            return text
        room = room * 17 // 20
    return HEADER


def _quotes(quotables: Sequence[Quotable], room: int) -> dict[int, str]:
    count = max(0, room) // (SHORTEST_QUOTE + LABEL_TOKENS)
    if count < len(quotables):
        quotables = [*quotables[: count - count // 2], *quotables[len(quotables) - count // 2 :]]
    sizes = [estimate_text(quotable.text) for quotable in quotables]
    cap = common_cap(sizes, room - LABEL_TOKENS * len(quotables))
    return {
        quotable.order: f"[{quotable.label}] {_both_ends(quotable.text, size, cap)}"
        for quotable, size in zip(quotables, sizes, strict=True)
    }


def _both_ends(text: str, size: int, cap: int) -> str:
    if size <= cap:
        return text
    half = (cap - estimate_text(_ELLIPSIS)) // 2
    tail = characters_within(text, half, from_end=True)
    return text[: characters_within(text, half)].rstrip() + _ELLIPSIS + text[len(text) - tail :].lstrip()
