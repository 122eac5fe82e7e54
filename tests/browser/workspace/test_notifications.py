"""Desktop notifications: only when they are turned on, and only of a tab that nobody looks at."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

# Chromium without a window shows none and takes every page for visible: what is made is written down, and a page hides by itself.
WATCHED = """
window.made = [];
const Shown = window.Notification;
window.Notification = class extends Shown {
  constructor(title, options) { super(title, options); window.made.push([title, options.body]); }
};
Object.defineProperty(document, "hidden", { get: () => Boolean(window.isAway) });
"""


def test_an_answer_is_told_of_while_the_tab_is_hidden(portal: Portal, open_page: Callable[..., Page]) -> None:
    session_id = portal.new_session(title="Harbour")
    page = open_page(f"/sessions/{session_id}/", permissions=["notifications"])
    page.add_init_script(WATCHED)
    page.reload()
    answers = 0

    def say(message: str) -> None:
        nonlocal answers
        answers += 1
        page.evaluate("window.isAway = false")
        page.get_by_label("Message", exact=True).fill(message)
        page.keyboard.press("Enter")
        page.evaluate("window.isAway = true")
        expect(page.locator(".message[data-role=assistant]")).to_have_count(answers)
        portal.wait_until_idle(session_id)

    menu = page.get_by_label("More about this session")
    say("!slow 20 The secret is 4711")
    assert page.evaluate("made") == []
    menu.click()
    page.get_by_role("button", name="Notify me of answers").click()
    expect(page.get_by_role("button", name="Stop notifying me")).to_be_visible()
    menu.click()
    say("!slow 20 Again")
    wait_until(lambda: page.evaluate("made") == [["Harbour · Mnesis", "The answer is ready."]])
    menu.click()
    page.get_by_role("button", name="Stop notifying me").click()
    menu.click()
    say("!slow 20 And again")
    assert len(page.evaluate("made")) == 1


def test_a_browser_that_blocks_them_is_said(portal: Portal, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    page.add_init_script("Notification.requestPermission = async () => 'denied';")
    page.reload()
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Notify me of answers").click()
    expect(page.locator("#composer-error")).to_contain_text("Your browser blocks notifications")


def test_the_site_can_be_installed(portal: Portal, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    address = page.locator("link[rel=manifest]").get_attribute("href")
    manifest = page.request.get(address or "").json()
    assert manifest["start_url"] == "/"
    for icon in manifest["icons"]:
        answer = page.evaluate(
            "async (path) => (await fetch(path)).headers.get('content-type')", f"{address}/../{icon['src']}"
        )
        assert answer == icon["type"]
