"""Foreign transcripts that were read and not stored yet: frozen values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from mnesis_core.facts import FactKind
from mnesis_core.llm.interface import Usage
from mnesis_core.messages import Part, Role

FORMAT_NAMES = ("autobyteus", "chatgpt", "claude_code", "locomo", "openai_chat")

# A whole text, or its lines in order, with or without line ends. Bytes are read as UTF-8.
Source = str | bytes | Iterable[str] | Iterable[bytes]

# In the place of a message's external id: before the first message. No external id holds a NUL.
ROOT = "\0"

Progress = Callable[[int], None]  # Called now and then with the bytes read so far, of all files together.


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSource:
    name: str
    source: Source


class LinkKind(StrEnum):
    SUB_AGENT = "sub_agent"  # A tool call launched it.
    COMPACTION = "compaction"  # It wrote the summary that replaced a part of the other one.


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentLink:
    kind: LinkKind
    transcript_id: str  # External id of the root or of an earlier child of the same root.
    message_id: str = ""  # External id of the message there; empty if the source does not say.
    tool_call_id: str = ""  # The ``ToolPart.tool_call_id`` that launched it; empty if the source does not say.


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineFile:
    """A file whose bytes stand in a transcript. When it is stored, its part gets the file's id in place of the source."""

    source: str  # of the part that shows it
    data: bytes
    media_type: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    external_id: str  # The source's id, at most 200 characters; empty if it has none.
    role: Role
    created_at: datetime | None = None
    model: str = ""
    usage: Usage | None = None  # ``input_tokens`` is the whole prompt, with tokens read from and written to a cache.
    finish_reason: str = ""
    is_summary: bool = False
    parts: tuple[Part, ...] = ()
    files: tuple[InlineFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptTurn:
    """One user message to its final answer. The first turn of a transcript may lack the user's message, and so may one
    that continues an earlier message: it is another answer."""

    external_id: str
    messages: tuple[TranscriptMessage, ...]
    # External id of the message that it continues, of an earlier turn; empty: the last one of the turn before; or ``ROOT``.
    continues: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptFact:
    """What another program noted, and one of the messages said word for word."""

    statement: str
    kind: FactKind
    message_id: str  # external id of the message
    subject: str = ""
    salience: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    external_id: str  # Unique within one result; the same file gives the same id again.
    format: str
    title: str = ""
    model: str = ""  # The model of the last answer that names one.
    system_prompt: str = ""
    started_at: datetime | None = None  # The earliest time found, in UTC.
    labels: dict[str, str] = field(default_factory=dict)
    turns: tuple[TranscriptTurn, ...] = ()  # Each after the one that it continues.
    facts: tuple[TranscriptFact, ...] = ()
    chosen: str = ""  # External id of a message on the branch that goes on; empty: that of the last turn.
    parent: ParentLink | None = None
    # All transcripts below this root, flat; each follows the one it is linked to. Children have none themselves.
    children: tuple[Transcript, ...] = ()

    @property
    def is_line(self) -> bool:
        return not any(turn.continues for turn in self.turns)

    @property
    def messages(self) -> Iterator[TranscriptMessage]:
        return (message for turn in self.turns for message in turn.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    kind: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome for every record: for each kind, read = stored + skipped."""

    format: str
    read: dict[str, int]
    stored: dict[str, int]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[Note, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "read": self.read,
            "stored": self.stored,
            "skipped": [{"kind": s.kind, "reason": s.reason, "count": s.count} for s in self.skipped],
            "notes": [{"text": note.text, "count": note.count} for note in self.notes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    transcripts: tuple[Transcript, ...]
    report: Report


class Parser(Protocol):
    """The function that every format offers. Only a file without a readable record is refused."""

    def __call__(
        self,
        source: Source,
        *,
        name: str = "",
        companions: Sequence[NamedSource] = (),
        progress: Progress | None = None,
    ) -> ParseResult:
        """Read a transcript.

        :param name: the file's name, for ids and errors
        :param companions: files that belong to it; only Claude Code has any
        :raises InvalidRequest: nothing in the file is of this format
        """
        ...
