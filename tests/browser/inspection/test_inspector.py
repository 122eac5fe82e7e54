"""The inspector in a browser: what happened in a session, found, opened and followed to where it was said."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
CALCULATOR = '!tool calculator {"expression": "6 * 7"}'


@pytest.fixture(scope="module")
def worked(portal: Portal) -> str:
    """A session with tools, a failed turn and a compaction; returns its id."""
    long = "Tell me of the harbour. " + "The tide table of the north port. " * 90
    session_id = portal.new_session(long, CALCULATOR, "!fail 500", long, CALCULATOR, "And the weather?")
    portal.call("POST", f"/api/sessions/{session_id}/compact")
    wait_until(lambda: has_compacted(portal, session_id))
    return session_id


def has_compacted(portal: Portal, session_id: str) -> bool:
    runs = portal.call("GET", f"/api/sessions/{session_id}/compactions")["items"]
    return bool(runs) and runs[0]["state"] == "completed"


def has_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def test_a_turn_is_found_opened_and_followed(portal: Portal, worked: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{worked}/")
    page.wait_for_load_state("networkidle")
    page.get_by_label("More about this session").click()
    page.get_by_role("link", name="Inspect", exact=True).click()
    expect(page.locator("#turns tbody.turn")).to_have_count(6)
    page.wait_for_load_state()  # with its scripts, which ask for what is typed
    page.get_by_label("Tool or error").fill("calcul")
    expect(page.locator("#turns tbody.turn")).to_have_count(2)
    assert "q=calcul" in page.url
    page.reload()
    expect(page.locator("#turns tbody.turn")).to_have_count(2)
    opener = page.get_by_role("button", name="What turn 2 did")
    opener.focus()
    page.keyboard.press("Enter")
    steps = page.locator("#inside-2 .step")
    expect(steps).to_have_count(4)  # the message, two calls, the tool
    expect(opener).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    expect(page.locator("#inside-2")).to_be_hidden()
    page.get_by_label("Tool or error").fill("")
    page.get_by_label("With compactions").check()
    expect(page.locator("#turns tbody.turn")).to_have_count(1)
    page.locator(".turn-open").click()
    expect(page.locator(".step-compaction")).to_contain_text("manual compaction")
    page.locator(".step-message .step-title").first.click()
    expect(page).to_have_url(re.compile(r"/sessions/[^/]+/\?at=\d+#msg-\d+$"))
    expect(page.locator(page.url[page.url.index("#") :])).to_be_visible()
    page.wait_for_load_state("networkidle")  # its panels have come


def test_a_running_turn_comes_by_itself_and_what_is_open_stays_open(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/inspect/")
    expect(page.get_by_text("No turns yet.")).to_be_visible()
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Good day"})
    page.locator("#turn-1 .turn-open").click()
    expect(page.locator("#inside-1 .step")).to_have_count(2)
    portal.call(
        "POST", f"/api/sessions/{session_id}/turns", {"message": "!slow 600 Tell me of the tides of the north."}
    )
    expect(page.locator("#turn-2 .badge")).to_have_text("running")
    page.locator("#turn-2 .turn-open").click()
    expect(page.locator("#inside-2 .step")).to_have_count(2)
    expect(page.locator("#turn-2 .turn-state")).to_contain_text("completed")
    expect(page.locator("#inside-2 .step-call .badge-running")).to_have_count(0)
    expect(page.locator("#inside-2")).to_be_visible()
    expect(page.locator("#inside-1")).to_be_visible()


def test_the_first_list_is_loaded_once_however_late_and_what_is_opened_in_it_stays_open(
    portal: Portal, open_page: Open
) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/inspect/")
    asked: list[str] = []

    def answer_late(route: Route) -> None:
        asked.append(route.request.url)
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "And to you."})
        page.wait_for_timeout(4_000)  # the page hears of that turn meanwhile
        route.continue_()

    page.route(re.compile(r"/inspect/turns/\?(?!.*from=)"), answer_late)
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Good day"})
    page.locator("#turn-1 .turn-open").click()
    expect(page.locator("#inside-1 .step").first).to_be_visible()
    page.wait_for_timeout(1_000)
    assert len(asked) == 1
    expect(page.locator("#inside-1")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_of_it_scrolls_sideways(width: int, portal: Portal, worked: str, open_page: Open) -> None:
    hostile = portal.new_session("<script>alert(1)</script> " + "w" * 400, CALCULATOR, title="w" * 200)
    page = open_page("/livez", viewport={"width": width, "height": 900})
    for session_id in (worked, hostile):
        page.goto(f"/sessions/{session_id}/inspect/")
        page.locator(".turn-open").last.click()
        expect(page.locator(".step").first).to_be_visible()
        assert not has_sideways_scroll(page)
        page.goto(f"/sessions/{session_id}/inspect/tombstones/")
        assert not has_sideways_scroll(page)
