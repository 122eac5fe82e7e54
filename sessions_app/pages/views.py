"""The pages of a session and their parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import LimitSource, ModelSpec
from mnesis_core.records import SessionRecord, TurnState
from mnesis_core.text import printable
from sessions_app.conf import list_models
from sessions_app.pages import lookup, transcript
from sessions_app.pages.lookup import LARGEST, list_children, shown_title
from sessions_app.pages.markdown import format_count, show_invisible
from sessions_app.record.session_queries import load_session, titles_of
from sessions_app.record.turn_queries import newest_model

BADGES = [state.value for state in TurnState if state is not TurnState.COMPLETED]
"""States of a turn that the page shows while it is open."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    alias: str
    label: str
    is_chosen: bool = False


def signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Admit people who are signed in; others get the sign-in page, also when only part of a page was asked for."""
    return require_safe(_guarded(view))


def signed_in_to_post(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    return require_POST(_guarded(view))


def _guarded(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        # htmx would follow a redirect and put the sign-in page into the middle of this one.
        is_part = "HX-Request" in request.headers
        there = redirect_to_login("/" if is_part else request.get_full_path())
        return HttpResponse(status=401, headers={"HX-Redirect": there.url}) if is_part else there

    return guarded


def model_label(spec: ModelSpec) -> str:
    """A model's name and window, and whether that is assumed: ``local · 32k, assumed``."""
    assumed = ", assumed" if spec.context_window_source is LimitSource.DEFAULT else ""
    return f"{show_invisible(spec.alias)} · {format_count(spec.context_window)}{assumed}"


@signed_in
def session_page(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    parents = titles_of([session.parent_id], owner_id=session.owner_id) if session.parent_id else {}
    context = _stretch(request, session) | {
        "title": shown_title(session.title),
        "parent_title": shown_title(parents[session.parent_id]) if session.parent_id in parents else "",
        "children": [(id, shown_title(title)) for id, title in list_children(session.id)],
        "models": _model_choices(session),
        "badges": BADGES,
    }
    return render(request, "sessions_app/session.html", context)


@signed_in
def message_chunk(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return older messages (``before``), newer ones (``after``), those around one (``at``), or the newest."""
    session = load_session(session_id, owner_id=reader_of(request))
    return render(request, "sessions_app/_messages.html", _stretch(request, session))


def _stretch(request: HttpRequest, session: SessionRecord) -> dict[str, Any]:
    before, after = number_in(request, "before"), number_in(request, "after")
    place = request.GET.get("at", "") or request.GET.get("around", "")
    at = lookup.find_seq(session.id, place) if place and before is after is None else None
    if at is not None:
        before = min(at + transcript.CHUNK // 2, LARGEST)
    messages = transcript.load_chunk(session.id, before=before, after=after)
    has_older = after is None and messages and messages[0].seq > 1
    # The session's count was read before the messages, so it is never ahead of them.
    has_newer = (before is None or at is not None) and messages and messages[-1].seq < session.message_seq
    return {
        "session": session,
        "messages_shown": messages,
        "older_than": messages[0].seq if has_older else None,
        "newer_than": messages[-1].seq if has_newer else None,
        "at": max(messages[0].seq, min(at, messages[-1].seq)) if at is not None and messages else None,
    }


def _model_choices(session: SessionRecord) -> list[ModelChoice]:
    newest, specs = newest_model(session.id), {spec.alias: spec for spec in list_models(user_id=session.owner_id)}
    chosen = newest if newest in specs else session.model
    own = [] if session.model in specs else [ModelChoice(session.model, f"{show_invisible(session.model)} · gone")]
    known = [ModelChoice(alias, model_label(spec), is_chosen=alias == chosen) for alias, spec in specs.items()]
    return own + known


@signed_in
def message(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    shown = transcript.load_message(session.id, message_id)
    return render(request, "sessions_app/_message.html", {"session": session, "message": shown})


@signed_in
def message_text(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return _plain(lookup.load_spoken_text(session.id, message_id))


@signed_in
def message_said(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """Return a person's message as JSON, to be sent again or edited first."""
    session = load_session(session_id, owner_id=reader_of(request))
    said = lookup.load_said(session.id, message_id)
    return JsonResponse({"text": printable(said.text), "file_ids": said.file_ids})


@signed_in
def message_records(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
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
    session = load_session(session_id, owner_id=reader_of(request))
    piece = transcript.load_piece(session.id, part_id, field=field, offset=number_in(request, "offset") or 0)
    return render(request, "sessions_app/_long_text.html", {"session_id": session.id, "text": piece})


@signed_in
def part_raw(request: HttpRequest, session_id: str, part_id: str, field: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return _plain(transcript.load_whole_text(session.id, part_id, field=field))


def _plain(text: str) -> HttpResponse:
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(text), content_type="text/plain; charset=utf-8")


def reader_of(request: HttpRequest) -> int:
    """Return the id of the user; only behind ``signed_in``."""
    return int(request.user.pk)  # type: ignore[arg-type]


def number_in(request: HttpRequest, name: str) -> int | None:
    """Return a whole number from the query, or ``None`` if it is not given.

    :raises InvalidRequest: it is something else.
    """
    text = request.GET.get(name, "")
    return number_of(text, name) if text else None


def number_of(text: str, name: str) -> int:
    """Return a whole number from an address, at most ``LARGEST``.

    :raises InvalidRequest: it is something else.
    """
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"{name} must be a whole number", field=name)
    return min(int(text[:19]), LARGEST)
