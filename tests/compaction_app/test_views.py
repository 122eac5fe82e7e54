"""The panels about context and compaction: the meter, the dividers, a summary beside its sources."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from compaction_app import store
from compaction_app.compact import compact_session, request_manual
from compaction_app.context.state import Meter, load_frame
from compaction_app.models import CompactionRun
from compaction_app.queries import list_runs_between
from compaction_app.views import BAR_WIDTH, view_meter
from mnesis_core.errors import ContextChanged, ModelUnreachable
from mnesis_core.llm.interface import ModelSpec
from sessions_app.llm.model_store import put_model
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from tests.support.record.inspected import Claimed, add_try, new_summary
from tests.support.record.talks import HOSTILE, exchange, new_session

pytestmark = pytest.mark.django_db


def talk(owner: User) -> str:
    """A session of three exchanges."""
    session_id = new_session(owner)
    for number in range(3):
        exchange(session_id, f"question {number}", f"answer {number}")
    return session_id


def start_run(session_id: str, *, trigger: str = "soft") -> tuple[str, int]:
    with change(session_id) as record:
        run_id = store.request_run(record, trigger=trigger)
    assert run_id
    with change(session_id) as record:
        fence = store.claim_run(record, run_id, lease_owner="test", lease_seconds=60, tokens_before=6_400)
    assert fence
    return run_id, fence


def compact(session_id: str, *, level: int = 1, text: str = "They spoke about **lighthouses**.") -> tuple[str, str]:
    """Summarise the first exchange; returns the ids of the run and the summary."""
    run_id, fence = start_run(session_id)
    summary_id = summarise(session_id, run_id, fence, level=level, text=text)
    with change(session_id) as record:
        pruned = {"pruned_parts": 3, "pruned_tokens": 1_800}
        CompactionRun.objects.filter(id=run_id).update(**pruned)
        store.finish_run(record, run_id, outcome="target_met", tokens_after=2_100, fence=fence)
    return run_id, summary_id


def summarise(session_id: str, run_id: str, fence: int, *, level: int = 1, text: str = "They spoke.") -> str:
    """A summary of the first exchange in its place; returns its id."""
    sources = [message.id for message in load_messages(session_id)[:2]]
    summary = new_summary(level=level, text=text, token_count=40, source_tokens=4_000, cost_micros=800)
    add_try(
        session_id, Claimed(id=run_id, fence=fence), summary.id, reason="" if level == 1 else "not_smaller", cost=800
    )
    with change(session_id) as record:
        return store.record_summary(record, run_id, summary, fence=fence, source_type="message", source_ids=sources)


def test_somebody_else_s_panels_and_summaries_are_not_found(owner_client: Client) -> None:
    session_id = talk(User.objects.create_user("eve"))
    _, summary_id = compact(session_id)
    for path in (
        f"/sessions/{session_id}/context/",
        f"/sessions/{session_id}/compactions/",
        f"/summaries/{summary_id}/",
    ):
        answer = owner_client.get(path)
        assert answer.status_code == 404
        assert b"lighthouses" not in answer.content


def test_the_meter_says_what_it_draws(owner_client: Client, owner: User) -> None:
    page = owner_client.get(f"/sessions/{talk(owner)}/context/").content.decode()
    label = re.search(r'aria-label="([^"]+usable tokens are used[^"]+)"', page)
    assert label
    for part in ("Messages", "Free", "Reserved"):
        assert re.search(rf"</svg>\s*{part}\s*</th>\s*<td>[\d.k]+</td>", page), part
    for mark in ("meter-soft", "meter-hard"):
        assert re.search(rf'<line class="meter-mark {mark}" x1="\d', page), mark
    assert "Compacts after a turn above" in page
    assert page.count("<dd>", page.index("Where each number comes from")) == 4
    assert "window is 8k tokens, as configured" in page
    assert "style=" not in page


def test_what_does_not_fit_is_said_in_three_numbers(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    exchange(session_id, "lighthouse " * 60_000, "Yes.")
    page = owner_client.get(f"/sessions/{session_id}/context/").content.decode()
    whole, held, left_out = re.findall(r"<dd>\s*([\d.]+)k\s*</dd>", page[page.index("context-over") :])[:3]
    assert float(whole) > 50 > float(held)
    assert float(left_out) == pytest.approx(float(whole) - float(held), abs=1)
    assert not re.search(r"\d{4,} %|\d,\d{3} %", page)
    assert "would fit the window" not in page
    put_model(ModelSpec(alias="roomy", litellm_model="openai/x", context_window=1_000_000, max_output_tokens=9_000))
    page = owner_client.get(f"/sessions/{session_id}/context/").content.decode()
    assert "would fit the window of <bdi>roomy</bdi>" in page


def test_the_segments_of_the_meter_stand_side_by_side_on_one_scale() -> None:
    breakdown = {"system": 100, "tools": 0, "summaries": 400, "messages": 300, "free": 3_000, "new_kind": 200}
    breakdown |= {"files": 50, "tool_outputs": 150}
    view = view_meter(
        Meter(
            used_tokens=1_200,
            context_tokens=1_200,
            usable_tokens=4_200,
            soft_tokens=2_520,
            hard_tokens=4_200,
            window=8_000,
            window_source="default",
            breakdown=breakdown,
            source="estimated",
            ratio=1.0,
            samples=0,
            error=None,
        )
    )
    assert [segment["name"] for segment in view["segments"]] == [
        "system",
        "summaries",
        "messages",
        "tool_outputs",
        "files",
        "other",
        "free",
        "reserved",
    ]
    ends = [segment["x"] + segment["width"] for segment in view["segments"]]
    assert [segment["x"] for segment in view["segments"]] == [0, *ends[:-1]]
    assert ends[-1] == BAR_WIDTH
    assert (view["percent"], view["hard_x"]) == (29, 525)
    assert view["counted"] == "Estimate; the provider has not reported a count yet."
    assert view["window_source"] == "assumed, because its size is not known"


@pytest.mark.parametrize(("used", "pressure"), [(2_519, "none"), (2_520, "soft"), (4_200, "hard"), (40_000, "hard")])
def test_the_meter_tells_soft_from_hard_and_never_leaves_its_frame(used: int, pressure: str) -> None:
    meter = Meter(
        used_tokens=used,
        context_tokens=used,
        usable_tokens=4_200,
        soft_tokens=2_520,
        hard_tokens=4_200,
        window=8_000,
        window_source="default",
        breakdown={"messages": used},
        source="provider",
        ratio=1.125,
        samples=1,
        error=0.034,
    )
    view = view_meter(meter)
    assert meter.pressure == pressure
    counted = view["counted"].replace("\N{NO-BREAK SPACE}", " ")
    assert counted == "Estimate, within 3.4 % of what the provider counted in 1 call."
    assert all(0 <= segment["x"] <= segment["x"] + segment["width"] <= BAR_WIDTH for segment in view["segments"])


def test_a_divider_says_what_happened_and_where(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    run_id, _ = compact(session_id)
    page = owner_client.get(f"/sessions/{session_id}/compactions/").content.decode()
    assert f'id="{run_id}"' in page
    assert 'data-after="6"' in page
    for text in ("soft", "6.4k → 2.1k tokens", "level 1", "2 sources", "3 outputs pruned", "$0.0008"):
        assert text in page
    assert re.search(r"<span>\d+ m?s</span>", page)  # how long it took
    assert "divider-level3" not in page
    assert "It ended because the context was small enough." in page


def test_the_panel_says_how_the_last_compaction_ended(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    path = f"/sessions/{session_id}/context/"
    assert "Last compaction" not in owner_client.get(path).content.decode()
    run_id = request_manual(session_id)
    assert "A compaction is in progress." in owner_client.get(path).content.decode()
    compact_session(session_id, run_id=run_id)
    page = owner_client.get(path).content.decode()
    assert "<b>Last compaction.</b> It ended because the context was small enough." in page


def test_a_level_3_divider_warns_and_says_what_was_tried(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    compact(session_id, level=3)
    page = owner_client.get(f"/sessions/{session_id}/compactions/").content.decode()
    assert "divider-level3" in page
    assert "level 1: not_smaller" in page


def test_only_the_dividers_of_the_asked_stretch_come(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    compact(session_id)
    path = f"/sessions/{session_id}/compactions/"
    assert "divider" in owner_client.get(path, {"first": 6, "last": 6}).content.decode()
    assert "divider" not in owner_client.get(path, {"first": 7}).content.decode()
    assert "divider" not in owner_client.get(path, {"first": 0, "last": 5}).content.decode()


def test_a_running_compaction_is_a_quiet_line_and_a_failed_one_a_warning(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    run_id, fence = start_run(session_id)
    path = f"/sessions/{session_id}/compactions/"
    page = owner_client.get(path).content.decode()
    assert "Compacting…" in page
    assert "0 summaries so far" in page
    with change(session_id) as record:
        store.fail_run(record, run_id, ModelUnreachable(HOSTILE), fence=fence)
    page = owner_client.get(path).content.decode()
    assert "MODEL_UNREACHABLE" in page
    assert "its longest texts are sent shortened" in page
    assert "<script>" not in page


def test_a_running_compaction_says_how_far_it_is(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    run_id, fence = start_run(session_id)
    summarise(session_id, run_id, fence)
    page = owner_client.get(f"/sessions/{session_id}/compactions/").content.decode()
    assert "1 summary so far" in page
    target = load_frame(session_id).budget.target
    assert (
        f'<progress class="divider-progress" aria-label="Compaction" value="{min(3_960, 6_400 - target)}"'
        in " ".join(page.split())
    )


def test_the_messages_that_a_summary_took_the_place_of_are_named(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    path = f"/sessions/{session_id}/compactions/"
    assert 'data-spans=""' in owner_client.get(path).content.decode()
    compact(session_id)
    assert 'data-spans="1-2 "' in owner_client.get(path).content.decode()
    assert 'data-spans=""' in owner_client.get(path, {"first": 3}).content.decode()
    assert 'data-spans="1-1 "' in owner_client.get(path, {"first": 0, "last": 1}).content.decode()


def test_old_compactions_have_their_dividers_too(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    first, _ = compact(session_id)
    for _ in range(3):
        exchange(session_id, "and then?", "and then that")
    assert (
        f'id="{first}"'
        in owner_client.get(f"/sessions/{session_id}/compactions/", {"first": 0, "last": 7}).content.decode()
    )
    assert len(list_runs_between(session_id, first=0, last=6, limit=1)) == 1
    assert list_runs_between(session_id, first=7, last=None) == []


def test_a_superseded_compaction_says_so_and_what_it_had_done_before(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    path = f"/sessions/{session_id}/compactions/"
    run_id, fence = start_run(session_id)
    with change(session_id) as record:
        store.fail_run(record, run_id, ContextChanged(), fence=fence)
    page = owner_client.get(path).content.decode()
    assert "A compaction was superseded and changed nothing." in page
    assert "CONTEXT_CHANGED" in page
    run_id, fence = start_run(session_id)
    summary_id = summarise(session_id, run_id, fence)
    with change(session_id) as record:
        store.fail_run(record, run_id, ContextChanged(), fence=fence)
    page = owner_client.get(path).content.decode()
    assert "Partly compacted, then superseded" in page
    assert f"/summaries/{summary_id}/" in page


def test_a_compaction_that_nobody_is_at_is_said_to_wait(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    with change(session_id) as record:
        store.request_run(record, trigger="soft")
    page = owner_client.get(f"/sessions/{session_id}/compactions/").content.decode()
    assert "A compaction is waiting for a worker." in page
    assert "Compacting…" not in page


def test_a_summary_stands_beside_its_sources(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    _, summary_id = compact(session_id)
    page = owner_client.get(f"/summaries/{summary_id}/", follow=True).content.decode()
    assert "<strong>lighthouses</strong>" in page
    assert f'href="/sessions/{session_id}/?at=1#msg-1"' in page
    assert "4k → 40" in page


def test_a_hostile_summary_is_text(owner_client: Client, owner: User) -> None:
    session_id = talk(owner)
    _, summary_id = compact(session_id, text=HOSTILE)
    page = owner_client.get(f"/summaries/{summary_id}/", follow=True).content.decode()
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
