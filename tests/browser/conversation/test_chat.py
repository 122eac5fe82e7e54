"""What a person does with messages: asks again, says it differently, queues, goes to one, signs in again, uses keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_live import spoken, wait_for_end, wait_for_words, write
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
HUGE = 600
MOST = 350
"""Messages on the page, whatever the length of the session (transcript/edges.js)."""


def act(page: Page, message: str, name: str) -> None:
    """Press one of a message's buttons, as a hand that hovers."""
    place = page.locator(message)
    place.hover()
    place.get_by_role("button", name=name, exact=True).click()


def box_of(page: Page) -> str:
    return page.get_by_label("Message", exact=True).input_value()


@pytest.fixture(scope="module")
def huge_talk(portal: Portal, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An imported session of hundreds of messages; returns its id."""
    path = tmp_path_factory.mktemp("huge") / "talk.json"
    said = [{"role": ("user", "assistant")[n % 2], "content": f"message {n + 1} " + "word " * 40} for n in range(HUGE)]
    path.write_text(json.dumps({"messages": said}))
    done = portal.site.manage("import_transcript", str(path), "--user", "admin", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [report] = json.loads(done.stdout)
    [session_id] = report["sessions"].values()
    return str(session_id)


def test_what_failed_is_answered_again_beside_it(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Hello there")
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!fail 401")
    expect(page.locator(".ending")).to_contain_text("MODEL_AUTHENTICATION_FAILED")
    act(page, "#msg-4", "Answer again")
    expect(page.locator("#msg-5")).to_be_visible()
    wait_for_end(page)
    expect(page.locator("#msg-5 .versions")).to_contain_text("2/2")
    expect(page.locator(".message")).to_have_count(4)


def test_a_message_is_said_differently_with_its_file(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("First")
    page = open_page(f"/sessions/{session_id}/")
    content = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"low tide at nine"}
    page.locator("#file-picker").set_input_files(content)
    expect(page.locator(".attachment[data-state=ready]")).to_be_visible()
    write(page, "What is in it?")
    expect(page.locator(".message")).to_have_count(4)
    wait_for_end(page)
    act(page, "#msg-3", "Edit")
    expect(page.locator("#editing")).to_be_visible()
    expect(page.get_by_label("Message", exact=True)).to_have_value("What is in it?")
    expect(page.locator(".attachment[data-state=ready]")).to_contain_text("notes.txt")
    write(page, "What is at nine?")
    expect(page.locator("#msg-5 .file-chip")).to_contain_text("notes.txt")
    expect(page.locator("#editing")).to_be_hidden()
    wait_for_end(page)
    expect(page.locator(".message")).to_have_count(4)
    # Also the very first message, before which there is nothing.
    act(page, "#msg-1", "Edit")
    expect(page.get_by_label("Message", exact=True)).to_have_value("First")
    write(page, "Another beginning")
    expect(page.locator("#msg-7")).to_contain_text("Another beginning")
    wait_for_end(page)
    expect(page.locator(".message")).to_have_count(2)
    assert len(spoken(portal, session_id)) == 8


def test_a_fork_from_here_ends_with_that_message(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One", "Two")
    page = open_page(f"/sessions/{session_id}/")
    act(page, "#msg-2", "Fork from here")
    page.wait_for_url(lambda url: session_id not in url)
    expect(page.locator(".message")).to_have_count(2)


def test_messages_wait_in_the_queue_over_a_reload_and_two_tabs_send_each_once(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!slow 90 !long 200")
    wait_for_words(page, 3)
    for text in ("second", "third", "fourth"):
        write(page, text)
        expect(page.locator(".queued").last).to_contain_text(text)
    assert box_of(page) == ""
    page.locator(".queued", has_text="third").get_by_role("button", name="Delete this message").click()
    other = page.context.new_page()
    other.goto(f"/sessions/{session_id}/")
    expect(other.locator(".queued")).to_have_count(2)
    page.reload()
    expect(page.locator(".queued")).to_have_count(2)
    for tab in (page, other):
        expect(tab.locator(".message-user")).to_have_count(3)
        expect(tab.locator("#queue")).to_be_hidden()
        wait_for_end(tab)
    assert spoken(portal, session_id)[0::2] == ["!slow 90 !long 200", "second", "fourth"]


def test_a_queued_message_whose_connection_broke_without_a_word_is_sent_again_and_once(
    portal: Portal,
) -> None:
    session_id = portal.new_session()
    context = portal.context()  # of its own: a clock is the whole window's, and other tests get used windows
    page = context.new_page()
    page.clock.install()
    page.goto(f"/sessions/{session_id}/")
    write(page, "!slow 60 !long 100")
    wait_for_words(page, 3)
    write(page, "second")
    expect(page.locator(".queued")).to_have_count(1)
    lost: list[Route] = []
    page.route("**/turns", lambda route: lost.append(route))  # it reaches nobody, and nobody says so
    wait_for_end(page)
    expect(page.locator("#queue")).to_contain_text("Sending")
    page.wait_for_timeout(500)
    page.unroute("**/turns")
    page.clock.fast_forward("01:05")
    expect(page.locator(".message-user")).to_have_count(2)
    expect(page.locator("#queue")).to_be_hidden()
    assert len(lost) == 1
    wait_for_end(page)
    assert spoken(portal, session_id)[0::2] == ["!slow 60 !long 100", "second"]
    context.close()


def test_what_comes_into_the_box_while_a_message_is_on_its_way_stays(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/turns", lambda route: held.append((route, route.fetch())))  # the turn begins, and the answer is late

    def let_it_come() -> None:
        route, response = held.pop()
        with page.expect_response("**/turns"):
            route.fulfill(response=response)
        expect(page.get_by_role("button", name="Send")).to_be_visible()

    write(page, "First")
    expect(page.locator(".message")).to_have_count(2)
    wait_for_end(page)
    act(page, "#msg-1", "Edit")
    expect(page.get_by_label("Message", exact=True)).to_have_value("First")
    let_it_come()
    page.wait_for_timeout(300)
    assert box_of(page) == "First"
    page.locator("#stop-editing").click()  # nothing was being written before
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    write(page, "!slow 60 !long 60")
    wait_for_words(page, 3)
    page.keyboard.type(" and later this")
    let_it_come()
    expect(page.get_by_label("Message", exact=True)).to_have_value("and later this")
    wait_for_end(page)
    assert spoken(portal, session_id)[0::2] == ["First", "!slow 60 !long 60"]


def test_an_edit_that_begins_while_another_one_is_on_its_way_stays(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("First", "Second")
    page = open_page(f"/sessions/{session_id}/")
    page.get_by_label("Message", exact=True).fill("being written")
    act(page, "#msg-1", "Edit")
    expect(page.get_by_label("Message", exact=True)).to_have_value("First")
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/turns", lambda route: held.append((route, route.fetch())))
    write(page, "Another first")
    expect(page.locator(".message")).to_have_count(2)
    wait_for_end(page)
    act(page, ".message-user", "Edit")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Another first")
    page.locator("#stop-editing").click()
    act(page, ".message-user", "Edit")
    expect(page.locator("#editing")).to_be_visible()
    held[0][0].fulfill(response=held[0][1])
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    assert box_of(page) == "Another first"
    page.locator("#stop-editing").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("being written")


def test_send_now_stops_the_answer_and_edit_takes_it_back_into_the_box(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!slow 80 !long 400")
    wait_for_words(page, 3)
    write(page, "later")
    write(page, "never mind, this")
    page.locator(".queued", has_text="later").get_by_role("button", name="Edit this message").click()
    assert box_of(page) == "later"
    page.locator(".queued", has_text="never mind").get_by_role("button", name="Send now").click()
    expect(page.get_by_text("Stopped. The answer so far is kept.")).to_be_visible()
    expect(page.locator(".message-user").last).to_contain_text("never mind, this")
    wait_for_end(page)
    assert spoken(portal, session_id)[0::2] == ["!slow 80 !long 400", "never mind, this"]


def test_after_a_stop_the_queue_waits_for_a_word(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    write(page, "!slow 80 !long 400")
    wait_for_words(page, 3)
    write(page, "held back")
    page.keyboard.press("Escape")
    wait_for_end(page)
    expect(page.locator("#queue")).to_contain_text("nothing is sent automatically")
    page.reload()
    expect(page.locator(".queued")).to_have_count(1)
    page.get_by_role("button", name="Send now").click()
    expect(page.locator(".message")).to_have_count(4)


@pytest.fixture(scope="module")
def first_link(portal: Portal) -> str:
    """The path of Ben's first sign-in; Ann has a password already."""
    made = portal.site.manage("shell", "-v0", "-c", MAKE_PEOPLE)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.mark.smoke
def test_from_the_first_visit_to_the_first_answer(first_link: str, open_page: Open) -> None:
    # A window that no other test had: an answer to an earlier page may still set a cookie of then.
    page = open_page("/livez", user_agent="A first visit")
    page.context.clear_cookies()
    page.goto(first_link)
    page.get_by_role("button", name="Sign in as ben").click()
    page.get_by_label("New password", exact=True).fill("high-tide-at-ten")
    page.get_by_label("New password confirmation").fill("high-tide-at-ten")
    page.keyboard.press("Enter")
    expect(page.locator("#sidebar-rows")).to_contain_text("No sessions yet")
    page.get_by_label("First message").fill("Good morning")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    wait_for_end(page)
    expect(page.locator(".message-assistant [data-body]")).not_to_be_empty()


def test_a_login_that_ran_out_is_renewed_in_place_and_the_message_goes_once(first_link: str, open_page: Open) -> None:
    page = open_page("/livez")
    page.context.clear_cookies()
    page.goto("/")
    page.get_by_label("Username").fill("ann")
    page.get_by_label("Password").fill("low-tide-at-nine")
    page.keyboard.press("Enter")
    page.get_by_label("First message").fill("Hello")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    wait_for_end(page)
    box = page.get_by_label("Message", exact=True)
    box.fill("Written with care")
    page.wait_for_load_state("networkidle")  # or what is asked for now is still answered with the cookies
    page.context.clear_cookies()
    page.evaluate("htmx.trigger('#context', 'mnesis:context')")
    expect(page.locator("#connection")).to_contain_text("You are signed out")  # and the page stays
    box.press("Enter")
    dialog = page.get_by_role("dialog", name="You are signed out")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("#composer-error")).to_contain_text("Your message is kept here")
    address = page.url
    for is_signed_out in (True, False):  # by the clock, then by hand
        page.goto(address)
        page.get_by_label("Username").fill("ann")
        page.get_by_label("Password").fill("low-tide-at-nine")
        page.keyboard.press("Enter")
        expect(box).to_have_value("Written with care")
        if is_signed_out:
            page.get_by_label("Your account").click()
            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url("**/sign-in/**")
    page.context.clear_cookies()
    box.press("Enter")
    dialog.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert box.input_value() == "Written with care"
    dialog.get_by_label("Password").fill("low-tide-at-nine")
    page.keyboard.press("Enter")
    expect(page.locator(".message-user")).to_have_count(2)
    expect(dialog).to_be_hidden()
    wait_for_end(page)
    assert box.input_value() == ""
    expect(page.locator(".message")).to_have_count(4)


