"""What differs between one prompt and a later one of the same session, from their two manifests alone.

Two prompts differ by what a model was shown, not by what was said between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mnesis_core.context.entries import Row

Change = Literal[
    "entered",
    "left",
    "summarised",
    "tombstoned",
    "shortened",
    "unshortened",
    "omitted",
    "unomitted",
    "answered",
    "grew",
    "reworded",
]
# ``sent``, ``not_sent`` and ``reworded`` are about requests that clients made themselves (``request_diff``).
# ``stands_for_earlier`` is about a summary of what the earlier prompt showed; ``offered`` and ``not_offered`` are
# about tools.
Reason = Literal[
    "first_call",
    "new",
    "stands_for_earlier",
    "fits_again",
    "summarised",
    "revised",
    "over_budget",
    "pruned",
    "result_came",
    "more_parts",
    "offered",
    "not_offered",
    "other_branch",
    "sent",
    "not_sent",
    "reworded",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    change: Change
    kind: str  # ``system``, ``tool``, ``summary``, ``message`` or ``part``
    id: str  # A tool's is its name; the system prompt has none.
    reason: Reason
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    system: dict[str, Row]  # by its empty id
    tools: tuple[str, ...]
    items: dict[str, Row]  # messages and summaries by id, in order
    gap: Row | None

    @property
    def last_seq(self) -> int:
        """Return the newest message that it shows, stands for, or reports missing."""
        ends = [row["seq"] if row["kind"] == "message" else row["last_seq"] for row in self.items.values()]
        return max([*ends, self.gap["last_seq"] if self.gap else 0], default=0)


def difference(
    earlier: Sequence[Row],
    later: Sequence[Row],
    *,
    is_first: bool = False,
    replaced: Mapping[str, str] | None = None,
    elsewhere: Collection[str] = (),
) -> Iterator[Difference]:
    """Yield what entered, left, or reads differently, in the order of the prompts: system, tools, then by place.

    ``replaced`` names for messages and summaries the summary that took their place between the two, whether or not it
    is in the later prompt; ``elsewhere`` has what is not of the branch of the other call. With ``is_first`` there was no earlier call.
    """
    before, after = _side(earlier), _side(later)
    reason: Reason = "first_call" if is_first else "fits_again"
    yield from _added(before.system, after.system, change="entered", kind="system", reason=reason)
    yield from _added(after.system, before.system, change="left", kind="system", reason="over_budget")
    for id in before.system.keys() & after.system.keys():
        yield from _length_difference(_kept_ends(before.system[id]), _kept_ends(after.system[id]), kind="system", id=id)
    reason = "first_call" if is_first else "offered"
    yield from _added(after.tools, before.tools, change="left", kind="tool", reason="not_offered")
    yield from _added(before.tools, after.tools, change="entered", kind="tool", reason=reason)

    for item_id, row in before.items.items():
        if item_id not in after.items and item_id in elsewhere:
            yield Difference(change="left", kind=row["kind"], id=item_id, reason="other_branch")
        elif item_id not in after.items:
            yield _why_left(row, after, replaced or {})
    for item_id, row in after.items.items():
        if item_id not in before.items:
            why: Reason = "other_branch" if item_id in elsewhere else _why_entered(row, before, is_first)
            yield Difference(change="entered", kind=row["kind"], id=item_id, reason=why)
        elif row["kind"] == "message":
            yield from _part_differences(before.items[item_id], row)


def _side(manifest: Sequence[Row]) -> _Side:
    by_kind = {row["kind"]: row for row in manifest}
    return _Side(
        system={"": by_kind["system"]} if "system" in by_kind else {},
        tools=tuple(by_kind["tools"]["names"]) if "tools" in by_kind else (),
        items={
            row["id"]: {**row, "kind": "message"} if row["kind"] == "pinned" else row
            for row in manifest
            if row["kind"] in ("message", "pinned", "summary")
        },
        gap=by_kind.get("gap"),
    )


def _added(
    before: Iterable[str], after: Iterable[str], *, change: Change, kind: str, reason: Reason
) -> Iterator[Difference]:
    known = set(before)
    return (Difference(id=id, change=change, kind=kind, reason=reason) for id in after if id not in known)


def _why_left(row: Row, after: _Side, replaced: Mapping[str, str]) -> Difference:
    what = {"kind": row["kind"], "id": row["id"]}
    first, last = _span(row)
    summaries = (other for other in after.items.values() if other["kind"] == "summary")
    standing = next((other for other in summaries if _span(other)[0] <= first and last <= _span(other)[1]), None)
    if standing is not None and row["kind"] == "summary" and _span(standing) == (first, last):
        return Difference(change="left", reason="revised", by=standing["id"], **what)
    by = standing["id"] if standing is not None else replaced.get(row["id"], "")
    if by:
        return Difference(change="summarised", reason="summarised", by=by, **what)
    return Difference(change="left", reason="over_budget", **what)


def _span(row: Row) -> tuple[int, int]:
    return (row["seq"], row["seq"]) if row["kind"] == "message" else (row["first_seq"], row["last_seq"])


def _why_entered(row: Row, before: _Side, is_first: bool) -> Reason:
    if is_first:
        return "first_call"
    if row["kind"] == "message":
        return "new" if row["seq"] > before.last_seq else "fits_again"
    first, last = _span(row)
    covers = any(first <= _span(other)[0] and _span(other)[1] <= last for other in before.items.values())
    return "stands_for_earlier" if covers else "fits_again"


def _part_differences(before: Row, after: Row) -> Iterator[Difference]:
    if after["parts"] > before["parts"]:
        yield Difference(change="grew", kind="message", id=after["id"], reason="more_parts")
    open_before, open_now = before["unanswered"], after["unanswered"]
    yield from _added(before["tombstoned"], after["tombstoned"], kind="part", change="tombstoned", reason="pruned")
    yield from _added(open_now, open_before, kind="part", change="answered", reason="result_came")
    yield from _added(before["omitted"], after["omitted"], kind="part", change="omitted", reason="over_budget")
    yield from _added(after["omitted"], before["omitted"], kind="part", change="unomitted", reason="fits_again")

    shown, shown_now = ([one["part"] for one in row.get("pictures", ())] for row in (before, after))
    yield from _added(shown_now, shown, kind="picture", change="omitted", reason="over_budget")
    yield from _added(shown, shown_now, kind="picture", change="unomitted", reason="fits_again")

    cuts, cut_now = _kept_characters(before), _kept_characters(after)
    hidden = {*before["omitted"], *after["omitted"]}
    for part in dict.fromkeys([*cuts, *cut_now]):
        if part not in hidden:
            yield from _length_difference(cuts.get(part), cut_now.get(part), kind="part", id=part)


def _kept_characters(row: Row) -> dict[str, int]:
    kept: dict[str, int] = {}
    for cut in row["shortened"]:
        kept[cut["part"]] = kept.get(cut["part"], 0) + cut["head"] + cut["tail"]
    return kept


def _kept_ends(row: Row) -> int | None:
    """Return how many characters remain of a shortened text; ``None`` for a whole one."""
    return row["head"] + row["tail"] if "head" in row else None


def _length_difference(before: int | None, after: int | None, **what: Any) -> Iterator[Difference]:
    if before == after:
        return
    if before is None or (after is not None and after < before):
        yield Difference(change="shortened", reason="over_budget", **what)
    else:
        yield Difference(change="unshortened", reason="fits_again", **what)
