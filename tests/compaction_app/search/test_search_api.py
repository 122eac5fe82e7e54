"""Search at its endpoints: REST for one session and for all, and the model's own tool."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.tools.memory.grepping import tokens_for
from agents_app.tools.memory.reach import find_own
from agents_app.tools.registry import ToolContext
from compaction_app.compact import compact_now
from compaction_app.queries import list_summaries
from files_app.store import store_file_reference
from mnesis_core.errors import NotFound
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import Message, TextPart
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool
from tests.support.record.tools import find_tool


@pytest.fixture
def talk(owner: User) -> str:
    """A session whose beginning stands behind a summary."""
    session_id = new_session(owner, title="Garden")
    for number in range(5):
        exchange(session_id, f"The marigold number {number} is orange.", "Noted: orange. " * 20)
    assert compact_now(session_id).summary_ids
    return session_id


def ask(owner_client: Client, path: str, status: int = 200, **parameters: Any) -> Any:
    answer = owner_client.get(path, parameters)
    assert answer.status_code == status, answer.content
    return answer.json()


def test_a_hit_names_its_message_and_the_summary_that_stands_for_it(owner_client: Client, talk: str) -> None:
    found = ask(owner_client, f"/api/sessions/{talk}/search", q='"number 0"', scope="messages")
    [hit] = found["items"]
    [summary] = [one for one in list_summaries(talk) if one.first_seq == 1]
    assert (hit["session_id"], hit["session_title"], hit["kind"]) == (talk, "Garden", "messages")
    assert (hit["message_seq"], hit["role"], hit["part_type"], hit["covered_by"]) == (1, "user", "text", summary.id)
    assert hit["message_id"].startswith("msg_")
    assert hit["part_id"].startswith("part_")
    assert [hit["snippet"][first:last] for first, last in hit["matches"]] == ["number 0"]
    assert (found["messages_searched"], found["messages_total"], found["more"]) == (10, 10, False)
    [last] = ask(owner_client, f"/api/sessions/{talk}/search", q='"number 4"', scope="messages")["items"]
    assert last["covered_by"] is None


@pytest.mark.both_databases
def test_summaries_are_found_and_what_one_stands_for_can_be_searched_alone(owner_client: Client, talk: str) -> None:
    summary = list_summaries(talk)[0]
    word = next(word for word in summary.text.split() if word.isalpha() and len(word) > 4)
    hits = ask(owner_client, "/api/search", q=word, scope="summaries")["items"]
    assert summary.id in {hit["summary_id"] for hit in hits}
    assert {(hit["message_id"], hit["part_id"], hit["part_type"]) for hit in hits} == {(None, None, "summary")}
    for path in (f"/api/sessions/{talk}/search", "/api/search"):
        found = ask(owner_client, path, q="marigold", scope="messages", summary_id=summary.id, limit=100)
        seqs = {hit["message_seq"] for hit in found["items"]}
        assert seqs
        assert seqs <= set(range(summary.first_seq, summary.last_seq + 1))
        assert found["messages_total"] == summary.last_seq - summary.first_seq + 1


@pytest.mark.both_databases
def test_what_an_exploration_found_is_found(owner_client: Client, talk: str) -> None:
    with change(talk) as record:
        file_id = store_file_reference(
            record, content_id="0" * 64, path="/garden.csv", exploration_summary="Rows of marigolds and roses"
        )
    [hit] = ask(owner_client, "/api/search", q="roses", scope="files")["items"]
    assert (hit["file_id"], hit["part_type"], hit["message_id"], hit["covered_by"]) == (file_id, "file", None, None)


@pytest.mark.both_databases
def test_pages_of_both_modes_cover_every_hit_once(owner_client: Client, talk: str) -> None:
    for mode, q in (("text", "marigold"), ("regex", "marigold number")):
        seqs: list[int] = []
        cursor = {}
        while True:
            page = ask(owner_client, "/api/search", q=q, mode=mode, scope="messages", limit=2, **cursor)
            seqs += [hit["message_seq"] for hit in page["items"]]
            if not page["more"]:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert sorted(seqs) == list(range(1, 10, 2)), mode


def test_somebody_elses_session_and_summary_are_not_found(owner_client: Client, talk: str) -> None:
    eve = Client()
    eve.force_login(User.objects.create_user("eve"))
    summary_id = list_summaries(talk)[0].id
    assert ask(eve, f"/api/sessions/{talk}/search", 404, q="marigold")["error"]["code"] == "SESSION_NOT_FOUND"
    assert ask(eve, "/api/search", 404, q="a", summary_id=summary_id)["error"]["code"] == "SUMMARY_NOT_FOUND"
    assert ask(eve, "/api/search", q="marigold")["items"] == []
    assert ask(Client(), "/api/search", 401, q="marigold")["error"]["code"] == "NOT_SIGNED_IN"


def test_what_cannot_be_searched_for_is_refused_in_words(owner_client: Client, talk: str) -> None:
    wrong = [
        {"q": ""},
        {"q": "..."},
        {"q": "x" * 1_001, "mode": "text"},
        {"q": "x" * 100_001},
        {"q": "a", "around": 11},
        {"q": "(", "mode": "regex"},
        {"q": "a", "mode": "sql"},
        {"q": "a", "scope": "secrets"},
        {"q": "a", "limit": 0},
        {"q": "a", "cursor": "x"},
        {},
    ]
    for parameters in wrong:
        for path in ("/api/search", f"/api/sessions/{talk}/search"):
            assert ask(owner_client, path, 422, **parameters)["error"]["code"] == "INVALID_REQUEST", parameters


@pytest.mark.both_databases
def test_hostile_text_comes_out_as_text(owner_client: Client, owner: User) -> None:
    say(new_session(owner, title="\ud800"), ("user", [TextPart(text=HOSTILE)]))
    for parameters in ({"q": "alert"}, {"q": "alert.*", "mode": "regex"}):
        [hit] = ask(owner_client, "/api/search", **parameters)["items"]
        assert "<script>alert(1)</script>" in hit["snippet"]
        assert "\ufffd" in hit["snippet"]


@pytest.mark.both_databases
def test_the_model_greps_words_and_patterns_and_goes_on(owner: User, talk: str) -> None:
    say(talk, ("assistant", [tool(input='{"path": "bed.txt"}', output="seven Marigolds")]))
    context = ToolContext(session_id=talk, owner_id=owner.pk)
    grep = find_tool("lcm_grep")
    first = grep.call(context, '{"pattern": "(?i)MARIGOLDS?", "mode": "regex", "limit": 3}')
    assert first.startswith("3 hits in ")
    cursor = first.splitlines()[0].rpartition("cursor=")[2]
    second = grep.call(context, f'{{"pattern": "(?i)MARIGOLDS?", "mode": "regex", "limit": 50, "cursor": "{cursor}"}}')
    hits = [[line for line in page.splitlines() if line.startswith("- ")] for page in (first, second)]
    assert not set(hits[0]) & set(hits[1])
    summary = list_summaries(talk)[0]
    group = (first + "\n" + second).partition(f"Summarised by {summary.id}:\n")[2]
    assert re.search(r"- #1 \(user, [-0-9: ]+\): The marigold number 0", group.partition("\nNot summarised:")[0])
    assert f"- summary {summary.id} (messages {summary.first_seq} to {summary.last_seq}): " in first + second
    assert re.search(
        r"- #11 \(assistant, bash, .*\): seven Marigolds", grep.call(context, '{"pattern": "\\"seven marigolds\\""}')
    )


@pytest.mark.both_databases
def test_a_question_is_answered_with_passages_within_the_tokens_that_are_allowed(
    owner_client: Client, talk: str
) -> None:
    asked = {"q": "Which number of marigold is orange?", "around": 0, "scope": "messages"}
    whole = ask(owner_client, f"/api/sessions/{talk}/search", **asked)
    assert (whole["mode"], whole["note"]) == ("ranked", "")
    [line] = whole["items"][0]["passage"]
    assert line["handle"] == f"#{whole['items'][0]['message_seq']}"
    assert line["message_id"] == whole["items"][0]["message_id"]
    assert line["said_at"].endswith("Z")
    shown: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = ask(owner_client, f"/api/sessions/{talk}/search", max_tokens=40, **asked, **cursor)
        shown += [hit["message_seq"] for hit in page["items"]]
        assert len(page["items"]) < len(whole["items"])
        if not page["more"]:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert shown == [hit["message_seq"] for hit in whole["items"]]


@pytest.mark.parametrize("path", ["/api/sessions/{}/search", "/api/search"])
def test_a_search_is_narrowed_at_its_endpoint(owner_client: Client, talk: str, path: str) -> None:
    path = path.format(talk)
    found = ask(owner_client, path, q="marigold", mode="text", compacted=True, speaker="user")["items"]
    assert found
    assert all(hit["covered_by"] for hit in found)
    assert ask(owner_client, path, q="marigold", until="2020-01-01")["items"] == []
    for wrong in ({"since": "yesterday"}, {"branch": 10**30}, {"branch": -1}, {"max_tokens": 0}, {"compacted": "so"}):
        message = ask(owner_client, path, 422, q="marigold", **wrong)["error"]["message"]
        assert re.search(rf"(^| ){next(iter(wrong))}\b", message), message
    for odd in ({"file": "\0%_"}, {"tool": "\U0001f98a" * 99}, {"speaker": "'; --"}, {"until": "9999-12-31"}):
        ask(owner_client, path, q="marigold", **odd)


@pytest.mark.both_databases
def test_the_tool_answers_within_its_tokens_and_its_handles_are_read(owner: User, talk: str) -> None:
    context = ToolContext(session_id=talk, owner_id=owner.pk)
    grep, read, describe = (find_tool(name) for name in ("lcm_grep", "lcm_read", "lcm_describe"))
    found = grep.call(context, '{"q": "Which number is orange?", "max_tokens": 150}')
    assert estimate_text(found) <= 150
    assert "go on with cursor=0:r" in found
    handles = re.findall(r"^> (#\d+) user: The marigold", found, re.MULTILINE)
    assert handles
    for handle in handles:
        number = (int(handle[1:]) - 1) // 2
        assert f"The marigold number {number} is orange." in read.call(context, f'{{"id": "{handle}"}}')
        assert "marigold" in read.call(context, f'{{"id": "> {handle} user: The marigold"}}')
        assert "marigold" in describe.call(context, f'{{"id": "{talk}{handle}"}}')
    for wrong in ("#0", "#999", "#" + "9" * 18, f"{talk}#99", "sess_0#1"):
        with pytest.raises(NotFound):
            read.call(context, f'{{"id": "{wrong}"}}')
    assert "1 hits" in grep.call(context, '{"pattern": "orange", "max_tokens": 1}')
    assert [tokens_for(limit) for limit in (None, 1, 5, 20, 10**9)] == [1_000, 1_000, 1_000, 4_000, 10_000]


def test_a_handle_leads_to_nobody_elses_message(owner: User, talk: str) -> None:
    eve = User.objects.create_user("eve")
    context = ToolContext(session_id=new_session(eve), owner_id=eve.pk)
    with pytest.raises(NotFound):
        find_tool("lcm_read").call(context, f'{{"id": "{talk}#1"}}')
    with pytest.raises(NotFound):
        find_own(f"{talk}#1", owner_id=eve.pk)
    assert find_own(f"{talk}#1", owner_id=owner.pk).kind == "msg"


def test_the_question_of_the_running_turn_is_not_its_own_answer(owner: User, talk: str) -> None:
    with change(talk) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        question = Message(role="user", parts=(TextPart(text="Which marigold number is orange?"),))
        message_store.append_message(record, turn_id=turn_id, message=question)
    grep = find_tool("lcm_grep")
    asked = '{"pattern": "Which marigold number is orange?", "limit": 50, "around": 0, "max_tokens": 9999}'
    assert "#11" in grep.call(ToolContext(session_id=talk, owner_id=owner.pk), asked)
    assert "#11" not in grep.call(ToolContext(session_id=talk, owner_id=owner.pk, turn_id=turn_id), asked)
