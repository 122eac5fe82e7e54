"""What a record tells of the past: a session's state from its ledger, and the blocks of a prompt from its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from mnesis_core import values
from mnesis_core.context.additions import read_facts, read_passages
from mnesis_core.context.assembly import read_system, read_tool, size_of_tool
from mnesis_core.context.entries import EMPTY_MESSAGE, ContextEntry, Picture, find_message, find_summary, sources_of
from mnesis_core.context.fitting import frame_of
from mnesis_core.context.wording import field_texts, pictures_of, read_gap, read_summary
from mnesis_core.events import EventType
from mnesis_core.facts import FactRecord
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.messages import (
    FileRefPart,
    MediaPart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    StoredMessage,
    ToolPart,
)

Data = Mapping[str, Any]


class Item(NamedTuple):
    item_type: str
    position: int
    added_seq: int
    removed_seq: int | None
    branch: int = 0


@dataclass(slots=True, kw_only=True)
class Projection:
    message_seq: int = 0
    turn_seq: int = 0
    branch: int | None = None  # the chosen one, if any was ever chosen
    branches: dict[int, tuple[int, int]] = field(default_factory=dict)  # number -> its parent, and what it begins after
    items: dict[str, Item] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)  # turn id -> state; so for calls, runs and, by part id, tools
    calls: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)  # part id -> the event that took its output away
    runs: dict[str, str] = field(default_factory=dict)
    # summary id -> type and id of what it stands for, in order
    summaries: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    superseded: dict[str, int] = field(default_factory=dict)  # summary id -> the event in which a revision replaced it
    freshness: dict[str, str] = field(default_factory=dict)  # summary id -> ``fresh`` or ``stale``
    maps: dict[str, str] = field(default_factory=dict)
    # (run id, item number) -> how it ended; None while it waits again
    map_items: dict[str, str | None] = field(default_factory=dict)
    map_children: dict[str, str] = field(default_factory=dict)  # (run id, item number) -> the session of its sub-agent
    facts: dict[str, str] = field(
        default_factory=dict
    )  # fact id -> ``live``, ``superseded``, ``withdrawn`` or ``forbidden``
    held: dict[str, tuple[str, int] | None] = field(
        default_factory=dict
    )  # fact id -> for whom it is held, and since which event; None once it is let go
    reflections: dict[str, str] = field(default_factory=dict)

    def apply(self, seq: int, type: str, data: Data) -> None:
        """Apply the next event; types that change nothing here are ignored."""
        if (step := _STEPS.get(type)) is not None:
            step(self, seq, data)

    def add(self, later: Projection) -> None:
        """Add the result of the events right after these, which were replayed by themselves."""
        for id, item in later.items.items():
            is_only_removed = id in self.items and not item.item_type
            self.items[id] = _removed(self.items[id], item.removed_seq) if is_only_removed else item
        for name in (entry.name for entry in fields(self) if entry.name != "items"):
            found = getattr(later, name)
            if isinstance(found, dict):
                getattr(self, name).update(found)
            elif found:
                setattr(self, name, found)
        if later.branch is not None:  # It may be branch 0 again.
            self.branch = later.branch


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    what: str
    id: str  # empty for a counter
    ledger: Any
    rows: Any


def differences(ledger: Projection, rows: Projection) -> Iterator[Difference]:
    for name in (entry.name for entry in fields(Projection)):
        replayed, found = getattr(ledger, name), getattr(rows, name)
        if isinstance(found, int):
            replayed, found = {"": replayed or 0}, {"": found}
        # A forged ledger may have anything for an id.
        for id in () if replayed == found else sorted(replayed.keys() | found.keys(), key=str):
            if replayed.get(id) != found.get(id):
                yield Difference(what=name, id=id, ledger=replayed.get(id), rows=found.get(id))


Step = Callable[[Projection, int, Data], None]


def _turn_started(state: Projection, seq: int, data: Data) -> None:
    state.turn_seq = data["turn_seq"]
    state.turns[data["turn_id"]] = "running"


def _message_created(state: Projection, seq: int, data: Data) -> None:
    state.message_seq = data["message_seq"]
    state.items[data["message_id"]] = Item("message", data["message_seq"], seq, None, data.get("branch", 0))
    for part in data["parts"]:
        _part_created(state, seq, part)
    if "call_id" in data:
        state.calls[data["call_id"]] = "running"


def _message_finalized(state: Projection, seq: int, data: Data) -> None:
    if "call_id" in data:
        state.calls[data["call_id"]] = "completed" if data["error_code"] is None else "failed"


def _part_created(state: Projection, seq: int, data: Data) -> None:
    if "state" in data:
        state.tools[data["part_id"]] = data["state"]


def _context_changed(state: Projection, seq: int, data: Data) -> None:
    for id in data["removed"]:
        # An item that was never added is no error here: the rows will show it.
        state.items[id] = _removed(state.items.get(id, Item("", 0, 0, None)), seq)
    for id in data["added"]:
        state.items[id] = Item("summary", data["position"], seq, None, data.get("branch", 0))


def _removed(item: Item, seq: int | None) -> Item:
    # What left the context of one branch may leave that of another later: the first event counts.
    return item if item.removed_seq is not None else item._replace(removed_seq=seq)


def _branch_chosen(state: Projection, seq: int, data: Data) -> None:
    state.branch = data["branch"]


def _summary_created(state: Projection, seq: int, data: Data) -> None:
    source_type = "message" if data["kind"] == "leaf" else "summary"
    state.summaries[data["summary_id"]] = tuple((source_type, id) for id in data["source_ids"])
    state.freshness[data["summary_id"]] = "fresh"


def _map_moved(state: Projection, seq: int, data: Data) -> None:
    if "state" in data:
        state.maps[data["run_id"]] = data["state"]
    for word, after in _ITEM_WORDS.items():
        moved = {f"{data['run_id']} {number}": after for number in _numbers(data.get(word, ()))}
        state.map_items.update(moved)
    children = zip(data["items"], data["session_ids"], strict=True) if "session_ids" in data else ()
    state.map_children.update({f"{data['run_id']} {number}": id for number, id in children})
    for name, after in _CALL_WORDS.items():
        state.calls.update(dict.fromkeys(data.get(name, ()), after))


_ITEM_WORDS = {"completed": "completed", "failed": "failed", "cancelled": "cancelled", "again": None}
_CALL_WORDS = {"call_ids": "running", "calls_completed": "completed", "calls_failed": "failed"}


def _numbers(stretches: Iterable[int | Sequence[int]]) -> Iterator[int]:
    """Yield item numbers as events have them: one by one, or as first and last of a range."""
    for stretch in stretches:
        first, last = (stretch, stretch) if isinstance(stretch, int) else stretch
        yield from range(first, last + 1)


def _state(collection: str, key: str, value: str) -> Step:
    def step(state: Projection, seq: int, data: Data) -> None:
        getattr(state, collection)[data[key]] = value

    return step


_STEPS: Mapping[str, Step] = {
    EventType.BRANCH_CREATED: lambda state, seq, data: state.branches.update(
        {data["branch"]: (data["parent"], data["after_seq"])}
    ),
    EventType.BRANCH_CHOSEN: _branch_chosen,
    EventType.TURN_STARTED: _turn_started,
    EventType.TURN_SUSPENDED: _state("turns", "turn_id", "suspended"),
    EventType.TURN_RESUMED: _state("turns", "turn_id", "running"),
    EventType.TURN_COMPLETED: _state("turns", "turn_id", "completed"),
    EventType.TURN_CANCELLED: _state("turns", "turn_id", "cancelled"),
    EventType.TURN_INTERRUPTED: _state("turns", "turn_id", "interrupted"),
    EventType.TURN_FAILED: _state("turns", "turn_id", "failed"),
    EventType.TURN_INCOMPLETE: _state("turns", "turn_id", "incomplete"),
    EventType.MESSAGE_CREATED: _message_created,
    EventType.MESSAGE_FINALIZED: _message_finalized,
    EventType.PART_CREATED: _part_created,
    EventType.PART_STATE_CHANGED: _part_created,
    EventType.PART_COMPACTED: lambda state, seq, data: state.tombstones.update(dict.fromkeys(data["part_ids"], seq)),
    EventType.CALL_STARTED: _state("calls", "call_id", "running"),
    EventType.CALL_COMPLETED: _state("calls", "call_id", "completed"),
    EventType.CALL_FAILED: _state("calls", "call_id", "failed"),
    EventType.CONTEXT_CHANGED: _context_changed,
    EventType.COMPACTION_REQUESTED: _state("runs", "run_id", "queued"),
    EventType.COMPACTION_STARTED: _state("runs", "run_id", "running"),
    EventType.COMPACTION_COMPLETED: _state("runs", "run_id", "completed"),
    EventType.COMPACTION_FAILED: _state("runs", "run_id", "failed"),
    EventType.COMPACTION_SUPERSEDED: _state("runs", "run_id", "superseded"),
    EventType.MAP_STARTED: _state("maps", "run_id", "pending"),
    EventType.MAP_ITEMS_CLAIMED: _map_moved,
    EventType.MAP_ITEM_COMPLETED: _map_moved,
    EventType.MAP_ITEMS_RELEASED: _map_moved,
    EventType.MAP_STATE_CHANGED: _map_moved,
    EventType.MAP_COMPLETED: _state("maps", "run_id", "completed"),
    EventType.FACT_CREATED: _state("facts", "fact_id", "live"),
    EventType.FACT_SUPERSEDED: _state("facts", "fact_id", "superseded"),
    EventType.FACT_WITHDRAWN: _state("facts", "fact_id", "withdrawn"),
    EventType.FACT_FORBIDDEN: _state("facts", "fact_id", "forbidden"),
    EventType.FACT_ALLOWED: _state("facts", "fact_id", "withdrawn"),
    EventType.FACT_HELD: lambda state, seq, data: state.held.update(
        {data["fact_id"]: None if data["held_for"] == "session" else (data["held_for"], seq)}
    ),
    EventType.REFLECTION_REQUESTED: _state("reflections", "reflection_id", "queued"),
    EventType.REFLECTION_COMPLETED: _state("reflections", "reflection_id", "completed"),
    EventType.REFLECTION_FAILED: _state("reflections", "reflection_id", "failed"),
    EventType.SUMMARY_CREATED: _summary_created,
    EventType.SUMMARY_SUPERSEDED: lambda state, seq, data: state.superseded.update({data["summary_id"]: seq}),
    EventType.SUMMARY_FRESHNESS_CHANGED: lambda state, seq, data: state.freshness.update(
        dict.fromkeys(data["stale"], "stale") | dict.fromkeys(data["fresh"], "fresh")
    ),
}


class BlockKind(StrEnum):
    SYSTEM = "system"
    TOOL = "tool"
    FACTS = "facts"
    SUMMARY = "summary"
    PASSAGES = "passages"
    MESSAGE = "message"
    TOOL_OUTPUT = "tool_output"
    TOMBSTONE = "tombstone"
    FILE = "file"
    OPAQUE = "opaque"
    PATCH = "patch"
    GAP = "gap"
    FORMAT = "response_format"
    CORRECTION = "correction"


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    kind: BlockKind
    role: str
    # (name, text) as the model reads it: ``text``, or ``input`` and ``output`` of a tool call.
    texts: tuple[tuple[str, str], ...]
    tokens: int  # by our own estimate, uncorrected
    name: str = ""  # of a tool, or the path of a file
    item_id: str = ""
    part_id: str = ""
    first_seq: int = 0
    last_seq: int = 0  # The messages that it is of or stands for; 0 for none.
    is_shortened: bool = False
    is_unanswered: bool = False  # a tool call that had no result then
    picture: Picture | None = None  # what was shown beside the text
    is_pinned: bool = False  # shown although a summary stands for it


def blocks_of(
    manifest: Sequence[Mapping[str, Any]],
    entries: Sequence[ContextEntry],
    *,
    system_prompt: str,
    tools: Sequence[ToolSpec],
    facts: Sequence[FactRecord] = (),
) -> list[Block]:
    """Return the blocks of a stored manifest, from what ``assembly.rebuild`` takes.

    :raises MessageNotFoundError: a message that the manifest names is not among the entries.
    :raises SummaryNotFoundError: a summary that it names is not among them.
    """
    sources = sources_of(entries)
    by_name = {tool.name: tool for tool in tools}
    blocks: list[Block] = []
    for row in manifest:
        match row["kind"]:
            case "system":
                text = read_system(row, system_prompt).text
                blocks.append(_text_block(BlockKind.SYSTEM, "system", text, is_shortened="head" in row))
            case "tools":
                for tool in (by_name[name] for name in row["names"] if name in by_name):
                    texts, tokens = (("text", read_tool(tool, indent=2)),), size_of_tool(tool)
                    blocks.append(Block(kind=BlockKind.TOOL, role="system", texts=texts, tokens=tokens, name=tool.name))
            case "summary":
                entry = find_summary(sources, row["id"])
                what = {"item_id": entry.id, "first_seq": entry.first_seq, "last_seq": entry.last_seq}
                blocks.append(_text_block(BlockKind.SUMMARY, "user", read_summary(entry).text, **what))
            case "message" | "pinned":
                blocks += _message_blocks(find_message(sources, row["id"]), row)
            case "facts":
                known = {fact.id: fact for fact in facts}
                blocks.append(_text_block(BlockKind.FACTS, "user", read_facts(row, known).text))
            case "retrieved":
                blocks.append(_text_block(BlockKind.PASSAGES, "user", read_passages(row, sources).text))
            case "gap":
                what = {"first_seq": row["first_seq"], "last_seq": row["last_seq"]}
                blocks.append(_text_block(BlockKind.GAP, "user", read_gap(row).text, **what))
    return blocks


def blocks_beside(texts: Mapping[str, str]) -> list[Block]:
    """Return the blocks of what a call was sent beside its context: the format of its answer, and a correction."""
    roles = {BlockKind.FORMAT: "system", BlockKind.CORRECTION: "user"}
    return [_text_block(kind, role, texts[kind]) for kind, role in roles.items() if kind in texts]


def _text_block(kind: BlockKind, role: str, text: str, **more: Any) -> Block:
    picture = more.get("picture")
    tokens = MESSAGE_FRAMING + estimate_text(text) + (picture.tokens if picture else 0)
    return Block(kind=kind, role=role, texts=(("text", text),), tokens=tokens, **more)


def _message_blocks(message: StoredMessage, row: Mapping[str, Any]) -> Iterator[Block]:
    what: dict[str, Any] = {"item_id": message.id, "first_seq": message.seq, "last_seq": message.seq}
    what["is_pinned"] = row["kind"] == "pinned"
    parts = [stored for stored in message.parts[: row["parts"]] if stored.id not in row["omitted"]]
    found = [(stored, texts) for stored in parts if (texts := field_texts(message, stored, row))]
    if not found and message.role == "user":
        yield _text_block(BlockKind.MESSAGE, "user", EMPTY_MESSAGE, **what)
    pictures = pictures_of(row)
    cut = {shortened["part"] for shortened in row["shortened"]}
    for stored, texts in found:
        what |= {"part_id": stored.id, "is_shortened": stored.id in cut}
        if isinstance(stored.part, ToolPart):
            is_open = stored.id in row["unanswered"]
            names = ("input",) if is_open else ("input", "output")
            yield Block(
                kind=BlockKind.TOMBSTONE if stored.id in row["tombstoned"] else BlockKind.TOOL_OUTPUT,
                role="tool",
                texts=tuple((name, texts[name]) for name in names),
                tokens=frame_of(stored) + sum(estimate_text(texts[name]) for name in names),
                name=stored.part.tool_name,
                is_unanswered=is_open,
                **what,
            )
        else:
            kind, name = _kind_and_name(stored.part)
            picture = pictures.get(stored.id)
            yield _text_block(kind, message.role, texts["text"], name=name, picture=picture, **what)


def _kind_and_name(part: Part) -> tuple[BlockKind, str]:
    match part:
        case FileRefPart():
            return BlockKind.FILE, part.path or part.file_id
        case MediaPart():
            return BlockKind.FILE, part.name or part.file_id or part.source
        case ProviderPart():
            return BlockKind.OPAQUE, f"{part.provider} {part.kind}"
        case ProviderToolPart():
            return BlockKind.TOOL_OUTPUT, part.tool_name
        case PatchPart():
            return BlockKind.PATCH, ", ".join(part.files_changed)
        case _:
            return BlockKind.MESSAGE, ""
