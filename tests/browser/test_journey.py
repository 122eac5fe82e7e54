"""The workspace from an invitation to a restored session, in one go: as a member on a desktop and on a phone, and as staff."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.administration.test_people import PASSWORD, invite
from tests.browser.conftest import Portal
from tests.browser.conversation.test_branches import switcher
from tests.browser.conversation.test_live import wait_for_end, write
from tests.support.material.drawings import drawing

Open = Callable[..., Page]
CLIPBOARD = ["clipboard-read", "clipboard-write"]
QUESTION = "The gate code is 4711. Describe the picture."


def open_menu(page: Page, name: str) -> None:
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name=name, exact=True).or_(page.get_by_role("link", name=name, exact=True)).click()


def open_pane(page: Page) -> Locator:
    """Open the lens, which is beside the conversation on a desktop and over it on a phone."""
    pane = page.locator("#panels")
    if pane.is_hidden():
        page.locator("#context-toggle").click()
    expect(pane).to_be_visible()
    return pane


def come_in(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_label("New password", exact=True).fill(PASSWORD)
    page.get_by_label("New password confirmation").fill(PASSWORD)
    page.get_by_role("button", name="Save and sign in").click()


def make_a_project(page: Page, name: str) -> None:
    page.goto("/projects/#new")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Instructions", exact=True).fill("Speak of harbours.")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def begin_with_an_assistant(page: Page, name: str) -> None:
    page.goto("/assistants/")
    page.get_by_role("link", name="New assistant", exact=True).first.click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Instructions", exact=True).fill("Answer as a harbour pilot.")
    page.get_by_label("Starter questions", exact=True).fill("Good morning")
    page.get_by_role("button", name="Create assistant", exact=True).click()
    page.get_by_role("button", name="Good morning", exact=True).click()
    expect(page.locator("#session-assistant")).to_have_text(re.compile(f"{name}, version 1"))
    wait_for_end(page)


def move(page: Page, project: str) -> None:
    open_menu(page, "Move to project…")
    page.get_by_label("Project", exact=True).select_option(label=project)
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.locator("#session-project")).to_have_text(re.compile(f"In the project {project}"))


def ask_with_a_picture(page: Page, picture: Path) -> None:
    page.locator("#file-picker").set_input_files(str(picture))
    expect(page.locator(".attachment[data-state=ready]")).to_be_visible()
    write(page, QUESTION)
    expect(page.locator("#msg-4")).to_be_visible()
    wait_for_end(page)
    expect(page.locator("#msg-3").get_by_role("img", name=picture.name)).to_be_visible()


def ask_otherwise(page: Page) -> None:
    """Edit the question: the other one stays, as a version of the same message."""
    page.locator("#msg-3").hover()
    page.locator("#msg-3").get_by_role("button", name="Edit", exact=True).click()
    expect(page.get_by_label("Message", exact=True)).to_have_value(QUESTION)
    write(page, f"{QUESTION} In one word.")
    expect(page.locator("#msg-6")).to_be_visible()
    wait_for_end(page)
    expect(switcher(page, "#msg-5")).to_contain_text("2/2")
    switcher(page, "#msg-5").get_by_role("button", name="Previous version").click()
    expect(page.locator("#msg-4")).to_be_visible()


def compact(page: Page) -> None:
    """Say enough to summarise, have it summarised, and ask for what was said before."""
    for number in range(3):
        write(page, f"!long 500 Tell me of keeper {number}")
        expect(page.locator(".message-user", has_text=f"keeper {number}")).to_be_visible()
        wait_for_end(page)
    open_pane(page).get_by_role("button", name="Compact now").click()
    expect(page.locator("details.divider", has_text="Compacted")).to_be_visible()
    page.locator("#lens-close").click()
    write(page, "What is the gate code?")
    expect(page.locator(".message-assistant").last).to_contain_text("4711")
    wait_for_end(page)


def look_through_the_lens(page: Page) -> None:
    answer = page.locator(".message-assistant").last
    answer.hover()
    answer.get_by_role("link", name="What the model saw").click()
    expect(page.locator("#call-title")).to_have_text(re.compile("What the model saw at call"))
    expect(page.locator("#lens-saw .block", has_text="What is the gate code?").first).to_be_attached()
    page.locator("#lens-close").click()


def share(page: Page) -> str:
    open_menu(page, "Share…")
    dialog = page.get_by_role("dialog", name="Share")
    dialog.get_by_role("button", name="Create link").click()
    dialog.get_by_role("button", name="Copy the link").click()
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    page.keyboard.press("Escape")
    return str(page.evaluate("navigator.clipboard.readText()"))


def delete_and_restore(page: Page) -> None:
    open_menu(page, "Delete this session")
    expect(page.get_by_text("This session is in the trash.")).to_be_visible()
    page.get_by_role("button", name="Restore it").click()
    expect(page.locator("#composer")).to_be_visible()


@pytest.mark.parametrize(
    ("viewport", "name"), [({"width": 1280, "height": 860}, "ida"), ({"width": 390, "height": 844}, "ole")]
)
def test_from_the_invitation_to_the_restored_session(
    viewport, name: str, portal: Portal, open_page: Open, tmp_path: Path
) -> None:
    (tmp_path / "harbour.png").write_bytes(drawing(640, 400))
    staff = open_page("/people/", permissions=CLIPBOARD)
    link = invite(staff, name)
    window = portal.browser.new_context(
        base_url=portal.site.url, reduced_motion="reduce", viewport=viewport, permissions=CLIPBOARD
    )
    try:
        page = window.new_page()
        come_in(page, link)
        make_a_project(page, f"Harbour of {name}")
        begin_with_an_assistant(page, f"Pilot of {name}")
        session = page.url
        move(page, f"Harbour of {name}")
        ask_with_a_picture(page, tmp_path / "harbour.png")
        ask_otherwise(page)
        compact(page)
        look_through_the_lens(page)
        shared = share(page)
        delete_and_restore(page)
        page.reload()
        expect(page.locator("#msg-1")).to_be_attached()

        reader = open_page(shared)
        expect(reader.locator("#msg-1")).to_contain_text("Good morning")
        staff.goto(f"/observe/?q=person%3A{name}")
        staff.locator(".observe-title").get_by_role("link").click()
        expect(staff).to_have_url(re.compile(session.split("/sessions/")[1]))
    finally:
        window.close()
