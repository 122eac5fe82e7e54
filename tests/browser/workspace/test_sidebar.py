"""The sidebar: beside the page, closed for good, a drawer on a phone, by keys, and live."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ARGUMENTS, Portal, find_chromium
from tests.browser.pages.test_every_page import axe
from tests.support.people.tab import open_tab
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
WIDE, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
RUNS = "performance.getEntriesByName('mnesis-interactive')[0]?.startTime"
PLACE = """(() => {
  const { x, y, height } = document.querySelector('.sidebar a[href="/sessions/%s/"]').getBoundingClientRect();
  return [x + 20, y + height / 2];
})()"""
MORE = 55
"""More sessions than one page of rows has."""


@pytest.fixture(scope="module")
def talks(portal: Portal) -> tuple[str, str]:
    """Two sessions at the top of the list, above many others."""
    for number in range(MORE):
        portal.new_session(title=f"Shelf {number}")
    return portal.new_session(title="Left talk"), portal.new_session(title="Right talk")


def test_a_session_is_chosen_in_it_and_marked(talks: tuple[str, str], open_page: Open) -> None:
    page = open_page(f"/sessions/{talks[0]}/", viewport=WIDE)
    sidebar = page.get_by_role("navigation", name="Sessions")
    expect(sidebar.locator("[aria-current=page]")).to_have_text("Left talk")
    sidebar.get_by_role("link", name="Right talk").click()
    expect(page).to_have_url(re.compile(talks[1]))
    expect(sidebar.locator("[aria-current=page]")).to_have_text("Right talk")
    measure = page.locator(".conversation").bounding_box()
    assert measure is not None
    assert measure["width"] == 768
    sidebar.get_by_role("link", name="New chat").click()
    expect(page.locator("#first-message")).to_be_focused()


def test_a_session_is_fetched_before_the_click_on_it_is_over(talks: tuple[str, str], open_page: Open) -> None:
    page = open_page(f"/sessions/{talks[0]}/", viewport=WIDE)
    page.get_by_role("navigation", name="Sessions").get_by_role("link", name="Right talk").hover()
    page.mouse.down()
    page.wait_for_timeout(100)
    page.mouse.up()
    expect(page).to_have_url(re.compile(talks[1]))
    how = page.wait_for_function("performance.getEntriesByType('navigation')[0]?.deliveryType")
    assert how.json_value() == "navigational-prefetch"


def test_a_session_is_rendered_before_the_click_on_it_and_runs_after_it(talks: tuple[str, str], portal: Portal) -> None:
    cookies = [{"name": name, "value": value, "url": portal.site.url} for name, value in portal.client.cookies.items()]
    with open_tab([find_chromium(), *ARGUMENTS], cookies) as tab:
        tab.visit(f"{portal.site.url}/sessions/{talks[0]}/", 0)
        wait_until(lambda: tab.run(RUNS))
        place = tab.run(PLACE % talks[1])
        tab.move(*place)
        tab.wait(3)
        tab.press(*place)
        tab.release(*place)
        wait_until(lambda: tab.wait(0.1) or tab.run("location.pathname") == f"/sessions/{talks[1]}/")
        wait_until(lambda: tab.run(RUNS))
        assert 0 < tab.run("performance.getEntriesByType('navigation')[0].activationStart") < tab.run(RUNS)
        assert tab.run("document.activeElement.id") == "message"


def test_it_stays_closed_on_this_device(talks: tuple[str, str], open_page: Open) -> None:
    page = open_page(f"/sessions/{talks[0]}/inspect/", viewport=WIDE)
    toggle, sidebar = page.locator("#sidebar-toggle"), page.locator("#sidebar")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    toggle.click()
    expect(sidebar).to_be_hidden()
    page.goto(f"/sessions/{talks[1]}/")
    expect(sidebar).to_be_hidden()
    expect(toggle).to_have_attribute("aria-expanded", "false")
    page.locator("#transcript").click()
    page.keyboard.press("s")
    expect(sidebar.locator("[aria-current]")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(talks[0]))
    expect(sidebar).to_be_visible()


def test_on_a_phone_it_is_a_drawer_that_takes_the_focus_and_gives_it_back(
    talks: tuple[str, str], open_page: Open
) -> None:
    page = open_page(f"/sessions/{talks[0]}/", viewport=PHONE)
    toggle, sidebar = page.locator("#sidebar-toggle"), page.locator("#sidebar")
    expect(sidebar).to_be_hidden()
    toggle.click()
    expect(sidebar.locator("[aria-current]")).to_be_focused()
    expect(toggle).to_have_attribute("aria-expanded", "true")
    assert page.evaluate("document.querySelector('main').inert")
    assert page.evaluate("getComputedStyle(document.documentElement).overflowY") == "hidden"
    assert axe(page) == []
    page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    expect(toggle).to_be_focused()
    toggle.click()
    sidebar.get_by_role("button", name="Close the sidebar").click()
    expect(sidebar).to_be_hidden()
    toggle.click()
    page.set_viewport_size({"width": 1280, "height": 720})
    expect(sidebar).to_be_visible()
    assert not page.evaluate("document.querySelector('main').inert")


def test_a_session_is_pinned_from_its_row_by_key_and_from_its_menu_in_every_tab(
    talks: tuple[str, str], portal: Portal, open_page: Open
) -> None:
    for number in range(2):
        portal.new_session(title=f"Above {number}")
    page = open_page(f"/sessions/{talks[0]}/", viewport=WIDE)
    other = page.context.new_page()
    other.goto("/")
    pinned = "#sidebar-rows > [data-pinned]"
    row = page.locator(f'[data-session="{talks[1]}"]')
    row.hover()
    row.get_by_role("button", name="Pin Right talk").click()
    for tab in (page, other):
        expect(tab.locator(pinned)).to_have_count(1)
        expect(tab.locator("#sidebar-rows > .sidebar-row").first).to_contain_text("Right talk")
    expect(row.get_by_role("button")).to_be_focused()
    page.keyboard.press("p")
    expect(page.locator(pinned)).to_have_count(0)
    page.locator("#transcript").click()
    page.keyboard.press("p")
    expect(page.locator(pinned)).to_contain_text("Left talk")
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Unpin this session").click()
    for tab in (page, other):
        expect(tab.locator(pinned)).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("pin or unpin")
    page.keyboard.press("Enter")
    expect(page.locator(pinned)).to_contain_text("Left talk")
    portal.call("PATCH", f"/api/sessions/{talks[0]}", {"pinned": False})
    expect(page.locator(pinned)).to_have_count(0)
    other.close()


def test_it_shows_what_happens_elsewhere(talks: tuple[str, str], portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{talks[0]}/", viewport=WIDE)
    row = page.locator(f'[data-session="{talks[1]}"]')
    portal.call("POST", f"/api/sessions/{talks[1]}/turns", {"message": "!slow 100 !long 600"})
    expect(row.locator(".sidebar-running")).to_be_visible()
    portal.call("PATCH", f"/api/sessions/{talks[1]}", {"title": "Right talk, renamed"})
    expect(row).to_contain_text("Right talk, renamed")
    portal.call("POST", f"/api/sessions/{talks[1]}/interrupt")
    expect(row.locator(".sidebar-running")).to_have_count(0)


def test_a_session_is_unread_until_its_new_answer_was_on_screen(
    talks: tuple[str, str], portal: Portal, open_page: Open
) -> None:
    session_id = portal.new_session("Hello", title="Front talk")
    page = open_page(f"/sessions/{session_id}/", viewport=WIDE)
    row = page.locator(f'[data-session="{session_id}"]')
    page.get_by_role("navigation", name="Sessions").get_by_role("link", name="Left talk").click()
    expect(page).to_have_url(re.compile(talks[0]))
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Is anything new?"})
    expect(row).to_contain_text("unread")
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile(session_id))
    expect(row).not_to_contain_text("unread")
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "And now, before my eyes?"})
    expect(page.locator(".message")).to_have_count(6)
    portal.wait_until_idle(session_id)
    wait_until(lambda: not portal.call("GET", f"/api/sessions/{session_id}")["unread"])


def test_rows_come_when_they_are_scrolled_to_and_stay(talks: tuple[str, str], open_page: Open) -> None:
    page = open_page(f"/sessions/{talks[0]}/", viewport=WIDE)
    rows = page.locator(".sidebar-row")
    expect(rows).to_have_count(50)
    page.locator(".sidebar-more").scroll_into_view_if_needed()
    expect(page.locator(".sidebar-row", has_text=re.compile(r"^\s*Shelf 2\s*$"))).to_be_attached()
    last = page.locator(".sidebar-row", has_text=re.compile(r"^\s*Shelf 4\s*$"))
    last.scroll_into_view_if_needed()
    loaded, top = rows.count(), page.locator("#sidebar-rows").evaluate("(list) => list.scrollTop")
    last.click()
    expect(last.locator("[aria-current]")).to_be_in_viewport()
    assert page.locator("#sidebar-rows").evaluate("(list) => list.scrollTop") == top
    assert rows.count() >= loaded
    page.go_back()
    expect(last).to_be_in_viewport()


def test_its_search_finds_what_was_said(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("The cormorant dives at dawn", title="Birds")
    page = open_page(f"/sessions/{session_id}/", viewport=WIDE)
    page.get_by_role("navigation", name="Sessions").get_by_role("searchbox").fill("cormorant")
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_contain_text("cormorant")
