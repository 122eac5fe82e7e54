"""Answers of turns to requests: the whole of one, and the text of a running one as it comes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mnesis_core.errors import AnswerRefused, InvalidRequest
from mnesis_core.events import EventType
from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import CitationPart, Part, ProviderToolPart, ReasoningPart, TextPart
from mnesis_core.records import TurnState, UsageRecord
from mnesis_core.text import read_json

J = TypeVar("J", dict[str, Any], list[Any])
_WEB = re.compile(r"https?://\S+")
_REASONS = {"length": "length", "max_tokens": "length", "content_filter": "content_filter", "safety": "content_filter"}


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
