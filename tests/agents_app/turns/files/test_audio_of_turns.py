"""Audio of messages: sent as it is to a model that takes it, and told in words to one that does not."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from django.test import AsyncClient

from agents_app.schemas import MessageIn
from agents_app.turns import lifecycle
from compaction_app.inspector.calls import open_call
from mnesis_core.errors import InvalidPicture
from mnesis_core.files.pictures import GEMINI, OPENAI, render
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.providers.litellm_ import takes_audio
from mnesis_core.records import SessionRecord, TurnRecord
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.turn_queries import list_calls
from tests.support.material.drawings import audio_part, drawing, mp3, recording
from tests.support.people.story import calls_rebuilt
from tests.support.providers.caching_provider import CachingProvider


@pytest.mark.parametrize(("data", "seconds"), [(recording(2.5), 3), (mp3(), 3)])
def test_it_counts_by_its_seconds(tmp_path: Path, data: bytes, seconds: int):
    place = tmp_path / "a"
    place.write_bytes(data)
    for rule, tokens in ((OPENAI, 10), (GEMINI, 32)):
        found = render(place, rule)
        assert (found.seconds, found.tokens, found.data) == (seconds, tokens * seconds, b"")


@pytest.mark.parametrize(
    "data", [recording()[:20], mp3()[:3], recording(0), b"RIFF\0\0\0\0WAVE" + b"\xff" * 15_000_000]
)
def test_what_no_provider_takes_is_not_sent(tmp_path: Path, data: bytes):
    place = tmp_path / "a"
    place.write_bytes(data)
    with pytest.raises(ValueError, match=r"audio|headers"):
        render(place, OPENAI)


def test_a_part_of_audio_holds_a_wav_or_an_mp3():
    said, sent = MessageIn(parts=[{"type": "text", "text": "Listen"}, audio_part(mp3())]).said()
    assert (said, sent[0].media_type, sent[0].name[:6]) == ("Listen", "audio/mpeg", "audio-")
    for part in (audio_part(drawing()), {"type": "input_audio"}, {"type": "input_audio", "input_audio": {"data": "*"}}):
        with pytest.raises(InvalidPicture) as refused:
            MessageIn(parts=[part]).said()
        assert refused.value.details["field"] == "parts.0.input_audio.data"


def test_litellms_table_says_who_takes_it():
    def takes(name: str, **said: Any) -> bool:
        return takes_audio(ModelSpec(alias="a", litellm_model=name, context_window=1, max_output_tokens=1, **said))

    assert takes("gemini/gemini-2.5-pro")
    assert not takes("anthropic/claude-sonnet-4-5")
    assert not takes("gemini/gemini-2.5-pro", takes_audio=False)
    # litellm would send its bytes there as a text.
    assert not takes("openai/responses/gpt-5", takes_audio=True)


async def ask(alice: Any, provider: CachingProvider, *sounds: bytes, takes: bool) -> tuple[SessionRecord, TurnRecord]:
    spec = settle_model(
        alias="listener", litellm_model="openai/gpt-4o", api_base=f"{provider.url}/v1", context_window=60_000,
        max_output_tokens=2_000, timeout_seconds=60, total_timeout_seconds=600, fallbacks=(), takes_pictures=None,
        takes_audio=takes, prices=EnteredPrices(input=3, output=15),
    )  # fmt: skip
    await db(put_model, spec)
    session = await db(lifecycle.create_session, owner=alice, model="listener")
    _, sent = MessageIn(parts=[audio_part(sound) for sound in sounds]).said()
    started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message="What is said?", pictures=sent)
    return session, await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)


def heard(provider: CachingProvider) -> list[dict[str, Any]]:
    content = provider.requests[0]["messages"][-1]["content"]
    return (
        [part["input_audio"] for part in content if part["type"] == "input_audio"] if isinstance(content, list) else []
    )


@pytest.mark.slow
@pytest.mark.both_databases
async def test_it_is_sent_as_it_is_and_played_on_the_page(alice: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    sounds = recording(), mp3()
    with CachingProvider(lambda _: "Nothing.") as provider:
        session, turn = await ask(alice, provider, *sounds, takes=True)
    assert (turn.state, provider.refusals) == ("completed", [])
    assert [(part["format"], base64.b64decode(part["data"])) for part in heard(provider)] == [
        ("wav", sounds[0]),
        ("mp3", sounds[1]),
    ]
    await calls_rebuilt(session)
    [call] = await db(list_calls, session.id)
    shown = [block.picture for block in (await db(open_call, call)).blocks if block.picture]
    assert [(picture.seconds, picture.tokens) for picture in shown] == [(2, 20), (3, 30)]
    browser = AsyncClient()
    await browser.aforce_login(alice)
    page = (await browser.get(f"/sessions/{session.id}/")).content.decode()
    assert page.count("<audio ") == 2
    assert "Only its description was sent" not in page
    address = page.partition("<audio ")[2].partition('src="')[2].partition('"')[0]
    answer = await browser.get(address)
    assert (answer.headers["Content-Type"], answer.content) == ("audio/wav", sounds[0])


@pytest.mark.slow
async def test_who_takes_none_is_told_how_long_it_is(alice: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with CachingProvider(lambda _: "I cannot hear.") as provider:
        session, _ = await ask(alice, provider, recording(), takes=False)
    assert heard(provider) == []
    assert "Audio, 2.0 seconds" in str(provider.requests[0]["messages"])
    await calls_rebuilt(session)
    browser = AsyncClient()
    await browser.aforce_login(alice)
    page = " ".join((await browser.get(f"/sessions/{session.id}/")).content.decode().split())
    assert "Only its description was sent to <bdi>listener</bdi>: the model does not take audio" in page
