"""A run in a few lines for a model: its handle, counts and first failures, however many items it has."""

from __future__ import annotations

from agents_app.queries import first_failures
from mnesis_core.operators.values import ItemRecord, OperatorKind, RunRecord, RunState
from mnesis_core.text import printable
from mnesis_core.visible import excerpt

FAILURES = 3
LONGEST_ERROR = 300
KINDS = {OperatorKind.LLM: "llm_map", OperatorKind.AGENTIC: "agentic_map"}
_MORE = {
    RunState.PENDING: "It goes on by itself; lcm_describe of its id says how far it is.",
    RunState.RUNNING: "It goes on by itself; lcm_describe of its id says how far it is.",
    RunState.PAUSED: "A person, or a limit of what may be spent, has paused it.",
}


def told(run: RunRecord) -> str:
    """What a run came to, or how far it is."""
    return "\n".join([_head(run), _counts(run), *_output(run), *_failures(run), *_rest(run)])


def _head(run: RunRecord) -> str:
    why = f" ({run.reason})" if run.reason else ""
    return f"{KINDS[run.kind]} {run.id}: {run.state.value}{why}"


def _counts(run: RunRecord) -> str:
    counts = run.counts
    if counts.items is None:
        return "its input is being read"
    return (
        f"items: {counts.items}, completed {counts.completed}, failed {counts.failed}, cancelled {counts.cancelled}, "
        f"left {counts.left}; {counts.tries} tries, {counts.tokens_input} tokens in, {counts.tokens_output} out"
    )


def _output(run: RunRecord) -> list[str]:
    if not run.output_file_id:
        return []
    return [
        f"results: {run.output_file_id}, JSON Lines in the order of the input: "
        '{"item": number, "input": …, "output": …}, or "error" in place of "output"'
    ]


def _failures(run: RunRecord) -> list[str]:
    if not run.counts.failed:
        return []
    failed = first_failures(run.id, limit=FAILURES)
    return ["first failures:", *(f"- {_failure(item)}" for item in failed)]


def _failure(item: ItemRecord) -> str:
    return f"item {item.number}, {item.error_kind or 'error'}: {excerpt(printable(item.error), LONGEST_ERROR)}"


def _rest(run: RunRecord) -> list[str]:
    if run.error_code:
        return [f"{run.error_code}: {excerpt(printable(run.error_message or ''), LONGEST_ERROR)}"]
    return [_MORE[run.state]] if run.state in _MORE else []
