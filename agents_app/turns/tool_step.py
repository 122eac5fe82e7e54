"""The tool calls of one turn: which run here and now, which wait for somebody, which are made in circles.

The calls of one step run side by side, and each result is durable before the model is asked again. Whatever goes wrong
in a tool is its result, not the end of the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from agents_app.tools import Tool, ToolContext, call_tool, not_offered
from agents_app.turns import transactions
from agents_app.turns.progress import OpenCall
from mnesis_core.config import TurnConfig
from mnesis_core.context.tool_outputs import cap_output
from mnesis_core.errors import BudgetExhausted, MnesisError
from mnesis_core.llm.interface import ToolCall
from mnesis_core.records import TurnRecord
from mnesis_core.turns.recording import Made, call_made, repeats
from sessions_app.database.outages import patiently
from sessions_app.usage.limits import TurnSpending

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

GOING_ROUND = "This exact call was made several times in a row. Do something else, or answer with what you know."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What running the calls of a step came to."""

    tokens: int = 0
    """Of the results, estimated."""
    is_waiting: bool = False
    """Whether calls are left that somebody else must answer."""
    is_going_round: bool = False
    """Whether one was made too often in a row."""
    exhausted: BudgetExhausted | None = None
    """Why one was not run, if no more may be made."""


async def side_by_side(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Their results, in order. The first error ends all of them, as a cancellation does; none outlives this.

    :raises Exception: what the first that failed raises
    """
    # No task group: where a call that is cancelled fails, it would raise that failure in the place of the cancellation.
    running = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        for task in running:
            if not task.cancelling():  # twice would hit it while it writes what it has
                task.cancel()
        await asyncio.wait(running)
        raise


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
        """``callers`` are the names of the tools that the caller runs itself, ``tools`` those that run here."""
        self.turn = turn
        self.owner_id = owner_id
        self.tools = tools
        self.callers = callers
        self.config = config
        self.depth = depth
        self.made = list(made)
        self.spending = spending
        self.exhausted: BudgetExhausted | None = None

    async def run(self, calls: Sequence[OpenCall]) -> Ran:
        """Run what may run here, and wait for all of it."""
        looping = self._looping(calls)
        waiting = [call for call in calls if call.part_id not in looping and self._waits(call)]
        running = [call for call in calls if call not in waiting]
        tokens = await side_by_side(self._run(call, is_loop=call.part_id in looping) for call in running)
        return Ran(tokens=sum(tokens), is_waiting=bool(waiting), is_going_round=bool(looping), exhausted=self.exhausted)

    def _looping(self, calls: Sequence[OpenCall]) -> set[str]:
        """The parts of the calls that were made too often in a row; an approved one was looked at before."""
        new = [call for call in calls if not call.is_approved]
        made = [call_made(call.call.name, call.call.arguments) for call in new]
        found = repeats(self.made, made, self.config.doom_loop_threshold)
        self.made += made
        return {call.part_id for call, is_loop in zip(new, found, strict=True) if is_loop}

    def _waits(self, call: OpenCall) -> bool:
        if call.call.name in self.callers:
            return True
        tool = self.tools.get(call.call.name)
        if tool is None or call.is_approved:
            return False
        return tool.needs_approval or tool.spec.name in self.config.ask_before

    async def _run(self, open_call: OpenCall, *, is_loop: bool) -> int:
        """Run one tool and make its result durable; returns the tokens of it."""
        repeated = self.config.doom_loop_threshold if is_loop else None
        inline = self.config.tool_output_inline
        try:
            limits = self.spending.limits
            time_limit = await patiently(
                transactions.start_tool, self.turn, open_call.part_id, limits=limits, repeats=repeated
            )
        except BudgetExhausted as problem:
            self.exhausted, said = problem, f"{problem.code}: {problem.message}"
            return await patiently(
                transactions.finish_tool, self.turn, open_call.part_id, output=None, error=said, inline=inline
            )
        self.spending.start_timer(time_limit)
        output, error = (None, GOING_ROUND) if is_loop else await self._result(open_call.call, open_call.part_id)
        return await patiently(
            transactions.finish_tool, self.turn, open_call.part_id, output=output, error=error, inline=inline
        )

    async def _result(self, call: ToolCall, part_id: str) -> tuple[str | None, str | None]:
        try:
            return await self._output(call, part_id), None
        except TimeoutError as problem:
            return None, str(problem) or "The tool's own waiting took too long."
        except MnesisError as problem:
            return None, f"{problem.code}: {problem.message}"
        except Exception as problem:
            logger.exception("tool %s failed", call.name)
            return None, f"The tool failed: {type(problem).__name__}"

    async def _output(self, call: ToolCall, part_id: str) -> str:
        if call.name not in self.tools:
            raise not_offered(call.name, self.tools)
        context = ToolContext(
            session_id=self.turn.session_id,
            owner_id=self.owner_id,
            turn_id=self.turn.id,
            part_id=part_id,
            depth=self.depth,
        )
        seconds = self.config.tool_timeout_seconds
        late = partial(transactions.keep_late_output, self.turn, part_id, limit=self.config.tool_output_limit)
        output = await call_tool(self.tools[call.name], context, call.arguments, longest_seconds=seconds, late=late)
        return cap_output(output, self.config.tool_output_limit)
