"""The first middleware to see a password, and the last to see its response, so a flood of passwords costs next to nothing.

A request that is refused late has cost milliseconds of the only processor that a process has. So what is sure to be
refused never gets that far. While refusals are many, each is held for a moment, so a client that waits for its
response sends no more than one request in two seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import cache

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from csp.utils import build_policy
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string

from mnesis_core.errors import MnesisError, PasswordsBusy, TooManyAttempts
from mnesis_core.network.rate_limits import Bucket, network_of
from mnesis_site.auth.passwords import BUSY_SECONDS, STRANGERS, address_of, too_many
from mnesis_site.auth.sign_in import is_known_device, remember_device
from mnesis_site.errors import json_error, prefers_json, with_pause
from sessions_app.callers import RateLimiter

# Where anyone may send a password.
PASSWORD_PATHS = ("/sign-in/", "/admin/login/")
# A random time, so clients that come at once do not come back together.
HOLD_SECONDS = (1.0, 3.0)
# Responses held at a time in one process; each takes a connection and a few kilobytes.
MOST_HELD = 256
# Passwords from one network; after that, one a second.
SENT_AT_ONCE = 10
# Sent without a pause. They are counted together, since a flood may use a new address each time.
REFUSALS = Bucket(name=("refusals",), attempts=5, seconds=1.0)


class SignInGate:
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        self._sent, self._refused = RateLimiter(), RateLimiter()
        self._held = self._inside = 0
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        has_password = request.method == "POST" and request.path in PASSWORD_PATHS
        is_stranger = has_password and not is_known_device(request)
        refusal = self._refusal(request) if is_stranger else None
        response = self.get_response(request) if refusal is None else refused(request, refusal)
        if isinstance(response, HttpResponseBase):
            return self._later(request, response) if self._is_async else remember_device(request, response)
        return self._later(request, self._counted(response) if is_stranger else response)

    async def _counted(self, answer: Awaitable[HttpResponseBase]) -> HttpResponseBase:
        self._inside += 1
        try:
            return await answer
        finally:
            self._inside -= 1

    async def _later(
        self, request: HttpRequest, response: Awaitable[HttpResponseBase] | HttpResponseBase
    ) -> HttpResponseBase:
        done = response if isinstance(response, HttpResponseBase) else await response
        if _is_refusal(request, done) and self._refused.seconds_to_wait(REFUSALS):
            await self._hold()
        return remember_device(request, done)

    def _refusal(self, request: HttpRequest) -> MnesisError | None:
        # Requests inside count too: none of a wave that comes at once has taken a place yet.
        if STRANGERS.is_full or self._inside >= STRANGERS.places:
            return PasswordsBusy(retry_after=BUSY_SECONDS)
        network = network_of(address_of(request))
        seconds = self._sent.seconds_to_wait(Bucket(name=(network,), attempts=SENT_AT_ONCE, seconds=1.0))
        return too_many(seconds) if seconds else None

    async def _hold(self) -> None:
        if self._held >= MOST_HELD:
            return
        self._held += 1
        try:
            await asyncio.sleep(random.uniform(*HOLD_SECONDS))  # noqa: S311 - nothing secret
        finally:
            self._held -= 1


def _is_refusal(request: HttpRequest, response: HttpResponseBase) -> bool:
    if request.path in PASSWORD_PATHS:
        return response.status_code in (TooManyAttempts.status, PasswordsBusy.status)
    return response.status_code == 401 and "Authorization" in request.headers


def refused(request: HttpRequest, error: MnesisError) -> HttpResponse:
    """Return the response, made without the database; no middleware after the gate adds to it."""
    if prefers_json(request):
        return json_error(error)
    response = HttpResponse(_page(error.code, error.message, request.path), status=error.status)
    response.headers["Content-Security-Policy"] = build_policy()
    response.headers["X-Content-Type-Options"] = "nosniff"
    return with_pause(error, response)


@cache  # only the seconds in the text differ, and those are few
def _page(code: str, message: str, path: str) -> str:
    return render_to_string("wait.html", {"error": {"code": code, "message": message}, "again": path})
