"""The inspector as an administrator sees it: nothing violates the page's policy, nothing runs over the edge."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]
LOOKS = ((1280, "light"), (360, "dark"))
LISTS = (
    "sessions_app/session", "sessions_app/turn", "sessions_app/message", "sessions_app/messagepart",
    "sessions_app/contextitem", "sessions_app/event", "sessions_app/modelcall", "sessions_app/prompttext",
    "sessions_app/streamjournal", "sessions_app/languagemodel", "sessions_app/apikey", "compaction_app/compactionrun",
    "compaction_app/summarynode", "compaction_app/summarytry", "compaction_app/summarypreview",
    "files_app/filereference", "agents_app/operatorrun", "agents_app/operatoritem", "agents_app/operatortry",
)  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)> \u202egpj.exe "


@pytest.fixture(scope="module")
def compacted(portal: Portal) -> str:
    """A session with a compaction behind it."""
    questions = [f"{HOSTILE} Question {number}: {'what does the harbour log say? ' * 60}" for number in range(5)]
    session_id = portal.new_session(*questions, title=f"Harbour {HOSTILE}")
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    assert portal.call("GET", f"/api/sessions/{session_id}/summaries")["items"]
    return session_id


def inspect(id: str, place: str) -> str:
    """The address of a page about a session or a call."""
    return f"/admin/compaction_app/summarynode/inspect/{id}/{place}/"


def runs_over_the_edge(page: Page) -> bool:
    """Whether the page as a whole scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def go(page: Page, address: str) -> None:
    """Open a page and look at it wide and narrow, light and dark."""
    page.goto(address)
    look(page)


def look(page: Page) -> None:
    """See that a page keeps to its width."""
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert not runs_over_the_edge(page), (page.url, width, scheme)


def test_every_page_of_the_inspector_keeps_to_its_width_and_policy(
    portal: Portal, compacted: str, open_page: Open
) -> None:
    page = open_page("/admin/")
    look(page)
    for name in LISTS:
        go(page, f"/admin/{name}/")
        row = page.locator("#result_list tbody th a").first
        if row.count():
            go(page, row.get_attribute("href") or "")
            expect(page.locator("h1")).to_be_visible()
    tombstones = f"/admin/sessions_app/session/{compacted}/tombstones/"
    payload = inspect(portal.call("GET", f"/api/sessions/{compacted}/calls")["items"][0]["id"], "payload")
    for place in (inspect(compacted, "context"), inspect(compacted, "summaries"), tombstones, payload):
        go(page, place)
    expect(page.get_by_text("byte for byte what was sent to the model")).to_be_visible()


def test_the_drawn_summaries_are_walked_by_keys_and_lead_to_their_records(compacted: str, open_page: Open) -> None:
    page = open_page(inspect(compacted, "summaries"))
    drawing, chosen = page.get_by_role("application"), page.get_by_label("The chosen summary")
    page.locator("[data-drawn]").wait_for()
    assert page.get_by_text("Show as a list").is_visible()
    drawing.focus()
    page.keyboard.press("ArrowRight")
    expect(chosen.get_by_role("heading")).to_contain_text("summary of message")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    expect(chosen.get_by_role("heading")).to_contain_text("Message 1 · user")
    page.keyboard.press("ArrowUp")
    expect(chosen.get_by_role("heading")).to_contain_text("summary of message")
    chosen.get_by_role("link", name="Open the record").click()
    expect(page.locator("h1")).to_contain_text("summary of message")


def test_without_scripts_the_summaries_are_a_list(compacted: str, open_page: Open) -> None:
    page = open_page(inspect(compacted, "summaries"), java_script_enabled=False)
    expect(page.locator("#dag")).to_be_hidden()
    page.get_by_role("link", name="Show as a list").click()
    expect(page.locator("#result_list tbody th a").first).to_be_visible()


def test_one_walks_through_the_contexts_event_by_event(compacted: str, open_page: Open) -> None:
    page = open_page(inspect(compacted, "context"))
    page.get_by_label("As of event").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("The context is empty.")).to_be_visible()
    page.get_by_role("link", name="Next change").click()
    expect(page.locator(".item-new")).to_have_count(2)  # in what was added, and in the whole
    expect(page.locator("mark, .begins").first).to_be_attached()
    page.get_by_role("link", name="Now", exact=True).click()
    expect(page.get_by_text("this is the context now")).to_be_visible()


def test_the_inspector_and_the_portal_share_their_colours(compacted: str, open_page: Open) -> None:
    page = open_page("/admin/", color_scheme="light")
    page.get_by_role("button", name="Dark colours").click()
    page.goto("/")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
