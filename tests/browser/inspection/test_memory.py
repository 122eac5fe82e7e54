"""What was said long ago is at hand when it is asked for: a fact of January, compacted several levels deep, asked for in March."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.conversation.test_live import write
from tests.support.material.transcript_lines import exported, node

pytestmark = pytest.mark.slow
Open = Callable[..., Page]
JANUARY = datetime(2026, 1, 5, 9, 10, tzinfo=UTC).timestamp()
HOURS_APART = 5
FACT = "By the way, my dentist is Dr Weber in Nordnes street 7."
TALK = 400
"""Messages between the fact and the question, over some weeks."""


def talk() -> dict[str, Any]:
    """A conversation of ChatGPT's export that begins with a fact and then goes on about other things."""
    said = [FACT, "Noted."]
    for number in range(TALK // 2):
        said += [
            f"The ferry of day {number} carried {number * 37 % 101} crates of herring to the north quay. " * 2,
            f"Crates on day {number}: the clerk wrote them into ledger {number % 12}, and the harbour master signed. "
            * 2,
        ]
    nodes = [node("root", None)]
    for place, text in enumerate(said):
        parent = "root" if place == 0 else f"m{place - 1}"
        role = ("user", "assistant")[place % 2]
        nodes.append(node(f"m{place}", parent, role, text, create_time=JANUARY + place // 2 * HOURS_APART * 3_600))
    return exported(*nodes)


def ask(page: Page, portal: Portal, session_id: str, question: str) -> None:
    write(page, question)
    expect(page.locator(".message-user[id]").last).to_contain_text(question)
    portal.wait_until_idle(session_id)


def test_a_fact_of_january_answers_a_question_in_march_with_the_passage_it_came_from(
    portal: Portal, open_page: Open, tmp_path: Path
) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([talk()]))
    page = open_page("/import/")
    page.set_input_files("#import-files", file)
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#import-status")).to_contain_text("Imported")
    page.locator(".imported").get_by_role("link", name="A talk").click()
    page.wait_for_url(re.compile(r"/sessions/sess_"))
    session_id = page.url.rstrip("/").rpartition("/")[2]
    small = {"compaction": {"leaf_chunk_tokens": 600, "condense_fan_in": 3, "condense_min_fan_in": 2}}
    portal.call("PATCH", f"/api/sessions/{session_id}", {"config": small})
    ask(page, portal, session_id, "Good morning.")
    manifest = portal.call("GET", f"/api/sessions/{session_id}/context")["manifest"]
    [oldest, *_] = [row for row in manifest if row["kind"] == "summary"]
    assert oldest["first_seq"] == 1
    assert portal.call("GET", f"/api/summaries/{oldest['id']}")["depth"] >= 2

    ask(page, portal, session_id, "Who is my dentist, and in which street?")
    answer = page.locator(".message-assistant [data-body]").last
    expect(answer).to_contain_text("ou said in message 1:")
    expect(answer).to_contain_text("Dr Weber in Nordnes street 7")
    calls = portal.call("GET", f"/api/sessions/{session_id}/calls")["items"]
    newest = next(call for call in calls if call["purpose"] == "turn")
    page.goto(f"/sessions/{session_id}/inspect/calls/{newest['id']}/")
    expect(page.get_by_text("Rebuilt from the record and matches its digest.")).to_be_visible()
    block = page.locator(".block", has_text="Passages found")
    block.locator("summary").click()
    expect(block.locator("pre").first).to_contain_text("2026-01-05 09:10")
    expect(block.locator("pre").first).to_contain_text(f"#1 user: {FACT}")


KEY = "The key of the boathouse hangs behind the blue door."


def hold(page: Page, text: str, *buttons: str) -> None:
    """Press buttons of a fact, the last one by keyboard."""
    fact = page.locator(".fact", has_text=text)
    for name in buttons[:-1]:
        fact.locator("summary", has_text=name).click()
    fact.get_by_role("button", name=buttons[-1]).focus()
    page.keyboard.press("Enter")


def newest_call(portal: Portal, session_id: str) -> str:
    calls = portal.call("GET", f"/api/sessions/{session_id}/calls")["items"]
    return next(call["id"] for call in calls if call["purpose"] == "turn")


def test_a_fact_of_one_session_answers_in_another_until_it_is_withdrawn(portal: Portal, open_page: Open) -> None:
    first = portal.new_session(f"Good to know: {KEY}", title="At the harbour")
    message = portal.call("GET", f"/api/sessions/{first}/messages")["items"][0]["id"]
    said = {"statement": KEY, "kind": "entity", "quote": {"message_id": message, "text": KEY}}
    fact = portal.call("POST", f"/api/sessions/{first}/facts", said)["id"]
    page = open_page(f"/sessions/{first}/inspect/memory/")
    hold(page, KEY, "Hold", "For all my sessions")
    expect(page.locator(".fact", has_text=KEY)).to_contain_text("held for you")

    second = portal.new_session(title="Another day")
    page.goto(f"/sessions/{second}/")
    ask(page, portal, second, "Where does the key of the boathouse hang?")
    answer = page.locator(".message-assistant [data-body]").last
    expect(answer).to_contain_text("fact from another session says")
    expect(answer).to_contain_text("behind the blue door")
    told = newest_call(portal, second)
    page.goto(f"/sessions/{second}/inspect/memory/")
    copy = page.locator(".fact", has_text=KEY)
    expect(copy).to_contain_text("from another session")
    copy.get_by_role("link", name="At the harbour").click()
    expect(page.locator(f"#{fact}")).to_be_visible()

    page.goto("/memory/")
    expect(page.locator(".fact", has_text=KEY)).to_contain_text("Said in At the harbour")
    page.goto(f"/sessions/{first}/inspect/memory/")
    hold(page, KEY, "Withdraw", "Withdraw this fact")
    expect(page.get_by_text("No live facts.")).to_be_visible()
    page.goto("/memory/")
    expect(page.get_by_text("No held facts yet.")).to_be_visible()

    page.goto(f"/sessions/{second}/")
    ask(page, portal, second, "Good. What is for lunch?")
    portal.wait_until_idle(second)
    payload = portal.call("GET", f"/api/calls/{newest_call(portal, second)}/payload")
    assert "<facts>" not in str(payload)
    page.goto(f"/sessions/{second}/inspect/calls/{told}/")
    expect(page.get_by_text("Rebuilt from the record and matches its digest.")).to_be_visible()
    expect(page.locator(".block", has_text="Facts").first).to_be_visible()
