"""Continuation: a prompt that begins with the rows of the call before, so that a provider reads these from its cache.

Between two compactions nothing that was sent changes: what is new comes behind it. Pinned questions, messages of a refill,
facts and passages stay where they stood, although a prompt that was made anew would have others by now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mnesis_core.context.additions import PromptFacts, read_facts, read_passages
from mnesis_core.context.entries import MessageEntry, Row, Sources, SummaryEntry
from mnesis_core.context.fitting import Item, frame_of, whole
from mnesis_core.context.wording import message_row, read_gap, read_message
from mnesis_core.facts import FactRecord
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.messages import StoredMessage

_STATE = ("seq", "parts", "tombstoned", "unanswered", "naming")  # what a row says of its message besides its cuts
_CATEGORIES = {"facts": "facts", "retrieved": "passages", "gap": "messages"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCall:
    """What the newest call of a session was sent, as its row or the turn keeps it."""

    model: str
    manifest: Sequence[Row]
    context_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPrompt:
    """What the call before was sent, with what its rows name beside the context."""

    rows: Sequence[Row]
    messages: Sequence[StoredMessage] = ()
    facts: Sequence[FactRecord] = ()
    new_facts: PromptFacts | None = None
    """Those that came since; they go into the prompt with the next question."""

    @property
    def all_facts(self) -> tuple[FactRecord, ...]:
        return (*self.facts, *(self.new_facts.records if self.new_facts else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A row of a prompt behind its opening, and the item that it shows, if it shows one."""

    row: dict[str, Any]
    cost: Mapping[str, int]
    item: Item | None = None

    @property
    def tokens(self) -> int:
        return sum(self.cost.values())


def of_item(item: Item) -> Place:
    return Place(row=item.row, cost=item.cost, item=item)


def sent_places(sent: SentPrompt, items: Sequence[Item], *, provider: str = "") -> list[Place] | None:
    """Return the rows that were sent behind the opening; ``None`` where they would read differently now, or show too little.

    :param items: the whole context, and what is pinned beside it
    """
    shown = {item.row["id"]: item for item in items if item.row["kind"] != "pinned"}
    beside = {one.id: MessageEntry(position=0, message=one) for one in sent.messages if one.id not in shown}
    rows = [row for row in sent.rows if row["kind"] not in ("system", "tools")]
    shown |= {row["id"]: whole(beside[row["id"]], provider) for row in rows if row["id"] in beside}
    sources = {id: item.entry for id, item in shown.items()} | beside
    places = [_place(row, sent, shown, sources, provider) for row in rows]
    known = [place for place in places if place is not None]
    return known if len(known) == len(places) and _is_enough(known, items) else None


def _place(row: Row, sent: SentPrompt, shown: Mapping[str, Item], sources: Sources, provider: str) -> Place | None:
    match row["kind"]:
        case "summary" | "message" | "pinned":
            item = _as_sent(shown[row["id"]], row, provider) if row["id"] in shown else None
            return of_item(item) if item else None
        case "facts":
            facts = {fact.id: fact for fact in sent.facts}
            text = read_facts(row, facts).text if facts.keys() >= set(row["ids"]) else ""
        case "retrieved":
            quoted = {line["id"] for line in row["lines"]}  # some stand in the context, without the output of a call
            text = read_passages(row, sources).text if sources.keys() >= quoted else ""
        case "gap":
            text = read_gap(row).text
        case _:
            return None
    cost = {_CATEGORIES[row["kind"]]: MESSAGE_FRAMING + estimate_text(text)}
    return Place(row=dict(row), cost=cost) if text else None


