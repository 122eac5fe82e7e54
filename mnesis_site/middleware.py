"""What every request passes: its name, who acts by it, and Django's own middleware, whose steps run in the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

from csp.middleware import CSPMiddleware
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils.deprecation import MiddlewareMixin

from mnesis_core.actor import Actor, Via, given_request_id
from mnesis_core.network.rate_limits import is_among
from mnesis_core.records import new_request_id
from sessions_app.callers import READING, Application, Receive, Scope, Send, actor_of, headers_of
from sessions_app.database.threads import in_waiting_thread
from sessions_app.record.actor import serving

Step = Callable[..., Any]
HEADER = "X-Request-Id"
ENDPOINTS = {"/api/": Via.API, "/v1/": Via.V1, "/rpc": Via.RPC, "/mcp": Via.MCP, "/admin/": Via.ADMIN}


# The endpoint that a request comes through, who asks, and its id, which is in the answer and in the log. A proxy in front may
# have named the request already; what other clients say is not taken.


def via_of(path: str) -> Via:
    return next((via for start, via in ENDPOINTS.items() if path.startswith(start)), Via.PAGE)


def id_of(peer: str, headers: Mapping[str, str]) -> str:
    """Return the id that a trusted proxy gave a request, or a new one; the names of the headers are in lower case."""
    given = ""
    if is_among(peer, settings.TRUSTED_PROXIES):
        given = given_request_id(headers.get("x-request-id", ""), headers.get("traceparent", ""))
    return given or new_request_id()


class NamedRequests:
    """Gives each request its id, whether Django answers it or not."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer, *_ = scope.get("client") or ("",)
        id = id_of(str(peer), headers_of(scope))

        async def send_named(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                named = (HEADER.lower().encode(), id.encode())
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        with serving(via=via_of(scope["path"]), request=id):
            await self.application({**scope, "request_id": id}, receive, send_named)


class Serving(MiddlewareMixin):
    """Middleware by which each change of the record knows who acts, through which endpoint, and by which request."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        with self._serving(request):
            return self._named(request, await cast("Any", self.get_response(request)))

    def __call__(self, request: HttpRequest) -> Any:
        if self.async_mode:
            return self.__acall__(request)
        with self._serving(request):
            return self._named(request, cast(HttpResponseBase, self.get_response(request)))

    def _serving(self, request: HttpRequest) -> AbstractContextManager[None]:
        given = getattr(request, "scope", {}).get("request_id")
        headers = {name.lower(): value for name, value in request.headers.items()}
        request.id = given or id_of(request.META.get("REMOTE_ADDR", ""), headers)  # type: ignore[attr-defined]

        def who() -> Actor:
            return actor_of(getattr(request, "user", None), getattr(request, "key_prefix", ""))

        return serving(via=via_of(request.path), request=request.id, who=who)  # type: ignore[attr-defined]

    def _named(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if "request_id" not in getattr(request, "scope", {}):  # otherwise ``NamedRequests`` names it
            response.headers[HEADER] = request.id  # type: ignore[attr-defined]
        return response


# Django's own middleware. It hands each step of each to the request's thread, and waiting for a thread takes many times as
# long as the step. Only what uses the database or reads a form goes there: sessions and messages that are stored, and CSRF
# tokens of forms.


class InLoop(MiddlewareMixin):
    async def __acall__(self, request: HttpRequest) -> Any:
        # A class of Django's has one of the two, or both.
        begin: Step | None = getattr(self, "process_request", None)
        end: Step | None = getattr(self, "process_response", None)
        response = begin(request) if begin else None
        response = response or await cast("Any", self.get_response)(request)
        if end is None:
            return response
        return await in_waiting_thread(end)(request, response) if self.stores(request) else end(request, response)

    def stores(self, request: HttpRequest) -> bool:
        """Return whether ``process_response`` uses the database."""
        return False


class Security(InLoop, SecurityMiddleware):
    pass


class ContentSecurityPolicy(InLoop, CSPMiddleware):
    pass


class Sessions(InLoop, SessionMiddleware):
    def stores(self, request: HttpRequest) -> bool:
        return request.session.modified


class Common(InLoop, CommonMiddleware):
    pass


class Csrf(InLoop, CsrfViewMiddleware):
    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        if self.async_mode:
            self.process_view = self._process_view  # type: ignore[assignment]

    async def _process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        check = super().process_view
        if request.method in READING or getattr(view, "csrf_exempt", False):
            return check(request, view, args, kwargs)
        return await in_waiting_thread(check)(request, view, args, kwargs)


class Authentication(InLoop, AuthenticationMiddleware):
    pass


class Messages(InLoop, MessageMiddleware):
    def stores(self, request: HttpRequest) -> bool:
        kept: Any = request._messages  # type: ignore[attr-defined]
        return bool(kept.used or kept.added_new)


class FrameOptions(InLoop, XFrameOptionsMiddleware):
    pass
