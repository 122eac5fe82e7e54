"""A real browser on a real site: ``manage.py up`` and Chromium, started once for this directory."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from tests.browser.trap import Trap, set_trap
from tests.support.sites.site import Site, running_site, wait_until, wait_until_ready
from tests.support.waiting import PATIENCE_SECONDS

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
ON_PURPOSE = (
    *("the server responded with a status of 4", "Response Status Error Code 4"),
    *("net::ERR_INTERNET_DISCONNECTED", "net::ERR_FAILED", "htmx:sendError", "htmx:afterRequest", "htmx:sendAbort"),
)
"""What Chromium and htmx write to the console about refusals, broken networks and refreshes that give way to a person's
request, which tests make on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portal:
    """A site with a user signed in: as a browser, and as a program on the same session cookie."""

    site: Site
    client: httpx.Client
    browser: Browser

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the REST endpoint."""
        headers = {"X-CSRFToken": self.client.cookies["csrftoken"], "Referer": self.site.url}
        answer = self.client.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def new_session(self, *messages: str, title: str = "") -> str:
        """A session in which these messages were sent and answered, one after the other."""
        session_id: str = self.call("POST", "/api/sessions", {"model": "demo", "title": title})["id"]
        for message in messages:
            self.call("POST", f"/api/sessions/{session_id}/turns", {"message": message})
            self.wait_until_idle(session_id)
        return session_id

    def new_answer(self, text: str) -> str:
        """The id of a session in which a model is said to have answered this."""
        session_id = self.new_session()
        self.call("POST", f"/api/sessions/{session_id}/record", {"user": "Draw it", "assistant": text})
        return session_id

    def wait_until_idle(self, session_id: str) -> None:
        wait_until(lambda: self.call("GET", f"/api/sessions/{session_id}")["state"] != "running")

    def context(self, **options: Any) -> BrowserContext:
        """A browser window with the same cookies."""
        # What moves is drawn sixty times a second, here without a graphics card.
        context = self.browser.new_context(base_url=self.site.url, **{"reduced_motion": "reduce"} | options)
        context.set_default_timeout(60_000)
        self.sign_in(context)
        return context

    def sign_in(self, context: BrowserContext) -> None:
        """Give a browser window these cookies, and no others."""
        context.clear_cookies()
        context.add_cookies(
            [{"name": name, "value": value, "url": self.site.url} for name, value in self.client.cookies.items()]
        )


class Windows:
    """Windows that tests have one after the other, since a new one costs several times what a page in one does."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._idle: dict[str, list[BrowserContext]] = defaultdict(list)
        self._taken: list[tuple[str, BrowserContext]] = []

    def take(self, **options: Any) -> BrowserContext:
        """A window that nobody else has at the moment, as good as new."""
        kind = repr(options)
        context = self._idle[kind].pop() if self._idle[kind] else self._new(**options)
        self._taken.append((kind, context))
        return context

    def give_back(self) -> None:
        """Leave nothing in the windows that were taken for the next test."""
        for kind, context in self._taken:
            kept, *pages = context.pages
            for page in pages:
                page.close()
            context.unroute_all()
            context.set_offline(False)
            session = context.new_cdp_session(kept)
            session.send("Storage.clearDataForOrigin", {"origin": self._portal.site.url, "storageTypes": "all"})
            session.detach()
            self._portal.sign_in(context)
            self._idle[kind].append(context)
        self._taken.clear()

    def close(self) -> None:
        """Close them all."""
        for context in chain.from_iterable(self._idle.values()):
            context.close()

    def _new(self, **options: Any) -> BrowserContext:
        context = self._portal.context(**options)
        context.new_page()  # without any page a window closes
        return context


def find_chromium() -> str:
    """Return the path of an installed Chromium; empty if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), "")


# For the package, not the run: a browser of Playwright keeps an event loop in this thread, and other tests
# (Django's ORM among them) must not find one there.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if not path:
        pytest.skip("no Chromium: install one (apt-get install chromium)")
    expect.set_options(timeout=1_000 * PATIENCE_SECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def portal(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    config = tmp_path_factory.mktemp("config") / "config.toml"
    config.write_text('[temporary]\nchats = "kept"\n')
    directory = tmp_path_factory.mktemp("site")
    with (
        running_site(directory, MNESIS_CONFIG=str(config)) as site,
        httpx.Client(base_url=site.url, timeout=PATIENCE_SECONDS) as client,
    ):
        wait_until_ready(site)
        site.sign_in(client)
        client.get("/")
        yield Portal(site=site, client=client, browser=browser)


@pytest.fixture(scope="package")
def windows(portal: Portal) -> Iterator[Windows]:
    windows = Windows(portal)
    yield windows
    windows.close()


@pytest.fixture
def open_page(windows: Windows) -> Iterator[Callable[..., Page]]:
    """Open a page in a window of its own; no test ends well with an error in its console or a violated policy."""
    problems: list[str] = []

    def note(message: Any) -> None:
        if message.type in ("error", "warning") and not any(known in message.text for known in ON_PURPOSE):
            problems.append(message.text)

    def open_it(path: str, *, viewport: ViewportSize | None = None, **options: Any) -> Page:
        page = windows.take(**options).new_page()
        if viewport:
            page.set_viewport_size(viewport)
        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path)
        return page

    yield open_it
    windows.give_back()
    assert not problems


@pytest.fixture
def trap() -> Iterator[Trap]:
    with set_trap() as trap:
        yield trap
