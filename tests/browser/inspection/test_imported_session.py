"""A long agent session that was brought in from elsewhere: a phrase that was compacted away, followed to who saw it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_live import write
from tests.support.material.samples import FOLDER, LONG_SESSION

Open = Callable[..., Page]
EARLY = "mark the epic as in_progress"
"""Said long before the model's window begins: only what summarised it has read it."""
LATE = "everything is pushed and clean"
"""Said in a turn that still stood in the context when the session was gone on with."""
pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def imported(portal: Portal) -> str:
    """1,863 lines of an agent's work, brought in and gone on with; the id of the session."""
    context = portal.context()
    page = context.new_page()
    page.goto("/import/")
    page.set_input_files("#import-files", FOLDER / LONG_SESSION)
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#import-status")).to_contain_text("Imported")
    page.locator(".imported").get_by_role("link", name="Implement spotter-gqc").click()
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    session_id = page.url.rstrip("/").rpartition("/")[2]
    write(page, "What did I ask you to do first?")
    expect(page.locator(".message-user[id]").last).to_contain_text("What did I ask you to do first?")
    portal.wait_until_idle(session_id)
    context.close()
    # As much as the protected end of the context holds, so that what stood there before is compacted away.
    for message in ("Thank you.", "The tide turns at ten. " * 400, "Until tomorrow."):
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": message})
        portal.wait_until_idle(session_id)
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    return session_id


def found(page: Page, phrase: str) -> Locator:
    """The message with a phrase among the hits."""
    page.get_by_role("searchbox").fill(f'"{phrase}"')
    page.keyboard.press("Enter")
    hit = page.locator(".hit").filter(has=page.get_by_role("link", name="Calls that saw it")).filter(has_text=phrase)
    expect(hit).to_have_count(1)
    return hit


def expect_proven_and_shown(page: Page, phrase: str) -> None:
    """The page of a call: its payload is proven, and one of its blocks has the phrase."""
    expect(page.get_by_text("Rebuilt from the record and matches its digest.")).to_be_visible()
    block = page.locator(".block").last
    block.locator("summary").click()
    expect(block.locator("pre").first).to_contain_text(phrase)


def test_a_phrase_leads_to_the_summary_beside_its_originals_and_to_the_call_that_summarised_it(
    imported: str, open_page: Open
) -> None:
    page = open_page(f"/search/?session={imported}")
    hit = found(page, EARLY)
    expect(hit).to_contain_text(re.compile(r"not in context since turn \d"))
    hit.get_by_role("link", name="Summary that covers it").click()
    expect(page.get_by_role("heading", name=re.compile(r"Leaf summary of messages \d+–\d+"))).to_be_visible()
    expect(page.get_by_role("heading", name="What the model reads")).to_be_visible()
    original = page.locator(".source", has_text="full context now")
    original.locator(".fold > summary").click()
    expect(original.locator(".fold-body")).to_contain_text(EARLY)
    original.get_by_role("link", name="Seen by").click()
    expect(page.get_by_text("No turn called a model while it was in the context.")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d calls? read it to summarise it or to find facts in it:"))).to_be_visible()
    expect(page.locator(".original").first).to_contain_text(EARLY)
    reading = page.locator(".seen > li", has_text="for the summary of messages").first
    reading.get_by_role("link", name=re.compile(r"Call \d")).click()
    expect(page.get_by_text("For a summary, sent to demo")).to_be_visible()
    expect_proven_and_shown(page, EARLY)


def test_a_phrase_that_was_in_the_window_leads_to_the_calls_of_turns_that_saw_it(
    imported: str, open_page: Open
) -> None:
    page = open_page(f"/search/?session={imported}")
    found(page, LATE).get_by_role("link", name="Calls that saw it").click()
    expect(page.get_by_text(re.compile(r"Not in the context since turn \d"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"It was in full in the context of \d+ calls?"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d calls? read it to summarise it"))).to_be_visible()
    page.locator(".seen").first.get_by_role("link").first.click()
    expect(page.get_by_text("For a turn, sent to demo")).to_be_visible()
    expect(page.get_by_text("Rebuilt from the record and matches its digest.")).to_be_visible()
    block = page.locator(".block", has_text="Yes — everything is pushed")
    block.locator("summary").click()
    expect(block.locator("pre").first).to_contain_text(LATE)
