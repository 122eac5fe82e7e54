"""Drafts of transcripts that are being read, and the tally of what became of their records."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

from mnesis_core.errors import InvalidRequest, fill, gettext_noop
from mnesis_core.llm.interface import Usage
from mnesis_core.messages import DataPart, Part, ProviderToolPart, Role, TextPart, ToolPart, ToolState
from mnesis_core.transcripts.reading import (
    ByteCount,
    Element,
    Media,
    UnreadableRecord,
    dump_json,
    identifier,
    one_line,
    read_elements,
    read_lines,
)
from mnesis_core.transcripts.values import (
    FORMAT_NAMES,
    ROOT,
    InlineFile,
    NamedSource,
    Note,
    ParentLink,
    Progress,
    Report,
    Skipped,
    Source,
    Transcript,
    TranscriptMessage,
    TranscriptTurn,
)

NO_RESULT = "no result in the transcript"
MAX_KINDS = 100  # Kinds of records that a report tells apart; a hostile file could name a new one in every line.
_NOT_A_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")


def data_part(format_name: str, kind: str, value: Any) -> DataPart:
    return DataPart(label=label_of(format_name, kind), text=dump_json(value))


def label_of(format_name: str, kind: str) -> str:
    """Return the label of a ``DataPart``: ``<format>:<kind>``, the kind reduced to 64 plain characters."""
    return f"{format_name}:{plain_kind(kind)}"


def plain_kind(kind: str) -> str:
    return _NOT_A_LABEL.sub("_", kind[:64]).strip("_") or "unknown"


class Tally:
    def __init__(self, format_name: str) -> None:
        self.format = format_name
        self.broken = ""  # Why a source could not be read to its end.
        self._read: Counter[str] = Counter()
        self._skipped: Counter[tuple[str, str]] = Counter()
        self._notes: Counter[str] = Counter()

    def read(self, kind: str, count: int = 1) -> None:
        """Count records that were read. They count as stored unless ``skip`` is called for them."""
        self._read[self._known(kind)] += count

    def skip(self, kind: str, reason: str) -> None:
        self._skipped[self._known(kind), reason] += 1

    def note(self, text: str, count: int = 1) -> None:
        self._notes[text] += count

    def _known(self, kind: str) -> str:
        plain = plain_kind(kind)
        return plain if plain in self._read or len(self._read) < MAX_KINDS else "other"

    def report(self) -> Report:
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
    external_id: str
    role: Role
    created_at: datetime | None = None
    model: str = ""
    usage: Usage | None = None
    finish_reason: str = ""
    is_summary: bool = False
    parts: list[Part] = field(default_factory=list)
    files: list[InlineFile] = field(default_factory=list)
    # What is left of the source records once their content is in parts: ids, times, settings.
    records: list[Any] = field(default_factory=list)

    def build(self, format_name: str) -> TranscriptMessage:
        rest = [DataPart(label=f"{format_name}:records", text=dump_json(self.records))] if self.records else []
        own = {item.name: getattr(self, item.name) for item in fields(TranscriptMessage)}
        return TranscriptMessage(**{**own, "parts": (*self.parts, *rest), "files": tuple(self.files)})

    def show(self, media: Media) -> None:
        self.parts.append(media.part)
        if media.file is not None:
            self.files.append(media.file)


@dataclass(slots=True, kw_only=True)
class TurnDraft:
    begun: bool  # False while the turn has only preliminaries: the user's message still belongs to it.
    messages: list[MessageDraft]
    continues: str = ""  # as in ``TranscriptTurn``


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    message: MessageDraft
    index: int
    part: ToolPart | ProviderToolPart


class TranscriptDraft:
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
        self.chosen = ""
        self.callers: dict[str, MessageDraft] = {}
        self._waiting: list[DataPart] = []
        self._open: defaultdict[str, list[CallPlace]] = defaultdict(list)

    @property
    def last(self) -> MessageDraft | None:
        return self.turns[-1].messages[-1] if self.turns else None

    @property
    def is_line(self) -> bool:
        return not any(turn.continues for turn in self.turns)

    @property
    def is_empty(self) -> bool:
        return not self.turns and not self._waiting

    def add(self, message: MessageDraft, *, starts_turn: bool = False, continues: str = "") -> None:
        """:param continues: as in ``TranscriptTurn``; a message that continues an earlier one begins a turn"""
        message.parts = [*self.take_waiting(), *message.parts]
        begins = starts_turn or message.role == "assistant"
        if not self.turns or continues or (starts_turn and self.turns[-1].begun):
            self.turns.append(TurnDraft(begun=begins, messages=[message], continues=continues if self.turns else ""))
            return
        turn = self.turns[-1]
        turn.begun = turn.begun or begins
        turn.messages.append(message)

    def saw(self, time: datetime | None) -> None:
        if time is not None and (self.started_at is None or time < self.started_at):
            self.started_at = time

    def attach(self, part: DataPart, message: MessageDraft | None = None) -> None:
        message = message or self.last
        (self._waiting if message is None else message.parts).append(part)

    def keep(self, kind: str, value: Any) -> None:
        self.attach(data_part(self.tally.format, kind, value))

    def take_waiting(self) -> list[DataPart]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def call(self, message: MessageDraft, part: ToolPart | ProviderToolPart, call_id: str) -> None:
        self._open[call_id].append(CallPlace(message=message, index=len(message.parts), part=part))
        self.callers[call_id] = message
        message.parts.append(part)

    def open_call(self, tool_name: str) -> str:
        """Return the newest unanswered call of a tool; empty if there is none."""
        for call_id, places in reversed(self._open.items()):
            if any(place.part.tool_name == tool_name for place in places):
                return call_id
        return ""

    def answer(
        self, call_id: str, output: str, *, failed: bool = False, at: datetime | None = None
    ) -> CallPlace | None:
        """Complete the newest open call of this id and return its place; None if there is none."""
        places = self._open.get(call_id)
        if not places:
            return None
        place = places.pop()
        if not places:
            del self._open[call_id]
        self._finish(place, output, failed, at)
        return place

    def _finish(self, place: CallPlace, output: str, failed: bool, at: datetime | None) -> None:
        said = None if failed else output
        error = (output or "it failed without a message") if failed else None
        if isinstance(place.part, ProviderToolPart):
            place.message.parts[place.index] = replace(place.part, output=said, error=error)
            return
        state = ToolState.ERROR if failed else ToolState.COMPLETED
        part = replace(place.part, output=said, error=error, state=state, completed_at=at)
        place.message.parts[place.index] = part

    def join(self, branch: TranscriptDraft, start: MessageDraft | None) -> None:
        """Take the turns of a draft that continues a message of this one, or begins before all of them."""
        branch.close_calls()
        if not branch.turns:  # It holds only what belongs to the message before.
            for part in branch.take_waiting():
                self.attach(part, start)
            return
        self.saw(branch.started_at)
        self.model = branch.model or self.model
        if self.turns:
            branch.turns[0].continues = ROOT if start is None else start.external_id
        else:
            branch.turns[0].messages[0].parts[:0] = self.take_waiting()
        self.turns += branch.turns

    def close_calls(self) -> None:
        for place in chain.from_iterable(self._open.values()):
            if isinstance(place.part, ProviderToolPart):
                continue
            self._finish(place, NO_RESULT, True, None)
            self.tally.note(gettext_noop("tool calls have no result in the transcript and are stored as errors"))
        self._open.clear()

    def build(self) -> Transcript:
        self.close_calls()
        if self._waiting:
            self.add(MessageDraft(external_id="", role="system"))
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
        return Transcript(
            external_id=self.external_id,
            format=self.tally.format,
            title=self.title or one_line(spoken or next(iter(texts), ""), 80),
            model=self.model,
            system_prompt=self.system_prompt,
            started_at=self.started_at,
            labels=self.labels,
            turns=tuple(
                TranscriptTurn(
                    external_id=turn.messages[0].external_id,
                    messages=tuple(message.build(self.tally.format) for message in turn.messages),
                    continues=turn.continues,
                )
                for turn in self.turns
            ),
            chosen=self.chosen,
            parent=self.parent,
        )


BRANCHES = gettext_noop("edited questions and other answers are branches of their session")


D = TypeVar("D", bound=TranscriptDraft)


def make_ids_unique(drafts: Sequence[TranscriptDraft]) -> None:
    """Give a conversation whose external id is taken the suffix ``#2`` and so on."""
    taken: set[str] = set()
    numbers: Counter[str] = Counter()
    for draft in drafts:
        wanted = draft.external_id
        while draft.external_id in taken:
            numbers[wanted] += 1
            draft.external_id = identifier(f"{wanted}#{numbers[wanted] + 1}")
        taken.add(draft.external_id)


