"""The only writer of turns, of model calls and of the texts that their prompts were made with.

A turn is claimed by one process, held by a lease and ended once. A call's request is written before the call, its end once
afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core import errors
from mnesis_core.events import EventType
from mnesis_core.llm.retrying import Retry
from mnesis_core.records import MessageEnd, NewCall, TurnRecord, TurnState, UsageRecord, new_id, record_of
from mnesis_core.text import text_digest
from sessions_app.database.tables import Table
from sessions_app.models import ModelCall, PromptText, Turn
from sessions_app.record.change import Change
from sessions_app.record.lease import NO_LEASE, Lease, expired
from sessions_app.record.message_queries import end_columns, usage_columns

_TURNS, _CALLS, _TEXTS = Table(Turn), Table(ModelCall), Table(PromptText)
_EVENT_OF = {
    TurnState.COMPLETED: EventType.TURN_COMPLETED,
    TurnState.CANCELLED: EventType.TURN_CANCELLED,
    TurnState.INTERRUPTED: EventType.TURN_INTERRUPTED,
    TurnState.FAILED: EventType.TURN_FAILED,
    TurnState.INCOMPLETE: EventType.TURN_INCOMPLETE,
}


def claim_turn(
    record: Change,
    *,
    model: str,
    lease_owner: str = "",
    lease_seconds: float = 0,
    idempotency_key: str | None = None,
    request_digest: str = "",
    options: str = "",
    origin: str = "chat",
    created_at: datetime | None = None,
) -> TurnRecord:
    """Claim the session for a new turn and return it as written, without messages.

    :raises SessionBusy: another turn has it, running or suspended.
    :raises SessionArchived: the session takes no more turns.
    """
    if record.archived:
        raise errors.SessionArchived(session_id=record.session_id)
    if not record.is_idle and (busy := record.find(_TURNS, "id", "state", session_id=record.session_id, ended_at=None)):
        raise errors.SessionBusy(session_id=record.session_id, turn_id=busy[0], state=busy[1])
    turn = _TURNS.row(
        id=new_id("turn"),
        session_id=record.session_id,
        seq=record.next_turn_seq(),
        model=model,
        origin=origin,
        idempotency_key=idempotency_key,
        request_digest=request_digest,
        options=options,
        actor=record.actor,
        created_at=created_at or record.now,
        lease_owner=lease_owner,
        lease_expires_at=record.now + timedelta(seconds=lease_seconds) if lease_seconds else None,
    )
    record.insert(_TURNS, turn)
    record.turn_ids.add(turn.id)
    record.is_idle = False
    record.publish(EventType.TURN_STARTED, turn_id=turn.id, turn_seq=turn.seq, origin=origin)
    return record_of(TurnRecord, turn, message_ids=(), usage=UsageRecord(), waits_for=())


def start_turn(record: Change, **values: Any) -> str:
    return claim_turn(record, **values).id


def require_turn(record: Change, turn_id: str, *, fence: int) -> None:
    """:raises TurnNotFoundError: the session has no such turn.
    :raises Conflict: the turn has ended, or another process took it over.
    """
    if (
        record.find(_TURNS, "id", id=turn_id, session_id=record.session_id, state=TurnState.RUNNING, fence=fence)
        is None
    ):
        raise _unknown_or_over(record, turn_id)
    record.turn_ids.add(turn_id)


def require_turn_of_session(record: Change, turn_id: str) -> None:
    """:raises TurnNotFoundError: the session has no such turn."""
    if turn_id not in record.turn_ids and record.find(_TURNS, "id", id=turn_id, session_id=record.session_id) is None:
        raise errors.TurnNotFoundError(turn_id=turn_id)
    record.turn_ids.add(turn_id)


def suspend_turn(record: Change, turn_id: str, *, fence: int, part_ids: Sequence[str]) -> bool:
    """Let a running turn wait for the answers to these tool calls, held by no process; False if it is to be interrupted.

    :raises TurnNotFoundError: the session has no such turn.
    :raises Conflict: it has ended, or another process took it over.
    """
    require_turn(record, turn_id, fence=fence)
    values = {"state": TurnState.SUSPENDED.value, **NO_LEASE}
    # An interrupt takes no lock of the session, so it may have come since the turn was last read.
    held: dict[str, Any] = {"session_id": record.session_id, "state": TurnState.RUNNING, "fence": fence}
    if not record.update(_TURNS, values, id=turn_id, **held, interrupt_requested_at=None):
        return False
    record.publish(EventType.TURN_SUSPENDED, turn_id=turn_id, part_ids=list(part_ids))
    return True


def resume_turn(record: Change, turn_id: str, *, fence: int, lease_owner: str, lease_seconds: float) -> None:
    """:raises TurnNotFoundError: the session has no such turn.
    :raises Conflict: it is no longer suspended.
    """
    lease = Lease(owner=lease_owner, seconds=lease_seconds)
    values = {"state": TurnState.RUNNING.value, "fence": fence + 1, **lease.columns(record.now)}
    if not record.update(
        _TURNS, values, id=turn_id, session_id=record.session_id, state=TurnState.SUSPENDED, fence=fence
    ):
        raise _unknown_or_over(record, turn_id)
    record.turn_ids.add(turn_id)
    record.publish(EventType.TURN_RESUMED, turn_id=turn_id)


def finish_turn(
    record: Change,
    turn_id: str,
    *,
    state: TurnState,
    before: TurnState = TurnState.RUNNING,
    fence: int = 1,
    usage: UsageRecord | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
    ended_at: datetime | None = None,
) -> None:
    """End a turn once; ``before`` is the state that it has until now.

    :raises TurnNotFoundError: the session has no such turn.
    :raises Conflict: it has already ended, or another process took it over (the fence has gone up).
    """
    values = {
        "state": state.value,
        "ended_at": ended_at or record.now,
        "error_code": error_code,
        "error_message": error_message,
        **usage_columns(usage or UsageRecord()),
    }
    if not record.update(_TURNS, values, id=turn_id, session_id=record.session_id, state=before, fence=fence):
        raise _unknown_or_over(record, turn_id)
    record.is_idle = True
    record.publish(_EVENT_OF[state], turn_id=turn_id, error_code=error_code)


def take_over_turn(
    record: Change, turn_id: str, *, lease_owner: str, lease_seconds: float, left_by: str | None = None
) -> int | None:
    """Claim a running turn whose lease ran out; return the new fence, or ``None`` if it is alive after all.

    :param left_by: only if it is still held by this owner, which was found to be dead
    """
    turns = Turn.objects.filter(expired(record.now), id=turn_id, session_id=record.session_id, state=TurnState.RUNNING)
    if left_by is not None:
        turns = turns.filter(lease_owner=left_by)
    lease = Lease(owner=lease_owner, seconds=lease_seconds)
    taken = turns.update(fence=F("fence") + 1, **lease.columns(record.now))
    return Turn.objects.values_list("fence", flat=True).get(id=turn_id) if taken else None


def renew_leases(*, lease_owner: str, turn_ids: Collection[str], lease_seconds: float) -> None:
    """Renew the leases of one process's turns, also those that ran out and that no other process took over."""
    mine = Turn.objects.filter(id__in=turn_ids, state=TurnState.RUNNING, lease_owner=lease_owner)
    lease, now = Lease(owner=lease_owner, seconds=lease_seconds), timezone.now()
    lease.renew(lease.due(mine, now), now)


