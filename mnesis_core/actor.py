"""Who acts: the actor that each entry of a ledger names, and the id of the request by which it acts.

A person is named by a pseudonym, whose meaning only the site's own table knows, so a ledger can be handed out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

# What a proxy may call a request: a UUID, hexadecimal digits, a ULID and the like.
_GIVEN = re.compile(r"[A-Za-z0-9_-]{8,64}")
_TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
PREFIX = "req_"
_NAME = re.compile(r"[A-Za-z0-9_-]{0,64}")
_MEMBERS = {
    **dict.fromkeys(("kind", "via"), re.compile(r"[a-z0-9_]{0,16}")),
    **dict.fromkeys(("ref", "for"), _NAME),
    "request": re.compile(rf"({PREFIX}[A-Za-z0-9_-]{{1,64}})?"),
}
_IN_BODY = re.compile(r'"actor":(\{[^{}]*\})')


class ActorKind(StrEnum):
    USER = "user"  # a person, signed in
    KEY = "key"  # a program, with an API key
    WORKER = "worker"  # work that was asked for, or decided, before and elsewhere
    COMMAND = "command"  # a person at the host
    MODEL = "model"  # an agent, whose message began this
    VISITOR = "visitor"  # somebody with a link that anyone may open, not signed in
    SYSTEM = "system"  # nobody asked for it at that moment: recovery, sweeps, thresholds


class Via(StrEnum):
    PAGE = "page"
    API = "api"
    SOCKET = "socket"
    RPC = "rpc"
    MCP = "mcp"
    V1 = "v1"
    COMMAND = "command"
    ADMIN = "admin"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    kind: str = ""  # an ``ActorKind``; empty while no one is known
    # A user's pseudonym, a key's prefix, the name of a command or of a worker's task, the session of a model.
    ref: str = ""
    for_ref: str = ""  # the pseudonym of the person for whom anyone else acts
    via: str = ""  # a ``Via``; empty where it came through no endpoint
    request: str = ""

    @property
    def person(self) -> str:
        """Return the pseudonym of the person who acts, or for whom another does; empty where there is none."""
        return self.ref if self.kind == ActorKind.USER else self.for_ref

    @property
    def text(self) -> str:
        """Return the actor as a body holds it: canonical JSON without empty members."""
        members = {"for": self.for_ref, "kind": self.kind, "ref": self.ref, "request": self.request, "via": self.via}
        return orjson.dumps({name: value for name, value in members.items() if value}).decode()

    def unasked(self) -> Actor:
        """Return the actor of what happens on the way without having been asked for."""
        if self.kind in (ActorKind.SYSTEM, ActorKind.WORKER):
            return self
        return Actor(kind=ActorKind.SYSTEM, for_ref=self.person, request=self.request)

    def later(self, task: str) -> Actor:
        """Return the actor of the work that this one asked for, done later or elsewhere by a worker's ``task``."""
        worker = {"kind": ActorKind.WORKER.value, "ref": task, "via": Via.WORKER.value}
        return Actor(**worker, for_ref=self.person, request=self.request)


def read_actor(value: Any) -> Actor:
    """Return the actor of a body's member, or of its text; one of no kind where there is none, or none that we write.

    What is imported may hold anything, and what is kept goes into later entries.
    """
    try:
        told = orjson.loads(value) if isinstance(value, str) and value else value
        members = {name: told.get(name, "") for name in _MEMBERS}
        if all(_MEMBERS[name].fullmatch(text) for name, text in members.items()):
            return Actor(for_ref=members.pop("for"), **members)
    except (ValueError, TypeError, AttributeError):
        pass
    return Actor()


def actor_in(body: str) -> Actor:
    """Return the actor that a body names, of which the beginning is enough."""
    found = _IN_BODY.search(body)
    return read_actor(found[1]) if found else Actor()


def describe_actor(actor: Actor, names: Mapping[str, str]) -> str:
    """Return in words who acts; empty where no one is named. ``names`` are of the pseudonyms that the reader may know."""
    person = names.get(actor.person, actor.person)
    if actor.kind == ActorKind.USER:
        return person
    kinds: dict[str, str] = {
        ActorKind.KEY: f"API key {actor.ref}",
        ActorKind.WORKER: f"worker ({actor.ref})",
        ActorKind.COMMAND: f"manage.py {actor.ref}",
        ActorKind.MODEL: "another agent",
        ActorKind.VISITOR: "a visitor who is not signed in",
        ActorKind.SYSTEM: "the system",
    }
    who = kinds.get(actor.kind, actor.kind)
    return f"{who} for {person}" if person else who


def given_request_id(request_id: str, traceparent: str) -> str:
    """Return the id that a proxy gave a request, by either header, or an empty text if neither can be one.

    :param traceparent: of W3C's trace context
    """
    if _GIVEN.fullmatch(request_id):
        return f"{PREFIX}{request_id.removeprefix(PREFIX)}"
    trace = _TRACE.fullmatch(traceparent)
    return f"{PREFIX}{trace[1]}" if trace else ""
