"""A conversation is a tree: edit, switch between versions, reload, and the other window follows."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_chat import act
from tests.browser.conversation.test_live import wait_for_end, wait_for_words, write
from tests.support.sites.site import wait_until

Open = Callable[..., Page]


def shown(page: Page) -> list[str]:
    return [place.removeprefix("msg-") for place in page.locator(".message").evaluate_all("all => all.map(m => m.id)")]


def switcher(page: Page, message: str) -> Locator:
    return page.locator(f"{message} .versions")


def expect_path(page: Page, *seqs: int) -> None:
    # These wait for the page, should it be loading; a window that follows another one may show both branches for a moment.
    expect(page.locator(".message")).to_have_count(len(seqs))
    expect(page.locator(".message").last).to_have_id(f"msg-{seqs[-1]}")
    wait_until(lambda: shown(page) == [str(seq) for seq in seqs])


def test_an_edit_is_switched_and_reloaded_and_the_other_window_follows(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One", "Two")
    page = open_page(f"/sessions/{session_id}/")
    other = page.context.new_page()
    other.goto(f"/sessions/{session_id}/")
    draft = other.get_by_label("Message", exact=True)
    page.get_by_label("Message", exact=True).fill("half a thou")
    act(page, "#msg-3", "Edit")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Two")
    write(page, "Two, said otherwise")
    expect(page.locator("#msg-5")).to_be_visible()
    # What was being written is back.
    expect(page.get_by_label("Message", exact=True)).to_have_value("half a thou")
    wait_for_end(page)
    expect_path(page, 1, 2, 5, 6)
    expect(switcher(page, "#msg-5")).to_contain_text("2/2")
    expect_path(other, 1, 2, 5, 6)

    draft.fill("not sent yet")
    switcher(page, "#msg-5").get_by_role("button", name="Previous version").focus()
    page.keyboard.press("Enter")
    expect_path(page, 1, 2, 3, 4)
    expect(switcher(page, "#msg-3").get_by_role("button", name="Next version")).to_be_focused()
    expect(page.locator("#announcer")).to_have_text("Version 1 of 2.")
    expect_path(other, 1, 2, 3, 4)
    assert draft.input_value() == "not sent yet"
    page.reload()
    expect_path(page, 1, 2, 3, 4)

    # What is said goes on here, and the answer of the other branch is found where it is.
    act(page, "#msg-4", "Answer again")
    expect(page.locator("#msg-7")).to_be_visible()
    wait_for_end(page)
    expect_path(page, 1, 2, 3, 7)
    expect(switcher(page, "#msg-7")).to_contain_text("2/2")
    expect_path(other, 1, 2, 3, 7)


def test_without_scripts_the_switcher_is_a_form(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One")
    for number in range(10):
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": f"Other {number}", "parent_id": "root"})
        portal.wait_until_idle(session_id)
    page = open_page(f"/sessions/{session_id}/", java_script_enabled=False)
    expect(switcher(page, "#msg-21")).to_contain_text("/11")
    switcher(page, "#msg-21").get_by_role("button", name="Previous version").click()
    expect(page.locator("#msg-19")).to_be_visible()
    field = page.get_by_label("Version to show, of 11")
    assert field.input_value() == "10"
    field.fill("1")
    field.press("Enter")
    expect(page.locator("#msg-1")).to_be_visible()
    expect(page.locator(".message")).to_have_count(2)


def test_a_message_elsewhere_is_shown_with_a_way_to_go_on_there(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One", "Two")
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Other", "parent_id": "root"})
    portal.wait_until_idle(session_id)
    page = open_page(f"/sessions/{session_id}/")
    expect_path(page, 5, 6)
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.get_by_label("Number or id").fill("4")
    page.keyboard.press("Enter")
    expect(page.locator("#looking-note")).to_contain_text("You are viewing branch 0")
    expect_path(page, 1, 2, 3, 4)
    switcher(page, "#msg-1").get_by_role("button", name="Next version").click()
    expect_path(page, 5, 6)
    expect(page.locator("#composer")).to_be_visible()
    page.goto(f"/sessions/{session_id}/#msg-3")
    expect_path(page, 1, 2, 3, 4)
    page.get_by_role("button", name="Continue here").click()
    expect(page.locator("#composer")).to_be_visible()
    expect_path(page, 1, 2, 3, 4)
    # Who looks at a branch that another window chooses goes on there.
    other = page.context.new_page()
    other.goto(f"/sessions/{session_id}/?branch=1")
    expect(other.locator("#looking-note")).to_be_visible()
    switcher(page, "#msg-1").get_by_role("button", name="Next version").click()
    expect(other.locator("#composer")).to_be_visible()
    expect_path(other, 5, 6)


def test_while_a_turn_runs_the_switcher_waits(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One")
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Other", "parent_id": "root"})
    portal.wait_until_idle(session_id)
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!slow 60 !long 60")
    wait_for_words(page, 3)
    expect(switcher(page, "#msg-3").get_by_role("button", name="Previous version")).to_be_disabled()
    expect(switcher(page, "#msg-3")).to_have_attribute("title", re.compile("A turn is running"))
    wait_for_end(page)
    expect(switcher(page, "#msg-3").get_by_role("button", name="Previous version")).to_be_enabled()
