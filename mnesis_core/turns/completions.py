"""OpenAI's Chat Completions: what a request says, and how an answer reads, whole, as chunks of a stream, or as an error.

A parameter is refused if ignoring it would give another kind of answer than the client asked for. A parameter that only
flavours an answer is left unused, and the answer's headers name it.

A client may send its whole history with each request, the newest part of it, or only what is new. The rule, in order:

1. What follows the last assistant message is new: that message is the newest answer that the client knows.
2. Before it, an exchange (what was asked, and everything up to the next question) is known when the record has its
   question or one of its answers or calls. What follows the last known exchange happened elsewhere, and is new too.
3. If the record knows none of them, they are taken for known in other words: a client that cuts or rewords what it
   holds must not make the record twice as long. Of an empty session nothing is known, so all of it is new.

The record is never changed by what a client leaves out or words in another way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from mnesis_core.errors import InvalidRequest, MnesisError
from mnesis_core.events import EventType
from mnesis_core.files.pictures import SentPicture, read_data_url
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.llm.parameters import NAMES, NO_PARAMETERS, Parameters, read_parameters
from mnesis_core.messages import (
    ImagePart,
    Message,
    Part,
    RefusalPart,
    StoredMessage,
    TextPart,
    ToolPart,
    ToolState,
    text_of,
)
from mnesis_core.records import TurnState, UsageRecord
from mnesis_core.text import printable

RequestRole = Literal["system", "user", "assistant", "tool"]

UNANSWERED = "The caller's history holds no result of this call."
_NAME = re.compile(r"[a-z_]{1,40}")
# Our names of the parameters that are read, and OpenAI's.
PARAMETERS = {
    **{name: name for name in NAMES if name not in ("effort", "max_output_tokens")},
    "effort": "reasoning_effort",
    "max_output_tokens": "max_completion_tokens",
}
USED = {"model", "messages", "stream", "stream_options", "tools", "metadata", "user", "n", "max_tokens"} | {
    *PARAMETERS.values()
}
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_REASONS = {"length": "length", "max_tokens": "length", "content_filter": "content_filter", "safety": "content_filter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMessage:
    role: RequestRole
    text: str = ""
    refusal: str = ""  # The assistant's words when it refused.
    pictures: tuple[SentPicture, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    model: str
    messages: tuple[RequestMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    session: str = ""  # A session's id, ``new``, or empty: the call is a session of its own, of one turn.
    user: str = ""
    parameters: Parameters = NO_PARAMETERS
    unused: tuple[str, ...] = ()  # Parameters that were sent and have no effect.


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ([], {}, "")  # a 0 is something that was asked


# For each parameter, the accepted values, and the hint for any other.
_ACCEPTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n": (lambda value: value in (None, 1), "one answer is made; send n=1"),
    "logprobs": (_is_off, "probabilities of tokens are not known here"),
    "top_logprobs": (lambda value: value in (None, 0), "probabilities of tokens are not known here"),
    "modalities": (lambda value: value in (None, ["text"]), "answers are text"),
    "audio": (_is_off, "answers are text"),
    "logit_bias": (_is_off, "the choice of tokens cannot be changed"),
    "functions": (_is_off, "send tools"),
    "function_call": (_is_off, "send tools and tool_choice"),
    "web_search_options": (_is_off, "there is no web search"),
}


def check_supported(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that ask for a kind of answer that is not supported.

    :raises InvalidRequest: names the parameter
    """
    for name, (is_accepted, hint) in _ACCEPTED.items():
        if not is_accepted(parameters.get(name)):
            raise InvalidRequest(f"{name} is not supported with this value: {hint}", field=name)


def read_asked(parameters: Mapping[str, Any]) -> Parameters:
    """Return what a request asks of the model, from its parameters by OpenAI's names.

    :raises InvalidRequest: one is out of its bounds; names it
    """
    given = {name: parameters.get(said) for name, said in PARAMETERS.items()}
    if given["max_output_tokens"] is None:
        given["max_output_tokens"] = parameters.get("max_tokens")
    return read_parameters(given, path="", called=PARAMETERS)


