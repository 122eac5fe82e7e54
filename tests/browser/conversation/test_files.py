"""Files as a user gives and reads them: chosen, dropped, sent with a message, opened, searched."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe
from tests.support.material.drawings import drawing

Open = Callable[..., Page]
LOG_LINES = 120_000
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  for (const type of ["dragenter", "dragover"]) document.body.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: data }));
  window.sawZone = !document.getElementById("drop-zone").hidden;
  document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
}"""

PASTE = """([name, text]) => {
  const clipboardData = new DataTransfer();
  clipboardData.items.add(new File([text], name));
  document.getElementById("message").dispatchEvent(new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData }));
}"""
HOSTILE_NAME = "<b>bill \u202egpj.exe " + "w" * 150 + ".py"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of about nine megabytes: more than one piece of an upload."""
    path = tmp_path_factory.mktemp("files") / "gauge.log"
    lines = (
        f"2026-03-01 10:{n // 60 % 60:02}:{n % 60:02} INFO gauge number {n} reads {n % 97} cm today\n"
        for n in range(LOG_LINES)
    )
    path.write_text("".join(lines) + "2026-03-02 00:00:00 ERROR the needle fell off\n" + "x" * 2_000_000)
    return path


def test_files_are_attached_by_picker_and_by_drop_sent_and_shown_with_the_message(
    portal: Portal, open_page: Open, log: Path
) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    page.get_by_label("Message", exact=True).fill("What do the gauges say?")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").press("Enter")
    chooser.value.set_files(str(log))
    chip = page.locator(".attachment", has_text="gauge.log")
    expect(chip).to_contain_text("MB")
    expect(chip).to_contain_text("ready · log")
    assert chip.locator("progress").evaluate("bar => bar.value") == 1
    page.evaluate(DROP, ["tide.py", "def tide():\n    return 'high'\n"])
    assert page.evaluate("window.sawZone")
    expect(page.locator(".attachment", has_text="tide.py")).to_contain_text("ready · python")
    page.reload()
    expect(page.locator(".attachment")).to_have_count(2)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".attachment")).to_have_count(0)
    question = page.locator(".message-user")
    expect(question.locator(".file-chip")).to_have_count(2)
    expect(page.locator(".message-assistant .prose")).to_be_visible()
    question.get_by_role("link", name="gauge.log").click()
    expect(page.get_by_role("heading", name="gauge.log")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("link", name="Message 1")).to_be_visible()
    page.wait_for_load_state()  # with its scripts, which make room for every line
    find_the_needle(page)


def test_pictures_are_shown_where_they_were_given_in_a_viewer_and_by_themselves(
    portal: Portal, open_page: Open, tmp_path: Path
) -> None:
    (tmp_path / "tide.png").write_bytes(drawing(1600, 900))
    (tmp_path / "small.jpg").write_bytes(drawing(60, 40, kind="JPEG"))
    (tmp_path / "not.png").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    page = open_page(f"/sessions/{portal.new_session()}/")
    page.get_by_label("Message", exact=True).fill("What do they show?")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").press("Enter")
    chooser.value.set_files([str(tmp_path / name) for name in ("tide.png", "small.jpg", "not.png")])
    expect(page.locator(".attachment-state", has_text="ready")).to_have_count(3)
    page.get_by_role("button", name="Send").click()
    question = page.locator(".message-user")
    # Said as soon as the answer is there, without a reload.
    expect(question.get_by_text("Only its description was sent to demo")).to_have_count(2)
    expect(question.locator(".file-chip")).to_have_count(3)
    pictures = question.locator(".picture img")
    expect(pictures).to_have_count(2)
    for place, name, width in ((0, "tide.png", 1600), (1, "small.jpg", 60)):
        picture = question.get_by_role("img", name=name)
        picture.evaluate("picture => picture.scrollIntoView()")  # the message may just be drawn anew, with its end
        expect(picture).to_have_js_property("naturalWidth", width)
        assert pictures.nth(place).evaluate("picture => picture.getBoundingClientRect().width <= innerWidth")
    question.get_by_role("link", name="tide.png").first.press("Enter")
    viewer = page.get_by_role("dialog", name="tide.png")
    expect(viewer.get_by_role("img", name="tide.png")).to_be_in_viewport(ratio=1)
    expect(viewer.get_by_role("button", name="Previous picture")).to_be_disabled()
    assert axe(page) == []
    question.evaluate("message => message.replaceWith(message.cloneNode(true))")  # as when it is drawn anew
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("dialog", name="small.jpg").get_by_role("img")).to_have_js_property("naturalWidth", 60)
    page.get_by_role("button", name="Previous picture").click()
    with page.expect_popup() as opened:
        viewer.get_by_role("link", name="Open by itself").click()
    expect(opened.value.locator("img")).to_have_js_property("naturalWidth", 1600)
    page.keyboard.press("Escape")
    expect(viewer).to_have_count(0)
    expect(question.get_by_role("link", name="tide.png").first).to_be_focused()


def find_the_needle(page: Page) -> None:
    """Search a file for its last line, and go round the hits."""
    viewer = page.get_by_role("region", name="Lines of gauge.log")
    assert viewer.evaluate("box => box.scrollHeight > 2_000_000")
    assert page.locator(".line").count() < 3_000
    page.get_by_label("Search this file").fill("THE NEEDLE")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"1 of 1 hit: line {LOG_LINES + 1}")).to_be_visible()
    expect(page.locator(".line-hit")).to_be_in_viewport()
    expect(page.locator(".line-hit")).to_contain_text("the needle fell off")
    page.get_by_label("Search this file").fill('"number 7777 "')
    page.keyboard.press("Enter")
    expect(page.locator(".line-hit")).to_contain_text("number 7777 reads")
    expect(page.locator(".line-hit")).to_be_in_viewport()
    viewer.focus()
    page.keyboard.press("End")
    expect(page.locator(f'[data-line="{LOG_LINES + 2}"]')).to_be_in_viewport()


def test_an_upload_goes_on_after_a_lost_connection_and_can_be_given_up(
    portal: Portal, open_page: Open, log: Path
) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    sent: list[int] = []

    def once_broken(route: Route) -> None:
        if route.request.method == "PATCH":
            sent.append(int(route.request.headers["upload-offset"]))
        if len(sent) == 2:
            sent.append(-1)
            route.abort()
        else:
            route.continue_()

    page.route(re.compile("/api/uploads/"), once_broken)
    page.locator("#file-picker").set_input_files(str(log))
    chip = page.locator(".attachment")
    expect(chip).to_contain_text("resumes automatically")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    expect(chip).to_contain_text("ready")
    assert sent[0] == 0
    assert sent[-1] == sent[1] == 8 * 1024 * 1024
    page.get_by_role("button", name="Remove gauge.log").click()
    expect(chip).to_have_count(0)
    assert page.evaluate("document.activeElement.id") == "attach"


def test_a_file_that_is_refused_says_why_and_holds_the_message_back(portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    refusal = {
        "error": {"code": "FILE_QUOTA_EXCEEDED", "message": "Your files would take more than you may keep here."}
    }
    page.route("**/api/uploads", lambda route: route.fulfill(status=413, json=refusal))
    page.get_by_label("Message", exact=True).fill("Read this")
    page.evaluate(DROP, ["big.bin", "x"])
    expect(page.locator(".attachment")).to_contain_text("Your files would take more than you may keep here.")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    page.unroute("**/api/uploads")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".attachment")).to_contain_text("ready")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_pasted_file_with_a_hostile_name_is_shown_and_fits_a_small_phone(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session()
    page = open_page(f"/sessions/{session_id}/", viewport={"width": 360, "height": 740})
    page.evaluate(PASTE, [HOSTILE_NAME, "x = 1  # \u202e\n" * 300 + "y" * 3_000])
    chip = page.locator(".attachment")
    expect(chip).to_contain_text("ready · python")
    expect(chip).to_contain_text("<b>bill ⟨U+202E⟩gpj.exe")
    page.get_by_label("Message", exact=True).fill("Read this")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".message-user .file-chip")).to_contain_text("⟨U+202E⟩")
    for path in (f"/sessions/{session_id}/", f"/files/?session={session_id}"):
        page.goto(path)
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), path
    page.get_by_role("link", name="gpj.exe").click()
    expect(page.locator(".line").first).to_contain_text("x = 1  # ⟨U+202E⟩")
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_a_new_session_is_opened_for_files_with_what_was_written(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("First message").fill("Read what I attach")
    page.get_by_role("button", name="Open the session to attach files").click()
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    expect(page.get_by_label("Message", exact=True)).to_have_value("Read what I attach")
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    expect(page.locator(".message")).to_have_count(0)
    page.goto("/")
    expect(page.get_by_label("First message")).to_have_value("")
