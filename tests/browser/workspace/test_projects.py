"""Projects in the browser: made, used for a new chat, and a session moved to and fro."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]


def test_a_project_is_made_and_a_new_chat_begun_in_it(portal: Portal, open_page: Open) -> None:
    page = open_page("/sessions/")
    page.get_by_role("link", name="New project").click()
    page.get_by_label("Name", exact=True).fill("Lantern works")
    page.get_by_label("Instructions", exact=True).fill("Speak of lanterns.")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name="Lantern works", exact=True)).to_be_visible()
    sidebar = page.get_by_role("navigation", name="Sessions")
    expect(sidebar.get_by_role("link", name="Lantern works", exact=True)).to_have_attribute("aria-current", "page")
    expect(page.get_by_text("New chats begin with the defaults of this site.")).to_be_visible()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Name", exact=True).fill(" ")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("This field is required.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("Lantern yard")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="Lantern yard", exact=True)).to_be_visible()
    page.get_by_role("link", name="Edit the settings of new chats").click()
    page.get_by_label("Effort", exact=True).select_option("low")
    page.get_by_role("button", name="Save", exact=True).click()
    settings = page.get_by_role("region", name="New chats", exact=True)
    expect(settings.locator("dd")).to_have_text(["Low"])
    page.get_by_label("First message").fill("Hello lanterns")
    page.get_by_role("button", name="New session", exact=True).click()
    expect(page.locator("#session-project")).to_have_text(re.compile("In the project Lantern yard"))
    page.locator("#session-project a").click()
    expect(page.locator("#session-rows .session-link")).to_have_text(["Hello lanterns"])
    page.get_by_role("button", name="Delete this project…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(re.compile(r"/projects/$"))
    expect(page.get_by_text("Lantern yard")).to_have_count(0)


def test_a_chat_is_begun_in_a_project_with_an_assistant(portal: Portal, open_page: Open) -> None:
    project = portal.call("POST", "/api/projects", {"name": "Net loft"})["id"]
    assistant = portal.call("POST", "/api/assistants", {"name": "Net mender", "model": "demo"})["id"]
    page = open_page(f"/projects/{project}/")
    page.get_by_label("Assistant", exact=True).select_option("Net mender")
    page.get_by_label("First message").fill("Mend this net")
    page.keyboard.press("Enter")
    expect(page.locator("#session-assistant")).to_have_text(re.compile("Net mender, version 1"))
    expect(page.locator("#session-project")).to_have_text(re.compile("In the project Net loft"))
    portal.call("DELETE", f"/api/assistants/{assistant}")


def test_a_session_is_moved_into_a_project_and_out_of_it_in_every_tab(portal: Portal, open_page: Open) -> None:
    session = portal.new_session(title="Rope for moving")
    project = portal.call("POST", "/api/projects", {"name": "Ropery"})["id"]
    page = open_page(f"/sessions/{session}/")
    other = page.context.new_page()
    other.goto(f"/sessions/{session}/")
    expect(other.locator("#message")).to_be_editable()
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Move to project…").click()
    page.get_by_label("Project", exact=True).select_option(project)
    page.get_by_role("button", name="Move", exact=True).click()
    for tab in (page, other):
        expect(tab.locator("#session-project")).to_have_text(re.compile("In the project Ropery"))
    page.goto("/sessions/")
    row = page.locator(f"[id='{session}']")
    row.locator(".row-menu > summary").click()
    row.get_by_role("button", name="Move to project…").click()
    page.get_by_label("Project", exact=True).select_option("")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.locator("#move")).to_have_count(0)
    expect(other.locator("#session-project")).to_have_text("")
    assert portal.call("GET", f"/api/sessions/{session}")["project_id"] is None
    other.close()
