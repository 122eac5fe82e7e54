"""The lens: the conversation, and beside it exactly what the model saw of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
HOSTILE = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) \u202egpj.exe"


@pytest.fixture(scope="module")
def talk(portal: Portal) -> str:
    """Six questions with their answers, a summary of the first ones, and another question."""
    questions = [f"{HOSTILE} Question {number}: {'what does the harbour log say? ' * 40}" for number in range(6)]
    session_id = portal.new_session(*questions, title=f"Lens {HOSTILE}")
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "And now?"})
    portal.wait_until_idle(session_id)
    return session_id


def tab(page: Page, name: str) -> Locator:
    return page.get_by_role("tablist", name="Lens").get_by_role("tab", name=name)


def word(page: Page, seq: int) -> Locator:
    """What the lens says of a message."""
    return page.locator(f"#msg-{seq} .message-lens")


def saw(page: Page, seq: int) -> None:
    """Ask of an answer what the model saw."""
    page.locator(f"#msg-{seq}").hover()
    page.locator(f"#msg-{seq}").get_by_role("link", name="What the model saw").click()


def test_an_answer_has_its_prompt_beside_it_and_what_was_not_in_it_is_greyed(talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{talk}/", viewport=WIDE)
    saw(page, 4)
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 2")
    expect(tab(page, "What it saw")).to_have_attribute("aria-selected", "true")
    expect(word(page, 1)).to_have_count(0)
    expect(word(page, 4)).to_have_text("its answer")
    expect(word(page, 5)).to_have_text("not said yet")
    page.locator("#lens-saw .block", has_text="Question 0").locator("summary").click()
    expect(page.locator("#lens-saw .block pre")).to_contain_text("<img src=x onerror=alert(1)>")
    saw(page, 14)
    expect(word(page, 1)).to_have_text("summarised then")
    expect(word(page, 5)).to_have_count(0)
    page.go_back()
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 2")
    expect(word(page, 5)).to_have_text("not said yet")
    page.get_by_role("link", name="Difference").click()
    expect(page.get_by_text("It was said since then.").first).to_be_visible()
    page.reload()
    expect(page.get_by_text("It was said since then.").first).to_be_visible()
    expect(word(page, 5)).to_have_text("not said yet")
    page.get_by_role("link", name="Next call").click()
    expect(word(page, 6)).to_have_text("its answer")
    page.keyboard.press("c")
    expect(page.locator("#panels")).to_be_hidden()
    expect(page.locator(".message-lens")).to_have_count(0)
    assert "lens" not in page.url
