"""What the web server hands to the application; real connections are tried in ``tests/faults`` and ``tests/journeys``."""

from __future__ import annotations

import asyncio
from io import BytesIO
from types import SimpleNamespace

from mnesis_site.server import Body


async def test_a_request_that_is_gone_when_its_body_is_to_be_read_says_so() -> None:
    """Its client hangs up between two looks: Twisted closes the body."""
    request = SimpleNamespace(content=BytesIO(b"much"))
    body = Body(request)
    reading = asyncio.ensure_future(body.get())
    await asyncio.sleep(0)
    body._content.close()
    body.put_nowait({"type": "http.disconnect"})
    assert await reading == {"type": "http.disconnect"}
