"""Switching between two sessions in Chromium: from the click on the sidebar's link to the first paint of the other page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.browser.pages import ARGUMENTS, chromium, cookies_of, session_of
from tests.support.people.tab import Tab, open_tab
from tests.support.sites.site import Site, running_site, wait_until_ready

ROUNDS = 12
REST_SECONDS = 0.5
"""For so long the pointer rests on the link before it is pressed; Chromium begins to prepare a page after 0.2."""
PRESS_SECONDS = 0.08
"""For so long the button is down, as by a hand. The click is its release."""
SETTLE_SECONDS = 1.5
FORGET = "document.querySelector('script[type=speculationrules]').remove()"
NOW = "performance.timeOrigin + performance.now()"
PAINTED = "performance.timeOrigin + performance.getEntriesByName('first-contentful-paint')[0].startTime"
PLACE = """(() => {
  const { x, y, height } = document.querySelector('.sidebar a[href="/sessions/%s/"]').getBoundingClientRect();
  return [x + 20, y + height / 2];
})()"""


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    with TemporaryDirectory() as folder, running_site(Path(folder)) as site:
        wait_until_ready(site)
        sessions = session_of(site, 40), session_of(site, 41)
        with open_tab([str(chromium()), *ARGUMENTS], _cookies(site)) as tab:
            tab.visit(f"{site.url}/sessions/{sessions[0]}/", 2 * SETTLE_SECONDS)
            times = list(zip(*_rounds(tab, sessions), strict=True))
    usual, pressed, rested = (median(column) for column in times)
    return [(f"{usual:.0f}", f"{pressed:.0f}", f"{rested:.0f}", f"{pressed / usual:.2f}", f"{rested / usual:.2f}")]


def _cookies(site: Site) -> list[dict[str, Any]]:
    return [dict(cookie) for cookie in cookies_of(site)]


def _rounds(tab: Tab, sessions: tuple[str, str]) -> Iterator[tuple[float, float, float]]:
    # An odd number of switches a round, so that each way leads to both sessions in turn.
    for number in range(ROUNDS):
        to, back = sessions[1 - number % 2], sessions[number % 2]
        tab.run(FORGET)
        yield _switch(tab, to, 0), _switch(tab, back, 0), _switch(tab, to, REST_SECONDS)


def _switch(tab: Tab, session_id: str, rest_seconds: float) -> float:
    """Return the milliseconds from releasing the button to the first paint."""
    tab.move(900, 400)
    place = tab.run(PLACE % session_id)
    tab.move(*place)
    time.sleep(rest_seconds)
    tab.press(*place)
    time.sleep(PRESS_SECONDS)
    began: float = tab.run(NOW)
    tab.release(*place)
    tab.wait(SETTLE_SECONDS)
    assert tab.run("location.pathname") == f"/sessions/{session_id}/"
    painted: float = tab.run(PAINTED)
    return painted - began
