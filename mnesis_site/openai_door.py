"""The root of the OpenAI-compatible API: keys only, and errors in OpenAI's shape."""

from __future__ import annotations

from ninja import NinjaAPI

from agents_app.openai_api import openai_error
from agents_app.openai_api import router as openai_router
from mnesis_site.api import StrictParser
from mnesis_site.auth import KeyAuth
from mnesis_site.door_errors import answer_errors

openai_door = NinjaAPI(
    title="Mnesis, OpenAI-compatible",
    version="1",
    auth=[KeyAuth()],
    parser=StrictParser(),
    urls_namespace="openai",
    # It is OpenAI's API, and documented there; what differs is in docs/howto/use-an-openai-client.md.
    openapi_url=None,
    docs_url=None,
)
openai_door.add_router("", openai_router)
answer_errors(openai_door, openai_error)
