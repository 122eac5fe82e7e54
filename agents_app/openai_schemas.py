"""The JSON that the OpenAI-compatible door takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import BaseModel, ConfigDict

from mnesis_core.completions import CompletionRequest, Said, check_supported, text_of_content, unused
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm import ToolCall, ToolSpec

SESSION_FIELD = "mnesis_session"
"""Of ``metadata``: what the header ``X-Mnesis-Session`` says, for clients that cannot send headers."""


class CalledIn(Schema):
    """A function and its arguments, a text that is usually JSON."""

    name: str
    arguments: str = "{}"


class CallIn(Schema):
    """A call in a message of the assistant."""

    id: str
    type: Literal["function"] = "function"
    function: CalledIn


class MessageIn(Schema):
    """One message of the caller's history."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[CallIn] | None = None
    tool_call_id: str = ""

    def said(self, place: int) -> Said:
        """The message as a value.

        :raises InvalidRequest: it holds something else than text and calls.
        """
        return Said(
            role="system" if self.role == "developer" else self.role,
            text=text_of_content(self.content, field=f"messages.{place}.content"),
            tool_calls=tuple(
                ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in self.tool_calls or ()
            ),
            tool_call_id=self.tool_call_id,
            place=place,
        )


class FunctionIn(Schema):
    """A function that the caller runs."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolIn(Schema):
    """A tool that the caller runs."""

    type: Literal["function"]
    function: FunctionIn

    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        parameters = self.function.parameters or {"type": "object", "properties": {}}
        return ToolSpec(name=self.function.name, description=self.function.description or "", parameters=parameters)


class StreamOptionsIn(Schema):
    """What a stream ends with."""

    include_usage: bool = False


class CompletionIn(BaseModel):  # ninja's own kind would lose what has no field
    """A request of OpenAI's Chat Completions. Parameters that have no field here are refused or left unused."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[MessageIn]
    stream: bool | None = None
    stream_options: StreamOptionsIn | None = None
    tools: list[ToolIn] | None = None
    tool_choice: Any = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its numbers."""
        return self.stream_options is not None and self.stream_options.include_usage

    def request(self, session: str) -> CompletionRequest:
        """The request as a value; ``session`` is what the header says.

        :raises InvalidRequest: something of it is not supported; names it.
        """
        parameters = self.model_dump(exclude_unset=True)
        check_supported(parameters)
        where = session or self._session_in_metadata()
        tools = () if self.tool_choice == "none" else tuple(tool.spec() for tool in self.tools or ())
        return CompletionRequest(
            model=self.model,
            messages=tuple(message.said(place) for place, message in enumerate(self.messages)),
            tools=tools,
            session=where,
            user=self.user or "",
            max_output_tokens=self.max_completion_tokens or self.max_tokens or 0,
            unused=unused(parameters, in_session=bool(where)),
        )

    def _session_in_metadata(self) -> str:
        session = (self.metadata or {}).get(SESSION_FIELD, "")
        if not isinstance(session, str):
            raise InvalidRequest("metadata.mnesis_session must be a session's id", field=f"metadata.{SESSION_FIELD}")
        return session
