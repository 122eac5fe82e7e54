"""What an evaluation may cost, before anything is asked: rather too much than too little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit_app.evaluation.job import Job
from mnesis_core.compaction.evaluation.values import Told
from mnesis_core.llm.interface import ModelSpec, Usage, cost_micros
from mnesis_core.spending import Spent, highest_of
from sessions_app.conf import site_config
from sessions_app.database.tables import fetch

READINGS = {"mnesis": 3, "rolling": 2}
"""How often models read the whole conversation: Mnesis for summaries of it, summaries of these, and facts."""
SUMMARY_SHARE = 4
"""A summary has about one token for this many that it stands for."""
ANSWER_TOKENS = 300
_SIZE = (
    "SELECT (SELECT COUNT(*) FROM messages WHERE session_id = %s), COALESCE(SUM(p.token_estimate + COALESCE(p.output_token_estimate, 0)), 0)"
    " FROM message_parts p WHERE p.session_id = %s"
)


def estimate_micros(job: Job, conversations: Sequence[Told]) -> int | None:
    """Return millionths of the currency unit, or None if the price of a model is not known."""
    costs = [cost_micros(spec, usage) for spec, usage in _usages(job, conversations)]
    return None if None in costs else sum(cost or 0 for cost in costs)


def estimate_spent(job: Job, conversations: Sequence[Told]) -> Spent:
    """Return what counts towards a person's limits before the evaluation has ended."""
    tokens = sum(usage.input_tokens + usage.output_tokens for _, usage in _usages(job, conversations))
    return highest_of(tokens, estimate_micros(job, conversations))


def tell_of(session_id: str) -> Told:
    """Return how large a session is, without reading its messages."""
    [(messages, tokens)] = fetch(_SIZE, [session_id, session_id])
    return Told(name=session_id, messages=messages, tokens=tokens, questions=())


def _usages(job: Job, conversations: Sequence[Told]) -> Iterator[tuple[ModelSpec, Usage]]:
    summariser = job.helper(site_config().compaction.model)
    readings = sum(READINGS.get(policy, 0) for policy in job.policies)
    for told in conversations:
        summarised = sum(told.tokens > window // 2 for window in job.windows) * told.tokens * readings
        asked = sum(bool(question.answer) for question in told.questions) * len(job.policies) if job.answers else 0
        prompts = asked * sum(min(window, told.tokens) for window in job.windows)
        for model in job.models:
            summaries = Usage(input_tokens=summarised, output_tokens=summarised // SUMMARY_SHARE)
            yield (summariser or model).spec, summaries
            longest = min(ANSWER_TOKENS, model.spec.max_output_tokens)
            yield model.spec, Usage(input_tokens=prompts, output_tokens=asked * len(job.windows) * longest)
        # Each message is read for its vector, and each question with what was found for it.
        read = Usage(input_tokens=len(job.models) * len(job.windows) * told.tokens, output_tokens=0)
        yield from ((model.spec, read) for model in job.helpers if model is not summariser)
