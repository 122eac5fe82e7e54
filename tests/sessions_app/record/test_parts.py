"""Parts of every type in the record: stored, exported, imported, forked, found and shown as they are, known or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents_app.tools.memory.reading import text_of_part
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_readable, export_session
from audit_app.transfer.imports import import_sessions
from compaction_app.context.state import build_context
from files_app.contents import read_content
from files_app.queries import list_files
from mnesis_core.messages import (
    KNOWN_PARTS,
    AudioPart,
    CitationPart,
    DocumentPart,
    ImagePart,
    Part,
    ProviderPart,
    ProviderToolPart,
    RefusalPart,
    TextPart,
    ToolPart,
    UnknownPart,
)
from mnesis_core.transcripts import FORMATS
from sessions_app.models import MessagePart
from sessions_app.record.histories import begin_fork, copy_messages, store_transcripts
from sessions_app.record.message_queries import (
    leaves_open,
    load_messages,
    part_of,
    unanswered_tools,
)
from sessions_app.record.session_queries import load_session
from sessions_app.search.index import TOLD
from sessions_app.search.search import Scope, search
from tests.support.material.parts import any_part
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session, say

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]
EACH: list[Part] = [
    ImagePart(file_id="file_01JD3Z4XHGW0G4G4G4G4G4G4G4", name="quay.png", media_type="image/png", size=120, caption="Marigolds"),
    AudioPart(source="sediment://a", media_type="audio/wav"),
    DocumentPart(name="log.pdf", caption="first line\nsecond line\tthird"),
    ProviderPart(provider="anthropic", kind="thinking", data='{"signature":"opaqueword",  "b": 1}'),
    ProviderToolPart(provider="openai", tool_name="web_search", tool_call_id="ws_1", input='{"q": "tide"}', output="fourteen"),
    CitationPart(text="the harbour\nbook", title="Tides", url="https://a.example/<b>", place="page 3"),
    CitationPart(title="Odd", url="javascript:alert(1)"),
    RefusalPart(text="I will not say."),
]  # fmt: skip


@pytest.fixture
def reader() -> User:
    return make_user("ada")


@pytest.fixture
def browser(reader: User) -> Client:
    client = Client()
    client.force_login(reader)
    return client


@pytest.fixture
def talk(reader: User) -> str:
    session_id = new_session(reader)
    say(session_id, ("user", [TextPart(text="Tell me all.")]), ("assistant", EACH))
    return session_id


def parts_in(session_id: str) -> list[Part]:
    return [stored.part for message in load_messages(session_id) for stored in message.parts]


@pytest.mark.slow
@given(st.lists(any_part(), min_size=1, max_size=6))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_parts_come_back_as_they_were_from_the_store_an_export_and_a_fork(reader: User, parts: list[Part]) -> None:
    with transaction.atomic():
        session_id = new_session(reader)
        say(session_id, ("user", [TextPart(text="Go on.")]), ("assistant", parts))
        last = load_messages(session_id)[-1]
        assert [stored.part for stored in last.parts] == parts
        assert verify_session(session_id).ok
        fork_id = begin_fork(load_session(session_id), owner=reader, last=last, title="")
        assert copy_messages(fork_id)
        columns = ("part_type", "content", "label", "tool_input", "output", "error_message", "token_estimate")
        rows = [
            list(MessagePart.objects.filter(session_id=id).order_by("message__seq", "part_index").values_list(*columns))
            for id in (session_id, fork_id)
        ]
        assert rows[0] == rows[1]
        build_context(session_id)
        lines = list(export_session(session_id))
        transaction.set_rollback(True)
    with transaction.atomic():
        import_sessions(lambda: lines, owner_id=reader.pk)
        assert parts_in(session_id)[1:] == parts
        assert list(export_session(session_id)) == lines
        transaction.set_rollback(True)


LATER = [
    ("hologram", '{"beam": [1, 2], "beam": 3,  "n": 123456789012345678901234567890}', "h:1"),
    ("hologram", "[" * 3_000 + "]" * 3_000, ""),
    ("hologram", 'no JSON \0 \ud83d NaN "', ""),
    ("image", '{"file_id": "file_1", "depth": 3}', ""),  # with a field that is not known yet
    ("image", '{"file_id": 7}', ""),
    ("citation", '{"start": true}', ""),
    ("document", "[]", ""),
    ("step_start", '{"step_index": 1e999}', ""),
    ("file_ref", "{}", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("part_type", "content", "label"), LATER, ids=lambda value: value[:20])
def test_what_a_later_version_wrote_is_kept_whole_and_breaks_nothing(
    talk: str, reader: User, browser: Client, part_type: str, content: str, label: str
) -> None:
    part = UnknownPart(type=part_type, data=content, label=label)
    say(talk, ("user", [TextPart(text="And this?")]), ("assistant", [part]))
    assert parts_in(talk)[-1] == part
    assert verify_session(talk).ok
    assert "hologram" not in json.dumps(build_context(talk).payload)
    shown = browser.get(f"/sessions/{talk}/")
    assert shown.status_code == 200
    assert b"Unknown part" in shown.content
    message = load_messages(talk)[-1]
    assert browser.get(f"/sessions/{talk}/inspect/messages/{message.id}/").status_code == 200
    [answer] = browser.get(f"/api/sessions/{talk}/messages?cursor={message.seq - 1}").json()["items"]
    assert answer["parts"][0]["type"] == part_type
    assert answer["parts"][0]["details"]["data"] == content.replace("\ud83d", "\ufffd")
    for format in ("md", "html"):
        whole = b"".join(export_readable(talk, format))  # type: ignore[arg-type]
        assert b"Unknown part" in whole
    assert "does not know" in text_of_part(message.parts[0])
    lines = list(export_session(talk))
    fork_id = begin_fork(load_session(talk), owner=reader, last=message, title="")
    assert copy_messages(fork_id)
    assert parts_in(fork_id) == parts_in(talk)
    assert list(export_session(talk))[-3:-1] == lines[-3:-1]


def test_every_known_type_has_a_look_of_its_own(talk: str, browser: Client) -> None:
    whole = browser.get(f"/sessions/{talk}/").content.decode()
    assert "Unknown part" not in whole
    for words in (
        *(
            "quay.png",
            "Marigolds",
            "image/png",
            "sediment://a",
            "log.pdf",
            "Kept for <bdi>anthropic</bdi>",
            "<bdi>thinking</bdi>",
        ),
        *("run by openai", "fourteen", "Tides", "page 3", "refused", "I will not say."),
    ):
        assert words in whole, words
    assert 'href="https://a.example/&lt;b&gt;"' in whole
    assert "javascript:alert" not in whole.replace("<bdi>javascript:alert(1)</bdi>", "")
    message = load_messages(talk)[-1]
    story = browser.get(f"/sessions/{talk}/inspect/messages/{message.id}/").content.decode()
    assert "Kept for" in story
    assert "Tool call, run by openai" in story
    text = b"".join(export_readable(talk, "md")).decode()
    for words in (
        "Image quay.png",
        "Marigolds",
        "Kept for anthropic",
        "run by openai",
        "Source: Tides",
        "I will not say.",
    ):
        assert words in text, words
    assert "opaqueword" not in text


def test_rest_gives_the_fields_of_each_part(talk: str, browser: Client) -> None:
    parts = browser.get(f"/api/sessions/{talk}/messages").json()["items"][1]["parts"]
    by_type = {part["type"]: part for part in reversed(parts)}
    assert by_type["image"]["file_id"] == EACH[0].file_id  # type: ignore[union-attr]
    assert by_type["image"]["details"] == {
        **{"media_type": "image/png", "size": 120, "name": "quay.png", "caption": "Marigolds"}
    }
    citation = by_type["citation"]
    assert citation["text"] == "the harbour\nbook"
    assert citation["details"] == {"title": "Tides", "url": "https://a.example/<b>", "place": "page 3"}
    assert by_type["audio"]["details"]["source"] == "sediment://a"
    opaque = {"provider": "anthropic", "kind": "thinking", "data": '{"signature":"opaqueword",  "b": 1}'}
    assert by_type["provider"]["details"] == opaque
    ran = by_type["provider_tool"]
    assert (ran["tool_name"], ran["output"], ran["state"]) == ("web_search", "fourteen", None)
    assert ran["details"] == {"provider": "openai"}
    assert (by_type["refusal"]["text"], by_type["refusal"]["details"]) == ("I will not say.", None)


def test_sources_refusals_and_captions_are_found_and_what_is_opaque_is_not(talk: str, reader: User) -> None:
    scope = Scope(owner_id=reader.pk)
    found = {word: [hit.part_type for hit in search(scope, word).hits] for word in (
        *("harbour", "book", "tides", "example", "marigolds", "second", "third", "fourteen", "say", "opaqueword", "tide"),
    )}  # fmt: skip
    assert {word: set(types) for word, types in found.items()} == {
        **{word: {"citation"} for word in ("harbour", "book", "tides", "example")},
        **{word: {"document"} for word in ("second", "third")},
        **{word: {"provider_tool"} for word in ("fourteen", "tide")},
        "marigolds": {"image"},
        "say": {"refusal"},
        "opaqueword": set(),
    }
    unfindable = set(KNOWN_PARTS) - {*TOLD, ToolPart.type, ProviderToolPart.type}
    assert unfindable == {"provider", "data", "compaction", "step_start", "step_finish"}


def test_nothing_waits_for_a_call_that_the_provider_ran(talk: str, browser: Client) -> None:
    unanswered = ProviderToolPart(provider="openai", tool_name="web_search", tool_call_id="ws_2")
    ids = say(talk, ("user", [TextPart(text="Again.")]), ("assistant", [unanswered]))
    turn_id = str(load_messages(talk)[-1].turn_id)
    assert not leaves_open(turn_id)
    assert unanswered_tools(turn_id) == []
    assert "The provider returned no result." in browser.get(f"/sessions/{talk}/").content.decode()
    assert load_messages(talk)[-1].id == ids[1]


def test_the_bytes_in_a_transcript_become_files_of_its_session(reader: User) -> None:
    png = "iVBORw0KGgo="
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "See"}, image, image]},
        {"role": "assistant", "content": "A quay."},
    ]
    report = store_transcripts(FORMATS["openai_chat"](json.dumps({"messages": said})), owner=reader, model="demo")
    [session_id] = report.sessions.values()
    first, second = (part for part in parts_in(session_id) if isinstance(part, ImagePart))
    [file] = list_files(owner_id=reader.pk, session_id=session_id, limit=5)
    assert (first.file_id, first.size, first.media_type, first.source) == (file.id, 8, "image/png", "")
    assert second == first
    assert file.path.endswith(".png")
    assert read_content(file.content_id, 0, 100) == b"\x89PNG\r\n\x1a\n"
    assert not MessagePart.objects.filter(content__contains=png).exists()
    assert f"File ID: {file.id}" in json.dumps(build_context(session_id).payload)
    assert verify_session(session_id).ok


def test_the_columns_of_a_row_are_enough_to_read_it() -> None:
    # Rows of earlier versions name every field, and are read as well.
    content = '{"file_id": "file_1", "path": "", "file_type": "unknown", "token_count": 0, "exploration_summary": ""}'
    columns = ["part_1", 0, "file_ref", 1, None, content, "", *[""] * 6, *[None] * 5]
    part = part_of(columns).part
    assert (part.type, part.file_id) == ("file_ref", "file_1")  # type: ignore[union-attr]


def test_a_page_of_many_of_them_asks_no_more(talk: str, browser: Client, django_assert_max_num_queries: Any) -> None:
    say(talk, ("user", [TextPart(text="All.")]), ("assistant", EACH * 20))
    with django_assert_max_num_queries(40):
        assert browser.get(f"/sessions/{talk}/").status_code == 200
