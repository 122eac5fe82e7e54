"""Filters that put turns, model calls, prompts and their differences, compactions and summaries on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.safestring import SafeString

from compaction_app.models import LIVE
from compaction_app.queries import SummaryHead
from mnesis_core.compaction.dag import Node
from mnesis_core.compaction.selection import Outcome
from mnesis_core.context.replay import Block, BlockKind
from mnesis_core.llm.caching import read_prices, saved_micros
from mnesis_core.records import CallRecord, RunRecord, SummaryRecord, UsageRecord
from mnesis_core.text import excerpt
from sessions_app.pages.markdown import (
    MARKDOWN_LIMIT,
    format_counted,
    format_money,
    format_number,
    render_markdown,
    show_invisible,
)
from sessions_app.pages.permissions import address_of
from sessions_app.pages.transcript import first_words
from sessions_app.record.timeline_queries import TurnLine

BEGUN_BY = {
    "chat": "person",
    "task": "parent session",
    "inbox": "peers",
    "import": "import",
    "fork": "copy of a fork",
    "record": "caller's record",
    "openai": "OpenAI client",
    "responses": "OpenAI client",
    "anthropic": "Anthropic client",
}
SOURCES = {
    "provider": "counted by the provider",
    "estimated": "our estimate",
    "imported": "as it was imported",
    "caller": "as the caller said",
}
KINDS: Mapping[BlockKind, str] = {
    BlockKind.SYSTEM: "System prompt",
    BlockKind.TOOL: "Tool",
    BlockKind.FACTS: "Facts",
    BlockKind.SUMMARY: "Summary",
    BlockKind.PASSAGES: "Passages found",
    BlockKind.MESSAGE: "Message",
    BlockKind.TOOL_OUTPUT: "Tool call",
    BlockKind.TOMBSTONE: "Tombstone",
    BlockKind.FILE: "File",
    BlockKind.OPAQUE: "Kept for its provider",
    BlockKind.PATCH: "Change to files",
    BlockKind.GAP: "Left out",
    BlockKind.FORMAT: "Answer format",
    BlockKind.CORRECTION: "Correction",
}
# The colours of the context meter, so that one thing has one colour on every page.
COLOURS: Mapping[BlockKind, str] = {
    BlockKind.SYSTEM: "system",
    BlockKind.TOOL: "tools",
    BlockKind.FACTS: "facts",
    BlockKind.SUMMARY: "summaries",
    BlockKind.PASSAGES: "passages",
    BlockKind.MESSAGE: "messages",
    BlockKind.TOOL_OUTPUT: "tool_outputs",
    BlockKind.FILE: "files",
    BlockKind.FORMAT: "tools",
    BlockKind.CORRECTION: "messages",
}
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
    "reworded": "changed",
}
TONES = dict.fromkeys(("entered", "unomitted", "unshortened", "answered", "grew"), "chip-accent") | dict.fromkeys(
    ("shortened", "omitted", "tombstoned", "reworded"), "chip-warning"
)
REASONS = {
    "first_call": "The first call: everything is new.",
    "new": "Added since then.",
    "stands_for_earlier": "Covers what the earlier prompt showed.",
    "fits_again": "There is room for it again.",
    "summarised": "A summary covers it now.",
    "revised": "Replaced by a revision.",
    "over_budget": "There was no room for it.",
    "pruned": "Its output was pruned and replaced by a tombstone.",
    "result_came": "Its result arrived.",
    "more_parts": "More of it was written.",
    "offered": "Now available.",
    "not_offered": "No longer available.",
    "other_branch": "The two calls were made on different branches.",
    "sent": "The program sent it with this request.",
    "not_sent": "The program did not send it again.",
    "reworded": "Worded differently in this request.",
}
HOW_SHOWN = {
    "quoted": "partly quoted in its prompt",
    "shortened": "shortened in its prompt",
    "left_out": "not in its prompt: no room, or not sent to models",
    "unknown": "its manifest cannot be read",
}
ENDINGS: dict[str, str] = {
    Outcome.TARGET_MET: "It ended because the context was small enough.",
    Outcome.FITS: "Nothing older is left to summarise; the context fits.",
    Outcome.NOTHING_TO_SUMMARISE: "It ended at once: there was nothing to summarise.",
    Outcome.STILL_TOO_LARGE: "Nothing older is left to summarise, and what remains is still too large: "
    "the model sees its longest texts shortened.",
    Outcome.ROUNDS_EXHAUSTED: "It reached the limit of summaries for one compaction. The next one continues.",
}
MOMENTS = {"soft": "after a turn", "hard": "before a call", "manual": "on request"}
CAUSES = {
    "soft": "after a turn, because the context had passed its soft threshold",
    "hard": "before a call, because the context had passed its hard threshold",
    "manual": "because it was requested",
}
PRUNE_CAUSES = {
    "soft": "the context was above its soft threshold",
    "hard": "the context no longer fit",
    "manual": "it was requested",
}

register = template.Library()
register.filter(first_words)


register.filter("cause", lambda trigger: CAUSES.get(trigger, ""))
register.filter("change_reason", lambda reason: REASONS.get(reason, ""))
register.filter("change_tone", lambda change: TONES.get(change, ""))
register.filter("colour", lambda kind: COLOURS.get(kind, "other"))
register.filter("counted_by", lambda source: SOURCES.get(source, ""))
register.filter("prune_cause", lambda trigger: PRUNE_CAUSES.get(trigger, ""))
# Of these every value has a name: one without is an error.
register.filter("kind", lambda kind: KINDS[kind])
register.filter("change_name", lambda change: CHANGES[change])
register.filter("how_shown", lambda how: HOW_SHOWN[how])


@register.filter
def begun_by(line: TurnLine) -> str:
    return BEGUN_BY.get(line.origin, show_invisible(line.origin))


@register.filter
def cached(usage: UsageRecord) -> str:
    """Return what was read from the provider's cache and written to it."""
    counts = [(usage.tokens_cache_read, "read"), (usage.tokens_cache_write, "written")]
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


