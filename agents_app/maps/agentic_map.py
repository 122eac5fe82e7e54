"""AgenticMap: a sub-agent for each item, in a session of its own with its own context, tools, turns and record.

Each attempt is one turn of that session. Its last message is judged as a reply is; where it is no result, the next turn
says what was wrong with it. A turn that had ended when its worker died is judged by the next worker, and nothing is
asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model
from django.utils.translation import gettext_noop

from agents_app import store
from agents_app.maps.executor import ItemExecutor, PreparedItem, StartedItem, put_back, settlement
from agents_app.maps.llm_map import settle_failure
from agents_app.queries import list_runs, load_run
from agents_app.subagents import end_turn, last_text, launched
from agents_app.tools.memory.reading import describe_operator_run
from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn
from agents_app.turns.overview import used_by_tree
from agents_app.turns.runner import runner
from mnesis_core.errors import BudgetExhausted, MnesisError, ModelCallAbandoned, NotFound, TurnCancelled
from mnesis_core.llm.parameters import Parameters
from mnesis_core.maps import prompts
from mnesis_core.maps import values as maps
from mnesis_core.maps.throughput import Failure
from mnesis_core.records import SUB_AGENT, TurnRecord, TurnState
from mnesis_core.spending import Scope, TurnLimits
from mnesis_core.text import excerpt
from mnesis_core.turns.options import TurnOptions
from sessions_app.conf import get_spec, session_config, without_instructions
from sessions_app.database.threads import db
from sessions_app.llm.calls import RateLimitPause
from sessions_app.llm.limits import exhausted_at
from sessions_app.record import session_store
from sessions_app.record.change import Change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_turns, load_turn

logger = logging.getLogger(__name__)
EVENTS_OF_AN_END = 50  # of a session, among which is the one about the limit that ended its last turn
CUT_SHORT = (TurnState.INTERRUPTED, TurnState.CANCELLED)  # the worker died, or lost its item to another one
MOST_TOLD = 20  # runs of its own that a sub-agent is told of when it goes on
TITLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """What a sub-agent is to do next.

    ``child_id`` is its session, or empty until that is made. ``unjudged`` is a turn of it that ended with its worker,
    for which this worker waits instead of asking. ``limits`` are its part of what the run may spend; ``is_alone`` says
    that the part is all there is.
    """

    message: str
    child_id: str
    unjudged: TurnRecord | None = None
    limits: TurnLimits | None = None
    is_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The outcome of a turn. ``exhausted`` is the limit that ended it."""

    turn: TurnRecord | None
    text: str
    duration_ms: int
    failure: Failure | None
    exhausted: BudgetExhausted | None = None


