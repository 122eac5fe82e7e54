"""Files at the REST door: what is known, all of the bytes, ranges of them, and only to whose they are."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from files_app.contents import put_content
from files_app.store import store_file_reference
from sessions_app.ledger import change
from tests.support.cast import make_user
from tests.support.streamed import streamed
from tests.support.talks import new_session

pytestmark = pytest.mark.django_db(transaction=True)
WORDS = "Ä — 漢字 🦋 plain "


@pytest.fixture
def alice(transactional_db: None) -> User:
    return make_user("alice")


def keep(owner: User, data: bytes | None, path: str = "notes/a.txt") -> str:
    content_id = "a1" * 32 if data is None else put_content(data)
    with change(new_session(owner)) as record:
        return store_file_reference(record, content_id=content_id, path=path, file_type="text", token_count=3)


def of(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


def test_a_file_is_described(alice):
    file_id = keep(alice, WORDS.encode())
    shown = of(alice).get(f"/api/files/{file_id}").json()
    assert (shown["id"], shown["path"], shown["file_type"], shown["token_count"]) == (file_id, "notes/a.txt", "text", 3)
    assert shown["size"] == len(WORDS.encode())
    assert of(alice).get(f"/api/files/{keep(alice, None)}").json()["size"] is None


def test_all_of_it_comes_as_a_download(alice):
    whole = b"x" * 2_500_000
    answer = of(alice).get(f"/api/files/{keep(alice, whole)}/content")
    assert answer["Content-Disposition"] == 'attachment; filename="a.txt"'
    assert answer["Content-Type"] == "application/octet-stream"
    assert streamed(answer) == whole


def test_ranges_are_bytes_that_cut_no_character(alice):
    file_id = keep(alice, WORDS.encode())
    answer = of(alice).get(f"/api/files/{file_id}/content?offset=1&limit=8")
    assert answer.status_code == 206
    assert answer.content.decode() == "Ä — "
    assert answer["Content-Range"] == f"bytes 0-6/{len(WORDS.encode())}"
    beyond = of(alice).get(f"/api/files/{file_id}/content?offset=9999&limit=8")
    assert (beyond.status_code, beyond.content, beyond["Content-Range"]) == (206, b"", f"bytes */{len(WORDS.encode())}")


@pytest.mark.parametrize("query", ["?limit=3", "?limit=99999999", "?offset=-1&limit=9", "?limit=x"])
def test_wrong_ranges_are_refused(alice, query):
    answer = of(alice).get(f"/api/files/{keep(alice, b'words')}/content{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize("end", ["", "/content", "/content?limit=9"])
def test_other_peoples_files_are_not_found(alice, end):
    path = f"/api/files/{keep(alice, b'words')}{end}"
    assert of(make_user("bob")).get(path).status_code == 404
    assert Client().get(path).status_code == 401


@pytest.mark.parametrize("end", ["/content", "/content?limit=9"])
def test_a_content_that_is_not_here_is_said(alice, end):
    answer = of(alice).get(f"/api/files/{keep(alice, None)}{end}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "FILE_CONTENT_NOT_FOUND")
