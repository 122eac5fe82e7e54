"""LLMMap: one question to a model for each item, whose answer is judged and asked for again with what was wrong with it.

Every question is a row before it is asked, and draws on the limits of the session and of the run.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.utils import timezone

from agents_app import store
from agents_app.maps.executor import FinishedItem, PreparedItem, StartedItem, lines_of_items, rejected_item
from agents_app.queries import attempts_of_item, call_ids_in_flight, load_attempts, load_item, load_run
from files_app.queries import load_file_reference, read_of_session
from mnesis_core.context.entries import read_manifest
from mnesis_core.errors import BudgetExhausted, MnesisError, ModelCallAbandoned, ModelRateLimited, TurnCancelled
from mnesis_core.llm.interface import Outcome, Reply, Request, Usage, cost_micros, spec_in_session
from mnesis_core.llm.retrying import Patience
from mnesis_core.maps.prompts import CURRENT, FIRST, judge_reply, map_payload, prompt_version, schema_of
from mnesis_core.maps.throughput import Failure, failure_of_call, is_deadly, pause_before_attempt
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
from mnesis_core.providers.rendering import digest
from mnesis_core.records import CallRecord, MessageEnd, NewCall
from mnesis_core.spending import Allowance, Spent, passed_by
from mnesis_core.turns.options import end_of_reply, usage_record
from sessions_app.conf import get_model, session_config, site_config
from sessions_app.model_calls import RateLimitPause, complete_or_abandon, most_of_call
from sessions_app.record.call_queries import most_of_calls
from sessions_app.record.change import Change
from sessions_app.record.session_queries import load_session
from sessions_app.usage.limits import SpendingLimit, draw, exhausted_at, load_limits

MOST_REFUSALS = 8  # answers "too many requests" to one call, after which its attempt has failed
LIMITS_SECONDS = 1.0  # how long a change of limits may go unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class MapQuestion:
    """What a model is asked about one item: ``tokens`` estimates the prompt, ``most`` is the most the call can take."""

    request: Request
    digest: str
    tokens: int
    most: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAnswer:
    reply: Reply
    times_asked: int
    duration_ms: int


class LlmExecutor:
    """The item executor of a run of LLMMap; see ``ItemExecutor``."""

    waiting = 0

    def __init__(self, run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> None:
        """:raises ModelNotFoundError: the run's model is not there any more."""
        session = load_session(run.session_id)
        alias = run.spec.model or session.model
        self.run = run
        self.model = get_model(alias, user_id=run.owner_id)
        self.spec = self.model.spec
        if alias == session.model:
            self.spec = spec_in_session(self.spec, session_config(session.config))
        self._pause = pause_of(alias)
        self._schema = schema_of(run.spec)
        self._content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
        self._limits: tuple[SpendingLimit, ...] = ()
        self._limits_at = 0.0

    def prepare(self, items: Sequence[ItemRecord]) -> tuple[list[PreparedItem[MapQuestion]], list[FinishedItem]]:
        if not items:
            return [], []
        if time.monotonic() - self._limits_at > LIMITS_SECONDS:
            self._limits, self._limits_at = load_limits(self.run.session_id), time.monotonic()
        attempts = load_attempts(self.run.id, [item.number for item in items if item.attempts > 1])
        prepared, rejected = [], []
        for item, line in lines_of_items(self._content_id, items):
            try:
                question = self._make_question(item, line, attempts.get(item.number, []))
                prepared.append(PreparedItem(item=item, question=question))
            except MnesisError as error:
                rejected.append(rejected_item(item, error.message))
        return prepared, rejected

    def start(self, record: Change, prepared: Sequence[PreparedItem[MapQuestion]]) -> list[StartedItem[MapQuestion]]:
        allowed = list(prepared[: self._draw(record, prepared)])
        if not allowed:
            return []
        calls = {
            one.item.number: NewCall(
                purpose="map",
                model=self.spec.alias,
                provider_model=self.spec.litellm_model,
                parameters={
                    "max_output_tokens": one.question.request.max_output_tokens,
                    "temperature": one.question.request.temperature,
                    **one.question.most.as_parameters(),
                },
                # ``rebuild_map_payload`` makes the question again from this row.
                manifest=[
                    {
                        "kind": "map",
                        "run_id": self.run.id,
                        "item": one.item.number,
                        "attempt": one.item.attempts,
                        "prompt": CURRENT.version,
                    }
                ],
                digest=one.question.digest,
                estimated_tokens=one.question.tokens,
            )
            for one in allowed
        }
        call_ids = store.start_map_calls(record, self.run.id, calls)
        return [StartedItem(prepared=one, call_id=call_ids[one.item.number]) for one in allowed]

    async def ask(self, started: StartedItem[MapQuestion]) -> MapAnswer:
        """Ask, again while the model answers "too many requests"."""
        question = started.prepared.question
        ask = partial(complete_or_abandon, self.model, question.request, prompt_tokens=question.tokens)
        for times in itertools.count(1):
            reply = await self._pause.ask(ask, attempts=times)
            if not isinstance(reply.error, ModelRateLimited) or times > MOST_REFUSALS:
                break
        return MapAnswer(reply=reply, times_asked=times, duration_ms=started.duration_ms)

    def settle(self, started: StartedItem[MapQuestion], answer: MapAnswer) -> Settlement:
        item, reply, end = started.item, answer.reply, end_of_reply(answer.reply, self.spec)
        attempt = AttemptOutcome(
            output=reply.text,
            usage=end.usage,
            duration_ms=answer.duration_ms,
            call_id=started.call_id,
            call_end=end,
            call_attempts=answer.times_asked,
        )
        if reply.error is not None:
            return settle_failure(self.run, item, failure_of_call(reply.error), attempt)
        judged = judge_reply(reply, self._schema)
        if judged.kind is not None:
            return settle_failure(self.run, item, Failure(kind=judged.kind, message=judged.message), attempt)
        return Settlement(item=item.number, number=item.attempts, state=ItemState.COMPLETED, attempt=attempt)

    def settle_cancelled(self, started: StartedItem[MapQuestion]) -> Settlement:
        """Settle an item whose call was cut off: the prompt is counted, no answer is."""
        asked = Usage(input_tokens=started.prepared.question.tokens, output_tokens=0)
        usage = usage_record(asked, cost=cost_micros(self.spec, asked))
        reason = TurnCancelled("The run was cancelled before the model had answered.")
        end = MessageEnd(
            outcome=Outcome.CANCELLED.value, error_code=reason.code, error_message=reason.message, usage=usage
        )
        return Settlement(
            item=started.item.number,
            number=started.item.attempts,
            state=ItemState.CANCELLED,
            attempt=AttemptOutcome(usage=usage, duration_ms=started.duration_ms, call_id=started.call_id, call_end=end),
            error=reason.message,
            excused=True,
        )

    def _make_question(self, item: ItemRecord, line: bytes, attempts: Sequence[AttemptRecord]) -> MapQuestion:
        if is_deadly(item.excused):
            raise ModelCallAbandoned("Every process that tried this item ended before it had a result.")
        payload = map_payload(self.run.spec, read_item(line), attempts)
        tokens = estimate_payload(payload)
        output = max(1, min(self.spec.max_output_tokens, self.spec.context_window - tokens))
        request = Request(
            payload=payload,
            max_output_tokens=output,
            temperature=self.run.spec.temperature,
            seconds=self.run.spec.timeout_seconds,
        )
        most = most_of_call(self.spec, tokens, output)
        return MapQuestion(request=request, digest=digest(payload), tokens=tokens, most=most)

    def _draw(self, record: Change, prepared: Sequence[PreparedItem[MapQuestion]]) -> int:
        """Draw the most that these calls can take on the limits; return how many of them, the first ones, may be made.

        :raises BudgetExhausted: none, and nothing is in flight that could take less than its most.
        """
        count = len(prepared)
        while True:
            most = sum((one.question.most for one in prepared[:count]), Spent())
            try:
                draw(record, self._limits, most)
                if not self.run.spec.limits.is_none:
                    allowance = Allowance(scope="run", limits=self.run.spec.limits, spent=spent_by(self.run.id))
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


def spent_by(run_id: str) -> Spent:
    """Return what the attempts of a run have taken, counting those in flight at their most."""
    counts = load_run(run_id).counts
    done = Spent(tokens=counts.tokens_input + counts.tokens_output, cost_micros=counts.cost_micros)
    return done + most_of_calls(call_ids_in_flight(run_id))


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
    return Settlement(
        item=item.number,
        number=item.attempts,
        state=ItemState.FAILED if pause is None else ItemState.PENDING,
        attempt=attempt,
        error_kind=failure.kind,
        error=failure.message,
        not_before=now + timedelta(seconds=pause) if pause else None,
    )


def rebuild_map_payload(call: CallRecord) -> tuple[dict[str, Any], list[str]]:
    """Return the payload of a question about an item, made again from the run, the item and the earlier attempts.

    ``compaction_app.context`` says what is returned.

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
