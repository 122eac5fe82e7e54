"""OpenAI's Responses API: how an answer reads, as the events of a stream or as the response that they come to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mnesis_core.errors import AnswerRefused, InvalidRequest, MnesisError, ModelRateLimited
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.llm.parameters import Parameters, function_of
from mnesis_core.messages import (
    ImagePart,
    Part,
    ProviderPart,
    ReasoningPart,
    RefusalPart,
    StoredMessage,
    TextPart,
    ToolPart,
)
from mnesis_core.records import TurnState, UsageRecord
from mnesis_core.text import printable, printable_json
from mnesis_core.turns.completions import url_citations
from mnesis_core.turns.options import TurnOptions
from mnesis_core.turns.requests import Answered, Thought, pieces_of, written_json
from mnesis_core.turns.response_requests import FREEFORM, conversation_id, response_id

Event = dict[str, Any]
Item = dict[str, Any]
_STATES = {
    TurnState.RUNNING: "in_progress",
    TurnState.SUSPENDED: "in_progress",
    TurnState.CANCELLED: "cancelled",
    TurnState.FAILED: "failed",
    TurnState.INTERRUPTED: "failed",
    TurnState.INCOMPLETE: "incomplete",
}
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_LAST_EVENTS = {"completed": "response.completed", "failed": "response.failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    turn_id: str
    session_id: str
    model: str
    created: int  # Seconds since 1970.
    answered_part: str = ""  # The first call whose result the request brought.
    request: Mapping[str, Any] = field(default_factory=dict)  # What the response repeats of its request.
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    freeform: frozenset[str] = frozenset()  # Names of custom tools.
    shows_encrypted: bool = False  # Whether reasoning that its provider encrypted is asked for.

    @property
    def id(self) -> str:
        return response_id(self.turn_id, self.answered_part)


def repeated(options: TurnOptions, **given: Any) -> dict[str, Any]:
    """Return what a response repeats of its request; ``given`` is what the turn's options do not know."""
    asked, form = options.parameters, options.parameters.response_format or {"type": "text"}
    text = {"format": {"type": form["type"], **form.get("json_schema", {})}}
    said: dict[str, Any] = printable_json(
        {
            "instructions": options.system_prompt,
            "max_output_tokens": asked.max_output_tokens,
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "reasoning": {"effort": asked.effort, "summary": None},
            "temperature": asked.temperature,
            "text": text | ({"verbosity": asked.verbosity} if asked.verbosity else {}),
            "tool_choice": _choice(asked, freeform_of(options.tools)),
            "tools": [_tool(tool) for tool in options.tools],
            "top_p": asked.top_p,
            "truncation": "auto",
            "background": False,
            "metadata": {},
            "previous_response_id": None,
            **given,
        }
    )
    return said


def freeform_of(tools: Sequence[ToolSpec]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if tool.parameters == FREEFORM)


def _choice(asked: Parameters, freeform: frozenset[str]) -> Any:
    name = function_of(asked.tool_choice)
    return {"type": "custom" if name in freeform else "function", "name": name} if name else asked.tool_choice or "auto"


def _tool(tool: ToolSpec) -> Item:
    if tool.parameters == FREEFORM:
        return {"type": "custom", "name": tool.name, "description": tool.description, "format": {"type": "text"}}
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": False}
    return {"type": "function", **function}


