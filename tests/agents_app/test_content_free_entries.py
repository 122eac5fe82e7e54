"""No entry of a ledger has anything of what was said: no word, no name, and no hash that guesses could be compared with."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import models

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.defaults import create_assistant
from audit_app.proof.verify import verify_sessions
from audit_app.tables import session_tables
from compaction_app.context.state import rebuild_payload
from files_app.contents import read_content
from files_app.queries import list_contents
from mnesis_core.events import EventType
from mnesis_core.llm.interface import Request, Usage
from mnesis_core.providers.rendering import digest
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, is_id
from sessions_app.database.tables import commitments_of
from sessions_app.database.threads import db
from sessions_app.models import DirectoryEntry, Event, ModelCall, Session
from sessions_app.record.session_queries import list_sessions
from sessions_app.record.turn_queries import list_calls, list_turns
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.story import begin, ended, frames_until, say, tool_call
from tests.support.record.lived import live

WORD = "herring-4711"
HEX = re.compile("[0-9a-f]{64}")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")
IDS = {
    *("added", "at_message_id", "batch_id", "because", "by", "call_id", "call_ids", "calls_completed"),
    *(
        "calls_failed",
        "child_id",
        "child_part_ids",
        "child_turn_id",
        "fact_id",
        "of_fact_id",
        "reflection_id",
        "file_id",
        "fresh",
        "inbox_id",
        "inbox_ids",
    ),
    *(
        "message_id",
        "organisation",
        "output_file_id",
        "parent_id",
        "part_id",
        "part_ids",
        "preview_id",
        "removed",
        "revises",
    ),
    *(
        "rating_id",
        "run_id",
        "share_id",
        "sender_id",
        "session_id",
        "session_ids",
        "source_ids",
        "stale",
        "summary_id",
        "summary_ids",
    ),
    *("try_id", "turn_id"),
}
WORDS = {
    *(
        "audience",
        "error_code",
        "fields",
        "kind",
        "level",
        "measure",
        "origin",
        "outcome",
        "part_type",
        "pressure",
        "reason",
    ),
    *("held_for", "role", "scope", "source", "state", "thumb", "trigger", "usage_source"),
}
"""Words of vocabularies that the code closes: states, kinds, codes of errors, names of columns."""
NUMBERS = {
    *("claims", "counted", "missing", "unsupported"),
    *("accepted", "again", "approved", "attempt", "cancelled", "completed", "cost_micros", "entries", "failed"),
    *(
        "after_seq",
        "branch",
        "first_seq",
        "hops",
        "in_context",
        "items",
        "last_seq",
        "limit",
        "message_seq",
        "owner_id",
        "part_index",
    ),
    *(
        "parent",
        "parts",
        "pause_ms",
        "position",
        "repeats",
        "room",
        "spent",
        "step",
        "token_count",
        "tokens",
        "tokens_after",
    ),
    *("tokens_before", "tokens_cache_read", "tokens_cache_write", "tokens_input", "tokens_output", "turn_seq", "v"),
}
TEXTS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(IDS, lambda text: text == "" or is_id(text)),
    **dict.fromkeys(WORDS, re.compile("[A-Za-z_]{,32}").fullmatch),
    **dict.fromkeys(NUMBERS, lambda text: False),
    "subject": lambda text: is_id(text) or text.isdecimal(),  # of a limit: a turn, a session, an account's number
    "at": TIME.fullmatch,
    "head": HEX.fullmatch,
}
"""By the name of a field, what a text in it may be."""


@tool(needs_approval=True)
def keep_note(context: ToolContext, text: str) -> str:
    """Write something down."""
    return text


@pytest.fixture
async def lived(alice: User, script: Callable[..., Any]) -> SessionRecord:
    """What the stores do to a session, and what only a running turn does."""
    await db(live, alice, WORD)

    def reply(request: Request) -> Step:
        told = [message for message in request.payload["messages"] if message["role"] != "system"]
        question = next(message["content"] for message in reversed(told) if message["role"] == "user")
        usage = Usage(input_tokens=4_000, output_tokens=100)
        if question.startswith("Delegate") and told[-1]["role"] == "user":
            return Step(tool_calls=(tool_call("task", prompt=f"Note {WORD}", title=WORD),), usage=usage)
        if question.startswith("Note") and told[-1]["role"] == "user":
            return Step(tool_calls=(tool_call("keep_note", text=WORD),))
        if question.startswith("Again"):
            return Step(tool_calls=(tool_call("nosuch", text=WORD),))
        return Step(text=WORD, reasoning=WORD, usage=usage)

    script(reply)
    config = {
        "turn": {"tools": ["task", "keep_note"], "on_doom_loop": "stop"},
        "limits": {"session": {"tokens": 25_000}},
    }
    assistant = await db(create_assistant, owner_id=alice.pk, name=WORD, instructions=WORD)
    session = await db(lifecycle.create_session, owner=alice, title=WORD, config=config, assistant_id=assistant.id)
    turn = await begin(session, f"Delegate {WORD}")
    await frames_until(session, "delegation.suspended")
    [child] = await db(list_sessions, owner_id=alice.pk, parent_id=session.id)
    [waiting] = (await db(list_turns, child.id))[0].waits_for
    await lifecycle.decide_approval(child.id, waiting.part_id, owner_id=alice.pk, approved=True, note=WORD)
    await ended(turn)
    await say(session, f"Again {WORD}")
    for _ in range(5):
        await say(session, WORD)
    return session


def bodies() -> list[str]:
    return [*Event.objects.values_list("body", flat=True), *DirectoryEntry.objects.values_list("body", flat=True)]


def strings_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included, and the value itself."""
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            yield from strings_in(json.loads(value))
    elif isinstance(value, dict | list):
        yield json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        yield json.dumps(value, sort_keys=True)
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from strings_in(item)


