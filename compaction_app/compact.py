"""Story: compact a session: claim, prune, summarise the oldest turns, swap, condense, until the target is met.

The worker and a turn at the hard threshold call the same function. Models are asked with nothing held:
each summary is committed in one short transaction, fenced and checked against the context as it is then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from compaction_app import store
from compaction_app.context import ContextState, load_state, meter_of
from compaction_app.queries import live_run, load_run
from compaction_app.schedule import request_compaction
from compaction_app.store import NewSummary, RunResult
from mnesis_core.compaction import (
    Condensation,
    Quotable,
    Span,
    SummaryResult,
    choose_condensation,
    choose_span,
    message_quotables,
    piece_limit,
    summarise,
    summary_pieces,
    summary_quotables,
    transcript_pieces,
)
from mnesis_core.dag import SummaryKind
from mnesis_core.errors import Conflict, MnesisError, ModelNotFoundError
from mnesis_core.events import EventType
from mnesis_core.limits import spec_in_session
from mnesis_core.lineage import RunRecord
from mnesis_core.llm import Model, cost_micros
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.pruning import select_prunable
from sessions_app import store as record_store
from sessions_app.conf import get_model, session_config
from sessions_app.database import db, work
from sessions_app.ledger import change
from sessions_app.queries import load_session, running_turn

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class Work:
    """What one run has done so far."""

    run_id: str
    session_id: str
    fence: int
    trigger: str
    model: Model | None
    tokens_before: int = 0
    summary_ids: list[str] = field(default_factory=list)
    tries: list[dict[str, Any]] = field(default_factory=list)
    level: int = 0
    source_count: int = 0
    pruned_parts: int = 0
    pruned_tokens: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int = 0


def compact_session(session_id: str, *, run_id: str) -> RunRecord:
    """Do the work of a requested compaction, unless somebody else has done it or is at it."""
    config = session_config(load_session(session_id).config).compaction
    owner = f"{socket.gethostname()}:{os.getpid()}"
    with change(session_id) as record:
        fence = store.claim_run(record, run_id, lease_owner=owner, lease_seconds=config.lease_seconds)
    if fence is None:
        return load_run(run_id)
    try:
        _compact(run_id, session_id, fence)
    except Conflict:
        logger.warning("compaction %s was taken over", run_id, exc_info=True)
    except Exception as error:
        logger.exception("compaction %s failed", run_id)
        code = error.code if isinstance(error, MnesisError) else MnesisError.code
        with change(session_id) as record:
            store.fail_run(record, run_id, fence=fence, error_code=code, error_message=str(error)[:1_000])
    return load_run(run_id)


async def relieve(session_id: str) -> None:
    """Bring a context below its hard threshold before a call: wait for the compaction that runs, or run it here.

    Returns after ``wait_seconds`` at the latest. The call can be made even then: assembly always fits.
    """
    state = await db(load_state, session_id)
    config = state.config.compaction
    deadline = time.monotonic() + config.wait_seconds
    run_id = await db(_request_or_find, session_id)
    # Claims it if it is queued still, be there a worker or not; else another process is at it.
    run = await work(compact_session, session_id, run_id=run_id)
    while run.state in ("queued", "running") and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        run = await db(load_run, run_id)


def compact_now(session_id: str) -> RunRecord:
    """Compact because somebody asked for it: everything but the newest turns. Waits for the end.

    :raises SessionNotFoundError: there is no such session.
    """
    run_id = request_manual(session_id)
    return compact_session(session_id, run_id=run_id)


def request_manual(session_id: str) -> str:
    """Queue a compaction that somebody asked for; returns the id of the live one."""
    return _request_or_find(session_id, trigger="manual")


def _request_or_find(session_id: str, trigger: str = "hard") -> str:
    used = meter_of(load_state(session_id)).used_tokens
    with change(session_id) as record:
        known = live_run(session_id)
        return known or request_compaction(record, trigger=trigger, tokens=used) or ""


def _compact(run_id: str, session_id: str, fence: int) -> None:
    state = load_state(session_id)
    task = Work(
        run_id=run_id,
        session_id=session_id,
        fence=fence,
        trigger=load_run(run_id).trigger,
        model=_summariser(state),
        tokens_before=meter_of(state).used_tokens,
    )
    state = _prune(task, state)
    state = _summarise_turns(task, state)
    state = _condense(task, state)
    result = RunResult(
        tokens_after=meter_of(state).used_tokens,
        **{name: getattr(task, name) for name in RunResult.__dataclass_fields__ if name != "tokens_after"},
    )
    with change(session_id) as record:
        store.finish_run(record, run_id, result, fence=fence)


def _summariser(state: ContextState) -> Model | None:
    """The model that summarises; ``None`` leaves level 3, which needs none."""
    try:
        return get_model(state.config.compaction.model or state.session.model)
    except ModelNotFoundError:
        return None


def _prune(task: Work, state: ContextState) -> ContextState:
    choice = select_prunable(state.entries, state.config, state.budget)
    if not choice.part_ids:
        return state
    with change(task.session_id) as record:
        task.pruned_parts = record_store.tombstone_parts(record, choice.part_ids)
        task.pruned_tokens = choice.tokens
        record.publish(EventType.PRUNE_COMPLETED, run_id=task.run_id, parts=task.pruned_parts, tokens=choice.tokens)
    return load_state(task.session_id)


def _summarise_turns(task: Work, state: ContextState) -> ContextState:
    """Turn the oldest turns into leaves. Protects the newest ones, fewer of them while the context is too full."""
    protected = state.config.compaction.protect_turns
    for _ in range(state.config.compaction.max_rounds):
        used = meter_of(state).used_tokens
        everything = task.trigger == "manual"
        if used <= state.budget.target and not everything:
            break
        span = choose_span(
            state.entries,
            state.config,
            state.budget,
            used,
            protect_turns=protected,
            running_turn_id=running_turn(task.session_id),
            everything=everything,
            calibration=state.calibration.ratio,
        )
        if span is not None:
            state = _summarise_span(task, state, span)
        elif protected > 1 and used >= state.budget.hard:
            protected -= 1
        else:
            break
    return state


def _summarise_span(task: Work, state: ContextState, span: Span) -> ContextState:
    limit = piece_limit(task.model.spec if task.model else state.spec, state.config)
    pieces = transcript_pieces(span.messages, limit)
    return _commit(task, state, span, pieces, kind="leaf", quotables=message_quotables(span.messages))


def _condense(task: Work, state: ContextState) -> ContextState:
    """Merge the oldest summaries while summaries alone keep the context too large."""
    limit = piece_limit(task.model.spec if task.model else state.spec, state.config)
    for _ in range(state.config.compaction.max_rounds):
        used = meter_of(state).used_tokens
        chosen = choose_condensation(
            state.entries, state.config, state.budget, used, calibration=state.calibration.ratio
        )
        if chosen is None:
            break
        pieces = summary_pieces(chosen.summaries, limit)
        state = _commit(task, state, chosen, pieces, kind="condensed", quotables=summary_quotables(chosen.summaries))
    return state


def _commit(
    task: Work,
    state: ContextState,
    chosen: Span | Condensation,
    pieces: list[str],
    *,
    kind: SummaryKind,
    quotables: Sequence[Quotable],
) -> ContextState:
    """Ask for a summary, nothing held; then write it and swap it in, in one transaction."""
    store.renew_run(task.run_id, fence=task.fence, lease_seconds=state.config.compaction.lease_seconds)
    began = time.monotonic()
    result = asyncio.run(_ask(task, state, chosen, pieces, kind=kind, quotables=quotables))
    summary = NewSummary(
        kind=kind,
        depth=chosen.depth if isinstance(chosen, Condensation) else 0,
        level=result.level,
        text=result.text,
        token_count=result.token_count,
        source_tokens=chosen.tokens,
        first_seq=chosen.first_seq,
        last_seq=chosen.last_seq,
        message_count=chosen.message_count,
        model=task.model.spec.alias if task.model and result.level < 3 else "",
        prompt_version=result.prompt_version,
        tokens_input=result.usage.input_tokens,
        tokens_output=result.usage.output_tokens,
        cost_micros=_cost(task, state, result),
        duration_ms=int((time.monotonic() - began) * 1000),
    )
    with change(task.session_id) as record:
        summary_id = store.record_summary(
            record,
            task.run_id,
            summary,
            fence=task.fence,
            source_type="summary" if kind == "condensed" else "message",
            source_ids=list(chosen.source_ids),
        )
    _count(task, summary_id, summary, result, sources=len(chosen.source_ids))
    return load_state(task.session_id)


def _cost(task: Work, state: ContextState, result: SummaryResult) -> int:
    if task.model is None:
        return 0
    # The session's prices are those of its own model.
    is_own = task.model.spec.alias == state.spec.alias
    spec = spec_in_session(task.model.spec, state.config) if is_own else task.model.spec
    return cost_micros(spec, result.usage) or 0


async def _ask(
    task: Work,
    state: ContextState,
    chosen: Span | Condensation,
    pieces: list[str],
    *,
    kind: SummaryKind,
    quotables: Sequence[Quotable],
) -> SummaryResult:
    keeper = asyncio.create_task(_keep_lease(task, state.config.compaction.lease_seconds))
    try:
        return await summarise(
            pieces,
            chosen.tokens,
            task.model,
            state.config,
            state.budget,
            kind=kind,
            quotables=quotables,
            file_ids=chosen.file_ids,
        )
    finally:
        keeper.cancel()
        await close_connections()


async def _keep_lease(task: Work, lease_seconds: int) -> None:
    """A span of many pieces takes longer than a lease; who still works keeps it."""
    while True:
        await asyncio.sleep(lease_seconds / 3)
        await db(store.renew_run, task.run_id, fence=task.fence, lease_seconds=lease_seconds)


def _count(task: Work, summary_id: str, summary: NewSummary, result: SummaryResult, *, sources: int) -> None:
    task.summary_ids.append(summary_id)
    task.tries.extend(asdict(attempt) | {"summary_id": summary_id} for attempt in result.tries)
    task.level = max(task.level, result.level)
    task.source_count += sources
    task.tokens_input += summary.tokens_input
    task.tokens_output += summary.tokens_output
    task.cost_micros += summary.cost_micros
