"""A turn that is given files: short texts whole, everything else by reference, with what is known of it."""

from __future__ import annotations

import asyncio

import pytest

from agents_app.turns import claim, lifecycle
from files_app.intake import explore_file, keep_file
from mnesis_core.errors import FileReferenceNotFoundError
from mnesis_core.messages import FileRefPart, TextPart
from sessions_app.database.threads import db
from sessions_app.record.message_queries import load_message
from tests.support.people.story import ended, history


async def give(session, name, data, **values):
    return await db(keep_file, session.id, owner_id=session.owner_id, path=name, chunks=[data])


async def say_with(session, *files):
    started = await lifecycle.start_turn(
        session.id, owner_id=session.owner_id, message="Look", files=[file.id for file in files]
    )
    await ended(started.turn)
    return (await history(session))[0]


async def test_a_short_text_goes_into_the_conversation_whole(session, script):
    model = script("I see.")
    file = await give(session, "notes.txt", b"The tide is high.")
    message = await say_with(session, file)
    asked, given = [stored.part for stored in message.parts]
    assert asked == TextPart(text="Look")
    assert given == TextPart(text=f"[FILE: notes.txt]\nFile ID: {file.id}\nThe tide is high.\n[/FILE]")
    assert "The tide is high." in str(model.requests[0].payload["messages"][-1])


async def test_a_long_text_and_bytes_are_referred_to_with_their_exploration(session, script):
    model = script("I see.")
    long = await give(session, "long.toml", b"[gauge]\n" + b"".join(b'key%d = "a word"\n' % n for n in range(20_000)))
    bytes_ = await give(session, "data.bin", b"\x00\x01" * 2_000)
    message = await say_with(session, long, bytes_)
    parts = [stored.part for stored in message.parts][1:]
    assert [type(part) for part in parts] == [FileRefPart, FileRefPart]
    assert "gauge" in parts[0].exploration_summary
    shown = str(model.requests[0].payload["messages"][-1])
    assert f"File ID: {long.id}" in shown
    assert f"File ID: {bytes_.id}" in shown


async def test_a_changed_file_says_which_version_it_is_and_what_came_before(session, script):
    model = script("I see.", "I see.", "I see.")
    first = await give(session, "notes.txt", b"The tide is high.")
    before = await say_with(session, first)
    second = await give(session, "notes.txt", b"The tide is low.")
    assert (await give(session, "notes.txt", b"The tide is low.")).id == second.id
    await say_with(session, second)
    shown = str(model.requests[1].payload["messages"][-1])
    assert f"Version: 2 of 2 (earlier: {first.id})" in shown
    assert before.parts[1].part == TextPart(text=f"[FILE: notes.txt]\nFile ID: {first.id}\nThe tide is high.\n[/FILE]")
    third = await give(session, "notes.txt", b"\x00\x01" * 2_000)
    await say_with(session, third)
    assert f"Version: 3 of 3 (earlier: {second.id})" in str(model.requests[2].payload["messages"][-1])
    again = await db(load_message, before.id, session_id=session.id)
    assert again.parts[1] == before.parts[1]


@pytest.fixture
def cannot_explore(monkeypatch):
    """A turn cannot explore its files itself."""

    def hang(*_args, **_values):
        raise TimeoutError

    monkeypatch.setattr(claim, "explore_file", hang)


async def test_a_worker_has_time_to_explore_a_file_first(session, script, cannot_explore, monkeypatch):
    monkeypatch.setattr(claim, "WORKER_SECONDS", 60.0)
    script("I see.")
    file = await give(session, "data.bin", b"\x00\x01" * 2_000)
    saying = asyncio.create_task(say_with(session, file))
    await asyncio.sleep(0.2)
    await db(explore_file, file.id, owner_id=session.owner_id)
    part = (await saying).parts[1].part
    assert "Not explored yet" not in part.exploration_summary


async def test_a_file_that_cannot_be_explored_in_time_is_given_all_the_same(session, script, cannot_explore):
    script("I see.")
    file = await give(session, "data.bin", b"\x00\x01" * 2_000)
    part = (await say_with(session, file)).parts[1].part
    assert "Not explored yet" in part.exploration_summary


async def test_a_file_of_another_session_is_not_found_and_nothing_is_said(session, alice, script):
    script("never asked")
    other = await db(lifecycle.create_session, owner=alice)
    file = await give(other, "a.txt", b"x")
    with pytest.raises(FileReferenceNotFoundError):
        await say_with(session, file)
    assert await history(session) == []
