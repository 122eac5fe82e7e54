"""Compact a session: claim, prune, summarise the oldest turns, swap, condense, until the target is met.

The worker and a turn at the hard threshold call the same function. Models are asked with no lock held; each summary is
committed in one short transaction, fenced and checked against the context as it is then. A process that takes over a
compaction whose worker died goes on from what is committed, and pays twice only for the call that the worker waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from django.utils import timezone
from django_q.tasks import async_task

from compaction_app import store
from compaction_app.context.refills import find_refill
from compaction_app.context.state import ContextState, Frame, load_state, meter_of, read_state, size_of
from compaction_app.facts.copies import copy_held_facts
from compaction_app.facts.reflect import request_reflection, wake_forgotten
from compaction_app.lineage.claims import request_alignment
from compaction_app.models import LIVE
from compaction_app.queries import has_changed, is_free_to_claim, last_run, live_run, load_run, stale_runs
from compaction_app.summary_requests import Work, ask_for_summary
from mnesis_core.actor import read_actor
from mnesis_core.compaction.selection import (
    Condensation,
    Situation,
    Span,
    check_turns,
    choose_prunable,
    next_round,
    outcome,
)
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.context.additions import Refill
from mnesis_core.context.branches import LINE
from mnesis_core.context.fitting import Pressure, Reason, Size, Trigger, pressure, should_compact
from mnesis_core.errors import (
    CompactionBusy,
    ContextChanged,
    MnesisError,
    ModelNotFoundError,
    SessionNotFoundError,
    TakenOver,
)
from mnesis_core.events import EventType
from mnesis_core.llm.interface import Model
from mnesis_core.records import NewSummary, RunRecord, new_id
from sessions_app.conf import get_model, session_config, site_config, site_prompts
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import AWAY, db, give_back, work
from sessions_app.record.actor import acting_as, unasked
from sessions_app.record.branch_queries import path_in
from sessions_app.record.change import Change, change
from sessions_app.record.file_port import keep_text
from sessions_app.record.lease import Lease, new_owner
from sessions_app.record.message_queries import places_of_turns
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import open_turn

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.2
TASK = "compaction_app.tasks.compact"
SLACK_SECONDS = 60  # a worker that passes the longest time of a compaction by this much hangs, and the cluster kills it
T = TypeVar("T")


# One compaction at most is live per session. A process may be paused for longer than its lease: then another one takes it
# over, and the first can write nothing any more and stops asking its model.


def find_trigger(session_id: str) -> Trigger | None:
    """Return whether a session's context calls for a compaction, and why or why not; ``None`` below the soft threshold."""
    state = load_state(session_id)
    return trigger_of(state, size=size_of(state))


def trigger_after(frame: Frame, size: Size) -> Trigger | None:
    """Return what ``find_trigger`` does, for a context of known size, which is read only where a compaction is due."""
    if pressure(size.tokens, frame.budget) is Pressure.NONE:
        return None
    trigger = _trigger(frame, size, branch=frame.session.branch)
    return trigger_of(read_state(frame), size=size) if trigger.compact else trigger


def trigger_of(state: ContextState, *, size: Size) -> Trigger | None:
    """Return what ``find_trigger`` does, for a loaded context of this size."""
    if pressure(size.tokens, state.budget) is Pressure.NONE:
        return None
    situation = state.situation(used=size.tokens)
    is_something_to_do = next_round(situation) is not None or bool(choose_prunable(situation).part_ids)
    return _trigger(state, size, branch=state.branch, is_something_to_do=is_something_to_do)


def _trigger(frame: Frame, size: Size, *, branch: int, is_something_to_do: bool = True) -> Trigger:
    trigger = should_compact(
        used=size.tokens,
        budget=frame.budget,
        config=frame.config,
        last=last_run(frame.session.id, branch=branch),
        is_something_to_do=is_something_to_do,
    )
    return replace(trigger, source=size.source)


def request_during_turn(frame: Frame, size: Size) -> None:
    """Queue the compaction that is due while a turn runs: a worker summarises its older steps, and the turn goes on."""
    session_id = frame.session.id
    if pressure(size.tokens, frame.budget) is Pressure.NONE or live_run(session_id):
        return
    trigger = trigger_after(frame, size)
    if trigger is not None and trigger.compact:
        with change(session_id) as record:
            request_if_due(record, trigger)


