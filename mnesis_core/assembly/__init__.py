"""Context entries and a budget -> exactly what a model will see, and what was left out and why.

The result always fits the budget. What goes first when not everything does: the newest user message, the
rest of its turn, summaries, then older whole turns from the newest back. A turn that is too large alone
keeps its newest parts, and its longest texts are shortened to a common length, visibly. A tool call and
its result are one part and cannot be separated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from mnesis_core.assembly.fitting import Item, whole
from mnesis_core.assembly.opening import Opening, fit_opening, read_system, whole_opening
from mnesis_core.assembly.reading import read_gap, read_message, read_summary
from mnesis_core.assembly.selection import Turns, select, turns_of
from mnesis_core.assembly.sources import Sources, find_message, find_summary, sources_of
from mnesis_core.budget import Budget
from mnesis_core.context import Assembled, Breakdown, ContextMessage, LeftOut, Prompt
from mnesis_core.dag import ContextEntry, MessageEntry, SummaryEntry, in_order
from mnesis_core.llm import ToolSpec

__all__ = ["assemble", "rebuild"]

PRIMING = 3
"""Tokens that begin the answer."""
GAP_TOKENS = 64
"""Tokens of the note about what is left out, at the most."""
SMALLEST_ROOM_FOR_A_GAP = 1_024
"""Below so many tokens the note would cost more than it tells."""
SMALLEST_TURN = 256
"""Tokens that system prompt and tools leave to the newest turn even in the smallest budget."""


def assemble(
    entries: Sequence[ContextEntry],
    *,
    system_prompt: str,
    tools: Sequence[ToolSpec],
    budget: Budget,
    calibration: float = 1.0,
) -> Assembled:
    """The prompt that these entries make.

    ``calibration`` is what the model's own counts are to our estimates (``tokens.Calibration.ratio``). The
    same entries give the same prompt, and as long as nothing is cut a further message only appends. A
    budget of 200 usable tokens or more is kept to, whatever the entries are.
    """
    everything = [whole(entry) for entry in in_order(entries)]
    items = [item for item in everything if item.cost]
    opening = whole_opening(system_prompt, tools)
    wanted = PRIMING + opening.tokens + sum(item.tokens for item in items)
    limit = int(budget.usable / calibration)
    chosen = {item.row["id"]: item for item in items}
    gap = None
    if wanted > limit:
        opening, chosen, gap = _cut(items, opening, system_prompt, limit - PRIMING)
    rows = [*opening.rows, *_rows(items, chosen, gap)]
    cost = _cost(opening, chosen, gap)
    used = min(ceil(cost.total() * calibration), budget.usable)
    return Assembled(
        messages=tuple(_read(rows, {item.row["id"]: item.entry for item in items}, system_prompt)),
        tools=opening.tools,
        used_tokens=used,
        wanted_tokens=ceil(wanted * calibration),
        breakdown=_breakdown(cost, calibration, used, budget.usable - used),
        manifest=rows,
        left_out=(*opening.left_out, *_left_out(everything, chosen)),
    )


def rebuild(
    manifest: Sequence[Mapping[str, Any]],
    entries: Sequence[ContextEntry],
    *,
    system_prompt: str,
    tools: Sequence[ToolSpec],
) -> Prompt:
    """The prompt of a stored manifest, whatever was tombstoned, answered or summarised since.

    ``entries`` are the messages and summaries it names, in any order; ``tools`` at least those it names.

    :raises MessageNotFoundError: a message that the manifest names is not among the entries.
    :raises SummaryNotFoundError: likewise a summary.
    """
    names = {name for row in manifest if row["kind"] == "tools" for name in row["names"]}
    return Prompt(
        messages=tuple(_read(manifest, sources_of(entries), system_prompt)),
        tools=tuple(tool for tool in tools if tool.name in names),
    )


def _cut(
    items: Sequence[Item], opening: Opening, system_prompt: str, limit: int
) -> tuple[Opening, dict[str, Item], dict[str, Any] | None]:
    turns = turns_of(items)
    gap_tokens = GAP_TOKENS if limit >= SMALLEST_ROOM_FOR_A_GAP else 0
    opening = fit_opening(opening, system_prompt, limit - gap_tokens - _kept_free(turns, limit))
    chosen = select(items, turns, limit - gap_tokens - opening.tokens)
    return opening, chosen, _gap(items, chosen) if gap_tokens else None


def _kept_free(turns: Turns, limit: int) -> int:
    """Tokens that the opening leaves to the newest turn: all that it needs, up to a quarter."""
    return min(sum(item.tokens for item in turns.newest), max(limit // 4, SMALLEST_TURN))


def _gap(items: Sequence[Item], chosen: Mapping[str, Item]) -> dict[str, Any] | None:
    missing = [item.entry for item in items if item.row["id"] not in chosen]
    if not missing:
        return None
    messages = [entry.message for entry in missing if isinstance(entry, MessageEntry)]
    summaries = [entry for entry in missing if isinstance(entry, SummaryEntry)]
    return {
        "kind": "gap",
        "id": "",
        "messages": len(messages),
        "summaries": len(summaries),
        "first_seq": min([message.seq for message in messages] + [entry.first_seq for entry in summaries]),
        "last_seq": max([message.seq for message in messages] + [entry.last_seq for entry in summaries]),
    }


def _rows(items: Sequence[Item], chosen: Mapping[str, Item], gap: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The rows in order, the note about the missing in the place of the newest of them."""
    if gap is None:
        yield from [kept.row for item in items if (kept := chosen.get(item.row["id"]))]
        return
    missing = [index for index, item in enumerate(items) if item.row["id"] not in chosen]
    for index, item in enumerate(items):
        if item.row["id"] in chosen:
            yield chosen[item.row["id"]].row
        elif index == missing[-1]:
            yield gap


