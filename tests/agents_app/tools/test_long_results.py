"""Results too long for the conversation: their ends stay, the whole is a file, and no word is lost."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from files_app.queries import load_file_reference, read_range
from mnesis_core.context.fitting import cap_output, file_of_output, shorten_output
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.references import find_file_ids
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, new_id
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from tests.support.people.story import history, say, tool_call
from tests.support.people.streamed import streamed


@tool()
def recite(context: ToolContext, characters: int) -> str:
    """Say a lot."""
    return whole(characters)


@tool()
def recite_and_fail(context: ToolContext, characters: int) -> str:
    """Complain a lot."""
    raise InvalidRequest(whole(characters))


def whole(characters: int) -> str:
    return "".join(f"{number} " for number in range(characters))[:characters]


def test_the_two_ends_stay_and_the_middle_is_said_to_be_elsewhere():
    text, file_id = whole(5_000), new_id("file")
    short = shorten_output(text, 1_000, file_id=file_id)
    assert short.startswith(f"[The whole of this output is {file_id}, with 5,000 characters; lcm_read reads it.")
    assert text[:700] in short
    assert short.endswith(f"[… 4,000 characters left out here …]\n{text[-300:]}")
    assert file_of_output(short[:200]) == file_id
    assert file_of_output(f" {short}") == file_of_output("[The whole of this output is file_x, ") == ""
    assert cap_output("abc", 3) == "abc"
    assert cap_output("abcd", 3) == "abc\n[cut: the output had 4 characters, of which 3 were kept]"


@pytest.fixture
def talk(alice) -> SessionRecord:
    """A session whose tools may say 300 characters at once, and 60,000 at all."""
    limits = {"tools": ["recite", "recite_and_fail"], "tool_output_inline": 300, "tool_output_limit": 60_000}
    return lifecycle.create_session(owner=alice, config={"turn": limits})


async def results(talk: SessionRecord, script, *asked: tuple[str, int]) -> list[ToolPart]:
    calls = [tool_call(name, f"call_{index}", characters=characters) for index, (name, characters) in enumerate(asked)]
    script(Step(tool_calls=calls), "I see.")
    await say(talk, "Go")
    return [stored.part for stored in (await history(talk))[1].parts]


async def test_a_long_output_becomes_a_file_that_has_all_of_it(talk, script):
    long, short = await results(talk, script, ("recite", 50_000), ("recite", 300))
    assert short.output == whole(300)
    assert len(long.output) < 600
    [file_id] = find_file_ids(long.output)
    kept = await db(read_range, file_id, limit=100_000, owner_id=talk.owner_id)
    assert kept.text == whole(50_000)
    reference = await db(load_file_reference, file_id, session_id=talk.id)
    assert (reference.path.startswith("tool-outputs/part_"), reference.file_type) == (True, "text")
    assert reference.token_count > 10_000
    assert [event.type for event in await db(load_events, talk.id)].count("file.added") == 1


async def test_a_long_error_too(talk, script):
    [part] = await results(talk, script, ("recite_and_fail", 50_000))
    assert (part.state, part.output) == (ToolState.ERROR, None)
    [file_id] = find_file_ids(part.error)
    kept = await db(read_range, file_id, limit=100_000, owner_id=talk.owner_id)
    assert kept.text == f"INVALID_REQUEST: {whole(50_000)}"


async def test_beyond_the_hard_limit_it_says_that_it_was_cut(talk, script):
    [part] = await results(talk, script, ("recite", 70_000))
    [file_id] = find_file_ids(part.output)
    kept = await db(read_range, file_id, limit=100_000, owner_id=talk.owner_id)
    assert kept.text == whole(70_000)[:60_000] + "\n[cut: the output had 70,000 characters, of which 60,000 were kept]"


async def test_people_get_all_of_it_from_the_page(talk, script):
    [part] = await results(talk, script, ("recite", 50_000))
    [file_id] = find_file_ids(part.output)

    def fetched() -> tuple[str, bytes]:
        browser = Client()
        browser.force_login(get_user_model().objects.get(pk=talk.owner_id))
        page = browser.get(f"/sessions/{talk.id}/").content.decode()
        return page, streamed(browser.get(f"/api/files/{file_id}/content"))

    page, content = await db(fetched)
    assert f'href="/files/{file_id}/"' in page
    assert content.decode() == whole(50_000)
