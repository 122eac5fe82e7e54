"""The query bar of *Observe* as a value: what a person types becomes terms, and a term becomes text again.

A term is a field with a value (``model:gpt-4o``, ``tokens>100k``, ``after:7d``) or a word that was said. ``-`` before it
negates it, quotation marks keep spaces, a comma lists alternatives, and ``*`` at the end stands for any ending. A new field
is a row of ``FIELDS`` and a condition beside the others in ``sessions_app/record/observed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from mnesis_core.errors import InvalidRequest, gettext_noop
from mnesis_core.search.words import LONGEST_QUERY, parse_words
from mnesis_core.text import read_time, visible_text

MOST_TERMS = 30
LARGEST = 10**15
USUAL_DAYS, MOST_DAYS, MOST_DAYS_BY_HOUR = timedelta(days=30), timedelta(days=366), timedelta(days=3)
STATES = ("running", "suspended", "completed", "cancelled", "interrupted", "failed", "incomplete")
"""The values of ``TurnState``."""
THUMBS = ("up", "down")
KINDS = ("archived", "compacted", "imported", "over-window", "sub-agent", "temporary")

_TOKEN = re.compile(r'(?:"[^"]*"|[^\s"])+')
_TERM = re.compile(r"([A-Za-z][A-Za-z-]*)(:|<=|>=|<|>|=)(.*)", re.DOTALL)
_VALUE = re.compile(r'(?:"[^"]*"|[^,"])+')
_NUMBER = re.compile(r"\$?(?P<digits>[0-9]{1,16}(?:\.[0-9]{1,6})?)(?P<unit>[kKmM]?)")
_AGO = re.compile(r"(?P<count>[0-9]{1,5})(?P<unit>[mhdw])")
_QUOTES = str.maketrans("“”„", '"""')
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_TIMES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PLAIN = re.compile(r'[^\s",*:-][^\s",*]*')


class Takes(StrEnum):
    NAME = "name"
    CHOICE = "choice"
    NUMBER = "number"
    MONEY = "money"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    takes: Takes
    example: str
    meaning: str
    choices: tuple[str, ...] = ()


FIELDS = {
    "person": Field(takes=Takes.NAME, example="person:anna", meaning="The owner's username"),
    "group": Field(takes=Takes.NAME, example="group:sales", meaning="A group that the owner is in"),
    "organisation": Field(
        takes=Takes.NAME, example="organisation:default", meaning="The organisation that the session belongs to"
    ),
    "model": Field(takes=Takes.NAME, example="model:gpt-*", meaning="A model that the session or one of its turns used"),
    "tool": Field(takes=Takes.NAME, example="tool:bash", meaning="A tool that was called"),
    "error": Field(takes=Takes.NAME, example="error:PROVIDER_*", meaning="The code of an error of a turn or a call; error:* for any"),
    "state": Field(takes=Takes.CHOICE, example="state:failed", meaning="The state of the newest turn", choices=STATES),
    "origin": Field(takes=Takes.NAME, example="origin:gateway", meaning="How the session began: chat, gateway, fork, task, import:*"),
    "title": Field(takes=Takes.NAME, example='title:"quarterly report"', meaning="Words in the title"),
    "is": Field(takes=Takes.CHOICE, example="is:compacted", meaning="A property of the session", choices=KINDS),
    "feedback": Field(takes=Takes.CHOICE, example="feedback:down", meaning="A rating of one of its answers", choices=THUMBS),
    "messages": Field(takes=Takes.NUMBER, example="messages>=200", meaning="Number of messages"),
    "turns": Field(takes=Takes.NUMBER, example="turns>50", meaning="Number of turns"),
    "calls": Field(takes=Takes.NUMBER, example="calls>100", meaning="Number of model calls"),
    "tokens": Field(takes=Takes.NUMBER, example="tokens>100k", meaning="Tokens of all model calls, in and out"),
    "cost": Field(takes=Takes.MONEY, example="cost>0.5", meaning="Cost of all model calls, in dollars"),
    "compactions": Field(takes=Takes.NUMBER, example="compactions>0", meaning="Number of completed compactions"),
    "after": Field(takes=Takes.TIME, example="after:2026-11-01", meaning="Last active at this time or later; after:7d for the last seven days"),
    "before": Field(takes=Takes.TIME, example="before:2026-11-08", meaning="Last active before this time"),
}  # fmt: skip
ALIASES = {"over-window": "is:over-window"}
"""Words that stand for a term. In quotation marks they are words."""


class Step(StrEnum):
    """How finely numbers over time are told apart."""

    HOUR = "hour"
    DAY = "day"


