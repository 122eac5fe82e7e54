"""The root of the REST API: who may ask, and how."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.parser import Parser
from ninja.renderers import JSONRenderer

from agents_app.api import router as agents_router
from agents_app.operators_api import router as operators_router
from agents_app.tools_api import router as tools_router
from audit_app.api import router as audit_router
from audit_app.imports_api import router as imports_router
from compaction_app.api import router as compaction_router
from files_app.api import router as files_router
from files_app.reading_api import router as file_reading_router
from files_app.uploads_api import router as uploads_router
from mnesis_core.errors import InvalidRequest
from mnesis_core.strict_json import read_json
from mnesis_site.auth import CookieAuth, KeyAuth
from mnesis_site.door_errors import answer_errors
from mnesis_site.error_pages import json_error
from sessions_app.api import router as sessions_router
from sessions_app.schemas import JSONEncoder


class StrictParser(Parser):
    """A body is one JSON object."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """:raises InvalidRequest: the body is not JSON, or no object."""
        body = read_json(request.body)
        if not isinstance(body, dict):
            raise InvalidRequest("The body cannot be read: it must be an object.")
        return body


class TimedRenderer(JSONRenderer):
    """Times as the other endpoints write them."""

    encoder_class = JSONEncoder


api = NinjaAPI(
    title="Mnesis",
    version="1",
    description="Sessions with language models, and the whole record of them.",
    auth=[KeyAuth(), CookieAuth()],
    parser=StrictParser(),
    renderer=TimedRenderer(),
)

for router in (
    imports_router,  # before the one that takes any word after "sessions" for an id
    agents_router,
    tools_router,
    operators_router,
    sessions_router,
    compaction_router,
    files_router,
    file_reading_router,
    uploads_router,
    audit_router,
):
    api.add_router("", router)

answer_errors(api, lambda error, status: json_error(error, status=status))
