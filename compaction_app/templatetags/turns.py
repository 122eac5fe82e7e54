"""Filters that put a turn on the pages of the timeline."""

from __future__ import annotations

from django import template

from sessions_app.pages.markdown import show_invisible
from sessions_app.record.timeline_queries import TurnLine

BEGUN_BY = {
    "chat": "person",
    "task": "parent session",
    "inbox": "peers",
    "import": "import",
    "fork": "copy of a fork",
    "record": "caller's record",
    "openai": "OpenAI client",
}
"""Who began a turn, by its origin."""

register = template.Library()


@register.filter
def begun_by(line: TurnLine) -> str:
    return BEGUN_BY.get(line.origin, show_invisible(line.origin))
