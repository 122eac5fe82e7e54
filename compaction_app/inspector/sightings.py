"""Story: where one message stands, and which calls were shown it word for word: to answer, or to summarise it.

The first is told by events: a message stood in the context from the one that added it until the one that removed it, and a
call read the context as of one. The first and the last of these calls are looked up in their manifests as well, since
what stands in a context may be left out of a prompt for lack of room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compaction_app.inspector.readings import Readings, list_readings
from compaction_app.lineage import MessageLineage, trace_message
from mnesis_core.assembly.manifest import read_manifest
from mnesis_core.ledger import MAX_INTEGER
from sessions_app.inspect_queries import EventHeading, load_event_heading, load_stay
from sessions_app.queries import load_call, replaced_items
from sessions_app.queries.call_headings import CallHeading, call_of_message, calls_between, numbers_of_calls
from sessions_app.queries.messages import tombstone_seqs
from sessions_app.queries.turns import turn_seq_at
from sessions_app.transcript import MessageView, load_message

MOST_TOMBSTONES = 5
"""Events that pruned outputs of one message, of which is told who saw the outputs whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBy:
    """A call of a turn that had the message in its context."""

    call: CallHeading
    number: int
    """Among all calls of the session."""
    how: str
    """``whole``, ``shortened``, ``left_out`` of its prompt, or ``unknown``: its manifest cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """The calls of turns that had something in their context, from the first to the last."""

    count: int
    first: SeenBy | None
    last: SeenBy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An event that pruned outputs of the message."""

    seq: int
    turn_seq: int
    part_ids: list[str]
    whole_in: Sightings
    """Who had the outputs before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStory:
    """One message through its session's life."""

    message: MessageView
    written_by: CallHeading | None
    """The call whose answer it is."""
    added_seq: int | None
    """The event that put it into the context; ``None``: it never stood there."""
    removed: EventHeading | None
    removed_turn: int
    """The turn that was the newest when it left."""
    replaced_by: str
    """The summary that took its place."""
    lineage: MessageLineage
    seen: Sightings
    """By calls of turns."""
    summarised_by: Readings
    """Calls that read it in order to summarise it, while it stood in the context or, for a revision, later."""
    tombstones: list[Tombstone]


def trace(session_id: str, message_id: str) -> MessageStory:
    """Where a message stands and who saw it; a bounded number of reads, whatever the history.

    :raises MessageNotFoundError: the session has no such message.
    """
    message = load_message(session_id, message_id)
    stay = load_stay(session_id, message.id)
    added, removed = (None, None) if stay is None else (stay.added_seq, stay.removed_seq)
    event = None if removed is None else load_event_heading(session_id, removed)
    return MessageStory(
        message=message,
        written_by=call_of_message(session_id, message.id),
        added_seq=added,
        removed=event,
        removed_turn=_turn_of(session_id, event),
        replaced_by=replaced_items(session_id, [message.id]).get(message.id, "") if removed is not None else "",
        lineage=trace_message(message.id, session_id=session_id),
        seen=_sightings(session_id, message.id, added, removed),
        summarised_by=list_readings(session_id, message.seq),
        tombstones=_tombstones(session_id, message.id, added, removed),
    )


def _turn_of(session_id: str, event: EventHeading | None) -> int:
    return 0 if event is None else turn_seq_at(session_id, event.created_at)


def _tombstones(session_id: str, message_id: str, added: int | None, removed: int | None) -> list[Tombstone]:
    by_event = tombstone_seqs(session_id, message_id)
    return [
        Tombstone(
            seq=seq,
            turn_seq=_turn_of(session_id, load_event_heading(session_id, seq)),
            part_ids=by_event[seq],
            whole_in=_sightings(
                session_id, message_id, added, min(seq, removed or MAX_INTEGER), part_ids=by_event[seq]
            ),
        )
        for seq in sorted(by_event)[:MOST_TOMBSTONES]
    ]


def _sightings(
    session_id: str, message_id: str, added: int | None, end: int | None, *, part_ids: list[str] | None = None
) -> Sightings:
    if added is None:
        return Sightings(count=0, first=None, last=None)
    count, ends = calls_between(session_id, added, end)
    numbers = numbers_of_calls(session_id, [call.id for call in ends])
    seen = [
        SeenBy(call=call, number=numbers[call.id], how=how_shown(call.id, message_id, part_ids or [])) for call in ends
    ]
    return Sightings(count=count, first=seen[0] if seen else None, last=seen[-1] if seen else None)


def how_shown(call_id: str, message_id: str, part_ids: list[str]) -> str:
    """How the manifest of a call shows a message, or some parts of it; see ``SeenBy.how``."""
    try:
        manifest = read_manifest(load_call(call_id).manifest)
    except ValueError:
        return "unknown"
    row = next((row for row in manifest if row["kind"] == "message" and row["id"] == message_id), None)
    return "left_out" if row is None else _how(row, part_ids)


def _how(row: Any, part_ids: list[str]) -> str:
    omitted, cut = set(row["omitted"]), {shortened["part"] for shortened in row["shortened"]}
    if part_ids:
        omitted, cut = omitted.intersection(part_ids), cut.intersection(part_ids)
    return "shortened" if omitted or cut else "whole"
