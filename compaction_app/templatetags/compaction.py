"""Filters that put turns, model calls, prompts and their differences, compactions and summaries on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from compaction_app.models import LIVE
from compaction_app.queries import SummaryHead
from mnesis_core.compaction.dag import Node
from mnesis_core.compaction.selection import Outcome
from mnesis_core.context.replay import Block, BlockKind
from mnesis_core.llm.caching import read_prices, saved_micros
from mnesis_core.records import CallRecord, RunRecord, SummaryRecord, UsageRecord
from mnesis_core.text import excerpt
from sessions_app.pages.formats import format_counted, format_money, format_number, localised
from sessions_app.pages.kept_texts import in_language
from sessions_app.pages.markdown import MARKDOWN_LIMIT, render_markdown, show_invisible
from sessions_app.pages.permissions import address_of
from sessions_app.pages.transcript import first_words
from sessions_app.record.timeline_queries import TurnLine

BEGUN_BY = {
    "chat": pgettext_lazy("what began a turn", "person"),
    "task": pgettext_lazy("what began a turn", "parent session"),
    "inbox": pgettext_lazy("what began a turn", "peers"),
    "import": pgettext_lazy("what began a turn", "import"),
    "fork": pgettext_lazy("what began a turn", "copy of a fork"),
    "record": pgettext_lazy("what began a turn", "caller's record"),
    "openai": pgettext_lazy("what began a turn", "OpenAI client"),
    "responses": pgettext_lazy("what began a turn", "OpenAI client"),
    "anthropic": pgettext_lazy("what began a turn", "Anthropic client"),
}
SOURCES = {
    "provider": gettext_lazy("counted by the provider"),
    "estimated": gettext_lazy("our estimate"),
    "imported": gettext_lazy("as it was imported"),
    "caller": gettext_lazy("as the caller said"),
}
KINDS = {
    BlockKind.SYSTEM: gettext_lazy("System prompt"),
    BlockKind.TOOL: gettext_lazy("Tool"),
    BlockKind.FACTS: gettext_lazy("Facts"),
    BlockKind.SUMMARY: gettext_lazy("Summary"),
    BlockKind.PASSAGES: gettext_lazy("Passages found"),
    BlockKind.MESSAGE: gettext_lazy("Message"),
    BlockKind.TOOL_OUTPUT: gettext_lazy("Tool call"),
    BlockKind.TOMBSTONE: gettext_lazy("Tombstone"),
    BlockKind.FILE: gettext_lazy("File"),
    BlockKind.OPAQUE: gettext_lazy("Kept for its provider"),
    BlockKind.PATCH: gettext_lazy("Change to files"),
    BlockKind.GAP: gettext_lazy("Left out"),
    BlockKind.FORMAT: gettext_lazy("Answer format"),
    BlockKind.CORRECTION: gettext_lazy("Correction"),
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
    "entered": pgettext_lazy("change of a prompt", "entered"),
    "left": pgettext_lazy("change of a prompt", "left"),
    "summarised": pgettext_lazy("change of a prompt", "summarised"),
    "tombstoned": pgettext_lazy("change of a prompt", "tombstoned"),
    "shortened": pgettext_lazy("change of a prompt", "shortened"),
    "unshortened": pgettext_lazy("change of a prompt", "whole again"),
    "omitted": pgettext_lazy("change of a prompt", "left out"),
    "unomitted": pgettext_lazy("change of a prompt", "back in"),
    "answered": pgettext_lazy("change of a prompt", "answered"),
    "grew": pgettext_lazy("change of a prompt", "grew"),
    "reworded": pgettext_lazy("change of a prompt", "changed"),
}
TONES = dict.fromkeys(("entered", "unomitted", "unshortened", "answered", "grew"), "chip-accent") | dict.fromkeys(
    ("shortened", "omitted", "tombstoned", "reworded"), "chip-warning"
)
REASONS = {
    "first_call": gettext_lazy("The first call: everything is new."),
    "new": gettext_lazy("Added since then."),
    "stands_for_earlier": gettext_lazy("Covers what the earlier prompt showed."),
    "fits_again": gettext_lazy("There is room for it again."),
    "summarised": gettext_lazy("A summary covers it now."),
    "revised": gettext_lazy("Replaced by a revision."),
    "over_budget": gettext_lazy("There was no room for it."),
    "pruned": gettext_lazy("Its output was pruned and replaced by a tombstone."),
    "result_came": gettext_lazy("Its result arrived."),
    "more_parts": gettext_lazy("More of it was written."),
    "offered": gettext_lazy("Now available."),
    "not_offered": gettext_lazy("No longer available."),
    "other_branch": gettext_lazy("The two calls were made on different branches."),
    "sent": gettext_lazy("The program sent it with this request."),
    "not_sent": gettext_lazy("The program did not send it again."),
    "reworded": gettext_lazy("Worded differently in this request."),
}
HOW_SHOWN = {
    "quoted": gettext_lazy("partly quoted in its prompt"),
    "shortened": gettext_lazy("shortened in its prompt"),
    "left_out": gettext_lazy("not in its prompt: no room, or not sent to models"),
    "unknown": gettext_lazy("its manifest cannot be read"),
}
ENDINGS: dict[str, Promise] = {
    Outcome.TARGET_MET: gettext_lazy("It ended because the context was small enough."),
    Outcome.FITS: gettext_lazy("Nothing older is left to summarise; the context fits."),
    Outcome.NOTHING_TO_SUMMARISE: gettext_lazy("It ended at once: there was nothing to summarise."),
    Outcome.STILL_TOO_LARGE: gettext_lazy(
        "Nothing older is left to summarise, and what remains is still too large: "
        "the model sees its longest texts shortened."
    ),
    Outcome.ROUNDS_EXHAUSTED: gettext_lazy(
        "It reached the limit of summaries for one compaction. The next one continues."
    ),
}
MOMENTS = {
    "soft": gettext_lazy("after a turn"),
    "hard": gettext_lazy("before a call"),
    "manual": gettext_lazy("on request"),
}
CAUSES = {
    "soft": gettext_lazy("after a turn, because the context had passed its soft threshold"),
    "hard": gettext_lazy("before a call, because the context had passed its hard threshold"),
    "manual": gettext_lazy("because it was requested"),
}
PRUNE_CAUSES = {
    "soft": gettext_lazy("the context was above its soft threshold"),
    "hard": gettext_lazy("the context no longer fit"),
    "manual": gettext_lazy("it was requested"),
}

LIFETIMES = {
    "5m": gettext_lazy("for 5 minutes after it was last read"),
    "1h": gettext_lazy("for an hour after it was last read"),
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
    return str(BEGUN_BY.get(line.origin, show_invisible(line.origin)))


@register.filter
def cached(usage: UsageRecord, hour: int | None = None) -> str:
    """Return what was read from the provider's cache and written to it, and how much of this for an hour."""
    read, written = usage.tokens_cache_read, usage.tokens_cache_write
    known = (
        _("%(tokens)s read") % {"tokens": format_number(read)} if read else "",
        _("%(tokens)s written") % {"tokens": format_number(written)} if written else "",
        _("%(tokens)s of these for an hour") % {"tokens": format_number(hour)} if hour else "",
    )
    return ", ".join(filter(None, known))


