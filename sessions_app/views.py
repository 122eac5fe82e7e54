"""The pages of sessions and their parts: each reads once and renders."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm import LimitSource, ModelSpec
from mnesis_core.record import SessionRecord
from mnesis_core.text import printable
from sessions_app import transcript
from sessions_app.conf import default_model, list_models
from sessions_app.queries import list_sessions, load_session, titles_of
from sessions_app.relatives import list_children, parent_titles, shown_title
from sessions_app.rendering import format_count, show_invisible

PAGE = 50
LARGEST = 2**63 - 1
EXAMPLES = (
    "Explain what a context window is, as you would to a friend.",
    "Plan a four-day walk in the Pyrenees, with what to pack.",
    "!slow 40 Tell me a long story about a lighthouse.",
)


def signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Only for people who are signed in; others go to the sign-in page, also when a part of a page is asked for."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        # An htmx request would follow a redirect and put the sign-in page into the middle of this one.
        is_part = "HX-Request" in request.headers
        there = redirect_to_login("/" if is_part else request.get_full_path())
        return HttpResponse(status=401, headers={"HX-Redirect": there.url}) if is_part else there

    return require_safe(guarded)


@signed_in
def session_list(request: HttpRequest) -> HttpResponse:
    """The reader's sessions, the most recently changed first, and a new one."""
    models = [(spec.alias, model_label(spec)) for spec in list_models()]
    choices = {"models": models, "default_model": default_model(), "examples": EXAMPLES}
    return render(request, "sessions_app/session_list.html", _found(request) | choices)


def model_label(spec: ModelSpec) -> str:
    """A model and its window, and whether that is known: ``local · 32k, assumed``."""
    assumed = ", assumed" if spec.context_window_source is LimitSource.DEFAULT else ""
    return f"{show_invisible(spec.alias)} · {format_count(spec.context_window)}{assumed}"


@signed_in
def session_rows(request: HttpRequest) -> HttpResponse:
    """The rows of the list alone: another search, or the next page of one."""
    found = _found(request)
    response = render(request, "sessions_app/_session_rows.html", found)
    if found["is_first_page"]:
        wanted = {
            "q": found["query"],
            "archived": "1" if found["archived"] else "",
            "own": "1" if found["own_only"] else "",
        }
        search = urlencode({name: value for name, value in wanted.items() if value})
        response.headers["HX-Replace-Url"] = (
            f"{reverse('session-list')}?{search}" if search else reverse("session-list")
        )
    return response


@signed_in
def session_page(request: HttpRequest, session_id: str) -> HttpResponse:
    """One session: what was said, and a place to say more."""
    session = load_session(session_id, owner_id=reader_of(request))
    around = number_in(request, "around")
    before = None if around is None else min(around + transcript.CHUNK // 2, LARGEST)
    messages = transcript.load_chunk(session.id, before=before)
    parents = titles_of([session.parent_id], owner_id=session.owner_id) if session.parent_id else {}
    context = {
        "session": session,
        "title": shown_title(session.title),
        "messages_shown": messages,
        "older_than": _older_than(messages),
        # The page asks for the newest message it does not have; none is newer than the session's own count.
        "newer_than": messages[-1].seq if messages and messages[-1].seq < session.message_seq else None,
        "parent_title": shown_title(parents[session.parent_id]) if session.parent_id in parents else "",
        "children": [(id, shown_title(title)) for id, title in list_children(session.id)],
    }
    return render(request, "sessions_app/session.html", context)


@signed_in
def message_chunk(request: HttpRequest, session_id: str) -> HttpResponse:
    """More messages: older ones (``before``) or newer ones (``after``)."""
    session = load_session(session_id, owner_id=reader_of(request))
    before, after = number_in(request, "before"), number_in(request, "after")
    messages = transcript.load_chunk(session.id, before=before, after=after)
    context = {
        "session": session,
        "messages_shown": messages,
        "older_than": _older_than(messages) if after is None else None,
        "newer_than": messages[-1].seq if after is not None and len(messages) == transcript.CHUNK else None,
    }
    return render(request, "sessions_app/_messages.html", context)


@signed_in
def message(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """One message, as the transcript shows it."""
    session = load_session(session_id, owner_id=reader_of(request))
    shown = transcript.load_message(session.id, message_id)
    return render(request, "sessions_app/_message.html", {"session": session, "message": shown})


@signed_in
def message_text(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """What a message says, as it was written."""
    session = load_session(session_id, owner_id=reader_of(request))
    return _plain(transcript.load_spoken_text(session.id, message_id))


@signed_in
def message_records(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """The imported records that are kept with a message."""
    session = load_session(session_id, owner_id=reader_of(request))
    after = number_in(request, "after")
    records = transcript.load_records(session.id, message_id, after=-1 if after is None else after)
    context = {
        "session": session,
        "message_id": message_id,
        "records": records,
        "more_after": records[-1].index if len(records) == transcript.RECORDS else None,
    }
    return render(request, "sessions_app/_records.html", context)


@signed_in
def part_text(request: HttpRequest, session_id: str, part_id: str, field: str) -> HttpResponse:
    """The next stretch of a long text."""
    session = load_session(session_id, owner_id=reader_of(request))
    piece = transcript.load_piece(session.id, part_id, field=field, offset=number_in(request, "offset") or 0)
    return render(request, "sessions_app/_long_text.html", {"session_id": session.id, "text": piece})


@signed_in
def part_raw(request: HttpRequest, session_id: str, part_id: str, field: str) -> HttpResponse:
    """A long text, whole and as it was received."""
    session = load_session(session_id, owner_id=reader_of(request))
    return _plain(transcript.load_whole_text(session.id, part_id, field=field))


def _plain(text: str) -> HttpResponse:
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(text), content_type="text/plain; charset=utf-8")


def reader_of(request: HttpRequest) -> int:
    """The id of the user who reads; only behind ``signed_in``."""
    return int(request.user.pk)  # type: ignore[arg-type]


def _older_than(messages: list[transcript.ShownMessage]) -> int | None:
    """The ``before`` of the next older messages; a session's first message has seq 1."""
    return messages[0].seq if messages and messages[0].seq > 1 else None


def _found(request: HttpRequest) -> dict[str, Any]:
    query = request.GET.get("q", "").strip()
    archived = request.GET.get("archived") == "1"
    own_only = request.GET.get("own") == "1"
    cursor = request.GET.get("cursor", "")
    rows = list_sessions(
        owner_id=reader_of(request),
        archived=archived,
        query=query,
        sub_agents=False if own_only else None,
        before=_read_cursor(cursor) if cursor else None,
        limit=PAGE + 1,
    )
    sessions = rows[:PAGE]
    parents = parent_titles(sessions, owner_id=reader_of(request))
    return {
        "sessions": [
            (session, shown_title(session.title), parents.get(session.parent_id or "")) for session in sessions
        ],
        "next_cursor": _write_cursor(sessions[-1]) if len(rows) > PAGE else "",
        "is_first_page": not cursor,
        "query": printable(query),
        "archived": archived,
        "own_only": own_only,
    }


def number_in(request: HttpRequest, name: str) -> int | None:
    """A whole number from the address, or ``None`` where there is none.

    :raises InvalidRequest: it is something else.
    """
    text = request.GET.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"{name} must be a whole number", field=name)
    return min(int(text[:19]), LARGEST)


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
