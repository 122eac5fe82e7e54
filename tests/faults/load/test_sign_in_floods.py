"""Strangers who try passwords, or keys, as fast as they can: calls of other people hardly notice."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from urllib.parse import urlencode

import httpx
import pytest

from tests.journeys.conftest import Caller, caller_for
from tests.support.sites.databases import site_database
from tests.support.sites.site import running_site, wait_until_ready
from tests.support.sites.webs import web_server
from tests.support.waiting import PATIENCE_SECONDS

CLIENTS = 20
SECONDS = 6.0
"""The length of a stretch with the flood, and of one without."""
STRETCHES = 4
MAKE_ADA = "from django.contrib.auth.models import User; User.objects.create_user('ada', password='correct horse')"
PAUSE = 0.02
"""Between two calls of the person who is measured."""
LEAST_P99 = 0.05
"""Below that a machine's own hiccups are most of it."""

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    folder = tmp_path_factory.mktemp("site")
    with site_database("test_floods", is_prepared=True) as database, running_site(folder, **database) as site:
        wait_until_ready(site)
        assert site.manage("shell", "-c", MAKE_ADA).returncode == 0
        caller = caller_for(site, "ada")
        yield caller
        caller.client.close()


class Flood:
    """Clients that send one request after the other, each as soon as the last one is answered."""

    def __init__(self, caller: Caller, request: Callable[[int], bytes], address: Callable[[int], str]) -> None:
        self.port = caller.site.port
        self.request, self.address = request, address
        self.numbers, self.statuses = count(), Counter[int]()

    async def run(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(CLIENTS)))

    async def _client(self, client: int) -> None:
        while True:
            number = next(self.numbers)
            with suppress(OSError, asyncio.IncompleteReadError):
                self.statuses[await self._ask(number)] += 1

    async def _ask(self, number: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address(number), 0))
        try:
            writer.write(self.request(number))
            answer = await reader.read()
        finally:
            writer.close()
        return int(answer[9:12] or 0)


def sign_in(caller: Caller, name: Callable[[int], str]) -> Callable[[int], bytes]:
    """A wrong password for these names, with the CSRF token that everybody gets."""
    page = httpx.get(f"{caller.site.url}/sign-in/")
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert token

    def request(number: int) -> bytes:
        form = {"csrfmiddlewaretoken": token[1], "username": name(number), "password": f"wrong {number}"}
        return post("/sign-in/", urlencode(form), f"Cookie: csrftoken={page.cookies['csrftoken']}\r\n")

    return request


def post(path: str, body: str, headers: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def bad_key(number: int) -> bytes:
    return f"GET /api/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer mns_{number:012x}_{'A' * 43}\r\n\r\n".encode()


def one_address(number: int) -> str:
    return "127.0.0.1"


def ever_other_address(number: int) -> str:
    return f"127.0.{number // 250 % 250 + 1}.{number % 250 + 1}"


async def calls(caller: Caller, seconds: float) -> list[float]:
    """Seconds that each of a person's calls took, one after the other."""
    took = []
    async with httpx.AsyncClient(
        base_url=caller.site.url, headers=caller.client.headers, timeout=PATIENCE_SECONDS
    ) as client:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            began = time.monotonic()
            (await client.get("/api/sessions")).raise_for_status()
            took.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE)
    return took


def p99(took: list[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


def ada(number: int) -> str:
    return "ada"


def ever_other_name(number: int) -> str:
    return f"name{number}"


FLOODS: dict[str, Callable[[Caller], Flood]] = {
    "other names and addresses": lambda caller: Flood(caller, sign_in(caller, ever_other_name), ever_other_address),
    "other addresses": lambda caller: Flood(caller, sign_in(caller, ada), ever_other_address),
    "other names": lambda caller: Flood(caller, sign_in(caller, ever_other_name), one_address),
    "one account": lambda caller: Flood(caller, sign_in(caller, ada), one_address),
    "bad keys": lambda caller: Flood(caller, bad_key, one_address),
}
"""What is tried, from where."""


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_of_wrong_secrets_moves_other_calls_by_no_more_than_two_times(caller: Caller, kind: str) -> None:
    flood, web = FLOODS[kind](caller), web_server(caller.site)
    await calls(caller, 2.0)  # whatever is loaded once is loaded
    quiet, flooded, processor = list[float](), list[float](), 0.0
    for _ in range(STRETCHES):  # by turns, since whatever else the machine does comes and goes
        quiet += await calls(caller, SECONDS)
        used, strangers = sum(web.cpu_times()[:2]), asyncio.create_task(flood.run())
        flooded += await calls(caller, SECONDS)
        processor += sum(web.cpu_times()[:2]) - used
        strangers.cancel()
    for name, took in (("quiet", quiet), ("flooded", flooded)):
        print(
            f"{kind}, {name}: p50 {statistics.median(took) * 1000:.0f} ms, p99 {p99(took) * 1000:.0f} ms of {len(took)}"
        )
    print(
        f"{kind}: {dict(flood.statuses)}; processor {processor / SECONDS / STRETCHES:.0%}, load {os.getloadavg()[0]:.0f}"
    )
    assert p99(flooded) < 2 * max(p99(quiet), LEAST_P99)
