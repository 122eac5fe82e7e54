"""Reads of the active context, now or as it was, of tombstones, and of the ledger."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, starmap
from math import ceil
from operator import attrgetter, itemgetter
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Length

from mnesis_core.context.branches import END, Path, Span, Stretch, are_in, standing_spans
from mnesis_core.context.continuation import LastCall
from mnesis_core.context.entries import ContextRows, MessageEntry
from mnesis_core.context.fitting import MARKER_TOKENS, RESULT_FRAME
from mnesis_core.context.manifests import ItemOutline
from mnesis_core.context.replay import Item, Projection
from mnesis_core.context.wording import SENT_TYPES
from mnesis_core.errors import ContextWindowExceeded
from mnesis_core.events import LedgerEvent
from mnesis_core.llm.interface import Source
from mnesis_core.llm.tokens import MESSAGE_FRAMING, CallMeasure, read_measure
from mnesis_core.messages import ToolPart
from mnesis_core.records import ContextItemRecord, record_of
from sessions_app.database.fields import Head
from sessions_app.database.tables import CompiledQuery, Param, fetch, select_columns
from sessions_app.models import ContextItem, Event, Message, MessagePart, ModelCall
from sessions_app.record.branch_queries import STRETCHES_A_STATEMENT, in_stretches, load_path
from sessions_app.record.message_queries import MESSAGE_COLUMNS, PART_COLUMNS, messages_of

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

_ID, _MESSAGE_SEQ, _POSITION, _EVENT_SEQ = 0, 1, -2, -1
_PART_INDEX = len(MESSAGE_COLUMNS) + PART_COLUMNS.index("part_index")
_NOW = "i.removed_seq IS NULL"
_AS_OF = "i.added_seq <= %s AND (i.removed_seq IS NULL OR i.removed_seq > %s)"
_NEWEST = (
    f"{_NOW} AND i.position >= COALESCE((SELECT position FROM context_items"
    " WHERE session_id = %s AND removed_seq IS NULL ORDER BY position DESC LIMIT 1 OFFSET %s), 0)"
)
_SPANS = (
    "SELECT item_id, branch, position, until, added_seq FROM context_items"
    " WHERE session_id = %s AND item_type = 'summary' AND added_seq <= %s"
)
_OUTLINES = (
    "SELECT i.item_id, i.item_type, i.added_seq, i.removed_seq, COALESCE(m.seq, 0), COALESCE(m.role, ''), i.branch, p.id, p.part_type,"
    " CASE WHEN p.part_type = 'tool' AND p.compacted_at IS NOT NULL THEN COALESCE(p.compacted_seq, 0) END, i.position"
    " FROM context_items i LEFT JOIN messages m ON m.id = i.item_id LEFT JOIN message_parts p ON p.message_id = m.id"
    " WHERE i.session_id = %s AND {which} ORDER BY i.position, i.id, p.part_index"
)
_COUNTERS = "SELECT message_seq, turn_seq, branch FROM sessions WHERE id = %s"
_BRANCHES = "SELECT number, parent, after_seq FROM branches WHERE session_id = %s"
_ITEMS = (
    "SELECT item_id, item_type, position, added_seq, removed_seq, branch FROM context_items"
    " WHERE session_id = %s ORDER BY id"
)
_TURNS = "SELECT id, state FROM turns WHERE session_id = %s"
_CALLS = "SELECT id, state FROM model_calls WHERE session_id = %s"
_PARTS = (
    "SELECT id, tool_state, compacted_seq FROM message_parts"
    " WHERE session_id = %s AND (tool_state IS NOT NULL OR compacted_seq IS NOT NULL)"
)
_ITEM_COLUMNS = ("item_type", "item_id", "position", "added_seq", "removed_seq")
_MEASURED = ("model", "parameters", "estimated_tokens", "tokens_input", "usage_source", "error_code", "error_message")
_SENT = ("manifest", "context_seq")
_TURN_CALLS = ModelCall.objects.filter(session_id=Param("session_id"), purpose="turn")
_NEWEST_CALL = CompiledQuery(lambda: _TURN_CALLS.order_by("-created_at").only(*_MEASURED, *_SENT)[:1])
IDS_A_STATEMENT = 1000
HEAD = 600  # characters of the beginnings of inputs and outputs

Place = tuple[int, int, int]  # the event, the message's seq and the part's index of a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    part_id: str
    part_index: int
    message_id: str
    message_seq: int
    turn_id: str
    tool_name: str
    input: str
    output: str
    characters: int
    tokens: int
    compacted_seq: int
    compacted_at: datetime
    branch: int
    is_in_context: bool  # whether its message still is, with a marker in place of the output
    is_on_path: bool  # whether its message is on the path that is asked about

    @property
    def place(self) -> Place:
        return self.compacted_seq, self.message_seq, self.part_index


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneTally:
    count: int
    tokens: int
    events: int


def load_context_items(session_id: str, *, at: int | None = None) -> list[ContextItemRecord]:
    path = load_path(session_id, at=at)
    rows = [
        row
        for which, values in _standing(session_id, path, at=at)
        for row in fetch(
            f"SELECT {', '.join(_ITEM_COLUMNS)} FROM context_items i WHERE session_id = %s AND {which}",
            [session_id, *values],
        )
    ]
    items = [ContextItemRecord(**dict(zip(_ITEM_COLUMNS, row, strict=True))) for row in rows]
    return sorted(items, key=attrgetter("position"))


def _standing(session_id: str, path: Path | None, *, at: int | None = None) -> list[tuple[str, list[Any]]]:
    """Return the conditions for the context of a path, each with its values; more than one only for a very long path."""
    if path is None:
        return [(_NOW, [])] if at is None else [(_AS_OF, [at, at])]
    until = END if at is None else at
    conditions: list[tuple[str, list[Any]]] = []
    for ids, stretches in _batches(session_id, path, until):
        among = ", ".join(["%s"] * len(ids)) or "NULL"
        where, values = in_stretches(stretches, "i.position")
        stands = f"(i.item_id IN ({among}) OR i.item_type = 'message' AND {where})"
        conditions.append((f"i.added_seq <= %s AND {stands}", [until, *ids, *values]))
    return conditions


def _batches(session_id: str, path: Path, at: int) -> list[tuple[list[str], list[Stretch]]]:
    """Return the summaries and the stretches of messages that stood for a path, in batches that each fit in a statement.

    What they find has to be put in order together: a summary of one batch may stand between the messages of another.
    """
    standing, verbatim = standing_spans(path, load_spans(session_id, at=at))
    ids = [span.id for span in standing]
    count = max(ceil(len(ids) / IDS_A_STATEMENT), ceil(len(verbatim) / STRETCHES_A_STATEMENT))
    return [
        (
            ids[number * IDS_A_STATEMENT : (number + 1) * IDS_A_STATEMENT],
            verbatim[number * STRETCHES_A_STATEMENT : (number + 1) * STRETCHES_A_STATEMENT],
        )
        for number in range(count)
    ]


def load_spans(session_id: str, *, at: int = END) -> list[Span]:
    """Return every summary that came into the context of any branch until an event, by what it stands for."""
    return list(starmap(Span, fetch(_SPANS, [session_id, at])))


def select_context(session_id: str, *, at: int, path: Path | None) -> list[QuerySet[ContextItem]]:
    """Return the rows that were the context of a path as of an event; more than one set only for one of very many stretches."""
    rows = ContextItem.objects.filter(session_id=session_id, added_seq__lte=at)
    if path is None:
        return [rows.filter(Q(removed_seq__isnull=True) | Q(removed_seq__gt=at))]
    found: list[QuerySet[ContextItem]] = []
    for ids, stretches in _batches(session_id, path, at):
        which = Q(item_id__in=ids)
        for branch, first, last in stretches:
            which |= Q(item_type="message", branch=branch, position__range=(first, last))
        found.append(rows.filter(which))
    return found or [rows.none()]


def replaced_items(session_id: str, ids: Sequence[str]) -> dict[str, str]:
    """Return the summary that replaced each of these messages and summaries that have left the context."""
    removed: dict[str, int] = {}
    for start in range(0, len(ids), 1000):
        rows = ContextItem.objects.filter(session_id=session_id, item_id__in=ids[start : start + 1000])
        removed |= dict(rows.exclude(removed_seq=None).values_list("item_id", "removed_seq"))
    swaps = sorted(set(removed.values()))
    came: dict[int, str] = {}
    for start in range(0, len(swaps), 1000):
        rows = ContextItem.objects.filter(session_id=session_id, added_seq__in=swaps[start : start + 1000])
        came |= dict(rows.values_list("added_seq", "item_id"))
    return {item_id: came[seq] for item_id, seq in removed.items() if seq in came}


def standing_items(session_id: str, ids: Sequence[str], *, branch: int | None = None) -> set[str]:
    """Return those of these messages and summaries that stand in the context of a branch, by default of the chosen one."""
    path = load_path(session_id, branch)
    rows = ContextItem.objects.filter(session_id=session_id, item_id__in=ids)
    if path is None:
        return set(rows.filter(removed_seq__isnull=True).values_list("item_id", flat=True))
    standing, verbatim = standing_spans(path, load_spans(session_id))
    messages = list(rows.filter(item_type="message").values_list("item_id", "branch", "position"))
    verdicts = are_in(verbatim, [place for _, *place in messages])
    shown = {id for (id, *_), is_shown in zip(messages, verdicts, strict=True) if is_shown}
    return shown | {span.id for span in standing}.intersection(ids)


def load_context(session_id: str, *, at: int | None = None, path: Path | None = None) -> ContextRows:
    """Return the context now or as of event ``at``, in one query however long the history is; in two in a tree."""
    tombstones = [] if at is None else [at]
    rows = [
        row
        for which, values in _standing(session_id, path, at=at)
        for row in fetch(_context_query(which, is_past=at is not None), [*tombstones, session_id, session_id, *values])
    ]
    return _context_rows(rows)


def load_newest_context(session_id: str, *, items: int) -> ContextRows:
    """Return the last items of the context now, every summary, and the tokens of the messages before them.

    This is one query, and two more if there are older items; these may see a slightly later state. The session has no
    branches.
    """
    rows = _context_rows(fetch(_context_query(_NEWEST, is_past=False), [*[session_id] * 3, items - 1]))
    if len(rows.messages) + len(rows.summaries) < items:
        return rows
    first = min([*(entry.position for entry in rows.messages[:1]), *rows.summaries.values()])
    older = ContextItem.objects.filter(session_id=session_id, removed_seq__isnull=True, position__lt=first)
    summaries = dict(older.filter(item_type="summary").values_list("item_id", "position"))

    # What a model would be sent for the older messages, by the record's own estimates, without reading their texts.
    messages = older.filter(item_type="message").values("item_id")
    sums = MessagePart.objects.filter(message_id__in=messages, part_type__in=SENT_TYPES).aggregate(
        parts=Count("id"),
        tokens=Sum("token_estimate", default=0),
        calls=Count("id", filter=Q(part_type=ToolPart.type)),
        results=Sum("output_token_estimate", default=0, filter=Q(compacted_at__isnull=True)),
        tombstones=Count("id", filter=Q(compacted_at__isnull=False)),
    )
    frames = MESSAGE_FRAMING * sums["parts"] + RESULT_FRAME * sums["calls"] + MARKER_TOKENS * sums["tombstones"]
    tokens = int(sums["tokens"] + sums["results"] + frames)
    return replace(rows, summaries=summaries | rows.summaries, unread_tokens=tokens)


def _context_rows(rows: list[tuple[Any, ...]]) -> ContextRows:
    # The database would sort all the texts with the rows, of a long context in a file.
    rows.sort(key=itemgetter(_POSITION, _ID, _PART_INDEX))
    positions = {row[_ID]: row[_POSITION] for row in rows}
    messages = messages_of([row for row in rows if row[_MESSAGE_SEQ] is not None])
    entries = [MessageEntry(position=positions.pop(message.id), message=message) for message in messages]
    return ContextRows(messages=entries, summaries=positions, event_seq=rows[0][_EVENT_SEQ] if rows else None)


@lru_cache(maxsize=64)
def _context_query(which: str, *, is_past: bool) -> str:
    part = select_columns(MessagePart, "p", PART_COLUMNS)
    if is_past:
        # An output that became a tombstone later was not one then.
        part = part.replace("p.compacted_at", "CASE WHEN p.compacted_seq > %s THEN NULL ELSE p.compacted_at END")
    return (
        f"SELECT i.item_id, {select_columns(Message, 'm', MESSAGE_COLUMNS[1:])}, {part},"
        " i.position, (SELECT event_seq FROM sessions WHERE id = %s) FROM context_items i"
        " LEFT JOIN messages m ON m.id = i.item_id"
        " LEFT JOIN message_parts p ON p.message_id = m.id"
        f" WHERE i.session_id = %s AND {which}"
    )


def load_outlines(session_id: str, *, first: int, last: int) -> list[ItemOutline]:
    """Return all that was in the context at some time from event ``first`` to event ``last``, in order; one query.

    Which messages a summary stands for is known elsewhere: its numbers are 0.
    """
    return _outlines(fetch(_OUTLINES.format(which=_AS_OF), [session_id, last, first]))


def load_outlines_on(path: Path, session_id: str, *, at: int) -> list[ItemOutline]:
    """Return what ``load_outlines`` does, of the context of a path in a tree as of an event."""
    rows = [
        row
        for which, values in _standing(session_id, path, at=at)
        for row in fetch(_OUTLINES.format(which=which), [session_id, *values])
    ]
    rows.sort(key=itemgetter(-1))  # by position; the parts of a message stay in order
    # That they left the context of another branch says nothing here.
    return [outline._replace(removed_seq=None) for outline in _outlines(rows)]


def _outlines(rows: Iterable[tuple[Any, ...]]) -> list[ItemOutline]:
    outlines = []
    for _, group in groupby(rows, key=itemgetter(0)):
        own = list(group)
        item_id, item_type, added, removed, seq, role, branch = own[0][:7]
        parts = [row[7:10] for row in own if row[7] is not None]
        outlines.append(
            ItemOutline(
                item_id,
                role if item_type == "message" else None,
                seq,
                seq,
                part_ids=tuple([id for id, _, _ in parts]),
                part_types=tuple([type for _, type, _ in parts]),
                compacted=tuple([(id, seq) for id, _, seq in parts if seq is not None]),
                added_seq=added,
                removed_seq=removed,
                branch=branch,
            )
        )
    return outlines


def items_off(path: Path, session_id: str, ids: Collection[str]) -> set[str]:
    """Return those of these messages and summaries that are not of a path."""
    spans = {span.id: (span.branch, span.last_seq) for span in load_spans(session_id)}
    places = {id: spans[id] for id in ids if id in spans}
    messages = [id for id in ids if id not in spans]
    for start in range(0, len(messages), 1000):
        rows = Message.objects.filter(session_id=session_id, id__in=messages[start : start + 1000])
        places |= {id: (branch, seq) for id, branch, seq in rows.values_list("id", "branch", "seq")}
    return {id for id, place in places.items() if not path.has(*place)}


def summary_stays(session_id: str) -> list[tuple[str, int, int | None]]:
    """Return (id, added, removed) of every summary that was ever in a session's context: the events of its stay."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return list(rows.values_list("item_id", "added_seq", "removed_seq"))


