"""The summary DAG opened: descriptions, expansion, lineage, cover; by REST and at the terminal."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compaction_app import queries
from sessions_app.database.guards.triggers import guarded_models, remove_guards
from sessions_app.record.change import change
from sessions_app.record.session_store import soft_delete_session
from tests.support.record.inspected import add_session, add_summary, add_turn, claim, finish
from tests.support.sites.commands import printed


class Tree:
    """Twelve messages: ten behind two leaves and a condensed summary over them, two verbatim."""

    def __init__(self, owner: User) -> None:
        self.id = add_session(owner)
        self.messages = [id for number in range(6) for id in add_turn(self.id, f"Question {number}")]
        run = claim(self.id)
        self.left = add_summary(self.id, run, self.messages[:4], (1, 4), text="The tides. file_0123456789abcdef")
        self.right = add_summary(self.id, run, self.messages[4:10], (5, 10), text="The ferries.")
        self.top = add_summary(self.id, run, [self.left, self.right], (1, 10), kind="condensed", text="The harbour.")
        finish(self.id, run)


@pytest.fixture
def tree(owner: User) -> Tree:
    return Tree(owner)


def get(owner_client: Client, path: str, status: int = 200) -> Any:
    answer = owner_client.get(f"/api{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


command = partial(printed, "summaries")


def ids(nodes: list[dict[str, Any]]) -> list[str]:
    return [node["id"] for node in nodes]


def test_a_summary_says_where_it_stands_and_what_it_took(tree, owner_client):
    top = get(owner_client, f"/summaries/{tree.top}")
    assert (top["above"], top["in_context"], top["source_ids"]) == ([], tree.top, [tree.left, tree.right])
    assert top["subtree"] == {
        "summaries": 3,
        "leaves": 2,
        "messages": 10,
        "token_count": 360,
        "tokens_input": 2_700,
        "tokens_output": 360,
        "cost_micros": 126,
    }
    left = get(owner_client, f"/summaries/{tree.left}")
    assert (ids(left["above"]), left["in_context"]) == ([tree.top], tree.top)
    assert (left["subtree"]["summaries"], left["cost_micros"]) == (1, 42)
    assert (left["file_ids"], left["superseded"]) == (["file_0123456789abcdef"], False)


@pytest.mark.both_databases
def test_lineage_goes_both_ways(tree, owner_client):
    down = get(owner_client, f"/summaries/{tree.top}/lineage")
    assert [(node["steps"], node["id"]) for node in down["below"]] == [(0, tree.top), (1, tree.left), (1, tree.right)]
    first = get(owner_client, f"/summaries/{tree.top}/lineage?limit=2")
    rest = get(owner_client, f"/summaries/{tree.top}/lineage?limit=2&cursor={first['next_cursor']}")
    assert (ids(first["below"] + rest["below"]), rest["next_cursor"]) == (ids(down["below"]), None)
    for number, above in ((1, [tree.left, tree.top]), (10, [tree.right, tree.top])):
        traced = get(owner_client, f"/sessions/{tree.id}/messages/{tree.messages[number - 1]}/lineage")
        assert (traced["seq"], ids(traced["above"]), traced["in_context"]) == (number, above, tree.top)
    verbatim = get(owner_client, f"/sessions/{tree.id}/messages/{tree.messages[11]}/lineage")
    assert (verbatim["above"], verbatim["in_context"]) == ([], tree.messages[11])


def test_expansion_goes_one_step_or_to_the_messages(tree, owner_client):
    step = get(owner_client, f"/summaries/{tree.top}/expand")
    assert (step["kind"], ids(step["items"]), step["next_cursor"]) == ("summaries", [tree.left, tree.right], None)
    leaf = get(owner_client, f"/summaries/{tree.right}/expand")
    assert (leaf["kind"], ids(leaf["items"])) == ("messages", tree.messages[4:10])
    found, cursor = [], ""
    while cursor is not None:
        page = get(owner_client, f"/summaries/{tree.top}/expand?deep=true&limit=3{cursor and f'&cursor={cursor}'}")
        assert page["kind"] == "messages"
        found += ids(page["items"])
        cursor = page["next_cursor"]
    assert found == tree.messages[:10]


@pytest.mark.both_databases
def test_a_page_costs_as_many_reads_wherever_it_is_and_however_much_there_is(tree, owner):
    def reads(session: Tree, offset: int, limit: int) -> int:
        summary = queries.load_summary(session.top)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert queries.expand_messages(summary, offset=offset, limit=limit).messages
        return len(captured)

    assert {reads(tree, offset, limit) for offset, limit in ((0, 1), (3, 3), (0, 10), (9, 500))} == {4}


def test_the_context_stands_for_everything_once(tree, owner_client):
    assert get(owner_client, f"/sessions/{tree.id}/cover") == {
        "ok": True,
        "messages": 12,
        "verbatim": 2,
        "summarised": 10,
        "missing": [],
        "twice": [],
        "out_of_order": [],
        "miscounted": [],
    }


@pytest.mark.owner
def test_a_gap_and_an_overlap_are_named(tree, owner_client):
    remove_guards(connection, guarded_models())
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM summary_edges WHERE source_id = %s", [tree.messages[2]])
        cursor.execute("UPDATE context_items SET removed_seq = NULL WHERE item_id = %s", [tree.messages[7]])
    found = get(owner_client, f"/sessions/{tree.id}/cover")
    assert (found["ok"], found["missing"], found["twice"]) == (False, [[3, 3]], [[8, 8]])
    assert found["miscounted"] == [tree.left]
    with pytest.raises(CommandError, match="1 of 1 contexts"):
        command("cover", tree.id)


def test_other_peoples_summaries_are_not_found(tree, owner):
    stranger = Client()
    stranger.force_login(User.objects.create_user("bob"))
    for path in ("", "/expand", "/expand?deep=true", "/lineage"):
        assert get(stranger, f"/summaries/{tree.left}{path}", 404)["error"]["code"] == "SUMMARY_NOT_FOUND"
    for path in ("cover", f"messages/{tree.messages[0]}/lineage", "summaries"):
        assert get(stranger, f"/sessions/{tree.id}/{path}", 404)["error"]["code"] == "SESSION_NOT_FOUND"
    mine = Tree(User.objects.get(username="bob"))
    answer = get(stranger, f"/sessions/{mine.id}/messages/{tree.messages[0]}/lineage", 404)
    assert answer["error"]["code"] == "MESSAGE_NOT_FOUND"


@pytest.mark.parametrize("cursor", ["-1", "x", "%00", "9" * 99, "1.5", "٣", "%F0%9F%92%A9"])
def test_a_cursor_that_is_none_is_refused(tree, owner_client, cursor):
    for path in ("expand?deep=true&", "lineage?"):
        answer = get(owner_client, f"/summaries/{tree.top}/{path}cursor={cursor}", 422)
        assert answer["error"]["code"] == "INVALID_REQUEST"


def test_a_page_after_the_last_is_empty(tree, owner_client):
    assert get(owner_client, f"/summaries/{tree.top}/expand?deep=true&cursor=10")["items"] == []
    assert get(owner_client, f"/summaries/{tree.top}/lineage?cursor=999999")["below"] == []


def test_the_terminal_shows_the_tree_a_summary_and_the_messages(tree):
    lines = command("tree", tree.id).splitlines()
    assert [line.split(" L1 ")[0] for line in lines] == [
        f"condensed {tree.top}",
        f"  leaf {tree.left}",
        f"  leaf {tree.right}",
    ]
    assert ids(json.loads(command("tree", tree.id, "--json"))) == [tree.top, tree.left, tree.right]
    described = command("describe", tree.left)
    assert f"above: {tree.top}; in the context: {tree.top}" in described
    assert json.loads(command("describe", tree.left, "--json"))["in_context"] == tree.top
    assert "The ferries." in command("expand", tree.top)
    deep = [json.loads(line) for line in command("expand", tree.top, "--deep", "--json").splitlines()]
    assert ids(deep) == tree.messages[:10]
    assert "12 messages, 2 verbatim, 10 summarised; each exactly once" in command("cover", "--all")


def test_the_terminal_says_what_is_not_there(tree):
    for arguments, status in ((["describe", "sum_x"], 4), (["tree", "x"], 4), (["cover"], 2), (["cover", "x"], 4)):
        with pytest.raises(CommandError) as caught:
            command(*arguments)
        assert caught.value.returncode == status
    with change(tree.id) as record:
        soft_delete_session(record)
    assert command("cover", "--all") == "\n"
