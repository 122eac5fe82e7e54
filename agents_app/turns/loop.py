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
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, ParamSpec, Protocol, TypeVar

from agents_app.tools import registry
from agents_app.turns import transactions
from agents_app.turns.parameters import (
    check_tool_choice,
    format_problem,
    format_text,
    offered,
    parameters_of,
    settle_call,
    with_correction,
    with_words,
)
from agents_app.turns.transactions import (
    CANCELLED,
    STATE_OF,
    Answer,
    OpenCall,
    Progress,
    Step,
    TurnEnd,
    load_progress,
    patiently,
)
from compaction_app.compact import compact_before_call, request_during_turn
from compaction_app.context.retrieval import Retriever
from compaction_app.context.state import BuiltContext, Frame, load_frame, read_state
from compaction_app.facts.copies import copy_held_facts, takes_held_facts
from mnesis_core import errors
from mnesis_core.config import TurnConfig
from mnesis_core.context.continuation import LastCall
from mnesis_core.context.fitting import LastPrompt, Pressure, Size, cap_output, pressure, size_now
from mnesis_core.files.pictures import SentPicture, Shown
from mnesis_core.llm import interface as llm
from mnesis_core.llm.caching import cache_key, plan_cache, with_marks
from mnesis_core.llm.parameters import Parameters
from mnesis_core.llm.retrying import fallbacks_of, is_too_long, patience_of
from mnesis_core.llm.tokens import LARGEST_RATIO, Calibration, calibrate, estimate_message, share_ratio
from mnesis_core.messages import Message, ReasoningPart
from mnesis_core.providers.answer import PAUSED
from mnesis_core.providers.litellm_parameters import SettledParameters, asks_back, takes_back
from mnesis_core.providers.rendering import IN_RESULTS, digest, has_pictures_in_results, prompt_digest
from mnesis_core.records import SessionRecord, TurnRecord, TurnState, UsageRecord, add_usage, new_id
from mnesis_core.spending import Spent
from mnesis_core.turns.inbox import PEER_TOOLS
from mnesis_core.turns.options import Made, TurnOptions, call_made, read_options, repeats, usage_record
from mnesis_core.turns.questions import ASK_USER, read_questions
from sessions_app.conf import get_model
from sessions_app.database.outages import log_failure, outage_of
from sessions_app.llm import model_store
from sessions_app.llm.calls import ModelCaller, PlannedCall, RunningCall
from sessions_app.llm.limits import SpendingLimit, TurnSpending, limits_for
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import Change
from sessions_app.record.hub import hub
from sessions_app.record.session_queries import load_depth

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)
REPEATED_CALL = "This exact call was made several times in a row. Do something else, or answer with what you know."
SHORTER_PROMPTS = 3  # a model that refuses a prompt as too long is asked again so often, each time with a shorter one


class Passing(Protocol):
    """A turn of one request through the gateway, whose prompt and whose tools are the client's."""

    session: SessionRecord
    step: Step | None
    spending: TurnSpending
    shared_ratio: float | None

    async def take_step(self) -> TurnEnd | None: ...
    async def usage(self) -> UsageRecord: ...
    def context_now(self) -> tuple[Frame, Size] | None: ...
    def close(self, end: TurnEnd | None) -> None: ...
    def refuse(self, end: TurnEnd) -> None: ...


async def run_turn(
    turn: TurnRecord,
    *,
    is_resumed: bool = False,
    is_shutdown: Callable[[], bool] = lambda: False,
    passing: Passing | None = None,
) -> bool:
    """Run a claimed turn until it ends or is suspended. Never raises, also when it is cancelled.

    Return whether it ended in a session that stays alive for messages.
    """
    asked: ModelCalls | Passing | None = passing
    try:
        if passing is not None:
            end = await passing.take_step()
        else:
            calls = await patiently(_load_calls, turn, is_resumed)
            asked = calls[0]
            end = await take_steps(*calls)
    except asyncio.CancelledError:
        end = TurnEnd.of(TurnState.INTERRUPTED, errors.TurnInterrupted()) if is_shutdown() else CANCELLED
    except errors.BudgetExhausted as error:
        end = replace(TurnEnd.of(TurnState.INCOMPLETE, error), exhausted=error.details)
    except errors.MnesisError as error:
        end = TurnEnd.of(TurnState.FAILED, error)
    except Exception as error:
        log_failure(logger, "A turn failed", error)
        end = TurnEnd.of(TurnState.FAILED, outage_of(error) or errors.MnesisError())
    if end is not None:
        if passing is not None:
            passing.refuse(end)
        await _finish(turn, asked, end)
    if passing is not None:
        passing.close(end)
    return end is not None and asked is not None and asked.session.host_mode


