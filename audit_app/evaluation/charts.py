"""The charts of an evaluation: the answers that prompts show, their tokens, and the facts that are shown by their age.

A page draws them, and ``write_pictures`` makes SVG files that need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from django.conf import settings
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from mnesis_core.compaction.evaluation.measures import (
    POLICIES,
    POLICY_NAMES,
    Policy,
    Report,
    Row,
    present_by_age,
    say_share,
    sum_up,
)
from sessions_app.llm.usage import HEIGHT, WIDTH, Chart, draw_bar
from sessions_app.pages.formats import format_count, format_number, round_up
from sessions_app.pages.markdown import show_invisible

GAP = 0.12
"""The share of a bar's place that stays empty."""
AGES = (
    pgettext_lazy("fifths of a conversation", "oldest fifth"),
    pgettext_lazy("fifths of a conversation", "second"),
    pgettext_lazy("fifths of a conversation", "third"),
    pgettext_lazy("fifths of a conversation", "fourth"),
    pgettext_lazy("fifths of a conversation", "newest fifth"),
)
_Value = Callable[[Row], float | None]


def draw_report(report: Report) -> list[Chart]:
    rows = sum_up(report)
    charts = []
    has_facts = any(row.facts is not None for row in rows)
    if has_facts:
        charts.append(_shares(_("Planted facts in the prompt"), rows, lambda row: row.facts))
    if any(row.answers is not None for row in rows):
        charts.append(_shares(_("Answers in the prompt"), rows, lambda row: row.answers))
    if any(row.prompt_tokens for row in rows):
        charts.append(_tokens(rows))
    if not has_facts:
        return charts
    model, window, policies = rows[0].model, min(row.window for row in rows), _policies(rows)
    held = [present_by_age(report, model, window, policy, len(AGES)) for policy in policies]
    text = _("%(model)s, a window of %(window)s tokens: what was said early, and what was said late.")
    by_age = _drawn(
        _("Planted facts by age"),
        text % {"model": show_invisible(model), "window": format_number(window)},
        policies,
        [*map(str, AGES)],
        [[of_policy[age] for of_policy in held] for age in range(len(AGES))],
        most=1.0,
        say=say_share,
        scale=("100 %", "50 %"),
    )
    return [*charts, by_age]


def _shares(name: str, rows: Sequence[Row], value: _Value) -> Chart:
    first = _group(rows[0])
    said = [
        f"{_(POLICY_NAMES[row.policy])} {say_share(value(row))}"
        for row in rows
        if _group(row) == first and value(row) is not None
    ]
    sentence = f"{_label(rows[0], rows)}: {', '.join(said)}."
    return _grouped(name, sentence, rows, value, most=1.0, say=say_share, scale=("100 %", "50 %"))


def _tokens(rows: Sequence[Row]) -> Chart:
    most = round_up(max(row.prompt_tokens for row in rows))
    return _grouped(
        _("Tokens of a prompt"),
        _("Means over all questions. The full history may be larger than the window."),
        rows,
        lambda row: row.prompt_tokens,
        most=most,
        say=lambda value: "" if value is None else format_number(round(value)),
        scale=(format_count(round(most)), format_count(round(most / 2))),
    )


def _grouped(
    name: str,
    sentence: str,
    rows: Sequence[Row],
    value: _Value,
    *,
    most: float,
    say: Callable[[float | None], str],
    scale: tuple[str, str],
) -> Chart:
    """Draw a bar for each policy, in groups by model and window."""
    policies, groups = _policies(rows), list(dict.fromkeys(map(_group, rows)))
    by_place = {(_group(row), row.policy): row for row in rows}
    labels = [_label(next(row for row in rows if _group(row) == group), rows) for group in groups]
    cells = [[by_place.get((group, policy)) for policy in policies] for group in groups]
    return _drawn(
        name,
        sentence,
        policies,
        labels,
        [[value(row) if row else None for row in line] for line in cells],
        most=most,
        say=say,
        scale=scale,
    )


def _drawn(
    name: str,
    sentence: str,
    policies: Sequence[Policy],
    labels: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    most: float,
    say: Callable[[float | None], str],
    scale: tuple[str, str],
) -> Chart:
    places = len(policies) + 1  # one stays empty between two groups
    bars = []
    for group, (label, line) in enumerate(zip(labels, values, strict=True)):
        for place, (policy, value) in enumerate(zip(policies, line, strict=True)):
            heights = {} if value is None else {f"series-{place + 1}": HEIGHT * value / most}
            bar = draw_bar(group * places + place, len(labels) * places, GAP, heights)
            middle = bar.x + WIDTH / (len(labels) * places) / 2
            bars.append(replace(bar, x=round(middle, 2), title=f"{label}, {_(POLICY_NAMES[policy])}: {say(value)}"))
    return Chart(
        name=name,
        sentence=sentence,
        series=[_(POLICY_NAMES[policy]) for policy in policies],
        bars=bars,
        highest=scale[0],
        middle=scale[1],
        times=list(labels),
        rows=[(label, *map(say, line)) for label, line in zip(labels, values, strict=True)],
    )


def _policies(rows: Sequence[Row]) -> list[Policy]:
    there = {row.policy for row in rows}
    return [policy for policy in POLICIES if policy in there]


def _group(row: Row) -> tuple[str, int]:
    return row.model, row.window


def _label(row: Row, rows: Sequence[Row]) -> str:
    window = format_number(row.window)
    return window if len({one.model for one in rows}) == 1 else f"{show_invisible(row.model)}, {window}"


def write_pictures(charts: Sequence[Chart], folder: Path) -> list[tuple[str, str]]:
    """Write a file for each chart and return their titles and names. Numbers are written as SVG reads them."""
    written = []
    for chart in charts:
        name = f"{chart.name.lower().replace(' ', '-')}.svg"
        groups = len(chart.times) or 1
        labels = [(1_000 * (place + 0.5) / groups, label) for place, label in enumerate(chart.times)]
        legend = [(place, 200 * (place - 1), label) for place, label in enumerate(chart.series, 1)]
        values = {"chart": chart, "labels": labels, "legend": legend}
        with translation.override(settings.LANGUAGE_CODE):
            picture = render_to_string("audit_app/evaluation/chart.svg", values)
        (folder / name).write_text(picture, encoding="utf-8")
        written.append((chart.name, name))
    return written