def contents() -> Iterator[bytes]:
    """Everything that is kept of what was said and done: columns, payloads, files."""
    ledger = {Event, DirectoryEntry}
    for table in session_tables().values():
        fields = [
            field for field in table.fields if isinstance(field, models.CharField | models.TextField | models.JSONField)
        ]
        for row in (
            plain(table.model).values_list(*(field.attname for field in fields)) if table.model not in ledger else ()
        ):
            for value in row:
                yield from (text.encode("utf-8", "surrogatepass") for text in strings_in(value))
    for session_id in Session._base_manager.values_list("id", flat=True):
        for call in list_calls(session_id):
            if (payload := rebuild_payload(call).payload) is not None:
                yield from (text.encode("utf-8", "surrogatepass") for text in strings_in(dict(payload)))
        yield from (read_content(id, 0, 10**6) for id in list_contents(session_id))


async def test_no_entry_has_a_word_or_a_plain_hash_of_anything_that_is_kept(lived: SessionRecord) -> None:
    def check() -> None:
        entries = bodies()
        everything = "\n".join(entries)
        assert WORD not in everything
        hashes = set(HEX.findall(everything))
        kept = set(contents())
        assert len(kept) > 300
        assert WORD.encode() in kept
        for content in kept:
            hashed = sha256(content)
            assert hashed.hexdigest() not in hashes, content
            assert not any(
                text.decode().rstrip("=") in everything
                for text in (b64encode(hashed.digest()), urlsafe_b64encode(hashed.digest()))
            ), content
        digests = {one.digest for session in Session._base_manager.all() for one in list_calls(session.id)}
        assert not digests & hashes
        assert digest({"messages": [{"role": "user", "content": WORD}]}) in digests

    await db(check)


async def test_the_word_was_in_every_column_that_can_be_erased_and_every_kind_of_event_happened(
    lived: SessionRecord,
) -> None:
    def check() -> None:
        without = set()
        for table in session_tables().values():
            for name in table.model.rules.erasable:
                values = plain(table.model).values_list(name, flat=True)
                if not any(WORD in (value if isinstance(value, str) else json.dumps(value)) for value in values):
                    without.add(f"{table.name}.{name}")
        hashes = {"turns.request_digest", "prompt_texts.digest", "model_calls.digest", "file_references.content_id"}
        assert without == hashes
        assert {*Event.objects.values_list("type", flat=True)} == {type.value for type in EventType}
        assert verify_sessions(list(Session._base_manager.values_list("id", flat=True)), jobs=1).problems == []

    await db(check)


async def test_a_body_holds_ids_numbers_times_and_words_of_closed_vocabularies(lived: SessionRecord) -> None:
    for body in await db(bodies):
        _check_body(json.loads(body))


def _check_body(body: dict[str, Any]) -> None:
    for name, value in body.items():
        if name == "rows":
            assert all(HEX.fullmatch(commitment) for _, _, commitment, *_ in value)
        elif name == "actor":
            assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", text) for text in value.values()), value
        elif name == "parts" and isinstance(value, list):
            for part in value:
                _check_body(part)
        else:
            assert name in TEXTS, f"{name}: is it content? Say here what it is"
            texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
            assert all(TEXTS[name](text) for text in texts), (name, value)


@pytest.mark.slow
async def test_a_number_of_four_digits_is_not_found_by_trying_all_of_them(
    session: SessionRecord, script: Callable[..., Any]
) -> None:
    script("Noted.")
    await say(session, "My PIN is 4711")

    def attack() -> None:
        [call] = list_calls(session.id)
        payload = dict(rebuild_payload(call).payload or {})
        assert digest(payload) == call.digest
        known = json.dumps(payload)
        entries = "\n".join(bodies())
        row: dict[str, Any] = plain(ModelCall).values().get()
        commitments = commitments_of(ModelCall)
        for pin in range(10_000):
            guessed = known.replace("4711", f"{pin:04}")
            guesses = [digest(json.loads(guessed)), sha256(guessed.encode()).hexdigest()]
            guesses.append(sha256(f"My PIN is {pin:04}".encode()).hexdigest())
            # The entry's commitment has the digest in it, and its key is what nobody has who has the entry alone.
            guesses += [one[2] for one in commitments.inserted(row | {"digest": guesses[0]}, salt="")]
            assert not any(guess in entries for guess in guesses), pin
        assert commitments.inserted(row, salt=row["salt"])[0][2] in entries

    await db(attack)
