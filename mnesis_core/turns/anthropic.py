"""Anthropic's Messages: what a request says, and how an answer reads, whole, as events of a stream, or as an error.

What would give another kind of answer than the client asked for is refused: tools that Anthropic defines for clients, blocks
that are not known here. What only flavours an answer is left unused, and the answer's headers name it. Thinking that a
client sends back is left out: the record holds the history, and what a provider signed goes back to it from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from mnesis_core.errors import ContextWindowExceeded, InvalidRequest, MnesisError
from mnesis_core.files.pictures import PictureRule, SentPicture, read_data_url, read_picture
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.llm.parameters import Parameters, read_parameters
from mnesis_core.llm.tokens import MESSAGE_FRAMING, TOOL_FRAMING, estimate_text
from mnesis_core.messages import ProviderToolPart, TextPart
from mnesis_core.records import UsageRecord
from mnesis_core.text import nests_within, printable, printable_json
from mnesis_core.turns.requests import (
    SESSION_FIELD,
    Answered,
    CompletionRequest,
    Head,
    RequestMessage,
    Thought,
    joined,
    unused_names,
    web_address,
    written_json,
)

ORIGIN = "anthropic"
DEEPEST_INPUT = 100  # Objects and lists inside each other in the arguments of a call; deeper ones are sent as a text.
# Our names of the parameters that are read, and Anthropic's.
PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
    "effort": "output_config.effort",
    "response_format": "output_config.format",
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "provider_tools": "tools.server",
}
# Beginnings of the types of tools that Anthropic runs, and our names.
_RAN = {"web_search_": "web_search", "code_execution_": "code_execution"}
USED = {
    *("model", "messages", "system", "stream", "tools", "tool_choice", "metadata"),
    *("max_tokens", "temperature", "top_p", "stop_sequences", "thinking", "output_config", "output_format"),
    "cache_control",  # Breakpoints are placed here, where a prompt stays the same.
}
# The tools that providers run, by their own names, and what Anthropic calls them.
_RUN_AS = {
    "web_search": "web_search",
    **dict.fromkeys(("code_execution", "code_interpreter"), "code_execution"),
    **{name: name for name in ("bash_code_execution", "text_editor_code_execution")},
}
_RESULTS = {f"{name}_tool_result" for name in _RUN_AS.values()}
_CODE_ERRORS = ("invalid_tool_input", "too_many_requests", "execution_time_exceeded")  # and "unavailable"
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_THINKS = ("enabled", "adaptive", "between_tools")
_BUDGETS = ((10_000, "high"), (5_000, "medium"), (0, "low"))  # The least tokens of a budget, and the effort it is.
_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def read_request(body: Mapping[str, Any], *, session: str) -> CompletionRequest:
    """Return a request as a value.

    :param session: what the header names: a session's id, ``new``, or nothing
    :raises InvalidRequest: something in it cannot be taken; names it
    """
    metadata, asked = _object(body, "metadata"), read_asked(body)
    where, user = session or metadata.get(SESSION_FIELD, ""), metadata.get("user_id") or ""
    for name, value in ((SESSION_FIELD, where), ("user_id", user)):
        if not isinstance(value, str):
            raise InvalidRequest(f"metadata.{name} must be a text", field=f"metadata.{name}")
    if body.get("mcp_servers"):
        raise InvalidRequest("attach MCP servers here, where they are checked", field="mcp_servers")
    said = read_messages(body["messages"])
    system = read_system(body.get("system"))
    return CompletionRequest(
        origin=ORIGIN,
        model=body["model"],
        messages=(*((RequestMessage(role="system", text=system),) if system else ()), *said),
        tools=() if asked.tool_choice == "none" else read_tools(body.get("tools")),
        session=where,
        user=user,
        parameters=asked,
        unused=unused_names(body, USED),
    )


def read_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[RequestMessage, ...]:
    """Return the messages of a request, each tool result as one of its own.

    What is said beside results in one message stands at the end of the last of them, since they go to a turn that waits.

    :raises InvalidRequest: a block is of another type or form; names it
    """
    return tuple(one for place, message in enumerate(messages) for one in _read_message(message, place))


def read_system(system: Any) -> str:
    """Return the system prompt, whose blocks are divided by empty lines.

    :raises InvalidRequest: a block is no text; names it
    """
    return joined(_text(block, place) for block, place in _blocks(system, "system"))


def read_tools(tools: Sequence[Any] | None) -> tuple[ToolSpec, ...]:
    """Return the tools that the caller runs.

    :raises InvalidRequest: one is of another kind that Anthropic defines, or is no tool; names it
    """
    read = []
    for index, tool in enumerate(tools or ()):
        field = f"tools.{index}"
        if _ran_by_anthropic(tool):
            continue
        if not isinstance(tool, Mapping):
            raise InvalidRequest(f"{field} must be an object", field=field)
        if tool.get("type") not in (None, "custom"):
            raise InvalidRequest(
                f"{field} is a tool that Anthropic defines; only tools with an input_schema are taken",
                field=f"{field}.type",
            )
        description = tool.get("description")
        if not isinstance(description, str | None):
            raise InvalidRequest(f"{field}.description must be a text", field=f"{field}.description")
        schema = dict(_object(tool, "input_schema", field)) or {"type": "object", "properties": {}}
        read.append(ToolSpec(name=_string(tool, "name", field), description=description or "", parameters=schema))
    return tuple(read)


def _ran_by_anthropic(tool: Any) -> str:
    """Return our name of a tool that Anthropic runs; empty for others."""
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    return next((name for begins, name in _RAN.items() if isinstance(kind, str) and kind.startswith(begins)), "")


def read_asked(body: Mapping[str, Any]) -> Parameters:
    """Return what a request asks of the model.

    :raises InvalidRequest: a parameter is of a wrong type or out of its bounds; names it
    """
    output, thinking = _object(body, "output_config"), _object(body, "thinking")
    choice = _object(body, "tool_choice")
    effort = output.get("effort")
    given = {
        **{ours: body.get(ours) for ours in ("temperature", "top_p")},
        "max_output_tokens": body.get("max_tokens"),
        "stop": body.get("stop_sequences") or None,
        "effort": effort if effort is not None else _effort(thinking),
        "provider_tools": [name for tool in body.get("tools") or () if (name := _ran_by_anthropic(tool))] or None,
        "response_format": _format(output.get("format") or body.get("output_format")),
        "tool_choice": _choice(choice),
        "parallel_tool_calls": False if choice.get("disable_parallel_tool_use") is True else None,
    }
    return read_parameters(given, path="", called=PARAMETERS)


def shows_thinking(body: Mapping[str, Any]) -> bool:
    """Return whether the answer has the model's thinking: where it was asked for, and not to be left out."""
    thinking = _object(body, "thinking")
    return thinking.get("type") in _THINKS and thinking.get("display") != "omitted"


