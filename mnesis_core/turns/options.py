"""What a caller may ask of a turn: its options, a turn that was run elsewhere, and what is recorded of replies and calls.

A suspended turn may be resumed days later by another process, so its row holds everything that it was started with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, assert_never

from mnesis_core.config import CHOICES
from mnesis_core.errors import InvalidRequest, RequestTooLarge
from mnesis_core.events import MAX_INTEGER
from mnesis_core.llm.interface import DEEPEST_SCHEMA, ModelSpec, Reply, ToolSpec, Usage, cost_micros
from mnesis_core.llm.parameters import NO_PARAMETERS, Parameters, read_parameters
from mnesis_core.messages import (
    DEEPEST_DATA,
    AudioPart,
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    MediaPart,
    Message,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolState,
    UnknownPart,
)
from mnesis_core.records import MessageEnd, UsageRecord
from mnesis_core.spending import TurnLimits
from mnesis_core.text import encode_text, exact_value, nests_within

MOST_TOOLS = 128  # The most of the caller's own tools that providers take.
LONGEST_DESCRIPTIONS = 400_000  # Characters of all descriptions as JSON: more would leave no room for the conversation.
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # What every provider allows; another name would come back changed.
PROVIDER_NAME = re.compile(r"[a-z0-9_.-]{1,64}")  # also of the kinds of what a provider gives
MADE_BY = re.compile(r"[!-~]{0,64}")  # the name of the model that made it
DIGEST = re.compile(r"([0-9a-f]{32})?")  # of the prompt that it answered
MAX_PARTS = 1_000
NAME_LENGTH, MODEL_LENGTH, REASON_LENGTH = 200, 100, 64  # Stored characters of the columns.


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    # Tools that the caller runs itself: a call of one suspends the turn until its result comes.
    tools: tuple[ToolSpec, ...] = ()
    system_prompt: str | None = None  # Replaces the session's; None keeps it.
    limits: TurnLimits | None = None
    on_doom_loop: str | None = None  # ``continue`` or ``stop``; None for the configured action.
    # Whether the session stays alive for peers' messages from this turn on; None keeps the setting.
    host_mode: bool | None = None
    model: str = ""  # Replaces the session's; empty keeps it.
    parameters: Parameters = NO_PARAMETERS  # Beside those of the session and the model, and before them.
    # What only the caller's protocol knows, and what reads the turn repeats to the caller.
    repeated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


_NO_OPTIONS = TurnOptions()


# The parts that a turn which ran elsewhere may hold.
_USERS_PARTS = (TextPart.type, FileRefPart.type, ImagePart.type, AudioPart.type, DocumentPart.type)
_ANSWERS_PARTS = (
    *(*_USERS_PARTS, ReasoningPart.type, ToolPart.type),
    *(ProviderPart.type, ProviderToolPart.type, CitationPart.type, RefusalPart.type),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    user: tuple[Part, ...]
    assistant: tuple[Part, ...]  # May be empty: models answer with nothing, too.
    usage: UsageRecord = field(default_factory=UsageRecord)
    finish_reason: str | None = None
    model: str = ""  # The caller's name of its model; empty for the session's.


class Made(NamedTuple):
    """A tool call, to be compared with others: a model goes round in circles when it repeats one (seed 000 "doom loop")."""

    name: str
    arguments: str  # Normalised if they are JSON.


def check_options(options: TurnOptions, *, characters: int) -> None:
    """:param characters: the most that a system prompt may have
    :raises InvalidRequest: a value is out of its bounds; names the field
    :raises RequestTooLarge: a text is too long
    """
    if len(options.tools) > MOST_TOOLS:
        raise InvalidRequest(f"tools are {len(options.tools):,}; {MOST_TOOLS} are allowed", field="tools")
    names: set[str] = set()
    for place, tool in enumerate(options.tools):
        field = f"tools.{place}.name"
        if not TOOL_NAME.fullmatch(tool.name):
            raise InvalidRequest(f"{field} must be 1 to 64 letters, digits, _ and -", field=field)
        if tool.name in names:
            raise InvalidRequest(f"two tools are called {tool.name}", field=field)
        if not nests_within(tool.parameters, DEEPEST_SCHEMA):
            field = f"tools.{place}.parameters"
            raise InvalidRequest(f"{field} may be nested {DEEPEST_SCHEMA} deep, not more", field=field)
        names.add(tool.name)
    if options.tools and len(_text({"tools": options.tools})) > LONGEST_DESCRIPTIONS:
        raise RequestTooLarge(f"tools may have {LONGEST_DESCRIPTIONS:,} characters together, not more", field="tools")
    if len(options.system_prompt or "") > characters:
        raise RequestTooLarge(f"system_prompt may have {characters:,} characters, not more", field="system_prompt")
    choices = CHOICES["turn.on_doom_loop"]
    if options.on_doom_loop is not None and options.on_doom_loop not in choices:
        raise InvalidRequest(f"on_doom_loop must be one of {', '.join(choices)}", field="on_doom_loop")


def write_options(options: TurnOptions) -> str:
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    asked = {name: value for name, value in given.items() if value != getattr(_NO_OPTIONS, name)}
    if "parameters" in asked:
        asked["parameters"] = options.parameters.to_store()
    return _text(asked) if asked else ""


def read_options(text: str) -> TurnOptions:
    if not text:
        return _NO_OPTIONS
    asked = json.loads(text)
    if "tools" in asked:
        asked["tools"] = tuple(ToolSpec(**tool) for tool in asked["tools"])
    if "limits" in asked:
        asked["limits"] = TurnLimits(**asked["limits"])
    if "parameters" in asked:
        asked["parameters"] = read_parameters(asked["parameters"])
    return TurnOptions(**{field.name: asked[field.name] for field in fields(TurnOptions) if field.name in asked})


def _text(asked: dict[str, Any]) -> str:
    # ASCII, so that every database accepts it. Not ``asdict``, which would copy the schema of every tool.
    try:
        return json.dumps(
            asked,
            sort_keys=True,
            allow_nan=False,
            default=lambda value: {field.name: getattr(value, field.name) for field in fields(value)},
        )
    except (ValueError, TypeError):
        raise InvalidRequest("tools must be JSON", field="tools") from None


def usage_record(usage: Usage, *, cost: int | None) -> UsageRecord:
    """Return a call's usage for the record; ``cost`` in millionths of the currency unit, None if unknown."""
    return UsageRecord(
        tokens_input=usage.input_tokens,
        tokens_output=usage.output_tokens,
        tokens_cache_read=usage.cache_read_tokens,
        tokens_cache_write=usage.cache_write_tokens,
        usage_source=usage.source.value,
        cost_micros=cost,
    )