MAKE_PEOPLE = """
from django.contrib.auth.models import User
from mnesis_site.sign_in import sign_in_link
User.objects.create_user("ann", password="low-tide-at-nine")
print(sign_in_link(User.objects.create_user("ben")))
"""


def test_one_goes_to_a_message_by_number_id_and_date_and_back(huge_talk: str, portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{huge_talk}/?at=300")
    expect(page.locator("#msg-300")).to_be_in_viewport()
    page.keyboard.press("g")
    page.get_by_label("Number or id").fill("40")
    page.keyboard.press("Enter")
    expect(page.locator("#msg-40")).to_be_in_viewport()
    page.wait_for_url(re.compile(r"\?at=40$"))
    page.go_back()
    expect(page.locator("#msg-300")).to_be_in_viewport()
    message_id = portal.call("GET", f"/api/sessions/{huge_talk}/messages?after=456&limit=1")["items"][0]["id"]
    page.keyboard.press("g")
    page.get_by_label("Number or id").fill(message_id)
    page.keyboard.press("Enter")
    expect(page.locator("#msg-457")).to_be_in_viewport()
    page.keyboard.press("g")
    page.get_by_label("Number or id").fill("msg_nowhere")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="There is no such message")).to_be_visible()
    page.get_by_label("Or date and time").fill("1999-12-31T23:59")
    page.keyboard.press("Enter")
    expect(page.locator("#msg-1")).to_be_in_viewport()
    page.get_by_role("button", name="Newest").click()
    expect(page.locator(f"#msg-{HUGE}")).to_be_in_viewport()


def test_the_page_stays_small_while_somebody_scrolls_to_the_beginning_and_back(huge_talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{huge_talk}/")
    seen = set()
    for end in ("scrollTo(0, 0)", "scrollTo(0, document.documentElement.scrollHeight)"):
        goal = "1" if "0, 0" in end else str(HUGE)

        def arrived(end: str = end, goal: str = goal) -> bool:
            page.evaluate(end)
            seqs = page.locator(".message").evaluate_all("all => all.map(one => one.dataset.seq)")
            assert len(seqs) <= MOST
            assert seqs == [str(seq) for seq in range(int(seqs[0]), int(seqs[-1]) + 1)]
            seen.update(seqs)
            return goal in seqs

        wait_until(arrived)
    assert len(seen) == HUGE


def test_keys_do_what_the_sheet_says_and_nothing_while_somebody_writes(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("One", "Two", "Three")
    page = open_page(f"/sessions/{session_id}/", permissions=["clipboard-read", "clipboard-write"])
    page.keyboard.type("jgn?")
    assert box_of(page) == "jgn?"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard")
    expect(sheet).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.evaluate("scrollTo(0, 0)")
    for expected in ("msg-1", "msg-2", "msg-3"):
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.id") == expected
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == "msg-2"
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Copy this message"
    page.keyboard.press("y")
    last = portal.call("GET", f"/api/sessions/{session_id}/messages?after=5")["items"][0]["parts"][0]["text"]
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()") == last)
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("e")
    wait_until(lambda: page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 2"))
    toggle = page.get_by_role("button", name="Context")
    for shown in ("false", "true"):
        page.keyboard.press("c")
        expect(toggle).to_have_attribute("aria-expanded", shown)
    for key, address in (("i", f"/sessions/{session_id}/inspect/"), ("n", "/")):
        page.keyboard.press(key)
        page.wait_for_url(portal.site.url + address)
        page.go_back()
        page.wait_for_url(f"**/sessions/{session_id}/")
        page.wait_for_load_state()
        page.keyboard.press("Escape")
    page.keyboard.press("m")
    assert page.evaluate("document.activeElement.id") == "message"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    sheet.get_by_text("Use single keys on this device").click()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    expect(page.get_by_role("dialog", name="Go to a message")).to_be_hidden()


def test_a_hit_of_the_search_in_this_session_is_gone_to(huge_talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{huge_talk}/")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.get_by_label("Search words").fill('"message 123"')
    page.locator("#search-hits .hit-link", has_text=re.compile("message 123")).first.click()
    expect(page.locator("#msg-123")).to_be_in_viewport()
    page.wait_for_url(re.compile(r"\?at=123$"))


def test_the_next_turn_asks_the_model_that_was_picked(portal: Portal, open_page: Open) -> None:
    # Nobody listens there: whom the turn asked is what counts.
    where = (
        "--litellm",
        "openai/none",
        "--api-base",
        "http://127.0.0.1:9/v1",
        "--context",
        "9000",
        "--max-output",
        "900",
    )
    added = portal.site.manage("model", "add", "--alias", "second", *where)
    assert added.returncode == 0, added.stdout + added.stderr
    session_id = portal.new_session("Hello")
    page = open_page(f"/sessions/{session_id}/")
    page.get_by_label("Model for the next turn").select_option("second")
    write(page, "Who is there?")
    wait_until(lambda: len(portal.call("GET", f"/api/sessions/{session_id}/turns")["items"]) == 2)
    assert portal.call("GET", f"/api/sessions/{session_id}/turns")["items"][0]["model"] == "second"
    page.reload()
    expect(page.get_by_label("Model for the next turn")).to_have_value("second")


def test_the_outline_of_a_long_answer_leads_to_its_sections(portal: Portal, open_page: Open) -> None:
    sections = [f"## Section {number}\n\n{'The tide turns at noon. ' * 120}" for number in range(1, 6)]
    session_id = portal.new_answer("\n\n".join(sections))
    page = open_page(f"/sessions/{session_id}/")
    folded = page.locator("details.outline")
    expect(folded.locator("summary")).to_contain_text("Outline · 5")
    folded.locator("summary").focus()
    page.keyboard.press("Enter")
    folded.get_by_role("link", name="Section 4").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Section 4")).to_be_in_viewport()
    expect(page.get_by_role("heading", name="Section 2")).not_to_be_in_viewport()
    page.reload()
    expect(page.get_by_role("heading", name="Section 4")).to_be_in_viewport()