class ResponseWriter:
    """Makes the events of one response, in order; ``response`` is what they have come to."""

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.response: dict[str, Any] = {
            **{"id": head.id, "object": "response", "created_at": head.created, "status": "in_progress"},
            **{"error": None, "incomplete_details": None, "model": head.model, "output": [], "usage": None},
            **head.request,
            "conversation": {"id": conversation_id(head.session_id)},
            "mnesis": {"session_id": head.session_id, "turn_id": head.turn_id, "state": TurnState.RUNNING},
        }
        self._number = 0
        self._open: Item = {}  # The item that grows; empty between items.

    def begin(self) -> Iterator[Event]:
        yield self._event("response.created", response=dict(self.response))
        yield self._event("response.in_progress", response=dict(self.response))

    def take(self, piece: str | Thought) -> Iterator[Event]:
        kind = "reasoning" if isinstance(piece, Thought) else "message"
        text = piece.text if isinstance(piece, Thought) else piece
        if self._open.get("type") != kind:
            yield from self._close()
            if any(item["type"] == kind for item in self.response["output"]):
                text = text.removeprefix("\n\n")  # What divides it from the text before, now an item of its own.
            yield from self._begin(kind, "output_text")
        new = printable(text)
        self._open[_PARTS[kind]][0]["text"] += new
        name = "response.output_text.delta" if kind == "message" else "response.reasoning_summary_text.delta"
        yield self._event(name, **self._place(), delta=new, **({"logprobs": []} if kind == "message" else {}))

    def end(self, answered: Answered, error: MnesisError | None = None) -> Iterator[Event]:
        status = _status(answered)
        yield from self._cite(answered)
        yield from self._close("incomplete" if status == "incomplete" and not answered.tool_calls else "completed")
        if answered.refusal:
            yield from self._begin("message", "refusal")
            refusal = self._open["content"][0]["refusal"] = printable(answered.refusal)
            yield self._event("response.refusal.delta", **self._place(), delta=refusal)
            yield from self._close()
        for item in _ran_items(answered, self.head):
            yield from self._whole(item)
        for content in answered.encrypted if self.head.shows_encrypted else ():
            id = f"rs_{self.head.id.partition('_')[2]}_{self._number_of_items}"
            about = {"id": id, "type": "reasoning", "summary": [], "status": "completed"}
            yield from self._whole(about | {"encrypted_content": printable(content)})
        for call in answered.tool_calls:
            yield from self._call(call)
        self.response |= {"status": status, "usage": _usage(answered.usage), "error": read_failure(error)}
        self.response["mnesis"] = self.response["mnesis"] | answered.ours()
        if status == "incomplete":
            self.response["incomplete_details"] = {"reason": _REASONS.get(answered.finish_reason, "max_output_tokens")}
        yield self._event(_LAST_EVENTS.get(status, "response.incomplete"), response=dict(self.response))

    def _cite(self, answered: Answered) -> Iterator[Event]:
        """Put the sources of the answer to its last text, with their places there."""
        if self._open.get("type") != "message":
            return
        part = self._open["content"][0]
        begins = max(0, len(printable(answered.text)) - len(part["text"]))
        for number, cited in enumerate(url_citations(answered.citations)):
            place = {name: max(0, cited[name] - begins) for name in ("start_index", "end_index")}
            annotation = {"type": "url_citation", **cited, **place}
            part["annotations"].append(annotation)
            named = {"annotation_index": number, "annotation": annotation}
            yield self._event("response.output_text.annotation.added", **self._place(), **named)

    def fail(self, error: MnesisError) -> Iterator[Event]:
        """Yield the events of a response whose turn failed after it had begun."""
        yield from self._close("incomplete")
        self.response |= {"status": "failed", "error": read_failure(error)}
        self.response["mnesis"] = self.response["mnesis"] | {"state": TurnState.FAILED, "code": error.code}
        yield self._event("response.failed", response=dict(self.response))

    def _event(self, kind: str, /, **values: Any) -> Event:
        event = {"type": kind, "sequence_number": self._number, **values}
        self._number += 1
        return event

    def _begin(self, kind: str, part: str) -> Iterator[Event]:
        parts = self._number_of_items
        id = "_".join((_PREFIXES[kind], self.head.id.partition("_")[2], str(parts)))
        item: Item = {"id": id, "type": kind, "status": "in_progress", _PARTS[kind]: []}
        if kind == "message":
            item |= {"role": "assistant"}
        yield self._event("response.output_item.added", output_index=parts, item=dict(item))
        new: Item = {"type": part, "text": "", "annotations": [], "logprobs": []}
        if part == "refusal":
            new = {"type": part, "refusal": ""}
        if kind == "reasoning":
            new = {"type": "summary_text", "text": ""}
        self._open = item | {_PARTS[kind]: [new]}
        name = "content_part" if kind == "message" else "reasoning_summary_part"
        yield self._event(f"response.{name}.added", **self._place(), part=dict(new))

    def _close(self, status: str = "completed") -> Iterator[Event]:
        if not self._open:
            return
        [part], is_message = self._open[_PARTS[self._open["type"]]], self._open["type"] == "message"
        done = {"refusal": "refusal"}.get(part["type"], "output_text" if is_message else "reasoning_summary_text")
        text = {"refusal": part["refusal"]} if done == "refusal" else {"text": part["text"]}
        logprobs: Item = {"logprobs": []} if done == "output_text" else {}
        yield self._event(f"response.{done}.done", **self._place(), **text, **logprobs)
        name = "content_part" if is_message else "reasoning_summary_part"
        yield self._event(f"response.{name}.done", **self._place(), part=dict(part))
        item = self._open | {"status": status}
        yield self._event("response.output_item.done", output_index=self._number_of_items, item=item)
        self.response["output"] = [*self.response["output"], item]
        self._open = {}

    def _whole(self, item: Item) -> Iterator[Event]:
        index = self._number_of_items
        yield self._event("response.output_item.added", output_index=index, item=item | {"status": "in_progress"})
        yield self._event("response.output_item.done", output_index=index, item=item)
        self.response["output"] = [*self.response["output"], item]

    def _call(self, call: ToolCall) -> Iterator[Event]:
        item, index = read_call(call, self.head), self._number_of_items
        said, name = (
            ("arguments", "function_call_arguments") if "arguments" in item else ("input", "custom_tool_call_input")
        )
        place = {"item_id": item["id"], "output_index": index}
        begun = item | {said: ""} | ({"status": "in_progress"} if "status" in item else {})
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event(f"response.{name}.delta", **place, delta=item[said])
        named = {"name": item["name"]} if said == "arguments" else {}
        yield self._event(f"response.{name}.done", **place, **named, **{said: item[said]})
        yield self._event("response.output_item.done", output_index=index, item=item)
        self.response["output"] = [*self.response["output"], item]

    @property
    def _number_of_items(self) -> int:
        return len(self.response["output"])

    def _place(self) -> dict[str, Any]:
        index = "content_index" if self._open["type"] == "message" else "summary_index"
        return {"item_id": self._open["id"], "output_index": self._number_of_items, index: 0}


