"""Requests for summaries: every call and every attempt is a row, and no lock is held while the model is asked.

A call is written before it is made and ends once, with its attempt, in one short change. A process that dies in between
leaves a running call, which the process that takes the compaction over closes. The rows are written by the thread that
waits for the answer (``waiting_for``), so a whole compaction uses one connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from compaction_app import store
from compaction_app.context.state import ContextState
from compaction_app.queries import compaction_micros, compaction_micros_of_owner
from mnesis_core.compaction.requests import (
    Answer,
    Attempt,
    Judge,
    Prompts,
    Question,
    attempt_of,
    naming_speakers,
    question_manifest,
)
from mnesis_core.compaction.selection import (
    Condensation,
    Span,
    own_allowances,
    reading_of,
    refusal,
    salient_items,
    source_rows,
)
from mnesis_core.compaction.summarise import SummaryResult, summarise
from mnesis_core.compaction.transcript import VERSION, piece_limit
from mnesis_core.config import CompactionConfig
from mnesis_core.errors import BudgetExhausted, CallNotFoundError
from mnesis_core.events import EventType
from mnesis_core.files.references import manifest_path
from mnesis_core.llm.interface import Model, ModelSpec, Reply
from mnesis_core.llm.retrying import patience_of
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.providers.rendering import digest
from mnesis_core.records import SessionRecord, new_id
from mnesis_core.spending import Spent
from mnesis_core.turns.options import end_of_reply
from sessions_app.conf import site_config
from sessions_app.database.threads import in_waiting_thread, waiting_for
from sessions_app.llm.calls import ModelCaller, PlannedCall, RunningCall, load_fallbacks
from sessions_app.llm.limits import SpendingLimit, load_limits, midnight
from sessions_app.record import file_port, turn_store
from sessions_app.record.change import Change, change

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work that a model is asked for: a preview, which no other process takes over, or a claimed compaction."""

    session_id: str
    run_id: str | None = None  # the compaction; None for a preview

    def held(self) -> AbstractContextManager[Change]:
        return change(self.session_id)

    async def asking(self, question: Coroutine[Any, Any, R]) -> R:
        return await question


@dataclass(slots=True, kw_only=True)
class RecordedAttempts:
    """The attempts at one summary: a ``mnesis_core.compaction.requests.Recorder``."""

    state: ContextState
    chosen: Span | Condensation  # what the summary is to stand for
    context_seq: int
    attempt: Work
    began: float  # when this process began, by time.monotonic
    summary_id: str
    models: tuple[Model, ...]  # the first is asked until it gives nothing; without any, only level 3 is left
    cost_micros: int = 0

    @property
    def alias(self) -> str:
        return self.models[0].spec.alias if self.models else ""

    async def ask(self, question: Question, judge: Judge) -> Answer:
        """Ask if the limits allow it, and another model where one gives nothing.

        :raises TakenOver: another process has the compaction.
        :raises ValueError: there is no model.
        """
        if not self.models:
            raise ValueError("there is no model to ask")
        try:
            return await SummaryCalls(self, question, judge).ask_model()
        except BudgetExhausted as error:
            attempt = attempt_of(question, str(error.details["reason"]))

        def refuse() -> str:
            with self.attempt.held() as record:
                try_id = self.write(record, attempt, question=question)
                facts = {"run_id": self.attempt.run_id, "try_id": try_id, "reason": attempt.reason}
                record.publish(EventType.BUDGET_EXHAUSTED, **facts)
            return try_id

        return Answer(try_id=await in_waiting_thread(refuse)(), attempt=attempt, reply=None)

    async def excerpt(self, attempt: Attempt, text: str) -> str:
        def write_excerpt() -> str:
            with self.attempt.held() as record:
                return self.write(record, attempt, text=text, prompt_version=VERSION)

        return await in_waiting_thread(write_excerpt)()

    def write(
        self,
        record: Change,
        attempt: Attempt,
        *,
        question: Question | None = None,
        cost_micros: int | None = 0,
        **columns: Any,
    ) -> str:
        if question is not None:
            columns |= {"target_tokens": question.target, "prompt_version": question.prompt.version}
        return store.record_attempt(
            record,
            attempt,
            run_id=self.attempt.run_id,
            summary_id=self.summary_id,
            kind=self.chosen.kind,
            cost_micros=cost_micros,
            **columns,
        )


def planned_call(
    question: Question,
    sources: Sequence[Mapping[str, Any]],
    *,
    model: Model,
    spec: ModelSpec,
    parameters: Mapping[str, Any],
    context_seq: int | None = None,
) -> PlannedCall:
    """Return the call for a question about sources, whose answer is no longer than the model's longest."""
    request, longest = question.request, spec.max_output_tokens
    if 0 < longest < request.max_output_tokens:
        request = replace(request, max_output_tokens=longest)
    return PlannedCall(
        model=model,
        spec=spec,
        request=request,
        purpose="summary",
        prompt_tokens=question.tokens,
        estimated_tokens=question.tokens,
        parameters=parameters,
        manifest=question_manifest(question, sources),
        digest=digest(request.payload),
        context_seq=context_seq,
        texts={"prompt": question.prompt.text},
    )


