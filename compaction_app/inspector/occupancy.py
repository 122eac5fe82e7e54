"""The scrub bar: how full the window was at each call of a session's life, as a drawing, in words, and as places to go to.

There are at most some hundred columns, whatever the number of calls. A column shows the fullest of the calls it stands
for, by the estimate that was stored with it; no manifest is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from compaction_app.context.state import load_frame
from compaction_app.models import CompactionRun, SummaryNode
from mnesis_core.context.branches import path_to, standing_spans
from mnesis_core.context.fitting import SUMMARY_FRAME, Budget
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.records import CallRecord
from sessions_app.pages.formats import format_count, format_counted, format_number
from sessions_app.record import turn_queries
from sessions_app.record.branch_queries import load_branches, path_in
from sessions_app.record.context_queries import load_spans, summary_stays

MOST_COLUMNS = 400
WIDTH = 1_000
HEIGHT = 100  # the height of the drawing in its own units: it is stretched over the place it has
HEADROOM = 1.08  # space above the largest number drawn, so that nothing touches the top
WIDEST_GAP = 0.2  # the share of a column's place that stays empty, where columns are wide
GAPS_UP_TO = 120  # more columns than this stand side by side without gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One call, or the fullest of some that were made one after the other. Sizes are in tokens."""

    call_id: str
    number: int  # its number among all calls of the session
    used: int
    opening: int  # the system prompt and the tools
    summaries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Compactions that ended between two columns."""

    before: int  # the column that comes after them; the number of columns where none does
    count: int
    level: int
    tokens_before: int | None  # the size of the context before the first of them
    tokens_after: int | None  # the size of the context after the last of them

    @property
    def label(self) -> str:
        # English counts only several.
        text = ngettext(
            "Compaction: %(before)s → %(after)s tokens",
            "%(count)s compactions: %(before)s → %(after)s tokens",
            self.count,
        )
        sizes = {"before": format_count(self.tokens_before), "after": format_count(self.tokens_after)}
        return text % (sizes | {"count": self.count})


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    columns: list[Column]
    calls: int  # the number of calls of turns: all that the columns stand for
    marks: list[Mark]
    budget: Budget  # the window as the session's model and configuration divide it now


def load_occupancy(session_id: str) -> Occupancy | None:
    """Return the occupancy at every call of a turn; ``None`` where no model was asked. Nine queries, whatever the history.

    :raises SessionNotFoundError: there is no such session.
    """
    calls = turn_queries.list_turn_calls(session_id)
    if not calls:
        return None
    frame = load_frame(session_id)
    sizes = turn_queries.sizes_of_calls(session_id, fullest_of(calls))
    numbers = turn_queries.numbers_of_calls(session_id, [size.id for size in sizes])
    system = MESSAGE_FRAMING + estimate_text(frame.system_prompt) if frame.system_prompt else 0
    stays, path = summary_stays(session_id), path_in(frame.session)
    tokens = dict(SummaryNode.objects.filter(session_id=session_id).values_list("id", "token_count")) if stays else {}
    standing: Standing | StandingInTree
    standing = Standing([(added, removed, SUMMARY_FRAME + tokens.get(id, 0)) for id, added, removed in stays])
    if path is not None:
        standing = StandingInTree(
            session_id, tokens, turn_queries.branches_of_calls(session_id, [size.id for size in sizes])
        )
    columns = []
    for size in sizes:
        opening = min(size.used, size.tools + int(system * size.ratio))
        summaries = min(size.used - opening, int(standing.at(size.context_seq, size.id) * size.ratio))
        column = Column(call_id=size.id, number=numbers[size.id], used=size.used, opening=opening, summaries=summaries)
        columns.append(column)
    added = {id: seq for id, seq, _ in stays}
    ended = CompactionRun.objects.filter(session_id=session_id, end_seq__isnull=False).order_by("end_seq")
    rows = ended.only("end_seq", "level", "tokens_before", "tokens_after", "summary_ids", "pruned_parts")
    runs = [
        EndedRun(
            seq=min([added[id] for id in row.summary_ids or [] if id in added], default=row.end_seq or 0),
            level=row.level or 0,
            tokens_before=row.tokens_before,
            tokens_after=row.tokens_after,
        )
        for row in rows
        if row.summary_ids or row.pruned_parts
    ]
    marks = marks_of(runs, [size.context_seq for size in sizes])
    return Occupancy(columns=columns, calls=len(calls), marks=marks, budget=frame.budget)


def size_of_call(call: CallRecord) -> int:
    """Return how much of the window a call of a turn took, as its column would show it."""
    return sum(size.used for size in turn_queries.sizes_of_calls(call.session_id, [call.id]))


def call_at(session_id: str, place: int) -> str | None:
    """Return the id of the call at the column ``place``, counted from 1, or the nearest one; ``None`` without calls."""
    chosen = fullest_of(turn_queries.list_turn_calls(session_id))
    return chosen[min(max(place, 1), len(chosen)) - 1] if chosen else None


def place_of(call: CallRecord, calls: int) -> int:
    """Return the column, counted from 1, of a call, or of the call of a turn before it."""
    return place_among(turn_queries.count_turn_calls_until(call), calls)


def place_among(number: int, calls: int, most: int = MOST_COLUMNS) -> int:
    """Return which stretch of ``fullest_of`` has the call ``number``; both are counted from 1."""
    return max(1, -(-number * min(calls, most) // calls))


def fullest_of(calls: Sequence[tuple[str, int]], most: int = MOST_COLUMNS) -> list[str]:
    """Return the id of the fullest of each of ``most`` equal stretches of (id, tokens); all ids where they are fewer."""
    count = min(len(calls), most)
    ends = [place * len(calls) // count for place in range(count + 1)] if count else [0]
    return [max(calls[first:end], key=lambda call: call[1])[0] for first, end in pairwise(ends)]


class Standing:
    """The tokens of summaries in the context as of any event, from (added, removed, tokens) of each summary."""

    def __init__(self, stays: Sequence[tuple[int, int | None, int]]) -> None:
        steps = [(added, tokens) for added, _, tokens in stays]
        steps += [(removed, -tokens) for _, removed, tokens in stays if removed is not None]
        steps.sort()
        self._seqs = [seq for seq, _ in steps]
        self._sums = [0, *accumulate(tokens for _, tokens in steps)]

    def at(self, seq: int, call_id: str = "") -> int:
        return self._sums[bisect_right(self._seqs, seq)]


class StandingInTree:
    """``Standing`` for a session with branches, where a call's context is that of the branch it was made on."""

    def __init__(self, session_id: str, tokens: Mapping[str, int], branch_of: Mapping[str, int]) -> None:
        self._branches, self._spans = load_branches(session_id), load_spans(session_id)
        self._tokens, self._branch_of = tokens, branch_of

    def at(self, seq: int, call_id: str) -> int:
        path = path_to(self._branches, self._branch_of.get(call_id, 0))
        standing, _ = standing_spans(path, (span for span in self._spans if span.added_seq <= seq))
        return sum(SUMMARY_FRAME + self._tokens.get(span.id, 0) for span in standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    seq: int  # the event that added its first summary; without summaries, the event that ended it
    level: int
    tokens_before: int | None
    tokens_after: int | None


def marks_of(runs: Sequence[EndedRun], context_seqs: Sequence[int]) -> list[Mark]:
    """Return the compactions by the first call that read its context after each; ``context_seqs`` ascend."""
    marks: list[Mark] = []
    for run in runs:
        before = bisect_left(context_seqs, run.seq)
        last = marks.pop() if marks and marks[-1].before == before else None
        marks.append(
            Mark(
                before=before,
                count=last.count + 1 if last else 1,
                level=max(last.level, run.level) if last else run.level,
                tokens_before=last.tokens_before if last else run.tokens_before,
                tokens_after=run.tokens_after,
            )
        )
    return marks


# Each layer of a column with a function that returns where it begins and ends, in tokens.
LAYERS: Sequence[tuple[str, Promise, Callable[[Column], tuple[int, int]]]] = (
    ("system", gettext_lazy("System and tools"), lambda column: (0, column.opening)),
    ("summaries", gettext_lazy("Summaries"), lambda column: (column.opening, column.opening + column.summaries)),
    ("messages", gettext_lazy("Messages"), lambda column: (column.opening + column.summaries, column.used)),
)


def draw(occupancy: Occupancy, *, place: int | None = None, shown: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the bar with its cursor at the column ``place``, counted from 1, by default the last one.

    ``shown`` is (number, tokens) of the call on the page, which need not be the one that its column shows.
    ``layers`` are (name, label, path), the lowest first; ``lines`` (name, label, y); ``marks`` (level, label, x).
    """
    columns, budget = occupancy.columns, occupancy.budget
    place = min(max(place or len(columns), 1), len(columns))
    scale = HEIGHT / (HEADROOM * max(budget.usable, *(column.used for column in columns), 1))
    width = WIDTH / len(columns)
    # The number of the call, its tokens and what percentage of the usable window they are.
    places = [[column.number, column.used, _percent(column.used, budget.usable)] for column in columns]
    here = places[place - 1] if shown is None else [*shown, _percent(shown[1], budget.usable)]
    soft = _("soft threshold, %(size)s tokens") % {"size": format_count(budget.soft)}
    usable = _("usable window, %(size)s tokens") % {"size": format_count(budget.usable)}
    return {
        "layers": [(name, str(label), _path(map(reach, columns), width, scale)) for name, label, reach in LAYERS],
        "lines": [("soft", soft, _y(budget.soft, scale)), ("hard", usable, _y(budget.usable, scale))],
        "marks": [(mark.level, mark.label, round(mark.before * width, 2)) for mark in occupancy.marks],
        "has_cuts": any(mark.level == 3 for mark in occupancy.marks),
        "place": place,
        "count": len(columns),
        "place_label": label_of(*here),
        "cursor_x": round((place - 1) * width, 2),
        "cursor_width": round(max(width, 2.0), 2),
        "places": places,
        "sentence": _sentence(occupancy),
    }


def label_of(number: int, tokens: int, percent: int) -> str:
    """Return one column in words; ``inspector/calls.js`` says it the same way."""
    shown = {"number": format_number(number), "tokens": format_number(tokens), "percent": percent}
    return _("Call %(number)s: %(tokens)s tokens, %(percent)s %% of usable") % shown


def _path(reaches: Iterable[tuple[int, int]], width: float, scale: float) -> str:
    gap = width * WIDEST_GAP if width * GAPS_UP_TO >= WIDTH else 0.0
    steps = []
    for index, (low, high) in enumerate(reaches):
        if high > low:
            x, bar = index * width + gap / 2, width - gap
            steps.append(f"M{x:.2f} {_y(low, scale):.2f}h{bar:.2f}V{_y(high, scale):.2f}h{-bar:.2f}z")
    return "".join(steps)


def _y(tokens: int, scale: float) -> float:
    return round(HEIGHT - tokens * scale, 2)


def _percent(tokens: int, usable: int) -> int:
    return round(100 * tokens / max(usable, 1))


def _sentence(occupancy: Occupancy) -> str:
    fullest = max(occupancy.columns, key=lambda column: column.used)
    compactions = sum(mark.count for mark in occupancy.marks)
    each = round(occupancy.calls / len(occupancy.columns))
    text = _(
        "%(calls)s of turns, %(compactions)s. The fullest: call %(number)s: %(tokens)s tokens, %(percent)s %% of usable."
    ) % {
        "calls": format_counted(occupancy.calls, "call"),
        "compactions": format_counted(compactions, "compaction"),
        "number": format_number(fullest.number),
        "tokens": format_number(fullest.used),
        "percent": _percent(fullest.used, occupancy.budget.usable),
    }
    if each > 1:
        text += " " + _("Each column shows the fullest of about %(count)s calls.") % {"count": format_number(each)}
    return text
