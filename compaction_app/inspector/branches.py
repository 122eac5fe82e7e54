"""The branches of a session: a small picture of the tree, and a table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from mnesis_core.context.branches import LINE, Branch, Path, path_to
from mnesis_core.text import excerpt
from sessions_app.pages.permissions import Inspected, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record import branch_queries, timeline_queries

PAGE = 50
WIDTH, LANE = 1_000, 16  # of the picture, in its own units; a lane is as high as its label
NARROWEST = 4
TEXT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRow:
    number: int
    parent: int
    after_seq: int  # 0: it begins before the first message
    after_id: str
    messages: int
    first_seq: int  # of its own messages; 0 without any
    last_seq: int
    last_id: str
    words: str  # how its last message begins
    is_chosen: bool


def load_rows(about: Inspected, branches: dict[int, Branch], *, first: int) -> list[BranchRow]:
    """Return a page of branches from one on; five queries, however many there are."""
    numbers = [
        number for number in range(first, min(first + PAGE, about.branch_seq + 1)) if not number or number in branches
    ]
    own = {number: branches.get(number, Branch(0, 0, 0)) for number in numbers}
    ends = branch_queries.spans_of_branches(about.id, numbers)
    seqs = {seq for branch in own.values() for seq in (branch.after_seq, ends.get(branch.number, (0, 0, 0))[1])}
    ids = branch_queries.ids_at(about.id, sorted(seqs - {0}))
    previews = timeline_queries.preview_messages(
        [ids[last] for _, last, _ in ends.values() if last in ids], at=timeline_queries.NOW
    )
    rows = []
    for branch in own.values():
        first_seq, last_seq, messages = ends.get(branch.number, (0, 0, 0))
        last_id = ids.get(last_seq, "")
        rows.append(
            BranchRow(
                number=branch.number,
                parent=branch.parent,
                after_seq=branch.after_seq,
                after_id=ids.get(branch.after_seq, ""),
                messages=messages,
                first_seq=first_seq,
                last_seq=last_seq,
                last_id=last_id,
                words=excerpt(previews[last_id].text, TEXT) if last_id in previews else "",
                is_chosen=branch.number == about.branch,
            )
        )
    return rows


def draw(rows: list[BranchRow], path: Path) -> dict[str, Any]:
    """Return the picture: a lane for each branch, in the order of messages, and what of it is on the chosen path.

    A lane begins with a thin line from where it leaves its parent: on that one's lane, or from above if it is not here.
    """
    lanes, places = [], {row.number: place for place, row in enumerate(rows)}
    before = min([row.after_seq for row in rows], default=0)
    last = max([row.last_seq or row.after_seq for row in rows], default=0)
    axis = Axis(before=before, last=max(last, before + 1))
    chosen = {stretch.branch: stretch for stretch in path.stretches}
    for place, row in enumerate(rows):
        y = place * LANE + LANE // 2
        above = places.get(row.parent) if row.number else place
        top = 0 if above is None else above * LANE + LANE // 2
        lane: dict[str, Any] = {"row": row, "y": y, "start": axis.x(row.after_seq), "top": top}
        if row.messages:
            lane["line"] = axis.line(row.first_seq, row.last_seq)
            stretch = chosen.get(row.number)
            end = 0 if stretch is None else min(row.last_seq, stretch.last_seq)
            lane["on_path"] = axis.line(row.first_seq, end) if end >= row.first_seq else None
        lanes.append(lane)
    height = max(1, len(rows)) * LANE
    return {"lanes": lanes, "width": WIDTH, "height": height, "first": axis.before + 1, "last": axis.last}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    before: int  # the message before the first one on it
    last: int

    def x(self, seq: int) -> float:
        return round(WIDTH * (seq - self.before) / (self.last - self.before), 1)

    def line(self, first: int, last: int) -> tuple[float, float]:
        left = min(self.x(first - 1), WIDTH - NARROWEST)
        return left, max(self.x(last), left + NARROWEST)


@signed_in
def branches(request: HttpRequest, session_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    context: dict[str, Any] = {"about": about, "tab": "inspect-branches"}
    if about.branch_seq:
        first = min(number_in(request, "from") or 0, about.branch_seq) // PAGE * PAGE
        found = branch_queries.load_branches(about.id)
        rows = load_rows(about, found, first=first)
        path = path_to(found, about.branch) if not about.branch or about.branch in found else LINE
        context |= {
            "rows": rows,
            "picture": draw(rows, path),
            "total": about.branch_seq + 1,
            "last": rows[-1].number if rows else first,
            "first": first,
            "newer": first + PAGE if first + PAGE <= about.branch_seq else None,
            "older": first - PAGE if first else None,
            "is_chosen_here": any(row.is_chosen for row in rows),
        }
    return render(request, "compaction_app/branches/branches.html", context)
