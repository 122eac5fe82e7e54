"""The root of the REST API: who may ask, and how."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.parser import Parser
from ninja.renderers import JSONRenderer

from agents_app.endpoints.rest import router as agents_router
from agents_app.endpoints.rest import tools_router
from agents_app.maps.api import router as operators_router
from audit_app.api import router as audit_router
from compaction_app.api import router as compaction_router
from files_app.api import router as files_router
from files_app.uploads import router as uploads_router
from mnesis_core.errors import InvalidRequest, NotSignedIn, UnknownParameter
from mnesis_core.text import read_json
from mnesis_site.errors import answer_errors, json_error
from sessions_app.api import router as sessions_router
from sessions_app.callers import CookieAuth, KeyAuth
from sessions_app.schemas import JSONEncoder

# Characters of an unknown parameter's name that an error repeats.
LONGEST_NAME = 100


class StrictParser(Parser):
    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """Return the JSON object that is the body.

        :raises InvalidRequest: it is not JSON, or not an object.
        """
        body = read_json(request.body)
        if not isinstance(body, dict):
            raise InvalidRequest("The body cannot be read: it must be an object.")
        return body


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
        if request.user.is_authenticated or KeyAuth()(request) is not None:
            return view(request, **kwargs)
        if "text/html" in request.headers.get("Accept", ""):
            return redirect_to_login(request.get_full_path())
        raise NotSignedIn()

    return shown


api = NinjaAPI(
    title="Mnesis",
    version="1",
    description="Sessions with language models, and the whole record of them.",
    auth=[KeyAuth(), CookieAuth()],
    parser=StrictParser(),
    renderer=TimedRenderer(),
    docs_decorator=signed_in_only,
)
api.add_decorator(known_parameters_only)

for router in (
    audit_router,  # before the one that takes any word after "sessions" for an id
    agents_router,
    tools_router,
    operators_router,
    sessions_router,
    compaction_router,
    files_router,
    uploads_router,
):
    api.add_router("", router)

answer_errors(api, lambda error, status: json_error(error, status=status))
