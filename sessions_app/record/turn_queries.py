"""Reads of turns, and of what suspended ones wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from django.utils import timezone

from mnesis_core.errors import TurnNotFoundError
from mnesis_core.messages import ToolState
from mnesis_core.records import TurnRecord, TurnState, Waiting, WaitsFor
from mnesis_core.turns.options import read_options
from mnesis_core.values import dataclass
from sessions_app.database.tables import CompiledQuery, Param, fetch
from sessions_app.models import MessagePart, Turn
from sessions_app.record.lease import expired, is_abandoned
from sessions_app.record.rows import record_of, usage_of

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

_BY_ID = CompiledQuery(lambda: Turn.objects.filter(id=Param("id")))


def load_turn(turn_id: str, *, session_id: str) -> TurnRecord:
    """:raises TurnNotFoundError: the session has no such turn."""
    row = _BY_ID.one(id=turn_id)
    if row is None or row.session_id != session_id:
        raise TurnNotFoundError(turn_id=turn_id)
    return _turns([row])[0]


def load_turns(turn_ids: Sequence[str], *, session_id: str) -> dict[str, TurnRecord]:
    """Return turns of a session by id, in two queries per thousand.

    :raises TurnNotFoundError: one of them is not in the session.
    """
    found: dict[str, TurnRecord] = {}
    for start in range(0, len(turn_ids), 1000):  # SQLite allows 32,766 variables in one statement
        wanted = turn_ids[start : start + 1000]
        found |= {turn.id: turn for turn in _turns(list(Turn.objects.filter(session_id=session_id, id__in=wanted)))}
    missing = next((id for id in turn_ids if id not in found), None)
    if missing is not None:
        raise TurnNotFoundError(turn_id=missing)
    return found


def list_turns(session_id: str, *, before_seq: int | None = None, limit: int = 50) -> list[TurnRecord]:
    rows = Turn.objects.filter(session_id=session_id).order_by("-seq")
    if before_seq is not None:
        rows = rows.filter(seq__lt=before_seq)
    return _turns(list(rows[:limit]))


def newest_model(session_id: str) -> str:
    newest = Turn.objects.filter(session_id=session_id).order_by("-seq").values_list("model", flat=True).first()
    return newest or ""


def open_turn(session_id: str) -> tuple[str, str] | None:
    """Return the id and state of the turn that has the session now, running or suspended."""
    return Turn.objects.filter(session_id=session_id, ended_at__isnull=True).values_list("id", "state").first()


def is_interrupted(turn_id: str) -> bool:
    return Turn.objects.filter(id=turn_id, interrupt_requested_at__isnull=False).exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredTurn:
    session_id: str
    turn_id: str
    lease_owner: str
    lease_expires_at: datetime

    def is_left(self, now: datetime) -> bool:
        """Return whether the process of the turn is gone, as far as that can be known here."""
        return is_abandoned(self.lease_owner, expired_at=self.lease_expires_at, now=now)


def expired_turns(*, session_id: str | None = None) -> list[ExpiredTurn]:
    """Return running turns whose lease ran out, the oldest first, a thousand at the most."""
    rows = Turn.objects.filter(expired(timezone.now()), state="running").order_by("lease_expires_at")
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    found = rows.values_list("session_id", "id", "lease_owner", "lease_expires_at")[:1000]
    return [
        ExpiredTurn(session_id=session, turn_id=turn, lease_owner=owner, lease_expires_at=expired)
        for session, turn, owner, expired in found
    ]


def interrupted_turns(turn_ids: Collection[str]) -> set[str]:
    rows = Turn.objects.filter(id__in=turn_ids, state="running", interrupt_requested_at__isnull=False)
    return set(rows.values_list("id", flat=True))


def find_turn_by_key(session_id: str, idempotency_key: str) -> tuple[str, str] | None:
    """Return the id and request digest of the turn that this idempotency key, as stored, started."""
    rows = Turn.objects.filter(session_id=session_id, idempotency_key=idempotency_key)
    return rows.values_list("id", "request_digest").first()


def find_turn_of_part(part_id: str, *, owner_id: int) -> tuple[str, str] | None:
    rows = MessagePart.objects.filter(id=part_id, part_type="tool", session__owner_id=owner_id)
    return rows.filter(session__deleted_at__isnull=True).values_list("session_id", "message__turn_id").first()


def turn_keys(session_id: str) -> set[str]:
    rows = Turn.objects.filter(session_id=session_id, idempotency_key__isnull=False)
    return set(rows.values_list("idempotency_key", flat=True))


def _turns(rows: list[Turn]) -> list[TurnRecord]:
    messages: dict[str, list[str]] = defaultdict(list)
    places = ", ".join(["%s"] * len(rows))
    found = f"SELECT turn_id, id FROM messages WHERE turn_id IN ({places}) ORDER BY seq"
    for turn_id, message_id in fetch(found, [row.id for row in rows]) if rows else []:
        messages[turn_id].append(message_id)
    return [
        record_of(
            TurnRecord,
            row,
            message_ids=tuple(messages[row.id]),
            usage=usage_of(row),
            waits_for=_waits_for(row) if row.state == TurnState.SUSPENDED else (),
        )
        for row in rows
    ]


def _waits_for(row: Turn) -> tuple[Waiting, ...]:
    """Return the tool calls that a suspended turn waits for; started ones have a result or an approval."""
    callers = read_options(row.options).tool_names
    rows = MessagePart.objects.filter(message__turn_id=row.id, part_type="tool", tool_state=ToolState.PENDING)
    columns = rows.order_by("message__seq", "part_index").values_list("id", "tool_call_id", "tool_name", "tool_input")
    waiting: dict[str, Waiting] = {}
    for id, own_id, name, input in columns:
        # As in a prompt, a call without its own id gets the id of its part.
        call_id = own_id if own_id and own_id not in waiting else id
        reason = WaitsFor.CALLER if name in callers else WaitsFor.APPROVAL
        waiting[call_id] = Waiting(part_id=id, tool_call_id=call_id, tool_name=name, input=input, reason=reason)
    return tuple(waiting.values())


def reasons_to_wait(turn_ids: Sequence[str]) -> dict[str, WaitsFor]:
    """Return what suspended turns wait for, a person before a caller if they wait for both, in two queries."""
    rows = Turn.objects.filter(id__in=list(turn_ids)).values_list("id", "options")
    callers = {id: read_options(options).tool_names for id, options in rows}
    waiting = MessagePart.objects.filter(
        message__turn_id__in=list(callers), part_type="tool", tool_state=ToolState.PENDING
    )
    reasons: dict[str, WaitsFor] = {}
    for turn_id, name in waiting.values_list("message__turn_id", "tool_name"):
        if name not in callers[turn_id]:
            reasons[turn_id] = WaitsFor.APPROVAL
        reasons.setdefault(turn_id, WaitsFor.CALLER)
    return reasons


def turn_seq_at(session_id: str, moment: datetime) -> int:
    """Return the seq of the newest turn that had begun by then, or 0."""
    rows = Turn.objects.filter(session_id=session_id, created_at__lte=moment)
    return rows.order_by("-seq").values_list("seq", flat=True).first() or 0
