"""The pages as people use them: small screens, dark colours, the keyboard alone, long lists and long talks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
PHONE = {"viewport": {"width": 360, "height": 740}}
LONG_TALK = 140
COLOURS = """(divider) => {
  const [words, probe] = [divider.querySelector("strong"), divider.appendChild(document.createElement("i"))];
  probe.style.color = "var(--warning)";
  const [usual, warning] = [getComputedStyle(words).color, getComputedStyle(probe).color];
  divider.classList.add("divider-level3");
  const atLevel3 = getComputedStyle(words).color;
  divider.classList.remove("divider-level3");
  probe.remove();
  return [usual, warning, atLevel3];
}"""
"""Of a divider: as it is, of warnings, and as it would be if its summary were cut by rule."""
SUM_SHIFTS = """window.shifts = 0;
new PerformanceObserver((list) => {
  for (const { value } of list.getEntries()) shifts += value;
}).observe({ type: "layout-shift", buffered: true });"""
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> [x](javascript:alert(1)) " + "w" * 300


@pytest.fixture(scope="module")
def long_talk(portal: Portal, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An imported session of many messages; returns its id."""
    path = tmp_path_factory.mktemp("talk") / "talk.json"
    roles = ("user", "assistant")
    messages = [
        {"role": roles[number % 2], "content": f"message {number + 1} " + "word " * 60} for number in range(LONG_TALK)
    ]
    path.write_text(json.dumps({"messages": messages}))
    done = portal.site.manage("import_transcript", str(path), "--user", "admin", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [report] = json.loads(done.stdout)
    [session_id] = report["sessions"].values()
    return str(session_id)


def has_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def colour_of_page(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_no_page_scrolls_sideways_on_a_small_phone(portal: Portal, open_page: Open) -> None:
    tool_call = '!tool calculator {"expression": "1 + 1"}'
    session_id = portal.new_session(HOSTILE, tool_call, "!fail 500", "```\n" + "x" * 300 + "\n```", title="w" * 200)
    page = open_page("/", **PHONE)
    for path in (
        "/",
        "/sessions/",
        f"/sessions/{session_id}/",
        "/tools/",
        "/files/",
        "/sessions/sess_nowhere/",
        "/password/",
    ):
        page.goto(path)
        page.emulate_media(color_scheme="light")
        assert not has_sideways_scroll(page), path
        page.emulate_media(color_scheme="dark")
        assert not has_sideways_scroll(page), path
    page.goto(f"/sessions/{session_id}/")
    page.get_by_role("button", name="Context").click()
    expect(page.get_by_role("heading", name="Context")).to_be_visible()
    page.locator("details.tool summary").first.click()
    assert not has_sideways_scroll(page)


def test_dark_follows_the_system_until_somebody_chooses_and_then_the_choice(portal: Portal, open_page: Open) -> None:
    page = open_page("/", color_scheme="dark")
    dark = colour_of_page(page)
    toggle = page.get_by_role("button", name="Dark colours")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    toggle.click()
    expect(toggle).to_have_attribute("aria-pressed", "false")
    light = colour_of_page(page)
    assert light != dark
    page.reload()
    assert colour_of_page(page) == light
    page.emulate_media(color_scheme="light")
    assert colour_of_page(page) == light
    toggle.click()
    assert colour_of_page(page) == dark


def test_the_keyboard_alone_is_enough(portal: Portal, open_page: Open) -> None:
    page = open_page("/")
    page.keyboard.type("Typed blind")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("in two lines")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    expect(page.locator(".message-assistant .prose")).to_be_visible()
    page.keyboard.type("And a second one")
    page.keyboard.press("Enter")
    expect(page.locator(".message")).to_have_count(4)
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "message"
    title = page.get_by_label("Title of the session")
    title.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("Renamed by hand")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Renamed by hand · Mnesis")
    title.focus()
    page.keyboard.type("no, not this")
    page.keyboard.press("Escape")
    expect(title).to_have_value("Renamed by hand")
    page.reload()
    expect(title).to_have_value("Renamed by hand")


def test_everything_that_can_be_pressed_has_a_name_and_a_visible_focus(portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{portal.new_session('Hello')}/")
    page.keyboard.press("Tab")
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, summary, input:not([type=hidden]), textarea, select')].filter(element =>"
        " !element.textContent.trim() && !element.ariaLabel && !element.labels?.length).map(element => element.outerHTML)"
    )
    assert nameless == []
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('textarea, body')"):
            continue
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_older_messages_come_while_scrolling_up_and_the_reader_stays_in_place(long_talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{long_talk}/")
    expect(page.locator(".message")).to_have_count(50)
    assert page.evaluate("scrollY + innerHeight > document.documentElement.scrollHeight - 100")
    first = f"#msg-{LONG_TALK - 49}"
    page.evaluate("selector => document.querySelector(selector).scrollIntoView()", first)
    wait_until(lambda: page.locator(".message").count() == 100)
    assert abs(page.evaluate("selector => document.querySelector(selector).getBoundingClientRect().top", first)) < 200
    page.evaluate("scrollTo(0, 0)")
    wait_until(lambda: page.locator(".message").count() == LONG_TALK)
    seqs = page.locator(".message").evaluate_all("messages => messages.map(message => Number(message.dataset.seq))")
    assert seqs == list(range(1, LONG_TALK + 1))


def test_a_link_to_an_old_message_opens_there_and_the_newest_is_one_step_away(long_talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{long_talk}/?around=40#msg-40")
    expect(page.locator("#msg-40")).to_be_in_viewport()
    page.get_by_role("button", name="Newest").click()
    expect(page.locator(f"#msg-{LONG_TALK}")).to_be_in_viewport()


def test_new_text_does_not_move_somebody_who_reads_further_up(long_talk: str, portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{long_talk}/")
    page.evaluate("selector => document.querySelector(selector).scrollIntoView()", f"#msg-{LONG_TALK - 20}")
    before = page.evaluate("scrollY")
    portal.call("POST", f"/api/sessions/{long_talk}/turns", {"message": "!long 80 Said further down"})
    portal.wait_until_idle(long_talk)
    expect(page.get_by_text("Said further down", exact=False).first).to_be_attached()
    expect(page.locator(".message[data-running]")).to_have_count(0)
    assert abs(page.evaluate("scrollY") - before) < 2
    expect(page.get_by_role("button", name="Newest")).to_be_visible()


def test_who_reads_the_end_stays_there_while_the_box_grows_over_it(long_talk: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{long_talk}/")
    distance = "document.documentElement.scrollHeight - scrollY - innerHeight"
    wait_until(lambda: page.evaluate(distance) < 2)
    page.get_by_label("Message", exact=True).fill("line\n" * 12)
    wait_until(lambda: page.evaluate(distance) < 2)
    expect(page.get_by_role("button", name="Newest")).to_be_hidden()


def test_the_way_to_the_newest_message_moves_nothing_as_it_shows_and_hides(long_talk: str, open_page: Open) -> None:
    """Otherwise a click that begins while it hides ends on something else."""
    page = open_page(f"/sessions/{long_talk}/")
    button = page.get_by_role("button", name="Newest")
    expect(button).to_be_hidden()
    height = page.locator(".dock").bounding_box()["height"]
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -400)
    expect(button).to_be_in_viewport()
    assert page.locator(".dock").bounding_box()["height"] == height
    button.click()
    expect(button).to_be_hidden()


def test_what_is_new_waits_for_the_end_of_a_press(portal: Portal, open_page: Open) -> None:
    """A press ends where it began only if nothing on the page moves meanwhile."""
    session_id = portal.new_session(*(f"!long 500 Tell me of keeper {number}" for number in range(3)))
    page = open_page(f"/sessions/{session_id}/")
    expect(page.locator(".message")).to_have_count(6)
    page.mouse.move(600, 300)
    page.mouse.down()
    with (
        page.expect_response(lambda answer: "/messages/?after=" in answer.url),
        page.expect_response(lambda answer: "/compactions/" in answer.url),
    ):
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "And now?"})
        portal.wait_until_idle(session_id)
        portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    page.wait_for_timeout(500)
    assert (page.locator(".message").count(), page.locator(".divider").count()) == (6, 0)
    page.mouse.up()
    expect(page.locator(".message")).to_have_count(8)
    expect(page.locator("details.divider", has_text="Compacted")).to_be_visible()


def test_a_search_narrows_the_list_while_typing_and_more_rows_come_on_request(portal: Portal, open_page: Open) -> None:
    for number in range(55):
        portal.call("POST", "/api/sessions", {"model": "demo", "title": f"Row {number:02}"})
    page = open_page("/sessions/")
    expect(page.locator(".session-row")).to_have_count(50)
    page.get_by_role("button", name="Load more").click()
    wait_until(lambda: page.locator(".session-row").count() > 55)
    page.get_by_label("Search titles").fill("row 07")
    expect(page.locator(".session-row")).to_have_count(1)
    assert page.url.endswith("/sessions/?q=row+07")
    page.reload()
    expect(page.locator(".session-row")).to_have_count(1)
    page.get_by_label("Archived").check()
    expect(page.get_by_text("No title contains")).to_be_visible()


def test_archiving_closes_the_composer_in_every_tab(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Hello")
    page, other = open_page(f"/sessions/{session_id}/"), open_page(f"/sessions/{session_id}/")
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Archive this session").click()
    for tab in (page, other):
        expect(tab.get_by_text("accepts no more messages")).to_be_visible()
        expect(tab.get_by_label("Message", exact=True)).to_have_count(0)


def test_a_compaction_in_the_worker_shows_its_divider_and_the_summary_opens(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/")
    for number in range(12):
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": f"!long 500 Tell me of keeper {number}"})
        portal.wait_until_idle(session_id)
        if portal.call("GET", f"/api/sessions/{session_id}/compactions")["items"]:
            break
    divider = page.locator("details.divider").first
    expect(divider).to_contain_text("Compacted")
    expect(divider).to_contain_text(re.compile(r"→ .* tokens"))
    expect(divider).to_have_attribute("data-measured", re.compile(r"\d"))
    usual, warning, at_level_3 = divider.evaluate(COLOURS)
    assert usual != warning == at_level_3
    divider.locator("summary").first.click()
    if (leaf := divider.get_by_text("Leaf summary of messages 1–")).count():  # It wrote several summaries.
        leaf.click()
    expect(divider.locator(".summary-text").first).not_to_be_empty()
    divider.get_by_role("link", name=re.compile(r"Messages \d+–\d+")).first.click()
    expect(page.locator("#msg-1")).to_be_in_viewport()
    page.reload()
    expect(page.locator("details.divider").first).to_be_visible()


def test_a_message_and_a_block_of_code_are_copied_as_they_were_written(portal: Portal, open_page: Open) -> None:
    text = "**Look:**\n\n```py\nx = 1\n```"
    page = open_page(f"/sessions/{portal.new_session(text)}/", permissions=["clipboard-read", "clipboard-write"])
    question = page.locator(".message-user")
    question.get_by_role("button", name="Copy this message").click()
    expect(question.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == text
    question.locator("figure").hover()
    question.get_by_role("button", name="Copy this code").click()
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()") == "x = 1\n")


def test_a_part_that_is_refreshed_by_the_clock_stays_while_it_is_pressed(open_page: Open) -> None:
    page = open_page("/health/")
    part = page.locator("[hx-trigger^=every]")
    part.evaluate("part => part.firstElementChild.id = 'pressed'")
    refresh = "part => htmx.ajax('GET', location.href, { source: part, target: part, select: '#' + part.id })"
    part.hover()
    page.mouse.down()
    part.evaluate(refresh)
    expect(page.locator("#pressed")).to_be_attached()
    page.mouse.up()
    part.evaluate(refresh)
    expect(page.locator("#pressed")).to_have_count(0)


def test_a_page_that_is_not_there_looks_like_the_others(open_page: Open) -> None:
    page = open_page("/sessions/sess_nowhere/")
    expect(page.get_by_role("link", name="Mnesis", exact=True)).to_be_visible()


def test_no_page_asks_another_host_for_anything(portal: Portal, open_page: Open) -> None:
    hosts: set[str] = set()
    page = open_page("/")
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(f"/sessions/{portal.new_session('![x](https://tracker.example/x.png)')}/")
    page.wait_for_load_state("networkidle")
    assert hosts == {portal.site.url.split("/")[2]}


def test_the_browser_libraries_are_named_with_version_and_licence() -> None:
    vendor = Path(__file__).resolve().parents[3] / "static" / "vendor"
    listed = (vendor / "README.md").read_text()
    version = re.search(r'version:"([\d.]+)"', (vendor / "htmx" / "htmx.min.js").read_text())
    assert version
    assert version[1] in listed
    assert (vendor / "htmx" / "LICENSE").is_file()


def test_the_first_page_of_a_visit_comes_in_few_requests(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Where is the key?")
    page = open_page("about:blank")
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    addresses: dict[str, str] = {}
    sizes: dict[str, int] = {}
    network.on("Network.requestWillBeSent", lambda sent: addresses.update({sent["requestId"]: sent["request"]["url"]}))
    network.on("Network.loadingFinished", lambda end: sizes.update({end["requestId"]: end["encodedDataLength"]}))
    page.goto(f"{portal.site.url}/sessions/{session_id}/", wait_until="networkidle")
    # What is cached has size 0, and the font has come with its style sheet.
    asked = [size for id, size in sizes.items() if size and not addresses[id].startswith("data:")]
    assert len(asked) <= 12
    assert sum(asked) <= 150_000


@pytest.mark.parametrize(("width", "lens"), [(390, ""), (1280, ""), (1280, "?lens=saw")])
def test_nothing_moves_when_the_scripts_come_after_the_first_paint(
    width: int, lens: str, portal: Portal, open_page: Open
) -> None:
    session_id = portal.new_answer("**Tides**\n\n```py\nprint(9)\n```\n\n" * 3)
    page = open_page("about:blank", viewport={"width": width, "height": 844})
    page.add_init_script(SUM_SHIFTS)

    def hold(route: Route) -> None:
        page.wait_for_timeout(300)
        route.continue_()

    page.route("**/site.js", hold)
    page.goto(f"{portal.site.url}/sessions/{session_id}/{lens}", wait_until="networkidle")
    expect(page.locator(".code-tools")).to_have_count(3)
    assert page.evaluate("shifts") <= 0.02


@pytest.mark.parametrize("place", ["", "?at=70"])
def test_a_session_opens_at_its_place_before_its_scripts_have_come(
    place: str, long_talk: str, portal: Portal, open_page: Open
) -> None:
    page = open_page("about:blank")
    page.add_init_script(
        "document.addEventListener('readystatechange', () => setTimeout(() => { window.first ??= scrollY; }));"
    )

    def hold(route: Route) -> None:
        page.wait_for_timeout(600)
        route.continue_()

    page.route("**/site.js", hold)
    page.goto(f"{portal.site.url}/sessions/{long_talk}/{place}", wait_until="networkidle")
    first, then = page.evaluate("[window.first, scrollY]")
    assert then > 1_000
    assert abs(first - then) < 0.1 * then  # a font that comes meanwhile wraps lines otherwise
