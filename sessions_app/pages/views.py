"""The pages of sessions: the list with its rows, and a session with its messages; and what other pages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import wraps
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import LimitSource, ModelSpec
from mnesis_core.records import SessionRecord, TurnState
from mnesis_core.text import printable
from sessions_app.assistants.assistant_store import assistant_of, is_usable
from sessions_app.conf import default_model, list_models, site_config
from sessions_app.pages import transcript
from sessions_app.pages.branches import (
    ShownBranch,
    asked_branch,
    has_later,
    load_parent_id,
    load_question_id,
    seq_before,
    shown_branch,
    versions_at_end,
    with_message,
    with_versions,
)
from sessions_app.pages.formats import format_count, format_days_ago
from sessions_app.pages.markdown import show_invisible, shown_title
from sessions_app.pages.transcript import LARGEST, parent_titles
from sessions_app.record.project_store import has_left_project, load_project
from sessions_app.record.session_queries import last_model, list_sessions, load_session, load_sessions
from sessions_app.record.turn_queries import newest_model, reasons_to_wait
from sessions_app.schemas import page_of, place_of, read_place

PAGE = 50
MOST_POLLED = 100  # rows whose state one request may ask for
BADGES = [state.value for state in TurnState if state is not TurnState.COMPLETED]
"""States of a turn that the page shows while it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    session: SessionRecord
    parent_title: str
    waits_for: str  # "approval", "answer" or "caller", for a suspended turn
    heading: str = ""  # the heading above it, such as "Today"; empty if an earlier row has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    query: str
    archived: bool
    sub_agents: bool  # whether sessions that turns launched are shown too
    label: str  # "key=value", or empty
    cursor: str
    project_id: str = ""

    @property
    def address(self) -> str:
        page = reverse("project", args=[self.project_id]) if self.project_id else reverse("session-list")
        wanted = {
            "q": self.query,
            "archived": "1" if self.archived else "",
            "sub_agents": "1" if self.sub_agents else "",
            "label": self.label,
        }
        search = urlencode({name: value for name, value in wanted.items() if value})
        return f"{page}?{search}" if search else page


def signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Admit people who are signed in; others get the sign-in page, also when only part of a page was asked for."""
    return require_safe(_guarded(view))


def signed_in_to_post(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    return require_POST(_guarded(view))


def signed_in_to_change(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Admit people who are signed in to a form, which is read and posted at one address."""
    return require_http_methods(["GET", "HEAD", "POST"])(_guarded(view))