@register.filter
def cache_saved(call: CallRecord) -> str:
    """Return what a provider's cache did for a call, in words and money; empty where its prices are not known."""
    given: Any = call.parameters
    given = given if isinstance(given, dict) else {}
    cache = given.get("cache")
    lifetime = str(cache.get("lifetime", "")) if isinstance(cache, dict) else ""
    read, written = call.usage.tokens_cache_read or 0, call.usage.tokens_cache_write or 0
    prices = read_prices(given.get("prices"))
    if prices is None or not (read or written):
        return ""
    saved = saved_micros(prices, read=read, written=written, lifetime=lifetime)
    if saved < 0:
        return f"{format_money(-saved)} of it to fill the cache"
    return f"{format_money(saved)} saved by the cache"


@register.filter
def tokens_used(usage: UsageRecord | None) -> str:
    if usage is None or (usage.tokens_input is None and usage.tokens_output is None):
        return ""
    cached = f", {format_number(usage.tokens_cache_read)} cached" if usage.tokens_cache_read else ""
    return f"{format_number(usage.tokens_input)} in, {format_number(usage.tokens_output)} out{cached}"


@register.filter
def call_facts(call: CallRecord) -> list[tuple[str, str]]:
    """Return (name, value) of what a call has besides its numbers, the parameters sent to the provider among it."""
    given: Any = call.parameters
    given = given if isinstance(given, dict) else {}
    sent, not_taken = (part if isinstance(part := given.get(name), dict) else {} for name in ("sent", "not_taken"))
    calibration = given.get("calibration")
    ratio = calibration.get("ratio") if isinstance(calibration, dict) else None
    facts = [
        ("Asked as", call.provider_model),
        ("Attempts", "" if call.attempts in (None, 1) else str(call.attempts)),
        ("Outcome", call.outcome or ""),
        ("Finish reason", call.finish_reason or ""),
        ("Stop sequence", call.stop_sequence or ""),
    ]
    for name, value in (given | sent).items():
        if name == "cache" and isinstance(value, dict):
            lifetime = {"5m": "5 minutes", "1h": "an hour"}.get(str(value.get("lifetime")), "")
            facts.append(("Kept by the provider", f"for {lifetime} after it was last read" if lifetime else ""))
        elif name not in ("texts", "calibration", "sent", "not_taken", "prices"):
            label = excerpt(str(name), 40).replace("_", " ")
            text = f"{value:,}" if type(value) is int else excerpt(str(value), 200)
            facts.append((label[:1].upper() + label[1:], text))
    if isinstance(given.get("texts"), dict) and "response_format" in given["texts"]:
        facts.append(("Response format", "sent to the provider"))
    facts += [(f"Not sent: {excerpt(str(name), 40)}", excerpt(str(why), 200)) for name, why in not_taken.items()]
    if isinstance(ratio, int | float):
        facts.append(("Estimate corrected by", f"× {ratio:g}"))
    return [(name, show_invisible(value)) for name, value in facts if value]


@register.filter
def share_of(tokens: int, total: int) -> str:
    share = 100 * tokens / max(total, 1)
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"


