"""Autobyteus' memory of one agent (seed 004, sections 6, 7, 10.1A and 21), read: raw traces become turns.

The files of the layout belong together: whichever is given first, the others are its companions. A record is known by its
fields, not by its file. A trace's own fields are kept beside what it says, so that writing the layout again gives the same
lines (``autobyteus``). An episode is data, as it is another program's summary; a semantic item is a fact if its words were
said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from mnesis_core.errors import InvalidRequest
from mnesis_core.facts.quotes import SPEAKERS, find_words
from mnesis_core.facts.values import HIGHEST_SALIENCE, LONGEST_STATEMENT, LONGEST_SUBJECT, FactKind, plain_subject
from mnesis_core.messages import DataPart, Role, TextPart, ToolPart
from mnesis_core.text import encode_text
from mnesis_core.transcripts.autobyteus import EPISODE, FORMAT, TRACE_TYPES
from mnesis_core.transcripts.building import (
    MessageDraft,
    Tally,
    TranscriptDraft,
    data_part,
    nothing_readable,
    readable_lines,
    unreadable_part,
)
from mnesis_core.transcripts.reading import (
    ByteCount,
    Element,
    dump_json,
    identifier,
    list_in,
    read_document,
    text_in,
    time_of,
)
from mnesis_core.transcripts.values import NamedSource, ParseResult, Progress, Source, TranscriptFact

FILES = ("raw_traces_archive.jsonl", "raw_traces.jsonl", "episodic.jsonl", "semantic.jsonl")
MOST_FACTS = 1_000  # that are looked for in what was said


def is_of_layout(name: str) -> bool:
    """Return whether a file is one of the layout, by its name."""
    return PurePath(name).name.removesuffix(".gz") in FILES


def by_agent(names: Iterable[str]) -> list[list[str]]:
    """Return which files of a zip archive are the memory of each agent: those of a folder where there are traces.

    :raises InvalidRequest: there is none
    """
    folders: dict[str, list[str]] = {}
    for name in names:
        if PurePath(name).name in FILES:
            folders.setdefault(str(PurePath(name).parent), []).append(name)
    agents = [files for files in folders.values() if any("raw_traces" in PurePath(name).name for name in files)]
    if not agents:
        raise InvalidRequest(
            "The zip archive holds no raw_traces.jsonl, and only Autobyteus' memory is imported as one.", field="file"
        )
    return agents


def parse(
    source: Source, *, name: str = "", companions: Sequence[NamedSource] = (), progress: Progress | None = None
) -> ParseResult:
    """Read one agent's memory. It is known again by its first trace, so the archive has to come with the active file.

    :raises InvalidRequest: there is no trace in these files
    """
    tally, count = Tally(FORMAT), ByteCount(progress)
    read = _Read(tally)
    files = sorted([NamedSource(name=name, source=source), *companions], key=lambda file: "archive" not in file.name)
    for file in files:
        for line in readable_lines(file.source, tally, count):
            if line.strip():
                read.take(read_document(line))
    if not read.traces:
        raise nothing_readable(tally, name, "no line with a 'trace_type' is in it")
    draft = _Agent(tally, identifier(f"sha256:{read.digest()}"))
    for turn in read.turns():
        draft.take_turn(turn)
    for part in read.unreadable:
        draft.attach(part)
    draft.close_calls()
    facts = _facts(read.semantic, draft, tally)
    draft.take_episodes(read.episodes)
    return ParseResult(transcripts=(replace(draft.build(), facts=facts),), report=tally.report())


class _Read:
    """The records of all files, each once."""

    def __init__(self, tally: Tally) -> None:
        self.traces: list[dict[str, Any]] = []
        self.episodes: list[dict[str, Any]] = []
        self.semantic: list[dict[str, Any]] = []
        self.unreadable: list[DataPart] = []
        self._tally = tally
        self._seen: set[str] = set()

    def take(self, element: Element) -> None:
        kind, records = self._place(element.value)
        if records is None:
            self.unreadable.append(unreadable_part(self._tally, element, "it is no trace, episode or semantic item"))
            return
        self._tally.read(kind)
        line = dump_json(element.value)
        if line in self._seen:
            self._tally.skip(kind, "the very same line came before")
            return
        self._seen.add(line)
        records.append(element.value)

    def _place(self, record: Any) -> tuple[str, list[dict[str, Any]] | None]:
        if not isinstance(record, dict):
            return "", None
        if text_in(record, "trace_type") in TRACE_TYPES:
            return "trace", self.traces
        if isinstance(record.get("summary"), str) and isinstance(record.get("turn_ids"), list):
            return "episode", self.episodes
        return ("semantic", self.semantic) if isinstance(record.get("fact"), str) else ("", None)

    def digest(self) -> str:
        return hashlib.sha256(dump_json(self.traces[0]).encode("utf-8", "surrogatepass")).hexdigest()

    def turns(self) -> list[list[dict[str, Any]]]:
        """Return the traces of each turn in order; turns as they began, or as they stand in the files where a time is missing."""
        turns: dict[str, list[dict[str, Any]]] = {}
        for trace in self.traces:
            turns.setdefault(text_in(trace, "turn_id"), []).append(trace)
        in_order = [_in_order(traces) for traces in turns.values()]
        began = [time_of(traces[0].get("ts")) for traces in in_order]
        times = {id(traces): time for traces, time in zip(in_order, began, strict=True) if time is not None}
        return sorted(in_order, key=lambda traces: times[id(traces)]) if len(times) == len(in_order) else in_order


def _in_order(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seqs = [trace.get("seq") for trace in traces]
    if not all(type(seq) is int for seq in seqs):
        return traces
    return sorted(traces, key=lambda trace: int(trace["seq"]))


class _Agent(TranscriptDraft):
    """The session that an agent's memory becomes."""

    def __init__(self, tally: Tally, external_id: str) -> None:
        super().__init__(tally, external_id)
        self._ids: set[str] = set()
        self._has_result = False  # A call after a result is a step of its own.
        self._is_first = True

    def take_turn(self, traces: Iterable[dict[str, Any]]) -> None:
        self._is_first = True
        for trace in traces:
            self.saw(time_of(trace.get("ts")))
            kind = text_in(trace, "trace_type")
            if kind == "tool_result":
                self._result(trace)
            elif kind == "tool_call":
                self._call(trace)
            else:
                self._say(trace, kind)

    def take_episodes(self, episodes: Sequence[dict[str, Any]]) -> None:
        """Keep episodes as a turn of data behind all others, so that one that comes later has a place too."""
        self._is_first = True
        for episode in episodes:
            self.tally.note("episodes are kept as data: Mnesis writes its own summaries")
            message = self._message(episode | {"id": f"episode:{text_in(episode, 'id')}"}, "system")
            message.parts.append(data_part(FORMAT, EPISODE, episode))

    def _say(self, trace: dict[str, Any], kind: str) -> None:
        role: Role = "assistant" if kind == "assistant" else "system" if "system" in list_in(trace, "tags") else "user"
        message = self._message(trace, role)
        content = trace.get("content")
        if isinstance(content, str) and content:
            message.parts.append(TextPart(text=content))
        if any(trace.get("media", {}).values()) if isinstance(trace.get("media"), dict) else trace.get("media"):
            self.tally.note("media are kept as their addresses")
        message.records.append(_rest(trace, content=str))

    def _call(self, trace: dict[str, Any]) -> None:
        last = self.last
        is_step = not self._is_first and last is not None and last.role == "assistant" and not self._has_result
        message = last if is_step and last is not None else self._message(trace, "assistant")
        call_id = identifier(text_in(trace, "tool_call_id")) or message.external_id
        arguments = trace.get("tool_args", {})
        part = ToolPart(
            tool_name=text_in(trace, "tool_name"),
            tool_call_id=call_id,
            input=arguments if isinstance(arguments, str) else dump_json(arguments),
            started_at=time_of(trace.get("ts")),
        )
        self.call(message, part, call_id)
        message.records.append({**_rest(trace, content=str, tool_args=(str, dict)), "tool_call_id": call_id})

    def _result(self, trace: dict[str, Any]) -> None:
        call_id = identifier(text_in(trace, "tool_call_id")) or self.open_call(text_in(trace, "tool_name"))
        error, result = trace.get("tool_error"), trace.get("tool_result")
        said = result if error is None else error
        output = said if isinstance(said, str) else "" if said is None else dump_json(said)
        place = self.answer(call_id, output, failed=error is not None, at=time_of(trace.get("ts")))
        if place is None:
            self.tally.note("results of no call are kept as data")
            self.keep("result", trace)
            return
        self._has_result = True
        types: dict[str, Any] = {"tool_result": str} if error is None else {}
        place.message.records.append({**_rest(trace, content=str, **types), "tool_call_id": call_id})

    def _message(self, trace: dict[str, Any], role: Role) -> MessageDraft:
        wanted = found = identifier(text_in(trace, "id") or "trace")
        number = 1
        while found in self._ids:
            number += 1
            found = identifier(f"{wanted}#{number}")
        self._ids.add(found)
        message = MessageDraft(external_id=found, role=role, created_at=time_of(trace.get("ts")))
        self.add(message, starts_turn=self._is_first)
        self._is_first, self._has_result = False, False
        return message


