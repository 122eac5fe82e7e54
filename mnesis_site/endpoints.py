"""The endpoints beside the REST API: JSON-RPC at ``/rpc``, the OpenAI-compatible API at ``/v1``, and MCP at ``/mcp``."""

from __future__ import annotations

from types import ModuleType

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from ninja import NinjaAPI

from agents_app.endpoints import jsonrpc
from agents_app.endpoints.openai import openai_error
from agents_app.endpoints.openai import router as openai_router
from mnesis_core.errors import InvalidRequest, NotSignedIn, PermissionDenied, RequestTooLarge
from mnesis_site.api import StrictParser
from mnesis_site.errors import answer_errors, with_pause
from sessions_app.callers import (
    Caller,
    KeyAuth,
    Receive,
    Scope,
    Send,
    caller_of,
    headers_of,
    holder_of,
    origin_is_ours,
)
from sessions_app.database import threads
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db

JSON = "application/json"
MCP_PATHS = ("/mcp", "/mcp/")


@csrf_exempt  # a key needs no token; ``caller_of`` checks the cookie's
@require_POST
async def rpc(request: HttpRequest) -> HttpResponse:
    """One request, or a batch; 204 where there were only notifications."""
    try:
        caller = await db(caller_of, request)
        body = request.body
    except RequestDataTooBig:
        return refusal(RequestTooLarge())
    except Exception as exception:
        return refusal(exception)
    answer = await jsonrpc.respond(body, caller)
    return HttpResponse(status=204) if answer is None else HttpResponse(answer, content_type=JSON)


def refusal(exception: Exception, *, asked: str = "POST /rpc") -> HttpResponse:
    """Answer an error found before any request or message was read, in JSON-RPC's shape and with its HTTP status."""
    error = to_error(exception, asked=asked)
    response = HttpResponse(jsonrpc.write(jsonrpc.failure(None, error)), content_type=JSON, status=error.status)
    if isinstance(error, NotSignedIn):
        response.headers["WWW-Authenticate"] = "Bearer"
    return with_pause(error, response)


# The OpenAI-compatible API: keys only, and errors in OpenAI's shape.
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


async def load_mcp() -> ModuleType:
    """Return the module that needs MCP's package, whose import takes a second: in a thread, since other requests go on."""
    return await threads.load("mnesis_site.mcp_requests")


async def answer_mcp(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of ``/mcp``, outside of Django's application and its middleware.

    Nothing is kept between two requests, so any web process may answer, and there is no GET, which would wait for messages
    of a kept session.
    """
    try:
        caller = await _admit(scope)
    except Exception as exception:
        await send_response(refusal(exception, asked="MCP"), send)
        return
    if scope["method"] != "POST":
        response = refusal(InvalidRequest("Only POST is answered here."))
        response.status_code = 405
        response.headers["Allow"] = "POST"
        await send_response(response, send)
        return
    await (await load_mcp()).serve({**scope, "caller": caller}, receive, send)


async def _admit(scope: Scope) -> Caller:
    headers = headers_of(scope)
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not validate_host(domain, settings.ALLOWED_HOSTS):
        raise InvalidRequest()
    if "origin" in headers and not origin_is_ours(headers["origin"], host=host):
        raise PermissionDenied("Pages of other sites may not ask here.")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise NotSignedIn()
    return await db(holder_of, token)


async def send_response(response: HttpResponse, send: Send) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
    await send({"type": "http.response.body", "body": response.content})
