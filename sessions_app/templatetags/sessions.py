"""Filters that put texts, numbers, times, models and labels on a page."""

from __future__ import annotations

import os
import zlib
from datetime import datetime
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from django import template
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import get_language, gettext, pgettext
from django.utils.translation import gettext_lazy as _

from mnesis_core.llm.interface import LimitSource, ModelSpec
from mnesis_core.spending import LimitUse, Scope
from mnesis_core.text import excerpt, printable
from sessions_app.conf import default_model
from sessions_app.llm.model_store import ModelCheck, ModelEntry, read_check
from sessions_app.pages import formats, markdown
from sessions_app.pages.kept_texts import kept_error_text
from sessions_app.pages.navigation import sidebar_context
from sessions_app.pages.views import label_text

SOURCES = {
    LimitSource.CONFIGURED: _("entered"),
    LimitSource.LITELLM: _("litellm's table"),
    LimitSource.DEFAULT: _("assumed"),
    LimitSource.PROVIDER: _("from its provider"),
}
CLIENTS = {
    "openai": _("an OpenAI client"),
    "responses": _("an OpenAI client"),
    "anthropic": _("an Anthropic client"),
}
"""The origins of sessions that an endpoint for other programs has started."""
TIMES = {"clock": "j M Y, H:i", "relative": "j M Y"}
COLOURS = 6  # of what has no picture; base.css has them

MEASURES = {
    "tokens": _("%(spent)s of %(limit)s tokens"),
    "cost_micros": _("%(spent)s of %(limit)s currency units"),
    "seconds": _("%(spent)s of %(limit)s seconds"),
    "tool_calls": _("%(spent)s of %(limit)s tool calls"),
}
PERIODS = {
    "run": _("%(used)s in a run"),
    Scope.TURN: _("%(used)s in a turn"),
    Scope.SESSION: _("%(used)s in a session"),
    Scope.USER: _("%(used)s in all"),
    Scope.DAY: _("%(used)s a day"),
}

register = template.Library()
register.filter("markdown", markdown.render_markdown)
register.filter("printable", printable)
register.filter("count", formats.format_count)
register.filter("number", formats.format_number)
register.filter("counted", formats.format_counted)
register.filter("characters", formats.format_characters)
register.filter("money", formats.format_money)
register.filter("error_text", formats.error_text)
register.filter("duration", formats.format_duration)
register.filter("label_text", label_text)


@register.inclusion_tag("sessions_app/sidebar/_sidebar.html", takes_context=True)
def sidebar(context: dict[str, Any], current: str = "") -> dict[str, Any]:
    """Show the reader's sessions, in one query; ``current`` is the one that the page is about."""
    request = context["request"]
    return sidebar_context(request) | {"current": current, "path": request.path}


@register.simple_tag
@cache
def icon(name: str, css_class: str = "") -> SafeString:
    """Draw an icon of ``icons.html``, which every page has; the element may have a second class."""
    classes = f"icon {css_class}".strip()
    return format_html('<svg class="{}" aria-hidden="true"><use href="#icon-{}"></use></svg>', classes, name)


@register.simple_tag
def time(at: datetime | None, form: str) -> str:
    """Draw a time that the browser writes in its own zone: as the time of day (``clock``) or as how long ago it was (``relative``)."""
    return _time(at, form, get_language() or "") if at else ""  # localtime() would take no time for now


# Django takes longer to format a time than for the rest of a message, and pages show the same ones again and again.
@lru_cache(maxsize=10_000)
def _time(at: datetime, form: str, language: str) -> SafeString:
    local = localtime(at)
    shown = date_format(local, TIMES[form])
    return format_html('<time datetime="{}" data-{}>{}</time>', local.isoformat(), form, shown)


@register.filter
def visible(text: Any) -> str:
    """Return the text with a mark for every character that hides or reorders; nothing for ``None``."""
    return markdown.show_invisible(str(text)) if text else ""


@register.filter
def kept_error(message: str | None, code: str | None = "") -> str:
    """Return an error's message that the record keeps, in the page's language as far as it is ours."""
    return visible(kept_error_text(message or "", code or ""))


