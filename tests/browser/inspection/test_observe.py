"""Observe in a browser: the bar by keyboard, a mistake that leaves the list, charts that do not move it, columns."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import PHONE, axe

Open = Callable[..., Page]
MOVED = """() => new Promise((done) => new PerformanceObserver((list, observer) => {
  observer.disconnect();
  done(list.getEntries().reduce((sum, entry) => sum + entry.value, 0));
}).observe({type: "layout-shift", buffered: true}) || setTimeout(() => done(0), 500))"""


def test_the_bar_is_reached_by_keyboard_and_a_mistake_leaves_the_list(portal: Portal, open_page: Open) -> None:
    portal.new_session("Hello", title="Observed by keyboard")
    page = open_page("/observe/?q=title%3A%22observed+by+keyboard%22")
    row = page.locator(".observe-title").get_by_role("link", name="Observed by keyboard", exact=True)
    expect(row).to_be_visible()
    page.keyboard.press("/")
    bar = page.get_by_label("Query", exact=True)
    expect(bar).to_be_focused()
    bar.fill("modell:x")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="is not a known field")).to_be_visible()
    expect(row).to_be_visible()
    expect(page).to_have_url(re.compile("q=title"))
    bar.fill('title:"observed by keyboard" -person:nobody')
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("-person%3Anobody"))
    expect(page.locator("#observe-problem")).to_be_empty()
    page.get_by_role("link", name="Remove -person:nobody", exact=True).click()
    expect(page).not_to_have_url(re.compile("nobody"))
    expect(row).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    expect(row).to_be_focused()


def test_charts_come_without_moving_the_list_and_columns_are_chosen(portal: Portal, open_page: Open) -> None:
    portal.new_session("Hello", title="Observed with charts")
    page = open_page("/observe/?q=title%3A%22observed+with+charts%22")
    expect(page.get_by_role("img", name=re.compile("^Calls"))).to_be_visible()
    assert page.evaluate(MOVED) <= 0.05
    expect(page.get_by_role("columnheader", name="Origin", exact=True)).to_have_count(0)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Origin", exact=True).check()
    expect(page.get_by_role("columnheader", name="Origin", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("column=origin"))
    page.locator(".observe-rows").get_by_role("link", name="chat", exact=True).click()
    expect(page).to_have_url(re.compile("origin%3Achat"))


def test_a_view_is_saved_opened_renamed_and_deleted_by_keyboard(portal: Portal, open_page: Open) -> None:
    portal.new_session("Hello", title="Observed for a view")
    page = open_page("/observe/?q=title%3A%22for+a+view%22&column=origin")
    panel = page.locator("summary", has_text="Save this view…")
    panel.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("For a view")
    page.keyboard.press("Enter")
    link = page.get_by_role("navigation", name="Saved views").get_by_role("link", name="For a view", exact=True)
    expect(link).to_have_attribute("aria-current", "page")
    assert axe(page) == []

    page.goto("/observe/")
    link.click()
    expect(page).to_have_url(re.compile(r"\?q=title%3A%22for\+a\+view%22&column=origin$"))
    page.goto("/observe/?q=title%3Aview")
    panel.click()
    page.get_by_label("Name of the view", exact=True).fill("For a view")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="SAVED_VIEW_NAME_TAKEN")).to_be_visible()
    expect(page.get_by_label("Name of the view", exact=True)).to_be_focused()
    assert axe(page) == []
    page.get_by_role("button", name="Replace the saved view", exact=True).press("Enter")
    expect(page).to_have_url(re.compile("title%3Aview$"))
    expect(link).to_have_attribute("aria-current", "page")

    page.set_viewport_size(PHONE)
    expect(link).to_have_count(0)
    page.locator("summary", has_text="Saved views").click()
    expect(link).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_text("Rename or delete…", exact=True).click()
    page.get_by_label("Name of the view", exact=True).fill("Renamed")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.locator("summary", has_text="Saved views").click()
    expect(page.get_by_role("link", name="Renamed", exact=True)).to_be_visible()
    page.get_by_text("Rename or delete…", exact=True).click()
    page.once("dialog", lambda dialog: dialog.accept())
    with page.expect_navigation():
        page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Save this view…", exact=True)).to_be_visible()
    expect(page.locator("summary", has_text="Saved views")).to_have_count(0)
