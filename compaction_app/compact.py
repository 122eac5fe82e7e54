"""Compact a session: claim, prune, summarise the oldest turns, swap, condense, until the target is met.

The worker and a turn at the hard threshold call the same function. Models are asked with no lock held; each summary is
committed in one short transaction, fenced and checked against the context as it is then. A process that takes over a
compaction whose worker died goes on from what is committed, and pays twice only for the call that the worker waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from compaction_app import store
from compaction_app.context import ContextState, load_state, meter_of, size_of
from compaction_app.models import LIVE
from compaction_app.queries import has_changed, live_run, load_run
from compaction_app.schedule import ClaimedRun, claim, request_compaction, request_if_due, trigger_of
from compaction_app.store import RunResult
from compaction_app.summary_requests import RecordedAttempts, ask_for_summary, prepare_manifest, record_attempts
from mnesis_core.compaction.selection import Condensation, Situation, Span, must_go_on, next_round, outcome
from mnesis_core.compaction.summarise import SummaryResult
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.context.fitting import Size, select_prunable
from mnesis_core.errors import ContextChanged, MnesisError, ModelNotFoundError, SessionNotFoundError, TakenOver
from mnesis_core.llm.interface import Model
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.records import NewSummary, RunRecord
from mnesis_core.values import new_id
from sessions_app.conf import get_model, session_config, site_prompts
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import AWAY, db, give_back, waiting_for, work
from sessions_app.record.change import change
from sessions_app.record.file_port import keep_text
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import open_turn

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class Work:
    """A claimed compaction with the model that summarises; without one, only level 3 is left."""

    attempt: ClaimedRun
    trigger: str
    model: Model | None
    began: float = field(default_factory=time.monotonic)


def compact_session(session_id: str, *, run_id: str) -> RunRecord:
    """Do the work of a requested compaction, unless another process has done it or is doing it.

    :raises OperationalError: the database was away; the compaction is taken up again when its lease is over.
    """
    claimed = claim(session_id, run_id)
    if claimed is not None:
        try:
            _run(claimed)
        except TakenOver:
            logger.warning("compaction %s was taken over: this process was away for longer than its lease", run_id)
    return load_run(run_id)


def _run(claimed: ClaimedRun) -> None:
    """Compact, and write down how it ended.

    :raises TakenOver: another process has the compaction.
    """
    try:
        _compact(claimed)
    except (TakenOver, *AWAY):
        raise
    except ContextChanged as error:
        with claimed.held() as record:
            store.supersede_run(record, claimed.run_id, error, fence=claimed.fence)
    except Exception as error:
        logger.exception("compaction %s failed", claimed.run_id)
        reason = error if isinstance(error, MnesisError) else MnesisError(str(error))
        with claimed.held() as record:
            store.fail_run(record, claimed.run_id, reason, fence=claimed.fence)


async def compact_before_call(session_id: str, *, size: Size) -> None:
    """Bring a context of this size below its hard threshold before a call: compact here, or wait for the process that does.

    Returns after ``wait_seconds`` at the latest, while the compaction goes on. The call can be made even then:
    assembly always fits.
    """
    try:
        run_id, limit, seconds = await db(_request_for_a_call, session_id, size)
        async with asyncio.timeout(seconds):
            await asyncio.shield(asyncio.ensure_future(_compact_until_it_fits(session_id, run_id, limit)))
    except TimeoutError:
        logger.warning("session %s goes on before its compaction has ended", session_id)
    except AWAY as error:
        log_outage(logger, "A session goes on without a compaction", error)


def _request_for_a_call(session_id: str, size: Size) -> tuple[str | None, int, float]:
    """Return the compaction to wait for, below how many tokens it has to leave the context, and how many seconds to wait."""
    state = load_state(session_id)
    # The tools of a first call are in no earlier call: only the caller's size includes them.
    limit = state.budget.hard - (size.tokens - meter_of(state).used_tokens)
    trigger = trigger_of(state, size=size)
    with change(session_id) as record:
        return live_run(session_id) or request_if_due(record, trigger), limit, state.config.compaction.wait_seconds


async def _compact_until_it_fits(session_id: str, run_id: str | None, limit: int) -> None:
    """Compact again while a compaction leaves ``limit`` tokens or more because it may not do more."""
    while run_id is not None:
        run = await work(compact_session, session_id, run_id=run_id)
        while run.state in LIVE:
            await asyncio.sleep(POLL_SECONDS)
            # Not only a look: the process that has it may die, and then this one takes it over.
            run = await work(compact_session, session_id, run_id=run_id)
        is_too_large = run.tokens_after is not None and run.tokens_after >= limit
        run_id = await db(live_run, session_id) if is_too_large else None


def compact_now(session_id: str) -> RunRecord:
    """Compact on request: everything but the newest turns.

    Waits for the end, at most for ``wait_seconds`` while another process does the work.

    :raises SessionNotFoundError: there is no such session.
    """
    deadline = time.monotonic() + session_config(load_session(session_id).config).compaction.wait_seconds
    run_id = request_manual(session_id)
    run = compact_session(session_id, run_id=run_id)
    while run.state in LIVE and time.monotonic() < deadline:
        give_back()
        time.sleep(POLL_SECONDS)
        run = compact_session(session_id, run_id=run_id)
    return run


def request_manual(session_id: str) -> str:
    """Queue a compaction on request; return the id of the live one."""
    size = size_of(load_state(session_id))
    with change(session_id) as record:
        return live_run(session_id) or request_compaction(record, trigger="manual", size=size) or ""


def _compact(attempt: ClaimedRun) -> None:
    state = load_state(attempt.session_id)
    try:
        alias = state.config.compaction.model or state.session.model
        model = get_model(alias, user_id=state.session.owner_id)
    except ModelNotFoundError:
        model = None
    task = Work(attempt=attempt, trigger=load_run(attempt.run_id).trigger, model=model)
    choice = select_prunable(state.entries, state.config, state.budget)
    if choice.part_ids:
        with attempt.held() as record:
            store.prune(record, attempt.run_id, choice.part_ids, tokens=choice.tokens)
        state = load_state(state.session.id)
    for _ in range(state.config.compaction.max_compaction_rounds):
        chosen = next_round(_situation(task, state))
        if chosen is None:
            break
        state = _commit(task, state, chosen)
    last, size = _situation(task, state), size_of(state)
    more = next_round(last) is not None
    ended = outcome(size.tokens, state.budget, changed=has_changed(attempt.run_id), more=more)
    result = RunResult(outcome=ended.value, tokens_after=size.tokens)
    with attempt.held() as record:
        store.finish_run(record, attempt.run_id, result, fence=attempt.fence)
        if more and must_go_on(last):
            request_compaction(record, trigger="manual" if last.everything else "soft", size=size)


def _situation(task: Work, state: ContextState) -> Situation:
    turn = open_turn(state.session.id)
    return state.situation(
        used=size_of(state).tokens, running_turn_id=turn and turn[0], everything=task.trigger == "manual"
    )


def _commit(task: Work, state: ContextState, chosen: Span | Condensation) -> ContextState:
    """Ask for a summary with no lock held; then write it and swap it in, in one transaction."""
    task.attempt.renew()
    began = time.monotonic()
    recorder = record_attempts(
        state,
        chosen,
        attempt=task.attempt,
        model=task.model,
        summary_id=new_id("sum"),
        began=task.began,
        context_seq=state.session.event_seq,
    )
    # A loop of its own: connections to models belong to one, and are closed with it.
    result = waiting_for(_ask, own_loop=True)(task, state, chosen, recorder)
    summary = NewSummary(
        id=recorder.summary_id,
        kind=recorder.kind,
        depth=chosen.depth,
        level=result.level,
        text=result.text,
        token_count=result.token_count,
        source_tokens=chosen.tokens,
        first_seq=chosen.first_seq,
        last_seq=chosen.last_seq,
        message_count=chosen.message_count,
        model=recorder.alias if result.level < 3 else "",
        prompt_version=result.prompt_version,
        tokens_input=result.usage.input_tokens,
        tokens_output=result.usage.output_tokens,
        cost_micros=recorder.cost_micros,
        duration_ms=int((time.monotonic() - began) * 1000),
    )
    manifest = prepare_manifest(summary.id, result.manifest)
    with task.attempt.held() as record:
        if manifest:
            keep_text(record, manifest)
        store.record_summary(
            record,
            task.attempt.run_id,
            summary,
            fence=task.attempt.fence,
            source_type="summary" if recorder.kind == "condensed" else "message",
            source_ids=list(chosen.source_ids),
        )
    return load_state(state.session.id)


async def _ask(
    task: Work, state: ContextState, chosen: Span | Condensation, recorder: RecordedAttempts
) -> SummaryResult:
    limit = piece_limit(state.summariser(), state.config)
    question = ask_for_summary(state, chosen, recorder, model=task.model, limit=limit, prompts=site_prompts())
    try:
        return await task.attempt.asking(question)
    finally:
        await close_connections()


def compact(*, run_id: str, **_later: Any) -> None:
    """Do the work of one compaction, unless another process has done it or is doing it."""
    # The session may be deleted meanwhile.
    with suppress(SessionNotFoundError):
        compact_session(load_run(run_id).session_id, run_id=run_id)
