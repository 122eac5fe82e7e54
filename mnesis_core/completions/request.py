"""What a request of OpenAI's Chat Completions says, and which of its parameters are refused or left unused.

Refused is what would give an answer of another kind than the one that was asked for; a client must not take one for
the other. What only flavours an answer is left unused, and the answer's headers name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm import ToolCall, ToolSpec

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
