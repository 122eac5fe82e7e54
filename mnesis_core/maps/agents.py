"""Sub-agents that work at items: their messages, their spending limits, and the result of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mnesis_core.errors import BudgetExhausted, DoomLoop, ModelError, StepLimitReached, TurnInterrupted, error_of
from mnesis_core.maps.concurrency import Failure, failure_of_call
from mnesis_core.maps.prompts import correction, judge
from mnesis_core.maps.schema import OutputSchema
from mnesis_core.maps.values import AttemptRecord, ErrorKind, ItemRecord, RunRecord
from mnesis_core.records import TurnRecord, TurnState, UsageRecord
from mnesis_core.spending import Allowance, LimitUse, Scope, Spent, TurnLimits, lines_of
from mnesis_core.turns.options import read_options

SYSTEM_PROMPT = """You are a sub-agent: one of many that work, each for itself, on the items of one list. The first message states
your item and what is to be done. Nobody can answer questions, and you see nothing of the others' work. Work until you are done, then
answer: a program reads your last message, and nothing else of what you say."""
GO_ON = "The process that ran your last turn died before it ended. Go on where you were, and answer as you were asked."
TIME_IS_UP = "There was no answer within {seconds:g} seconds, so the turn was ended."
NEEDS_SOMEBODY = "The turn waited for somebody, and nobody is there."
INTERRUPTED = "Somebody interrupted the sub-agent's turn."
_REFUSED = (ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR)
_WITHOUT_ANSWER = (StepLimitReached.code, DoomLoop.code)


def next_message(attempts: Sequence[AttemptRecord]) -> str:
    """Return the next message for a sub-agent that has worked at its item before.

    :param attempts: those at the item, in their order
    """
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
    return (
        failure_of_call(error) if isinstance(error, ModelError) else Failure(kind=ErrorKind.LLM_ERROR, message=message)
    )


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
    """Return whether a turn with these limits could make no call."""
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


# A run's attempts share these limits; the others hold for each turn.
_SHARED = {"tokens", "cost_micros"}
