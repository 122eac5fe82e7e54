"""A session as Autobyteus keeps its memory (seed 004, sections 6, 7, 10.1A and 21), written and read: raw traces,
episodes, facts.

Raw traces are events: what was said, each tool call, each result. Those still in context stand in
``raw_traces.jsonl``, the others in ``raw_traces_archive.jsonl``, numbered within their turn across both. An episode is
a leaf summary, and a semantic item a live fact. Reasoning, imported data and summaries of
summaries have no place in that layout; the session's own export (``mnesis_core.transcripts.session_file``) has everything.
What came from the layout goes back as it came: its traces with their own ids and fields, and its episodes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from mnesis_core.errors import InvalidRequest, fill, gettext_noop
from mnesis_core.facts import (
    HIGHEST_SALIENCE,
    LONGEST_STATEMENT,
    LONGEST_SUBJECT,
    SPEAKERS,
    FactKind,
    FactRecord,
    FactState,
    find_words,
    plain_subject,
)
from mnesis_core.messages import DataPart, Role, StoredMessage, TextPart, ToolPart, ToolState, text_of
from mnesis_core.records import SummaryRecord
from mnesis_core.text import encode_text
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

FORMAT = "autobyteus"
EPISODE = "episodic"
TRACE_TYPES = ("user", "assistant", "tool_call", "tool_result")
_RECORDS, _EPISODE = f"{FORMAT}:records", f"{FORMAT}:{EPISODE}"
_TOLD = ("content", "tool_name", "tool_args", "tool_result", "tool_error")
_FIRST = ("id", "ts", "turn_id", "seq")
Trace = dict[str, Any]

# For each role: trace_type, source_event, tags. The layout has no system trace.
_SAID = {
    "user": ("user", "LLMUserMessageReadyEvent", ["processed"]),
    "system": ("user", "LLMUserMessageReadyEvent", ["system"]),
    "assistant": ("assistant", "LLMCompleteResponseReceivedEvent", ["final"]),
}
CERTAIN = 1.0  # The confidence of a fact: its words are in the record, or a person vouches for it.
NOT_RATED = 0.0  # The salience of an unrated episode, as in Autobyteus.
FILES = ("raw_traces_archive.jsonl", "raw_traces.jsonl", "episodic.jsonl", "semantic.jsonl")
MOST_FACTS = 1_000  # that are looked for in what was said


def raw_traces(messages: Iterable[StoredMessage], in_context: Collection[str]) -> Iterator[Trace]:
    """Yield the lines of ``raw_traces.jsonl``. All messages of the session are needed: traces are numbered across both files."""
    return (trace for message, trace in _traces(messages) if message.id in in_context)


def archived_traces(messages: Iterable[StoredMessage], in_context: Collection[str]) -> Iterator[Trace]:
    """Yield the lines of ``raw_traces_archive.jsonl``: traces of the messages that are not in context."""
    return (trace for message, trace in _traces(messages) if message.id not in in_context)


def turn_id_of(message: StoredMessage) -> str:
    """Return the turn that the traces of a message name."""
    return next(
        (str(record["turn_id"]) for record in _records(message) if record.get("turn_id")), message.turn_id or ""
    )


def imported_episodes(messages: Iterable[StoredMessage]) -> Iterator[dict[str, Any]]:
    """Yield the episodes that came from the layout, as they came."""
    return (episode for message in messages for episode in _kept(message, _EPISODE) if isinstance(episode, dict))


def episodic_items(summaries: Iterable[SummaryRecord], turn_of: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``episodic.jsonl``: leaf summaries that are not superseded, in the order of their turns."""
    for summary in sorted(summaries, key=lambda summary: summary.first_seq):
        if summary.kind == "leaf" and summary.superseded_seq is None:
            turns = [turn_of[id] for kind, id in summary.source_ids if kind == "message" and id in turn_of]
            yield {
                "id": summary.id,
                "ts": summary.created_at.timestamp(),
                "turn_ids": list(dict.fromkeys(turns)),
                "summary": summary.text,
                "tags": [],
                "salience": NOT_RATED,
            }


