"""The inspector looks at everything and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents_app.models import InboxMessage, McpServer, OperatorItem, OperatorRun, OperatorTry
from agents_app.store import put_server, receive_message
from compaction_app.models import (
    Claim,
    CompactionRun,
    Fact,
    FactSource,
    Reflection,
    SummaryNode,
    SummaryPreview,
    SummaryTry,
)
from files_app.models import FileReference
from files_app.store import store_file_reference
from mnesis_core.messages import DataPart, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.messages import Message as MessageValue
from mnesis_core.network.sharing import Audience
from mnesis_core.records import Thumb
from mnesis_core.turns.inbox import Draft
from mnesis_core.turns.mcp_servers import ServerAddress
from sessions_app.admin.read_only import FOLD_CHARACTERS, ReadOnlyAdmin
from sessions_app.admin.records import PortalAdmin
from sessions_app.llm.model_store import create_key
from sessions_app.models import (
    ApiKey,
    ContextItem,
    Event,
    Message,
    MessagePart,
    ModelCall,
    Organisation,
    PromptText,
    Rating,
    Session,
    Share,
    StreamJournal,
    Turn,
)
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.organisation_store import add_organisation
from sessions_app.record.shares import share_store
from tests.sessions_app.database.guards.record_rows import NOW
from tests.support.record import operators
from tests.support.record.claims import add_claims
from tests.support.record.facts import add_facts, add_reflection
from tests.support.record.inspected import (
    ORIGINAL,
    add_preview,
    add_session,
    add_summary,
    add_turn,
    claim,
    finish,
    list_of,
    page_of,
    shown,
    texts_in,
    tool_part,
)

admin.autodiscover()
RECORD_MODELS = [
    model
    for model, page in admin.site._registry.items()
    if isinstance(page, ReadOnlyAdmin) and not isinstance(page, PortalAdmin)
]
HOSTILE = "</pre><script>alert(1)</script> {{ 7|add:7 }} \x00 \u202e \ud800 &lt; ␛"
SHOWN = "</pre><script>alert(1)</script> {{ 7|add:7 }} ␀ U+202E U+D800 &lt; ␛"


@pytest.fixture
def session_id(ada: User) -> str:
    """One row of every table."""
    session_id = add_session(ada)
    ids = add_turn(session_id, "How high is the tide?", tool_part(), TextPart(text="4 m."))
    with change(session_id) as record:
        turn = turn_store.start_turn(record, model="demo")
        stub = message_store.append_message(record, turn_id=turn, message=MessageValue(role="assistant", parts=()))
        receive_message(record, Draft(text="Are you there?"))
        store_file_reference(record, content_id="a1" * 32, path=HOSTILE, exploration_summary=HOSTILE)
        share_store.create_share(record, ids[0], title=HOSTILE[:400], audience=Audience.SITE)
        message_store.rate_message(record, ids[1], thumb=Thumb.UP, comment=HOSTILE)
    piece = message_store.Piece(part_index=0, part_type="text", offset=0, text="so far")
    message_store.append_journal(session_id=session_id, message_id=stub, pieces=[piece])
    run = claim(session_id)
    summary = add_summary(session_id, run, ids, (1, 2))
    add_preview(session_id, summary, ids)
    add_facts(session_id, ids[0], "tide")
    add_reflection(session_id, summary)
    add_claims(session_id, summary, ids[0])
    finish(session_id, run)
    add_tried_run(session_id)
    create_key(owner_id=ada.pk)
    return session_id


def add_tried_run(session_id: str) -> str:
    """A run of one item that failed; returns its id."""
    run_id = operators.add_run(session_id, items=1)
    operators.settle(session_id, run_id, [operators.refuse(item) for item in operators.claim(session_id, run_id)])
    return run_id


def everything(model: type[Model]) -> list[dict[str, Any]]:
    """Every row of a table as the database holds it."""
    return list(model._default_manager.order_by("pk").values())


def test_large_numbers_are_in_groups_of_three_and_times_begin_with_the_year(inspector: Client, ada: User) -> None:
    session_id = add_session(ada)
    Session.objects.filter(id=session_id).update(message_seq=12_345)
    page = shown(inspector, page_of(Session.objects.get(id=session_id)))
    assert page.count("12,345") == 2  # among its facts, and above them
    assert "12,345" in shown(inspector, list_of(Session))
    put_server(ServerAddress(name="log", url="http://127.0.0.1:9/mcp"))
    created = f"{McpServer.objects.get().created_at:%Y-%m-%d %H:%M:%S}"
    assert created in shown(inspector, list_of(McpServer))


def only_part(session_id: str, **lookups: Any) -> MessagePart:
    """The one part of a session that these lookups find."""
    part = MessagePart.objects.get(session_id=session_id, **lookups)
    assert isinstance(part, MessagePart)
    return part


def test_every_record_table_is_shown_read_only() -> None:
    assert set(RECORD_MODELS) == {
        Session, Share, Rating, Turn, Message, MessagePart, ContextItem, Event, StreamJournal, ModelCall, PromptText,
        CompactionRun, SummaryNode, SummaryPreview, SummaryTry, ApiKey, InboxMessage,
        Claim, Fact, FactSource, Reflection, FileReference, OperatorRun, OperatorItem, OperatorTry, Organisation,
    }  # fmt: skip


@pytest.mark.parametrize("model", RECORD_MODELS, ids=lambda model: model.__name__)
def test_nothing_of_the_record_can_be_changed(model: type[Model], session_id: str, inspector: Client) -> None:
    row = model._default_manager.get(pk=model._default_manager.values_list("pk", flat=True)[0])
    values = {field.name: "other" for field in model._meta.concrete_fields} | {"_save": "Save"}
    delete = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes", "index": "0"}
    before = everything(model)
    assert before
    attempts = [
        inspector.get(list_of(model, "add")),
        inspector.post(list_of(model, "add"), values),
        inspector.post(page_of(row), values),
        inspector.get(page_of(row, "delete")),
        inspector.post(page_of(row, "delete"), {"post": "yes"}),
        inspector.post(list_of(model), delete),
        inspector.post(list_of(model), {"form-TOTAL_FORMS": "1", "_save": "Save"} | delete),
        inspector.put(page_of(row), "{}", content_type="application/json"),
        inspector.delete(page_of(row)),
    ]
    assert [attempt.status_code for attempt in attempts] == [403] * len(attempts)
    assert everything(model) == before


@pytest.mark.slow
@pytest.mark.parametrize("model", RECORD_MODELS, ids=lambda model: model.__name__)
def test_every_row_has_a_page_with_all_its_columns_and_no_form(
    model: type[Model], session_id: str, inspector: Client
) -> None:
    for row in model._default_manager.all():
        page = shown(inspector, page_of(row))
        inputs = [line for line in page.splitlines() if "<input" in line and "csrfmiddlewaretoken" not in line]
        assert [line for line in inputs if "nav-filter" not in line] == []
        hidden = [getattr(row, name, "") for name in ("salt", "own_salt", "secret_hash")]
        assert not any(secret in page for secret in hidden if secret)


@pytest.mark.slow
@pytest.mark.parametrize("model", RECORD_MODELS, ids=lambda model: model.__name__)
def test_a_list_asks_the_database_as_often_for_one_row_as_for_many(
    model: type[Model], session_id: str, ada: User, inspector: Client
) -> None:
    shown(inspector, list_of(model))

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            shown(inspector, list_of(model))
        return len(captured)

    few = queries()
    for number in range(4):
        other = add_session(ada, f"Another {number}")
        ids = add_turn(other, "Hello", tool_part(), DataPart(label="x", text="y"))
        run = claim(other)
        summary = add_summary(other, run, ids, (1, 2))
        add_preview(other, summary, ids)
        add_facts(other, ids[0], "Hello")
        add_reflection(other, summary)
        add_claims(other, summary, ids[0])
        finish(other, run)
        with change(other) as record:
            receive_message(record, Draft(text="Hello"))
            store_file_reference(record, content_id="a1" * 32, path="a.txt", exploration_summary="words")
            share_store.create_share(record, ids[0], title="Hello", audience=Audience.SITE)
            message_store.rate_message(record, ids[1], thumb=Thumb.UP)
        add_tried_run(other)
        create_key(owner_id=ada.pk)
        add_organisation(f"other-{number}")
    for number in range(3):
        message_store.append_journal(
            session_id=session_id,
            message_id=StreamJournal.objects.values_list("message_id", flat=True)[0],
            pieces=[message_store.Piece(part_index=1, part_type="text", offset=number, text="x")],
        )
    assert model._default_manager.count() > 3
    assert queries() == few


@pytest.mark.parametrize("model", RECORD_MODELS, ids=lambda model: model.__name__)
def test_who_may_not_view_a_table_sees_none_of_it(model: type[Model], session_id: str, client: Client) -> None:
    client.force_login(User.objects.create_user("grace", is_staff=True))
    row = model._default_manager.all()[0]
    assert client.get(list_of(model)).status_code == 403
    assert client.get(page_of(row)).status_code == 403


def test_who_may_view_one_table_changes_nothing_there(session_id: str, client: Client) -> None:
    grace = User.objects.create_user("grace", is_staff=True)
    grace.user_permissions.add(*Permission.objects.filter(codename__in=["view_message", "change_message"]))
    client.force_login(grace)
    message = Message.objects.get(session_id=session_id, seq=2)
    page = shown(client, page_of(message))
    assert "You do not have permission to see the parts" in page
    assert ORIGINAL not in page
    assert client.post(page_of(message), {"role": "user"}).status_code == 403
    part = only_part(session_id, part_type="tool")
    assert client.get(f"{page_of(part).removesuffix('change/')}text/output/").status_code == 403
    assert client.get(reverse("admin:inspect_tombstones", args=[session_id])).status_code == 403


def test_who_is_no_staff_is_sent_to_sign_in(session_id: str, client: Client) -> None:
    client.force_login(User.objects.create_user("bob"))
    for url in (list_of(Session), reverse("admin:inspect_tombstones", args=[session_id])):
        assert client.get(url).status_code == 302


def test_a_message_shows_its_parts_in_order_and_exactly(ada: User, inspector: Client) -> None:
    session_id = add_session(ada)
    texts = ["\n  first, indented\n", "a thought", "last\n\n"]
    parts = (TextPart(text=texts[0]), ReasoningPart(text=texts[1]), tool_part(), TextPart(text=texts[2]))
    message = Message.objects.get(id=add_turn(session_id, "Go", *parts)[1])
    page = shown(inspector, page_of(message))
    exact = [texts[0], texts[1], '{\n  "port": "north"\n}', '{"port": "north"}', ORIGINAL, texts[2]]
    assert texts_in(page, "pre") == exact
    order = [page.index(f">{kind}</a>") for kind in ("text", "reasoning", "tool")]
    assert order == sorted(order)


def test_hostile_text_is_shown_and_not_obeyed(ada: User, inspector: Client) -> None:
    session_id = add_session(ada, HOSTILE)
    parts = (
        TextPart(text=HOSTILE),
        ToolPart(tool_name=HOSTILE, tool_call_id="c", input=HOSTILE, error=HOSTILE, state=ToolState.ERROR),
        DataPart(label=HOSTILE, text=json.dumps({"x": HOSTILE})),
    )
    message = Message.objects.get(id=add_turn(session_id, HOSTILE, *parts)[1])
    page = shown(inspector, page_of(message))
    assert "<script>alert" not in page
    assert texts_in(page, "pre").count(SHOWN) == 3
    assert page.count('title="U+202E"') >= 3
    for url in (list_of(Session), page_of(Session.objects.get()), list_of(Message), list_of(MessagePart)):
        listed = shown(inspector, url)
        assert "<script>alert" not in listed
        assert "\u202e" not in listed


@pytest.mark.parametrize("deep", ["[" * 3000, "[" * 3000 + "]" * 3000, '{"a": 1e999}', '{"a": NaN}', "no JSON"])
def test_input_that_is_hardly_json_is_shown_as_it_came(ada: User, inspector: Client, deep: str) -> None:
    message = Message.objects.get(id=add_turn(add_session(ada), "Go", tool_part(input=deep))[1])
    assert deep in texts_in(shown(inspector, page_of(message)), "pre")


def test_a_very_long_text_is_folded_and_whole_in_its_file(ada: User, inspector: Client) -> None:
    text = "\x00" + "tide " * 400_000 + "\ud800end"
    message = Message.objects.get(id=add_turn(add_session(ada), "Go", TextPart(text=text))[1])
    page = shown(inspector, page_of(message))
    assert len(page) < 100_000
    [pre] = texts_in(page, "pre")
    assert pre == "␀" + text[1:FOLD_CHARACTERS]
    assert f"{len(text):,} characters" in page
    answer = inspector.get(reverse("admin:sessions_app_messagepart_text", args=[message.parts.get().pk, "content"]))
    assert answer.content.decode() == text.replace("\ud800", "\ufffd")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"].startswith("attachment")


def test_a_tombstoned_output_is_marked_and_shown_whole(session_id: str, inspector: Client) -> None:
    part = only_part(session_id, part_type="tool")
    before = shown(inspector, page_of(part.message))
    assert ORIGINAL in before
    assert "Tombstoned by" not in before
    with change(session_id) as record:
        message_store.tombstone_parts(record, [part.id])
    for url in (page_of(part.message), page_of(part)):
        page = shown(inspector, url)
        assert ORIGINAL in texts_in(page, "pre")
        assert "Tombstoned by" in page
        assert f"event {only_part(session_id, part_type='tool').compacted_seq}" in page
    listed = inspector.get(reverse("admin:inspect_tombstones", args=[session_id]), follow=True)
    assert [row.pk for row in listed.context["cl"].result_list] == [part.id]
    assert ORIGINAL in listed.content.decode()


def test_a_session_without_tombstones_says_so(ada: User, inspector: Client) -> None:
    session_id = add_session(ada)
    add_turn(session_id, "Go", tool_part())
    page = inspector.get(reverse("admin:inspect_tombstones", args=[session_id]), follow=True)
    assert "0 message parts" in page.content.decode()
    assert inspector.get(reverse("admin:inspect_tombstones", args=["sess_none"])).status_code == 404


def test_an_event_shows_its_exact_text_and_its_place_in_the_chain(session_id: str, inspector: Client) -> None:
    event = Event.objects.get(session_id=session_id, seq=2)
    page = shown(inspector, page_of(event))
    pretty, exact = texts_in(page, "pre")
    assert exact == event.body
    assert json.loads(pretty) == json.loads(event.body)
    assert "hash is right" in page
    assert "follows the entry before" in page
    for seq in (1, 3):
        assert page_of(Event.objects.get(session_id=session_id, seq=seq)) in page


def test_a_forged_event_is_called_one(ada: User, inspector: Client) -> None:
    session_id = add_session(ada)
    forged = Event(
        session_id=session_id, seq=2, type="turn.started", body="{}", prev_hash="1" * 64, hash="2" * 64, created_at=NOW
    )
    forged.save()
    page = shown(inspector, page_of(forged))
    assert "HASH DOES NOT MATCH" in page
    assert "DOES NOT FOLLOW THE ENTRY BEFORE" in page


def test_a_turn_shows_its_usage_and_leads_to_its_messages_and_calls(session_id: str, inspector: Client) -> None:
    turn = Turn.objects.get(session_id=session_id, seq=1)
    page = shown(inspector, page_of(turn))
    facts = dict(zip(texts_in(page, "dt"), (text.strip() for text in texts_in(page, "dd")), strict=True))
    assert (facts["Tokens input"], facts["Usage source"]) == ("1,200", "provider")
    for model, rows in ((Message, 2), (ModelCall, 1)):
        url = f"{list_of(model)}?session={session_id}&turn={turn.pk}"
        assert url.replace("&", "&amp;") in page
        assert inspector.get(url).context["cl"].result_count == rows
    assert reverse("inspect-turn", args=[session_id, turn.pk]) in page
    call = shown(inspector, page_of(ModelCall.objects.get(turn=turn)))
    message = Message.objects.get(session_id=session_id, seq=1)
    assert json.dumps([{"id": message.id}], indent=2) in texts_in(call, "pre")
    assert "ab" * 32 in call


def test_a_deleted_session_can_still_be_inspected(session_id: str, inspector: Client) -> None:
    with change(session_id) as record:
        session_store.soft_delete_session(record)
    assert "deleted" in shown(inspector, list_of(Session))
    assert "Harbour survey" in shown(inspector, page_of(Session.objects.get()))
    assert ORIGINAL in shown(inspector, page_of(Message.objects.get(session_id=session_id, seq=2)))


@pytest.mark.parametrize("model", [Session, Turn, Message, MessagePart, Event, ModelCall])
def test_search_finds_by_id_and_by_title(model: type[Model], session_id: str, ada: User, inspector: Client) -> None:
    add_turn(add_session(ada, "Elsewhere"), "Hello")

    def found(query: str) -> int:
        changes = inspector.get(list_of(model), {"q": query}).context["cl"]
        return int(changes.result_count)

    mine = model._default_manager.filter(**({"pk": session_id} if model is Session else {"session_id": session_id}))
    row = mine[0]
    assert found("survey") == found(session_id) == len(mine)
    assert found("nothing like it") == 0
    if isinstance(row.pk, str) and model is not Session:
        assert found(row.pk) == 1


def test_a_list_about_a_session_is_in_the_order_of_the_record(session_id: str, inspector: Client) -> None:
    for model in (Turn, Message, Event):
        rows = inspector.get(list_of(model), {"session": session_id}).context["cl"].result_list
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    newest = inspector.get(list_of(Message)).context["cl"].result_list
    assert [row.pk for row in newest] == sorted((row.pk for row in newest), reverse=True)


def test_only_declared_texts_are_handed_out(session_id: str, inspector: Client) -> None:
    part = only_part(session_id, part_type="tool")
    base = page_of(part).removesuffix("change/")
    assert inspector.get(f"{base}text/tool_input/").status_code == 200
    assert inspector.get(f"{base}text/error_message/").status_code == 404
    assert inspector.get(f"{base}text/salt/").status_code == 404
    assert inspector.post(f"{base}text/tool_input/").status_code == 403


def test_a_message_with_many_parts_is_read_in_pages(
    ada: User, inspector: Client, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    parts = [TextPart(text=f"part number {number}.") for number in range(250)]
    message = Message.objects.get(id=add_turn(add_session(ada), "Go", *parts)[1])
    with django_assert_max_num_queries(12):
        page = shown(inspector, page_of(message))
    assert "part number 99." in page
    assert "part number 100." not in page
    assert "part number 249." in shown(inspector, f"{page_of(message)}?page=3")
    assert "part number 249." in shown(inspector, f"{page_of(message)}?page=999")
