"""Explore one file: find its kind, ask that kind's module, and say what became of it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from mnesis_core.files.detection import Kind, detect, plain_kind
from mnesis_core.files.source import SUMMARY_CHARACTERS, Findings, Source, Unreadable, shown

PROBLEM_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    kind: str
    explorer: str  # the module's name and version, as ``csv-1``
    summary: str
    covered: str
    # Why the kind's own module could not read the file; the summary then describes its text or bytes.
    problem: str = ""


def explore(source: Source) -> Exploration:
    """Describe a file. One that its kind's module cannot read is described as text or bytes, with the reason."""
    kind = detect(source)
    try:
        return _exploration(kind, kind, source)
    except Unreadable as error:
        problem = _message(source, error)
    except MemoryError:
        problem = "it needs more memory than it may have"
    except RecursionError:
        problem = "it is nested too deeply"
    except Exception as error:  # a parser meets other people's bytes, and may raise anything
        problem = f"its parser gave up ({type(error).__name__}: {_message(source, error)})"
    return explore_plainly(source, kind, problem=problem)


def explore_plainly(source: Source, kind: Kind, *, problem: str) -> Exploration:
    return _exploration(kind, plain_kind(source), source, problem=problem)


def _message(source: Source, error: Exception) -> str:
    return shown(str(error).replace(str(source.path), source.name), characters=PROBLEM_CHARACTERS)


def _exploration(kind: Kind, read_as: Kind, source: Source, *, problem: str = "") -> Exploration:
    # Not at the top: loading the parsers of every kind would take a second and much of the memory that one may have.
    module = importlib.import_module(f"mnesis_core.files.kinds.{read_as.module}")
    findings: Findings = getattr(module, read_as.function)(source)
    lines = [f"Not read as {kind.name}: {problem}"] if problem else []
    return Exploration(
        kind=kind.name,
        explorer=kind.explorer,
        summary=fitting([*lines, *findings.lines]),
        covered=findings.covered,
        problem=problem,
    )


def fitting(lines: list[str]) -> str:
    kept: list[str] = []
    length = 0
    for line in lines:
        length += len(line) + 1
        if length > SUMMARY_CHARACTERS:
            return "\n".join([*kept, f"({len(lines) - len(kept):,} more lines are left out)"])
        kept.append(line)
    return "\n".join(kept)