class Name(NamedTuple):
    text: str
    is_beginning: bool = False  # Any ending may follow.


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One condition. A session must meet all terms, and of a term with several values any one."""

    text: str  # as it was typed
    name: str  # a field, or empty for words that were said
    sign: str = "="
    is_negated: bool = False
    names: tuple[Name, ...] = ()  # of a name or a choice; of words, the query for them
    number: int = 0  # of money in millionths
    time: datetime | None = None


def parse_observation(text: str, *, now: datetime) -> tuple[Term, ...]:
    """Return the terms of a query, without repetitions.

    :raises InvalidRequest: a term cannot be understood; the message names it and says what is possible.
    """
    if len(text) > LONGEST_QUERY:
        raise InvalidRequest(
            gettext_noop("A query has at most %(most)s characters, not %(count)s."),
            {"most": LONGEST_QUERY, "count": len(text)},
            field="q",
        )
    text = text.translate(_QUOTES)
    if text.count('"') % 2:
        raise InvalidRequest(gettext_noop('A quotation mark (") is not closed.'), field="q")
    terms = tuple(dict.fromkeys(_terms(text, now)))
    if len(terms) > MOST_TERMS:
        raise InvalidRequest(
            gettext_noop("A query has at most %(most)s terms, not %(count)s."),
            {"most": MOST_TERMS, "count": str(len(terms))},
            field="q",
        )
    return terms


def period_of(terms: Sequence[Term], *, now: datetime) -> tuple[datetime, datetime, Step]:
    """Return the times that a query is about, or else the last 30 days; at most ``MOST_DAYS``."""
    ends = [term.time for term in terms if term.time and (term.name == "before") != term.is_negated]
    begins = [term.time for term in terms if term.time and (term.name == "after") != term.is_negated]
    until = min([*ends, now])
    since = max([*begins, until - MOST_DAYS]) if begins else until - USUAL_DAYS
    return since, until, Step.HOUR if until - since <= MOST_DAYS_BY_HOUR else Step.DAY


def term_text(name: str, value: str) -> str:
    """Return the term for a value exactly as it is; empty for one that no term can name."""
    if '"' in value.translate(_QUOTES) or not value.strip() or len(value) > LONGEST_QUERY // 2:
        return ""
    return f"{name}:{value}" if _PLAIN.fullmatch(value) else f'{name}:"{value}"'


def with_term(text: str, term: str) -> str:
    """Return a query with one more term, unless it has that already."""
    return text.strip() if term in tokens_of(text) else f"{text.strip()} {term}".strip()


def without_term(text: str, term: str) -> str:
    return " ".join(token for token in tokens_of(text) if token != term)


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text.translate(_QUOTES))


def _terms(text: str, now: datetime) -> Iterator[Term]:
    for token in _TOKEN.findall(text):
        is_negated = len(token) > 1 and token.startswith("-")
        plain = token[1:] if is_negated else token
        match = _TERM.fullmatch(ALIASES.get(plain.lower(), plain))
        if match is not None:
            yield replace(_field_term(token, match[1], match[2], match[3], now), is_negated=is_negated)
            continue
        try:
            parse_words(plain)
        except InvalidRequest:
            raise _refused(gettext_noop("“%(term)s” has no word in it."), token) from None
        yield Term(text=token, name="", names=(Name(plain),), is_negated=is_negated)


def _field_term(token: str, name: str, sign: str, value: str, now: datetime) -> Term:
    name = name.lower()
    field = FIELDS.get(name)
    if field is None:
        told = gettext_noop(
            "“%(term)s” is not a known field. Fields: %(fields)s. To search for these words, put them in quotation marks."
        )
        raise _refused(told, token, fields=", ".join(FIELDS))
    sign = "=" if sign == ":" else sign
    if sign != "=" and field.takes not in (Takes.NUMBER, Takes.MONEY):
        told = gettext_noop("“%(term)s” cannot be compared with %(sign)s. Write it as %(example)s.")
        raise _refused(told, token, sign=sign, example=field.example)
    match field.takes:
        case Takes.NUMBER | Takes.MONEY:
            return Term(text=token, name=name, sign=sign, number=_number(token, value, field))
        case Takes.TIME:
            return Term(text=token, name=name, time=_time(token, value, field, now))
        case Takes.CHOICE:
            names = tuple(Name(each.text.lower()) for each in _names(token, value, field))
            if any(each.text not in field.choices for each in names):
                told = gettext_noop("“%(term)s” is not a valid value for %(field)s. Use one of: %(choices)s.")
                raise _refused(told, token, field=name, choices=", ".join(field.choices))
            return Term(text=token, name=name, names=names)
        case Takes.NAME:
            return Term(text=token, name=name, names=_names(token, value, field))


def _names(token: str, value: str, field: Field) -> tuple[Name, ...]:
    names = []
    for each in _VALUE.findall(value):
        is_beginning = each.endswith("*")
        plain = each.removesuffix("*").replace('"', "")
        if plain or is_beginning:
            names.append(Name(plain, is_beginning))
    if not names:
        told = gettext_noop("“%(term)s” has no value. Write it as %(example)s.")
        raise _refused(told, token, example=field.example)
    return tuple(names)


def _number(token: str, value: str, field: Field) -> int:
    match = _NUMBER.fullmatch(value.replace('"', ""))
    if match is None:
        told = gettext_noop("“%(term)s” needs a number. Write it as %(example)s.")
        raise _refused(told, token, example=field.example)
    number = Decimal(match["digits"]) * _UNITS[match["unit"].lower()]
    number *= 1_000_000 if field.takes is Takes.MONEY else 1
    if number != int(number):
        told = gettext_noop("“%(term)s” needs a whole number. Write it as %(example)s.")
        raise _refused(told, token, example=field.example)
    return min(int(number), LARGEST)


def _time(token: str, value: str, field: Field, now: datetime) -> datetime:
    value = value.replace('"', "").strip()
    try:
        if ago := _AGO.fullmatch(value):
            return (now - timedelta(**{_TIMES[ago["unit"]]: int(ago["count"])})).astimezone(UTC)
        found = read_time(value, field="q")
    except (InvalidRequest, OverflowError):
        found = None
    if found is None or not 1900 <= found.year <= 9998:
        told = gettext_noop("“%(term)s” needs a date, a time or a period such as 7d or 24h. Write it as %(example)s.")
        raise _refused(told, token, example=field.example)
    return found


def _refused(told: str, token: str, **values: str) -> InvalidRequest:
    shown = token if len(token) <= 60 else f"{token[:60]}…"
    return InvalidRequest(told, {"term": visible_text(shown), **values}, field="q")