def request_if_due(record: Change, trigger: Trigger | None) -> str | None:
    """Queue the compaction that is due and return its id, or record why none is queued."""
    if trigger is None:
        return None
    size = Size(tokens=trigger.used, source=trigger.source)
    with record.unasked():
        run_id = request_compaction(record, trigger=trigger.pressure.value, size=size) if trigger.compact else None
        if run_id is None:
            reason = Reason.ALREADY_REQUESTED if trigger.compact else trigger.reason
            record.publish(
                EventType.COMPACTION_SKIPPED,
                pressure=trigger.pressure.value,
                reason=reason.value,
                tokens=size.tokens,
                source=size.source.value,
            )
    return run_id


def request_compaction(record: Change, *, trigger: str, size: Size, turn_ids: Sequence[str] = ()) -> str | None:
    """Queue a compaction for a worker and return its id; ``None`` when one is live already."""
    run_id = store.request_run(record, trigger=trigger, turn_ids=turn_ids)
    if run_id is not None:
        record.publish(
            EventType.COMPACTION_TRIGGERED, run_id=run_id, trigger=trigger, tokens=size.tokens, source=size.source.value
        )
        _wake_worker(run_id)
    return run_id


def wake_stale() -> int:
    """Queue again what was queued or claimed and then forgotten, and return how many. Safe to repeat."""
    stale = stale_runs(timezone.now())
    max_attempts = site_config().compaction.max_attempts
    for session_id, run_id in stale:
        with change(session_id) as record:
            if store.requeue_run(record, run_id, max_attempts=max_attempts):
                _wake_worker(run_id)
    wake_forgotten()
    return len(stale)


