"""The JSON schemas that endpoints take: a session, a message, a turn to be recorded, where to fork."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import BeforeValidator, ConfigDict, StrictBool, StrictInt, WithJsonSchema

from mnesis_core.errors import InvalidRequest
from mnesis_core.files.pictures import SentPicture
from mnesis_core.llm.interface import Source, ToolSpec
from mnesis_core.llm.parameters import EFFORTS, PROVIDER_TOOLS, VERBOSITIES, read_parameters
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    Part,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import UsageRecord
from mnesis_core.spending import TurnLimits
from mnesis_core.turns.completions import read_content
from mnesis_core.turns.inbox import Draft, MessageKind
from mnesis_core.turns.options import RecordedTurn, TurnOptions
from mnesis_core.turns.questions import MOST_OPTIONS, MOST_QUESTIONS

Tokens = Annotated[StrictInt, Field(ge=0, lt=2**53)]
MICROS = 1_000_000
MOST_LABELS, LABEL_CHARACTERS = 64, 200
Word = Annotated[str, Field(max_length=LABEL_CHARACTERS)]
ProjectId = Annotated[str, Field(max_length=100)]
Key = Annotated[str, Field(min_length=1, max_length=200)]
# To one question: chosen options, and one's own words.
Answers = Annotated[list[Annotated[str, Field(max_length=50_000)]], Field(max_length=MOST_OPTIONS + 1)]
FileIds = Annotated[list[str], Field(max_length=50)]  # files of the session that go with a message
Labels = Annotated[dict[Word, Word], Field(max_length=MOST_LABELS)]  # read whole with each session of a list


def _json(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


ExactJson = Annotated[str, BeforeValidator(_json, json_schema_input_type=str | dict[str, Any] | list[Any])]
"""JSON as a text, which is kept word for word, or as a value."""


class SessionIn(Schema):
    """A new session. With ``message`` its first turn starts at once.

    In ``host_mode`` it stays alive for messages of peers, who address it as ``peer_name``; without one, as ``agent``.
    """

    model: str = ""
    title: str = ""
    agent: Annotated[str, Field(max_length=100)] = "default"
    system_prompt: str = ""
    labels: Labels = {}
    config: dict[str, Any] = {}
    parent_id: str | None = None
    message: str | None = None
    host_mode: StrictBool = False
    peer_name: str = ""
    project_id: ProjectId = ""
    assistant_id: Annotated[str, Field(max_length=100)] = ""
    """The assistant that it begins with. It keeps the version that is the newest now."""
    temporary: StrictBool = False
    """Whether to begin a temporary chat, which no list shows and which is deleted for you some time after its last message."""


class SessionPatch(Schema):
    """The values of a session that can be changed."""

    title: str | None = None
    labels: Labels | None = None
    config: dict[str, Any] | None = None
    pinned: StrictBool | None = None
    host_mode: StrictBool | None = None
    peer_name: str | None = None
    project_id: ProjectId | None = None
    """An empty text takes the session out of its project."""


def read_said(message: str | None, parts: list[dict[str, Any]] | None) -> tuple[str, tuple[SentPicture, ...]]:
    """Return the text and the pictures of a message that is a text or parts.

    :raises InvalidRequest: there are a message and parts, or neither, or a part is neither text nor picture.
    """
    if (message is None) == (parts is None):
        raise InvalidRequest("send either message or parts", field="message")
    return read_content(message if parts is None else parts, field="parts", may_show=True)


class MessageIn(Schema):
    """A user's message, as a text or as OpenAI's parts.

    Those are ``text``, ``input_audio``, and ``image_url`` and ``file`` with data: URLs or addresses.
    """

    message: str | None = None
    parts: list[dict[str, Any]] | None = None
    idempotency_key: Key | None = None

    def said(self) -> tuple[str, tuple[SentPicture, ...]]:
        """:raises InvalidRequest: as ``read_said``"""
        return read_said(self.message, self.parts)


class CallersToolIn(Schema):
    """A tool that the caller runs itself; ``parameters`` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}


class LimitsIn(Schema):
    """The most that a turn may use: tokens, millionths of the currency unit, seconds, tool calls."""

    model_config = ConfigDict(extra="forbid")

    tokens: Tokens | None = None
    cost_micros: Tokens | None = None
    seconds: Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)] | None = None
    tool_calls: Tokens | None = None

    def limits(self) -> TurnLimits:
        return TurnLimits(**self.dict())


