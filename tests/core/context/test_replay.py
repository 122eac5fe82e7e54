"""A ledger replayed in pieces comes to what it comes to when it is replayed at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from mnesis_core.context.replay import Projection, differences
from mnesis_core.events import EventType

Event = tuple[str, dict[str, Any]]
NAMES = st.sampled_from("abcd")
FEW = st.lists(NAMES, max_size=2)
TOOL = st.fixed_dictionaries({"part_id": NAMES}, optional={"state": st.sampled_from(["pending", "running"])})
EVENTS: list[st.SearchStrategy[Event]] = [
    st.tuples(st.just(type), st.fixed_dictionaries(body))
    for type, body in (
        (EventType.TURN_STARTED, {"turn_id": NAMES, "turn_seq": st.integers(1, 9)}),
        (EventType.TURN_COMPLETED, {"turn_id": NAMES}),
        (
            EventType.MESSAGE_CREATED,
            {"message_id": NAMES, "message_seq": st.integers(1, 9), "parts": st.lists(TOOL, max_size=2)},
        ),
        (EventType.PART_STATE_CHANGED, {"part_id": NAMES, "state": st.just("completed")}),
        (EventType.PART_COMPACTED, {"part_ids": FEW}),
        (EventType.CALL_STARTED, {"call_id": NAMES}),
        (EventType.CALL_FAILED, {"call_id": NAMES}),
        (EventType.CONTEXT_CHANGED, {"removed": FEW, "added": FEW, "position": st.integers(1, 9)}),
        (EventType.COMPACTION_STARTED, {"run_id": NAMES}),
        (EventType.SUMMARY_CREATED, {"summary_id": NAMES, "kind": st.just("leaf"), "source_ids": FEW}),
        (EventType.SUMMARY_SUPERSEDED, {"summary_id": NAMES}),
        (EventType.SUMMARY_FRESHNESS_CHANGED, {"stale": FEW, "fresh": FEW}),
        (EventType.MAP_ITEMS_CLAIMED, {"run_id": NAMES, "items": st.just([1]), "session_ids": st.tuples(NAMES)}),
        (EventType.MESSAGE_FINALIZED, {}),
    )
]


def replay(events: list[tuple[int, Event]]) -> Projection:
    projection = Projection()
    for seq, (type, body) in events:
        projection.apply(seq, type, body)
    return projection


CREATED = (EventType.MESSAGE_CREATED, {"message_id": "a", "message_seq": 1, "parts": []})
REMOVED = (EventType.CONTEXT_CHANGED, {"removed": ["a"], "added": [], "position": 1})


@example([CREATED, REMOVED], [1])
@given(st.lists(st.one_of(EVENTS), max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_pieces_put_together_are_the_whole(events: list[Event], cuts: list[int]) -> None:
    numbered = list(enumerate(events, 1))
    ends = [0, *sorted(cuts), len(events)]
    together = Projection()
    for start, end in pairwise(ends):
        together.add(replay(numbered[start:end]))
    assert together == replay(numbered)


def test_anything_for_an_id_or_a_counter_is_a_difference_and_no_crash() -> None:
    ledger = replay([(1, (EventType.TURN_STARTED, {"turn_id": 7, "turn_seq": ["x"]}))])
    found = [(one.what, one.id) for one in differences(ledger, Projection(turns={"a": "running"}))]
    assert found == [("turn_seq", ""), ("turns", 7), ("turns", "a")]
