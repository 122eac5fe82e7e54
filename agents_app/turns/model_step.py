"""One streamed answer: to the followers at once, to the journal in batches, whole at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from typing import ParamSpec, TypeVar

from agents_app.turns import transactions
from agents_app.turns.transactions import Answer, OpenCall, Progress, Step
from compaction_app.compact import compact_before_call
from compaction_app.context import BuiltContext, Frame, load_frame, read_state
from mnesis_core.context.fitting import LastPrompt, Pressure, Size, pressure, size_now
from mnesis_core.errors import ModelNotFoundError
from mnesis_core.llm.interface import (
    Model,
    Reply,
    Request,
    Source,
    ToolCall,
    ToolSpec,
    cost_micros,
    spec_in_place,
    spec_in_session,
    write_tools,
)
from mnesis_core.llm.retrying import fallbacks_of, is_too_long, patience_of
from mnesis_core.llm.tokens import LARGEST_RATIO, Calibration, calibrate, estimate_message, share_ratio
from mnesis_core.messages import Message, TextPart, ToolPart
from mnesis_core.records import SessionRecord, TurnRecord, UsageRecord, add_usage
from mnesis_core.spending import Spent
from mnesis_core.turns.options import TurnOptions, usage_record
from sessions_app.catalogue import model_store
from sessions_app.conf import get_model
from sessions_app.database.outages import patiently
from sessions_app.model_calls import ModelCaller, PlannedCall, RunningCall
from sessions_app.record import message_store
from sessions_app.record.change import Change
from sessions_app.record.hub import hub
from sessions_app.usage.limits import SpendingLimit, TurnSpending

P = ParamSpec("P")
R = TypeVar("R")
SHORTER_PROMPTS = 3  # a model that refuses a prompt as too long is asked again so often, each time with a shorter one


class ModelCalls(ModelCaller[tuple[Reply, list[OpenCall]]]):
    waits_for_pause = True

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
        self.turn, self.turn_id = turn, turn.id
        self.options = options
        self.frame = _with_own_prompt(frame, options)
        # The frame of the session's own model, also while another model is asked in its place.
        self.home = _with_own_prompt(home, options)
        self.session = frame.session
        self.config = frame.config
        self.patience = patience_of(frame.config.turn)
        self.model = model
        in_place = spec_in_session if turn.model == frame.session.model else spec_in_place
        self.spec = in_place(model.spec, frame.config)
        # The models to ask when this one gives nothing; one that answers stays until the turn ends or waits.
        self.others = fallbacks_of(turn.model, of_session=self.config.fallbacks, of_entry=frame.spec.fallbacks)
        self.tool_specs = tool_specs
        self.progress = progress
        self.spending = spending
        self.step: Step | None = None  # the call that runs; it stays when it is cut off
        self.learnt = Calibration()
        self.asked: LastPrompt | None = None
        self.grown = 0  # estimated tokens that have come into the context since the model was asked
        self._built: BuiltContext | None = None  # the context of the next call, not measured yet
        self._fitting: BuiltContext | None = None  # the context of the next call, measured
        self._context: BuiltContext | None = None  # the context of the call that runs
        self._shortened = 0  # prompts in a row that were made shorter

    def build_ahead(self) -> None:
        self._built = self._build()

    def drop_text(self) -> None:
        if self.step is not None:
            hub.drop_text(self.session.id, self.step.message_id)

    @property
    def cut_off(self) -> UsageRecord:
        return UsageRecord() if self.step is None or self.step.is_counted else self.step.used_so_far()

    @property
    def shared_ratio(self) -> float | None:
        """Return the ratio that new sessions of the turn's model are to count with, if it has changed."""
        is_own = self.spec.alias == self.turn.model
        return share_ratio(self.spec.shared_ratio, self.learnt) if is_own else None

    def context_now(self) -> tuple[Frame, Size] | None:
        """Return the size of the context, from what this turn knows of it; the database is not read."""
        if self.asked is None:
            return None
        grown = self.grown if self.step is None else _tokens_of(self.step, [])
        frame = replace(self.home, calibration=self.frame.calibration)
        return frame, size_now(self.asked.whole + grown, frame.calibration, self.asked)

    async def plan(self) -> PlannedCall:
        if self._fitting is None:
            self._fitting = await self._fit_context()
        self._context, self._fitting = self._fitting, None
        context, options = self._context, self.options
        texts = {"tools": write_tools(context.assembled.tools)} if context.assembled.tools else {}
        if options.system_prompt is not None:
            texts["system"] = options.system_prompt
        return PlannedCall(
            model=self.model,
            spec=self.spec,
            request=Request(
                payload=context.payload,
                max_output_tokens=context.budget.reserved_output,
                temperature=options.temperature,
                max_characters=self.config.stream.max_answer_characters,
            ),
            purpose="turn",
            prompt_tokens=context.assembled.used_tokens,
            estimated_tokens=context.estimated_tokens,
            parameters={
                "tool_tokens": context.assembled.breakdown.tools,
                "calibration": asdict(context.calibration),
                **({"in_place_of": self.turn.model} if self.spec.alias != self.turn.model else {}),
                **({} if options.temperature is None else {"temperature": options.temperature}),
            },
            manifest=context.assembled.manifest,
            digest=context.digest,
            context_seq=context.context_seq,
            texts=texts,
        )

    async def in_thread(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await patiently(call, *args, **kwargs)

    def held(self) -> AbstractContextManager[Change]:
        return transactions.held(self.turn)

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        return self.spending.limits

    def begin_message(self, record: Change, planned: PlannedCall) -> str:
        stub = Message(role="assistant", parts=())
        return message_store.append_message(record, turn_id=self.turn.id, message=stub, model=planned.spec.alias)

    def started(self, call: RunningCall) -> None:
        self.spending.start_timer(call.time_limit)
        self.progress.steps += 1
        message_id = call.message_id or ""
        answer = Answer(session_id=self.session.id, message_id=message_id, config=self.config.stream)
        self.step = Step(message_id=message_id, call=call, answer=answer)

    def seconds(self, call: RunningCall) -> float:
        return call.planned.model.spec.total_timeout_seconds

    async def receive(self, call: RunningCall, request: Request) -> Reply:
        return await self._running.answer.stream(call.planned.model, request)

    async def finish(self, call: RunningCall, reply: Reply) -> tuple[Reply, list[OpenCall]]:
        step = self._running
        step.is_counted = True
        used = usage_record(reply.usage, cost=cost_micros(self.spec, reply.usage))
        self.progress.usage = add_usage(self.progress.usage, used)
        if reply.usage.source is Source.PROVIDER and self._context is not None and self.asked is not None:
            tokens = reply.usage.input_tokens
            self.learnt = calibrate(self._context.calibration, self._context.estimated_tokens, tokens)
            self.frame = replace(self.frame, calibration=self.learnt)
            self.asked = replace(self.asked, reported=tokens)
        calls = await patiently(transactions.end_step, self.turn, step, reply)
        self.grown = _tokens_of(step, [open_call.call for open_call in calls])
        self.step = None
        hub.drop_text(self.session.id, step.message_id)
        if not is_too_long(reply):
            self._shortened = 0
        return reply, calls

    async def shorten_prompt(self) -> bool:
        if self._shortened == SHORTER_PROMPTS:
            return False
        self._shortened += 1
        frame = await patiently(learn_refusal, self.session.id, self.spec.alias)
        self.frame = _with_own_prompt(frame, self.options)
        self.spec = replace(self.spec, shared_ratio=frame.spec.shared_ratio)
        if self.spec.alias == self.session.model:
            self.home = self.frame
        self.learnt, self.asked = frame.calibration, None
        smaller = await self._fit_context()
        if self._context is not None and smaller.digest == self._context.digest:
            return False
        self._fitting = smaller
        return True

    async def use_next_model(self) -> bool:
        other = await patiently(next_model, self.session, self.others)
        if other is None:
            return False
        self.model, self.others = other.model, other.others
        self.frame = _with_own_prompt(other.frame, self.options)
        self.spec = spec_in_place(other.model.spec, self.config)
        self.learnt, self.asked, self._shortened = Calibration(), None, 0
        return True

    @property
    def _running(self) -> Step:
        if self.step is None:
            raise RuntimeError("no call runs")
        return self.step

    async def _fit_context(self) -> BuiltContext:
        built, self._built = self._built, None
        context = await patiently(self._build) if built is None else built
        size = size_now(context.whole_tokens, self.frame.calibration, self.asked)
        # A fallback's smaller window compacts nothing: what does not fit is left out of this one call.
        if pressure(size.tokens, self.home.budget) is Pressure.HARD and self.config.compaction.auto:
            await compact_before_call(self.session.id, size=size)
            context = await patiently(self._build)
        self.asked = LastPrompt(whole=context.whole_tokens, sent=context.estimated_tokens)
        self.grown = 0
        return context

    def _build(self) -> BuiltContext:
        return read_state(self.frame).build(self.tool_specs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    model: Model
    frame: Frame  # what the context is built and measured with for it
    others: tuple[str, ...]  # the models that are asked after it, if it gives nothing either


def next_model(session: SessionRecord, aliases: Sequence[str]) -> Fallback | None:
    """Return the first of these models that the session's owner may use; ``None`` where there is none."""
    for place, alias in enumerate(aliases, start=1):
        with suppress(ModelNotFoundError):
            model = get_model(alias, user_id=session.owner_id)
            return Fallback(model=model, frame=load_frame(session.id, model=alias), others=tuple(aliases[place:]))
    return None


def learn_refusal(session_id: str, alias: str) -> Frame:
    """Return what the session's next prompt is made with after a model refused one as too long.

    It is read from the record, so that any process learns the same. A ratio that the provider's own count has proven is
    kept for other sessions too.
    """
    frame = load_frame(session_id, model=alias)
    ratio = min(frame.calibration.ratio, LARGEST_RATIO)
    if not frame.calibration.samples or ratio <= (frame.spec.shared_ratio or 0):
        return frame
    model_store.share_ratio(alias, ratio)
    return replace(frame, spec=replace(frame.spec, shared_ratio=ratio))


def _with_own_prompt(frame: Frame, options: TurnOptions) -> Frame:
    if options.system_prompt is None:
        return frame
    return replace(frame, session=replace(frame.session, system_prompt=options.system_prompt))


def _tokens_of(step: Step, calls: Sequence[ToolCall]) -> int:
    texts = [part for part in step.answer.parts if isinstance(part, TextPart)]
    tools = [ToolPart(tool_name=call.name, tool_call_id=call.id, input=call.arguments) for call in calls]
    return estimate_message((*texts, *tools))
