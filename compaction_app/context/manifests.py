"""The manifests of past calls with every row, in whichever form the calls keep them, and how the prompts of two calls
differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from django.utils.translation import gettext_noop

from compaction_app.context.state import rebuild_payload
from compaction_app.queries import spans_of_summaries
from mnesis_core.context.branches import LINE
from mnesis_core.context.entries import Row, read_manifest
from mnesis_core.context.manifests import ItemOutline, branch_of, is_folded, rows_beside, unfold_manifest
from mnesis_core.context.prompt_diff import Difference, RequestChange, compare_requests, difference, pieces_of
from mnesis_core.errors import InvalidRequest, reason_of
from mnesis_core.records import GATEWAY, CallRecord
from sessions_app.record import context_queries, turn_queries
from sessions_app.record.branch_queries import load_path

# Rows of manifests in one answer. What a call keeps is short, so a page of calls could unfold to more than memory holds.
MOST_ROWS = 100_000
MOST_CHANGES = 1_000  # differences that are given one by one; all are counted


def load_manifest(call: CallRecord) -> list[Row]:
    """Return the rows of a call's manifest, checked; in two queries where it is folded.

    :raises ValueError: it is no manifest, or the record has not the context that it describes.
    """
    return unfold_manifest(read_manifest(call.manifest), _Outlines([call]).of(call), at=call.context_seq)


def with_manifests(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """Return the first of some calls of one session, each with every row of its manifest; in two queries.

    They are as many as have ``MOST_ROWS`` together, but at least one. A manifest that cannot be unfolded stays as it is.
    In a session with branches, each call takes queries of its own.
    """
    outlines = _Outlines(calls)
    whole: list[CallRecord] = []
    rows = 0
    for call in calls:
        manifest = call.manifest
        if is_folded(manifest):
            with suppress(ValueError):
                manifest = unfold_manifest(read_manifest(manifest), outlines.of(call), at=call.context_seq)
        rows += len(manifest)
        if whole and rows > MOST_ROWS:
            break
        whole.append(replace(call, manifest=manifest))
    return whole


def shown_beside(session_id: str, message_id: str, first_seq: int) -> Iterator[tuple[str, int, Row]]:
    """Yield (id, event of its context, row) of each call that showed a message beside its context, oldest first.

    Only manifests tell which these were: what is shown beside a context follows from no event. They are read in one
    query, from the call on whose context is of event ``first_seq``; those that cannot be read are passed over.
    """
    for call_id, context_seq, manifest in turn_queries.manifests_from(session_id, first_seq):
        with suppress(ValueError):
            for row in rows_beside(manifest):
                if row["id"] == message_id:
                    yield call_id, context_seq, row


def newest_beside(session_ids: Collection[str]) -> dict[str, Row]:
    """Return the rows of what the newest calls of some sessions showed beside their contexts, by message; in one query."""
    found: dict[str, Row] = {}
    for manifest in turn_queries.newest_manifests(session_ids) if session_ids else ():
        with suppress(ValueError):
            found |= {row["id"]: row for row in rows_beside(manifest)}
    return found


class _Outlines:
    """What was in the contexts of those of some calls of a session whose manifests are folded."""

    def __init__(self, calls: Sequence[CallRecord]) -> None:
        folded = [call for call in calls if is_folded(call.manifest)]
        self._shared: list[ItemOutline] = []
        self._is_tree = any(branch_of(call.manifest) for call in folded)
        if folded and not self._is_tree:
            seqs, session_id = [call.context_seq for call in folded], folded[0].session_id
            items = context_queries.load_outlines(session_id, first=min(seqs), last=max(seqs))
            self._is_tree = any(item.branch for item in items)
            self._shared = [] if self._is_tree else _with_spans(session_id, items)

    def of(self, call: CallRecord) -> list[ItemOutline]:
        if not (self._is_tree and is_folded(call.manifest)):
            return self._shared
        path = load_path(call.session_id, branch_of(call.manifest)) or LINE
        return _with_spans(
            call.session_id, context_queries.load_outlines_on(path, call.session_id, at=call.context_seq)
        )


def _with_spans(session_id: str, items: Sequence[ItemOutline]) -> list[ItemOutline]:
    spans = spans_of_summaries([item.id for item in items if item.role is None], session_id=session_id)
    # A summary that is not there is missing in the context too, which unfolding notices.
    return [
        item if item.role is not None else item._replace(first_seq=spans[item.id][0], last_seq=spans[item.id][1])
        for item in items
        if item.role is not None or item.id in spans
    ]


# How a call's prompt differs from that of an earlier call of its session.


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
        raise InvalidRequest(
            gettext_noop("call %(call)s: %(reason)s"), {"call": call.id, "reason": reason_of(error)}, field="call_id"
        ) from error