def newest_summary(session_id: str) -> str | None:
    """Return the id of the summary that came into the context last, even if it has left it."""
    rows = ContextItem.objects.filter(session_id=session_id, item_type="summary")
    return rows.order_by("-added_seq").values_list("item_id", flat=True).first()


def list_tombstones(
    session_id: str,
    *,
    tool: str = "",
    part_id: str = "",
    before: Place | None = None,
    limit: int = 50,
    path: Path | None = None,
) -> list[Tombstone]:
    """Return tombstones of a session, newest first, after ``before``, of one tool or one part, in one query.

    :param path: whose context they may be in; one query more
    """
    rows = _tombstones(session_id)
    if tool:
        rows = rows.filter(tool_name=tool)
    if part_id:
        rows = rows.filter(id=part_id)
    if before is not None:
        rows = rows.filter(_before(before))
    active = ContextItem.objects.filter(
        session_id=session_id, item_type="message", item_id=OuterRef("message_id"), removed_seq__isnull=True
    )
    found = rows.order_by("-compacted_seq", "-message__seq", "-part_index").values(
        *("part_index", "message_id", "tool_name", "compacted_seq", "compacted_at"),
        part_id=F("id"),
        message_seq=F("message__seq"),
        branch=F("message__branch"),
        turn_id=F("message__turn_id"),
        input=Head("tool_input", HEAD),
        head=Head("output", HEAD),
        characters=Length("output"),
        tokens=F("output_token_estimate"),
        is_in_context=Exists(active),
    )
    rows_found = list(found[:limit])
    if path is not None:
        _, verbatim = standing_spans(path, load_spans(session_id))
        verdicts = are_in(verbatim, [(row["branch"], row["message_seq"]) for row in rows_found])
        for row, is_in in zip(rows_found, verdicts, strict=True):
            row["is_in_context"] = is_in
    tombstones = []
    for row in rows_found:
        is_on_path = path is None or path.has(row["branch"], row["message_seq"])
        output, characters, tokens = (row.pop(name) for name in ("head", "characters", "tokens"))
        tombstones.append(
            Tombstone(output=output or "", characters=characters or 0, tokens=tokens or 0, is_on_path=is_on_path, **row)
        )
    return tombstones


