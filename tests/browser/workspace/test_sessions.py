"""What a user does with many sessions: finds a phrase that was compacted away, orders the list, takes one along and brings it in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def harbour(portal: Portal) -> str:
    """A session whose beginning was compacted away."""
    said = ("Remember: the harbour code is Tern-4471.", *["!long 700"] * 6)
    return portal.new_session(*said, title="Harbour works")


def test_a_phrase_that_was_compacted_away_is_found_marked_and_opened(
    harbour: str, portal: Portal, open_page: Open
) -> None:
    page = open_page("/sessions/")
    page.locator("#sessions-title").click()
    page.keyboard.press("/")
    page.keyboard.type("tern-44")
    hit = page.locator(".hit", has_text="Remember: the harbour code").first
    expect(hit.locator("mark").first).to_have_text(re.compile("Tern-44"))
    page.get_by_role("link", name="Search everything").click()
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type('"harbour code"')
    hit = page.locator(".hit", has=page.get_by_text("You", exact=True))
    expect(hit).to_contain_text("retrieved in the newest call")
    expect(page).to_have_url(re.compile(r"/search/\?q=%22harbour\+code%22$"))
    page.reload()
    page.get_by_role("searchbox").press("ArrowDown")
    expect(page.locator(".hit-link").first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("searchbox")).to_be_focused()
    hit.get_by_role("link", name="Summary that covers it").click()
    expect(page.get_by_text("Tern-4471").first).to_be_visible()
    page.go_back()
    hit.locator(".hit-link").click()
    expect(page.locator("#msg-1")).to_contain_text("harbour code is Tern-4471")
    expect(page.locator("#msg-1")).to_be_in_viewport()


@pytest.mark.parametrize("path", ["/sessions/", "/files/", "/search/?q=harbour", "/sessions/{harbour}/inspect/ledger/"])
def test_a_search_that_is_asked_again_before_its_answer_is_no_error(path: str, harbour: str, open_page: Open) -> None:
    page = open_page(path.format(harbour=harbour))
    form = page.locator("form[hx-sync]")
    form.evaluate("(form) => { for (let times = 0; times < 3; times += 1) form.requestSubmit(); }")
    with page.expect_response(lambda response: "q=wharf" in response.url):
        form.locator("[name=q]").fill("wharf")
        form.evaluate("(form) => form.requestSubmit()")
    expect(page.locator(".htmx-request")).to_have_count(0)


def test_the_menu_of_a_row_renames_labels_archives_and_forks(portal: Portal, open_page: Open) -> None:
    portal.new_session("Hello", title="Quay")
    page = open_page("/sessions/", viewport={"width": 390, "height": 800})
    row = page.locator(".session-row", has=page.get_by_role("link", name="Quay", exact=True))

    def choose(name: str) -> None:
        expect(row).not_to_have_class(re.compile("htmx-added"))  # a row that has just come does not fetch its menu yet
        row.locator("summary").press("Enter")
        row.get_by_role("button", name=name, exact=True).press("Enter")

    choose("Rename")
    page.keyboard.type("Pier")
    page.keyboard.press("Enter")
    row = page.locator(".session-row", has=page.get_by_role("link", name="Pier", exact=True))
    expect(row.locator(".session-link")).to_be_focused()
    choose("Labels…")
    dialog = page.get_by_role("dialog", name="Labels")
    dialog.get_by_label("Name").fill("stage")
    dialog.get_by_label("Value").fill("review")
    page.keyboard.press("Enter")
    row.get_by_role("link", name="stage: review").click()
    expect(page).to_have_url(re.compile(r"label=stage%3Dreview"))
    expect(page.locator(".session-row")).to_have_count(1)
    choose("Archive")
    expect(row.get_by_text("was archived.")).to_be_hidden()
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_focused()
    undo.press("Enter")
    expect(row.get_by_role("link", name="stage: review")).to_be_visible()
    choose("Fork")
    expect(page).to_have_url(re.compile(r"/sessions/sess_"))
    expect(page.get_by_label("Title of the session")).to_have_value(re.compile("Pier"))
    page.get_by_label("More about this session").click()
    page.get_by_role("button", name="Archive this session").click()
    page.get_by_role("button", name="Unarchive it").click()
    expect(page.get_by_label("Message", exact=True)).to_be_editable()


def test_the_list_says_by_itself_what_a_session_does(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_session("Hello", title="Beacon")
    page = open_page("/sessions/")
    row = page.locator(f"#{session_id}")
    expect(row.locator(".session-facts")).to_contain_text("2 messages")
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "!fail 401"})
    expect(row.get_by_text("failed")).to_be_visible(timeout=15_000)
    expect(row.locator(".session-facts")).to_contain_text("4 messages")


def test_an_exported_page_asks_nobody_for_anything_and_a_session_comes_in_again(
    harbour: str, portal: Portal, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(f"/sessions/{harbour}/")
    page.get_by_label("More about this session").click()
    for name, ending in (("HTML", ".html"), ("JSONL", ".jsonl"), ("Markdown", ".md")):
        with page.expect_download() as download:
            page.get_by_role("link", name=name, exact=True).click()
        download.value.save_as(tmp_path / f"harbour{ending}")
    assert "# Harbour works" in (tmp_path / "harbour.md").read_text()
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    other = open_page("/import/")
    other.goto("about:blank")
    other.on("request", note)
    address = (tmp_path / "harbour.html").as_uri()
    other.goto(address)
    expect(other.get_by_text("harbour code is Tern-4471").first).to_be_visible()
    expect(other.get_by_role("heading", name="Compaction").first).to_be_visible()
    assert asked == [address]
    other.goto(f"{portal.site.url}/import/")
    chat = {"messages": [{"role": "user", "content": "A pelican."}, {"role": "assistant", "content": "Indeed."}]}
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    (tmp_path / "bad.jsonl").write_bytes((tmp_path / "harbour.jsonl").read_bytes()[:-40])
    for name, told in (
        ("harbour.jsonl", "1 note"),
        ("bad.jsonl", re.compile(r"Line \d+: it is not JSON, or was cut off")),
        ("chat.json", "A pelican."),
    ):
        other.set_input_files("#import-files", tmp_path / name)
        other.get_by_role("button", name="Import").click()
        expect(other.locator("#import-status")).to_contain_text(name)
        expect(other.locator("#import-status")).to_contain_text(told)
    other.get_by_role("link", name="A pelican.").click()
    expect(other.locator("#msg-2")).to_contain_text("Indeed.")