_PREFIXES = {"message": "msg", "reasoning": "rs"}
_PARTS = {"message": "content", "reasoning": "summary"}


def read_response(head: ResponseHead, answered: Answered, error: MnesisError | None = None) -> dict[str, Any]:
    writer = ResponseWriter(head)
    for piece in pieces_of(answered.parts):
        for _ in writer.take(piece):
            pass
    for _ in writer.end(answered, error):
        pass
    return writer.response


def encrypted_in(part: Part) -> str:
    """Return what a model encrypted of its reasoning, in the form of OpenAI's Responses, or an empty text."""
    if not isinstance(part, ProviderPart) or part.kind != "reasoning":
        return ""
    content = written_json(part.data, dict).get("encrypted_content")
    return content if isinstance(content, str) else ""


def read_call(call: ToolCall, head: ResponseHead) -> Item:
    """Return a call as an item. The input of a custom tool is free text; one that is no such text comes as it is."""
    number = f"{head.turn_id.partition('_')[2]}_{call.id.partition('_')[2]}"
    namespace, name = head.namespaces.get(call.name, ("", call.name))
    named = {"call_id": call.id, "name": printable(name)} | ({"namespace": namespace} if namespace else {})
    if call.name in head.freeform:
        said = call.arguments
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            said = str(json.loads(said)["input"])
        return {"id": f"ctc_{number}", "type": "custom_tool_call", **named, "input": printable(said)}
    arguments = {"arguments": printable(call.arguments), "status": "completed"}
    return {"id": f"fc_{number}", "type": "function_call", **named, **arguments}


def _ran_items(answered: Answered, head: ResponseHead) -> Iterator[Item]:
    """Yield what the provider ran, as items of OpenAI's whoever ran it, and the pictures that the model made.

    They stand behind what was said, since a stream tells of them when the answer has ended.
    """
    number = head.id.partition("_")[2]
    for place, ran in enumerate(answered.ran):
        given = written_json(ran.input, dict)
        if ran.tool_name == "web_search":
            action = {"type": "search", "query": _printed(given.get("query"))}
            status = {"status": "failed" if ran.error else "completed"}
            yield {"id": f"ws_{number}_{place}", "type": "web_search_call", "action": action, **status}
        elif ran.tool_name.endswith(("code_execution", "code_interpreter")):
            said = ran.output if ran.output is not None else ran.error
            yield {
                **{"id": f"ci_{number}_{place}", "type": "code_interpreter_call", "container_id": ""},
                "code": _printed(given.get("code") or given.get("command")) or None,
                "outputs": None if said is None else [{"type": "logs", "logs": printable(said)}],
                "status": "failed" if ran.error else "completed",
            }
    for place, picture in enumerate(answered.pictures):
        made = {"status": "completed", "result": picture.data}
        yield {"id": f"ig_{number}_{place}", "type": "image_generation_call", **made}


