"""Assistants in the browser: made, asked by a starter question, edited while a session goes on, and removed."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.support.material.drawings import drawing

Open = Callable[..., Page]


def test_an_assistant_is_made_asked_edited_and_removed(portal: Portal, open_page: Open) -> None:
    page = open_page("/")
    page.get_by_role("navigation", name="Sessions").get_by_role("link", name="Assistants", exact=True).click()
    page.get_by_role("link", name="New assistant", exact=True).click()
    page.get_by_role("button", name="Create assistant", exact=True).click()
    expect(page.get_by_text("Nothing has been saved.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("Lighthouse keeper")
    page.get_by_label("Instructions", exact=True).fill("Speak of lighthouses.")
    page.get_by_label("Model", exact=True).select_option("demo")
    page.get_by_label("Starter questions", exact=True).fill("How bright is it?\nWho trims the lamp?")
    page.get_by_role("button", name="Create assistant", exact=True).click()
    expect(page.get_by_role("heading", name="Lighthouse keeper", exact=True)).to_be_visible()
    page.get_by_role("button", name="Who trims the lamp?", exact=True).click()
    expect(page.locator("#session-assistant")).to_have_text(re.compile(r"Lighthouse keeper, version 1\.\s*$"))
    expect(page.locator("#transcript").get_by_text("Who trims the lamp?", exact=True)).to_be_visible()
    session = page.url
    page.locator("#session-assistant a").click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Name", exact=True).fill("Lamp keeper")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2.")).to_be_visible()
    page.goto(session)
    expect(page.locator("#session-assistant")).to_have_text(
        re.compile("Lighthouse keeper, version 1.*newer version", re.S)
    )
    page.goto("/")
    page.get_by_role("link", name="Lamp keeper", exact=True).click()
    page.get_by_text("Remove this assistant…").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page).to_have_url(re.compile(r"/assistants/$"))
    expect(page.get_by_text("Lamp keeper")).to_have_count(0)
    page.goto(session)
    expect(page.locator("#session-assistant a")).to_have_count(0)
    expect(page.locator("#session-assistant")).to_have_text(re.compile("Lighthouse keeper, version 1"))


def test_an_assistant_is_picked_beside_the_model_by_the_keyboard(portal: Portal, open_page: Open) -> None:
    body = {"name": "Harbour pilot", "instructions": "Speak of harbours.", "model": "demo"}
    assistant = portal.call("POST", "/api/assistants", body)["id"]
    page = open_page("/")
    picker = page.get_by_label("Assistant", exact=True)
    expect(picker).to_have_value("")
    page.get_by_label("Model", exact=True).focus()
    page.keyboard.press("Tab")
    expect(picker).to_be_focused()
    page.keyboard.type("Harbour")
    expect(picker).to_have_value(assistant)
    page.get_by_label("First message", exact=True).fill("Hello pilot")
    page.keyboard.press("Enter")
    expect(page.locator("#session-assistant")).to_have_text(re.compile(r"Harbour pilot, version 1"))
    portal.call("DELETE", f"/api/assistants/{assistant}")


def test_files_are_chosen_in_the_form_come_with_the_first_message_and_are_removed_there(open_page: Open) -> None:
    page = open_page("/assistants/add/")
    page.get_by_label("Name", exact=True).fill("Tide keeper")
    page.get_by_label("Add files", exact=True).set_input_files(
        [{"name": name, "mimeType": "text/plain", "buffer": b"Tides: 4.2 m"} for name in ("tides.txt", "notes.txt")]
    )
    page.get_by_role("button", name="Create assistant", exact=True).click()
    files = page.get_by_role("region", name="Files", exact=True)
    expect(files.get_by_role("link", name=re.compile("txt"))).to_have_text(["tides.txt", "notes.txt"])
    with page.expect_download() as download:
        files.get_by_role("link", name="tides.txt", exact=True).click()
    assert download.value.path().read_bytes() == b"Tides: 4.2 m"
    page.get_by_role("textbox", name="Message").fill("How high is it?")
    page.keyboard.press("Enter")
    message = page.locator("#transcript .message-user")
    expect(message).to_contain_text("How high is it?")
    expect(message).to_contain_text("tides.txt")
    page.locator("#session-assistant a").click()
    page.get_by_role("link", name="Edit files", exact=True).click()
    expect(page.get_by_label("Add files", exact=True)).to_be_in_viewport()
    page.get_by_role("group", name="Remove files").get_by_label(re.compile("tides.txt")).check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as version 2.")).to_be_visible()
    expect(files.get_by_role("link", name=re.compile("txt"))).to_have_text(["notes.txt"])


def test_files_and_picture_stay_chosen_when_the_form_has_an_error(open_page: Open) -> None:
    page = open_page("/assistants/add/")
    tides = {"name": "tides.txt", "mimeType": "text/plain", "buffer": b"Tides: 4.2 m"}
    portrait = {"name": "pilot.png", "mimeType": "image/png", "buffer": drawing(300, 200)}
    page.get_by_label("Add files", exact=True).set_input_files([tides])
    page.get_by_label("Picture", exact=True).set_input_files({**portrait, "buffer": b"No picture"})
    name, create = page.get_by_label("Name", exact=True), page.get_by_role("button", name="Create assistant")
    lost = page.get_by_text("Your selection was not kept.")
    create.click()
    expect(page.get_by_text("Nothing has been saved.")).to_be_visible()
    expect(name).to_be_focused()
    expect(lost).to_have_count(0)
    name.fill("Tide pilot")
    create.click()
    expect(page.get_by_text("Choose a complete PNG")).to_be_visible()
    expect(lost).to_have_count(1)
    expect(page.get_by_label("Picture", exact=True)).to_have_value("")
    page.get_by_label("Picture", exact=True).set_input_files(portrait)
    page.route("**/assistants/add/", lambda route: route.abort())
    create.click()
    expect(page.get_by_text("The server did not answer.")).to_be_visible()
    page.unroute("**/assistants/add/")
    create.click()
    expect(page.get_by_role("heading", name="Tide pilot", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="tides.txt", exact=True)).to_be_visible()
    expect(page.locator(".project-head img.portrait")).to_have_js_property("naturalWidth", 256)


def test_a_picture_is_shown_in_the_list_on_the_page_and_beside_the_title_of_a_session(open_page: Open) -> None:
    page = open_page("/assistants/add/")
    page.get_by_label("Name", exact=True).fill("Harbour pilot")
    page.get_by_label("Picture", exact=True).set_input_files(
        {"name": "pilot.png", "mimeType": "image/png", "buffer": drawing(300, 200)}
    )
    page.get_by_role("button", name="Create assistant", exact=True).click()
    expect(page.locator(".project-head img.portrait")).to_have_js_property("naturalWidth", 256)
    page.get_by_role("textbox", name="First message").fill("Go")
    page.keyboard.press("Enter")
    expect(page.locator("#session-assistant")).to_be_visible()
    expect(page.locator("header img.portrait")).to_have_js_property("naturalWidth", 256)
    page.goto("/assistants/")
    card = page.get_by_role("listitem").filter(has_text="Harbour pilot")
    expect(card.locator("img.portrait")).to_be_visible()
    card.get_by_role("link", name="Harbour pilot", exact=True).click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Remove the picture", exact=True).check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".project-head .portrait")).to_have_text("H")