def _as_sent(item: Item, row: Row, provider: str) -> Item | None:
    """Return an item with the cuts of its row; ``None`` where its message is in another state by now."""
    if item.row == row:  # as nearly all are
        return item
    if not isinstance(item.entry, MessageEntry):
        return None
    if row["kind"] == "summary" or any(item.row.get(name) != row.get(name) for name in _STATE):
        return None
    if not (row["shortened"] or row["omitted"]):
        return item if row["kind"] == "message" else replace(item, row={**item.row, "kind": row["kind"]})
    message = item.entry.message
    cuts = message_row(message, provider=provider, shortened=row["shortened"], omitted=row["omitted"])
    said = read_message(message, cuts)
    calls = [call.arguments for each in said for call in each.tool_calls]
    results = [result.text for each in said for result in each.tool_results]
    cost = {
        "messages": sum(frame_of(stored) for stored in message.parts if stored.id not in row["omitted"])
        + sum(estimate_text(each.text) for each in said),
        "tool_outputs": sum(map(estimate_text, [*calls, *results])),
    }
    return Item(entry=item.entry, row={**cuts, "kind": row["kind"]}, cost=cost, tokens=sum(cost.values()))


def _is_enough(places: Sequence[Place], items: Sequence[Item]) -> bool:
    """Return whether these are the rows of this context, with its summaries and questions, in its order."""
    number = {item.row["id"]: place for place, item in enumerate(items) if item.row["kind"] != "pinned"}
    shown = [number.get(place.row["id"], -1) for place in places if place.item and place.row["kind"] != "pinned"]
    if not shown or shown[0] < 0 or shown != sorted(set(shown)):
        return False
    pinned = {place.row["id"] for place in places if place.row["kind"] == "pinned"}
    if any(item.row["kind"] == "pinned" and item.row["id"] not in pinned for item in items):
        return False
    gap = next((place.row for place in places if place.row["kind"] == "gap"), {"messages": 0, "summaries": 0})
    known, missing = set(shown), Counter[str]()
    for place, item in enumerate(items):
        if place not in known and item.cost and item.row["kind"] != "pinned":
            is_summary = isinstance(item.entry, SummaryEntry)
            if is_summary and place > shown[-1]:
                return False
            missing["summaries" if is_summary else "messages"] += place < shown[-1]
    if any(missing[name] != gap[name] for name in ("messages", "summaries")):
        return False
    newest = max((place for place, item in enumerate(items) if is_question(item)), default=-1)
    return newest in known or newest > shown[-1] or items[newest].row["kind"] == "pinned"


def is_question(item: Item) -> bool:
    return isinstance(item.entry, MessageEntry) and item.entry.message.role == "user"


def new_items(places: Sequence[Place], items: Sequence[Item]) -> list[Item]:
    """Return the items that came into the context after what was sent."""
    sent = {place.row["id"] for place in places if place.item}
    last = max(place for place, item in enumerate(items) if item.row["id"] in sent and item.row["kind"] != "pinned")
    return [item for item in items[last + 1 :] if item.row["kind"] != "pinned"]


def with_question(places: Sequence[Place]) -> list[Place]:
    """Return what of some rows stays when another question comes.

    The passages of the question before leave if they are larger than what was sent behind them: to write that once more
    costs less than to send them with each later call.
    """
    last = max((number for number, place in enumerate(places) if place.row["kind"] == "retrieved"), default=-1)
    behind = sum(place.tokens for place in places[last + 1 :])
    return [place for number, place in enumerate(places) if number != last or behind >= place.tokens]


def lacks_something(places: Sequence[Place], items: Sequence[Item]) -> bool:
    """Return whether something of the context is missing in what was sent, or is shortened there."""
    context = {item.row["id"] for item in items}
    return any(
        place.row["kind"] == "gap"
        or (place.row["id"] in context and bool(place.row.get("shortened") or place.row.get("omitted")))
        for place in places
    )


def has_pictures_of(sent: SentPrompt, items: Sequence[Item]) -> bool:
    """Return whether the items that were sent have the pictures that they had then."""
    now = {item.row["id"]: item.row.get("pictures") for item in items}
    rows = (row for row in sent.rows if row["id"] in now)
    return all(now[row["id"]] == row.get("pictures") for row in rows)
