"""What an evaluation of memory asks and finds, whether an answer stands in a prompt, and what many outcomes come to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal, TypeVar, get_args

from mnesis_core.context.entries import ContextMessage
from mnesis_core.search.words import FUNCTION_WORDS, fold, stem_of
from mnesis_core.text import visible_text
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


def said_in(messages: Iterable[ContextMessage], *, without: str = "") -> str:
    """Return everything that a model reads in these messages as one text, except for a given text such as the question."""
    texts = (
        [message.text, *(call.arguments for call in message.tool_calls), *(one.text for one in message.tool_results)]
        for message in messages
        if without not in message.source_ids
    )
    return "\n".join(text for several in texts for text in several)


def words_of(text: str) -> frozenset[str]:
    """Return the stems of a text's words, without function words."""
    return frozenset(stem_of(word) for word in fold(text).split() if word not in FUNCTION_WORDS)


def has_answer(said: str, question: Question) -> bool | None:
    """Return whether the answer is in a text: a code character by character, any other answer with each of its words."""
    if question.kind != "asked":
        return question.answer in said
    wanted = words_of(question.answer)
    return wanted <= words_of(said) if wanted else None


def misleads(said: str, question: Question) -> bool:
    """Return whether a text has only the outdated version of a fact that changed."""
    return bool(question.outdated) and question.outdated in said and question.answer not in said


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The results of a policy, summed up. Shares are of its questions, and None if there are none."""

    conversation: str  # empty: all of them
    model: str
    window: int
    policy: Policy
    facts: float | None  # of the planted facts, those that the prompts show; of one that changed the newer
    outdated: float | None  # of the facts that changed, those of which only the older is shown
    answers: float | None  # of the conversations' own questions, those whose answer is shown
    facts_told: tuple[float, ...]  # by the memory tool, for each of ``DEPTHS``; empty where it was not asked
    evidence_told: tuple[float, ...]
    answered: float | None  # by the model
    prompt_tokens: int  # mean
    calls: int
    cost_micros: int | None
    fits: bool


def sum_up(report: Report, *, apart: bool = False) -> list[Row]:
    """Return a row for each model, window and policy, in the order in which they were measured; ``apart``: for each conversation."""
    told = {one.name: one for one in report.conversations}
    groups: dict[tuple[str, str, int, Policy], list[Measurement]] = {}
    for one in report.measurements:
        if one.conversation in told:
            groups.setdefault((one.conversation if apart else "", one.model, one.window, one.policy), []).append(one)
    return [_row(group, measured, told) for group, measured in groups.items()]


def _row(group: tuple[str, str, int, Policy], measured: Sequence[Measurement], told: Mapping[str, Told]) -> Row:
    pairs = [pair for one in measured for pair in _asked(one, told[one.conversation])]
    facts = [outcome for question, outcome in pairs if question.kind != "asked"]
    asked = [outcome for question, outcome in pairs if question.kind == "asked"]
    costs = [one.cost_micros for one in measured]
    conversation, model, window, policy = group
    return Row(
        conversation=conversation,
        model=model,
        window=window,
        policy=policy,
        facts=_share(outcome.is_present for outcome in facts),
        outdated=_share(outcome.is_outdated for question, outcome in pairs if question.kind == "changed"),
        answers=_share(outcome.is_present for outcome in asked),
        facts_told=_told(facts),
        evidence_told=_told(asked),
        answered=_share(outcome.is_answered for _, outcome in pairs),
        prompt_tokens=round(fmean(outcome.prompt_tokens for _, outcome in pairs)) if pairs else 0,
        calls=sum(one.calls for one in measured),
        cost_micros=None if None in costs else sum(cost or 0 for cost in costs),
        fits=all(one.fits for one in measured),
    )


def _asked(one: Measurement, told: Told) -> Iterator[tuple[Question, Outcome]]:
    for outcome in one.outcomes:
        if 0 <= outcome.question < len(told.questions):
            yield told.questions[outcome.question], outcome


def _told(outcomes: Iterable[Outcome]) -> tuple[float, ...]:
    found = [outcome.recalled for outcome in outcomes if len(outcome.recalled) == len(DEPTHS)]
    return tuple(map(fmean, zip(*found, strict=True)))


def _share(held: Iterable[bool | None]) -> float | None:
    """Return the share of true values, without counting those that are None."""
    values = [one for one in held if one is not None]
    return fmean(values) if values else None


def present_by_age(report: Report, model: str, window: int, policy: Policy, parts: int) -> list[float | None]:
    """Return the share of planted facts present, for each of so many parts of the conversations, the oldest first."""
    told = {one.name: one for one in report.conversations}
    held: list[list[bool | None]] = [[] for _ in range(parts)]
    for one in report.measurements:
        if (one.model, one.window, one.policy) == (model, window, policy) and one.conversation in told:
            for question, outcome in _asked(one, told[one.conversation]):
                if question.kind != "asked":
                    held[min(parts - 1, max(0, int(question.place * parts)))].append(outcome.is_present)
    return [_share(part) for part in held]


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


# What an evaluation of memory asks and finds: frozen values, which a report keeps as JSON.


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
