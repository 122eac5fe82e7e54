"""What the pages make of text, numbers and times. Two walls against hostile text: Markdown without HTML, then nh3."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from mnesis_core.visible import visible_runs
from sessions_app.colours import CLASSES, colour_code
from sessions_app.maths import ATTRIBUTES, BLOCK, INLINE, TAGS, draw_formula, find_formulas
from sessions_app.maths import CLASSES as MATH_CLASSES
from sessions_app.maths import VALUES as MATH_VALUES

MARKDOWN_LIMIT = 40_000
"""Characters. A longer text is shown as it is, folded: nobody reads it as prose, and parsing it costs seconds."""
NESTING_LIMIT = 24
"""Levels of quotes and lists. markdown-it drops what is nested deeper, so such a text is shown as it is."""
DRAWN_LIMIT = 400_000
"""Characters of drawn formulas in one text, ten times what was written; the formulas after these stay TeX."""
PIECE = 100_000
"""Characters of one more piece of a long text."""

_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_HEADING_SHIFT = 2
_TAGS = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ol", "ul", "li", "figure", "figcaption", "pre", "code"),
    *("a", "strong", "em", "s", "del", "table", "thead", "tbody", "tr", "th", "td", "span", "div"),
}
_ALIGNMENTS = {"align": {"left", "center", "right"}}
_NAMES = {
    "span": {"class": {name for _, name in CLASSES}},
    "div": {"class": {"table-scroll"}},
    "figure": {"class": {"math"}},
    "code": {"class": {"math"}},
}
"""Elements that may have a class, and which."""
_LABELS = {
    **dict.fromkeys(("mermaid", "dot", "graphviz", "plantuml", "puml", "d2"), "a diagram, as its text"),
    **dict.fromkeys(("math", "latex", "tex", "katex"), "a formula, as TeX"),
}
"""What a block of code is said to be beside its language: nothing here draws it."""
_CLEANER = nh3.Cleaner(
    tags=_TAGS | TAGS,
    clean_content_tags={"script", "style"},
    attributes={"a": {"href", "title"}, "ol": {"start"}} | ATTRIBUTES,
    tag_attribute_values={"th": _ALIGNMENTS, "td": _ALIGNMENTS} | _NAMES | MATH_VALUES,
    allowed_classes={"mtd": set(MATH_CLASSES.values())},
    set_tag_attribute_values={"a": {"target": "_blank"}},
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener nofollow",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongText:
    """A stretch of a stored text."""

    part_id: str
    field: str
    text: str
    """Ready to be shown: invisible characters are spelled out."""
    end: int
    """Stored characters up to the end of this stretch."""
    length: int

    @property
    def rest(self) -> int:
        """Characters after this stretch."""
        return self.length - self.end

    @property
    def size(self) -> str:
        """Of the whole text, for people."""
        return format_characters(self.length)

    @property
    def next_size(self) -> str:
        """Of the piece that comes next, for people."""
        return format_characters(min(self.rest, PIECE))


def show_invisible(text: str) -> str:
    """The text with a mark such as ``⟨U+202E⟩`` for what hides or reorders; it can always be encoded as UTF-8."""
    return "".join(f"⟨{run.text}⟩" if run.is_mark else run.text for run in visible_runs(text))


@lru_cache(maxsize=512)
def render_markdown(text: str) -> SafeString:
    """Markdown as safe HTML. Raw HTML, images and link definitions stay visible as the text they are."""
    shown = show_invisible(text)
    tokens = _MARKDOWN.parse(shown)
    if any(token.level >= NESTING_LIMIT - 1 for token in tokens):
        return mark_safe(_block(shown))  # noqa: S308 - escaped
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return mark_safe(_CLEANER.clean(html))  # noqa: S308 - nh3 keeps an allow-list of tags and attributes


def format_count(number: int | None) -> str:
    """A count that is read at a glance: ``842``, ``12.4k``, ``1.2M``; ``?`` when it is not known."""
    if number is None:
        return "?"
    if abs(number) < 1_000:
        return str(number)
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(number) >= size * 0.9995:
            short = number / size
            return f"{short:.1f}".removesuffix(".0") + letter if abs(short) < 99.95 else f"{short:.0f}{letter}"
    return str(number)


def format_number(number: int | None) -> str:
    """A number to the last digit: ``12,345``; empty when it is not known."""
    return "" if number is None else f"{number:,}"


def format_counted(number: int, name: str) -> str:
    """``1 turn``, ``1,203 turns``."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def format_characters(number: int) -> str:
    """The size of a text: ``842 characters``, ``12.4k characters``."""
    return f"{format_count(number)} character{'' if number == 1 else 's'}"


