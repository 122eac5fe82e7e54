"""Reads for the pages that show what a session did: its turns and their steps, and its context as of an event.

Nothing here reads a whole text, and the number of queries does not depend on the length of the session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Length

from mnesis_core.compaction.dag import Span, runs_of
from mnesis_core.context.branches import END, Path, standing_spans
from mnesis_core.context.wording import SENT_TYPES
from mnesis_core.events import MAX_INTEGER
from mnesis_core.llm.tokens import MESSAGE_FRAMING
from mnesis_core.messages import ProviderPart
from mnesis_core.records import ContextItemRecord, UsageRecord, record_of
from mnesis_core.text import encode_text, excerpt
from sessions_app.database.fields import Head
from sessions_app.models import USAGE_SUMS, ContextItem, Event, Message, MessagePart, ModelCall, Session, Turn
from sessions_app.record.context_queries import load_spans, select_context
from sessions_app.record.message_queries import usage_of
from sessions_app.record.turn_queries import CallHeading

OPENING = 200  # characters of a turn's first text
ERROR = 300  # characters of an error's message
INPUT = 1_000  # characters of the beginning of a tool's input
PREVIEW_CHARACTERS = 400
# Longer patterns find nothing more, and very long ones make SQLite's LIKE fail.
SEARCH_LENGTH = 100
MOST_TOOLS = 200
NOW = MAX_INTEGER  # later than any event
_NO_COUNTS = dict.fromkeys(
    ("calls", "failed_calls", "tools", "failed_tools", "pruned_tools", "first_message", "last_message", "branch"), 0
)
_TOOL_COUNTS = {
    "tools": Count("id"),
    "failed_tools": Count("id", filter=Q(tool_state="error")),
    "pruned_tools": Count("id", filter=Q(compacted_at__isnull=False)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """A filter of a session's turns; a turn matches when it meets every condition that is given."""

    state: str = ""
    has_errors: bool = False
    tool: str = ""
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
    calls: int
    failed_calls: int
    tools: int
    failed_tools: int
    pruned_tools: int
    first_message: int
    last_message: int  # both are 0 without messages
    branch: int  # that of its messages
    opening: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStep:
    id: str
    message_id: str
    name: str
    state: str
    input: str
    input_length: int  # characters as stored
    output_length: int | None
    output_tokens: int | None
    error: str
    started_at: datetime | None
    completed_at: datetime | None
    compacted_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStep:
    id: str
    seq: int
    role: str
    model: str
    created_at: datetime
    finalized_at: datetime | None
    error_code: str
    error_message: str
    usage: UsageRecord
    opening: str
    calls: tuple[CallHeading, ...]
    tools: tuple[ToolStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeading:
    id: str
    title: str
    event_seq: int
    message_seq: int
    turn_seq: int
    branch: int
    branch_seq: int

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
    text: str


def list_timeline(
    session_id: str, wanted: TurnFilter, *, before: int | None = None, start: int | None = None, limit: int = 50
) -> list[TurnLine]:
    """Return turns of a session, newest first, before the turn ``before`` or from the turn ``start`` on, in five queries."""
    rows = Turn.objects.filter(session_id=session_id)
    calls = ModelCall.objects.filter(session_id=session_id, turn__isnull=False)
    tools = MessagePart.objects.filter(session_id=session_id, part_type="tool")
    if wanted.state:
        rows = rows.filter(state=wanted.state)
    if wanted.has_errors:
        in_call = Q(id__in=calls.filter(error_code__isnull=False).values("turn_id"))
        in_tool = Q(id__in=tools.filter(tool_state="error").values("message__turn_id"))
        rows = rows.filter(in_call | in_tool | Q(error_code__isnull=False))
    if wanted.tool:
        rows = rows.filter(id__in=tools.filter(tool_name=wanted.tool).values("message__turn_id"))
    if wanted.text:
        text = encode_text(wanted.text)[:SEARCH_LENGTH]
        in_error = Q(error_code__icontains=text) | Q(error_message__icontains=text)
        named = tools.filter(Q(tool_name__icontains=text) | Q(error_message__icontains=text))
        failed = calls.filter(in_error, error_code__isnull=False)
        rows = rows.filter(in_error | Q(id__in=named.values("message__turn_id")) | Q(id__in=failed.values("turn_id")))
    if wanted.message_seqs is not None:
        messages = Message.objects.filter(session_id=session_id, seq__in=wanted.message_seqs)
        rows = rows.filter(id__in=messages.values("turn_id"))
    if before is not None:
        rows = rows.filter(seq__lt=before)
    if start is not None:
        rows = rows.filter(seq__gte=start)
    return _lines(list(rows.defer("options").order_by("-seq")[:limit]))


def load_turn_line(session_id: str, turn_id: str) -> TurnLine | None:
    rows = Turn.objects.filter(session_id=session_id, id=turn_id).defer("options")
    return next(iter(_lines(list(rows))), None)


def turns_beside(session_id: str, seq: int) -> dict[int, str]:
    rows = Turn.objects.filter(session_id=session_id, seq__in=[seq - 1, seq + 1])
    return dict(rows.values_list("seq", "id"))


def place_of_message(session_id: str, seq: int) -> tuple[str, int] | None:
    """Return the turn of the last message up to ``seq`` and the number of its messages up to it, or ``None``."""
    rows = Message.objects.filter(session_id=session_id, seq__lte=seq)
    turn_id = rows.order_by("-seq").values_list("turn_id", flat=True).first()
    return None if turn_id is None else (turn_id, rows.filter(turn_id=turn_id).count())


def tally_session(session_id: str) -> Tally:
    sums = {name: Sum(name, default=0) for name in USAGE_SUMS}
    turns = Turn.objects.filter(session_id=session_id).aggregate(
        turns=Count("id"), failed_turns=Count("id", filter=Q(error_code__isnull=False)), **sums
    )
    usage = UsageRecord(**{name: turns.pop(name) for name in USAGE_SUMS})
    of_turn = Q(turn__isnull=False)
    calls = ModelCall.objects.filter(session_id=session_id).aggregate(
        calls=Count("id", filter=of_turn),
        other_calls=Count("id", filter=~of_turn),
        failed_calls=Count("id", filter=of_turn & Q(error_code__isnull=False)),
    )
    tools = MessagePart.objects.filter(session_id=session_id, part_type="tool").aggregate(**_TOOL_COUNTS)
    return Tally(**turns, **calls, **tools, usage=usage)


def tools_of_session(session_id: str, *, pruned: bool = False) -> list[str]:
    """Return the tools that were called, or those whose outputs were pruned, the most frequent first."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool")
    if pruned:
        rows = rows.filter(compacted_seq__isnull=False)
    most = rows.values("tool_name").annotate(uses=Count("id")).order_by("-uses", "tool_name")[:MOST_TOOLS]
    return [row["tool_name"] for row in most if row["tool_name"]]


def _lines(rows: list[Turn]) -> list[TurnLine]:
    if not rows:
        return []
    ids = [row.id for row in rows]
    calls = ModelCall.objects.filter(turn_id__in=ids).values("turn_id")
    counted = calls.annotate(
        calls=Count("id"),
        failed_calls=Count("id", filter=Q(error_code__isnull=False)),
        **{f"sum_{name}": Sum(name, default=0) for name in USAGE_SUMS},
    )
    tools = MessagePart.objects.filter(message__turn_id__in=ids, part_type="tool").values("message__turn_id")
    spans = Message.objects.filter(turn_id__in=ids).values("turn_id")
    openings = openings_of(
        MessagePart.objects.filter(message__turn_id__in=ids, message__role="user"), "message__turn_id"
    )
    counts: dict[str, dict[str, Any]] = {id: {"opening": openings.get(id, "")} for id in ids}
    for count in counted:
        counts[count.pop("turn_id")] |= count
    for count in tools.annotate(**_TOOL_COUNTS):
        counts[count.pop("message__turn_id")] |= count
    for count in spans.annotate(first_message=Min("seq"), last_message=Max("seq"), branch=Max("branch")):
        counts[count.pop("turn_id")] |= count
    lines = []
    for row in rows:
        given = {**_NO_COUNTS, "error_code": row.error_code or "", "error_message": error_of(row), **counts[row.id]}
        sums = {name: given.pop(f"sum_{name}") for name in USAGE_SUMS if f"sum_{name}" in given}
        usage = UsageRecord(**sums) if sums and row.tokens_input is None else usage_of(row)
        lines.append(record_of(TurnLine, row, usage=usage, **given))
    return lines


def openings_of(parts: QuerySet[MessagePart], key: str) -> dict[str, str]:
    """Return how the first text of each message or turn begins; ``key`` is the column to group by."""
    texts = parts.filter(part_type="text").annotate(start=Head("content", OPENING))
    found: dict[str, str] = {}
    for whose, start in texts.order_by("message__seq", "part_index").values_list(key, "start"):
        found.setdefault(whose, start)
    return found


def error_of(row: Any) -> str:
    return (row.error_message or "")[:ERROR]


def load_steps(session_id: str, turn_id: str, *, after: int, limit: int) -> list[MessageStep]:
    """Return messages of a turn after the message ``after``, in order, with their calls and tools, in four queries."""
    rows = Message.objects.filter(session_id=session_id, turn_id=turn_id, seq__gt=after).order_by("seq")
    messages = list(rows[:limit])
    ids = [row.id for row in messages]
    # Those that wrote no message are shown where the turn begins.
    whose = Q(message_id__in=ids) if after else Q(message_id__in=ids) | Q(message__isnull=True)
    asked = ModelCall.objects.filter(whose, turn_id=turn_id).defer("manifest", "parameters")
    calls: defaultdict[str | None, list[CallHeading]] = defaultdict(list)
    for call in asked.order_by("created_at", "id"):
        calls[call.message_id].append(record_of(CallHeading, call, usage=usage_of(call)))
    tools = _tools_of(ids)
    openings = openings_of(MessagePart.objects.filter(message_id__in=ids), "message_id")
    return [
        record_of(
            MessageStep,
            row,
            error_code=row.error_code or "",
            error_message=error_of(row),
            usage=usage_of(row),
            opening=openings.get(row.id, ""),
            calls=(*calls[row.id], *(calls[None] if row.id == ids[0] else [])),
            tools=tuple(tools[row.id]),
        )
        for row in messages
    ]


def _tools_of(ids: Sequence[str]) -> defaultdict[str, list[ToolStep]]:
    parts = MessagePart.objects.filter(message_id__in=ids, part_type="tool").order_by("part_index")
    steps = parts.values(
        *("id", "message_id", "started_at", "completed_at", "compacted_at"),
        name=F("tool_name"),
        state=F("tool_state"),
        input=Head("tool_input", INPUT),
        input_length=Length("tool_input"),
        output_length=Length("output"),
        output_tokens=F("output_token_estimate"),
        error=Head("error_message", ERROR),
    )
    tools: defaultdict[str, list[ToolStep]] = defaultdict(list)
    for step in steps:
        whole = step | {"state": step["state"] or "", "error": step["error"] or ""}
        tools[step["message_id"]].append(ToolStep(**whole))
    return tools


def load_heading(session_id: str) -> SessionHeading | None:
    counters = ("event_seq", "message_seq", "turn_seq", "branch", "branch_seq")
    row = Session.objects.filter(id=session_id).only("title", *counters).first()
    return None if row is None else record_of(SessionHeading, row)


def load_event_heading(session_id: str, seq: int) -> EventHeading | None:
    row = Event.objects.filter(session_id=session_id, seq=seq).values("id", "seq", "type", "created_at").first()
    return None if row is None else EventHeading(**row)


def count_context(session_id: str, *, at: int, path: Path | None) -> int:
    return sum(rows.count() for rows in select_context(session_id, at=at, path=path))


def load_context_page(
    session_id: str, *, at: int, path: Path | None, offset: int, limit: int
) -> list[ContextItemRecord]:
    sets = select_context(session_id, at=at, path=path)
    if len(sets) == 1:
        return _items(sets[0].order_by("position")[offset : offset + limit])
    items = [item for rows in sets for item in _items(rows)]
    return sorted(items, key=attrgetter("position"))[offset : offset + limit]


def load_context_summaries(session_id: str, *, at: int, path: Path | None) -> list[str]:
    sets = select_context(session_id, at=at, path=path)
    return [id for rows in sets for id in rows.filter(item_type="summary").values_list("item_id", flat=True)]


def load_context_spans(session_id: str, *, at: int, path: Path | None) -> tuple[Span, ...]:
    """Return the runs of neighbouring messages that were themselves in the context as of event ``at``."""
    seqs: list[int] = []
    for items in select_context(session_id, at=at, path=path):
        messages = items.filter(item_type="message").values("item_id")
        rows = Message.objects.filter(session_id=session_id, id__in=messages)
        seqs += rows.values_list("seq", flat=True)
    return runs_of(seqs)


def load_stay(session_id: str, item_id: str) -> ContextItemRecord | None:
    """Return when a message or summary came into the context and left it; ``None`` if it never was in it."""
    return next(iter(_items(ContextItem.objects.filter(session_id=session_id, item_id=item_id))), None)


def spans_out_of_context(
    session_id: str, *, first: int, last: int | None, path: Path | None = None
) -> tuple[Span, ...]:
    """Return the runs of messages between two of them that have left the context; up to the newest if ``last`` is ``None``.

    :param path: of which messages; in a tree the runs also span numbers of other branches
    """
    if path is not None:
        standing, _ = standing_spans(path, load_spans(session_id))
        spans = [(max(span.first_seq, first), min(span.last_seq, last or END)) for span in standing]
        return tuple(span for span in spans if span[0] <= span[1])
    # Every change of the page repeats this: one index lookup per message, not a scan of all that ever left.
    left = ContextItem.objects.filter(session_id=session_id, item_id=OuterRef("pk"), removed_seq__isnull=False)
    rows = Message.objects.filter(Exists(left), session_id=session_id, seq__gte=first)
    if last is not None:
        rows = rows.filter(seq__lte=last)
    return runs_of(list(rows.values_list("seq", flat=True)))


def id_of_message(session_id: str, seq: int) -> str | None:
    return Message.objects.filter(session_id=session_id, seq=seq).values_list("id", flat=True).first()


def sum_message_tokens(session_id: str, *, at: int, path: Path | None) -> int:
    """Return the estimated tokens of the messages in the context as of event ``at``, as far as models receive them."""
    total = 0
    for items in select_context(session_id, at=at, path=path):
        messages = items.filter(item_type="message")
        parts = MessagePart.objects.filter(message_id__in=messages.values("item_id"), part_type__in=SENT_TYPES)
        total += (parts.aggregate(total=_tokens(at))["total"] or 0) + MESSAGE_FRAMING * messages.count()
    return total


def load_context_change(
    session_id: str, verb: Literal["added", "removed"], *, at: int, limit: int
) -> tuple[int, list[ContextItemRecord]]:
    """Return the number of items that event ``at`` added to the context, or removed from it, and the first of them."""
    rows = ContextItem.objects.filter(session_id=session_id, **{f"{verb}_seq": at})
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
    readable = MessagePart.objects.exclude(part_type=ProviderPart.type)
    any_part = readable.filter(message=OuterRef("pk")).order_by("part_index")
    start = Head("content", PREVIEW_CHARACTERS)
    rows = Message.objects.filter(id__in=wanted).annotate(
        spoken=Subquery(first.annotate(start=start).values("start")[:1]),
        other=Subquery(any_part.annotate(start=start).values("start")[:1]),
        tool=Subquery(any_part.filter(part_type="tool").values("tool_name")[:1]),
    )
    sent = MessagePart.objects.filter(message_id__in=wanted, part_type__in=SENT_TYPES)
    sums = sent.values("message_id").annotate(tokens=_tokens(at))
    tokens = {row["message_id"]: row["tokens"] for row in sums}
    return {
        id: MessagePreview(
            id=id,
            seq=seq,
            role=role,
            tokens=tokens.get(id, 0) + MESSAGE_FRAMING,
            text=spoken or (f"[tool {tool}]" if tool else other) or "",
        )
        for id, seq, role, spoken, other, tool in rows.values_list("id", "seq", "role", "spoken", "other", "tool")
    }


def _items(rows: QuerySet[Any]) -> list[ContextItemRecord]:
    values = rows.values("item_type", "item_id", "position", "added_seq", "removed_seq")
    return [ContextItemRecord(**item) for item in values]


def _tokens(at: int) -> Any:
    # A tombstone's marker is a handful of tokens, which this leaves out.
    is_whole = Q(compacted_seq__isnull=True) | Q(compacted_seq__gt=at)
    return Sum("token_estimate") + Sum("output_token_estimate", filter=is_whole, default=0)
