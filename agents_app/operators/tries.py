"""Which way the items of a run are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents_app.operators.agentic_map import AgenticTries
from agents_app.operators.llm_map import LlmTries
from agents_app.operators.trying import Trying
from mnesis_core.operators.values import OperatorKind, RunRecord
from sessions_app.rate_limit_pauses import RateLimitPause


def tries_of(run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> Trying[Any, Any]:
    """The way to try the items of a run.

    :param pause_of: the rate-limit pause of a model, by its alias
    :raises ModelNotFoundError: the run's model is not there any more.
    """
    if run.kind is OperatorKind.AGENTIC:
        return AgenticTries(run, pause_of=pause_of)
    return LlmTries(run, pause_of=pause_of)
