"""Which way the items of a run are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents_app.gates import Gate
from agents_app.operators.agentic_map import AgenticTries
from agents_app.operators.llm_map import LlmTries
from agents_app.operators.trying import Trying
from mnesis_core.operators.values import OperatorKind, RunRecord


def tries_of(run: RunRecord, *, gate_of: Callable[[str], Gate]) -> Trying[Any, Any]:
    """The way to try the items of a run.

    :param gate_of: the gate of a model, by its alias
    :raises ModelNotFoundError: the run's model is not there any more.
    """
    if run.kind is OperatorKind.AGENTIC:
        return AgenticTries(run, gate_of=gate_of)
    return LlmTries(run, gate_of=gate_of)
