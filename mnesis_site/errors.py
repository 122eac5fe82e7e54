"""Exceptions as errors of the registry, and these as responses: in an API's own shape, or as a page for people.

Programs, which ask below ``PROGRAM_PATHS``, get the registry's JSON.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext_noop
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from mnesis_core import errors
from sessions_app.database.outages import invalid_fields, log_outage, outage_of, to_error
from sessions_app.database.threads import drop_broken
from sessions_app.pages.formats import error_text
from sessions_app.record.actor import error_body

R = TypeVar("R", bound=HttpResponse)
Shape = Callable[[errors.MnesisError, int], HttpResponse]
"""Return an endpoint's response for an error, with this HTTP status unless it is 0."""

logger = logging.getLogger(__name__)
PROGRAM_PATHS = ("/api/", "/v1/", "/rpc", "/mcp")
LANGUAGE_HEADER = "Mnesis-Language"  # the page's, whose script asks
KINDS = ["text/html", "application/json"]  # of an error elsewhere: JSON only for clients that prefer it
# What ninja says by status alone.
HTTP_ERRORS: dict[int, type[errors.MnesisError]] = {
    401: errors.NotSignedIn,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    413: errors.RequestTooLarge,
}
# Exceptions that mean one thing, whatever they hold.
NAMELESS: dict[type[Exception], type[errors.MnesisError]] = {
    AuthenticationError: errors.NotSignedIn,
    Http404: errors.NotFound,
    RequestDataTooBig: errors.RequestTooLarge,
}
# What Django raises for a form that it cannot read, or that has too many fields or files.
UNREADABLE = (MultiPartParserError, BadRequest, SuspiciousOperation)
# What JSON of depth 3,000 raises in a form, and on SQLite a number of a row that no database could hold.
HOSTILE: dict[type[Exception], errors.MnesisError] = {
    OverflowError: errors.InvalidRequest(gettext_noop("A number in the request is too large.")),
    RecursionError: errors.InvalidRequest(gettext_noop("A value in the request is nested too deeply.")),
}


def answer_errors(api: NinjaAPI, shape: Shape, *, below: str) -> None:
    """Have an API answer all errors in a shape, also where Django finds no address below a path."""
    _shapes[below] = shape

    def handle(request: HttpRequest, problem: Exception | type[Exception]) -> HttpResponse:
        problem = problem if isinstance(problem, Exception) else problem()
        # A method that is not allowed and the like keep the status that ninja gave them.
        status = problem.status_code if isinstance(problem, HttpError) and problem.status_code != 400 else 0
        error = error_for(request, problem)
        with translation.override(language_of_page(request)):
            response = with_pause(error, shape(error, status))
        if isinstance(error, errors.NotSignedIn):  # which way programs sign in (RFC 9110, 11.6.1)
            response.headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, errors.RangeNotSatisfiable):  # what there is instead (RFC 9110, 15.5.17)
            response.headers["Content-Range"] = f"bytes */{error.details['size']}"
        return response

    kinds: tuple[type[Exception], ...] = (errors.MnesisError, ValidationError, HttpError, *NAMELESS, Exception)
    for kind in kinds:
        api.add_exception_handler(kind, handle)


def language_of_page(request: HttpRequest) -> str:
    """Return the language of the page whose script sends a request to an endpoint for programs; English for programs."""
    code = request.headers.get(LANGUAGE_HEADER, "")
    return code if code in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def pause_of(error: errors.MnesisError) -> int:
    """Return after how many seconds asking again makes sense, or 0 if that is unknown."""
    # What a provider says of it is text.
    said = error.details.get("retry_after")
    return said if isinstance(said, int) else error.retry_after


def with_pause(error: errors.MnesisError, response: R) -> R:
    """Return the response with the header ``Retry-After`` (RFC 9110, 10.2.3), if there is anything to say in it."""
    if seconds := pause_of(error):
        response.headers["Retry-After"] = str(seconds)
    return response


def error_for(request: HttpRequest, problem: Exception) -> errors.MnesisError:
    for kind, error in NAMELESS.items():
        if isinstance(problem, kind):
            return error()
    if isinstance(problem, UNREADABLE):
        return errors.InvalidRequest(
            gettext_noop(
                "The form cannot be read. Send multipart/form-data with a boundary, and fewer fields and files."
            )
        )
    if isinstance(problem, ValidationError):
        return invalid_fields((field_of(item["loc"]), str(item["msg"])) for item in problem.errors)
    if isinstance(problem, HttpError):
        # A body that is not JSON, a cookie without its CSRF token and the like.
        if problem.status_code != 400:
            return HTTP_ERRORS.get(problem.status_code, errors.MnesisError)(problem.message)
        cause = problem.__cause__
        return (
            cause
            if isinstance(cause, errors.MnesisError)
            else errors.InvalidRequest(gettext_noop("The body cannot be read."))
        )
    return to_error(problem, asked=f"{request.method} {request.path}")


