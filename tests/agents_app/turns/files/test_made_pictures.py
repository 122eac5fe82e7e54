"""Pictures that a model makes are files of its session: shown, counted, and seen by the models that come after."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents_app.turns import lifecycle
from compaction_app.context.state import rebuild_payload
from files_app.queries import load_file_reference
from mnesis_core.messages import ImagePart
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.llm.model_store import EnteredPrices, put_model, settle_model
from sessions_app.record.turn_queries import list_calls
from tests.support.material.drawings import drawing
from tests.support.people.story import history, say
from tests.support.providers.event_provider import EventProvider, chat


def shows(data: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"role": "assistant", "content": "Here it is.", "images": [{"type": "image_url", "image_url": {"url": url}}]}


async def drawing_session(alice: Any, provider: EventProvider) -> SessionRecord:
    about = {"context_window": 50_000, "max_output_tokens": 500, "prices": EnteredPrices(), "fallbacks": ()}
    spec = settle_model(
        alias="artist", litellm_model="openai/artist", api_base=provider.url, takes_pictures=True,
        timeout_seconds=30, total_timeout_seconds=60, **about,
    )  # fmt: skip
    await db(put_model, spec)
    return await db(lifecycle.create_session, owner=alice, model="artist", config={"turn": {"tools": []}})


async def made_part(session: SessionRecord) -> ImagePart:
    parts = [stored.part for message in await history(session) for stored in message.parts]
    [part] = [part for part in parts if isinstance(part, ImagePart)]
    return part


@pytest.fixture(autouse=True)
def _key(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")


@pytest.mark.slow
async def test_it_is_a_file_that_the_page_shows_and_the_next_call_sees(alice: Any, client: Client) -> None:
    with EventProvider(lambda number: chat(shows(drawing()) if number == 0 else {"content": "A quay."})) as provider:
        session = await drawing_session(alice, provider)
        for question in ("Draw the quay.", "What is on it?"):
            assert (await say(session, question)).state == TurnState.COMPLETED
    part = await made_part(session)
    assert (part.media_type, part.size) == ("image/png", len(drawing()))
    assert (await db(load_file_reference, part.file_id, owner_id=alice.pk)).size == len(drawing())
    shown = provider.requests[1]["messages"][-2]
    assert shown["role"] == "user"
    assert shown["content"][-1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "image_url" not in json.dumps(provider.requests[1]["messages"][:-2])
    for call in await db(list_calls, session.id):
        rebuilt = await db(rebuild_payload, call)
        assert rebuilt.digest_matches, rebuilt.problems
    await db(client.force_login, alice)
    page = (await db(client.get, reverse("session", args=[session.id]))).content.decode()
    assert f'src="{reverse("file-picture", args=[part.file_id])}"' in page


async def test_what_is_none_is_kept_as_it_came_and_said_in_words(alice: Any) -> None:
    with EventProvider(lambda number: chat(shows(b"<script>no picture</script>"))) as provider:
        session = await drawing_session(alice, provider)
        assert (await say(session, "Draw the quay.")).state == TurnState.COMPLETED
    part = await made_part(session)
    assert (part.media_type, part.caption) == (
        "",
        "The model sent a picture that cannot be shown. The data is kept as received.",
    )
    assert (await db(load_file_reference, part.file_id, owner_id=alice.pk)).size == len(b"<script>no picture</script>")


@pytest.fixture
def small_files(settings: Any, tmp_path: Any) -> Iterator[None]:
    config = tmp_path / "mnesis.toml"
    config.write_text("[files]\nlargest_bytes = 50\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(config)}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


@pytest.mark.usefixtures("small_files")
async def test_one_larger_than_files_may_be_is_told_and_loses_nothing_else(alice: Any) -> None:
    with EventProvider(lambda number: chat(shows(drawing()))) as provider:
        session = await drawing_session(alice, provider)
        assert (await say(session, "Draw the quay.")).state == TurnState.COMPLETED
    part = await made_part(session)
    assert part.file_id == ""
    assert "REQUEST_TOO_LARGE" in part.caption
