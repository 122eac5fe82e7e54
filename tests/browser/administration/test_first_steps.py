"""The first steps of a new site in the browser: a model added with its key, and what the demo model can do."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_live import wait_for_end
from tests.support.providers.openai.openai_server import TEXT, OpenAIServer

Open = Callable[..., Page]
KEY = "sk-typed-in-a-browser"


def test_a_model_is_added_with_its_key_and_answers(portal: Portal, open_page: Open) -> None:
    page = open_page("/models/add/")
    with OpenAIServer() as server:
        page.get_by_label("Provider", exact=True).select_option(label="Anthropic")
        expect(page.locator('#known-models option[value="anthropic/claude-opus-4-1"]')).to_be_attached()
        page.get_by_label("Model", exact=True).fill("anthropic/claude-opus-4-1")
        expect(page.get_by_text("Known: a window of 200,000 tokens")).to_be_visible()
        expect(page.get_by_label("Name", exact=True)).to_have_value("claude-opus-4-1")
        page.get_by_label("Provider", exact=True).select_option(label="Your own OpenAI-compatible server")
        page.get_by_label("Address").fill(server.base_url)
        page.get_by_label("Model", exact=True).fill("openai/ok")
        page.get_by_label("Name", exact=True).fill("typed-in")
        page.get_by_label("Key", exact=True).fill(KEY)
        page.get_by_role("button", name="Save and check").click()
        expect(page.get_by_text("typed-in answered after")).to_be_visible()
        session_id = portal.call("POST", "/api/sessions", {"model": "typed-in"})["id"]
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Hello"})
        portal.wait_until_idle(session_id)
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    page.goto(f"/sessions/{session_id}/")
    expect(page.locator(".message").last).to_contain_text(TEXT[:20])
    page.goto("/models/typed-in/remove/")
    assert KEY not in page.content()
    page.locator("main").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("typed-in was removed")).to_be_visible()


def test_the_demo_model_shows_a_tool_call_at_a_click(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("Model", exact=True).select_option("demo")  # whichever was used last
    page.get_by_role("button", name="Have it call a tool").click()
    page.wait_for_url("**/sessions/sess_*/")
    wait_for_end(page)
    expect(page.locator(".message").last).to_contain_text("42")