def _before(place: Place) -> Q:
    """Return the condition that a tombstone is older than the one at a place."""
    seq, message_seq, index = place
    same = Q(compacted_seq=seq)
    return (
        Q(compacted_seq__lt=seq)
        | same & Q(message__seq__lt=message_seq)
        | same & Q(message__seq=message_seq, part_index__lt=index)
    )


def tally_tombstones(session_id: str) -> TombstoneTally:
    sums = _tombstones(session_id).aggregate(
        count=Count("id"), tokens=Sum("output_token_estimate", default=0), events=Count("compacted_seq", distinct=True)
    )
    return TombstoneTally(**sums)


def _tombstones(session_id: str) -> QuerySet[MessagePart]:
    return MessagePart.objects.filter(session_id=session_id, part_type="tool", compacted_seq__isnull=False)


def load_events(session_id: str, *, after: int = 0, limit: int = 500) -> list[LedgerEvent]:
    rows = Event.objects.filter(session_id=session_id, seq__gt=after).order_by("seq")[:limit]
    return [_event(row) for row in rows]


def load_events_at(session_id: str, seqs: Collection[int]) -> list[LedgerEvent]:
    rows = Event.objects.filter(session_id=session_id, seq__in=list(seqs)).order_by("seq")
    return [_event(row) for row in rows]


