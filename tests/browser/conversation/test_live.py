"""A turn as a person watches it: streamed, reloaded, in two tabs, without a network, stopped, failed."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
SLOW = "!slow 60 !long 100"


def write(page: Page, text: str) -> None:
    """Type a message and press Enter."""
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answer(page: Page) -> str:
    """What the newest answer says, without its head."""
    return " ".join(page.locator(".message-assistant [data-body]").last.inner_text().split())


def wait_for_words(page: Page, count: int) -> None:
    """Wait until the running answer has so many words on the page."""
    # Not wait_for_function: it evaluates text inside the page, which the page's policy forbids.
    script = "count => (document.querySelector('.live')?.textContent.split(' ').length ?? 0) > count"
    wait_until(lambda: page.evaluate(script, count))


def wait_for_end(page: Page) -> None:
    """Wait until the turn is over and the page shows what the record says."""
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.locator(".message[data-running]")).to_have_count(0)
    expect(page.locator(".live")).to_have_count(0)


def spoken(portal: Portal, session_id: str) -> list[str]:
    """What the record says was said, message by message, without the marks of Markdown."""
    items = portal.call("GET", f"/api/sessions/{session_id}/messages")["items"]
    texts = [" ".join(part["text"] for part in item["parts"] if part["type"] == "text") for item in items]
    return [" ".join(text.replace("*", "").split()) for text in texts]


def test_an_answer_streams_word_by_word_and_ends_as_the_record_has_it(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, SLOW)
    wait_for_words(page, 5)
    early = answer(page)
    assert page.get_by_role("button", name="Stop").is_visible()
    wait_for_words(page, 20)
    assert answer(page).startswith(early)
    assert len(answer(page)) > len(early)
    page.locator(".live").hover()
    page.mouse.down()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    page.wait_for_timeout(800)  # in which the message would be drawn anew under the pointer
    expect(page.locator(".live")).to_have_count(1)
    page.mouse.up()
    wait_for_end(page)
    assert answer(page) == spoken(portal, session_id)[-1]
    assert page.get_by_label("Message", exact=True).input_value() == ""
    assert page.locator(".message").count() == 2


def test_a_first_message_on_the_list_page_makes_a_session_and_its_title(portal: Portal, open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("First message").fill("What is a lighthouse for?")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    wait_for_end(page)
    expect(page.get_by_label("Title of the session")).to_have_value("What is a lighthouse for?")
    expect(page.locator(".message")).to_have_count(2)


def test_what_is_selected_in_a_running_answer_stays_selected_when_it_ends(portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    write(page, "!slow 40 Show me some markdown")
    expect(page.locator(".live figure")).to_be_visible()
    page.evaluate("""() => {
      const [first] = document.querySelectorAll(".live p");
      const list = document.querySelector(".live li");
      getSelection().setBaseAndExtent(first.firstChild, 2, list, list.childNodes.length);
    }""")
    selected = page.evaluate("getSelection().toString()")
    assert len(selected) > 50
    wait_for_end(page)
    assert page.evaluate("getSelection().toString()").split() == selected.split()


def test_a_reload_in_the_middle_loses_and_doubles_nothing(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, SLOW)
    wait_for_words(page, 10)
    before = answer(page)
    page.reload()
    wait_for_words(page, 12)
    assert answer(page).startswith(before)
    wait_for_end(page)
    assert answer(page) == spoken(portal, session_id)[-1]
    assert page.locator(".message").count() == 2


def test_a_second_tab_that_comes_later_shows_the_same(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    first = open_page(f"/sessions/{session_id}/")
    write(first, SLOW)
    wait_for_words(first, 8)
    second = open_page(f"/sessions/{session_id}/")
    wait_for_words(second, 8)
    expect(second.get_by_role("button", name="Stop")).to_be_visible()
    wait_for_end(first)
    wait_for_end(second)
    assert answer(first) == answer(second) == spoken(portal, session_id)[-1]
    assert first.locator(".message").count() == second.locator(".message").count() == 2


def test_a_tab_without_a_network_says_so_and_catches_up(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, SLOW)
    wait_for_words(page, 5)
    page.context.set_offline(True)
    expect(page.get_by_text("Reconnecting")).to_be_visible()
    portal.wait_until_idle(session_id)
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "Said while that tab was away"})
    portal.wait_until_idle(session_id)
    page.context.set_offline(False)
    expect(page.get_by_text("Said while that tab was away", exact=True)).to_be_visible()
    wait_for_end(page)
    expect(page.get_by_text("Reconnecting")).to_be_hidden()
    expect(page.locator(".message")).to_have_count(4)
    assert answer(page) == spoken(portal, session_id)[-1]
    shown = [" ".join(text.split()) for text in page.locator(".message [data-body]").all_inner_texts()]
    assert shown == spoken(portal, session_id)


def test_a_socket_that_drops_in_the_middle_is_opened_again_from_the_last_event(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page("/")
    # The page's own socket, so that the test can cut it.
    page.add_init_script(
        "const Real = WebSocket; window.sockets = [];"
        "window.WebSocket = class extends Real { constructor(url) { super(url); sockets.push(this); } }"
    )
    page.goto(f"/sessions/{session_id}/")
    write(page, SLOW)
    seen = []
    for words in (5, 15, 25):
        wait_for_words(page, words)
        seen.append(answer(page))
        page.evaluate("sockets.at(-1).close()")
    wait_for_words(page, 35)
    seen.append(answer(page))
    wait_for_end(page)
    assert [early for early in seen if not answer(page).startswith(early)] == []
    assert page.evaluate("sockets.length") >= 4
    assert int(page.evaluate("new URL(sockets.at(-1).url).searchParams.get('after')")) > 0
    assert answer(page) == spoken(portal, session_id)[-1]
    assert page.locator(".message").count() == 2


def test_escape_stops_the_answer_and_keeps_what_was_said(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!slow 80 !long 400")
    wait_for_words(page, 6)
    page.keyboard.press("Escape")
    wait_for_end(page)
    expect(page.get_by_text("Stopped. The answer so far is kept.")).to_be_visible()
    assert len(answer(page)) > 20
    assert answer(page) == spoken(portal, session_id)[-1]
    expect(page.locator("#state-badge")).to_have_text("cancelled")
    write(page, "And now?")
    expect(page.locator(".message")).to_have_count(4)


def test_the_stop_button_does_the_same(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!slow 250 Show me some markdown")
    expect(page.locator(".live li strong")).to_have_text("bold")  # drawn while it is said
    moves = "getComputedStyle(document.querySelector('#state-badge .pulse')).animationName"
    assert page.evaluate(moves) == "none"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moves) == "pulse"
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Stop").click()
    wait_for_end(page)
    expect(page.get_by_text("Stopped. The answer so far is kept.")).to_be_visible()


def test_a_failing_model_is_explained_and_the_session_goes_on(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    for command, code in (("401", "MODEL_AUTHENTICATION_FAILED"), ("empty", "MODEL_REPLY_INCOMPLETE")):
        write(page, f"!fail {command}")
        expect(page.locator(".ending").last).to_contain_text(code)
        wait_for_end(page)
    write(page, "!fail cut !long 50")
    expect(page.locator(".ending")).to_have_count(3)
    wait_for_end(page)
    assert len(answer(page)) > 40
    write(page, "Are you there again?")
    expect(page.locator(".message")).to_have_count(8)
    wait_for_end(page)
    expect(page.locator("#state-badge")).to_be_empty()


def test_reasoning_and_a_tool_call_are_shown_as_what_they_are(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, '!think !tool calculator {"expression": "6 * 7"}')
    card = page.locator("details.tool").first
    expect(card).to_contain_text("calculator")
    wait_for_end(page)
    card.locator("summary").click()
    expect(card).to_contain_text("42")
    expect(page.locator("details.reasoning").first).to_be_visible()
    expect(page.locator("details.reasoning .fold-body").first).to_be_hidden()


def test_what_is_sent_to_a_session_that_was_busy_waits_in_the_queue(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    # As a tab that has not heard of the other one's turn yet.
    page.route(re.compile(r"/turns$"), lambda route: (portal_turn(portal, session_id), route.continue_()))
    write(page, "Typed with care")
    expect(page.locator(".queued")).to_contain_text("Typed with care")
    page.unroute_all()
    page.get_by_role("button", name="Send now").click()
    expect(page.locator(".message-user .prose", has_text="Typed with care")).to_be_visible()
    wait_for_end(page)
    assert spoken(portal, session_id).count("Typed with care") == 1


def portal_turn(portal: Portal, session_id: str) -> None:
    """Another person is faster."""
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "!slow 100 !long 300"})


def test_a_lost_answer_is_sent_again_once_and_a_draft_survives_a_reload(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")

    def arrive_but_lose_the_answer(route: object) -> None:
        route.fetch()  # type: ignore[attr-defined]
        route.abort()  # type: ignore[attr-defined]

    page.route(re.compile(r"/turns$"), arrive_but_lose_the_answer)
    write(page, "Only once, please")
    expect(page.get_by_role("alert")).to_contain_text("did not answer")
    page.unroute_all()
    page.reload()
    box = page.get_by_label("Message", exact=True)
    expect(box).to_have_value("Only once, please")
    wait_for_end(page)
    box.press("Enter")
    expect(box).to_have_value("")
    assert spoken(portal, session_id).count("Only once, please") == 1
    expect(page.locator(".message-user")).to_have_count(1)
