"""The endpoints for programs: REST at ``/api``, JSON-RPC at ``/rpc``, OpenAI's and Anthropic's APIs at ``/v1``, and MCP at ``/mcp``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from ninja import NinjaAPI
from ninja.parser import Parser
from ninja.renderers import JSONRenderer

from agents_app.endpoints import jsonrpc
from agents_app.endpoints.anthropic import anthropic_error
from agents_app.endpoints.anthropic import router as anthropic_router
from agents_app.endpoints.assistants import prompts_router
from agents_app.endpoints.assistants import router as assistants_router
from agents_app.endpoints.openai import embeddings_router, openai_error
from agents_app.endpoints.openai import router as openai_router
from agents_app.endpoints.projects import router as projects_router
from agents_app.endpoints.responses import conversations_router
from agents_app.endpoints.responses import router as responses_router
from agents_app.endpoints.rest import router as agents_router
from agents_app.endpoints.rest import tools_router
from agents_app.maps.api import router as operators_router
from audit_app.api import router as audit_router
from compaction_app.api import router as compaction_router
from files_app.api import router as files_router
from files_app.uploads import router as uploads_router
from mnesis_core.errors import InvalidRequest, NotSignedIn, PermissionDenied, RequestTooLarge, UnknownParameter
from mnesis_core.text import read_json
from mnesis_site.errors import answer_errors, json_error, send_response, with_pause
from sessions_app import callers
from sessions_app.api import router as sessions_router
from sessions_app.database import threads
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.schemas import JSONEncoder

JSON = "application/json"
PASSED_ON = ("/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions", "/v1/responses")
MCP_PATHS = ("/mcp", "/mcp/")
LONGEST_NAME = 100  # characters of an unknown parameter's name that an error repeats


class StrictParser(Parser):
    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """:raises InvalidRequest: it is not JSON, or not an object."""
        body = read_json(request.body)
        if not isinstance(body, dict):
            raise InvalidRequest("The body cannot be read: it must be an object.")
        return body


class UnreadParser(StrictParser):
    """Leaves bodies that may go on to a provider as they are to their views (``answers.Unread``)."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """:raises InvalidRequest: as ``StrictParser.parse_body``."""
        return {} if request.method == "POST" and request.path in PASSED_ON else super().parse_body(request)


class TimedRenderer(JSONRenderer):
    encoder_class = JSONEncoder  # times as the other endpoints write them


def known_parameters_only(view: Callable[..., Any]) -> Callable[..., Any]:
    """Make a call refuse query parameters that it does not take, since a misspelt filter would be no filter at all."""
    models = view._ninja_operation.models  # type: ignore[attr-defined]
    taken = [model.__ninja_flatten_map__ for model in models if model.__ninja_param_source__ == "query"]
    known = sorted({name for names in taken for name in names})

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if unknown := sorted(name[:LONGEST_NAME] for name in set(request.GET) - {*known}):
            takes = f"It takes {', '.join(known)}." if known else "It takes none."
            sentence = f"This call has no query parameter {unknown[0]!r}. {takes}"
            raise UnknownParameter(sentence, unknown=unknown, known=known)
        return view(request, *args, **kwargs)

    return checked


def signed_in_only(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Show the API's documentation only to callers who may use the API; redirect a browser to the sign-in."""

    @wraps(view)
    def shown(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated or callers.KeyAuth()(request) is not None:
            return view(request, **kwargs)
        if "text/html" in request.headers.get("Accept", ""):
            return redirect_to_login(request.get_full_path())
        raise NotSignedIn()

    return shown


api = NinjaAPI(
    title="Mnesis",
    version="1",
    description="Sessions with language models, and the whole record of them.",
    auth=[callers.KeyAuth(), callers.CookieAuth()],
    parser=StrictParser(),
    renderer=TimedRenderer(),
    docs_decorator=signed_in_only,
)
api.add_decorator(known_parameters_only)

for router in (
    audit_router,  # before the one that takes any word after "sessions" for an id
    agents_router,
    projects_router,
    prompts_router,
    assistants_router,
    tools_router,
    operators_router,
    sessions_router,
    compaction_router,
    files_router,
    uploads_router,
):
    api.add_router("", router)

answer_errors(api, lambda error, status: json_error(error, status=status), below="/api/")


@csrf_exempt  # a key needs no token; ``caller_of`` checks the cookie's
@require_POST
async def rpc(request: HttpRequest) -> HttpResponse:
    """One request, or a batch; 204 where there were only notifications."""
    try:
        caller = await db(callers.caller_of, request)
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
    auth=[callers.KeyAuth(), callers.HeaderKeyAuth()],
    parser=UnreadParser(),
    urls_namespace="openai",
    # It is OpenAI's API, and documented there; what differs is in docs/howto/programs/use-an-openai-client.md.
    openapi_url=None,
    docs_url=None,
)
openai_api.add_router("", openai_router)
openai_api.add_router("", responses_router)
openai_api.add_router("", conversations_router)
openai_api.add_router("", embeddings_router)
answer_errors(openai_api, openai_error, below="/v1/")

# Anthropic's Messages, beside it: keys only, and errors in Anthropic's shape.
anthropic_api = NinjaAPI(
    title="Mnesis, Anthropic-compatible",
    version="1",
    auth=[callers.KeyAuth(), callers.HeaderKeyAuth()],
    parser=UnreadParser(),
    urls_namespace="anthropic",
    # It is Anthropic's API, and documented there; what differs is in docs/howto/programs/use-an-anthropic-client.md.
    openapi_url=None,
    docs_url=None,
)
anthropic_api.add_router("", anthropic_router)
answer_errors(anthropic_api, anthropic_error, below="/v1/messages")


async def load_mcp() -> ModuleType:
    """Return the module that needs MCP's package, whose import takes a second: in a thread, since other requests go on."""
    return await threads.load("agents_app.endpoints.mcp_requests")


async def answer_mcp(scope: callers.Scope, receive: callers.Receive, send: callers.Send) -> None:
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
        response = refusal(InvalidRequest("Only POST is supported here."))
        response.status_code = 405
        response.headers["Allow"] = "POST"
        await send_response(response, send)
        return
    await (await load_mcp()).serve({**scope, "caller": caller}, receive, send)


async def _admit(scope: callers.Scope) -> callers.Caller:
    headers = callers.headers_of(scope)
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not validate_host(domain, settings.ALLOWED_HOSTS):
        raise InvalidRequest()
    if "origin" in headers and not callers.origin_is_ours(headers["origin"], host=host):
        raise PermissionDenied("Requests from pages of other sites are not allowed.")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise NotSignedIn()
    return await db(callers.holder_of, token)
