"""The summaries of a session as a user looks through them: drawn, walked by keys, followed down to the original words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from compaction_app.inspector.summaries import STALE
from tests.browser.conftest import Portal

Open = Callable[..., Page]
MESSAGES = 160
PHRASE = "the lamp of the north quay is green"
PAINTED = """() => {
  const { width, height } = document.getElementById("dag-canvas");
  const { data } = document.getElementById("dag-canvas").getContext("2d").getImageData(0, 0, width, height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join(", "));
  const inks = [...document.querySelectorAll("#dag [data-ink]")];
  return inks.filter((ink) => seen.has(getComputedStyle(ink).color.slice(4, -1))).map((ink) => ink.dataset.ink);
}"""


def compact_talk(portal: Portal, folder: Path, **compaction: Any) -> str:
    """A long imported session that was compacted; returns its id. Each folder's is another one: a repeated import adds nothing."""
    path = folder / "talk.json"
    messages = [
        {
            "role": ("user", "assistant")[number % 2],
            "content": f"message {number + 1}, {PHRASE} {folder.name} " + "word " * 90,
        }
        for number in range(MESSAGES)
    ]
    path.write_text(json.dumps({"messages": messages}))
    done = portal.site.manage("import_transcript", str(path), "--user", "admin", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [report] = json.loads(done.stdout)
    [session_id] = report["sessions"].values()
    config = {"context_window": 8_000, "compaction": compaction, "budget": {"target_fraction": 0.05}}
    portal.call("PATCH", f"/api/sessions/{session_id}", {"config": config})
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    return str(session_id)


@pytest.fixture(scope="module")
def compacted(portal: Portal, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """Such a session and its summaries."""
    session_id = compact_talk(
        portal, tmp_path_factory.mktemp("talk"), leaf_chunk_tokens=3_000, condense_fan_in=4, condense_min_fan_in=2
    )
    summaries = portal.call("GET", f"/api/sessions/{session_id}/summaries")["items"]
    assert any(summary["kind"] == "condensed" for summary in summaries)
    return session_id, summaries


def opened(open_page: Open, session_id: str, query: str = "") -> Page:
    page = open_page(f"/sessions/{session_id}/inspect/summaries/{query}")
    page.locator("[data-drawn]").wait_for()
    return page


def painted(page: Page) -> set[str]:
    """The marks of the legend whose colours are in the drawing."""
    return set(page.evaluate(PAINTED))


def test_from_the_whole_drawing_to_the_original_words(
    portal: Portal, open_page: Open, compacted: tuple[str, list[dict[str, Any]]]
) -> None:
    session_id, summaries = compacted
    page = opened(open_page, session_id)
    drawing, detail = page.get_by_role("application"), page.get_by_label("The chosen summary")
    drawing.focus()
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"[?&]from="))
    page.keyboard.press("0")
    expect(page.locator("#dag-range")).to_have_text(f"Messages 1–{MESSAGES} of {MESSAGES}")
    drawing.click(position={"x": 60, "y": 39})  # the first of the deepest row
    expect(detail.get_by_role("heading", level=2)).to_contain_text("Condensed summary of messages 1–")
    page.mouse.wheel(0, -300)
    expect(page.locator("#dag-range")).not_to_have_text(f"Messages 1–{MESSAGES} of {MESSAGES}")
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.keyboard.press("ArrowRight")
    expect(detail.get_by_role("heading", level=2)).to_contain_text("Condensed summary of messages")
    while not page.locator("#dag-said").inner_text().startswith("Leaf"):
        page.keyboard.press("ArrowDown")
    leaf = next(summary for summary in summaries if summary["kind"] == "leaf")
    expect(detail.get_by_role("heading", level=2)).to_have_text(f"Leaf summary of messages 1–{leaf['last_seq']}")
    expect(detail.get_by_role("navigation", name="Summaries that cover it").get_by_role("link")).not_to_have_count(0)
    page.wait_for_url(re.compile(rf"[?&]id={leaf['id']}"))
    page.keyboard.press("ArrowDown")
    expect(detail.get_by_role("heading", level=2)).to_have_text("Message 1, user")
    expect(detail).to_contain_text(f"message 1, {PHRASE}")
    detail.get_by_role("link", name="In the conversation").click()
    expect(page.locator("#msg-1")).to_contain_text(PHRASE)
    expect(page.locator("#msg-1")).to_contain_text("no longer sent as written")


