"""Saved prompts: who may read and change them, what a name may be, and lists of many."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.errors import (
    InvalidRequest,
    SavedPromptNameTaken,
    SavedPromptNotFoundError,
    SavedPromptNotYours,
)
from mnesis_core.records import SavedPromptRecord
from sessions_app.assistants import prompt_store
from sessions_app.assistants.prompt_store import list_prompts, load_prompt
from tests.support.people.organisations import put_into

pytestmark = pytest.mark.django_db
HOSTILE = "\0 \ud800 \u202eevil <script>alert(1)</script> {{a}} 🦊"


@pytest.fixture
def browser(alice: User, client: Client) -> Client:
    client.force_login(alice)
    return client


def save(owner: User, name: str = "summary", **more: Any) -> SavedPromptRecord:
    return prompt_store.create_prompt(owner_id=owner.pk, name=name, **{"text": "Sum up {{topic}}.", **more})


def names(user: User, **asked: Any) -> list[str]:
    return [prompt.name for prompt in list_prompts(user_id=user.pk, **asked)]


def test_a_private_prompt_is_not_found_by_others(alice: User, bob: User) -> None:
    prompt = save(alice)
    assert prompt.title == "summary"
    assert names(bob) == []
    for act in (
        lambda: load_prompt(prompt.id, user_id=bob.pk),
        lambda: prompt_store.update_prompt(prompt.id, owner_id=bob.pk, title="Mine"),
        lambda: prompt_store.delete_prompt(prompt.id, owner_id=bob.pk),
    ):
        with pytest.raises(SavedPromptNotFoundError):
            act()
    assert load_prompt(prompt.id, user_id=alice.pk) == prompt


def test_a_shared_prompt_is_read_by_others_and_changed_by_its_owner_alone(alice: User, bob: User) -> None:
    prompt = save(alice, is_shared=True)
    seen = load_prompt(prompt.id, user_id=bob.pk)
    assert (seen.is_owner, seen.owner_name, seen.text) == (False, "alice", prompt.text)
    with pytest.raises(SavedPromptNotYours):
        prompt_store.update_prompt(prompt.id, owner_id=bob.pk, text="Mine")
    with pytest.raises(SavedPromptNotYours):
        prompt_store.delete_prompt(prompt.id, owner_id=bob.pk)
    prompt_store.update_prompt(prompt.id, owner_id=alice.pk, is_shared=False)
    assert (names(alice), names(bob)) == (["summary"], [])


def test_a_shared_prompt_stays_in_its_organisation(alice: User, bob: User) -> None:
    prompt = save(alice, is_shared=True)
    put_into("elsewhere", bob)
    assert names(bob) == []
    put_into("elsewhere", alice)
    assert names(alice) == names(bob) == []
    with pytest.raises(SavedPromptNotFoundError):
        load_prompt(prompt.id, user_id=alice.pk)
    save(alice)  # the name is free there


def test_a_name_is_one_persons_once(alice: User, bob: User) -> None:
    first, other = save(alice), save(alice, "other")
    save(bob)
    with pytest.raises(SavedPromptNameTaken):
        save(alice)
    with pytest.raises(SavedPromptNameTaken):
        prompt_store.update_prompt(other.id, owner_id=alice.pk, name="summary")
    prompt_store.update_prompt(first.id, owner_id=alice.pk, name="summary", title="Same name")
    prompt_store.delete_prompt(first.id, owner_id=alice.pk)
    assert prompt_store.update_prompt(other.id, owner_id=alice.pk, name="summary").name == "summary"


def test_what_is_no_prompt_is_refused(alice: User, subtests: Any) -> None:
    prompt = save(alice)
    wrong = [
        *({"name": name} for name in ("", "-a", "Summary", "a b", "a/b", "a\n", "é", "٣", "a\0", "\ud800", "a" * 51)),
        *({"text": text} for text in ("", " \n", "x" * (prompt_store.LONGEST_TEXT + 1))),
        *({"title": title} for title in (" ", "x" * 101, "\0" * 100)),
    ]
    for values in wrong:
        with subtests.test(ascii(values)[:60]), pytest.raises(InvalidRequest):
            prompt_store.update_prompt(prompt.id, owner_id=alice.pk, **values)
    assert load_prompt(prompt.id, user_id=alice.pk) == prompt


def test_hostile_texts_are_kept_as_they_are(alice: User) -> None:
    prompt = save(alice, text=HOSTILE, title=HOSTILE)
    assert (prompt.text, prompt.title) == (HOSTILE, HOSTILE)
    assert names(alice, query="\0") == names(alice, query="EVIL") == ["summary"]
    assert names(alice, query="%") == []


def test_one_person_saves_so_many(alice: User, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_store, "MOST_PROMPTS", 2)
    save(alice, "a")
    save(alice, "b")
    save(bob, "a")
    with pytest.raises(InvalidRequest):
        save(alice, "c")


def test_a_list_goes_on_where_it_stopped(alice: User, browser: Client) -> None:
    for number in range(5):
        save(alice, f"p{number}", title="Even" if number % 2 == 0 else "Odd")
    first = browser.get("/api/prompts?limit=2&q=even").json()
    rest = browser.get(f"/api/prompts?limit=2&q=even&cursor={first['next_cursor']}").json()
    assert [item["name"] for item in first["items"] + rest["items"]] == ["p4", "p2", "p0"]
    assert rest["next_cursor"] is None


def test_a_prompt_over_rest(alice: User, bob: User, browser: Client) -> None:
    made = browser.post("/api/prompts", {"name": "s", "text": "Go {{where=home}}"}, content_type="application/json")
    assert made.status_code == 201
    path = f"/api/prompts/{made.json()['id']}"
    again = browser.post("/api/prompts", {"name": "s", "text": "x"}, content_type="application/json")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "SAVED_PROMPT_NAME_TAKEN")
    changed = browser.patch(path, {"is_shared": True}, content_type="application/json").json()
    assert (changed["is_shared"], changed["text"]) == (True, "Go {{where=home}}")
    assert browser.delete(path).json()["deleted"]
    assert browser.get(path).json()["error"]["code"] == "SAVED_PROMPT_NOT_FOUND"
    theirs = save(bob)
    assert browser.get(f"/api/prompts/{theirs.id}").status_code == 404


def test_the_pages(alice: User, bob: User, browser: Client) -> None:
    assert "No prompts yet." in browser.get("/prompts/").content.decode()
    mine = save(alice, title="<b>Sum</b>", text=HOSTILE)
    theirs, hidden = save(bob, "theirs", is_shared=True), save(bob, "hidden")
    page = browser.get("/prompts/").content.decode()
    assert "&lt;b&gt;Sum" in page
    assert "/theirs" in page
    assert "/hidden" not in page
    assert "No results for" in browser.get("/prompts/?q=zzz").content.decode()
    assert 'id="edit-prompt"' in browser.get(f"/prompts/{mine.id}/").content.decode()
    shown = browser.get(f"/prompts/{theirs.id}/").content.decode()
    assert "shared by" in shown
    assert "edit-prompt" not in shown
    assert browser.get(f"/prompts/{hidden.id}/").status_code == 404