def _load_calls(turn: TurnRecord, is_resumed: bool) -> tuple[ModelCalls, ToolCalls]:
    # In one thread: also the context of the turn's first call, if it begins with one.
    frame = _load_frame(turn)
    session, config, options = frame.session, frame.config.turn, read_options(turn.options)
    depth = load_depth(session) if session.is_sub_agent else 0
    names = (*config.tools, *(PEER_TOOLS if session.host_mode else ()))
    tools = registry.permitted_tools(registry.offered_tools(names, user_id=session.owner_id, depth=depth), config)
    # The caller's own tool takes the place of the session's of the same name.
    tools = {name: tool for name, tool in tools.items() if name not in options.tool_names}
    progress = load_progress(turn) if is_resumed else Progress()
    spending = TurnSpending(limits_for(session, turn=turn))
    asked_frame = frame if turn.model == session.model else load_frame(turn.session_id, model=turn.model)
    asked = parameters_of(asked_frame.spec, frame.config, options)
    check_tool_choice(asked, tools.keys() | options.tool_names)
    model_calls = ModelCalls(
        turn,
        home=frame,
        frame=asked_frame,
        model=get_model(turn.model, user_id=session.owner_id),
        options=options,
        tool_specs=offered((*(tool.spec for tool in tools.values()), *options.tools), asked),
        progress=progress,
        spending=spending,
    )
    if not progress.open_calls:
        model_calls.built_ahead = model_calls.build()
    tool_calls = ToolCalls(
        turn=turn,
        owner_id=session.owner_id,
        tools=tools,
        callers=options.tool_names,
        config=config,
        depth=depth,
        made=list(progress.made),
        spending=spending,
    )
    return model_calls, tool_calls


def _load_frame(turn: TurnRecord) -> Frame:
    """Return the frame of a turn's calls, before the first of the session with the facts of others that reach it."""
    frame = load_frame(turn.session_id)
    if frame.has_calls or not takes_held_facts(frame.session, frame.config):
        return frame
    with transactions.held(turn) as record:
        copy_held_facts(record, frame.session, frame.config)
    return load_frame(turn.session_id)


async def take_steps(asked: ModelCalls, tools: ToolCalls) -> TurnEnd | None:
    """Run the open tool calls, ask the model, and repeat, until it answers, loops or reaches a limit.

    ``None``: the turn is suspended, and the process that takes the last answer it waits for resumes it.

    :raises BudgetExhausted: what may be spent is used up, also in the middle of an answer.
    """
    calls, config = asked.progress.open_calls, tools.config
    async with asked.spending.hard_stop():
        while True:
            tokens, is_waiting, is_looping = await tools.run(calls)
            asked.grown += tokens
            if tools.exhausted is not None:
                raise tools.exhausted
            if is_looping and (asked.options.on_doom_loop or config.on_doom_loop) == "stop":
                return TurnEnd.of(TurnState.INCOMPLETE, errors.DoomLoop())
            if is_waiting:
                state = await patiently(
                    transactions.suspend_turn, asked.turn, ratio=asked.shared_ratio, context=asked.context_now()
                )
                if state is not TurnState.RUNNING:
                    return None if state is TurnState.SUSPENDED else CANCELLED
            if asked.progress.steps >= config.max_steps:
                return TurnEnd.of(TurnState.INCOMPLETE, errors.StepLimitReached(steps=config.max_steps))
            reply, calls = await asked.ask_model()
            if calls or (reply.finish_reason == PAUSED and reply.error is None):
                continue
            problem = format_problem(asked.spec, asked.parameters, reply)
            if not problem:
                return TurnEnd.of(STATE_OF[reply.outcome], reply.error)
            if asked.problem:
                return TurnEnd.of(TurnState.FAILED, errors.ResponseFormatNotMet(problem))
            asked.problem = problem


