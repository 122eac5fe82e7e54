"""What one running turn may still spend: asked before each call, and the clock that cuts it off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from mnesis_core.endings import BudgetExhausted
from mnesis_core.spending import Line, Spent
from sessions_app.ledger import Change
from sessions_app.spending import Purse, draw, exhausted_at, warn


class TurnPurse:
    """All limits that a turn draws on. Where there is none, nothing here costs anything."""

    def __init__(self, purses: Sequence[Purse]) -> None:
        self._purses = purses
        self._time: Line | None = None
        # Not timeout(None), which asks for a running loop: a thread makes this.
        self._timer = asyncio.Timeout(None)

    def draw(self, record: Change, coming: Spent) -> None:
        """Before something is spent, in the change that writes it.

        :raises BudgetExhausted: a limit would be passed.
        """
        self._time = draw(record, self._purses, coming)

    def warn(self, record: Change) -> None:
        """After something was spent: say which limits are nearly used up."""
        warn(record, self._purses)

    def wind(self) -> None:
        """Set the clock to what is left, as drawn last."""
        if self._time is not None:
            self._timer.reschedule(asyncio.get_running_loop().time() + self._time.left)

    @asynccontextmanager
    async def hard_stop(self) -> AsyncIterator[None]:
        """Cut off what is in the block when there is no time left.

        :raises BudgetExhausted: it was cut off.
        """
        try:
            async with self._timer:
                yield
        except TimeoutError:
            if self._time is None or not self._timer.expired():
                raise
            raise time_is_up(self._time) from None


def time_is_up(line: Line) -> BudgetExhausted:
    """What a clock that ran out says."""
    return exhausted_at(replace(line, spent=line.limit))
