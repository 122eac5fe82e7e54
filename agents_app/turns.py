"""One turn, from the user's message to the final answer: build the context, call, run tools, again.

No transaction is open while a model or a tool is asked. A turn that was given up for dead by another
process cannot write over what recovery wrote: every write is fenced (``steps.held``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from agents_app import steps
from agents_app.answer import Answer
from agents_app.steps import Step, TurnEnd
from agents_app.tools import ToolContext, find_tool, tool_specs
from compaction_app.compact import relieve
from compaction_app.context import BuiltContext, Frame, load_frame, read_state
from mnesis_core.budget import Pressure, pressure
from mnesis_core.calibration import Calibration, calibrate, share_ratio
from mnesis_core.errors import MnesisError, TurnInterrupted
from mnesis_core.limits import spec_in_session
from mnesis_core.llm import Model, Outcome, Reply, Request, Source, ToolCall, Usage, cost_micros
from mnesis_core.measure import Asked, Size, size_now
from mnesis_core.messages import TextPart, ToolPart
from mnesis_core.record import TurnRecord, TurnState, UsageRecord
from mnesis_core.recording import usage_record
from mnesis_core.tokens import estimate_message, estimate_text
from sessions_app.conf import get_model
from sessions_app.database import db, work
from sessions_app.live import hub

logger = logging.getLogger(__name__)

STATE_OF = {
    Outcome.COMPLETE: TurnState.COMPLETED,
    Outcome.INCOMPLETE: TurnState.INCOMPLETE,
    Outcome.BROKEN: TurnState.INTERRUPTED,
    Outcome.FAILED: TurnState.FAILED,
    Outcome.CANCELLED: TurnState.CANCELLED,
}
GOING_ROUND = "This exact call was made several times in a row. Do something else, or answer with what you know."


class TurnRun:
    """One running turn."""

    def __init__(self, turn: TurnRecord, frame: Frame, model: Model) -> None:
        self.turn = turn
        self.frame = frame
        self.session = frame.session
        self.config = frame.config
        self.model = model
        self.spec = spec_in_session(model.spec, frame.config)
        self.tools = tool_specs(frame.config.turn.tools)
        self.step: Step | None = None
        self.usage: Usage | None = None
        self.cost_micros: int | None = None
        self.learnt = Calibration()
        self.asked: Asked | None = None
        self.grown = 0
        """Estimated tokens that have come into the context since the model was asked."""
        self.recent_calls: list[tuple[str, str]] = []

    async def run(self) -> TurnEnd:
        """Call the model, run the tools it asks for, and again, until it answers or the limit is reached."""
        for _ in range(self.config.turn.max_steps):
            reply, calls = await self._ask()
            if reply.error is not None or not calls:
                return _end_of(reply)
            await asyncio.gather(*(self._run_tool(call, part_id) for call, part_id in calls))
        return TurnEnd(
            state=TurnState.INCOMPLETE,
            error_code="STEP_LIMIT_REACHED",
            error_message=f"The turn stopped after {self.config.turn.max_steps} model calls. Send a message to go on.",
        )

    async def finish(self, end: TurnEnd) -> None:
        """Write the turn's end with everything it used."""
        usage = UsageRecord() if self.usage is None else usage_record(self.usage, cost=self.cost_micros)
        ratio = share_ratio(self.spec.shared_ratio, self.learnt)
        context = self._context_now()
        await db(steps.finish_turn, self.turn, end, step=self.step, usage=usage, ratio=ratio, context=context)
        if self.step is not None:
            hub.drop_text(self.session.id, self.step.message_id)

    async def _ask(self) -> tuple[Reply, list[tuple[ToolCall, str]]]:
        context = await self._fitting_context()
        request = Request(payload=context.payload, max_output_tokens=context.budget.reserved_output)
        message_id, call_id = await db(steps.begin_step, self.turn, self.spec, context, request)
        answer = Answer(session_id=self.session.id, message_id=message_id, config=self.config.stream)
        self.step = Step(message_id=message_id, call_id=call_id, answer=answer)
        reply = await self._stream(self.step, request)
        self._count(reply.usage)
        self._learn(context, reply)
        calls = await db(steps.end_step, self.turn, self.spec, self.step, reply)
        self.grown = _tokens_of(self.step, [call for call, _ in calls])
        self.step = None
        hub.drop_text(self.session.id, message_id)
        return reply, calls

    async def _fitting_context(self) -> BuiltContext:
        context = await db(self._build)
        size = size_now(context.whole_tokens, self.frame.calibration, self.asked)
        if pressure(size.tokens, context.budget) is Pressure.HARD and self.config.compaction.auto:
            await relieve(self.session.id, size=size)
            context = await db(self._build)
        self.asked = Asked(whole=context.whole_tokens, sent=context.estimated_tokens)
        self.grown = 0
        return context

    def _build(self) -> BuiltContext:
        return read_state(self.frame).build(self.tools)

    def _learn(self, context: BuiltContext, reply: Reply) -> None:
        """What the provider's count tells of this context, and of our estimates."""
        if reply.usage.source is not Source.PROVIDER or self.asked is None:
            return
        self.learnt = calibrate(context.calibration, context.estimated_tokens, reply.usage.input_tokens)
        self.frame = replace(self.frame, calibration=self.learnt)
        self.asked = replace(self.asked, reported=reply.usage.input_tokens)

    def _context_now(self) -> tuple[Frame, Size] | None:
        """The size of the context, from what this turn knows of it: nothing is read."""
        if self.asked is None:
            return None
        grown = self.grown if self.step is None else _tokens_of(self.step, [])
        return self.frame, size_now(self.asked.whole + grown, self.frame.calibration, self.asked)

    async def _stream(self, step: Step, request: Request) -> Reply:
        """Stream the answer; a call that failed before its first token is tried again where that may help."""
        config = self.config.turn
        while True:
            reply = await step.answer.stream(self.model, request)
            if not _may_pass(reply) or step.answer.types or step.attempts > config.max_retries:
                return reply
            await db(steps.note_retry, self.turn, step, reply.error.code if reply.error else "")
            await asyncio.sleep(config.retry_base_seconds * 2 ** (step.attempts - 1))
            step.attempts += 1

    async def _run_tool(self, call: ToolCall, part_id: str) -> None:
        """Run one tool and make its result durable; whatever goes wrong is the result."""
        repeats = self._repeats(call)
        await db(steps.start_tool, self.turn, part_id, repeats=repeats)
        output, error = (None, GOING_ROUND) if repeats else await self._result(call)
        self.grown += estimate_text(output or error or "")
        await db(steps.finish_tool, self.turn, part_id, output=output, error=error)

    async def _result(self, call: ToolCall) -> tuple[str | None, str | None]:
        try:
            return await self._output(call), None
        except TimeoutError:
            return None, f"The tool did not answer within {self.config.turn.tool_timeout_seconds:g} seconds."
        except MnesisError as problem:
            return None, f"{problem.code}: {problem.message}"
        except Exception as problem:
            logger.exception("tool %s failed", call.name)
            return None, f"The tool failed: {type(problem).__name__}"

    async def _output(self, call: ToolCall) -> str:
        tool = find_tool(call.name)
        context = ToolContext(session_id=self.session.id, owner_id=self.session.owner_id)
        seconds = min(tool.timeout_seconds, self.config.turn.tool_timeout_seconds)
        output = await asyncio.wait_for(work(tool.call, context, call.arguments), seconds)
        limit = self.config.turn.tool_output_limit
        return output if len(output) <= limit else f"{output[:limit]}\n[cut: the output had {len(output):,} characters]"

    def _repeats(self, call: ToolCall) -> int | None:
        """How often this exact call was made in a row, if that is too often."""
        threshold = self.config.turn.doom_loop_threshold
        self.recent_calls = [*self.recent_calls, (call.name, call.arguments)][-threshold:]
        is_loop = len(self.recent_calls) == threshold and len(set(self.recent_calls)) == 1
        return threshold if is_loop else None

    def _count(self, usage: Usage) -> None:
        cost = cost_micros(self.spec, usage)
        self.cost_micros = cost if cost is None else cost + (self.cost_micros or 0)
        before = self.usage or Usage(input_tokens=0, output_tokens=0)
        self.usage = replace(
            usage,
            input_tokens=before.input_tokens + usage.input_tokens,
            output_tokens=before.output_tokens + usage.output_tokens,
            cache_read_tokens=before.cache_read_tokens + usage.cache_read_tokens,
            cache_write_tokens=before.cache_write_tokens + usage.cache_write_tokens,
        )


