"""Summaries said again: a preview changes nothing, its difference is shown, applying writes exactly it, undoing undoes it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import connections
from django.test import Client
from django.utils import timezone

from compaction_app import queries, revise
from compaction_app.context.state import build_context, rebuild_payload
from compaction_app.models import SummaryEdge, SummaryNode, SummaryPreview, SummaryTry
from compaction_app.queries import load_graph, load_summary
from mnesis_core.errors import Conflict, ModelUnreachable, SessionArchived, SummaryRevised
from mnesis_core.llm.interface import Request
from sessions_app.models import ContextItem, LanguageModel
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_store import archive_session, update_session
from sessions_app.record.turn_queries import list_calls, load_call
from sessions_app.record.turn_store import start_call
from tests.compaction_app.lineage.test_lineage import Tree, get
from tests.compaction_app.summaries.test_revisions import prove, stale, standing
from tests.support.sites.commands import printed

PROMPT = """version: 7

# System

MNESIS-SUMMARISE Speak like a pirate.

# User

At most {{target}} tokens, of this: {{source}}
"""


@pytest.fixture
def tree(alice: User) -> Tree:
    return Tree(alice)


@pytest.fixture
def owner_client(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def post(owner_client: Client, path: str, body: Any = None, status: int = 200) -> Any:
    answer = owner_client.post(f"/api{path}", json.dumps(body or {}), content_type="application/json")
    assert answer.status_code == status, answer.content
    return answer.json()


command = partial(printed, "resummarise")


def numbered() -> Any:
    """A model that says another thing each time."""
    said: list[int] = []

    def reply(request: Request) -> str:
        said.append(1)
        return f"- Version {len(said)} of it."

    return reply


def dag(session_id: str) -> tuple[Any, ...]:
    """Everything that a preview must leave alone."""
    tables = (SummaryNode.objects.filter(session_id=session_id), SummaryEdge.objects.all(), ContextItem.objects.all())
    return (*(sorted(map(repr, rows.values())) for rows in tables), build_context(session_id).digest)


def text_of(summary_id: str) -> str:
    return load_summary(summary_id).text


def test_a_preview_changes_nothing_and_shows_the_difference(tree, script, owner_client):
    model = script("- The harbour, said better.")
    before = dag(tree.id)
    shown = post(owner_client, f"/summaries/{tree.top}/preview", {"model": "demo"}, 201)
    assert dag(tree.id) == before
    [item] = shown["items"]
    assert (shown["summary_id"], shown["applied"], item["id"]) == (tree.top, False, shown["id"])
    assert item["text"].startswith("- The harbour, said better.")
    assert "-The harbour." in item["difference"]
    assert "+- The harbour, said better." in item["difference"]
    assert (item["token_count_before"], item["level"], item["prompt_version"]) == (120, 1, "condense.1")
    assert item["tokens_input"] > 0
    assert "The ferries." in str(model.requests[0].payload)
    assert get(owner_client, f"/previews/{shown['id']}") == shown
    assert get(owner_client, f"/summaries/{shown['id']}", 404)["error"]["code"] == "SUMMARY_NOT_FOUND"
    assert load_events(tree.id, limit=999)[-1].type == "summary.previewed"
    prove(tree.id)


def test_applying_writes_exactly_what_was_previewed_and_undoing_brings_the_old_text_back(tree, script, owner_client):
    script(numbered())
    shown = post(owner_client, f"/summaries/{tree.top}/preview", status=201)
    [applied] = post(owner_client, f"/summaries/{tree.top}/apply", {"preview_id": shown["id"]})["items"]
    assert (applied["id"], applied["revises"], applied["text"]) == (shown["id"], tree.top, shown["items"][0]["text"])
    assert applied["tokens_input"] == shown["items"][0]["tokens_input"]
    assert standing(tree.id) == [shown["id"]]
    assert get(owner_client, f"/previews/{shown['id']}")["applied"]
    [undone] = post(owner_client, f"/summaries/{tree.top}/undo")["items"]
    assert (undone["text"], undone["restores"], undone["cost_micros"]) == (text_of(tree.top), tree.top, 0)
    assert standing(tree.id) == [undone["id"]]
    [redone] = post(owner_client, f"/summaries/{tree.top}/undo")["items"]
    assert redone["restores"] == shown["id"]
    [chosen] = post(owner_client, f"/summaries/{redone['id']}/undo", {"to": undone["id"]})["items"]
    assert (chosen["restores"], chosen["text"]) == (tree.top, text_of(tree.top))
    prove(tree.id)


def test_a_preview_of_what_was_revised_meanwhile_is_refused(tree, script, owner_client):
    script(numbered())
    first, second = revise.preview(tree.top), revise.preview(tree.top)
    revise.apply(first)
    for _ in range(2):
        answer = post(owner_client, f"/summaries/{tree.top}/apply", {"preview_id": second}, 409)
        assert answer["error"]["code"] == "SUMMARY_REVISED"
    with pytest.raises(SummaryRevised):
        revise.apply(first)
    with pytest.raises(SummaryRevised):
        revise.preview(tree.top)
    assert standing(tree.id) == [first]


@pytest.mark.both_databases
def test_of_many_who_apply_at_once_one_does(tree, script):
    script(numbered())
    previews = [revise.preview(tree.top) for _ in range(4)]

    def is_applied(preview: str) -> bool:
        try:
            return bool(revise.apply(preview))
        except SummaryRevised:
            return False
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(is_applied, previews)) == [False, False, False, True]
    [winner] = standing(tree.id)
    assert winner in previews
    prove(tree.id)


def test_a_preview_made_from_what_was_revised_meanwhile_is_refused(tree, script):
    script(numbered())
    top, leaf = revise.preview(tree.top), revise.preview(tree.left)
    revise.apply(leaf)
    with pytest.raises(SummaryRevised):
        revise.apply(top)
    assert standing(tree.id) == [tree.top]
    prove(tree.id)


def test_a_subtree_is_made_again_from_below_and_applied_as_one(tree, script):
    model = script(numbered())
    before = dag(tree.id)
    preview = revise.preview(tree.top, subtree=True)
    assert dag(tree.id) == before
    comparisons = queries.compare_previews(preview)
    assert [one.before.id for one in comparisons] == [tree.left, tree.right, tree.top]
    # The top was made from the previewed texts below it.
    asked = str(model.requests[-1].payload)
    assert "Version 1 of it" in asked
    assert "Version 2 of it" in asked
    assert "The ferries." not in asked
    left, right, top = revise.apply(preview)
    assert top == preview
    assert [id for _, id in load_summary(top).source_ids] == [left, right]
    assert (standing(tree.id), stale(tree.id)) == ([top], set())
    prove(tree.id)
    back = revise.undo(top, subtree=True)
    assert [text_of(id) for id in back] == [text_of(id) for id in (tree.left, tree.right, tree.top)]
    assert stale(tree.id) == set()
    assert [one.id for one in load_graph(tree.id).sources(back[-1])] == back[:2]
    prove(tree.id)


def test_what_is_stale_is_made_again_alone(tree, script):
    model = script(numbered())
    with pytest.raises(Conflict, match="nothing here is stale"):
        revise.preview(tree.top, subtree=True, only_stale=True)
    revise.apply(revise.preview(tree.left))
    assert stale(tree.id) == {tree.top}
    asked = len(model.requests)
    preview = revise.preview(tree.top, subtree=True, only_stale=True)
    assert len(model.requests) == asked + 1
    assert "Version 1 of it" in str(model.requests[-1].payload)
    assert revise.apply(preview) == [preview]
    assert stale(tree.id) == set()
    prove(tree.id)


def test_every_question_is_kept_word_for_word_and_can_be_rebuilt(tree, script):
    script(numbered())
    preview = revise.preview(tree.top, subtree=True)
    calls = [call for call in list_calls(tree.id, limit=50) if call.purpose == "summary"]
    assert [call.state for call in calls] == ["completed"] * 3
    assert [rebuild_payload(call).problems for call in calls] == [()] * 3
    tries = SummaryTry.objects.filter(session_id=tree.id, run__isnull=True).order_by("created_at", "id")
    assert [attempt.summary_id for attempt in tries] == [one.preview.id for one in queries.compare_previews(preview)]
    assert [attempt.text for attempt in tries] == [f"- Version {number} of it." for number in (1, 2, 3)]
    revise.apply(preview)
    assert [rebuild_payload(call).problems for call in calls] == [()] * 3


def test_money_that_may_not_be_spent_is_not_spent_on_previews_either(tree, script):
    model = script(numbered())
    config = {"compaction": {"spend_limit_session_micros": 1}, "prices": {"input": 10**9, "output": 10**9}}
    with change(tree.id) as record:
        update_session(record, config=config)
    [item] = queries.compare_previews(revise.preview(tree.left))
    assert (model.requests, item.preview.level) == ([], 3)
    refused = SummaryTry.objects.filter(run__isnull=True, level__lt=3)
    assert {attempt.reason for attempt in refused} == {"spend_limit_session"}


def test_the_call_of_a_process_that_died_is_closed_by_the_next_preview(tree, script):
    script(numbered())
    with change(tree.id, now=timezone.now() - timedelta(days=1)) as record:
        lost = start_call(
            record,
            turn_id=None,
            message_id=None,
            purpose="summary",
            model="demo",
            provider_model="scripted/demo",
            parameters={"run_id": None},
            manifest=[],
            context_seq=1,
            digest="ab" * 32,
            estimated_tokens=1,
        )
    revise.preview(tree.left)
    closed = load_call(lost)
    assert (closed.state, closed.error_code) == ("failed", "MODEL_CALL_ABANDONED")


def test_another_prompt_is_asked_and_named(tree, script, owner_client):
    model = script(numbered())
    shown = post(owner_client, f"/summaries/{tree.left}/preview", {"prompt": PROMPT}, 201)
    assert shown["items"][0]["prompt_version"] == "custom.7"
    assert "pirate" in str(model.requests[0].payload)
    assert (
        post(owner_client, f"/summaries/{tree.left}/preview", {"prompt": "Arr"}, 422)["error"]["code"]
        == "INVALID_REQUEST"
    )
    hostile = post(owner_client, f"/summaries/{tree.left}/preview", {"prompt": PROMPT + "\x00 \u202e 💩"}, 201)
    assert hostile["items"][0]["level"] == 1
    assert [rebuild_payload(call).problems for call in list_calls(tree.id, limit=2)] == [(), ()]


def test_another_model_is_asked_and_named(tree, script):
    LanguageModel.objects.create(
        alias="spare", litellm_model="scripted/spare", context_window=8_000, max_output_tokens=300
    )
    own, other = script(numbered()), script(numbered(), alias="spare")
    preview = revise.preview(tree.top, subtree=True, model="spare")
    assert (own.requests, len(other.requests)) == ([], 3)
    revise.apply(preview)
    assert {load_summary(node.id).model for node in load_graph(tree.id).current()} == {"spare"}


def test_a_model_that_fails_gives_a_level_three_preview_that_says_so(tree, script, owner_client):
    script(lambda request: ModelUnreachable())
    [item] = post(owner_client, f"/summaries/{tree.left}/preview", status=201)["items"]
    assert (item["level"], item["model"]) == (3, "")
    assert "Question 0" in item["text"]


def test_other_peoples_summaries_are_not_found(tree, script, bob):
    script(numbered())
    preview = revise.preview(tree.top)
    revise.apply(preview)
    stranger = Client()
    stranger.force_login(bob)
    answers = [
        post(stranger, f"/summaries/{preview}/preview", status=404),
        post(stranger, f"/summaries/{preview}/undo", status=404),
        post(stranger, f"/summaries/{tree.top}/apply", {"preview_id": preview}, 404),
        get(stranger, f"/previews/{preview}", 404),
    ]
    codes = [answer["error"]["code"] for answer in answers]
    assert codes == ["SUMMARY_NOT_FOUND", "SUMMARY_NOT_FOUND", "PREVIEW_NOT_FOUND", "PREVIEW_NOT_FOUND"]


STALE = "stale: one of its sources was revised since"


def test_a_summarys_page_leads_to_the_newest_revision_and_says_what_is_stale(tree, script, owner_client):
    script(numbered())
    revise.apply(revise.preview(tree.left))
    newest = load_graph(tree.id).newest(tree.left).id
    page = owner_client.get(f"/summaries/{tree.left}/", follow=True).content.decode()
    assert f'/inspect/summaries/{newest}/"' in page
    assert STALE in owner_client.get(f"/summaries/{tree.top}/", follow=True).content.decode()
    assert STALE not in owner_client.get(f"/summaries/{newest}/", follow=True).content.decode()


@pytest.mark.both_databases
def test_what_cannot_be_done_is_said(tree, script, owner_client):
    script(numbered())
    assert post(owner_client, f"/summaries/{tree.top}/undo", status=409)["error"]["code"] == "CONFLICT"
    assert post(owner_client, f"/summaries/{tree.top}/undo", {"to": tree.left}, 409)["error"]["code"] == "CONFLICT"
    assert (
        post(owner_client, f"/summaries/{tree.top}/preview", {"model": "nobody"}, 404)["error"]["code"]
        == "MODEL_NOT_FOUND"
    )
    for hostile in ("\x00", "💩", "x" * 100):
        post(owner_client, f"/summaries/{tree.top}/preview", {"model": hostile}, 404)
    preview = revise.preview(tree.left)
    other = post(owner_client, f"/summaries/{tree.right}/apply", {"preview_id": preview}, 422)
    assert other["error"]["code"] == "INVALID_REQUEST"
    batch = queries.compare_previews(revise.preview(tree.top, subtree=True))
    part = post(owner_client, f"/summaries/{tree.left}/apply", {"preview_id": batch[0].preview.id}, 404)
    assert part["error"]["code"] == "PREVIEW_NOT_FOUND"
    for hostile in ("\x00", "x" * 100, "💩"):
        post(owner_client, f"/summaries/{tree.left}/apply", {"preview_id": hostile}, 404)
        post(owner_client, f"/summaries/{tree.left}/undo", {"to": hostile}, 404)
    with change(tree.id) as record:
        archive_session(record)
    with pytest.raises(SessionArchived):
        revise.preview(tree.left)
    with pytest.raises(SessionArchived):
        revise.apply(preview)


def test_the_terminal_previews_applies_and_undoes(tree, script, tmp_path: Path):
    script(numbered())
    prompt = tmp_path / "pirate.md"
    prompt.write_text(PROMPT)
    shown = command(tree.top, "--subtree", "--prompt", str(prompt), "--model", "demo")
    preview = shown.rstrip().rpartition(" ")[2]
    assert "-The harbour." in shown
    assert shown.count("would become") == 3
    assert command("--show", preview) == shown
    values = json.loads(command("--show", preview, "--json"))
    assert [item["before"]["id"] for item in values["items"]] == [tree.left, tree.right, tree.top]
    assert command("--apply", preview).splitlines()[-1] == f"applied {preview}"
    assert len(json.loads(command("--undo", tree.top, "--subtree", "--json"))["undone"]) == 3
    assert queries.cover(tree.id).ok
    for arguments, status in (
        (["--apply", preview], 5),
        (["--show", "sum_x"], 4),
        ([tree.top], 5),
        (["sum_x"], 4),
        ([preview, "--prompt", str(tmp_path / "none.md")], 2),
    ):
        with pytest.raises(CommandError) as caught:
            command(*arguments)
        assert caught.value.returncode == status
    assert SummaryPreview.objects.count() == 3
