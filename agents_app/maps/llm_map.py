"""Story: what a model was sent for one item, made again from the run, the item and the tries before (decision 5)."""

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

from agents_app import map_store
from agents_app.map_queries import call_ids_in_flight, load_item, load_run, load_tries, tries_of_item
from agents_app.maps.executor import Begun, Ended, Ready, hopeless_item
from agents_app.maps.items import lines_of_items
from files_app.queries import load_file_reference, read_of_session
from mnesis_core.context.manifest import read_manifest
from mnesis_core.errors import BudgetExhausted, MnesisError, ModelCallAbandoned, ModelRateLimited, TurnCancelled
from mnesis_core.llm.interface import Outcome, Reply, Request, Usage, cost_micros
from mnesis_core.llm.limits import spec_in_session
from mnesis_core.llm.retrying import Patience
from mnesis_core.maps.concurrency import Failure, failure_of_call, is_deadly, pause_before_attempt
from mnesis_core.maps.lines import read_item
from mnesis_core.maps.prompts import CURRENT, FIRST, judge_reply, map_payload, prompt_version, schema_of
from mnesis_core.maps.values import (
    AttemptOutcome,
    AttemptRecord,
    ErrorKind,
    ItemRecord,
    ItemState,
    RunRecord,
    Settlement,
)
from mnesis_core.providers.answer import estimate_payload
from mnesis_core.providers.rendering import digest
from mnesis_core.records import CallRecord, MessageEnd, NewCall
from mnesis_core.spending import Allowance, Spent, passed_by
from mnesis_core.turns.recording import end_of_reply, usage_record
from sessions_app.conf import get_model, session_config, site_config
from sessions_app.model_calls import complete_or_abandon, most_of_call
from sessions_app.rate_limit_pauses import RateLimitPause
from sessions_app.record.call_queries import most_of_calls
from sessions_app.record.change import Change
from sessions_app.record.session_queries import load_session
from sessions_app.usage.limits import SpendingLimit, draw, exhausted_at, load_limits


def rebuild_map_payload(call: CallRecord) -> tuple[dict[str, Any], list[str]]:
    """The payload of a question about an item; see ``compaction_app.rebuild``.

    :raises ValueError: the manifest names no item, or a prompt of which nobody knows the words.
    :raises NotFound: it names something that is not there, or the input's content is gone.
    """
    rows = [row for row in read_manifest(call.manifest) if row["kind"] == "map"]
    if len(rows) != 1:
        raise ValueError("the manifest names no item")
    run = load_run(rows[0]["run_id"], session_id=call.session_id)
    item = load_item(run.id, rows[0]["item"])
    tries = [one for one in tries_of_item(run.id, item.number) if one.number < rows[0]["attempt"]]
    file = load_file_reference(run.input_file_id, session_id=call.session_id)
    line = read_of_session(call.session_id, file.content_id, item.offset, item.length)
    wording = prompt_version(rows[0].get("prompt", FIRST.version))
    return map_payload(run.spec, read_item(line), tries, prompts=wording), []


# LLMMap: one question to a model for each item, its answer judged, and asked again with what was wrong with it.
#
# Every question is a row before it is asked, drawn on whatever limits there are; what the run itself may spend is one more.

MOST_REFUSALS = 8
"""Answers "too many requests" to one call, after which its try has failed."""
LIMITS_SECONDS = 1.0
"""How long a change of limits may go unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is asked about one item."""

    request: Request
    digest: str
    tokens: int
    """Of the prompt, estimated."""
    most: Spent
    """The most that the call can take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a question."""

    reply: Reply
    asked: int
    """How often the model was asked."""
    duration_ms: int


