"""Pages for administrators within the portal: for anybody else they are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.forms import BaseForm
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_http_methods

from mnesis_core.errors import SessionNotFoundError
from mnesis_core.records import SessionRecord
from mnesis_core.text import excerpt
from sessions_app.pages.lookup import shown_title
from sessions_app.record.session_queries import load_session

View = Callable[..., HttpResponse]


def may_administer(request: HttpRequest, permission: str) -> bool:
    """Whether who asks may do this in the administration too."""
    user = request.user
    return bool(user.is_active and getattr(user, "is_staff", False) and user.has_perm(permission))


def administrators(
    permission: str, *, methods: tuple[str, ...] = ("GET", "HEAD", "POST")
) -> Callable[[View], Callable[..., HttpResponseBase]]:
    """Only for staff who have this permission. Others find nothing, and who is not signed in is asked to sign in."""

    def guard(view: View) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                # After a POST there is nothing to come back to but the list.
                return redirect_to_login(request.get_full_path() if request.method in ("GET", "HEAD") else "/")
            if not may_administer(request, permission):
                raise Http404
            return view(request, *args, **kwargs)

        return require_http_methods(list(methods))(guarded)

    return guard


def forget_refused(form: BaseForm, names: Iterable[str]) -> None:
    """What was refused where a secret may have been written by mistake goes back to nobody's screen."""
    refused = [name for name in names if name in form.errors]
    if not refused:
        return
    data: Any = form.data
    form.data = kept = data.copy()
    for name in refused:
        kept[form.add_prefix(name)] = ""


# Who may inspect a session, and what stands above every page of its inspector.

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
"""What staff must be allowed to look at in the administration to inspect a session that is not theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A session as the pages of its inspector need it."""

    id: str
    title: str
    """Ready to be shown."""
    name: str
    """The title on one line of at most ``NAME_LENGTH`` characters."""
    owner_id: int
    parent_id: str | None
    origin: str
    model: str
    config: dict[str, Any]
    """What it overrides of the site's configuration."""
    event_seq: int
    message_seq: int
    turn_seq: int
    state: str
    created_at: datetime
    archived_at: datetime | None
    is_own: bool
    """Whether the reader owns it. The pages of the chat are there for the owner alone."""


def inspected(request: HttpRequest, session_id: str) -> Inspected:
    """The session that a page of the inspector is about; only behind ``signed_in``.

    Its owner may look, and staff who may look at every kind of record.

    :raises SessionNotFoundError: there is no such session, it was deleted, or this reader may not look.
    """
    session = load_session(session_id)
    is_own = session.owner_id == request.user.pk
    if not is_own and not sees_records(request):
        raise SessionNotFoundError(session_id=session_id)
    return _inspected(session, is_own=is_own)


def sees_records(request: HttpRequest) -> bool:
    """Whether who asks is staff who may look at every kind of record."""
    return request.user.is_active and request.user.is_staff and request.user.has_perms(SEES_RECORDS)


def _inspected(session: SessionRecord, *, is_own: bool) -> Inspected:
    title = shown_title(session.title)
    return Inspected(
        id=session.id,
        title=title,
        name=excerpt(title, NAME_LENGTH),
        owner_id=session.owner_id,
        parent_id=session.parent_id,
        origin=session.origin,
        model=session.model,
        config=session.config,
        event_seq=session.event_seq,
        message_seq=session.message_seq,
        turn_seq=session.turn_seq,
        state=session.state,
        created_at=session.created_at,
        archived_at=session.archived_at,
        is_own=is_own,
    )


def address_of(name: str, *values: str, **query: Any) -> str:
    """The address of a page with what of the query says something; empty where there is none, as for many an imported id."""
    wanted = {key: value for key, value in query.items() if value not in ("", None)}
    try:
        return reverse(name, args=values) + (f"?{urlencode(wanted)}" if wanted else "")
    except NoReverseMatch:
        return ""
