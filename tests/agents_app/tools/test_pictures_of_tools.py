"""Pictures that tools give back: kept as files of the session, and shown to a model that takes them."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from django.test import Client
from PIL import Image

from agents_app.schemas import ToolResultIn
from agents_app.tools.mcp.connections import connections
from agents_app.tools.pages import attach_server
from agents_app.turns import lifecycle
from agents_app.turns.claim import ToolResult
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.messages import AudioPart, ImagePart, ToolPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from mnesis_core.turns.options import TurnOptions
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from tests.support.material.drawings import drawing, image_part, sent_pictures
from tests.support.people.story import calls_rebuilt, ended, history, say, tool_call
from tests.support.providers.caching_provider import Answer, CachingProvider, pictures_of
from tests.support.servers.mcp_servers import example

pytestmark = pytest.mark.django_db(transaction=True)
CLAUDE = "anthropic/claude-sonnet-4-5"
DRAW = "example__draw"


@pytest_asyncio.fixture(autouse=True)
async def connections_ended() -> AsyncIterator[None]:
    """No program outlives these tests."""
    yield
    await connections.close()


async def drawing_session(
    alice: Any,
    provider: CachingProvider,
    *,
    name: str = CLAUDE,
    sees: bool | None = None,
    hears: bool = False,
    **config: Any,
) -> SessionRecord:
    """A session of a model at the provider, with the tools of a real server."""
    await attach_server(example())
    url = f"{provider.url}/v1" if name.startswith("openai/") else provider.url
    spec = settle_model(
        alias="eyes", litellm_model=name, api_base=url, context_window=60_000, max_output_tokens=2_000,
        timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=sees, takes_audio=hears, cache="5m",
        prices=EnteredPrices(input=3, output=15),
    )  # fmt: skip
    await db(put_model, spec)
    config = {"turn": {"tools": ["example__*", "lcm_read"]}} | config
    return await db(lifecycle.create_session, owner=alice, model="eyes", config=config)


def answers(*given: Answer) -> Any:
    return lambda number: given[min(number, len(given) - 1)]


def sizes(body: dict[str, Any]) -> list[tuple[int, int]]:
    """The sizes of the pictures in a request, in order."""
    data = [base64.b64decode(block["source"]["data"]) for block in pictures_of(body)]
    return [Image.open(io.BytesIO(one)).size for one in data]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("OPENAI_API_KEY", "key")


@pytest.mark.slow
async def test_a_servers_picture_is_kept_and_shown_in_its_result(alice: Any):
    given = answers((DRAW, {"width": 3_000, "height": 2_000}), "A gradient.")
    with CachingProvider(given) as provider:
        session = await drawing_session(alice, provider)
        turn = await say(session, "Draw something")
    assert (turn.state, provider.refusals) == ("completed", [])
    tool, image = (stored.part for stored in (await history(session))[1].parts)
    assert isinstance(tool, ToolPart)
    assert isinstance(image, ImagePart)
    assert tool.output == f"before 0\n[{image.name}]\nafter 0"
    assert (image.tool_call_id, image.media_type) == (tool.tool_call_id, "image/png")
    assert image.file_id
    assert sizes(provider.requests[1]) == [(1342, 894)]
    [*_, shown] = provider.requests[1]["messages"]
    assert [block["type"] for block in shown["content"]] == ["tool_result"]
    assert [block["type"] for block in shown["content"][0]["content"]] == ["text", "image"]
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_a_servers_audio_is_heard_behind_its_result_by_a_model_that_takes_it(alice: Any):
    with CachingProvider(answers(("example__hum", {}), "Silence.")) as provider:
        session = await drawing_session(alice, provider, name="openai/gpt-4o", hears=True)
        await say(session, "Hum something")
    tool, audio = (stored.part for stored in (await history(session))[1].parts)
    assert isinstance(tool, ToolPart)
    assert isinstance(audio, AudioPart)
    assert (tool.output, audio.tool_call_id) == (f"[{audio.name}]", tool.tool_call_id)
    content = provider.requests[1]["messages"][-1]["content"]
    assert [part["input_audio"]["format"] for part in content if part["type"] == "input_audio"] == ["wav"]
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_chat_completions_has_the_picture_in_a_message_behind_the_result(alice: Any):
    given = answers((DRAW, {"width": 300, "height": 200}), "A gradient.")
    with CachingProvider(given) as provider:
        session = await drawing_session(alice, provider, name="openai/gpt-4o")
        await say(session, "Draw something")
    assert [len(sent_pictures(body)) for body in provider.requests] == [0, 1]
    assert [said["role"] for said in provider.requests[1]["messages"]][-2:] == ["tool", "user"]
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_a_model_that_takes_none_is_told_in_words(alice: Any):
    given = answers((DRAW, {"width": 30, "height": 20}), "I see nothing.")
    with CachingProvider(given) as provider:
        session = await drawing_session(alice, provider, sees=False)
        await say(session, "Draw something")
    image = (await history(session))[1].parts[1].part
    assert isinstance(image, ImagePart)
    assert pictures_of(provider.requests[1]) == []
    assert image.file_id in str(provider.requests[1]["messages"])
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_the_oldest_pictures_of_many_calls_leave_first(alice: Any):
    draws = [(DRAW, {"width": 300, "height": 200 + 10 * step, "count": 4}) for step in range(6)]
    with CachingProvider(answers(*draws, "Done.")) as provider:
        session = await drawing_session(alice, provider)
        turn = await say(session, "Draw on")
    assert (turn.state, provider.refusals) == ("completed", [])
    assert [len(pictures_of(body)) for body in provider.requests] == [0, 4, 8, 12, 16, 20, 10]
    assert sizes(provider.requests[-1])[-1] == (300, 253)
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_a_result_has_no_more_than_twenty(alice: Any):
    given = answers((DRAW, {"width": 30, "height": 20, "count": 25}), "Done.")
    with CachingProvider(given) as provider:
        session = await drawing_session(alice, provider)
        await say(session, "Draw on")
    parts = [stored.part for stored in (await history(session))[1].parts]
    assert len([part for part in parts if isinstance(part, ImagePart)]) == 20
    assert isinstance(parts[0], ToolPart)
    assert (parts[0].output or "").endswith("[The other pictures were not kept: a result may have 20.]")
    assert len(pictures_of(provider.requests[1])) == 20


@pytest.mark.slow
async def test_the_page_shows_the_picture_and_who_was_told_of_it_in_words(alice: Any):
    given = answers((DRAW, {"width": 30, "height": 20}), "Done.")
    pages = []
    with CachingProvider(given) as provider:
        for sees in (True, False):
            session = await drawing_session(alice, provider, sees=sees)
            provider.bills.clear()
            await say(session, "Draw")
            client = Client()
            await db(client.force_login, alice)
            pages.append((await db(client.get, f"/sessions/{session.id}/")).content.decode())
    assert [page.count('class="picture"') for page in pages] == [1, 1]
    assert ["Only its description was sent to" in page for page in pages] == [False, True]


async def test_a_callers_result_shows_its_picture(session: SessionRecord, script: Any):
    script(Step(tool_calls=(tool_call("look"), tool_call("look"))), "Seen.")
    tools = (ToolSpec(name="look", description="Look.", parameters={"type": "object"}),)
    place = {"owner_id": session.owner_id}
    started = await lifecycle.start_turn(session.id, message="Look", options=TurnOptions(tools=tools), **place)
    turn = await lifecycle.wait_turn(session.id, started.turn.id, **place)
    parts = [{"type": "text", "text": "Here:"}, image_part(drawing())]
    given = [ToolResultIn(tool_call_id=waiting.part_id, parts=parts).said() for waiting in turn.waits_for]
    results = [ToolResult(**one) for one in given]
    answered = await lifecycle.answer_tools(session.id, turn.id, results=results, **place)
    assert (await ended(answered.turn)).state == "completed"
    stored = (await history(session))[1].parts
    named = [one.part.tool_call_id for one in stored if isinstance(one.part, ImagePart)]
    assert named == [one.part.tool_call_id for one in stored if isinstance(one.part, ToolPart)]
    assert {one.part.file_id for one in stored if isinstance(one.part, ImagePart)} != {""}
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_a_picture_that_has_left_is_called_back(alice: Any):
    draws: list[Answer] = [(DRAW, {"width": 300, "height": 200 + 10 * step, "count": 4}) for step in range(6)]
    with CachingProvider(answers(*draws, "Done.")) as provider:
        session = await drawing_session(alice, provider)
        await say(session, "Draw on")
        [first, *_] = (
            stored.part for stored in (await history(session))[1].parts if isinstance(stored.part, ImagePart)
        )
        assert (300, 200) not in sizes(provider.requests[-1])
        again: list[Answer] = [("lcm_read", {"id": first.file_id}), "The first one."]
        provider.answer = lambda number: again[min(number - 7, 1)]
        turn = await say(session, "What was on the first?")
    assert (turn.state, provider.refusals) == ("completed", [])
    assert sizes(provider.requests[-1])[-1] == (300, 200)
    called = [stored.part for stored in (await history(session))[-2].parts]
    assert isinstance(called[-1], ImagePart)
    assert called[-1].file_id == first.file_id
    await calls_rebuilt(session)


@pytest.mark.slow
async def test_who_takes_no_pictures_reads_the_file_as_before(alice: Any):
    given: list[Answer] = [(DRAW, {"width": 30, "height": 20}), "Done.", "", "Read."]
    with CachingProvider(lambda number: given[number]) as provider:
        session = await drawing_session(alice, provider, sees=False)
        await say(session, "Draw")
        image = (await history(session))[1].parts[1].part
        assert isinstance(image, ImagePart)
        given[2] = ("lcm_read", {"id": image.file_id})
        await say(session, "Read it")
    assert len((await history(session))[-2].parts) == 1
