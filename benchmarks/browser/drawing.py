"""The drawing of summaries in Chromium, with a few and with ten thousand: time to the first drawing and per zoom step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from benchmarks.browser.pages import ARGUMENTS, chromium, cookies_of
from tests.support.sites.site import Site, running_site, wait_until_ready

LEAVES = {100: 90, 10_000: 9_000}
"""By the summaries in all, about."""
ROUNDS, STEPS = 5, 20
MAKE = """
from django.contrib.auth.models import User
from tests.support.record.inspected import add_session
from tests.support.record.many_summaries import add_many_summaries
id = add_session(User.objects.get())
print(len(add_many_summaries(id, leaves={leaves})), id)
"""
# From a key press to the end of the frame painted for it.
STEP = """(key) => new Promise((done) => {
  const began = performance.now(), channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now() - began);
  document.getElementById("dag-view").dispatchEvent(new KeyboardEvent("keydown", { key }));
  requestAnimationFrame(() => channel.port2.postMessage(0));
})"""
DRAWN = "performance.getEntriesByName('dag-drawn')[0].startTime"
SENT = "performance.getEntriesByType('resource').find(({ name }) => name.endsWith('drawing.json')).transferSize"


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    with TemporaryDirectory() as folder, running_site(Path(folder)) as site, sync_playwright() as playwright:
        wait_until_ready(site)
        cookies = cookies_of(site)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        return [_row(site, browser, cookies, leaves) for leaves in LEAVES.values()]


def _row(site: Site, browser: Browser, cookies: list[Any], leaves: int) -> tuple[str, ...]:
    made = site.manage("shell", "-c", MAKE.format(leaves=leaves))
    count, session_id = made.stdout.split()[-2:]
    address = f"{site.url}/sessions/{session_id}/inspect/summaries/"
    looks = [list(_look(browser, cookies, address)) for _ in range(ROUNDS)]
    drawn, sent, step, slowest = (median(column) for column in zip(*looks, strict=True))
    return f"{int(count):,}", f"{sent / 1000:.0f}", f"{drawn:.0f}", f"{step:.0f}", f"{slowest:.0f}"


def _look(browser: Browser, cookies: list[Any], address: str) -> Iterator[float]:
    context = browser.new_context()
    context.add_cookies(cookies)
    page = context.new_page()
    page.goto(address)
    page.locator("[data-drawn]").wait_for()
    yield page.evaluate(DRAWN)
    yield page.evaluate(SENT)
    steps = [page.evaluate(STEP, key) for key in "+" * STEPS + "0" + "-" * STEPS]
    yield median(steps)
    yield max(steps)
    context.close()
