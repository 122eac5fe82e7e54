"""The ledger in a browser: found, opened, verified with progress, tampered with, and verified again."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.support.sites.site import DATABASE
from tests.support.waiting import PATIENCE_SECONDS

Open = Callable[..., Page]
RUNNING = """
    INSERT INTO verifications (session_id, state, asked_at, started_at, worker, lease_expires_at, entries_total, entries_done,
        duration_ms, seq, head_hash, entries, commitments, problem_count, problems, is_unbound, is_moved)
    VALUES (?, 'running', '2026-01-01', '2026-01-01', 'a test', '2999-01-01', 1000, 250, 0, 0, '', 0, 0, 0, '[]', 0, 0)"""


def execute(portal: Portal, *statements: tuple[str, tuple[object, ...]]) -> None:
    """Write to the site's database as the owner of the file could."""
    with closing(sqlite3.connect(portal.site.directory / DATABASE, timeout=PATIENCE_SECONDS)) as database, database:
        for sql, values in statements:
            database.execute(sql, values)


@contextmanager
def unguarded(portal: Portal, table: str) -> Iterator[None]:
    """Remove the triggers of a table for the length of the block."""
    with closing(sqlite3.connect(portal.site.directory / DATABASE, timeout=PATIENCE_SECONDS)) as database:
        found = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
        triggers = database.execute(found, (table,)).fetchall()
    execute(portal, *((f"DROP TRIGGER {name}", ()) for name, _ in triggers))
    yield
    execute(portal, *((sql, ()) for _, sql in triggers))


@pytest.fixture(scope="module")
def session_id(portal: Portal) -> str:
    return portal.new_session("What about the tides?", "And the wind?", title="Harbour")


def rows(page: Page) -> object:
    return page.locator(".ledger-rows tbody tr")


def test_entries_are_found_by_type_actor_and_id_and_opened(portal: Portal, session_id: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{session_id}/inspect/ledger/")
    all_of_them = rows(page).count()
    page.get_by_label("Type").select_option("message.created")
    expect(rows(page)).to_have_count(4)
    expect(page).to_have_url(re.compile("type=message.created"))
    page.get_by_label("Actor").select_option("person")
    expect(rows(page)).to_have_count(2)
    page.reload()
    expect(rows(page)).to_have_count(2)
    page.locator(".ledger-rows a").first.focus()
    page.keyboard.press("Enter")
    entry = page.locator("#entry")
    expect(entry).to_contain_text("chain and hash match")
    expect(entry.locator(".chip", has_text="matches")).not_to_have_count(0)
    expect(page.locator("tr[aria-current]")).to_have_count(1)
    entry.get_by_role("link", name="Close").click()
    expect(entry).to_have_count(0)
    page.goto(f"/sessions/{session_id}/inspect/ledger/")
    page.get_by_label("Id or hash").fill("turn_0")
    expect(page.locator(".ledger-rows")).not_to_contain_text("session.created")
    page.get_by_label("Id or hash").fill("nowhere")
    expect(page.get_by_text("No matching entries")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(rows(page)).to_have_count(all_of_them)


def test_ids_and_hashes_are_copied_whole(session_id: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{session_id}/inspect/ledger/", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy this id").first.click()
    expect(page.get_by_role("button", name="Copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == session_id
    expect(page.get_by_role("button", name="Copied")).to_have_count(0)
    page.get_by_role("button", name="Copy the hash", exact=True).first.click()
    expect(page.get_by_role("button", name="Copied")).to_have_count(1)
    assert re.fullmatch("[0-9a-f]{64}", page.evaluate("navigator.clipboard.readText()"))


def test_a_session_is_verified_with_progress_and_what_was_changed_is_named(
    portal: Portal, session_id: str, open_page: Open
) -> None:
    execute(portal, (RUNNING, (session_id,)))
    page = open_page(f"/sessions/{session_id}/inspect/ledger/", viewport={"width": 390, "height": 900})
    expect(page.locator("#verification-progress")).to_have_attribute("value", "250")
    expect(page.get_by_text("250 of 1,000 entries")).to_be_visible()
    execute(portal, ("UPDATE verifications SET entries_done = 750 WHERE session_id = ?", (session_id,)))
    expect(page.locator("#verification-progress")).to_have_attribute("value", "750")
    execute(portal, ("UPDATE verifications SET state = 'failed' WHERE session_id = ?", (session_id,)))
    expect(page.get_by_text("The last verification failed.")).to_be_visible()

    page.get_by_role("button", name="Verify").focus()
    page.keyboard.press("Enter")
    result = page.locator("#verification-result")
    expect(result).to_contain_text("No differences found")
    page.get_by_text("Save the head hash").click()
    expect(page.get_by_text("nothing up to it has been changed")).to_be_visible()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")

    part = "SELECT id FROM message_parts WHERE session_id = ? AND part_type = 'text' ORDER BY id LIMIT 1"
    with unguarded(portal, "message_parts"):
        execute(portal, (f"UPDATE message_parts SET content = 'f' || content WHERE id = ({part})", (session_id,)))
    page.get_by_role("button", name="Verify again").click()
    expect(result).to_contain_text("1 problem: this record is not as it was written.")
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    result.locator(".problems a").click()
    expect(page.locator("#entry")).to_contain_text("differs")
    page.goto(f"/sessions/{session_id}/inspect/health/")
    expect(page.get_by_text("Problems found by the last verification: 1.")).to_be_visible()

    with unguarded(portal, "message_parts"):
        execute(portal, (f"UPDATE message_parts SET content = substr(content, 2) WHERE id = ({part})", (session_id,)))
    page.goto(f"/sessions/{session_id}/inspect/ledger/")
    page.get_by_role("button", name="Verify again").click()
    expect(result).to_contain_text("No differences found")


def test_staff_read_how_the_site_is(portal: Portal, open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("Your account").click()
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_role("heading", name="Site health")).to_be_visible()
    expect(page.locator(".check", has_text="Guards of the record")).to_contain_text("good")
    expect(page.locator(".check", has_text="Workers").first).to_contain_text("the cluster reports")