def _guarded(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return view(request, *args, **kwargs) if request.user.is_authenticated else to_sign_in(request)

    return guarded


def to_sign_in(request: HttpRequest) -> HttpResponse:
    # htmx would follow a redirect and put the sign-in page into the middle of this one.
    is_part = "HX-Request" in request.headers
    there = redirect_to_login("/" if is_part else request.get_full_path())
    return HttpResponse(status=401, headers={"HX-Redirect": there.url}) if is_part else there


def to_page(request: HttpRequest, to: str, *args: str) -> HttpResponse:
    """Return a redirect after a form. If a script sent the form, its answer only names the page, and the script goes there."""
    there = redirect(to, *args)
    return HttpResponse(status=204, headers={"HX-Redirect": there.url}) if "HX-Request" in request.headers else there


def model_choices(request: HttpRequest, *, preferred: str = "") -> dict[str, Any]:
    """Return the models of a new chat, the one that is chosen (the preferred one, else what the reader used last), and how long a
    temporary chat would last, if the site permits one.
    """
    models = {spec.alias: model_label(spec) for spec in list_models(user_id=reader_of(request))}
    wanted = (preferred, last_model(owner_id=reader_of(request)))
    chosen = next((alias for alias in wanted if alias in models), default_model())
    return {"models": models.items(), "chosen_model": chosen, "temporary_hours": temporary_hours()}


@signed_in
def session_list(request: HttpRequest) -> HttpResponse:
    return render(request, "sessions_app/list/list.html", list_context(request) | {"may_delete": may_delete()})


@signed_in
def session_rows(request: HttpRequest) -> HttpResponse:
    found = list_context(request, project_id=request.GET.get("project", ""))
    response = render(request, "sessions_app/list/_rows.html", found)
    if not found["asked"].cursor:
        response.headers["HX-Replace-Url"] = found["asked"].address
    return response


@signed_in
def session_row(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    [row] = _rows([session], owner_id=reader_of(request))
    return render(request, "sessions_app/list/_row.html", {"shown": row})


@signed_in
def session_menu(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return render(
        request,
        "sessions_app/list/_menu.html",
        {"session": session, "may_delete": may_delete(), "may_share": may_share()},
    )


@signed_in
def session_states(request: HttpRequest) -> HttpResponse:
    """Return the current state of some rows, each to be swapped into its place. Sessions of others are left out."""
    sessions = load_sessions(request.GET.getlist("id")[:MOST_POLLED], owner_id=reader_of(request))
    return render(request, "sessions_app/list/_states.html", {"sessions": _rows(sessions, owner_id=reader_of(request))})


def list_context(request: HttpRequest, *, project_id: str = "") -> dict[str, Any]:
    """Read the rows that a request asks for, of all sessions or of those in a project.

    :raises ProjectNotFoundError: there is no such project, or the reader is not a member of it.
    """
    if project_id:
        load_project(project_id, user_id=reader_of(request))
    asked = Asked(
        query=printable(request.GET.get("q", "").strip()),
        archived=request.GET.get("archived") == "1",
        sub_agents=request.GET.get("sub_agents") == "1",
        label=printable(request.GET.get("label", "")),
        cursor=request.GET.get("cursor", ""),
        project_id=project_id,
    )
    before = read_place(asked.cursor or None)
    key, _, value = asked.label.partition("=")
    label = (key, value) if asked.label else None
    sessions = list_sessions(
        owner_id=reader_of(request),
        archived=asked.archived,
        label=label,
        query=asked.query,
        sub_agents=None if asked.sub_agents else False,
        project_id=project_id or None,
        before=before,
        limit=PAGE + 1,
    )
    page = page_of(sessions, PAGE, lambda session: place_of(session.updated_at, session.id))

    headings = day_headings(request, page["items"], after=before)
    rows = [
        replace(row, heading=heading)
        for row, heading in zip(_rows(page["items"], owner_id=reader_of(request)), headings, strict=True)
    ]
    return {
        "asked": asked,
        "label": label_text(label) if label else "",
        "sessions": rows,
        "next_cursor": page["next_cursor"] or "",
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


def day_headings(
    request: HttpRequest, sessions: Sequence[SessionRecord], *, after: tuple[datetime, str] | None
) -> list[str]:
    """Return the heading above each row of a page that begins ``after`` a place; empty if an earlier row has it."""
    zone = zone_of(request)
    today = timezone.now().astimezone(zone).date()
    days = [session.updated_at.astimezone(zone).date() for session in sessions]
    texts = [format_days_ago(day, today) for day in days]
    before = format_days_ago(after[0].astimezone(zone).date(), today) if after else ""
    return ["" if text == last else text for last, text in zip([before, *texts], texts, strict=False)]


def label_text(label: tuple[str, str]) -> str:
    key, value = label
    return show_invisible(f"{key}: {value}" if value else key)


def may_delete() -> bool:
    return site_config().deletion.people_may_delete


def may_share() -> bool:
    return site_config().sharing.people_may_share


def temporary_hours() -> int | None:
    """Return after how many hours a temporary chat would leave; ``None`` if nobody may begin one."""
    config = site_config().temporary
    return None if config.chats == "off" else config.hours


def zone_of(request: HttpRequest) -> tzinfo:
    """Return the reader's time zone from the cookie that ``shell/page.js`` sets, or UTC."""
    try:
        return ZoneInfo(request.COOKIES.get("zone", ""))
    except (ValueError, OSError, KeyError):
        return UTC


def model_label(spec: ModelSpec) -> str:
    """Return a model's name and window, and whether that is assumed: ``local · 32k, assumed``."""
    name, window = show_invisible(spec.alias), format_count(spec.context_window)
    if spec.context_window_source is LimitSource.DEFAULT:
        return _("%(name)s · %(window)s, assumed") % {"name": name, "window": window}
    return f"{name} · {window}"


@signed_in
def session_page(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    newest, specs = newest_model(session.id), {spec.alias: spec for spec in list_models(user_id=session.owner_id)}
    models = [(alias, model_label(spec)) for alias, spec in specs.items()]
    if session.model not in specs:
        gone = _("%(name)s · gone") % {"name": show_invisible(session.model)}
        models.insert(0, (session.model, gone))
    children = transcript.list_children(session.id, with_temporary=session.is_temporary)
    context = _stretch(request, session) | {
        "title": shown_title(session.title),
        "parent_title": parent_titles([session], owner_id=session.owner_id).get(session.parent_id or "", ""),
        "children": [(id, shown_title(title)) for id, title in children],
        "models": models,
        "chosen_model": newest if newest in specs else session.model,
        "badges": BADGES,
        "may_delete": may_delete(),
        "may_share": may_share() and not session.is_temporary,
        "temporary_hours": site_config().temporary.hours,
    }
    return render(request, "sessions_app/session/session.html", context | in_project(session) | with_assistant(session))


def in_project(session: SessionRecord) -> dict[str, Any]:
    """Return what a page says of a session's project."""
    if session.project_id:
        return {"project": load_project(session.project_id, user_id=session.owner_id)}
    return {"has_left_project": bool(session.named_project_id) and has_left_project(session)}


def with_assistant(session: SessionRecord) -> dict[str, Any]:
    """Return what a page says of the assistant that a session began with."""
    assistant = assistant_of(session)
    is_there = assistant is not None and is_usable(assistant, user_id=session.owner_id)
    return {"assistant": assistant, "may_use_assistant": is_there}


@signed_in
def message_chunk(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return older messages (``before``), newer ones (``after``), those around one (``at``), or the newest.

    They are those of a ``branch``. ``near`` is a place on it, whereas the branch is another one if ``at`` is not on it.
    """
    session = load_session(session_id, owner_id=reader_of(request))
    return render(request, "sessions_app/transcript/_messages.html", _stretch(request, session))


def _stretch(request: HttpRequest, session: SessionRecord) -> dict[str, Any]:
    """Read messages of the branch that is asked for, or chosen; around a message (``at``), of one that leads to it."""
    before, after = number_in(request, "before"), number_in(request, "after")
    asked = shown_branch(session, number_in(request, "branch"))
    place = request.GET.get("at", "") or request.GET.get("around", "")
    at = transcript.find_seq(session.id, place, path=asked.path) if place and before is after is None else None
    shown = asked if at is None else with_message(session, asked, at)
    near = number_in(request, "near") if at is None else at  # without leaving the branch
    if near is not None:
        before = min(near + transcript.CHUNK // 2, LARGEST)
    messages = transcript.load_chunk(session.id, before=before, after=after, path=shown.path)
    first, last = (messages[0].seq, messages[-1].seq) if messages else (1, session.message_seq)
    earlier, is_followed = _beside(session, shown, first, last)
    is_asked_for = before is None or near is not None  # what comes after the last one
    has_newer = bool(is_asked_for and messages and is_followed)
    has_end = is_asked_for and not has_newer and bool(messages or after is None)
    return {
        "session": session,
        "shown": shown,
        "is_elsewhere": shown is not asked,
        "messages_shown": with_versions(shown, messages, after_seq=earlier),
        "older_than": first if after is None and messages and earlier else None,
        "newer_than": last if has_newer else None,
        "at": max(first, min(at, last)) if at is not None and messages else None,
        "versions_at_end": versions_at_end(shown, last if messages else 0) if has_end else None,
    }


def _beside(session: SessionRecord, shown: ShownBranch, first: int, last: int) -> tuple[int, bool]:
    """Return the number of the message before the first one, 0 for none, and whether there are any after the last."""
    if shown.path is None:
        # The session's count was read before the messages, so it is never ahead of them.
        return first - 1, last < session.message_seq
    return seq_before(session.id, first, shown.path), has_later(session.id, last, shown.path)


@signed_in
def branch(request: HttpRequest, session_id: str) -> HttpResponse:
    """Lead to a branch without choosing it: ``place`` among the messages ``after`` one."""
    session = load_session(session_id, owner_id=reader_of(request))
    number, seq = asked_branch(session, request.GET)
    query = {"branch": number} | ({"at": seq} if seq else {})
    return redirect(f"{reverse('session', args=[session.id])}?{urlencode(query)}")


@signed_in
def message(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    shown, own = shown_branch(session, number_in(request, "branch")), transcript.load_message(session.id, message_id)
    if shown.path is not None and shown.path.has(own.branch, own.seq):
        [own] = with_versions(shown, [own], after_seq=seq_before(session.id, own.seq, shown.path))
    context = {"session": session, "shown": shown, "message": own}
    return render(request, "sessions_app/transcript/_message.html", context)


@signed_in
def message_text(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return plain(transcript.load_spoken_text(session.id, message_id))


@signed_in
def message_said(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """Return a person's message as JSON, to be said differently: with the message that it continues, or ``root``."""
    session = load_session(session_id, owner_id=reader_of(request))
    text, file_ids = transcript.load_said(session.id, message_id)
    parent_id = load_parent_id(session.id, message_id)
    return JsonResponse({"text": printable(text), "file_ids": file_ids, "parent_id": parent_id})


@signed_in
def message_question(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """Return as JSON which message of a user a message answers."""
    session = load_session(session_id, owner_id=reader_of(request))
    return JsonResponse({"id": load_question_id(session.id, message_id)})


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
    return render(request, "sessions_app/transcript/_records.html", context)


@signed_in
def part_text(request: HttpRequest, session_id: str, part_id: str, field: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    piece = transcript.load_piece(session.id, part_id, field=field, offset=number_in(request, "offset") or 0)
    return render(request, "sessions_app/transcript/_long_text.html", {"session_id": session.id, "text": piece})


@signed_in
def part_raw(request: HttpRequest, session_id: str, part_id: str, field: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return plain(transcript.load_whole_text(session.id, part_id, field=field))


def plain(text: str) -> HttpResponse:
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
        raise InvalidRequest(gettext_noop("%(name)s must be a whole number"), {"name": name}, field=name)
    return min(int(text[:19]), LARGEST)
