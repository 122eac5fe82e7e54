"""The JSON shapes that the REST door takes: a turn to be recorded, where to fork."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import BeforeValidator, ConfigDict, StrictInt

from mnesis_core.llm import Source
from mnesis_core.messages import FileRefPart, Part, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.record import UsageRecord
from mnesis_core.recording import RecordedTurn

Tokens = Annotated[StrictInt, Field(ge=0, lt=2**53)]
MICROS = 1_000_000


class TextIn(Schema):
    """What was said."""

    type: Literal["text"]
    text: str

    def part(self) -> Part:
        """The part as a value."""
        return TextPart(text=self.text)


class ReasoningIn(Schema):
    """What the model thought aloud."""

    type: Literal["reasoning"]
    text: str

    def part(self) -> Part:
        """The part as a value."""
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
        """The part as a value; without a state, the one that its result has."""
        return ToolPart(
            tool_name=self.tool_name,
            tool_call_id=self.tool_call_id,
            input=self.input if isinstance(self.input, str) else json.dumps(self.input, ensure_ascii=False),
            output=self.output,
            error=self.error,
            state=self.state or (ToolState.COMPLETED if self.error is None else ToolState.ERROR),
        )


class FileRefIn(Schema):
    """A file that is known here."""

    type: Literal["file_ref"]
    file_id: str

    def part(self) -> Part:
        """The part as a value; what is known of the file comes from its reference."""
        return FileRefPart(file_id=self.file_id)


def _as_parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


PartIn = Annotated[TextIn | ReasoningIn | ToolIn | FileRefIn, Field(discriminator="type")]
Spoken = Annotated[list[PartIn], BeforeValidator(_as_parts, json_schema_input_type=str | list[PartIn])]
"""A text, or a list of parts."""


class TokensIn(Schema):
    """What the caller's provider counted."""

    model_config = ConfigDict(extra="forbid")

    input: Tokens | None = None
    output: Tokens | None = None
    cache_read: Tokens | None = None
    cache_write: Tokens | None = None
    total: Tokens | None = None
    """Taken because clients send it; not kept, since it follows from the others."""


class RecordIn(Schema):
    """A turn that the caller ran with its own model client."""

    user: Spoken
    assistant: Spoken
    tokens: TokensIn | None = None
    cost: Annotated[Decimal, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)] | None = None
    """In the currency unit of the model's price; kept to a millionth."""
    finish_reason: str | None = None
    model: str = ""
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    def turn(self) -> RecordedTurn:
        """The turn as a value."""
        return RecordedTurn(
            user=tuple(spoken.part() for spoken in self.user),
            assistant=tuple(spoken.part() for spoken in self.assistant),
            usage=self._usage(),
            finish_reason=self.finish_reason,
            model=self.model,
        )

    def _usage(self) -> UsageRecord:
        tokens = self.tokens or TokensIn()
        return UsageRecord(
            tokens_input=tokens.input,
            tokens_output=tokens.output,
            tokens_cache_read=tokens.cache_read,
            tokens_cache_write=tokens.cache_write,
            usage_source=None if self.tokens is None and self.cost is None else Source.CALLER.value,
            cost_micros=None if self.cost is None else round(self.cost * MICROS),
        )


class ForkIn(Schema):
    """Where to fork."""

    at_message_id: str
