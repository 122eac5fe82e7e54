"""The palette: opened by Ctrl+K anywhere, also while writing, and used without a mouse."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def pelican(portal: Portal) -> str:
    """A session that is found by its title and by what was said in it."""
    return portal.new_session("The pelican carries the letter", title="Pelican post")


def test_a_session_is_found_by_its_title(pelican: str, open_page: Open) -> None:
    page = open_page("/")
    page.locator("#first-message").fill("half a sentence")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Go to a session")
    expect(field).to_be_focused()
    page.keyboard.type("pelican po")
    option = page.get_by_role("option", name="Pelican post")
    expect(option).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", f"palette-{pelican}")
    assert axe(page) == []
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(pelican))


def test_a_message_is_found_by_its_words(pelican: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{pelican}/inspect/")
    page.keyboard.press("Control+k")
    page.keyboard.type("carries the letter")
    page.locator("#palette-hit-0").wait_for()
    page.keyboard.press("Enter")
    expect(page.locator("#msg-1")).to_be_in_viewport()
    expect(page.locator("#msg-1")).to_contain_text("pelican")


def test_staff_find_a_person_by_name(portal: Portal, open_page: Open) -> None:
    page = open_page("/projects/")
    page.keyboard.press("Control+k")
    page.keyboard.type("admin")
    person = page.get_by_role("group", name="People").get_by_role("option")
    expect(person).to_have_count(1)
    person.click()
    expect(page).to_have_url(re.compile("/people/[0-9]+/$"))


def test_actions_press_the_buttons_of_the_page(pelican: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{pelican}/")
    page.keyboard.press("Control+k")
    options = page.locator("#palette").get_by_role("option")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.type("light or")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("#palette")).to_be_hidden()
    expect(page.locator("#message")).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("shortcuts")
    page.keyboard.press("Enter")
    expect(page.locator("#keys")).to_be_visible()


def test_what_is_nowhere_is_said_so(pelican: str, open_page: Open) -> None:
    page = open_page("/files/")
    page.keyboard.press("Control+k")
    page.keyboard.type("<zyzzyva>")  # no word that another test may have said
    expect(page.locator("#palette")).to_contain_text("No results.")
    page.keyboard.press("Enter")
    expect(page.locator("#palette")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
