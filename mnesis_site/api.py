"""The root of the REST API: who may ask, and what every error looks like."""

from __future__ import annotations

import json
import logging
from typing import Any, NoReturn

from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.parser import Parser
from ninja.security import django_auth

from agents_app.api import router as agents_router
from audit_app.api import router as audit_router
from compaction_app.api import router as compaction_router
from mnesis_core.errors import (
    InvalidRequest,
    MnesisError,
    NotFound,
    NotReady,
    NotSignedIn,
    PermissionDenied,
    RequestTooLarge,
)
from mnesis_site.auth import KeyAuth
from mnesis_site.error_pages import json_error
from sessions_app.api import router as sessions_router

logger = logging.getLogger(__name__)


class StrictParser(Parser):
    """JSON as the standard has it (RFC 8259): Python would also read NaN and Infinity, which no database keeps."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """:raises ValueError: the body is not JSON, or no object."""
        body = json.loads(request.body, parse_constant=refuse_constant)
        if not isinstance(body, dict):
            raise ValueError("it must be an object")
        return body


def refuse_constant(name: str) -> NoReturn:
    """:raises ValueError: always."""
    raise ValueError(f"{name} is not JSON")


api = NinjaAPI(
    title="Mnesis",
    version="1",
    description="Sessions with language models, and the whole record of them.",
    auth=[KeyAuth(), django_auth],
    parser=StrictParser(),
)

for router in (agents_router, sessions_router, compaction_router, audit_router):
    api.add_router("", router)

HTTP_ERRORS: dict[int, type[MnesisError]] = {
    401: NotSignedIn,
    403: PermissionDenied,
    404: NotFound,
    413: RequestTooLarge,
}
"""What ninja says by status alone."""


def field_of(location: tuple[Any, ...]) -> str:
    """A field's path as the caller wrote it: ``('body', 'payload', 'parts', 0, 'text')`` is ``parts.0.text``."""
    # The first says where it stood; a body has the name of our parameter next.
    steps = location[2:] if location[0] == "body" else location[1:]
    return ".".join(str(step) for step in steps) or str(location[-1])


@api.exception_handler(MnesisError)
def mnesis_error(request: HttpRequest, error: MnesisError) -> HttpResponse:
    """An error of ours carries everything itself."""
    return json_error(error)


@api.exception_handler(ValidationError)
def validation_error(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Name each field that is wrong, and why; never repeat the value, which may be large or secret."""
    wrong = [{"field": field_of(item["loc"]), "problem": str(item["msg"])} for item in error.errors]
    sentence = "; ".join(f"{item['field']}: {item['problem']}" for item in wrong[:3])
    return json_error(InvalidRequest(f"The request is not valid. {sentence}", errors=wrong))


@api.exception_handler(AuthenticationError)
def not_signed_in(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    """Nobody was recognised; say which way programs sign in (RFC 9110, 11.6.1)."""
    response = json_error(NotSignedIn())
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(HttpError)
def http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """What ninja itself refuses: a body that is no JSON, a cookie without its CSRF token."""
    if error.status_code == 400:
        return json_error(InvalidRequest(body_problem(error.__cause__)))
    kind = HTTP_ERRORS.get(error.status_code, MnesisError)
    return json_error(kind(error.message), status=error.status_code)


def body_problem(cause: BaseException | None) -> str:
    """Why a body could not be read, in words."""
    if isinstance(cause, RecursionError):
        return "The body is nested too deeply."
    if isinstance(cause, UnicodeDecodeError):
        return "The body is not UTF-8."
    if isinstance(cause, json.JSONDecodeError):
        return f"The body is not JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}."
    return f"The body cannot be read: {cause}." if isinstance(cause, ValueError) else "The body cannot be read."


@api.exception_handler(OperationalError)
@api.exception_handler(InterfaceError)
def database_away(request: HttpRequest, error: Exception) -> HttpResponse:
    """The database is away, full or was cut off: what was asked may be stored or not."""
    logger.error("%s %s: the database failed", request.method, request.path, exc_info=error)
    return json_error(NotReady("The database did not answer. Ask again, with the same idempotency key."))


@api.exception_handler(Http404)
def not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    """There is nothing at this path."""
    return json_error(NotFound())


@api.exception_handler(RequestDataTooBig)
def too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    """The body is over ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""
    return json_error(RequestTooLarge())


@api.exception_handler(RecursionError)
def too_deep(request: HttpRequest, error: RecursionError) -> HttpResponse:
    """JSON that could be read, but is too deep to work with."""
    return json_error(InvalidRequest("The body is nested too deeply."))


@api.exception_handler(UnicodeError)
def not_text(request: HttpRequest, error: UnicodeError) -> HttpResponse:
    """Text that cannot be written as UTF-8."""
    return json_error(InvalidRequest("The request has text that is not valid Unicode."))


@api.exception_handler(Exception)
def unexpected(request: HttpRequest, error: Exception) -> HttpResponse:
    """A mistake of ours: the log has it all, the answer nothing of it."""
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return json_error(MnesisError())
