"""A report of an evaluation in words: the table that the command prints, Markdown and the page have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnesis_core.compaction.evaluation.measures import Row, sum_up
from mnesis_core.compaction.evaluation.values import DEPTHS, Measurement, Report
from mnesis_core.text import visible_text

COLUMNS = (
    *("Model", "Window", "Policy", "Facts present", "Only the old fact", "Answers present"),
    *(f"Facts told, {depth} hits" for depth in DEPTHS),
    *(f"Evidence told, {depth} hits" for depth in DEPTHS),
    *("Answered", "Tokens of a prompt", "Calls", "Cost"),
)
POLICY_NAMES = {"mnesis": "Mnesis", "truncation": "truncation", "rolling": "rolling summary", "full": "full history"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#!])")


def cells_of(row: Row) -> tuple[str, ...]:
    """Return the cells of ``COLUMNS``; empty where nothing was measured."""
    nothing = (None,) * len(DEPTHS)
    return (
        row.model,
        f"{row.window:,}",
        POLICY_NAMES[row.policy] + ("" if row.fits else ", does not fit"),
        *map(say_share, (row.facts, row.outdated, row.answers)),
        *map(say_share, row.facts_told or nothing),
        *map(say_share, row.evidence_told or nothing),
        say_share(row.answered),
        f"{row.prompt_tokens:,}",
        f"{row.calls:,}",
        "not known" if row.cost_micros is None else f"{row.cost_micros / 1_000_000:.4f}",
    )


def table_of(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table, without columns in which nothing was measured."""
    cells = [cells_of(row) for row in rows]
    kept = [place for place in range(len(COLUMNS)) if any(row[place] for row in cells)]
    return [COLUMNS[place] for place in kept], [[row[place] for place in kept] for row in cells]


def say_share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def write_markdown(report: Report, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """Return a report as Markdown; ``pictures`` are their titles and file names."""
    lines = [f"# Evaluation of memory, {report.at[:16].replace('T', ' ')} UTC", ""]
    if not report.is_whole:
        lines += ["It was interrupted: this is what was measured until then.", ""]
    for told in report.conversations:
        lines.append(
            f"* {_plain(told.name)}: {told.messages:,} messages, {told.tokens:,} tokens, {say_questions(told.questions)}"
        )
    lines += ["", f"Facts planted in each: {report.plant}; seed {report.seed}. Tools are in no policy's prompt.", ""]
    lines += [line for note in report.notes for line in (_plain(note), "")]
    lines += _markdown_table(sum_up(report))
    for title, file in pictures:
        lines += ["", f"![{title}]({file})"]
    if len(report.conversations) > 1:
        rows = sum_up(report, apart=True)
        for told in report.conversations:
            lines += ["", f"## {_plain(told.name)}", ""]
            lines += _markdown_table([row for row in rows if row.conversation == told.name])
    return "\n".join(lines) + "\n"


def say_questions(questions: Sequence[object]) -> str:
    return f"{len(questions):,} question{'' if len(questions) == 1 else 's'}"


def _markdown_table(rows: Sequence[Row]) -> list[str]:
    header, cells = table_of(rows)
    if not cells:
        return ["Nothing was measured."]
    lines = [[_plain(cell) for cell in row] for row in cells]
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)]


def say_measured(measurement: Measurement) -> str:
    """Return what the terminal says when a policy was measured."""
    outcomes = [one.is_present for one in measurement.outcomes if one.is_present is not None]
    tokens = [one.prompt_tokens for one in measurement.outcomes]
    mean = round(sum(tokens) / len(tokens)) if tokens else 0
    return (
        f"{measurement.conversation}, {measurement.model}, {measurement.window:,}, "
        f"{POLICY_NAMES[measurement.policy]}: {sum(outcomes)} of {len(outcomes)} answers present, {mean:,} tokens a prompt"
    )


def _plain(text: str) -> str:
    """Return a text as one line of Markdown that says it and does nothing."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible_text(text).split()))
