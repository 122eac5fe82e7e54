"""Two models side by side in a browser: asked, watched, stopped, compared and chosen, also on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import PHONE, WIDE, axe
from tests.support.sites.site import wait_until

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def other(portal: Portal) -> str:
    """Another model."""
    sizes = ("--context", "8000", "--max-output", "1000")
    done = portal.site.manage("model", "add", "--alias", "ebb", "--litellm", "demo/chat", *sizes)
    assert done.returncode == 0, done.stderr
    return "ebb"


def test_another_model_is_asked_and_its_answer_goes_on(portal: Portal, open_page: Open, other: str) -> None:
    session_id = portal.new_session("When is spring tide?", title="Tides of two models")
    page = open_page(f"/sessions/{session_id}/")
    page.locator("#msg-2").hover()
    page.locator("#msg-2").get_by_role("button", name="Compare with another model").click()
    dialog = page.get_by_role("dialog", name="Compare with another model")
    expect(dialog.get_by_role("radio", name="demo")).to_have_count(0)
    dialog.get_by_role("radio", name=re.compile(f"^{other} ")).check()
    assert axe(page) == []
    dialog.get_by_role("button", name="Ask and compare").press("Enter")
    right = page.get_by_role("article", name=other, exact=True)
    expect(right.locator(".message .prose:not(.live)")).to_be_visible()
    expect(right.locator(".comparison-numbers")).to_contain_text(" out")
    portal.wait_until_idle(session_id)
    assert axe(page) == []
    left = page.get_by_role("article", name="demo", exact=True)
    left.get_by_role("button", name="Continue with this answer").click()
    expect(page.locator("#msg-2")).to_be_visible()
    expect(page.locator("#msg-3")).to_have_count(0)
    page.locator("#msg-2").get_by_role("link", name="Compare side by side").click()
    expect(left.get_by_role("link", name="Continue with this answer")).to_be_visible()
    page.go_back()
    expect(page.locator("#msg-2")).to_be_visible()
    assert portal.call("GET", f"/api/sessions/{session_id}")["model"] == "demo"


def test_an_answer_is_watched_over_a_reload_and_stopped(portal: Portal, open_page: Open, other: str) -> None:
    session_id = portal.new_session(title="Tides over a reload")
    turns = f"/api/sessions/{session_id}/turns"
    portal.call("POST", turns, {"message": "!slow 300 !long 300 Tell me about the tides."})
    wait_until(lambda: len(portal.call("GET", f"/api/sessions/{session_id}/messages")["items"]) == 2)
    portal.call("POST", f"/api/sessions/{session_id}/interrupt")
    portal.wait_until_idle(session_id)
    question = portal.call("GET", f"/api/sessions/{session_id}/messages")["items"][0]["id"]
    portal.call("POST", turns, {"parent_id": question, "model": other})
    page = open_page(f"/sessions/{session_id}/compare/1/0/1/")
    left, right = page.get_by_role("article").filter(has_text="Continue with").all()
    expect(right.locator(".live")).to_contain_text(re.compile(r"\w+ \w+"))
    expect(left.get_by_role("button", name="Continue with this answer")).to_be_disabled()
    page.reload()
    expect(right.locator(".live")).to_contain_text(re.compile(r"\w+ \w+"))
    right.get_by_role("button", name="Stop").click()
    expect(right.get_by_text("Stopped.")).to_be_visible()
    expect(right.get_by_role("button", name="Stop")).to_have_count(0)
    expect(left.get_by_role("button", name="Continue with this answer")).to_be_enabled()
    right.get_by_role("button", name="Try again").click()
    page.wait_for_url("**/compare/1/0/2/")
    portal.call("POST", f"/api/sessions/{session_id}/interrupt")
    expect(page.get_by_role("navigation", name="Answer 3 of 3")).to_be_visible()


def test_a_phone_shows_one_answer_at_a_time(portal: Portal, open_page: Open, other: str) -> None:
    session_id = portal.new_session("When is high water?", title="Tides on a phone")
    question = portal.call("GET", f"/api/sessions/{session_id}/messages")["items"][0]["id"]
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"parent_id": question, "model": other})
    portal.wait_until_idle(session_id)
    page = open_page(f"/sessions/{session_id}/compare/1/0/1/", viewport=PHONE)
    right = page.get_by_role("article", name=other, exact=True)
    expect(right).not_to_be_in_viewport()
    page.get_by_role("navigation", name="Answers").get_by_role("link", name=other).click()
    expect(right).to_be_in_viewport(ratio=0.5)
    assert axe(page) == []
    page.set_viewport_size(WIDE)
    expect(page.get_by_role("article", name="demo", exact=True)).to_be_in_viewport()
    expect(right).to_be_in_viewport()
