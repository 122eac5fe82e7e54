"""The input of a run becomes its items a batch at a time, also when another worker goes on with it."""

from __future__ import annotations

from itertools import count

import pytest

from agents_app.maps import worker
from agents_app.maps.worker import read_input
from agents_app.queries import last_item, list_items, load_run
from mnesis_core.maps.values import RunState
from mnesis_core.records import SessionRecord
from tests.support.people.story import alice, session
from tests.support.record.maps import start

pytestmark = pytest.mark.both_databases

__all__ = ["alice", "session"]


@pytest.mark.parametrize("items", [0, 1, 3, 6, 10])
def test_who_goes_on_begins_where_the_last_one_ended(
    session: SessionRecord, monkeypatch: pytest.MonkeyPatch, items: int
) -> None:
    monkeypatch.setattr(worker, "ITEMS_A_CHANGE", 3)
    run_id = start(session, items)
    while (run := load_run(run_id)).state is RunState.PENDING:
        before, batches = last_item(run_id)[0], count()
        read_input(run_id, may_go_on=lambda batches=batches: next(batches) < 1)
        assert last_item(run_id)[0] == min(before + 3, items)
    assert (run.state, run.counts.items) == (RunState.RUNNING, items)
    assert [item.number for item in list_items(run_id)] == list(range(1, items + 1))
    read_input(run_id, may_go_on=lambda: True)
    assert last_item(run_id)[0] == items
