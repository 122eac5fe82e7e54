"""The one way to ask a model: the call is a row before the model is asked, and its end is written once.

``ModelCaller.ask_model`` draws on the spending limits and writes the call, waits while the model's rate-limit pause lasts,
asks, asks again where that may help, and goes on with a shorter prompt or with the next model of the chain. Each kind of
call (a turn's, a summary's, a file's description) is a subclass that says what differs. Maps plan their calls as
``PlannedCall`` too and ask through ``RateLimitPause``, but write and end many calls in one change.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from django.utils import timezone

from mnesis_core.config import Config
from mnesis_core.errors import ModelCallAbandoned, ModelNotFoundError, ModelRateLimited
from mnesis_core.llm.interface import Model, ModelSpec, Outcome, Reply, Request, Usage, complete, cost_micros
from mnesis_core.llm.retrying import Patience, Retry, fallbacks_of, is_too_long, may_ask_another, pause_before_retry
from mnesis_core.maps.throughput import pause_of_model
from mnesis_core.records import SessionRecord
from mnesis_core.spending import LimitUse, Spent, highest_of
from sessions_app.conf import get_model, get_spec_to_read, site_config
from sessions_app.database.threads import db, in_waiting_thread
from sessions_app.llm.limits import SpendingLimit, draw
from sessions_app.record import turn_store
from sessions_app.record.change import Change

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)

SharePause = Callable[..., datetime]
"""Tells other processes that a model refused a call: takes its alias, ``seconds`` and when the call ``began``, and returns
until when it is not asked."""


class RateLimitPause:
    """The pause that a model's "too many requests" imposes on every caller in this process.

    What other workers learnt comes with the heartbeat.
    """

    def __init__(self, alias: str, *, share: SharePause) -> None:
        self._alias = alias
        self._share = share
        self._until: datetime | None = None

    def extend(self, until: datetime | None) -> None:
        if until is not None and (self._until is None or until > self._until):
            self._until = until

    async def wait(self) -> None:
        while self._until is not None and self._until > (now := timezone.now()):  # noqa: ASYNC110 - it may be extended
            await asyncio.sleep((self._until - now).total_seconds())

    async def ask(
        self, ask: Callable[[], Awaitable[Reply]], *, attempts: int = 1, most_attempts: int = 1
    ) -> tuple[Reply, int]:
        """Ask the model when it may be asked, and tell all workers if it refuses; return the reply and the attempts made.

        :param attempts: the number of times that this call has been made, this one included
        :param most_attempts: a call that is refused is made again up to this number of times
        """
        while True:
            await self.wait()
            began = timezone.now()
            reply = await ask()
            if not isinstance(reply.error, ModelRateLimited):
                return reply, attempts
            longest = site_config().operators.retry_longest_seconds
            seconds = pause_of_model(reply.error, in_a_row=attempts, longest_seconds=longest, now=timezone.now())
            self.extend(await db(self._share, self._alias, seconds=seconds, began=began))
            if attempts >= most_attempts:
                return reply, attempts
            attempts += 1


# By the models' aliases. Not in a context variable, because a turn begins in an empty context.
_PAUSES: dict[str, RateLimitPause] = {}


def keep_pause(alias: str, *, share: SharePause) -> RateLimitPause:
    """Return the pause of a model; the caller drops it when its runs ask the model no more."""
    return _PAUSES.setdefault(alias, RateLimitPause(alias, share=share))


def drop_pauses(aliases: Iterable[str]) -> None:
    for alias in aliases:
        _PAUSES.pop(alias, None)


def find_pause(alias: str) -> RateLimitPause | None:
    """Return the pause of a model that map runs of this process ask; ``None`` where none does."""
    return _PAUSES.get(alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call that has not begun: the request to the model, and the values of the call's row."""

    model: Model
    spec: ModelSpec  # the model's, with the prices and the window that count for this session
    request: Request
    purpose: str
    prompt_tokens: int  # Estimated; the most that the call can take is counted from them
    estimated_tokens: int
    parameters: Mapping[str, Any]
    """The parameters of the row, in addition to those in the payload and the most that the call can take."""
    manifest: Sequence[Mapping[str, Any]]
    digest: str
    context_seq: int | None = None
    """The event as of which the context was read; ``None``: the newest when the call is written."""
    texts: Mapping[str, str] = field(default_factory=dict)
    highest: Spent = field(init=False)
    """The most that the call can take."""

    def __post_init__(self) -> None:
        most = Usage(input_tokens=self.prompt_tokens, output_tokens=self.request.max_output_tokens)
        object.__setattr__(self, "highest", highest_of(most.total_tokens, cost_micros(self.spec, most)))

    def columns(self) -> dict[str, Any]:
        """Return what the call's row says of the plan, whatever the call belongs to."""
        return {
            "purpose": self.purpose,
            "model": self.spec.alias,
            "provider_model": self.spec.litellm_model,
            "parameters": {
                **self.request.parameters(),
                **self.highest.as_parameters(),
                **self.parameters,
            },
            "manifest": list(self.manifest),
            "digest": self.digest,
            "estimated_tokens": self.estimated_tokens,
        }


@dataclass(slots=True, kw_only=True)
class RunningCall:
    """A call whose row is written, until its end is."""

    id: str
    planned: PlannedCall
    message_id: str | None  # the message that the answer becomes, in a turn
    time_limit: LimitUse | None  # the spending limit on the time that the call may take
    began: float = field(default_factory=time.monotonic)
    attempts: int = 1