def format_size(size: int) -> str:
    """Bytes for people: ``842 B``, ``12.4 KB``, ``1.2 MB`` (of a thousand)."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)):
        if size >= least:
            number = size / least
            return (f"{number:.1f}".removesuffix(".0") if number < 99.95 else f"{number:.0f}") + f" {unit}"
    return f"{size} B"


def format_money(micros: int | None) -> str:
    """Micro-units of money in dollars, as precise as small sums need; empty when it is not known."""
    if micros is None:
        return ""
    if micros == 0:
        return "$0"
    dollars = micros / 1_000_000
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.6f}".rstrip("0")


def format_duration(seconds: float | None) -> str:
    """How long something took: ``340 ms``, ``2.4 s``, ``3 min 05 s``, ``3 min``, ``2 h 10 min``."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s".removesuffix(" 00 s")
    return f"{minutes // 60} h {minutes % 60:02} min".removesuffix(" 00 min")


def round_up(value: float) -> float:
    """The end of a chart's scale: 1, 2, 3, 4, 5, 6 or 8 of a power of ten, and no less than the value."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while value > 0 and power > value:
        power /= 10
    return next((step * power for step in (1, 2, 3, 4, 5, 6, 8) if step * power >= value), 10 * power)


def format_days_ago(day: date, today: date) -> str:
    """The stretch of time that a day belongs to, for headings of a list: ``Today``, ``Previous 7 days``, ``March``, ``2024``."""
    days = (today - day).days
    if days <= 1:
        return "Yesterday" if days == 1 else "Today"
    if days <= 30:
        return f"Previous {7 if days <= 7 else 30} days"
    return f"{day:%B}" if day.year == today.year else str(day.year)


def _is_shown_as_link(url: str) -> bool:
    return _LINK.match(url) is not None


def _render_fence(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    text, info = tokens[index].content, tokens[index].info.strip()
    language = info.partition(" ")[0]
    label = _LABELS.get(language.lower(), "")
    # The whole info string is shown: what is written must not vanish.
    return _block(text, caption=f"{info}: {label}" if label else info, html=colour_code(text, language))


def _render_formula(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    tex, is_block = tokens[index].content, tokens[index].type == BLOCK
    mathml = draw_formula(tex, is_block=is_block) if env.get("drawn", 0) < DRAWN_LIMIT else None
    env["drawn"] = env.get("drawn", 0) + len(mathml or "")
    if mathml is None:
        return _block(tex, is_math=True) if is_block else f'<code class="math">{escape(tex)}</code>'
    return f'<figure class="math">{mathml}</figure>\n' if is_block else mathml


def _block(text: str, *, caption: str = "", html: str | None = None, is_math: bool = False) -> str:
    title = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    name = ' class="math"' if is_math else ""
    return f"<figure{name}>{title}<pre><code>{escape(text) if html is None else html}</code></pre></figure>\n"


def _adapt_tokens(state: Any) -> None:
    for token in state.tokens:
        if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            # The page has headings of its own above these.
            token.tag = f"h{min(6, int(token.tag[1]) + _HEADING_SHIFT)}"
        elif token.tag in ("th", "td") and token.attrs.get("style"):
            token.attrs["align"] = str(token.attrs.pop("style")).rpartition(":")[2]


def _make_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": NESTING_LIMIT})
    markdown.enable(["table", "strikethrough"]).disable(["image", "reference"])
    markdown.validateLink = _is_shown_as_link  # type: ignore[method-assign]
    markdown.add_render_rule("fence", _render_fence)
    markdown.add_render_rule("code_block", _render_fence)
    markdown.add_render_rule(INLINE, _render_formula)
    markdown.add_render_rule(BLOCK, _render_formula)
    # A table that is wider than its message scrolls in a box of its own, and stays a table.
    markdown.add_render_rule("table_open", lambda *_: '<div class="table-scroll"><table>\n')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    find_formulas(markdown)
    markdown.core.ruler.push("mnesis", _adapt_tokens)
    return markdown


_MARKDOWN = _make_markdown()
