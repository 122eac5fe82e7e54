"""Takes the pictures of docs/tour.md again, from a new site with the demo model: ``python -m tests.support.documents.tour``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, Portal, find_chromium
from tests.support.sites.site import running_site, wait_until_ready
from tests.support.waiting import PATIENCE_SECONDS

PICTURES = Path(__file__).resolve().parents[3] / "static" / "img" / "tour"
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
OTHERS = (
    *("Minutes of the planning meeting", "Recipe for onion soup", "Why the build is slow on Mondays"),
    *("Letter to the landlord", "Names for a sailing boat", "What a context window is"),
)
TITLE = "Four days in the Pyrenees"
SAID = (
    *("Remember: the budget is 600 euros.", "!long 700", "!long 700", "!long 700", "!long 700"),
    *("Remember: Ana does not eat fish.", "!long 700", "!long 700", "What is the budget?", "Who does not eat fish?"),
)


def main() -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as directory, site(Path(directory)) as portal:
        take(portal, "new", "/")
        for title in OTHERS:
            portal.new_session("What can you do?", title=title)
        portal.call("POST", "/api/projects", {"name": "Summer walk"})
        session_id = portal.new_session(*SAID, title=TITLE)
        path, inspected = f"/sessions/{session_id}/", f"/sessions/{session_id}/inspect/"
        [*_, oldest] = portal.call("GET", f"/api/sessions/{session_id}/summaries")["items"]
        take(portal, "chat", path, before=show_end)
        take(portal, "german", path, before=show_end, locale="de-DE")
        take(portal, "saw", f"{path}?lens=saw", before=show_end)
        take(portal, "saw-dark", f"{path}?lens=saw", before=show_end, color_scheme="dark")
        take(portal, "summaries", f"{inspected}summaries/?id={oldest['id']}")
        take(portal, "ledger", f"{inspected}ledger/", before=verify)
        take(portal, "observe", "/observe/")
        take_phones(portal, path)
        take(portal, "compare", path, before=compare)


@contextmanager
def site(directory: Path) -> Iterator[Portal]:
    """A new site, with an administrator signed in and a second model."""
    with (
        running_site(directory, is_prepared=False) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE_SECONDS) as client,
        sync_playwright() as playwright,
    ):
        wait_until_ready(running)
        running.sign_in(client)
        client.get("/")
        sizes = ("--context", "8000", "--max-output", "1000")
        running.manage("model", "add", "--alias", "demo-large", "--litellm", "demo/chat", *sizes)
        browser: Browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield Portal(site=running, client=client, browser=browser)
        browser.close()


def take(
    portal: Portal, name: str, path: str, *, before: Callable[[Page], object] = lambda page: None, **options: Any
) -> None:
    """Write the picture of a page."""
    save(Image.open(BytesIO(picture(portal, path, before, viewport=DESKTOP, **options))), name)


def save(image: Image.Image, name: str) -> None:
    """Write a picture with at most 256 colours, which takes a third of the bytes."""
    few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(PICTURES / f"{name}.png", optimize=True)


def take_phones(portal: Portal, path: str) -> None:
    """Write one picture of three phones side by side."""
    shots = (
        picture(portal, path, lambda page: page.locator("#sidebar-toggle").click(), viewport=PHONE, has_touch=True),
        picture(portal, path, show_end, viewport=PHONE, has_touch=True),
        picture(portal, f"{path}?lens=saw", viewport=PHONE, has_touch=True, color_scheme="dark"),
    )
    sheet = Image.new("RGB", (DESKTOP["width"], DESKTOP["height"]), "#e0e1db")
    for place, shot in enumerate(shots):
        sheet.paste(Image.open(BytesIO(shot)), (27 + place * 418, 8))
    save(sheet, "phone")


def picture(portal: Portal, path: str, before: Callable[[Page], object] = lambda page: None, **options: Any) -> bytes:
    """Return a page as PNG."""
    window = portal.context(**options)
    page = window.new_page()
    page.goto(path, wait_until="networkidle")
    before(page)
    page.wait_for_timeout(1_000)
    shot = page.screenshot()
    window.close()
    return shot


def show_end(page: Page) -> None:
    """Scroll to the newest message."""
    page.evaluate("scrollTo(0, document.body.scrollHeight)")


def verify(page: Page) -> None:
    """Have the ledger verified."""
    page.locator("main button", has_text="Verify").first.click()
    page.get_by_text("No differences found").wait_for()


def compare(page: Page) -> None:
    """Have the other model answer the newest question, and open both answers."""
    answer = page.locator("article.message-assistant").last
    answer.hover()
    answer.get_by_role("button", name="Compare with another model").click()
    dialog = page.get_by_role("dialog", name="Compare with another model")
    dialog.get_by_role("radio", name=re.compile("^demo-large ")).check()
    dialog.get_by_role("button", name="Ask and compare").click()
    other = page.get_by_role("article", name="demo-large", exact=True)
    other.locator(".message .prose:not(.live)").wait_for()


if __name__ == "__main__":
    main()
