"""The way to a model, shut for everybody while it says "too many requests"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime

from django.utils import timezone

from agents_app import store
from mnesis_core.endings import ModelRateLimited
from mnesis_core.operators.deciding import pause_of_model
from sessions_app.conf import site_config
from sessions_app.database import db


class Gate:
    """One model's, in one worker. Other workers' news come with the heartbeat."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._until: datetime | None = None

    def shut(self, until: datetime | None) -> None:
        """Let nobody through before."""
        if until is not None and (self._until is None or until > self._until):
            self._until = until

    async def wait(self) -> None:
        """Return when the model may be asked."""
        while (seconds := self._seconds()) > 0:  # noqa: ASYNC110 - it may be shut for longer meanwhile
            await asyncio.sleep(seconds)

    async def refuse(self, error: ModelRateLimited, *, in_a_row: int, began: datetime) -> None:
        """The model refused a call that was made at ``began``: tell everybody.

        :param in_a_row: how often it has refused this call by now
        """
        longest = site_config().operators.retry_longest_seconds
        seconds = pause_of_model(error, in_a_row=in_a_row, longest_seconds=longest, now=timezone.now())
        self.shut(await db(store.brake_model, self.alias, seconds=seconds, began=began))

    def _seconds(self) -> float:
        return 0.0 if self._until is None else (self._until - timezone.now()).total_seconds()


_GATES: dict[str, Gate] = {}
"""Those of the worker in this process, by the aliases of models. Not in a context: turns begin in an empty one."""


def gate_of(alias: str) -> Gate:
    """The gate of a model, to be dropped by who asked for it."""
    return _GATES.setdefault(alias, Gate(alias))


def drop_gates(aliases: Iterable[str]) -> None:
    """Forget the gates of models that no run of this process asks any more."""
    for alias in aliases:
        _GATES.pop(alias, None)


def kept_gate(alias: str) -> Gate | None:
    """The gate of a model that runs of this process ask; ``None`` where none does."""
    return _GATES.get(alias)