def family_of(drafts: Sequence[TranscriptDraft]) -> Transcript:
    root, *children = drafts
    return replace(root.build(), children=tuple(child.build() for child in children))


def readable_lines(source: Source, tally: Tally, count: ByteCount) -> Iterator[str]:
    """Yield the lines of a source up to where it breaks off, which the report notes."""
    try:
        yield from read_lines(source, count)
    except UnreadableRecord as error:
        tally.broken = tally.broken or str(error)
        tally.note(fill(gettext_noop("%(reason)s; what came before is kept"), {"reason": str(error)}))


def unreadable_part(tally: Tally, element: Element, reason: str) -> DataPart:
    """Count an element that is kept as text; ``reason`` says why if it can be read as JSON."""
    tally.read("unreadable")
    said = {"reason": element.reason or reason}
    tally.note(fill(gettext_noop("unreadable records are kept as text: %(reason)s"), said))
    return DataPart(label=label_of(tally.format, "unreadable"), text=element.raw or dump_json(element.value))


def read_families(
    tally: Tally,
    source: Source,
    companions: Sequence[NamedSource],
    progress: Progress | None,
    *,
    name: str,
    element: str,
    key: str,
    read: Callable[[dict[str, Any], Tally], list[D]],
) -> list[list[D]]:
    """Read a list of objects that each hold an object under ``key``; others are kept as text on the one before.

    :param element: what such an object is called in an error
    :param read: returns an object's conversations, the root first
    :raises InvalidRequest: there is no such object
    """
    refuse_companions(tally, companions)
    families: list[list[D]] = []
    unplaced: list[DataPart] = []
    lines = readable_lines(source, tally, ByteCount(progress))
    for found in read_elements("\n".join(lines)):
        if isinstance(found.value, dict) and isinstance(found.value.get(key), dict):
            families.append(read(found.value, tally))
        else:
            unplaced.append(unreadable_part(tally, found, f"it has no {key}"))
        while families and unplaced:
            families[-1][0].attach(unplaced.pop(0))
    if not families:
        raise nothing_readable(tally, name, f"no {element} with a '{key}' is in it")
    make_ids_unique([draft for family in families for draft in family])
    return families


def refuse_companions(tally: Tally, companions: Sequence[NamedSource]) -> None:
    for _ in companions:
        tally.read("file")
        tally.skip("file", gettext_noop("this format has no files that belong together"))


def nothing_readable(tally: Tally, name: str, what: str) -> InvalidRequest:
    file = f"'{one_line(name, 200)}'" if name else "The file"
    formats = ", ".join(FORMAT_NAMES)
    message = f"{file} holds no {tally.format} transcript: {tally.broken or what}. Formats: {formats}."
    return InvalidRequest(message, format=tally.format, formats=list(FORMAT_NAMES))
