"""``POST /rpc``: JSON-RPC over HTTP. Who asks is found as at the REST door."""

from __future__ import annotations

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from agents_app import jsonrpc
from mnesis_core.errors import NotSignedIn, RequestTooLarge
from mnesis_site.auth import caller_of
from mnesis_site.door_errors import with_pause
from sessions_app.database import db
from sessions_app.faults import as_error

JSON = "application/json"


@csrf_exempt  # a key needs no token; ``caller_of`` checks the cookie's
@require_POST
async def rpc(request: HttpRequest) -> HttpResponse:
    """One request, or a batch; 204 where there were only notifications."""
    try:
        caller = await db(caller_of, request)
        body = read_body(request)
    except Exception as exception:
        return refusal(exception)
    answer = await jsonrpc.respond(body, caller)
    return HttpResponse(status=204) if answer is None else HttpResponse(answer, content_type=JSON)


def read_body(request: HttpRequest) -> bytes:
    """:raises RequestTooLarge: the body is over ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""
    try:
        return request.body
    except RequestDataTooBig:
        raise RequestTooLarge() from None


def refusal(exception: Exception) -> HttpResponse:
    """What is wrong before any request was read has HTTP's status too."""
    error = as_error(exception, asked="POST /rpc")
    response = HttpResponse(jsonrpc.write(jsonrpc.failure(None, error)), content_type=JSON, status=error.status)
    if isinstance(error, NotSignedIn):
        response.headers["WWW-Authenticate"] = "Bearer"
    return with_pause(error, response)
