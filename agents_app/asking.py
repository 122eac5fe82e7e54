"""Story: ask a model for one answer of a turn, again where that may help, and another one where it gives nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from django.utils import timezone

from agents_app import steps
from agents_app.gates import kept_gate
from agents_app.steps import Step
from compaction_app.context import Frame, load_frame
from mnesis_core.calibration import LARGEST_RATIO
from mnesis_core.config import Config
from mnesis_core.endings import ModelRateLimited
from mnesis_core.errors import ModelNotFoundError
from mnesis_core.llm import Model, Reply, Request
from mnesis_core.record import SessionRecord, TurnRecord
from mnesis_core.retrying import Retry, ask_patiently, patience_of
from sessions_app import store
from sessions_app.conf import get_model
from sessions_app.outages import patiently


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A model that is asked in place of a session's own."""

    model: Model
    frame: Frame
    """What the context is put together and measured with for it."""
    others: tuple[str, ...]
    """Who is asked after it, if it gives nothing either."""


def next_model(session: SessionRecord, aliases: Sequence[str]) -> StandIn | None:
    """The first of these models that there is for the session's owner; ``None`` when there is none."""
    for place, alias in enumerate(aliases, start=1):
        with suppress(ModelNotFoundError):
            model = get_model(alias, user_id=session.owner_id)
            return StandIn(model=model, frame=load_frame(session.id, model=alias), others=tuple(aliases[place:]))
    return None


def learn_refusal(session_id: str, alias: str) -> Frame:
    """What the session's next prompt is made with after a model refused one as too long: read from the record, so that
    any process learns the same. A ratio that the provider's own count has proven is kept for other sessions too."""
    frame = load_frame(session_id, model=alias)
    ratio = min(frame.calibration.ratio, LARGEST_RATIO)
    if not frame.calibration.samples or ratio <= (frame.spec.shared_ratio or 0):
        return frame
    store.share_ratio(alias, ratio)
    return replace(frame, spec=replace(frame.spec, shared_ratio=ratio))


async def ask(turn: TurnRecord, step: Step, model: Model, request: Request, config: Config) -> Reply:
    """Stream the answer; a call that failed before its first token is tried again where that may help."""
    request = replace(request, max_characters=config.stream.max_answer_characters)

    async def once(seconds: float) -> Reply:
        return await _through_gate(step, model, replace(request, seconds=seconds))

    return await ask_patiently(
        once, patience_of(config.turn), seconds=model.spec.total_timeout_seconds, note=partial(_note, turn, step)
    )


async def _through_gate(step: Step, model: Model, request: Request) -> Reply:
    """Ask once. Where runs of operators ask the model too, as for a sub-agent of one, a refusal slows all of them down."""
    if (gate := kept_gate(model.spec.alias)) is None:
        return await step.answer.stream(model, request)
    await gate.wait()
    began = timezone.now()
    reply = await step.answer.stream(model, request)
    if isinstance(reply.error, ModelRateLimited):
        await gate.refuse(reply.error, in_a_row=step.attempts, began=began)
    return reply


async def _note(turn: TurnRecord, step: Step, retry: Retry) -> None:
    await patiently(steps.note_retry, turn, step, retry)
    step.attempts += 1
