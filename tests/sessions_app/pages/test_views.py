"""The session's pages, asked for as a browser would: who sees what, what it costs, what hostile text becomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mnesis_core.messages import DataPart, FileRefPart, Part, ReasoningPart, TextPart, ToolState
from mnesis_core.records import TurnState, new_id
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

pytestmark = pytest.mark.django_db
Ask = Callable[..., str]
READING_A_SESSION = 2
"""Queries that every page asks first: the cookie's session and its user."""


def count_queries(browser: Client, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert browser.get(path).status_code == 200
    return len(queries)


# Who sees what


def test_a_stranger_is_sent_to_the_sign_in_page_and_back() -> None:
    answer = Client().get("/sessions/sess_x/")
    assert (answer.status_code, answer["Location"]) == (302, "/sign-in/?next=/sessions/sess_x/")


def test_a_part_of_a_page_tells_the_whole_page_to_sign_in() -> None:
    answer = Client().get("/sessions/rows/", headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Redirect"]) == (401, "/sign-in/?next=/")


@pytest.mark.parametrize(
    "path",
    [
        "/sessions/{session}/",
        "/sessions/{session}/messages/",
        "/sessions/{session}/messages/{message}/",
        "/sessions/{session}/messages/{message}/text/",
        "/sessions/{session}/messages/{message}/said/",
        "/sessions/{session}/messages/{message}/records/",
        "/sessions/{session}/parts/part_1/content/",
        "/sessions/{session}/parts/part_1/content/raw/",
    ],
)
def test_somebody_else_s_session_is_not_found_at_any_address(path: str, browser: Client) -> None:
    session_id = new_session(User.objects.create_user("eve"))
    message_id = exchange(session_id, "a secret", "kept")[0]
    answer = browser.get(path.format(session=session_id, message=message_id))
    assert answer.status_code == 404
    assert b"secret" not in answer.content


def test_a_message_or_part_is_found_only_in_its_own_session(browser: Client, reader: User) -> None:
    mine, other = new_session(reader), new_session(reader)
    message_id = exchange(other, "elsewhere", "kept")[0]
    assert browser.get(f"/sessions/{mine}/messages/{message_id}/").status_code == 404
    assert browser.get(f"/sessions/{mine}/messages/{message_id}/text/").content == b""
    assert browser.get(f"/sessions/{mine}/parts/part_nowhere/output/").status_code == 404
    assert browser.get(f"/sessions/{mine}/parts/part_nowhere/salt/").status_code == 404


@pytest.mark.parametrize("query", ["before=x", "after=-1", "before=1e9", "around=٣", "before=%00"])
def test_a_wrong_number_is_an_invalid_request(query: str, browser: Client, reader: User) -> None:
    assert (
        browser.get(f"/sessions/{new_session(reader)}/messages/?{query.replace('around', 'before')}").status_code == 422
    )


def test_numbers_beyond_every_database_are_only_large(browser: Client, reader: User) -> None:
    assert browser.get(f"/sessions/{new_session(reader)}/messages/?before={10**40}").status_code == 200
    assert browser.get(f"/sessions/{new_session(reader)}/?around={10**40}").status_code == 200


# The session


def test_a_session_without_messages_says_so(ask: Ask, reader: User) -> None:
    assert "No messages yet." in ask(f"/sessions/{new_session(reader, title='')}/")


def test_a_message_shows_what_was_said_by_whom_and_what_it_took(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "What is **it**?", "A *test*.")
    page = ask(f"/sessions/{session_id}/")
    assert "<strong>it</strong>" in page
    assert "<em>test</em>" in page
    assert "1.2k in, 34 out · $0.0015 · provider" in page


def test_hostile_text_is_shown_and_does_nothing(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    parts: list[Part] = [
        TextPart(text=HOSTILE),
        ReasoningPart(text=HOSTILE),
        tool(tool_name=HOSTILE, input=HOSTILE, output=HOSTILE),
        tool(tool_call_id="2", state=ToolState.ERROR, error=HOSTILE, input="[" * 3_000),
        DataPart(label=HOSTILE, text=HOSTILE),
    ]
    message_id = say(session_id, ("assistant", parts), error_code="X", error_message=HOSTILE)[0]
    page = ask(f"/sessions/{session_id}/") + ask(f"/sessions/{session_id}/messages/{message_id}/records/")
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    assert 'e.example/i.png" target' in page  # a link, no picture
    assert not re.search(r"<img(?! src=\"/static/)", page)
    assert page.count("⟨U+202E⟩") >= 8


@pytest.mark.parametrize(
    ("state", "end", "sentence"),
    [
        (
            TurnState.FAILED,
            {"outcome": "failed", "error_code": "MODEL_RATE_LIMITED", "error_message": "Wait."},
            "gave no answer",
        ),
        (
            TurnState.INTERRUPTED,
            {"outcome": "broken", "error_code": "MODEL_STREAM_BROKEN", "error_message": "Off."},
            "cut off",
        ),
        (TurnState.INCOMPLETE, {"outcome": "incomplete", "error_code": "MODEL_REPLY_INCOMPLETE"}, "may be incomplete"),
        (TurnState.CANCELLED, {"outcome": "cancelled"}, "Stopped. The answer so far is kept."),
        (TurnState.COMPLETED, {"outcome": "complete", "finish_reason": "length"}, "output limit"),
    ],
)
def test_an_end_that_was_not_good_is_said_with_its_code(
    state: TurnState, end: dict[str, Any], sentence: str, ask: Ask, reader: User
) -> None:
    session_id = new_session(reader)
    say(session_id, ("user", [TextPart(text="q")]), ("assistant", [TextPart(text="Half an ans")]), state=state, **end)
    page = ask(f"/sessions/{session_id}/")
    assert sentence in page
    assert "Half an ans" in page
    assert end.get("error_code", "") in page


def test_a_turn_that_failed_before_its_answer_began_is_explained_below_the_question(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    problem = {"error_code": "MODEL_NOT_FOUND", "error_message": "No such model."}
    say(session_id, ("user", [TextPart(text="q")]), state=TurnState.FAILED, **problem)
    assert "No such model." in ask(f"/sessions/{session_id}/")


def test_a_tool_call_is_a_card_with_its_state_and_beginning(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    now = timezone.now()
    call = tool(
        input='{"command": "ls -la"}',
        output="line\n" * 100_000,
        started_at=now - timedelta(seconds=3),
        completed_at=now,
        compacted_at=now,
    )
    say(session_id, ("assistant", [call, tool(tool_call_id="2", state=ToolState.PENDING, tool_name="later")]))
    page = ask(f"/sessions/{session_id}/")
    for text in (
        "bash",
        "ls -la",
        "out of context",
        "500k characters",
        "3 s",
        "waiting",
        "Show the next 100k characters",
    ):
        assert text in page
    assert len(page) - len(ask(f"/sessions/{new_session(reader)}/")) < 6_000


def test_a_long_text_is_read_piece_by_piece_and_every_character_once(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    text = "".join(f"{number:07}␛\x00" for number in range(40_000))
    say(session_id, ("assistant", [tool(output=text)]))
    page, seen = ask(f"/sessions/{session_id}/"), ""
    while True:
        seen += re.findall(r"<pre[^>]*>\n(.*?)</pre>", page, re.DOTALL)[-1]
        more = re.search(r'hx-get="([^"]+/output/\?offset=\d+)"', page)
        if not more:
            break
        page = ask(more[1])
    assert seen == text.replace("\x00", "⟨␀⟩")


def test_a_text_beyond_the_markdown_limit_is_folded_and_opens_as_plain_text(
    ask: Ask, browser: Client, reader: User
) -> None:
    session_id = new_session(reader)
    exchange(session_id, "**bold** " * 30_000, "ok")
    page = ask(f"/sessions/{session_id}/")
    assert "<strong>bold</strong>" not in page
    assert len(page) - len(ask(f"/sessions/{new_session(reader)}/")) < 6_000
    address = re.search(r'href="(/sessions/[^"]+/raw/)"', page)
    assert address
    answer = browser.get(address[1])
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer.content.decode() == "**bold** " * 30_000


def test_imported_records_are_counted_and_loaded_on_request(ask: Ask, reader: User) -> None:
    session_id = new_session(reader, origin="claude_code")
    records: list[Part] = [DataPart(label="progress", text=f'{{"n": {number}}}') for number in range(120)]
    message_id = say(session_id, ("assistant", [TextPart(text="Done."), *records]))[0]
    page = ask(f"/sessions/{session_id}/")
    assert "120 imported records" in page
    assert ">progress<" not in page
    first = ask(f"/sessions/{session_id}/messages/{message_id}/records/")
    assert first.count("<details") == 50
    rest = re.search(r"after=(\d+)", first)
    assert rest
    assert ask(f"/sessions/{session_id}/messages/{message_id}/records/", after=rest[1]).count("<details") == 50


def test_a_copied_message_is_what_was_written(browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    message_id = exchange(session_id, "**as** <written>\x00", "a")[0]
    answer = browser.get(f"/sessions/{session_id}/messages/{message_id}/text/")
    assert answer.content.decode() == "**as** <written>\x00"
    assert answer["Content-Type"].startswith("text/plain")


def test_only_what_applies_can_be_done_with_a_message(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "q", "a")
    say(session_id, ("user", [TextPart(text="q")]), ("assistant", []), state=TurnState.FAILED, error_code="X")
    say(
        session_id,
        ("user", [TextPart(text="q")]),
        ("assistant", [tool(output="y")]),
        ("assistant", [TextPart(text="a")]),
    )
    can = re.findall(r'data-can="([^"]*)"', ask(f"/sessions/{session_id}/"))
    assert [names.split() for names in can] == [
        ["copy", "edit", "save", "fork", "link", "share", "calls"],
        ["copy", "again", "compare", "fork", "link", "share", "call", "up", "down"],
        ["copy", "edit", "save", "fork", "link", "share", "calls"],
        ["again", "compare", "fork", "link", "share", "call"],
        ["copy", "edit", "save", "fork", "link", "share", "calls"],
        ["fork", "link", "share", "call"],
        ["copy", "again", "compare", "fork", "link", "share", "call", "up", "down"],
    ]


def test_what_was_said_is_told_without_the_files_that_came_with_it(browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    file_id = new_id("file")
    given = [
        TextPart(text="Look:\x00"),
        TextPart(text=f"[FILE: a.txt]\nFile ID: {file_id}\nall of it\n[/FILE]"),
        FileRefPart(file_id=file_id, path="a.txt", file_type="text", token_count=1, exploration_summary=""),
    ]
    message_id = say(session_id, ("user", list(given)))[0]
    answer = browser.get(f"/sessions/{session_id}/messages/{message_id}/said/")
    assert answer.json() == {"text": "Look:\x00", "file_ids": [file_id], "parent_id": "root"}
    assert browser.get(f"/sessions/{session_id}/messages/msg_nowhere/said/").status_code == 404


def test_words_of_a_message_are_in_the_form_of_a_new_prompt_for_its_owner_only(browser: Client, reader: User) -> None:
    words = "Look:\x00 \ud800 <script>alert(1)</script> {{a}}"
    session_id, foreign = new_session(reader), new_session(User.objects.create_user("other"))
    message_id = say(session_id, ("user", [TextPart(text=words)]))[0]
    theirs = say(foreign, ("user", [TextPart(text="hidden words")]))[0]
    assert f"?message=MESSAGE&amp;session={session_id}" in browser.get(f"/sessions/{session_id}/").content.decode()
    answer = browser.get("/prompts/", {"message": message_id, "session": session_id})
    page = answer.content.decode()
    assert (answer.status_code, "data-open" in page, "<script>alert" in page) == (200, True, False)
    assert "{{a}}</textarea>" in page
    for message, session in (
        (theirs, foreign),
        (theirs, session_id),
        (message_id, foreign),
        ("\0", session_id),
        ("x", "\0"),
    ):
        assert browser.get("/prompts/", {"message": message, "session": session}).status_code == 404
    assert "data-open" not in browser.get("/prompts/", {"session": session_id}).content.decode()


def test_the_number_of_queries_does_not_grow_with_the_session(browser: Client, reader: User) -> None:
    session_id = new_session(reader)
    parts: list[Part] = [TextPart(text="x"), tool(output="y"), DataPart(label="l", text="t")]
    say(session_id, ("user", [TextPart(text="q")]), ("assistant", parts))
    few = count_queries(browser, f"/sessions/{session_id}/")
    for _ in range(30):
        say(session_id, ("user", [TextPart(text="q")]), ("assistant", parts))
    assert count_queries(browser, f"/sessions/{session_id}/") == few
    assert few <= READING_A_SESSION + 12  # four of them for the sidebar


def test_a_child_session_and_its_parent_link_to_each_other(ask: Ask, reader: User) -> None:
    parent = new_session(reader)
    child = new_session(reader, parent_id=parent, title="The sub-agent's work")
    assert f'href="/sessions/{child}/"' in ask(f"/sessions/{parent}/")
    assert f'href="/sessions/{parent}/"' in ask(f"/sessions/{child}/")


def test_a_session_says_with_which_parameters_its_model_is_asked(ask: Ask, reader: User) -> None:
    asked = {"temperature": 0.0, "stop": ["<b>"]}
    page = " ".join(ask(f"/sessions/{new_session(reader, config={'parameters': asked})}/").split())
    assert "Parameters: <code>temperature</code> 0.0, <code>stop</code> [&#x27;&lt;b&gt;&#x27;]" in page
    assert "Parameters:" not in ask(f"/sessions/{new_session(reader)}/")


def test_an_archived_session_can_be_read_and_not_written(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    with change(session_id) as record:
        session_store.archive_session(record)
    page = ask(f"/sessions/{session_id}/")
    assert "accepts no more messages" in page
    assert "<textarea" not in page


def test_no_page_has_inline_style_or_script(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "| a |\n|:-:|\n| b |", "x")
    for page in (ask("/"), ask(f"/sessions/{session_id}/")):
        assert not re.search(r"\sstyle=|<style|\son\w+=", page)
        tags = re.findall(r"<script[^>]*>", page)
        # Which pages to fetch early, which no script can be in.
        tags.remove('<script type="speculationrules">')
        assert all("src=" in tag for tag in tags)


@pytest.mark.parametrize(
    ("origin", "client"), [("openai", "OpenAI"), ("responses", "OpenAI"), ("anthropic", "Anthropic")]
)
def test_a_session_of_another_program_says_where_it_comes_from(
    ask: Ask, reader: User, origin: str, client: str
) -> None:
    begun = new_session(reader, origin=origin, title="Begun there")
    single = new_session(reader, origin=origin, title="Asked once", labels={"one_turn": "yes"})
    assert f"Started by an {client} client." in ask(f"/sessions/{begun}/")
    assert "as a single call" in ask(f"/sessions/{single}/")
    assert ask("/sessions/rows/").count("single call") == 1