def _wake_worker(run_id: str) -> None:
    # The broker's queue is a table of this database, so the wake-up commits with the run or not at all.
    config = site_config().compaction
    longest = config.run_timeout_seconds + config.model_timeout_seconds + SLACK_SECONDS
    async_task(TASK, run_id=run_id, timeout=int(longest))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun(Work):
    """A compaction claimed by this process: held under a lease, and fenced, so that it disturbs no other claim."""

    run_id: str
    fence: int
    lease: Lease
    extra_tokens: int = (
        0  # of the call that waits for it, beyond its context: the tools of a first call are in no earlier one
    )

    def load_state(self, branch: int) -> ContextState:
        state = load_state(self.session_id, branch=branch)
        return replace(state, tool_tokens=state.tool_tokens + self.extra_tokens)

    @contextmanager
    def held(self) -> Iterator[Change]:
        """Change the session, if this process still has the compaction.

        :raises TakenOver: it does not.
        """
        with change(self.session_id) as record:
            store.require_run(record, self.run_id, fence=self.fence)
            yield record

    def renew(self) -> None:
        """:raises TakenOver: another process has the compaction."""
        store.renew_run(self.run_id, fence=self.fence, lease=self.lease)

    async def asking(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask a model with no lock held, however long that takes, and keep the lease meanwhile.

        :raises TakenOver: the lease was lost all the same; the answer would not be used, so the model is not asked on.
        """

        async def keep_lease() -> None:
            while True:
                await asyncio.sleep(self.lease.seconds / 3)
                # The database may be away for a moment; if it stays away, the next write fails.
                with suppress(*AWAY):
                    await db(self.renew)

        asked = asyncio.ensure_future(question)
        heartbeat = asyncio.ensure_future(keep_lease())
        try:
            await asyncio.wait({asked, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
            if heartbeat.done():
                heartbeat.result()
            return await asked
        finally:
            for task in (asked, heartbeat):
                task.cancel()
            await asyncio.gather(asked, heartbeat, return_exceptions=True)


def claim(session_id: str, run_id: str, *, extra_tokens: int = 0) -> ClaimedRun | None:
    """Claim a compaction; return ``None`` if it has ended, or if another live process has it.

    :raises SessionNotFoundError: there is no such session.
    """
    if not is_free_to_claim(run_id, timezone.now(), session_id=session_id):
        return None
    state = load_state(session_id, branch=load_run(run_id).branch)
    lease = Lease(owner=new_owner(), seconds=state.config.compaction.lease_seconds)
    tokens = meter_of(state).context_tokens + extra_tokens
    with change(session_id) as record:
        fence = store.claim_run(
            record, run_id, lease_owner=lease.owner, lease_seconds=lease.seconds, tokens_before=tokens
        )
    if fence is None:
        return None
    return ClaimedRun(run_id=run_id, session_id=session_id, fence=fence, lease=lease, extra_tokens=extra_tokens)


# The work of a compaction.


def compact(*, run_id: str, **_later: Any) -> None:
    """Do the work of one compaction: the worker's task. It may run twice or late, since the run's row decides."""
    with suppress(SessionNotFoundError):  # the session was deleted meanwhile
        run = load_run(run_id)
        with acting_as(read_actor(run.actor).later("compaction")):
            compact_session(run.session_id, run_id=run_id)


def compact_session(session_id: str, *, run_id: str, extra_tokens: int = 0) -> RunRecord:
    """Do the work of a requested compaction, unless another process has done it or is doing it.

    :param extra_tokens: what the call that waits for it takes beside the context as the record knows it
    :raises OperationalError: the database was away; the compaction is taken up again when its lease is over.
    """
    claimed = claim(session_id, run_id, extra_tokens=extra_tokens)
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
    except Exception as error:
        if not isinstance(error, ContextChanged):
            logger.exception("compaction %s failed", claimed.run_id)
        reason = error if isinstance(error, MnesisError) else MnesisError(str(error))
        with claimed.held() as record:
            store.fail_run(record, claimed.run_id, reason, fence=claimed.fence)


async def compact_before_call(session_id: str, *, size: Size) -> None:
    """Bring a context of this size below its hard threshold before a call: compact here, or wait for the process that does.

    Returns after ``wait_seconds`` at the latest, while the compaction goes on. The call can be made even then:
    assembly always fits.
    """

    def request() -> tuple[str | None, int, ContextState]:
        state = load_state(session_id)
        # The tools of a first call are in no earlier call: only the caller's size includes them.
        extra_tokens = max(0, size.tokens - meter_of(state).context_tokens)
        trigger = trigger_of(state, size=size)
        with change(session_id) as record:
            return live_run(session_id) or request_if_due(record, trigger), extra_tokens, state

    async def compact_until_it_fits(run_id: str | None, extra_tokens: int, state: ContextState) -> None:
        # Again while a compaction leaves too many tokens because it may not do more.
        while run_id is not None:
            run = await work(compact_session, session_id, run_id=run_id, extra_tokens=extra_tokens)
            while run.state in LIVE:
                await asyncio.sleep(POLL_SECONDS)
                # Not only a look: the process that has it may die, and then this one takes it over.
                run = await work(compact_session, session_id, run_id=run_id, extra_tokens=extra_tokens)
            # A worker that took it over does not know of the extra tokens.
            is_too_large = run.tokens_after is not None and run.tokens_after >= state.budget.hard - extra_tokens
            if run.branch != state.branch or (run.turn_ids and is_too_large):
                run_id, *_ = await db(request)
                continue
            run_id = await db(live_run, session_id) if is_too_large else None

    try:
        run_id, extra_tokens, state = await db(request)
        async with asyncio.timeout(state.config.compaction.wait_seconds):
            with unasked():
                compacting = asyncio.ensure_future(compact_until_it_fits(run_id, extra_tokens, state))
            await asyncio.shield(compacting)
    except TimeoutError:
        logger.warning("session %s goes on before its compaction has ended", session_id)
    except AWAY as error:
        log_outage(logger, "A session goes on without a compaction", error)


def compact_now(session_id: str, *, turn_ids: Sequence[str] = ()) -> RunRecord:
    """Compact on request: everything but the newest turns, or the named turns and nothing else.

    Waits for the end, at most for ``wait_seconds`` while another process does the work.

    :raises SessionNotFoundError: there is no such session.
    :raises Conflict: the turns may not be compacted, as ``request_manual`` says.
    """
    deadline = time.monotonic() + session_config(load_session(session_id).config).compaction.wait_seconds
    run_id = request_manual(session_id, turn_ids=turn_ids)
    run = compact_session(session_id, run_id=run_id)
    while run.state in LIVE and time.monotonic() < deadline:
        give_back()
        time.sleep(POLL_SECONDS)
        run = compact_session(session_id, run_id=run_id)
    return run


def request_manual(session_id: str, *, turn_ids: Sequence[str] = ()) -> str:
    """Queue a compaction on request and return its id, or that of the live one.

    :raises TurnNotFoundError: one of the named turns is not in the session.
    :raises CompactionBusy: turns are named, and the live compaction is another one.
    :raises Conflict: they may not be compacted, as ``check_turns`` says.
    :raises TurnsNotAdjacent: something else lies between them.
    """
    live = live_run(session_id)
    if live and turn_ids:
        if set(load_run(live).turn_ids) != set(turn_ids):
            raise CompactionBusy(run_id=live)
        return live
    state = load_state(session_id)
    size, named = size_of(state), list[str]()
    if turn_ids:
        places = places_of_turns(turn_ids, session_id=session_id)
        path = path_in(state.session, state.branch) or LINE
        on_branch = {id: [seq for branch, seq in found if path.has(branch, seq)] for id, found in places.items()}
        named = check_turns(_situation(state, everything=True), on_branch)
    with change(session_id) as record:
        run_id = request_compaction(record, trigger="manual", size=size, turn_ids=named)
        if run_id is None and named:
            raise CompactionBusy(run_id=live_run(session_id))
        return run_id or live_run(session_id) or ""


def _compact(attempt: ClaimedRun) -> None:
    run = load_run(attempt.run_id)
    state = attempt.load_state(run.branch)
    try:
        alias = state.config.compaction.model or state.session.model
        model = get_model(alias, user_id=state.session.owner_id)
    except ModelNotFoundError:
        model = None
    began, is_manual = time.monotonic(), run.trigger == "manual"
    situation_of = partial(_situation, everything=is_manual, turn_ids=run.turn_ids)
    choice = choose_prunable(situation_of(state))
    if choice.part_ids:
        with attempt.held() as record:
            store.prune(record, attempt.run_id, choice.part_ids, tokens=choice.tokens)
        state = attempt.load_state(run.branch)
    for _ in range(state.config.compaction.max_compaction_rounds):
        chosen = next_round(situation_of(state))
        if chosen is None:
            break
        _commit(attempt, state, chosen, model=model, began=began)
        state = attempt.load_state(run.branch)
    last, size = situation_of(state), size_of(state)
    more = next_round(last) is not None
    ended = outcome(size.tokens, state.budget, changed=has_changed(attempt.run_id), more=more)
    refill = None if is_manual else _find_refill(state, size)
    with attempt.held() as record:
        store.finish_run(
            record,
            attempt.run_id,
            outcome=ended.value,
            tokens_after=size.tokens,
            fence=attempt.fence,
            refill=refill,
        )
        copy_held_facts(record, state.session, state.config)
        is_due = last.everything or size.tokens >= state.budget.soft
        if more and is_due and record.branch == run.branch:
            trigger = "manual" if last.everything else "soft"
            request_compaction(record, trigger=trigger, size=size, turn_ids=run.turn_ids)


def _find_refill(state: ContextState, size: Size) -> Refill | None:
    return find_refill(
        state.session.id,
        state.entries,
        state.pinned,
        used=size.tokens,
        budget=state.budget,
        calibration=state.calibration.ratio,
        path=path_in(state.session, state.branch),
    )


def _situation(state: ContextState, *, everything: bool, turn_ids: Sequence[str] = ()) -> Situation:
    turn, used = open_turn(state.session.id), size_of(state).tokens
    return state.situation(used=used, running_turn_id=turn and turn[0], everything=everything, turn_ids=turn_ids)


def _commit(
    attempt: ClaimedRun, state: ContextState, chosen: Span | Condensation, *, model: Model | None, began: float
) -> None:
    """Ask for a summary with no lock held; then write it and swap it in, in one transaction."""
    attempt.renew()
    id = new_id("sum")
    columns, manifest = ask_for_summary(
        state,
        chosen,
        attempt=attempt,
        model=model,
        summary_id=id,
        began=began,
        context_seq=state.session.event_seq,
        limit=piece_limit(state.summariser(), state.config),
        prompts=site_prompts(),
    )
    summary = NewSummary(
        id=id,
        kind=chosen.kind,
        depth=chosen.depth,
        first_seq=chosen.first_seq,
        last_seq=chosen.last_seq,
        message_count=chosen.message_count,
        **columns,
    )
    with attempt.held() as record:
        if manifest:
            keep_text(record, manifest)
        store.record_summary(
            record,
            attempt.run_id,
            summary,
            fence=attempt.fence,
            source_type="summary" if summary.kind == "condensed" else "message",
            source_ids=list(chosen.source_ids),
            branch=state.branch,
        )
        request_alignment(summary.id)
        config = state.config.compaction
        if summary.kind == "leaf" and config.reflect:
            request_reflection(record, summary.id)
        elif config.fidelity_bound < 1:
            request_reflection(record, summary.id, by_rule=True)