class ModelCaller(ABC, Generic[A]):
    """One kind of model call: what differs between the kinds, and the loop that they share."""

    patience: Patience
    turn_id: str | None = None
    waits_for_pause = False  # whether the model's rate-limit pause is waited for

    async def ask_model(self) -> A:
        """:raises BudgetExhausted: a limit would be passed; the call is not made."""
        while True:
            call = await self.begin()
            self.started(call)
            reply = await self._ask_patiently(call)
            answer = await self.finish(call, reply)
            if is_too_long(reply) and await self.shorten_prompt():
                continue
            if may_ask_another(reply) and await self.use_next_model():
                continue
            return answer

    async def begin(self) -> RunningCall:
        """Plan the next call and write it.

        :raises BudgetExhausted: a limit would be passed.
        """
        return await self.in_thread(self._start, await self.plan())

    @abstractmethod
    async def plan(self) -> PlannedCall:
        """Return the next call to the model that is asked now."""

    async def in_thread(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that uses the database, in the thread that waits for the answer."""
        return await in_waiting_thread(call)(*args, **kwargs)

    @abstractmethod
    def held(self) -> AbstractContextManager[Change]:
        """Return a change of the session that is refused if the work is not this process's any more."""

    @abstractmethod
    def limits(self, highest: Spent) -> Sequence[SpendingLimit]:
        """Return what a call draws on; read before the change begins.

        :raises BudgetExhausted: a limit of the caller's own would be passed.
        """

    def check(self, record: Change) -> None:
        """Refuse the call in the change that would write it, by raising."""

    def write_start(self, record: Change, about: dict[str, Any]) -> tuple[str, str | None]:
        """Write the call; return its id, and that of the message that its answer becomes, if there is one.

        :param about: the arguments of ``turn_store.start_call``, but for the message
        """
        return turn_store.start_call(record, message_id=None, **about), None

    def started(self, call: RunningCall) -> None:
        """Note that the call is written and about to be made."""

    @abstractmethod
    def seconds(self, call: RunningCall) -> float:
        """Return how long the call may take, all attempts and the waits between them included."""

    async def receive(self, call: RunningCall, request: Request) -> Reply:
        return await complete(call.planned.model, request)

    @abstractmethod
    async def finish(self, call: RunningCall, reply: Reply) -> A:
        """Write how the call ended, and return what came of it."""

    async def shorten_prompt(self) -> bool:
        """Have the next call plan a shorter prompt, since this one was refused as too long; return whether it will."""
        return False

    @abstractmethod
    async def use_next_model(self) -> bool:
        """Ask the next model of the chain from now on; return whether there is one."""

    def _start(self, planned: PlannedCall) -> RunningCall:
        limits = self.limits(planned.highest)
        with self.held() as record:
            return self.start_in(record, limits, planned)

    def start_in(self, record: Change, limits: Sequence[SpendingLimit], planned: PlannedCall) -> RunningCall:
        """Draw on the limits and write a call in a change; one that is refused writes no call.

        :raises BudgetExhausted: a limit would be passed.
        """
        self.check(record)
        time_limit = draw(record, limits, planned.highest)
        about = {
            "turn_id": self.turn_id,
            "context_seq": record.event_seq if planned.context_seq is None else planned.context_seq,
            "texts": planned.texts,
            **planned.columns(),
        }
        call_id, message_id = self.write_start(record, about)
        return RunningCall(id=call_id, planned=planned, message_id=message_id, time_limit=time_limit)

    async def _ask_patiently(self, call: RunningCall) -> Reply:
        """Ask, and again while that may help, until the deadline of the whole call."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.seconds(call)
        pause = find_pause(call.planned.spec.alias) if self.waits_for_pause else None
        while True:
            request = replace(call.planned.request, seconds=deadline - clock())
            if pause is None:
                reply = await self.receive(call, request)
            else:
                reply, _ = await pause.ask(partial(self.receive, call, request), attempts=call.attempts)
            wait = pause_before_retry(
                reply,
                self.patience,
                attempts=call.attempts,
                seconds_left=deadline - clock(),
                now=datetime.now(UTC),
                chance=random.random(),  # noqa: S311 - a pause is no secret
            )
            if wait is None or reply.error is None:
                return reply
            retry = Retry(attempt=call.attempts, error=reply.error, pause_seconds=wait)
            await self.in_thread(self._record_retry, call.id, retry)
            call.attempts += 1
            await asyncio.sleep(wait)

    def _record_retry(self, call_id: str, retry: Retry) -> None:
        with self.held() as record:
            turn_store.note_retry(record, call_id, retry)


def load_fallbacks(alias: str, session: SessionRecord, config: Config) -> list[Model]:
    """Return the models to ask when one gives nothing, in order, without those that its owner may not use."""
    of_session = config.fallbacks if alias == session.model else ()
    models = []
    for name in fallbacks_of(alias, of_session=of_session, of_entry=get_spec_to_read(alias).fallbacks):
        with suppress(ModelNotFoundError):
            models.append(get_model(name, user_id=session.owner_id))
    return models


async def complete_or_abandon(model: Model, request: Request, *, prompt_tokens: int) -> Reply:
    """Return the whole answer, or a broken reply with ``ModelCallAbandoned`` where the adapter raised an exception."""
    try:
        return await complete(model, request)
    except Exception:
        logger.exception("a call to %s broke", model.spec.alias)
        usage = Usage(input_tokens=prompt_tokens, output_tokens=0)
        return Reply(text="", usage=usage, outcome=Outcome.BROKEN, error=ModelCallAbandoned())
