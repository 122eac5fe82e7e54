"""Explore one file: find its kind, ask that kind's module, and say what became of it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from mnesis_core.files.detection import Kind, detect, plain_kind
from mnesis_core.files.source import SUMMARY_CHARACTERS, Findings, Source, Unreadable, shown

PROBLEM_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What is known of a file's content."""

    kind: str
    explorer: str
    """Module and version that said so, as ``csv-1``."""
    summary: str
    covered: str
    """How much of it was looked at."""
    problem: str = ""
    """Why its own kind's module could not read it; the summary is then of its text or bytes."""


def explore(source: Source) -> Exploration:
    """Say what a file holds. One that its kind's module cannot read is described as text or bytes, and why is kept."""
    kind = detect(source)
    try:
        return _exploration(kind, _ask(kind, source))
    except Unreadable as error:
        problem = _said(source, error)
    except MemoryError:
        problem = "it needs more memory than it may have"
    except RecursionError:
        problem = "it is nested too deeply"
    except Exception as error:  # a parser meets other people's bytes, and may raise anything
        problem = f"its parser gave up ({type(error).__name__}: {_said(source, error)})"
    return explore_plainly(source, kind, problem=problem)


def explore_plainly(source: Source, kind: Kind, *, problem: str) -> Exploration:
    """Describe a file as text or bytes, because its own kind's module cannot read it."""
    return _exploration(kind, _ask(plain_kind(source), source), problem=problem)


def _ask(kind: Kind, source: Source) -> Findings:
    # Imported when asked for: a parser of another kind may take a second to load.
    module = importlib.import_module(f"mnesis_core.files.kinds.{kind.module}")
    findings: Findings = module.explore(source)
    return findings


def _said(source: Source, error: Exception) -> str:
    """An error's message, without where the file lies."""
    return shown(str(error).replace(str(source.path), source.name), characters=PROBLEM_CHARACTERS)


def _exploration(kind: Kind, findings: Findings, *, problem: str = "") -> Exploration:
    lines = [f"Not read as {kind.name}: {problem}"] if problem else []
    return Exploration(
        kind=kind.name,
        explorer=kind.explorer,
        summary=fitting([*lines, *findings.lines]),
        covered=findings.covered,
        problem=problem,
    )


def fitting(lines: list[str]) -> str:
    """The first lines that fit a summary, and how many do not."""
    kept: list[str] = []
    length = 0
    for line in lines:
        length += len(line) + 1
        if length > SUMMARY_CHARACTERS:
            return "\n".join([*kept, f"({len(lines) - len(kept):,} more lines are left out)"])
        kept.append(line)
    return "\n".join(kept)
