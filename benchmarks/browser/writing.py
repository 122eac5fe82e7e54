"""Answers drawn in Chromium while they are written, a piece a frame, against the same library drawing the whole each time.

The reference parses, cleans and inserts all that was said so far at each piece, as chat pages usually do.
"""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.browser.pages import ARGUMENTS, chromium

STATIC = Path(__file__).parents[2] / "static"
LETTERS, PIECE = 14_000, 200
MIXED = """## Tides

It turns at **noon**, and the `ferry` waits for [it](https://e.example/).

- one thing
- and *another*

| port | depth |
|---|--:|
| north | 12 |

```py
def tide(hour):
    return hour % 12
```

"""
ANSWERS = {
    "mixed": MIXED,
    "one list": "- a thing that is **said** and `done`\n",
    "one table": "| a | b | c |\n|---|---|---|\n" + "| one | **two** | `three` |\n" * 2_000,
    "one block of code": "```py\n" + "def tide(hour): return hour % 12\n" * 2_000,
    "one paragraph": "It turns at **noon**, and the `ferry` waits for [it](https://e.example/). ",
}
# Milliseconds of each piece, from its arrival to the layout of the page: drawn by us, and whole each time.
DRAW = """async ([text, size]) => {
  const { blocksOf } = await import("/js/blocks/markdown.js");
  const { Drawing } = await import("/js/transcript/live-drawing.js");
  const [ours, whole] = [1, 2].map(() => document.body.appendChild(document.createElement("div")));
  const drawing = new Drawing(ours);
  const ways = [
    (text) => drawing.draw(text, blocksOf),
    (text) => whole.replaceChildren(...blocksOf(text).flatMap((block) => block.draw())),
  ];
  const times = [[], []];
  for (let end = size; end < text.length + size; end += size) {
    for (const [at, draw] of ways.entries()) {
      const began = performance.now();
      draw(text.slice(0, end));
      void document.documentElement.scrollHeight;
      times[at].push(performance.now() - began);
    }
  }
  return times;
}"""


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(STATIC))) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS).new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/vendor/README.md")
        rows = [_row(page, name, unit) for name, unit in ANSWERS.items()]
        server.shutdown()
        return rows


def _row(page: Page, name: str, unit: str) -> tuple[str, ...]:
    text = (unit * (LETTERS // len(unit) + 1))[:LETTERS]
    ours, whole = page.evaluate(DRAW, [text, PIECE])
    return (
        name,
        f"{sum(ours):.0f}",
        f"{sum(whole):.0f}",
        f"{sum(ours) / sum(whole):.2f}",
        f"{max(ours):.1f}",
        f"{max(whole):.1f}",
    )


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass
