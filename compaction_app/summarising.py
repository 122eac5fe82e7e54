"""Story: ask a model for a summary, every call and every try a row, nothing held while it is asked.

A call is written before it is made and ends once, with its try, in one short change: who dies in between leaves a
call that runs, and whoever takes the compaction over closes it. The rows are written by the thread that waits for the
answer (``waiting_for``), so a whole compaction uses one connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from compaction_app import store
from compaction_app.context import ContextState
from compaction_app.queries import compaction_micros, compaction_micros_of_owner
from compaction_app.store import NewTry
from mnesis_core.compaction import piece_limit
from mnesis_core.compaction.asking import (
    Answer,
    Judge,
    Question,
    Try,
    question_manifest,
    refused,
    try_of,
)
from mnesis_core.compaction.excerpt import VERSION
from mnesis_core.compaction.spending import own_allowances, refusal
from mnesis_core.config import CompactionConfig
from mnesis_core.dag import SummaryKind
from mnesis_core.endings import BudgetExhausted
from mnesis_core.errors import CallNotFoundError, ModelNotFoundError
from mnesis_core.events import EventType
from mnesis_core.file_manifests import FileManifest, manifest_path
from mnesis_core.llm import Model, ModelSpec, Reply, Request, Usage, complete, cost_micros
from mnesis_core.record import MessageEnd
from mnesis_core.recording import end_of_reply
from mnesis_core.rendering import digest
from mnesis_core.retrying import Patience, Retry, ask_patiently, fallbacks_of, may_ask_another
from mnesis_core.spending import Allowance, Spent, highest_of
from sessions_app import keeping
from sessions_app import store as record_store
from sessions_app.conf import get_model, get_spec_to_read, site_config
from sessions_app.database import in_waiting_thread
from sessions_app.ledger import Change, change
from sessions_app.spending import draw, load_limits, midnight


class Work(Protocol):
    """On whose behalf a model is asked: a compaction under its lease, or a preview."""

    @property
    def session_id(self) -> str: ...

    @property
    def run_id(self) -> str | None:
        """The compaction; none for a preview."""
        ...

    def held(self) -> AbstractContextManager[Change]:
        """A change of the session, if the work is still ours.

        :raises TakenOver: it is not.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """A model that may be asked for a summary."""

    model: Model
    spec: ModelSpec
    """With the prices that count."""
    reads: int
    """Tokens that one question to it may have."""


def summarisers_of(state: ContextState, model: Model) -> tuple[Summariser, ...]:
    """A model and those that are asked, in this order, when it gives nothing."""
    own = model.spec.alias
    of_session = state.config.fallbacks if own == state.session.model else ()
    models = [model]
    for alias in fallbacks_of(own, of_session=of_session, of_entry=get_spec_to_read(own).fallbacks):
        with suppress(ModelNotFoundError):
            models.append(get_model(alias, user_id=state.session.owner_id))
    return tuple(
        Summariser(model=each, spec=state.priced(each.spec), reads=piece_limit(each.spec, state.config))
        for each in models
    )


