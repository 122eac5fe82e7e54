"""Filters that put text, numbers and times on a page."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from django import template
from django.utils.safestring import SafeString

from mnesis_core.text import excerpt
from sessions_app.pages import markdown as rendering
from sessions_app.pages.lookup import shown_title

register = template.Library()


@register.filter
def visible(text: Any) -> str:
    """Return the text with a mark for every character that hides or reorders; nothing for ``None``."""
    return rendering.show_invisible(str(text)) if text else ""


@register.filter
def session_title(text: str | None) -> str:
    return shown_title(text or "")


@register.filter
def beginning(text: str | None, length: int) -> str:
    """Return the beginning of a text on one visible line."""
    return excerpt(text or "", length)


@register.filter
def markdown(text: str) -> SafeString:
    return rendering.render_markdown(text)


@register.filter
def count(number: int | None) -> str:
    return rendering.format_count(number)


@register.filter
def number(value: int | None) -> str:
    return rendering.format_number(value)


@register.filter
def share(part: int, whole: int) -> str:
    """Return how much of the whole it is, in percent."""
    percent = 100 * part / whole if whole else 0
    return "under 1 %" if 0 < percent < 1 else f"{percent:.0f} %"


@register.filter
def counted(value: int, name: str) -> str:
    return rendering.format_counted(value, name)


@register.filter
def characters(value: int) -> str:
    return rendering.format_characters(value)


@register.filter
def money(micros: int | None) -> str:
    return rendering.format_money(micros)


@register.filter
def size(octets: int | None) -> str:
    return "" if octets is None else rendering.format_size(octets)


@register.filter
def duration(seconds: float | None) -> str:
    return rendering.format_duration(seconds)


@register.filter
def milliseconds(value: float) -> str:
    return rendering.format_duration(value / 1000)


@register.filter
def until(began: datetime | None, ended: datetime | None) -> str:
    """Return how long something took; nothing where it has not begun or not ended."""
    return rendering.format_duration((ended - began).total_seconds()) if began and ended else ""


@register.filter
def is_set(variable: str) -> bool:
    """Return whether this process has an environment variable. Its value reaches no page."""
    return bool(os.environ.get(variable))