def test_what_is_chosen_stays_when_the_page_is_loaded_again_or_shown_as_a_table(
    open_page: Open, compacted: tuple[str, list[dict[str, Any]]]
) -> None:
    session_id, summaries = compacted
    top = max(summaries, key=lambda summary: summary["depth"])
    page = opened(open_page, session_id, f"?id={top['id']}")
    detail = page.get_by_label("The chosen summary")
    expect(detail.locator(f'[data-summary="{top["id"]}"]')).to_be_visible()
    before = painted(page)
    assert before >= {"level-1", "active", "chosen"}
    assert not before & {"level-3", "stale"}

    def worsen(route: Route) -> None:
        values = route.fetch().json()
        cut, stale = (values["id"].index(id) for id in top["source_ids"][:2])
        values["level"][cut], values["marks"][stale] = 3, values["marks"][stale] | STALE
        route.fulfill(json=values)

    page.route("**/drawing.json", worsen)
    page.reload()
    page.locator("[data-drawn]").wait_for()
    expect(detail.locator(f'[data-summary="{top["id"]}"]')).to_be_visible()
    assert painted(page) >= {"level-1", "level-3", "active", "stale"}
    page.get_by_role("link", name="Table", exact=True).click()
    row = page.locator(f'tr[data-id="{top["id"]}"]')
    expect(row).to_have_attribute("aria-selected", "true")
    page.wait_for_load_state()  # with its scripts, which the keys are for
    page.locator("tr[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("tr[aria-level='2']")).not_to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    first = next(summary for summary in summaries if summary["id"] == top["source_ids"][0])
    expect(detail.locator(f'[data-summary="{first["id"]}"]')).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("tr[aria-level='2']:visible")).to_have_count(0)
    page.reload()  # what stands above it is opened
    expect(page.locator(f'tr[data-id="{first["id"]}"]')).to_have_attribute("aria-selected", "true")


def test_a_divider_opens_the_summary_beside_its_originals(
    open_page: Open, compacted: tuple[str, list[dict[str, Any]]]
) -> None:
    session_id, _ = compacted
    page = open_page(f"/sessions/{session_id}/")
    divider = page.locator(".divider").first
    divider.locator("> summary").click()
    inner = divider.locator(".divider-body > details > summary")
    if inner.count():
        inner.first.click()
    summary = divider.locator(".summary").first
    summary.locator(".source .fold > summary").first.click()
    expect(summary.locator(".source .fold-body").first).to_contain_text(PHRASE)
    expect(summary.get_by_role("heading", name="What the model reads")).to_be_visible()


def test_what_is_summarised_meanwhile_is_drawn_and_what_is_chosen_and_seen_stays(
    portal: Portal, open_page: Open
) -> None:
    said = [f"Question {number}: " + "what does the harbour log say? " * 40 for number in range(3)]
    session_id = portal.new_session(*said)
    page = open_page(f"/sessions/{session_id}/inspect/summaries/")
    expect(page.get_by_text("No summaries yet.")).to_be_visible()

    def compact() -> None:
        portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})

    compact()
    page.locator("[data-drawn]").wait_for()
    counts, said_last = page.locator("#dag-counts"), page.locator("#dag-said")
    expect(counts).to_contain_text("1 in place")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    title = page.get_by_label("The chosen summary").get_by_role("heading", level=2)
    expect(title).to_contain_text("Leaf summary of messages 1–")
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"[?&]from="))
    shown, chosen = page.locator("#dag-range").inner_text(), title.inner_text()
    table = open_page(f"/sessions/{session_id}/inspect/summaries/?view=table")
    expect(table.locator("#tree tr[data-id]")).to_have_count(1)
    for question in said:
        portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": question})
        portal.wait_until_idle(session_id)
    compact()
    expect(counts).not_to_contain_text("1 in place")
    expect(said_last).to_contain_text("more summar")
    expect(page.locator("#dag-range")).to_contain_text(shown.split(" of ")[0])
    expect(title).to_have_text(chosen)
    table.get_by_role("button", name="Show them").click()
    expect(table.locator("#tree tr[data-id]")).not_to_have_count(1)


def test_an_excerpt_is_made_again_by_a_model_applied_and_restored(
    portal: Portal, open_page: Open, tmp_path: Path
) -> None:
    gone = ("--litellm", "openai/gone", "--api-base", "http://127.0.0.1:9/v1", "--context", "8000")
    assert portal.site.manage("model", "add", "--alias", "gone", *gone).returncode == 0
    session_id = compact_talk(portal, tmp_path, model="gone")
    excerpt = portal.call("GET", f"/api/sessions/{session_id}/summaries")["items"][0]
    assert excerpt["level"] == 3
    portal.call("PATCH", f"/api/sessions/{session_id}", {"config": {"context_window": 8_000}})
    here = f"/sessions/{session_id}/inspect/summaries/"
    page = open_page(f"{here}{excerpt['id']}/")
    page.get_by_label("Model", exact=True).select_option("demo")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="What changes")).to_be_visible()
    page.get_by_role("button", name="Apply").click()
    revisions = page.get_by_role("navigation", name="Revisions").get_by_role("listitem")
    expect(revisions).to_have_count(2)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("The text is the same as before.")).to_be_visible()
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    page.go_back()
    page.get_by_role("button", name="Restore the previous text").click()
    expect(revisions).to_have_count(3)
    newest = portal.call("GET", f"/api/summaries/{page.url.rstrip('/').rpartition('/')[2]}")
    assert newest["text"] == excerpt["text"]
    # It is revised elsewhere while the page is open: what happened is said, and nothing is done.
    portal.call("POST", f"/api/summaries/{newest['id']}/undo", {})
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#repair-error")).to_contain_text("SUMMARY_REVISED")
    expect(page.get_by_role("button", name="Preview")).to_be_enabled()
