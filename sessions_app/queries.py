"""Reads of the record for everybody else: core values out, no querysets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from mnesis_core.errors import (
    CallNotFoundError,
    MessageNotFoundError,
    SessionNotFoundError,
    TurnNotFoundError,
)
from mnesis_core.events import LedgerEvent
from mnesis_core.messages import Role, StoredMessage, StoredPart
from mnesis_core.record import (
    CallRecord,
    ContextItemRecord,
    LiveText,
    SessionRecord,
    TurnRecord,
    UsageRecord,
)
from mnesis_core.text import decode_text, encode_text
from mnesis_core.tokens import MESSAGE_FRAMING
from sessions_app import live
from sessions_app.models import ContextItem, Event, Message, MessagePart, ModelCall, Session, StreamJournal, Turn
from sessions_app.rows import part_of

_NEWEST_TURN = Turn.objects.filter(session=OuterRef("pk")).order_by("-seq")
_RUNNING_TURN = Turn.objects.filter(session=OuterRef("pk"), state="running")


def _sessions() -> QuerySet[Any]:
    rows: QuerySet[Any] = Session.objects.filter(deleted_at__isnull=True).annotate(
        running_turn_id=Subquery(_RUNNING_TURN.values("id")[:1]),
        last_turn_state=Subquery(_NEWEST_TURN.values("state")[:1]),
    )
    return rows


def load_session(session_id: str, *, owner_id: int | None = None) -> SessionRecord:
    """One session; with ``owner_id``, only if it is theirs.

    :raises SessionNotFoundError: there is no such session, or it belongs to somebody else.
    """
    rows = _sessions().filter(id=encode_text(session_id))
    if owner_id is not None:
        rows = rows.filter(owner_id=owner_id)
    row = rows.first()
    if row is None:
        raise SessionNotFoundError(session_id=session_id)
    return _session(row)


def list_sessions(
    *,
    owner_id: int,
    archived: bool | None = False,
    label: tuple[str, str] | None = None,
    query: str = "",
    before: tuple[datetime, str] | None = None,
    limit: int = 50,
) -> list[SessionRecord]:
    """Sessions of one person, the most recently changed first, after the cursor ``before`` (time and id)."""
    rows = _sessions().filter(owner_id=owner_id)
    if archived is not None:
        rows = rows.filter(archived_at__isnull=not archived)
    if label is not None:
        rows = rows.filter(**{f"labels__{encode_text(label[0])}": encode_text(label[1])})
    if query:
        rows = rows.filter(title__icontains=encode_text(query))
    if before is not None:
        rows = rows.filter(Q(updated_at__lt=before[0]) | Q(updated_at=before[0], id__lt=encode_text(before[1])))
    return [_session(row) for row in rows.order_by("-updated_at", "-id")[:limit]]


def find_imported(*, owner_id: int, origin: str, external_id: str) -> SessionRecord | None:
    """The session that an import made before, if it did."""
    row = _sessions().filter(owner_id=owner_id, origin=origin, external_id=encode_text(external_id)).first()
    return None if row is None else _session(row)


def turn_keys(session_id: str) -> set[str]:
    """The idempotency keys of a session's turns, as stored."""
    rows = Turn.objects.filter(session_id=session_id, idempotency_key__isnull=False)
    return set(rows.values_list("idempotency_key", flat=True))


