"""The list of sessions: its page, its rows, what one of them may be told to do, and how they are now."""

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
"""Rows whose state is asked for at once."""
EXAMPLES = (
    "Explain what a context window is, as you would to a friend.",
    "Plan a four-day walk in the Pyrenees, with what to pack.",
    "!slow 40 Tell me a long story about a lighthouse.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session of the list, with what other rows say of it."""

    session: SessionRecord
    parent_title: str
    waits_for: str
    """Of a suspended turn: ``approval`` or ``caller``."""
    heading: str = ""
    """What stands above it: ``Today``; empty where that stands there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the address asks for."""

    query: str
    archived: bool
    sub_agents: bool
    """Whether those that turns launched are shown, too."""
    label: str
    """``key=value``, or empty."""
    cursor: str

    @property
    def address(self) -> str:
        """The address of the page that shows this."""
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
    """The reader's sessions, the most recently changed first, and a new one."""
    models = [(spec.alias, model_label(spec)) for spec in list_models(user_id=reader_of(request))]
    choices = {"models": models, "default_model": default_model(), "examples": EXAMPLES}
    return render(request, "sessions_app/session_list.html", _found(request) | choices)


@signed_in
def session_rows(request: HttpRequest) -> HttpResponse:
    """The rows of the list alone: another search, or the next page of one."""
    found = _found(request)
    response = render(request, "sessions_app/_session_rows.html", found)
    if not found["asked"].cursor:
        response.headers["HX-Replace-Url"] = found["asked"].address
    return response


@signed_in
def session_row(request: HttpRequest, session_id: str) -> HttpResponse:
    """The row of one session, as it is now."""
    session = load_session(session_id, owner_id=reader_of(request))
    [row] = _rows([session], owner_id=reader_of(request))
    return render(request, "sessions_app/_session_row.html", {"shown": row})


@signed_in
def session_menu(request: HttpRequest, session_id: str) -> HttpResponse:
    """What can be done with one session."""
    session = load_session(session_id, owner_id=reader_of(request))
    return render(request, "sessions_app/_session_menu.html", {"session": session})


@signed_in
def session_states(request: HttpRequest) -> HttpResponse:
    """How some rows are now, each to be put into its place; of what is not the reader's, nothing."""
    sessions = load_sessions(request.GET.getlist("id")[:MOST_POLLED], owner_id=reader_of(request))
    return render(
        request, "sessions_app/_session_states.html", {"sessions": _rows(sessions, owner_id=reader_of(request))}
    )


def _found(request: HttpRequest) -> dict[str, Any]:
    asked = _asked(request)
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
        "next_cursor": _write_cursor(rows[PAGE - 1]) if len(rows) > PAGE else "",
    }


def _asked(request: HttpRequest) -> Asked:
    return Asked(
        query=printable(request.GET.get("q", "").strip()),
        archived=request.GET.get("archived") == "1",
        sub_agents=request.GET.get("sub_agents") == "1",
        label=printable(request.GET.get("label", "")),
        cursor=request.GET.get("cursor", ""),
    )


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
    """Return a label, a pair of key and value, as a page shows it."""
    key, value = label
    return show_invisible(f"{key}: {value}" if value else key)


def zone_of(request: HttpRequest) -> tzinfo:
    """The reader's time zone, as their browser says in a cookie (``page.js``); UTC where it does not."""
    try:
        return ZoneInfo(request.COOKIES.get("zone", ""))
    except (ValueError, OSError, KeyError):
        return UTC


def _read_label(label: str) -> tuple[str, str]:
    key, _, value = label.partition("=")
    return key, value


def _write_cursor(session: SessionRecord) -> str:
    return f"{session.updated_at.isoformat()}~{session.id}"


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    moment, _, session_id = cursor.partition("~")
    try:
        # astimezone: a time that UTC cannot say is refused here, not by the database.
        time = datetime.fromisoformat(moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest("this cursor is not one of ours", field="cursor") from None
    return time, session_id
