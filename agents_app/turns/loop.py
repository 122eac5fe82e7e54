"""One turn, from the user's message to the final answer: build the context, call, run tools, again.

No transaction is open while a model or a tool is asked. A turn that was given up for dead by another
process cannot write over what recovery wrote: every write is fenced (``steps.held``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from agents_app.tools import Tool, offered_tools, permitted_tools
from agents_app.turns import transactions
from agents_app.turns.model_step import ModelCalls
from agents_app.turns.progress import Progress, load_progress
from agents_app.turns.tool_step import ToolCalls
from agents_app.turns.transactions import TurnEnd
from compaction_app.context import Frame, load_frame
from mnesis_core.errors import BudgetExhausted, DoomLoop, MnesisError, StepLimitReached, TurnInterrupted
from mnesis_core.llm.interface import Model, Outcome, Reply
from mnesis_core.records import TurnRecord, TurnState, UsageRecord, add_usage
from mnesis_core.turns.inbox import PEER_TOOLS
from mnesis_core.turns.options import read_options
from sessions_app.conf import get_model
from sessions_app.database.outages import log_failure, outage_of, patiently
from sessions_app.record.session_queries import load_depth
from sessions_app.usage.limits import TurnSpending, limits_for

logger = logging.getLogger(__name__)

STATE_OF = {
    Outcome.COMPLETE: TurnState.COMPLETED,
    Outcome.INCOMPLETE: TurnState.INCOMPLETE,
    Outcome.BROKEN: TurnState.INTERRUPTED,
    Outcome.FAILED: TurnState.FAILED,
    Outcome.CANCELLED: TurnState.CANCELLED,
}
CANCELLED = TurnEnd(state=TurnState.CANCELLED)


class TurnRun:
    """One running turn."""

    def __init__(
        self,
        turn: TurnRecord,
        frame: Frame,
        asked: Frame,
        model: Model,
        tools: dict[str, Tool],
        progress: Progress,
        depth: int,
        spending: TurnSpending,
    ) -> None:
        options, config = read_options(turn.options), frame.config.turn
        self.turn = turn
        self.is_host = frame.session.host_mode
        self.progress = progress
        self.spending = spending
        self.max_steps = config.max_steps
        self.stops_when_going_round = (options.on_doom_loop or config.on_doom_loop) == "stop"
        # The caller's own tool takes the place of the session's of the same name.
        tools = {name: tool for name, tool in tools.items() if name not in options.tool_names}
        specs = (*(tool.spec for tool in tools.values()), *options.tools)
        self.model_calls = ModelCalls(
            turn, frame, asked, model, options=options, tool_specs=specs, progress=progress, spending=spending
        )
        self.tool_calls = ToolCalls(
            turn,
            owner_id=frame.session.owner_id,
            depth=depth,
            tools=tools,
            spending=spending,
            callers=options.tool_names,
            config=config,
            made=progress.made,
        )

    async def run(self) -> TurnEnd | None:
        """Run the tools that were asked for, ask the model, and again, until it answers, goes round or may go no further.

        ``None``: the turn is suspended, and whoever answers what it waits for goes on with it.

        :raises BudgetExhausted: what may be spent is used up, also in the middle of an answer.
        """
        async with self.spending.hard_stop():
            return await self._go_on()

    async def _go_on(self) -> TurnEnd | None:
        calls = self.progress.open_calls
        while True:
            ran = await self.tool_calls.run(calls)
            self.model_calls.grown += ran.tokens
            if ran.exhausted is not None:
                raise ran.exhausted
            if ran.is_going_round and self.stops_when_going_round:
                return _end_of_error(DoomLoop(), TurnState.INCOMPLETE)
            if ran.is_waiting and (state := await self._suspend()) is not TurnState.RUNNING:
                return None if state is TurnState.SUSPENDED else CANCELLED
            if self.progress.steps >= self.max_steps:
                return _end_of_error(StepLimitReached(steps=self.max_steps), TurnState.INCOMPLETE)
            reply, calls = await self.model_calls.ask_model()
            if reply.error is not None or not calls:
                return _end_of(reply)

    async def finish(self, end: TurnEnd) -> None:
        """Write the turn's end with everything it used."""
        asked = self.model_calls
        await patiently(
            transactions.finish_turn,
            self.turn,
            end,
            step=asked.step,
            usage=add_usage(self.progress.usage, asked.cut_off),
            spending=self.spending,
            ratio=asked.shared_ratio,
            context=asked.context_now(),
        )
        asked.drop_text()

    async def _suspend(self) -> TurnState:
        asked = self.model_calls
        return await patiently(
            transactions.suspend_turn, self.turn, ratio=asked.shared_ratio, context=asked.context_now()
        )


async def run_turn(
    turn: TurnRecord, *, is_resumed: bool = False, is_shutdown: Callable[[], bool] = lambda: False
) -> bool:
    """Run a claimed turn until it ends or is suspended, whatever happens. Never raises, also when it is cancelled.

    Returns whether it ended in a session that stays alive for messages.
    """
    run: TurnRun | None = None
    try:
        run = await patiently(_load, turn, is_resumed)
        end = await run.run()
    except asyncio.CancelledError:
        end = _end_of_error(TurnInterrupted(), TurnState.INTERRUPTED) if is_shutdown() else CANCELLED
    except BudgetExhausted as error:
        end = replace(_end_of_error(error, TurnState.INCOMPLETE), exhausted=error.details)
    except MnesisError as error:
        end = _end_of_error(error, TurnState.FAILED)
    except Exception as error:
        log_failure(logger, "A turn failed", error)
        end = _end_of_error(outage_of(error) or MnesisError(), TurnState.FAILED)
    if end is not None:
        await _finish(turn, run, end)
    return end is not None and run is not None and run.is_host


def _load(turn: TurnRecord, is_resumed: bool) -> TurnRun:
    """Everything that a turn begins with, in one go: also the context of its first call, if it begins with one."""
    frame = load_frame(turn.session_id)
    depth = load_depth(frame.session) if frame.session.is_sub_agent else 0
    names = (*frame.config.turn.tools, *(PEER_TOOLS if frame.session.host_mode else ()))
    tools = permitted_tools(offered_tools(names, user_id=frame.session.owner_id, depth=depth), frame.config.turn)
    progress = load_progress(turn) if is_resumed else Progress()
    spending = TurnSpending(limits_for(frame.session, turn=turn))
    asked = frame if turn.model == frame.session.model else load_frame(turn.session_id, model=turn.model)
    model = get_model(turn.model, user_id=frame.session.owner_id)
    run = TurnRun(turn, frame, asked, model, tools, progress, depth, spending)
    if not progress.open_calls:
        run.model_calls.build_ahead()
    return run


async def _finish(turn: TurnRecord, run: TurnRun | None, end: TurnEnd) -> None:
    try:
        if run is None:
            await patiently(transactions.finish_turn, turn, end, step=None, usage=UsageRecord())
        else:
            await run.finish(end)
    except Exception as error:
        # Taken over by recovery, or the database is away: then the lease runs out and recovery closes it.
        log_failure(logger, "A turn could not write its end", error)


def _end_of(reply: Reply) -> TurnEnd:
    state = STATE_OF[reply.outcome]
    return TurnEnd(state=state) if reply.error is None else _end_of_error(reply.error, state)


def _end_of_error(error: MnesisError, state: TurnState) -> TurnEnd:
    return TurnEnd(state=state, error_code=error.code, error_message=error.message)
