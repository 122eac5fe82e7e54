"""Rows that began at the same time: page by page, each comes once."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import pytest
from django.contrib.auth.models import User

from agents_app import store
from agents_app.maps.api import run_page
from agents_app.queries import list_runs, load_run
from compaction_app.api import call_page
from mnesis_core.maps.values import OperatorKind, OperatorSpec
from sessions_app.record.change import change
from sessions_app.record.turn_queries import list_calls
from tests.support.people.cast import owner
from tests.support.record.operators import add_run, claim
from tests.support.record.talks import new_session

pytestmark = pytest.mark.both_databases

__all__ = ["owner"]


class Page(Protocol):
    """A page of a list from a cursor on."""

    def __call__(self, *, limit: int, cursor: str | None) -> dict[str, Any]:
        """Return ``items`` and ``next_cursor``."""


def test_calls_that_began_together_are_all_listed(owner: User) -> None:
    session_id = new_session(owner)
    claim(session_id, add_run(session_id, items=5))  # five items, one change, one time
    calls = list_calls(session_id)
    assert len({call.created_at for call in calls}) == 1
    assert _ids(partial(call_page, session_id, owner_id=owner.pk)) == [call.id for call in calls]


def test_runs_that_began_together_are_all_listed(owner: User) -> None:
    session_id = new_session(owner)
    input_file_id = load_run(add_run(session_id)).input_file_id
    spec = OperatorSpec(template="Say {{ item }}")
    with change(session_id) as record:
        for _ in range(4):
            store.start_run(record, kind=OperatorKind.LLM, spec=spec, input_file_id=input_file_id)
    runs = list_runs(session_id=session_id)
    assert len({run.created_at for run in runs}) == 2
    pages = partial(run_page, owner_id=owner.pk, session_id=session_id)
    assert _ids(pages) == [run.id for run in runs]


def _ids(page_of: Page) -> list[str]:
    """Return the ids of all items, read in pages of two."""
    page = page_of(limit=2, cursor=None)
    ids = [item.id for item in page["items"]]
    while page["next_cursor"]:
        page = page_of(limit=2, cursor=page["next_cursor"])
        ids += [item.id for item in page["items"]]
    return ids
