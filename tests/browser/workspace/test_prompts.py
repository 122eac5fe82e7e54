"""Saved prompts in the browser: made, found by "/", filled and put into the message box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]
TEXT = "Explain {{topic}} in a {{tone=friendly}} tone; {{topic}} matters. {not} {{}} {{ }}"


def test_a_prompt_is_made_found_filled_and_removed(portal: Portal, open_page: Open) -> None:
    page = open_page("/prompts/")
    page.get_by_role("button", name="New prompt", exact=True).click()
    page.get_by_label("Name", exact=True).fill("Lantern Text")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Save prompt", exact=True).click()
    expect(page.get_by_text("A name has up to 50 lowercase letters")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("lantern-text")
    page.get_by_label("Title", exact=True).fill("Lantern lesson")
    page.get_by_role("button", name="Save prompt", exact=True).click()
    expect(page.get_by_role("link", name="Lantern lesson", exact=True)).to_be_visible()

    page.goto(page.url.replace("/prompts/", "/"))
    box = page.get_by_label("First message", exact=True)
    box.press_sequentially("/lant")
    option = page.get_by_role("listbox", name="Saved prompts").get_by_role("option", name="/lantern-text")
    expect(option).to_have_attribute("aria-selected", "true")
    expect(box).to_have_attribute("aria-activedescendant", option.get_attribute("id") or "")
    box.press("Escape")
    expect(option).to_have_count(0)
    expect(box).to_have_value("/lant")
    box.press_sequentially("ern-text")
    box.press("Enter")  # before the list is there
    dialog = page.get_by_role("dialog", name="Lantern lesson", exact=True)
    expect(dialog.get_by_label("tone", exact=True)).to_have_value("friendly")
    dialog.get_by_label("topic", exact=True).fill("$& {{tone}}")
    dialog.get_by_role("button", name="Insert", exact=True).click()
    expect(box).to_have_value("Explain $& {{tone}} in a friendly tone; $& {{tone}} matters. {not} {{}} {{ }}")
    expect(box).to_be_focused()
    page.reload()
    expect(box).to_have_value("Explain $& {{tone}} in a friendly tone; $& {{tone}} matters. {not} {{}} {{ }}")
    box.fill("Not /lantern-text")
    expect(page.get_by_role("listbox", name="Saved prompts")).to_have_count(0)
    box.fill("Hello prompts")
    box.press("Enter")
    message = page.get_by_label("Message", exact=True)
    message.press_sequentially("/lantern-t")
    expect(option).to_be_visible()
    message.press("Tab")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(message).to_have_value("/lantern-t")
    message.fill("")

    page.get_by_role("navigation", name="Sessions").get_by_role("link", name="Prompts", exact=True).click()
    page.get_by_role("link", name="Lantern lesson", exact=True).click()
    page.get_by_role("button", name="Delete…", exact=True).click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Prompts", exact=True, level=1)).to_be_visible()
    expect(page.get_by_text("Lantern lesson")).to_have_count(0)


def test_variables_are_read_and_filled(portal: Portal, open_page: Open) -> None:
    page = open_page("/prompts/")

    def run(text: str, values: dict[str, str]) -> Any:
        return page.evaluate(
            """async ([text, values]) => {
              const { fill, variablesOf } = await import(document.querySelector('script[src$="/site.js"]').src.replace("site.js", "composer/variables.js"));
              return [[...variablesOf(text)], fill(text, new Map(Object.entries(values)))];
            }""",
            [text, values],
        )

    assert run("a {{x}} b {{ x = 1 }} {{y=}}", {"x": "{{y}}", "y": "$1"}) == [
        [["x", "1"], ["y", ""]],
        "a {{y}} b {{y}} $1",
    ]
    assert run("{{}} {{=a}} {x} {{x", {}) == [[], "{{}} {{=a}} {x} {{x"]
    assert run("{{constructor}} {{__proto__=q}}", {}) == [
        [["constructor", ""], ["__proto__", "q"]],
        "{{constructor}} {{__proto__=q}}",
    ]
    assert run("{{" * 10_000, {})[0] == []
    assert len(run("".join(f"{{{{v{number}}}}}" for number in range(30)), {})[0]) == 20
    assert run("{{" + "x" * 61 + "}} {{名前 é=🦊}}", {})[0] == [["名前 é", "🦊"]]


def test_a_message_is_saved_as_a_prompt(portal: Portal, open_page: Open) -> None:
    words = "Weigh the anchor of {{ship}}.\nThen say how."
    page = open_page(f"/sessions/{portal.new_session(words)}/")
    own = page.locator(".message-user")
    own.hover()
    save = own.get_by_role("link", name="Save as prompt", exact=True)
    save.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="New prompt", exact=True)
    expect(dialog.get_by_label("Text", exact=True)).to_have_value(words)
    expect(dialog.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("anchor")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="anchor", exact=True)).to_be_visible()
    expect(dialog).to_have_count(0)
    [prompt] = [one for one in portal.call("GET", "/api/prompts")["items"] if one["name"] == "anchor"]
    assert prompt["text"] == words
