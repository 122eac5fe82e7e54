"""What a request of OpenAI's Chat Completions says, and which of its parameters are refused or left unused.

Refused is what would give an answer of another kind than the one that was asked for; a client must not take one for
the other. What only flavours an answer is left unused, and the answer's headers name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.messages import Message, Part, StoredMessage, TextPart, ToolPart, ToolState, text_of

SaidRole = Literal["system", "user", "assistant", "tool"]

_NAME = re.compile(r"[a-z_]{1,40}")
USED = {
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "metadata", "user"),
    "n",
}
"""Parameters that are read."""
OF_ONE_TURN = {"max_tokens", "max_completion_tokens"}
"""Likewise, where a call is a session of its own: in a session the answers have the session's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a request."""

    role: SaidRole
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """Of a tool's message: the call that it answers."""
    place: int = 0
    """Its index in the request, for errors that name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One request, read."""

    model: str
    messages: tuple[Said, ...]
    tools: tuple[ToolSpec, ...] = ()
    """Those that the caller runs."""
    session: str = ""
    """A session's id, ``new``, or nothing: the call is a session of its own, of one turn."""
    user: str = ""
    """Whose session it is, where the site maps users to sessions."""
    max_output_tokens: int = 0
    """0: not said."""
    unused: tuple[str, ...] = ()
    """Parameters that were sent and change nothing here."""


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ([], {}, "")  # a 0 is something that was asked


_ACCEPTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n": (lambda value: value in (None, 1), "one answer is made; send n=1"),
    "logprobs": (_is_off, "probabilities of tokens are not known here"),
    "top_logprobs": (lambda value: value in (None, 0), "probabilities of tokens are not known here"),
    "response_format": (
        lambda value: value is None or (isinstance(value, dict) and value.get("type") == "text"),
        "answers are text; ask for JSON in words, or offer a tool",
    ),
    "modalities": (lambda value: value in (None, ["text"]), "answers are text"),
    "audio": (_is_off, "answers are text"),
    "stop": (_is_off, "answers are not cut at a text"),
    "logit_bias": (_is_off, "the choice of tokens cannot be changed"),
    "functions": (_is_off, "send tools"),
    "function_call": (_is_off, "send tools and tool_choice"),
    "web_search_options": (_is_off, "there is no web search"),
    "tool_choice": (lambda value: value in (None, "auto", "none"), 'the model chooses; send "auto" or "none"'),
}
"""What a parameter may be, and what to say when it is something else."""


def check_supported(parameters: Mapping[str, Any]) -> None:
    """:raises InvalidRequest: a parameter asks for an answer of a kind that is not made here; names it."""
    for name, (is_accepted, hint) in _ACCEPTED.items():
        if not is_accepted(parameters.get(name)):
            raise InvalidRequest(f"{name} is not supported with this value: {hint}", field=name)


def unused(parameters: Mapping[str, Any], *, in_session: bool) -> tuple[str, ...]:
    """The parameters that were sent, are not refused and change nothing, in order of their names; at most 20."""
    used = USED | {*_ACCEPTED} | (set() if in_session else OF_ONE_TURN)
    sent = sorted(name for name, value in parameters.items() if name not in used and not _is_off(value))
    # Others are no parameters of anybody, and could not be named in a header.
    return tuple(name for name in sent if _NAME.fullmatch(name))[:20]


