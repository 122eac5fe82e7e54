"""Django's own middleware, whose steps run in the event loop.

Django hands each step of each of them to the request's thread, and waiting for a thread takes many times as long as the
step. Only what uses the database or reads a form goes there: sessions and messages that are stored, and CSRF tokens of forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from csp.middleware import CSPMiddleware
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

from sessions_app.callers import READING
from sessions_app.database.threads import in_waiting_thread

Step = Callable[..., Any]


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
