"""Rating answers in a browser: at once, with a comment, taken back, and live in another window."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe

Open = Callable[..., Page]


def test_an_answer_is_rated_commented_on_and_its_rating_taken_back(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("When is spring tide?", title="Spring tide")
    ratings = f"/api/sessions/{session_id}/ratings"
    page, other = (open_page(f"/sessions/{session_id}/") for _ in range(2))
    answer = page.locator("#msg-2")
    answer.hover()
    answer.get_by_role("button", name="Bad answer").click()
    dialog = page.get_by_role("dialog", name="Rate this answer")
    expect(dialog.get_by_label("Comment")).to_be_focused()
    expect(dialog.get_by_label("Bad")).to_be_checked()
    assert axe(page) == []
    for window in (page, other):
        expect(window.locator("#msg-2 [data-act=rating]")).to_have_attribute(
            "aria-label", "You rated this answer bad. Change the rating"
        )
    dialog.get_by_label("Comment").fill("It is at new moon, too.")
    dialog.get_by_role("button", name="Save").press("Enter")
    expect(dialog).to_be_hidden()
    assert [one["comment"] for one in portal.call("GET", ratings)["items"]] == ["It is at new moon, too."]
    badge = answer.get_by_role("button", name="You rated this answer bad")
    badge.press("Enter")
    expect(dialog.get_by_label("Comment")).to_have_value("It is at new moon, too.")
    dialog.get_by_label("Good").check()
    dialog.get_by_role("button", name="Save").click()
    expect(other.locator("#msg-2").get_by_role("button", name="You rated this answer good")).to_be_visible()
    answer.get_by_role("button", name="You rated this answer good").click()
    dialog.get_by_role("button", name="Remove rating").click()
    expect(badge).to_have_count(0)
    answer.hover()
    expect(answer.get_by_role("button", name="Good answer")).to_be_visible()
    assert portal.call("GET", ratings)["items"] == []