def text_of_content(content: str | Sequence[Mapping[str, Any]] | None, *, field: str) -> str:
    """The text of a message's content, its parts divided by line breaks.

    :raises InvalidRequest: a part is no text; says which.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_text_of_part(part, f"{field}.{index}") for index, part in enumerate(content))


def _text_of_part(part: Mapping[str, Any], field: str) -> str:
    kind = part.get("type")
    text = part.get("refusal" if kind == "refusal" else "text")
    if kind not in ("text", "refusal") or not isinstance(text, str):
        raise InvalidRequest(
            f"{field} is not a text part; images, sound and files are not taken here", field=f"{field}.type"
        )
    return text


# Which messages of a request are new to the record.
#
# A client may send its whole history with each request, the newest part of it, or only what is new. The rule, in order:
#
# 1. What follows the last assistant message is new: that message is the newest thing the client knows that was answered.
# 2. Before it, an exchange (what was asked, and everything up to the next question) is known when the record has its
#    question or one of its answers or calls. What follows the last known exchange happened elsewhere, and is new too.
# 3. If the record knows none of them, they are taken for known in other words: a client that cuts or rewords what it
#    holds must not make the record twice as long. Of an empty session nothing is known, so all of it is new.
#
# The record is never changed by what a client leaves out or words in another way.

UNANSWERED = "The caller's history holds no result of this call."


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the record's newest messages say, to compare with."""

    texts: frozenset[str] = frozenset()
    """Of questions and answers, in ``plain`` form."""
    call_ids: frozenset[str] = frozenset()
    is_empty: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What of a request is to be written down, and what it asks."""

    system_prompt: str | None = None
    """What stands before everything else; ``None`` when the request says nothing of the kind."""
    earlier: tuple[Message, ...] = ()
    """What happened elsewhere, and what the system said, before the question."""
    message: str | None = None
    """The question; ``None`` when tool results are all there is."""
    results: tuple[Said, ...] = field(default=())
    """Results of calls that the record waits for."""


def known_of(messages: Sequence[StoredMessage]) -> Known:
    """What the newest messages of a session know, given in order."""
    texts = {_plain(_spoken(message)) for message in messages}
    texts |= {_plain(joined(map(_spoken, turn))) for turn in _answers_by_turn(messages)}
    parts = [stored for message in messages for stored in message.parts if isinstance(stored.part, ToolPart)]
    return Known(
        texts=frozenset(texts - {""}), call_ids=frozenset(stored.id for stored in parts), is_empty=not messages
    )


def find_news(said: Sequence[Said], known: Known) -> News:
    """What of a request is new to a session that knows this much.

    :raises InvalidRequest: there is nothing to answer, or tool results do not fit; names the place.
    """
    opening = next((index for index, one in enumerate(said) if one.role != "system"), len(said))
    system = joined(one.text for one in said[:opening]) if opening else None
    body = said[opening:]
    asked = 1 + max((index for index, one in enumerate(body) if one.role == "assistant"), default=-1)
    earlier = _told_elsewhere(body[:asked], known)
    news = _read_question(body[asked:], earlier)
    return replace(news, system_prompt=system)


def joined(texts: Iterable[str]) -> str:
    """Several texts as one, divided by empty lines."""
    return "\n\n".join(text for text in texts if text)


def _plain(text: str) -> str:
    """A text without regard to white space, which clients trim."""
    return " ".join(text.split())


def _spoken(message: StoredMessage) -> str:
    return joined(text_of((stored.part,)) for stored in message.parts)


def _answers_by_turn(messages: Sequence[StoredMessage]) -> Iterable[list[StoredMessage]]:
    turns: dict[str | None, list[StoredMessage]] = {}
    for message in messages:
        if message.role == "assistant":
            turns.setdefault(message.turn_id, []).append(message)
    return turns.values()


def _told_elsewhere(history: Sequence[Said], known: Known) -> list[Said]:
    """The end of a history that the record has not."""
    if known.is_empty:
        return list(history)
    exchanges = _exchanges(history)
    place = max((index for index, one in enumerate(exchanges) if _is_known(one, known)), default=len(exchanges))
    return [said for exchange in exchanges[place + 1 :] for said in exchange]


def _exchanges(history: Sequence[Said]) -> list[list[Said]]:
    """A question, or several in a row, with everything up to the next one."""
    exchanges: list[list[Said]] = []
    for index, said in enumerate(history):
        begins = said.role in ("user", "system") and (index == 0 or history[index - 1].role in ("assistant", "tool"))
        if begins or not exchanges:
            exchanges.append([])
        exchanges[-1].append(said)
    return exchanges


def _is_known(exchange: Sequence[Said], known: Known) -> bool:
    spoken = {_plain(said.text) for said in exchange if said.role in ("user", "assistant")}
    spoken.add(_plain(joined(said.text for said in exchange if said.role == "user")))
    calls = {call.id for said in exchange for call in said.tool_calls}
    return not known.texts.isdisjoint(spoken) or not known.call_ids.isdisjoint(calls)


def _read_question(tail: Sequence[Said], earlier: Sequence[Said]) -> News:
    """What follows the last assistant message: results, then what the system and the user say."""
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
    questions = [said.text for said in rest if said.role == "user"]
    told = [*earlier, *(said for said in results if not awaited), *(said for said in rest if said.role == "system")]
    if not tail:
        raise InvalidRequest(
            "the last message must be the user's, or a tool's: there is nothing to answer", field="messages"
        )
    return News(earlier=_as_messages(told), message=joined(questions) if questions else None, results=awaited)


def _as_messages(told: Sequence[Said]) -> tuple[Message, ...]:
    """Calls with the results that directly follow them: ids are unique within one message only."""
    messages = []
    for index, said in enumerate(told):
        if said.role == "tool":
            _check_answers(said, told[:index])
        else:
            results = {one.tool_call_id: one for one in takewhile(_is_result, told[index + 1 :])}
            messages.append(Message(role=said.role, parts=tuple(_parts(said, results))))
    return tuple(messages)


def _is_result(said: Said) -> bool:
    return said.role == "tool"


def _check_answers(result: Said, before: Sequence[Said]) -> None:
    asked = next((said for said in reversed(before) if said.role != "tool"), None)
    if asked is None or result.tool_call_id not in [call.id for call in asked.tool_calls]:
        raise InvalidRequest(
            "this message answers no call of the message before it", field=f"messages.{result.place}.tool_call_id"
        )


def _parts(said: Said, results: Mapping[str, Said]) -> Iterable[Part]:
    if said.text:
        yield TextPart(text=said.text)
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
