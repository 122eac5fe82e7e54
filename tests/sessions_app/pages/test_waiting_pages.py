"""A turn that waits, on the pages: what it asks, whom, and what came late; hostile texts stay texts."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.llm.interface import ToolSpec
from mnesis_core.messages import Message, ToolPart
from mnesis_core.turns.options import TurnOptions, write_options
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message
from tests.support.record.talks import HOSTILE, new_session

pytestmark = pytest.mark.django_db
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


@pytest.fixture
def waiting(reader: User) -> tuple[str, list[str]]:
    """A session whose turn waits for a person and for its caller; and its calls."""
    session_id = new_session(reader)
    options = TurnOptions(tools=(ToolSpec(name="weather", description="", parameters={}),))
    calls = (
        ToolPart(tool_name=HOSTILE, tool_call_id="c1", input=HOSTILE),
        ToolPart(tool_name="weather", tool_call_id="c2"),
        ToolPart(tool_name="slow", tool_call_id="c3"),
    )
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo", options=write_options(options))
        message = Message(role="assistant", parts=calls)
        message_id = message_store.append_message(record, turn_id=turn_id, message=message)
        parts = [part.id for part in load_message(message_id, session_id=session_id).parts]
        message_store.finish_tool(record, parts[2], output=None, error="no answer in time")
        message_store.keep_late_output(record, parts[2], HOSTILE)
        turn_store.suspend_turn(record, turn_id, fence=1, part_ids=parts[:2])
    return session_id, parts


def test_a_person_is_asked_about_what_waits_for_them_and_no_more(waiting, browser: Client) -> None:
    session_id, (asks, callers, _) = waiting
    page = browser.get(f"/sessions/{session_id}/").content.decode()
    assert f'data-approval="{asks}"' in page
    assert f'data-approval="{callers}"' not in page
    assert page.count("data-approval=") == 1
    assert "The program that started this turn runs this tool." in page
    assert 'data-state="suspended"' in page
    assert "<script>alert" not in page
    assert SHOWN in page


def test_questions_are_a_form_whose_texts_stay_texts(reader: User, browser: Client) -> None:
    session_id, text = new_session(reader), HOSTILE.removesuffix(" \ud800")
    questions = [
        {"question": text, "options": [text, "\u202eno"]},
        {"question": "Why?", "options": ["a", "b"], "several": True},
    ]
    asked = ToolPart(tool_name="ask_user", tool_call_id="c1", input=json.dumps({"questions": questions}))
    unread = ToolPart(tool_name="ask_user", tool_call_id="c2", input="[")
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message = Message(role="assistant", parts=(asked, unread))
        message_id = message_store.append_message(record, turn_id=turn_id, message=message)
        parts = [part.id for part in load_message(message_id, session_id=session_id).parts]
        turn_store.suspend_turn(record, turn_id, fence=1, part_ids=parts)
    page = browser.get(f"/sessions/{session_id}/").content.decode()
    assert page.count('<fieldset class="question">') == 2
    kinds = re.findall(rf'type="(\w+)"\s+name="{parts[0]}-(\d)"', page)
    assert kinds == [("radio", "0"), ("radio", "0"), ("checkbox", "1"), ("checkbox", "1")]
    assert "<script>alert" not in page
    assert SHOWN in page
    assert ">waiting for an answer</span>" in browser.get("/sessions/").content.decode()


def test_what_came_late_is_shown_as_that_and_can_be_read_whole(waiting, browser: Client) -> None:
    session_id, (_, _, late) = waiting
    page = browser.get(f"/sessions/{session_id}/").content.decode()
    assert "Late output" in page
    raw = browser.get(f"/sessions/{session_id}/parts/{late}/late/raw/").content.decode()
    assert raw.startswith("<script>alert(1)</script>")


def test_the_list_says_that_a_session_waits(waiting, browser: Client) -> None:
    page = browser.get("/sessions/").content.decode()
    assert "badge-suspended" in page
    assert ">waiting for approval</span>" in page
