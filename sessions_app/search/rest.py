"""Models that a search asks beside the words, within people's limits, and does without where they fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from mnesis_core.errors import ModelError, ModelNotFoundError
from mnesis_core.llm.interface import ModelSpec
from sessions_app.database.outages import log_outage

logger = logging.getLogger(__name__)
SECONDS = 30.0
T = TypeVar("T")


class Drawing(Protocol):
    """Limits that models of the search draw on (``sessions_app.llm.limits.drawing_for_search``)."""

    def __call__(
        self, owner_id: int, spec: ModelSpec, *, tokens: int
    ) -> AbstractContextManager[Callable[[int], None]]: ...


_drawings: list[Drawing] = []


def use(drawing: Drawing) -> None:
    """Plug in the limits when Django is ready, since they rest on the record, which rests on the index."""
    _drawings[:] = [drawing]


def drawing(owner_id: int, spec: ModelSpec, *, tokens: int) -> AbstractContextManager[Callable[[int], None]]:
    """Have a model asked in the block, which is given a function that it tells how many tokens were read.

    :raises BudgetExhausted: a limit of the owner's would be passed.
    """
    [plugged] = _drawings
    return plugged(owner_id, spec, tokens=tokens)


class Rest:
    """A model that failed is not asked for half a minute: each search would wait for it."""

    def __init__(self, words: str) -> None:
        """:param words: what the log says when the model fails"""
        self.words = words
        self.until = 0.0

    def ask(self, ask: Callable[[], T | None]) -> T | None:
        """Return what ``ask`` returns; ``None`` while the model rests, and where it fails."""
        if time.monotonic() < self.until:
            return None
        try:
            return ask()
        except (ModelError, ModelNotFoundError) as error:
            self.until = time.monotonic() + SECONDS
            log_outage(logger, self.words, error)
            return None