class SummaryCalls(ModelCaller[Answer]):
    def __init__(self, tries: RecordedAttempts, question: Question, judge: Judge) -> None:
        self.tries = tries
        self.question = question
        self.judge = judge
        self.patience = patience_of(tries.state.config.turn)

    async def plan(self) -> PlannedCall:
        model = self.tries.models[0]
        return planned_call(
            self.question,
            source_rows(self.tries.chosen),
            model=model,
            spec=self.tries.state.priced(model.spec),
            parameters={"run_id": self.tries.attempt.run_id, "summary_id": self.tries.summary_id},
            context_seq=self.tries.context_seq,
        )

    def held(self) -> AbstractContextManager[Change]:
        return self.tries.attempt.held()

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        state = self.tries.state
        return limits_of_compaction(state.session, state.config.compaction, highest, began=self.tries.began)

    def seconds(self, call: RunningCall) -> float:
        config = self.tries.state.config.compaction
        longest = min(site_config().compaction.run_timeout_seconds, config.run_timeout_seconds)
        of_run = self.tries.began + longest - time.monotonic()
        left = math.inf if call.time_limit is None else call.time_limit.left
        return max(0.0, min(config.model_timeout_seconds, of_run, left))

    async def finish(self, call: RunningCall, reply: Reply) -> Answer:
        attempt = attempt_of(self.question, self.judge(reply), reply.usage)
        end = end_of_reply(reply, call.planned.spec, began=call.began)
        self.tries.cost_micros += end.usage.cost_micros or 0

        def write() -> str:
            # Not fenced: the reply and its cost are true, whichever process has the compaction and closed the call.
            with change(self.tries.attempt.session_id) as record:
                try_id = self.tries.write(
                    record,
                    attempt,
                    question=self.question,
                    call_id=call.id,
                    text=reply.text,
                    reasoning=reply.reasoning,
                    tool_calls=reply.tool_calls,
                    cost_micros=end.usage.cost_micros,
                )
                with suppress(CallNotFoundError):
                    turn_store.finish_call(record, call.id, end, attempts=call.attempts)
            return try_id

        try_id = await in_waiting_thread(write)()
        return Answer(try_id=try_id, attempt=attempt, reply=reply)

    async def use_next_model(self) -> bool:
        config = self.tries.state.config
        others = tuple(
            other for other in self.tries.models[1:] if self.question.tokens <= piece_limit(other.spec, config)
        )
        self.tries.models = others or self.tries.models
        return bool(others)


def limits_of_compaction(
    session: SessionRecord, own: CompactionConfig, highest: Spent, *, began: float
) -> Sequence[SpendingLimit]:
    """Return what a call draws on beside compaction's own limits.

    :raises BudgetExhausted: one of compaction's own limits would be passed; ``reason`` says which.
    """
    site = site_config().compaction
    by_session = site.spend_limit_session_micros or own.spend_limit_session_micros
    by_day = site.spend_limit_day_micros or own.spend_limit_day_micros
    allowances = own_allowances(
        site,
        own,
        session_micros=compaction_micros(session.id) if by_session else 0,
        day_micros=compaction_micros_of_owner(session.owner_id, since=midnight()) if by_day else 0,
        seconds=time.monotonic() - began,
    )
    reason = refusal(allowances, highest)
    if reason is not None:
        raise BudgetExhausted(reason=reason)
    return load_limits(session.id)


def ask_for_summary(
    state: ContextState,
    chosen: Span | Condensation,
    *,
    attempt: Work,
    model: Model | None,
    summary_id: str,
    began: float,
    context_seq: int,
    limit: int,
    prompts: Prompts,
) -> tuple[dict[str, Any], file_port.PreparedText | None]:
    """Ask for a summary with no lock held; return the columns that it has however it is kept, and its list of files.

    :param began: when this process began the whole work, by ``time.monotonic``
    :param context_seq: the event as of which ``chosen`` was read
    :param limit: tokens of a piece that is asked about at once
    """
    asked_at = time.monotonic()
    recorder = RecordedAttempts(
        state=state,
        chosen=chosen,
        context_seq=context_seq,
        attempt=attempt,
        began=began,
        summary_id=summary_id,
        models=(model, *load_fallbacks(model.spec.alias, state.session, state.config)) if model else (),
    )
    # A loop of its own: connections to models belong to one, and are closed with it.
    named = naming_speakers(prompts, state.session.labels)
    result = waiting_for(_summarise, own_loop=True)(recorder, model, limit, named)
    columns = {
        "level": result.level,
        "text": result.text,
        "token_count": result.token_count,
        "source_tokens": chosen.tokens,
        "model": recorder.alias if result.level < 3 else "",
        "prompt_version": result.prompt_version,
        "tokens_input": result.usage.input_tokens,
        "tokens_output": result.usage.output_tokens,
        "cost_micros": recorder.cost_micros,
        "duration_ms": int((time.monotonic() - asked_at) * 1000),
    }
    if (manifest := result.manifest) is None:
        return columns, None
    # On disk before any lock is taken: the list of files that the summary's footer names.
    about = f"A list of {manifest.name.count} file ids, which summary {summary_id} names."
    path = manifest_path(summary_id)
    return columns, file_port.prepare_text(manifest.text, file_id=manifest.name.id, path=path, about=about)


async def _summarise(recorder: RecordedAttempts, model: Model | None, limit: int, prompts: Prompts) -> SummaryResult:
    state, chosen = recorder.state, recorder.chosen
    pieces, quotables = reading_of(chosen, limit)
    question = summarise(
        pieces,
        chosen.tokens,
        model,
        state.config,
        state.budget,
        kind=chosen.kind,
        manifest_id=new_id("file"),
        quotables=quotables,
        named=chosen.named,
        items=salient_items(chosen) if model is not None and state.config.compaction.fidelity_bound < 1 else (),
        prompts=prompts,
        recorder=recorder,
        limit=limit,
        cut=lambda limit: reading_of(chosen, limit)[0],
    )
    try:
        return await recorder.attempt.asking(question)
    finally:
        await close_connections()
