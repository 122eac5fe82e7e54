"""Tool calls of a session, each with its result and its status, a page at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mnesis_core.messages import TextPart, ToolPart, ToolState
from mnesis_core.text import printable
from sessions_app.models import MessagePart
from sessions_app.record import message_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import list_interactions, load_messages
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, new_session, say, tool

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]


@pytest.fixture
def owner() -> User:
    return make_user("ines")


@pytest.fixture
def talk(owner: User) -> str:
    session_id = new_session(owner)
    calls = [
        tool(tool_call_id="a", tool_name="ls", input='{"path": "src"}', output="app.py"),
        tool(tool_call_id="b", tool_name="run", state=ToolState.ERROR, error=HOSTILE),
    ]
    say(session_id, ("user", [TextPart(text="Go.")]), ("assistant", [TextPart(text="I look."), *calls]))
    waiting = [tool(tool_call_id="c", tool_name="ls", state=state) for state in (ToolState.PENDING, ToolState.RUNNING)]
    say(session_id, ("user", [TextPart(text="And?")]), ("assistant", waiting))
    return session_id


@pytest.fixture
def asked(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def ask(client: Client, session_id: str, *, expected: int = 200, **parameters: Any) -> Any:
    answer = client.get(f"/api/sessions/{session_id}/tool-interactions", parameters)
    assert answer.status_code == expected, answer.content
    return answer.json()


def test_a_call_is_told_with_its_result(asked: Client, talk: str) -> None:
    first, second, *rest = ask(asked, talk)["items"]
    message = load_messages(talk)[1]
    assert first == {
        "tool_call_id": "a",
        "turn_id": message.turn_id,
        "tool_name": "ls",
        "arguments": '{"path": "src"}',
        "result": "app.py",
        "error": None,
        "status": "SUCCESS",
        "part_id": message.parts[1].id,
        "message_id": message.id,
        "seq": 2,
        "started_at": None,
        "completed_at": None,
    }
    assert (second["status"], second["error"], second["result"]) == ("ERROR", printable(HOSTILE), None)
    assert [(call["status"], call["result"]) for call in rest] == [("PENDING", None)] * 2
    with change(talk) as record:
        assert message_store.keep_late_output(record, second["part_id"], "late")
    assert ask(asked, talk)["items"][1]["result"] == "late"


def test_the_view_is_of_the_record_and_not_of_the_prompt(asked: Client, talk: str) -> None:
    with change(talk) as record:
        message_store.tombstone_parts(record, [load_messages(talk)[1].parts[1].id])
    assert ask(asked, talk)["items"][0]["result"] == "app.py"


def test_calls_are_chosen_by_turn_tool_and_status(asked: Client, talk: str) -> None:
    def ids(**chosen: Any) -> list[str]:
        return [call["tool_call_id"] for call in ask(asked, talk, **chosen)["items"]]

    turn_id = load_messages(talk)[0].turn_id
    assert ids(turn_id=turn_id) == ["a", "b"]
    assert ids(tool="ls") == ["a", "c", "c"]
    assert ids(tool="ls", turn_id=turn_id) == ["a"]
    assert [ids(status=status) for status in ("SUCCESS", "ERROR", "PENDING")] == [["a"], ["b"], ["c", "c"]]
    assert ids(turn_id="turn_\x00", tool="\x00") == ids(tool="l") == []


def test_pages_go_on_within_a_message(asked: Client, talk: str) -> None:
    found, cursor = [], None
    while True:
        page = ask(asked, talk, limit=1, **({"cursor": cursor} if cursor else {}))
        found += [call["part_id"] for call in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [call["part_id"] for call in ask(asked, talk)["items"]]
    assert len(found) == 4


@pytest.mark.parametrize("cursor", ["", "1", "1.x", "1.2.3", "-1.2", f"{10**20}.1", "\u0661.\u0661", "\x00", "x" * 90])
def test_a_cursor_of_no_page_is_refused(asked: Client, talk: str, cursor: str) -> None:
    assert ask(asked, talk, expected=422, cursor=cursor)["error"]["code"] == "INVALID_REQUEST"


def test_what_is_no_status_is_refused(asked: Client, talk: str) -> None:
    ask(asked, talk, expected=422, status="DONE")


def test_calls_of_another_session_are_not_told(asked: Client, talk: str, owner: User) -> None:
    assert ask(asked, new_session(owner))["items"] == []
    stranger = Client()
    stranger.force_login(make_user("mallory"))
    assert ask(stranger, talk, expected=404)["error"]["code"] == "SESSION_NOT_FOUND"


def test_a_page_is_one_query_however_long_it_is(talk: str) -> None:
    calls = [ToolPart(tool_name="t", tool_call_id=str(number), input=json.dumps(number)) for number in range(50)]
    say(talk, ("user", [TextPart(text="More.")]), ("assistant", calls))
    with CaptureQueriesContext(connection) as queries:
        assert len(list_interactions(talk, limit=500)) == 54
    assert len(queries) == 1
    assert MessagePart.objects.filter(session_id=talk, part_type="tool").count() == 54
