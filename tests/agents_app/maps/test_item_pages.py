"""The items of a run and each of them, as pages: of few and of many, and what hostile texts become."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from agents_app import store
from agents_app.maps.views import ITEMS
from agents_app.queries import load_items
from mnesis_core.maps.values import ErrorKind, ItemState, OperatorKind, Settlement
from sessions_app.record.change import change
from tests.support.people.pages import Ask, ask, browser, reader
from tests.support.record.operators import WORKER, accept, add_run, claim, refuse, settle, tried
from tests.support.record.talks import HOSTILE, new_session

__all__ = ["ask", "browser", "reader"]

pytestmark = pytest.mark.django_db
ROW = '<tr role="row">'
HARMLESS = "&lt;script&gt;alert(1)&lt;/script&gt;"


# Items


def test_items_come_page_by_page_from_any_number_and_back(ask: Ask, reader: User) -> None:
    run_id = add_run(new_session(reader), items=3 * ITEMS)
    first = ask(f"/runs/{run_id}/items/")
    assert first.count(ROW) == ITEMS + 1
    assert f"?from={ITEMS + 1}" in first
    assert "Earlier items" not in first
    middle = ask(f"/runs/{run_id}/items/", **{"from": ITEMS + 1})
    assert f'id="item-{ITEMS + 1}"' in middle
    assert f'id="item-{ITEMS}"' not in middle
    assert f"?before={ITEMS + 1}" in middle
    back = ask(f"/runs/{run_id}/items/", before=ITEMS + 1)
    assert f'id="item-{ITEMS}"' in back
    assert back.count(ROW) == ITEMS + 1
    before_last = ask(f"/runs/{run_id}/items/", before=2 * ITEMS + 1)
    assert f'id="item-{2 * ITEMS}"' in before_last
    assert f'id="item-{ITEMS}"' not in before_last
    last = ask(f"/runs/{run_id}/items/", **{"from": 3 * ITEMS - 1})
    assert "Later items" not in last
    assert last.count(ROW) == 3


def test_items_are_narrowed_to_a_state(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = add_run(session_id, items=2 * ITEMS + 4)
    items = claim(session_id, run_id, limit=2 * ITEMS + 2)
    settle(session_id, run_id, [refuse(item) if item.number % 2 else accept(item) for item in items])
    failed = ask(f"/runs/{run_id}/items/", state="failed")
    assert failed.count(ROW) == ITEMS + 1
    assert 'id="item-2"' not in failed
    assert f"state=failed&amp;from={2 * ITEMS}" in failed
    later = ask(f"/runs/{run_id}/items/", **{"state": "failed", "from": 2 * ITEMS})
    assert 'id="item-101"' in later
    assert "state=failed&amp;before=101" in later
    assert "No items are running." in ask(f"/runs/{run_id}/items/", state="running")
    assert ask(f"/runs/{run_id}/items/", state="pending").count(ROW) == 3


def test_a_row_says_what_went_in_and_what_came_out(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = tried(session_id)
    [third] = load_items(run_id, [3])
    settle(session_id, run_id, [refuse(third, ItemState.PENDING)])
    claim(session_id, run_id)
    items = ask(f"/runs/{run_id}/items/")
    for words in (
        "&quot;0000001&quot;",
        "{&quot;z&quot;: 1}",
        "validation: <bdi>this is no JSON</bdi>",
        "$0.000007",
        "5 ms",
    ):
        assert words in items
    assert re.search(r'class="item-tries"[^>]*>2</td>', items)


# One item


def test_the_page_of_an_item_has_its_input_its_tries_and_what_the_validator_said(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = add_run(session_id, items=1)
    again = refuse(claim(session_id, run_id)[0], ItemState.PENDING)
    settle(session_id, run_id, [again])
    settle(session_id, run_id, [accept(claim(session_id, run_id)[0], '{"z": 4711}')])
    page = ask(f"/runs/{run_id}/items/1/")
    for words in (
        "&quot;0000001&quot;",
        "Attempt 1",
        "Attempt 2",
        "this is no JSON",
        "no JSON",
        "accepted",
        "4711",
        "2 attempts",
    ):
        assert words in page
    assert ask(f"/runs/{run_id}/items/1/input/") == '"0000001"'
    assert ask(f"/runs/{run_id}/items/1/tries/1/output/") == "no JSON"


def test_an_item_leads_to_the_session_of_its_sub_agent_and_to_its_neighbours(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id, child = add_run(session_id, kind=OperatorKind.AGENTIC, tools=("read_file",)), new_session(reader)
    with change(session_id) as record:
        items = store.claim_items(record, run_id, worker=WORKER, limit=2, lease_seconds=9)
        store.note_claimed(record, run_id, {items[1].number: child})
    page = ask(f"/runs/{run_id}/items/2/")
    for place in (f"/sessions/{child}/", f"/runs/{run_id}/items/1/", f"/runs/{run_id}/items/3/"):
        assert f'href="{place}"' in page
    assert "read_file" in ask(f"/runs/{run_id}/")


def test_a_long_input_and_a_long_answer_come_as_beginnings_with_a_way_to_the_whole(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = add_run(session_id, lines=['"' + "x" * 100_000 + '"'])
    settle(session_id, run_id, [accept(claim(session_id, run_id)[0], "y" * 100_000)])
    page = ask(f"/runs/{run_id}/items/1/")
    assert len(page) < 80_000
    assert page.count("Open all as plain text") == 3
    assert len(ask(f"/runs/{run_id}/items/1/input/")) == 100_002
    assert len(ask(f"/runs/{run_id}/items/1/tries/1/output/")) == 100_000


# Hostile texts


def test_hostile_texts_are_shown_and_do_nothing(ask: Ask, reader: User) -> None:
    session_id = new_session(reader, title=HOSTILE)
    line = '{"a": "<script>alert(1)</script> \u202e \\u0000 \\ud800"}'
    run_id = add_run(
        session_id,
        lines=[line, line],
        path=f"/{HOSTILE}.jsonl",
        template=f"{HOSTILE} {{{{ item }}}}",
        system_prompt=HOSTILE,
    )
    first, second = claim(session_id, run_id)
    bad = Settlement(
        item=2,
        number=1,
        state=ItemState.FAILED,
        attempt=refuse(second, output=HOSTILE).attempt,
        error_kind=ErrorKind.SCHEMA_ERROR,
        error=HOSTILE,
    )
    settle(session_id, run_id, [accept(first, HOSTILE), bad])
    places = ("", "items/", "progress/", "items/1/", "items/2/", "items/2/tries/1/prompt/")
    for page in (ask("/runs/"), *(ask(f"/runs/{run_id}/{place}") for place in places)):
        assert "<script>alert" not in page
        assert "\u202e" not in page
    page = ask(f"/runs/{run_id}/items/2/")
    assert HARMLESS in page
    assert "⟨U+202E⟩" in page
    assert ask(f"/runs/{run_id}/items/2/tries/1/output/").startswith("<script>alert(1)</script>")


@pytest.mark.parametrize(
    "text",
    ["[" * 3_000, "[" * 900 + "]" * 900, "[" * 3_000 + "]" * 3_000, '{"a":' * 30 + "1" + "}" * 30, "\x00\ud800" * 9],
)
def test_deep_and_broken_json_is_shown_as_it_is(text: str, ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    run_id = add_run(session_id, lines=[text.replace("\x00", "").replace("\ud800", "")])
    settle(session_id, run_id, [accept(claim(session_id, run_id)[0], text)])
    assert len(ask(f"/runs/{run_id}/items/1/")) < 100_000
