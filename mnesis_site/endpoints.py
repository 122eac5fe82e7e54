"""``POST /rpc``: JSON-RPC over HTTP. Who asks is found as at the REST endpoint."""

from __future__ import annotations

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from ninja import NinjaAPI

from agents_app.endpoints import jsonrpc
from agents_app.endpoints.openai import openai_error
from agents_app.endpoints.openai import router as openai_router
from mnesis_core.errors import NotSignedIn, RequestTooLarge
from mnesis_site.api import StrictParser
from mnesis_site.auth.callers import KeyAuth, caller_of
from mnesis_site.errors import answer_errors, with_pause
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db

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
    """Answer an error found before any request was read with its HTTP status."""
    error = to_error(exception, asked="POST /rpc")
    response = HttpResponse(jsonrpc.write(jsonrpc.failure(None, error)), content_type=JSON, status=error.status)
    if isinstance(error, NotSignedIn):
        response.headers["WWW-Authenticate"] = "Bearer"
    return with_pause(error, response)


# The root of the OpenAI-compatible API: keys only, and errors in OpenAI's shape.

openai_api = NinjaAPI(
    title="Mnesis, OpenAI-compatible",
    version="1",
    auth=[KeyAuth()],
    parser=StrictParser(),
    urls_namespace="openai",
    # It is OpenAI's API, and documented there; what differs is in docs/howto/use-an-openai-client.md.
    openapi_url=None,
    docs_url=None,
)
openai_api.add_router("", openai_router)
answer_errors(openai_api, openai_error)
