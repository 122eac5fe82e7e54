"""Requests that go on to a provider unchanged: what one says, which session it may belong to, and what of it is new.

Nothing is refused here but what is no JSON object: a client's message that cannot be read is the provider's to refuse, and
a block that is not known here is recorded by its type. The bytes themselves are kept with the call (``difference``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Literal

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import Message, Part, StoredMessage, TextPart, ToolPart, ToolState, text_of
from mnesis_core.text import refuse_constant
from mnesis_core.turns.requests import SESSION_FIELD, UNANSWERED, joined

ASSISTANT, SYSTEM, TOOL, USER = "assistant", "system", "tool", "user"
LONGEST_NAME = 500  # characters of a session's name in a request; longer ones are not read
MOST_MODEL = 200
_SPACE = re.compile(r"[ \t\n\r]*")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SESSION_OF_USER = re.compile(r"_session_([0-9A-Za-z-]{8,64})$")  # the end of ``user_id`` as Claude Code writes it
# The first line of Claude Code's system prompt; its version is another one after the client has compacted the conversation.
_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
_ADDED = re.compile(r"\s*<(system-reminder|environment_context|user_instructions)>")
# Blocks and items that the record has no words for: a provider's own, which it gets back in the next request.
_UNSAID = {
    *("thinking", "redacted_thinking", "reasoning", "item_reference", "server_tool_use", "tool_reference"),
    *("web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools", "compaction"),
}


class Protocol(StrEnum):
    MESSAGES = "messages"  # Anthropic's
    COMPLETIONS = "chat_completions"  # OpenAI's
    RESPONSES = "responses"  # OpenAI's


RESPONSE = "response"  # The kind of the opaque part that holds a provider's id of an answer.


def response_data(id: str) -> str:
    """Return what the part of an answer of Responses holds, by which a request that continues it is found."""
    return json.dumps({"id": id})


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a request, or one result of a tool, whatever the message that brings it."""

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""  # of a result
    is_error: bool = False

    @property
    def key(self) -> str:
        """What it is recognised by in the record, where white space may differ."""
        if self.role == TOOL:
            return f"{TOOL} {self.call_id}"
        return " ".join([self.role, *self.text.split(), *(call.id for call in self.calls)])


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequest:
    protocol: Protocol
    model: str  # as the client names it
    text: str  # the body, exactly
    system: str
    said: tuple[Said, ...]
    name: str = ""  # what the client calls its session; empty where it does not
    after: str = ""  # the provider's id of the answer that it continues
    is_stream: bool = False
    max_output_tokens: int | None = None
    model_at: tuple[tuple[int, int], ...] = ()

    def with_model(self, name: str) -> str:
        """Return the body with another model's name in the place of the client's, and nothing else changed."""
        pieces, at = [], 0
        for begin, end in self.model_at:
            pieces += [self.text[at:begin], json.dumps(name)]
            at = end
        return "".join([*pieces, self.text[at:]])

    def has_system_prompt(self, prompt: str) -> bool:
        """Return whether a session's system prompt is that of this request, whatever the client's version."""
        return _BILLING.sub("", prompt) == _BILLING.sub("", self.system)

    def beginnings(self, owner_id: int) -> list[str]:
        """Return for each message a digest of all up to it, by which a later request that begins so is found."""
        state, found = sha256(f"{owner_id} {self.protocol}".encode()).digest(), []
        for said in self.said:
            state = sha256(state + _told(said)).digest()
            found.append(state.hex())
        return found


def _told(said: Said) -> bytes:
    """Return what ``json.dumps`` writes of a message, in a fifth of its time: the digests of long histories are made of it."""
    calls = ", ".join([f"[{_quoted(call.id)}, {_quoted(call.name)}]" for call in said.calls])
    return f"[{_quoted(said.role)}, {_quoted(said.text.strip())}, {_quoted(said.call_id)}, [{calls}]]".encode()


