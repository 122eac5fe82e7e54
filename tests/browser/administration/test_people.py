"""People in a browser: invited, in by the link, signed out, closed and opened again."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe

Open = Callable[..., Page]
PASSWORD = "high-tide-at-ten"


def act(page: Page, name: str) -> None:
    """Press a button that asks for confirmation."""
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=name, exact=True).click()


def invite(staff: Page, name: str) -> str:
    """Invite a person, and return the link that was copied."""
    staff.get_by_role("link", name="Invite…").click()
    staff.get_by_label("Username").fill(name)
    staff.get_by_label("Username").press("Enter")
    expect(staff.get_by_role("heading", name=f"A link for {name}")).to_be_focused()
    staff.get_by_role("button", name="Copy this link").click()
    expect(staff.get_by_role("button", name="Copied")).to_be_visible()
    assert axe(staff) == []
    return str(staff.evaluate("navigator.clipboard.readText()"))


def test_a_person_is_invited_comes_in_and_is_closed_out(portal: Portal, open_page: Open) -> None:
    staff = open_page("/people/", permissions=["clipboard-read", "clipboard-write"])
    link = invite(staff, "nora.lighthouse")
    nora = portal.browser.new_context(base_url=portal.site.url, reduced_motion="reduce")
    try:
        page = nora.new_page()
        page.goto(link)
        assert axe(page) == []
        page.get_by_label("New password", exact=True).fill(PASSWORD)
        page.get_by_label("New password confirmation").fill(PASSWORD)
        page.get_by_role("button", name="Save and sign in").click()
        expect(page.get_by_role("link", name="All sessions")).to_be_visible()
        page.goto(link)
        expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()

        staff.goto("/people/")
        staff.keyboard.press("/")
        staff.keyboard.type("nora.light")
        expect(staff.get_by_role("row")).to_have_count(2)
        expect(staff).to_have_url(f"{portal.site.url}/people/?q=nora.light")
        staff.get_by_role("link", name="nora.lighthouse").click()

        staff.get_by_label("Tokens").fill("1000")
        staff.get_by_role("button", name="Save limits").click()
        expect(staff.get_by_text("0 of 1,000 tokens a day")).to_be_visible()

        act(staff, "Sign out everywhere")
        expect(staff.get_by_role("status").get_by_text("Signed out everywhere.")).to_be_visible()
        page.goto("/")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        page.get_by_label("Username").fill("nora.lighthouse")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("link", name="All sessions")).to_be_visible()

        act(staff, "Close account")
        expect(staff.get_by_text("The account is closed. Its sessions are kept.")).to_be_visible()
        assert axe(staff) == []
        page.goto("/")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        staff.get_by_role("button", name="Reopen account").click()
        expect(staff.get_by_text("The account is reopened.")).to_be_visible()
    finally:
        nora.close()


def test_people_are_found_by_their_state(portal: Portal, open_page: Open) -> None:
    staff = open_page("/people/", permissions=["clipboard-read", "clipboard-write"])
    invite(staff, "iris.lighthouse")
    staff.goto("/people/")
    staff.get_by_label("State", exact=True).select_option("invited or no password")
    expect(staff.get_by_role("link", name="iris.lighthouse")).to_be_visible()
    expect(staff).to_have_url(f"{portal.site.url}/people/?state=invited")
    assert axe(staff) == []
    staff.get_by_label("Search people").fill("iris")
    expect(staff).to_have_url(f"{portal.site.url}/people/?q=iris&state=invited")
    staff.get_by_label("State", exact=True).select_option("closed")
    expect(staff.get_by_text("No one was found in this state.")).to_be_visible()
    staff.reload()
    expect(staff.get_by_label("State", exact=True)).to_have_value("closed")
    staff.get_by_role("link", name="Show everyone").click()
    expect(staff.get_by_role("link", name="iris.lighthouse")).to_be_visible()
    expect(staff.get_by_label("State", exact=True)).to_have_value("")


def test_a_group_is_created_gets_a_member_and_is_deleted(portal: Portal, open_page: Open) -> None:
    staff = open_page("/people/", permissions=["clipboard-read", "clipboard-write"])
    invite(staff, "otto.lighthouse")
    staff.goto("/people/")
    staff.get_by_role("link", name="Groups", exact=True).click()
    staff.get_by_label("Name", exact=True).fill("Keepers")
    staff.get_by_role("button", name="Create group").click()
    expect(staff.get_by_role("heading", name="Keepers", level=1)).to_be_visible()
    member = staff.get_by_label("Username of a new member")
    member.fill("nosuch")
    member.press("Enter")
    expect(staff.get_by_text("No account has this name.")).to_be_visible()
    expect(member).to_have_value("nosuch")
    member.fill("otto")
    expect(staff.locator("#candidates option")).to_have_count(1)
    expect(staff.locator("#candidates option")).to_have_attribute("value", "otto.lighthouse")
    member.fill("otto.lighthouse")
    staff.route("**/members/", lambda route: route.abort())
    member.press("Enter")
    expect(staff.get_by_role("alert").filter(has_text="The server did not answer.")).to_be_visible()
    expect(member).to_have_value("otto.lighthouse")
    staff.unroute("**/members/")
    member.press("Enter")
    expect(staff.get_by_role("status").get_by_text("otto.lighthouse is now in this group.")).to_be_focused()
    assert axe(staff) == []
    staff.get_by_label("Name", exact=True).fill("Lamp keepers")
    staff.get_by_role("button", name="Rename", exact=True).click()
    expect(staff.get_by_role("heading", name="Lamp keepers", level=1)).to_be_visible()
    expect(staff).to_have_title("Lamp keepers · Groups · Mnesis")
    staff.get_by_role("button", name="Remove otto.lighthouse").click()
    expect(staff.get_by_text("No members yet.")).to_be_visible()
    staff.get_by_role("link", name="Delete…").click()
    expect(staff.get_by_role("heading", name="Delete the group Lamp keepers?", level=1)).to_be_visible()
    staff.get_by_role("button", name="Delete", exact=True).click()
    expect(staff).to_have_url(f"{portal.site.url}/people/groups/")
    expect(staff.get_by_role("link", name="Lamp keepers")).to_have_count(0)