@register.filter
def error_beside(message: str) -> str:
    """Return an error in the page's language, to stand beside the English one that a model read; empty if it is the same."""
    said = kept_error(message)
    return "" if said == visible(message) else said


@register.filter
def client_of(origin: str) -> str:
    """Return what kind of client sends requests of this origin, or an empty text."""
    return str(CLIENTS.get(origin, ""))


@register.filter
def session_title(text: str | None) -> str:
    return markdown.shown_title(text or "")


@register.filter
def beginning(text: str | None, length: int) -> str:
    return excerpt(text or "", length)


@register.filter
def share(part: int, whole: int) -> str:
    percent = 100 * part / whole if whole else 0
    return gettext("under 1 %") if 0 < percent < 1 else f"{percent:.0f} %"


@register.filter
def size(octets: int | None) -> str:
    return "" if octets is None else formats.format_size(octets)


@register.filter
def milliseconds(value: float) -> str:
    return formats.format_duration(value / 1000)


@register.filter
def until(began: datetime | None, ended: datetime | None) -> str:
    return formats.format_duration((ended - began).total_seconds()) if began and ended else ""


@register.filter
def is_set(variable: str) -> bool:
    """Return whether this process has an environment variable. Its value reaches no page."""
    return bool(os.environ.get(variable))


@register.filter
def initial(name: str) -> str:
    """Return the first letter or digit of a name, else a sign that stands for any."""
    return next((sign.upper()[:1] for sign in name if sign.isalnum()), "·")


@register.filter
def portrait_colour(id: str) -> int:
    """Return which of the colours something has that has no picture: always the same one."""
    return zlib.crc32(id.encode()) % COLOURS


@register.filter
def anchor(alias: str) -> str:
    return quote(alias, safe="")


@register.filter
def source(said_by: LimitSource) -> str:
    return str(SOURCES[said_by])


@register.filter
def is_default(spec: ModelSpec) -> bool:
    return spec.alias == default_model()


@register.filter
def prices(spec: ModelSpec) -> list[tuple[str, str]]:
    """Return the name and the amount for a million tokens of each known price: ``$2.50``, ``$0.075``."""
    if spec.prices_source is LimitSource.DEFAULT:
        return []
    known = spec.prices
    named = (
        (pgettext("price of tokens", "in"), known.input),
        (pgettext("price of tokens", "out"), known.output),
        (pgettext("price of tokens", "cached"), known.cache_read),
        (pgettext("price of tokens", "to cache"), known.cache_write),
        (pgettext("price of tokens", "for an hour"), known.cache_write_1h),
    )
    shown = []
    for name, micros in named:
        if micros is not None:
            whole, _, cents = f"{micros / 1_000_000:,.6f}".rstrip("0").partition(".")
            shown.append((name, formats.in_dollars(f"{whole}.{cents:0<2}" if cents else whole)))
    return shown


@register.filter
def without_secrets(url: str) -> str:
    """Return an address without its user and query: one that a command entered may hold a password."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        return markdown.show_invisible(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    except ValueError:
        return gettext("an address that cannot be read")


@register.filter
def check(entry: ModelEntry) -> ModelCheck | None:
    return read_check(entry.last_check)


@register.filter
def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@register.filter
def limit_words(line: LimitUse) -> str:
    """Return what of a limit is used up, as ``LimitUse.words`` says it: ``9,500 of 10,000 tokens a day``."""
    spent, limit = (formats.localised(line.amount(value)) for value in (line.spent, line.limit))
    shown = {"spent": spent, "limit": limit}
    return PERIODS[line.scope] % {"used": MEASURES[line.measure] % shown}


@register.filter
def first_labels(labels: dict[str, str], number: int) -> list[tuple[str, str]]:
    # Not labels.items in the template: a label may be called "items".
    return list(labels.items())[:number]


@register.filter
def label_address(label: tuple[str, str]) -> str:
    key, value = label
    return f"{reverse('session-list')}?{urlencode({'label': f'{key}={value}'}, errors='replace')}"