def unused(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters that were sent, are not refused and have no effect, sorted by name; at most 20."""
    used = USED | {*_ACCEPTED}
    sent = sorted(name for name, value in parameters.items() if name not in used and not _is_off(value))
    # Other names could not be written in a header.
    return tuple(name for name in sent if _NAME.fullmatch(name))[:20]


def read_content(
    content: str | Sequence[Mapping[str, Any]] | None, *, field: str, may_show: bool = False
) -> tuple[str, tuple[SentPicture, ...]]:
    """Return the text of a message's content, its parts divided by line breaks, and its pictures.

    :param may_show: whether the content may have pictures, as a user's may
    :raises InvalidRequest: a part is of another type, or its picture cannot be read; names it
    """
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    pictures: list[SentPicture] = []
    for index, part in enumerate(content):
        kind, place = part.get("type"), f"{field}.{index}"
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind == "image_url" and may_show:
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, Mapping) else image
            pictures.append(read_data_url(url, place=f"{place}.image_url"))
        elif kind in ("text", "refusal") and isinstance(text, str):
            texts.append(text)
        else:
            known = "text and image_url parts" if may_show else "text parts"
            raise InvalidRequest(f"{place} is of another type; {known} are taken here", field=f"{place}.type")
    return "\n".join(texts), tuple(pictures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    texts: frozenset[str] = frozenset()  # Questions and answers, with white space normalised.
    call_ids: frozenset[str] = frozenset()
    is_empty: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDiff:
    system_prompt: str | None = None  # None if the request has no system message at its beginning.
    earlier: tuple[Message, ...] = ()  # What happened elsewhere and what the system said before the question.
    message: str | None = None  # The question; None if the request holds tool results only.
    pictures: tuple[SentPicture, ...] = ()  # of the question
    # Of the earlier messages, whose parts have their names as their sources until they are files.
    earlier_pictures: tuple[SentPicture, ...] = ()
    results: tuple[RequestMessage, ...] = ()  # Results of calls that the record waits for.


def known_from(messages: Sequence[StoredMessage]) -> Known:
    answers: defaultdict[str | None, list[str]] = defaultdict(list)
    for message in messages:
        if message.role == "assistant":
            answers[message.turn_id].append(_spoken(message))
    texts = {_plain(text) for text in (*map(_spoken, messages), *map(joined, answers.values()))}
    parts = [stored for message in messages for stored in message.parts if isinstance(stored.part, ToolPart)]
    return Known(
        texts=frozenset(texts - {""}), call_ids=frozenset(stored.id for stored in parts), is_empty=not messages
    )


def diff_request(said: Sequence[RequestMessage], known: Known) -> RequestDiff:
    """Return what of a request is new to a session.

    :raises InvalidRequest: there is nothing to answer, or tool results do not fit; names the place
    """
    opening = next((index for index, one in enumerate(said) if one.role != "system"), len(said))
    system = joined(one.text for one in said[:opening]) if opening else None
    body = said[opening:]
    asked = 1 + max((index for index, one in enumerate(body) if one.role == "assistant"), default=-1)
    # An exchange is a question, or several in a row, with everything up to the next one.
    exchanges: list[list[RequestMessage]] = []
    for index, one in enumerate(body[:asked]):
        begins = one.role in ("user", "system") and (index == 0 or body[index - 1].role in ("assistant", "tool"))
        if begins or not exchanges:
            exchanges.append([])
        exchanges[-1].append(one)
    last_known = max((index for index, one in enumerate(exchanges) if _is_known(one, known)), default=len(exchanges))
    unknown = [one for exchange in exchanges[last_known + 1 :] for one in exchange]
    earlier = body[:asked] if known.is_empty else unknown
    return replace(_read_question(body[asked:], earlier), system_prompt=system)


def joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def _plain(text: str) -> str:
    # Clients trim white space.
    return " ".join(text.split())


def _spoken(message: StoredMessage) -> str:
    return joined(text_of((stored.part,)) for stored in message.parts)


def _is_known(exchange: Sequence[RequestMessage], known: Known) -> bool:
    spoken = {_plain(joined((said.text, said.refusal))) for said in exchange if said.role in ("user", "assistant")}
    spoken.add(_plain(joined(said.text for said in exchange if said.role == "user")))
    calls = {call.id for said in exchange for call in said.tool_calls}
    return not known.texts.isdisjoint(spoken) or not known.call_ids.isdisjoint(calls)


def _read_question(tail: Sequence[RequestMessage], earlier: Sequence[RequestMessage]) -> RequestDiff:
    if not tail:
        raise InvalidRequest(
            "the last message must be the user's, or a tool's: there is nothing to answer", field="messages"
        )
    calls = {call.id for said in earlier for call in said.tool_calls}
    results = [said for said in tail if said.role == "tool"]
    rest = [said for said in tail if said.role != "tool"]
    if [*tail] != [*results, *rest]:
        raise InvalidRequest("tool results come directly after the calls that they answer", field="messages")
    awaited = tuple(said for said in results if said.tool_call_id not in calls)
    if awaited and (rest or len(awaited) != len(results)):
        raise InvalidRequest(
            "send the results of a turn's calls first, and what comes next in a request of its own",
            field=f"messages.{tail[-1].place}",
        )
    questions = [said for said in rest if said.role == "user"]
    told = [*earlier, *(said for said in results if not awaited), *(said for said in rest if said.role == "system")]
    # A call's results directly follow it: ids are unique within one message only.
    messages = []
    call_ids: set[str] = set()
    for index, said in enumerate(told):
        if said.role == "tool":
            if said.tool_call_id not in call_ids:
                raise InvalidRequest(
                    "this message answers no call of the message before it", field=f"messages.{said.place}.tool_call_id"
                )
            continue
        call_ids = {call.id for call in said.tool_calls}
        answers = {one.tool_call_id: one for one in takewhile(lambda one: one.role == "tool", told[index + 1 :])}
        messages.append(Message(role=said.role, parts=tuple(_parts(said, answers))))
    return RequestDiff(
        earlier=tuple(messages),
        message=joined(said.text for said in questions) if questions else None,
        pictures=tuple(picture for said in questions for picture in said.pictures),
        earlier_pictures=tuple(picture for said in told for picture in said.pictures),
        results=awaited,
    )


def _parts(said: RequestMessage, results: Mapping[str, RequestMessage]) -> Iterable[Part]:
    if said.text:
        yield TextPart(text=said.text)
    yield from (ImagePart(source=picture.name, media_type=picture.media_type) for picture in said.pictures)
    if said.refusal:
        yield RefusalPart(text=said.refusal)
    for call in said.tool_calls:
        result = results.get(call.id)
        yield ToolPart(
            tool_name=call.name,
            tool_call_id=call.id,
            input=call.arguments,
            output=result.text if result else None,
            error=None if result else UNANSWERED,
            state=ToolState.COMPLETED if result else ToolState.ERROR,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    turn_id: str
    session_id: str
    model: str
    created: int  # Seconds since 1970.


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of a turn to a request, up to its end or to calls that the caller has to run."""

    head: Head
    text: str
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # Calls that the caller runs, by the ids with which it answers.
    finish_reason: str
    state: str
    usage: UsageRecord


def finish_reason(state: str, said: str, *, has_calls: bool) -> str:
    if has_calls:
        return "tool_calls"
    if state == TurnState.INCOMPLETE:
        return "length"
    return _REASONS.get(said.lower(), "stop")


def read_completion(answered: Answered) -> dict[str, Any]:
    refusal = printable(answered.refusal) or None
    message: dict[str, Any] = {"role": "assistant", "content": printable(answered.text), "refusal": refusal}
    if answered.tool_calls or refusal:
        message["content"] = message["content"] or None
    if answered.tool_calls:
        message["tool_calls"] = [_call(call) for call in answered.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answered.finish_reason}
    return {
        **_begin(answered.head, "chat.completion"),
        "choices": [choice],
        "usage": _usage(answered.usage),
        "mnesis": _ours(answered),
    }


def read_text(head: Head, text: str, *, is_first: bool) -> dict[str, Any]:
    delta = {"role": "assistant"} if is_first else {}
    return _chunk(head, delta | {"content": printable(text)})


def read_end(answered: Answered, *, include_usage: bool, is_first: bool) -> Iterator[dict[str, Any]]:
    role: dict[str, Any] = {"role": "assistant", "content": None} if is_first else {}
    if answered.refusal:
        yield _chunk(answered.head, role | {"refusal": printable(answered.refusal)})
        role = {}
    if answered.tool_calls:
        calls = [{"index": index, **_call(call)} for index, call in enumerate(answered.tool_calls)]
        yield _chunk(answered.head, role | {"tool_calls": calls})
        role = {}
    yield _chunk(answered.head, role, finish=answered.finish_reason) | {"mnesis": _ours(answered)}
    if include_usage:
        yield {**_begin(answered.head, "chat.completion.chunk"), "choices": [], "usage": _usage(answered.usage)}


def read_error(error: MnesisError) -> dict[str, Any]:
    invalid = error.details.get("errors") or [{}]  # of a request that its schema refused
    return {
        "error": {
            "message": printable(error.message),
            "type": _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error"),
            "code": error.code,
            "param": error.details.get("field") or invalid[0].get("field"),
            "details": error.details,
        }
    }


def _begin(head: Head, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.turn_id}", "object": kind, "created": head.created, "model": head.model}


def _chunk(head: Head, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_begin(head, "chat.completion.chunk"), "choices": [choice]}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": printable(call.name), "arguments": printable(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _ours(answered: Answered) -> dict[str, str]:
    return {"session_id": answered.head.session_id, "turn_id": answered.head.turn_id, "state": answered.state}


def _usage(usage: UsageRecord) -> dict[str, Any]:
    asked, said = usage.tokens_input or 0, usage.tokens_output or 0
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "prompt_tokens_details": {"cached_tokens": usage.tokens_cache_read or 0},
    }


