"""Filters that put a model, its prices and its last check on a page."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote, urlsplit

from django import template

from mnesis_core.llm.interface import LimitSource, ModelSpec
from sessions_app.catalogue.model_catalogue import ModelCheck, read_check
from sessions_app.catalogue.model_queries import ModelEntry
from sessions_app.conf import default_model
from sessions_app.pages.markdown import show_invisible

SOURCES = {
    LimitSource.CONFIGURED: "entered",
    LimitSource.LITELLM: "litellm's table",
    LimitSource.DEFAULT: "assumed",
    LimitSource.PROVIDER: "as its provider says",
}

register = template.Library()


@register.filter
def anchor(alias: str) -> str:
    return quote(alias, safe="")


@register.filter
def source(said_by: LimitSource) -> str:
    return SOURCES[said_by]


@register.filter
def is_default(spec: ModelSpec) -> bool:
    return spec.alias == default_model()


@register.filter
def prices(spec: ModelSpec) -> list[tuple[str, str]]:
    """Return the name and the amount of each price that is known; none where no one says what the model costs."""
    if spec.prices_source is LimitSource.DEFAULT:
        return []
    known = spec.prices
    named = {"in": known.input, "out": known.output, "cached": known.cache_read, "to cache": known.cache_write}
    return [(name, _dollars(micros)) for name, micros in named.items() if micros is not None]


def _dollars(micros: int) -> str:
    """Return a price of a million tokens: ``$2.50``, ``$0.075``."""
    whole, _, cents = f"{micros / 1_000_000:,.6f}".rstrip("0").partition(".")
    return f"${whole}.{cents:0<2}" if cents else f"${whole}"


@register.filter
def without_secrets(url: str) -> str:
    """Return an address without its user and query: one that a command entered may hold a password."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        return show_invisible(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    except ValueError:
        return "an address that cannot be read"


@register.filter
def check(entry: ModelEntry) -> ModelCheck | None:
    return read_check(entry.last_check)


@register.filter
def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
