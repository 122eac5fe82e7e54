"""Story: ask a model for a summary, every call and every try a row, nothing held while it is asked.

A call is written before it is made and ends once, with its try, in one short change: who dies in between leaves a
call that runs, and whoever takes the compaction over closes it. The rows are written by the thread that waits for the
answer (``async_to_sync``), so a whole compaction uses one connection.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from asgiref.sync import sync_to_async
from django.utils import timezone

from compaction_app import store
from compaction_app.queries import compaction_micros, compaction_micros_of_owner
from compaction_app.store import NewTry
from mnesis_core.compaction.asking import (
    Answer,
    Judge,
    Question,
    Try,
    complete_within,
    question_manifest,
    refused,
    try_of,
)
from mnesis_core.compaction.excerpt import VERSION
from mnesis_core.compaction.spending import Limits, Spent, limits_of, refusal
from mnesis_core.config import CompactionConfig
from mnesis_core.dag import SummaryKind
from mnesis_core.errors import CallNotFoundError
from mnesis_core.events import EventType
from mnesis_core.llm import Model, ModelSpec, Reply, Usage, cost_micros
from mnesis_core.recording import end_of_reply
from mnesis_core.rendering import digest
from sessions_app import store as record_store
from sessions_app.conf import site_config
from sessions_app.ledger import Change, change


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


@dataclass(slots=True, kw_only=True)
class RecordedTries:
    """See ``mnesis_core.compaction.asking.Recorder``: the tries at one summary."""

    attempt: Work
    began: float
    """When this attempt did, by ``time.monotonic``."""
    owner_id: int
    summary_id: str
    kind: SummaryKind
    model: Model | None
    spec: ModelSpec
    """With the prices that count."""
    config: CompactionConfig
    sources: Sequence[dict[str, Any]]
    """Manifest rows of what the summary is to stand for."""
    limit: int
    """Tokens of a piece that they are read in."""
    context_seq: int
    """The event as of which they were read."""
    cost_micros: int = 0
    """Of all tries so far."""

    async def ask(self, question: Question, judge: Judge) -> Answer:
        """Ask if the limits allow it.

        :raises TakenOver: the compaction is not ours any more.
        :raises ValueError: there is no model.
        """
        if self.model is None:
            raise ValueError("there is no model to ask")
        reason = await sync_to_async(self._refusal)(question)
        if reason is not None:
            attempt = refused(question, reason)
            return Answer(try_id=await sync_to_async(self._refuse)(question, attempt), attempt=attempt, reply=None)
        call_id = await sync_to_async(self._start)(self.model, question)
        reply = await complete_within(self.model, question.request, self._seconds())
        attempt = try_of(question, reply, judge(reply))
        try_id = await sync_to_async(self._finish)(call_id, question, attempt, reply)
        return Answer(try_id=try_id, attempt=attempt, reply=reply)

    async def excerpt(self, attempt: Try, text: str) -> str:
        """Keep a level-3 excerpt, for which no model was asked."""
        return await sync_to_async(self._record)(self._new_try(attempt, text=text, prompt_version=VERSION))

    @property
    def _limits(self) -> Limits:
        return limits_of(site_config().compaction, self.config)

    def _seconds(self) -> float:
        """How long the next call may take."""
        left = self.began + self._limits.seconds - time.monotonic()
        return max(0.0, min(self.config.model_timeout_seconds, left))

    def _refusal(self, question: Question) -> str | None:
        limits = self._limits
        spent = Spent(
            session_micros=compaction_micros(self.attempt.session_id) if limits.session_micros else 0,
            day_micros=compaction_micros_of_owner(self.owner_id, since=_midnight()) if limits.day_micros else 0,
            seconds=time.monotonic() - self.began,
        )
        most = Usage(input_tokens=question.tokens, output_tokens=question.request.max_output_tokens)
        return refusal(spent, limits, cost_micros(self.spec, most) or 0)

    def _refuse(self, question: Question, attempt: Try) -> str:
        with self.attempt.held() as record:
            try_id = store.record_try(record, self._new_try(attempt, question=question))
            record.publish(EventType.BUDGET_EXHAUSTED, run_id=self.attempt.run_id, try_id=try_id, reason=attempt.reason)
        return try_id

    def _start(self, model: Model, question: Question) -> str:
        with self.attempt.held() as record:
            return record_store.start_call(
                record,
                turn_id=None,
                message_id=None,
                purpose="summary",
                model=model.spec.alias,
                provider_model=model.spec.litellm_model,
                parameters={
                    "max_output_tokens": question.request.max_output_tokens,
                    "run_id": self.attempt.run_id,
                    "summary_id": self.summary_id,
                },
                manifest=question_manifest(question, self.sources, self.limit),
                context_seq=self.context_seq,
                digest=digest(question.request.payload),
                estimated_tokens=question.tokens,
                texts={"prompt": question.prompt.text},
            )

    def _finish(self, call_id: str, question: Question, attempt: Try, reply: Reply) -> str:
        end = end_of_reply(reply, self.spec)
        cost = end.usage.cost_micros
        new = self._new_try(attempt, question=question, call_id=call_id, reply=reply, cost=cost)
        self.cost_micros += cost or 0
        # Not fenced: what was said and what it cost is true, whoever has the compaction now and closed the call.
        with change(self.attempt.session_id) as record:
            try_id = store.record_try(record, new)
            with suppress(CallNotFoundError):
                record_store.finish_call(record, call_id, end)
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


def _midnight() -> datetime:
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
