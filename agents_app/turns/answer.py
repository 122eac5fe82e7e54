"""One streamed answer: to the followers at once, to the journal in batches, whole at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mnesis_core.config import StreamConfig
from mnesis_core.llm.interface import Model, Outcome, ReasoningDelta, Reply, Request, TextDelta
from mnesis_core.messages import ReasoningPart, TextPart
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import AWAY, db
from sessions_app.record import message_store
from sessions_app.record.hub import hub

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Answer:
    session_id: str
    message_id: str
    config: StreamConfig
    clock: Callable[[], float] = time.monotonic
    texts: list[list[str]] = field(default_factory=list)  # for each part, the pieces that came
    types: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    _unwritten: list[tuple[int, str]] = field(default_factory=list)
    _held_up: list[message_store.Piece] = field(default_factory=list)  # by an outage of the database
    _flushed_at: float = 0.0

    async def stream(self, model: Model, request: Request) -> Reply:
        """Ask the model, pass on and journal what it streams, and return its reply."""
        self._flushed_at = self.clock()
        async for item in model.stream(request):
            if isinstance(item, Reply):
                # A reply that says it gave nothing, after a part was passed on, would else be asked for again.
                is_begun = self.types and item.outcome is Outcome.FAILED
                return replace(item, outcome=Outcome.BROKEN) if is_begun else item
            self._take(item)
            size = sum(len(text) for _, text in self._unwritten)
            is_due = self.clock() - self._flushed_at >= self.config.journal_seconds
            if is_due or size >= self.config.journal_bytes:
                await self.flush()
        raise AssertionError("a model's stream must end with a Reply")

    async def flush(self) -> None:
        """Journal everything that came; pieces that an outage keeps from the journal are kept for the next flush."""
        unwritten, self._unwritten = self._unwritten, []
        self._flushed_at = self.clock()
        held_up = len(self._held_up)
        self._held_up += self._pieces(unwritten)
        if not self._held_up:
            return
        place = {"session_id": self.session_id, "message_id": self.message_id}
        try:
            await db(message_store.append_journal, **place, pieces=self._held_up, is_retry=held_up > 0)
        except AWAY as error:
            log_outage(logger, "What running answers say is kept in memory: the database does not take it", error)
        else:
            self._held_up = []

    @property
    def is_journalled(self) -> bool:
        return any(self.lengths)

    @property
    def parts(self) -> list[TextPart | ReasoningPart]:
        return [
            TextPart(text="".join(pieces)) if kind == TextPart.type else ReasoningPart(text="".join(pieces))
            for kind, pieces in zip(self.types, self.texts, strict=True)
        ]

    def _take(self, delta: TextDelta | ReasoningDelta) -> None:
        kind = TextPart.type if isinstance(delta, TextDelta) else ReasoningPart.type
        if not self.types or self.types[-1] != kind:
            self.types.append(kind)
            self.texts.append([])
            self.lengths.append(0)
        index = len(self.types) - 1
        self.texts[index].append(delta.text)
        self._unwritten.append((index, delta.text))
        hub.add_text(self.session_id, self.message_id, index, kind, delta.text)

    def _pieces(self, unwritten: list[tuple[int, str]]) -> list[message_store.Piece]:
        pieces = []
        for index in sorted({index for index, _ in unwritten}):
            text = "".join(piece for of, piece in unwritten if of == index)
            pieces.append(
                message_store.Piece(
                    part_index=index, part_type=self.types[index], offset=self.lengths[index], text=text
                )
            )
            self.lengths[index] += len(text)
        return pieces