class AgenticExecutor(ItemExecutor[AgentTask, TurnResult]):
    def __init__(self, run: maps.RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> None:
        super().__init__(run, pause_of=pause_of)
        self.spec = get_spec(self.alias, user_id=run.owner_id)
        # By the numbers of the items in flight: their turns, and their parts of what is left for the run.
        self._turns: dict[int, TurnRecord] = {}
        self._parts: dict[int, TurnLimits | None] = {}
        # Once what is left of a limit is too little to be shared, one sub-agent at a time gets all of it.
        self._is_alone = False
        self._exhausted: BudgetExhausted | None = None

    @property
    def waiting(self) -> int:
        return sum(turn.id in runner.waiting for turn in list(self._turns.values()))

    def make_question(self, item: maps.ItemRecord, value: Any, attempts: Sequence[maps.AttemptRecord]) -> AgentTask:
        prompt = prompts.item_prompt(self.run.spec, value)
        child_id, turns = "", []
        if item.child_session_id:
            with suppress(NotFound):
                child_id = load_session(item.child_session_id, owner_id=self.run.owner_id).id
                turns = list_turns(child_id, limit=1)
        if not turns:
            return AgentTask(message=prompt, child_id=child_id)
        newest, message = turns[0], [prompts.next_message(attempts)]
        if newest.state in CUT_SHORT:
            # Runs that it asked for go on: a sub-agent that goes on where it was need not ask again.
            runs = list_runs(session_id=child_id, limit=MOST_TOLD)[::-1]
            message += [describe_operator_run(run) for run in runs if run.turn_id == newest.id]
        is_own = (newest.idempotency_key or "").startswith(self.run.id)
        is_judged = newest.id in {one.child_turn_id for one in attempts}
        is_unjudged = is_own and not is_judged and newest.state not in CUT_SHORT
        return AgentTask(message="\n\n".join(message), child_id=child_id, unjudged=newest if is_unjudged else None)

    def start(self, record: Change, prepared: Sequence[PreparedItem[AgentTask]]) -> list[StartedItem[AgentTask]]:
        """Give each item a session and its part of what is left, as many as there is something left for."""
        if (exhausted := self._exhausted) is not None:
            self._exhausted = None
            raise exhausted
        run = load_run(self.run.id)
        if (line := prompts.used_up(run)) is not None and not self._parts:
            raise exhausted_at(line)
        if line is not None or (self._is_alone and self._parts):
            return []
        slots, parts, allowed = 1 if self._is_alone else run.spec.concurrency, list(self._parts.values()), []
        for one in prepared[:slots]:
            limits = prompts.limits_of_turn(run, slots=slots, given=parts)
            if parts and prompts.is_nothing(limits):
                break
            parts.append(limits)
            child_id = one.question.child_id or self._create_child(one)
            task = replace(one.question, child_id=child_id, limits=limits, is_alone=self._is_alone)
            allowed.append(StartedItem(item=one.item, question=task))
        store.note_claimed(record, self.run.id, {one.item.number: one.question.child_id for one in allowed})
        return allowed

    async def ask(self, started: StartedItem[AgentTask]) -> TurnResult:
        self._parts[started.item.number] = started.question.limits
        seconds = self.run.spec.timeout_seconds
        await self.pause.wait()  # its own calls wait there too, but a turn's time is better spent on asking
        try:
            async with asyncio.timeout(seconds):
                turn = await self._run_turn(started)
            return await db(self._result_of, started, turn)
        except TimeoutError:
            failure = Failure(kind=maps.ErrorKind.TIMEOUT, message=prompts.TIME_IS_UP.format(seconds=seconds))
        except MnesisError as error:
            failure = Failure(kind=maps.ErrorKind.TOOL_ERROR, message=error.message)
        except Exception:  # whatever breaks, the item has an end
            logger.exception("a sub-agent of run %s broke", self.run.id)
            failure = Failure(kind=maps.ErrorKind.TOOL_ERROR, message=ModelCallAbandoned().message)
        return await db(self._result_of, started, self._turns.get(started.item.number), failure)

    def settle(self, started: StartedItem[AgentTask], answer: TurnResult) -> maps.Settlement:
        item, failure, task = started.item, answer.failure, started.question
        self._turns.pop(item.number, None)
        self._parts.pop(item.number, None)
        attempt = _attempt(item, answer)
        if failure is None:
            return settlement(item, maps.ItemState.COMPLETED, attempt=attempt)
        exhausted, turn = answer.exhausted, answer.turn
        # An item waits for more to be spent; one that its own turn's limit stopped has failed.
        is_waiting = exhausted is not None and turn is not None and not prompts.is_of_turn(exhausted, turn, self.run)
        if exhausted is not None and is_waiting:
            if task.is_alone or exhausted.details.get("scope") != Scope.TURN:
                self._exhausted = exhausted
            self._is_alone = True
        if is_waiting or prompts.is_of_process(turn):
            return replace(put_back(item), attempt=attempt, error_kind=failure.kind, error=failure.message)
        return settle_failure(self.run, item, failure, attempt)

    def settle_cancelled(self, started: StartedItem[AgentTask]) -> maps.Settlement:
        item = started.item
        turn = self._turns.pop(item.number, None)
        self._parts.pop(item.number, None)
        ended = None if turn is None else load_turn(turn.id, session_id=turn.session_id)
        reason = TurnCancelled(gettext_noop("The run was cancelled before the sub-agent had answered."))
        attempt = _attempt(item, TurnResult(turn=ended, text="", duration_ms=started.duration_ms, failure=None))
        return settlement(item, maps.ItemState.CANCELLED, attempt=attempt, error=reason.message, excused=True)

    def _create_child(self, prepared: PreparedItem[AgentTask]) -> str:
        """Create a sub-agent's session; it has no more tools than the run's where a model asked for the run."""
        spec, own, turn = self.run.spec, self.session.config, session_config(self.session.config).turn
        tools = turn.tools if spec.tools is None else spec.tools
        if self.run.turn_id:
            tools = tuple(name for name in tools if name in turn.tools)
        changed = {
            "tools": list(tools),
            "max_steps": spec.max_turns,
            "read_only": spec.read_only or turn.read_only,
            "unattended": True,
        }
        return session_store.create_session(
            owner=get_user_model().objects.get(pk=self.run.owner_id),
            model=self.spec.alias,
            title=f"Item {prepared.item.number}: {excerpt(prepared.question.message, TITLE_CHARACTERS)}",
            agent="map",
            system_prompt=spec.system_prompt or prompts.SYSTEM_PROMPT,
            config=without_instructions(own) | {"turn": own.get("turn", {}) | changed},
            parent_id=self.run.session_id,
            origin=SUB_AGENT,
        )

    async def _run_turn(self, started: StartedItem[AgentTask]) -> TurnRecord:
        """Return the unjudged turn when it has ended, or a new one."""
        task, item = started.question, started.item
        if task.unjudged is not None:
            runner.start_heartbeat()  # its sweep ends the turns of dead workers
            ended = await self._wait_for(task.unjudged, item)
            if ended.state not in CUT_SHORT:
                return ended

        def claim() -> TurnRecord:
            return claim_turn(
                task.child_id,
                owner_id=self.run.owner_id,
                message=task.message,
                idempotency_key=f"{self.run.id} {item.number} {item.attempts}",
                lease_owner=runner.owner,
                options=TurnOptions(limits=task.limits, parameters=Parameters(temperature=self.run.spec.temperature)),
            ).turn

        turn = await launched(claim)
        with runner.release_slot(turn.id):
            runner.start(turn)
            return await self._wait_for(turn, item)

    async def _wait_for(self, turn: TurnRecord, item: maps.ItemRecord) -> TurnRecord:
        """Return a turn when it has ended. It ends with its waiter, and where it would wait for a person."""
        self._turns[item.number] = turn
        try:
            now = await lifecycle.wait_turn(turn.session_id, turn.id, owner_id=self.run.owner_id)
        except BaseException:
            await end_turn(turn, owner_id=self.run.owner_id)
            raise
        if now.state == TurnState.SUSPENDED:
            await end_turn(turn, owner_id=self.run.owner_id)
        return now

    def _result_of(
        self, started: StartedItem[AgentTask], turn: TurnRecord | None, failure: Failure | None = None
    ) -> TurnResult:
        if turn is None:
            return TurnResult(turn=None, text="", duration_ms=started.duration_ms, failure=failure)
        now = load_turn(turn.id, session_id=turn.session_id)
        text, exhausted = last_text(now), None
        failure = failure or prompts.failure_of_turn(turn, text, self.schema)
        if failure is not None and failure.kind is maps.ErrorKind.BUDGET:
            last = load_session(now.session_id).event_seq
            events = load_events(now.session_id, after=max(0, last - EVENTS_OF_AN_END))
            limits = [e.data for e in events if "scope" in e.data and e.data.get("turn_id") == now.id]
            exhausted = BudgetExhausted(now.error_message or "", **(limits[-1] if limits else {}))
        return TurnResult(turn=now, text=text, duration_ms=started.duration_ms, failure=failure, exhausted=exhausted)


def _attempt(item: maps.ItemRecord, result: TurnResult) -> maps.AttemptOutcome | None:
    if result.turn is None:
        return None
    return maps.AttemptOutcome(
        output=result.text,
        usage=prompts.usage_of_attempt(item, result.turn.usage, taken=used_by_tree(result.turn.session_id)),
        duration_ms=result.duration_ms,
        child_turn_id=result.turn.id,
    )
