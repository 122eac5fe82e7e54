"""Deleting in a browser: undone on the spot, from the trash, or for good, and seen by a page that is open elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]


def test_a_session_is_deleted_undone_restored_and_deleted_for_good(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Hello", title="Jetty")
    page = open_page("/sessions/")
    main = page.locator("main")
    main.get_by_role("link", name="Jetty", exact=True).press("Delete")
    expect(main.get_by_text("was moved to the trash.")).to_be_visible()
    in_sidebar = page.locator("#sidebar").get_by_role("link", name="Jetty")
    expect(in_sidebar).to_have_count(0)
    undo = main.get_by_role("button", name="Undo")
    expect(undo).to_be_focused()
    undo.press("Enter")
    row = main.locator(f"#{session_id}")
    expect(row.get_by_role("link", name="Jetty", exact=True)).to_be_visible()
    expect(row).not_to_have_class(re.compile("htmx-added"))
    row.locator("summary").press("Enter")
    row.get_by_role("button", name="Delete", exact=True).press("Enter")
    expect(undo).to_be_focused()

    page.goto(page.url.split("/sessions/")[0] + "/trash/")
    main.get_by_role("button", name="Restore Jetty").press("Enter")
    expect(main.get_by_text("The trash is empty.")).to_be_visible()
    expect(in_sidebar).to_be_visible()

    portal.call("POST", f"/api/sessions/{session_id}/trash")
    page.reload()
    delete = main.get_by_role("button", name="Delete Jetty for good")
    delete.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete for good?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(main.locator(f"#{session_id}")).to_be_visible()
    delete.press("Enter")
    # A busy browser may report the first dialog's end only now.
    page.locator("#delete-dialog").evaluate("dialog => dialog.dispatchEvent(new Event('close'))")
    dialog.get_by_role("button", name="Delete for good").click()
    expect(main.get_by_text("The trash is empty.")).to_be_visible()
    assert portal.call("GET", "/api/sessions?trashed=true")["items"] == []


@pytest.mark.parametrize("viewport", [None, {"width": 390, "height": 800}, {"width": 800, "height": 400}])
def test_a_page_whose_session_is_deleted_says_so_and_restores_it(viewport, portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Hello", title="Beacon")
    page, other = (open_page(f"/sessions/{session_id}/", viewport=viewport) for _ in range(2))
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Delete this session").click()
    for each in (page, other):
        expect(each.get_by_text("This session is in the trash.")).to_be_visible()
        expect(each.locator("#composer")).to_be_hidden()
    other.get_by_role("button", name="Restore it").click()
    for each in (page, other):
        expect(each.locator("#composer")).to_be_visible()
    portal.call("DELETE", f"/api/sessions/{session_id}")
    expect(other.get_by_text("This session no longer exists.")).to_be_visible()
