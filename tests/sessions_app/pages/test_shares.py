"""Shared links: what they show, to whom, and nothing else. They are opened as people open them, by their address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.signing import Signer
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from files_app.intake import keep_file
from mnesis_core.messages import (
    DataPart,
    FileRefPart,
    ImagePart,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolState,
)
from mnesis_core.messages import Message as Said
from mnesis_core.records import TurnState
from sessions_app.conf import site_config
from sessions_app.models import DirectoryEntry, Event, Message, MessagePart, Share, ShareOpening
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from sessions_app.record.shares import sharing
from tests.support.material.drawings import drawing
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.proof.second_opinion import all_problems
from tests.support.proof.second_verifier import problems_of_session, read_export
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool
from tests.support.record.trees import leave

pytestmark = pytest.mark.django_db

GONE = "SHARED_LINK_NOT_FOUND"


def web_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def alice(db: None) -> User:
    return make_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    return make_user("bob")


@pytest.fixture
def owner(alice: User) -> Client:
    return web_of(alice)


@pytest.fixture
def guest(bob: User) -> Client:
    return web_of(bob)


@pytest.fixture
def harbour(alice: User) -> str:
    session_id = new_session(alice, title="Harbour works")
    exchange(session_id, "Where is the lighthouse?", "On the pier.")
    return session_id


@pytest.fixture
def configure(settings: Any, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    def write(text: str) -> None:
        file = tmp_path / "config.toml"
        file.write_text(text)
        settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
        site_config.cache_clear()

    yield write
    site_config.cache_clear()


def share(owner: Client, session_id: str, **body: Any) -> dict[str, Any]:
    """A new link as the endpoint answers it; it must be made."""
    answer = owner.post(f"/api/sessions/{session_id}/shares", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = answer.json()
    return made


def refused(owner: Client, session_id: str, **body: Any) -> tuple[int, str]:
    answer = owner.post(f"/api/sessions/{session_id}/shares", body, content_type="application/json")
    return answer.status_code, answer.json()["error"]["code"]


def opened(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer
    return answer.content.decode().split("<main", 1)[1]


def opens_nothing(client: Client, path: str) -> bool:
    """Whether a link is answered as every other that opens nothing."""
    answer, unknown = client.get(path), client.get("/shared/share_01KCM0000000000000000000AA.AAAA/")
    assert answer.status_code in (200, 302, 404)
    if answer.status_code != 404:
        return False
    assert GONE in answer.content.decode()
    plain = [
        re.sub(r'nonce="[^"]*"|csrf[^>]*|X-CSRFToken[^>]*', "", page.content.decode()) for page in (answer, unknown)
    ]
    assert plain[0] == plain[1]
    return True


def test_a_link_shows_the_session_as_it_was(owner: Client, guest: Client, alice: User, harbour: str) -> None:
    made = share(owner, harbour)
    assert (made["audience"], made["state"], made["title"]) == ("site", "open", "Harbour works")
    before = opened(guest, made["path"])
    assert "On the pier." in before
    assert "Harbour works" in before
    assert "alice" in before
    exchange(harbour, "And the anchor?", "At the bottom.")
    owner.patch(f"/api/sessions/{harbour}", {"title": "Secret name"}, content_type="application/json")
    assert opened(guest, made["path"]) == before
    later = share(owner, harbour)
    assert "At the bottom." in opened(guest, later["path"])
    assert "Secret name" in opened(guest, later["path"])


def test_a_link_ends_at_its_message_and_shows_no_other_branch(owner: Client, guest: Client, harbour: str) -> None:
    exchange(harbour, "The second question", "The second answer")
    leave(harbour, parent=0, after_seq=2)
    exchange(harbour, "Said otherwise", "Answered otherwise")
    leave(harbour, parent=0, after_seq=0)
    exchange(harbour, "From the beginning", "Begun anew")
    ids = dict(Message.objects.filter(session_id=harbour).values_list("seq", "id"))
    shown = {
        2: ("On the pier.", "second", "otherwise", "Begun"),
        4: ("The second answer", "otherwise", "Begun"),
        5: ("Said otherwise", "second", "Answered otherwise", "Begun"),
        8: ("Begun anew", "lighthouse", "second", "otherwise"),
    }
    for seq, (there, *hidden) in shown.items():
        page = opened(guest, share(owner, harbour, message_id=ids[seq])["path"])
        assert there in page
        assert [words for words in hidden if words in page] == []
    # The chosen branch, if no message is named.
    assert "Begun anew" in opened(guest, share(owner, harbour)["path"])
    # Nothing of another branch comes by the part's address, or by going on behind the last message.
    made = share(owner, harbour, message_id=ids[4])
    part = MessagePart.objects.get(message_id=ids[6])
    for address in (f"parts/{part.id}/content/", f"parts/{part.id}/content/raw/"):
        assert guest.get(made["path"] + address).status_code == 404
    assert "otherwise" not in opened_part(guest, f"{made['path']}messages/?after=4")
    own = MessagePart.objects.get(message_id=ids[4])
    assert guest.get(f"{made['path']}parts/{own.id}/content/raw/").content == b"The second answer"


def opened_part(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_what_came_later_to_a_shared_message_and_what_is_the_owners_alone_is_not_shown(
    owner: Client, guest: Client, alice: User
) -> None:
    session_id = new_session(alice, system_prompt="The prompt of the system")
    [_, answer] = say(
        session_id,
        ("user", [TextPart(text="Look"), DataPart(label="x:y", text="the record of an import")]),
        (
            "assistant",
            [
                ReasoningPart(text="I think"),
                ProviderPart(provider="anthropic", kind="thinking", data="what the provider wants back"),
                tool(state=ToolState.ERROR, error="lost", input='{"command": "ls"}', tool_name="llm_map"),
                tool(tool_call_id="2", tool_name="task", output="found"),
                TextPart(text="Done."),
            ],
        ),
    )
    made = share(owner, session_id)
    before = opened(guest, made["path"])
    part = MessagePart.objects.get(message_id=answer, tool_name="llm_map")
    task = MessagePart.objects.get(message_id=answer, tool_name="task")
    with change(session_id) as record:
        assert message_store.keep_late_output(record, part.id, "the late output")
        message_store.tombstone_parts(record, [task.id])
    new_session(alice, title="The child", parent_id=session_id, parent_part_id=task.id, origin="task")
    assert opened(guest, made["path"]) == before
    assert [words for words in ("I think", "ls", "lost", "Done.") if words not in before] == []
    hidden = (
        "the late output",
        "wants back",
        "import",
        "The prompt",
        "The child",
        "1,500",
        "0.0015",
        "llm_map/",
        "data-can",
    )
    assert [words for words in hidden if words in before] == []
    assert guest.get(f"{made['path']}parts/{part.id}/error/raw/").content == b"lost"
    assert guest.get(f"{made['path']}parts/{part.id}/late/raw/").status_code == 404
    for kind in ("data", "provider"):
        id = MessagePart.objects.get(session_id=session_id, part_type=kind).id
        assert guest.get(f"{made['path']}parts/{id}/content/raw/").status_code == 404
    # No address of the owner's is in it.
    assert not re.search(r'"/(sessions|files|runs|api|inspect)/', before)


def test_a_message_whose_turn_goes_on_is_not_shared(owner: Client, alice: User, harbour: str) -> None:
    first = Message.objects.get(session_id=harbour, seq=2).id
    with change(harbour) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message = message_store.append_message(
            record, turn_id=turn_id, message=Said(role="user", parts=(TextPart(text="A question"),))
        )
    assert refused(owner, harbour) == refused(owner, harbour, message_id=message) == (409, "CONFLICT")
    assert share(owner, harbour, message_id=first)["message_id"] == first
    with change(harbour) as record:
        turn_store.finish_turn(record, turn_id, state=TurnState.CANCELLED)
    assert share(owner, harbour)["message_id"] == message


@pytest.mark.slow
def test_files_are_seen_through_the_link_and_only_those_of_its_messages(
    owner: Client, guest: Client, alice: User, harbour: str
) -> None:
    def keep(session_id: str, name: str, data: bytes) -> str:
        return keep_file(session_id, owner_id=alice.pk, path=name, chunks=[data]).id

    picture, words = keep(harbour, "pier.png", drawing()), keep(harbour, "plan.html", b"<script>alert(1)</script>")
    other, later = keep(new_session(alice), "other.txt", b"other"), keep(harbour, "later.txt", b"later")
    unnamed = keep(harbour, "unnamed.txt", b"unnamed")
    say(
        harbour,
        (
            "user",
            [
                TextPart(text=f"Look at {unnamed}"),
                ImagePart(file_id=picture, name="pier.png", media_type="image/png", size=9),
                FileRefPart(file_id=words, path="plan.html", file_type="html"),
                FileRefPart(file_id=other, path="other.txt", file_type="text"),
            ],
        ),
        ("assistant", [TextPart(text=f"[FILE: unnamed.txt]\nFile ID: {unnamed}\n")]),
    )
    made = share(owner, harbour)
    say(harbour, ("user", [FileRefPart(file_id=later, path="later.txt", file_type="text")]))
    page = opened(guest, made["path"])
    assert f'src="{made["path"]}files/{picture}/"' in page
    assert '"/files/' not in page
    shown = guest.get(f"{made['path']}files/{picture}/")
    assert (shown.status_code, shown.headers["Content-Type"]) == (200, "image/png")
    downloaded = guest.get(f"{made['path']}files/{words}/")
    assert downloaded.headers["Content-Disposition"].startswith("attachment")
    assert downloaded.headers["Content-Type"] == "application/octet-stream"
    for id in (other, later, unnamed, "file_x", "%00", "%"):
        assert guest.get(f"{made['path']}files/{id}/").status_code == 404, id
    for id in (picture, words):
        assert guest.get(f"/files/{id}/").status_code == guest.get(f"/files/{id}/picture/").status_code == 404
    owner.delete(f"/api/sessions/{harbour}/shares/{made['id']}")
    assert guest.get(f"{made['path']}files/{picture}/").status_code == 404


def test_whom_a_link_is_for(
    owner: Client, guest: Client, alice: User, harbour: str, configure: Callable[[str], None]
) -> None:
    eve, stranger = web_of(make_user("eve")), Client()
    away = make_user("away")
    put_into("elsewhere", away.pk)
    configure("[sharing]\nwith_anyone = true\n")
    site, some = share(owner, harbour), share(owner, harbour, audience="people", people=["bob"])
    public = share(owner, harbour, audience="anyone")
    assert some["people"] == ["bob"]
    for client in (owner, guest, eve, web_of(away), stranger):
        assert "On the pier." in opened(client, public["path"])
    for client in (owner, guest, eve):
        assert "On the pier." in opened(client, site["path"])
    for client in (owner, guest):
        assert "On the pier." in opened(client, some["path"])
    assert opens_nothing(eve, some["path"])
    assert opens_nothing(web_of(away), site["path"])
    for made in (site, some):
        for below in ("", "messages/", "parts/part_x/content/", "files/file_x/"):
            answer = stranger.get(made["path"] + below)
            assert (answer.status_code, answer.headers["Location"]) == (302, f"/sign-in/?next={made['path']}{below}")
        part = stranger.get(f"{made['path']}messages/", headers={"HX-Request": "true"})
        assert part.status_code == 401


def test_a_link_opens_nothing_once_it_is_revoked_and_stays_in_the_record(
    owner: Client, guest: Client, harbour: str
) -> None:
    made, other = share(owner, harbour), share(owner, harbour)
    opened(guest, made["path"])
    gone = owner.delete(f"/api/sessions/{harbour}/shares/{made['id']}").json()
    assert (gone["state"], gone["reader_count"]) == ("revoked", 1)
    again = owner.delete(f"/api/sessions/{harbour}/shares/{made['id']}").json()
    assert again["revoked_at"] == gone["revoked_at"]
    for client in (owner, guest, Client()):
        for below in ("", "messages/", "parts/part_x/content/", "files/file_x/"):
            assert opens_nothing(client, made["path"] + below)
    opened(guest, other["path"])
    assert Share.objects.filter(id=made["id"]).exists()
    types = Event.objects.filter(session_id=harbour, type__startswith="share.").order_by("seq")
    assert list(types.values_list("type", flat=True)) == [
        *("share.created", "share.created", "share.opened", "share.revoked", "share.opened")
    ]


def test_a_link_expires(owner: Client, guest: Client, harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    until = timezone.now() + timedelta(days=1)
    made = share(owner, harbour, expires_at=until.isoformat())
    opened(guest, made["path"])
    monkeypatch.setattr(sharing.timezone, "now", lambda: until)
    for client in (owner, guest, Client()):
        assert opens_nothing(client, made["path"])
    [listed] = owner.get(f"/api/sessions/{harbour}/shares").json()["items"]
    assert listed["state"] == "expired"


@pytest.mark.parametrize(
    "when", ["2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"]
)
def test_a_time_that_is_past_or_far_away_is_refused(when: str, owner: Client, harbour: str) -> None:
    assert refused(owner, harbour, expires_at=when) == (422, "INVALID_REQUEST")


def test_a_link_rests_with_its_session_in_the_trash_and_ends_when_that_is_deleted(
    owner: Client, guest: Client, harbour: str
) -> None:
    made = share(owner, harbour)
    owner.post(f"/api/sessions/{harbour}/archive")
    opened(guest, made["path"])
    owner.post(f"/api/sessions/{harbour}/trash")
    for client in (owner, guest, Client()):
        assert opens_nothing(client, made["path"])
    assert refused(owner, harbour) == (404, "SESSION_IN_TRASH")
    assert made["path"] not in opened(owner, "/shares/")
    owner.post(f"/api/sessions/{harbour}/restore")
    opened(guest, made["path"])
    owner.delete(f"/api/sessions/{harbour}")
    for client in (owner, guest, Client()):
        assert opens_nothing(client, made["path"])


def test_a_link_ends_with_its_owners_account_or_place(owner: Client, guest: Client, alice: User, harbour: str) -> None:
    made = share(owner, harbour)
    alice.is_active = False
    alice.save()
    assert opens_nothing(guest, made["path"])
    alice.is_active = True
    alice.save()
    opened(guest, made["path"])
    put_into("elsewhere", alice.pk)
    assert opens_nothing(guest, made["path"])
    assert opens_nothing(owner, made["path"])


def test_a_token_that_is_guessed_changed_or_made_elsewhere_opens_nothing(
    owner: Client, guest: Client, harbour: str
) -> None:
    made, other = share(owner, harbour), share(owner, harbour)
    token, id = made["path"].split("/")[2], made["id"]
    name, signature = token.split(".")
    with_another_key = Signer(key="another", sep=".", salt="mnesis.share").sign(id)
    guesses = (
        *(id, f"{id}.", f".{signature}", signature, f"{other['id']}.{signature}", f"{name}.{signature[:-1]}"),
        *(f"{name}.{signature}A", f"{name.lower()}.{signature}", f"{name}.{signature}.{signature}", "a" * 5_000),
        *(with_another_key, Signer(sep=".").sign(id), Signer(sep=".", salt="mnesis.share").sign(harbour)),
        *("%00", f"{token}%00", "%ED%A0%80", "%E2%80%AE", "%25"),
    )
    for guess in guesses:
        assert opens_nothing(guest, f"/shared/{guess}/"), guess
    assert not ShareOpening.objects.exists()
    opened(guest, made["path"])


def test_who_opened_it_is_recorded_once_a_day_and_moves_nothing_in_the_owners_list(
    owner: Client, guest: Client, bob: User, harbour: str, configure: Callable[[str], None]
) -> None:
    configure("[sharing]\nwith_anyone = true\n")
    made = share(owner, harbour, audience="anyone")
    before = load_session(harbour)
    for client in (owner, guest, guest, Client(), Client()):
        for below in ("", "messages/", ""):
            opened_part(client, made["path"] + below)
    after = load_session(harbour)
    assert after.event_seq == before.event_seq + 2
    assert after.updated_at == before.updated_at
    [listed] = owner.get(f"/api/sessions/{harbour}/shares").json()["items"]
    assert listed["reader_count"] == 2
    assert {(one["name"], one["days"]) for one in listed["readers"]} == {("bob", 1), (None, 1)}
    events = owner.get(f"/api/sessions/{harbour}/events").json()["items"]
    kinds = [event["data"]["actor"]["kind"] for event in events if event["type"] == "share.opened"]
    assert kinds == ["user", "visitor"]
    newest = DirectoryEntry.objects.filter(session_id=harbour).latest("seq")
    assert (newest.type, newest.entries) == ("session.recorded", after.event_seq)
    assert verify_session(harbour).ok
    assert list(all_problems()) == []


def test_an_opening_counts_again_on_the_next_day(
    owner: Client, guest: Client, harbour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = share(owner, harbour)
    opened(guest, made["path"])
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    monkeypatch.setattr(sharing.timezone, "now", lambda: tomorrow)
    opened(guest, made["path"])
    opened(guest, made["path"])
    [listed] = owner.get(f"/api/sessions/{harbour}/shares").json()["items"]
    assert [(one["name"], one["days"]) for one in listed["readers"]] == [("bob", 2)]


def test_what_a_site_forbids_also_closes_the_links_that_there_are(
    owner: Client, guest: Client, harbour: str, configure: Callable[[str], None]
) -> None:
    assert refused(owner, harbour, audience="anyone") == (403, "SHARING_NOT_PERMITTED")
    assert 'value="anyone"' not in opened_part(owner, f"/sessions/{harbour}/shares/")
    configure("[sharing]\nwith_anyone = true\n")
    assert 'value="anyone"' in opened_part(owner, f"/sessions/{harbour}/shares/")
    public, site = share(owner, harbour, audience="anyone"), share(owner, harbour)
    configure("")
    assert opens_nothing(Client(), public["path"])
    assert "On the pier." in opened(guest, site["path"])
    assert 'data-do="share"' in opened_part(owner, f"/sessions/{harbour}/")
    configure("[sharing]\npeople_may_share = false\n")
    assert opens_nothing(guest, site["path"])
    assert refused(owner, harbour) == (403, "SHARING_NOT_PERMITTED")
    page = opened_part(owner, f"/sessions/{harbour}/")
    assert [words for words in ('data-do="share"', 'data-act="share"', 'id="share"') if words in page] == []
    states = {item["state"] for item in owner.get(f"/api/sessions/{harbour}/shares").json()["items"]}
    assert states == {"forbidden"}
    page = opened(owner, "/shares/")
    assert ("data-revoke" in page, "data-copy-link" in page) == (True, False)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"audience": "people"}, (422, "INVALID_REQUEST")),
        ({"audience": "people", "people": ["bob", "nobody"]}, (422, "INVALID_REQUEST")),
        ({"audience": "people", "people": ["\x00\ud800\u202e"]}, (422, "INVALID_REQUEST")),
        ({"audience": "site", "people": ["bob"]}, (422, "INVALID_REQUEST")),
        ({"audience": "people", "people": ["b" * 151]}, (422, "INVALID_REQUEST")),
        ({"audience": "people", "people": ["bob"] * 101}, (422, "INVALID_REQUEST")),
        ({"audience": "everybody"}, (422, "INVALID_REQUEST")),
        ({"message_id": "msg_x"}, (404, "MESSAGE_NOT_FOUND")),
        ({"message_id": "\x00\u202e"}, (404, "MESSAGE_NOT_FOUND")),
        ({"expires_at": "tomorrow"}, (422, "INVALID_REQUEST")),
        ({"expires_at": "2026-12-24T10:00:00"}, (422, "INVALID_REQUEST")),
    ],
)
def test_what_cannot_be_shared_is_refused(
    body: dict[str, Any], error: Any, owner: Client, bob: User, harbour: str
) -> None:
    status, code = refused(owner, harbour, **body)
    assert (status, code) == error
    assert not Share.objects.exists()


def test_people_of_another_organisation_and_closed_accounts_are_not_found(
    owner: Client, bob: User, harbour: str
) -> None:
    put_into("elsewhere", bob.pk)
    assert refused(owner, harbour, audience="people", people=["bob"]) == (422, "INVALID_REQUEST")
    closed = make_user("closed")
    closed.is_active = False
    closed.save()
    assert refused(owner, harbour, audience="people", people=["closed"]) == (422, "INVALID_REQUEST")


def test_a_session_without_messages_has_nothing_to_share(owner: Client, alice: User) -> None:
    assert refused(owner, new_session(alice)) == (404, "MESSAGE_NOT_FOUND")


def test_shares_are_their_owners_alone(owner: Client, guest: Client, bob: User, harbour: str) -> None:
    made = share(owner, harbour)
    own = new_session(bob)
    exchange(own, "Mine", "Yours")
    assert refused(guest, harbour) == (404, "SESSION_NOT_FOUND")
    message = Message.objects.get(session_id=harbour, seq=1).id
    assert refused(guest, own, message_id=message) == (404, "MESSAGE_NOT_FOUND")
    for answer, code in (
        (guest.get(f"/api/sessions/{harbour}/shares"), "SESSION_NOT_FOUND"),
        (guest.delete(f"/api/sessions/{harbour}/shares/{made['id']}"), "SESSION_NOT_FOUND"),
        (guest.delete(f"/api/sessions/{own}/shares/{made['id']}"), "SHARE_NOT_FOUND"),
        (owner.delete(f"/api/sessions/{harbour}/shares/%00"), "SHARE_NOT_FOUND"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)
    assert guest.get(f"/sessions/{harbour}/shares/").status_code == 404
    assert made["id"] not in opened(guest, "/shares/")
    opened(guest, made["path"])


def test_hidden_characters_are_shown_and_nothing_runs(owner: Client, guest: Client, alice: User) -> None:
    session_id = new_session(alice, title=HOSTILE[:90])
    exchange(session_id, HOSTILE, HOSTILE)
    made = share(owner, session_id)
    for page in (
        opened(guest, made["path"]),
        opened(owner, "/shares/"),
        opened_part(owner, f"/sessions/{session_id}/shares/"),
    ):
        assert [mark for mark in ("<script>alert", 'href="javascript', "<img", "\u202e", "\x00") if mark in page] == []


def test_a_page_keeps_robots_caches_and_other_sites_away(owner: Client, guest: Client, harbour: str) -> None:
    made = share(owner, harbour)
    answer = guest.get(made["path"])
    assert answer.headers["X-Robots-Tag"] == "noindex, nofollow"
    assert 'name="robots" content="noindex' in answer.content.decode()
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert {"no-store", "private"} <= set(answer.headers["Cache-Control"].split(", "))
    assert guest.post(made["path"]).status_code == 405


def test_a_long_session_is_read_on_and_its_queries_do_not_grow(owner: Client, guest: Client, alice: User) -> None:
    session_id, short = new_session(alice), new_session(alice)
    exchange(short, "One", "Two")
    for number in range(40):
        exchange(session_id, f"Question {number}.", "word " * 60)
    paths = [share(owner, id)["path"] for id in (short, session_id)]
    counts = []
    for path in paths:
        for _ in range(2):
            with CaptureQueriesContext(
                connection,
            ) as asked:
                page = opened(guest, path)
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 13
    assert "Question 24." in page
    assert "Question 25." not in page
    rest = opened_part(guest, f"{paths[1]}messages/?after=50")
    assert "Question 25." in rest
    assert "Question 39." in rest
    assert "More messages" not in rest
    assert guest.get(f"{paths[1]}messages/?after=x").status_code == 422


@pytest.mark.slow
def test_the_page_of_links_lists_all_with_who_opened_them(
    owner: Client, guest: Client, alice: User, harbour: str
) -> None:
    assert "No shared links yet." in opened(owner, "/shares/")
    made = share(owner, harbour, audience="people", people=["bob"])
    opened(guest, made["path"])
    page = opened(owner, "/shares/")
    assert "Opened by <bdi>bob</bdi>" in page
    assert page.count("<bdi>bob</bdi>") == 3
    for _ in range(50):
        share(owner, harbour)
    with CaptureQueriesContext(connection) as asked:
        page = opened(owner, "/shares/")
    assert len(asked) <= 10
    assert made["id"] not in page
    [cursor] = re.findall(r'"cursor": "([^"]*)"', page)
    assert made["id"] in opened_part(owner, f"/shares/?cursor={cursor}")
    assert made["id"] in opened_part(owner, f"/sessions/{harbour}/shares/?cursor={cursor}")
    assert owner.get("/shares/?cursor=%00").status_code == 200
    listed = owner.get(f"/api/sessions/{harbour}/shares?limit=50").json()
    rest = owner.get(f"/api/sessions/{harbour}/shares?cursor={listed['next_cursor']}").json()
    assert (len(listed["items"]), [item["id"] for item in rest["items"]], rest["next_cursor"]) == (
        50,
        [made["id"]],
        None,
    )


class Undone(Exception):
    """Takes back what was written."""


@pytest.mark.slow
def test_a_share_is_exported_and_opens_nothing_where_it_is_imported(
    owner: Client, guest: Client, alice: User, bob: User
) -> None:
    with suppress(Undone), transaction.atomic():
        session_id = new_session(alice)
        exchange(session_id, "Where?", "Here.")
        made = share(owner, session_id)
        opened(guest, made["path"])
        owner.delete(f"/api/sessions/{session_id}/shares/{share(owner, session_id)['id']}")
        lines = list(export_session(session_id))
        raise Undone
    assert made["path"].split(".")[1].encode() not in b"".join(lines)
    import_sessions(lambda: lines, owner_id=alice.pk)
    assert list(export_session(session_id)) == lines
    assert (Share.objects.count(), ShareOpening.objects.count()) == (2, 1)
    assert verify_session(session_id).ok
    assert problems_of_session(read_export(lines)[0]) == []
    assert opens_nothing(guest, made["path"])
    assert opens_nothing(owner, made["path"])
    assert owner.get(f"/api/sessions/{session_id}/shares").json()["items"] == []
    assert owner.delete(f"/api/sessions/{session_id}/shares/{made['id']}").status_code == 404
    opened(guest, share(owner, session_id)["path"])
