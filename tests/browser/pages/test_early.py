"""What a user does before a page's modules are loaded: it waits for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_live import wait_for_end

Open = Callable[..., Page]
IN_THE_HEAD = "head.js"


@contextmanager
def slow_modules(page: Page) -> Iterator[None]:
    """Within it modules are asked for and do not come; at its end they do."""
    held: list[Route] | None = []

    def hold(route: Route) -> None:
        if held is None or route.request.url.endswith(IN_THE_HEAD):
            route.continue_()
        else:
            held.append(route)

    page.route("**/js/**/*.js", hold)
    yield
    late, held = held, None
    for route in late:
        route.continue_()


def test_a_first_message_sent_before_the_scripts_came_is_sent_once_they_are_there(open_page: Open) -> None:
    page = open_page("/livez")
    with slow_modules(page):
        page.goto("/", wait_until="commit")
        page.get_by_label("First message").fill("Written early")
        page.keyboard.press("Enter")
        expect(page.get_by_label("First message")).to_have_value("Written early")
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    wait_for_end(page)
    expect(page.locator(".message-user")).to_have_text(re.compile("Written early"))


@pytest.mark.parametrize("sent_by", ["the key", "the button"])
def test_a_message_goes_after_the_draft_that_was_there(sent_by: str, portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    box = page.get_by_label("Message", exact=True)
    box.fill("Begun yesterday,")
    with slow_modules(page):
        page.goto(f"/sessions/{session_id}/", wait_until="commit")
        box.fill("ended early")
        if sent_by == "the key":
            box.press("Enter")
        else:
            page.get_by_role("button", name="Send", exact=True).click()
    wait_for_end(page)
    expect(page.locator(".message-user")).to_have_text(re.compile("Begun yesterday,\\s+ended early"))
    expect(box).to_have_value("")


def test_a_button_pressed_before_the_scripts_came_acts_when_they_are_there(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session(title="Pressed early")
    page = open_page("/livez")
    with slow_modules(page):
        page.goto(f"/sessions/{session_id}/", wait_until="commit")
        page.get_by_label("More about this session").click()
        page.get_by_role("button", name="Archive this session").click()
    expect(page.get_by_role("button", name="Unarchive it")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "field"), [("/search/", "#search-query"), ("/sessions/", "#session-query"), ("ledger/", "#ledger-query")]
)
def test_words_typed_before_the_scripts_came_are_looked_for(
    path: str, field: str, portal: Portal, open_page: Open
) -> None:
    session_id = portal.new_session(title="Nothing of that word")
    address = f"/sessions/{session_id}/inspect/{path}" if path == "ledger/" else path
    page = open_page("/livez")
    with page.expect_request(re.compile(r"[?&]q=wagtail")), slow_modules(page):
        page.goto(address, wait_until="commit")
        page.locator(field).press_sequentially("wagtail")


def test_a_title_changed_before_the_scripts_came_is_kept(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session(title="The first title")
    page = open_page("/livez")
    with slow_modules(page):
        page.goto(f"/sessions/{session_id}/", wait_until="commit")
        title = page.get_by_label("Title of the session")
        title.fill("The second title")
        title.press("Enter")
    expect(page).to_have_title(re.compile("The second title"))


def test_what_is_ticked_before_the_scripts_came_filters_the_list(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session(title="Put away early")
    page = open_page(f"/sessions/{session_id}/")
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Archive this session").click()
    expect(page.get_by_role("button", name="Unarchive it")).to_be_attached()
    with slow_modules(page):
        page.goto("/sessions/", wait_until="commit")
        page.locator("#session-archived").check()
    expect(page.locator("#session-rows")).to_contain_text("Put away early")


def test_a_page_that_was_rendered_in_advance_runs_its_modules_when_it_is_visited(
    portal: Portal, open_page: Open
) -> None:
    # The browser renders no page in advance that is driven from outside, so it only says so.
    session_id = portal.new_session()
    page = open_page("/livez", viewport={"width": 1280, "height": 844})
    page.add_init_script(
        "window.isAhead = true; Object.defineProperty(document, 'prerendering', { get: () => window.isAhead });"
    )
    page.goto(f"/sessions/{session_id}/")
    page.wait_for_timeout(500)
    assert not page.evaluate("performance.getEntriesByName('mnesis-interactive').length")
    page.locator("#sidebar-toggle").click()
    page.evaluate("window.isAhead = false; document.dispatchEvent(new Event('prerenderingchange'))")
    expect(page.locator("#sidebar")).to_be_hidden()
