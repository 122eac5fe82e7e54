"""The answer of a streamed call as it arrives, its deadline, and what it proves at its end."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mnesis_core.errors import AnswerRefused, ContextWindowExceeded, ModelError, ModelReplyIncomplete, gettext_noop
from mnesis_core.llm.interface import (
    MadePicture,
    ModelSpec,
    OpaqueBlock,
    Outcome,
    ReasoningDelta,
    RefusalDelta,
    Reply,
    Request,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)
from mnesis_core.llm.parameters import LONGEST_STOP
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import CitationPart, ProviderToolPart
from mnesis_core.providers.rendering import outgoing

T = TypeVar("T")
_WORD = re.compile(r"\s*\S+\s*?(?=\s|$)|\s+")


class DeadlinePassed(Exception): ...


def words(text: str) -> list[str]:
    """Split a text into the pieces that are streamed: words with the space before them. Joined, they are the text."""
    return _WORD.findall(text)


def seconds_of(spec: ModelSpec, request: Request) -> float:
    if request.seconds is None:
        return spec.total_timeout_seconds
    return max(0.0, min(request.seconds, spec.total_timeout_seconds))


def deadline_of(spec: ModelSpec, request: Request) -> float:
    """Return when a call that begins now must have ended, by the clock of the running loop."""
    return deadline_in(seconds_of(spec, request))


def deadline_in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def before(deadline: float, awaitable: Awaitable[T]) -> T:
    """:raises DeadlinePassed: it did not arrive in time."""
    # A timeout must not be held over a yield: it would cancel the consumer of the stream.
    try:
        async with asyncio.timeout_at(deadline) as scope:
            return await awaitable
    except TimeoutError:
        if scope.expired():
            raise DeadlinePassed from None
        raise


# How an answer ends that its model or its provider did not want to give: of Claude, and of all by litellm's names.
REFUSED = ("refusal", "content_filter")
CONTEXT_FULL = "model_context_window_exceeded"  # Claude's
STOP_SEQUENCE = "stop_sequence"  # Claude's
PAUSED = "pause_turn"  # Claude's: its provider runs tools for long, and goes on when it is sent the answer so far.
LARGEST_COUNT = 2**53  # Token counts above this cannot be true, and not every database and browser can hold them.
LONGEST_ADDRESS = 2_000
MOST_CODED = 40_000_000  # Characters of Base64 of all pictures of an answer: 30 MB.
LONGEST_FINISH_REASON = 64
LONGEST_USAGE = 2_000
LONGEST_JSON_WORD = len("false")
LONGEST_CALL_ID = 128
LONGEST_CUT_ARGUMENTS = 2_000  # characters of a broken tool call that its error shows


@dataclass(slots=True, kw_only=True)
class _Fragments:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)
    opaque: list[OpaqueBlock] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PartialAnswer:
    """The part of an answer that has arrived. ``limit`` is the most characters that are taken, of all kinds together."""

    limit: int
    size: int = 0
    is_cut: bool = False  # Something was left out because of the limit.
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _refusal: list[str] = field(default_factory=list)
    _calls: list[_Fragments] = field(default_factory=list)
    _current: dict[int, _Fragments] = field(default_factory=dict)
    _waiting: list[OpaqueBlock] = field(default_factory=list)  # for the call that they stand before
    _pictures: list[str] = field(default_factory=list)
    _part: list[str] = field(default_factory=list)  # the text of the part that is being written
    _length: int = 0  # of this part
    _text_began: int = 0  # where in it the provider's own text began
    _has_moved: bool = False  # Whether what came so far cannot be given back block for block.
    _cited: list[CitationPart] = field(default_factory=list)  # by this part
    _first_at: float | None = None

    @property
    def has_begun(self) -> bool:
        return self.size > 0 or bool(self._calls)

    def add_text(self, text: str) -> list[TextDelta]:
        taken = self._take(text)
        self._text.append(taken)
        self._part.append(taken)
        self._length += len(taken)
        self._note_first(text)
        return [TextDelta(text=taken)] if taken else []

    def add_reasoning(self, text: str) -> list[ReasoningDelta]:
        taken = self._take(text)
        self._reasoning.append(taken)
        self._note_first(text)
        return [ReasoningDelta(text=taken)] if taken else []

    def add_refusal(self, text: str) -> list[RefusalDelta]:
        taken = self._take(text)
        self._refusal.append(taken)
        self._note_first(text)
        return [RefusalDelta(text=taken)] if taken else []

    def add_opaque(self, block: OpaqueBlock, *, is_of_call: bool = False) -> list[OpaqueBlock]:
        """Add what goes back to the provider; what does not fit whole is left out, since it would be refused.

        :param is_of_call: whether it belongs to the call whose pieces come next. So does all that comes after a call.
        """
        if len(self._take(block.data)) < len(block.data):
            return []
        block = replace(block, is_displaced=self._has_moved)
        if is_of_call or self._calls:
            self._waiting.append(block)
            return []
        return [block]

    def add_ran(self, part: ProviderToolPart) -> list[ProviderToolPart]:
        """Add a call that the provider ran; what does not fit whole is left out."""
        size = len(part.input) + len(part.output or part.error or "") + len(part.data)
        return [part] if len(self._take("x" * size)) == size else []

    def add_picture(self, url: Any) -> list[MadePicture]:
        """Add a picture that the model made, once: a ``data:`` URL, or Base64 alone. Addresses are not followed."""
        text = url if isinstance(url, str) else ""
        if not text or text in self._pictures:
            return []
        if text.startswith(("http:", "https:")):
            problem = "The model gave an address in place of the picture. It is not followed."
            return [MadePicture(source=text[:LONGEST_ADDRESS], problem=problem)]
        coded = text.partition("base64,")[2] if text.startswith("data:") else text
        if sum(map(len, self._pictures)) + len(coded) > MOST_CODED:
            size = len(coded) // 4 * 3
            return [MadePicture(problem=f"The picture was not kept: it has about {size:,} bytes, more than are taken.")]
        self._pictures.append(text)
        try:
            data = base64.b64decode(coded, validate=True)
        except ValueError:
            return [MadePicture(data=coded.encode(errors="replace"))]  # It is kept as what it is.
        return [MadePicture(data=data)] if data else []

    def give_back(self, block: OpaqueBlock) -> None:
        """Have a block go back before the first call, if there is one."""
        for call in self._calls[:1]:
            call.opaque.insert(0, block)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def begin_text(self) -> None:
        """Note that the provider begins another text, which may be the rest of a part."""
        self._text_began = self._length
        self._has_moved = self._has_moved or self._length > 0

    def cite(self, source: CitationPart, *, counts_bytes: bool = False) -> None:
        """Keep a source of the part that is being written until that ends, so that no sentence is cut in two.

        :param counts_bytes: whether its places are in bytes of UTF-8, as Gemini's are
        """
        start, end = source.start, source.end
        if counts_bytes:
            written = "".join(self._part).encode(errors="surrogatepass")
            start, end = (len(written[:place].decode(errors="ignore")) for place in (start, end))
        elif start == end:
            start, end = self._text_began, self._length
        else:
            start, end = start + self._text_began, end + self._text_began
        is_within = start < end <= self._length
        cited = replace(source, start=start if is_within else 0, end=end if is_within else 0)
        if cited not in self._cited and len(self._take(cited.data)) == len(cited.data):
            self._cited.append(cited)
            self._has_moved = True

    def end_part(self) -> list[CitationPart]:
        """Return the sources of the part that ends here."""
        cited, self._cited = self._cited, []
        self._part, self._length, self._text_began = [], 0, 0
        return cited

    def add_fragment(self, *, index: int, id: str, name: str, arguments: str) -> None:
        """Add a piece of a tool call. Only the first piece of a call has an id and a name."""
        self._note_first(id or name or arguments)
        call = self._current.get(index)
        # Some servers number every call 0: another id, or without ids a name after whole arguments, begins a new one.
        if call is not None and (id or call.id):
            is_new = bool(id) and id != call.id
        else:
            is_new = call is None or (bool(name and call.name) and is_json("".join(call.arguments)))
        if call is None or is_new:
            call, self._waiting = _Fragments(id=id, name="", opaque=self._waiting), []
            self._calls.append(call)
            self._current[index] = call
        call.name = call.name or name
        call.arguments.append(self._take(arguments))

    def finish(
        self,
        *,
        finish_reason: str,
        usage: Usage | None,
        request_tokens: int,
        usage_said: str = "",
        stop_sequence: Any = None,
        failure: ModelError | None = None,
    ) -> Reply:
        """Return the reply, which proves no more than what arrived.

        :param finish_reason: what the provider said; empty when it said nothing
        :param usage: what the provider counted; without it, ``request_tokens`` and an estimate are used
        :param usage_said: what it said of tokens, in its own words
        :param stop_sequence: the stop text at which it says that the answer ended; what is no text counts for nothing
        :param failure: what broke the stream, if anything did
        """
        calls, cut = self._whole_calls()
        outcome, error = self._judge(finish_reason, failure, cut)
        if usage is None:
            arguments = [piece for call in self._calls for piece in call.arguments]
            written = "".join([*self._text, *self._reasoning, *self._refusal, *arguments])
            sent = request_tokens if self.has_begun or finish_reason else 0
            usage = Usage(input_tokens=sent, output_tokens=estimate_text(written))
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            refusal="".join(self._refusal),
            # What an answer that is not whole asks for may be half of what was meant.
            tool_calls=() if error else calls,
            finish_reason=finish_reason[:LONGEST_FINISH_REASON],
            usage=usage,
            usage_said=usage_said[:LONGEST_USAGE],
            stop_sequence=stop_sequence[:LONGEST_STOP] if isinstance(stop_sequence, str) else None,
            first_at=self._first_at,
            outcome=outcome,
            error=error,
        )

    def _judge(
        self, finish_reason: str, failure: ModelError | None, cut: list[_Fragments]
    ) -> tuple[Outcome, ModelError | None]:
        if self.is_cut:
            return Outcome.INCOMPLETE, too_long(self.limit)
        # What breaks after the finish reason (the usage, the end mark) does not make the answer less whole.
        if failure and not finish_reason:
            return (Outcome.BROKEN if self.has_begun else Outcome.FAILED), failure
        if any(self._refusal) or finish_reason in REFUSED:
            return Outcome.INCOMPLETE, AnswerRefused()
        if finish_reason == CONTEXT_FULL:
            return Outcome.INCOMPLETE, ContextWindowExceeded(FILLED)
        if cut:
            name, arguments = cut[0].name, "".join(cut[0].arguments)
            text = gettext_noop(
                "The call of the tool '%(name)s' broke off: its arguments are not whole JSON. It was not run."
            )
            details = {"tool_name": name, "arguments": arguments[:LONGEST_CUT_ARGUMENTS]}
            return Outcome.INCOMPLETE, ModelReplyIncomplete(text, {"name": name}, reason="cut_tool_call", **details)
        if not finish_reason:
            return Outcome.INCOMPLETE, (ModelReplyIncomplete() if self.has_begun else no_answer())
        return Outcome.COMPLETE, None

    def _note_first(self, piece: str) -> None:
        if piece and self._first_at is None:
            self._first_at = time.monotonic()

    def _take(self, text: str) -> str:
        taken = text[: max(0, self.limit - self.size)]
        self.size += len(taken)
        self.is_cut = self.is_cut or len(taken) < len(text)
        return taken

    def _whole_calls(self) -> tuple[tuple[ToolCall, ...], list[_Fragments]]:
        whole, cut = [], []
        taken: set[str] = set()
        if self._calls:  # What came after all calls is of the whole answer: OpenAI's reasoning comes at its end.
            self._calls[0].opaque, self._waiting = [*self._calls[0].opaque, *self._waiting], []
        for call in self._calls:
            # A model that has no arguments to give may write nothing at all, which means an empty object.
            arguments = "".join(call.arguments) or "{}"
            if not call.name or _is_cut(arguments):
                cut.append(call)
                continue
            is_usable = 0 < len(call.id) <= LONGEST_CALL_ID and call.id.isascii() and call.id.isprintable()
            call_id = call.id if is_usable and call.id not in taken else f"call_{secrets.token_hex(12)}"
            taken.add(call_id)
            opaque = tuple(call.opaque)
            whole.append(ToolCall(id=call_id, name=call.name, arguments=arguments, opaque=opaque))
        return tuple(whole), cut


def believable_usage(
    *, prompt: Any, answer: Any, cache_read: Any = 0, cache_write: Any = 0, cache_write_1h: Any = 0
) -> Usage | None:
    """Return what a provider counted, or None when it cannot be true. A prompt of no tokens cannot."""
    counts = (prompt, answer, cache_read or 0, cache_write or 0, cache_write_1h or 0)
    if not prompt or not all(type(count) is int and 0 <= count <= LARGEST_COUNT for count in counts):
        return None
    return Usage(
        input_tokens=prompt,
        output_tokens=answer,
        cache_read_tokens=cache_read or 0,
        cache_write_tokens=cache_write or 0,
        cache_write_1h_tokens=cache_write_1h or 0,
        source=Source.PROVIDER,
    )


def sendable(value: Any) -> Any:
    """Return a copy, since litellm changes messages in place, with U+FFFD for what UTF-8 cannot write."""
    if isinstance(value, dict):
        return {sendable(name): sendable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(item) for item in value]
    return outgoing(value) if isinstance(value, str) else value


def estimate_payload(payload: dict[str, Any]) -> int:
    """Return the tokens of a request's messages and tools by our estimate; 0 for what is too deep to be sent at all.

    A picture, a PDF and audio count as the largest picture that Anthropic takes, since their bytes are no text.
    """
    try:
        text = json.dumps(payload, ensure_ascii=False, default=str)
        has_bytes = ";base64," in text or '"input_audio"' in text
        text, pictures = _BYTES.subn("", text) if has_bytes else (text, 0)
        return estimate_text(text) + pictures * PICTURE_TOKENS
    except RecursionError:
        return 0


FILLED = gettext_noop(
    "The answer filled the model's context window and ends here. What was said is kept. Compact the session, then send a message to go on."
)
PICTURE_TOKENS = 1_600
_BYTES = re.compile(
    r'(?:(?<="url": ")|(?<="file_data": "))data:(?:image/[a-z]+|application/pdf);base64,[A-Za-z0-9+/=]+'
    r'|(?<="input_audio": \{"data": ")[A-Za-z0-9+/=]+'
)


def too_long(limit: int) -> ModelReplyIncomplete:
    text = gettext_noop("The answer was longer than %(most)s characters and was cut there. What arrived is kept.")
    return ModelReplyIncomplete(text, {"most": limit}, reason="length_capped", limit=limit)


def no_answer() -> ModelReplyIncomplete:
    return ModelReplyIncomplete(
        gettext_noop(
            "The server sent no answer: an empty reply, or something that is not a model's stream, such as a web page. Check the model's address; many end in /v1."
        ),
        reason="no_answer",
    )


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_cut(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except json.JSONDecodeError as error:
        is_last_word = len(arguments) - error.pos <= LONGEST_JSON_WORD and not error.msg.startswith("Extra data")
        return is_last_word or error.msg.startswith("Unterminated")
    except RecursionError:
        return True
    return False
