"""Numbers, sums, sizes, times and days in words, as the page's language writes them.

They are made as English does first: most need nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from functools import cache

from django.conf import settings
from django.utils.dates import MONTHS
from django.utils.formats import date_format, get_format
from django.utils.translation import get_language, gettext, ngettext, ngettext_lazy

from mnesis_core.errors import MnesisError, Phrase, Values, fill

NOUNS = {
    "call": ngettext_lazy("%(shown)s call", "%(shown)s calls", "count"),
    "character": ngettext_lazy("%(shown)s character", "%(shown)s characters", "count"),
    "compaction": ngettext_lazy("%(shown)s compaction", "%(shown)s compactions", "count"),
    "fact": ngettext_lazy("%(shown)s fact", "%(shown)s facts", "count"),
    "message": ngettext_lazy("%(shown)s message", "%(shown)s messages", "count"),
    "named turn": ngettext_lazy("%(shown)s named turn", "%(shown)s named turns", "count"),
    "output": ngettext_lazy("%(shown)s output", "%(shown)s outputs", "count"),
    "question": ngettext_lazy("%(shown)s question", "%(shown)s questions", "count"),
    "run": ngettext_lazy("%(shown)s run", "%(shown)s runs", "count"),
    "session": ngettext_lazy("%(shown)s session", "%(shown)s sessions", "count"),
    "token": ngettext_lazy("%(shown)s token", "%(shown)s tokens", "count"),
    "tool": ngettext_lazy("%(shown)s tool", "%(shown)s tools", "count"),
    "tool output": ngettext_lazy("%(shown)s tool output", "%(shown)s tool outputs", "count"),
    "turn": ngettext_lazy("%(shown)s turn", "%(shown)s turns", "count"),
}
"""What can be counted: a noun stands with its number in one text, since languages differ in what a number does to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a language writes what English writes as ``1,234.5`` and ``$1,234.50``."""

    separators: dict[int, str]
    money: str


@cache
def _writing_of(language: str | None) -> Writing | None:
    """Return how a language writes numbers; ``None`` for as English does."""
    point, comma = get_format("DECIMAL_SEPARATOR", language), get_format("THOUSAND_SEPARATOR", language)
    if (point, comma) == (".", ","):
        return None
    return Writing(separators={ord("."): point, ord(","): comma}, money=get_format("MONEY_FORMAT", language))


def localised(number: str) -> str:
    """Return a number that is written as in English as the page's language writes it."""
    if "." not in number and "," not in number:
        return number
    writing = _writing_of(get_language())
    return number if writing is None else number.translate(writing.separators)


def format_count(number: int | None) -> str:
    """Return ``842``, ``12.4k`` or ``1.2M``; ``?`` for an unknown number."""
    if number is None:
        return "?"
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(number) >= size * 0.9995:
            return _short(number / size) + letter
    return str(number)


def _short(number: float) -> str:
    return localised(f"{number:.1f}".removesuffix(".0")) if abs(number) < 99.95 else f"{number:.0f}"


def error_text(error: MnesisError) -> str:
    """Return an error's message in the page's language."""
    return fill_in(error.text, error.values)


def fill_in(text: str, values: Values) -> str:
    """Return a text in the page's language with its values: texts as they are, and phrases and numbers in the language."""
    shown = {name: translated(value) if isinstance(value, str) else value for name, value in values.items()}
    return fill(gettext(text), shown, format_number)


def translated(value: str) -> str:
    """Return a phrase of ours in the page's language, and any other text as it is."""
    return fill_in(value.text, value.values) if isinstance(value, Phrase) else value


def format_number(number: float | None) -> str:
    return "" if number is None else localised(f"{number:,}")


def format_counted(number: int, name: str) -> str:
    """Return ``1 message`` or ``1,204 messages``.

    :param name: one of ``NOUNS``
    """
    return _counted(number, format_number(number), name)


def format_characters(number: int) -> str:
    return _counted(number, format_count(number), "character")


def _counted(number: int, shown: str, name: str) -> str:
    noun = NOUNS[name]
    if get_language() == settings.LANGUAGE_CODE:  # ten times as fast
        return f"{shown} {name}{'' if number == 1 else 's'}"
    return noun % {"count": number, "shown": shown}


def format_size(size: int) -> str:
    """Return ``842 B``, ``12.4 KB`` or ``1.2 MB``, in powers of a thousand."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)):
        if size >= least:
            return f"{_short(size / least)} {unit}"
    return f"{size} B"


def format_money(micros: int | None) -> str:
    """Return millionths in dollars, with as many digits as small sums need; empty for an unknown sum."""
    if micros is None:
        return ""
    if micros == 0:
        return in_dollars("0")
    dollars = micros / 1_000_000
    return in_dollars(f"{dollars:,.2f}" if dollars >= 1 else f"{dollars:.6f}".rstrip("0"))


def in_dollars(number: str) -> str:
    """Return a sum that is written as in English with its sign, as the page's language writes it."""
    writing = _writing_of(get_language())
    return f"${number}" if writing is None else writing.money % number.translate(writing.separators)


def format_duration(seconds: float | None) -> str:
    """Return ``340 ms``, ``2.4 s``, ``3 min 05 s``, ``3 min`` or ``2 h 10 min``."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return localised(f"{seconds:.1f}".removesuffix(".0")) + " s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s".removesuffix(" 00 s")
    return f"{minutes // 60} h {minutes % 60:02} min".removesuffix(" 00 min")


def format_day(day: date) -> str:
    """Return ``5 Mar 2026``."""
    return date_format(day, "j M Y")


def format_moment(moment: datetime) -> str:
    """Return ``5 Mar 2026, 14:05``, in the time zone that the moment has."""
    return date_format(moment, "j M Y, H:i")


def round_up(value: float) -> float:
    """Return the end of a chart's scale: 1, 2, 3, 4, 5, 6 or 8 times a power of ten, at least the value."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while value > 0 and power > value:
        power /= 10
    return next((step * power for step in (1, 2, 3, 4, 5, 6, 8) if step * power >= value), 10 * power)


def format_days_ago(day: date, today: date) -> str:
    """Return the heading of a list for a day: ``Today``, ``Previous 7 days``, ``March`` or ``2024``."""
    days = (today - day).days
    if days <= 1:
        return gettext("Yesterday") if days == 1 else gettext("Today")
    if days <= 30:
        count = 7 if days <= 7 else 30
        return ngettext("Previous %(count)s day", "Previous %(count)s days", count) % {"count": count}
    return str(MONTHS[day.month]) if day.year == today.year else str(day.year)


def format_tokens(tokens_in: int | None, tokens_out: int | None) -> str:
    """Return ``1.6k in, 36 out``."""
    shown = {"tokens_in": format_count(tokens_in), "tokens_out": format_count(tokens_out)}
    return gettext("%(tokens_in)s in, %(tokens_out)s out") % shown
