"""Reads of a session's timeline: its turns, a page at a time, and their totals.

Nothing here reads a whole text, and the number of queries does not depend on the length of the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    Exists,
    F,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from mnesis_core.compaction.dag import Span, runs_of
from mnesis_core.events import MAX_INTEGER
from mnesis_core.llm.tokens import MESSAGE_FRAMING
from mnesis_core.records import ContextItemRecord, UsageRecord
from mnesis_core.text import encode_text, excerpt
from sessions_app.database.fields import Head
from sessions_app.models import ContextItem, Event, Message, MessagePart, ModelCall, Session, Turn
from sessions_app.record.call_queries import usage_of

OPENING = 200  # characters of a turn's first text
ERROR = 300  # characters of an error's message
# Longer patterns find nothing more, and very long ones make SQLite's LIKE fail.
SEARCH_LENGTH = 100
MOST_TOOLS = 200
_SUMS = ("tokens_input", "tokens_output", "tokens_cache_read", "cost_micros")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """Which turns are wanted; all given conditions must hold."""

    state: str = ""
    has_errors: bool = False
    tool: str = ""  # the name of a called tool
    text: str = ""  # in the name of a called tool or in an error, ignoring case
    message_seqs: Sequence[int] | None = None  # turns with one of these messages


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    id: str
    seq: int
    state: str
    origin: str
    model: str
    created_at: datetime
    ended_at: datetime | None
    error_code: str
    error_message: str
    usage: UsageRecord  # the turn's own, or until it has one the sum of its calls
    calls: int = 0
    failed_calls: int = 0
    tools: int = 0
    failed_tools: int = 0
    pruned_tools: int = 0
    first_message: int = 0
    last_message: int = 0  # both are 0 without messages
    opening: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    turns: int
    failed_turns: int
    calls: int
    other_calls: int  # outside turns: for summaries, files, items of maps
    failed_calls: int
    tools: int
    failed_tools: int
    pruned_tools: int
    usage: UsageRecord


def list_timeline(
    session_id: str, wanted: TurnFilter, *, before: int | None = None, start: int | None = None, limit: int = 50
) -> list[TurnLine]:
    """Return turns of a session, newest first, before the turn ``before`` or from the turn ``start`` on, in five queries."""
    rows = _wanted(session_id, wanted)
    if before is not None:
        rows = rows.filter(seq__lt=before)
    if start is not None:
        rows = rows.filter(seq__gte=start)
    return _lines(list(rows.defer("options").order_by("-seq")[:limit]))


def load_turn_line(session_id: str, turn_id: str) -> TurnLine | None:
    rows = Turn.objects.filter(session_id=session_id, id=turn_id).defer("options")
    return next(iter(_lines(list(rows))), None)


def turns_beside(session_id: str, seq: int) -> dict[int, str]:
    """Return the ids of the turns before and after a turn, by their seq."""
    rows = Turn.objects.filter(session_id=session_id, seq__in=[seq - 1, seq + 1])
    return dict(rows.values_list("seq", "id"))


def place_of_message(session_id: str, seq: int) -> tuple[str, int] | None:
    """Return the turn of the last message up to ``seq`` and the number of its messages up to it, or ``None``."""
    rows = Message.objects.filter(session_id=session_id, seq__lte=seq)
    turn_id = rows.order_by("-seq").values_list("turn_id", flat=True).first()
    return None if turn_id is None else (turn_id, rows.filter(turn_id=turn_id).count())


def tally_session(session_id: str) -> Tally:
    """Return a session's totals, in three queries."""
    sums = {name: Sum(name, default=0) for name in _SUMS}
    turns = Turn.objects.filter(session_id=session_id).aggregate(
        turns=Count("id"), failed_turns=Count("id", filter=Q(error_code__isnull=False)), **sums
    )
    usage = UsageRecord(**{name: turns.pop(name) for name in _SUMS})
    of_turn = Q(turn__isnull=False)
    calls = ModelCall.objects.filter(session_id=session_id).aggregate(
        calls=Count("id", filter=of_turn),
        other_calls=Count("id", filter=~of_turn),
        failed_calls=Count("id", filter=of_turn & Q(error_code__isnull=False)),
    )
    tools = MessagePart.objects.filter(session_id=session_id, part_type="tool").aggregate(**_tool_counts())
    return Tally(**turns, **calls, **tools, usage=usage)


