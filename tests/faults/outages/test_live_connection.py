"""The connection on which a web process hears of news is made as the address says, like every other one."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from django.db import connection

from sessions_app.database.threads import db
from sessions_app.record.hub import hub, watch_postgresql
from tests.support.sites.databases import ask

pytestmark = pytest.mark.both_databases

NAME = "hears of news"


@pytest.mark.django_db(transaction=True)
async def test_the_listener_connects_with_the_options_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "application_name", NAME)
    listener = asyncio.create_task(watch_postgresql(hub))
    await asyncio.sleep(0)
    monkeypatch.undo()  # it has read them, and no other connection is to be called so
    try:
        async with asyncio.timeout(30):
            while not await db(ask, f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{NAME}'"):
                assert not listener.done(), listener.exception()
                await asyncio.sleep(0.05)
    finally:
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener
