"""The inspector's list of pruned outputs: what each was, why it went, and where its original is."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from compaction_app import store as compaction_store
from sessions_app.models import MessagePart
from sessions_app.record.change import change
from tests.support.record.inspected import ORIGINAL, add_turn, claim, tool_part
from tests.support.record.talks import new_session, say, tool
from tests.support.record.voyage import Ask, Voyage

pytestmark = pytest.mark.django_db


def test_a_tombstone_says_what_it_was_and_why_and_leads_to_the_original(voyage: Voyage, ask: Ask) -> None:
    page = ask(voyage.at("tombstones/"))
    assert "1 tool output left the context in 1 compaction" in page
    assert f'id="{voyage.part}"' in page
    assert "read_log" in page
    assert ORIGINAL in page  # its first words
    assert re.search(r"pruned <time datetime=\"2\d{3}-", page)
    assert "soft compaction" in page
    assert "above its soft threshold" in page
    assert "The model sees a summary that covers it. It can read the original with lcm_read" in page
    assert f"{len(ORIGINAL)} characters" in page
    assert ask(voyage.at("outputs/{part}/")) == ORIGINAL
    compaction = re.search(r'href="(/sessions/[^"]+/compactions/[^"]+)"', page)
    assert compaction
    assert voyage.run in compaction[1]


def test_a_model_without_the_tool_cannot_reach_an_original(owner: User, owner_client: Client) -> None:
    session_id = new_session(owner, config={"turn": {"tools": ["calculator"]}})
    ids = add_turn(session_id, "Read.", tool_part())
    part = MessagePart.objects.get(message_id=ids[1], part_type="tool").id
    run = claim(session_id)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, [part], tokens=900)
    page = owner_client.get(f"/sessions/{session_id}/inspect/tombstones/").content.decode()
    assert "The model sees a tombstone instead. It cannot read the original" in page


def test_tombstones_are_paged_and_filtered(owner: User, ask: Ask) -> None:
    session_id = new_session(owner)
    parts = [tool(tool_name=f"tool{number % 2}", tool_call_id=str(number), output="x") for number in range(60)]
    say(session_id, ("assistant", list(parts)))
    ids = list(MessagePart.objects.filter(session_id=session_id, part_type="tool").values_list("id", flat=True))
    run = claim(session_id)
    with change(session_id) as record:
        compaction_store.prune(record, run.id, ids, tokens=900)
    page = ask(f"/sessions/{session_id}/inspect/tombstones/")
    more = re.search(r'hx-get="(/sessions/[^"]+before=[^"]+)"', page)
    assert more
    pages = [re.findall(r'<li class="tombstone" id="(\w+)"', text) for text in (page, ask(more[1]))]
    assert [len(found) for found in pages] == [50, 10]
    assert set(pages[0]) | set(pages[1]) == set(ids)
    assert ask(f"/sessions/{session_id}/inspect/tombstones/?tool=tool1").count('class="tombstone"') == 30
    assert ask(f"/sessions/{session_id}/inspect/tombstones/?part={ids[3]}").count('class="tombstone"') == 1
    assert "No matching tombstones." in ask(f"/sessions/{session_id}/inspect/tombstones/?tool=%00")


@pytest.mark.parametrize("before", ["x", "1", "1-2", "1-2-3-4", "1--2-3", "%00-1-1", "1-1-٣"])
def test_a_wrong_cursor_is_an_invalid_request(before: str, voyage: Voyage, owner_client: Client) -> None:
    assert owner_client.get(voyage.at(f"tombstones/?before={before}")).status_code == 422


def test_a_cursor_beyond_every_database_is_only_large(voyage: Voyage, ask: Ask) -> None:
    assert ask(voyage.at(f"tombstones/?before={10**30}-{10**30}-{10**30}")).count('class="tombstone"') == 1
