"""The page of usage, its table as CSV, and the charts of it and of runs: SVG that the server draws, said in words too."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy, pgettext

from mnesis_core.errors import InvalidRequest
from mnesis_core.maps.throughput import Interval
from mnesis_core.spending import lines_of
from mnesis_core.text import encode_text
from sessions_app.llm.limits import limits_for_person, look
from sessions_app.llm.spending_store import (
    MOST_SESSIONS,
    Taken,
    TakenBySession,
    TakenOnDay,
    launchers_of,
    taken_by_day,
    taken_by_session,
)
from sessions_app.pages.formats import (
    format_count,
    format_day,
    format_duration,
    format_money,
    format_number,
    localised,
    round_up,
)
from sessions_app.pages.markdown import show_invisible, shown_title
from sessions_app.pages.permissions import look_over, sees_records
from sessions_app.pages.views import reader_of, signed_in
from sessions_app.record.session_queries import temporary_among, titles_of

WIDTH, HEIGHT = 1_000, 100  # of a drawing, in units of its own: it is stretched over the place it has
DAY_GAP, RUN_GAP = 0.2, 0.15  # the share of a bar's place that stays empty
MOST_SINGLE_DAYS = 31  # longer ranges are drawn by week
MOST_SERIES = 5  # models with a colour of their own; the others share one more
MOST_ROWS = 12
ENDED = {
    "s": ngettext_lazy(
        "%(count)s item ended in %(duration)s: %(mean)s a second on average, %(most)s at the most.",
        "%(count)s items ended in %(duration)s: %(mean)s a second on average, %(most)s at the most.",
        "number",
    ),
    "min": ngettext_lazy(
        "%(count)s item ended in %(duration)s: %(mean)s a minute on average, %(most)s at the most.",
        "%(count)s items ended in %(duration)s: %(mean)s a minute on average, %(most)s at the most.",
        "number",
    ),
    "h": ngettext_lazy(
        "%(count)s item ended in %(duration)s: %(mean)s an hour on average, %(most)s at the most.",
        "%(count)s items ended in %(duration)s: %(mean)s an hour on average, %(most)s at the most.",
        "number",
    ),
}
UNITS = ((1, "s"), (60, "min"), (3_600, "h"))
DAYS, MOST_DAYS = 30, 366
STRETCHES = (7, 30, 90, 365)
EVERYBODY = "*"
MOST_PEOPLE = 500
PURPOSES = {
    "turn": gettext_lazy("Turns"),
    "gateway": gettext_lazy("Gateway"),
    "summary": gettext_lazy("Compaction"),
    "file": gettext_lazy("Descriptions of files"),
    "map": gettext_lazy("Runs"),
}
SHOWN_SESSIONS, SHOWN_PEOPLE = 20, 50
DEEPEST = 20  # levels of sub-agents; more than are permitted
HEADER = (
    *("day", "model", "purpose", "calls", "tokens_input", "tokens_output", "tokens_cache_read", "cost_micros"),
    "calls_without_price",
)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_Key = TypeVar("_Key", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    name: str
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Segments on top of each other, with the days they stand for."""

    x: float
    width: float
    segments: list[Segment]
    title: str = ""
    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    name: str
    sentence: str
    highest: str
    middle: str
    times: list[str]
    bars: Sequence[Bar] = ()
    series: Sequence[str] = ()  # names of a bar's segments, ready to be shown
    points: str = ""  # the curve, as SVG points
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    first: date
    last: date
    owner_id: int | None  # None for everybody
    person: str
    """The ``person`` of the address: a user name, ``*`` for everybody, empty for the reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    name: str
    taken: Taken
    link: str = ""  # the id of a session, or the name of a person
    sub_agents: int = 0
    owner: str = ""


def draw_days(taken: Sequence[TakenOnDay], measure: str, *, first: date, last: date) -> Chart:
    """Draw the ``Tokens`` or the ``Cost`` of each day, or of each week where there are many days, divided by model."""
    is_money = measure == "Cost"
    say: Callable[[int], str] = format_money if is_money else format_number
    series, column = _series(taken)

    days = (last - first).days + 1
    length = 1 if days <= MOST_SINGLE_DAYS else 7
    ends = [last - timedelta(days=back) for back in range(0, days, length)][::-1]
    stretches = [(max(first, end - timedelta(days=length - 1)), end) for end in ends]
    sums = [[0] * len(series) for _ in stretches]
    for each in taken:
        amount = each.taken.cost_micros if is_money else each.taken.tokens
        sums[-1 - (last - each.day).days // length][column[each.model]] += amount
    totals = [sum(parts) for parts in sums]
    most = round_up(max(totals, default=0)) or 1

    bars = []
    for index, ((begin, end), parts) in enumerate(zip(stretches, sums, strict=True)):
        heights = {f"series-{number}": amount * HEIGHT / most for number, amount in enumerate(parts, start=1) if amount}
        each_said = [f"{name} {say(amount)}" for name, amount in zip(series, parts, strict=True) if amount]
        detail = f": {', '.join(each_said)}" if len(each_said) > 1 else ""
        total = say(totals[index]) if is_money else _("%(shown)s tokens") % {"shown": say(totals[index])}
        title = f"{_say_days(begin, end)}: {total}{detail}"
        bar = draw_bar(index, len(stretches), DAY_GAP, heights)
        bars.append(replace(bar, title=title, first=begin, last=end))
    say_short = format_money if is_money else format_count
    rows = [
        (_say_days(begin, end), *map(say, parts), say(total))
        for (begin, end), parts, total in zip(stretches, sums, totals, strict=True)
    ]
    return Chart(
        name=_("Cost") if is_money else _("Tokens"),
        sentence=_sum_up(stretches, totals, say),
        series=series,
        bars=bars,
        highest=say_short(round(most)),
        middle=say_short(round(most / 2)),
        times=[date_format(day, "j M") for day in dict.fromkeys((first, first + (last - first) / 2, last))],
        rows=rows[::-1],
    )


def _series(taken: Sequence[TakenOnDay]) -> tuple[list[str], dict[str, int]]:
    """Return the names of a chart's series and which of them each model is in.

    They are in the order of tokens in every chart, so that a model has the same colour in all of them.
    """
    tokens: Counter[str] = Counter()
    for each in taken:
        tokens[each.model] += each.taken.tokens
    models = sorted(tokens, key=lambda model: (-tokens[model], model))
    names = [show_invisible(model) for model in models[:MOST_SERIES]] + [_("others")] * (len(models) > MOST_SERIES)
    return names, {model: min(index, MOST_SERIES) for index, model in enumerate(models)}


def _say_days(first: date, last: date) -> str:
    if first == last:
        return format_day(last)
    return _("%(first)s to %(last)s") % {"first": date_format(first, "j M"), "last": format_day(last)}


def _sum_up(stretches: Sequence[tuple[date, date]], totals: Sequence[int], say: Callable[[int], str]) -> str:
    total, most = sum(totals), max(totals, default=0)
    if not total:
        return pgettext("usage", "None.")
    if len(totals) == 1:
        return _("%(total)s in total.") % {"total": say(total)}
    text = _("%(total)s in total; the most, %(most)s, on the week %(days)s.")
    if stretches[0][0] == stretches[0][1]:
        text = _("%(total)s in total; the most, %(most)s, on %(days)s.")
    return text % {"total": say(total), "most": say(most), "days": _say_days(*stretches[totals.index(most)])}


def draw_run(stretches: Sequence[Interval]) -> tuple[Chart, Chart] | None:
    """Draw how many items of a run ended when, and what had been spent by then; ``None`` before any has ended.

    The rows are those of both: the time since the run began, the rate, the items that failed, and the sum spent.
    """
    if not stretches:
        return None
    mean = sum(map(_items, stretches)) / stretches[-1].ends
    seconds, unit = next((unit for unit in UNITS if mean * unit[0] >= 1), UNITS[-1])
    is_priced = stretches[-1].cost_micros > 0
    sums = [stretch.cost_micros if is_priced else stretch.tokens for stretch in stretches]
    step = -(-len(stretches) // MOST_ROWS)  # a row is of as many intervals as it takes
    rows = []
    for first in range(0, len(stretches), step):
        group = stretches[first : first + step]
        rate = sum(map(_items, group)) * seconds / (group[-1].ends - group[0].begins)
        failed = _say_number(sum(stretch.failed for stretch in group))
        spent_by_then = _say_spent(sums[first + len(group) - 1], is_priced=is_priced)
        rows.append((format_duration(group[-1].ends), f"{_say_number(rate)} / {unit}", failed, spent_by_then))
    throughput = _draw_throughput(stretches, seconds, unit)
    spending = _draw_spending(stretches, sums, is_priced=is_priced)
    return replace(throughput, rows=rows), replace(spending, rows=rows)


def _draw_throughput(stretches: Sequence[Interval], seconds: float, unit: str) -> Chart:
    whole = stretches[-1].ends
    rates = [_items(stretch) * seconds / (stretch.ends - stretch.begins) for stretch in stretches]
    fastest = round_up(max(rates))
    bars = []
    for index, stretch in enumerate(stretches):
        scale = HEIGHT * seconds / (stretch.ends - stretch.begins) / fastest
        heights = {"item-completed": stretch.completed * scale, "item-failed": stretch.failed * scale}
        bars.append(draw_bar(index, len(stretches), RUN_GAP, heights))
    items = sum(map(_items, stretches))
    shown = {"number": round(items), "count": _say_number(items), "duration": format_duration(whole)}
    shown |= {"mean": _say_number(items * seconds / whole), "most": _say_number(max(rates))}
    return Chart(
        name=_("Throughput"),
        sentence=ENDED[unit] % shown,
        bars=bars,
        highest=f"{_say_number(fastest)} / {unit}",
        middle=_say_number(fastest / 2),
        times=_times_of_run(whole),
    )


def _draw_spending(stretches: Sequence[Interval], sums: Sequence[float], *, is_priced: bool) -> Chart:
    whole, most = stretches[-1].ends, round_up(sums[-1])
    points = [(0.0, 0.0), *((stretch.ends, total) for stretch, total in zip(stretches, sums, strict=True))]
    after = _("%(total)s tokens after %(duration)s, %(half)s after half of the time.")
    if is_priced:
        after = _("%(total)s after %(duration)s, %(half)s after half of the time.")
    say = partial(_say_spent, is_priced=is_priced)
    half = say(sums[(len(sums) - 1) // 2])
    return Chart(
        name=_("Cost") if is_priced else _("Tokens"),
        sentence=after % {"total": say(sums[-1]), "duration": format_duration(whole), "half": half},
        points=" ".join(f"{WIDTH * end / whole:.1f},{HEIGHT - HEIGHT * total / most:.1f}" for end, total in points),
        highest=say(most),
        middle=say(most / 2),
        times=_times_of_run(whole),
    )


def _say_spent(amount: float, *, is_priced: bool) -> str:
    return format_money(round(amount)) if is_priced else format_count(round(amount))


def _times_of_run(whole: float) -> list[str]:
    return ["0", format_duration(whole / 2), format_duration(whole)]


def _items(stretch: Interval) -> float:
    return stretch.completed + stretch.failed


def _say_number(value: float) -> str:
    if value < 10 and value != round(value):
        return localised(f"{value:.1f}".removesuffix(".0"))
    return format_count(round(value))


def draw_bar(index: int, count: int, gap: float, heights: dict[str, float]) -> Bar:
    """Return one of ``count`` bars side by side; ``heights`` are those of its segments, from the bottom up."""
    top, segments = float(HEIGHT), []
    for name, height in heights.items():
        top -= height
        segments.append(Segment(name=name, y=round(top, 2), height=round(height, 2)))
    place = WIDTH / count
    return Bar(x=round(place * (index + gap / 2), 2), width=round(place * (1 - gap), 2), segments=segments)


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    asked = _read(request)
    sees_all, people = sees_records(request), []
    if sees_all:
        users = User.objects.order_by("username").only("username", "first_name", "last_name")[:MOST_PEOPLE]
        people = [(user.get_username(), user.get_full_name()) for user in users]
    is_current, length = asked.last == _today(), (asked.last - asked.first).days + 1
    context = {
        "asked": asked,
        "usage": _usage(asked),
        "sees_all": sees_all,
        "people": people,
        "is_own": asked.owner_id == reader_of(request),
        "whose": urlencode({"person": asked.person}) if asked.person else "",
        "query": _query(asked),
        "stretches": [(days, _query(asked, days=days), is_current and length == days) for days in STRETCHES],
        "today": _today(),
    }
    return render(request, "sessions_app/usage/usage.html", context)


@signed_in
def usage_csv(request: HttpRequest) -> HttpResponse:
    asked = _read(request)
    answer = HttpResponse(content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = f'attachment; filename="usage-{asked.first}-{asked.last}.csv"'
    table = csv.writer(answer)
    table.writerow(HEADER)
    for each in taken_by_day(first=asked.first, last=asked.last, owner_id=asked.owner_id):
        taken = each.taken
        numbers = (taken.calls, taken.tokens_input, taken.tokens_output, taken.tokens_cached, taken.cost_micros)
        table.writerow((each.day.isoformat(), csv_cell(each.model), csv_cell(each.purpose), *numbers, taken.unpriced))
    return answer


def _read(request: HttpRequest) -> Asked:
    """:raises InvalidRequest: the days are invalid, or too many.
    :raises Http404: this person's usage is not for the reader.
    """
    last = _day_in(request, "to") or _today()
    first = _day_in(request, "from") or last - timedelta(days=DAYS - 1)
    if not 0 <= (last - first).days < MOST_DAYS:
        raise InvalidRequest(
            gettext_noop("from and to must be at most %(most)s days apart, and in this order"),
            {"most": MOST_DAYS},
            field="from",
        )
    person = request.GET.get("person", "").strip()
    return Asked(first=first, last=last, person=person, owner_id=_owner(request, person))


def _owner(request: HttpRequest, person: str) -> int | None:
    own = reader_of(request)
    if person in ("", request.user.get_username()):
        return own
    look_over(request, may_look=sees_records(request))
    if person == EVERYBODY:
        return None
    found = User.objects.filter(username=encode_text(person)).values_list("pk", flat=True).first()
    if found is None:
        raise Http404
    return found


def _day_in(request: HttpRequest, name: str) -> date | None:
    text = request.GET.get(name, "")
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            gettext_noop("%(name)s must be a day, such as 2026-01-31"), {"name": name}, field=name
        ) from None
    if not 2000 <= day.year <= 2999:
        raise InvalidRequest(
            gettext_noop("%(name)s must lie between the years 2000 and 2999"), {"name": name}, field=name
        )
    return day


def _today() -> date:
    return timezone.now().astimezone(UTC).date()


def _query(asked: Asked, *, days: int = 0) -> str:
    """Return the query of the same page, or of the last ``days`` days."""
    values = {"person": asked.person} if asked.person else {}
    if days:
        values["from"] = (_today() - timedelta(days=days - 1)).isoformat()
    else:
        values |= {"from": asked.first.isoformat(), "to": asked.last.isoformat()}
    return urlencode(values)


def _usage(asked: Asked) -> dict[str, Any]:
    days = {"first": asked.first, "last": asked.last}
    by_day = taken_by_day(**days, owner_id=asked.owner_id)
    by_session = taken_by_session(**days, owner_id=asked.owner_id)
    total = sum((each.taken for each in by_day), Taken())
    measures = ("Tokens", "Cost") if total.cost_micros else ("Tokens",)
    models = _sums((each.model, each.taken) for each in by_day)
    purposes = _sums((str(PURPOSES.get(each.purpose, each.purpose)), each.taken) for each in by_day)
    people, limits = [], []
    if asked.owner_id is None:
        largest = _sums((each.owner_id, each.taken) for each in by_session)[:SHOWN_PEOPLE]
        names = _names_of(id for id, _taken in largest)
        people = [UsageRow(name=names[id], taken=taken, link=names[id]) for id, taken in largest]
    else:
        limits = lines_of(look(limits_for_person(asked.owner_id)))
    return {
        "total": total,
        "charts": [draw_days(by_day, measure, **days) for measure in measures],
        "models": [UsageRow(name=name, taken=taken) for name, taken in models],
        "purposes": [UsageRow(name=name, taken=taken) for name, taken in purposes],
        "people": people,
        "sessions": _by_top_session(by_session, asked.owner_id),
        "is_cut": len(by_session) == MOST_SESSIONS,
        "limits": limits,
    }


def _sums(taken: Iterable[tuple[_Key, Taken]]) -> list[tuple[_Key, Taken]]:
    sums: dict[_Key, Taken] = {}
    for key, each in taken:
        sums[key] = sums.get(key, Taken()) + each
    return sorted(sums.items(), key=lambda item: (-item[1].cost_micros, -item[1].tokens, item[0]))


def _by_top_session(by_session: Sequence[TakenBySession], owner_id: int | None) -> list[UsageRow]:
    """Return the sessions that took most, each with those that it launched, directly or not."""
    launched_by = {each.session_id: each.launched_by for each in by_session}
    for _level in range(DEEPEST):
        missing = {parent for parent in launched_by.values() if parent is not None and parent not in launched_by}
        if not missing:
            break
        launched_by |= dict.fromkeys(missing) | launchers_of(missing)
    tops = {}
    for each in by_session:
        top = each.session_id
        for _level in range(DEEPEST):
            parent = launched_by.get(top)
            if parent is None:
                break
            top = parent
        tops[each.session_id] = top

    largest = _sums((tops[each.session_id], each.taken) for each in by_session)[:SHOWN_SESSIONS]
    sub_agents = Counter(tops[each.session_id] for each in by_session if tops[each.session_id] != each.session_id)
    owners = {tops[each.session_id]: each.owner_id for each in by_session}
    titles = titles_of([id for id, _taken in largest], owner_id=owner_id)
    hidden = set() if owner_id is None else temporary_among(titles)
    names = _names_of({owners[id] for id, _taken in largest}) if owner_id is None else {}
    return [
        UsageRow(
            name=_("A temporary chat")
            if id in hidden
            else shown_title(titles[id])
            if id in titles
            else _("A deleted session"),
            taken=taken,
            link=id if id in titles.keys() - hidden else "",
            sub_agents=sub_agents[id],
            owner=names.get(owners[id], ""),
        )
        for id, taken in largest
    ]


def _names_of(user_ids: Iterable[int]) -> dict[int, str]:
    return dict(User.objects.filter(pk__in=list(user_ids)).values_list("pk", "username"))


def csv_cell(text: str) -> str:
    """Return a text for a CSV file: a quotation mark keeps a spreadsheet from reading a formula."""
    shown = show_invisible(text)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown
