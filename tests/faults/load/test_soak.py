"""A site that works for a long time: ``make soak``, for as many minutes as ``MNESIS_SOAK_MINUTES`` says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.sites.site import UNLIMITED, Site, running_site, wait_until, wait_until_ready
from tests.support.sites.webs import web_server
from tests.support.waiting import PATIENCE_SECONDS

MINUTES = float(os.environ.get("MNESIS_SOAK_MINUTES", "10"))
PEOPLE = 4
WARM_UP = 0.25
"""Of the time: until then memory and files may still grow."""

pytestmark = pytest.mark.soak


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    config = tmp_path / "config.toml"
    config.write_text(f"[turn]\nmost_at_once = 1_000\n{UNLIMITED}")
    with running_site(tmp_path, MNESIS_CONFIG=str(config)) as running:
        wait_until_ready(running)
        yield running


def test_hours_of_turns_leak_nothing_and_lose_nothing(site: Site) -> None:
    assert site.manage("shell", "-c", "from django.contrib.auth.models import User; User.objects.create_user('ada')")
    key = site.manage("apikey", "create", "ada").stdout.strip()
    started, ends = time.monotonic(), time.monotonic() + MINUTES * 60
    with ThreadPoolExecutor(PEOPLE) as people:
        talks = [people.submit(talk, site, key, ends) for _ in range(PEOPLE)]
        time.sleep(max(MINUTES * 60 * WARM_UP - (time.monotonic() - started), 0))
        early = web_server(site).memory_info().rss, web_server(site).num_fds()
        told = [talk.result() for talk in talks]
    late = web_server(site).memory_info().rss, web_server(site).num_fds()
    print(f"{sum(told)} turns; memory {early[0] >> 20} -> {late[0] >> 20} MiB; open files {early[1]} -> {late[1]}")
    assert all(told)
    assert late[0] < early[0] * 1.3
    assert late[1] < early[1] + 20
    assert httpx.get(f"{site.url}/readyz").status_code == 200
    assert "Traceback" not in site.output()


def talk(site: Site, key: str, ends: float) -> int:
    """One person who sends one message after the other into one session; returns how many were answered."""
    with httpx.Client(
        base_url=f"{site.url}/api", headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS
    ) as client:
        session = client.post("/sessions", json={"model": "demo"}).raise_for_status().json()["id"]
        turns = 0
        while time.monotonic() < ends:
            turn = client.post(f"/sessions/{session}/turns", json={"message": f"{turns}: " + "a word or two " * 40})
            address = f"/sessions/{session}/turns/{turn.raise_for_status().json()['id']}"
            wait_until(lambda address=address: client.get(address).json()["state"] != "running")
            assert client.get(address).json()["state"] == "completed"
            turns += 1
        check_ledger(client, session)
    return turns


def check_ledger(client: httpx.Client, session: str) -> None:
    """Every event is there once, in order."""
    seen = 0
    while True:
        page = client.get(f"/sessions/{session}/events", params={"after": seen}).raise_for_status().json()
        for event in page["items"]:
            assert event["seq"] == seen + 1
            seen = event["seq"]
        if page["next_cursor"] is None:
            return
