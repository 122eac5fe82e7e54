"""The interface of an item executor: how a worker prepares, starts, attempts and settles the items of one run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from django.utils.translation import gettext_noop

from agents_app.queries import load_attempts
from files_app.contents import reading
from files_app.queries import load_file_reference
from mnesis_core.errors import MnesisError, ModelCallAbandoned
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.maps import values as maps
from mnesis_core.maps.prompts import schema_of
from mnesis_core.maps.throughput import is_deadly
from sessions_app.llm.calls import RateLimitPause
from sessions_app.record.change import Change
from sessions_app.record.session_queries import load_session

Q = TypeVar("Q")
A = TypeVar("A")
Item = TypeVar("Item", maps.ItemRecord, maps.ItemResult)
FinishedItem = tuple[maps.ItemRecord, Callable[[], maps.Settlement]]
"""An item and how it is settled: the answer is judged, which may take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedItem(Generic[Q]):
    item: maps.ItemRecord
    question: Q


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedItem(PreparedItem[Q]):
    call_id: str | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def duration_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)


class ItemExecutor(ABC, Generic[Q, A]):
    """One kind of operator, for one run."""

    spec: ModelSpec

    def __init__(self, run: maps.RunRecord, *, pause_of: Callable[[str], RateLimitPause]) -> None:
        """:raises ModelNotFoundError: the run's model is not there any more."""
        self.run = run
        self.session = load_session(run.session_id)
        self.alias = run.spec.model or self.session.model
        self.pause = pause_of(self.alias)
        self.schema = schema_of(run.spec)
        self._content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id

    @property
    def waiting(self) -> int:
        """The number of attempts in flight that wait for another run: they take no permit from that one."""
        return 0

    def prepare(self, items: Sequence[maps.ItemRecord]) -> tuple[list[PreparedItem[Q]], list[FinishedItem]]:
        """Read and render what is to be asked, in a thread, and settle items about which nothing can be asked."""
        if not items:
            return [], []
        attempts = load_attempts(self.run.id, [item.number for item in items if item.attempts > 1])
        prepared: list[PreparedItem[Q]] = []
        rejected: list[FinishedItem] = []
        for item, line in lines_of_items(self._content_id, items):
            try:
                if is_deadly(item.excused):
                    raise ModelCallAbandoned(
                        gettext_noop("Every process that tried this item ended before it had a result.")
                    )
                question = self.make_question(item, maps.read_item(line), attempts.get(item.number, []))
                prepared.append(PreparedItem(item=item, question=question))
            except MnesisError as error:
                values = {"error_kind": maps.ErrorKind.VALIDATION, "error": error.message}
                rejected.append((item, partial(settlement, item, maps.ItemState.FAILED, **values)))
        return prepared, rejected

    @abstractmethod
    def make_question(self, item: maps.ItemRecord, value: Any, attempts: Sequence[maps.AttemptRecord]) -> Q:
        """Return what is to be asked about an item, in view of what was answered in earlier attempts.

        :raises MnesisError: it cannot be asked about.
        """

    @abstractmethod
    def start(self, record: Change, prepared: Sequence[PreparedItem[Q]]) -> list[StartedItem[Q]]:
        """Record the attempts that the limits allow, in order.

        :raises BudgetExhausted: the limits allow none, and nothing of the run is in flight that could return a part.
        """

    @abstractmethod
    async def ask(self, started: StartedItem[Q]) -> A:
        """Make the attempt. Only a cancellation is raised; any other failure is an answer."""

    @abstractmethod
    def settle(self, started: StartedItem[Q], answer: A) -> maps.Settlement:
        """Judge an answer, in a thread."""

    @abstractmethod
    def settle_cancelled(self, started: StartedItem[Q]) -> maps.Settlement: ...


def settlement(item: maps.ItemRecord, state: maps.ItemState, **values: Any) -> maps.Settlement:
    return maps.Settlement(item=item.number, number=item.attempts, state=state, **values)


def put_back(item: maps.ItemRecord) -> maps.Settlement:
    """Return the settlement of an item that this worker gives back without an attempt."""
    return settlement(item, maps.ItemState.PENDING, excused=True)


def lines_of_items(content_id: str, items: Iterable[Item]) -> Iterator[tuple[Item, bytes]]:
    """:raises FileContentNotFound: the content is not kept here."""
    with reading(content_id) as read:
        for item in items:
            yield item, read(item.offset, item.length)
