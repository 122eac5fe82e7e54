"""Requests of endpoints whose clients hold a history of their own, what of one is new to a session, and the answers to
them.

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal, TypeVar

from mnesis_core.errors import AnswerRefused, InvalidRequest
from mnesis_core.events import EventType
from mnesis_core.files.pictures import SentPicture, part_of_sent
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.llm.parameters import NO_PARAMETERS, Parameters
from mnesis_core.messages import (
    CitationPart,
    Message,
    Part,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StoredMessage,
    TextPart,
    ToolPart,
    ToolState,
    text_of,
)
from mnesis_core.records import TurnState, UsageRecord
from mnesis_core.text import read_json

RequestRole = Literal["system", "user", "assistant", "tool"]

NEW = "new"  # in place of a session's id
# The field of ``metadata`` in place of the header ``X-Mnesis-Session``, for clients that cannot send headers.
SESSION_FIELD = "mnesis_session"
_NAME = re.compile(r"[a-z_]{1,40}")
UNANSWERED = "The caller's history holds no result of this call."
J = TypeVar("J", dict[str, Any], list[Any])
_WEB = re.compile(r"https?://\S+")
_REASONS = {"length": "length", "max_tokens": "length", "content_filter": "content_filter", "safety": "content_filter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMessage:
    role: RequestRole
    text: str = ""
    refusal: str = ""  # The assistant's words when it refused.
    pictures: tuple[SentPicture, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    # By the ids of calls, what their provider encrypted of the reasoning that led to them.
    reasoned: Mapping[str, tuple[ProviderPart, ...]] = field(default_factory=dict)
    tool_call_id: str = ""
    is_error: bool = False  # of a tool's result: it says what went wrong
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    origin: str = "openai"  # The protocol; sessions of users and idempotency keys are found within it.
    model: str
    messages: tuple[RequestMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    session: str = ""  # A session's id, ``new``, or empty: the call is a session of its own, of one turn.
    user: str = ""
    parameters: Parameters = NO_PARAMETERS
    unused: tuple[str, ...] = ()  # Parameters that were sent and have no effect.
    after: str = ""  # The message that it continues; empty for the last one of the session's chosen branch.
    may_change_model: bool = False  # Whether this turn may have another model than its session.
    repeated: Mapping[str, Any] = field(default_factory=dict)  # What its answer repeats and nothing here reads.


def is_off(value: Any) -> bool:
    """Return whether a parameter that was sent asks for nothing; a 0 is something that was asked."""
    return value is None or value is False or value in ([], {}, "")


def unused_names(parameters: Mapping[str, Any], used: Collection[str]) -> tuple[str, ...]:
    """Return the parameters that were sent and are not among ``used``, sorted; at most 20."""
    sent = sorted(name for name, value in parameters.items() if name not in used and not is_off(value))
    # Other names could not be written in a header.
    return tuple(name for name in sent if _NAME.fullmatch(name))[:20]


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

    @property
    def sent(self) -> tuple[SentPicture, ...]:
        """Every picture in it."""
        of_results = (picture for said in self.results for picture in said.pictures)
        return (*self.pictures, *self.earlier_pictures, *of_results)


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


def with_pictures(diff: RequestDiff, found: Mapping[SentPicture, SentPicture]) -> RequestDiff:
    """Return what is new with other pictures in place of those of them that were found."""

    def of(sent: Iterable[SentPicture]) -> tuple[SentPicture, ...]:
        return tuple(found.get(one, one) for one in sent)

    return replace(
        diff,
        pictures=of(diff.pictures),
        earlier_pictures=of(diff.earlier_pictures),
        results=tuple(replace(said, pictures=of(said.pictures)) for said in diff.results),
    )


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
    return RequestDiff(
        earlier=messages_of(told),
        message=joined(said.text for said in questions) if questions else None,
        pictures=tuple(picture for said in questions for picture in said.pictures),
        earlier_pictures=tuple(picture for said in told for picture in said.pictures),
        results=awaited,
    )


def messages_of(told: Sequence[RequestMessage]) -> tuple[Message, ...]:
    """Return what was said elsewhere as messages, each call with its result.

    :raises InvalidRequest: a result answers no call of the message before it; names the place
    """
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
    return tuple(messages)


def _parts(said: RequestMessage, results: Mapping[str, RequestMessage]) -> Iterable[Part]:
    if said.text:
        yield TextPart(text=said.text)
    yield from (part_of_sent(picture, source=picture.name) for picture in said.pictures)
    if said.refusal:
        yield RefusalPart(text=said.refusal)
    for call in said.tool_calls:
        result = results.get(call.id)
        yield from said.reasoned.get(call.id, ())
        yield ToolPart(
            tool_name=call.name,
            tool_call_id=call.id,
            input=call.arguments,
            output=result.text if result and not result.is_error else None,
            error=UNANSWERED if result is None else result.text if result.is_error else None,
            state=ToolState.COMPLETED if result and not result.is_error else ToolState.ERROR,
        )
        for picture in result.pictures if result else ():
            yield part_of_sent(picture, source=picture.name, tool_call_id=call.id)


# Answers of turns to requests: the whole of one, and the text of a running one as it comes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    turn_id: str
    session_id: str
    model: str
    created: int  # Seconds since 1970.


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the model's thinking, among pieces of text."""

    text: str


