"""Whatever goes wrong at an HTTP door as one error of the registry; each door gives it its own shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from mnesis_core.errors import (
    InvalidRequest,
    MnesisError,
    NotFound,
    NotSignedIn,
    PermissionDenied,
    RangeNotSatisfiable,
    RequestTooLarge,
)
from sessions_app.faults import as_error, invalid_fields

R = TypeVar("R", bound=HttpResponse)
Shape = Callable[[MnesisError, int], HttpResponse]
"""The answer of a door for an error, with this HTTP status where it is not 0."""

HTTP_ERRORS: dict[int, type[MnesisError]] = {
    401: NotSignedIn,
    403: PermissionDenied,
    404: NotFound,
    413: RequestTooLarge,
}
"""What ninja says by status alone."""

NAMELESS: dict[type[Exception], type[MnesisError]] = {
    AuthenticationError: NotSignedIn,
    Http404: NotFound,
    RequestDataTooBig: RequestTooLarge,
}
"""Exceptions that mean one thing, whatever they hold."""


UNREADABLE = (MultiPartParserError, BadRequest, SuspiciousOperation)
"""What Django says of a form that it cannot read, or that has too many fields or files."""


def answer_errors(api: NinjaAPI, shape: Shape) -> None:
    """Have an API answer every exception in one shape."""

    def handle(request: HttpRequest, problem: Exception | type[Exception]) -> HttpResponse:
        return _answer(request, problem if isinstance(problem, Exception) else problem(), shape)

    kinds: tuple[type[Exception], ...] = (MnesisError, ValidationError, HttpError, *NAMELESS, Exception)
    for kind in kinds:
        api.add_exception_handler(kind, handle)


def _answer(request: HttpRequest, problem: Exception, shape: Shape) -> HttpResponse:
    # A method that is not allowed and the like keep the status that ninja gave them.
    status = problem.status_code if isinstance(problem, HttpError) and problem.status_code != 400 else 0
    error = error_for(request, problem)
    response = with_pause(error, shape(error, status))
    if isinstance(error, NotSignedIn):  # which way programs sign in (RFC 9110, 11.6.1)
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, RangeNotSatisfiable):  # what there is instead (RFC 9110, 15.5.17)
        response.headers["Content-Range"] = f"bytes */{error.details['size']}"
    return response


def pause_of(error: MnesisError) -> int:
    """Seconds after which asking again makes sense, where we can say it; else 0."""
    # A provider's own words for it are text.
    said = error.details.get("retry_after")
    return said if isinstance(said, int) else error.retry_after


def pause_header(error: MnesisError) -> dict[str, str]:
    """The same in HTTP's own header (RFC 9110, 10.2.3)."""
    seconds = pause_of(error)
    return {"Retry-After": str(seconds)} if seconds else {}


def with_pause(error: MnesisError, response: R) -> R:
    """Add that header to a response."""
    for name, value in pause_header(error).items():
        response.headers[name] = value
    return response


def error_for(request: HttpRequest, problem: Exception) -> MnesisError:
    """What an exception is in the words of the registry."""
    for kind, error in NAMELESS.items():
        if isinstance(problem, kind):
            return error()
    if isinstance(problem, UNREADABLE):
        return InvalidRequest(
            "The form cannot be read. Send multipart/form-data with a boundary, and fewer fields and files."
        )
    if isinstance(problem, ValidationError):
        return invalid_fields((field_of(item["loc"]), str(item["msg"])) for item in problem.errors)
    if isinstance(problem, HttpError):
        return _refused(problem)
    return as_error(problem, asked=f"{request.method} {request.path}")


def field_of(location: tuple[Any, ...]) -> str:
    """A field's path as the caller wrote it: ``('body', 'payload', 'parts', 0, 'text')`` is ``parts.0.text``."""
    # The first says where it stood; a body has the name of our parameter next.
    steps = location[2:] if location[0] == "body" else location[1:]
    return ".".join(str(step) for step in steps) or str(location[-1])


def _refused(problem: HttpError) -> MnesisError:
    """What ninja itself refuses: a body that is no JSON, a cookie without its CSRF token."""
    if problem.status_code == 400:
        cause = problem.__cause__
        return cause if isinstance(cause, MnesisError) else InvalidRequest("The body cannot be read.")
    return HTTP_ERRORS.get(problem.status_code, MnesisError)(problem.message)