def request_interrupt(record: Change, turn_id: str) -> None:
    """Ask for the end of a running turn; asking again changes nothing."""
    if record.update(_TURNS, {"interrupt_requested_at": record.now}, id=turn_id, interrupt_requested_at=None):
        record.publish(EventType.TURN_INTERRUPT_REQUESTED, turn_id=turn_id)


def _unknown_or_over(record: Change, turn_id: str) -> Exception:
    if record.find(_TURNS, "id", id=turn_id, session_id=record.session_id) is None:
        return errors.TurnNotFoundError(turn_id=turn_id)
    return errors.Conflict(gettext_noop("this turn has ended already, or was taken over"), turn_id=turn_id)


def start_call(record: Change, *, turn_id: str | None, message_id: str | None, **about: Any) -> str:
    """Record a call before it is made and return its id; the arguments are those of ``add_call``."""
    call_id = add_call(record, turn_id=turn_id, message_id=message_id, **about)
    record.publish(EventType.CALL_STARTED, call_id=call_id, turn_id=turn_id, message_id=message_id)
    return call_id


def add_call(
    record: Change,
    *,
    turn_id: str | None,
    message_id: str | None,
    model: str,
    provider_model: str,
    parameters: dict[str, Any],
    manifest: list[Any],
    context_seq: int,
    digest: str,
    estimated_tokens: int,
    purpose: str = "turn",
    texts: Mapping[str, str] | None = None,
) -> str:
    """Record a call before it is made and return its id. Publish an event that names it.

    ``texts`` are what its prompt was made from besides the messages, by name: ``tools``, ``prompt``. Each is kept once in a
    session, so that the prompt can be rebuilt after tools and prompts have changed.
    """
    kept = {}
    for name, text in (texts or {}).items():
        kept[name] = text_digest(text)
        if record.find(_TEXTS, "id", session_id=record.session_id, digest=kept[name]) is None:
            stored = _TEXTS.row(
                id=new_id("text"),
                session_id=record.session_id,
                digest=kept[name],
                content=text,
                created_at=record.now,
            )
            record.insert(_TEXTS, stored)
    row = _CALLS.row(
        id=new_id("call"),
        session_id=record.session_id,
        turn_id=turn_id,
        message_id=message_id,
        purpose=purpose,
        model=model,
        provider_model=provider_model,
        parameters=parameters | ({"texts": kept} if kept else {}),
        manifest=manifest,
        context_seq=context_seq,
        digest=digest,
        estimated_tokens=estimated_tokens,
        created_at=record.now,
    )
    record.insert(_CALLS, row)
    return str(row.id)


