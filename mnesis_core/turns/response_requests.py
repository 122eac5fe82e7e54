"""OpenAI's Responses API: what a request says, its items as messages and its tools as functions.

Models here know functions only. A custom tool, whose input is free text, is a function with that text as its only
argument; a function of a namespace is one whose name begins with the namespace's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mnesis_core.errors import InvalidRequest, TurnNotFoundError
from mnesis_core.files.pictures import SentPicture, read_audio, read_picture
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.llm.parameters import Parameters, read_parameters
from mnesis_core.messages import Message, ProviderPart
from mnesis_core.text import text_digest
from mnesis_core.turns.requests import (
    NEW,
    SESSION_FIELD,
    CompletionRequest,
    RequestMessage,
    RequestRole,
    is_off,
    joined,
    messages_of,
    unused_names,
)

ENCRYPTED = "reasoning.encrypted_content"
FREEFORM = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of this tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
# Our names of parameters, and where a request has them.
PARAMETERS = {
    **{name: name for name in ("temperature", "top_p", "max_output_tokens", "tool_choice", "parallel_tool_calls")},
    "effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "response_format": "text.format",
    "provider_tools": "tools.hosted",
}
_USED = {
    *("model", "input", "instructions", "previous_response_id", "conversation", "store", "stream", "stream_options"),
    *("tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "temperature", "top_p", "reasoning", "text"),
    *("metadata", "user", "truncation"),
}
_ROLES: Mapping[str, RequestRole] = {
    **{"user": "user", "assistant": "assistant", "system": "system", "developer": "system"},
}
_ULID = "[0-9A-HJKMNP-TV-Z]{26}"
_RESPONSE = re.compile(rf"resp_({_ULID})(?:_({_ULID}))?")
_CONVERSATION = re.compile(rf"conv_({_ULID})")
_ITEM = re.compile(rf"(?:msg|rs|fc|ctc|fco|ctco)_({_ULID})(?:_[0-9A-Z_]{{1,64}})?")
# Our names of tools that OpenAI runs, and the types that they have there.
_RAN = {
    "web_search": re.compile(r"web_search(?:_preview)?(?:_[0-9_]+)?"),
    "code_execution": re.compile("code_interpreter"),
    "image_generation": re.compile("image_generation"),
}
MOST_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512  # of metadata, as at OpenAI
MOST_ITEMS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRequest:
    request: CompletionRequest
    previous: str = ""  # the turn of the response that it continues
    referred: str = ""  # the turn of the last item that it only refers to
    # A function's name -> its namespace, and its name there.
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    specs: tuple[ToolSpec, ...] = ()
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ran: tuple[str, ...] = ()  # by OpenAI, as ``provider_tools`` are called


def read_response_request(body: Mapping[str, Any], *, session: str = "") -> ResponseRequest:
    """Return a request as a value; ``session`` is the header's.

    :raises InvalidRequest: a parameter, which the error names, is wrong or not supported.
    :raises TurnNotFoundError: ``previous_response_id`` is none of ours
    """
    for name, (is_accepted, hint) in _ACCEPTED.items():
        if not is_accepted(body.get(name)):
            raise InvalidRequest(f"{name} is not supported with this value: {hint}", field=name)
    metadata = read_metadata(body.get("metadata"))
    named = _text(body.get("previous_response_id"), "previous_response_id")
    previous, conversation = read_response_id(named)[0] if named else "", _conversation(body)
    given = session or metadata.get(SESSION_FIELD, "")
    if sum(map(bool, (previous, conversation, given))) > 1:
        names = "previous_response_id, conversation or a session"
        raise InvalidRequest(f"send only one of {names}", field="previous_response_id")
    messages, referred = read_items(body.get("input"))
    if not (brings_results := bool(messages) and messages[-1].role == "tool"):
        given = given or ("" if body.get("store") is False or previous or referred else NEW)
    instructions = _text(body.get("instructions"), "instructions")
    if instructions:
        messages = (RequestMessage(role="system", text=instructions), *messages)
    tools = _tools(body)
    request = CompletionRequest(
        origin="responses",
        model=body["model"],
        messages=messages,
        tools=tools.specs,
        session=conversation or given,
        user=_text(body.get("user"), "user") if not (brings_results or previous or referred) else "",
        parameters=_parameters(body, tools.ran),
        unused=unused_names(body, _USED | {*_ACCEPTED}),
        repeated={
            "metadata": metadata,
            "previous_response_id": body.get("previous_response_id"),
            "store": body.get("store") is not False,
        },
    )
    return ResponseRequest(request=request, previous=previous, referred=referred, namespaces=tools.namespaces)


def response_id(turn_id: str, answered_part: str = "") -> str:
    """Return the id of a turn's answer, or of its answer to results of which this call's is the first."""
    return "_".join(("resp", *(id.partition("_")[2] for id in (turn_id, answered_part) if id)))


def read_response_id(text: str) -> tuple[str, str]:
    """Return the turn of a response, and the call whose result it answers, or an empty text.

    :raises TurnNotFoundError: it is none of ours
    """
    found = _RESPONSE.fullmatch(text)
    if found is None:
        raise TurnNotFoundError("There is no such response, or it is not yours.")
    return f"turn_{found[1]}", f"part_{found[2]}" if found[2] else ""


def conversation_id(session_id: str) -> str:
    return f"conv_{session_id.partition('_')[2]}"


def read_conversation_id(text: str) -> str:
    """Return the session of a conversation's id; an id that is none of ours is returned as it is, and found nowhere."""
    found = _CONVERSATION.fullmatch(text)
    return f"sess_{found[1]}" if found else text


