"""An answer drawn by the browser while it is written: by the server's rules, block by block, and harmless."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain

import pytest
from playwright.sync_api import Page, expect

from sessions_app.pages.markdown import render_markdown
from tests.browser.conftest import Portal

Open = Callable[..., Page]
TEXTS = (
    "# Plan\n\nText with **bold**, *em*, ~~gone~~ and `code`.\nA second line.\n\n###### Deep\n\nSetext\n======\n\nTwo\n---\n\n---\n",
    "- one\n- two\n  - **three**\n\n  more of two\n\n1. first\n2. second\n\n7) seventh\n",
    "> quoted\n> > twice\nlazy\n\n* * *\n\npara\n- list at once\n",
    "| a | b | c |\n|:--|--:|:-:|\n| 1 | `2 \\| 3` | **4** |\n| 5 |\n\nText | with a pipe\n\n|x|\n|-|\n|y|\n",
    "```py\ndef f():\n    return '# no heading | no table'\n```\n\n    indented\n\n~~~\nopen fence\n- no list\n",
    "```mermaid\ngraph TD; a-->b\n```\n\n```py and more\nx\n```\n\n- item\n\n  ```\n  inside\n  ```\n",
    '```HTML title\n<b>x</b>\n```\n\n```constructor\nx\n```\n\n```"quoted"\nx\n```\n\n```c++\nx\n```\n\n```'
    + "x" * 31
    + "\nx\n```\n",
    "- [ ] one\n- [x] two **b**\n  - [X] *deep*\n- [ ]\n- [x]three\n- \\[ ] escaped\n- `[ ]` code\n- [ ](https://e.example) link\n\n1. [x] four\n\n- [ ] para\n\n  more\n\n[ ] no\n",
    "So $a_1*b*c_2$ and \\(a \\% b\\), from $5 to $10, `$a$`.\n\n$$\nx\n= y\n- z\n$$\n\n\\[\nx * y\n\\]\n\n$$\n\nx\n$$\n",
    "[a](https://e.example/?a=1&b=2 'title') <https://e.example/ü> [b](mailto:x@e.example) [c](javascript:alert(1))\n",
    "![x](https://e.example/i.png)\n\n[x]: https://e.example\n\n[x] <b onclick=alert(1)>raw</b> &amp; &copy;\n",
    "<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n<svg><style><img src=x onerror=alert(1)></style></svg>\n",
    "[x](data:text/html,<script>alert(1)</script>) [y](&#106;avascript:alert(1)) <math><mtext><table><mglyph><style>\n",
    "a\u202eb\u202c \u200b\u200b\u200b x\u0000y\r\nnext\u2028line \U000e0041 \U0001f600 \u0645\u200c\u06cc \ufeff",
    "word " * 400 + "\n\n" + "- x\n" * 200,
    "> " * 30 + "deep\n",
    "$" * 500 + "[" * 500 + "*" * 500 + "|" * 200,
    "",
)
FORMULA = re.compile(
    r"(<figure class=\"math\">)?<math.*?<annotation[^>]*>(.*?)</annotation>.*?</math>(</figure>)?", re.DOTALL
)
# Pairs of elements that differ between what is drawn here and the server's HTML.
COMPARE = """async ([script, drawings]) => {
  const { blocksOf } = await import(script);
  return drawings.flatMap(([text, html]) => {
    const here = blocksOf(text).flatMap((block) => block.draw());
    const there = [...new DOMParser().parseFromString(html, "text/html").body.children];
    const pairs = Array.from({ length: Math.max(here.length, there.length) }, (_, at) => [here[at], there[at]]);
    return pairs.filter(([one, other]) => !one?.isEqualNode(other ?? null)).map((pair) => pair.map((one) => one?.outerHTML));
  });
}"""
PREPARE = """
  const { blocksOf } = await import(script);
  const { Drawing } = await import(script.replace("blocks/markdown.js", "transcript/live-drawing.js"));
