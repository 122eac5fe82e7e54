"""``/livez`` and ``/readyz``: whether this process answers, and whether it can serve.

The middleware comes before all others, since a probe may ask for any host, and must be answered whatever hangs: each
check runs in a thread of its own, and a probe waits at most ``LONGEST_SECONDS`` for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import connections
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from mnesis_core.errors import NotReady
from mnesis_site.status import readiness
from mnesis_site.status.readiness import Readiness

# How long a probe waits for a check, so that it is answered within two seconds in all.
LONGEST_SECONDS = 1.5
SILENT = [f"It did not answer within {LONGEST_SECONDS} seconds."]
Response = HttpResponseBase | Awaitable[HttpResponseBase]


class Look:
    """A check of one part. Probes that come while it runs share it, so a check that hangs takes one thread."""

    def __init__(self, ask: Callable[[], Readiness], *, on_silence: Readiness) -> None:
        self.ask, self._on_silence = ask, on_silence
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="probe")
        self._running: Future[Readiness] | None = None

    async def in_time(self) -> Readiness:

        def ask_and_close() -> Readiness:
            try:
                return self.ask()
            finally:
                connections.close_all()

        if self._running is None or self._running.done():
            self._running = self._thread.submit(ask_and_close)
        running = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait([asyncio.shield(running)], timeout=LONGEST_SECONDS)
        return self._running.result() if done else self._on_silence


LOOKS = (
    Look(readiness.look_at_database, on_silence=Readiness(missing={"database": SILENT})),
    Look(readiness.look_at_workers, on_silence=Readiness(degraded={"worker": SILENT})),
    Look(readiness.look_at_storage, on_silence=Readiness(degraded={"storage": SILENT})),
)


class Probes:
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Response]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Response:
        if request.path == "/livez":
            alive = JsonResponse({"status": "ok"})
            return _send_later(alive) if self.is_async else alive
        if request.path != "/readyz":
            return self.get_response(request)
        if self.is_async:
            return _ready_in_time(request)
        return _answer(request, [look.ask() for look in LOOKS])


async def _send_later(response: HttpResponseBase) -> HttpResponseBase:
    return response


async def _ready_in_time(request: HttpRequest) -> HttpResponseBase:
    return _answer(request, await asyncio.gather(*(look.in_time() for look in LOOKS)))


def _answer(request: HttpRequest, looks: Iterable[Readiness]) -> HttpResponseBase:
    # 503 with what is missing, and with ?strict=1 also for what is degraded.
    found = Readiness()
    for look in looks:
        found |= look
    if found.missing or (found.degraded and request.GET.get("strict") == "1"):
        error = NotReady(missing=found.missing, degraded=found.degraded)
        response = JsonResponse({"ready": False, "error": error.as_dict()}, status=error.status)
    else:
        more = {"degraded": found.degraded, "waiting_seconds": found.waiting}
        response = JsonResponse({"ready": True} | {name: value for name, value in more.items() if value})
    response.headers["Cache-Control"] = "no-store"
    return cast(HttpResponseBase, response)
