"""The requests of an operator's items, whether a reply or a sub-agent's turn is a result, and what a turn may spend.

The same values give the same bytes, since past requests are rebuilt from them. So the engine's own words are versioned:
to change a word, add a version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mnesis_core.errors import (
    BudgetExhausted,
    DoomLoop,
    InvalidRequest,
    ModelError,
    ModelTimeout,
    StepLimitReached,
    TurnInterrupted,
    error_of,
)
from mnesis_core.llm.interface import Outcome, Reply
from mnesis_core.maps.schema import OutputSchema, compile_schema
from mnesis_core.maps.template import compile_template
from mnesis_core.maps.throughput import Failure, failure_of_call
from mnesis_core.maps.values import AttemptRecord, ErrorKind, ItemRecord, OperatorSpec, RunRecord
from mnesis_core.records import TurnRecord, TurnState, UsageRecord
from mnesis_core.spending import Allowance, LimitUse, Scope, Spent, TurnLimits, lines_of
from mnesis_core.text import read_json
from mnesis_core.turns.options import read_options

MARKER = "MNESIS-MAP"  # Begins every system text, so that a model or a gateway can recognise the request.
# Characters of a refused answer that are quoted to the model, and of a reply that are read as JSON.
LONGEST_QUOTED_REPLY, LONGEST_REPLY = 20_000, 4_000_000
_FENCED = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_CUT = "length"
_REFUSED = (ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR)
_NOT_NATIVE = (ErrorKind.LLM_ERROR, ErrorKind.VALIDATION)
SYSTEM_PROMPT = """You are a sub-agent: one of many that work, each for itself, on the items of one list. The first message states
your item and what is to be done. Nobody can answer questions, and you see nothing of the others' work. Work until you are done, then
answer: a program reads your last message, and nothing else of what you say."""
GO_ON = "The process that ran your last turn died before it ended. Go on where you were, and answer as you were asked."
TIME_IS_UP = "There was no answer within {seconds:g} seconds, so the turn was ended."
NEEDS_SOMEBODY = "The turn waited for somebody, and nobody is there."
INTERRUPTED = "Somebody interrupted the sub-agent's turn."
_WITHOUT_ANSWER = (StepLimitReached.code, DoomLoop.code)
_SHARED = {"tokens", "cost_micros"}  # A run's attempts share these limits; the others hold for each turn.


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersion:
    version: str
    alone: str  # In the system text: what an answer is for.
    with_schema: str  # Precedes the schema.
    again: str  # Follows what is wrong with an answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    kind: ErrorKind | None = None
    message: str = ""
    value: Any = None


FIRST = PromptVersion(
    version="map.1",
    alone=f"{MARKER}\nThis is one of many items that are worked on one by one. A program reads your answer, nobody else does: "
    "no greeting, no question back, no remark.",
    with_schema="Answer with one JSON value that fits this JSON Schema, and with nothing before or after it:",
    again="Write the whole answer again, corrected.",
)
CURRENT = FIRST
KNOWN = {one.version: one for one in (FIRST,)}


def prompt_version(version: str) -> PromptVersion:
    """:raises ValueError: the version is unknown"""
    if version not in KNOWN:
        raise ValueError(f"the prompt {version} of then is not known here")
    return KNOWN[version]


def map_payload(
    spec: OperatorSpec, value: Any, attempts: Sequence[AttemptRecord] = (), *, prompts: PromptVersion = CURRENT
) -> dict[str, Any]:
    """Return the provider's request for one attempt at an item of an LLMMap.

    :param attempts: the earlier ones, in their order
    :param prompts: the version to use; an earlier one to rebuild a past request
    :raises InvalidTemplate: the template does not fit this item
    """
    schema = schema_of(spec)
    asked = f"{prompts.with_schema}\n{schema.text}" if schema else ""
    messages = [
        {"role": "system", "content": "\n\n".join(part for part in (spec.system_prompt, prompts.alone, asked) if part)},
        {"role": "user", "content": compile_template(spec.template).render(value)},
    ]
    refused = next((one for one in reversed(attempts) if one.error_kind in _REFUSED), None)
    if refused is not None:
        if refused.output.strip():
            half, text = LONGEST_QUOTED_REPLY // 2, refused.output
            quoted = text if len(text) <= LONGEST_QUOTED_REPLY else f"{text[:half]}\n[…]\n{text[-half:]}"
            messages.append({"role": "assistant", "content": quoted})
        messages.append({"role": "user", "content": correction(refused.error, prompts)})
    # A provider may refuse the schema itself, or give no usable answer with it: the next attempt then goes without.
    is_native = spec.native_schema and all(one.error_kind not in _NOT_NATIVE for one in attempts)
    given = schema.response_format if schema and is_native else None
    return {"messages": messages, "response_format": given} if given else {"messages": messages}


def item_prompt(spec: OperatorSpec, value: Any) -> str:
    """:raises InvalidTemplate: the template does not fit this item"""
    prompt, schema = compile_template(spec.template).render(value), schema_of(spec)
    words = CURRENT.with_schema
    asked = f"\n\nWhen you are done: {words[0].lower()}{words[1:]}\n{schema.text}" if schema else ""
    return f"{prompt}{asked}"


def correction(problem: str, prompts: PromptVersion = CURRENT) -> str:
    return f"{problem} {prompts.again}"


def schema_of(spec: OperatorSpec) -> OutputSchema | None:
    """:raises InvalidSchema: it cannot be used"""
    return None if spec.schema is None else compile_schema(spec.schema)


def judge_reply(reply: Reply, schema: OutputSchema | None) -> Judged:
    """Judge a model's reply. One that is not proven complete is no result, whatever its text."""
    if reply.outcome is Outcome.COMPLETE:
        return judge(reply.text, schema, finish_reason=reply.finish_reason)
    kind = ErrorKind.TIMEOUT if isinstance(reply.error, ModelTimeout) else ErrorKind.LLM_ERROR
    return Judged(kind=kind, message=reply.error.message if reply.error else "The model gave no whole answer.")


