"""Pages that are read from the right: nothing is wider than the window, and what stands at the left stands at the right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Portal

Open = Callable[..., Page]
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
PAGES = {
    "session": "/sessions/SESSION/?lens=saw",
    "code": "/sessions/SESSION/",
    "list": "/sessions/",
    "observe": "/observe/?q=person:me",
    "form": "/models/add/",
    "search": "/search/?q=harbour",
    "summaries": "/sessions/SESSION/inspect/summaries/?view=table",
    "calls": "/sessions/SESSION/inspect/calls/",
    "usage": "/usage/",
}
CODE = "Look:\n\n```python\nprint('harbour')\n```\n\nIt costs 1.5 MB."
# What stands outside of the window, but for what is within a box that scrolls or hides it.
OUTSIDE = """() => {
  const held = (each) => each && (/auto|scroll|hidden|clip/.test(getComputedStyle(each).overflowX) || held(each.parentElement));
  const isOut = ({left, right, width}) => width > 1 && (left < -1 || right > innerWidth + 1);
  const wide = document.documentElement.scrollWidth > innerWidth ? ["the page"] : [];
  return [...wide, ...[...document.querySelectorAll("body *")]
    .filter((each) => each.checkVisibility() && isOut(each.getBoundingClientRect()) && !held(each.parentElement))
    .slice(0, 4).map((each) => each.outerHTML.slice(0, 160))];
}"""
LEFT_OF = """([one, other]) => {
  const [first, second] = [one, other].map((name) => document.querySelector(name).getBoundingClientRect());
  return first.right <= second.left + 1;
}"""


@pytest.fixture(scope="module")
def session(portal: Portal) -> str:
    """A session with code, a summary and calls."""
    questions = [f"Question {number}: {'what does the harbour log say? ' * 40}" for number in range(4)]
    session_id = portal.new_session(*questions, title="Harbour from the right")
    portal.call("POST", f"/api/sessions/{session_id}/compact", {"wait": True})
    portal.call("POST", f"/api/sessions/{session_id}/record", {"user": "Draw it", "assistant": CODE})
    portal.call("POST", f"/api/sessions/{session_id}/turns", {"message": "And now?"})
    portal.wait_until_idle(session_id)
    return session_id


def from_the_right(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.evaluate("document.documentElement.dir = 'rtl'")
    page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_read_from_the_right(name: str, session: str, open_page: Open) -> None:
    page = open_page(PAGES[name].replace("SESSION", session), viewport=WIDE)
    from_the_right(page)
    assert not page.evaluate(OUTSIDE)
    sidebar = page.locator("#sidebar").bounding_box()
    assert sidebar
    assert sidebar["x"] + sidebar["width"] == pytest.approx(WIDE["width"])
    assert page.evaluate(LEFT_OF, ["#main", "#sidebar"])

    page.set_viewport_size(PHONE)
    from_the_right(page)
    assert not page.evaluate(OUTSIDE)
    page.locator("#sidebar-toggle").click()
    expect(page.locator("#sidebar")).to_be_visible()
    drawer = page.locator("#sidebar").bounding_box()
    assert drawer
    assert drawer["x"] + drawer["width"] == pytest.approx(PHONE["width"])
    assert drawer["x"] > 0
    assert not page.evaluate(OUTSIDE)


def test_the_parts_of_a_session_change_sides_and_code_does_not(session: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{session}/", viewport=WIDE)
    from_the_right(page)
    assert page.evaluate(LEFT_OF, ["#panels", ".conversation"])
    assert page.evaluate(LEFT_OF, [".site-header .menu:last-of-type", ".brand"])
    assert page.evaluate(LEFT_OF, ["#send", "#model"])
    assert (
        page.locator("figure[data-language=python] pre").evaluate("(each) => getComputedStyle(each).direction") == "ltr"
    )


def test_arrow_keys_go_where_they_point(session: str, open_page: Open) -> None:
    page = open_page(f"/sessions/{session}/?lens=context", viewport=WIDE)
    from_the_right(page)
    tabs = page.get_by_role("tablist", name="Lens").get_by_role("tab")
    tabs.first.focus()
    page.keyboard.press("ArrowLeft")
    expect(tabs.nth(1)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tabs.first).to_be_focused()