"""
DRAW_WHOLE = """async ([script, texts]) => {
  const { blocksOf } = await import(script);
  return texts.map((text) => blocksOf(text).flatMap((block) => block.draw()).map((element) => element.outerHTML));
}"""
# What is on the page at the end, where a text came in pieces of so many characters.
DRAW_PIECES = (
    """async ([script, texts, step]) => {"""
    + PREPARE
    + """  const drawn = [];
  for (const text of texts) {
    const place = document.body.appendChild(document.createElement("div"));
    const drawing = new Drawing(place);
    for (let end = step; end < text.length + step; end += step) {
      drawing.draw(text.slice(0, end), blocksOf);
    }
    place.querySelector(".live-tail")?.remove();
    drawn.push([...place.children].map((element) => element.outerHTML));
    place.remove();
  }
  return drawn;
}"""
)
# Whether a mark of a block stands on the page as text, after each letter of an answer.
SEE_MARKS = (
    """async ([script, text]) => {"""
    + PREPARE
    + """  const place = document.body.appendChild(document.createElement("div"));
  const drawing = new Drawing(place);
  const seen = [];
  for (let end = 1; end <= text.length; end += 1) {
    drawing.draw(text.slice(0, end), blocksOf);
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (!node.parentElement.closest("code") && /^\\s*#|\\||```|^- /m.test(node.data)) seen.push(node.data);
    }
  }
  return seen;
}"""
)

# A heading and what follows it, where the text is shown as it is from the second piece on.
TURN_PLAIN = (
    """async ([script]) => {"""
    + PREPARE
    + """
  const place = document.body.appendChild(document.createElement("div"));
  const drawing = new Drawing(place);
  drawing.draw("# One\\n\\ntwo", blocksOf);
  drawing.isPlain = true;
  drawing.draw("# One\\n\\ntwo **three**", blocksOf);
  drawing.draw("# One\\n\\ntwo **three** four", blocksOf);
  return [...place.children].map((element) => element.textContent);
}"""
)


@pytest.fixture
def page(portal: Portal, open_page: Open) -> Page:
    return open_page(f"/sessions/{portal.new_session()}/")


def script_of(page: Page) -> str:
    source: str = page.evaluate("document.querySelector('script[src$=\"/site.js\"]').src")
    return source.replace("site.js", "blocks/markdown.js")


def by_server(text: str) -> str:
    """Return the server's drawing without what it draws at the end only: colours and formulas."""

    def as_tex(found: re.Match[str]) -> str:
        figure, tex, _ = found.groups()
        return f"{figure}<pre><code>{tex}</code></pre></figure>" if figure else f'<code class="math">{tex}</code>'

    html = re.sub(r'<span class="hl-\w+">(.*?)</span>', r"\1", render_markdown(text), flags=re.DOTALL)
    return FORMULA.sub(as_tex, html)


def test_the_browser_draws_an_answer_as_the_server_does(page: Page) -> None:
    drawings = [[text, by_server(text)] for text in TEXTS]
    assert page.evaluate(COMPARE, [script_of(page), drawings]) == []


@pytest.mark.parametrize("step", [1, 7])
def test_an_answer_drawn_piece_by_piece_is_the_one_drawn_whole(page: Page, step: int) -> None:
    texts = [text[:600] for text in TEXTS]
    whole = page.evaluate(DRAW_WHOLE, [script_of(page), texts])
    assert page.evaluate(DRAW_PIECES, [script_of(page), texts, step]) == whole


def test_no_mark_of_a_block_is_seen_while_an_answer_is_written(page: Page) -> None:
    text = "# Plan\n\nIt is **so**:\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\n# code\n```\n\n## End\n\nDone.\n"
    assert page.evaluate(SEE_MARKS, [script_of(page), text]) == []


def test_a_text_that_takes_too_long_to_draw_goes_on_as_it_is(page: Page) -> None:
    assert page.evaluate(TURN_PLAIN, [script_of(page)]) == ["One", "two **three** four"]


def test_what_an_answer_says_cannot_run(page: Page) -> None:
    hostile = [text for text in TEXTS if "alert" in text]
    drawn = "".join(chain.from_iterable(page.evaluate(DRAW_PIECES, [script_of(page), hostile, 5])))
    assert "alert" in drawn
    assert not re.search(r"<(script|img|svg|style|math)|<[^>]*\son\w+=|href=\"(?!https?:|mailto:)", drawn)


def test_an_answer_is_seen_drawn_before_it_ends(portal: Portal, open_page: Open) -> None:
    page = open_page(f"/sessions/{portal.new_session()}/")
    page.get_by_label("Message", exact=True).fill("!slow 250 Show me some markdown")
    page.keyboard.press("Enter")
    expect(page.locator(".live li strong")).to_have_text("bold")
    expect(page.locator(".live .live-tail")).to_have_count(1)
    page.reload()  # it is told from its beginning again
    expect(page.locator(".live li strong")).to_have_text("bold")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".live")).to_have_count(0)
    expect(page.locator(".message-assistant li strong").first).to_have_text("bold")