def judge(text: str, schema: OutputSchema | None, *, finish_reason: str = "") -> Judged:
    """Judge a text: JSON, alone or as the only fenced block; without a schema, any text."""
    if not text.strip():
        return _no_json("The answer is empty.", finish_reason)
    if schema is None:
        return Judged(value=text) if finish_reason != _CUT else _no_json("The answer is not whole.", finish_reason)
    if len(text) > LONGEST_REPLY:
        return _no_json(f"The answer is longer than {LONGEST_REPLY:,} characters.", finish_reason)
    try:
        value = read_json(json_in(text))
    except InvalidRequest as error:
        return _no_json(error.message.replace("The body", "The answer", 1), finish_reason)
    if problem := schema.problem(value):
        return Judged(kind=ErrorKind.SCHEMA_ERROR, message=f"The answer does not fit the schema: {problem}.")
    return Judged(value=value)


def json_in(text: str) -> str:
    """Return the JSON of a reply: its only fenced block, or all of it."""
    stripped = text.strip().removeprefix("\ufeff")
    if stripped[:1] in ("{", "[", '"'):
        return stripped
    blocks: list[str] = _FENCED.findall(stripped)
    return blocks[0].strip() if len(blocks) == 1 else stripped


def result_of(text: str, schema: OutputSchema | None) -> Any:
    return text if schema is None else read_json(json_in(text))


def _no_json(problem: str, finish_reason: str) -> Judged:
    cut = " It was cut off at the most tokens that an answer may have: write less." if finish_reason == _CUT else ""
    return Judged(kind=ErrorKind.VALIDATION, message=problem + cut)


def next_message(attempts: Sequence[AttemptRecord]) -> str:
    last = attempts[-1] if attempts else None
    return correction(last.error) if last is not None and last.error_kind in _REFUSED else GO_ON


