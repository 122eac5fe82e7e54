"""What the web server hands to the application; real connections are tried in ``tests/faults`` and ``tests/journeys``."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from daphne import server as _chooses_the_loop  # noqa: F401 # before anything else of Twisted

from mnesis_site.server import BODY_BYTES, Body


class Line:
    """A connection as a body sees it: read, or not at the moment."""

    is_read = True

    def pauseProducing(self) -> None:
        self.is_read = False

    def resumeProducing(self) -> None:
        self.is_read = True


def body_on(line: Line) -> Body:
    return Body(SimpleNamespace(transport=line, channel=SimpleNamespace(is_asked=lambda: None)))


async def pieces(body: Body) -> list[dict[str, Any]]:
    found = [await body.get()]
    while found[-1].get("more_body"):
        found.append(await body.get())
    return found


async def test_a_body_is_read_no_faster_than_it_is_taken() -> None:
    line = Line()
    body = body_on(line)
    body.add(b"x" * BODY_BYTES)
    assert not line.is_read
    assert await body.get() == {"type": "http.request", "body": b"x" * BODY_BYTES, "more_body": True}
    assert line.is_read
    body.add(b"y")
    body.end()
    assert await pieces(body) == [{"type": "http.request", "body": b"y", "more_body": False}]


async def test_an_end_that_comes_alone_is_told() -> None:
    body = body_on(Line())
    body.add(b"x")
    assert (await body.get())["more_body"]
    reading = asyncio.ensure_future(body.get())
    await asyncio.sleep(0)
    body.end()
    assert await reading == {"type": "http.request", "body": b"", "more_body": False}


async def test_a_request_that_is_gone_when_its_body_is_to_be_read_says_so() -> None:
    """Its client hangs up between two looks."""
    body = body_on(Line())
    body.add(b"much")
    assert (await body.get())["more_body"]
    reading = asyncio.ensure_future(body.get())
    await asyncio.sleep(0)
    body.put_nowait({"type": "http.disconnect"})
    assert await reading == {"type": "http.disconnect"}