@register.filter
def cache_saved(call: CallRecord) -> str:
    """Return what a provider's cache did for a call, in words and money; empty where its prices are not known."""
    given: Any = call.parameters
    given = given if isinstance(given, dict) else {}
    read, written = call.usage.tokens_cache_read or 0, call.usage.tokens_cache_write or 0
    hour = call.tokens_cache_write_1h
    if hour is None:  # Older calls do not say it; all that one marked has one lifetime.
        cache = given.get("cache")
        hour = written if isinstance(cache, dict) and cache.get("lifetime") == "1h" else 0
    prices = read_prices(given.get("prices"))
    if prices is None or not (read or written):
        return ""
    saved = saved_micros(prices, read=read, written=written, hour=hour)
    if saved < 0:
        return _("%(cost)s of it to fill the cache") % {"cost": format_money(-saved)}
    return _("%(cost)s saved by the cache") % {"cost": format_money(saved)}


@register.filter
def tokens_used(usage: UsageRecord | None) -> str:
    if usage is None or (usage.tokens_input is None and usage.tokens_output is None):
        return ""
    numbers = (usage.tokens_input, usage.tokens_output, usage.tokens_cache_read)
    shown = dict(zip(("tokens_in", "tokens_out", "cached"), map(format_number, numbers), strict=True))
    if usage.tokens_cache_read:
        return _("%(tokens_in)s in, %(tokens_out)s out, %(cached)s cached") % shown
    return _("%(tokens_in)s in, %(tokens_out)s out") % shown


