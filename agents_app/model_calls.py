"""The model calls of one turn: which model is asked, what it is shown, and what its answers teach about counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents_app import steps
from agents_app.answer import Answer
from agents_app.asking import ask, learn_refusal, next_model
from agents_app.progress import OpenCall, Progress
from agents_app.steps import Step
from compaction_app.compact import relieve
from compaction_app.context import BuiltContext, Frame, read_state
from mnesis_core.budget import Pressure, pressure
from mnesis_core.calibration import Calibration, calibrate, share_ratio
from mnesis_core.limits import spec_in_place, spec_in_session
from mnesis_core.llm import Model, Reply, Request, Source, ToolCall, ToolSpec, Usage, cost_micros
from mnesis_core.measure import Asked, Size, size_now
from mnesis_core.messages import TextPart, ToolPart
from mnesis_core.record import TurnRecord, UsageRecord, add_usage
from mnesis_core.recording import usage_record
from mnesis_core.retrying import fallbacks_of, is_too_long, may_ask_another
from mnesis_core.tokens import estimate_message
from mnesis_core.turn_options import TurnOptions
from sessions_app.live import hub
from sessions_app.outages import patiently
from sessions_app.spending import TurnSpending

SMALLER_TRIES = 3
"""How often a model that refuses a prompt as too long is asked again, each time with a smaller one."""


class ModelCalls:
    """The model that one turn asks, or who stands in for it, and what is known of its context."""

    def __init__(
        self,
        turn: TurnRecord,
        home: Frame,
        frame: Frame,
        model: Model,
        *,
        options: TurnOptions,
        tool_specs: Sequence[ToolSpec],
        progress: Progress,
        spending: TurnSpending,
    ) -> None:
        """``home`` is the session's own frame, ``frame`` that of the turn's model; ``progress`` counts the calls and what they use; ``spending`` says what they may."""
        self.turn = turn
        self.options = options
        self.frame = _with_own_prompt(frame, options)
        self.home = _with_own_prompt(home, options)
        """The frame of the session's own model, also while another one is asked in its place."""
        self.session = frame.session
        self.config = frame.config
        self.model = model
        in_place = spec_in_session if turn.model == frame.session.model else spec_in_place
        self.spec = in_place(model.spec, frame.config)
        self.others = fallbacks_of(turn.model, of_session=self.config.fallbacks, of_entry=frame.spec.fallbacks)
        """Who is asked when the model gives nothing; then it stays asked until the turn ends or waits."""
        self.tool_specs = tool_specs
        self.progress = progress
        self.spending = spending
        self.step: Step | None = None
        """The call that runs; it stays when it is cut off."""
        self.learnt = Calibration()
        self.asked: Asked | None = None
        self.grown = 0
        """Estimated tokens that have come into the context since the model was asked."""
        self._built: BuiltContext | None = None
        """The context of the next call, if it was put together before."""

    def build_ahead(self) -> None:
        """Put the context of the first call together, so that no thread is asked for it again."""
        self._built = self._build()

    async def ask(self) -> tuple[Reply, list[OpenCall]]:
        """One answer: the next model's, as long as one gives nothing."""
        reply, calls = await self._ask_model()
        while may_ask_another(reply) and await self._change_model():
            reply, calls = await self._ask_model()
        return reply, calls

    def drop_text(self) -> None:
        """What the call that was cut off had said is in the record now."""
        if self.step is not None:
            hub.drop_text(self.session.id, self.step.message_id)

    @property
    def cut_off(self) -> UsageRecord:
        """What the call took that was cut off, if one was."""
        return UsageRecord() if self.step is None or self.step.is_counted else self.step.used_so_far()

    @property
    def shared_ratio(self) -> float | None:
        """What new sessions of the turn's model are to begin to count with, if that has changed."""
        is_own = self.spec.alias == self.turn.model
        return share_ratio(self.spec.shared_ratio, self.learnt) if is_own else None

    def context_now(self) -> tuple[Frame, Size] | None:
        """The size of the context, from what this turn knows of it: nothing is read."""
        if self.asked is None:
            return None
        grown = self.grown if self.step is None else _tokens_of(self.step, [])
        frame = replace(self.home, calibration=self.frame.calibration)
        return frame, size_now(self.asked.whole + grown, frame.calibration, self.asked)

    async def _change_model(self) -> bool:
        """Ask the next model from now on, in a call and with a context of its own; whether there is one."""
        other = await patiently(next_model, self.session, self.others)
        if other is None:
            return False
        self.model, self.others = other.model, other.others
        self.frame = _with_own_prompt(other.frame, self.options)
        self.spec = spec_in_place(other.model.spec, self.config)
        self.learnt, self.asked = Calibration(), None
        return True

    async def _ask_model(self) -> tuple[Reply, list[OpenCall]]:
        """What the model says, to a smaller prompt as long as it refuses one as too long and a smaller one can be made."""
        context = await self._fitting_context()
        reply, calls = await self._ask_once(context)
        for _ in range(SMALLER_TRIES):
            if not is_too_long(reply):
                break
            await self._learn_refusal()
            smaller = await self._fitting_context()
            if smaller.digest == context.digest:
                break
            context = smaller
            reply, calls = await self._ask_once(context)
        return reply, calls

    async def _learn_refusal(self) -> None:
        frame = await patiently(learn_refusal, self.session.id, self.spec.alias)
        self.frame = _with_own_prompt(frame, self.options)
        self.spec = replace(self.spec, shared_ratio=frame.spec.shared_ratio)
        if self.spec.alias == self.session.model:
            self.home = self.frame
        self.learnt, self.asked = frame.calibration, None

    async def _ask_once(self, context: BuiltContext) -> tuple[Reply, list[OpenCall]]:
        request = Request(
            payload=context.payload,
            max_output_tokens=context.budget.reserved_output,
            temperature=self.options.temperature,
        )
        system_prompt = self.options.system_prompt
        message_id, call_id = await patiently(
            steps.begin_step,
            self.turn,
            self.spec,
            context,
            request,
            spending=self.spending,
            system_prompt=system_prompt,
        )
        self.spending.start_timer()
        self.progress.steps += 1
        answer = Answer(session_id=self.session.id, message_id=message_id, config=self.config.stream)
        self.step = Step(
            message_id=message_id,
            call_id=call_id,
            answer=answer,
            spec=self.spec,
            prompt_tokens=context.assembled.used_tokens,
        )
        reply = await ask(self.turn, self.step, self.model, request, self.config)
        self._count(self.step, reply.usage)
        self._learn(context, reply)
        calls = await patiently(steps.end_step, self.turn, self.spec, self.step, reply)
        self.grown = _tokens_of(self.step, [open_call.call for open_call in calls])
        self.step = None
        hub.drop_text(self.session.id, message_id)
        return reply, calls

    async def _fitting_context(self) -> BuiltContext:
        built, self._built = self._built, None
        context = await patiently(self._build) if built is None else built
        size = size_now(context.whole_tokens, self.frame.calibration, self.asked)
        # A stand-in's smaller window makes nobody compact: what does not fit it is left out this once.
        if pressure(size.tokens, self.home.budget) is Pressure.HARD and self.config.compaction.auto:
            await relieve(self.session.id, size=size)
            context = await patiently(self._build)
        self.asked = Asked(whole=context.whole_tokens, sent=context.estimated_tokens)
        self.grown = 0
        return context

    def _build(self) -> BuiltContext:
        return read_state(self.frame).build(self.tool_specs)

    def _learn(self, context: BuiltContext, reply: Reply) -> None:
        """What the provider's count tells of this context, and of our estimates."""
        if reply.usage.source is not Source.PROVIDER or self.asked is None:
            return
        self.learnt = calibrate(context.calibration, context.estimated_tokens, reply.usage.input_tokens)
        self.frame = replace(self.frame, calibration=self.learnt)
        self.asked = replace(self.asked, reported=reply.usage.input_tokens)

    def _count(self, step: Step, usage: Usage) -> None:
        step.is_counted = True
        call = usage_record(usage, cost=cost_micros(self.spec, usage))
        self.progress.usage = add_usage(self.progress.usage, call)


def _with_own_prompt(frame: Frame, options: TurnOptions) -> Frame:
    if options.system_prompt is None:
        return frame
    return replace(frame, session=replace(frame.session, system_prompt=options.system_prompt))


def _tokens_of(step: Step, calls: Sequence[ToolCall]) -> int:
    """What an answer adds to the context, in estimated tokens: reasoning is not sent again."""
    texts = [part for part in step.answer.parts if isinstance(part, TextPart)]
    tools = [ToolPart(tool_name=call.name, tool_call_id=call.id, input=call.arguments) for call in calls]
    return estimate_message((*texts, *tools))