def _rest(trace: dict[str, Any], **types: Any) -> dict[str, Any]:
    """Return a trace without what stands in the parts of its message: fields of the type that these have."""
    return {key: value for key, value in trace.items() if key not in types or not isinstance(value, types[key])}


def _facts(items: Sequence[dict[str, Any]], draft: TranscriptDraft, tally: Tally) -> tuple[TranscriptFact, ...]:
    """Return the semantic items whose words were said, each with the first message that has them."""
    said = [
        (message.external_id, encode_text(part.text))
        for turn in draft.turns
        for message in turn.messages
        if message.role in SPEAKERS
        for part in message.parts
        if isinstance(part, TextPart)
    ]
    facts = []
    for number, item in enumerate(items):
        statement = item["fact"].strip()
        wanted = encode_text(statement)
        is_short = 0 < len(wanted) <= LONGEST_STATEMENT and number < MOST_FACTS
        place = next((id for id, text in said if find_words(text, wanted) is not None), None) if is_short else None
        if place is None:
            tally.skip("semantic", _reason(wanted, number))
            continue
        facts.append(_fact(item, statement, place))
    return tuple(facts)


def _reason(statement: str, number: int) -> str:
    if not 0 < len(statement) <= LONGEST_STATEMENT:
        return f"a fact has 1 to {LONGEST_STATEMENT} characters"
    if number >= MOST_FACTS:
        return f"at most {MOST_FACTS:,} are looked for in what was said"
    return "these words were not said, and a fact is what was said word for word"


def _fact(item: dict[str, Any], statement: str, message_id: str) -> TranscriptFact:
    tags = [tag for tag in list_in(item, "tags") if isinstance(tag, str)]
    kind = next((FactKind(tag) for tag in tags if tag in list(FactKind)), FactKind.ENTITY)
    subject = next((tag for tag in tags if tag != kind.value), "")
    rating = item.get("salience")
    salience = None
    if isinstance(rating, int | float) and not isinstance(rating, bool) and 0 <= rating <= 1:
        salience = round(rating * HIGHEST_SALIENCE)
    return TranscriptFact(
        statement=statement,
        kind=kind,
        subject=plain_subject(subject)[:LONGEST_SUBJECT],
        salience=salience,
        message_id=message_id,
    )
