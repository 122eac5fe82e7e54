"""A session's settings in the browser: reached from its menu, saved, and in force with the next message."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_live import wait_for_end, write

Open = Callable[..., Page]


def test_instructions_and_tools_are_changed_and_the_next_prompt_has_them(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One")
    page = open_page(f"/sessions/{session_id}/")
    page.get_by_label("More about this session").click()
    page.get_by_role("link", name="Settings of this session").click()
    tools = page.get_by_role("group", name="Chosen tools")
    expect(tools).to_be_hidden()
    page.get_by_label("Instructions", exact=True).fill("Answer like a harbour master.")
    page.get_by_label("Only the tools chosen here").check()
    tools.get_by_role("checkbox", name="lcm_expand").uncheck()
    page.get_by_label("Temperature").fill("9")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Nothing has been saved.")).to_be_visible()
    expect(page.get_by_label("Instructions", exact=True)).to_have_value("Answer like a harbour master.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Settings saved. They apply from the next message.")).to_be_visible()
    write(page, "Two")
    expect(page.locator(".message")).to_have_count(4)
    wait_for_end(page)
    call = portal.call("GET", f"/api/sessions/{session_id}/calls")["items"][0]
    prompt = portal.call("GET", f"/api/calls/{call['id']}/payload")["payload"]
    assert prompt["messages"][0] == {"role": "system", "content": "Answer like a harbour master."}
    assert "lcm_expand" not in {tool["function"]["name"] for tool in prompt["tools"]}


def test_a_tool_that_is_to_be_asked_about_waits_for_its_approval(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/settings/")
    page.get_by_role("group", name="Ask me before").get_by_label("calculator").check()
    page.get_by_role("button", name="Save").click()
    write(page, '!tool calculator {"expression": "6 * 7"}')
    page.get_by_role("button", name="Approve").click()
    wait_for_end(page)
    expect(page.locator(".message-assistant").last).to_contain_text("42")
