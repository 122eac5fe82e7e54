"""A real site, its worker and a real client: nothing in these tests reaches around the endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.sites.databases import site_database, with_a_role
from tests.support.sites.site import Site, running_site, wait_until, wait_until_ready
from tests.support.waiting import PATIENCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A program with a key."""

    site: Site
    key: str
    client: httpx.Client
    port: int = 0
    """Of another web server than the site's own."""

    def call(self, method: str, path: str, body: Any = None, *, status: int = 0) -> Any:
        """Ask the REST endpoint; ``status`` is what must come, any good one by default."""
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == status if status else answer.status_code < 300, answer.text
        return answer.json()

    def new_session(self, **values: Any) -> str:
        """A new session; returns its id."""
        session_id: str = self.call("POST", "/api/sessions", values)["id"]
        return session_id

    def start(self, session_id: str, message: str, **values: Any) -> dict[str, Any]:
        """Start a turn."""
        turn: dict[str, Any] = self.call("POST", f"/api/sessions/{session_id}/turns", {"message": message, **values})
        return turn

    def spoken(self, session_id: str) -> list[tuple[str, str]]:
        """Who said what in a session."""
        messages = self.messages(session_id)
        return [(message["role"], "".join(part["text"] or "" for part in message["parts"])) for message in messages]

    def say(self, session_id: str, message: str) -> dict[str, Any]:
        """One turn, to its end."""
        return self.wait(self.start(session_id, message))

    def wait(self, turn: dict[str, Any], *, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The turn when it has ended."""
        path = f"/api/sessions/{turn['session_id']}/turns/{turn['id']}"
        wait_until(lambda: self.call("GET", path)["state"] != "running", seconds=seconds)
        ended: dict[str, Any] = self.call("GET", path)
        return ended

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        """The first hundred messages."""
        items: list[dict[str, Any]] = self.call("GET", f"/api/sessions/{session_id}/messages")["items"]
        return items

    def texts(self, session_id: str) -> list[str]:
        """What was said, a text for each message."""
        return ["".join(part["text"] or "" for part in message["parts"]) for message in self.messages(session_id)]

    def socket(self, session_id: str, *, after: int = 0, **options: Any) -> connect:
        """Open the websocket."""
        address = f"ws://127.0.0.1:{self.port or self.site.port}/ws/sessions/{session_id}?after={after}"
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return connect(address, additional_headers=headers, **options)


async def read_until(socket: Any, *types: str, seconds: float = PATIENCE_SECONDS) -> list[dict[str, Any]]:
    """Frames up to the first of these types."""
    frames = []
    async with asyncio.timeout(seconds):
        while not frames or frames[-1]["type"] not in types:
            frames.append(json.loads(await socket.recv()))
    return frames


def caller_for(site: Site, username: str) -> Caller:
    """A user with an API key."""
    made = site.manage("apikey", "create", username)
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip().splitlines()[-1]
    client = httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS)
    return Caller(site=site, key=key, client=client)


@pytest.fixture(scope="package")
def openai_server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with (
        site_database("test_journeys", is_prepared=True) as database,
        with_a_role(database, directory) as environment,
        running_site(directory, LOOPBACK_KEY="key", **environment) as site,
    ):
        wait_until_ready(site)
        yield site


@pytest.fixture(scope="package")
def caller(site: Site) -> Iterator[Caller]:
    caller = caller_for(site, "admin")
    yield caller
    caller.client.close()


@pytest.fixture(scope="package")
def stranger(site: Site) -> Iterator[Caller]:
    made = site.manage(
        "shell", "-v0", "-c", "from django.contrib.auth.models import User; User.objects.create_user('eve')"
    )
    assert made.returncode == 0, made.stderr
    caller = caller_for(site, "eve")
    yield caller
    caller.client.close()
