"""Temporary chats in a browser: begun with the switch, in no list, kept or deleted for good; on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]
LINE = "Not in your history or memory. Deleted for you 24 hours after the last message."


@pytest.mark.parametrize("width", [1280, 390])
def test_a_temporary_chat_is_in_no_list_until_it_is_kept(portal: Portal, open_page: Open, width: int) -> None:
    words = f"Where is the buoy at {width}?"
    viewport: ViewportSize = {"width": width, "height": 800}
    page = open_page("/", viewport=viewport)
    expect(page.get_by_text(LINE)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    switch = page.get_by_role("checkbox", name="Temporary chat")
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_be_checked()
    page.get_by_label("First message").fill(words)
    page.keyboard.press("Enter")

    mark = page.locator("header").get_by_text("Temporary", exact=True)
    expect(mark).to_be_visible()
    expect(page.locator("#session-temporary")).to_contain_text(LINE)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    session_id = page.locator("#session").get_attribute("data-session-id") or ""
    portal.wait_until_idle(session_id)
    expect(page.locator("#sidebar").get_by_text(words)).to_have_count(0)
    assert session_id not in [item["id"] for item in portal.call("GET", "/api/sessions")["items"]]

    page.get_by_label("Message", exact=True).fill("And the pier?")
    page.keyboard.press("Enter")
    expect(page.locator("#transcript").get_by_text("And the pier?")).to_be_visible()
    portal.wait_until_idle(session_id)
    mark.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Keep this chat").click()
    expect(mark).to_have_count(0)
    expect(page.locator("#session-temporary")).to_have_count(0)
    expect(page.locator("#sidebar").get_by_text(words)).to_have_count(1)


def test_a_temporary_chat_is_begun_from_the_palette_and_deleted_for_good(portal: Portal, open_page: Open) -> None:
    page = open_page("/sessions/")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("temporary")
    page.get_by_role("option", name="New temporary chat").click()
    expect(page.get_by_role("checkbox", name="Temporary chat")).to_be_checked()
    page.get_by_label("First message").fill("How deep is the basin?")
    page.keyboard.press("Enter")
    expect(page.locator("#session-temporary")).to_be_visible()
    session_id = page.locator("#session").get_attribute("data-session-id") or ""
    portal.wait_until_idle(session_id)

    def ask() -> None:
        page.get_by_label("More about this session").click()
        page.get_by_role("button", name="Delete for good…").click()

    dialog = page.get_by_role("dialog", name="Delete for good?")
    ask()
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    assert portal.call("GET", f"/api/sessions/{session_id}")["temporary"]
    ask()
    dialog.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_text("This session no longer exists.")).to_be_visible()
    assert portal.client.get(f"/api/sessions/{session_id}").status_code == 404
    assert session_id not in [item["id"] for item in portal.call("GET", "/api/sessions?trashed=true")["items"]]
