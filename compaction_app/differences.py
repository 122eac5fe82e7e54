"""Story: two calls of one session compared: what the later one shows in another way, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mnesis_core.assembly.difference import Difference, difference
from mnesis_core.assembly.manifest import Row, read_manifest
from mnesis_core.errors import InvalidRequest
from mnesis_core.record import CallRecord
from sessions_app import queries

MOST_CHANGES = 1_000
"""That are told one by one; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCalls:
    """The difference of two calls."""

    earlier: CallRecord | None
    """``None`` when the later one was the first."""
    later: CallRecord
    changes: list[Difference]
    """The first of them."""
    counts: dict[str, int]
    """Of all, by what happened."""

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


def compare_calls(call_id: str, *, owner_id: int, earlier_id: str | None = None) -> ComparedCalls:
    """What a call showed in another way than an earlier one, by default the one before it.

    :raises CallNotFoundError: one of them is not there, or belongs to somebody else.
    :raises InvalidRequest: they are not of one session, not in this order, or no calls of turns.
    """
    later = queries.load_call(call_id, owner_id=owner_id)
    earlier = _earlier(later, owner_id, earlier_id)
    before, after = _manifest(earlier) if earlier else [], _manifest(later)
    gone = {row["id"] for row in before if "id" in row} - {row["id"] for row in after if "id" in row}
    changes = list(
        difference(
            before, after, is_first=earlier is None, replaced=queries.replaced_items(later.session_id, sorted(gone))
        )
    )
    return ComparedCalls(
        earlier=earlier,
        later=later,
        changes=changes[:MOST_CHANGES],
        counts=dict(Counter(change.change for change in changes)),
    )


def _earlier(later: CallRecord, owner_id: int, earlier_id: str | None) -> CallRecord | None:
    if later.purpose != "turn":
        raise InvalidRequest("only calls of turns can be compared", field="call_id")
    if earlier_id is None:
        return queries.load_call_before(later)
    earlier = queries.load_call(earlier_id, owner_id=owner_id)
    if (earlier.session_id, earlier.purpose) != (later.session_id, later.purpose):
        raise InvalidRequest("from must be a call of a turn of the same session", field="from")
    if (earlier.created_at, earlier.id) >= (later.created_at, later.id):
        raise InvalidRequest("from must be an earlier call", field="from")
    return earlier


def _manifest(call: CallRecord) -> list[Row]:
    try:
        return read_manifest(call.manifest)
    except ValueError as error:
        raise InvalidRequest(f"call {call.id}: {error}", field="call_id") from error
