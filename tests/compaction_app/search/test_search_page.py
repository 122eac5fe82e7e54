"""The page that searches everything: words and patterns, what has left the context, hostile texts, pages of hits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compaction_app.compact import compact_now
from compaction_app.queries import list_summaries
from mnesis_core.messages import ReasoningPart, TextPart
from sessions_app.record import message_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

PART = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def talk(owner: User) -> str:
    """A session whose beginning stands behind a summary."""
    session_id = new_session(owner, title="Garden")
    for number in range(5):
        exchange(session_id, f"The marigold number {number} is orange.", "Noted: orange. " * 20)
    assert compact_now(session_id).summary_ids
    return session_id


def ask(owner_client: Client, status: int = 200, **parameters: Any) -> str:
    answer = owner_client.get("/search/", parameters)
    assert answer.status_code == status, answer.content
    return re.sub(r"\s+", " ", answer.content.decode())


def hits_of(page: str) -> list[str]:
    return re.findall(r'<li class="hit .*?</li>', page)


def test_what_has_left_the_context_says_since_which_turn_and_what_stands_for_it(
    owner_client: Client, talk: str
) -> None:
    [hit] = hits_of(ask(owner_client, q='"number 0"', kind="messages"))
    [summary] = [one for one in list_summaries(talk) if one.first_seq == 1]
    assert "The marigold <mark>number 0</mark> is orange." in hit
    assert f'href="/sessions/{talk}/?at=1#msg-1"' in hit
    # Its compaction came after the fifth turn.
    assert "not in context since turn 5" in hit
    assert f"{summary.id}/" in hit
    [last] = hits_of(ask(owner_client, q='"number 4"', kind="messages"))
    assert "not in context" not in last


def test_a_tombstoned_output_says_so_and_its_input_does_not(owner_client: Client, owner: User) -> None:
    session_id = new_session(owner)
    call = tool(input='{"path": "lagoon.txt"}', output="a heron in the lagoon")
    [_, message_id] = say(session_id, ("user", [TextPart(text="look")]), ("assistant", [call]))
    exchange(session_id, "and then?", "nothing")
    with change(session_id) as record:
        message_store.tombstone_parts(record, [load_message(message_id, session_id=session_id).parts[0].id])
    hits = hits_of(ask(owner_client, q="lagoon", kind="tools", mode="text"))
    [output] = [hit for hit in hits if "bash, output" in hit]
    [asked] = [hit for hit in hits if "bash, input" in hit]
    assert "not in context since turn 2" in output
    assert "replaced by a tombstone" in output
    assert "not in context" not in asked


def test_summaries_and_reasoning_are_found_as_what_they_are(owner_client: Client, owner: User, talk: str) -> None:
    summary = list_summaries(talk)[0]
    word = next(word for word in summary.text.split() if word.isalpha() and len(word) > 4)
    assert f"Summary of messages {summary.first_seq} to {summary.last_seq}" in ask(
        owner_client, q=word, kind="summaries"
    )
    say(talk, ("user", [TextPart(text="q")]), ("assistant", [ReasoningPart(text="perhaps a dragonfly")]))
    assert "<strong><bdi>Reasoning</bdi></strong>" in ask(owner_client, q="dragonfly")


def test_a_pattern_is_found_and_a_wrong_one_explained(owner_client: Client, talk: str) -> None:
    page = ask(owner_client, q="number [34] is", mode="regex", kind="messages")
    assert len(hits_of(page)) == 2
    assert "Searched 10 of 10 messages." in page
    assert "This is not a pattern that RE2 knows" in ask(owner_client, q="(", mode="regex")
    assert "The search has no word in it" in ask(owner_client, q="...")
    assert "cursor must be" in ask(owner_client, q="marigold", cursor="x")


def test_pages_lead_on_and_only_the_first_has_the_address(owner_client: Client, owner: User) -> None:
    session_id = new_session(owner)
    for number in range(25):
        exchange(session_id, f"tide {number}", "noted")
    first = owner_client.get("/search/", {"q": "tide", "kind": "messages", "mode": "text"}, **PART)
    assert first["HX-Replace-Url"] == "/search/?q=tide&mode=text&kind=messages"
    page = re.sub(r"\s+", " ", first.content.decode())
    assert "<html" not in page
    address = re.search(r'hx-get="([^"]+)"', page)
    assert address
    second = owner_client.get(address[1].replace("&amp;", "&"), **PART)
    assert "HX-Replace-Url" not in second
    rest = re.sub(r"\s+", " ", second.content.decode())
    assert "<ol" not in rest
    places = re.findall(r"#msg-(\d+)", page + rest)
    assert len(hits_of(page)) == 20
    assert len(places) == len(set(places)) == 25
    assert "hx-get" not in rest


def test_one_session_can_be_searched_alone_and_only_ones_own(owner_client: Client, talk: str, owner: User) -> None:
    exchange(new_session(owner, title="Elsewhere"), "another marigold", "noted")
    assert "Elsewhere" in ask(owner_client, q="marigold", kind="messages")
    page = ask(owner_client, q="marigold", session=talk).partition("<main")[2]
    assert "Elsewhere" not in page
    assert "Only in <bdi>Garden</bdi>" in page
    eve = Client()
    eve.force_login(User.objects.create_user("eve"))
    ask(eve, 404, q="marigold", session=talk)
    assert not hits_of(ask(eve, q="marigold"))
    assert Client().get("/search/").status_code == 302


def test_hostile_text_and_addresses_do_nothing(owner_client: Client, owner: User) -> None:
    say(new_session(owner, title=HOSTILE), ("user", [TextPart(text=f"needle {HOSTILE}")]))
    for parameters in ({"q": "needle"}, {"q": "<script>.*", "mode": "regex"}):
        page = ask(owner_client, **parameters)
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page
        assert "⟨U+202E⟩" in page
    for wrong in (
        {"q": "\x00"},
        {"q": "a", "kind": "x", "mode": "x"},
        {"q": "a", "cursor": "9" * 40},
        {"q": "x" * 1_001},
    ):
        ask(owner_client, **wrong)
    ask(owner_client, 404, q="a", session="\x00")


def test_the_first_hits_stand_below_the_list_of_sessions(owner_client: Client, talk: str) -> None:
    page = ask(owner_client, q="marigold", brief="1")
    assert 1 <= len(hits_of(page)) <= 5
    assert 'href="/search/?q=marigold%2A"' in page
    # As it is typed: the last word may not be whole.
    assert hits_of(ask(owner_client, q="the mari", brief="1"))
    assert not hits_of(ask(owner_client, q='"mari"', brief="1"))
    assert "No messages or files contain" in ask(owner_client, q="zeppelin", brief="1")


def test_hits_of_many_sessions_cost_as_many_queries_as_one(owner_client: Client, owner: User) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert hits_of(ask(owner_client, q="tide"))
        return len(queries)

    exchange(new_session(owner), "tide", "noted")
    alone = count()
    for _ in range(12):
        exchange(new_session(owner), "tide", "noted")
    assert count() == alone
