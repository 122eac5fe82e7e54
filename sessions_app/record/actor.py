"""Who acts in this context. It is set where work begins, at an endpoint, a command or a worker, and each change reads it."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from mnesis_core.actor import Actor, ActorKind
from mnesis_core.errors import MnesisError
from mnesis_core.records import new_request_id

SYSTEM = Actor(kind=ActorKind.SYSTEM)


@dataclass(slots=True, kw_only=True)
class Acting:
    """Who acts by one request. It is looked up when it is first needed: a caller is known later, and most write nothing."""

    who: Callable[[], Actor]
    via: str = ""
    request: str = ""
    _found: Actor | None = None

    @property
    def actor(self) -> Actor:
        found = self._found or replace(self.who(), via=self.via, request=self.request)
        self._found = found if found.kind else None
        return found


_acting: ContextVar[Acting | None] = ContextVar("acting", default=None)


def current_actor() -> Actor:
    """Return who acts here. Where no one was set it is the system, or an error in tests: an endpoint forgot to.

    :raises RuntimeError: no one acts here, and ``REQUIRE_ACTOR`` is set.
    """
    acting = _acting.get()
    actor = acting.actor if acting else Actor()
    if actor.kind:
        return actor
    if settings.MNESIS["REQUIRE_ACTOR"]:
        raise RuntimeError("nobody acts here: the endpoint, command or worker must say who (sessions_app.record.actor)")
    return replace(actor, kind=ActorKind.SYSTEM)


def current_request() -> str:
    acting = _acting.get()
    return acting.request if acting else ""


def error_body(error: MnesisError) -> dict[str, Any]:
    """Return an error as an answer of the current request tells it."""
    request = current_request()
    return error.as_dict() | ({"request": request} if request else {})


@contextmanager
def serving(*, via: str, request: str, who: Callable[[], Actor] = Actor) -> Iterator[None]:
    """Let the block belong to a request; ``who`` says whose it is, once that is known."""
    token = _acting.set(Acting(who=who, via=via, request=request))
    try:
        yield
    finally:
        _acting.reset(token)


def acting_as(actor: Actor) -> AbstractContextManager[None]:
    return serving(via=actor.via, request=actor.request, who=lambda: actor)


def identified_as(actor: Actor) -> AbstractContextManager[None]:
    """Let this one act in the block, by the request that the context has, or by a new one."""
    acting = _acting.get()
    via, request = (acting.via, acting.request) if acting else ("", "")
    return serving(via=via, request=request or new_request_id(), who=lambda: actor)


def unasked() -> AbstractContextManager[None]:
    """Let the block do what no person asks for at this moment."""
    return acting_as(current_actor().unasked())


def context_of(actor: Actor) -> contextvars.Context:
    """Return an otherwise empty context in which this one acts, for a task that outlives its request."""
    context = contextvars.Context()
    context.run(_acting.set, Acting(who=lambda: actor, via=actor.via, request=actor.request))
    return context


class RequestOfLine(logging.Filter):
    """Gives lines of the log the id of the request that they are about, as ``request_id``, with a space behind it."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = current_request()
        record.request_id = f"{request} " if request else ""
        return True
