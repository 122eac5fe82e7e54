"""Who may open the pages for administrators, and the pages of a session's inspector."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from mnesis_core.errors import SessionNotFoundError
from mnesis_core.records import SessionRecord, record_of
from mnesis_core.text import excerpt
from sessions_app.pages.markdown import shown_title
from sessions_app.record.organisation_store import names_of, ref_of
from sessions_app.record.session_queries import load_session

View = Callable[..., HttpResponse]
NAME_LENGTH = 80
SEES_RECORDS = (
    "sessions_app.view_session",
    "sessions_app.view_turn",
    "sessions_app.view_message",
    "sessions_app.view_messagepart",
    "sessions_app.view_modelcall",
    "sessions_app.view_contextitem",
    "sessions_app.view_event",
    "compaction_app.view_compactionrun",
    "compaction_app.view_summarynode",
)
"""The permissions that staff need to look at a session of another person."""


def may_administer(request: HttpRequest, permission: str) -> bool:
    user = request.user
    return bool(user.is_active and getattr(user, "is_staff", False) and user.has_perm(permission))


def observers(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Admit staff who may look over everybody's sessions. Other people get 404, and anonymous ones the sign-in page."""
    return require_safe(_looking_over(view))


def observers_to_post(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Admit staff who may look over everybody's sessions, as ``observers`` does, to send a form."""
    return require_POST(_looking_over(view))


def _looking_over(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _to_sign_in(request)
        look_over(request, may_look=sees_records(request))
        return view(request, *args, **kwargs)

    return guarded


def _to_sign_in(request: HttpRequest) -> HttpResponseBase:
    # The address of a POST cannot be opened after signing in.
    return redirect_to_login(request.get_full_path() if request.method in ("GET", "HEAD") else "/")


def look_at(request: HttpRequest, session_id: str, *, may_look: bool) -> None:
    """Let a reader look at a session of somebody else, or refuse.

    Every page, text and file that shows such a session passes here, in the inspector and in the administration, whichever permissions
    it asks for (``may_look``). What such a look needs beside them, and what is recorded of it, belongs here and nowhere else.

    :raises SessionNotFoundError: this reader may not look at it.
    """
    if not may_look:
        raise SessionNotFoundError(session_id=session_id)


def look_over(request: HttpRequest, *, may_look: bool) -> None:
    """Let a reader look over sessions of everybody in a list, as ``look_at`` does for one session, or refuse.

    :raises Http404: this reader may not look.
    """
    if not may_look:
        raise Http404


def administrators(
    permission: str, *, methods: tuple[str, ...] = ("GET", "HEAD", "POST")
) -> Callable[[View], Callable[..., HttpResponseBase]]:
    """Admit staff with this permission. Other people get 404, and anonymous ones the sign-in page."""

    def guard(view: View) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            if not may_administer(request, permission):
                raise Http404
            return view(request, *args, **kwargs)

        return require_http_methods(list(methods))(guarded)

    return guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected(SessionRecord):
    """A session as its inspector shows it: the title is ready to be shown."""

    name: str  # the title on one line of at most NAME_LENGTH characters
    is_own: bool


def inspected(request: HttpRequest, session_id: str) -> Inspected:
    """Return the session that a page of the inspector is about; only behind ``signed_in``.

    Its owner may see it, and staff who may view every kind of record.

    :raises SessionNotFoundError: there is no such session, it was deleted, or this reader may not see it.
    """
    session = load_session(session_id)
    is_own = session.owner_id == request.user.pk and session.is_at_home
    if not is_own:
        look_at(request, session_id, may_look=sees_records(request))
    title = shown_title(session.title)
    return record_of(Inspected, session, title=title, name=excerpt(title, NAME_LENGTH), is_own=is_own)


def names_for(request: HttpRequest, refs: Collection[str]) -> dict[str, str]:
    """Return by their pseudonyms the people whom this reader may know: "you", and for staff all who are known here."""
    names = names_of(refs) if sees_records(request) else {}
    return names | ({} if request.user.pk is None else {ref_of(request.user.pk): _("you")})


def sees_records(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_staff and request.user.has_perms(SEES_RECORDS)


def address_of(name: str, *values: str, **query: Any) -> str:
    """Return a page's address without empty query parameters; empty if no address fits, as for some imported ids."""
    wanted = {key: value for key, value in query.items() if value not in ("", None)}
    try:
        return reverse(name, args=values) + (f"?{urlencode(wanted)}" if wanted else "")
    except NoReverseMatch:
        return ""
