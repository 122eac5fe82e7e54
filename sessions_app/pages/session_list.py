"""The list of sessions: its page, its rows, their menus and their current states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from mnesis_core.errors import InvalidRequest
from mnesis_core.records import SessionRecord, TurnState
from mnesis_core.text import printable
from sessions_app.conf import default_model, list_models
from sessions_app.pages.lookup import parent_titles
from sessions_app.pages.markdown import format_days_ago, show_invisible
from sessions_app.pages.views import model_label, reader_of, signed_in
from sessions_app.record.session_queries import list_sessions, load_session, load_sessions
from sessions_app.record.turn_queries import reasons_to_wait

PAGE = 50
MOST_POLLED = 100
"""Rows whose state one request may ask for."""
EXAMPLES = (
    "Explain what a context window is, as you would to a friend.",
    "Plan a four-day walk in the Pyrenees, with what to pack.",
    "!slow 40 Tell me a long story about a lighthouse.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    session: SessionRecord
    parent_title: str
    waits_for: str
    """What a suspended turn waits for: ``approval`` or ``caller``."""
    heading: str = ""
    """The heading above it, such as ``Today``; empty if an earlier row has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    query: str
    archived: bool
    sub_agents: bool
    """Whether sessions that turns launched are shown too."""
    label: str
    """``key=value``, or empty."""
    cursor: str

    @property
    def address(self) -> str:
        wanted = {
            "q": self.query,
            "archived": "1" if self.archived else "",
            "sub_agents": "1" if self.sub_agents else "",
            "label": self.label,
        }
        search = urlencode({name: value for name, value in wanted.items() if value})
        return f"{reverse('session-list')}?{search}" if search else reverse("session-list")


@signed_in
def session_list(request: HttpRequest) -> HttpResponse:
    models = [(spec.alias, model_label(spec)) for spec in list_models(user_id=reader_of(request))]
    choices = {"models": models, "default_model": default_model(), "examples": EXAMPLES}
    return render(request, "sessions_app/session_list.html", _list_context(request) | choices)


@signed_in
def session_rows(request: HttpRequest) -> HttpResponse:
    found = _list_context(request)
    response = render(request, "sessions_app/_session_rows.html", found)
    if not found["asked"].cursor:
        response.headers["HX-Replace-Url"] = found["asked"].address
    return response


@signed_in
def session_row(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    [row] = _rows([session], owner_id=reader_of(request))
    return render(request, "sessions_app/_session_row.html", {"shown": row})


@signed_in
def session_menu(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return render(request, "sessions_app/_session_menu.html", {"session": session})


@signed_in
def session_states(request: HttpRequest) -> HttpResponse:
    """Return the current state of some rows, each to be swapped into its place. Sessions of others are left out."""
    sessions = load_sessions(request.GET.getlist("id")[:MOST_POLLED], owner_id=reader_of(request))
    return render(
        request, "sessions_app/_session_states.html", {"sessions": _rows(sessions, owner_id=reader_of(request))}
    )


def _list_context(request: HttpRequest) -> dict[str, Any]:
    asked = Asked(
        query=printable(request.GET.get("q", "").strip()),
        archived=request.GET.get("archived") == "1",
        sub_agents=request.GET.get("sub_agents") == "1",
        label=printable(request.GET.get("label", "")),
        cursor=request.GET.get("cursor", ""),
    )
    before = _read_cursor(asked.cursor) if asked.cursor else None
    rows = list_sessions(
        owner_id=reader_of(request),
        archived=asked.archived,
        label=_read_label(asked.label) if asked.label else None,
        query=asked.query,
        sub_agents=None if asked.sub_agents else False,
        before=before,
        limit=PAGE + 1,
    )
    page = _rows(rows[:PAGE], owner_id=reader_of(request))
    return {
        "asked": asked,
        "label": label_text(_read_label(asked.label)) if asked.label else "",
        "sessions": _with_headings(page, zone=zone_of(request), above=before[0] if before else None),
        "next_cursor": f"{rows[PAGE - 1].updated_at.isoformat()}~{rows[PAGE - 1].id}" if len(rows) > PAGE else "",
    }


def _rows(sessions: Sequence[SessionRecord], *, owner_id: int) -> list[SessionRow]:
    parents = parent_titles(sessions, owner_id=owner_id)
    suspended = [session.running_turn_id for session in sessions if session.state == TurnState.SUSPENDED]
    waits = reasons_to_wait([turn_id for turn_id in suspended if turn_id]) if suspended else {}
    return [
        SessionRow(
            session=session,
            parent_title=parents.get(session.parent_id or "", ""),
            waits_for=waits.get(session.running_turn_id or "", ""),
        )
        for session in sessions
    ]


def _with_headings(rows: list[SessionRow], *, zone: tzinfo, above: datetime | None) -> list[SessionRow]:
    today = timezone.now().astimezone(zone).date()
    last = format_days_ago(above.astimezone(zone).date(), today) if above else ""
    headed = []
    for row in rows:
        heading = format_days_ago(row.session.updated_at.astimezone(zone).date(), today)
        headed.append(replace(row, heading="" if heading == last else heading))
        last = heading
    return headed


def label_text(label: tuple[str, str]) -> str:
    key, value = label
    return show_invisible(f"{key}: {value}" if value else key)


def zone_of(request: HttpRequest) -> tzinfo:
    """Return the reader's time zone from the cookie that ``page.js`` sets, or UTC."""
    try:
        return ZoneInfo(request.COOKIES.get("zone", ""))
    except (ValueError, OSError, KeyError):
        return UTC


def _read_label(label: str) -> tuple[str, str]:
    key, _, value = label.partition("=")
    return key, value


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    moment, _, session_id = cursor.partition("~")
    try:
        # astimezone fails here on a time that UTC cannot hold; otherwise the database would.
        time = datetime.fromisoformat(moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest("this cursor is not one of ours", field="cursor") from None
    return time, session_id
