"""What a worker needs of each kind of operator: how items are made ready, begun and tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.maps.values import ErrorKind, ItemRecord, ItemState, Settlement
from sessions_app.record.change import Change

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Generic[Q]):
    """An item that this worker holds, and what is to be asked about it."""

    item: ItemRecord
    question: Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(Generic[Q]):
    """An item whose try is written down and may be made."""

    ready: Ready[Q]
    call_id: str | None = None
    began: float = field(default_factory=time.monotonic)
    """By ``time.monotonic``."""

    @property
    def duration_ms(self) -> int:
        """How long ago it began."""
        return int((time.monotonic() - self.began) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An item to be settled."""

    item: ItemRecord
    settlement: Callable[[], Settlement]
    """Judges the answer, which may take long."""


class Trying(Protocol[Q, A]):
    """One kind of operator, for one run. What takes time is done in a thread, nothing held."""

    spec: ModelSpec
    """Of the model that is asked."""

    @property
    def resting(self) -> int:
        """Tries in flight that wait for another run and ask nobody: they keep nothing from that one."""
        ...

    def prepare(self, items: Sequence[ItemRecord]) -> tuple[list[Ready[Q]], list[Ended]]:
        """Read and render what is to be asked, in a thread; and settle what can never be asked."""
        ...

    def begin(self, record: Change, ready: Sequence[Ready[Q]]) -> list[Begun[Q]]:
        """Write down what will be asked: as many as limits allow, the first ones.

        :raises BudgetExhausted: not even one, though nothing of the run is in flight that could give something back.
        """
        ...

    async def ask(self, begun: Begun[Q]) -> A:
        """Try; whatever happens there is an answer, but for a cancellation."""
        ...

    def settle(self, begun: Begun[Q], answer: A) -> Settlement:
        """Judge an answer, in a thread."""
        ...

    def cut_off(self, begun: Begun[Q]) -> Settlement:
        """The settlement of a try that was cancelled."""
        ...


def put_back(item: ItemRecord) -> Settlement:
    """The settlement of an item that this worker gives back untried."""
    return Settlement(item=item.number, number=item.attempts, state=ItemState.PENDING, excused=True)


def hopeless_item(item: ItemRecord, kind: ErrorKind, message: str) -> Ended:
    """An item that nobody will try: what is to be asked about it cannot be put together."""
    settlement = Settlement(
        item=item.number, number=item.attempts, state=ItemState.FAILED, error_kind=kind, error=message
    )
    return Ended(item=item, settlement=lambda: settlement)
