"""The lens: the conversation, and beside it exactly what the model saw of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe

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
    expect(word(page, 5)).to_have_text("not sent yet")
    page.locator("#lens-saw .block", has_text="Question 0").locator("summary").click()
    expect(page.locator("#lens-saw .block pre")).to_contain_text("<img src=x onerror=alert(1)>")
    saw(page, 14)
    expect(word(page, 1)).to_have_text("summarised")
    expect(word(page, 5)).to_have_count(0)
    page.go_back()
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 2")
    expect(word(page, 5)).to_have_text("not sent yet")
    page.get_by_role("link", name="Difference").click()
    expect(page.get_by_text("Added since then.").first).to_be_visible()
    assert re.search(r"\?lens=saw&call=call_\w+&section=difference$", page.url)
    page.reload()
    expect(page.get_by_text("Added since then.").first).to_be_visible()
    expect(word(page, 5)).to_have_text("not sent yet")
    page.get_by_role("link", name="Next call").click()
    expect(word(page, 6)).to_have_text("its answer")
    page.keyboard.press("c")
    expect(page.locator("#panels")).to_be_hidden()
    expect(page.locator(".message-lens")).to_have_count(0)
    assert "lens" not in page.url


def slide(page: Page, key: str) -> None:
    page.get_by_role("slider", name="Call, from the first to the last").press(key)


def test_the_conversation_follows_the_bar_which_says_number_and_time(talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{talk}/", viewport=WIDE)
    tab(page, "What it saw").click()
    bar = page.get_by_role("slider", name="Call, from the first to the last")
    expect(word(page, 14)).to_have_text("its answer")
    slide(page, "Home")
    expect(bar).to_have_attribute("aria-valuetext", re.compile(r"Call 1, \d+ \w+ 20\d\d, \d\d:\d\d:\d\d"))
    expect(word(page, 2)).to_have_text("its answer")
    expect(word(page, 14)).to_have_text("not sent yet")
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 1")
    expect(page.get_by_role("link", name="Open as a page")).to_have_attribute(
        "href", re.compile(r"/inspect/calls/call_\w+/$")
    )
    length = page.evaluate("history.length")
    for _ in range(3):
        slide(page, "ArrowRight")
    expect(word(page, 8)).to_have_text("its answer")
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 4")
    expect(bar).to_be_focused()
    assert page.evaluate("history.length") == length, "a step of the bar is no step back"
    tab(page, "Context").click()
    expect(page.locator(".message-lens")).to_have_count(0)
    expect(page.locator("#msg-1 .message-out")).to_be_visible()


def test_who_looks_at_the_newest_call_goes_on_with_it_and_who_does_not_is_told(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One", "Two")
    page = open_page(f"/sessions/{session_id}/?lens=saw", viewport=WIDE)
    expect(word(page, 4)).to_have_text("its answer")
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Three"})
    expect(word(page, 6)).to_have_text("its answer")
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 3")
    slide(page, "Home")
    expect(word(page, 6)).to_have_text("not sent yet")
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Four"})
    expect(word(page, 8)).to_have_text("not sent yet")
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 1")
    page.get_by_role("button", name="There are newer calls: show the newest").click()
    expect(word(page, 8)).to_have_text("its answer")
    page.go_back()
    expect(page.locator("#call-title")).to_have_text("What the model saw at call 1")


def test_the_messages_of_a_summary_are_lit_where_it_is_pointed_at_and_gone_to_where_it_is_chosen(
    talk: str, open_page: Open
) -> None:
    page = open_page(f"/sessions/{talk}/", viewport=WIDE)
    tab(page, "Summaries").click()
    row = page.locator("#tree tbody tr").first
    lit = page.locator(".message[data-lit]")
    last = int((row.get_attribute("data-messages") or "").strip().removeprefix("1-"))
    row.hover()
    expect(lit).to_have_count(last)
    expect(page.get_by_text(f"Messages 1–{last}: highlighted in the conversation.")).to_be_visible()
    page.locator("#transcript").hover()
    expect(lit).to_have_count(0)
    row.get_by_role("link").click()
    expect(page.locator("#dag-detail").get_by_role("heading", level=2)).to_contain_text(
        f"Leaf summary of messages 1–{last}"
    )
    page.locator("#transcript").hover()
    expect(lit).to_have_count(last)
    expect(page.locator("#msg-1")).to_be_in_viewport()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tree tbody tr[aria-level='2']")).to_have_count(last)
    page.keyboard.press("ArrowDown")
    expect(lit).to_have_count(1)
    tab(page, "Files").click()
    expect(lit).to_have_count(0)
    expect(page.locator("#lens-files").get_by_text("This session has no files.")).to_be_visible()
    page.go_back()
    expect(tab(page, "Summaries")).to_have_attribute("aria-selected", "true")
    expect(lit).to_have_count(last)


def test_what_is_not_loaded_is_said_with_the_way_to_it(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session(*[f"Question {number}: {'and why? ' * 120}" for number in range(6)])
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    page = open_page(f"/sessions/{session_id}/", viewport=WIDE)
    # As in a long conversation, of which the page has the end.
    page.evaluate("document.querySelectorAll('.message').forEach((one) => Number(one.dataset.seq) < 9 && one.remove())")
    tab(page, "Summaries").click()
    page.locator("#tree tbody tr").first.get_by_role("link").click()
    expect(page.locator("#lens-summaries").get_by_text("not loaded in the conversation")).to_be_visible()
    page.get_by_role("link", name="Go to message 1").click()
    expect(page.locator("#msg-1")).to_be_focused()
    expect(page.locator("#msg-1")).to_have_attribute("data-lit", "")
    assert "lens=summaries" in page.url


def test_tabs_are_moved_between_by_keys_and_closed_by_escape(talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{talk}/", viewport=WIDE)
    page.locator("#context-toggle").focus()
    tab(page, "Context").focus()
    page.keyboard.press("ArrowLeft")
    expect(tab(page, "Files")).to_be_focused()
    expect(page.locator("#lens-files").get_by_text("This session has no files.")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#lens-ledger").get_by_role("row").nth(1)).to_contain_text("#")
    page.keyboard.press("Home")
    expect(tab(page, "Context")).to_be_focused()
    page.keyboard.press("End")
    expect(tab(page, "Files")).to_be_focused()
    assert page.get_by_role("tab").evaluate_all("(tabs) => tabs.filter(({ tabIndex }) => tabIndex === 0).length") == 1
    page.keyboard.press("Escape")
    expect(page.locator("#panels")).to_be_hidden()
    expect(page.locator("#context-toggle")).to_be_focused()
    page.keyboard.press("c")
    expect(page.locator("#lens-files")).to_be_visible()


def test_a_press_counts_though_the_numbers_below_it_are_replaced_meanwhile(talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{talk}/", viewport=WIDE)
    expect(page.locator("#context-brief")).to_contain_text("%")
    page.locator("#context-brief").hover(force=True)
    page.mouse.down()
    page.evaluate("brief => brief.replaceWith(brief.cloneNode(true))", page.locator("#context-brief").element_handle())
    page.mouse.up()
    expect(page.locator("#panels")).to_be_hidden()


def test_a_page_asks_for_no_more_until_the_lens_is_used(talk: str, open_page: Open) -> None:
    page = open_page("/sessions/", viewport=PHONE)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"/sessions/{talk}/")
    page.wait_for_load_state("networkidle")
    expect(page.locator("#panels")).to_be_hidden()
    assert not [url for url in asked if re.search(r"lens|inspect|/files|calls\.css|dag", url)]


def test_what_cannot_be_loaded_is_said(talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{talk}/", viewport=WIDE)
    page.route("**/places.json*", lambda route: route.fulfill(status=404, body="{}"))
    tab(page, "What it saw").click()
    expect(page.locator("#lens-error")).to_have_text(
        "The server sent a response that this page cannot read. Reload the page and try again."
    )
    page.unroute("**/places.json*")
    tab(page, "What it saw").click()
    expect(page.locator("#call-title")).to_be_visible()
    expect(page.locator("#lens-error")).to_be_hidden()


def test_an_answer_that_no_call_made_leads_to_the_calls_that_saw_it(
    portal: Portal, open_page: Open, tmp_path: Path
) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps({"messages": [{"role": role, "content": "So."} for role in ("user", "assistant")]}))
    done = portal.site.manage("import_transcript", str(path), "--user", "admin", "--json")
    [report] = json.loads(done.stdout)
    [session_id] = report["sessions"].values()
    page = open_page(f"/sessions/{session_id}/", viewport=WIDE)
    saw(page, 2)
    expect(page.locator("#lens-error")).to_contain_text("The record has no call that wrote this answer.")
    page.get_by_role("link", name="Which calls saw it").click()
    expect(page).to_have_url(re.compile(r"/inspect/messages/msg_\w+/$"))


def test_a_conversation_without_anything_says_what_will_be_there(portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/?lens=saw", viewport=WIDE)
    expect(page.get_by_text("No model calls yet.")).to_be_visible()
    expect(page.get_by_role("slider")).to_have_count(0)
    tab(page, "Summaries").click()
    expect(page.get_by_text("No summaries yet.")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_every_tab_is_for_everybody(talk: str, open_page: Open, size: dict[str, int]) -> None:
    page = open_page(f"/sessions/{talk}/?lens=saw", viewport=size)
    expect(page.locator("#call-title")).to_be_visible()
    slide(page, "Home")
    expect(word(page, 14)).to_be_attached()
    for name in ("What it saw", "Summaries", "Ledger", "Files", "Context"):
        tab(page, name).click()
        page.wait_for_load_state("networkidle")
        if name == "Summaries":
            page.locator("#tree tbody tr").first.hover()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert not axe(page), (name, scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, scheme)
