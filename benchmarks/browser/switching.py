"""Switching between two sessions in Chromium: from the press on the sidebar's link to the first paint of the other page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

from benchmarks.browser.pages import ARGUMENTS, chromium, cookies_of, session_of
from tests.support.site import running_site, wait_until_ready

ROUNDS = 12
REST_MS = 500
"""For so long the pointer rests on the link before it is pressed; Chromium begins to fetch after 200 ms."""
FORGET = "document.querySelector('script[type=speculationrules]').remove()"
NOW = "performance.timeOrigin + performance.now()"
PAINTED = "performance.timeOrigin + performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    with TemporaryDirectory() as folder, running_site(Path(folder)) as site, sync_playwright() as playwright:
        wait_until_ready(site)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        context = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
        context.add_cookies(cookies_of(site))
        sessions = session_of(site, 40), session_of(site, 41)
        page = context.new_page()
        page.goto(f"/sessions/{sessions[0]}/", wait_until="networkidle")
        times = list(zip(*_rounds(page, sessions), strict=True))
        usual, pressed, rested = (median(column) for column in times)
    return [(f"{usual:.0f}", f"{pressed:.0f}", f"{rested:.0f}", f"{pressed / usual:.2f}", f"{rested / usual:.2f}")]


def _rounds(page: Page, sessions: tuple[str, str]) -> Iterator[tuple[float, float, float]]:
    # An odd number of switches a round, so that each way leads to both sessions in turn.
    for number in range(ROUNDS):
        to, back = sessions[1 - number % 2], sessions[number % 2]
        page.evaluate(FORGET)
        yield _switch(page, to, 0), _switch(page, back, 0), _switch(page, to, REST_MS)


def _switch(page: Page, session_id: str, rest_ms: int) -> float:
    """Return the milliseconds from pressing the button to the first paint; it is released 80 ms later, as by a hand."""
    page.mouse.move(0, 0)
    page.locator(f'.sidebar a[href="/sessions/{session_id}/"]').hover()
    page.wait_for_timeout(rest_ms)
    began: float = page.evaluate(NOW)
    page.mouse.down()
    page.wait_for_timeout(80)
    page.mouse.up()
    page.wait_for_url(f"**/sessions/{session_id}/", wait_until="networkidle")
    painted: float = page.evaluate(PAINTED)
    return painted - began
