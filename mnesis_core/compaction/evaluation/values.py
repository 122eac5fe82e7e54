"""What an evaluation of memory asks and finds: frozen values, which a report keeps as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar, get_args

from mnesis_core.transcripts.values import Transcript

Kind = Literal["planted", "changed", "asked"]
Policy = Literal["mnesis", "truncation", "rolling", "full"]
KINDS: tuple[Kind, ...] = get_args(Kind)
POLICIES: tuple[Policy, ...] = get_args(Policy)
DEPTHS = (5, 10)
"""Hits that the memory tool is asked for."""
FORM = 1
"""The version of a report's JSON."""
LARGEST_NUMBER = 2**63
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    kind: Kind  # a planted fact, one that changed later, or a question that came with the conversation
    text: str
    answer: str  # of a planted fact its code; empty where only the evidence is known
    outdated: str = ""  # the code that no longer holds
    evidence: tuple[int, ...] = ()  # numbers of the messages with the answer, from 1
    place: float = 0.0  # the share of the conversation that is said before the evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    transcript: Transcript  # a line, without branches
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A conversation as a report names it."""

    name: str
    messages: int
    tokens: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one question in one policy's prompt."""

    question: int  # its index among those of the conversation
    is_present: bool | None  # None where the question has no answer of its own
    is_outdated: bool = False  # only the code that no longer holds is there
    prompt_tokens: int
    recalled: tuple[float, ...] = ()  # the share of the evidence that the memory tool tells, for each of ``DEPTHS``
    is_answered: bool | None = None  # None where the model was not asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    conversation: str
    model: str
    window: int  # tokens
    policy: Policy
    fits: bool  # whether its prompts fit the window: only the full history may not
    outcomes: tuple[Outcome, ...]
    calls: int = 0  # of models, for summaries, facts and answers
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int | None = 0  # None where a price is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    id: str
    at: str  # ISO 8601, in UTC
    seed: int
    plant: int
    is_whole: bool  # False while it is being measured, and of one that has ended before
    progress: str = ""  # where it is; empty when it has ended
    problem: str = ""  # why it has ended before it was whole
    conversations: tuple[Told, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"format": "mnesis-evaluation", "version": FORM, **asdict(self)}


def read_report(values: Any) -> Report:
    """Return a report from its JSON.

    :raises ValueError: it is none, or of a later version.
    """
    if not isinstance(values, dict) or values.get("format") != "mnesis-evaluation" or values.get("version") != FORM:
        raise ValueError("this is no report of an evaluation that this version can read")
    return _made(
        Report,
        {name: value for name, value in values.items() if name not in ("format", "version")},
        conversations=lambda one: _made(Told, one, questions=lambda asked: _made(Question, asked)),
        measurements=read_measurement,
        notes=str,
    )


def read_measurement(values: Any) -> Measurement:
    """:raises ValueError: they are no measurement."""
    return _made(Measurement, values, outcomes=lambda one: _made(Outcome, one, recalled=_read_share))


def read_told(values: Any) -> Told:
    """:raises ValueError: they tell no conversation."""
    return _made(Told, values, questions=lambda one: _made(Question, one))


def _read_share(value: Any) -> float:
    if not _fits(value, "float"):
        raise ValueError("this is no share")
    return float(value)


def _made(of: type[_Value], values: Any, **parts: Callable[[Any], Any]) -> _Value:
    """Return a value from a mapping, of which ``parts`` are lists.

    :raises ValueError: it lacks a field, has an unknown one, or one of another type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"this is no {of.__name__}")
    parts = {"evidence": int} | parts if of is Question else parts
    try:
        made = of(**{name: _part(value, parts.get(name)) for name, value in values.items()})
    except TypeError as error:
        raise ValueError(f"this is no {of.__name__}: {error}") from error
    for field in dataclasses.fields(made):  # type: ignore[arg-type]
        if not _fits(getattr(made, field.name), str(field.type)):
            raise ValueError(f"{of.__name__}.{field.name} is not of its type")
    return made


def _part(value: Any, read: Callable[[Any], Any] | None) -> Any:
    if read is None:
        return value
    if not isinstance(value, list | tuple):
        raise ValueError("a list is missing")
    return tuple(map(read, value))


_PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


def _fits(value: Any, annotation: str) -> bool:
    if annotation in ("Kind", "Policy"):
        return value in (KINDS if annotation == "Kind" else POLICIES)
    name, _, optional = annotation.partition(" | ")
    if value is None:
        return optional == "None"
    if name not in _PLAIN:
        return isinstance(value, tuple)
    if isinstance(value, bool) or name == "bool":
        return isinstance(value, bool) and name == "bool"
    if not isinstance(value, _PLAIN[name]):
        return False
    return 0 <= value <= LARGEST_NUMBER if isinstance(value, int | float) else True
