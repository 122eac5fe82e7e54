"""Every page asks the database as much for a record that holds many of each thing as for one that holds few."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents_app.store import put_listing, put_server
from files_app.intake import keep_file
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.turns.mcp_servers import ListedTool, ServerAddress, take_listing
from sessions_app.assistants import assistant_store
from sessions_app.llm.model_store import Audience, enter_model
from sessions_app.models import MessagePart
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from tests.browser.pages.test_every_page import PAGES, QUERIES
from tests.support.people.cast import ada, inspector, make_user
from tests.support.record.facts import add_facts
from tests.support.record.hostile_record import HOSTILE, write
from tests.support.record.inspected import add_session, add_summary, add_turn, claim, finish, tool_part
from tests.support.record.operators import settled_run

pytestmark = pytest.mark.both_databases

__all__ = ["ada", "inspector"]

MANY = 8
MOST = 40
"""Statements of one page, sign-in and all."""


def add_one_of_each(owner: User, session_id: str, number: int) -> None:
    """One more of everything that some page lists."""
    messages = add_turn(session_id, f"{HOSTILE} {number}", tool_part(call_id=f"t{number}"))
    with change(session_id) as record:
        message_store.tombstone_parts(
            record, list(MessagePart.objects.filter(message_id=messages[1]).values_list("id", flat=True))
        )
        session_store.begin_branch(record, parent=0, after_seq=2)
    run = claim(session_id)
    add_summary(session_id, run, messages, (2 * number + 7, 2 * number + 8))
    finish(session_id, run)
    add_facts(session_id, messages[0], f"{number}")
    settled_run(session_id, path=f"/{number}.jsonl")
    assistant_store.create_assistant(owner_id=owner.pk, name=f"assistant {number}")
    keep_file(session_id, owner_id=owner.pk, path="notes.txt", chunks=[f"version {number}".encode()])
    child = session_store.create_session(owner=owner, model="demo", title=f"Child {number}", parent_id=session_id)
    person = make_user(f"person {number}")
    person.groups.set(Group.objects.all())
    for place in (child, add_session(owner, f"hidden {number}"), add_session(person)):
        add_turn(place, f"a script of {number}")
    audience = Audience(groups=[Group.objects.create(name=f"group {number}")], users=[owner])
    spec = ModelSpec(alias=f"model {number}", litellm_model="openai/x", context_window=8_000, max_output_tokens=900)
    enter_model(spec, api_key_env="", audience=audience)
    server = put_server(ServerAddress(name=f"server-{number}", url="http://127.0.0.1:9/mcp"))
    put_listing(
        server,
        take_listing(f"server-{number}", [ListedTool(name="act", description="Acts.", schema={"type": "object"})]),
    )


def count_queries(inspector: Client, ids: dict[str, Any]) -> dict[str, int]:
    """Statements of each page, asked for a second time: the first fills what the process keeps."""
    counts = {}
    for name, parts in PAGES.items():
        address = reverse(name, args=[ids[part] for part in parts]) + QUERIES.get(name, "")
        for _ in range(2):
            with CaptureQueriesContext(connection) as captured:
                assert inspector.get(address).status_code == 200, address
        counts[name] = len(captured)
    return counts


@pytest.mark.slow
@pytest.mark.django_db
def test_no_page_asks_more_of_a_larger_record(ada: User, inspector: Client) -> None:
    put_server(ServerAddress(name="first", url="http://127.0.0.1:9/mcp"))
    ids: dict[str, Any] = write(ada) | {"number": 1, "server": "first", "name": "howto/run/add-a-model"}
    add_one_of_each(ada, ids["session_id"], 0)
    few = count_queries(inspector, ids)
    for number in range(1, MANY):
        add_one_of_each(ada, ids["session_id"], number)
    many = count_queries(inspector, ids)
    assert {name: (few[name], many[name]) for name in PAGES if many[name] > few[name]} == {}
    assert {name: count for name, count in many.items() if count > MOST} == {}
