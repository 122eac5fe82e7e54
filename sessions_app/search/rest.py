"""Models that a search asks beside the words, and does without where they fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from mnesis_core.errors import ModelError, ModelNotFoundError
from sessions_app.database.outages import log_outage

logger = logging.getLogger(__name__)
SECONDS = 30.0
T = TypeVar("T")


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