def start_calls(record: Change, calls: Sequence[NewCall]) -> list[str]:
    """Record many calls outside any turn before they are made and return their ids. Publish an event that names them."""
    rows = [
        _CALLS.row(
            id=new_id("call"),
            session_id=record.session_id,
            purpose=call.purpose,
            model=call.model,
            provider_model=call.provider_model,
            parameters=call.parameters,
            manifest=call.manifest,
            digest=call.digest,
            estimated_tokens=call.estimated_tokens,
            created_at=record.now,
        )
        for call in calls
    ]
    record.insert(_CALLS, *rows)
    return [str(row.id) for row in rows]


def finish_calls(record: Change, ends: Mapping[str, tuple[MessageEnd, int]]) -> set[str]:
    """Record the ends of many calls, each with its number of attempts, and return the ids of those that were running.

    Publish an event that names them.
    """
    values = {call_id: _end_columns(record, end, attempts) for call_id, (end, attempts) in ends.items()}
    return record.update_each(_CALLS, values, session_id=record.session_id, state="running")


def note_retry(record: Change, call_id: str, retry: Retry) -> None:
    record.publish(
        EventType.CALL_RETRIED,
        call_id=call_id,
        attempt=retry.attempt,
        error_code=retry.error.code,
        pause_ms=round(retry.pause_seconds * 1000),
    )


def end_call(record: Change, call_id: str, end: MessageEnd, *, attempts: int = 1) -> None:
    """Record the end of a call. Publish an event that names it.

    :raises CallNotFoundError: no such call is running in this session.
    """
    values = _end_columns(record, end, attempts)
    if not record.update(_CALLS, values, id=call_id, session_id=record.session_id, state="running"):
        raise errors.CallNotFoundError(call_id=call_id)


def finish_call(record: Change, call_id: str, end: MessageEnd, *, attempts: int = 1) -> None:
    """:raises CallNotFoundError: no such call is running in this session."""
    end_call(record, call_id, end, attempts=attempts)
    type = EventType.CALL_COMPLETED if end.error_code is None else EventType.CALL_FAILED
    record.publish(type, call_id=call_id, outcome=end.outcome, error_code=end.error_code, **usage_columns(end.usage))


def _end_columns(record: Change, end: MessageEnd, attempts: int) -> dict[str, Any]:
    return {
        "state": "completed" if end.error_code is None else "failed",
        "attempts": attempts,
        "ended_at": record.now,
        "usage_said": end.usage_said or None,
        "stop_sequence": end.stop_sequence,
        "first_token_ms": end.first_token_ms,
        "tokens_cache_write_1h": end.tokens_cache_write_1h,
        **end_columns(end),
    }
