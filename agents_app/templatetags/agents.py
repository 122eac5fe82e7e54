"""Filters for the pages of runs and of MCP servers, whose texts are other people's."""

from __future__ import annotations

import json
import shlex
from typing import Any

from django import template
from django.utils.translation import gettext, pgettext_lazy

from agents_app.queries import AttemptHead
from mnesis_core.maps.values import ErrorKind, ItemRecord
from mnesis_core.records import UsageRecord
from mnesis_core.turns.mcp_servers import AttachedServer, AttachedTool, hints_in_words
from sessions_app.pages.formats import format_characters, format_duration, format_money, format_tokens
from sessions_app.pages.markdown import show_invisible

HEAD = 20_000  # characters of an input or an answer that come with its page
DEEPEST = 40  # levels of JSON that is laid out in lines: indents of deeper ones are longer than what they say

ERRORS = {
    ErrorKind.TIMEOUT: pgettext_lazy("kind of error", "timeout"),
    ErrorKind.VALIDATION: pgettext_lazy("kind of error", "validation"),
    ErrorKind.SCHEMA_ERROR: pgettext_lazy("kind of error", "schema error"),
    ErrorKind.LLM_ERROR: pgettext_lazy("kind of error", "LLM error"),
    ErrorKind.TOOL_ERROR: pgettext_lazy("kind of error", "tool error"),
    ErrorKind.BUDGET: pgettext_lazy("kind of error", "budget"),
}

register = template.Library()
register.filter("reached_at", lambda address: address.url or shlex.join(address.argv))
register.filter("error_words", lambda kind: ERRORS[kind] if kind else "")
register.filter("count_read_only", lambda server: sum(map(server.is_read_only, server.listing.tools)))
register.filter("is_read_only", lambda server, tool: server.is_read_only(tool))


@register.filter
def hints(tool: AttachedTool) -> str:
    words = hints_in_words(tool.hints)
    return ", ".join(map(gettext, words.split(", "))) if words else ""


def head_of(text: str, *, is_cut: bool, size: str) -> dict[str, Any]:
    """Return the beginning of a text to be shown, as JSON in lines and indents where it is whole, and the whole's size."""
    return {"text": show_invisible(text if is_cut else lay_out(text)), "is_cut": is_cut, "size": size}


def lay_out(text: str) -> str:
    """Return JSON in lines and indents; anything else, and what is nested deeply, as it is."""
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if not 0 < deepest <= DEEPEST:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


@register.filter
def said(content: Any) -> dict[str, Any]:
    """Return what a message of a rebuilt payload says."""
    text = content if isinstance(content, str) else json.dumps(content or "", ensure_ascii=False)
    return head_of(text[:HEAD], is_cut=len(text) > HEAD, size=format_characters(len(text)))


@register.filter
def answer(entry: AttemptHead) -> dict[str, Any] | None:
    """Return what the model said in a try; ``None`` where it said nothing."""
    length = entry.output_length
    return head_of(entry.output, is_cut=length > HEAD, size=format_characters(length)) if length else None


@register.filter
def in_and_out(record: ItemRecord | UsageRecord) -> str:
    if record.tokens_input is record.tokens_output is None:
        return ""
    return format_tokens(record.tokens_input, record.tokens_output)


@register.filter
def facts(entry: AttemptHead) -> list[str]:
    known = (in_and_out(entry.usage), format_money(entry.usage.cost_micros), format_duration(entry.duration_ms / 1000))
    return [fact for fact in known if fact]


@register.filter
def item_took(item: ItemRecord) -> str:
    return format_duration(item.duration_ms / 1000) if item.attempts and item.state.is_end else ""


@register.filter
def is_marked(server: AttachedServer, tool: AttachedTool) -> bool:
    """Return whether an administrator said that a tool changes nothing, as it is listed now."""
    return server.read_only_tools.get(tool.remote_name) == tool.digest


@register.filter
def was_marked(server: AttachedServer, tool: AttachedTool) -> bool:
    """Return whether an administrator said so, and the tool is listed otherwise since."""
    return tool.remote_name in server.read_only_tools and not is_marked(server, tool)
