"""The interface of an item executor: how a worker prepares, starts, attempts and settles the items of one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from files_app.contents import reading
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.maps.values import ErrorKind, ItemRecord, ItemState, Settlement
from sessions_app.record.change import Change

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedItem(Generic[Q]):
    """An item that this worker holds, with what is to be asked about it."""

    item: ItemRecord
    question: Q


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedItem(Generic[Q]):
    """An item whose attempt is recorded and may be made."""

    prepared: PreparedItem[Q]
    call_id: str | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def item(self) -> ItemRecord:
        return self.prepared.item

    @property
    def duration_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedItem:
    """An item to be settled. ``settle`` judges the answer, which may take long."""

    item: ItemRecord
    settle: Callable[[], Settlement]


class ItemExecutor(Protocol[Q, A]):
    """One kind of operator, for one run."""

    spec: ModelSpec

    @property
    def waiting(self) -> int:
        """The number of attempts in flight that wait for another run: they take no permit from that one."""
        ...

    def prepare(self, items: Sequence[ItemRecord]) -> tuple[list[PreparedItem[Q]], list[FinishedItem]]:
        """Read and render what is to be asked, in a thread, and settle items about which nothing can be asked."""
        ...

    def start(self, record: Change, prepared: Sequence[PreparedItem[Q]]) -> list[StartedItem[Q]]:
        """Record the attempts that the limits allow, in order.

        :raises BudgetExhausted: the limits allow none, and nothing of the run is in flight that could return a part.
        """
        ...

    async def ask(self, started: StartedItem[Q]) -> A:
        """Make the attempt. Only a cancellation is raised; any other failure is an answer."""
        ...

    def settle(self, started: StartedItem[Q], answer: A) -> Settlement:
        """Judge an answer, in a thread."""
        ...

    def settle_cancelled(self, started: StartedItem[Q]) -> Settlement: ...


def put_back(item: ItemRecord) -> Settlement:
    """Return the settlement of an item that this worker gives back without an attempt."""
    return Settlement(item=item.number, number=item.attempts, state=ItemState.PENDING, excused=True)


def rejected_item(item: ItemRecord, message: str) -> FinishedItem:
    """Return an item that fails without an attempt because its question cannot be made."""
    settlement = Settlement(
        item=item.number,
        number=item.attempts,
        state=ItemState.FAILED,
        error_kind=ErrorKind.VALIDATION,
        error=message,
    )
    return FinishedItem(item=item, settle=lambda: settlement)


class Span(Protocol):
    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


S = TypeVar("S", bound=Span)


def lines_of_items(content_id: str, items: Iterable[S]) -> Iterator[tuple[S, bytes]]:
    """Yield each item with its line of the input.

    :raises FileContentNotFound: the content is not kept here.
    """
    with reading(content_id) as read:
        for item in items:
            yield item, read(item.offset, item.length)
