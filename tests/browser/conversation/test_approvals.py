"""A tool call that asks a person: answered on the page, by keyboard, seen in the list and after a reload."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
ASKS = {"turn": {"ask_before": ["calculator"]}}
MESSAGE = '!tool calculator {"expression": "6 * 7"}'


@pytest.fixture
def session_id(portal: Portal) -> str:
    """A session whose calculator asks before it runs."""
    return str(portal.call("POST", "/api/sessions", {"title": "Asks first", "config": ASKS})["id"])


def write(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def rate(page: Page, portal: Portal, session_id: str) -> None:
    """Rate the last message, which is drawn anew."""
    last = page.locator(".message-assistant").last
    drawn = last.element_handle()
    path = f"/api/sessions/{session_id}/messages/{last.get_attribute('data-message')}/rating"
    portal.call("PUT", path, {"thumb": "up"})
    page.wait_for_function("(drawn) => !drawn.isConnected", arg=drawn)


def test_a_call_is_approved_by_keyboard_and_the_answer_follows(
    portal: Portal, open_page: Open, session_id: str
) -> None:
    page = open_page(f"/sessions/{session_id}/")
    write(page, MESSAGE)
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    expect(page.locator("#state-badge")).to_have_text("waiting")
    expect(page.locator("#working")).to_be_hidden()
    page.get_by_label("Reason").fill("it is cheap")
    rate(page, portal, session_id)
    expect(page.get_by_label("Reason")).to_have_value("it is cheap")
    # Enter in the note decides nothing, and Escape does not end the turn.
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(approve).to_be_focused()
    page.keyboard.press("Enter")
    expect(approve).to_have_count(0)
    expect(page.locator(".message-assistant").last).to_contain_text("42")
    expect(page.locator("#state-badge")).to_be_empty()


def test_a_call_is_refused_with_a_word_after_a_reload(portal: Portal, open_page: Open, session_id: str) -> None:
    page = open_page(f"/sessions/{session_id}/")
    write(page, MESSAGE)
    expect(page.get_by_role("button", name="Deny")).to_be_visible()
    listed = open_page("/sessions/")
    expect(listed.locator(f"#{session_id}")).to_contain_text("waiting")
    page.reload()
    expect(page.locator("#state-badge")).to_have_text("waiting")
    page.get_by_label("Reason").fill("do it in your head")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("button", name="Deny")).to_have_count(0)
    wait_until(lambda: portal.call("GET", f"/api/sessions/{session_id}")["state"] == "idle")
    expect(page.locator(".tool-error")).to_contain_text("do it in your head")


def test_another_tab_sees_the_decision(portal: Portal, open_page: Open, session_id: str) -> None:
    first, second = open_page(f"/sessions/{session_id}/"), open_page(f"/sessions/{session_id}/")
    write(first, f"!slow 1500 {MESSAGE}")
    expect(second.get_by_role("button", name="Approve")).to_be_visible()
    first.get_by_role("button", name="Approve").click()
    expect(second.get_by_role("button", name="Approve")).to_have_count(0)
    expect(second.locator("details.tool-completed .tool-size")).to_have_text("2 characters")
    expect(second.locator(".message[data-running]")).to_have_count(1)  # the turn goes on, maybe in its next message
    expect(second.locator(".message-assistant").last).to_contain_text("42")


def test_a_waiting_turn_is_stopped_by_its_button(portal: Portal, open_page: Open, session_id: str) -> None:
    page = open_page(f"/sessions/{session_id}/")
    write(page, MESSAGE)
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    expect(page.locator("#state-badge")).to_have_text("cancelled")


def test_questions_are_answered_in_a_form_by_keyboard_and_stay_in_the_transcript(
    portal: Portal, open_page: Open
) -> None:
    config = {"turn": {"tools": ["ask_user"]}}
    session_id = portal.call("POST", "/api/sessions", {"title": "Asks", "config": config})["id"]
    page = open_page(f"/sessions/{session_id}/")
    questions = [
        {"question": "Which harbour?", "options": ["Lyon", "Bergen"]},
        {"question": "What to take?", "options": ["bread", "rope"], "several": True},
        {"question": "Anything else?"},
    ]
    write(page, f"!tool ask_user {json.dumps({'questions': questions})}")
    form = page.locator("form[data-questions]")
    expect(form.get_by_role("group")).to_have_count(3)
    form.get_by_role("button", name="Send answers").click()
    expect(form.get_by_role("alert")).to_contain_text("Answer a question")
    form.get_by_label("Bergen").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    form.get_by_label("Your answer").fill("a lamp <b>")
    form.get_by_label("bread").focus()
    rate(page, portal, session_id)
    expect(form.get_by_label("bread")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    form.get_by_label("Your answer").focus()
    page.keyboard.press("Enter")
    expect(form).to_have_count(0)
    said = "Which harbour?\n> Bergen\n\nWhat to take?\n> bread\n> rope\n\nAnything else?\n> a lamp <b>"
    expect(page.locator(".answered")).to_have_text(said)
    expect(page.locator("#state-badge")).to_be_empty()
    write(page, f"!tool ask_user {json.dumps({'questions': questions[:1]})}")
    page.get_by_role("button", name="Skip").click()
    expect(page.locator(".answered").last).to_contain_text("chose not to answer")
