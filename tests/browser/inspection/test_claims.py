"""The sentences of a summary as a user points at them: by mouse, by keyboard, and by touch on a small screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from compaction_app.inspector.summaries import SOURCES
from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def summary(portal: Portal, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a summary that a worker has aligned."""
    path = tmp_path_factory.mktemp("talk") / "talk.json"
    words = zip(
        ("Ines", "Bruno", "Carla", "Duarte", "Elsa", "Filipe") * 10,
        ("painted", "sold", "bought", "repaired", "moved") * 12,
        ("lighthouse", "ferry", "warehouse", "crane", "market", "archive", "bridge") * 9,
        ("January", "March", "May", "July") * 15,
        strict=False,
    )
    said = [
        f"{who} {did} the {what} in {month} for {at + 200} euros." for at, (who, did, what, month) in enumerate(words)
    ]
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": f"{text} {'word ' * 40}"} for at, text in enumerate(said)
    ]
    path.write_text(json.dumps({"messages": messages}))
    done = portal.site.manage("import_transcript", str(path), "--user", "admin", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [report] = json.loads(done.stdout)
    [session_id] = report["sessions"].values()
    portal.call("PATCH", f"/api/sessions/{session_id}", {"config": {"context_window": 8_000}})
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    found = portal.call("GET", f"/api/sessions/{session_id}/summaries")["items"]
    leaf = next(one for one in found if one["kind"] == "leaf")
    wait_until(lambda: claims_of(portal, leaf["id"]))
    return f"/sessions/{session_id}/inspect/summaries/{leaf['id']}/"


def claims_of(portal: Portal, summary_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = portal.call("GET", f"/api/summaries/{summary_id}/claims")["items"]
    return items


def test_pointing_at_a_sentence_lights_up_the_messages_that_it_rests_on(
    portal: Portal, open_page: Open, summary: str
) -> None:
    page = open_page(summary)
    claims = claims_of(portal, summary.split("/")[-2])
    claim = [claim for claim in claims if claim["messages"] and claim["messages"][0]["seq"] <= SOURCES][-1]
    assert claim["support"] == "quoted"
    seq = claim["messages"][0]["seq"]
    sentence = page.locator(f'.claims [data-claim="{claim["number"]}"]').first
    sentence.hover()
    lit = page.locator(".source-lit")
    expect(lit).to_have_count(1)
    expect(lit).to_contain_text(f"Message {seq},")
    expect(lit).to_be_in_viewport(ratio=0.9)
    expect(page.get_by_role("status").filter(has_text="Quoted from")).to_contain_text(f"message {seq}")
    page.mouse.move(0, 0)
    expect(lit).to_have_count(0)


def test_sentences_are_reached_held_and_let_go_by_keys(open_page: Open, summary: str) -> None:
    page = open_page(summary)
    first = page.locator('.claims [role="button"]').first
    first.focus()
    page.keyboard.press("Tab")
    second = page.locator('.claims [role="button"]:focus')
    expect(page.locator(".source-lit")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(second).to_have_attribute("aria-pressed", "true")
    page.locator("h1").click()
    expect(page.locator(".source-lit")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".source-lit")).to_have_count(0)
    expect(page.locator('.claims [aria-pressed="true"]')).to_have_count(0)


def test_a_tap_goes_to_the_source_even_if_it_is_not_there_yet_on_a_small_screen(open_page: Open, summary: str) -> None:
    page = open_page(summary, viewport={"width": 390, "height": 800}, has_touch=True)
    page.locator('.claims [role="button"]').last.tap()
    expect(page.locator(".source-lit")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