async def _finish(turn: TurnRecord, asked: ModelCalls | Passing | None, end: TurnEnd) -> None:
    try:
        if asked is None:
            await patiently(transactions.finish_turn, turn, end, step=None, usage=UsageRecord())
            return
        usage, step = await asked.usage(), asked.step
        if step is not None and not step.is_counted:
            usage = add_usage(usage, step.used_so_far())
        await patiently(
            transactions.finish_turn,
            turn,
            end,
            step=step,
            usage=usage,
            spending=asked.spending,
            ratio=asked.shared_ratio,
            context=asked.context_now(),
        )
        if step is not None:
            hub.drop_text(turn.session_id, step.message_id)
    except Exception as error:
        # Taken over by recovery, or the database is away: then the lease runs out and recovery closes it.
        log_failure(logger, "A turn could not write its end", error)


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    turn: TurnRecord
    owner_id: int
    tools: dict[str, registry.Tool]
    callers: frozenset[str]
    config: TurnConfig
    depth: int
    made: list[Made]
    spending: TurnSpending
    exhausted: errors.BudgetExhausted | None = None  # why a call was not run, if no more may be made

    async def run(self, calls: Sequence[OpenCall]) -> tuple[int, bool, bool]:
        """Run the calls that may run here, and wait for all of them.

        Return the estimated tokens of their results, whether calls are left that the caller or a person must answer,
        and whether one was made too often in a row.
        """
        # An approved call was checked for loops before it waited.
        new = [call for call in calls if not call.is_approved]
        made = [call_made(call.call.name, call.call.arguments) for call in new]
        found = repeats(self.made, made, self.config.doom_loop_threshold)
        self.made += made
        looping = {call.part_id for call, is_loop in zip(new, found, strict=True) if is_loop}

        def must_wait(call: OpenCall) -> bool:
            if call.call.name in self.callers:
                return True
            tool = self.tools.get(call.call.name)
            if tool is None or call.is_approved:
                return False
            if call.call.name == ASK_USER:
                return bool(read_questions(call.call.arguments))
            return tool.needs_approval or tool.spec.name in self.config.ask_before

        running = [call for call in calls if call.part_id in looping or not must_wait(call)]
        tokens = await registry.side_by_side(self._run(call, is_loop=call.part_id in looping) for call in running)
        return sum(tokens), len(running) < len(calls), bool(looping)

    async def _run(self, open_call: OpenCall, *, is_loop: bool) -> int:
        """Run one tool and write its result; return the result's tokens."""
        part_id = open_call.part_id
        text, is_error = REPEATED_CALL, True
        pictures: tuple[SentPicture, ...] = ()
        try:
            time_limit = await patiently(
                transactions.start_tool,
                self.turn,
                part_id,
                limits=self.spending.limits,
                repeats=self.config.doom_loop_threshold if is_loop else None,
            )
        except errors.BudgetExhausted as problem:
            self.exhausted, text = problem, f"{problem.code}: {problem.message}"
        else:
            self.spending.start_timer(time_limit)
            if not is_loop:
                text, is_error, pictures = await self._call(open_call.call, part_id)
        return await patiently(
            transactions.finish_tool,
            self.turn,
            part_id,
            text=text,
            is_error=is_error,
            inline=self.config.tool_output_inline,
            owner_id=self.owner_id,
            pictures=pictures,
        )

    async def _call(self, call: llm.ToolCall, part_id: str) -> tuple[str, bool, tuple[SentPicture, ...]]:
        """Call a tool; return what it says, whether that is an error, and its pictures."""
        context = registry.ToolContext(
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
                raise registry.not_offered(call.name, self.tools)
            output = await registry.call_tool(
                self.tools[call.name], context, call.arguments, longest_seconds=seconds, late=late
            )
            shown = Shown(text=output, pictures=()) if isinstance(output, str) else output
            return cap_output(shown.text, limit), False, shown.pictures
        except TimeoutError as problem:
            return str(problem) or "The tool's own waiting took too long.", True, ()
        except errors.MnesisError as problem:
            return f"{problem.code}: {problem.message}", True, ()
        except Exception as problem:
            logger.exception("tool %s failed", call.name)
            return f"The tool failed: {type(problem).__name__}", True, ()


class ModelCalls(ModelCaller[tuple[llm.Reply, list[OpenCall]]]):
    """The model calls of one turn. Each streams an answer: to the followers at once, to the journal in batches."""

    waits_for_pause = True

    def __init__(
        self,
        turn: TurnRecord,
        *,
        home: Frame,
        frame: Frame,
        model: llm.Model,
        options: TurnOptions,
        tool_specs: Sequence[llm.ToolSpec],
        progress: Progress,
        spending: TurnSpending,
    ) -> None:
        self.turn, self.turn_id = turn, turn.id
        self.options = options
        self.problem = ""  # what was wrong with the answer before; it is corrected once
        self.has_called = bool(progress.made)
        self.frame = with_words(frame, options)
        # The frame of the session's own model, also while another model is asked in its place.
        self.home = with_words(home, options)
        self.session = frame.session
        self.config = frame.config
        self.patience = patience_of(frame.config.turn)
        self.model = model
        in_place = llm.spec_in_session if turn.model == frame.session.model else llm.spec_in_place
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
        self.retriever = Retriever()
        self.built_ahead: BuiltContext | None = None  # the context of the next call, not measured yet
        self._fitting: BuiltContext | None = None
        self._context: BuiltContext | None = None
        self._shortened = 0

    async def usage(self) -> UsageRecord:
        return self.progress.usage

    @property
    def parameters(self) -> Parameters:
        return parameters_of(self.spec, self.config, self.options)

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
        context, system = self._context, self.frame.system_prompt
        sent = LastCall(model=self.spec.alias, manifest=context.stored_manifest, context_seq=context.context_seq)
        self.frame = replace(self.frame, last_call=sent)
        texts = {"tools": llm.write_tools(context.assembled.tools)} if context.assembled.tools else {}
        if system != self.session.system_prompt or self.options.system_prompt is not None:
            texts["system"] = system
        payload, corrected = with_correction(context.payload, self.problem)
        most, asked = context.budget.reserved_output, self._settled(context, payload)
        cache = plan_cache(self.spec, payload, context.assembled.manifest)
        more = asked.sent | cache_key(self.spec, self.session.id) | asks_back(self.spec)
        payload = with_marks(payload | more, cache)
        texts |= corrected | format_text(asked.sent)
        return PlannedCall(
            model=self.model,
            spec=self.spec,
            request=llm.Request(
                payload=payload,
                max_output_tokens=asked.sent.get("max_tokens", most),
                max_characters=self.config.stream.max_answer_characters,
            ),
            purpose="turn",
            prompt_tokens=context.assembled.used_tokens,
            estimated_tokens=context.estimated_tokens,
            parameters={
                "tool_tokens": context.assembled.breakdown.tools,
                "calibration": asdict(context.calibration),
                **({"cache": cache} if cache else {}),
                **({"prices": asdict(self.spec.prices)} if self.spec.prices.input else {}),
                **({"in_place_of": self.turn.model} if self.spec.alias != self.turn.model else {}),
                **({"not_taken": asked.not_taken} if asked.not_taken else {}),
                **({IN_RESULTS: True} if has_pictures_in_results(payload) else {}),
            },
            manifest=context.stored_manifest,
            digest=context.digest if payload == context.payload else digest(payload),
            context_seq=context.context_seq,
            texts=texts,
        )

    async def in_thread(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await patiently(call, *args, **kwargs)

    def held(self) -> AbstractContextManager[Change]:
        return transactions.held(self.turn)

    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        return self.spending.limits

    def write_start(self, record: Change, about: dict[str, Any]) -> tuple[str, str]:
        stub, message_id = Message(role="assistant", parts=()), new_id("msg")
        call_id = turn_store.add_call(record, message_id=message_id, **about)
        message_store.append_message(
            record,
            turn_id=self.turn.id,
            message=stub,
            model=about["model"],
            message_id=message_id,
            call_id=call_id,
        )
        return call_id, message_id

    def started(self, call: RunningCall) -> None:
        self.spending.start_timer(call.time_limit)
        self.progress.steps += 1
        message_id = call.message_id or ""

        @cache
        def made_by() -> dict[str, str]:
            provider, _, model = call.planned.spec.litellm_model.partition("/")
            return {"provider": provider, "model": model, "prompt": prompt_digest(call.planned.request.payload)}

        answer = Answer(
            session_id=self.session.id,
            message_id=message_id,
            config=self.config.stream,
            owner_id=self.session.owner_id,
            made_by=made_by,
        )
        self.step = Step(message_id=message_id, call=call, answer=answer)

    def seconds(self, call: RunningCall) -> float:
        return call.planned.model.spec.total_timeout_seconds

    async def receive(self, call: RunningCall, request: llm.Request) -> llm.Reply:
        return await self._running.answer.stream(call.planned.model, request)

    async def finish(self, call: RunningCall, reply: llm.Reply) -> tuple[llm.Reply, list[OpenCall]]:
        step = self._running
        step.is_counted = True
        used = usage_record(reply.usage, cost=llm.cost_micros(self.spec, reply.usage))
        self.progress.usage = add_usage(self.progress.usage, used)
        # A schema that the provider holds the model to is a part of its count that our estimate does not have.
        is_comparable = "response_format" not in call.planned.request.payload
        if (
            is_comparable
            and reply.usage.source is llm.Source.PROVIDER
            and self._context is not None
            and self.asked is not None
        ):
            tokens = reply.usage.input_tokens
            self.learnt = calibrate(self._context.calibration, self._context.estimated_tokens, tokens)
            self.frame = replace(self.frame, calibration=self.learnt)
            self.asked = replace(self.asked, reported=tokens)
        calls = await patiently(transactions.end_step, self.turn, step, reply)
        self.has_called = self.has_called or bool(calls)
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
        self.frame = with_words(frame, self.options)
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
        self.model, frame, self.others = other
        self.frame = with_words(frame, self.options)
        self.spec = llm.spec_in_place(self.model.spec, self.config)
        self.learnt, self.asked, self._shortened = Calibration(), None, 0
        return True

    @property
    def _running(self) -> Step:
        if self.step is None:
            raise RuntimeError("no call runs")
        return self.step

    def build(self) -> BuiltContext:
        state, asked = read_state(self.frame, makes_pictures=True), self.parameters
        back = takes_back(self.spec, asked.effort, asked.provider_tools if asked.tool_choice != "none" else None)
        passages = self.retriever.passages_for(state)
        built = state.build(self.tool_specs, back=back, passages=passages)
        if back.only_thinking and "reasoning_effort" not in self._settled(built, built.payload).sent:
            return state.build(self.tool_specs, back=back.without_thinking(), passages=passages)
        return built

    def _settled(self, context: BuiltContext, payload: dict[str, Any]) -> SettledParameters:
        return settle_call(
            self.spec,
            self.parameters,
            payload=payload,
            max_output_tokens=context.budget.reserved_output,
            has_called=self.has_called,
        )

    async def _fit_context(self) -> BuiltContext:
        built, self.built_ahead = self.built_ahead, None
        context = await patiently(self.build) if built is None else built
        size = size_now(context.whole_tokens, self.frame.calibration, self.asked)
        # A fallback's smaller window compacts nothing: what does not fit is left out of this one call.
        level = pressure(size.tokens, self.home.budget)
        if level is Pressure.HARD and self.config.compaction.auto:
            await compact_before_call(self.session.id, size=size)
            context = await patiently(self.build)
        elif level is Pressure.SOFT and self.progress.steps:
            # Before the first step the turn before has asked for what is due.
            await patiently(request_during_turn, replace(self.home, calibration=self.frame.calibration), size)
        self.asked = LastPrompt(whole=context.whole_tokens, sent=context.estimated_tokens)
        self.grown = 0
        return context


def next_model(session: SessionRecord, aliases: Sequence[str]) -> tuple[llm.Model, Frame, tuple[str, ...]] | None:
    """Return the first of these models that the session's owner may use; ``None`` where there is none.

    With it come the frame that its context is measured with, and the models to ask after it.
    """
    for place, alias in enumerate(aliases, start=1):
        with suppress(errors.ModelNotFoundError):
            model = get_model(alias, user_id=session.owner_id)
            return model, load_frame(session.id, model=alias), tuple(aliases[place:])
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


def _tokens_of(step: Step, calls: Sequence[llm.ToolCall]) -> int:
    said = [part for part in step.answer.parts if not isinstance(part, ReasoningPart)]
    return estimate_message((*said, *step.parts_of(calls)))
