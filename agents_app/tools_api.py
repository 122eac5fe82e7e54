"""Tools at the REST door."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from agents_app.toolbox import ToolList, show_tools
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["tools"])


@router.get("/tools", response={200: ToolList, 401: ErrorOut}, summary="List tools")
def list_tools(request: HttpRequest) -> Any:
    """Every tool that a session may be offered (``config.turn.tools``), those of attached MCP servers included."""
    return {"items": show_tools(user_id=owner_id(request))}
