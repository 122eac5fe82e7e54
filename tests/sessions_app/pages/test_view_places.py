"""Places in a long session: its newest messages, pages on both sides, and addresses that name one message."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.models import Message, MessagePart
from tests.support.record.talks import exchange, new_session

pytestmark = pytest.mark.django_db
Ask = Callable[..., str]


@pytest.mark.slow
def test_a_long_session_paints_its_newest_fifty_messages_and_loads_the_rest_in_order(
    ask: Ask, browser: Client, reader: User
) -> None:
    session_id = new_session(reader)
    for number in range(130):
        exchange(session_id, f"question {number}", "answer")
    page = ask(f"/sessions/{session_id}/")
    seqs = [int(seq) for seq in re.findall(r'id="msg-(\d+)"', page)]
    assert seqs == list(range(211, 261))
    while older := re.search(r"\?before=(\d+)", page):
        page = ask(f"/sessions/{session_id}/messages/", before=older[1])
        seqs = [int(seq) for seq in re.findall(r'id="msg-(\d+)"', page)] + seqs
    assert seqs == list(range(1, 261))


def test_a_page_around_an_old_message_leads_to_newer_ones(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    for number in range(60):
        exchange(session_id, f"question {number}", "answer")
    page = ask(f"/sessions/{session_id}/", around=40)
    assert 'id="msg-40"' in page
    seqs = [int(seq) for seq in re.findall(r'id="msg-(\d+)"', page)]
    while newer := re.search(r"\?after=(\d+)", page):
        page = ask(f"/sessions/{session_id}/messages/", after=newer[1])
        seqs += [int(seq) for seq in re.findall(r'id="msg-(\d+)"', page)]
    assert seqs == list(range(seqs[0], 121))


@pytest.mark.parametrize("by", ["number", "message", "part", "turn", "time"])
def test_a_page_opens_around_the_message_that_is_named(by: str, ask: Ask, browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    for number in range(100):
        exchange(session_id, f"question {number}", "answer")
    row = Message.objects.get(session_id=session_id, seq=81)
    part = MessagePart.objects.get(message=row)
    names = {
        "number": "81",
        "message": row.id,
        "part": part.id,
        "turn": row.turn_id,
        "time": row.created_at.isoformat(),
    }
    for path in (f"/sessions/{session_id}/", f"/sessions/{session_id}/messages/"):
        page = ask(path, at=names[by])
        here = re.findall(r'id="msg-(\d+)"[^>]*data-here', page)
        assert here == ["81"]
        assert set(re.findall(r'data-load="[^"]+\?(\w+)=', page)) == {"before", "after"}
    other = new_session(reader)
    exchange(other, "a", "b")
    assert browser.get(f"/sessions/{other}/?at={quote(names[by])}").status_code == (
        404 if by in ("message", "part", "turn") else 200
    )


@pytest.mark.parametrize("at", ["0", "9" * 40, "1999-01-01", "9999-12-31T23:59"])
def test_a_place_before_or_after_everything_is_the_first_or_last_message(at: str, ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "first", "last")
    here = re.findall(r'id="msg-(\d+)"[^>]*data-here', ask(f"/sessions/{session_id}/", at=at))
    assert here == ["1" if at in ("0", "1999-01-01") else "2"]
    assert "No messages yet." in ask(f"/sessions/{new_session(reader)}/", at=at)


@pytest.mark.parametrize(
    "at",
    [
        "x",
        "\x00",
        "msg_\ud800".encode("utf-8", "replace").decode(),
        "-1",
        "1e3",
        "٣",
        "a" * 5_000,
        "0001-01-01T00:00+14:00",
    ],
)
def test_a_place_that_is_none_is_not_found(at: str, browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "first", "last")
    assert browser.get(f"/sessions/{session_id}/", {"at": at}).status_code == 404