def read_request(protocol: Protocol, data: bytes, headers: Mapping[str, str]) -> GatewayRequest:
    """Return a request as a value.

    :param headers: by their names in lower case
    :raises InvalidRequest: the body is no JSON object, or names no model
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not UTF-8.") from None
    body, places = _read_members(text)
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MOST_MODEL:
        raise InvalidRequest("model must be the name of a model", field="model")
    system, said = _READERS[protocol](body)
    asked = next(
        (body[name] for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body), 0
    )
    after = body.get("previous_response_id")
    return GatewayRequest(
        protocol=protocol,
        model=model,
        text=text,
        system=system,
        said=tuple(said),
        name=_name_of(body, headers),
        after=after if isinstance(after, str) else "",
        is_stream=body.get("stream") is True,
        max_output_tokens=asked if type(asked) is int and 0 < asked <= 10_000_000 else None,
        model_at=tuple(places),
    )


def _read_members(text: str) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Return the object that a text holds, and where the values of ``model`` stand in it."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    body: dict[str, Any] = {}
    places = []
    try:
        at = _expect(text, "{", 0) + 1
        end = _after_space(text, at)
        while text[end : end + 1] != "}":
            key, at = decoder.raw_decode(text, _expect(text, '"', at))
            begin = _after_space(text, _expect(text, ":", at) + 1)
            body[key], at = decoder.raw_decode(text, begin)
            places += [(begin, at)] if key == "model" else []
            end = _expect(text, ",}", at)
            at = end + 1
        rest = _after_space(text, end + 1)
        if rest != len(text):
            raise json.JSONDecodeError("Extra data", text, rest)
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        where = f"at line {error.lineno}, column {error.colno}"
        raise InvalidRequest(f"The body is not a JSON object: {error.msg} {where}.") from None
    except ValueError as error:
        raise InvalidRequest(f"The body cannot be read: {error}.") from None
    return body, places


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, wanted: str, at: int) -> int:
    """Return where one of these characters stands, after white space."""
    at = _after_space(text, at)
    if text[at : at + 1] not in tuple(wanted):
        raise json.JSONDecodeError(f"Expecting {' or '.join(wanted)}", text, at)
    return at


# Which session a request belongs to.

NAMING_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "conversation_id", "x-session-id")


def _name_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    conversation = body.get("conversation")
    conversation = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    cache_key = body.get("prompt_cache_key")
    is_own = isinstance(cache_key, str) and _UUID.fullmatch(cache_key)  # others are one key for many conversations
    found = (
        *(headers.get(name) for name in NAMING_HEADERS),
        *(metadata.get(name) for name in (SESSION_FIELD, "session_id")),
        _session_of_user(metadata.get("user_id")),
        conversation,
        cache_key if is_own else "",
    )
    return next((name for name in found if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME), "")


def _session_of_user(user_id: Any) -> Any:
    """Return the session in ``metadata.user_id`` as Claude Code writes it: at its end, or in an object."""
    if not isinstance(user_id, str):
        return ""
    if found := _SESSION_OF_USER.search(user_id):
        return found[1]
    try:
        held = json.loads(user_id)
    except (ValueError, RecursionError):
        return ""
    return held.get("session_id") if isinstance(held, dict) else ""


def program_of(user_agent: str) -> str:
    """Return the program that a ``User-Agent`` names, without its version: ``claude-cli``; an empty text where it names none."""
    found = re.match(r"[A-Za-z][A-Za-z0-9_.-]{0,39}", user_agent)
    return found[0] if found else ""


# What a request says.


def _read_messages(body: Mapping[str, Any]) -> tuple[str, Iterable[Said]]:
    said = []
    for message in _objects(body.get("messages")):
        role, content = str(message.get("role", USER)), message.get("content")
        if isinstance(content, str):  # as most are, and there may be thousands
            said += [Said(role=role, text=content)] if content else []
            continue
        blocks = _objects(content)
        said += [
            Said(
                role=TOOL,
                text=_text(block.get("content"), "\n"),
                call_id=str(block.get("tool_use_id", "")),
                is_error=block.get("is_error") is True,
            )
            for block in blocks
            if block.get("type") == "tool_result"
        ]
        calls = tuple(_call(block, "id", block.get("input")) for block in blocks if block.get("type") == "tool_use")
        text = _text([block for block in blocks if block.get("type") not in ("tool_result", "tool_use")])
        if text or calls:
            said.append(Said(role=role, text=text, calls=calls))
    return _text(body.get("system")), said


def _read_completions(body: Mapping[str, Any]) -> tuple[str, Iterable[Said]]:
    said = []
    for message in _objects(body.get("messages")):
        role = {"developer": SYSTEM, "function": TOOL}.get(str(message.get("role")), str(message.get("role", USER)))
        calls = []
        for call in _objects(message.get("tool_calls")):
            inner = call.get("function") if isinstance(call.get("function"), Mapping) else call.get("custom")
            inner = inner if isinstance(inner, Mapping) else {}
            calls.append(_call({**inner, "id": call.get("id")}, "id", inner.get("arguments", inner.get("input"))))
        text = joined([_text(message.get("content")), _text(message.get("refusal"))])
        call_id = str(message.get("tool_call_id") or "") if role == TOOL else ""
        if text or calls or role == TOOL:
            said.append(Said(role=role, text=text, calls=tuple(calls), call_id=call_id))
    return _with_opening("", said)


def _read_responses(body: Mapping[str, Any]) -> tuple[str, Iterable[Said]]:
    given, said = body.get("input"), list[Said]()
    for item in [{"role": USER, "content": given}] if isinstance(given, str) else _objects(given):
        kind = str(item.get("type") or "message")
        if kind == "message":
            role = {"developer": SYSTEM}.get(str(item.get("role")), str(item.get("role", USER)))
            said.append(Said(role=role, text=_text(item.get("content"))))
        elif kind.endswith("_call_output"):
            said.append(Said(role=TOOL, text=_text(item.get("output"), "\n"), call_id=str(item.get("call_id", ""))))
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            free = {name: item[name] for name in ("input", "action") if name in item}
            call = _call({"name": kind, **item}, "call_id", item.get("arguments", free))
            before = said[-1] if said and said[-1].role == ASSISTANT else None
            if before is not None:  # one answer, which the client sends back as several items
                said[-1] = replace(before, calls=(*before.calls, call))
            else:
                said.append(Said(role=ASSISTANT, calls=(call,)))
        elif kind not in _UNSAID:
            said.append(Said(role=USER, text=f"[{kind}]"))
    return _with_opening(_text(body.get("instructions")), said)


def _with_opening(system: str, said: Sequence[Said]) -> tuple[str, Sequence[Said]]:
    opening = next((place for place, one in enumerate(said) if one.role != SYSTEM), len(said))
    return joined([system, *(one.text for one in said[:opening])]), said[opening:]


_READERS = {
    Protocol.MESSAGES: _read_messages,
    Protocol.COMPLETIONS: _read_completions,
    Protocol.RESPONSES: _read_responses,
}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _objects(content)


def _text(content: Any, divider: str = "\n\n") -> str:
    texts = []
    for block in _blocks(content):
        kind, text = str(block.get("type", "")), block.get("text", block.get("refusal"))
        if isinstance(text, str):
            texts.append(text)
        elif kind not in _UNSAID:
            texts.append(f"[{kind[:100]}]")  # a picture, a document: the call's own bytes have it
    return divider.join(text for text in texts if text)


def _call(block: Mapping[str, Any], id_name: str, given: Any) -> ToolCall:
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ToolCall(id=str(block.get(id_name, "")), name=str(block.get("name", "")), arguments=arguments)


# What of it is new.


@dataclass(frozen=True, slots=True)
class Known:
    """Something that the record has, by its key and the message that holds it."""

    key: str
    message_id: str


def known_from(messages: Iterable[StoredMessage]) -> Iterator[Known]:
    """Yield what messages of the record hold, in order, as a request repeats it: each result after its call.

    An answer that came to nothing is left out, as a client leaves it out.
    """
    for message in messages:
        tools = [stored.part for stored in message.parts if isinstance(stored.part, ToolPart)]
        calls = tuple(ToolCall(id=part.tool_call_id, name=part.tool_name, arguments="") for part in tools)
        text = joined(text_of((stored.part,)) for stored in message.parts)
        if text or calls:
            yield Known(Said(role=message.role, text=text, calls=calls).key, message.id)
        for part in tools:
            if part.state in (ToolState.COMPLETED, ToolState.ERROR):
                yield Known(Said(role=TOOL, call_id=part.tool_call_id).key, message.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    said: tuple[Said, ...]
    after: str = ""  # The message that it continues, where that is not the last one.
    is_cut: bool = False  # Whether the client left out or reworded what came before.


def find_news(said: Sequence[Said], known: Sequence[Known]) -> News:
    """Return what of a request the record does not have, and where it goes on.

    The beginning that both have in common is known. A client that then says something else goes on from there, on a
    branch; one that cut or reworded what it holds is known by the newest answer that it repeats, and what it puts in the
    place of the rest is new once.
    """
    keys = [one.key for one in known]
    own = [one.key for one in said]
    pairs = zip(own, keys, strict=False)
    common = next((place for place, (ours, its) in enumerate(pairs) if ours != its), min(len(own), len(keys)))
    if common == len(keys):
        return News(said=tuple(said[common:]))
    places = {key: place for place, key in enumerate(keys) if place >= common and key.startswith(ASSISTANT)}
    anchor = next((place for place in range(len(said) - 1, common - 1, -1) if own[place] in places), None)
    answered = max((place for place, one in enumerate(said) if one.role == ASSISTANT), default=-1)
    if anchor is None and common:
        return News(said=tuple(said[common:]), after=known[common - 1].message_id)
    split = answered + 1 if anchor is None else anchor
    unknown = [one for one, key in zip(said[:split], own[:split], strict=True) if key not in keys]
    rest = list(said[split:] if anchor is None else said[anchor + 1 :])
    after = ""
    if anchor is not None:
        holder = known[places[own[anchor]]].message_id
        after = holder if holder != known[-1].message_id else ""
        has = {key for key, one in zip(keys, known, strict=True) if one.message_id == holder}
        rest = [one for one in rest if one.key not in has]  # results that the answer has already
    return News(said=(*unknown, *rest), after=after, is_cut=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """New messages as the record takes them: what others said before, results of calls that it has, and what is said now."""

    earlier: tuple[Message, ...]
    results: tuple[Said, ...]
    now: tuple[Message, ...]


def to_write(said: Sequence[Said]) -> Written:
    last = 1 + max((place for place, one in enumerate(said) if one.role == ASSISTANT), default=-1)
    calls = {call.id for one in said for call in one.calls}
    given = {one.call_id: one for one in said if one.role == TOOL}
    return Written(
        earlier=tuple(_message(one, given) for one in said[:last] if one.role != TOOL),
        results=tuple(one for one in said if one.role == TOOL and one.call_id not in calls),
        now=tuple(_message(one, given) for one in said[last:] if one.role != TOOL),
    )


def own_words(text: str) -> str:
    """Return what a person said in a message, without what their program puts before it."""
    at = 0
    while (found := _ADDED.match(text, at)) and (end := text.find(close := f"</{found[1]}>", at)) >= 0:
        at = end + len(close)
    return text[at:].strip()


def _message(said: Said, results: Mapping[str, Said]) -> Message:
    parts: list[Part] = [TextPart(text=said.text)] if said.text else []
    for call in said.calls:
        result = results.get(call.id)
        is_error = result is None or result.is_error
        text = result.text if result else UNANSWERED
        parts.append(
            ToolPart(
                tool_name=call.name,
                tool_call_id=call.id,
                input=call.arguments,
                output=None if is_error else text,
                error=text if is_error else None,
                state=ToolState.ERROR if is_error else ToolState.COMPLETED,
            )
        )
    roles: dict[str, Literal["assistant", "system"]] = {ASSISTANT: "assistant", SYSTEM: "system"}
    return Message(role=roles.get(said.role, "user"), parts=tuple(parts))


# The bytes, of which each call keeps what differs from the call before.


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    first: int  # characters that the text before has in common, from its beginning
    last: int  # and from its end
    between: str


def difference(text: str, before: str) -> Difference:
    most = min(len(text), len(before))
    first = _longest(most, lambda least, size: text[least:size] == before[least:size])
    ends = len(text), len(before)
    last = _longest(
        most - first,
        lambda least, size: text[ends[0] - size : ends[0] - least] == before[ends[1] - size : ends[1] - least],
    )
    return Difference(first=first, last=last, between=text[first : len(text) - last])


def body_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def restored(kept: Difference, before: str) -> str:
    return before[: kept.first] + kept.between + before[len(before) - kept.last :]


def _longest(most: int, is_same: Callable[[int, int], bool]) -> int:
    """Return the largest size up to which all is the same; each stretch is compared about once."""
    least = 0
    while least < most:
        size = (least + most + 1) // 2
        if is_same(least, size):
            least = size
        else:
            most = size - 1
    return least