def read_metadata(value: Any) -> dict[str, str]:
    """:raises InvalidRequest: it is not what OpenAI takes for metadata"""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > MOST_PAIRS:
        raise InvalidRequest(f"metadata must be an object of up to {MOST_PAIRS} texts", field="metadata")
    for name, text in value.items():
        if len(name) > LONGEST_KEY or not isinstance(text, str) or len(text) > LONGEST_VALUE:
            raise InvalidRequest(
                f"metadata has names of up to {LONGEST_KEY} characters and texts of up to {LONGEST_VALUE}",
                field=f"metadata.{name[:LONGEST_KEY]}",
            )
    return dict(value)


# Items

_OURS = ("web_search_call", "code_interpreter_call", "file_search_call", "image_generation_call")


def read_items(value: Any, name: str = "input") -> tuple[tuple[RequestMessage, ...], str]:
    """Return the items of a field as messages, and the turn of the last item that is only referred to, or an empty text.

    What precedes an item that is referred to is in the record already, so it is left out. So are thinking, what a
    provider ran and pictures that a model made: the record has its own. Reasoning that is encrypted goes with the next call.

    :raises InvalidRequest: an item is of another kind; names it
    """
    if isinstance(value, str):
        return (RequestMessage(role="user", text=value),), ""
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        raise InvalidRequest(f"{name} must be a text or a list of up to {MOST_ITEMS:,} items", field=name)
    messages: list[RequestMessage] = []
    reasoned: tuple[ProviderPart, ...] = ()
    referred = ""
    for index, item in enumerate(value):
        place = f"{name}.{index}"
        if not isinstance(item, Mapping):
            raise InvalidRequest(f"{place} must be an item", field=place)
        kind = item.get("type") or ("message" if "role" in item else "")
        if kind == "item_reference":
            if (found := _ITEM.fullmatch(str(item.get("id")))) is None:
                raise InvalidRequest(f"{place} refers to no item of a response of this server", field=f"{place}.id")
            messages, referred = [], f"turn_{found[1]}"
        elif kind == "reasoning":
            reasoned += _reasoned(item)
        elif kind not in _OURS:
            said = replace(_message(kind, item, place), place=index)
            said, reasoned = replace(said, reasoned={call.id: reasoned for call in said.tool_calls}), ()
            if messages and messages[-1].role == said.role == "assistant":
                said = _merged(messages.pop(), said)
            messages.append(said)
    return tuple(messages), referred


def read_recorded_items(value: Any) -> tuple[tuple[Message, ...], tuple[SentPicture, ...]]:
    """Return the items that a conversation is to have as messages, and the pictures that these name as their sources.

    :raises InvalidRequest: an item is of another kind, says nothing, or is a result without its call
    """
    if not isinstance(value, list):
        raise InvalidRequest("items must be a list", field="items")
    said, referred = read_items(value, "items")
    if referred:
        raise InvalidRequest("an item of a conversation is in one already: send what it says", field="items")
    messages = messages_of(said)
    if not messages or not all(message.parts for message in messages):
        raise InvalidRequest("items must say something: send messages, or calls with their results", field="items")
    return messages, tuple(picture for one in said for picture in one.pictures)


def _merged(first: RequestMessage, second: RequestMessage) -> RequestMessage:
    """Return two messages of the assistant as one: an answer and its calls are one step, and so are all of its calls."""
    return replace(
        second,
        text=joined((first.text, second.text)),
        refusal=joined((first.refusal, second.refusal)),
        tool_calls=(*first.tool_calls, *second.tool_calls),
        reasoned={**first.reasoned, **second.reasoned},
    )


def _reasoned(item: Mapping[str, Any]) -> tuple[ProviderPart, ...]:
    """Return encrypted reasoning as the caller has it; none for an item that has only its summary."""
    content = item.get("encrypted_content")
    if not isinstance(content, str) or not content:
        return ()
    summary = item.get("summary")
    texts = [part.get("text") for part in (summary if isinstance(summary, list) else ()) if isinstance(part, Mapping)]
    id = item.get("id")
    said = {
        # Many clients leave it out. litellm would make one up anew for each request, which no cache begins with.
        "id": id if isinstance(id, str) and id else f"rs_{text_digest(content)[:32]}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in texts if isinstance(text, str)],
        "encrypted_content": content,
    }
    return (ProviderPart(provider="", kind="reasoning", data=json.dumps(said, ensure_ascii=False)),)


def turn_of_item(id: Any) -> str:
    """Return the turn that an item of a response is of, or an empty text."""
    found = _ITEM.fullmatch(id) if isinstance(id, str) else None
    return f"turn_{found[1]}" if found else ""


def includes_encrypted(value: Any) -> bool:
    return isinstance(value, list) and ENCRYPTED in value


def _message(kind: Any, item: Mapping[str, Any], place: str) -> RequestMessage:
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidRequest(f"{place}.role must be one of {', '.join(_ROLES)}", field=f"{place}.role")
        text, refusal, pictures = _content(item.get("content"), f"{place}.content", may_show=role == "user")
        return RequestMessage(role=_ROLES[role], text=text, refusal=refusal, pictures=pictures)
    if kind in ("function_call", "custom_tool_call"):
        return RequestMessage(role="assistant", tool_calls=(_call(kind, item, place),))
    if kind in ("function_call_output", "custom_tool_call_output"):
        text, _, pictures = _content(item.get("output"), f"{place}.output", may_show=True)
        call_id = _required(item, "call_id", place)
        return RequestMessage(role="tool", text=text, pictures=pictures, tool_call_id=call_id)
    raise InvalidRequest(f"{place} is an item of a kind that is not taken here", field=f"{place}.type")


def _call(kind: str, item: Mapping[str, Any], place: str) -> ToolCall:
    name = _required(item, "name", place)
    if namespace := _text(item.get("namespace"), f"{place}.namespace"):
        name = name_in(namespace, name)
    said = _required(item, "arguments" if kind == "function_call" else "input", place)
    arguments = said if kind == "function_call" else json.dumps({"input": said}, ensure_ascii=False)
    return ToolCall(id=_required(item, "call_id", place), name=name, arguments=arguments)


def _content(value: Any, place: str, *, may_show: bool) -> tuple[str, str, tuple[SentPicture, ...]]:
    """Return the text of a content, a refusal and pictures; the parts of a text are divided by line breaks."""
    if isinstance(value, str):
        return value, "", ()
    if not isinstance(value, list):
        raise InvalidRequest(f"{place} must be a text or a list of parts", field=place)
    texts: list[str] = []
    refusals: list[str] = []
    pictures: list[SentPicture] = []
    for index, part in enumerate(value):
        where = f"{place}.{index}"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("input_text", "output_text", "text"):
            texts.append(_required(part, "text", where))
        elif kind == "refusal":
            refusals.append(_required(part, "refusal", where))
        elif kind == "input_image" and may_show:
            pictures.append(read_picture(part.get("image_url"), place=f"{where}.image_url"))
        elif kind == "input_file" and may_show:
            name = "file_url" if part.get("file_url") and not part.get("file_data") else "file_data"
            pictures.append(read_picture(part.get(name), place=f"{where}.{name}", is_document=True))
        elif kind == "input_audio" and may_show:
            pictures.append(read_audio(part.get("input_audio"), place=f"{where}.input_audio"))
        else:
            known = "text, audio, and pictures and PDFs as data: URLs or addresses are" if may_show else "only text is"
            raise InvalidRequest(f"{where} is of another kind; {known} taken here", field=f"{where}.type")
    return "\n".join(texts), "\n".join(refusals), tuple(pictures)


# Tools


def name_in(namespace: str, name: str) -> str:
    return f"{namespace}__{name}"


def read_tools(value: Any) -> Tools:
    """:raises InvalidRequest: a tool is of a kind that is not run here; names it"""
    if value is None:
        return Tools()
    if not isinstance(value, list):
        raise InvalidRequest("tools must be a list", field="tools")
    specs: list[ToolSpec] = []
    namespaces: dict[str, tuple[str, str]] = {}
    ran: list[str] = []
    for index, tool in enumerate(value):
        place = f"tools.{index}"
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if kind == "namespace":
            namespace = _required(tool, "name", place)
            for at, inner in enumerate(tool.get("tools") if isinstance(tool.get("tools"), list) else ()):
                spec = _tool(inner, f"{place}.tools.{at}")
                specs.append(replace(spec, name=name_in(namespace, spec.name)))
                namespaces[specs[-1].name] = (namespace, spec.name)
        elif isinstance(kind, str) and (name := next((own for own, form in _RAN.items() if form.fullmatch(kind)), "")):
            ran.append(name)
        else:
            specs.append(_tool(tool, place))
    return Tools(specs=tuple(specs), namespaces=namespaces, ran=tuple(ran))


def _tool(tool: Any, place: str) -> ToolSpec:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if kind not in ("function", "custom"):
        raise InvalidRequest(f"{place} is a tool of a kind that is not run here", field=f"{place}.type")
    name = _required(tool, "name", place)
    description = _text(tool.get("description"), f"{place}.description")
    if kind == "custom":
        format = tool.get("format")
        if isinstance(format, Mapping) and format.get("type") == "grammar":
            rule = f"The input must follow this grammar ({format.get('syntax')}):\n{format.get('definition')}"
            description = joined((description, rule))
        return ToolSpec(name=name, description=description, parameters=FREEFORM)
    parameters = tool.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise InvalidRequest(f"{place}.parameters must be a JSON Schema", field=f"{place}.parameters")
    return ToolSpec(name=name, description=description, parameters=dict(parameters))


def _tools(body: Mapping[str, Any]) -> Tools:
    """Return the tools that a request lets the model call."""
    tools, choice = read_tools(body.get("tools")), body.get("tool_choice")
    if choice == "none":
        return replace(tools, specs=())
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return tools
    listed = choice.get("tools")
    listed = listed if isinstance(listed, list) else ()
    allowed = {tool.get("name") for tool in listed if isinstance(tool, Mapping)}
    return replace(tools, specs=tuple(spec for spec in tools.specs if spec.name in allowed))


# Parameters


# For each parameter, the accepted values, and the hint for any other.
_ACCEPTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "background": (is_off, "a turn runs to its end whether or not the client stays; send stream"),
    "prompt": (is_off, "there are no prompts of this kind here; send instructions and input"),
    "top_logprobs": (lambda value: value in (None, 0), "probabilities of tokens are not known here"),
    "include": (
        lambda value: value is None or (isinstance(value, list) and "message.output_text.logprobs" not in value),
        "it is a list, and probabilities of tokens are not known here",
    ),
    "truncation": (
        lambda value: value in (None, "auto", "disabled"),
        "send auto or disabled; the server makes a context that fits",
    ),
    "store": (lambda value: value is None or isinstance(value, bool), "send true or false"),
    "stream": (lambda value: value is None or isinstance(value, bool), "send true or false"),
    "model": (lambda value: isinstance(value, str) and value != "", "send the name of a model"),
    "reasoning": (lambda value: value is None or isinstance(value, Mapping), "send an object"),
    "text": (lambda value: value is None or isinstance(value, Mapping), "send an object"),
}


def _parameters(body: Mapping[str, Any], ran: tuple[str, ...]) -> Parameters:
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    given = {
        **{name: body.get(name) for name in ("temperature", "top_p", "max_output_tokens", "parallel_tool_calls")},
        "effort": reasoning.get("effort"),
        "verbosity": text.get("verbosity"),
        "tool_choice": _tool_choice(body.get("tool_choice")),
        "response_format": _format(text.get("format")),
        "provider_tools": ran or None,
    }
    return read_parameters(given, path="", called=PARAMETERS)


def _tool_choice(value: Any) -> Any:
    """Return a choice of tools as Chat Completions have it."""
    if not isinstance(value, Mapping):
        return value
    if value.get("type") == "allowed_tools":
        return value.get("mode", "auto")
    if value.get("type") in ("function", "custom"):
        return {"type": "function", "function": {"name": value.get("name")}}
    raise InvalidRequest("tool_choice names a tool that is not run here", field="tool_choice.type")


def _format(value: Any) -> Any:
    """Return a format of texts as Chat Completions have it."""
    if not isinstance(value, Mapping) or value.get("type") != "json_schema":
        return value
    return {"type": "json_schema", "json_schema": {name: one for name, one in value.items() if name != "type"}}


def _conversation(body: Mapping[str, Any]) -> str:
    value = body.get("conversation")
    text = _text(value.get("id") if isinstance(value, Mapping) else value, "conversation")
    return read_conversation_id(text) if text else ""


def _text(value: Any, place: str) -> str:
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{place} must be a text", field=place)
    return value or ""


def _required(item: Mapping[str, Any], name: str, place: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"{place}.{name} must be a text", field=f"{place}.{name}")
    return value
