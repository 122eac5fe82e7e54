"""Diagrams of Mermaid: drawn in frames that can reach nothing, when they are first needed, and harmless whatever they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe
from tests.browser.trap import Trap
from tests.support.sites.site import wait_until

Open = Callable[..., Page]
FLOW = "graph TD\n  A[High water] --> B{Is it late?}\n  B -->|yes| C[Wait]"
TALK = "sequenceDiagram\n  Page->>Frame: source\n  Frame-->>Page: height"
WATCH = """
  window.alert = () => console.error("a diagram was obeyed");
  if (window === top) addEventListener("message", () => console.error("a diagram sent a message to the page"));
"""
PROBE = """() => {
  const tried = {origin: self.origin};
  const attempts = {cookie: () => document.cookie, storage: () => localStorage.length, top: () => top.document.title, own: () => parent.location.href};
  for (const [name, attempt] of Object.entries(attempts)) try { tried[name] = String(attempt()); } catch (error) { tried[name] = error.name; }
  return tried;
}"""
HOSTILE = {
    "a loose configuration": "%%{init: {'securityLevel': 'loose', 'htmlLabels': true, 'flowchart': {'htmlLabels': true}}}%%\n"
    "graph TD\n  A[\"<img src=TRAP/label onerror='alert(1)'>\"] --> B[seen]",
    "a front matter": "---\nconfig:\n  securityLevel: loose\n  htmlLabels: true\n---\ngraph TD\n"
    "  A[\"<iframe srcdoc='<script>alert(1)</script>'></iframe>\"] --> B[seen]",
    "calls and links": 'graph TD\n  A[first] --> B[seen]\n  click A href "javascript:alert(1)" _top\n  click B call alert(1)\n'
    '  C --> D[there]\n  click D href "TRAP/link" _top',
    "styles": "graph TD\n  A --> B[seen]\n  classDef far fill:url(TRAP/fill)\n  class A far",
    "themes": "%%{init: {'themeCSS': '@import url(TRAP/import); * { background: url(TRAP/theme) }'}}%%\ngraph TD\n  A --> B[seen]",
    "pictures": 'flowchart TD\n  A@{ img: "TRAP/picture", label: "x", w: 60, h: 60 } --> B[seen]',
    "Markdown": 'graph TD\n  A["`**x** <script>alert(1)</script> ![x](TRAP/markdown)`"] --> B[seen]',
    "5,000 nodes": "graph TD\n" + "".join(f"  n{number}\n" for number in range(5_000)),
    "a product of edges": f"graph TD\n  {' & '.join(f'a{n}' for n in range(400))} --> {' & '.join(f'b{n}' for n in range(400))}",
    "dates without end": "gantt\n  dateFormat YYYY-MM-DD\n  tickInterval 1second\n  section A\n  One :a1, 0001-01-01, 9999-12-31",
}
"""What a model may write; TRAP is an address that nothing asks for."""


def fenced(*sources: str) -> str:
    return "\n\n".join(f"```mermaid\n{source}\n```" for source in sources)


def address_of(portal: Portal, text: str) -> str:
    return f"/sessions/{portal.new_answer(text)}/"


def test_a_block_of_mermaid_becomes_a_diagram_in_a_frame_without_an_origin(portal: Portal, open_page: Open) -> None:
    page = open_page(address_of(portal, fenced(FLOW)), permissions=["clipboard-read", "clipboard-write"])
    figure = page.locator("figure[data-language=mermaid]")
    drawing = figure.frame_locator("iframe").locator("svg")
    expect(drawing).to_be_visible()
    expect(drawing).to_contain_text("Is it late?")
    expect(figure.locator("pre")).to_be_hidden()
    assert figure.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    [frame] = [frame for frame in page.frames if "/frames/" in frame.url]
    refused = dict.fromkeys(("cookie", "storage", "top", "own"), "SecurityError")
    assert frame.evaluate(PROBE) == {"origin": "null"} | refused
    # All of it is seen.
    expect(page.locator("figure .diagram")).to_have_js_property(
        "scrollHeight", figure.locator(".diagram").evaluate("(place) => place.clientHeight")
    )
    assert frame.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert axe(page) == []

    toggle = figure.get_by_role("button", name="Source")
    toggle.press("Enter")
    expect(figure.locator("pre")).to_have_text(FLOW)
    figure.get_by_role("button", name="Copy this code").click()
    expect(figure.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == f"{FLOW}\n"
    figure.get_by_role("button", name="Diagram", exact=True).press("Enter")
    expect(drawing).to_be_visible()
    page.emulate_media(media="print", color_scheme="light")
    expect(figure.locator("pre")).to_be_visible()


def test_nothing_is_loaded_for_diagrams_before_there_is_one_and_the_library_once(
    portal: Portal, open_page: Open
) -> None:
    page = open_page(address_of(portal, "```py\nx = 1\n```"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload(wait_until="networkidle")
    assert asked
    assert not [url for url in asked if "mermaid" in url or "diagram" in url or "/frames/" in url]
    page.goto(address_of(portal, fenced(FLOW, TALK)))
    for each in page.locator("figure").all():
        expect(each.frame_locator("iframe").locator("svg")).to_be_visible()
    assert len([url for url in asked if "mermaid" in url]) == 1


def test_a_broken_diagram_shows_its_source_and_says_why(portal: Portal, open_page: Open) -> None:
    page = open_page(address_of(portal, fenced("graph TD\n  A --> --> B[")))
    figure = page.locator("figure")
    expect(figure.get_by_text("This diagram cannot be drawn: Parse error on line 2")).to_be_visible()
    expect(figure.locator("pre")).to_be_visible()
    expect(figure.locator("iframe")).to_have_count(0)
    expect(figure.get_by_role("button", name="Source")).to_be_hidden()


def test_a_diagram_has_the_colours_of_the_page(portal: Portal, open_page: Open) -> None:
    page = open_page(address_of(portal, fenced(FLOW)), color_scheme="light")
    place = page.locator("figure").frame_locator("iframe")
    expect(place.locator("svg")).to_be_visible()
    expect(place.locator("html")).to_have_css("color-scheme", "light")
    page.get_by_role("button", name="Dark colours").click()
    expect(place.locator("html")).to_have_css("color-scheme", "dark")
    expect(place.locator("svg")).to_contain_text("High water")


def test_only_what_is_near_the_screen_is_drawn(portal: Portal, open_page: Open) -> None:
    words = "word\n\n" * 300
    page = open_page(address_of(portal, f"{fenced(FLOW)}\n\n{words}{fenced(TALK)}"))
    first, second = page.locator("figure").all()
    expect(second.frame_locator("iframe").locator("svg")).to_be_visible()
    expect(first.locator("iframe")).to_have_count(0)
    first.scroll_into_view_if_needed()
    expect(first.frame_locator("iframe").locator("svg")).to_be_visible()
    expect(second.locator("iframe")).to_have_count(0)
    expect(second.locator(".diagram")).not_to_have_css("height", "0px")  # it keeps its place


def test_a_diagram_keeps_its_place_when_its_message_is_drawn_anew(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_answer(fenced(FLOW))
    page = open_page(f"/sessions/{session_id}/")
    expect(page.frame_locator("figure iframe").locator("svg")).to_be_visible()
    page.evaluate("""() => {
      const note = () => document.querySelector("figure").isSameNode(first) || seen.push(document.querySelector("figure").dataset.shows);
      Object.assign(window, { seen: [], first: document.querySelector("figure") });
      new MutationObserver(note).observe(document.getElementById("transcript"), { childList: true });
    }""")
    message = page.locator(".message-assistant").get_attribute("data-message")
    portal.call("PUT", f"/api/sessions/{session_id}/messages/{message}/rating", {"thumb": "up"})
    wait_until(lambda: page.evaluate("seen.length") > 0)
    assert {*page.evaluate("seen")} == {"diagram"}
    expect(page.frame_locator("figure iframe").locator("svg")).to_be_visible()


def test_a_diagram_stays_code_while_it_is_written(portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    page.get_by_label("Message", exact=True).fill("!slow 40 Show me some markdown")
    page.keyboard.press("Enter")
    expect(page.locator(".live figure[data-language=mermaid]")).to_contain_text("flowchart")
    expect(page.locator(".live iframe")).to_have_count(0)
    expect(page.locator(".live")).to_have_count(0)
    expect(page.frame_locator("figure iframe").locator("svg")).to_contain_text("What was said")


def test_shared_sessions_have_diagrams_too(portal: Portal, open_page: Open) -> None:
    session_id = portal.new_answer(fenced(FLOW))
    made = portal.call("POST", f"/api/sessions/{session_id}/shares", {"audience": "site"})
    page = open_page(made["path"])
    expect(page.frame_locator("figure iframe").locator("svg")).to_contain_text("High water")


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_diagram_does_nothing(portal: Portal, trap: Trap, source: str) -> None:
    context = portal.context()
    context.add_init_script(WATCH)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(f"obeyed: {dialog.message}"))
    context.on("page", lambda opened: said.append(f"obeyed: {opened.url}"))
    address = address_of(portal, fenced(source.replace("TRAP", trap.url)))
    page.goto(address)
    drawing = page.frame_locator("figure iframe")  # none where there is a problem
    expect(page.locator("figure[data-shows=diagram], figure:has(> .diagram-problem)")).to_be_visible()
    expect(drawing.locator("a[*|href], iframe, img, script[src^='data:'], [onerror], [onclick]")).to_have_count(0)
    for node in drawing.locator("svg .node").all()[:3]:
        node.click()
    page.wait_for_timeout(200)
    assert page.url.endswith(address)
    assert trap.caught == []
    assert not [words for words in said if "obeyed" in words or "sent a message" in words]
    context.close()


def test_a_megabyte_is_no_diagram(portal: Portal, open_page: Open) -> None:
    page = open_page(address_of(portal, fenced("graph TD" + "; A-->B" * 150_000)))
    expect(page.get_by_text("graph TD; A-->B").first).to_be_visible()
    expect(page.locator("iframe")).to_have_count(0)


def test_the_frame_by_itself_has_no_origin_either_and_no_other_site_may_show_it(portal: Portal) -> None:
    for name in ("diagram", "preview"):
        answer = portal.client.get(f"/frames/{name}/")
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "sandbox allow-scripts", "frame-ancestors 'self'", "form-action 'none'"} <= {
            *policy
        }
        [scripts] = [part for part in policy if part.startswith("script-src")]
        assert not {"'self'", "'unsafe-inline'", "'unsafe-eval'", "*", "data:", "blob:"} & {*scripts.split()}
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert "set-cookie" not in answer.headers