def find_part_of_call(session_id: str, tool_call_id: str) -> str:
    """The part that holds a tool call; empty when there is none."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", tool_call_id=encode_text(tool_call_id))
    return rows.values_list("id", flat=True).first() or ""


def load_turn(turn_id: str, *, session_id: str) -> TurnRecord:
    """One turn of a session.

    :raises TurnNotFoundError: the session has no such turn.
    """
    row = Turn.objects.filter(id=encode_text(turn_id), session_id=session_id).first()
    if row is None:
        raise TurnNotFoundError(turn_id=turn_id)
    return _turns([row])[0]


def find_turn_by_key(session_id: str, idempotency_key: str) -> tuple[str, str] | None:
    """The id and the request digest of the turn that this idempotency key, as stored, started."""
    rows = Turn.objects.filter(session_id=session_id, idempotency_key=idempotency_key)
    return rows.values_list("id", "request_digest").first()


def list_turns(session_id: str, *, before_seq: int | None = None, limit: int = 50) -> list[TurnRecord]:
    """Turns of a session, newest first."""
    rows = Turn.objects.filter(session_id=session_id).order_by("-seq")
    if before_seq is not None:
        rows = rows.filter(seq__lt=before_seq)
    return _turns(list(rows[:limit]))


def expired_turns(*, session_id: str | None = None) -> list[tuple[str, str]]:
    """(session id, turn id) of running turns whose process is gone."""
    rows = Turn.objects.filter(state="running", lease_expires_at__lt=timezone.now())
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    return list(rows.values_list("session_id", "id")[:100])


def running_turn(session_id: str) -> str | None:
    """The id of the turn that runs now."""
    return Turn.objects.filter(session_id=session_id, state="running").values_list("id", flat=True).first()


def load_messages(
    session_id: str, *, after: int = 0, before: int | None = None, limit: int = 100, newest: bool = False
) -> list[StoredMessage]:
    """Messages with parts, oldest first, in two queries; with ``newest`` the last ones of the range."""
    rows = Message.objects.filter(session_id=session_id, seq__gt=after)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    chosen = list(rows.order_by("-seq" if newest else "seq")[:limit])
    return _messages(sorted(chosen, key=lambda row: row.seq))


def load_messages_by_ids(ids: Sequence[str], *, session_id: str) -> list[StoredMessage]:
    """Messages of a session with parts in the order of ``ids``, in two queries a thousand.

    :raises MessageNotFoundError: one of them is not in the session.
    """
    found: dict[str, StoredMessage] = {}
    for start in range(0, len(ids), 1000):  # SQLite allows 32,766 variables in one statement
        wanted = [encode_text(id) for id in ids[start : start + 1000]]
        rows = Message.objects.filter(session_id=session_id, id__in=wanted)
        found |= {message.id: message for message in _messages(list(rows))}
    missing = next((id for id in ids if id not in found), None)
    if missing is not None:
        raise MessageNotFoundError(message_id=missing)
    return [found[id] for id in ids]


def load_message_rows(session_id: str, ids: Iterable[str]) -> dict[str, Any]:
    """Finish reason, usage, outcome and error of some messages, by id, for doors that show them."""
    rows = Message.objects.filter(session_id=session_id, id__in=list(ids))
    return {row.id: row for row in rows}


def load_context_items(session_id: str, *, at: int | None = None) -> list[ContextItemRecord]:
    """The active context in order: now, or as of event ``at``."""
    rows = ContextItem.objects.filter(session_id=session_id)
    if at is None:
        rows = rows.filter(removed_seq__isnull=True)
    else:
        rows = rows.filter(Q(removed_seq__isnull=True) | Q(removed_seq__gt=at), added_seq__lte=at)
    values = rows.order_by("position").values_list("item_type", "item_id", "position", "added_seq", "removed_seq")
    return [
        ContextItemRecord(item_type=kind, item_id=id, position=position, added_seq=added, removed_seq=removed)
        for kind, id, position, added, removed in values
    ]


def tombstoned_after(session_id: str, at: int) -> set[str]:
    """Parts that were not tombstones yet as of event ``at``."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", compacted_seq__gt=at)
    return set(rows.values_list("id", flat=True))


def load_events(session_id: str, *, after: int = 0, limit: int = 500) -> list[LedgerEvent]:
    """Events of a session in order."""
    rows = Event.objects.filter(session_id=session_id, seq__gt=after).order_by("seq")[:limit]
    return [
        LedgerEvent(
            session_id=session_id, seq=row.seq, type=row.type, data=json.loads(row.body), created_at=row.created_at
        )
        for row in rows
    ]


