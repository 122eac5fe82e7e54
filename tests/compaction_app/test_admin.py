"""The inspector's pages about contexts and summaries: as of any event, and drawn."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compaction_app.admin import ITEMS_PER_PAGE
from compaction_app.models import CompactionRun, SummaryNode, SummaryPreview
from mnesis_core.messages import TextPart
from sessions_app.models import ContextItem, Event, MessagePart
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from tests.support.record.inspected import (
    ORIGINAL,
    add_preview,
    add_session,
    add_summary,
    add_turn,
    claim,
    finish,
    page_of,
    revise,
    texts_in,
    tool_part,
)


@pytest.fixture
def session_id(ada: User) -> str:
    return add_session(ada)


def context_at(inspector: Client, session_id: str, query: str = "") -> Any:
    """What the context page was given to show: ``items``, what the event ``added`` and ``removed``, and the rest."""
    answer = inspector.get(f"{reverse('admin:inspect_context', args=[session_id])}{query}")
    assert answer.status_code == 200
    given = {name: answer.context[name] for name in ("page", "tokens", "steps", "is_now", "measured")}
    tables = {
        verb or "items": [SimpleNamespace(**item) for item in items] for verb, _, items in answer.context["tables"]
    }
    totals = {f"total_{verb or 'items'}": total for verb, total, _ in answer.context["tables"]}
    return SimpleNamespace(**{"added": [], "removed": []} | given | tables | totals)


def drawing(inspector: Client, session_id: str) -> dict[str, Any]:
    """The values that the browser draws."""
    values: dict[str, Any] = inspector.get(reverse("admin:inspect_drawing", args=[session_id])).json()
    return values


def ids(items: list[Any]) -> list[str]:
    """The ids of items, in order."""
    return [item.record.item_id for item in items]


def last_seq(session_id: str) -> int:
    """The newest event."""
    return int(Event.objects.filter(session_id=session_id).order_by("-seq").values_list("seq", flat=True)[0])


def test_the_context_is_shown_as_of_any_event(session_id: str, inspector: Client) -> None:
    first = add_turn(session_id, "One")
    after_first = last_seq(session_id)
    second = add_turn(session_id, "Two")
    after_second = last_seq(session_id)
    run = claim(session_id)
    summary = add_summary(session_id, run, first, (1, 2))
    finish(session_id, run)
    swap = ContextItem.objects.get(item_id=summary).added_seq
    assert ids(context_at(inspector, session_id).items) == [summary, *second]
    assert ids(context_at(inspector, session_id, f"?at={after_first}").items) == first
    assert ids(context_at(inspector, session_id, f"?at={after_second}").items) == [*first, *second]
    assert ids(context_at(inspector, session_id, f"?at={swap - 1}").items) == [*first, *second]
    assert context_at(inspector, session_id, "?at=0").items == []
    changed = context_at(inspector, session_id, f"?at={swap}")
    assert ids(changed.items) == [summary, *second]
    assert (ids(changed.added), ids(changed.removed)) == ([summary], first)
    assert [item.record.added_seq == swap for item in changed.items] == [True, False, False]


def test_each_item_says_what_it_is_and_what_it_takes(session_id: str, inspector: Client) -> None:
    ids_of_turn = add_turn(session_id, "How high?", tool_part(), TextPart(text="4 m, <b>rising</b>."))
    run = claim(session_id)
    add_summary(session_id, run, ids_of_turn[:1], (1, 1), level=3, text="Someone asked\x00.")
    view = context_at(inspector, session_id)
    summary, answer = view.items
    assert (summary.kind, summary.span, summary.tokens, summary.level) == ("leaf summary", "message 1", 120, 3)
    assert summary.text == "Someone asked[␀]."
    assert (answer.kind, answer.span, answer.text) == ("assistant", "message 2", "4 m, <b>rising</b>.")
    assert view.tokens == summary.tokens + answer.tokens
    page = inspector.get(reverse("admin:inspect_context", args=[session_id])).content.decode()
    assert "<b>rising" not in page


def test_the_context_says_what_it_is_measured_by(session_id: str, inspector: Client) -> None:
    add_turn(session_id, "How high is the tide?")
    page = inspector.get(reverse("admin:inspect_context", args=[session_id])).content.decode()
    assert "Window 8,000 (configured), answer up to 1,000 (configured), usable 6,125." in page
    assert "of what the provider counted in 1 call." in page
    with change(session_id) as record:
        session_store.soft_delete_session(record)
    assert context_at(inspector, session_id).measured == ""


def test_a_tombstone_takes_tokens_until_its_event(session_id: str, inspector: Client) -> None:
    answer = add_turn(session_id, "Read it", tool_part(ORIGINAL * 20))[1]
    part = MessagePart.objects.get(message_id=answer)
    with change(session_id) as record:
        message_store.tombstone_parts(record, [part.id])
    seq = last_seq(session_id)
    before, after = context_at(inspector, session_id, f"?at={seq - 1}"), context_at(inspector, session_id)
    assert before.tokens - after.tokens == part.output_token_estimate
    assert before.items[1].tokens - after.items[1].tokens == part.output_token_estimate


def test_the_steps_lead_to_the_neighbours_and_to_the_next_change(session_id: str, inspector: Client) -> None:
    messages = add_turn(session_id, "One")
    added = [ContextItem.objects.get(item_id=id).added_seq for id in messages]
    steps = dict(context_at(inspector, session_id, f"?at={added[0]}").steps)
    assert steps == {
        "Previous change": None,
        "Previous event": added[0] - 1,
        "Next event": added[0] + 1,
        "Next change": added[1],
    }
    now = dict(context_at(inspector, session_id).steps)
    assert (now["Next event"], now["Next change"], now["Previous change"]) == (None, None, added[1])


@pytest.mark.parametrize("at", ["-1", "x", "1e3", "9" * 400, "%00", "٣", "999"])
def test_an_event_that_is_none_shows_now_and_says_so(at: str, session_id: str, inspector: Client) -> None:
    view = context_at(inspector, session_id, f"?at={at}&page={at}")
    assert view.is_now
    page = inspector.get(f"{reverse('admin:inspect_context', args=[session_id])}?at={at}").content.decode()
    assert "There is no event" in page


def test_a_long_context_comes_in_pages(session_id: str, inspector: Client) -> None:
    rows = [
        ContextItem(session_id=session_id, item_type="message", item_id=f"msg_{n}", position=n, added_seq=1)
        for n in range(1, ITEMS_PER_PAGE + 6)
    ]
    ContextItem.objects.bulk_create(rows)
    first, second = context_at(inspector, session_id, "?at=1"), context_at(inspector, session_id, "?at=1&page=2")
    assert (len(first.items), len(second.items), first.total_items) == (ITEMS_PER_PAGE, 5, ITEMS_PER_PAGE + 5)
    assert first.total_added == ITEMS_PER_PAGE + 5
    assert second.items[0].text == "There is no such message."


def test_the_context_page_asks_the_database_as_often_for_many_items(
    session_id: str, ada: User, inspector: Client
) -> None:
    def queries(session: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            context_at(inspector, session)
        return len(captured)

    other = add_session(ada)
    for session, turns in ((session_id, 2), (other, 12)):
        messages = [id for n in range(turns) for id in add_turn(session, f"Question {n}")]
        run = claim(session)
        add_summary(session, run, messages[:1], (1, 1))
    assert queries(session_id) == queries(other)


def test_the_drawing_has_every_summary_and_does_not_hide_a_gap(session_id: str, inspector: Client) -> None:
    messages = [id for n in range(3) for id in add_turn(session_id, f"Question {n}")]
    leaf = add_summary(session_id, claim(session_id), [*messages[:2], messages[4]], (1, 5), count=3)
    values = drawing(inspector, session_id)
    assert (values["id"], values["span"], values["count"]) == ([leaf], [4], [3])
    page = inspector.get(reverse("admin:inspect_summaries", args=[session_id])).content.decode()
    assert f'href="{reverse("admin:compaction_app_summarynode_changelist")}?session={session_id}"' in page


def test_what_is_chosen_in_the_drawing_leads_to_its_record(session_id: str, ada: User, inspector: Client) -> None:
    messages = add_turn(session_id, "<b>How</b> high?")
    leaf = add_summary(session_id, claim(session_id), messages, (1, 2), text="<b>Tides</b>\u202e")
    here = reverse("admin:inspect_summaries", args=[session_id])
    part = inspector.get(f"{here}{leaf}/").content.decode()
    assert page_of(SummaryNode.objects.get(id=leaf)) in part
    assert "&lt;b&gt;Tides" in part
    assert "\u202e" not in part
    assert "&lt;b&gt;How" in inspector.get(f"{here}messages/1/").content.decode()
    other = reverse("admin:inspect_summaries", args=[add_session(ada)])
    for address in (f"{other}{leaf}/", f"{here}messages/3/", f"{here}messages/{10**30}/", f"{here}%00/"):
        assert inspector.get(address).status_code == 404, address


def test_a_session_without_summaries_has_no_drawing(session_id: str, inspector: Client) -> None:
    page = inspector.get(reverse("admin:inspect_summaries", args=[session_id])).content.decode()
    assert "this session has not been compacted" in page
    assert "<canvas" not in page


def test_hundreds_of_summaries_cost_as_many_queries_as_one(session_id: str, ada: User, inspector: Client) -> None:
    def queries(session: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            drawing(inspector, session)
            inspector.get(reverse("admin:inspect_summaries", args=[session]))
        return len(captured)

    other = add_session(ada)
    for session, count in ((session_id, 1), (other, 300)):
        run = claim(session)
        SummaryNode.objects.bulk_create(
            SummaryNode(
                id=f"sum_{session}{n}"[:40], session_id=session, run_id=run.id, kind="leaf", depth=0, level=1, text="",
                token_count=1, source_tokens=9, first_seq=n * 2 + 1, last_seq=n * 2 + 2, message_count=2,
                created_at=CompactionRun.objects.get(id=run.id).created_at,
            )
            for n in range(count)
        )  # fmt: skip
    assert len(drawing(inspector, other)["id"]) == 300
    assert queries(session_id) == queries(other)


def test_a_summary_shows_its_text_its_sources_and_what_stands_for_it(session_id: str, inspector: Client) -> None:
    messages = add_turn(session_id, "How high?")
    run = claim(session_id)
    leaf = add_summary(session_id, run, messages, (1, 2), text="</pre><script>alert(1)</script>\u202e")
    top = add_summary(session_id, run, [leaf], (1, 2), kind="condensed")
    finish(session_id, run)
    page = inspector.get(reverse("admin:compaction_app_summarynode_change", args=[leaf])).content.decode()
    assert texts_in(page, "pre") == ["</pre><script>alert(1)</script>U+202E"]
    assert "Message 1, user" in page
    assert "How high?" in page
    assert reverse("admin:compaction_app_summarynode_change", args=[top.replace("_", "_5F")]) in page
    above = inspector.get(reverse("admin:compaction_app_summarynode_change", args=[top])).content.decode()
    assert "Leaf summary of messages 1–2" in above
    assert page_of(SummaryNode.objects.get(id=leaf)) in above


def test_a_compaction_shows_what_was_tried(session_id: str, inspector: Client) -> None:
    run = claim(session_id)
    add_summary(session_id, run, add_turn(session_id, "One"), (1, 2))
    finish(session_id, run)
    page = inspector.get(reverse("admin:compaction_app_compactionrun_change", args=[run.id])).content.decode()
    [written] = texts_in(page, "pre")
    assert json.loads(written) == list(SummaryNode.objects.values_list("id", flat=True))
    end_seq = CompactionRun.objects.get(id=run.id).end_seq
    assert f"{reverse('admin:inspect_context', args=[session_id])}?at={end_seq}" in page
    tried = reverse("admin:compaction_app_summarytry_changelist", query={"run": run.id})
    assert tried in page
    assert inspector.get(tried).context["cl"].result_count == 1


@pytest.mark.parametrize("name", ["inspect_context", "inspect_summaries"])
def test_the_pages_are_only_for_who_may_see_what_they_show(name: str, session_id: str, client: Client) -> None:
    url = reverse(f"admin:{name}", args=[session_id])
    assert client.get(url).status_code == 302
    grace = User.objects.create_user("grace", is_staff=True)
    client.force_login(grace)
    names = ["view_contextitem", "view_message", "view_summarynode", "view_messagepart"]
    for codename in names:
        assert client.get(url).status_code == 403
        grace.user_permissions.add(Permission.objects.get(codename=codename))
    assert client.get(url).status_code == 200
    assert client.post(url).status_code == 403
    assert client.get(reverse(f"admin:{name}", args=["sess_none"])).status_code == 404


def test_a_summarys_page_leads_to_its_revisions_and_previews(session_id: str, inspector: Client) -> None:
    messages = add_turn(session_id, "One")
    run = claim(session_id)
    summary = add_summary(session_id, run, messages, (1, 2), text="First words.\nThe same.")
    newer = revise(session_id, summary, messages)
    top = add_summary(session_id, run, [newer], (1, 2), kind="condensed")
    preview = add_preview(session_id, newer, messages, text="Other <b>words\u202e.\nThe same.")
    page = inspector.get(page_of(SummaryNode.objects.get(id=summary)))
    groups = {heading: [url for url, *_ in lines] for heading, lines in page.context["groups"]}
    assert groups["Revisions"] == [page_of(SummaryNode.objects.get(id=newer))]
    assert groups["Summaries that stand for this one"] == [page_of(SummaryNode.objects.get(id=top))]
    assert reverse("inspect-summary", args=[session_id, summary]) in page.content.decode()
    shown = inspector.get(page_of(SummaryPreview.objects.get(id=preview))).content.decode()
    assert "+Other &lt;b&gt;words" in shown
    assert "\u202e" not in shown
    assert "-Tides, once more." in shown
