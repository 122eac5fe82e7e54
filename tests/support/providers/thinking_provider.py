"""A loopback provider whose models think, sign it, and refuse what Anthropic and Google refuse of signed thinking.

Anthropic's Messages (``…/v1/messages``), beside what ``caching_provider`` refuses:

* https://platform.claude.com/docs/en/build-with-claude/thinking and ``…/thinking-tool-workflows``: a block of thinking that
  changed, that another model made, or without its signature; with ``{"type": "enabled"}`` a turn that does not begin with
  thinking, results whose answer came back without its thinking or with it elsewhere, a temperature, a forced tool, a budget
  below 1,024 or as long as the answer.
* https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks: with ``{"type": "adaptive"}`` a
  block where the system prompt, the tools or anything before it is not what it was when the block was made.
* https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools and ``…/web-search-tool``: a search without its
  result or a result without its search, one of the user's, an ``encrypted_content`` that changed, and a request that ends with
  an answer that was not paused (``pause_turn``).
* Stricter than Anthropic: thinking in a request that does not ask the model to think.

Gemini's (``…:streamGenerateContent``), by https://ai.google.dev/gemini-api/docs/thought-signatures: in the current turn, a
first call of an answer without its signature, a signature that another model made or that stands at another call.
A signature says who made it, so nothing has to be kept to check it.

OpenAI's Responses (``…/responses``): ``reasoning_items``.

Chat Completions (``…/chat/completions``) as servers with OpenAI's protocol speak it whose models show what they think:
``reasoning_content`` in what is streamed (https://docs.vllm.ai/en/latest/features/reasoning_outputs.html), which OpenAI does
not take back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from tests.support.providers.answers import Bill, Events, Streaming
from tests.support.providers.beginnings import OPENAI, steps_of_gemini
from tests.support.providers.caching_provider import CachingProvider, Refused, check, model_in
from tests.support.providers.reasoning_items import answer, check_reasoning
from tests.support.providers.strict import check_chat, check_gemini

Block = tuple[str, Any]
"""``("think", text)``, ``("redact", text)``, ``("text", text)`` or ``("call", (name, arguments))``; what only Claude does where
it may search: ``("search", question)``, ``("cite", (text, address))``, and ``("pause", None)`` at the end."""
OPAQUE = ("thinking", "redacted_thinking")
SKIPPED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="  # Google's own, for calls that another model made.


class ThinkingProvider(CachingProvider):
    """``say`` gives the blocks of the answer of a number, counted from 0; thinking is left out where the model may not."""

    def __init__(self, say: Callable[[int], Sequence[Block]], *, window: int = 200_000) -> None:
        super().__init__(lambda _: "", window=window)
        self.say = say

    def respond(self, path: str, body: dict[str, Any]) -> Events:
        self.requests.append(body)
        blocks, number = self.say(len(self.bills)), len(self.bills)
        if path.endswith("/responses"):
            self.bills.append(self._bill_beginning(check_reasoning(body, self.window), OPENAI))
            return answer(body, blocks, number, self.bills[-1], self.streaming)
        if path.endswith("/chat/completions"):
            self.bills.append(self._bill_beginning(check_chat(body, self.window), OPENAI))
            return _chat(body, blocks, self.bills[-1], number, self.streaming)
        if not path.endswith("/messages"):
            model = model_in(path)
            check_signatures(body, model)
            prompt = check_gemini(body, model, self.window)
            self.bills.append(self._bill_beginning(prompt, steps_of_gemini(model)))
            return _gemini(blocks, model, self.bills[-1], number, self.streaming)
        check(body, self.window)
        check_thinking(body)
        check_searches(body)
        self.bills.append(self._bill_blocks(body))
        is_paused = blocks[-1][0] == "pause" and may_search(body)
        return _anthropic(spoken(body, blocks), self.bills[-1], number, self.streaming, is_paused=is_paused)


# Anthropic


def check_thinking(body: Mapping[str, Any]) -> None:
    """:raises Refused: Anthropic would not take the thinking in this request, or its parameters."""
    kind = _check_parameters(body)
    turn = _beginning_of_turn(body["messages"])
    for place, message in enumerate(body["messages"]):
        blocks = _blocks(message)
        for number, block in enumerate(blocks):
            if block["type"] not in OPAQUE:
                continue
            if message["role"] != "assistant" or kind == "disabled":
                raise Refused(f"messages.{place}.content.{number}: thinking may not stand here")
            if _seal_of(block) != _seal(block, body, place, blocks[:number], is_bound=kind == "adaptive"):
                raise Refused(f"messages.{place}.content.{number}: Invalid `signature` in `{block['type']}` block")
        if kind == "enabled" and place >= turn and message["role"] == "assistant":
            _check_whole(place, blocks, is_first=place == turn)


def may_search(body: Mapping[str, Any]) -> bool:
    return any(tool.get("type", "").startswith("web_search_") for tool in body.get("tools", ()))


def check_searches(body: Mapping[str, Any]) -> None:
    """:raises Refused: Anthropic would not take the searches in this request."""
    for place, message in enumerate(body["messages"]):
        asked = ""
        for number, block in enumerate(_blocks(message)):
            where = f"messages.{place}.content.{number}"
            if block["type"] == "web_search_tool_result":
                if message["role"] != "assistant" or not asked or asked != block["tool_use_id"]:
                    raise Refused(f"{where}: unexpected `tool_use_id` found in `web_search_tool_result` block")
                if any(found["encrypted_content"] != _encrypted(found["url"]) for found in block["content"]):
                    raise Refused(f"{where}: Invalid `encrypted_content` in `search_result` block")
                asked = ""
            elif asked:
                break
            elif block["type"] == "server_tool_use":
                asked = block["id"]
        if asked:
            raise Refused(f"messages.{place}: `web_search` tool use was found without a `web_search_tool_result` block")
    last = body["messages"][-1]
    if last["role"] == "assistant" and all(block["type"] != "web_search_tool_result" for block in _blocks(last)):
        raise Refused("This model does not support assistant message prefill.")


def _encrypted(address: str) -> str:
    return sha256(address.encode()).hexdigest()


def _searched(question: str, id: str) -> list[dict[str, Any]]:
    address = f"https://harbour.example/{sha256(question.encode()).hexdigest()[:8]}"
    found = {"type": "web_search_result", "url": address, "title": question, "page_age": None}
    found |= {"encrypted_content": _encrypted(address)}
    return [
        {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": question}},
        {"type": "web_search_tool_result", "tool_use_id": id, "content": [found]},
    ]


def _check_parameters(body: Mapping[str, Any]) -> str:
    """Return how the request asks the model to think."""
    thinking = body.get("thinking") or {"type": "disabled"}
    kind = thinking["type"]
    if kind not in ("enabled", "adaptive", "disabled") or thinking.keys() - {"type", "budget_tokens", "display"}:
        raise Refused("thinking: Input tag found using 'type' does not match any of the expected tags")
    if kind == "enabled" and not 1_024 <= thinking["budget_tokens"] < body["max_tokens"]:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`, and that at least 1024")
    if kind != "disabled" and (body.get("temperature", 1) != 1 or "top_k" in body or body.get("top_p", 1) < 0.95):
        raise Refused("`temperature` may only be set to 1 when thinking is enabled")
    if kind != "disabled" and body.get("tool_choice", {}).get("type", "auto") not in ("auto", "none"):
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    return str(kind)


def _check_whole(place: int, blocks: Sequence[Mapping[str, Any]], *, is_first: bool) -> None:
    begins = bool(blocks) and blocks[0]["type"] in OPAQUE
    if is_first and not begins:
        raise Refused(f"messages.{place}.content.0.type: Expected `thinking`, but found `{blocks[0]['type']}`")
    thought = any(block["type"] == "tool_use" and block["id"].startswith("toolu_thought") for block in blocks)
    if thought and not begins:
        raise Refused(f"messages.{place}: the thinking of this answer has to come back with its tool's result")


def _beginning_of_turn(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the place of the first answer after the last message of the user that brings no results."""
    asked = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "user" and not any(block["type"] == "tool_result" for block in _blocks(message))
    ]
    return asked[-1] + 1


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    found = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in found]


