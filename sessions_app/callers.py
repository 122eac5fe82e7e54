"""Callers at endpoints: API keys for programs, the session cookie for browsers, what each may do, and their rate limit.

A cookie counts only with proof that the page is one of ours: a CSRF token, or a checked ``Origin`` on a socket.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from channels.auth import AuthMiddleware
from channels.security.websocket import WebsocketDenier
from channels.sessions import CookieMiddleware, SessionMiddleware
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain
from ninja.security import APIKeyHeader, HttpBearer, SessionAuth
from ninja.utils import check_csrf

from mnesis_core.actor import Actor
from mnesis_core.errors import NotSignedIn, PermissionDenied, TooManyRequests, WrongOrganisation
from mnesis_core.network.rate_limits import Bucket, KeyRecord, decide, parse_key, request_bucket
from sessions_app.conf import passes_on_unrecorded, site_config
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import AWAY, db
from sessions_app.llm.model_store import find_key_with_owner, touch_key
from sessions_app.record.organisation_store import key_actor, user_actor

R = TypeVar("R")
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger(__name__)
READING = ("GET", "HEAD", "OPTIONS")
TRY_AGAIN = 4503  # a socket's close code while the database is away
MOST_BUCKETS = 10_000  # when all of them are in use, a newcomer is let in without being counted
REMEMBERED_SECONDS = 3_600.0
PROVEN_SECONDS = 1.0  # how long a proof holds, for the same request only: a large body may take minutes to come
_SEEN: dict[tuple[str, Any], tuple[float, Any]] = {}
_START = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The person who makes a request; a key may only let them read."""

    user: User
    may_write: bool
    actor: Actor  # of what they write

    @property
    def owner_id(self) -> int:
        return self.user.pk


Asker = HttpRequest | Caller  # a REST call has a request, the same call by name a caller


def owner_id(request: Asker) -> int:
    """Return the id of the person who is signed in, by cookie or key.

    :raises NotSignedIn: the request has no user.
    """
    if request.user.pk is None:
        raise NotSignedIn()
    return request.user.pk


def actor_of(user: Any, key_prefix: str) -> Actor:
    """Return the actor that a signed-in user is, or a key of theirs; one of no kind for an anonymous user."""
    if user is None or user.pk is None:
        return Actor()
    return key_actor(key_prefix, user.pk) if key_prefix else user_actor(user.pk)


def wants_stream(request: HttpRequest) -> bool:
    return "text/event-stream" in request.headers.get("Accept", "")


def check_may_write(may_write: bool) -> None:
    """:raises PermissionDenied: the caller's key may only read."""
    if not may_write:
        raise PermissionDenied("This API key is read-only. Create one with '--scope all' to write.")


def steady_now() -> datetime:
    """Return a time that is never set back and means nothing outside this process."""
    return _START + timedelta(seconds=time.monotonic())