class ParametersIn(Schema):
    """What a model is asked with. Null leaves one to the session, then to the model's entry, then to the provider.

    ``tool_choice`` and ``response_format`` are in the form of OpenAI's Chat Completions.
    """

    model_config = ConfigDict(extra="forbid")

    # Checked by ``read_parameters``, as those of sessions and models are.
    temperature: Annotated[Any, WithJsonSchema({"type": ["number", "null"], "minimum": 0, "maximum": 2})] = None
    top_p: Annotated[Any, WithJsonSchema({"type": ["number", "null"], "minimum": 0, "maximum": 1})] = None
    max_output_tokens: Annotated[Any, WithJsonSchema({"type": ["integer", "null"], "minimum": 1})] = None
    effort: Annotated[Any, WithJsonSchema({"enum": [*EFFORTS, None]})] = None
    verbosity: Annotated[Any, WithJsonSchema({"enum": [*VERBOSITIES, None]})] = None
    stop: Annotated[Any, WithJsonSchema({"type": ["string", "array", "null"], "items": {"type": "string"}})] = None
    seed: Annotated[Any, WithJsonSchema({"type": ["integer", "null"]})] = None
    tool_choice: Annotated[Any, WithJsonSchema({"type": ["string", "object", "null"]})] = None
    parallel_tool_calls: Annotated[Any, WithJsonSchema({"type": ["boolean", "null"]})] = None
    response_format: Annotated[Any, WithJsonSchema({"type": ["string", "object", "null"]})] = None
    provider_tools: Annotated[
        Any, WithJsonSchema({"type": ["array", "null"], "items": {"enum": list(PROVIDER_TOOLS)}})
    ] = None


class TurnStartIn(MessageIn):
    """A user's message, and what of the session is different for this turn."""

    tools: list[CallersToolIn] = []
    system_prompt: str | None = None
    limits: LimitsIn | None = None
    on_doom_loop: Literal["continue", "stop"] | None = None
    parameters: ParametersIn = ParametersIn()
    host_mode: StrictBool | None = None  # whether the session takes messages of peers from now on; null: no change
    files: FileIds = []
    model: str = ""  # asked this turn in place of the session's model; empty: the session's
    # The message that this one continues, or "root"; null: the last one of the chosen branch. Without a message, what a
    # user said there is answered again.
    parent_id: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for ``lifecycle.start_turn``.

        :raises InvalidRequest: as ``said`` does
        """
        options = TurnOptions(
            tools=tuple(ToolSpec(**tool.dict()) for tool in self.tools),
            system_prompt=self.system_prompt,
            limits=None if self.limits is None else self.limits.limits(),
            on_doom_loop=self.on_doom_loop,
            host_mode=self.host_mode,
            model=self.model,
            parameters=read_parameters(self.parameters.dict()),
        )
        is_said = self.parent_id is None or self.message is not None or self.parts is not None
        message, pictures = self.said() if is_said else (None, ())
        return {
            "message": message,
            "pictures": pictures,
            "idempotency_key": self.idempotency_key,
            "files": self.files,
            "parent_id": self.parent_id,
            "options": options,
        }


class TurnIn(TurnStartIn):
    """A turn to start, and whether its answer is streamed."""

    stream: bool = False


class ToolResultIn(Schema):
    """The result of a tool that the caller runs: ``output``, or ``parts`` as a message has, or ``error`` if it failed.

    Of ``ask_user`` it may be ``answers``: for each question a list of chosen options and own words, empty for none.
    """

    tool_call_id: str
    output: str | None = None
    parts: list[dict[str, Any]] | None = None
    error: str | None = None
    answers: Annotated[list[Answers], Field(max_length=MOST_QUESTIONS)] | None = None

    def said(self) -> dict[str, Any]:
        """Return the result as ``claim.ToolResult`` takes it.

        :raises InvalidRequest: there are several of output, parts and answers, or a part is neither text nor picture.
        """
        if (self.output, self.parts, self.answers).count(None) < 2:
            raise InvalidRequest("send either output, parts or answers", field="output")
        known = self.dict(exclude={"parts"})
        if self.parts is None:
            return known
        text, pictures = read_content(self.parts, field="parts", may_show=True)
        return known | {"output": text, "pictures": pictures}


class ToolResultsIn(Schema):
    """Results of one or more tool calls of a turn."""

    results: Annotated[list[ToolResultIn], Field(min_length=1, max_length=1_000)]


class AnswerIn(ToolResultsIn):
    """Results of one or more tool calls, and the turn that made them."""

    turn_id: str


class ApprovalIn(Schema):
    """A person's word on a tool call."""

    approved: StrictBool
    note: str = ""


class DecisionIn(ApprovalIn):
    """A person's word on a tool call, and the call."""

    part_id: str


class InboxIn(Schema):
    """A message to a session in host mode. A ``response`` says in ``in_reply_to`` which message it answers."""

    text: str
    kind: MessageKind = MessageKind.MESSAGE
    in_reply_to: str = ""
    idempotency_key: Key | None = None

    def draft(self) -> Draft:
        return Draft(text=self.text, kind=self.kind, in_reply_to=self.in_reply_to)


class TextIn(Schema):
    """Text of a message."""

    type: Literal["text"]
    text: str

    def part(self) -> Part:
        return TextPart(text=self.text)


class ReasoningIn(Schema):
    """The model's visible reasoning."""

    type: Literal["reasoning"]
    text: str

    def part(self) -> Part:
        return ReasoningPart(text=self.text)