class LlmTries:
    """See ``Trying``: the questions of one run."""

    resting = 0

    def __init__(self, run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> None:
        """:raises ModelNotFoundError: the run's model is not there any more."""
        session = load_session(run.session_id)
        config = session_config(session.config)
        alias = run.spec.model or session.model
        self.run = run
        self.model = get_model(alias, user_id=run.owner_id)
        self.spec = spec_in_session(self.model.spec, config) if alias == session.model else self.model.spec
        self._config = site_config().operators
        self._pause = pause_of(alias)
        self._schema = schema_of(run.spec)
        self._content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
        self._limits: tuple[SpendingLimit, ...] = ()
        self._limits_at = 0.0

    def prepare(self, items: Sequence[ItemRecord]) -> tuple[list[Ready[Question]], list[Ended]]:
        """Read and render."""
        if not items:
            return [], []
        if time.monotonic() - self._limits_at > LIMITS_SECONDS:
            self._limits, self._limits_at = load_limits(self.run.session_id), time.monotonic()
        tried = load_tries(self.run.id, [item.number for item in items if item.attempts > 1])
        ready, hopeless = [], []
        for item, line in lines_of_items(self._content_id, items):
            try:
                ready.append(Ready(item=item, question=self._question(item, line, tried.get(item.number, []))))
            except MnesisError as error:  # what nobody can ask is no answer either
                hopeless.append(hopeless_item(item, ErrorKind.VALIDATION, error.message))
        return ready, hopeless

    def begin(self, record: Change, ready: Sequence[Ready[Question]]) -> list[Begun[Question]]:
        """Write the calls down, as many as limits allow."""
        allowed = list(ready[: self._affordable(record, ready)])
        if not allowed:
            return []
        new = {each.item.number: self._new_call(each) for each in allowed}
        calls = map_store.start_map_calls(record, self.run.id, new)
        return [Begun(ready=each, call_id=calls[each.item.number]) for each in allowed]

    async def ask(self, begun: Begun[Question]) -> Answer:
        """Ask, and again while the model says "too many requests"; whatever breaks, the item has an end."""
        question = begun.ready.question
        ask = partial(complete_or_abandon, self.model, question.request, prompt_tokens=question.tokens)
        for asked in itertools.count(1):
            reply = await self._pause.ask(ask, attempts=asked)
            if not isinstance(reply.error, ModelRateLimited) or asked > MOST_REFUSALS:
                break
        return Answer(reply=reply, asked=asked, duration_ms=begun.duration_ms)

    def settle(self, begun: Begun[Question], answer: Answer) -> Settlement:
        """Judge the answer."""
        item, end = begun.ready.item, end_of_reply(answer.reply, self.spec)
        attempt = AttemptOutcome(
            output=answer.reply.text,
            usage=end.usage,
            duration_ms=answer.duration_ms,
            call_id=begun.call_id,
            call_end=end,
            call_attempts=answer.asked,
        )
        failure = self._failure_of(answer.reply)
        if failure is None:
            return Settlement(item=item.number, number=item.attempts, state=ItemState.COMPLETED, attempt=attempt)
        return failed_try(self.run, item, failure, attempt)

    def cut_off(self, begun: Begun[Question]) -> Settlement:
        """The settlement of an item whose call was cut off: the prompt is counted, no answer is."""
        asked = Usage(input_tokens=begun.ready.question.tokens, output_tokens=0)
        usage = usage_record(asked, cost=cost_micros(self.spec, asked))
        reason = TurnCancelled("The run was cancelled before the model had answered.")
        end = MessageEnd(
            outcome=Outcome.CANCELLED.value, error_code=reason.code, error_message=reason.message, usage=usage
        )
        item = begun.ready.item
        return Settlement(
            item=item.number,
            number=item.attempts,
            state=ItemState.CANCELLED,
            attempt=AttemptOutcome(usage=usage, duration_ms=begun.duration_ms, call_id=begun.call_id, call_end=end),
            error=reason.message,
            excused=True,
        )

    def _question(self, item: ItemRecord, line: bytes, tries: Sequence[AttemptRecord]) -> Question:
        if is_deadly(item.excused):
            raise ModelCallAbandoned("Every process that tried this item ended before it had a result.")
        payload = map_payload(self.run.spec, read_item(line), tries)
        tokens = estimate_payload(payload)
        room = self.spec.context_window - tokens
        output = max(1, min(self.spec.max_output_tokens, room))
        request = Request(
            payload=payload,
            max_output_tokens=output,
            temperature=self.run.spec.temperature,
            seconds=self.run.spec.timeout_seconds,
        )
        most = most_of_call(self.spec, tokens, output)
        return Question(request=request, digest=digest(payload), tokens=tokens, most=most)

    def _new_call(self, ready: Ready[Question]) -> NewCall:
        item, question = ready.item, ready.question
        return NewCall(
            purpose="map",
            model=self.spec.alias,
            provider_model=self.spec.litellm_model,
            parameters={
                "max_output_tokens": question.request.max_output_tokens,
                "temperature": question.request.temperature,
                **question.most.as_parameters(),
            },
            manifest=[_row(self.run.id, item)],
            digest=question.digest,
            estimated_tokens=question.tokens,
        )

    def _failure_of(self, reply: Reply) -> Failure | None:
        if reply.error is not None:
            return failure_of_call(reply.error)
        judged = judge_reply(reply, self._schema)
        return None if judged.kind is None else Failure(kind=judged.kind, message=judged.message)

    def _affordable(self, record: Change, ready: Sequence[Ready[Question]]) -> int:
        """How many of these calls, the first ones, may be made.

        :raises BudgetExhausted: none, and nothing is in flight that could take less than its most.
        """
        count = len(ready)
        while True:
            most = sum((each.question.most for each in ready[:count]), Spent())
            try:
                self._draw(record, most)
            except BudgetExhausted:
                if count > 1:
                    count //= 2
                    continue
                if call_ids_in_flight(self.run.id):
                    return 0
                raise
            return count

    def _draw(self, record: Change, most: Spent) -> None:
        draw(record, self._limits, most)
        if self.run.spec.limits.is_none:
            return
        allowance = Allowance(scope="run", limits=self.run.spec.limits, spent=spent_by(self.run.id))
        if (line := passed_by(most, [allowance])) is not None:
            raise exhausted_at(line, needed=getattr(most, line.measure))


def _row(run_id: str, item: ItemRecord) -> dict[str, Any]:
    """What ``rebuilding`` makes the question again from."""
    return {"kind": "map", "run_id": run_id, "item": item.number, "attempt": item.attempts, "prompt": CURRENT.version}


def spent_by(run_id: str) -> Spent:
    """What the tries of a run have taken, and those in flight at their most."""
    counts = load_run(run_id).counts
    done = Spent(tokens=counts.tokens_input + counts.tokens_output, cost_micros=counts.cost_micros)
    return done + most_of_calls(call_ids_in_flight(run_id))


def failed_try(run: RunRecord, item: ItemRecord, failure: Failure, attempt: AttemptOutcome | None) -> Settlement:
    """The settlement of a try that gave no result: the item waits for the next one, or has failed."""
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
