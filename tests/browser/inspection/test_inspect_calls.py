"""What the model saw, as a user looks for it: from a message to the calls that saw it, and from call to call."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]
LOOKS = ((1440, "light"), (1440, "dark"), (390, "dark"), (390, "light"))
HOSTILE = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) \u202egpj.exe"


@pytest.fixture(scope="module")
def compacted(portal: Portal) -> str:
    """A session whose first messages a summary stands for."""
    questions = [f"{HOSTILE} Question {number}: {'what does the harbour log say? ' * 40}" for number in range(5)]
    session_id = portal.new_session(*questions, title=f"Harbour {HOSTILE}")
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "And now?"})
    portal.wait_until_idle(session_id)
    return session_id


def title(page: Page) -> str:
    """Return the title, which says which call is shown."""
    return page.locator("#call-title").inner_text().strip()


def test_from_words_that_were_compacted_away_to_the_calls_that_saw_them(compacted: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{compacted}/?around=1", viewport={"width": 1440, "height": 900})
    page.locator("#msg-1").get_by_role("link", name="Which calls saw this").click()
    expect(page.get_by_text(re.compile(r"Not in the context since turn \d"))).to_be_visible()
    expect(page.get_by_role("link", name=re.compile(r"Leaf summary of messages 1–\d"))).to_be_visible()
    expect(page.locator(".original")).to_contain_text("Question 0: what does the harbour log say?")
    page.locator(".seen").first.get_by_role("link").last.click()
    expect(page.get_by_text("Rebuilt from the record and matches its digest.")).to_be_visible()
    last_sight = title(page)
    block = page.locator(".block", has_text="Question 0").first
    block.locator("summary").click()
    expect(block.locator("pre")).to_contain_text("<img src=x onerror=alert(1)>")
    page.get_by_role("link", name="Next call").click()
    expect(page.locator("#call-title")).not_to_have_text(last_sight)
    expect(page.get_by_text("For a summary, sent to demo")).to_be_visible()
    page.wait_for_load_state()
    page.get_by_role("slider", name="Call, from the first to the last").focus()
    page.keyboard.press("End")
    expect(page.get_by_text("For a turn, sent to demo")).to_be_visible()
    page.get_by_role("link", name="Difference").click()
    expect(page.get_by_text("A summary covers it now.").first).to_be_visible()
    page.get_by_role("link", name="Payload").click()
    expect(page.locator("pre", has_text='"messages"')).to_be_visible()
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, scheme)


def test_the_scrub_bar_leads_through_the_sessions_life_by_keys_and_by_pointer(
    compacted: str, portal: Portal, open_page: Open
) -> None:
    calls = portal.call("GET", f"/api/sessions/{compacted}/calls")["items"]
    newest_id = next(call["id"] for call in calls if call["purpose"] == "turn")
    page = open_page(f"/sessions/{compacted}/inspect/calls/{newest_id}/")
    newest = title(page)
    page.wait_for_load_state()  # with its scripts, which the keys are for
    slider = page.get_by_role("slider", name="Call, from the first to the last")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#call-title")).not_to_have_text(newest)
    expect(slider).to_be_focused()
    number = re.search(r"\d+", title(page))
    assert number
    assert (slider.get_attribute("aria-valuetext") or "").startswith(f"Call {number[0]}: ")
    page.keyboard.press("Home")
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 1")
    plot = page.locator(".scrub-plot").bounding_box()
    assert plot
    page.mouse.click(plot["x"] + plot["width"] - 2, plot["y"] + 20)
    expect(page.locator("#call-title")).to_have_text(newest)
    page.go_back()
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 1")


def test_without_scripts_the_bar_is_a_slider_with_a_button(compacted: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{compacted}/inspect/calls/", java_script_enabled=False)
    page.get_by_role("slider", name="Call, from the first to the last").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Show this call").click()
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 1")
    page.locator(".block summary").first.click()
    page.get_by_role("link", name="Open it").first.click()
    expect(page.locator("pre").first).to_be_visible()
