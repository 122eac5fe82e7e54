"""OpenAI's Responses as ``thinking_provider`` speaks them: reasoning that only the model which made it can read.

Beside what ``strict.check_responses`` refuses, by https://platform.openai.com/docs/guides/reasoning and
https://platform.openai.com/docs/guides/migrate-to-responses ("encrypted reasoning items"): an ``encrypted_content`` that
changed or has none, and reasoning that another model made. Stricter than OpenAI: a request that OpenAI would keep, and a
call that comes back with its own id but without the reasoning that led to it, which OpenAI refuses where it kept both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from tests.support.providers.answers import Bill, Events, Streaming, responses
from tests.support.providers.prompts import Prompt, Refused
from tests.support.providers.strict import check_responses

Item = dict[str, Any]
THOUGHT = "fc_thought"
"""The beginning of the id of a call that reasoning led to."""


def check_reasoning(body: Mapping[str, Any], window: int) -> Prompt:
    """:raises Refused: OpenAI would not take this."""
    prompt = check_responses(body, window)
    if body.get("store") is not False:
        raise Refused("Stricter than OpenAI: nothing may be kept there")
    follows_reasoning = False
    for place, item in enumerate(body["input"]):
        if item.get("type") == "reasoning":
            if item.get("encrypted_content") != _encrypted(body["model"], item["id"], item["summary"]):
                raise Refused(f"The encrypted content of input[{place}] could not be verified.")
        elif item.get("id", "").startswith(THOUGHT) and not follows_reasoning:
            raise Refused(f"Item '{item['id']}' was provided without its required 'reasoning' item.")
        follows_reasoning = item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant"
    return prompt


def _encrypted(model: str, id: str, summary: Sequence[Any]) -> str:
    return sha256(json.dumps([model, id, summary], sort_keys=True).encode()).hexdigest() * 3


def answer(
    body: Mapping[str, Any], blocks: Sequence[tuple[str, Any]], number: int, bill: Bill, streaming: Streaming
) -> Events:
    """Yield the events of an answer that says these blocks of ``thinking_provider``."""
    may_search = any(tool["type"].startswith("web_search") for tool in body.get("tools") or ())
    thinks = (body.get("reasoning") or {}).get("effort") != "none"
    items: list[Item] = []
    between: dict[int, list[dict[str, Any]]] = {}
    for what, value in blocks:
        if (what in ("think", "redact") and not thinks) or (what in ("search", "cite") and not may_search):
            continue
        if what == "pause":
            break
        place = f"{number}_{len(items)}"
        told, item = _item(what, value, place, body["model"])
        between[len(items)] = [event | {"delta": piece} for event in told for piece in streaming.pieces(event["delta"])]
        if what == "call" and any(one["type"] == "reasoning" for one in items):
            item["id"] = f"{THOUGHT}_{place}"
        items.append(item)
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return responses(*items, between=between, bill=bill, number=number)


def _item(what: str, value: Any, place: str, model: str) -> tuple[list[dict[str, Any]], Item]:
    done = {"status": "completed"}
    match what:
        case "think" | "redact":
            id = f"rs_{place}"
            summary = [{"type": "summary_text", "text": value}] if what == "think" else []
            told = {"type": "response.reasoning_summary_text.delta", "item_id": id, "summary_index": 0, "delta": value}
            thought = {"id": id, "type": "reasoning", "summary": summary}
            return [told] * len(summary), thought | {"encrypted_content": _encrypted(model, id, summary)}
        case "search":
            action = {"type": "search", "query": value}
            return [], {"id": f"ws_{place}", "type": "web_search_call", "action": action, **done}
        case "call":
            given = json.dumps(value[1])
            told = {"type": "response.function_call_arguments.delta", "item_id": f"fc_{place}", "delta": given}
            about = {"id": f"fc_{place}", "type": "function_call", "call_id": f"call_{place}", "name": value[0]}
            return [told], about | {"arguments": given, **done}
    text, address = value if what == "cite" else (value, "")
    source = {
        "type": "url_citation",
        "url": address,
        "title": "A <b>page</b>",
        "start_index": 0,
        "end_index": len(text),
    }
    said = {"type": "output_text", "text": text, "annotations": [source] if address else []}
    told = {"type": "response.output_text.delta", "item_id": f"msg_{place}", "content_index": 0, "delta": text}
    return [told], {"id": f"msg_{place}", "type": "message", "role": "assistant", "content": [said], **done}