def end_of_reply(reply: Reply, spec: ModelSpec, *, began: float) -> MessageEnd:
    """Return what a call's row says of its end.

    :param began: when the call did, its attempts included, by ``time.monotonic``
    """
    return MessageEnd(
        finish_reason=reply.finish_reason or None,
        outcome=reply.outcome.value,
        error_code=reply.error.code if reply.error else None,
        error_message=reply.error.message if reply.error else None,
        usage=usage_record(reply.usage, cost=cost_micros(spec, reply.usage)),
        usage_said=reply.usage_said,
        stop_sequence=reply.stop_sequence,
        first_token_ms=first_token_ms(reply.first_at, began=began),
        tokens_cache_write_1h=min(reply.usage.cache_write_1h_tokens, reply.usage.cache_write_tokens),
    )


def first_token_ms(first_at: float | None, *, began: float) -> int | None:
    return None if first_at is None else max(0, round((first_at - began) * 1_000))


def check_recorded(turn: RecordedTurn, *, characters: int) -> None:
    """:param characters: the most that one text may have.
    :raises InvalidRequest: something is missing, contradicts itself or is out of its bounds; names the field.
    :raises RequestTooLarge: a text is too long.
    """
    _check_parts("user", turn.user, _USERS_PARTS, characters)
    _check_parts("assistant", turn.assistant, _ANSWERS_PARTS, characters)
    if not any(part.text.strip() if isinstance(part, TextPart) else True for part in turn.user):
        raise InvalidRequest("user is empty", field="user")
    _check_stored("model", turn.model, MODEL_LENGTH)
    _check_stored("finish_reason", turn.finish_reason or "", REASON_LENGTH)
    for name in ("tokens_input", "tokens_output", "tokens_cache_read", "tokens_cache_write", "cost_micros"):
        number = getattr(turn.usage, name)
        if number is not None and not 0 <= number <= MAX_INTEGER:
            raise InvalidRequest(f"{name} must lie between 0 and {MAX_INTEGER}", field=name)


def request_digest(said: RecordedTurn | tuple[Message, ...]) -> str:
    """Return the digest, of 64 hexadecimal digits, that distinguishes requests with the same idempotency key."""
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()


def texts_of(part: Part) -> Iterator[str]:
    return iter(_texts(part).values())


