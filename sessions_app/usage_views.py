"""The page of usage: a person's own; for who may see everybody's record, everybody's or one person's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, timedelta
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone

from mnesis_core.errors import InvalidRequest
from mnesis_core.text import encode_text
from sessions_app.inspecting import sees_records
from sessions_app.rendering import show_invisible
from sessions_app.usage_showing import show_usage, usage_rows
from sessions_app.views import reader_of, signed_in

DAYS, MOST_DAYS = 30, 366
STRETCHES = (7, 30, 90, 365)
EVERYBODY = "*"
MOST_PEOPLE = 500
"""Suggested by name; others are typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an address of the page asks for."""

    first: date
    last: date
    owner_id: int | None
    """``None``: everybody's."""
    person: str
    """As the address has it: a user name, ``*`` for everybody, nothing for the reader's own."""
    problem: str = ""


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    """What was spent by day, model, purpose and session."""
    asked = _read(request)
    sees_all = sees_records(request)
    context = {
        "asked": asked,
        "person": show_invisible(asked.person),
        "usage": show_usage(first=asked.first, last=asked.last, owner_id=asked.owner_id),
        "sees_all": sees_all,
        "people": _people() if sees_all else [],
        "is_own": asked.owner_id == reader_of(request),
        "whose": urlencode({"person": asked.person}) if asked.person else "",
        "query": _query(asked),
        "stretches": [(days, _query(asked, days=days), _days_of(asked) == days) for days in STRETCHES],
        "today": _today(),
    }
    return render(request, "sessions_app/usage.html", context)


@signed_in
def usage_csv(request: HttpRequest) -> HttpResponse:
    """The same by day, model and purpose, to go on with elsewhere."""
    asked = _read(request)
    rows = usage_rows(first=asked.first, last=asked.last, owner_id=asked.owner_id)
    answer = StreamingHttpResponse(rows, content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="usage-{asked.first}-{asked.last}.csv"'
    return answer  # type: ignore[return-value]


def _read(request: HttpRequest) -> Asked:
    """What an address asks for.

    :raises InvalidRequest: its days are none, or too many.
    :raises Http404: it asks for somebody else's, and who asks may not see that.
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


def _people() -> list[tuple[str, str]]:
    """User names and full names to choose from."""
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


def _days_of(asked: Asked) -> int:
    return (asked.last - asked.first).days + 1 if asked.last == _today() else 0


def _query(asked: Asked, *, days: int = 0) -> str:
    """The address of the same, or of so many days up to today."""
    values = {"person": asked.person} if asked.person else {}
    if days:
        values["from"] = (_today() - timedelta(days=days - 1)).isoformat()
    else:
        values |= {"from": asked.first.isoformat(), "to": asked.last.isoformat()}
    return urlencode(values)
