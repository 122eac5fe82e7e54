"""Sharing in a browser: a link is made, copied, opened by another person and by a stranger, and revoked."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe

Open = Callable[..., Page]
MAKE_READER = """
from django.contrib.auth.models import User
User.objects.create_user("mia", password="neap-tide-at-eight")
"""


def test_a_session_is_shared_from_its_menu_copied_and_revoked(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Hello", title="Breakwater")
    page = open_page(f"/sessions/{session_id}/", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Share…").click()
    dialog = page.get_by_role("dialog", name="Share")
    expect(dialog.get_by_label("Who can open it")).to_be_focused()
    expect(dialog.get_by_label("Usernames")).to_be_hidden()
    dialog.get_by_label("Expires").select_option("In a week")
    dialog.get_by_role("button", name="Create link").press("Enter")
    copy = dialog.get_by_role("button", name="Copy the link")
    expect(copy).to_be_focused()
    copy.press("Enter")
    link = page.evaluate("navigator.clipboard.readText()")
    [made] = portal.call("GET", f"/api/sessions/{session_id}/shares")["items"]
    assert link == f"{portal.site.url}{made['path']}"
    assert made["expires_at"]
    assert axe(page) == []
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "A later secret"})
    portal.wait_until_idle(session_id)
    other = open_page(made["path"])
    expect(other.get_by_role("heading", name="Breakwater")).to_be_visible()
    expect(other.get_by_text("Hello", exact=True)).to_be_visible()
    expect(other.get_by_text("A later secret")).to_have_count(0)
    dialog.get_by_role("button", name="Revoke").press("Enter")
    expect(dialog.get_by_text("revoked", exact=True)).to_be_visible()
    assert other.reload().status == 404
    expect(other.get_by_text("This link does not work.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_an_answer_is_shared_up_to_there_with_some_people(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("First", "Second", title="Beacon")
    page = open_page(f"/sessions/{session_id}/", viewport={"width": 390, "height": 844})
    page.locator("#msg-2").hover()
    page.locator("#msg-2").get_by_role("button", name="Share up to here").click()
    dialog = page.get_by_role("dialog", name="Share")
    expect(dialog.get_by_text("up to message 2")).to_be_visible()
    dialog.get_by_label("Who can open it").select_option("people")
    names = dialog.get_by_label("Usernames")
    names.fill("nobody-here")
    names.press("Enter")
    expect(dialog.get_by_role("alert").filter(has_text="There is no account 'nobody-here' here.")).to_be_visible()
    names.fill("admin")
    names.press("Enter")
    expect(dialog.get_by_role("button", name="Copy the link")).to_be_focused()
    [made] = portal.call("GET", f"/api/sessions/{session_id}/shares")["items"]
    assert (made["audience"], made["people"]) == ("people", ["admin"])
    shared = open_page(made["path"])
    expect(shared.locator("#msg-1").get_by_text("First")).to_be_visible()
    expect(shared.locator("#msg-3")).to_have_count(0)
    listed = open_page("/shares/")
    row = listed.locator(f"#{made['id']}")
    row.get_by_role("button", name="Revoke").press("Enter")
    expect(row.get_by_text("revoked", exact=True)).to_be_visible()
    expect(row).to_be_focused()


def test_a_person_who_is_signed_out_signs_in_comes_back_and_is_seen_by_the_owner(
    portal: Portal, open_page: Open
) -> None:
    entered = portal.site.manage("shell", "-v0", "-c", MAKE_READER)
    assert entered.returncode == 0, entered.stderr
    session_id = portal.new_session("Hello", title="Mole")
    made = portal.call("POST", f"/api/sessions/{session_id}/shares", {})
    page = open_page("/livez")
    page.context.clear_cookies()
    page.goto(made["path"])
    page.get_by_label("Username").fill("mia")
    page.get_by_label("Password").fill("neap-tide-at-eight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Mole")).to_be_visible()
    assert page.url == f"{portal.site.url}{made['path']}"
    assert axe(page) == []
    listed = open_page("/shares/").locator(f"#{made['id']}")
    listed.get_by_text("Opened by mia").press("Enter")
    expect(listed.get_by_role("listitem").filter(has_text="mia")).to_be_visible()
