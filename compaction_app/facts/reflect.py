"""Search a summary's messages for facts: the worker's task, queued with the swap of the summary and never delaying it.

A model is asked with no lock held, once as long as it reads all messages at once. What it proposes counts only where the record
has the words that it quotes. Then, whatever the model did, the summary's fidelity is measured, and what it had lost is carried
over as facts by rule.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from django.utils import timezone
from django_q.tasks import async_task

from compaction_app.context.fidelity import items_of_summary, load_shown, messages_under
from compaction_app.facts import store
from compaction_app.facts.queries import ReflectionRecord, find_reflection, forgotten_reflections
from compaction_app.queries import load_run, load_summary
from compaction_app.store import close_calls
from compaction_app.summary_requests import limits_of_compaction, planned_call
from mnesis_core.actor import read_actor
from mnesis_core.compaction.fidelity import Shown, SourceItem, measure
from mnesis_core.compaction.reflection import BY_RULE, PROMPT, Found, carried_facts, questions_about, read_facts, spoken
from mnesis_core.compaction.requests import Question, messages_row
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.config import Config
from mnesis_core.errors import CallNotFoundError, MnesisError, ModelCallAbandoned, SessionNotFoundError
from mnesis_core.events import EventType
from mnesis_core.facts import NewFact
from mnesis_core.llm.interface import Model, Reply, Request, spec_in_session
from mnesis_core.llm.retrying import patience_of
from mnesis_core.messages import StoredMessage
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.records import SessionRecord, SummaryRecord
from mnesis_core.spending import Spent
from mnesis_core.turns.options import end_of_reply
from sessions_app.conf import get_model, session_config, site_config
from sessions_app.database.threads import AWAY, in_waiting_thread, waiting_for
from sessions_app.llm.calls import ModelCaller, PlannedCall, RunningCall, complete_or_abandon, load_fallbacks
from sessions_app.llm.limits import SpendingLimit
from sessions_app.record import turn_store
from sessions_app.record.actor import acting_as
from sessions_app.record.change import Change, change
from sessions_app.record.lease import Lease, new_owner
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.record.session_queries import load_session
from sessions_app.record.timeline_queries import NOW
from sessions_app.record.turn_queries import running_reflection_calls

logger = logging.getLogger(__name__)
TASK = "compaction_app.tasks.reflect"
SLACK_SECONDS = 60  # a worker that passes the longest time of a reflection by this much hangs, and the cluster kills it


def request_reflection(record: Change, summary_id: str, *, by_rule: bool = False) -> None:
    """Queue the search for facts in what a summary stands for, in the change that swaps it in.

    :param by_rule: ask no model, but carry over what the summary has lost
    """
    version = BY_RULE if by_rule else PROMPT.version
    reflection_id = store.request_reflection(record, summary_id, prompt_version=version)
    if reflection_id is not None:
        _wake_worker(reflection_id)


def wake_forgotten() -> int:
    """Queue again what no living worker has, and return how many. Safe to repeat."""
    now = timezone.now()
    most, forgotten = site_config().compaction.max_attempts, forgotten_reflections(now)
    for reflection_id, attempts in forgotten:
        if attempts < most:
            store.put_off_reflection(reflection_id, until=now + store.LOST_AFTER)
            _wake_worker(reflection_id)
        elif (found := find_reflection(reflection_id)) is not None:
            with suppress(SessionNotFoundError):
                _fail(found, store.Spending(), ModelCallAbandoned.code)
    return len(forgotten)


def _wake_worker(reflection_id: str) -> None:
    async_task(TASK, reflection_id=reflection_id, timeout=int(_longest_seconds() + SLACK_SECONDS))


def _longest_seconds() -> float:
    config = site_config().compaction
    return config.run_timeout_seconds + config.model_timeout_seconds


def reflect(*, reflection_id: str, **_later: object) -> None:
    """Do one reflection: the worker's task. It may run twice or late, since the reflection's row decides."""
    found = find_reflection(reflection_id)
    lease = Lease(owner=new_owner(), seconds=_longest_seconds())
    if found is None or not store.claim_reflection(reflection_id, lease=lease, now=timezone.now()):
        return
    summary = load_summary(found.summary_id)
    actor = read_actor(load_run(summary.run_id).actor if summary.run_id else "")
    with suppress(SessionNotFoundError), acting_as(actor.later("reflection")):
        with change(found.session_id) as record:
            close_calls(record, running_reflection_calls(found.session_id, found.id))
        _reflect_on(found, summary)


def _reflect_on(reflection: ReflectionRecord, summary: SummaryRecord) -> None:
    session = load_session(reflection.session_id)
    calls = ReflectionCalls(reflection=reflection, session=session, config=session_config(session.config))
    try:
        ids = [] if reflection.prompt_version == BY_RULE else [id for _, id in summary.source_ids]
        messages = spoken(load_messages_by_ids(ids, session_id=summary.session_id))
        found = waiting_for(calls.find_facts, own_loop=True)(messages) if messages else Found()
        if found.problem and not found.facts:
            _fail(reflection, calls.spending(), found.problem[:64])
        else:
            _keep(reflection, summary, calls.spending(), found)
    except (SessionNotFoundError, *AWAY):
        raise
    except Exception as error:
        if not isinstance(error, MnesisError):
            logger.exception("reflection %s failed", reflection.id)
        code = str(error.details.get("reason") or error.code) if isinstance(error, MnesisError) else MnesisError.code
        _fail(reflection, calls.spending(), code)


def _find_lost(summary: SummaryRecord, *, facts: Iterable[str] = ()) -> Lost | None:
    config = session_config(load_session(summary.session_id).config).compaction
    return find_lost(summary, facts=facts) if config.fidelity_bound < 1 else None


def _keep(reflection: ReflectionRecord, summary: SummaryRecord, spent: store.Spending, found: Found) -> None:
    lost = _find_lost(summary, facts=[fact.statement for fact in found.facts])
    with change(reflection.session_id) as record:
        new = [fact for fact in store.without_forbidden(record, found.facts) if not store.is_known(record, fact)]
        if store.end_reflection(record, reflection.id, spent, found=len(new), refused=found.refused):
            for fact in new:
                store.record_fact(record, replace(fact, reflection_id=reflection.id))
            carry(record, lost, reflection_id=reflection.id)


def _fail(reflection: ReflectionRecord, spent: store.Spending, error_code: str) -> None:
    lost = _find_lost(load_summary(reflection.summary_id))
    with change(reflection.session_id) as record:
        if store.end_reflection(record, reflection.id, spent, found=0, refused=0, error_code=error_code):
            carry(record, lost, reflection_id=reflection.id)


@dataclass(kw_only=True)
class ReflectionCalls(ModelCaller[Found]):
    """The questions of one reflection, and what they have taken so far."""

    reflection: ReflectionRecord
    session: SessionRecord
    config: Config
    models: list[Model] = field(default_factory=list)
    question: Question | None = None
    messages: Sequence[StoredMessage] = ()
    began: float = field(default_factory=time.monotonic)
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int = 0

    def __post_init__(self) -> None:
        self.patience = patience_of(self.config.turn)

    def spending(self) -> store.Spending:
        return store.Spending(
            model=self.models[0].spec.alias if self.models else None,
            tokens_input=self.tokens_input,
            tokens_output=self.tokens_output,
            cost_micros=self.cost_micros,
        )

    async def find_facts(self, messages: Sequence[StoredMessage]) -> Found:
        """Ask about all messages.

        :raises ModelNotFoundError: the person may not use the model that summarises.
        :raises BudgetExhausted: a limit would be passed.
        """
        self.messages = messages
        found = Found()

        def choose_models() -> None:
            alias = self.config.compaction.model or self.session.model
            own = get_model(alias, user_id=self.session.owner_id)
            self.models = [own, *load_fallbacks(alias, self.session, self.config)]

        try:
            await self.in_thread(choose_models)
            spec = self.models[0].spec
            for question in questions_about(messages, spec=spec, limit=piece_limit(spec, self.config)):
                self.question = question
                found += await self.ask_model()
        finally:
            await close_connections()
        return found

    async def plan(self) -> PlannedCall:
        model = self.models[0]
        is_own = model.spec.alias == self.session.model
        spec = spec_in_session(model.spec, self.config) if is_own else model.spec
        return planned_call(
            self._asked,
            [messages_row(self.messages)],
            model=model,
            spec=spec,
            parameters={"reflection_id": self.reflection.id, "summary_id": self.reflection.summary_id},
        )

    @property
    def _asked(self) -> Question:
        if self.question is None:
            raise ValueError("there is no question")
        return self.question

    def held(self) -> AbstractContextManager[Change]:
        return change(self.session.id)

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        return limits_of_compaction(self.session, self.config.compaction, highest, began=self.began)

    def seconds(self, call: RunningCall) -> float:
        left = self.began + self.config.compaction.run_timeout_seconds - time.monotonic()
        of_call = min(self.config.compaction.model_timeout_seconds, left)
        return max(0.0, of_call if call.time_limit is None else min(of_call, call.time_limit.left))

    async def receive(self, call: RunningCall, request: Request) -> Reply:
        return await complete_or_abandon(call.planned.model, request, prompt_tokens=call.planned.prompt_tokens)

    async def finish(self, call: RunningCall, reply: Reply) -> Found:
        end = end_of_reply(reply, call.planned.spec, began=call.began)
        self.tokens_input += reply.usage.input_tokens
        self.tokens_output += reply.usage.output_tokens
        self.cost_micros += end.usage.cost_micros or 0

        def write() -> None:
            with change(self.session.id) as record, suppress(CallNotFoundError):
                turn_store.finish_call(record, call.id, end, attempts=call.attempts)

        await in_waiting_thread(write)()
        return read_facts(reply, self.messages, alias=call.planned.spec.alias)

    async def use_next_model(self) -> bool:
        others = [other for other in self.models[1:] if self._asked.tokens <= piece_limit(other.spec, self.config)]
        self.models = others or self.models
        return bool(others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The items that a summary has lost, and the facts that carry some of them over."""

    summary_id: str
    counted: int
    missing: tuple[SourceItem, ...]
    facts: tuple[NewFact, ...] = ()


def find_lost(summary: SummaryRecord, *, facts: Iterable[str] = ()) -> Lost:
    """Return what a summary has lost, read with no lock held.

    :param facts: statements that are about to be written
    """
    items = items_of_summary(summary)
    missing = measure(items, load_shown(summary, at=NOW, facts=facts)).missing
    carried = carried_facts(missing, messages_under(summary)) if missing else ()
    return Lost(summary_id=summary.id, counted=len(items), missing=missing, facts=tuple(carried))


def carry(record: Change, lost: Lost | None, *, reflection_id: str) -> None:
    """Write what was lost as facts, except what was a fact before or is forbidden, and publish how much is still missing.

    In an archived session no fact is written.
    """
    if lost is None:
        return
    facts = () if record.archived else store.without_forbidden(record, store.without_stated(record, lost.facts))
    for fact in facts:
        store.record_fact(record, replace(fact, reflection_id=reflection_id))
    left = measure(lost.missing, Shown(fact.statement for fact in facts)).missing
    record.publish(EventType.FIDELITY_MEASURED, summary_id=lost.summary_id, counted=lost.counted, missing=len(left))