@register.filter
def begins(block: Block) -> str:
    """Return the beginning of a block on one line; of a summary, facts and passages, without the frame around them."""
    text = block.texts[0 if block.kind is BlockKind.MESSAGE else -1][1]
    if block.kind is BlockKind.TOOL:
        tool = json.loads(text)
        inner = tool.get("function")  # of Chat Completions, as a client of the gateway sent it
        text = str((inner if isinstance(inner, dict) else tool).get("description") or "")
    if block.kind is BlockKind.SUMMARY:
        text = text.partition("\n---\n")[2] or text
    if block.kind is BlockKind.FACTS:
        text = text.split("\n", 2)[-1].removesuffix("</facts>")
    if block.kind is BlockKind.PASSAGES:
        text = text.partition("\n\n")[2].removesuffix("</passages>") or text
    if block.kind is BlockKind.TOOL_OUTPUT and not text:
        text = block.texts[0][1]
    return excerpt(text, 160)


def span_name(first: int, last: int) -> str:
    return f"message {first:,}" if first == last else f"messages {first:,}–{last:,}"


@register.filter
def span_of(block: Block) -> str:
    return span_name(block.first_seq, block.last_seq) if block.first_seq else ""


@register.filter
def origin_of(block: Block | None, session_id: str) -> str:
    if block is None or not block.item_id:
        return ""
    if block.kind is BlockKind.SUMMARY:
        return address_of("inspect-summary", session_id, block.item_id)
    message = address_of("inspect-sightings", session_id, block.item_id)
    return f"{message}#{block.part_id}" if message and block.part_id else message


@register.filter
def signed(tokens: int | None) -> str:
    """Return ``+1,203`` or ``±0``; empty where the number is not known."""
    if tokens is None:
        return ""
    return f"{tokens:+,}".replace("-", "\N{MINUS SIGN}") if tokens else "±0"


@register.filter
def is_live(run: RunRecord | None) -> bool:
    return run is not None and run.state in LIVE


@register.filter
def has_changed(run: RunRecord) -> bool:
    return bool(run.summary_ids) or bool(run.pruned_parts)


@register.filter
def ending(run: RunRecord | None) -> str:
    if run and run.turn_ids and run.outcome not in (None, Outcome.ROUNDS_EXHAUSTED):
        return "It summarised the named turns."
    return ENDINGS.get(run.outcome or "", "") if run else ""


@register.filter
def moment_of(run: RunRecord) -> str:
    of = f", of {format_counted(len(run.turn_ids), 'named turn')}" if run.turn_ids else ""
    return MOMENTS.get(run.trigger, run.trigger) + of


@register.filter
def rejections(run: RunRecord) -> list[str]:
    return [show_invisible(f"level {attempt.level}: {attempt.reason}") for attempt in run.tries if not attempt.accepted]


@register.filter
def models_of(summaries: Sequence[SummaryHead]) -> str:
    return ", ".join(dict.fromkeys(show_invisible(head.model) or "no model" for head in summaries))


@register.filter
def summary_name(summary: SummaryRecord | SummaryHead | Node) -> str:
    return f"{summary.kind.capitalize()} summary of {span_name(summary.first_seq, summary.last_seq)}"


@register.filter
def span_numbers(span: tuple[int, int]) -> str:
    first, last = span
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


@register.filter
def summary_html(summary: SummaryRecord) -> SafeString | None:
    """Return the text as HTML; ``None`` for an excerpt by rule, which is no Markdown, and for a text too long for it."""
    if summary.level == 3 or len(summary.text) > MARKDOWN_LIMIT:
        return None
    return render_markdown(summary.text)


@register.filter
def count_words(sorts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return ``31 in place``, ``24 leaves over messages`` and so on, without those that there are none of."""
    here = [sort for sort in sorts if not sort["is_superseded"]]
    leaves = sum(sort["number"] for sort in here if sort["kind"] == "leaf")
    counted = (
        (sum(sort["number"] for sort in here), "in place"),
        (leaves, "leaf over messages" if leaves == 1 else "leaves over messages"),
        (sum(sort["number"] for sort in here if sort["kind"] == "condensed"), "condensed"),
        (sum(sort["number"] for sort in here if sort["level"] == 3), "of level 3"),
        (sum(sort["number"] for sort in here if sort["freshness"] == "stale"), "stale"),
        (sum(sort["number"] for sort in sorts if sort["is_superseded"]), "superseded"),
    )
    return [f"{number:,} {words}" for number, words in counted if number]
