"""Every page there is, on a record whose every text is hostile: nothing runs, nothing is fetched, nothing is in anybody's way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from playwright.sync_api import BrowserContext, Page, Request

from tests.browser.conftest import Portal
from tests.support.processes.children import run_main

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LOOKS = {"light": WIDE, "light and narrow": PHONE, "dark and narrow": PHONE, "dark": WIDE}
"""In this order each look changes one thing of the page that is open."""
POLICY = {
    *(f"{kind}-src 'self'" for kind in ("style", "img", "media", "connect", "frame", "manifest")),
    "font-src 'self' data:",  # the style sheets have their font in them (decision 244)
    "script-src 'self' 'inline-speculation-rules'",  # which pages to fetch early, and no script (decision 246)
    *("default-src 'none'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"),
}
"""What every page forbids the browser, whatever its texts say."""
TABS = 5
SETTLES = 250
"""Milliseconds, until a page has taken notice of its new width."""

PAGES: dict[str, tuple[str, ...]] = {
    "new-chat": (), "session-list": (), "trash": (), "prompts": (), "prompt": ("prompt_id",), "projects": (), "project": ("project_id",), "project-change": ("project_id",), "assistants": (), "assistant-add": (), "assistant": ("assistant_id",), "assistant-change": ("assistant_id",), "shares": (), "keys": (), "shared": ("token",), "session": ("session_id",), "session-settings": ("session_id",), "search": (), "memory": (), "import": (), "health": (), "observe": (), "people": (), "invite": (), "person": ("account_id",), "groups": (), "group": ("group_id",), "group-delete": ("group_id",), "evaluations": (), "evaluation": ("report_id",), "usage": (), "models": (), "help": (), "help-page": ("name",),
    "model-add": (), "model-change": ("alias",), "model-remove": ("alias",), "tools": (), "server-add": (),
    "server-change": ("server",), "server-remove": ("server",), "server-tools": ("server",), "runs": (), "run-add": (), "run": ("run_id",),
    "run-item": ("run_id", "number"), "files": (), "file": ("file_id",), "set-password": (),
    "inspect": ("session_id",), "inspect-turn": ("session_id", "turn_id"), "inspect-tombstones": ("session_id",),
    "inspect-summaries": ("session_id",), "inspect-memory": ("session_id",),
    "inspect-summary": ("session_id", "summary_id"), "inspect-preview": ("session_id", "preview_id"), "inspect-calls": ("session_id",),
    "inspect-call": ("session_id", "call_id"), "inspect-sightings": ("session_id", "message_id"),
    "inspect-ledger": ("session_id",), "inspect-health": ("session_id",), "inspect-branches": ("session_id",), "comparison": ("session_id", "question", "left", "right"),
}  # fmt: skip
"""Every page, with what its address is made of."""
QUERIES = {"search": "?q=script", "usage": "?person=%2A", "session-list": "?q=hidden", "observe": "?q=-model%3Anosuch"}
"""What is asked for besides, so that there is something to show."""
PARTS = {
    "session-shares", "project-files", "assistant-picture", "session-picture", "project-settings", "session-project", "session-move", "shared-messages", "shared-text", "shared-raw", "shared-file", "palette", "sidebar-rows", "sidebar-states", "sidebar-sub-agents", "session-rows", "session-states", "session-row", "session-menu", "session-messages", "message", "message-text",
    "message-said", "message-question", "message-records", "part-text", "part-raw", "session-context", "session-compactions", "run-rows",
    "run-progress", "run-charts", "run-items", "run-item-input", "run-try-output", "run-try-prompt", "part-runs",
    "file-rows", "file-lines", "file-picture", "file-references", "import-status", "inspect-totals", "inspect-turns", "inspect-turn-steps",
    "inspect-output", "inspect-tombstone-rows", "inspect-memory-rows", "memory-rows", "inspect-drawing", "inspect-summary-rows", "inspect-message", "inspect-reply",
    "inspect-sources", "inspect-missing", "inspect-source", "inspect-block", "inspect-picture", "inspect-call-places", "inspect-call-messages", "inspect-payload", "inspect-payload-file",
    "inspect-verification", "inspect-verify", "inspect-ledger-body", "observe-rows", "observe-numbers", "models-known", "group-candidates", "people-options", "comparison-answers", "ask-another",
}  # fmt: skip
"""Parts of those pages, and files."""
ELSEWHERE = {
    "welcome", "assistant-remove", "person-limits", "person-link", "person-sign-out", "person-close", "person-reopen", "person-key-make", "person-key-revoke", "group-member-add", "group-member-remove",
    "sign-in", "sign-in-link", "sign-out", "rpc", "key-revoke", "usage-csv", "observe-csv", "observe-save", "observe-rename", "observe-delete", "model-check", "hide-first-steps", "server-refresh",
    "diagram-frame", "preview-frame", "summary", "inspect-call-at", "session-branch", "choose-branch", "inspect-compaction", "verify-everything", "start-evaluation", "other-static", "favicon", "language", "script-texts", "administration-password",
}  # fmt: skip
"""Endpoints of programs, frames in pages, what is asked for by a form, and addresses that lead on to one of the pages."""

_VISIBLE_FOCUS = """() => {
  const seen = (element, pseudo) => {
    const style = getComputedStyle(element, pseudo);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  };
  const element = document.activeElement;
  if (!element || element === document.body) return "";
  const places = [element, ...element.querySelectorAll("*"), element.parentElement, element.closest("form, label, .composer")];
  const shown = places.some((each) => each && (seen(each) || seen(each, "::before") || seen(each, "::after")));
  const fills = element.matches("textarea, input") || element.closest("svg");
  return shown || fills ? "" : element.outerHTML.slice(0, 200);
}"""
_TOO_WIDE = """() => {
  const scrolls = (each) => each && (/auto|scroll|hidden|clip/.test(getComputedStyle(each).overflowX) || scrolls(each.parentElement));
  return document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth && !scrolls(each))
    .slice(0, 4).map((each) => each.outerHTML.slice(0, 120));
}"""
_MOUSE_ONLY = """() => {
  const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button]";
  const seen = (each) => each.checkVisibility({visibilityProperty: true}) && !each.closest("[inert], [aria-hidden=true]");
  const inOneStop = (each) => each.matches("[type=radio]") || each.closest("[role=treegrid], [role=tablist]");
  const presses = (each) => getComputedStyle(each).cursor === "pointer" && !each.closest(`${controls}, label, [tabindex], [role=treegrid]`);
  return [...document.querySelectorAll("body *")]
    .filter((each) => seen(each) && (each.matches(controls) ? each.tabIndex < 0 && !each.disabled && !inOneStop(each) : presses(each)))
    .slice(0, 4).map((each) => each.outerHTML.slice(0, 160));
}"""
_AXE = """(only) => axe.run(document, {
  resultTypes: ["violations"], preload: false, ...(only ? {runOnly: {type: "rule", values: only}} : {}),
}).then(({violations}) => violations.map(({id, impact, nodes}) => ({
  id, impact, nodes: nodes.slice(0, 3).map(({target, failureSummary}) => [target.join(" "), failureSummary]),
})))"""


@pytest.fixture(scope="module")
def ids(portal: Portal) -> dict[str, Any]:
    """What the addresses of the pages are made of."""
    written = run_main("tests.support.record.hostile_record", "admin", environment=portal.site.environment)
    return json.loads(written.splitlines()[-1]) | {"server": "hostile", "number": 1, "name": "howto/run/add-a-model"}


class Watch:
    """What a window does that nobody asked it for."""

    def __init__(self, context: BrowserContext, host: str) -> None:
        self.problems: list[str] = []
        self._host = host
        context.add_init_script(
            "window.alert = () => console.error('a text was obeyed');"
            "document.addEventListener('securitypolicyviolation', (event) => console.error('CSP ' + event.violatedDirective));"
        )
        context.on("request", self._note_request)
        context.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        context.on("weberror", lambda error: self.problems.append(str(error.error)))

    def _note_request(self, request: Request) -> None:
        if request.url.split("/")[2] != self._host and not request.url.startswith(("data:", "blob:")):
            self.problems.append(f"asked for {request.url}")


@pytest.fixture(scope="module")
def window(portal: Portal) -> Iterator[tuple[Page, Watch]]:
    """One window for all pages."""
    context = portal.context(viewport=WIDE, color_scheme="light")
    watch = Watch(context, portal.site.url.split("/")[2])
    yield context.new_page(), watch
    context.close()


def names_of(patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
    """The names of all addresses but those of the administration and of the programs' endpoints, which are namespaces."""
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            yield str(pattern.name)
        elif pattern.namespace is None:
            yield from names_of(pattern.url_patterns)