def failure_of_turn(turn: TurnRecord, text: str, schema: OutputSchema | None) -> Failure | None:
    """Return why a sub-agent's turn gave no result; None if its last message is one."""
    if turn.state == TurnState.COMPLETED:
        judged = judge(text, schema)
        return None if judged.kind is None else Failure(kind=judged.kind, message=judged.message)
    if turn.state in (TurnState.RUNNING, TurnState.SUSPENDED):
        return Failure(kind=ErrorKind.TOOL_ERROR, message=NEEDS_SOMEBODY, may_pass=False)
    if turn.state == TurnState.CANCELLED:
        return Failure(kind=ErrorKind.TOOL_ERROR, message=INTERRUPTED)
    message = turn.error_message or "The turn ended without an answer."
    if turn.error_code == BudgetExhausted.code:
        return Failure(kind=ErrorKind.BUDGET, message=message)
    if turn.error_code in _WITHOUT_ANSWER:
        return Failure(kind=ErrorKind.TOOL_ERROR, message=message)
    error = error_of(turn.error_code or "", message)
    if isinstance(error, ModelError):
        return failure_of_call(error)
    return Failure(kind=ErrorKind.LLM_ERROR, message=message)


def limits_of_turn(run: RunRecord, *, slots: int, given: Sequence[TurnLimits | None] = ()) -> TurnLimits | None:
    """Return what a sub-agent's turn may spend of what is left of its run's limits; None if the run has none.

    :param slots: turns that share what is left
    :param given: the limits of those of them that are running
    """
    if run.spec.limits.is_none:
        return None
    left = {line.measure: int(line.left) for line in lines_of([allowance_of(run)]) if line.measure in _SHARED}
    for measure in left:
        left[measure] -= sum(getattr(one, measure) or 0 for one in given)
        left[measure] = max(0, left[measure]) // max(1, slots - len(given))
    return replace(run.spec.limits, **left)


def is_nothing(limits: TurnLimits | None) -> bool:
    return limits is not None and any(getattr(limits, measure) == 0 for measure in _SHARED)


def is_of_process(turn: TurnRecord | None) -> bool:
    """Return whether a turn ended because its process died, which says nothing about its item."""
    return turn is not None and (turn.state, turn.error_code) == (TurnState.INTERRUPTED, TurnInterrupted.code)


def is_of_turn(exhausted: BudgetExhausted, turn: TurnRecord, run: RunRecord) -> bool:
    """Return whether the exhausted limit is the turn's own, and not its share of the run's limit."""
    if exhausted.details.get("scope") != Scope.TURN:
        return False
    given = read_options(turn.options).limits or TurnLimits()
    measure = str(exhausted.details.get("measure"))
    return (
        run.spec.limits.is_none or measure not in _SHARED or getattr(given, measure) != exhausted.details.get("limit")
    )


def used_up(run: RunRecord) -> LimitUse | None:
    """Return the run's limit of which nothing is left; None if something is left of all."""
    return next((line for line in lines_of([allowance_of(run)]) if line.measure in _SHARED and not line.left), None)


def usage_of_attempt(item: ItemRecord, own: UsageRecord, *, taken: UsageRecord) -> UsageRecord:
    """Return what a sub-agent has used since its item was settled last, with turns that died and its own sub-agents.

    :param own: the usage of the judged turn
    :param taken: the usage of the sub-agent's session and all its descendants
    """

    def since(before: int, by_turn: int | None, in_all: int | None) -> int:
        # Its session may be a second one: the first was deleted, and what was taken there is no part of this one.
        return max(by_turn or 0, (in_all or 0) - before)

    return replace(
        own,
        tokens_input=since(item.tokens_input, own.tokens_input, taken.tokens_input),
        tokens_output=since(item.tokens_output, own.tokens_output, taken.tokens_output),
        cost_micros=since(item.cost_micros, own.cost_micros, taken.cost_micros),
    )


def allowance_of(run: RunRecord) -> Allowance:
    counts = run.counts
    spent = Spent(tokens=counts.tokens_input + counts.tokens_output, cost_micros=counts.cost_micros)
    return Allowance(scope="run", limits=run.spec.limits, spent=spent)
