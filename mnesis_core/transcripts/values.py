"""What a foreign transcript is once it has been read: frozen values, nothing stored yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from mnesis_core.llm.interface import Usage
from mnesis_core.messages import Part, Role

FORMAT_NAMES = ("chatgpt", "claude_code", "locomo", "openai_chat")

Source = str | bytes | Iterable[str] | Iterable[bytes]
"""A whole text, or its lines in order, with or without their line ends. Bytes are read as UTF-8."""

Progress = Callable[[int], None]
"""Told now and then how many bytes have been read so far, all files together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSource:
    """A file that belongs to the one being read, such as the transcript of a sub-agent."""

    name: str
    source: Source


class LinkKind(StrEnum):
    """Why a transcript hangs on another one."""

    SUB_AGENT = "sub_agent"
    """A tool call launched it."""
    COMPACTION = "compaction"
    """It wrote the summary that replaced a part of the other one."""
    FORK = "fork"
    """It is another way on from the same message: an edited question or a second answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentLink:
    """Where a child transcript hangs."""

    kind: LinkKind
    transcript_id: str
    """External id of the root or of an earlier child of the same root."""
    message_id: str = ""
    """External id of the message there; empty when the source does not say."""
    tool_call_id: str = ""
    """The ``ToolPart.tool_call_id`` that launched it; empty when the source does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    """One message, with what the source knew about it."""

    external_id: str
    """What the source calls it, at most 200 characters; empty when it has no name there."""
    role: Role
    created_at: datetime | None = None
    """In UTC."""
    model: str = ""
    usage: Usage | None = None
    """``input_tokens`` is the whole prompt: tokens read from and written to a cache are part of it."""
    finish_reason: str = ""
    is_summary: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptTurn:
    """One user message to its final answer. Only the first turn of a transcript may lack the user's message."""

    external_id: str
    """That of its first message."""
    messages: tuple[TranscriptMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One conversation."""

    external_id: str
    """Unique within one result; the same file gives the same id again."""
    format: str
    title: str = ""
    model: str = ""
    """The model of the last answer that names one."""
    system_prompt: str = ""
    started_at: datetime | None = None
    """The earliest time found in it, in UTC."""
    labels: dict[str, str] = field(default_factory=dict)
    turns: tuple[TranscriptTurn, ...] = ()
    parent: ParentLink | None = None
    children: tuple[Transcript, ...] = ()
    """Every transcript below this root, flat; each comes after the one it hangs on. Children have none themselves."""

    @property
    def messages(self) -> Iterator[TranscriptMessage]:
        """Its own messages in order, without those of its children."""
        return (message for turn in self.turns for message in turn.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Records that were read and not stored."""

    kind: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that is stored in another form than it was read, and how often."""

    text: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of every record: for each kind, read = stored + skipped."""

    format: str
    read: dict[str, int]
    stored: dict[str, int]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[Note, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "format": self.format,
            "read": self.read,
            "stored": self.stored,
            "skipped": [{"kind": s.kind, "reason": s.reason, "count": s.count} for s in self.skipped],
            "notes": [{"text": note.text, "count": note.count} for note in self.notes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """All conversations of a file, and the account of its records."""

    transcripts: tuple[Transcript, ...]
    report: Report


class Parser(Protocol):
    """What every format offers. Only a file without one readable record is refused."""

    def __call__(
        self,
        source: Source,
        *,
        name: str = "",
        companions: Sequence[NamedSource] = (),
        progress: Progress | None = None,
    ) -> ParseResult:
        """Read a transcript.

        :param name: the file's name, for ids and errors.
        :param companions: files that belong to it; only Claude Code has any.
        :raises InvalidRequest: when nothing in the file is of this format.
        """
        ...