def field_of(location: tuple[Any, ...]) -> str:
    """Return a field's path as the caller wrote it: ``('body', 'payload', 'parts', 0, 'text')`` is ``parts.0.text``."""
    # The first step is the place in the request; a body has the name of our parameter next.
    steps = location[2:] if location[0] == "body" else location[1:]
    return ".".join(str(step) for step in steps) or str(location[-1])


def json_error(error: errors.MnesisError, *, status: int = 0) -> JsonResponse:
    """Return an error in the registry's JSON; ``status`` replaces its own where HTTP has a closer one."""
    body = error_body(error) | {"message": error_text(error)}
    return with_pause(error, JsonResponse({"error": body}, status=status or error.status))


_shapes: dict[str, Shape] = {"/": lambda error, status: json_error(error, status=status)}  # by what paths begin with


def program_error(path: str, error: errors.MnesisError, *, status: int = 0) -> HttpResponse:
    """Return an error in the shape of the API that the path belongs to, even where that has no such address."""
    return _shapes[max((below for below in _shapes if path.startswith(below)), key=len)](error, status)


def answer(
    request: HttpRequest, error: errors.MnesisError, *, status: int = 0, template: str = "", **values: Any
) -> HttpResponse:
    """Return an error as JSON for programs and as a page for people; a template may need more ``values``."""
    if prefers_json(request):
        return program_error(request.path, error, status=status)
    page = "absent" if error.status == 404 else "wait" if pause_of(error) else "error"
    context = {"error": error, "again": request.get_full_path()} | values
    response = render(request, template or f"errors/{page}.html", context, status=status or error.status)
    return with_pause(error, response)


def prefers_json(request: HttpRequest) -> bool:
    return request.path.startswith(PROGRAM_PATHS) or request.get_preferred_type(KINDS) == KINDS[1]


def answer_outage(request: HttpRequest, error: errors.NotReady) -> HttpResponse:
    """Return the response while something is away. The page is made without the request, whose user is in the database."""
    if request.path.startswith(PROGRAM_PATHS):
        response = program_error(request.path, error)
    else:
        response = render(None, "errors/error.html", {"error": error}, status=error.status)
    return with_pause(error, response)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer Django's 400: a host that is not ours, a broken cookie or form."""
    return answer(request, errors.InvalidRequest(), status=400, template="errors/400.html")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, errors.PermissionDenied(), template="errors/403.html")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Refuse a form from another site, or from a page that was open for too long."""
    return answer(
        request, errors.PermissionDenied(gettext_noop("This form has expired. Reload the page and try again."))
    )


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer(request, errors.NotFound(), template="errors/404.html")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer Django's 500; the log has the traceback. An outage comes here if a middleware met it, not a view."""
    if outage := outage_of(sys.exc_info()[1]):
        return answer_outage(request, outage)
    if request.path.startswith(PROGRAM_PATHS):
        return program_error(request.path, errors.MnesisError())
    # Without the request: what failed may be what the page reads from it.
    return render(None, "errors/500.html", status=500)


class NoOutage(logging.Filter):
    """Drops Django's own lines about requests during an outage, which is logged already."""

    def filter(self, record: logging.LogRecord) -> bool:
        return getattr(record, "status_code", 0) not in (errors.DatabaseUnavailable.status, errors.StorageFull.status)


class ErrorAnswers(MiddlewareMixin):
    """Middleware that answers our errors from any view, and Django's "method not allowed" for programs."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        return allowed_methods(request, await cast("Awaitable[HttpResponseBase]", self.get_response(request)))

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return allowed_methods(request, response)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer an error of ours, and values on which a form of Django's own fails; Django handles any other."""
        if outage := outage_of(exception):
            drop_broken(exception)
            log_outage(logger, f"Requests are answered {outage.code}", exception)
            return answer_outage(request, outage)
        known = exception if isinstance(exception, errors.MnesisError) else HOSTILE.get(type(exception))
        return None if known is None else answer(request, known)


def allowed_methods(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return a program's "method not allowed" in the registry's JSON, and any other response as it is."""
    if not isinstance(response, HttpResponseNotAllowed) or not request.path.startswith(PROGRAM_PATHS):
        return response
    allowed = response.headers["Allow"]
    error = errors.InvalidRequest(f"{request.method} is not supported here. Use {allowed}.")
    better = program_error(request.path, error, status=405)
    better.headers["Allow"] = allowed
    return better


async def send_response(response: HttpResponse, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
    await send({"type": "http.response.body", "body": response.content})