Place = tuple[str, int]  # A message's id and the index of a part in it.


class Speech:
    """The text of one turn's answers, which only grows, from the frames of its session; empty lines divide its parts.

    Deltas may run ahead of the event that creates their message; they are kept until that arrives.
    """

    def __init__(self) -> None:
        self._sent: dict[Place, int] = {}
        self._known: set[str] = set()
        self._waiting: dict[str, list[Mapping[str, Any]]] = defaultdict(list)

    def take(self, frame: Mapping[str, Any]) -> str:
        if frame["type"] == EventType.MESSAGE_CREATED:
            message_id = frame["data"]["message_id"]
            self._known.add(message_id)
            return "".join(self._add(delta) for delta in self._waiting.pop(message_id, []))
        if frame["type"] != "delta" or frame["part_type"] != TextPart.type:
            return ""
        if frame["message_id"] not in self._known:
            self._waiting[frame["message_id"]].append(frame)
            return ""
        return self._add(frame)

    def _add(self, delta: Mapping[str, Any]) -> str:
        place = (delta["message_id"], delta["part_index"])
        new: str = delta["text"][self._sent.get(place, 0) - delta["offset"] :]
        if not new:
            return ""
        divider = "\n\n" if self._sent and place not in self._sent else ""
        self._sent[place] = delta["offset"] + len(delta["text"])
        return divider + new
