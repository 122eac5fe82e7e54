"""Messages and their parts: frozen values without identity, equal when their contents are.

Ids, sequence numbers and times belong to the store (see ``StoredMessage``). The part types are those of seed 000
("ImmutableStore guarantees"), ``DataPart`` for imported data that has no better place, and those for what models say and
take beyond text. ``Part`` is the one list of them: whatever tells parts apart ends in ``assert_never``.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal, get_args

from mnesis_core.values import dataclass

Role = Literal["system", "user", "assistant"]


DEEPEST_DATA = 100  # Objects and lists inside each other in the JSON of a part that may go back to its provider.


class ToolState(StrEnum):
    """How far a tool call is. It only moves forward."""

    PENDING = "pending"  # It waits to be run, for a person's approval, or for the caller's result.
    APPROVED = "approved"  # A person approved it; it runs when its turn waits for nothing else.
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


UNANSWERED_STATES = (ToolState.PENDING, ToolState.APPROVED, ToolState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPart:
    type: ClassVar[str] = "reasoning"
    text: str  # the model's thinking, which is kept and not sent back to a model


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPart:
    """One tool call with its result: a pair that is never split."""

    type: ClassVar[str] = "tool"
    tool_name: str
    tool_call_id: str
    input: str = "{}"  # The arguments exactly as received, usually JSON.
    output: str | None = None
    error: str | None = None
    state: ToolState = ToolState.PENDING
    # When the output was tombstoned: it stays in the record and leaves the context.
    compacted_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    decision_note: str | None = None  # from the person who approved or refused the call
    # What the tool answered after its call had been closed. It is kept here and never sent to a model.
    late_output: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRefPart:
    type: ClassVar[str] = "file_ref"
    file_id: str
    path: str = ""
    file_type: str = "unknown"
    token_count: int = 0
    exploration_summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionMarkerPart:
    """The place where the system that a history was imported from compacted it."""

    type: ClassVar[str] = "compaction"
    summary_id: str = ""
    level: int = 0
    compacted_message_count: int = 0
    compacted_token_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStartPart:
    type: ClassVar[str] = "step_start"
    step_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinishPart:
    type: ClassVar[str] = "step_finish"
    step_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchPart:
    type: ClassVar[str] = "patch"
    unified_diff: str
    files_changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """Imported data of an unknown kind, kept whole under the name that it had there."""

    type: ClassVar[str] = "data"
    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """A picture, a sound or a document. Its bytes are a file of the session and never stand in the part."""

    type: ClassVar[str]
    file_id: str = ""  # Empty where the record has no bytes of it: then ``source`` says what is known.
    media_type: str = ""  # such as ``image/png``; empty if unknown
    size: int = 0  # bytes; 0 if unknown
    name: str = ""  # its path or title
    caption: str = ""  # what it shows or says, in words
    source: str = ""  # an address, or its name in the system that it was imported from
    tool_call_id: str = ""  # the call before it in the same message whose result it belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart(MediaPart):
    type: ClassVar[str] = "image"
    width: int = 0  # pixels; 0 if unknown
    height: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioPart(MediaPart):
    type: ClassVar[str] = "audio"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPart(MediaPart):
    type: ClassVar[str] = "document"


ShownPart = ImagePart | AudioPart | DocumentPart  # what models may be sent beside texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPart:
    """What a provider wants back as it gave it: signed or encrypted thinking, the signature of a call.

    It goes back to that provider only, and in a turn only to the model that made it. It stands before the part that it
    belongs to, or alone; what people may read of it is a ``ReasoningPart`` in front of it.
    """

    type: ClassVar[str] = "provider"
    provider: str  # as litellm calls it, such as ``anthropic``; never with a colon
    kind: str  # as the provider calls it, such as ``thinking``; never with a colon
    data: str  # the exact JSON
    model: str = ""  # who made it, as the provider calls the model; empty if unknown
    # The digest of the prompt that it answered (``rendering.prompt_digest``), since some models take their thinking
    # back after the same prompt only; empty if unknown.
    prompt: str = ""

    def write_label(self) -> str:
        """Return all but the data in one text, which ``read_label`` reads."""
        made = (self.prompt, self.model) if self.prompt or self.model else ()
        return ":".join((self.provider, self.kind, *made))

    @classmethod
    def read_label(cls, label: str, data: str) -> ProviderPart:
        provider, kind, prompt, model = (*label.split(":", 3), "", "", "")[:4]
        return cls(provider=provider, kind=kind, data=data, model=model, prompt=prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderToolPart:
    """A tool call that the provider ran itself, with its result. It is whole when it is written: no code waits for it."""

    type: ClassVar[str] = "provider_tool"
    provider: str
    tool_name: str
    tool_call_id: str
    input: str = "{}"  # as received, usually JSON
    output: str | None = None  # as received; None where the provider gave none
    error: str | None = None
    data: str = ""  # the exact JSON of what else the provider says of the call; may be empty


@dataclass(frozen=True, slots=True, kw_only=True)
class CitationPart:
    """A source of the text part before it. Only what is known is set."""

    type: ClassVar[str] = "citation"
    text: str = ""  # the words of the source
    title: str = ""
    url: str = ""
    file_id: str = ""
    message_id: str = ""
    place: str = ""  # where in the source, such as ``pages 3-4``
    start: int = 0  # the characters of the text that rest on it, from ``start`` up to ``end``; 0 and 0 if not known
    end: int = 0
    provider: str = ""
    data: str = ""  # the exact JSON of what its provider says of it; may be empty


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalPart:
    type: ClassVar[str] = "refusal"
    text: str  # the model's words when it refuses to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownPart:
    """A part of a type that this version does not know, or of another form than it knows: kept whole, never interpreted.

    Later versions store what they add in ``data`` and ``label`` alone, so that nothing of it is lost here.
    """

    type: str
    data: str
    label: str = ""


Part = (
    TextPart
    | ReasoningPart
    | ToolPart
    | FileRefPart
    | CompactionMarkerPart
    | StepStartPart
    | StepFinishPart
    | PatchPart
    | DataPart
    | ImagePart
    | AudioPart
    | DocumentPart
    | ProviderPart
    | ProviderToolPart
    | CitationPart
    | RefusalPart
    | UnknownPart
)
KNOWN_PARTS: dict[str, type[Part]] = {kind.type: kind for kind in get_args(Part) if kind is not UnknownPart}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: Role
    parts: tuple[Part, ...]
    is_summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    id: str
    index: int
    part: Part
    token_estimate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    id: str
    seq: int  # Place in the session, from 1. There is no other order.
    turn_id: str | None
    role: Role
    parts: tuple[StoredPart, ...]
    created_at: datetime
    is_summary: bool = False
    token_estimate: int = 0


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the spoken text of some parts, in order, joined by line breaks."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart | RefusalPart))