def count_tokens(
    request: CompletionRequest, rule: PictureRule, *, sizes: Mapping[str, int] | None = None, ratio: float = 1.0
) -> int:
    """Return about how many tokens a request has, a picture counted as the largest that the model is shown.

    :param sizes: tokens of what else is shown, by name
    :param ratio: by which the model's own counts differ from our estimates
    """
    largest = rule.tokens(rule.longest, rule.pixels // rule.longest or rule.shortest or rule.longest)
    total = sum(
        TOOL_FRAMING + estimate_text(json.dumps([tool.name, tool.description, tool.parameters]))
        for tool in request.tools
    )
    for said in request.messages:
        total += MESSAGE_FRAMING + estimate_text(said.text)
        total += sum((sizes or {}).get(sent.name, largest) for sent in said.pictures)
        total += sum(
            TOOL_FRAMING + estimate_text(call.name) + estimate_text(call.arguments) for call in said.tool_calls
        )
    return max(1, round(total * ratio))


def _read_message(message: Mapping[str, Any], place: int) -> Iterator[RequestMessage]:
    role, field = message["role"], f"messages.{place}.content"
    texts: list[str] = []
    pictures: list[SentPicture] = []
    calls: list[ToolCall] = []
    results: list[RequestMessage] = []
    for block, where in _blocks(message["content"], field):
        match role, block.get("type"):
            case "user", "image" | "document" if _has_bytes(block):
                pictures.append(_picture(block, where))
            case "user", "tool_result":
                results.append(_result(block, where, place))
            case "assistant", "tool_use":
                calls.append(_call(block, where))
            case "assistant", "thinking" | "redacted_thinking" | "server_tool_use":
                pass
            case "assistant", str(kind) if kind in _RESULTS:
                pass
            case "user", "document" | "search_result":
                texts.append(_document(block, where))
            case _:
                texts.append(_text(block, where))
    if results:
        beside = joined((results[-1].text, *texts))
        yield from results[:-1]
        yield RequestMessage(
            role="tool",
            text=beside,
            tool_call_id=results[-1].tool_call_id,
            is_error=results[-1].is_error,
            pictures=(*results[-1].pictures, *pictures),
            place=place,
        )
        return
    divider = "\n\n" if role == "assistant" else "\n"  # An answer comes back as the blocks that it was given in.
    text = divider.join(texts)
    yield RequestMessage(role=role, text=text, pictures=tuple(pictures), tool_calls=tuple(calls), place=place)


def _blocks(content: Any, field: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list | tuple | None):
        raise InvalidRequest(f"{field} must be a text or a list of blocks", field=field)
    for index, block in enumerate(content or ()):
        if not isinstance(block, Mapping):
            raise InvalidRequest(f"{field}.{index} must be an object", field=f"{field}.{index}")
        yield block, f"{field}.{index}"


def _text(block: Mapping[str, Any], field: str) -> str:
    if block.get("type") != "text":
        raise InvalidRequest(f"{field} is a block of a type that is not taken here", field=f"{field}.type")
    return _string(block, "text", field)


def _string(block: Mapping[str, Any], name: str, field: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"{field}.{name} must be a text", field=f"{field}.{name}")
    return value


def _object(holder: Mapping[str, Any], name: str, field: str = "") -> Mapping[str, Any]:
    value = holder.get(name)
    if value is not None and not isinstance(value, Mapping):
        where = f"{field}.{name}" if field else name
        raise InvalidRequest(f"{where} must be an object", field=where)
    return value or {}


def _has_bytes(block: Mapping[str, Any]) -> bool:
    """Return whether a block is a picture, or a document that is no text."""
    source = block.get("source")
    kind = source.get("type") if isinstance(source, Mapping) else None
    return block["type"] == "image" or kind in ("base64", "url")


def _picture(block: Mapping[str, Any], field: str) -> SentPicture:
    source = _object(block, "source", field)
    where, is_document = f"{field}.source", block["type"] == "document"
    if source.get("type") == "url":
        return read_picture(_string(source, "url", where), place=f"{where}.url", is_document=is_document)
    if source.get("type") != "base64":
        raise InvalidRequest(f"{where} must be of the type base64 or url", field=f"{where}.type")
    # What it says of its type is not believed.
    return read_data_url(f"data:;base64,{_string(source, 'data', where)}", place=where, is_document=is_document)


def _document(block: Mapping[str, Any], field: str) -> str:
    """Return the text of a document or a search result, below its title."""
    title = block.get("title") if isinstance(block.get("title"), str) else ""
    if block["type"] == "search_result":
        texts = [_text(inner, where) for inner, where in _blocks(block.get("content"), f"{field}.content")]
        return joined((title or "", _string(block, "source", field), *texts))
    source, where = _object(block, "source", field), f"{field}.source"
    if source.get("type") == "text":
        return joined((title or "", _string(source, "data", where)))
    if source.get("type") == "content":
        inside = _blocks(source.get("content"), f"{where}.content")
        return joined((title or "", *(_text(inner, place) for inner, place in inside)))
    raise InvalidRequest(f"{where} must be of the type base64, url, text or content", field=f"{where}.type")


def _result(block: Mapping[str, Any], field: str, place: int) -> RequestMessage:
    texts: list[str] = []
    pictures: list[SentPicture] = []
    for inner, where in _blocks(block.get("content"), f"{field}.content"):
        match inner.get("type"):
            case "image" | "document" if _has_bytes(inner):
                pictures.append(_picture(inner, where))
            case "document" | "search_result":
                texts.append(_document(inner, where))
            case _:
                texts.append(_text(inner, where))
    return RequestMessage(
        role="tool",
        text="\n".join(texts),
        pictures=tuple(pictures),
        tool_call_id=_string(block, "tool_use_id", field),
        is_error=block.get("is_error") is True,
        place=place,
    )


def _call(block: Mapping[str, Any], field: str) -> ToolCall:
    arguments = _object(block, "input", field)
    if not nests_within(arguments, DEEPEST_INPUT):
        raise InvalidRequest(f"{field}.input is nested too deeply", field=f"{field}.input")
    return ToolCall(
        id=_string(block, "id", field),
        name=_string(block, "name", field),
        arguments=json.dumps(arguments, ensure_ascii=False),
    )


def _effort(thinking: Mapping[str, Any]) -> str | None:
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if kind not in (None, "disabled", *_THINKS) or not isinstance(kind, str | None):
        raise InvalidRequest(f"thinking.type must be disabled, {', '.join(_THINKS)}", field="thinking.type")
    if kind == "disabled":
        return "none"
    if kind != "enabled":
        return None
    if type(budget) is not int or budget < 1:
        raise InvalidRequest("thinking.budget_tokens must be a whole number above 0", field="thinking.budget_tokens")
    return next(effort for least, effort in _BUDGETS if budget >= least)


def _format(asked: Any) -> Any:
    if not isinstance(asked, Mapping) or asked.get("type") != "json_schema":
        return asked
    return {"type": "json_schema", "json_schema": {"schema": asked.get("schema"), "strict": True}}


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if kind is None or (isinstance(kind, str) and kind in _CHOICES):
        return _CHOICES.get(kind or "")
    raise InvalidRequest("tool_choice.type must be auto, any, tool or none", field="tool_choice.type")


# Answers


def read_answer(answered: Answered, *, thinks: bool) -> dict[str, Any]:
    """Return the whole answer as a message; ``thinks`` says whether it has the model's thinking."""
    content: list[dict[str, Any]] = []
    shown = [part for part in answered.parts if part.text and (thinks or isinstance(part, TextPart))]
    for is_text, parts in groupby(shown, key=lambda part: isinstance(part, TextPart)):
        text = printable(joined(part.text for part in parts))
        content.append(
            {"type": "text", "text": text, "citations": None}
            if is_text
            else {"type": "thinking", "thinking": text, "signature": answered.head.turn_id}
        )
    if texts := [block for block in content if block["type"] == "text"]:
        texts[-1]["citations"] = _citations(answered) or None
    if answered.refusal:
        content.append({"type": "text", "text": printable(answered.refusal), "citations": None})
    content += _ran(answered)
    content += [{**_called(call), "input": _input(call.arguments)} for call in answered.tool_calls]
    return {
        **_message(answered.head),
        "content": content,
        **_stop(answered),
        "usage": _usage(answered.usage, answered.cache_write_1h),
        "mnesis": answered.ours(),
    }


class MessageEvents:
    """The events of one answer as they come. Text and thinking are blocks by turns; each ends where the other begins."""

    def __init__(self, head: Head, *, thinks: bool) -> None:
        self._head, self._thinks = head, thinks
        self._index = -1
        self._kind = ""  # of the block that is open
        self._begun: set[str] = set()

    def begin(self) -> Iterator[dict[str, Any]]:
        # The tokens are known at the end. The package takes the other counts from there, and these from here only.
        usage = _usage(UsageRecord()) | {"cache_creation": None}
        message = {**_message(self._head), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": message}
        yield PING

    def add(self, piece: str | Thought) -> Iterator[dict[str, Any]]:
        is_text = isinstance(piece, str)
        if not is_text and not self._thinks:
            return
        text = piece if isinstance(piece, str) else piece.text
        kind = "text" if is_text else "thinking"
        if kind != self._kind:
            # What divides this text from the one before it, now a block of its own.
            text = text.removeprefix("\n\n") if kind in self._begun else text
            yield from self._close()
            yield self._open({"type": "text", "text": "", "citations": None} if is_text else _THINKING)
            self._kind = kind
            self._begun.add(kind)
        yield self._delta({"type": f"{kind}_delta", kind: printable(text)})

    def end(self, answered: Answered) -> Iterator[dict[str, Any]]:
        for source in _citations(answered) if self._kind == "text" else ():
            yield self._delta({"type": "citations_delta", "citation": source})
        if answered.refusal:
            yield from self._close()
            yield from self.add(answered.refusal)
        yield from self._close()
        for block in _ran(answered):
            yield from self._whole(block)
        for call in answered.tool_calls:
            yield from self._whole({**_called(call), "input": _input(call.arguments)})
        yield {
            "type": "message_delta",
            "delta": _stop(answered),
            "usage": _usage(answered.usage, answered.cache_write_1h),
            "mnesis": answered.ours(),
        }
        yield {"type": "message_stop"}

    def _whole(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        given: dict[str, Any] = {"input": {}} if "input" in block else {}
        yield self._open(block | given)
        if given:
            yield self._delta({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
        yield {"type": "content_block_stop", "index": self._index}

    def _open(self, block: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._kind == "thinking":
            yield self._delta({"type": "signature_delta", "signature": self._head.turn_id})
        if self._kind:
            yield {"type": "content_block_stop", "index": self._index}
        self._kind = ""


PING = {"type": "ping"}
_THINKING = {"type": "thinking", "thinking": "", "signature": ""}


def status_of(error: MnesisError) -> int:
    """Return the status with which Anthropic's clients know an error: theirs is 400 where a request is not valid."""
    return 400 if error.status == 422 else error.status


def read_error(error: MnesisError, *, request_id: str) -> dict[str, Any]:
    status = status_of(error)
    return {
        "type": "error",
        "error": {
            "code": error.code,
            "type": _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error"),
            "message": printable(error.message),
            "details": {**printable_json(error.details), "error_code": error.code},
        },
        "request_id": request_id or None,
    }


def _message(head: Head) -> dict[str, Any]:
    return {"id": f"msg_{head.turn_id}", "type": "message", "role": "assistant", "model": head.model}


def _stop(answered: Answered) -> dict[str, Any]:
    said = "refusal" if answered.refusal else _REASONS.get(answered.finish_reason, "end_turn")
    if answered.error_code == ContextWindowExceeded.code:
        said = "model_context_window_exceeded"
    if said == "end_turn" and answered.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": printable(answered.stop_sequence)}
    return {"stop_reason": said, "stop_sequence": None}


def _citations(answered: Answered) -> list[dict[str, Any]]:
    """Return the sources on the web. The index with which Anthropic finds one again is not passed on."""
    return [
        {
            "type": "web_search_result_location",
            "cited_text": printable(source.text),
            "encrypted_index": "",
            "title": printable(source.title) or None,
            "url": printable(address),
        }
        for source in answered.citations
        if (address := web_address(source.url))
    ]


def _ran(answered: Answered) -> Iterator[dict[str, Any]]:
    """Yield what the provider ran, each call with its result, as blocks of Anthropic's whoever ran it.

    They stand behind what was said, since a stream tells of them when the answer has ended.
    """
    for place, ran in enumerate(part for part in answered.ran if part.tool_name in _RUN_AS):
        id = f"srvtoolu_{answered.head.turn_id.partition('_')[2]}_{place}"
        name, asked = _RUN_AS[ran.tool_name], _input(ran.input)
        if name == "web_search":
            query = asked.get("query")
            asked = {"query": query if isinstance(query, str) else ""}
        yield {"type": "server_tool_use", "id": id, "name": name, "input": asked}
        content = _pages(ran) if name == "web_search" else _outcome(ran, name)
        yield {"type": f"{name}_tool_result", "tool_use_id": id, "content": content}


def _pages(ran: ProviderToolPart) -> Any:
    if ran.error:
        return {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    return [_found(page) for page in written_json(ran.output or "", list) if isinstance(page, Mapping)]


def _outcome(ran: ProviderToolPart, name: str) -> dict[str, Any]:
    """Return what came of code. The files that it wrote are the provider's, and are not passed on."""
    is_claude_s = ran.provider == "anthropic"
    if ran.error and is_claude_s:
        code = ran.error if ran.error in _CODE_ERRORS else "unavailable"
        return {"type": f"{name}_tool_result_error", "error_code": code}
    said = written_json(ran.output or "", dict) if is_claude_s else {}
    kind = said.get("type")
    if name == "text_editor_code_execution" and isinstance(kind, str) and kind.startswith(name):
        edited: dict[str, Any] = printable_json(said)
        return edited
    texts = said if is_claude_s else {"stdout": ran.output, "stderr": ran.error}
    out, err = (printable(text) if isinstance(text := texts.get(end), str) else "" for end in ("stdout", "stderr"))
    code = said.get("return_code", 1 if ran.error else 0)
    ended = {"stdout": out, "stderr": err, "return_code": code if type(code) is int else 0}
    return {"type": f"{name}_result", **ended, "content": []}


def _found(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page that was found. What Anthropic finds it again by is not passed on."""
    title, url = (value if isinstance(value := page.get(name), str) else "" for name in ("title", "url"))
    said = {"title": printable(title), "url": printable(web_address(url))}
    return {"type": "web_search_result", **said, "encrypted_content": "", "page_age": None}


def _called(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": printable(call.name)}


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call as an object, whatever the model wrote."""
    try:
        value = json.loads(arguments or "{}")
        if isinstance(value, dict) and nests_within(value, DEEPEST_INPUT):
            found: dict[str, Any] = printable_json(value)
            return found
    except (ValueError, RecursionError):
        pass
    return {"arguments": printable(arguments)}


def _usage(usage: UsageRecord, hour: int = 0) -> dict[str, Any]:
    read, written = usage.tokens_cache_read or 0, usage.tokens_cache_write or 0
    return {
        "input_tokens": max(0, (usage.tokens_input or 0) - read - written),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour},
        "output_tokens": usage.tokens_output or 0,
    }
