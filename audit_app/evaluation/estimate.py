"""What an evaluation may cost, before anything is asked: rather too much than too little."""

from __future__ import annotations

from collections.abc import Sequence

from audit_app.evaluation.job import AskedModel, Job
from mnesis_core.compaction.evaluation.values import Told
from mnesis_core.llm.interface import Usage, cost_micros

READINGS = {"mnesis": 3, "rolling": 2}
"""How often models read the whole conversation: Mnesis for summaries of it, summaries of these, and facts."""
SUMMARY_SHARE = 4
"""A summary has about one token for this many that it stands for."""
ANSWER_TOKENS = 300


def estimate_micros(job: Job, conversations: Sequence[Told]) -> int | None:
    """Return millionths of the currency unit, or None if the price of a model is not known."""
    costs = [cost_micros(model.spec, _usage(job, model, told)) for model in job.models for told in conversations]
    return None if None in costs else sum(cost or 0 for cost in costs)


def _usage(job: Job, model: AskedModel, told: Told) -> Usage:
    read = written = 0
    for window in job.windows:
        for policy in job.policies:
            tokens = READINGS.get(policy, 0) * told.tokens if told.tokens > window // 2 else 0
            read, written = read + tokens, written + tokens // SUMMARY_SHARE
            if job.answers:
                answers = [question for question in told.questions if question.answer]
                read += len(answers) * min(window, told.tokens)
                written += len(answers) * min(ANSWER_TOKENS, model.spec.max_output_tokens)
    return Usage(input_tokens=read, output_tokens=written)
