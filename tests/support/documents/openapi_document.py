"""The OpenAPI document of the REST API, made once for all tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from mnesis_site.endpoints import api


@cache
def openapi_document() -> dict[str, Any]:
    """Return the document; making it takes a second."""
    return api.get_openapi_schema()
