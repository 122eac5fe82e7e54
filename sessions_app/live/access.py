"""Who follows a session, and whether they still may: a stream is open for hours, and rights end in between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user, get_user_model
from django.http import HttpRequest

from mnesis_core.errors import NotSignedIn, SessionNotFoundError
from sessions_app.callers import Caller, owner_id
from sessions_app.catalogue.model_queries import find_key
from sessions_app.database.threads import db
from sessions_app.live.feed import Check
from sessions_app.record.session_queries import load_session


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Somebody who follows, and by what they proved who they are."""

    owner_id: int
    key_prefix: str = ""
    """Of an API key."""
    cookie: str = ""
    """The key of their sign-in; empty where they came by an API key."""


def viewer_of(request: HttpRequest) -> Viewer:
    """Who asks.

    :raises NotSignedIn: nobody is signed in.
    """
    person, prefix = owner_id(request), getattr(request, "key_prefix", "")
    return Viewer(owner_id=person, key_prefix=prefix, cookie="" if prefix else request.session.session_key or "")


def viewer_of_socket(scope: dict[str, Any]) -> Viewer:
    """Who opened a socket, of whom the handshake has found out who it is."""
    cookie = scope.get("session")
    return Viewer(
        owner_id=scope["user"].pk,
        key_prefix=scope.get("key_prefix", ""),
        cookie="" if cookie is None else cookie.session_key or "",
    )


def check_viewer(viewer: Viewer, session_id: str) -> None:
    """Make sure that they may see a session, now.

    :raises SessionNotFoundError: their account was closed, their key ended, they signed out or changed their
        password, or the session is gone or not theirs.
    """
    if not _is_known(viewer):
        raise SessionNotFoundError(session_id=session_id)
    load_session(session_id, owner_id=viewer.owner_id)


def check_caller(caller: Caller) -> Caller:
    """Who asks over a connection that lasts, if their account is open still.

    :raises NotSignedIn: it was closed.
    """
    if not _is_open(caller.owner_id):
        raise NotSignedIn(f"The account of {caller.user.get_username()} was closed.")
    return caller


def check_of(viewer: Viewer, session_id: str) -> Check:
    """``check_viewer`` for ``follow``, which asks it now and then."""
    return partial(db, check_viewer, viewer, session_id)


def _is_known(viewer: Viewer) -> bool:
    if viewer.key_prefix:
        key = find_key(viewer.key_prefix)
        return key is not None and key.revoked_at is None and key.owner_id == viewer.owner_id
    if viewer.cookie:
        return _is_signed_in(viewer)
    return _is_open(viewer.owner_id)


def _is_open(owner_id: int) -> bool:
    return get_user_model().objects.filter(pk=owner_id, is_active=True).exists()


def _is_signed_in(viewer: Viewer) -> bool:
    # As Django's middleware does for each request; a sign-in that is no more has an empty session.
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(viewer.cookie)
    user = get_user(request)
    return user.pk == viewer.owner_id and user.is_active
