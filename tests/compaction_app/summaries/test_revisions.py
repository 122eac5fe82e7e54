"""Summaries are never rewritten: a revision takes a summary's place, what stands above is stale, and all of it is proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client

from audit_app.proof.verify import check_replay, replay_session, verify_session
from compaction_app import queries
from compaction_app.context.state import build_context, load_state
from compaction_app.models import SummaryNode
from compaction_app.queries import covering_summaries, list_summaries, load_graph, load_summary
from compaction_app.store import Revision, revise_summaries
from mnesis_core.errors import SummaryNotFoundError, SummaryRevised
from mnesis_core.records import new_id
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from tests.compaction_app.lineage.test_lineage import Tree, command, get
from tests.support.record.inspected import add_summary, claim, finish
from tests.support.record.talks import new_session

REVISION = Revision(
    id="",
    summary_id="",
    source_ids=(),
    level=1,
    text="Better \x00 words.",
    token_count=20,
    source_tokens=900,
    model="large",
    prompt_version="level1.2",
    tokens_input=900,
    tokens_output=20,
    cost_micros=99,
    duration_ms=5,
)


@pytest.fixture
def tree(owner: User) -> Tree:
    return Tree(owner)


def revise(session_id: str, summary_id: str, revision: Revision = REVISION) -> str:
    """Another text, made from the newest revisions of the sources."""
    sources = [source.id for source in load_graph(session_id).sources(summary_id)]
    sources = sources or [id for _, id in load_summary(summary_id).source_ids]
    return write(session_id, replace(revision, summary_id=summary_id, source_ids=tuple(sources)))


def undo(session_id: str, summary_id: str, earlier: str) -> str:
    """The text and the sources of an earlier revision again."""
    old = load_summary(earlier)
    sources = tuple(id for _, id in old.source_ids)
    text = replace(REVISION, text=old.text, restores_id=earlier)
    return write(session_id, replace(text, summary_id=summary_id, source_ids=sources))


def write(session_id: str, revision: Revision) -> str:
    made = replace(revision, id=new_id("sum"))
    with change(session_id) as record:
        revise_summaries(record, [made])
    return made.id


def stale(session_id: str) -> set[str]:
    """The marks on the rows, which must be what the graph says."""
    graph = load_graph(session_id)
    marked = {node.id for node in graph.current() if node.freshness == "stale"}
    assert marked == graph.stale()
    return marked


def prove(session_id: str) -> None:
    assert verify_session(session_id).problems == []
    assert check_replay(session_id) == []
    assert queries.cover(session_id).ok


def standing(session_id: str) -> list[str]:
    return [item.id for item in load_state(session_id).entries if hasattr(item, "level")]


def test_a_revision_takes_the_place_in_the_context_and_the_old_one_stays_as_it_was(tree):
    before = load_summary(tree.top)
    seq = load_events(tree.id, limit=10_000)[-1].seq
    seen = build_context(tree.id)
    newer = revise(tree.id, tree.top)
    assert standing(tree.id) == [newer]
    after = load_summary(tree.top)
    assert replace(after, superseded_seq=None) == before
    assert after.superseded_seq == seq + 2
    node = load_summary(newer)
    assert (node.text, node.revises, node.restores, node.run_id) == (REVISION.text, tree.top, None, None)
    assert (node.kind, node.depth, node.first_seq, node.last_seq, node.message_count) == ("condensed", 1, 1, 10, 10)
    assert build_context(tree.id, at=seq).digest == seen.digest
    assert "Better" in str(build_context(tree.id).payload)
    assert [event.type for event in load_events(tree.id, after=seq)] == [
        "summary.created",
        "summary.superseded",
        "context.changed",
    ]
    assert stale(tree.id) == set()
    prove(tree.id)


def test_what_was_made_from_a_revised_summary_is_stale_until_it_is_made_again(tree):
    newer = revise(tree.id, tree.left)
    assert standing(tree.id) == [tree.top]
    assert stale(tree.id) == {tree.top}
    [event] = [event for event in load_events(tree.id, limit=999) if event.type == "summary.freshness_changed"]
    assert (event.data["stale"], event.data["fresh"], event.data["because"]) == ([tree.top], [], newer)
    # The edges say what was read; expansion shows what is there now.
    assert [id for _, id in load_summary(tree.top).source_ids] == [tree.left, tree.right]
    shown = [(read, source.id) for read, source in queries.expand_step(load_summary(tree.top))]
    assert shown == [(tree.left, newer), (tree.right, tree.right)]
    assert covering_summaries(tree.id, [1, 5]) == {1: newer, 5: tree.right}
    top = revise(tree.id, tree.top)
    assert stale(tree.id) == set()
    assert load_summary(tree.top).freshness == "stale"
    assert [id for _, id in load_summary(top).source_ids] == [newer, tree.right]
    prove(tree.id)


def test_undoing_is_one_more_revision_and_takes_the_marks_away(tree):
    newer = revise(tree.id, tree.left)
    back = undo(tree.id, newer, tree.left)
    assert stale(tree.id) == set()
    assert load_summary(back).text == load_summary(tree.left).text
    again = undo(tree.id, back, newer)
    assert stale(tree.id) == {tree.top}
    graph = load_graph(tree.id)
    assert [node.id for node in graph.history(newer)] == [tree.left, newer, back, again]
    assert [node.id for node in graph.above(tree.left)] == [tree.top]
    assert len(list_summaries(tree.id)) == 6
    prove(tree.id)


def test_what_is_condensed_from_a_stale_summary_is_stale(tree):
    revise(tree.id, tree.left)
    run = claim(tree.id)
    last = add_summary(tree.id, run, tree.messages[10:12], (11, 12))
    higher = add_summary(tree.id, run, [tree.top, last], (1, 12), kind="condensed")
    finish(tree.id, run)
    assert stale(tree.id) == {tree.top, higher}
    revise(tree.id, tree.top)
    assert stale(tree.id) == {higher}
    prove(tree.id)


def test_the_endpoints_show_revisions_and_marks(tree, owner):
    owner_client = Client()
    owner_client.force_login(owner)
    newer = revise(tree.id, tree.left)
    back = undo(tree.id, newer, tree.left)
    last = undo(tree.id, back, newer)
    old = get(owner_client, f"/summaries/{tree.left}")
    assert (old["superseded_by"], old["superseded"], old["freshness"]) == (newer, True, "fresh")
    assert old["in_context"] == tree.top
    chain = [(node["id"], node["revises"], node["restores"], node["superseded"]) for node in old["revisions"]]
    assert chain == [
        (tree.left, None, None, True),
        (newer, tree.left, None, True),
        (back, newer, tree.left, True),
        (last, back, newer, False),
    ]
    top = get(owner_client, f"/summaries/{tree.top}")
    assert (top["freshness"], top["superseded_by"]) == ("stale", None)
    [left, right] = get(owner_client, f"/summaries/{tree.top}/expand")["items"]
    assert (left["id"], left["source_id"], left["superseded_by"]) == (last, tree.left, None)
    assert (right["id"], right["source_id"]) == (tree.right, tree.right)
    listed = {
        item["id"]: item["superseded_by"] for item in get(owner_client, f"/sessions/{tree.id}/summaries")["items"]
    }
    assert listed == {tree.left: newer, newer: back, back: last, last: None, tree.right: None, tree.top: None}
    assert f"{last}, a revision of {tree.left}" in command("expand", tree.top)
    assert f"{back} (text of {tree.left})" in command("describe", last)
    assert [line.endswith(", stale") for line in command("tree", tree.id).splitlines()] == [True, False, False]


@pytest.mark.both_databases
def test_of_two_revisions_of_one_summary_one_wins(tree):
    newer = revise(tree.id, tree.top)
    with pytest.raises(SummaryRevised):
        revise(tree.id, tree.top)
    assert standing(tree.id) == [newer]
    row = SummaryNode.objects.values().get(id=newer)
    with pytest.raises(IntegrityError), transaction.atomic():
        SummaryNode.objects.create(**row | {"id": "sum_other"})
    prove(tree.id)


def test_another_sessions_summary_is_not_revised(tree, owner):
    elsewhere = new_session(owner)
    with pytest.raises(SummaryNotFoundError):
        write(elsewhere, replace(REVISION, summary_id=tree.top, source_ids=(tree.left,)))
    assert standing(tree.id) == [tree.top]


def test_the_ledger_alone_says_what_was_superseded_and_what_is_stale(tree):
    newer = revise(tree.id, tree.left)
    projection = replay_session(tree.id)
    assert projection.superseded == {tree.left: load_summary(tree.left).superseded_seq}
    assert {id for id, freshness in projection.freshness.items() if freshness == "stale"} == {tree.top}
    assert projection.summaries[newer] == projection.summaries[tree.left]
    before = load_summary(tree.left).superseded_seq
    assert replay_session(tree.id, at=before - 1).superseded == {}


@pytest.mark.both_databases
@pytest.mark.owner
@pytest.mark.parametrize("column", ["revises_id = NULL", "restores_id = NULL", "superseded_seq = 1"])
def test_the_database_keeps_a_revision_as_it_was_written(tree, column):
    newer = revise(tree.id, tree.left)
    back = undo(tree.id, newer, tree.left)
    id = newer if column.startswith("superseded") else back
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE summary_nodes SET {column} WHERE id = %s", [id])


def test_the_context_as_of_any_event_shows_the_revision_of_then(tree):
    seqs: list[tuple[int, Any]] = []
    for text in ("one", "two", "three"):
        revise(tree.id, standing(tree.id)[0], replace(REVISION, text=text))
        seqs.append((load_events(tree.id, limit=10_000)[-1].seq, text))
    for seq, text in seqs:
        [summary] = [entry for entry in load_state(tree.id, at=seq).entries if hasattr(entry, "level")]
        assert summary.text == text