def load_live_texts(session_id: str) -> list[LiveText]:
    """What the running answer says so far: from this process if it runs here, else from the journal."""
    here = live.hub.texts(session_id)
    return journal_texts(session_id) if here is None else here


def journal_texts(session_id: str, *, message_id: str | None = None) -> list[LiveText]:
    """The journal's pieces put together, a text for each part."""
    rows = StreamJournal.objects.filter(session_id=session_id)
    if message_id is not None:
        rows = rows.filter(message_id=message_id)
    pieces: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for row in rows.order_by("message_id", "part_index", "offset"):
        pieces[row.message_id, row.part_index, row.part_type].append(row.text)
    return [
        LiveText(message_id=id, part_index=index, part_type=kind, text=decode_text("".join(texts)))
        for (id, index, kind), texts in pieces.items()
    ]


def load_part_text(part_id: str) -> LiveText:
    """The whole text of a part that was streamed."""
    row = MessagePart.objects.only("message_id", "part_index", "part_type", "content").get(id=part_id)
    return LiveText(
        message_id=row.message_id, part_index=row.part_index, part_type=row.part_type, text=decode_text(row.content)
    )


def unfinished_messages(turn_id: str) -> list[str]:
    """Assistant messages of a turn that are stubs still."""
    rows = Message.objects.filter(turn_id=turn_id, role="assistant", finalized_at__isnull=True)
    return list(rows.order_by("seq").values_list("id", flat=True))


def unanswered_tools(turn_id: str) -> list[str]:
    """Tool calls of a turn without a result."""
    rows = MessagePart.objects.filter(message__turn_id=turn_id, part_type="tool", tool_state__in=["pending", "running"])
    return list(rows.order_by("message__seq", "part_index").values_list("id", flat=True))


def running_calls(turn_id: str) -> list[str]:
    """Model calls of a turn that have not ended."""
    return list(ModelCall.objects.filter(turn_id=turn_id, state="running").values_list("id", flat=True))


def list_calls(session_id: str, *, limit: int = 100, before: datetime | None = None) -> list[CallRecord]:
    """Model calls of a session, newest first."""
    rows = ModelCall.objects.filter(session_id=session_id).order_by("-created_at")
    if before is not None:
        rows = rows.filter(created_at__lt=before)
    return [_call(row) for row in rows[:limit]]


def load_call(call_id: str, *, owner_id: int) -> CallRecord:
    """One model call of one person's sessions.

    :raises CallNotFoundError: there is no such call, or it belongs to somebody else.
    """
    row = ModelCall.objects.filter(id=encode_text(call_id), session__owner_id=owner_id).first()
    if row is None:
        raise CallNotFoundError(call_id=call_id)
    return _call(row)


def measured_calls(session_id: str, *, limit: int = 8) -> list[tuple[int, int]]:
    """(estimated, reported) prompt tokens of the last calls whose provider reported usage, oldest first."""
    rows = ModelCall.objects.filter(session_id=session_id, usage_source="provider", purpose="turn")
    newest = rows.order_by("-created_at").values_list("estimated_tokens", "tokens_input")[:limit]
    return list(reversed(newest))


def newest_call_parameters(session_id: str) -> dict[str, Any]:
    """The parameters of the newest call of a turn; empty when there was none."""
    rows = ModelCall.objects.filter(session_id=session_id, purpose="turn").order_by("-created_at")
    return rows.values_list("parameters", flat=True).first() or {}


def usage_of_session(session_id: str) -> UsageRecord:
    """What a session's turns have used so far."""
    rows = Turn.objects.filter(session_id=session_id).values_list("tokens_input", "tokens_output", "cost_micros")
    values = list(rows)
    return UsageRecord(
        tokens_input=sum(row[0] or 0 for row in values),
        tokens_output=sum(row[1] or 0 for row in values),
        cost_micros=sum(row[2] or 0 for row in values),
    )