async def run_turn(turn: TurnRecord, *, is_shutdown: Callable[[], bool] = lambda: False) -> None:
    """Run a claimed turn to its end, whatever happens. Never raises, also when it is cancelled."""
    run: TurnRun | None = None
    try:
        run = await _load(turn)
        end = await run.run()
    except asyncio.CancelledError:
        end = _end_of_error(TurnInterrupted(), TurnState.INTERRUPTED) if is_shutdown() else _CANCELLED
    except MnesisError as error:
        end = _end_of_error(error, TurnState.FAILED)
    except Exception:
        logger.exception("turn %s failed", turn.id)
        end = _end_of_error(MnesisError(), TurnState.FAILED)
    await _finish(turn, run, end)


_CANCELLED = TurnEnd(state=TurnState.CANCELLED)


async def _load(turn: TurnRecord) -> TurnRun:
    frame = await db(load_frame, turn.session_id)
    return TurnRun(turn, frame, await db(get_model, turn.model))


async def _finish(turn: TurnRecord, run: TurnRun | None, end: TurnEnd) -> None:
    try:
        if run is None:
            await db(steps.finish_turn, turn, end, step=None, usage=UsageRecord())
        else:
            await run.finish(end)
    except Exception:
        # Taken over by recovery, or the database is away: then the lease runs out and recovery closes it.
        logger.exception("turn %s could not write its end", turn.id)


def _tokens_of(step: Step, calls: Sequence[ToolCall]) -> int:
    """What an answer adds to the context, in estimated tokens: reasoning is not sent again."""
    texts = [part for part in step.answer.parts if isinstance(part, TextPart)]
    tools = [ToolPart(tool_name=call.name, tool_call_id=call.id, input=call.arguments) for call in calls]
    return estimate_message((*texts, *tools))


def _may_pass(reply: Reply) -> bool:
    return reply.outcome is Outcome.FAILED and reply.error is not None and reply.error.retriable


def _end_of(reply: Reply) -> TurnEnd:
    state = STATE_OF[reply.outcome]
    return TurnEnd(state=state) if reply.error is None else _end_of_error(reply.error, state)


def _end_of_error(error: MnesisError, state: TurnState) -> TurnEnd:
    return TurnEnd(state=state, error_code=error.code, error_message=error.message)
