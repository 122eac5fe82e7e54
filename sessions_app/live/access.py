"""The viewers of a session, checked again and again: a stream is open for hours, and rights end in between."""

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
    """A person who follows a session, and the credential with which they do."""

    owner_id: int
    key_prefix: str = ""  # of an API key
    cookie: str = ""  # the key of a sign-in; empty for an API key


def viewer_of(request: HttpRequest) -> Viewer:
    """:raises NotSignedIn: the request has no signed-in user."""
    person, prefix = owner_id(request), getattr(request, "key_prefix", "")
    return Viewer(owner_id=person, key_prefix=prefix, cookie="" if prefix else request.session.session_key or "")


def viewer_of_socket(scope: dict[str, Any]) -> Viewer:
    cookie = scope.get("session")
    return Viewer(
        owner_id=scope["user"].pk,
        key_prefix=scope.get("key_prefix", ""),
        cookie="" if cookie is None else cookie.session_key or "",
    )


def check_viewer(viewer: Viewer, session_id: str) -> None:
    """Check that a viewer may see a session now.

    :raises SessionNotFoundError: their account was closed, their key ended, they signed out or changed their password, or
        the session is gone or belongs to another person.
    """
    if not _is_known(viewer):
        raise SessionNotFoundError(session_id=session_id)
    load_session(session_id, owner_id=viewer.owner_id)


def check_caller(caller: Caller) -> Caller:
    """Return the caller of a lasting connection if their account is still open.

    :raises NotSignedIn: it was closed.
    """
    if not _is_open(caller.owner_id):
        raise NotSignedIn(f"The account of {caller.user.get_username()} was closed.")
    return caller


def make_check(viewer: Viewer, session_id: str) -> Check:
    """Return ``check_viewer`` as a function for ``follow``."""
    return partial(db, check_viewer, viewer, session_id)


def _is_known(viewer: Viewer) -> bool:
    if viewer.key_prefix:
        key = find_key(viewer.key_prefix)
        return key is not None and key.revoked_at is None and key.owner_id == viewer.owner_id
    if not viewer.cookie:
        return _is_open(viewer.owner_id)
    # As Django's middleware does for each request; a sign-in that has ended has an empty session.
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(viewer.cookie)
    user = get_user(request)
    return user.pk == viewer.owner_id and user.is_active


def _is_open(owner_id: int) -> bool:
    return get_user_model().objects.filter(pk=owner_id, is_active=True).exists()