def _cost(opening: Opening, chosen: Mapping[str, Item], gap: dict[str, Any] | None) -> Counter[str]:
    cost = {"system": opening.system_tokens, "tools": opening.tool_tokens}
    cost["messages"] = PRIMING + (GAP_TOKENS if gap else 0)
    for item in chosen.values():
        for category, tokens in item.cost.items():
            cost[category] = cost.get(category, 0) + tokens
    return Counter(cost)


def _breakdown(cost: Counter[str], calibration: float, used: int, free: int) -> Breakdown:
    """The parts in the model's own tokens, rounded so that they add up to ``used``."""
    scaled = {name: int(cost[name] * calibration) for name in ("system", "tools", "summaries", "tool_outputs", "files")}
    return Breakdown(**scaled, messages=used - sum(scaled.values()), free=free)


def _read(rows: Sequence[Mapping[str, Any]], sources: Sources, system_prompt: str) -> Iterator[ContextMessage]:
    for row in rows:
        match row["kind"]:
            case "message":
                yield from read_message(find_message(sources, row["id"]), row)
            case "summary":
                yield read_summary(find_summary(sources, row["id"]))
            case "system":
                yield read_system(row, system_prompt)
            case "gap":
                yield read_gap(row)


def _left_out(everything: Sequence[Item], chosen: Mapping[str, Item]) -> Iterator[LeftOut]:
    for item in everything:
        kept = chosen.get(item.row["id"])
        if kept is not item:
            yield from _lost(item, kept)


def _lost(item: Item, kept: Item | None) -> list[LeftOut]:
    """What of an entry is not in the prompt, or not whole."""
    if kept is not None:
        return [LeftOut(id=part_id, kind="part", reason="over_budget") for part_id in kept.row.get("omitted", ())]
    reason = "over_budget" if item.cost else "nothing_to_send"
    return [LeftOut(id=item.row["id"], kind=item.row["kind"], reason=reason)]