SpokenPart = TextPart | ReasoningPart


@dataclass(frozen=True, slots=True)
class CodedPicture:
    """A picture that a model made."""

    media_type: str
    data: str  # in base64

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of a turn to a request, up to its end or to calls that the caller has to run."""

    head: Head
    text: str
    parts: tuple[SpokenPart, ...] = ()  # The text with the model's thinking, in order.
    citations: tuple[CitationPart, ...] = ()  # with their places in this text
    pictures: tuple[CodedPicture, ...] = ()
    ran: tuple[ProviderToolPart, ...] = ()  # Tools that the model's provider ran.
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # Calls that the caller runs, by the ids with which it answers.
    finish_reason: str
    stop_sequence: str | None = None  # the stop text at which it ended, where the provider tells which
    state: str
    error_code: str = ""  # Why the turn has ended, where that is not its answer.
    usage: UsageRecord
    encrypted: tuple[str, ...] = ()  # Of its last step, what OpenAI encrypted of the reasoning that led to it.
    cache_write_1h: int = 0  # How many of the tokens written to the cache it keeps for an hour.

    def ours(self) -> dict[str, str]:
        """Return what no provider has, which an answer has beside its protocol's fields."""
        code = {"code": self.error_code} if self.error_code else {}
        return {"session_id": self.head.session_id, "turn_id": self.head.turn_id, "state": self.state, **code}


def sources_in(parts: Iterable[Part]) -> tuple[CitationPart, ...]:
    """Return the sources that stand behind texts, with places in the text that these come to (``requests.joined``)."""
    found: list[CitationPart] = []
    begin = end = 0
    for part in parts:
        if isinstance(part, TextPart) and part.text:
            begin = end + 2 if end else 0
            end = begin + len(part.text)
        elif isinstance(part, CitationPart):
            is_placed = 0 <= part.start < part.end <= end - begin
            place = (part.start + begin, part.end + begin) if is_placed else (0, 0)
            found.append(replace(part, start=place[0], end=place[1]))
    return tuple(found)


def web_address(url: str) -> str:
    """Return the address of a page on the web, or an empty text for what a program might run instead of opening it."""
    return url if _WEB.fullmatch(url) else ""


def written_json(text: str, kind: type[J]) -> J:
    """Return what a model or its provider wrote as JSON, or an empty value where it is nothing of this kind."""
    try:
        value = read_json(text)
    except InvalidRequest:
        return kind()
    return value if isinstance(value, kind) else kind()


def finish_reason(state: str, said: str, *, has_calls: bool, error_code: str = "", refusal: str = "") -> str:
    if has_calls:
        return "tool_calls"
    if error_code == AnswerRefused.code:
        # OpenAI's models stop when they have refused in words; what they did not say was stopped by a filter.
        return "stop" if refusal else "content_filter"
    if state == TurnState.INCOMPLETE:
        return "length"
    return _REASONS.get(said.lower(), "stop")


def pieces_of(parts: Iterable[SpokenPart]) -> Iterator[str | Thought]:
    """Yield what ``Speech`` makes of the same parts while they come."""
    begun = set()
    for part in parts:
        if part.text:
            text = f"\n\n{part.text}" if part.type in begun else part.text
            yield Thought(text) if isinstance(part, ReasoningPart) else text
            begun.add(part.type)


Place = tuple[str, int]  # A message's id and the index of a part in it.


class Speech:
    """The text of one turn's answers, which only grows, and beside it the model's thinking, from the frames of its session.

    Empty lines divide the parts of each.

    Deltas may run ahead of the event that creates their message; they are kept until that arrives.
    """

    def __init__(self) -> None:
        self._sent: dict[Place, int] = {}
        self._known: set[str] = set()
        self._begun: set[str] = set()
        self._waiting: dict[str, list[Mapping[str, Any]]] = defaultdict(list)

    def take(self, frame: Mapping[str, Any]) -> list[str | Thought]:
        if frame["type"] == EventType.MESSAGE_CREATED:
            message_id = frame["data"]["message_id"]
            self._known.add(message_id)
            return [piece for delta in self._waiting.pop(message_id, []) for piece in self._add(delta)]
        if frame["type"] != "delta" or frame["part_type"] not in (TextPart.type, ReasoningPart.type):
            return []
        if frame["message_id"] not in self._known:
            self._waiting[frame["message_id"]].append(frame)
            return []
        return self._add(frame)

    def _add(self, delta: Mapping[str, Any]) -> list[str | Thought]:
        place, kind = (delta["message_id"], delta["part_index"]), delta["part_type"]
        new: str = delta["text"][self._sent.get(place, 0) - delta["offset"] :]
        if not new:
            return []
        text = f"\n\n{new}" if kind in self._begun and place not in self._sent else new
        self._begun.add(kind)
        self._sent[place] = delta["offset"] + len(delta["text"])
        return [Thought(text) if kind == ReasoningPart.type else text]