def axe(page: Page, *only: str) -> list[str]:
    """What axe finds that is serious or critical."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    found = page.evaluate(_AXE, list(only) or None)
    return [f"{each['id']} ({each['impact']}): {each['nodes']}" for each in found if each["impact"] in SERIOUS]


def unseen_focus(page: Page) -> list[str]:
    """What takes the focus by Tab and does not show it."""
    found = []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        found.append(page.evaluate(_VISIBLE_FOCUS))
    return [element for element in found if element]


def test_every_address_is_a_page_that_is_visited_or_known_to_be_none() -> None:
    known = {*PAGES, *PARTS, *ELSEWHERE}
    assert set(names_of(get_resolver("mnesis_site.urls").url_patterns)) == known
    assert len(known) == len(PAGES) + len(PARTS) + len(ELSEWHERE)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody_and_obeys_no_text(
    name: str, window: tuple[Page, Watch], ids: dict[str, Any], look: Callable[..., list[str]]
) -> None:
    page, watch = window
    watch.problems.clear()
    address = reverse(name, args=[ids[part] for part in PAGES[name]]) + QUERIES.get(name, "")
    page.set_viewport_size(WIDE)
    page.emulate_media(color_scheme="light")
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, address
    assert set(answer.headers["content-security-policy"].split("; ")) == POLICY
    page.wait_for_load_state("networkidle")
    found = look(page)
    assert not [*found, *watch.problems], (address, found, watch.problems)
    assert page.url.endswith(address)


@pytest.mark.parametrize("address", ["/sign-in/", "/sign-in/link/MQ/nosuch-0/", "/nowhere/", "/shared/nosuch/"])
def test_pages_for_nobody_in_particular_are_for_everybody_too(
    address: str, portal: Portal, look: Callable[..., list[str]]
) -> None:
    context = portal.browser.new_context(base_url=portal.site.url, viewport=WIDE, color_scheme="light")
    page = context.new_page()
    page.goto(address)
    found = look(page)
    context.close()
    assert not found


@pytest.fixture
def look() -> Callable[[Page], list[str]]:
    """Everything that is asked of a page, as sentences about what is wrong."""

    def problems(page: Page) -> list[str]:
        found = [f"{headings} headings of the first level"] if (headings := page.locator("h1").count()) != 1 else []
        found += [f"not by keyboard: {element}" for element in page.evaluate(_MOUSE_ONLY)]
        found += [f"focus not seen: {element}" for element in unseen_focus(page)]
        for name, size in LOOKS.items():
            is_dark = name.startswith("dark")
            page.set_viewport_size(size)
            page.emulate_media(color_scheme="dark" if is_dark else "light")
            page.wait_for_timeout(SETTLES)
            # The layout was looked at in light colours: in dark ones nothing but they can differ.
            found += [f"{name}: {each}" for each in axe(page, *(["color-contrast"] if is_dark else []))]
            if wide := page.evaluate(_TOO_WIDE):
                found.append(f"wider than {size['width']} pixels: {wide}")
        return found

    return problems