def _check_parts(name: str, parts: tuple[Part, ...], allowed: tuple[str, ...], characters: int) -> None:
    if len(parts) > MAX_PARTS:
        raise InvalidRequest(f"{name} has {len(parts):,} parts; {MAX_PARTS:,} are allowed", field=name)
    for index, part in enumerate(parts):
        place = f"{name}.{index}"
        if part.type not in allowed:
            names = ", ".join(allowed)
            raise InvalidRequest(f"{place} is a {part.type} part; {name} may hold: {names}", field=f"{place}.type")
        for name_of_text, text in _texts(part).items():
            if len(text) > characters:
                said = f"{place}.{name_of_text}"
                raise RequestTooLarge(f"{said} has {len(text):,} characters; {characters:,} are allowed", field=said)
        _check_part(place, part)


def _check_part(place: str, part: Part) -> None:
    match part:
        case ToolPart():
            _check_names(place, part)
            if (part.output is None) == (part.error is None):
                raise InvalidRequest(f"{place} needs either its output or its error: the turn is over", field=place)
            if part.state is not (ToolState.COMPLETED if part.error is None else ToolState.ERROR):
                said = f"{place}.state is {part.state}, which contradicts its result"
                raise InvalidRequest(said, field=f"{place}.state")
        case ProviderToolPart():
            _check_names(place, part)
            _check_provider(place, part.data or "null", provider=part.provider)
        case ProviderPart():
            _check_provider(place, part.data, provider=part.provider, kind=part.kind)
            if not MADE_BY.fullmatch(part.model):
                raise InvalidRequest(f"{place}.model must be 0 to 64 printable characters", field=f"{place}.model")
            if not DIGEST.fullmatch(part.prompt):
                raise InvalidRequest(f"{place}.prompt must be 0 or 32 of 0-9 and a-f", field=f"{place}.prompt")
        case MediaPart():
            _check_stored(f"{place}.tool_call_id", part.tool_call_id, NAME_LENGTH)
        case CitationPart() if part.provider or part.data:
            _check_provider(place, part.data or "null", provider=part.provider)


def _texts(part: Part) -> dict[str, str]:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return {"text": part.text}
        case ToolPart():
            return {"input": part.input, "output": part.output or "", "error": part.error or ""}
        case ProviderToolPart():
            return {"input": part.input, "output": part.output or "", "error": part.error or "", "data": part.data}
        case ProviderPart():
            return {"data": part.data}
        case CitationPart():
            return {"text": part.text, "data": part.data}
        case MediaPart():
            return {"caption": part.caption}
        case FileRefPart() | PatchPart() | DataPart() | UnknownPart():
            return {}
        case CompactionMarkerPart() | StepStartPart() | StepFinishPart():
            return {}
        case _:
            assert_never(part)


def _check_names(place: str, part: ToolPart | ProviderToolPart) -> None:
    for name, text in (("tool_name", part.tool_name), ("tool_call_id", part.tool_call_id)):
        if not text:
            raise InvalidRequest(f"{place}.{name} is empty", field=f"{place}.{name}")
        _check_stored(f"{place}.{name}", text, NAME_LENGTH)


def _check_provider(place: str, data: str, **names: str) -> None:
    """Check the names of a provider and of what it gave, and that this is JSON which can go back unchanged."""
    for name, text in names.items():
        if not PROVIDER_NAME.fullmatch(text):
            said = f"{place}.{name}"
            raise InvalidRequest(f"{said} must be 1 to 64 of a-z, 0-9, '_', '.' and '-'", field=said)
    try:
        exact_value(data, deepest=DEEPEST_DATA)
    except ValueError as error:
        said = f"{place}.data"
        raise InvalidRequest(f"{said} is no JSON that can go back to the provider: {error}", field=said) from None


def _check_stored(name: str, text: str, limit: int) -> None:
    if len(encode_text(text)) > limit:
        raise InvalidRequest(f"{name} is longer than {limit} characters", field=name)


def call_made(name: str, arguments: str) -> Made:
    """Return a call without the order of keys and the white space of its arguments."""
    try:
        return Made(name, json.dumps(json.loads(arguments), sort_keys=True))
    except (ValueError, RecursionError):
        return Made(name, arguments)


def repeats(before: Sequence[Made], calls: Iterable[Made], threshold: int) -> list[bool]:
    """Return, for each call of a step, whether it ends a row of at least ``threshold`` equal calls."""
    last = before[-1] if before else None
    row = next((place for place, call in enumerate(reversed(before)) if call != last), len(before))
    found = []
    for call in calls:
        row = row + 1 if call == last else 1
        last = call
        found.append(row >= threshold)
    return found