class RateLimiter:
    def __init__(self, clock: Callable[[], datetime] = steady_now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._empty_at: dict[tuple[str, ...], datetime] = {}

    def seconds_to_wait(self, bucket: Bucket) -> int:
        """Count one attempt and return 0, or count nothing and return the seconds until the next one is allowed."""
        with self._lock:
            now = self._clock()
            decision = decide([bucket], self._empty_at, now)
            if len(self._empty_at) >= MOST_BUCKETS:
                self._empty_at = {name: until for name, until in self._empty_at.items() if until > now}
            if len(self._empty_at) < MOST_BUCKETS or bucket.name in self._empty_at:
                self._empty_at |= decision.empty_at
            return decision.wait_seconds


request_limiter = RateLimiter()


def count_request(*, user_id: int, key_prefix: str = "") -> None:
    """Count one request. A key has its own bucket, so a program cannot keep its owner from the pages.

    :raises TooManyRequests: it is one too many; ``retry_after`` is the number of seconds to wait.
    """
    config = site_config().requests
    name = ("key", key_prefix) if key_prefix else ("person", str(user_id))
    if seconds := request_limiter.seconds_to_wait(request_bucket(config, name)):
        raise TooManyRequests(per_second=config.per_second, burst=config.burst, retry_after=seconds)


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request or socket by their names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


@dataclass(frozen=True, slots=True)
class Proof:
    """A valid key that a caller holds, and its owner."""

    text: str
    key: KeyRecord
    user: User
    proven_at: float  # by ``time.monotonic``


def check_key(text: str) -> KeyRecord:
    """Return the key that this text proves to hold, and record its use.

    :raises NotSignedIn: it is not a valid key, it is revoked, or its owner's account is closed.
    :raises WrongOrganisation: its owner has left the organisation for which it was made.
    """
    return _checked(prove(text)).key


def _checked(proof: Proof | None) -> Proof:
    if proof is None:
        raise NotSignedIn("This API key is not valid. Create one with 'manage.py apikey create USER'.")
    if not proof.key.is_at_home:
        raise WrongOrganisation()
    return proof


def remembered(kind: str, name: Any, read: Callable[[Any], R]) -> R:
    """Return what a query gives, or gave within the hour where the database is away and the gateway goes on without it."""
    if not passes_on_unrecorded():
        return read(name)
    try:
        found = read(name)
    except AWAY:
        seen_at, found = _SEEN.get((kind, name), (0.0, None))
        if not seen_at or time.monotonic() - seen_at > REMEMBERED_SECONDS:
            raise
        return cast(R, found)
    if len(_SEEN) > MOST_BUCKETS:
        _SEEN.clear()
    _SEEN[kind, name] = (time.monotonic(), found)
    return found


def prove(text: str) -> Proof | None:
    """Return the valid key that this text proves to hold, and record its use; ``None`` if there is none."""
    key = parse_key(text)
    found = remembered("key", key.prefix, find_key_with_owner) if key else None
    if key is None or found is None or not found[0].is_proven_by(key):
        return None
    record, owner = found
    with suppress(*AWAY):  # a full disk refuses writes, and is no reason to refuse reads
        touch_key(record)
    return Proof(text, record, owner, time.monotonic())


class _InLoop:
    """Has ninja call an authentication in the event loop; where there is none, it takes an answer that is no coroutine."""

    def __init__(self) -> None:
        super().__init__()
        self.is_async = True


class KeyAuth(_InLoop, HttpBearer):
    """``Authorization: Bearer mns_…``. The request's user is the key's owner."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """:raises NotSignedIn: the key is not valid.
        :raises PermissionDenied: the key may only read.
        :raises TooManyRequests: it asks too fast.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _admit(request, _fresh_proof(request, token) or prove(token))
        return _admit_in_loop(request, token)


class HeaderKeyAuth(_InLoop, APIKeyHeader):
    """``X-Api-Key: mns_…``, as clients of Anthropic's API send their key."""

    param_name = "X-Api-Key"

    def authenticate(self, request: HttpRequest, key: str | None) -> Any:
        """:raises MnesisError: as ``KeyAuth.authenticate``."""
        return KeyAuth().authenticate(request, key) if key else None


async def _admit_in_loop(request: HttpRequest, token: str) -> User:
    if proof := _fresh_proof(request, token):
        return _admit(request, proof)
    # In a database thread: asgiref's is the request's own, without a connection yet.
    return await db(lambda: _admit(request, prove(token)))


def _fresh_proof(request: HttpRequest, token: str) -> Proof | None:
    """Return what a large request has proven a moment ago, before more of its body was read (``mnesis_site.bodies``)."""
    proof: Proof | None = getattr(request, "scope", {}).get("proof", {}).get("of_key")
    is_fresh = proof is not None and proof.text == token and time.monotonic() - proof.proven_at < PROVEN_SECONDS
    return proof if is_fresh else None


def _admit(request: HttpRequest, proof: Proof | None) -> User:
    proof = _checked(proof)
    record = proof.key
    count_request(user_id=record.owner_id, key_prefix=record.prefix)
    check_may_write(record.may_write or request.method in READING)
    request.user = proof.user
    request.key_prefix = record.prefix  # type: ignore[attr-defined]
    request.key_mode = record.mode  # type: ignore[attr-defined]
    return proof.user


class CookieAuth(SessionAuth):
    def authenticate(self, request: HttpRequest, key: str | None) -> Any:
        user = super().authenticate(request, key)
        if user is not None:
            count_request(user_id=user.pk)
        return user


def holder_of(token: str) -> Caller:
    """Return the caller that holds a key.

    :raises NotSignedIn: it is not valid.
    :raises TooManyRequests: it asks too fast.
    """
    proof = _checked(prove(token))
    key = proof.key
    count_request(user_id=key.owner_id, key_prefix=key.prefix)
    return Caller(user=proof.user, may_write=key.may_write, actor=key_actor(key.prefix, key.owner_id))


def caller_of(request: HttpRequest) -> Caller:
    """Return the caller at an endpoint outside of the REST API: by key, or by cookie with its CSRF token.

    :raises NotSignedIn: there is neither.
    :raises PermissionDenied: the cookie came without its token.
    :raises TooManyRequests: the caller asks too fast.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme:
        if scheme.lower() != "bearer":
            raise NotSignedIn()
        return holder_of(token)
    if not request.user.is_authenticated:
        raise NotSignedIn()
    if check_csrf(request) is not None:
        raise PermissionDenied("CSRF check Failed")
    count_request(user_id=request.user.pk)
    return Caller(user=request.user, may_write=True, actor=user_actor(request.user.pk))


def key_holder(token: str) -> Scope:
    """Return what a key adds to the scope of a socket."""
    try:
        proof = _checked(prove(token))
    except (NotSignedIn, WrongOrganisation):
        return {"user": AnonymousUser(), "may_write": False}
    return {"user": proof.user, "may_write": proof.key.may_write, "key_prefix": proof.key.prefix}


class _Values(dict[str, Any]):
    """The values of a session, without a way to renew or to end it."""

    def cycle_key(self) -> None: ...

    def flush(self) -> None: ...


def user_of(session: SessionBase) -> User | AnonymousUser:
    """Return who is signed in, as Django does for each request, but leave the session as it is.

    Django gives a sign-in from before a change of ``SECRET_KEY`` a new cookie, of which a socket cannot tell its browser.
    """
    request: Any = HttpRequest()
    request.session = _Values(session.items())
    return get_user(request)


class CookieAuthMiddleware(AuthMiddleware):  # type: ignore[misc]
    """Channels' own knows no ``SECRET_KEY_FALLBACKS``, and ends a session that the current key has not signed."""

    async def resolve_scope(self, scope: Scope) -> None:
        scope["user"]._wrapped = await db(user_of, scope["session"])


class SocketAuth:
    """Puts ``user``, ``may_write`` and a key's ``key_prefix`` into a socket's scope; unknown callers are an ``AnonymousUser``.

    A cookie counts only together with an allowed ``Origin``, since any page may open a socket and the browser adds the
    cookie. A browser never adds a key by itself, so there the ``Origin`` does not matter.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self.with_cookie = CookieMiddleware(SessionMiddleware(CookieAuthMiddleware(application)))
        self.denied = WebsocketDenier.as_asgi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._admit(scope, receive, send)
        except AWAY as error:
            log_outage(logger, "Sockets are closed: the database does not answer", error)
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": TRY_AGAIN})

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            await self.application({**scope, **await db(key_holder, token)}, receive, send)
        elif (origin := headers.get("origin")) is None:
            await self.application({**scope, "user": AnonymousUser(), "may_write": False}, receive, send)
        elif origin_is_ours(origin, host=headers.get("host", "")):
            await self.with_cookie({**scope, "may_write": True}, receive, send)
        else:
            await self.denied(scope, receive, send)


def origin_is_ours(origin: str, *, host: str) -> bool:
    """Say whether a page of this origin may act for its visitor: one of the requested host, or a trusted one.

    The settings are those for forms: ``ALLOWED_HOSTS`` and ``CSRF_TRUSTED_ORIGINS``.
    """
    try:
        asking = urlsplit(origin)
    except ValueError:
        return False
    domain, _port = split_domain_port(host)
    if asking.netloc == host and validate_host(domain, settings.ALLOWED_HOSTS):
        return True
    trusted = [urlsplit(entry) for entry in settings.CSRF_TRUSTED_ORIGINS]
    return any(
        asking.scheme == entry.scheme and is_same_domain(asking.netloc, entry.netloc.removeprefix("*"))
        for entry in trusted
    )