def _messages(rows: list[Message]) -> list[StoredMessage]:
    parts: dict[str, list[StoredPart]] = defaultdict(list)
    for row in MessagePart.objects.filter(message_id__in=[row.id for row in rows]).order_by("message_id", "part_index"):
        tokens = row.token_estimate + (0 if row.output_token_estimate is None else row.output_token_estimate)
        parts[row.message_id].append(
            StoredPart(id=row.id, index=row.part_index, part=part_of(row), token_estimate=tokens)
        )
    return [_message(row, tuple(parts[row.id])) for row in rows]


def _message(row: Message, parts: tuple[StoredPart, ...]) -> StoredMessage:
    return StoredMessage(
        id=row.id,
        seq=row.seq,
        turn_id=row.turn_id,
        role=cast(Role, row.role),
        parts=parts,
        created_at=row.created_at,
        is_summary=row.is_summary,
        token_estimate=MESSAGE_FRAMING + sum(part.token_estimate for part in parts),
    )


def _session(row: Any) -> SessionRecord:
    return SessionRecord(
        id=row.id,
        owner_id=row.owner_id,
        parent_id=row.parent_id,
        title=decode_text(row.title),
        model=row.model,
        agent=decode_text(row.agent),
        origin=row.origin,
        system_prompt=decode_text(row.system_prompt),
        labels=row.labels,
        config=row.config,
        created_at=row.created_at,
        updated_at=row.updated_at,
        archived_at=row.archived_at,
        event_seq=row.event_seq,
        message_seq=row.message_seq,
        turn_seq=row.turn_seq,
        running_turn_id=row.running_turn_id,
        last_turn_state=row.last_turn_state,
    )


def _turns(rows: list[Turn]) -> list[TurnRecord]:
    messages: dict[str, list[str]] = defaultdict(list)
    pairs = Message.objects.filter(turn_id__in=[row.id for row in rows]).order_by("seq").values_list("turn_id", "id")
    for turn_id, message_id in pairs:
        messages[turn_id].append(message_id)
    return [
        TurnRecord(
            id=row.id,
            session_id=row.session_id,
            seq=row.seq,
            state=row.state,
            model=row.model,
            origin=row.origin,
            idempotency_key=row.idempotency_key,
            created_at=row.created_at,
            ended_at=row.ended_at,
            error_code=row.error_code,
            error_message=None if row.error_message is None else decode_text(row.error_message),
            fence=row.fence,
            message_ids=tuple(messages[row.id]),
            usage=usage_of(row),
        )
        for row in rows
    ]


def usage_of(row: Any) -> UsageRecord:
    """The usage columns of a row as a value."""
    return UsageRecord(
        tokens_input=row.tokens_input,
        tokens_output=row.tokens_output,
        tokens_cache_read=row.tokens_cache_read,
        tokens_cache_write=row.tokens_cache_write,
        usage_source=row.usage_source,
        cost_micros=row.cost_micros,
    )


def _call(row: ModelCall) -> CallRecord:
    return CallRecord(
        id=row.id,
        session_id=row.session_id,
        turn_id=row.turn_id,
        message_id=row.message_id,
        purpose=row.purpose,
        state=row.state,
        model=row.model,
        provider_model=row.provider_model,
        parameters=row.parameters,
        manifest=row.manifest,
        context_seq=row.context_seq,
        digest=row.digest,
        estimated_tokens=row.estimated_tokens,
        outcome=row.outcome,
        finish_reason=row.finish_reason,
        error_code=row.error_code,
        error_message=None if row.error_message is None else decode_text(row.error_message),
        created_at=row.created_at,
        ended_at=row.ended_at,
        usage=usage_of(row),
    )
