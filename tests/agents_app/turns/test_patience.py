"""A running turn waits for a database that cannot be reached, and for no longer than a minute."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from psycopg_pool import PoolTimeout

from agents_app.turns import transactions
from sessions_app.database import outages
from sessions_app.database.threads import ServerUnreachable

pytestmark = [pytest.mark.both_databases, pytest.mark.usefixtures("transactional_db")]


def unreachable(cause: Exception) -> OperationalError:
    error = OperationalError("no")
    error.__cause__ = cause
    return error


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_logged_at", {})


async def test_a_turn_asks_again_where_nothing_was_asked_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RETRY_SECONDS", 0.0)
    waits: list[Exception] = [unreachable(ServerUnreachable("no")) for _ in range(3)]
    waits.append(unreachable(PoolTimeout("no")))

    def ask() -> str:
        if waits:
            raise waits.pop()
        return "done"

    assert await transactions.patiently(ask) == "done"
    waits.append(OperationalError("the server closed the connection, perhaps after the commit"))
    with pytest.raises(OperationalError, match="perhaps"):
        await transactions.patiently(ask)


async def test_a_turn_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_SECONDS", 0.0)

    def ask() -> None:
        raise unreachable(ServerUnreachable("no"))

    with pytest.raises(OperationalError):
        await transactions.patiently(ask)
