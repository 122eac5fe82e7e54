"""Models as their page shows them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlsplit

from mnesis_core.llm import LimitSource, ModelSpec
from sessions_app.checking import ModelCheck, read_check
from sessions_app.conf import default_model, list_models
from sessions_app.queries.models import ModelEntry, list_model_entries
from sessions_app.rendering import format_duration, show_invisible

SOURCES = {
    LimitSource.CONFIGURED: "entered",
    LimitSource.LITELLM: "litellm's table",
    LimitSource.DEFAULT: "assumed",
    LimitSource.PROVIDER: "as its provider says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price of a million tokens."""

    name: str
    amount: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownModel:
    """A model as everybody sees it who may use it."""

    alias: str
    """As it is, for addresses."""
    anchor: str
    """Its place on the page."""
    name: str
    """Ready to be shown."""
    window: str
    window_source: str
    longest_answer: str
    longest_answer_source: str
    prices: tuple[Price, ...]
    """Empty where nobody says what it costs."""
    prices_source: str
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCheck:
    """How a model answered when somebody last asked."""

    at: datetime
    is_good: bool
    took: str
    answer: str
    usage: str
    finish_reason: str
    capabilities: tuple[str, ...]
    code: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """A model as an administrator sees it."""

    model: ShownModel
    provider_model: str
    place: str
    key: str
    """The variable that holds the key, and whether it is set in this process. Never the key."""
    is_key_missing: bool
    fallbacks: tuple[str, ...]
    silence: str
    longest_call: str
    is_restricted: bool
    groups: tuple[str, ...]
    users: tuple[str, ...]
    check: ShownCheck | None
    is_shipped: bool


def show_models(user_id: int) -> list[ShownModel]:
    """The models that a person may use."""
    return [show_model(spec) for spec in list_models(user_id=user_id)]


def show_entries() -> list[ShownEntry]:
    """Every model, for an administrator."""
    return [show_entry(entry) for entry in list_model_entries()]


def show_model(spec: ModelSpec) -> ShownModel:
    """What a model takes and costs."""
    return ShownModel(
        alias=spec.alias,
        anchor=quote(spec.alias, safe=""),
        name=show_invisible(spec.alias),
        window=f"{spec.context_window:,}",
        window_source=SOURCES[spec.context_window_source],
        longest_answer=f"{spec.max_output_tokens:,}",
        longest_answer_source=SOURCES[spec.max_output_source],
        prices=tuple(_prices(spec)),
        prices_source=SOURCES[spec.prices_source],
        is_default=spec.alias == default_model(),
    )


def show_entry(entry: ModelEntry) -> ShownEntry:
    """A model with how it is reached and who may use it."""
    spec, variable = entry.spec, entry.api_key_env
    is_missing = bool(variable) and not os.environ.get(variable)
    check = read_check(entry.last_check)
    return ShownEntry(
        model=show_model(spec),
        provider_model=show_invisible(spec.litellm_model),
        place=_place(spec.api_base),
        key=show_invisible(variable),
        is_key_missing=is_missing,
        fallbacks=tuple(map(show_invisible, spec.fallbacks)),
        silence=format_duration(spec.timeout_seconds),
        longest_call=format_duration(spec.total_timeout_seconds),
        is_restricted=entry.is_restricted,
        groups=tuple(map(show_invisible, entry.groups)),
        users=tuple(map(show_invisible, entry.users)),
        check=None if check is None else _show_check(check),
        is_shipped=entry.is_shipped,
    )


def _prices(spec: ModelSpec) -> list[Price]:
    if spec.prices_source is LimitSource.DEFAULT:
        return []
    prices = spec.prices
    named = {"in": prices.input, "out": prices.output, "cached": prices.cache_read, "to cache": prices.cache_write}
    return [Price(name=name, amount=_money(micros)) for name, micros in named.items() if micros is not None]


def _money(micros: int) -> str:
    """A price of a million tokens in dollars: ``$2.50``, ``$0.075``."""
    dollars = f"{micros / 1_000_000:,.6f}".rstrip("0")
    whole, _, cents = dollars.partition(".")
    return f"${whole}" if not cents else f"${whole}.{cents:0<2}"


def _place(url: str) -> str:
    """An address without what may be secret in it: one that the command took may hold a password."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        return show_invisible(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    except ValueError:
        return "an address that cannot be read"


def _show_check(check: ModelCheck) -> ShownCheck:
    usage = f"{check.input_tokens:,} + {check.output_tokens:,} tokens, {check.usage_source}"
    return ShownCheck(
        at=datetime.fromisoformat(check.at),
        is_good=check.is_good,
        took=format_duration(check.milliseconds / 1000),
        answer=show_invisible(check.answer),
        usage=usage,
        finish_reason=show_invisible(check.finish_reason),
        capabilities=check.capabilities,
        code=check.code,
        problem=show_invisible(check.problem),
    )
