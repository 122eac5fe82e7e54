"""The page of usage: the reader's own; for readers of all records, everybody's or one person's."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone

from mnesis_core.errors import InvalidRequest
from mnesis_core.spending import lines_of
from mnesis_core.text import encode_text
from sessions_app.pages.lookup import shown_title
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import sees_records
from sessions_app.pages.views import reader_of, signed_in
from sessions_app.record.session_queries import titles_of
from sessions_app.usage.charts import draw_days
from sessions_app.usage.limits import limits_for_person, look
from sessions_app.usage.spending_queries import (
    MOST_SESSIONS,
    Taken,
    TakenBySession,
    launchers_of,
    sum_of_taken,
    taken_by_day,
    taken_by_session,
)

DAYS, MOST_DAYS = 30, 366
STRETCHES = (7, 30, 90, 365)
EVERYBODY = "*"
MOST_PEOPLE = 500
"""Suggested names; others can be typed."""
PURPOSES = {"turn": "Turns", "summary": "Compaction", "file": "Descriptions of files", "map": "Runs"}
SHOWN_SESSIONS, SHOWN_PEOPLE = 20, 50
DEEPEST = 20
"""Levels of sub-agents; more than are permitted."""
HEADER = (
    *("day", "model", "purpose", "calls", "tokens_input", "tokens_output", "tokens_cache_read", "cost_micros"),
    "calls_without_price",
)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_Key = TypeVar("_Key", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    first: date
    last: date
    owner_id: int | None
    """``None`` for everybody."""
    person: str
    """The ``person`` of the address: a user name, ``*`` for everyone, empty for the reader."""
    problem: str = ""


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    asked = _read(request)
    sees_all = sees_records(request)
    is_current, length = asked.last == _today(), (asked.last - asked.first).days + 1
    context = {
        "asked": asked,
        "usage": _usage(asked),
        "sees_all": sees_all,
        "people": _suggested_people() if sees_all else [],
        "is_own": asked.owner_id == reader_of(request),
        "whose": urlencode({"person": asked.person}) if asked.person else "",
        "query": _query(asked),
        "stretches": [(days, _query(asked, days=days), is_current and length == days) for days in STRETCHES],
        "today": _today(),
    }
    return render(request, "sessions_app/usage.html", context)


@signed_in
def usage_csv(request: HttpRequest) -> HttpResponse:
    asked = _read(request)
    answer = StreamingHttpResponse(_csv_rows(asked), content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="usage-{asked.first}-{asked.last}.csv"'
    return answer  # type: ignore[return-value]


def _read(request: HttpRequest) -> Asked:
    """:raises InvalidRequest: the days are invalid, or too many.
    :raises Http404: this person's usage is not for the reader.
    """
    last = _day_in(request, "to") or _today()
    first = _day_in(request, "from") or last - timedelta(days=DAYS - 1)
    if not 0 <= (last - first).days < MOST_DAYS:
        raise InvalidRequest(f"from and to must be at most {MOST_DAYS} days apart, and in this order", field="from")
    person = request.GET.get("person", "").strip()
    return Asked(first=first, last=last, person=person, owner_id=_owner(request, person))


def _owner(request: HttpRequest, person: str) -> int | None:
    own = reader_of(request)
    if person in ("", request.user.get_username()):
        return own
    if not sees_records(request):
        raise Http404
    if person == EVERYBODY:
        return None
    found = User.objects.filter(username=encode_text(person)).values_list("pk", flat=True).first()
    if found is None:
        raise Http404
    return found


def _suggested_people() -> list[tuple[str, str]]:
    people = User.objects.order_by("username").only("username", "first_name", "last_name")[:MOST_PEOPLE]
    return [(person.get_username(), person.get_full_name()) for person in people]


def _day_in(request: HttpRequest, name: str) -> date | None:
    text = request.GET.get(name, "")
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{name} must be a day, such as 2026-01-31", field=name) from None
    if not 2000 <= day.year <= 2999:
        raise InvalidRequest(f"{name} must lie between the years 2000 and 2999", field=name)
    return day


def _today() -> date:
    return timezone.now().astimezone(UTC).date()


def _query(asked: Asked, *, days: int = 0) -> str:
    """Return the query of the same page, or of the last ``days`` days."""
    values = {"person": asked.person} if asked.person else {}
    if days:
        values["from"] = (_today() - timedelta(days=days - 1)).isoformat()
    else:
        values |= {"from": asked.first.isoformat(), "to": asked.last.isoformat()}
    return urlencode(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    name: str
    taken: Taken
    link: str = ""
    """The id of a session, or the name of a person."""
    sub_agents: int = 0
    owner: str = ""


def _usage(asked: Asked) -> dict[str, Any]:
    days = {"first": asked.first, "last": asked.last}
    by_day = taken_by_day(**days, owner_id=asked.owner_id)
    by_session = taken_by_session(**days, owner_id=asked.owner_id)
    total = sum_of_taken(each.taken for each in by_day)
    measures = ("Tokens", "Cost") if total.cost_micros else ("Tokens",)
    models = _sums((each.model, each.taken) for each in by_day)
    purposes = _sums((PURPOSES.get(each.purpose, each.purpose), each.taken) for each in by_day)
    people, limits = [], []
    if asked.owner_id is None:
        largest = _sums((each.owner_id, each.taken) for each in by_session)[:SHOWN_PEOPLE]
        names = _names_of(id for id, _ in largest)
        people = [UsageRow(name=names[id], taken=taken, link=names[id]) for id, taken in largest]
    else:
        limits = lines_of(look(limits_for_person(asked.owner_id)))
    return {
        "total": total,
        "charts": [draw_days(by_day, measure, **days) for measure in measures],
        "models": [UsageRow(name=name, taken=taken) for name, taken in models],
        "purposes": [UsageRow(name=name, taken=taken) for name, taken in purposes],
        "people": people,
        "sessions": _by_top_session(by_session, asked.owner_id),
        "is_cut": len(by_session) == MOST_SESSIONS,
        "limits": limits,
    }


def _sums(taken: Iterable[tuple[_Key, Taken]]) -> list[tuple[_Key, Taken]]:
    sums: dict[_Key, Taken] = {}
    for key, each in taken:
        sums[key] = sums.get(key, Taken()) + each
    return sorted(sums.items(), key=lambda item: (-item[1].cost_micros, -item[1].tokens, item[0]))


def _by_top_session(by_session: Sequence[TakenBySession], owner_id: int | None) -> list[UsageRow]:
    tops = _tops(by_session)
    largest = _sums((tops[each.session_id], each.taken) for each in by_session)[:SHOWN_SESSIONS]
    sub_agents = Counter(tops[each.session_id] for each in by_session if tops[each.session_id] != each.session_id)
    owners = {tops[each.session_id]: each.owner_id for each in by_session}
    titles = titles_of([id for id, _ in largest], owner_id=owner_id)
    names = _names_of({owners[id] for id, _ in largest}) if owner_id is None else {}
    return [
        UsageRow(
            name=shown_title(titles[id]) if id in titles else "A deleted session",
            taken=taken,
            link=id if id in titles else "",
            sub_agents=sub_agents[id],
            owner=names.get(owners[id], ""),
        )
        for id, taken in largest
    ]


def _tops(by_session: Sequence[TakenBySession]) -> dict[str, str]:
    """Return by session the topmost session that launched it."""
    launched_by = {each.session_id: each.launched_by for each in by_session}
    for _ in range(DEEPEST):
        missing = {parent for parent in launched_by.values() if parent is not None and parent not in launched_by}
        if not missing:
            break
        launched_by |= dict.fromkeys(missing) | launchers_of(missing)
    return {each.session_id: _top(each.session_id, launched_by) for each in by_session}


def _top(session_id: str, launched_by: dict[str, str | None]) -> str:
    for _ in range(DEEPEST):
        parent = launched_by.get(session_id)
        if parent is None:
            break
        session_id = parent
    return session_id


def _names_of(user_ids: Iterable[int]) -> dict[int, str]:
    return dict(User.objects.filter(pk__in=list(user_ids)).values_list("pk", "username"))


def _csv_rows(asked: Asked) -> Iterator[str]:
    yield _csv_line(HEADER)
    for each in taken_by_day(first=asked.first, last=asked.last, owner_id=asked.owner_id):
        taken = each.taken
        numbers = (taken.calls, taken.tokens_input, taken.tokens_output, taken.tokens_cached, taken.cost_micros)
        yield _csv_line((each.day.isoformat(), _cell(each.model), _cell(each.purpose), *numbers, taken.unpriced))


def _csv_line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue()


def _cell(text: str) -> str:
    # A quotation mark keeps a spreadsheet from reading a formula.
    shown = show_invisible(text)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown
