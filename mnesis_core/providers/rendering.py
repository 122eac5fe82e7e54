"""A prompt -> one provider's payload: OpenAI's Chat Completions and Responses, Anthropic's Messages, Gemini's generateContent.

All of them take text as UTF-8, short names of plain letters, ids that pair, and each call with its result.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from math import isfinite
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

import orjson

from mnesis_core.context.entries import (
    EMPTY_MESSAGE,
    RAN,
    ContextMessage,
    Picture,
    Prompt,
    ToolResult,
    only_ran,
    source_of_message,
)
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.pictures import AUDIO_FORMATS, PDF
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.messages import DEEPEST_DATA
from mnesis_core.providers.opaque import REASONING, fields_of_answer, fields_of_call
from mnesis_core.text import exact_value, printable

# Stands for a result that never came; providers refuse a call without one.
INTERRUPTED = "Error: interrupted: this call has no result."
# The user's first words in a history where the assistant spoke first, for providers that let only the user begin.
OPENING = "[The conversation begins with the assistant.]"
LONGEST_NAME = 64  # Characters of a tool's name and of a call's id; the least that a provider allows.
DEEPEST_ARGUMENTS = 64  # Levels: some providers read arguments into a form that may be nested a hundred deep.
# Who gets back in which format what it gave to be sent back (``ProviderPart``).
GIVERS: Mapping[str, str] = {"openai_responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
# The kinds that are blocks or items of their own, and have their kind for a type.
_OPAQUE_BLOCKS = {"anthropic": ("thinking", "redacted_thinking"), "openai": ("reasoning",)}
# Gemini's kind is a field of the part that it belongs to: ``{"thoughtSignature": …}``.
_SIGNATURE = "thought_signature"
Item = TypeVar("Item")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_GEMINI_ROLES = {"user": "user", "assistant": "model"}
# Base64 of ``skip_thought_signature_validator``, which Google defines for calls that another model made. Gemini 3
# refuses the first call of a step without one.
SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
DIGEST_LENGTH = 32


def outgoing(text: str) -> str:
    """Return text that can be written as UTF-8; the record keeps the exact text."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return printable(text)
    return text


def tool_name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name)[:LONGEST_NAME] or "unnamed"


def described(tool: ToolSpec, schema: str = "parameters") -> dict[str, Any]:
    """Return a tool's description, with its JSON Schema under the key ``schema``."""
    return {"name": tool_name(tool.name), "description": outgoing(tool.description), schema: tool.parameters}


def spoken(message: ContextMessage) -> str:
    """Return what a message says; empty where there is only white space, which some providers refuse.

    A user's message says at least that it is empty, since the answer is to it.
    """
    text = outgoing(message.text)
    if text.strip():
        return text
    return EMPTY_MESSAGE if message.role == "user" else ""


def spoken_by_two(message: ContextMessage) -> tuple[str, str]:
    """Return role and text for providers whose conversations have two sides only: the user says the system's messages."""
    text = spoken(message)
    if message.role == "system":
        return "user", f"[System message]\n{text}" if text else ""
    return message.role, text


def user_first(items: Iterable[tuple[str, Item]], opening: Item) -> Iterator[tuple[str, Item]]:
    """Yield (role, item) in order, with ``opening`` in front unless the user begins."""
    for index, (role, item) in enumerate(items):
        if index == 0 and role != "user":
            yield "user", opening
        yield role, item


def system_apart(messages: Sequence[ContextMessage]) -> tuple[str, Sequence[ContextMessage]]:
    """Return the system prompt, empty if there is none, and what comes after it.

    Only the first message is taken out: a later one that moved to the front would change what a cache knows.
    """
    if messages and messages[0].role == "system":
        return spoken(messages[0]), messages[1:]
    return "", messages


def answered_calls(message: ContextMessage) -> Iterator[tuple[ToolCall, ToolResult]]:
    results = {result.call_id: result for result in message.tool_results}
    for call in message.tool_calls:
        yield (
            call,
            results.get(call.id) or ToolResult(call_id=call.id, name=call.name, text=INTERRUPTED, is_error=True),
        )


@dataclass(slots=True)
class CallIds:
    """Ids for the calls of one payload, no two the same, though the calls may come from several sources.

    An id depends on those before it only, so that a longer history gives the same ones again.
    """

    _taken: set[str] = field(default_factory=set)
    _used: Counter[str] = field(default_factory=Counter)  # id -> how often it was asked for

    def new(self, call_id: str) -> str:
        wanted = _NOT_IN_A_NAME.sub("_", call_id)[:LONGEST_NAME] or "call"
        unique = wanted
        while unique in self._taken:
            self._used[wanted] += 1
            number = f"_{self._used[wanted] + 1}"
            unique = wanted[: LONGEST_NAME - len(number)] + number
        self._taken.add(unique)
        return unique


def arguments_object(text: str) -> dict[str, Any]:
    """Return arguments as an object for providers that do not take them as text.

    What is no JSON object, or one that they cannot read, is sent whole as ``{"invalid_arguments": text}``.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_number_as(float), parse_int=_number_as(int))
        if isinstance(value, dict):
            return {outgoing(key): _plain(item, DEEPEST_ARGUMENTS) for key, item in value.items()}
    except (ValueError, RecursionError):
        pass
    return {"invalid_arguments": outgoing(text)} if text.strip() else {}


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what} is not a number that JSON can say")


def _number_as(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return a reader of numbers that refuses what does not fit a double, which is what most readers have."""
    return lambda text: kind(text) if isfinite(float(text)) else _refuse(text)


def _plain(value: Any, levels: int) -> Any:
    if levels == 0:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return outgoing(value)
    if isinstance(value, dict):
        return {outgoing(key): _plain(item, levels - 1) for key, item in value.items()}
    return [_plain(item, levels - 1) for item in value] if isinstance(value, list) else value


def given_back(message: ContextMessage, provider: str, call_id: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kind and value of what goes back to a provider before a call of a message, or before its text.

    What cannot be written exactly as it was given is left out: the provider would refuse it.
    """
    for opaque in message.opaque:
        if (opaque.call_id, opaque.part.provider) == (call_id, provider):
            with suppress(ValueError):
                value = exact_value(opaque.part.data, deepest=DEEPEST_DATA)
                if isinstance(value, dict):
                    yield opaque.part.kind, value


def opaque_blocks(message: ContextMessage, provider: str, call_id: str = "") -> list[dict[str, Any]]:
    kinds, found = _OPAQUE_BLOCKS[provider], []
    for kind, value in given_back(message, provider, call_id):
        if kind == RAN:
            found += value["blocks"]
        elif kind in kinds and value.get("type") == kind:
            found.append(value)
    return found


# Says of a call that results had pictures in its payload.
IN_RESULTS = "pictures_in_results"
# Before pictures that calls gave back, for formats whose results are text.
RETURNED = "[What the call {name} returned shows:]"


def with_data(prompt: Prompt, read: Callable[[str], bytes], *, in_results: bool = False) -> Prompt:
    """Return a prompt whose pictures have their bytes; ``read`` returns those of a content.

    :param in_results: whether the model reads the pictures of results inside them
    :raises NotFound: a picture's rendition is not there.
    """

    def filled(picture: Picture) -> Picture:
        return replace(picture, data=base64.b64encode(read(picture.content_id)).decode())

    found = _with_pictures(prompt, lambda pictures: tuple(map(filled, pictures)))
    return found if found is prompt else Prompt(messages=found.messages, tools=prompt.tools, in_results=in_results)


def _with_pictures(prompt: Prompt, changed: Callable[[tuple[Picture, ...]], tuple[Picture, ...]]) -> Prompt:
    if not any(message.pictures or any(r.pictures for r in message.tool_results) for message in prompt.messages):
        return prompt
    messages = tuple(
        replace(
            message,
            pictures=changed(message.pictures),
            tool_results=tuple(replace(result, pictures=changed(result.pictures)) for result in message.tool_results),
        )
        for message in prompt.messages
    )
    return Prompt(messages=messages, tools=prompt.tools, in_results=prompt.in_results)


def data_url(picture: Picture) -> str:
    return f"data:{picture.media_type};base64,{picture.data}"


def _chat_content(text: str, pictures: Sequence[Picture]) -> str | list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for picture in pictures:
        if picture.media_type == PDF:
            blocks.append({"type": "file", "file": {"filename": file_name(picture), "file_data": data_url(picture)}})
        elif picture.media_type in AUDIO_FORMATS:
            audio = {"data": picture.data, "format": AUDIO_FORMATS[picture.media_type]}
            blocks.append({"type": "input_audio", "input_audio": audio})
        else:
            blocks.append({"type": "image_url", "image_url": {"url": data_url(picture)}})
    return blocks if pictures else text


def file_name(picture: Picture) -> str:
    """Return a name for a PDF, which OpenAI asks for. The text beside it says how the file is called."""
    return f"{picture.content_id[:12]}.pdf"


def render_chat(prompt: Prompt) -> dict[str, Any]:
    """Return ``{"messages": […], "tools"?}`` of OpenAI Chat Completions, as litellm takes them for every provider."""
    messages = [chat_messages(message, in_results=prompt.in_results) for message in prompt.messages]
    payload: dict[str, Any] = {"messages": [*chain.from_iterable(messages)]}
    if prompt.tools:
        payload["tools"] = chat_tools(prompt.tools)
    return payload


def has_pictures_in_results(payload: Mapping[str, Any]) -> bool:
    """Return whether results of a payload for Chat Completions have pictures."""
    return any(said["role"] == "tool" and isinstance(said["content"], list) for said in payload["messages"])


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": described(tool)} for tool in tools]


def chat_messages(message: ContextMessage, *, in_results: bool = False) -> Iterator[dict[str, Any]]:
    yield from _chat_answers(message)
    for call, result in answered_calls(message):
        content = _chat_content(outgoing(result.text), result.pictures if in_results else ())
        yield {"role": "tool", "tool_call_id": outgoing(call.id), "content": content}
    for _, result in answered_calls(message):
        if result.pictures and not in_results:
            said = RETURNED.format(name=tool_name(result.name))
            yield {"role": "user", "content": _chat_content(said, result.pictures)}


def _chat_answers(message: ContextMessage) -> list[dict[str, Any]]:
    """Return a message without the results of its calls: as several where thinking stands between them.

    litellm puts them together again, and of one message it would put all thinking to the front.
    """
    ran, back = _taken_back(message)
    answer: dict[str, Any] = {"role": message.role, "content": _chat_content(outgoing(message.text), message.pictures)}
    answer |= back
    if not message.tool_calls:
        is_alone = not answer["content"] and (ran or back.keys() - {"provider_specific_fields"})
        return ran if is_alone else [*ran, answer]  # Thinking that nothing follows is taken by no provider.
    answer["content"] = answer["content"] or None
    answers = [*ran, answer]
    for call in message.tool_calls:
        ran, back = _taken_back(message, call.id)
        signed = fields_of_call(back)
        if ran:
            answers = [*(said for said in answers if len(said) > 2 or said["content"]), *ran]
            answers.append({"role": message.role, "content": None})
        elif back.keys() - {REASONING} and (answers[-1]["content"] or "tool_calls" in answers[-1]):
            answers.append({"role": message.role, "content": None})
        function = {"name": tool_name(call.name), "arguments": outgoing(call.arguments)}
        answers[-1].update(back)
        answers[-1].setdefault("tool_calls", []).append(
            {"id": outgoing(call.id), "type": "function", "function": function, **signed}
        )
    return answers


def _taken_back(message: ContextMessage, call_id: str = "") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return what goes back before a call of a message, or before its text: calls that the provider ran, each as a message
    with what stands before it, and the fields of all that comes after them."""
    ran: list[dict[str, Any]] = []
    values: list[tuple[str, dict[str, Any]]] = []
    for provider in dict.fromkeys(opaque.part.provider for opaque in message.opaque):
        for kind, value in given_back(message, provider, call_id):
            if kind == RAN:
                ran.append({"role": message.role, "content": value["blocks"], **fields_of_answer(values)})
                values = []
            else:
                values.append((kind, value))
    return ran, fields_of_answer(values)


def render_responses(prompt: Prompt) -> dict[str, Any]:
    """Return ``{"instructions"?, "input": […], "tools"?}`` of OpenAI Responses. A longer history only adds items."""
    instructions, messages = system_apart(prompt.messages)
    ids = CallIds()
    items: list[dict[str, Any]] = []
    for message in messages:
        items += opaque_blocks(message, "openai")
        if text := spoken(message):
            content = _responses_content(text, message.pictures)
            items.append({"type": "message", "role": message.role, "content": content})
        outputs = []
        for call, result in answered_calls(message):
            items += opaque_blocks(message, "openai", call.id)
            named = {"call_id": ids.new(call.id)}
            arguments = outgoing(call.arguments)
            items.append({"type": "function_call", **named, "name": tool_name(call.name), "arguments": arguments})
            output = _responses_content(outgoing(result.text), result.pictures)
            outputs.append({"type": "function_call_output", **named, "output": output})
        items += outputs
    payload: dict[str, Any] = {"instructions": instructions} if instructions else {}
    payload["input"] = items
    if prompt.tools:
        # Strict schemas have no optional arguments; ours have.
        payload["tools"] = [{"type": "function", **described(tool), "strict": False} for tool in prompt.tools]
    return payload


def _responses_content(text: str, pictures: Sequence[Picture]) -> str | list[dict[str, Any]]:
    shown = [
        {"type": "input_file", "filename": file_name(picture), "file_data": data_url(picture)}
        if picture.media_type == PDF
        else {"type": "input_image", "detail": "auto", "image_url": data_url(picture)}
        for picture in pictures
    ]
    return [*([{"type": "input_text", "text": text}] if text else []), *shown] if shown else text


def render_anthropic(prompt: Prompt) -> dict[str, Any]:
    """Return ``{"system"?, "messages": […], "tools"?}`` of Anthropic Messages.

    Roles alternate, so neighbours of one role are one message: a longer history may add blocks to the last message
    and adds messages after it. Results come first in the message after their calls, empty texts are not sent.
    """
    system, messages = system_apart(prompt.messages)
    payload: dict[str, Any] = {"system": system} if system else {}
    payload["messages"] = [
        {"role": role, "content": [block for _, block in blocks]}
        for role, blocks in groupby(
            user_first(_anthropic_blocks(messages), {"type": "text", "text": OPENING}), key=itemgetter(0)
        )
    ]
    if prompt.tools:
        payload["tools"] = [described(tool, "input_schema") for tool in prompt.tools]
    return payload


def _anthropic_blocks(messages: Sequence[ContextMessage]) -> Iterator[tuple[str, dict[str, Any]]]:
    ids = CallIds()
    for message in messages:
        role, text = spoken_by_two(message)
        yield from (("assistant", block) for block in opaque_blocks(message, "anthropic"))
        if text:
            yield role, {"type": "text", "text": text}
        yield from ((role, _anthropic_picture(picture)) for picture in message.pictures)
        results = []
        for call, result in answered_calls(message):
            yield from (("assistant", block) for block in opaque_blocks(message, "anthropic", call.id))
            call_id = ids.new(call.id)
            arguments = arguments_object(call.arguments)
            yield "assistant", {"type": "tool_use", "id": call_id, "name": tool_name(call.name), "input": arguments}
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
            said = outgoing(result.text)
            if result.is_error:
                block["is_error"] = True
                said = said if said.strip() else "Error"
            content: str | list[dict[str, Any]] = said
            if result.pictures:
                texts = [{"type": "text", "text": said}] if said.strip() else []
                content = [*texts, *map(_anthropic_picture, result.pictures)]
            results.append(block | {"content": content} if said.strip() or result.pictures else block)
        yield from (("user", result) for result in results)


def _anthropic_picture(picture: Picture) -> dict[str, Any]:
    source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return {"type": "document" if picture.media_type == PDF else "image", "source": source}


def render_gemini(prompt: Prompt) -> dict[str, Any]:
    """Return ``{"systemInstruction"?, "contents": […], "tools"?}``, in the names of Gemini's REST interface.

    Neighbours of one role are one content, so that a call follows a user's turn directly; results are a content of
    their own, as many as there were calls. A longer history may add parts to the last content and adds contents.
    """
    system, messages = system_apart(prompt.messages)
    payload: dict[str, Any] = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    items = user_first(_gemini_parts(messages), {"text": OPENING})
    payload["contents"] = [
        {"role": role, "parts": [part for _, part in parts]}
        for (role, _), parts in groupby(items, key=lambda item: (item[0], "functionResponse" in item[1]))
    ]
    if prompt.tools:
        # Not "parameters", which accepts only a subset of JSON Schema.
        declarations = [
            described(tool, "parametersJsonSchema") | {"name": _gemini_name(tool.name)} for tool in prompt.tools
        ]
        payload["tools"] = [{"functionDeclarations": declarations}]
    return payload


def _gemini_parts(messages: Sequence[ContextMessage]) -> Iterator[tuple[str, dict[str, Any]]]:
    ids = CallIds()
    for message in messages:
        role, text = spoken_by_two(message)
        signature = _signature(message)
        if text or signature:
            yield _GEMINI_ROLES[role], {"text": text, **signature}
        yield from ((_GEMINI_ROLES[role], _gemini_picture(picture)) for picture in message.pictures)
        responses: list[dict[str, Any]] = []
        for call, result in answered_calls(message):
            named = {"id": ids.new(call.id), "name": _gemini_name(call.name)}
            signature = _signature(message, call.id) or ({} if responses else {"thoughtSignature": SIGNATURE})
            yield "model", {"functionCall": {**named, "args": arguments_object(call.arguments)}, **signature}
            response = {"error" if result.is_error else "output": outgoing(result.text)}
            responses.append({"functionResponse": {**named, "response": response}})
        yield from (("user", response) for response in responses)
        for _, result in answered_calls(message):
            if result.pictures:
                yield "user", {"text": RETURNED.format(name=tool_name(result.name))}
                yield from (("user", _gemini_picture(picture)) for picture in result.pictures)


def _gemini_picture(picture: Picture) -> dict[str, Any]:
    return {"inlineData": {"mimeType": picture.media_type, "data": picture.data}}


def _signature(message: ContextMessage, call_id: str = "") -> dict[str, str]:
    given = given_back(message, "gemini", call_id)
    found = [value["thoughtSignature"] for kind, value in given if kind == _SIGNATURE and "thoughtSignature" in value]
    return {"thoughtSignature": found[-1]} if found and isinstance(found[-1], str) else {}


def _gemini_name(name: str) -> str:
    known = tool_name(name)
    return known if known[0].isalpha() or known[0] == "_" else f"_{known}"[:LONGEST_NAME]


# Renderers by the names that ``GET …/context?format=`` knows.
RENDERERS: Mapping[str, Callable[[Prompt], dict[str, Any]]] = {
    "openai_chat": render_chat,
    "openai_responses": render_responses,
    "anthropic": render_anthropic,
    "gemini": render_gemini,
}
_TAKE_AUDIO = ("openai_chat", "gemini")  # Of others the text that names the file is all.


def render(prompt: Prompt, *, provider: str = "openai_chat") -> dict[str, Any]:
    """:raises InvalidRequest: there is no such format."""
    if provider not in RENDERERS:
        raise InvalidRequest(f"no format {provider!r}; known: {', '.join(RENDERERS)}", field="format")
    if provider not in _TAKE_AUDIO:
        prompt = _with_pictures(prompt, lambda them: tuple(one for one in them if one.media_type not in AUDIO_FORMATS))
    return RENDERERS[provider](prompt)


def digest(payload: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of the canonical JSON of a payload: keys sorted, no spaces, UTF-8."""
    try:
        canonical = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # A lone surrogate, or an integer beyond 64 bits.
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        canonical = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(canonical).hexdigest()


# What stands before an answer in a prompt, as a digest: thinking that is bound to it goes back after nothing else.


def prompt_digest(payload: Mapping[str, Any]) -> str:
    """Return the digest of the tools and messages of a payload in litellm's form; marks for a cache change nothing."""
    state = _of_tools([*payload.get("tools", ()), *payload.get("provider_tools", ())])
    for message in payload["messages"]:
        state = _then(state, message)
    return state[:DIGEST_LENGTH]


def answers_after_other_prompts(prompt: Prompt, provider_tools: Sequence[Mapping[str, Any]] = ()) -> frozenset[str]:
    """Return the messages whose opaque parts answered another prompt than what stands before them here.

    What was made after one of them was made with it before it, and so is among them too.
    """
    if not any(message.opaque for message in prompt.messages):
        return frozenset()
    moved: set[str] = set()
    state = _of_tools([*chat_tools(prompt.tools), *provider_tools])
    for source, group in groupby(prompt.messages, key=source_of_message):
        said = list(group)
        given = [opaque for message in said for opaque in message.opaque if not opaque.is_ran]
        if any(opaque.part.prompt != state[:DIGEST_LENGTH] for opaque in given):
            moved.add(source)
            said = only_ran(said)
        for message in said:
            for one in chat_messages(message, in_results=prompt.in_results):
                state = _then(state, one)
    return frozenset(moved)


def _of_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    return digest({"tools": [_without_mark(tool) for tool in tools]})


def _then(state: str, message: Mapping[str, Any]) -> str:
    return digest({"before": state, "message": _without_mark(message)})


def _without_mark(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != "cache_control"}
