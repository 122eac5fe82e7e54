"""Refills of contexts: planned once, where an automatic compaction ends, and read with the context from then on."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_app.queries import last_refill, newest_compacted_by_hand
from mnesis_core.context.additions import Refill, newest_summarised, plan_refill, room_for_refill, size_of_messages
from mnesis_core.context.branches import Path
from mnesis_core.context.entries import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.context.fitting import Budget
from mnesis_core.llm.tokens import MESSAGE_FRAMING
from mnesis_core.messages import StoredMessage
from sessions_app.record.message_queries import load_messages

# To plan a refill, so many messages are read, and then four times as many while they do not fill it.
FEWEST_READ = 50
READ_MORE = 4


def find_refill(
    session_id: str,
    entries: Sequence[ContextEntry],
    pinned: Sequence[StoredMessage] = (),
    *,
    used: int,
    budget: Budget,
    calibration: float,
    path: Path | None,
) -> Refill | None:
    """Return the refill of a context that a compaction leaves with ``used`` tokens; no query where it leaves enough.

    Nothing is shown again of what was said before a person last asked for a compaction.
    """
    used -= int(size_of_messages(pinned) * calibration)
    room = room_for_refill(used, budget, calibration=calibration)
    last_seq = newest_summarised(entries)
    if not room or not last_seq:
        return None
    after = newest_compacted_by_hand(session_id)
    limit = FEWEST_READ
    while True:
        messages = load_messages(session_id, after=after, before=last_seq + 1, limit=limit, newest=True, path=path)
        free = _without_standing(messages, entries)
        if len(messages) < limit or size_of_messages(free) > room:
            return plan_refill(free, entries, used=used, budget=budget, calibration=calibration)
        limit *= READ_MORE


def load_refill(
    session_id: str,
    entries: Sequence[ContextEntry],
    pinned: Sequence[StoredMessage] = (),
    *,
    branch: int,
    at: int,
    path: Path | None,
) -> tuple[int, list[StoredMessage], int]:
    """Return the room of a context's refill, the messages for it, and the event with which the last compaction ended.

    It takes two queries at the most, and none where no compaction has summarised anything.
    """
    if not any(isinstance(entry, SummaryEntry) for entry in entries):
        return 0, [], 0
    refill, ended_seq = last_refill(session_id, branch=branch, at=at)
    room = refill.room_in(entries, pinned) if refill else 0
    if refill is None or not room:
        return 0, [], ended_seq
    # No message is smaller than its frame, so that a number from elsewhere cannot have all of a session read.
    most = min(refill.last_seq - refill.first_seq + 1, room // MESSAGE_FRAMING + 1)
    messages = load_messages(
        session_id, after=refill.first_seq - 1, before=refill.last_seq + 1, limit=most, newest=True, path=path
    )
    return room, _without_standing(messages, entries), ended_seq


def _without_standing(messages: Sequence[StoredMessage], entries: Sequence[ContextEntry]) -> list[StoredMessage]:
    standing = {entry.message.id for entry in entries if isinstance(entry, MessageEntry)}
    return [message for message in messages if message.id not in standing]