def _printed(value: Any) -> str:
    return printable(value) if isinstance(value, str) else ""


def _status(answered: Answered) -> str:
    if answered.tool_calls:
        return "completed"
    ended = "incomplete" if answered.finish_reason in _REASONS else "completed"
    if answered.refusal and answered.error_code == AnswerRefused.code:
        return ended
    return _STATES.get(TurnState(answered.state), ended)


def _usage(usage: UsageRecord) -> dict[str, Any]:
    asked, said = usage.tokens_input or 0, usage.tokens_output or 0
    read = {"cached_tokens": usage.tokens_cache_read or 0, "cache_write_tokens": usage.tokens_cache_write or 0}
    return {
        "input_tokens": asked,
        "input_tokens_details": read,
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": asked + said,
    }


def read_failure(error: MnesisError | None) -> dict[str, str] | None:
    """Return an error as a response has it, which knows few codes; ``mnesis.code`` is ours."""
    if error is None:
        return None
    code = "invalid_prompt" if isinstance(error, InvalidRequest) else "server_error"
    if isinstance(error, ModelRateLimited):
        code = "rate_limit_exceeded"
    return {"code": code, "message": printable(error.message)}


# What the record says of past responses


def answer_in(
    messages: Sequence[StoredMessage], callers: frozenset[str], answered_part: str
) -> tuple[list[StoredMessage], tuple[ToolCall, ...]]:
    """Return the messages of a turn that answer one of its requests, and the calls of the caller's tools that end them.

    :param callers: the names of the tools that the caller runs
    """
    found: list[StoredMessage] = []
    has_begun = not answered_part
    for message in messages:
        if has_begun and message.role == "assistant":
            found.append(message)
            calls = tuple(
                ToolCall(id=stored.id, name=stored.part.tool_name, arguments=stored.part.input)
                for stored in message.parts
                if isinstance(stored.part, ToolPart) and stored.part.tool_name in callers
            )
            if calls:
                return found, calls
        has_begun = has_begun or any(stored.id == answered_part for stored in message.parts)
    return found, ()


def items_of_request(messages: Sequence[StoredMessage], head: ResponseHead) -> list[Item]:
    """Return what the request of a response brought: the user's message, or results of the caller's tools."""
    if not head.answered_part:
        asked = [message for message in messages if message.role != "assistant"]
        return [item for message in asked[:1] for item in items_of_message(message, head)]
    for message in messages:
        if any(stored.id == head.answered_part for stored in message.parts):
            items = items_of_message(message, head)
            return [item for item in items if item["type"].endswith("_output")]
    return []


def items_of_message(message: StoredMessage, head: ResponseHead) -> list[Item]:
    """Return a message of the record as items: what was thought, what was said, and each call with its result."""
    number = f"{head.turn_id.partition('_')[2]}_M{message.seq}"
    parts = [(stored.id, stored.part) for stored in message.parts]
    items: list[Item] = []
    if thought := "\n\n".join(part.text for _, part in parts if isinstance(part, ReasoningPart)):
        summary = [{"type": "summary_text", "text": printable(thought)}]
        items.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary, "status": "completed"})
    kind = "output_text" if message.role == "assistant" else "input_text"
    content = [content for _, part in parts for content in _content(part, kind)]
    if content:
        base = {"id": f"msg_{number}", "type": "message", "status": "completed"}
        items.append(base | {"role": message.role, "content": content})
    for id, part in parts:
        if not isinstance(part, ToolPart):
            continue
        call = read_call(ToolCall(id=id, name=part.tool_name, arguments=part.input), head)
        items.append(call)
        result = part.output if part.output is not None else part.error
        if result is not None:
            about = {"id": f"{call['id'].replace('_', 'o_', 1)}", "type": f"{call['type']}_output", "call_id": id}
            items.append({**about, "output": printable(result), "status": "completed"})
    return items


def _content(part: Part, kind: str) -> Iterator[Item]:
    if isinstance(part, TextPart):
        yield {"type": kind, "text": printable(part.text)} | ({"annotations": []} if kind == "output_text" else {})
    elif isinstance(part, RefusalPart):
        yield {"type": "refusal", "refusal": printable(part.text)}
    elif isinstance(part, ImagePart) and kind == "input_text":
        yield {"type": "input_image", "detail": "auto", "file_id": part.file_id or None, "image_url": None}
