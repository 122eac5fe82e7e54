"""How a call's prompt differs from that of an earlier call of its session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext_noop

from compaction_app.context.manifests import load_manifest
from compaction_app.context.state import rebuild_payload
from mnesis_core.context.branches import LINE
from mnesis_core.context.entries import Row
from mnesis_core.context.manifests import branch_of
from mnesis_core.context.prompt_diff import Difference, difference
from mnesis_core.context.request_diff import RequestChange, compare_requests, pieces_of
from mnesis_core.errors import InvalidRequest
from mnesis_core.records import GATEWAY, CallRecord
from sessions_app.record import context_queries, turn_queries
from sessions_app.record.branch_queries import load_path

MOST_CHANGES = 1_000  # differences that are given one by one; all are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCalls:
    earlier: CallRecord | None  # None when the later one was the first
    later: CallRecord
    changes: list[Difference]
    counts: dict[str, int]  # the number of all changes, by what happened

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def compare_calls(call_id: str, *, owner_id: int | None, earlier_id: str | None = None) -> ComparedCalls:
    """Return what a call showed in another way than an earlier one, by default the one before it.

    :raises CallNotFoundError: one of them is not there, or belongs to another person.
    :raises InvalidRequest: they are not of one session, not in this order, no calls of turns or of the gateway, or the
        record does not give both requests.
    """
    earlier, later = calls_to_compare(call_id, owner_id=owner_id, earlier_id=earlier_id)
    if later.purpose == GATEWAY:
        return compared(earlier, later, [change.difference for change in request_changes(earlier, later)])
    if later.purpose != "turn":
        raise InvalidRequest(gettext_noop("only calls of turns and of the gateway can be compared"), field="call_id")
    before, after = _manifest_to_compare(earlier) if earlier else [], _manifest_to_compare(later)
    had, has = ({row["id"] for row in side if "id" in row} for side in (before, after))
    replaced = context_queries.replaced_items(later.session_id, sorted(had - has))
    elsewhere: set[str] = set()  # what only one of them showed because they were made on different branches
    numbers = [branch_of(call.manifest) for call in (earlier, later) if call]
    if numbers[0] != numbers[-1]:
        paths = [load_path(later.session_id, number) or LINE for number in numbers]
        elsewhere |= context_queries.items_off(paths[0], later.session_id, has - had)
        elsewhere |= context_queries.items_off(paths[1], later.session_id, had - has)
    changes = difference(before, after, is_first=earlier is None, replaced=replaced, elsewhere=elsewhere)
    return compared(earlier, later, list(changes))


def compared(earlier: CallRecord | None, later: CallRecord, changes: Sequence[Difference]) -> ComparedCalls:
    counts: Counter[str] = Counter(change.change for change in changes)
    return ComparedCalls(earlier=earlier, later=later, changes=[*changes[:MOST_CHANGES]], counts=dict(counts))


def request_changes(earlier: CallRecord | None, later: CallRecord) -> list[RequestChange]:
    """Return how a request through the gateway differs from an earlier one.

    :raises InvalidRequest: the record does not give both requests.
    """
    payloads = [rebuild_payload(call).payload if call else {} for call in (earlier, later)]
    if None in payloads:
        raise InvalidRequest(gettext_noop("the record does not give both requests"), field="call_id")
    before, after = (pieces_of(payload or {}) for payload in payloads)
    return list(compare_requests(before if earlier else None, after))


def calls_to_compare(
    call_id: str, *, owner_id: int | None, earlier_id: str | None
) -> tuple[CallRecord | None, CallRecord]:
    """Return a call and an earlier one of its kind, by default the one before it, if there is one.

    :raises CallNotFoundError: one of them is not there, or belongs to another person.
    :raises InvalidRequest: they are not of one session and one kind, or not in this order.
    """
    later = turn_queries.load_call(call_id, owner_id=owner_id)
    if earlier_id is None:
        return turn_queries.load_call_before(later), later
    earlier = turn_queries.load_call(earlier_id, owner_id=owner_id)
    if (earlier.session_id, earlier.purpose) != (later.session_id, later.purpose):
        raise InvalidRequest(gettext_noop("from must be a call of the same kind and session"), field="from")
    if (earlier.created_at, earlier.id) >= (later.created_at, later.id):
        raise InvalidRequest(gettext_noop("from must be an earlier call"), field="from")
    return earlier, later


def _manifest_to_compare(call: CallRecord) -> list[Row]:
    try:
        return load_manifest(call)
    except ValueError as error:
        raise InvalidRequest(f"call {call.id}: {error}", field="call_id") from error
