"""A summary's text with its sentences marked: each can be pointed at, and those that rest on nothing say so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from compaction_app.lineage.queries import ClaimRecord
from compaction_app.templatetags.compaction import summary_html
from mnesis_core.compaction.lineage import Support
from mnesis_core.records import SummaryRecord
from mnesis_core.text import decode_text, encode_text
from sessions_app.pages.markdown import render_markdown, show_invisible

OPENS, CLOSES = "\u2e22", "\u2e23"
"""Around each sentence while Markdown is rendered: brackets, since beside those it reads emphasis as it does beside a space."""
SHOWN = 5  # messages that are named
NOTES = {Support.NONE: "no source", Support.PARTLY: "partly"}
_TOKEN = re.compile(rf"""(?P<tag><(?:"[^"]*"|[^">])*>)|(?P<mark>[{OPENS}{CLOSES}])|[^<{OPENS}{CLOSES}]+""")
_ALONE = re.compile(r"</?(a|math)\b")


def marked_summary(summary: SummaryRecord, claims: Sequence[ClaimRecord]) -> SafeString | None:
    """Return a summary as HTML with its sentences marked; ``None`` if it has none that are known."""
    if not claims:
        return None
    html = _as_markdown(summary, claims) if summary_html(summary) is not None else None
    if html is not None:
        return format_html('<div class="prose" dir="auto">{}</div>', html)
    pieces = _pieces(encode_text(summary.text), claims)
    spans = (escape(shown) if claim is None else _span(claim, escape(shown)) + _note(claim) for claim, shown in pieces)
    return format_html('<div class="summary-plain" dir="auto">{}</div>', mark_safe("".join(spans)))  # noqa: S308 - escaped


def rests_on(claim: ClaimRecord) -> str:
    """Return in words what a sentence rests on."""
    numbers = list(dict.fromkeys(message.seq for message in claim.messages))
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    where = f"message{'s' if len(numbers) > 1 else ''} {', '.join(f'{seq:,}' for seq in numbers[:SHOWN])}{more}"
    where = where if numbers else "summaries under it that are not aligned yet"
    there = "" if claim.support is Support.NONE else " there"
    missing = f" Not said{there}: {', '.join(map(show_invisible, claim.missing))}." if claim.missing else ""
    said = {
        Support.QUOTED: f"Said word for word in {where}.",
        Support.SUPPORTED: f"Rests on {where}.",
        Support.PARTLY: f"Rests only partly on {where}.",
        Support.NONE: "Rests on nothing that was said.",
    }
    return said[claim.support] + missing


def _pieces(stored: str, claims: Sequence[ClaimRecord]) -> Iterator[tuple[ClaimRecord | None, str]]:
    """Yield the text in order, as it is shown, with the sentence that each piece is, if it is one."""
    at = 0
    for claim in claims:
        if at <= claim.start < claim.end <= len(stored):
            yield None, show_invisible(decode_text(stored[at : claim.start]))
            yield claim, show_invisible(decode_text(stored[claim.start : claim.end]))
            at = claim.end
    yield None, show_invisible(decode_text(stored[at:]))


def _as_markdown(summary: SummaryRecord, claims: Sequence[ClaimRecord]) -> SafeString | None:
    """Return the rendered text with marks; ``None`` where they would change what Markdown makes of it."""
    if OPENS in summary.text or CLOSES in summary.text:
        return None
    pieces = list(_pieces(encode_text(summary.text), claims))
    marked = "".join(text if claim is None else f"{OPENS}{text}{CLOSES}" for claim, text in pieces)
    html = render_markdown(marked)
    if html.replace(OPENS, "").replace(CLOSES, "") != render_markdown(summary.text):
        return None
    return mark_safe("".join(_with_spans(html, [claim for claim, _ in pieces if claim])))  # noqa: S308 - tags are ours


def _with_spans(html: str, claims: Sequence[ClaimRecord]) -> Iterator[str]:
    """Yield the HTML with a span around each stretch of a sentence, so that no span crosses another element."""
    waiting, current = iter(claims), None
    is_reached, inside = False, ""  # the element that nothing to point at may stand in
    for token in _TOKEN.finditer(html):
        text = token[0]
        if token["tag"]:
            alone = _ALONE.match(text)
            inside = inside if alone is None else "" if text.startswith("</") else alone[1]
            yield text
        elif text == OPENS:
            current, is_reached = next(waiting, None), False
        elif text == CLOSES:
            if current is not None:
                yield _note(current)
            current = None
        elif current is None or inside == "math" or not text.strip():
            yield text
        else:
            yield _span(current, text, is_first=not is_reached and not inside)
            is_reached = is_reached or not inside


def _span(claim: ClaimRecord, html: str, *, is_first: bool = True) -> str:
    """:param html: escaped"""
    classes = f"claim claim-{claim.support.value}"
    if not is_first:
        return format_html('<span class="{}" data-claim="{}">{}</span>', classes, claim.number, mark_safe(html))  # noqa: S308 - escaped
    sources = " ".join(dict.fromkeys(id for id, _ in claim.places))
    seqs = " ".join(str(seq) for seq in dict.fromkeys(message.seq for message in claim.messages))
    return format_html(
        '<span class="{}" data-claim="{}" data-sources="{}" data-messages="{}" data-rests="{}" role="button"'
        ' aria-pressed="false" tabindex="0">{}</span>',
        *(classes, claim.number, sources, seqs, rests_on(claim), mark_safe(html)),  # noqa: S308 - escaped
    )


def _note(claim: ClaimRecord) -> str:
    note = NOTES.get(claim.support)
    return format_html(' <span class="claim-note claim-note-{}">{}</span>', claim.support.value, note) if note else ""