def _seal_of(block: Mapping[str, Any]) -> str:
    if block.keys() != ({"type", "thinking", "signature"} if block["type"] == "thinking" else {"type", "data"}):
        raise Refused(f"{block['type']}: a field is missing, or one is not permitted")
    return str(block["signature"] if block["type"] == "thinking" else block["data"].rpartition(".")[2])


def _seal(block: Mapping[str, Any], body: Mapping[str, Any], place: int, before: Any, *, is_bound: bool) -> str:
    text = block["thinking"] if block["type"] == "thinking" else block["data"].rpartition(".")[0]
    sealed = [body["model"], block["type"], text, [one for one in before if one["type"] in OPAQUE]]
    if is_bound:
        said = [[message["role"], _blocks(message)] for message in body["messages"][:place]]
        tools = [
            {name: value for name, value in tool.items() if name != "cache_control"} for tool in body.get("tools", ())
        ]
        system = _blocks({"content": body.get("system", "")})
        sealed += [system, tools, said, list(before)]
    return sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


def spoken(body: Mapping[str, Any], blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return the blocks of an answer as Anthropic has them, signed."""
    kind = (body.get("thinking") or {}).get("type")
    is_new = body["messages"][-1]["role"] == "user" and _beginning_of_turn(body["messages"]) == len(body["messages"])
    # Without interleaved thinking, a model thinks only where its turn begins.
    thinks = kind == "adaptive" or (kind == "enabled" and is_new)
    if kind == "enabled" and is_new and blocks[0][0] not in ("think", "redact"):
        blocks = [("think", "It always thinks first."), *blocks]
    if kind == "enabled":  # and not between what it says
        blocks = sorted(blocks, key=lambda block: block[0] not in ("think", "redact"))
    # What was paused and what goes on are one answer.
    paused = _blocks(body["messages"][-1]) if body["messages"][-1]["role"] == "assistant" else []
    place = len(body["messages"]) - bool(paused)
    found: list[dict[str, Any]] = []
    calls = 0
    for what, value in blocks:
        if what in ("think", "redact"):
            if thinks:
                found.append(_sealed(what, value, body, place, [*paused, *found], is_bound=kind == "adaptive"))
        elif what == "text":
            found.append({"type": "text", "text": value})
        elif what in ("search", "cite", "pause"):
            if may_search(body):
                found += _of_search(what, value, f"srvtoolu_{len(body['messages'])}_{len(found)}")
        else:
            thought = "thought" if any(block["type"] in OPAQUE for block in found) else "plain"
            calls += 1
            id = f"toolu_{thought}_{len(body['messages'])}_{calls}_{sha256(json.dumps(body).encode()).hexdigest()[:12]}"
            found.append({"type": "tool_use", "id": id, "name": value[0], "input": value[1]})
    return found


def _of_search(what: str, value: Any, id: str) -> list[dict[str, Any]]:
    if what == "search":
        return _searched(value, id)
    if what == "pause":
        return []
    source = {"type": "web_search_result_location", "url": value[1], "title": "A <b>page</b>", "cited_text": value[0]}
    return [{"type": "text", "text": value[0], "citations": [source | {"encrypted_index": "aW5kZXg="}]}]


def _sealed(
    what: str, text: str, body: Mapping[str, Any], place: int, before: Any, *, is_bound: bool
) -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": text}
    block = thinking if what == "think" else {"type": "redacted_thinking", "data": f"{text}."}
    seal = _seal(block, body, place, before, is_bound=is_bound)
    return {**block, "signature": seal} if what == "think" else {**block, "data": f"{text}.{seal}"}


def _anthropic(
    blocks: Sequence[dict[str, Any]], bill: Bill, number: int, streaming: Streaming, *, is_paused: bool
) -> Events:
    usage = {
        "input_tokens": bill.fresh,
        "cache_read_input_tokens": bill.read,
        "cache_creation_input_tokens": sum(bill.written.values()),
        "output_tokens": 1,
    }
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": []}
    yield "message_start", {"message": head | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    for index, block in enumerate(blocks):
        begun, deltas = _streamed(block, streaming)
        yield "content_block_start", {"index": index, "content_block": begun}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    reason = "pause_turn" if is_paused else reason
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 20}}
    yield "message_stop", {}


def _streamed(block: dict[str, Any], streaming: Streaming) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in streaming.pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*pieces, signed]
        case "text":
            sources = [{"type": "citations_delta", "citation": source} for source in block.get("citations", ())]
            pieces = [{"type": "text_delta", "text": piece} for piece in streaming.pieces(block["text"])]
            return {"type": "text", "text": ""}, [*pieces, *sources]
        case "tool_use" | "server_tool_use":
            pieces = streaming.pieces(json.dumps(block["input"]))
            return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


# Gemini


def check_signatures(body: Mapping[str, Any], model: str) -> None:
    """:raises Refused: Google would not take this."""
    contents = body["contents"]
    turn = max(
        place
        for place, content in enumerate(contents)
        if content["role"] == "user" and any("text" in part for part in content["parts"])
    )
    for place, content in enumerate(contents):
        signed = [part for part in content["parts"] if "thoughtSignature" in part]
        for part in signed:
            if part["thoughtSignature"] not in (signature(part, model), SKIPPED):
                raise Refused(f"contents[{place}]: Corrupted thought signature.")
        calls = [part for part in content["parts"] if _call(part)]
        if place > turn and calls and "thoughtSignature" not in calls[0]:
            raise Refused(f"Function call is missing a thought_signature in functionCall parts, position {place}.")


def _call(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = part.get("functionCall") or part.get("function_call")
    return found if found is None or isinstance(found, Mapping) else {}


def signature(part: Mapping[str, Any], model: str) -> str:
    """Return the signature of a part: that of a text says only who made it, since it may come after the text."""
    call = _call(part)
    sealed = [model, [call["name"], call["args"]] if call else "text"]
    return sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest() * 3  # longer than an id may be


def _gemini(blocks: Sequence[Block], model: str, bill: Bill, number: int, streaming: Streaming) -> Events:
    counts = {"promptTokenCount": bill.total, "candidatesTokenCount": 20, "totalTokenCount": bill.total + 20}
    counts["cachedContentTokenCount"] = bill.read
    is_signed = False
    parts: list[dict[str, Any]] = []
    for what, value in blocks:
        match what:
            case "think":
                parts += [{"text": piece, "thought": True} for piece in streaming.pieces(value)]
            case "text":
                parts += [{"text": piece} for piece in streaming.pieces(value)]
            case "call":
                part: dict[str, Any] = {"functionCall": {"name": value[0], "args": value[1]}}
                parts.append(part if is_signed else part | {"thoughtSignature": signature(part, model)})
                is_signed = True
    if not is_signed:
        parts.append({"text": "", "thoughtSignature": signature({"text": ""}, model)})
    for place, part in enumerate(parts):
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [part]}}
        ends = {"finishReason": "STOP"} if place == len(parts) - 1 else {}
        yield "", {"candidates": [candidate | ends], "usageMetadata": counts, "responseId": f"r{number}"}


# Chat Completions


def _chat(body: Mapping[str, Any], blocks: Sequence[Block], bill: Bill, number: int, streaming: Streaming) -> Events:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    calls = 0
    for what, value in blocks:
        match what:
            case "think" if body.get("reasoning_effort") != "none":
                deltas += [{"reasoning_content": piece} for piece in streaming.pieces(value)]
            case "text":
                deltas += [{"content": piece} for piece in streaming.pieces(value)]
            case "call":
                first, *others = streaming.pieces(json.dumps(value[1]))
                begun = {"index": calls, "id": f"call_{number}_{calls}", "type": "function"}
                deltas.append({"tool_calls": [begun | {"function": {"name": value[0], "arguments": first}}]})
                deltas += [{"tool_calls": [{"index": calls, "function": {"arguments": piece}}]} for piece in others]
                calls += 1
    for delta in deltas:
        yield "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
    counts = {"prompt_tokens": bill.total, "completion_tokens": 20, "total_tokens": bill.total + 20}
    yield "", head | {"choices": [], "usage": counts | {"prompt_tokens_details": {"cached_tokens": bill.read}}}
