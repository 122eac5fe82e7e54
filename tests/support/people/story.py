"""Fixtures for stories: a small cast, a scripted model in place of the demo, and a turn run to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from audit_app.proof.verify import verify_session
from compaction_app.context.state import rebuild_payload
from mnesis_core.llm.interface import Model, ModelSpec, Request, ToolCall
from mnesis_core.messages import StoredMessage, text_of
from mnesis_core.providers.scripted import Script, ScriptedModel
from mnesis_core.records import CallRecord, SessionRecord, TurnRecord
from mnesis_core.turns.options import TurnOptions
from sessions_app.database.threads import db
from sessions_app.live import Frame, follow
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls, load_turn
from tests.support.waiting import PATIENCE_SECONDS

_MODELS: dict[str, ScriptedModel] = {}

Scripts = list[Script | Callable[[Request], Script]] | Callable[[Request], Script]


def make_model(spec: ModelSpec) -> Model:
    """What ``MODEL_FACTORY`` names in stories: the model that ``script`` put there."""
    return _MODELS[spec.alias]


@pytest.fixture
def script(settings: Any) -> Iterator[Callable[..., ScriptedModel]]:
    """Put a script in place of the ``demo`` model: ``script("first answer", Step(…))``."""
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": "tests.support.people.story.make_model"}

    def install(
        *replies: Script | Callable[[Request], Script], window: int = 8_000, alias: str = "demo"
    ) -> ScriptedModel:
        spec = ModelSpec(alias=alias, litellm_model=f"scripted/{alias}", context_window=window, max_output_tokens=1_000)
        scripted: Scripts = replies[0] if len(replies) == 1 and callable(replies[0]) else list(replies)
        _MODELS[alias] = ScriptedModel(spec, scripted)
        return _MODELS[alias]

    yield install
    _MODELS.clear()


@pytest.fixture
def alice(transactional_db: None) -> User:
    """The owner of the sessions."""
    return get_user_model().objects.create_user("alice")


@pytest.fixture
def bob(transactional_db: None) -> User:
    """Another user."""
    return get_user_model().objects.create_user("bob")


@pytest.fixture
def session(alice: User) -> SessionRecord:
    """An empty session of Alice's."""
    return lifecycle.create_session(owner=alice)


@pytest.fixture(autouse=True)
async def quiet_runner() -> AsyncIterator[None]:
    """No turn and no heartbeat outlives its test."""
    yield
    await runner.shutdown()


def tool_call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCall:
    """What a model asks of a tool."""
    return ToolCall(id=id, name=name, arguments=json.dumps(arguments))


async def begin(
    session: SessionRecord, message: str, *, until: ScriptedModel | None = None, **options: Any
) -> TurnRecord:
    """One turn, started; with a model, as far as the gate of its script. ``options`` are those of ``TurnOptions``."""
    started = await lifecycle.start_turn(
        session.id, owner_id=session.owner_id, message=message, options=TurnOptions(**options)
    )
    if until:
        await asyncio.wait_for(until.at_gate.wait(), PATIENCE_SECONDS)
    return started.turn


async def say(session: SessionRecord, message: str) -> TurnRecord:
    """One turn, started and waited for."""
    return await ended(await begin(session, message))


async def ended(turn: TurnRecord) -> TurnRecord:
    """The turn when it has ended."""
    await asyncio.wait_for(runner.wait(turn.id), PATIENCE_SECONDS)
    return await db(load_turn, turn.id, session_id=turn.session_id)


async def history(session: SessionRecord) -> list[StoredMessage]:
    """Every message of a session."""
    return await db(load_messages, session.id, limit=1_000)


def spoken(message: StoredMessage) -> str:
    """The text of a message."""
    return text_of(tuple(stored.part for stored in message.parts))


async def part_when(session: SessionRecord, is_so: Callable[[Any], object]) -> Any:
    """The first part of the second message, when it is there and has become so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            parts = [stored.part for message in (await history(session))[1:2] for stored in message.parts[:1]]
            if parts and is_so(parts[0]):
                return parts[0]
            await asyncio.sleep(0.02)


async def frames_until(session: SessionRecord, type: str, *, after: int = 0) -> list[Frame]:
    """The frames of a session up to the first of a type."""
    seen: list[Frame] = []
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(session.id, after=after)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            seen.append(frame)
            if frame["type"] == type:
                return seen
    raise AssertionError("the stream of frames ended")


async def calls_rebuilt(session: SessionRecord) -> list[CallRecord]:
    """The session's calls, each the same again; the session is verified."""
    calls = await db(list_calls, session.id, limit=500)
    for call in calls:
        rebuilt = await db(rebuild_payload, call)
        assert rebuilt.digest_matches, rebuilt.problems
    report = await db(verify_session, session.id)
    assert report.ok, report.problems
    return calls
