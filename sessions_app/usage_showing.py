"""What was spent as the page of usage shows it: by day, model, purpose, person and session."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from django.contrib.auth.models import User

from mnesis_core.spending import lines_of
from sessions_app.queries import titles_of
from sessions_app.queries.spent import (
    MOST_SESSIONS,
    Taken,
    TakenBySession,
    TakenOnDay,
    launchers_of,
    sum_of_taken,
    taken_by_day,
    taken_by_session,
)
from sessions_app.relatives import shown_title
from sessions_app.rendering import format_money, show_invisible
from sessions_app.spending import limits_for_person, look
from sessions_app.usage_charts import Chart, draw_money, draw_tokens

PURPOSES = {"turn": "Turns", "summary": "Compaction", "file": "Descriptions of files", "map": "Runs"}
SHOWN_SESSIONS, SHOWN_PEOPLE = 20, 50
DEEPEST = 20
"""Sub-agents of sub-agents; more than anything permits."""
HEADER = (
    "day",
    "model",
    "purpose",
    "calls",
    "tokens_input",
    "tokens_output",
    "tokens_cache_read",
    "cost_micros",
    "calls_without_price",
)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTaken:
    """One line of a table."""

    name: str
    calls: str
    tokens_input: str
    tokens_output: str
    tokens_cached: str
    cost: str
    """Empty where nothing has a known price."""
    unpriced: int
    share: str
    """Of all tokens, in percent."""
    link: str = ""
    """The id of a session that may be opened, or the name of a person."""
    sub_agents: int = 0
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLimit:
    """One limit."""

    words: str
    is_near: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownUsage:
    """Everything on the page."""

    total: ShownTaken
    uncounted: int
    charts: tuple[Chart, ...]
    models: list[ShownTaken]
    purposes: list[ShownTaken]
    people: list[ShownTaken]
    sessions: list[ShownTaken]
    is_cut: bool
    """Whether there are more sessions than are told apart."""
    limits: list[ShownLimit]

    @property
    def is_empty(self) -> bool:
        """Whether no model was asked anything."""
        return self.total.calls == "0"


def show_usage(*, first: date, last: date, owner_id: int | None) -> ShownUsage:
    """What one person, or everybody, spent in a stretch of days; both days are included.

    Eight statements at most beyond the limits', however many calls there were.
    """
    by_day = taken_by_day(first=first, last=last, owner_id=owner_id)
    by_session = taken_by_session(first=first, last=last, owner_id=owner_id)
    total = sum_of_taken(each.taken for each in by_day)
    draw = [draw_tokens, draw_money] if total.cost_micros else [draw_tokens]
    return ShownUsage(
        total=_shown("All", total, total),
        uncounted=total.uncounted,
        charts=tuple(each(by_day, first=first, last=last) for each in draw),
        models=_grouped(by_day, lambda each: show_invisible(each.model), total),
        purposes=_grouped(by_day, lambda each: PURPOSES.get(each.purpose, show_invisible(each.purpose)), total),
        people=[] if owner_id is not None else _people(by_session, total),
        sessions=_sessions(by_session, total, owner_id),
        is_cut=len(by_session) == MOST_SESSIONS,
        limits=[] if owner_id is None else _limits(owner_id),
    )


def usage_rows(*, first: date, last: date, owner_id: int | None) -> Iterator[str]:
    """The same by day, model and purpose as lines of CSV, the header first."""
    yield _line(HEADER)
    for each in taken_by_day(first=first, last=last, owner_id=owner_id):
        taken = each.taken
        numbers = (taken.calls, taken.tokens_input, taken.tokens_output, taken.tokens_cached, taken.cost_micros)
        yield _line((each.day.isoformat(), _cell(each.model), _cell(each.purpose), *numbers, taken.unpriced))


def _line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue()


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    shown = show_invisible(text)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown


def _shown(name: str, taken: Taken, total: Taken, **more: object) -> ShownTaken:
    is_priced = taken.unpriced < taken.calls
    return ShownTaken(
        name=name,
        calls=f"{taken.calls:,}",
        tokens_input=f"{taken.tokens_input:,}",
        tokens_output=f"{taken.tokens_output:,}",
        tokens_cached=f"{taken.tokens_cached:,}",
        cost=format_money(taken.cost_micros) if is_priced else "",
        unpriced=taken.unpriced,
        share=_share(taken.tokens, total.tokens),
        **more,  # type: ignore[arg-type]
    )


def _share(part: int, whole: int) -> str:
    percent = 100 * part / whole if whole else 0
    return "under 1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def _grouped(by_day: Sequence[TakenOnDay], name_of: Callable[[TakenOnDay], str], total: Taken) -> list[ShownTaken]:
    sums: dict[str, Taken] = {}
    for each in by_day:
        name = name_of(each)
        sums[name] = sums.get(name, Taken()) + each.taken
    return [_shown(name, sums[name], total) for name in sorted(sums, key=lambda name: (*_rank(sums[name]), name))]


def _rank(taken: Taken) -> tuple[int, int]:
    return (-taken.cost_micros, -taken.tokens)


def _people(by_session: Sequence[TakenBySession], total: Taken) -> list[ShownTaken]:
    sums: dict[int, Taken] = {}
    for each in by_session:
        sums[each.owner_id] = sums.get(each.owner_id, Taken()) + each.taken
    largest = sorted(sums, key=lambda owner: (*_rank(sums[owner]), owner))[:SHOWN_PEOPLE]
    names = _names_of(largest)
    return [_shown(show_invisible(names[id]), sums[id], total, link=names[id]) for id in largest]


def _sessions(by_session: Sequence[TakenBySession], total: Taken, owner_id: int | None) -> list[ShownTaken]:
    """The sessions that took most, each with what its sub-agents took."""
    tops = _tops(by_session)
    sums: dict[str, Taken] = {}
    members: dict[str, int] = {}
    owners: dict[str, int] = {}
    for each in by_session:
        top = tops[each.session_id]
        sums[top] = sums.get(top, Taken()) + each.taken
        members[top] = members.get(top, 0) + (top != each.session_id)
        owners[top] = each.owner_id
    largest = sorted(sums, key=lambda id: (*_rank(sums[id]), id))[:SHOWN_SESSIONS]
    titles = titles_of(largest, owner_id=owner_id)
    names = _names_of({owners[id] for id in largest}) if owner_id is None else {}
    return [
        _shown(
            shown_title(titles[id]) if id in titles else "A deleted session",
            sums[id],
            total,
            link=id if id in titles else "",
            sub_agents=members[id],
            owner=show_invisible(names.get(owners[id], "")),
        )
        for id in largest
    ]


def _tops(by_session: Sequence[TakenBySession]) -> dict[str, str]:
    """By session the one at the top that launched it, or the one that launched that."""
    launched_by = {each.session_id: each.launched_by for each in by_session}
    for _ in range(DEEPEST):
        missing = {parent for parent in launched_by.values() if parent is not None and parent not in launched_by}
        if not missing:
            break
        launched_by |= dict.fromkeys(missing) | launchers_of(missing)
    return {each.session_id: _top(each.session_id, launched_by) for each in by_session}


def _top(session_id: str, launched_by: dict[str, str | None]) -> str:
    for _ in range(DEEPEST):
        parent = launched_by.get(session_id)
        if parent is None:
            break
        session_id = parent
    return session_id


def _names_of(user_ids: Iterable[int]) -> dict[int, str]:
    return dict(User.objects.filter(pk__in=user_ids).values_list("pk", "username"))


def _limits(owner_id: int) -> list[ShownLimit]:
    allowances = look(limits_for_person(owner_id))
    return [ShownLimit(words=line.words, is_near=line.is_near) for line in lines_of(allowances)]
