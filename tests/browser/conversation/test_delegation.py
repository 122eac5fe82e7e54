"""A delegation on the page: the tool's card leads down while it runs, the sub-agent's page leads up."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]


def test_a_card_leads_to_the_sub_agent_and_back_live_and_by_keyboard(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session(title="Harbour survey")
    page = open_page(f"/sessions/{session_id}/", viewport={"width": 360, "height": 700})
    page.get_by_label("Message", exact=True).fill(
        '!tool task {"prompt": "What is 12 * 12?", "title": "A dozen dozens"}'
    )
    page.keyboard.press("Enter")
    card = page.locator(".launched").get_by_role("link", name="A dozen dozens")
    card.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".origin").first).to_contain_text("Sub-agent of")
    expect(page.locator(".prose", has_text="144").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="Harbour survey").click()
    expect(card).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto("/sessions/")
    expect(page.locator(".session-link", has_text="Harbour survey")).to_be_visible()
    expect(page.locator(".session-link", has_text="A dozen dozens")).to_have_count(0)
    page.get_by_role("checkbox", name="Sub-agents").check()
    expect(page.locator(".session-link", has_text="A dozen dozens")).to_be_visible()
    assert "sub_agents=1" in page.url


def test_a_link_and_an_open_call_keep_focus_and_fold_when_the_message_is_drawn_again(
    portal: Portal, open_page: Open
) -> None:
    page = open_page(f"/sessions/{portal.new_session(title='Watched')}/")
    prompt = "!slow 20 !long 60"
    page.get_by_label("Message", exact=True).fill(f'!tool task {{"prompt": "{prompt}", "title": "A slow one"}}')
    page.keyboard.press("Enter")
    link = page.locator(".launched").get_by_role("link", name="A slow one")
    expect(page.locator(".launched .badge-running")).to_be_visible()
    page.locator(".tool summary").press("Enter")
    link.focus()
    expect(page.locator(".launched .badge-running")).to_have_count(0)
    expect(link).to_be_focused()
    expect(page.locator(".tool[open]")).to_have_count(1)


def test_sub_agents_are_below_their_session_in_the_sidebar_closed_until_they_are_opened(
    portal: Portal, open_page: Open
) -> None:
    page = open_page(f"/sessions/{portal.new_session(title='Fleet survey')}/")
    page.get_by_label("Message", exact=True).fill('!tool task {"prompt": "What is 3 * 3?", "title": "A boat"}')
    page.keyboard.press("Enter")
    opener = page.get_by_role("button", name="Sub-agents of Fleet survey")
    expect(opener).to_have_attribute("aria-expanded", "false")
    child = page.locator(".sidebar-nested").get_by_role("link", name="A boat")
    expect(child).to_have_count(0)
    page.locator(".sidebar-row", has_text="Fleet survey").get_by_role("link").focus()
    page.keyboard.press("ArrowRight")
    expect(opener).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    expect(child).to_be_focused()
    # The list is drawn anew, without closing it or losing the focus.
    page.evaluate("document.activeElement.dataset.old = 'yes'")
    page.evaluate("document.dispatchEvent(new Event('mnesis:sessions'))")
    expect(page.locator(".sidebar-link[data-old]")).to_have_count(0)
    expect(child).to_be_focused()
    child.click()
    expect(page.locator(".origin").first).to_contain_text("Sub-agent of")
    expect(child).to_have_count(0)
    opener.click()
    expect(child).to_have_attribute("aria-current", "page")
    opener.click()
    expect(child).to_have_count(0)
