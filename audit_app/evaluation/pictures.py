"""The charts of a report as SVG files that need nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.template.loader import render_to_string

from sessions_app.llm.usage import Chart


def write_pictures(charts: Sequence[Chart], folder: Path) -> list[tuple[str, str]]:
    """Write a file for each chart and return their titles and names."""
    written = []
    for chart in charts:
        name = f"{chart.name.lower().replace(' ', '-')}.svg"
        groups = len(chart.times) or 1
        labels = [(1_000 * (place + 0.5) / groups, label) for place, label in enumerate(chart.times)]
        legend = [(place, 200 * (place - 1), label) for place, label in enumerate(chart.series, 1)]
        values = {"chart": chart, "labels": labels, "legend": legend}
        (folder / name).write_text(render_to_string("audit_app/evaluation_chart.svg", values), encoding="utf-8")
        written.append((chart.name, name))
    return written
