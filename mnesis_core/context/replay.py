"""The ledger replayed: context items, states and counters of a session, rebuilt from its events alone.

The same value is made from the rows (``sessions_app.record.context_queries``, ``compaction_app.queries``);
``differences`` says where the two disagree (decisions 3 and 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from mnesis_core.events import EventType

Data = Mapping[str, Any]


class Item(NamedTuple):
    item_type: str
    position: int
    added_seq: int
    removed_seq: int | None


@dataclass(slots=True, kw_only=True)
class Projection:
    message_seq: int = 0
    turn_seq: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)  # turn id -> state; so for calls, runs and, by part id, tools
    calls: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    # part id -> the event that took its output out of the context
    tombstones: dict[str, int] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    # summary id -> type and id of what it stands for, in order
    summaries: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    # summary id -> the event in which a revision replaced it
    superseded: dict[str, int] = field(default_factory=dict)
    freshness: dict[str, str] = field(default_factory=dict)  # summary id -> ``fresh`` or ``stale``
    maps: dict[str, str] = field(default_factory=dict)
    # (run id, item number) -> how it ended; None while it waits again
    map_items: dict[str, str | None] = field(default_factory=dict)
    # (run id, item number) -> the session of its sub-agent
    map_children: dict[str, str] = field(default_factory=dict)

    def apply(self, seq: int, type: str, data: Data) -> None:
        """Apply the next event; types that change nothing here are ignored."""
        if (step := _STEPS.get(type)) is not None:
            step(self, seq, data)

    def add(self, later: Projection) -> None:
        """Add the result of the events right after these, which were replayed by themselves."""
        for id, item in later.items.items():
            is_only_removed = id in self.items and not item.item_type
            self.items[id] = self.items[id]._replace(removed_seq=item.removed_seq) if is_only_removed else item
        for name in (entry.name for entry in fields(self) if entry.name != "items"):
            found = getattr(later, name)
            if isinstance(found, dict):
                getattr(self, name).update(found)
            elif found:
                setattr(self, name, found)


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
            replayed, found = {"": replayed}, {"": found}
        # A forged ledger may have anything for an id.
        for id in () if replayed == found else sorted(replayed.keys() | found.keys(), key=str):
            if replayed.get(id) != found.get(id):
                yield Difference(what=name, id=id, ledger=replayed.get(id), rows=found.get(id))


def _turn_started(state: Projection, seq: int, data: Data) -> None:
    state.turn_seq = data["turn_seq"]
    state.turns[data["turn_id"]] = "running"


def _message_created(state: Projection, seq: int, data: Data) -> None:
    state.message_seq = data["message_seq"]
    state.items[data["message_id"]] = Item("message", data["message_seq"], seq, None)
    for part in data["parts"]:
        _part_created(state, seq, part)


def _part_created(state: Projection, seq: int, data: Data) -> None:
    if "state" in data:
        state.tools[data["part_id"]] = data["state"]


def _part_compacted(state: Projection, seq: int, data: Data) -> None:
    state.tombstones.update(dict.fromkeys(data["part_ids"], seq))


def _context_changed(state: Projection, seq: int, data: Data) -> None:
    for id in data["removed"]:
        # An item that was never added is no error here: the rows will show it.
        state.items[id] = state.items.get(id, Item("", 0, 0, None))._replace(removed_seq=seq)
    for id in data["added"]:
        state.items[id] = Item("summary", data["position"], seq, None)


def _summary_created(state: Projection, seq: int, data: Data) -> None:
    source_type = "message" if data["kind"] == "leaf" else "summary"
    state.summaries[data["summary_id"]] = tuple((source_type, id) for id in data["source_ids"])
    state.freshness[data["summary_id"]] = "fresh"


def _summary_superseded(state: Projection, seq: int, data: Data) -> None:
    state.superseded[data["summary_id"]] = seq


def _freshness_changed(state: Projection, seq: int, data: Data) -> None:
    state.freshness.update(dict.fromkeys(data["stale"], "stale") | dict.fromkeys(data["fresh"], "fresh"))


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
        if isinstance(stretch, int):
            yield stretch
        else:
            first, last = stretch
            yield from range(first, last + 1)


def _state(collection: str, key: str, value: str) -> Callable[[Projection, int, Data], None]:
    def step(state: Projection, seq: int, data: Data) -> None:
        getattr(state, collection)[data[key]] = value

    return step


_STEPS: Mapping[str, Callable[[Projection, int, Data], None]] = {
    EventType.TURN_STARTED: _turn_started,
    EventType.TURN_SUSPENDED: _state("turns", "turn_id", "suspended"),
    EventType.TURN_RESUMED: _state("turns", "turn_id", "running"),
    EventType.TURN_COMPLETED: _state("turns", "turn_id", "completed"),
    EventType.TURN_CANCELLED: _state("turns", "turn_id", "cancelled"),
    EventType.TURN_INTERRUPTED: _state("turns", "turn_id", "interrupted"),
    EventType.TURN_FAILED: _state("turns", "turn_id", "failed"),
    EventType.TURN_INCOMPLETE: _state("turns", "turn_id", "incomplete"),
    EventType.MESSAGE_CREATED: _message_created,
    EventType.PART_CREATED: _part_created,
    EventType.PART_STATE_CHANGED: _part_created,
    EventType.PART_COMPACTED: _part_compacted,
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
    EventType.SUMMARY_CREATED: _summary_created,
    EventType.SUMMARY_SUPERSEDED: _summary_superseded,
    EventType.SUMMARY_FRESHNESS_CHANGED: _freshness_changed,
}
