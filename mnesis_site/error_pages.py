"""Errors as answers outside the API's own doors: a page for people, the registry's shape for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from mnesis_core.errors import (
    DatabaseUnavailable,
    InvalidRequest,
    MnesisError,
    NotFound,
    NotReady,
    PermissionDenied,
    StorageFull,
)
from mnesis_site.door_errors import pause_of, with_pause
from sessions_app.database import drop_broken
from sessions_app.outages import log_outage, outage_of

logger = logging.getLogger(__name__)
PROGRAM_PATHS = ("/api/", "/v1/", "/rpc", "/mcp")
"""Where programs ask, and get JSON."""
KINDS = ["text/html", "application/json"]
"""What an error may be elsewhere: JSON only for who would rather have it."""


def json_error(error: MnesisError, *, status: int = 0) -> JsonResponse:
    """The one shape of an error at every HTTP door; ``status`` where HTTP has a closer one than the registry."""
    return with_pause(error, JsonResponse({"error": error.as_dict()}, status=status or error.status))


def answer(
    request: HttpRequest, error: MnesisError, *, status: int = 0, template: str = "", **values: Any
) -> HttpResponse:
    """An error as JSON for programs and as a page for people; a template may need other values too."""
    if prefers_json(request):
        return json_error(error, status=status)
    chosen = template or ("absent.html" if error.status == 404 else "wait.html" if pause_of(error) else "error.html")
    context = {"error": error, "again": request.get_full_path()} | values
    return with_pause(error, render(request, chosen, context, status=status or error.status))


def prefers_json(request: HttpRequest) -> bool:
    """Whether the client is a program."""
    return request.path.startswith(PROGRAM_PATHS) or request.get_preferred_type(KINDS) == KINDS[1]


def answer_outage(request: HttpRequest, error: NotReady) -> HttpResponse:
    """Something is away for a while. The page is made without the request, whose user the database would have to name."""
    if request.path.startswith(PROGRAM_PATHS):
        response: HttpResponse = json_error(error)
    else:
        response = render(None, "error.html", {"error": error}, status=error.status)
    return with_pause(error, response)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 400: a host that is not ours, a broken cookie or form."""
    return answer(request, InvalidRequest(), status=400, template="400.html")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 403."""
    return answer(request, PermissionDenied(), template="403.html")


HOSTILE: dict[type[Exception], MnesisError] = {
    OverflowError: InvalidRequest("A number in the request is too large."),
    RecursionError: InvalidRequest("A value in the request is nested too deeply."),
}
"""What JSON of depth 3,000 raises in a form, and on SQLite a number of a row that no database could hold."""


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form from another site, or from a page that was open for too long."""
    return answer(request, PermissionDenied("This form is too old. Load the page again."))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 404."""
    return answer(request, NotFound(), template="404.html")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's 500; the log has the traceback. An outage comes here where a middleware met it, not a view."""
    if outage := outage_of(sys.exc_info()[1]):
        return answer_outage(request, outage)
    if request.path.startswith(PROGRAM_PATHS):
        return json_error(MnesisError())
    # Without the request: what failed may be what a page asks of it.
    return render(None, "500.html", status=500)


class NoOutage(logging.Filter):
    """Drops Django's own lines about requests during an outage, which the log tells of already."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        return getattr(record, "status_code", 0) not in (DatabaseUnavailable.status, StorageFull.status)


class ErrorAnswers:
    """Middleware: our errors out of any view, and Django's "method not allowed" where programs ask."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Pass the request on and look at the response."""
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            return allowed_methods(request, response)
        return self._later(request, response)

    async def _later(self, request: HttpRequest, response: Awaitable[HttpResponseBase]) -> HttpResponseBase:
        return allowed_methods(request, await response)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer an error of ours, and values over which a form of Django's own fails; any other goes on to Django."""
        if outage := outage_of(exception):
            drop_broken(exception)
            log_outage(logger, f"Requests are answered {outage.code}", exception)
            return answer_outage(request, outage)
        known = exception if isinstance(exception, MnesisError) else HOSTILE.get(type(exception))
        return None if known is None else answer(request, known)


def allowed_methods(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Say in the registry's shape which methods there are."""
    if not isinstance(response, HttpResponseNotAllowed) or not request.path.startswith(PROGRAM_PATHS):
        return response
    allowed = response.headers["Allow"]
    better = json_error(InvalidRequest(f"There is no {request.method} here, but {allowed}."), status=405)
    better.headers["Allow"] = allowed
    return better
