"""Shared sessions: their pages for those who have a link, and the links for the person whose sessions they show."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_safe

from mnesis_core.errors import NotSignedIn
from mnesis_core.network.sharing import Audience, is_permitted
from sessions_app.conf import site_config
from sessions_app.pages import transcript
from sessions_app.pages.markdown import shown_title
from sessions_app.pages.views import number_in, plain, reader_of, signed_in, to_sign_in
from sessions_app.record.session_queries import load_session
from sessions_app.record.shares.sharing import Shared, list_shares, open_share
from sessions_app.schemas import page_of

PAGE = 50


def shared_path(token: str) -> str:
    return reverse("shared", args=[token])


def shared_view(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Give a view what its link shows, in place of the token; robots and caches are kept away from it."""

    @require_safe
    @wraps(view)
    def opened(request: HttpRequest, token: str, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            shared = open_share(token, reader_id=request.user.pk)
        except NotSignedIn:
            return to_sign_in(request)
        response = view(request, shared, *args, **kwargs)
        response.headers["X-Robots-Tag"] = "noindex, nofollow"
        add_never_cache_headers(response)
        return response

    return opened


@shared_view
def shared_page(request: HttpRequest, shared: Shared) -> HttpResponse:
    return render(request, "sessions_app/shares/shared.html", _messages(shared, after=0))


@shared_view
def shared_messages(request: HttpRequest, shared: Shared) -> HttpResponse:
    return render(
        request, "sessions_app/shares/_messages.html", _messages(shared, after=number_in(request, "after") or 0)
    )


def _messages(shared: Shared, *, after: int) -> dict[str, Any]:
    found = transcript.load_chunk(shared.session.id, after=after, limit=transcript.CHUNK + 1, path=shared.path)
    messages = [transcript.as_shared(message) for message in found[: transcript.CHUNK]]
    return {
        "title": shown_title(shared.share.title),
        "share": shared.share,
        "share_token": shared.token,
        "shared_by": shared.owner_name,
        "messages_shown": messages,
        "newer_than": messages[-1].seq if len(found) > transcript.CHUNK else None,
    }


@shared_view
def shared_text(request: HttpRequest, shared: Shared, part_id: str, field: str) -> HttpResponse:
    transcript.check_shared(shared.session.id, part_id, field=field, path=shared.path)
    piece = transcript.load_piece(shared.session.id, part_id, field=field, offset=number_in(request, "offset") or 0)
    return render(request, "sessions_app/transcript/_long_text.html", {"share_token": shared.token, "text": piece})


@shared_view
def shared_raw(request: HttpRequest, shared: Shared, part_id: str, field: str) -> HttpResponse:
    transcript.check_shared(shared.session.id, part_id, field=field, path=shared.path)
    return plain(transcript.load_whole_text(shared.session.id, part_id, field=field))


@signed_in
def own_shares(request: HttpRequest) -> HttpResponse:
    """Return the page of all links, or with a cursor only the rows after it."""
    rows = _rows(request)
    return render(request, f"sessions_app/shares/{'_rows' if 'cursor' in request.GET else 'shares'}.html", rows)


@signed_in
def session_shares(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return what the dialog of a session holds; or with a cursor only the rows after it."""
    session = load_session(session_id, owner_id=reader_of(request))
    config = site_config().sharing
    context = _rows(request, session_id=session.id) | {
        "session": session,
        "audiences": [audience.value for audience in Audience if is_permitted(audience, config)],
    }
    return render(request, f"sessions_app/shares/{'_rows' if 'cursor' in request.GET else '_share'}.html", context)


def _rows(request: HttpRequest, session_id: str | None = None) -> dict[str, Any]:
    cursor = request.GET.get("cursor") or None
    found = list_shares(owner_id=reader_of(request), session_id=session_id, before=cursor, limit=PAGE + 1)
    page = page_of(found, PAGE, lambda own: own.share.id)
    return {"shares": page["items"], "next_cursor": page["next_cursor"] or "", "rows_path": request.path}
