"""The session page in Chromium, at three lengths: loading times, bytes transferred, and elements on the page.

Each page is opened several times, each time in a new window with an empty cache. The table shows the medians.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.sites.site import Site, manage, running_site, wait_until_ready

SIZES = (10, 1_000, 100_000)
ROUNDS = 5
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
ANSWER = "!slow 20 !long 60"
# For each websocket frame: from its arrival to the end of the next painted frame.
WATCH_SOCKET = """
const Real = WebSocket; window.waits = [];
window.WebSocket = class extends Real {
  constructor(url) {
    super(url);
    this.addEventListener("message", ({ data }) => {
      if (!data.includes('"delta"')) return;
      const came = performance.now(), channel = new MessageChannel();
      channel.port1.onmessage = () => waits.push(performance.now() - came);
      requestAnimationFrame(() => channel.port2.postMessage(0));
    });
  }
};
"""
NUMBERS = """() => ({
  answered: performance.getEntriesByType("navigation")[0].responseStart,
  painted: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  ready: performance.getEntriesByName("mnesis-interactive")[0].startTime,
  elements: document.querySelectorAll("*").length,
})"""


class Opened(NamedTuple):
    """One load of a page: milliseconds since the request, bytes, elements."""

    answered: float
    painted: float
    ready: float
    document: int
    everything: int
    elements: int


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    with TemporaryDirectory() as folder, running_site(Path(folder)) as site, sync_playwright() as playwright:
        wait_until_ready(site)
        cookies = cookies_of(site)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        return [row for size in SIZES for row in _rows(site, browser, cookies, size)]


def cookies_of(site: Site) -> list[Any]:
    """Sign in with the site's first sign-in link, and return the cookies."""
    with httpx.Client(base_url=site.url, timeout=60) as client:
        site.sign_in(client)
        return [{"name": name, "value": value, "url": site.url} for name, value in client.cookies.items()]


def _rows(site: Site, browser: Browser, cookies: list[Any], size: int) -> Iterator[tuple[str, ...]]:
    path = f"/sessions/{session_of(site, size)}/"
    for name, place in (("newest", path), ("in the middle", f"{path}?at={size // 2}")):
        looks = [_look(browser, cookies, site.url + place) for _ in range(ROUNDS)]
        middle = Opened(*(median(column) for column in zip(*looks, strict=True)))
        times = (f"{value:.0f}" for value in (middle.answered, middle.painted, middle.ready))
        sizes = (f"{value / 1000:.0f}" for value in (middle.document, middle.everything))
        # In a longer session the turn would first wait for compactions, which "conversations" measures.
        is_short = size == SIZES[0] and name == "newest"
        live = f"{_socket_to_pixels(browser, cookies, site.url + path):.0f}" if is_short else ""
        yield f"{size:,}", name, *times, *sizes, f"{middle.elements:.0f}", live


def _look(browser: Browser, cookies: list[Any], address: str) -> Opened:
    context = browser.new_context()
    context.add_cookies(cookies)
    page = context.new_page()
    received: dict[str, int] = {}
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.loadingFinished", lambda end: received.update({end["requestId"]: end["encodedDataLength"]}))
    page.goto(address, wait_until="networkidle")
    numbers = page.evaluate(NUMBERS)
    document = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
    context.close()
    return Opened(**numbers, document=document, everything=sum(received.values()))


def _socket_to_pixels(browser: Browser, cookies: list[Any], address: str) -> float:
    context = browser.new_context()
    context.add_cookies(cookies)
    page = context.new_page()
    page.add_init_script(WATCH_SOCKET)
    page.goto(address)
    page.get_by_label("Message", exact=True).fill(ANSWER)
    page.keyboard.press("Enter")
    waits = _waits(page)
    context.close()
    return median(waits)


def _waits(page: Page) -> list[float]:
    page.locator(".live").wait_for()
    page.locator("#stop").wait_for(state="hidden", timeout=120_000)
    waits: list[float] = page.evaluate("waits")
    return waits


def session_of(site: Site, size: int) -> str:
    """Return a session of so many messages, in the import format."""
    said = [{"role": ("user", "assistant")[n % 2], "content": _text(n)} for n in range(size)]
    path = site.directory / f"{size}.json"
    path.write_text(json.dumps({"messages": said}))
    done = manage(
        "import_transcript", str(path), "--user", "admin", "--json", environment=site.environment, seconds=3_600
    )
    [found] = re.findall(r'"(sess_[0-9A-Z]+)"', done.stdout)
    return str(found)


def _text(number: int) -> str:
    words = " ".join(("tide", "harbour", "keeper", "lamp", "salt")[(number + place) % 5] for place in range(60))
    code = f"\n\n```py\ndef f{number}(x):\n    return x + {number}\n```\n" if number % 14 == 1 else ""
    return f"**Message {number + 1}.** {words}{code}"


def chromium() -> str:
    """Return the path of Chromium, which this benchmark needs."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("no Chromium: install one (apt-get install chromium)")
    return found
