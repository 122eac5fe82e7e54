"""API keys in a browser: made, copied, used and revoked."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe

Open = Callable[..., Page]


def test_a_key_is_made_copied_used_and_revoked(portal: Portal, open_page: Open) -> None:
    page = open_page("/keys/", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Name", exact=True).fill("Harbour bell")
    page.get_by_label("Name", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Your new key")).to_be_focused()
    page.get_by_role("button", name="Copy this key").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    key = page.evaluate("navigator.clipboard.readText()")
    assert axe(page) == []

    def status() -> int:
        return httpx.get(f"{portal.site.url}/api/sessions", headers={"Authorization": f"Bearer {key}"}).status_code

    assert status() == 200
    page.reload()
    expect(page.get_by_role("heading", name="Your new key")).to_have_count(0)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Revoke Harbour bell").click()
    expect(page.get_by_text("is revoked and no longer works.")).to_be_visible()
    assert status() == 401