class ToolIn(Schema):
    """A tool call with its result. ``input`` is text, usually JSON, or an object."""

    type: Literal["tool"]
    tool_name: str
    tool_call_id: str
    input: str | dict[str, Any] = "{}"
    output: str | None = None
    error: str | None = None
    state: ToolState | None = None

    def part(self) -> Part:
        return ToolPart(
            tool_name=self.tool_name,
            tool_call_id=self.tool_call_id,
            input=_json(self.input),
            output=self.output,
            error=self.error,
            state=self.state or (ToolState.COMPLETED if self.error is None else ToolState.ERROR),
        )


class FileRefIn(Schema):
    """A file that is known here."""

    type: Literal["file_ref"]
    file_id: str

    def part(self) -> Part:
        return FileRefPart(file_id=self.file_id)


_MEDIA: dict[str, type[ImagePart | AudioPart | DocumentPart]] = {
    kind.type: kind for kind in (ImagePart, AudioPart, DocumentPart)
}


class MediaIn(Schema):
    """A file that is known here, for what it shows. ``tool_call_id`` is the call before it whose result it belongs to."""

    type: Literal["image", "audio", "document"]
    file_id: str
    caption: str = ""
    tool_call_id: str = ""

    def part(self) -> Part:
        return _MEDIA[self.type](file_id=self.file_id, caption=self.caption, tool_call_id=self.tool_call_id)


class ProviderIn(Schema):
    """What a provider wants back as it gave it, before the part that it belongs to. ``data`` is JSON; a text is kept word for word."""

    type: Literal["provider"]
    provider: str
    kind: str
    data: ExactJson
    model: str = ""
    prompt: str = ""

    def part(self) -> Part:
        return ProviderPart(
            provider=self.provider, kind=self.kind, data=self.data, model=self.model, prompt=self.prompt
        )


class ProviderToolIn(Schema):
    """A tool call that the provider ran itself. ``data`` is JSON of what else it says of the call."""

    type: Literal["provider_tool"]
    provider: str
    tool_name: str
    tool_call_id: str
    input: str | dict[str, Any] = "{}"
    output: str | None = None
    error: str | None = None
    data: ExactJson = ""

    def part(self) -> Part:
        return ProviderToolPart(
            provider=self.provider,
            tool_name=self.tool_name,
            tool_call_id=self.tool_call_id,
            input=_json(self.input),
            output=self.output,
            error=self.error,
            data=self.data,
        )


class CitationIn(Schema):
    """A source of the text before it; ``start`` and ``end`` are the characters of that text which rest on it."""

    type: Literal["citation"]
    text: str = ""
    title: Word = ""
    url: Annotated[str, Field(max_length=8_000)] = ""
    file_id: str = ""
    message_id: Annotated[str, Field(max_length=40)] = ""
    place: Word = ""
    start: Tokens = 0
    end: Tokens = 0
    provider: str = ""
    data: ExactJson = ""

    def part(self) -> Part:
        return CitationPart(**self.dict(exclude={"type"}))


class RefusalIn(Schema):
    """The model's words when it refuses."""

    type: Literal["refusal"]
    text: str

    def part(self) -> Part:
        return RefusalPart(text=self.text)


PartIn = Annotated[
    TextIn | ReasoningIn | ToolIn | FileRefIn | MediaIn | ProviderIn | ProviderToolIn | CitationIn | RefusalIn,
    Field(discriminator="type"),
]
# A text, or a list of parts.
Spoken = Annotated[
    list[PartIn],
    BeforeValidator(
        lambda said: [{"type": "text", "text": said}] if isinstance(said, str) else said,
        json_schema_input_type=str | list[PartIn],
    ),
]


class TokensIn(Schema):
    """The tokens that the caller's provider counted."""

    model_config = ConfigDict(extra="forbid")

    input: Tokens | None = None
    output: Tokens | None = None
    cache_read: Tokens | None = None
    cache_write: Tokens | None = None
    total: Tokens | None = None  # taken because clients send it; not kept, since it follows from the others


class RecordIn(Schema):
    """A turn that the caller ran with its own model client."""

    user: Spoken
    assistant: Spoken
    tokens: TokensIn | None = None
    # In the currency unit of the model's price; kept to a millionth.
    cost: Annotated[Decimal, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)] | None = None
    finish_reason: str | None = None
    model: str = ""
    idempotency_key: Key | None = None

    def turn(self) -> RecordedTurn:
        tokens = self.tokens or TokensIn()
        return RecordedTurn(
            user=tuple(spoken.part() for spoken in self.user),
            assistant=tuple(spoken.part() for spoken in self.assistant),
            usage=UsageRecord(
                tokens_input=tokens.input,
                tokens_output=tokens.output,
                tokens_cache_read=tokens.cache_read,
                tokens_cache_write=tokens.cache_write,
                usage_source=None if self.tokens is None and self.cost is None else Source.CALLER.value,
                cost_micros=None if self.cost is None else round(self.cost * MICROS),
            ),
            finish_reason=self.finish_reason,
            model=self.model,
        )


class ChoiceIn(Schema):
    """The branch that the next message is to continue."""

    branch: Tokens


class ForkIn(Schema):
    """Where to fork: after one message, or before one."""

    at_message_id: str | None = None  # the last message of the fork
    before_message_id: str | None = None  # the first message that the fork does not have
