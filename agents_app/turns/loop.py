"""One turn, from the user's message to the final answer: build the context, call the model, run the tools, repeat.

No transaction is open while a model or a tool is asked. A turn that another process gave up for dead cannot write over
what recovery wrote: every write is fenced (``transactions.held``).

The tool calls of one step run side by side, and each result is durable before the model is asked again. An error in a
tool is its result, not the end of the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agents_app.tools import Tool, ToolContext, call_tool, not_offered, offered_tools, permitted_tools
from agents_app.tools.definition import side_by_side
from agents_app.turns import transactions
from agents_app.turns.model_step import ModelCalls
from agents_app.turns.transactions import OpenCall, Progress, TurnEnd, load_progress
from compaction_app.context import Frame, load_frame
from mnesis_core.config import TurnConfig
from mnesis_core.context.fitting import cap_output
from mnesis_core.errors import BudgetExhausted, DoomLoop, MnesisError, StepLimitReached, TurnInterrupted
from mnesis_core.llm.interface import Model, Outcome, ToolCall
from mnesis_core.records import TurnRecord, TurnState, UsageRecord, add_usage
from mnesis_core.turns.inbox import PEER_TOOLS
from mnesis_core.turns.options import Made, call_made, read_options, repeats
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
REPEATED_CALL = "This exact call was made several times in a row. Do something else, or answer with what you know."


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The outcome of running the tool calls of one step."""

    tokens: int = 0  # of the results, estimated
    is_waiting: bool = False  # whether calls are left that the caller or a person must answer
    is_looping: bool = False  # whether one was made too often in a row
    exhausted: BudgetExhausted | None = None  # why one was not run, if no more may be made


class ToolCalls:
    """The tools that one turn may call, and what it has called so far."""

    def __init__(
        self,
        turn: TurnRecord,
        *,
        owner_id: int,
        tools: dict[str, Tool],
        spending: TurnSpending,
        callers: frozenset[str],
        config: TurnConfig,
        depth: int = 0,
        made: Sequence[Made] = (),
    ) -> None:
        self.turn = turn
        self.owner_id = owner_id
        self.tools = tools  # those that run here
        self.callers = callers  # names of those that the caller runs
        self.config = config
        self.depth = depth
        self.made = list(made)
        self.spending = spending
        self.exhausted: BudgetExhausted | None = None

    async def run(self, calls: Sequence[OpenCall]) -> StepResult:
        """Run the calls that may run here, and wait for all of them."""
        # An approved call was checked for loops before it waited.
        new = [call for call in calls if not call.is_approved]
        made = [call_made(call.call.name, call.call.arguments) for call in new]
        found = repeats(self.made, made, self.config.doom_loop_threshold)
        self.made += made
        looping = {call.part_id for call, is_loop in zip(new, found, strict=True) if is_loop}
        waiting = [call for call in calls if call.part_id not in looping and self._must_wait(call)]
        running = [call for call in calls if call not in waiting]
        tokens = await side_by_side(self._run(call, is_loop=call.part_id in looping) for call in running)
        return StepResult(
            tokens=sum(tokens), is_waiting=bool(waiting), is_looping=bool(looping), exhausted=self.exhausted
        )

    def _must_wait(self, call: OpenCall) -> bool:
        if call.call.name in self.callers:
            return True
        tool = self.tools.get(call.call.name)
        if tool is None or call.is_approved:
            return False
        return tool.needs_approval or tool.spec.name in self.config.ask_before

    async def _run(self, open_call: OpenCall, *, is_loop: bool) -> int:
        """Run one tool and write its result; return the result's tokens."""
        part_id = open_call.part_id
        output: str | None = None
        error: str | None = REPEATED_CALL
        try:
            time_limit = await patiently(
                transactions.start_tool,
                self.turn,
                part_id,
                limits=self.spending.limits,
                repeats=self.config.doom_loop_threshold if is_loop else None,
            )
        except BudgetExhausted as problem:
            self.exhausted, error = problem, f"{problem.code}: {problem.message}"
        else:
            self.spending.start_timer(time_limit)
            if not is_loop:
                output, error = await self._call(open_call.call, part_id)
        inline = self.config.tool_output_inline
        return await patiently(transactions.finish_tool, self.turn, part_id, output=output, error=error, inline=inline)

    async def _call(self, call: ToolCall, part_id: str) -> tuple[str | None, str | None]:
        """Return the output of a tool, or its error."""
        context = ToolContext(
            session_id=self.turn.session_id,
            owner_id=self.owner_id,
            turn_id=self.turn.id,
            part_id=part_id,
            depth=self.depth,
        )
        seconds, limit = self.config.tool_timeout_seconds, self.config.tool_output_limit
        late = partial(transactions.keep_late_output, self.turn, part_id, limit=limit)
        try:
            if call.name not in self.tools:
                raise not_offered(call.name, self.tools)
            output = await call_tool(self.tools[call.name], context, call.arguments, longest_seconds=seconds, late=late)
            return cap_output(output, limit), None
        except TimeoutError as problem:
            return None, str(problem) or "The tool's own waiting took too long."
        except MnesisError as problem:
            return None, f"{problem.code}: {problem.message}"
        except Exception as problem:
            logger.exception("tool %s failed", call.name)
            return None, f"The tool failed: {type(problem).__name__}"


class TurnRun:
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
        self.stops_at_loop = (options.on_doom_loop or config.on_doom_loop) == "stop"
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
        """Run the open tool calls, ask the model, and repeat, until it answers, loops or reaches a limit.

        ``None``: the turn is suspended, and the process that takes the last answer it waits for resumes it.

        :raises BudgetExhausted: what may be spent is used up, also in the middle of an answer.
        """
        calls = self.progress.open_calls
        async with self.spending.hard_stop():
            while True:
                result = await self.tool_calls.run(calls)
                self.model_calls.grown += result.tokens
                if result.exhausted is not None:
                    raise result.exhausted
                if result.is_looping and self.stops_at_loop:
                    return _end_of_error(DoomLoop(), TurnState.INCOMPLETE)
                if result.is_waiting and (state := await self._suspend()) is not TurnState.RUNNING:
                    return None if state is TurnState.SUSPENDED else CANCELLED
                if self.progress.steps >= self.max_steps:
                    return _end_of_error(StepLimitReached(steps=self.max_steps), TurnState.INCOMPLETE)
                reply, calls = await self.model_calls.ask_model()
                if reply.error is not None:
                    return _end_of_error(reply.error, STATE_OF[reply.outcome])
                if not calls:
                    return TurnEnd(state=STATE_OF[reply.outcome])

    async def _suspend(self) -> TurnState:
        asked = self.model_calls
        return await patiently(
            transactions.suspend_turn, self.turn, ratio=asked.shared_ratio, context=asked.context_now()
        )

    async def finish(self, end: TurnEnd) -> None:
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


async def run_turn(
    turn: TurnRecord, *, is_resumed: bool = False, is_shutdown: Callable[[], bool] = lambda: False
) -> bool:
    """Run a claimed turn until it ends or is suspended. Never raises, also when it is cancelled.

    Return whether it ended in a session that stays alive for messages.
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
    # In one thread: also the context of the turn's first call, if it begins with one.
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


def _end_of_error(error: MnesisError, state: TurnState) -> TurnEnd:
    return TurnEnd(state=state, error_code=error.code, error_message=error.message)