def semantic_items(facts: Iterable[FactRecord]) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``semantic.jsonl``: facts that are live."""
    for fact in facts:
        if fact.state is FactState.LIVE:
            yield {
                "id": fact.id,
                "ts": fact.said_at.timestamp(),
                "fact": fact.statement,
                "tags": [fact.kind, *([fact.subject] if fact.subject else [])],
                "confidence": CERTAIN,
                "salience": fact.salience / HIGHEST_SALIENCE,
            }


def _traces(messages: Iterable[StoredMessage]) -> Iterator[tuple[StoredMessage, Trace]]:
    seqs: Counter[str] = Counter()
    for message in messages:
        labels = {stored.part.label if isinstance(stored.part, DataPart) else "" for stored in message.parts}
        if labels == {_EPISODE}:
            continue
        turn_id = turn_id_of(message)
        records = _records(message)
        for trace in _traces_of(message):
            seqs[turn_id] += 1
            own = _take(records, trace)
            if own is not None:
                told = {name: trace[name] for name in _TOLD if name in trace} | own
                yield message, {name: told[name] for name in (*_FIRST, *trace) if name in told} | told
            else:
                yield message, {"id": trace["id"], "ts": trace["ts"], "turn_id": turn_id, "seq": seqs[turn_id], **trace}


def _traces_of(message: StoredMessage) -> Iterator[Trace]:
    """Yield a message's traces in order, without turn and number."""
    text = text_of(tuple(stored.part for stored in message.parts))
    calls = [(stored.id, stored.part) for stored in message.parts if isinstance(stored.part, ToolPart)]
    if text or not calls:
        trace_type, source_event, tags = _SAID[message.role]
        media: Trace = {"media": {"images": [], "audio": [], "video": []}} if trace_type == "user" else {}
        said = {"trace_type": trace_type, "content": text, "source_event": source_event}
        yield {"id": message.id, "ts": message.created_at.timestamp(), **said, **media, "tags": tags}
    for part_id, part in calls:
        tool = {"tool_name": part.tool_name, "tool_call_id": part.tool_call_id}
        began = part.started_at or message.created_at
        try:
            arguments = json.loads(part.input)
        except (ValueError, RecursionError):
            arguments = None
        called = {"trace_type": "tool_call", "content": "", "source_event": "PendingToolInvocationEvent"}
        tool_args = arguments if isinstance(arguments, dict) else part.input
        yield {"id": f"{part_id}:call", "ts": began.timestamp(), **called, **tool, "tool_args": tool_args}
        if part.state in (ToolState.COMPLETED, ToolState.ERROR):
            answered = {"trace_type": "tool_result", "content": "", "source_event": "ToolResultEvent"}
            results = {"tool_result": part.output, "tool_error": part.error}
            given = {name: result for name, result in results.items() if result is not None}
            ended = (part.completed_at or began).timestamp()
            yield {"id": f"{part_id}:result", "ts": ended, **answered, **tool, **given}


def _take(records: list[Trace], trace: Trace) -> Trace | None:
    """Take out the record that a trace was made of, if it came from the layout."""
    wanted = (trace["trace_type"], trace.get("tool_call_id"))
    for place, record in enumerate(records):
        if (record.get("trace_type"), record.get("tool_call_id")) == wanted:
            return records.pop(place)
    return None


def _records(message: StoredMessage) -> list[Trace]:
    kept = _kept(message, _RECORDS)
    return [record for records in kept if isinstance(records, list) for record in records if isinstance(record, dict)]


def _kept(message: StoredMessage, label: str) -> Iterator[Any]:
    for stored in message.parts:
        if isinstance(stored.part, DataPart) and stored.part.label == label:
            try:
                yield json.loads(stored.part.text)
            except (ValueError, RecursionError):
                continue


# Autobyteus' memory of one agent (seed 004, sections 6, 7, 10.1A and 21), read: raw traces become turns.
#
# The files of the layout belong together: whichever is given first, the others are its companions. A record is known
# by its fields, not by its file. A trace's own fields are kept beside what it says, so that writing the layout again
# gives the same lines (``autobyteus``). An episode is data, as it is another program's summary; a semantic item is a
# fact if its words were said.


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
            gettext_noop("The zip archive holds no raw_traces.jsonl, and only Autobyteus' memory is imported as one."),
            field="file",
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
            self._tally.skip(kind, gettext_noop("the very same line came before"))
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
            self.tally.note(gettext_noop("episodes are kept as data: Mnesis writes its own summaries"))
            message = self._message(episode | {"id": f"episode:{text_in(episode, 'id')}"}, "system")
            message.parts.append(data_part(FORMAT, EPISODE, episode))

    def _say(self, trace: dict[str, Any], kind: str) -> None:
        role: Role = "assistant" if kind == "assistant" else "system" if "system" in list_in(trace, "tags") else "user"
        message = self._message(trace, role)
        content = trace.get("content")
        if isinstance(content, str) and content:
            message.parts.append(TextPart(text=content))
        if any(trace.get("media", {}).values()) if isinstance(trace.get("media"), dict) else trace.get("media"):
            self.tally.note(gettext_noop("media are kept as their addresses"))
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
            self.tally.note(gettext_noop("results of no call are kept as data"))
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
        return fill(gettext_noop("a fact has 1 to %(most)s characters"), {"most": str(LONGEST_STATEMENT)})
    if number >= MOST_FACTS:
        return fill(gettext_noop("at most %(most)s are looked for in what was said"), {"most": MOST_FACTS})
    return gettext_noop("these words were not said, and a fact is what was said word for word")


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