@dataclass(slots=True, kw_only=True)
class RecordedTries:
    """See ``mnesis_core.compaction.asking.Recorder``: the tries at one summary."""

    attempt: Work
    began: float
    """When this attempt did, by ``time.monotonic``."""
    owner_id: int
    summary_id: str
    kind: SummaryKind
    summarisers: tuple[Summariser, ...]
    """Who is asked: the first, until it gives nothing. None leaves level 3."""
    config: CompactionConfig
    patience: Patience
    sources: Sequence[dict[str, Any]]
    """Manifest rows of what the summary is to stand for."""
    context_seq: int
    """The event as of which they were read."""
    cost_micros: int = 0
    """Of all tries so far."""

    async def ask(self, question: Question, judge: Judge) -> Answer:
        """Ask if the limits allow it, and another model where one gives nothing.

        :raises TakenOver: the compaction is not ours any more.
        :raises ValueError: there is no model.
        """
        if not self.summarisers:
            raise ValueError("there is no model to ask")
        answer = await self._ask(question, judge)
        while answer.reply is not None and may_ask_another(answer.reply) and self._turn_to_another(question):
            answer = await self._ask(question, judge)
        return answer

    @property
    def alias(self) -> str:
        """The model that is asked now."""
        return self.summarisers[0].spec.alias if self.summarisers else ""

    def _turn_to_another(self, question: Question) -> bool:
        """Ask the next model from now on that reads as much; whether there is one."""
        others = tuple(other for other in self.summarisers[1:] if question.tokens <= other.reads)
        self.summarisers = others or self.summarisers
        return bool(others)

    async def _ask(self, question: Question, judge: Judge) -> Answer:
        asked = self.summarisers[0]
        question = _within(question, asked.spec)
        try:
            call_id, seconds = await in_waiting_thread(self._start)(asked, question)
        except BudgetExhausted as error:
            attempt = refused(question, str(error.details["reason"]))
            return Answer(try_id=await in_waiting_thread(self._refuse)(question, attempt), attempt=attempt, reply=None)
        noted: list[Retry] = []
        reply = await self._reply(asked.model, question.request, call_id, noted, seconds)
        attempt = try_of(question, reply, judge(reply))
        end = end_of_reply(reply, asked.spec)
        try_id = await in_waiting_thread(self._finish)(call_id, question, attempt, reply, end, len(noted) + 1)
        return Answer(try_id=try_id, attempt=attempt, reply=reply)

    async def excerpt(self, attempt: Try, text: str) -> str:
        """Keep a level-3 excerpt, for which no model was asked."""
        return await in_waiting_thread(self._record)(self._new_try(attempt, text=text, prompt_version=VERSION))

    async def _reply(self, model: Model, request: Request, call_id: str, noted: list[Retry], seconds: float) -> Reply:
        """What a model says, asked again where that may help; each retry is added to ``noted``."""

        async def once(seconds: float) -> Reply:
            return await complete(model, replace(request, seconds=seconds))

        async def note(retry: Retry) -> None:
            noted.append(retry)
            await in_waiting_thread(self._note)(call_id, retry)

        return await ask_patiently(once, self.patience, seconds=seconds, note=note)

    def _seconds(self, left: float | None) -> float:
        """How long the next call may take; ``left``: as far as it is limited elsewhere."""
        longest = min(site_config().compaction.run_timeout_seconds, self.config.run_timeout_seconds)
        of_run = self.began + longest - time.monotonic()
        return max(0.0, min(self.config.model_timeout_seconds, of_run, math.inf if left is None else left))

    def _own_allowances(self) -> list[Allowance]:
        site = site_config().compaction
        by_session = site.spend_limit_session_micros or self.config.spend_limit_session_micros
        by_day = site.spend_limit_day_micros or self.config.spend_limit_day_micros
        return own_allowances(
            site,
            self.config,
            session_micros=compaction_micros(self.attempt.session_id) if by_session else 0,
            day_micros=compaction_micros_of_owner(self.owner_id, since=midnight()) if by_day else 0,
            seconds=time.monotonic() - self.began,
        )

    def _refuse(self, question: Question, attempt: Try) -> str:
        with self.attempt.held() as record:
            try_id = store.record_try(record, self._new_try(attempt, question=question))
            record.publish(EventType.BUDGET_EXHAUSTED, run_id=self.attempt.run_id, try_id=try_id, reason=attempt.reason)
        return try_id

    def _start(self, asked: Summariser, question: Question) -> tuple[str, float]:
        """Write the call, and how long it may take.

        :raises BudgetExhausted: a limit would be passed; ``reason`` says which.
        """
        most = Usage(input_tokens=question.tokens, output_tokens=question.request.max_output_tokens)
        highest = highest_of(most.total_tokens, cost_micros(asked.spec, most))
        reason = refusal(self._own_allowances(), highest)
        if reason is not None:
            raise BudgetExhausted(reason=reason)
        limits = load_limits(self.attempt.session_id)
        with self.attempt.held() as record:
            time_limit = draw(record, limits, highest)
            call_id = self._write_call(record, asked.spec, question, highest)
        return call_id, self._seconds(None if time_limit is None else time_limit.left)

    def _write_call(self, record: Change, spec: ModelSpec, question: Question, highest: Spent) -> str:
        return record_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            purpose="summary",
            model=spec.alias,
            provider_model=spec.litellm_model,
            parameters={
                "max_output_tokens": question.request.max_output_tokens,
                "run_id": self.attempt.run_id,
                "summary_id": self.summary_id,
                **highest.as_parameters(),
            },
            manifest=question_manifest(question, self.sources),
            context_seq=self.context_seq,
            digest=digest(question.request.payload),
            estimated_tokens=question.tokens,
            texts={"prompt": question.prompt.text},
        )

    def _note(self, call_id: str, retry: Retry) -> None:
        with self.attempt.held() as record:
            record_store.note_retry(record, call_id, retry)

    def _finish(
        self, call_id: str, question: Question, attempt: Try, reply: Reply, end: MessageEnd, attempts: int
    ) -> str:
        cost = end.usage.cost_micros
        new = self._new_try(attempt, question=question, call_id=call_id, reply=reply, cost=cost)
        self.cost_micros += cost or 0
        # Not fenced: what was said and what it cost is true, whoever has the compaction now and closed the call.
        with change(self.attempt.session_id) as record:
            try_id = store.record_try(record, new)
            with suppress(CallNotFoundError):
                record_store.finish_call(record, call_id, end, attempts=attempts)
        return try_id

    def _record(self, new: NewTry) -> str:
        with self.attempt.held() as record:
            return store.record_try(record, new)

    def _new_try(
        self,
        attempt: Try,
        *,
        question: Question | None = None,
        call_id: str | None = None,
        reply: Reply | None = None,
        text: str = "",
        prompt_version: str = "",
        cost: int | None = 0,
    ) -> NewTry:
        return NewTry(
            run_id=self.attempt.run_id,
            summary_id=self.summary_id,
            kind=self.kind,
            attempt=attempt,
            call_id=call_id,
            target=question.target if question else None,
            prompt_version=question.prompt.version if question else prompt_version,
            text=reply.text if reply else text,
            reasoning=reply.reasoning if reply else "",
            tool_calls=reply.tool_calls if reply else (),
            cost_micros=cost,
        )


def prepare_manifest(summary_id: str, manifest: FileManifest | None) -> keeping.PreparedText | None:
    """Put on disk what a summary's footer names as the list of its files, if it does; call it with nothing held."""
    if manifest is None:
        return None
    return keeping.prepare_text(
        manifest.text,
        file_id=manifest.name.id,
        path=manifest_path(summary_id),
        about=f"A list of {manifest.name.count} file ids, which summary {summary_id} names.",
    )


def _within(question: Question, spec: ModelSpec) -> Question:
    """The question with an answer no longer than the model's longest."""
    longest = question.request.max_output_tokens
    if not 0 < spec.max_output_tokens < longest:
        return question
    return replace(question, request=replace(question.request, max_output_tokens=spec.max_output_tokens))