def _event(row: Event) -> LedgerEvent:
    # Without what only serves the proof: the commitments, and the time, which the event has as well.
    data = {key: value for key, value in json.loads(row.body).items() if key not in ("rows", "at", "v")}
    return record_of(LedgerEvent, row, data=data)


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    """Return what rows say of a session's context, states and counters, to be compared with its replayed ledger.

    What compactions add is in ``compaction_app``.
    """

    def rows(sql: str) -> list[Any]:
        return fetch(sql, [session_id], using=using)

    parts = rows(_PARTS)
    [(message_seq, turn_seq, branch)] = rows(_COUNTERS)
    return Projection(
        message_seq=message_seq,
        turn_seq=turn_seq,
        branch=branch,
        branches={number: (parent, after) for number, parent, after in rows(_BRANCHES)},
        items={id: Item._make(item) for id, *item in rows(_ITEMS)},
        turns=dict(rows(_TURNS)),
        calls=dict(rows(_CALLS)),
        tools={id: state for id, state, _ in parts if state is not None},
        tombstones={id: seq for id, _, seq in parts if seq is not None},
    )


def newest_call(session_id: str) -> tuple[CallMeasure, LastCall] | None:
    """Return the size of a session's newest call, and what it was sent; in one query."""
    row = _NEWEST_CALL.one(session_id=session_id)
    if row is None:
        return None
    reported = row.tokens_input if row.usage_source == Source.PROVIDER else 0
    is_refused = row.error_code == ContextWindowExceeded.code
    measure = read_measure(
        row.parameters,
        model=row.model,
        estimated=row.estimated_tokens,
        reported=reported,
        refusal=(row.error_message or "") if is_refused else "",
    )
    return measure, LastCall(model=row.model, manifest=row.manifest, context_seq=row.context_seq)