def tools_of_session(session_id: str) -> list[str]:
    """Return the tools that a session called, the most used first."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool").values("tool_name")
    most = rows.annotate(uses=Count("id")).order_by("-uses", "tool_name")[:MOST_TOOLS]
    return [row["tool_name"] for row in most if row["tool_name"]]


def _wanted(session_id: str, wanted: TurnFilter) -> QuerySet[Turn]:
    rows = Turn.objects.filter(session_id=session_id)
    calls = ModelCall.objects.filter(session_id=session_id, turn__isnull=False)
    tools = MessagePart.objects.filter(session_id=session_id, part_type="tool")
    if wanted.state:
        rows = rows.filter(state=wanted.state)
    if wanted.has_errors:
        failed = Q(id__in=calls.filter(error_code__isnull=False).values("turn_id"))
        failed |= Q(id__in=tools.filter(tool_state="error").values("message__turn_id"))
        rows = rows.filter(failed | Q(error_code__isnull=False))
    if wanted.tool:
        rows = rows.filter(id__in=tools.filter(tool_name=wanted.tool).values("message__turn_id"))
    if wanted.text:
        rows = rows.filter(_says(encode_text(wanted.text)[:SEARCH_LENGTH], calls, tools))
    if wanted.message_seqs is not None:
        messages = Message.objects.filter(session_id=session_id, seq__in=wanted.message_seqs)
        rows = rows.filter(id__in=messages.values("turn_id"))
    return rows


def _says(text: str, calls: QuerySet[ModelCall], tools: QuerySet[MessagePart]) -> Q:
    in_error = Q(error_code__icontains=text) | Q(error_message__icontains=text)
    in_tool = Q(tool_name__icontains=text) | Q(error_message__icontains=text)
    return (
        in_error
        | Q(id__in=tools.filter(in_tool).values("message__turn_id"))
        | Q(id__in=calls.filter(in_error, error_code__isnull=False).values("turn_id"))
    )


def _tool_counts() -> dict[str, Any]:
    return {
        "tools": Count("id"),
        "failed_tools": Count("id", filter=Q(tool_state="error")),
        "pruned_tools": Count("id", filter=Q(compacted_at__isnull=False)),
    }


def _lines(rows: list[Turn]) -> list[TurnLine]:
    if not rows:
        return []
    ids = [row.id for row in rows]
    calls = ModelCall.objects.filter(turn_id__in=ids).values("turn_id")
    counted = calls.annotate(
        calls=Count("id"),
        failed_calls=Count("id", filter=Q(error_code__isnull=False)),
        **{f"sum_{name}": Sum(name, default=0) for name in _SUMS},
    )
    tools = MessagePart.objects.filter(message__turn_id__in=ids, part_type="tool").values("message__turn_id")
    spans = Message.objects.filter(turn_id__in=ids).values("turn_id")
    users = MessagePart.objects.filter(message__turn_id__in=ids, message__role="user")
    by_turn = {row.pop("turn_id"): row for row in counted}
    tools_by_turn = {row.pop("message__turn_id"): row for row in tools.annotate(**_tool_counts())}
    spans_by_turn = {
        row.pop("turn_id"): row for row in spans.annotate(first_message=Min("seq"), last_message=Max("seq"))
    }
    openings = openings_of(users, "message__turn_id")
    return [
        _line(
            row,
            by_turn.get(row.id, {}),
            {**tools_by_turn.get(row.id, {}), **spans_by_turn.get(row.id, {}), "opening": openings.get(row.id, "")},
        )
        for row in rows
    ]


def _line(row: Turn, calls: dict[str, Any], rest: dict[str, Any]) -> TurnLine:
    usage = usage_of(row)
    if usage.tokens_input is None and calls:
        usage = UsageRecord(**{name: calls[f"sum_{name}"] for name in _SUMS})
    return TurnLine(
        id=row.id,
        seq=row.seq,
        state=row.state,
        origin=row.origin,
        model=row.model,
        created_at=row.created_at,
        ended_at=row.ended_at,
        error_code=row.error_code or "",
        error_message=error_of(row),
        usage=usage,
        calls=calls.get("calls", 0),
        failed_calls=calls.get("failed_calls", 0),
        **rest,
    )


def openings_of(parts: QuerySet[MessagePart], key: str) -> dict[str, str]:
    """Return how the first text of each message or turn begins; ``key`` is the column to group by."""
    texts = parts.filter(part_type="text").annotate(start=Head("content", OPENING))
    found: dict[str, str] = {}
    for whose, start in texts.order_by("message__seq", "part_index").values_list(key, "start"):
        found.setdefault(whose, start)
    return found


def error_of(row: Any) -> str:
    return (row.error_message or "")[:ERROR]


PREVIEW_CHARACTERS = 400
NOW = MAX_INTEGER  # later than any event
# Parts that are in no prompt: thoughts, and imported records that are not part of the conversation.
_UNSENT = ("reasoning", "data")
_COLUMNS = ("item_type", "item_id", "position", "added_seq", "removed_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeading:
    id: str
    title: str
    event_seq: int
    message_seq: int
    turn_seq: int

    @property
    def name(self) -> str:
        """Return the title on one visible line, or the id of a session without one."""
        return excerpt(self.title, 80) or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHeading:
    id: int
    seq: int
    type: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePreview:
    id: str
    seq: int
    role: str
    tokens: int
    text: str  # how it begins


def load_heading(session_id: str) -> SessionHeading | None:
    row = Session.objects.filter(id=session_id).only("title", "event_seq", "message_seq", "turn_seq").first()
    if row is None:
        return None
    return SessionHeading(
        id=row.id,
        title=row.title,
        event_seq=row.event_seq,
        message_seq=row.message_seq,
        turn_seq=row.turn_seq,
    )


def load_event_heading(session_id: str, seq: int) -> EventHeading | None:
    row = Event.objects.filter(session_id=session_id, seq=seq).values("id", "seq", "type", "created_at").first()
    return None if row is None else EventHeading(**row)


def count_context(session_id: str, *, at: int) -> int:
    return _context(session_id, at).count()


def load_context_page(session_id: str, *, at: int, offset: int, limit: int) -> list[ContextItemRecord]:
    return _items(_context(session_id, at).order_by("position")[offset : offset + limit])


def load_context_summaries(session_id: str, *, at: int) -> list[str]:
    return list(_context(session_id, at).filter(item_type="summary").values_list("item_id", flat=True))


def load_context_spans(session_id: str, *, at: int) -> tuple[Span, ...]:
    """Return the runs of neighbouring messages that were themselves in the context as of event ``at``."""
    items = _context(session_id, at).filter(item_type="message")
    rows = Message.objects.filter(session_id=session_id, id__in=items.values("item_id"))
    return runs_of(list(rows.values_list("seq", flat=True)))


def load_stay(session_id: str, item_id: str) -> ContextItemRecord | None:
    """Return when a message or summary came into the context and left it; ``None`` if it never was in it."""
    return next(iter(_items(ContextItem.objects.filter(session_id=session_id, item_id=item_id))), None)


def spans_out_of_context(session_id: str, *, first: int, last: int | None) -> tuple[Span, ...]:
    """Return the runs of messages between two of them that have left the context; up to the newest if ``last`` is ``None``."""
    # Every change of the page repeats this: one index lookup per message, not a scan of all that ever left.
    left = ContextItem.objects.filter(session_id=session_id, item_id=OuterRef("pk"), removed_seq__isnull=False)
    rows = Message.objects.filter(Exists(left), session_id=session_id, seq__gte=first)
    if last is not None:
        rows = rows.filter(seq__lte=last)
    return runs_of(list(rows.values_list("seq", flat=True)))


def id_of_message(session_id: str, seq: int) -> str | None:
    return Message.objects.filter(session_id=session_id, seq=seq).values_list("id", flat=True).first()


def sum_message_tokens(session_id: str, *, at: int) -> int:
    """Return the estimated tokens of the messages in the context as of event ``at``, as far as models receive them."""
    messages = _context(session_id, at).filter(item_type="message")
    parts = MessagePart.objects.filter(message_id__in=messages.values("item_id")).exclude(part_type__in=_UNSENT)
    total: int = parts.aggregate(total=Sum(_tokens(at)))["total"] or 0
    return total + MESSAGE_FRAMING * messages.count()


def load_context_added(session_id: str, *, at: int, limit: int) -> tuple[int, list[ContextItemRecord]]:
    """Return the number of items that event ``at`` added to the context, and the first of them."""
    rows = ContextItem.objects.filter(session_id=session_id, added_seq=at)
    return rows.count(), _items(rows.order_by("position")[:limit])


def load_context_removed(session_id: str, *, at: int, limit: int) -> tuple[int, list[ContextItemRecord]]:
    """Return the number of items that event ``at`` removed from the context, and the first of them."""
    rows = ContextItem.objects.filter(session_id=session_id, removed_seq=at)
    return rows.count(), _items(rows.order_by("position")[:limit])


def context_changes_beside(session_id: str, *, at: int) -> tuple[int | None, int | None]:
    """Return the nearest events before and after ``at`` that changed the context."""
    rows = ContextItem.objects.filter(session_id=session_id)
    before = rows.aggregate(
        added=Max("added_seq", filter=Q(added_seq__lt=at)), removed=Max("removed_seq", filter=Q(removed_seq__lt=at))
    )
    after = rows.aggregate(
        added=Min("added_seq", filter=Q(added_seq__gt=at)), removed=Min("removed_seq", filter=Q(removed_seq__gt=at))
    )
    return (
        max((seq for seq in before.values() if seq is not None), default=None),
        min((seq for seq in after.values() if seq is not None), default=None),
    )


def preview_messages(ids: Sequence[str], *, at: int) -> dict[str, MessagePreview]:
    """Return a preview of each message, with its estimated tokens as of event ``at``, in two queries per page."""
    wanted = list(ids)
    # The first part with text; the type only decides between parts of one message.
    first = MessagePart.objects.filter(message=OuterRef("pk"), part_type="text").order_by("part_index")
    any_part = MessagePart.objects.filter(message=OuterRef("pk")).order_by("part_index")
    start = Head("content", PREVIEW_CHARACTERS)
    rows = Message.objects.filter(id__in=wanted).annotate(
        spoken=Subquery(first.annotate(start=start).values("start")[:1]),
        other=Subquery(any_part.annotate(start=start).values("start")[:1]),
        tool=Subquery(any_part.filter(part_type="tool").values("tool_name")[:1]),
    )
    sent = MessagePart.objects.filter(message_id__in=wanted).exclude(part_type__in=_UNSENT)
    sums = sent.values("message_id").annotate(tokens=Sum(_tokens(at)))
    tokens = {row["message_id"]: row["tokens"] for row in sums}
    found = rows.values("id", "seq", "role", "spoken", "other", "tool")
    return {row["id"]: _preview(row, tokens.get(row["id"], 0)) for row in found}


def _preview(row: dict[str, Any], tokens: int) -> MessagePreview:
    text = row["spoken"] or (f"[tool {row['tool']}]" if row["tool"] else row["other"]) or ""
    return MessagePreview(id=row["id"], seq=row["seq"], role=row["role"], tokens=tokens + MESSAGE_FRAMING, text=text)


def _context(session_id: str, at: int) -> QuerySet[Any]:
    still_there = Q(removed_seq__isnull=True) | Q(removed_seq__gt=at)
    return ContextItem.objects.filter(still_there, session_id=session_id, added_seq__lte=at)


def _items(rows: QuerySet[Any]) -> list[ContextItemRecord]:
    return [ContextItemRecord(**dict(zip(_COLUMNS, values, strict=True))) for values in rows.values_list(*_COLUMNS)]


def _tokens(at: int) -> Any:
    # A tombstone's marker is a handful of tokens, which this leaves out.
    nothing = Value(0, output_field=BigIntegerField())
    output = Case(When(compacted_seq__lte=at, then=nothing), default=Coalesce("output_token_estimate", nothing))
    return F("token_estimate") + output
