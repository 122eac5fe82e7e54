"""Assembly: context entries and a budget -> exactly what a model will see, and what was left out and why.

The result always fits the budget. When not everything does, these go in first: the newest user message, the newest step,
summaries up to a quarter of the room, then older steps from the newest back. A step is a message: calls and their results
are parts of one, and cannot be separated. The step that does not fit whole keeps its newest parts, and its longest texts
are shortened to a common length, visibly.

A message may be pinned: what the user asked for stays verbatim also where a summary stands for it already. Passages of
earlier messages stand just before the question that they may answer, so that what is before them stays the same from call to call.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, groupby, takewhile
from math import ceil
from typing import Any

from mnesis_core.context.additions import Passages, PromptFacts, read_facts, read_passages, take_refill
from mnesis_core.context.continuation import (
    Place,
    SentPrompt,
    has_pictures_of,
    is_question,
    lacks_something,
    new_items,
    of_item,
    sent_places,
    with_question,
)
from mnesis_core.context.entries import (
    Assembled,
    Breakdown,
    ContextEntry,
    ContextMessage,
    LeftOut,
    MessageEntry,
    Picture,
    Prompt,
    Sources,
    SummaryEntry,
    find_message,
    find_summary,
    in_order,
    only_ran,
    source_of_message,
    sources_of,
)
from mnesis_core.context.fitting import Budget, Item, squeeze, whole
from mnesis_core.context.pictures import with_pictures
from mnesis_core.context.wording import ends_within, read_gap, read_message, read_summary, with_middle_left_out
from mnesis_core.facts import FactRecord
from mnesis_core.files.pictures import OPENAI
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.llm.tokens import MESSAGE_FRAMING, TOOL_FRAMING, estimate_text
from mnesis_core.messages import StoredMessage

PRIMING = 3  # the tokens that begin the answer
GAP_TOKENS = 64  # the most tokens of the note about what is left out
SMALLEST_ROOM_FOR_A_GAP = 1_024  # Below this many tokens the note would cost more than it tells.
# Where not everything fits, a question leaves one part in four to the others, and these leave one to summaries.
SHARE_OF_OTHERS = 4
# Passages are left out of a prompt of which they would take more than one part in so many: in five where they take the
# room of something else, in three where they do not. So are facts.
LARGEST_PASSAGES, LARGEST_IN_FREE_ROOM = 5, 3
LARGEST_FACTS = 8
_CATEGORIES = (
    "system",
    "tools",
    "facts",
    "summaries",
    "passages",
    "tool_outputs",
    "files",
)  # and messages, which get the rest
SMALLEST_TURN = 256  # the tokens that system prompt and tools leave to the newest turn in even the smallest budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    # Manifest rows; the system prompt's has ``head`` and ``tail`` (characters kept) when it is shortened.
    rows: list[dict[str, Any]]
    system_tokens: int
    tool_tokens: int
    tools: tuple[ToolSpec, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def tokens(self) -> int:
        return self.system_tokens + self.tool_tokens


def whole_opening(system_prompt: str, tools: Sequence[ToolSpec]) -> Opening:
    return Opening(
        rows=_opening_rows({"kind": "system", "id": ""} if system_prompt else None, tools),
        system_tokens=MESSAGE_FRAMING + estimate_text(system_prompt) if system_prompt else 0,
        tool_tokens=sum(map(size_of_tool, tools)),
        tools=tuple(tools),
    )


def fit_opening(opening: Opening, system_prompt: str, room: int) -> Opening:
    """Fit into ``room`` tokens the first tools that fit beside half of it, and the system prompt's head and tail."""
    if opening.tokens <= room:
        return opening
    room = max(0, room)
    sums = list(accumulate(map(size_of_tool, opening.tools)))
    count = sum(1 for total in sums if total <= room - min(opening.system_tokens, room // 2))
    tool_tokens = sums[count - 1] if count else 0
    left_out = [LeftOut(id=tool.name, kind="tool", reason="over_budget") for tool in opening.tools[count:]]

    row: dict[str, Any] | None = {"kind": "system", "id": ""} if system_prompt else None
    system_tokens = opening.system_tokens
    if row and system_tokens > room - tool_tokens:
        limit = room - tool_tokens - MESSAGE_FRAMING
        head, tail = ends_within(system_prompt, limit, partial(_shortened, system_prompt))
        size = estimate_text(_shortened(system_prompt, head, tail))
        row, system_tokens = {**row, "head": head, "tail": tail}, MESSAGE_FRAMING + size
        if size > limit:
            row, system_tokens = None, 0
            left_out.insert(0, LeftOut(id="", kind="system", reason="over_budget"))
    return Opening(
        rows=_opening_rows(row, opening.tools[:count]),
        system_tokens=system_tokens,
        tool_tokens=tool_tokens,
        tools=opening.tools[:count],
        left_out=tuple(left_out),
    )


def _opening_rows(system: dict[str, Any] | None, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    names = [{"kind": "tools", "id": "", "names": [tool.name for tool in tools]}] if tools else []
    return [system, *names] if system else names


def size_of_tool(tool: ToolSpec) -> int:
    return TOOL_FRAMING + estimate_text(read_tool(tool))


def read_tool(tool: ToolSpec, *, indent: int | None = None) -> str:
    """Return a tool as JSON, much as every provider sends it to its model."""
    shape = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return json.dumps(shape, ensure_ascii=False, indent=indent)


def read_system(row: Mapping[str, Any], system_prompt: str) -> ContextMessage:
    text = _shortened(system_prompt, row["head"], row["tail"]) if "head" in row else system_prompt
    return ContextMessage(role="system", text=text)


def _shortened(system_prompt: str, head: int, tail: int) -> str:
    return with_middle_left_out(system_prompt, head, tail, "the system prompt")


# The selection of entries for a prompt that has no room for all of them.


def select(items: Sequence[Item], room: int, provider: str = "") -> dict[str, Item]:
    """Return the items that go into ``room`` tokens, by id, some of them shortened."""
    selection = _Selection(room=room, provider=provider)
    place = _place_of_question(items)
    steps = [item for item in items if item.row["kind"] == "message"]
    older = [item for item in items if item.row["kind"] != "message"]
    if place is not None:
        # A question that fits alone still leaves room for what came after it; otherwise the model would ask for the
        # same results for ever.
        later = sum(item.tokens for item in items[place + 1 :])
        selection.take(items[place], room - min(later, room // SHARE_OF_OTHERS), keep_one=True)
    selection.take_newest([step for step in steps if step.row["id"] not in selection.chosen][-1:], selection.room)
    selection.take_newest(older, selection.room // SHARE_OF_OTHERS)
    selection.take_newest(steps, selection.room)
    border = next((step for step in reversed(steps) if step.row["id"] not in selection.chosen), None)
    if border is not None:
        selection.take(border, selection.room)
    selection.take_newest(older, selection.room)
    return selection.chosen


def _place_of_question(items: Sequence[Item]) -> int | None:
    """Return the place of the newest user message.

    A pinned one stands behind all summaries, also where a newer question stands between two of them.
    """
    asked = {
        item.entry.message.seq: place
        for place, item in enumerate(items)
        if isinstance(item.entry, MessageEntry) and item.entry.message.role == "user"
    }
    return asked[max(asked)] if asked else None


@dataclass(slots=True, kw_only=True)
class _Selection:
    room: int
    provider: str
    chosen: dict[str, Item] = field(default_factory=dict)

    def put(self, item: Item) -> None:
        self.chosen[item.row["id"]] = item
        self.room -= item.tokens

    def take(self, item: Item, room: int, *, keep_one: bool = False) -> None:
        """Put a message, or what of it goes into ``room`` tokens; with ``keep_one`` some of it however small that is."""
        if item.tokens <= room:
            self.put(item)
        elif isinstance(item.entry, MessageEntry):
            for smaller in squeeze([item.entry], room, provider=self.provider, keep_one=keep_one):
                self.put(replace(smaller, row={**smaller.row, "kind": item.row["kind"]}))

    def take_newest(self, items: Sequence[Item], room: int) -> None:
        """Put whole items from the newest back, up to the first that does not fit, so that there are no holes."""
        floor = self.room - room
        for item in reversed(items):
            if item.row["id"] in self.chosen:
                continue
            if self.room - item.tokens < floor:
                return
            self.put(item)


def assemble(
    entries: Sequence[ContextEntry],
    *,
    system_prompt: str,
    tools: Sequence[ToolSpec],
    budget: Budget,
    calibration: float = 1.0,
    provider: str = "",
    pinned: Sequence[StoredMessage] = (),
    facts: PromptFacts | None = None,
    passages: Passages | None = None,
    refill: Sequence[StoredMessage] = (),
    refill_room: int = 0,
    pictures: Mapping[str, Picture] | None = None,
    picture_bytes: int = OPENAI.together,
    sent: SentPrompt | None = None,
) -> Assembled:
    """Return the prompt of these entries; the same entries give the same prompt, and a longer history only appends.

    Once something is cut, more than the end may change. A budget of 200 usable tokens or more is always kept to.

    :param calibration: the ratio of the model's own counts to our estimates (``Calibration.ratio``)
    :param provider: which gets back what it, or one model of it, gave to be sent back (``going_back``)
    :param pinned: messages whose places summaries have; they stand behind these, as what fits of the ``refill`` does
    :param passages: count as used and not as wanted, like the refill: no compaction makes them smaller
    :param pictures: by the ids of their files; they go beside the parts that name them
    :param picture_bytes: the most of all pictures together
    :param sent: the prompt of the call before, with which this one begins where that is possible
    """
    items = _behind_summaries(
        [whole(entry, provider) for entry in in_order(entries)],
        [whole(MessageEntry(position=0, message=message), provider) for message in pinned],
    )
    limit = int(budget.usable / calibration)
    wanted = _Wanted(
        items=items,
        system_prompt=system_prompt,
        opening=whole_opening(system_prompt, tools),
        limit=limit,
        provider=provider,
        facts=facts if facts and facts.tokens <= limit // LARGEST_FACTS else None,
        passages=passages,
        pictures=pictures or {},
        picture_bytes=picture_bytes,
    )
    layout = (_continued(wanted, sent) if sent else None) or _made_anew(wanted, pinned, refill, refill_room)
    return _written_out(layout, wanted, sent, usable=budget.usable, calibration=calibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a prompt would show with room for all of it; tokens are our own estimates."""

    items: list[Item]
    system_prompt: str
    opening: Opening
    limit: int
    provider: str
    facts: PromptFacts | None
    passages: Passages | None
    pictures: Mapping[str, Picture]
    picture_bytes: int

    @property
    def tokens(self) -> int:
        return PRIMING + self.opening.tokens + sum(item.tokens for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    opening: Opening
    places: list[Place]
    wanted: int
    items: list[Item]
    """All of the context, with the pictures that are shown."""
    unseen: list[LeftOut]
    passages: Passages | None
    """Those found for the newest question that are shown, which are fewer where there is little room."""

    @property
    def cost(self) -> Counter[str]:
        cost = Counter(system=self.opening.system_tokens, tools=self.opening.tool_tokens, messages=PRIMING)
        for place in self.places:
            cost.update(place.cost)
        return cost


def _made_anew(
    wanted: _Wanted, pinned: Sequence[StoredMessage], refill: Sequence[StoredMessage], refill_room: int
) -> _Layout:
    facts, limit, opening, gap = wanted.facts, wanted.limit, wanted.opening, None
    told = facts.tokens if facts else 0
    tokens = wanted.tokens + told
    passages = _with_room(wanted.passages, limit, limit if wanted.pictures else tokens + refill_room)
    quoted = passages.tokens if passages else 0
    room = limit - tokens - quoted
    everything, unseen = with_pictures(
        wanted.items, wanted.pictures, usable=limit, room=room, most_bytes=wanted.picture_bytes
    )
    tokens += _tokens_of_pictures(everything)
    items = [item for item in everything if item.cost]
    if tokens + quoted > limit:
        room = limit - PRIMING - told - quoted
        opening, chosen, gap = _fit(items, opening, wanted.system_prompt, room, wanted.provider)
    else:
        room, shown = min(refill_room, limit - tokens - quoted), {message.id for message in pinned}
        items = _behind_summaries(items, take_refill(refill, room, provider=wanted.provider, without=shown))
        chosen = {item.row["id"]: item for item in items}
    places = [*_of_facts(facts), *_places(items, chosen, gap, passages)]
    return _Layout(opening=opening, places=places, wanted=tokens, items=everything, unseen=unseen, passages=passages)


def _continued(wanted: _Wanted, sent: SentPrompt) -> _Layout | None:
    """Return the prompt that begins with what was sent; ``None`` where it has to be made anew.

    That is so where something of it has changed, where the rest has no room behind it, and where what was left out then
    has room by now.
    """
    places = sent_places(sent, wanted.items, provider=wanted.provider)
    if places is None:
        return None
    new, limit = new_items(places, wanted.items), wanted.limit
    asks = any(is_question(item) for item in new)
    places = with_question(places) if asks else places
    facts = sent.new_facts if asks else None
    told = (facts.tokens if facts else 0) + sum(place.cost.get("facts", 0) for place in places)
    quoted = sum(place.cost.get("passages", 0) for place in places)
    if wanted.tokens + told + quoted <= limit and lacks_something(places, wanted.items):
        return None
    used = PRIMING + wanted.opening.tokens + (facts.tokens if facts else 0)
    used += sum(place.tokens for place in places) + sum(item.tokens for item in new)
    is_new = wanted.passages is not None and any(item.row["id"] == wanted.passages.question_id for item in new)
    passages = _with_room(wanted.passages, limit, limit if wanted.pictures else used) if is_new else None
    used += passages.tokens if passages else 0
    items, unseen = with_pictures(
        [*(place.item for place in places if place.item), *new],
        wanted.pictures,
        usable=limit,
        room=limit - used,
        most_bytes=wanted.picture_bytes,
    )
    used += _tokens_of_pictures(items)
    if used > limit or not has_pictures_of(sent, items):
        return None
    shown = {item.row["id"]: item for item in items}
    behind = _places([item for item in items[-len(new) :] if item.cost] if new else [], shown, None, passages, facts)
    if wanted.pictures:
        places = [of_item(shown[place.row["id"]]) if place.item else place for place in places]
    return _Layout(
        opening=wanted.opening,
        places=[*places, *behind],
        wanted=wanted.tokens + told + _tokens_of_pictures(items),
        items=[shown.get(item.row["id"], item) for item in wanted.items],
        unseen=unseen,
        passages=passages,
    )


def _tokens_of_pictures(items: Sequence[Item]) -> int:
    return sum(picture["tokens"] for item in items for picture in item.row.get("pictures", ()))


def without_opaque(assembled: Assembled, message_ids: Collection[str], *, calibration: float) -> Assembled:
    """Return a prompt without what of some messages would have gone back to its provider, but for calls that it ran."""
    if not message_ids:
        return assembled

    def is_one(message: ContextMessage) -> bool:
        return bool(message.opaque) and message.source_ids[0] in message_ids

    everything = [opaque for message in assembled.messages if is_one(message) for opaque in message.opaque]
    gone = {opaque.part_id for opaque in everything if not opaque.is_ran}
    tokens = sum(MESSAGE_FRAMING + estimate_text(opaque.part.data) for opaque in everything if not opaque.is_ran)
    tokens = int(tokens * calibration)
    parts, groups = assembled.breakdown, groupby(assembled.messages, key=source_of_message)

    def without(row: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in row.items() if name != "opaque"}
        staying = [id for id in row.get("opaque", ()) if id not in gone]
        return rest | ({"opaque": staying} if staying else {})

    return replace(
        assembled,
        messages=tuple(chain.from_iterable(only_ran(said) if id in message_ids else said for id, said in groups)),
        manifest=[without(row) if row.get("id") in message_ids else row for row in assembled.manifest],
        used_tokens=max(0, assembled.used_tokens - tokens),
        wanted_tokens=max(0, assembled.wanted_tokens - tokens),
        breakdown=replace(parts, messages=parts.messages - tokens, free=parts.free + tokens),
    )


def _with_room(passages: Passages | None, limit: int, others: int) -> Passages | None:
    """Return the passages that a prompt of ``limit`` tokens has beside what the others want of it, or the fewer ones."""
    free = min(limit - others, limit // LARGEST_IN_FREE_ROOM)
    while passages and passages.tokens > max(limit // LARGEST_PASSAGES, free):
        passages = passages.fewer
    return passages


def _places(
    items: Sequence[Item],
    chosen: Mapping[str, Item],
    gap: dict[str, Any] | None,
    passages: Passages | None,
    facts: PromptFacts | None = None,
) -> Iterator[Place]:
    """Yield what is shown, passages and new facts just before the newest question."""
    missing = [item for item in items if item.row["kind"] != "pinned" and item.row["id"] not in chosen]
    newest_missing = missing[-1] if gap else None
    question = (
        passages.question_id
        if passages
        else next((item.row["id"] for item in reversed(items) if is_question(item)), "")
    )
    before = [*_of_facts(facts), *([Place(row=passages.row, cost={"passages": passages.tokens})] if passages else ())]
    for item in items:
        if item.row["id"] == question:
            yield from before
            before = []
        if item.row["id"] in chosen:
            yield of_item(chosen[item.row["id"]])
        elif gap and item is newest_missing:  # The note stands in the place of the newest entry that is missing.
            yield Place(row=gap, cost={"messages": GAP_TOKENS})
    yield from before


def _of_facts(facts: PromptFacts | None) -> list[Place]:
    return [Place(row=facts.row, cost={"facts": facts.tokens})] if facts else []


def _written_out(
    layout: _Layout, wanted: _Wanted, sent: SentPrompt | None, *, usable: int, calibration: float
) -> Assembled:
    """Return the prompt of a layout; its tokens are the model's own."""
    rows = [*layout.opening.rows, *(place.row for place in layout.places)]
    shown = [place.item for place in layout.places if place.item]
    # Passages may quote a message of the context that there is no room for.
    quoted = [*(layout.passages.messages if layout.passages else ()), *(sent.messages if sent else ())]
    beside = [MessageEntry(position=0, message=message) for message in quoted]
    sources = sources_of([*beside, *(item.entry for item in (*wanted.items, *shown))])
    told = [*(wanted.facts.records if wanted.facts else ()), *(sent.all_facts if sent else ())]
    cost = layout.cost
    used = min(ceil(cost.total() * calibration), usable)
    scaled = {name: int(cost[name] * calibration) for name in _CATEGORIES}
    return Assembled(
        messages=tuple(_read_rows(rows, sources, wanted.system_prompt, told)),
        tools=layout.opening.tools,
        used_tokens=used,
        wanted_tokens=ceil(layout.wanted * calibration),
        # Messages get what rounding leaves, so that the parts add up to what is usable.
        breakdown=Breakdown(**scaled, messages=used - sum(scaled.values()), free=usable - used),
        manifest=rows,
        left_out=(
            *layout.opening.left_out,
            *layout.unseen,
            *_left_out(layout.items, {item.row["id"]: item for item in shown}),
        ),
    )


def rebuild(
    manifest: Sequence[Mapping[str, Any]],
    entries: Sequence[ContextEntry],
    *,
    system_prompt: str,
    tools: Sequence[ToolSpec],
    facts: Sequence[FactRecord] = (),
) -> Prompt:
    """Return the prompt of a stored manifest, whatever was tombstoned, answered or summarised since.

    ``entries`` are the messages and summaries it names, in any order; ``tools`` at least those it names.

    :raises MessageNotFoundError: a message that the manifest names is not among the entries.
    :raises SummaryNotFoundError: a summary that it names is not among them.
    :raises FactNotFoundError: a fact that it names is not among the facts.
    """
    names = {name for row in manifest if row["kind"] == "tools" for name in row["names"]}
    return Prompt(
        messages=tuple(_read_rows(manifest, sources_of(entries), system_prompt, facts)),
        tools=tuple(tool for tool in tools if tool.name in names),
    )


def _behind_summaries(items: list[Item], more: Sequence[Item]) -> list[Item]:
    """Put messages that summaries stand for behind these, in order with those that are there already."""
    if not more:
        return items
    places = [place for place, item in enumerate(items, start=1) if isinstance(item.entry, SummaryEntry)]
    behind = places[-1] if places else 0
    pins = list(takewhile(lambda item: item.row["kind"] == "pinned", items[behind:]))
    marked = [replace(item, row={**item.row, "kind": "pinned"}) for item in more]
    return [
        *items[:behind],
        *sorted([*pins, *marked], key=lambda item: int(item.row["seq"])),
        *items[behind + len(pins) :],
    ]


def _fit(
    items: Sequence[Item], opening: Opening, system_prompt: str, limit: int, provider: str
) -> tuple[Opening, dict[str, Item], dict[str, Any] | None]:
    gap_tokens = GAP_TOKENS if limit >= SMALLEST_ROOM_FOR_A_GAP else 0
    # The opening leaves the newest turn all that it needs, up to a quarter.
    newest_turn = items[_place_of_question(items) or 0 :]
    kept_free = min(sum(item.tokens for item in newest_turn), max(limit // 4, SMALLEST_TURN))
    opening = fit_opening(opening, system_prompt, limit - gap_tokens - kept_free)
    chosen = select(items, limit - gap_tokens - opening.tokens, provider)
    missing = [item.entry for item in items if item.row["kind"] != "pinned" and item.row["id"] not in chosen]
    if not missing or not gap_tokens:
        return opening, chosen, None
    messages = [entry.message for entry in missing if isinstance(entry, MessageEntry)]
    summaries = [entry for entry in missing if isinstance(entry, SummaryEntry)]
    gap = {
        "kind": "gap",
        "id": "",
        "messages": len(messages),
        "summaries": len(summaries),
        "first_seq": min([message.seq for message in messages] + [entry.first_seq for entry in summaries]),
        "last_seq": max([message.seq for message in messages] + [entry.last_seq for entry in summaries]),
    }
    return opening, chosen, gap


def _read_rows(
    rows: Sequence[Mapping[str, Any]], sources: Sources, system_prompt: str, facts: Sequence[FactRecord]
) -> Iterator[ContextMessage]:
    for row in rows:
        match row["kind"]:
            case "message" | "pinned":
                yield from read_message(find_message(sources, row["id"]), row)
            case "summary":
                yield read_summary(find_summary(sources, row["id"]))
            case "facts":
                yield read_facts(row, {fact.id: fact for fact in facts})
            case "retrieved":
                yield read_passages(row, sources)
            case "system":
                yield read_system(row, system_prompt)
            case "gap":
                yield read_gap(row)


def _left_out(everything: Sequence[Item], chosen: Mapping[str, Item]) -> Iterator[LeftOut]:
    for item in everything:
        kept = chosen.get(item.row["id"])
        if kept is None:
            reason = "over_budget" if item.cost else "nothing_to_send"
            yield LeftOut(id=item.row["id"], kind=item.row["kind"], reason=reason)
        elif kept is not item:
            for part_id in kept.row.get("omitted", ()):
                yield LeftOut(id=part_id, kind="part", reason="over_budget")
