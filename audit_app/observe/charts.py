"""The charts of *Observe*: what the sessions that meet a query did over time, as small bars, and the same as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from mnesis_core.search.observation import Step
from sessions_app.llm.usage import DAY_GAP, HEIGHT, Chart, draw_bar
from sessions_app.pages.formats import format_count, format_duration, format_money, format_number, round_up
from sessions_app.record.observed import Course, Numbers, times_between

HEAD = (
    gettext_lazy("Sessions"),
    gettext_lazy("Calls"),
    gettext_lazy("Errors"),
    gettext_lazy("Median latency"),
    gettext_lazy("95 % within"),
    gettext_lazy("Median first token"),
    gettext_lazy("95 % within"),
    gettext_lazy("Tokens"),
    gettext_lazy("Cost"),
    gettext_lazy("Compactions"),
)
_TIMES = {Step.DAY: "j M Y", Step.HOUR: "j M, H:00"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    charts: Sequence[Chart]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]  # the last first, without times at which nothing happened


def draw_course(
    course: Course, compactions: Mapping[datetime, int], *, since: datetime, until: datetime, step: Step
) -> Charts:
    times = times_between(since, until, step)
    numbers = [course.by_time.get(time, Numbers()) for time in times]
    compacted = [compactions.get(time, 0) for time in times]
    said = [date_format(time, _TIMES[step]) for time in times]
    sums = (
        (_("Sessions"), [each.sessions for each in numbers], format_number, format_count),
        (_("Calls"), [each.calls for each in numbers], format_number, format_count),
        (_("Errors"), [each.errors for each in numbers], format_number, format_count),
        (_("Tokens"), [each.tokens for each in numbers], format_number, format_count),
        (_("Cost"), [each.cost_micros for each in numbers], format_money, format_money),
        (_("Compactions"), compacted, format_number, format_count),
    )
    charts = [
        _draw_sum(name, values, said, say, say_short, is_of_sessions=place == 0)
        for place, (name, values, say, say_short) in enumerate(sums)
    ]
    firsts = [(each.first_median_ms, each.first_slow_ms) for each in numbers]
    charts[3:3] = [
        _draw_times(_("Latency"), [(each.median_ms, each.slow_ms) for each in numbers], said),
        _draw_times(_("First token"), firsts, said),
    ]
    ends = [
        date_format(time, "j M")
        for time in dict.fromkeys((since, since + (until - since) / 2, until - timedelta(seconds=1)))
    ]
    rows = [
        _row(time, each, count)
        for time, each, count in zip(said, numbers, compacted, strict=True)
        if each != Numbers() or count
    ]
    return Charts(charts=[replace(chart, times=ends) for chart in charts], head=[*map(str, HEAD)], rows=rows[::-1])


def _draw_sum(
    name: str,
    values: Sequence[int],
    said: Sequence[str],
    say: Callable[[int], str],
    say_short: Callable[[int], str],
    *,
    is_of_sessions: bool,
) -> Chart:
    most = round_up(max(values, default=0)) or 1
    total = sum(values)
    # A session with calls on several days counts on each of them, so there is no sum.
    sentence = _("%(total)s in total") % {"total": say(total)} if total else pgettext("usage", "None")
    if total and is_of_sessions:
        sentence = _("Up to %(most)s at a time") % {"most": say(max(values))}
    return Chart(
        name=name,
        sentence=sentence,
        highest=say_short(round(most)) if most >= 1 else "",
        middle=say_short(round(most / 2)) if most > 1 else "",
        times=[],
        bars=[
            replace(
                draw_bar(index, len(values), DAY_GAP, {"series-1": value * HEIGHT / most} if value else {}),
                title=f"{time}: {say(value)}",
            )
            for index, (time, value) in enumerate(zip(said, values, strict=True))
        ],
    )


def _draw_times(name: str, times: Sequence[tuple[int | None, int | None]], said: Sequence[str]) -> Chart:
    """Draw the median of each hour or day, and above it how far the slowest but 5 % reach."""
    slowest = max((slow for _median, slow in times if slow is not None), default=None)
    most = round_up(slowest or 0) or 1
    bars = []
    for index, (time, (median, slow)) in enumerate(zip(said, times, strict=True)):
        heights = {"series-1": (median or 0) * HEIGHT / most, "series-2": ((slow or 0) - (median or 0)) * HEIGHT / most}
        bar = draw_bar(index, len(times), DAY_GAP, heights if slow is not None else {})
        title = _("%(time)s: median %(median)s, 95 %% within %(slow)s")
        bars.append(replace(bar, title=title % {"time": time, "median": _took(median), "slow": _took(slow)}))
    return Chart(
        name=name,
        sentence=pgettext("usage", "None") if slowest is None else _("Median and 95th percentile"),
        highest=_took(round(most)) if slowest else "",
        middle=_took(round(most / 2)) if slowest else "",
        times=[],
        bars=bars,
    )


def _row(time: str, each: Numbers, compactions: int) -> tuple[str, ...]:
    return (
        time,
        *map(format_number, (each.sessions, each.calls, each.errors)),
        *map(_took, (each.median_ms, each.slow_ms, each.first_median_ms, each.first_slow_ms)),
        format_number(each.tokens),
        format_money(each.cost_micros),
        format_number(compactions),
    )


def _took(milliseconds: int | None) -> str:
    return "" if milliseconds is None else format_duration(milliseconds / 1000)
