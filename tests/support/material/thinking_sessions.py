"""Generated sessions of models that think: turns, tools here and at the caller, other models, efforts, compactions in between."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from django.contrib.auth.models import User

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.claim import ToolResult
from compaction_app.compact import compact, compact_now
from compaction_app.context.state import rebuild_payload
from compaction_app.queries import list_runs, live_run
from mnesis_core.files.pictures import SentPicture, Shown
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.llm.parameters import Parameters
from mnesis_core.messages import ToolPart
from mnesis_core.records import SessionRecord, TurnRecord, TurnState
from mnesis_core.turns.options import TurnOptions
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.turn_queries import list_calls
from tests.support.material.drawings import drawing
from tests.support.people.story import ended, history
from tests.support.providers.answers import WHOLE, Streaming
from tests.support.providers.thinking_provider import Block, ThinkingProvider

MANUAL = "anthropic/claude-sonnet-4-5"
ADAPTIVE = "anthropic/claude-opus-4-6"
GEMINI = "gemini/gemini-3-pro-preview"
OPENAI = "openai/responses/gpt-5"
CHAT = "openai/gpt-5"
MODELS = {MANUAL: "manual", ADAPTIVE: "adaptive", GEMINI: "gemini", OPENAI: "openai", CHAT: "chat"}
PROVIDERS = {"Claude": (MANUAL, ADAPTIVE), "Gemini": (GEMINI,), "Responses": (OPENAI,), "Chat Completions": (CHAT,)}
STREAMINGS = (WHOLE, Streaming(characters=7), Streaming(characters=1, bytes=61), Streaming(characters=40, bytes=1_000))
WEATHER = ToolSpec(name="weather", description="The weather of a town.", parameters={"type": "object"})
EFFORTS = ("high", "high", "high", "low", "none", None)
SHOWS = 23  # Every so many numbers of shelves there is a picture on it.
COMPACTS = 9  # Every so many numbers of shelves, reading one compacts the session in the middle of its turn.


@tool()
def shelf(context: ToolContext, number: int) -> str | Shown:
    """Read a shelf, while a worker does what is queued. Some show a picture."""
    if number % COMPACTS == COMPACTS - 1:
        compact_now(context.session_id)
    elif run_id := live_run(context.session_id):
        compact(run_id=run_id)
    text = f"Shelf {number}: " + "ledgers of the harbour; " * (number % 5 * 60)
    return Shown(text=text, pictures=(drawn(number),)) if number % SHOWS == 0 else text


def drawn(number: int) -> SentPicture:
    return SentPicture(data=drawing(100 + number % 7, 80), media_type="image/png", name=f"{number}.png")


@tool()
def lamp(context: ToolContext) -> str:
    """Light the lamp, if a person allows it."""
    return "lit"


def enter_models(provider: ThinkingProvider, *, window: int = 120_000) -> None:
    for name, alias in MODELS.items():
        put_model(settle_model(
            alias=alias, litellm_model=name, api_base=provider.url, context_window=window, max_output_tokens=6_000,
            prices=EnteredPrices(), timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=None,
            parameters={"provider_tools": ["web_search"]} if name != CHAT else {},
        ))  # fmt: skip


async def thinking_session(alice: User, provider: ThinkingProvider, name: str, **about: int) -> SessionRecord:
    await db(enter_models, provider, **about)
    tools = {"tools": ["shelf", "lamp"], "ask_before": ["lamp"], "doom_loop_threshold": 10}
    config = {"turn": tools, "parameters": {"effort": "high"}, "compaction": {"model": "demo"}}
    return await db(
        lifecycle.create_session, owner=alice, model=MODELS[name], system_prompt="Be careful.", config=config
    )


async def check_calls(session: SessionRecord) -> None:
    """Check that the record makes every prompt again, byte for byte."""
    for call in await db(list_calls, session.id, limit=500):
        rebuilt = await db(rebuild_payload, call)
        assert rebuilt.digest_matches, rebuilt.problems


@dataclass
class Imagined:
    """A session that a number imagines: what its user and its models do."""

    seed: int
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.steps = 0  # that the running turn still takes

    def say(self, number: int) -> list[Block]:
        """Return what a model answers; the provider leaves out what it may not think."""
        self.steps -= 1
        thought = [self._thought() for _ in range(self.random.choice((0, 1, 1, 2)))]
        thought += self._searches(number)
        if self.steps <= 0:
            cited: list[Block] = [("cite", (f" {number} metres", "https://harbour.example/"))] * self.random.randrange(
                2
            )
            return [*thought, ("text", f"Answer {number}."), *cited]
        if self.random.random() < 0.1:
            searched: Block = ("search", f"tide {number}")
            return [*thought, ("text", "I look."), searched, ("pause", None)]
        said: list[Block] = [("text", "I look.")] if self.random.random() < 0.4 else []
        calls: list[Block] = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            calls += [self._thought()] if calls and self.random.random() < 0.3 else []
            calls.append(self._call())
        return [*thought, *said, *calls]

    def _searches(self, number: int) -> list[Block]:
        """Return what a model looks for, thinks of it, and says with its sources."""
        found: list[Block] = []
        for count in range(self.random.choice((0, 0, 1, 2))):
            found.append(("search", f"tide {number} {count}"))
            found += [self._thought()] * self.random.randrange(2)
            found += [("text", "It is high."), ("cite", ("So it says", "https://harbour.example/"))][
                : self.random.randrange(3)
            ]
        return found

    def _thought(self) -> Block:
        words = "".join(self.random.choices('abc äß☃ \n"\\{}', k=self.random.choice((0, 5, 40, 400))))
        return ("redact", "b64" + words[:3]) if self.random.random() < 0.2 else ("think", words)

    def _call(self) -> Block:
        name = self.random.choice(("shelf",) * 8 + ("weather", "lamp"))
        return "call", (name, {"number": self.random.randrange(1_000)} if name == "shelf" else {})

    async def live(self, session: SessionRecord, provider: ThinkingProvider) -> None:
        for number in range(self.random.randint(1, 4)):
            provider.streaming = self.random.choice(STREAMINGS)
            self.seen[f"streamed in pieces of {provider.streaming.characters:,}"] += 1
            self.steps = self.random.choice((1, 2, 3, 4, 6, 12))
            choice = "required" if self.steps > 1 and self.random.random() < 0.15 else None
            searches = ("web_search",) if self.random.random() < 0.6 else None
            parameters = Parameters(effort=self.random.choice(EFFORTS), tool_choice=choice, provider_tools=searches)
            model = MODELS[self.random.choice(list(MODELS))] if self.random.random() < 0.25 else ""
            options = TurnOptions(model=model, parameters=parameters, tools=(WEATHER,))
            started = await lifecycle.start_turn(
                session.id,
                owner_id=session.owner_id,
                message=f"Question {number}?",
                pictures=[drawn(number)] * self.random.choice((0,) * 9 + (1, 2)),
                options=options,
            )
            turn = await ended(started.turn)
            while turn.state == TurnState.SUSPENDED:
                turn = await self._go_on(session, turn)
            assert provider.refusals == [], (self.seed, provider.refusals)
            assert turn.state == TurnState.COMPLETED, (self.seed, turn.state, turn.error_message)
        runs = await db(list_runs, session.id)
        self.seen["compactions"] += sum(run.state == "completed" for run in runs)
        await check_calls(session)

    async def _go_on(self, session: SessionRecord, turn: TurnRecord) -> TurnRecord:
        """Answer what the turn waits for: the caller's tool, and a person's approval."""
        place = {"owner_id": session.owner_id}
        said = [message for message in await history(session) if message.turn_id == turn.id][-1]
        for stored in said.parts:
            part = stored.part
            if not isinstance(part, ToolPart) or part.output is not None or part.error is not None:
                continue
            self.seen["waits"] += 1
            if part.tool_name == "weather":
                result = ToolResult(tool_call_id=stored.id, output="rain")
                await lifecycle.answer_tools(session.id, turn.id, results=[result], **place)
            else:
                approved = self.random.random() < 0.7
                await lifecycle.decide_approval(session.id, stored.id, approved=approved, **place)
        return await ended(turn)
