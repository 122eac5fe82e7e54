"""How a call is repeated: each attempt within the one deadline, each retry recorded before its pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mnesis_core.errors import ModelTimeout, ModelUnavailable
from mnesis_core.llm.interface import ModelSpec, Outcome, Reply, Request, Usage
from mnesis_core.llm.retrying import Patience, Retry
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.spending import Spent
from sessions_app.llm.calls import ModelCaller, PlannedCall, RunningCall
from sessions_app.llm.limits import SpendingLimit
from sessions_app.record.change import Change

SPEC = ModelSpec(alias="test", litellm_model="test/test", context_window=1_000, max_output_tokens=10)


class Failing(ModelCaller[Reply]):
    """Asks a model that always gives the same error, and notes what each attempt was given."""

    def __init__(self, error: ModelTimeout | ModelUnavailable, *, patience: Patience, seconds: float) -> None:
        self.error, self.patience, self.longest = error, patience, seconds
        self.left: list[float] = []
        self.retries: list[Retry] = []

    async def plan(self) -> PlannedCall:
        return PlannedCall(
            model=ScriptedModel(SPEC, []),
            spec=SPEC,
            request=Request(payload={}, max_output_tokens=10),
            purpose="turn",
            prompt_tokens=1,
            estimated_tokens=1,
            parameters={},
            manifest=[],
            digest="",
        )

    async def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if call == self._start:
            return RunningCall(id="call_1", planned=args[0], message_id=None, time_limit=None)
        self.retries.append(args[1])
        return None

    def held(self) -> AbstractContextManager[Change]:
        raise AssertionError("this caller writes nothing")

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        raise AssertionError("this caller draws on no limit")

    def seconds(self, call: RunningCall) -> float:
        return self.longest

    async def receive(self, call: RunningCall, request: Request) -> Reply:
        self.left.append(request.seconds or 0.0)
        await asyncio.sleep(0.03)
        return Reply(text="", usage=Usage(input_tokens=0, output_tokens=0), outcome=Outcome.FAILED, error=self.error)

    async def finish(self, call: RunningCall, reply: Reply) -> Reply:
        assert call.attempts == len(self.left)
        return reply

    async def use_next_model(self) -> bool:
        return False


async def test_each_attempt_is_told_what_is_left_of_the_one_deadline() -> None:
    patience = Patience(max_retries=2, base_seconds=0.01, longest_seconds=1.0)
    caller = Failing(ModelUnavailable(), patience=patience, seconds=5.0)
    last = await caller.ask_model()
    assert isinstance(last.error, ModelUnavailable)
    assert [retry.attempt for retry in caller.retries] == [1, 2]
    assert caller.left[0] <= 5.0
    assert caller.left[0] - caller.left[1] >= 0.04
    assert caller.left[1] - caller.left[2] >= 0.05


async def test_after_the_deadline_nothing_is_asked_again() -> None:
    patience = Patience(max_retries=5, base_seconds=0.0, longest_seconds=1.0)
    caller = Failing(ModelTimeout(), patience=patience, seconds=0.02)
    await caller.ask_model()
    assert (len(caller.left), caller.retries) == (1, [])
