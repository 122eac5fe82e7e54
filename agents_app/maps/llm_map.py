"""LLMMap: one question to a model for each item, whose answer is judged and asked for again with what was wrong with it.

Every question is a row before it is asked, and draws on the limits of the session and of the run. The call is planned and
made with ``sessions_app.llm.calls`` as every other is; only the writing is separate, because the calls of many items
are recorded in one change and ended in another, and an attempt that is repeated is a call of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_noop

from agents_app import store
from agents_app.maps.executor import FinishedItem, ItemExecutor, PreparedItem, StartedItem, settlement
from agents_app.queries import attempts_of_item, call_ids_in_flight, load_item, load_run
from files_app.queries import load_file_reference, read_of_session
from mnesis_core.context.entries import read_manifest
from mnesis_core.errors import BudgetExhausted, TurnCancelled
from mnesis_core.llm.interface import Outcome, Reply, Request, Usage, cost_micros, spec_in_session
from mnesis_core.llm.parameters import Parameters, merge, read_stored
from mnesis_core.llm.retrying import Patience
from mnesis_core.maps.prompts import CURRENT, FIRST, judge_reply, map_payload, prompt_version
from mnesis_core.maps.throughput import Failure, failure_of_call, pause_before_attempt
from mnesis_core.maps.values import (
    AttemptOutcome,
    AttemptRecord,
    ItemRecord,
    ItemState,
    RunRecord,
    Settlement,
    read_item,
)
from mnesis_core.providers.answer import estimate_payload
from mnesis_core.providers.litellm_parameters import settle_parameters
from mnesis_core.providers.rendering import digest
from mnesis_core.records import CallRecord, MessageEnd, NewCall
from mnesis_core.spending import Allowance, Spent, passed_by
from mnesis_core.turns.options import end_of_reply, usage_record
from sessions_app.conf import get_model, session_config, site_config
from sessions_app.llm.calls import PlannedCall, RateLimitPause, complete_or_abandon
from sessions_app.llm.limits import SpendingLimit, draw, exhausted_at, load_limits
from sessions_app.record.change import Change
from sessions_app.record.turn_queries import most_of_calls

MOST_ATTEMPTS = 9  # of one call while the model answers "too many requests"; then its attempt has failed
LIMITS_SECONDS = 1.0  # how long a change of limits may go unseen


class LlmExecutor(ItemExecutor[PlannedCall, tuple[Reply, int, int]]):
    """An answer is the reply, the number of times that the model was asked, and the milliseconds that it took."""

    def __init__(self, run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> None:
        super().__init__(run, pause_of=pause_of)
        self.model = get_model(self.alias, user_id=run.owner_id)
        self.spec = self.model.spec
        if self.alias == self.session.model:
            self.spec = spec_in_session(self.spec, session_config(self.session.config))
        own, session = Parameters(temperature=run.spec.temperature), session_config(self.session.config)
        asked = merge(own, read_stored(session.parameters), self.spec.parameters)
        # The run says itself how its answers are to be.
        self._parameters = replace(
            asked, tool_choice=None, parallel_tool_calls=None, response_format=None, provider_tools=None
        )
        self._limits: tuple[SpendingLimit, ...] = ()
        self._limits_at = 0.0

    def prepare(self, items: Sequence[ItemRecord]) -> tuple[list[PreparedItem[PlannedCall]], list[FinishedItem]]:
        if items and time.monotonic() - self._limits_at > LIMITS_SECONDS:
            self._limits, self._limits_at = load_limits(self.run.session_id), time.monotonic()
        return super().prepare(items)

    def make_question(self, item: ItemRecord, value: Any, attempts: Sequence[AttemptRecord]) -> PlannedCall:
        asked = settle_parameters(self.spec, self._parameters, has_tools=False)
        payload = map_payload(self.run.spec, value, attempts) | asked.sent
        tokens = estimate_payload(payload)
        request = Request(
            payload=payload,
            max_output_tokens=max(1, min(self.spec.max_output_tokens, self.spec.context_window - tokens)),
            seconds=self.run.spec.timeout_seconds,
        )
        # ``rebuild_map_payload`` makes the question again from this row.
        row = {"kind": "map", "run_id": self.run.id, "item": item.number, "attempt": item.attempts}
        return PlannedCall(
            model=self.model,
            spec=self.spec,
            request=request,
            purpose="map",
            prompt_tokens=tokens,
            estimated_tokens=tokens,
            parameters={"not_taken": asked.not_taken} if asked.not_taken else {},
            manifest=[row | {"prompt": CURRENT.version}],
            digest=digest(payload),
        )

    def start(self, record: Change, prepared: Sequence[PreparedItem[PlannedCall]]) -> list[StartedItem[PlannedCall]]:
        allowed = prepared[: self._draw(record, [one.question.highest for one in prepared])]
        if not allowed:
            return []
        calls = {one.item.number: NewCall(**one.question.columns()) for one in allowed}
        call_ids = store.start_map_calls(record, self.run.id, calls)
        return [StartedItem(item=one.item, question=one.question, call_id=call_ids[one.item.number]) for one in allowed]

    def _draw(self, record: Change, highest: Sequence[Spent]) -> int:
        """Draw the most that these calls can take on the limits; return how many of them, the first ones, may be made.

        :raises BudgetExhausted: none, and nothing is in flight that could take less than its most.
        """
        count = len(highest)
        while True:
            most = sum(highest[:count], Spent())
            try:
                draw(record, self._limits, most)
                if not self.run.spec.limits.is_none:
                    counts = load_run(self.run.id).counts
                    spent = Spent(tokens=counts.tokens_input + counts.tokens_output, cost_micros=counts.cost_micros)
                    spent += most_of_calls(call_ids_in_flight(self.run.id))
                    allowance = Allowance(scope="run", limits=self.run.spec.limits, spent=spent)
                    if (line := passed_by(most, [allowance])) is not None:
                        raise exhausted_at(line, needed=getattr(most, line.measure))
            except BudgetExhausted:
                if count > 1:
                    count //= 2
                    continue
                if call_ids_in_flight(self.run.id):
                    return 0
                raise
            return count

    async def ask(self, started: StartedItem[PlannedCall]) -> tuple[Reply, int, int]:
        planned = started.question
        ask = partial(complete_or_abandon, self.model, planned.request, prompt_tokens=planned.prompt_tokens)
        reply, times = await self.pause.ask(ask, most_attempts=MOST_ATTEMPTS)
        return reply, times, started.duration_ms

    def settle(self, started: StartedItem[PlannedCall], answer: tuple[Reply, int, int]) -> Settlement:
        item, (reply, times, duration_ms) = started.item, answer
        end = end_of_reply(reply, self.spec, began=started.started)
        attempt = AttemptOutcome(
            output=reply.text,
            usage=end.usage,
            duration_ms=duration_ms,
            call_id=started.call_id,
            call_end=end,
            call_attempts=times,
        )
        if reply.error is not None:
            return settle_failure(self.run, item, failure_of_call(reply.error), attempt)
        judged = judge_reply(reply, self.schema)
        if judged.kind is not None:
            return settle_failure(self.run, item, Failure(kind=judged.kind, message=judged.message), attempt)
        return settlement(item, ItemState.COMPLETED, attempt=attempt)

    def settle_cancelled(self, started: StartedItem[PlannedCall]) -> Settlement:
        """Settle an item whose call was cut off: the prompt is counted, no answer is."""
        asked = Usage(input_tokens=started.question.prompt_tokens, output_tokens=0)
        usage = usage_record(asked, cost=cost_micros(self.spec, asked))
        reason = TurnCancelled(gettext_noop("The run was cancelled before the model had answered."))
        end = MessageEnd(
            outcome=Outcome.CANCELLED.value, error_code=reason.code, error_message=reason.message, usage=usage
        )
        attempt = AttemptOutcome(usage=usage, duration_ms=started.duration_ms, call_id=started.call_id, call_end=end)
        return settlement(started.item, ItemState.CANCELLED, attempt=attempt, error=reason.message, excused=True)


def settle_failure(run: RunRecord, item: ItemRecord, failure: Failure, attempt: AttemptOutcome | None) -> Settlement:
    """Settle an attempt that gave no result: the item waits for the next attempt, or has failed."""
    config, now = site_config().operators, timezone.now()
    patience = Patience(
        max_retries=run.spec.max_retries,
        base_seconds=config.retry_base_seconds,
        longest_seconds=config.retry_longest_seconds,
    )
    chance = random.random()  # noqa: S311 - a pause is no secret
    pause = pause_before_attempt(failure, patience, failures=item.counted_attempts, now=now, chance=chance)
    return settlement(
        item,
        ItemState.FAILED if pause is None else ItemState.PENDING,
        attempt=attempt,
        error_kind=failure.kind,
        error=failure.message,
        not_before=now + timedelta(seconds=pause) if pause else None,
    )


def rebuild_map_payload(call: CallRecord) -> tuple[dict[str, Any], list[str]]:
    """Return the payload of a question about an item, made again from the run, the item and the earlier attempts.

    ``compaction_app.context.state`` says what is returned.

    :raises ValueError: the manifest names no item, or an unknown version of the prompt.
    :raises NotFound: it names something that is not there, or the input's content is gone.
    """
    rows = [row for row in read_manifest(call.manifest) if row["kind"] == "map"]
    if len(rows) != 1:
        raise ValueError("the manifest names no item")
    run = load_run(rows[0]["run_id"], session_id=call.session_id)
    item = load_item(run.id, rows[0]["item"])
    attempts = [one for one in attempts_of_item(run.id, item.number) if one.number < rows[0]["attempt"]]
    file = load_file_reference(run.input_file_id, session_id=call.session_id)
    line = read_of_session(call.session_id, file.content_id, item.offset, item.length)
    prompts = prompt_version(rows[0].get("prompt", FIRST.version))
    return map_payload(run.spec, read_item(line), attempts, prompts=prompts), []
