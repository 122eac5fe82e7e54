"""Transcripts while they are being read: the few things that change until the last record is in."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import Usage
from mnesis_core.messages import DataPart, Part, Role, TextPart, ToolPart, ToolState
from mnesis_core.transcripts.reading import ByteCount, UnreadableRecord, dump_json, identifier, one_line, read_lines
from mnesis_core.transcripts.values import (
    FORMAT_NAMES,
    NamedSource,
    Note,
    ParentLink,
    Report,
    Skipped,
    Source,
    Transcript,
    TranscriptMessage,
    TranscriptTurn,
)

NO_RESULT = "no result in the transcript"
MAX_KINDS = 100
"""Kinds of records that a report tells apart; a hostile file could name a new one in every line."""
_NOT_A_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")


def label_of(format_name: str, kind: str) -> str:
    """The label of a ``DataPart``: ``<format>:<kind>``, where the kind is reduced to 64 plain characters."""
    return f"{format_name}:{plain_kind(kind)}"


def plain_kind(kind: str) -> str:
    """A record's kind as it may stand in a label or a report."""
    return _NOT_A_LABEL.sub("_", kind[:64]).strip("_") or "unknown"


class Tally:
    """The report while it is being written."""

    def __init__(self, format_name: str) -> None:
        self.format = format_name
        self.broken = ""
        """Why a source could not be read to its end."""
        self._read: Counter[str] = Counter()
        self._skipped: Counter[tuple[str, str]] = Counter()
        self._notes: Counter[str] = Counter()

    def read(self, kind: str, count: int = 1) -> None:
        """Some records were read. They count as stored unless ``skip`` says otherwise."""
        self._read[self._known(kind)] += count

    def skip(self, kind: str, reason: str) -> None:
        """One record that was read is not stored."""
        self._skipped[self._known(kind), reason] += 1

    def note(self, text: str, count: int = 1) -> None:
        """Something is stored otherwise than it was read."""
        self._notes[text] += count

    def _known(self, kind: str) -> str:
        plain = plain_kind(kind)
        return plain if plain in self._read or len(self._read) < MAX_KINDS else "other"

    def report(self) -> Report:
        """The account so far."""
        stored = self._read.copy()
        for (kind, _), count in self._skipped.items():
            stored[kind] -= count
        return Report(
            format=self.format,
            read={kind: count for kind, count in self._read.items() if count},
            stored={kind: count for kind, count in stored.items() if count},
            skipped=tuple(Skipped(kind=kind, reason=why, count=n) for (kind, why), n in self._skipped.items()),
            notes=tuple(Note(text=text, count=count) for text, count in self._notes.items() if count),
        )


@dataclass(slots=True, kw_only=True)
class MessageDraft:
    """A message that may still grow."""

    external_id: str
    role: Role
    created_at: datetime | None = None
    model: str = ""
    usage: Usage | None = None
    finish_reason: str = ""
    is_summary: bool = False
    parts: list[Part] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    """What is left of its source records once their content stands in parts: ids, times, settings."""

    def build(self, format_name: str) -> TranscriptMessage:
        """The message, its source records added as one last part."""
        rest = [DataPart(label=f"{format_name}:records", text=dump_json(self.records))] if self.records else []
        return TranscriptMessage(
            external_id=self.external_id,
            role=self.role,
            created_at=self.created_at,
            model=self.model,
            usage=self.usage,
            finish_reason=self.finish_reason,
            is_summary=self.is_summary,
            parts=(*self.parts, *rest),
        )


@dataclass(slots=True, kw_only=True)
class TurnDraft:
    """A turn that may still grow."""

    begun: bool
    """False while nothing but preliminaries stands in it: the user's message still belongs here."""
    messages: list[MessageDraft]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """Where a tool call stands."""

    message: MessageDraft
    index: int
    part: ToolPart


