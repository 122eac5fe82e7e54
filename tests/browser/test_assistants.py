"""Assistants in the browser: made, asked by a starter question, edited while a session goes on, and removed."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

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
