"""Story: AgenticMap. A sub-agent for each item, in a session of its own: its context, tools, turns and record.

Each try is one turn of that session. Its last message is judged as a reply is; where it is no result, the next turn says
what was wrong with it. A turn that had ended when its worker died is judged by the next worker, and asked nothing again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model

from agents_app import map_store
from agents_app.map_queries import list_runs, load_run, load_tries
from agents_app.maps.executor import Begun, Ended, Ready, hopeless_item, put_back
from agents_app.maps.items import lines_of_items
from agents_app.maps.llm_map import failed_try
from agents_app.subagents.delegate import end_turn, last_text, launched
from agents_app.tools.memory.describing import describe_operator_run
from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn
from agents_app.turns.overview import used_by_tree
from agents_app.turns.runner import runner
from files_app.queries import load_file_reference
from mnesis_core.errors import BudgetExhausted, MnesisError, ModelCallAbandoned, NotFound, TurnCancelled
from mnesis_core.maps.agents import (
    SYSTEM_PROMPT,
    TIME_IS_UP,
    failure_of_turn,
    is_nothing,
    is_of_process,
    is_of_turn,
    limits_of_turn,
    next_message,
    usage_of_attempt,
    used_up,
)
from mnesis_core.maps.concurrency import Failure, is_deadly
from mnesis_core.maps.lines import read_item
from mnesis_core.maps.prompts import item_prompt, schema_of
from mnesis_core.maps.values import (
    AttemptOutcome,
    AttemptRecord,
    ErrorKind,
    ItemRecord,
    ItemState,
    RunRecord,
    Settlement,
)
from mnesis_core.records import SUB_AGENT, TurnRecord, TurnState
from mnesis_core.spending import Scope, TurnLimits
from mnesis_core.text import excerpt
from mnesis_core.turns.options import TurnOptions
from sessions_app.conf import get_spec, session_config
from sessions_app.database.threads import db
from sessions_app.rate_limit_pauses import RateLimitPause
from sessions_app.record import session_store
from sessions_app.record.change import Change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_turns, load_turn
from sessions_app.usage.limits import exhausted_at

logger = logging.getLogger(__name__)
EVENTS_OF_AN_END = 50
"""Of a session, behind the one that tells of the limit which ended its last turn."""
_CUT_SHORT = (TurnState.INTERRUPTED, TurnState.CANCELLED)
"""How a turn ends whose worker died, or lost its item to another one."""
MOST_TOLD = 20
"""Runs of its own that a sub-agent is told of when it goes on."""
TITLE = 60
"""Characters of a session's title that are made from its item's prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a sub-agent is to do next."""

    message: str
    child_id: str
    """Its session; empty: it is still to be made."""
    left: TurnRecord | None = None
    """A turn of it that nobody has judged: it is waited for, and nothing is asked."""
    limits: TurnLimits | None = None
    """Its part of what the run may spend."""
    is_alone: bool = False
    """Whether that is all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of a turn."""

    turn: TurnRecord | None
    text: str
    duration_ms: int
    failure: Failure | None
    """Why there is no result, or ``None``."""
    exhausted: BudgetExhausted | None = None
    """The limit that ended it."""


class AgenticTries:
    """See ``Trying``: the sub-agents of one run."""

    def __init__(self, run: RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> None:
        """:raises ModelNotFoundError: the run's model is not there any more."""
        self._session = load_session(run.session_id)
        self._config = session_config(self._session.config)
        self.run = run
        self.spec = get_spec(run.spec.model or self._session.model, user_id=run.owner_id)
        self._pause = pause_of(self.spec.alias)
        self._schema = schema_of(run.spec)
        self._content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
        self._turns: dict[int, TurnRecord] = {}
        """Of the items in flight."""
        self._parts: dict[int, TurnLimits | None] = {}
        """What these may spend of what is left for the run."""
        self._is_alone = False
        """Whether what is left of a limit is too little to be shared: one sub-agent at a time gets all of it."""
        self._exhausted: BudgetExhausted | None = None

    @property
    def resting(self) -> int:
        """Sub-agents that wait for runs of their own."""
        return sum(runner.is_waiting(turn.id) for turn in list(self._turns.values()))

    def prepare(self, items: Sequence[ItemRecord]) -> tuple[list[Ready[Task]], list[Ended]]:
        """Read, render, and look how far an earlier worker came."""
        tried = load_tries(self.run.id, [item.number for item in items if item.attempts > 1])
        ready, hopeless = [], []
        for item, line in lines_of_items(self._content_id, items):
            try:
                ready.append(Ready(item=item, question=self._task(item, line, tried.get(item.number, []))))
            except MnesisError as error:
                hopeless.append(hopeless_item(item, ErrorKind.VALIDATION, error.message))
        return ready, hopeless

    def begin(self, record: Change, ready: Sequence[Ready[Task]]) -> list[Begun[Task]]:
        """Make the sessions of new sub-agents."""
        if (exhausted := self._exhausted) is not None:
            self._exhausted = None
            raise exhausted
        run = load_run(self.run.id)
        if (line := used_up(run)) is not None and not self._parts:
            raise exhausted_at(line)
        if line is not None or (self._is_alone and self._parts):
            return []
        allowed = [self._with_session(each) for each in self._with_parts(run, ready)]
        map_store.note_claimed(record, self.run.id, {each.item.number: each.question.child_id for each in allowed})
        return [Begun(ready=each) for each in allowed]

    async def ask(self, begun: Begun[Task]) -> Answered:
        """Run a turn to its end, no longer than the run allows."""
        self._parts[begun.ready.item.number] = begun.ready.question.limits
        seconds = self.run.spec.timeout_seconds
        await self._pause.wait()  # its own calls wait there too, but a turn's time is better spent on asking
        try:
            async with asyncio.timeout(seconds):
                turn = await self._run_turn(begun)
            return await db(self._ended, begun, turn)
        except TimeoutError:
            failure = Failure(kind=ErrorKind.TIMEOUT, message=TIME_IS_UP.format(seconds=seconds))
        except MnesisError as error:
            failure = Failure(kind=ErrorKind.TOOL_ERROR, message=error.message)
        except Exception:  # whatever breaks, the item has an end
            logger.exception("a sub-agent of run %s broke", self.run.id)
            failure = Failure(kind=ErrorKind.TOOL_ERROR, message=ModelCallAbandoned().message)
        return await db(self._ended, begun, self._turns.get(begun.ready.item.number), failure)

    def settle(self, begun: Begun[Task], answer: Answered) -> Settlement:
        """Judge what was said last."""
        item, failure = begun.ready.item, answer.failure
        self._turns.pop(item.number, None)
        self._parts.pop(item.number, None)
        attempt = self._attempt(item, answer)
        if failure is None:
            return Settlement(item=item.number, number=item.attempts, state=ItemState.COMPLETED, attempt=attempt)
        if is_of_process(answer.turn) or (
            answer.exhausted is not None and self._is_to_wait(begun.ready.question, answer)
        ):
            return replace(put_back(item), attempt=attempt, error_kind=failure.kind, error=failure.message)
        return failed_try(self.run, item, failure, attempt)

    def cut_off(self, begun: Begun[Task]) -> Settlement:
        """The settlement of an item whose turn was ended with its run."""
        item = begun.ready.item
        turn = self._turns.pop(item.number, None)
        self._parts.pop(item.number, None)
        ended = None if turn is None else load_turn(turn.id, session_id=turn.session_id)
        reason = TurnCancelled("The run was cancelled before the sub-agent had answered.")
        return Settlement(
            item=item.number,
            number=item.attempts,
            state=ItemState.CANCELLED,
            attempt=self._attempt(item, Answered(turn=ended, text="", duration_ms=begun.duration_ms, failure=None)),
            error=reason.message,
            excused=True,
        )

    def _task(self, item: ItemRecord, line: bytes, tries: Sequence[AttemptRecord]) -> Task:
        """:raises MnesisError: the item cannot be asked about, or every process that tried it died."""
        if is_deadly(item.excused):
            raise ModelCallAbandoned("Every process that tried this item ended before it had a result.")
        prompt = item_prompt(self.run.spec, read_item(line))
        turns = self._turns_of(item.child_session_id)
        if turns is None:
            return Task(message=prompt, child_id="")
        if not turns:
            return Task(message=prompt, child_id=item.child_session_id)
        judged, own = {one.child_turn_id for one in tries}, (turns[0].idempotency_key or "").startswith(self.run.id)
        is_left = own and turns[0].id not in judged and turns[0].state not in _CUT_SHORT
        message = "\n\n".join([next_message(tries), *map(describe_operator_run, _asked_for_by(turns[0]))])
        return Task(message=message, child_id=item.child_session_id, left=turns[0] if is_left else None)

    def _turns_of(self, child_id: str) -> list[TurnRecord] | None:
        """The newest turn of a sub-agent, if it has any; ``None`` where there is no such session any more."""
        with suppress(NotFound):
            return list_turns(load_session(child_id, owner_id=self.run.owner_id).id, limit=1) if child_id else None
        return None

    def _with_parts(self, run: RunRecord, ready: Sequence[Ready[Task]]) -> list[Ready[Task]]:
        """As many as there is something left for beside those in flight, each with its part of it."""
        slots, parts, found = 1 if self._is_alone else run.spec.concurrency, list(self._parts.values()), []
        for each in ready[:slots]:
            limits = limits_of_turn(run, slots=slots, given=parts)
            if parts and is_nothing(limits):
                break
            parts.append(limits)
            found.append(replace(each, question=replace(each.question, limits=limits, is_alone=self._is_alone)))
        return found

    def _with_session(self, ready: Ready[Task]) -> Ready[Task]:
        if ready.question.child_id:
            return ready
        child_id = session_store.create_session(
            owner=get_user_model().objects.get(pk=self.run.owner_id),
            model=self.spec.alias,
            title=f"Item {ready.item.number}: {excerpt(ready.question.message, TITLE)}",
            agent="map",
            system_prompt=self.run.spec.system_prompt or SYSTEM_PROMPT,
            config=self._config_of_child(),
            parent_id=self.run.session_id,
            origin=SUB_AGENT,
        )
        return replace(ready, question=replace(ready.question, child_id=child_id))

    def _config_of_child(self) -> dict[str, Any]:
        """The session's own configuration, with no more tools than it has where a model asked for the run."""
        spec, own, turn = self.run.spec, self._session.config, self._config.turn
        names = turn.tools if spec.tools is None else spec.tools
        if self.run.turn_id:
            names = tuple(name for name in names if name in turn.tools)
        changed = {
            "tools": list(names),
            "max_steps": spec.max_turns,
            "read_only": spec.read_only or turn.read_only,
            "unattended": True,
        }
        return own | {"turn": own.get("turn", {}) | changed}

    async def _run_turn(self, begun: Begun[Task]) -> TurnRecord:
        """The turn that was left behind when it has ended, or else a new one."""
        if (left := begun.ready.question.left) is not None:
            runner.start_heartbeat()  # its sweep ends the turns of dead workers
            ended = await self._end_of(begun, left)
            if ended.state not in _CUT_SHORT:
                return ended
        turn = await launched(self._claim, begun.ready)
        with runner.release_slot(turn.id):
            runner.start(turn)
            return await self._end_of(begun, turn)

    async def _end_of(self, begun: Begun[Task], turn: TurnRecord) -> TurnRecord:
        """A turn when it has ended; it ends with whoever waits, and where it would wait for somebody."""
        self._turns[begun.ready.item.number] = turn
        try:
            now = await lifecycle.wait_turn(turn.session_id, turn.id, owner_id=self.run.owner_id)
        except BaseException:
            await end_turn(turn, owner_id=self.run.owner_id)
            raise
        if now.state == TurnState.SUSPENDED:
            await end_turn(turn, owner_id=self.run.owner_id)
        return now

    def _claim(self, ready: Ready[Task]) -> TurnRecord:
        task, item = ready.question, ready.item
        started = claim_turn(
            task.child_id,
            owner_id=self.run.owner_id,
            message=task.message,
            idempotency_key=f"{self.run.id} {item.number} {item.attempts}",
            lease_owner=runner.owner,
            options=TurnOptions(limits=task.limits, temperature=self.run.spec.temperature),
        )
        return started.turn

    def _ended(self, begun: Begun[Task], turn: TurnRecord | None, failure: Failure | None = None) -> Answered:
        if turn is None:
            return Answered(turn=None, text="", duration_ms=begun.duration_ms, failure=failure)
        now = load_turn(turn.id, session_id=turn.session_id)
        text = last_text(now)
        failure = failure or failure_of_turn(turn, text, self._schema)
        is_over_budget = failure is not None and failure.kind is ErrorKind.BUDGET
        return Answered(
            turn=now,
            text=text,
            duration_ms=begun.duration_ms,
            failure=failure,
            exhausted=_exhausted_in(now) if is_over_budget else None,
        )

    def _attempt(self, item: ItemRecord, ended: Answered) -> AttemptOutcome | None:
        if ended.turn is None:
            return None
        return AttemptOutcome(
            output=ended.text,
            usage=usage_of_attempt(item, ended.turn.usage, taken=used_by_tree(ended.turn.session_id)),
            duration_ms=ended.duration_ms,
            child_turn_id=ended.turn.id,
        )

    def _is_to_wait(self, task: Task, ended: Answered) -> bool:
        """Whether an item waits for more to be spent; one that its own turn's limit stopped has failed."""
        if ended.exhausted is None or ended.turn is None:
            return False
        if is_of_turn(ended.exhausted, ended.turn, self.run):
            return False
        if task.is_alone or ended.exhausted.details.get("scope") != Scope.TURN:
            self._exhausted = ended.exhausted
        self._is_alone = True
        return True


def _asked_for_by(turn: TurnRecord) -> list[RunRecord]:
    """The runs that a turn which was cut short asked for: they go on, and who goes on with it need not ask again."""
    if turn.state not in _CUT_SHORT:
        return []
    return [run for run in list_runs(session_id=turn.session_id, limit=MOST_TOLD) if run.turn_id == turn.id][::-1]


def _exhausted_in(turn: TurnRecord) -> BudgetExhausted:
    """The limit that ended a turn, as its ledger tells of it."""
    last = load_session(turn.session_id).event_seq
    told = [event.data for event in load_events(turn.session_id, after=max(0, last - EVENTS_OF_AN_END))]
    details: dict[str, Any] = next(
        (data for data in reversed(told) if "scope" in data and data.get("turn_id") == turn.id), {}
    )
    return BudgetExhausted(turn.error_message or "", **details)