@register.filter
def call_facts(call: CallRecord) -> list[tuple[str, str]]:
    """Return (name, value) of what a call has besides its numbers, the parameters sent to the provider among it."""
    given: Any = call.parameters
    given = given if isinstance(given, dict) else {}
    sent, not_taken = (part if isinstance(part := given.get(name), dict) else {} for name in ("sent", "not_taken"))
    calibration = given.get("calibration")
    ratio = calibration.get("ratio") if isinstance(calibration, dict) else None
    facts = [
        (_("Asked as"), call.provider_model),
        (_("Attempts"), "" if call.attempts in (None, 1) else str(call.attempts)),
        (_("Outcome"), call.outcome or ""),
        (_("Finish reason"), call.finish_reason or ""),
        (_("Stop sequence"), call.stop_sequence or ""),
    ]
    for name, value in (given | sent).items():
        if name == "cache" and isinstance(value, dict):
            facts.append((_("Kept by the provider"), str(LIFETIMES.get(str(value.get("lifetime")), ""))))
        elif name not in ("texts", "calibration", "sent", "not_taken", "prices"):
            label = excerpt(str(name), 40).replace("_", " ")
            text = format_number(value) if type(value) is int else excerpt(str(value), 200)
            facts.append((label[:1].upper() + label[1:], text))
    if isinstance(given.get("texts"), dict) and "response_format" in given["texts"]:
        facts.append((_("Response format"), _("sent to the provider")))
    for name, why in not_taken.items():
        facts.append((_("Not sent: %(name)s") % {"name": excerpt(str(name), 40)}, excerpt(in_language(str(why)), 200)))
    if isinstance(ratio, int | float):
        facts.append((_("Estimate corrected by"), f"× {localised(f'{ratio:g}')}"))
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
    if first == last:
        return _("message %(number)s") % {"number": format_number(first)}
    return _("messages %(first)s–%(last)s") % {"first": format_number(first), "last": format_number(last)}


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
    return localised(f"{tokens:+,}".replace("-", "\N{MINUS SIGN}")) if tokens else "±0"


@register.filter
def is_live(run: RunRecord | None) -> bool:
    return run is not None and run.state in LIVE


@register.filter
def has_changed(run: RunRecord) -> bool:
    return bool(run.summary_ids) or bool(run.pruned_parts)


@register.filter
def ending(run: RunRecord | None) -> str:
    if run and run.turn_ids and run.outcome not in (None, Outcome.ROUNDS_EXHAUSTED):
        return _("It summarised the named turns.")
    return str(ENDINGS.get(run.outcome or "", "")) if run else ""


@register.filter
def moment_of(run: RunRecord) -> str:
    moment = str(MOMENTS.get(run.trigger, run.trigger))
    if run.turn_ids:
        return _("%(moment)s, of %(turns)s") % {
            "moment": moment,
            "turns": format_counted(len(run.turn_ids), "named turn"),
        }
    return moment


@register.filter
def rejections(run: RunRecord) -> list[str]:
    return [
        show_invisible(_("level %(level)s: %(reason)s") % {"level": attempt.level, "reason": attempt.reason})
        for attempt in run.tries
        if not attempt.accepted
    ]


@register.filter
def models_of(summaries: Sequence[SummaryHead]) -> str:
    return ", ".join(dict.fromkeys(show_invisible(head.model) or _("no model") for head in summaries))


@register.filter
def summary_name(summary: SummaryRecord | SummaryHead | Node) -> str:
    span = span_name(summary.first_seq, summary.last_seq)
    if summary.kind == "leaf":
        return _("Leaf summary of %(span)s") % {"span": span}
    return _("Condensed summary of %(span)s") % {"span": span}


@register.filter
def span_numbers(span: tuple[int, int]) -> str:
    first, last = span
    return format_number(first) if first == last else f"{format_number(first)}–{format_number(last)}"


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
        (sum(sort["number"] for sort in here), _("%(number)s in place")),
        (leaves, ngettext("%(number)s leaf over messages", "%(number)s leaves over messages", leaves)),
        (sum(sort["number"] for sort in here if sort["kind"] == "condensed"), _("%(number)s condensed")),
        (sum(sort["number"] for sort in here if sort["level"] == 3), _("%(number)s of level 3")),
        (sum(sort["number"] for sort in here if sort["freshness"] == "stale"), _("%(number)s stale")),
        (sum(sort["number"] for sort in sorts if sort["is_superseded"]), _("%(number)s superseded")),
    )
    return [words % {"number": format_number(number)} for number, words in counted if number]


@register.simple_tag
def event_link(ledger_url: str, seq: int) -> str:
    """Return ``event 1,204`` as a link to its entry, or as plain text for readers without the ledger."""
    shown = _("event %(seq)s") % {"seq": format_number(seq)}
    return format_html('<a href="{}?seq={}">{}</a>', ledger_url, seq, shown) if ledger_url else shown