class TranscriptDraft:
    """A conversation that may still grow."""

    def __init__(self, tally: Tally, external_id: str = "") -> None:
        self.tally = tally
        self.external_id = external_id
        self.title = ""
        self.model = ""
        self.system_prompt = ""
        self.started_at: datetime | None = None
        self.labels: dict[str, str] = {}
        self.turns: list[TurnDraft] = []
        self.parent: ParentLink | None = None
        self.callers: dict[str, MessageDraft] = {}
        self._waiting: list[DataPart] = []
        self._open: defaultdict[str, list[CallPlace]] = defaultdict(list)

    @property
    def last(self) -> MessageDraft | None:
        """The newest message."""
        return self.turns[-1].messages[-1] if self.turns else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was found for it."""
        return not self.turns and not self._waiting

    def add(self, message: MessageDraft, *, starts_turn: bool = False) -> None:
        """Append a message, before it gets any parts; it takes along what waited for a first message."""
        message.parts, self._waiting = [*self._waiting, *message.parts], []
        turn = self.turns[-1] if self.turns else None
        if turn is None or (starts_turn and turn.begun):
            self.turns.append(TurnDraft(begun=starts_turn or message.role == "assistant", messages=[message]))
            return
        turn.begun = turn.begun or starts_turn or message.role == "assistant"
        turn.messages.append(message)

    def saw(self, time: datetime | None) -> None:
        """Some record of it bears this time."""
        if time is not None and (self.started_at is None or time < self.started_at):
            self.started_at = time

    def attach(self, part: DataPart) -> None:
        """Put a part on the nearest message before it, or keep it for the first one."""
        if self.last is None:
            self._waiting.append(part)
            return
        self.last.parts.append(part)

    def take_waiting(self) -> list[DataPart]:
        """Give away what waits for a first message."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def call(self, message: MessageDraft, part: ToolPart, call_id: str) -> None:
        """Append a tool call, to be answered under ``call_id``, the source's own name for it."""
        self._open[call_id].append(CallPlace(message=message, index=len(message.parts), part=part))
        self.callers[call_id] = message
        message.parts.append(part)

    def open_call(self, tool_name: str) -> str:
        """The newest unanswered call of a tool; empty when there is none."""
        for call_id, places in reversed(self._open.items()):
            if any(place.part.tool_name == tool_name for place in places):
                return call_id
        return ""

    def answer(
        self, call_id: str, output: str, *, failed: bool = False, at: datetime | None = None
    ) -> CallPlace | None:
        """Complete the newest open call of this id, and say where it stands; ``None`` when there is none."""
        places = self._open.get(call_id)
        if not places:
            return None
        place = places.pop()
        if not places:
            del self._open[call_id]
        self._finish(place, output, failed, at)
        return place

    def _finish(self, place: CallPlace, output: str, failed: bool, at: datetime | None) -> None:
        place.message.parts[place.index] = replace(
            place.part,
            output=None if failed else output,
            error=(output or "it failed without a message") if failed else None,
            state=ToolState.ERROR if failed else ToolState.COMPLETED,
            completed_at=at,
        )

    def build(self) -> Transcript:
        """The conversation as it is now; calls without a result end as errors."""
        for place in [place for places in self._open.values() for place in places]:
            self._finish(place, NO_RESULT, True, None)
            self.tally.note("tool calls have no result in the transcript and are stored as errors")
        self._open.clear()
        if self._waiting:
            self.add(MessageDraft(external_id="", role="system"))
        return Transcript(
            external_id=self.external_id,
            format=self.tally.format,
            title=self.title or self._first_words(),
            model=self.model,
            system_prompt=self.system_prompt,
            started_at=self.started_at,
            labels=self.labels,
            turns=tuple(self._turn(turn) for turn in self.turns),
            parent=self.parent,
        )

    def _turn(self, turn: TurnDraft) -> TranscriptTurn:
        return TranscriptTurn(
            external_id=turn.messages[0].external_id,
            messages=tuple(message.build(self.tally.format) for message in turn.messages),
        )

    def _first_words(self) -> str:
        texts = [
            part.text
            for turn in self.turns
            for message in turn.messages
            if turn.begun and message.role == "user" and not message.is_summary
            for part in message.parts
            if isinstance(part, TextPart)
        ]
        # What starts with "<" was written by a program: a command, a notification, a reminder.
        spoken = next((text for text in texts if text.strip() and not text.lstrip().startswith("<")), "")
        return one_line(spoken or next(iter(texts), ""), 80)


def make_ids_unique(drafts: Sequence[TranscriptDraft]) -> None:
    """Where two conversations have one external id, the later one gets ``#2`` and so on."""
    taken: set[str] = set()
    numbers: Counter[str] = Counter()
    for draft in drafts:
        wanted = draft.external_id
        while draft.external_id in taken:
            numbers[wanted] += 1
            draft.external_id = identifier(f"{wanted}#{numbers[wanted] + 1}")
        taken.add(draft.external_id)


def family_of(drafts: Sequence[TranscriptDraft]) -> Transcript:
    """The first conversation, with the others as its children."""
    root, *children = drafts
    return replace(root.build(), children=tuple(child.build() for child in children))


def readable_lines(source: Source, tally: Tally, count: ByteCount) -> Iterator[str]:
    """The lines of a source, up to where it breaks off; the report says so when it does."""
    try:
        yield from read_lines(source, count)
    except UnreadableRecord as error:
        tally.broken = tally.broken or str(error)
        tally.note(f"{error}; what came before is kept")


def refuse_companions(tally: Tally, companions: Sequence[NamedSource]) -> None:
    """Account for files that came along and that this format has no place for."""
    for _ in companions:
        tally.read("file")
        tally.skip("file", "this format has no files that belong together")


def nothing_readable(tally: Tally, name: str, what: str) -> InvalidRequest:
    """The error for a file without one record of its format."""
    file = f"'{one_line(name, 200)}'" if name else "The file"
    formats = ", ".join(FORMAT_NAMES)
    message = f"{file} holds no {tally.format} transcript: {tally.broken or what}. Formats: {formats}."
    return InvalidRequest(message, format=tally.format, formats=list(FORMAT_NAMES))
