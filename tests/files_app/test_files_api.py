"""Files at the REST endpoint: what is known, all of the bytes, ranges of them, and only to whose they are."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from files_app.contents import put_content
from files_app.store import store_file_reference
from sessions_app.record.change import change
from tests.support.people.cast import make_user
from tests.support.people.streamed import streamed
from tests.support.record.talks import new_session

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


def test_nobody_shows_a_file_as_a_page_of_ours(alice):
    page = b"<script>alert(1)</script>"
    file_id = keep(alice, page, "evil.html")
    for query in ("", "?limit=9"):
        answer = of(alice).get(f"/api/files/{file_id}/content{query}")
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Disposition"].startswith("attachment")
        assert answer["Content-Type"] == "application/octet-stream"


def test_a_download_that_was_broken_off_goes_on(alice):
    whole = bytes(range(256)) * 9_000
    path = f"/api/files/{keep(alice, whole)}/content"
    begun = of(alice).get(path)
    assert (begun["Accept-Ranges"], begun["Content-Length"]) == ("bytes", str(len(whole)))
    rest = of(alice).get(path, headers={"Range": "bytes=1500001-", "If-Range": begun["ETag"]})
    assert rest.status_code == 206
    assert rest["Content-Range"] == f"bytes 1500001-{len(whole) - 1}/{len(whole)}"
    assert rest["Content-Length"] == str(len(whole) - 1_500_001)
    assert streamed(rest) == whole[1_500_001:]
    assert streamed(of(alice).get(path, headers={"Range": "bytes=-5"})) == whole[-5:]


def test_a_range_of_what_the_file_is_not_any_more_is_all_of_it(alice):
    path = f"/api/files/{keep(alice, b'new words')}/content"
    answer = of(alice).get(path, headers={"Range": "bytes=4-", "If-Range": '"another"'})
    assert (answer.status_code, streamed(answer)) == (200, b"new words")


def test_a_range_behind_the_end_is_refused_with_the_size(alice):
    answer = of(alice).get(f"/api/files/{keep(alice, b'words')}/content", headers={"Range": "bytes=5-"})
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */5")
    assert answer.json()["error"]["code"] == "RANGE_NOT_SATISFIABLE"


def test_lines_are_read_by_number(alice):
    file_id = keep(alice, "one\nzwö\nthree\n".encode())
    answer = of(alice).get(f"/api/files/{file_id}/lines?first=2&limit=1").json()
    assert answer == {
        "items": [{"number": 2, "offset": 4, "text": "zwö", "is_cut": False}],
        "total": 3,
        "next_line": 3,
    }
    assert of(alice).get(f"/api/files/{file_id}/lines").json()["next_line"] is None


def test_a_file_is_searched_page_by_page(alice):
    file_id = keep(alice, b"tide in\nout\nTide out\n")
    path = f"/api/files/{file_id}/search?q=tide&limit=1"
    first = of(alice).get(path).json()
    assert first["items"] == [{"number": 1, "offset": 0, "text": "tide in", "matches": [[0, 4]], "count": 1}]
    second = of(alice).get(f"{path}&cursor={first['next_cursor']}").json()
    assert [hit["number"] for hit in second["items"]] == [3]
    by_pattern = of(alice).get(f"/api/files/{file_id}/search?q=out$&mode=regex").json()
    assert ([hit["number"] for hit in by_pattern["items"]], by_pattern["next_cursor"]) == ([2, 3], None)
    assert by_pattern["searched_bytes"] == by_pattern["size"] == 21


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        ("/lines?first=0", 422, "INVALID_REQUEST"),
        ("/lines?limit=1001", 422, "INVALID_REQUEST"),
        ("/search?q=", 422, "INVALID_REQUEST"),
        ("/search?q=(&mode=regex", 422, "INVALID_REQUEST"),
        ("/lines", 409, "FILE_NOT_TEXT"),
        ("/search?q=x", 409, "FILE_NOT_TEXT"),
    ],
)
def test_what_cannot_be_read_as_lines_is_said(alice, end, status, code):
    file_id = keep(alice, b"\x00\x01" * 90)
    answer = of(alice).get(f"/api/files/{file_id}{end}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("end", ["/lines", "/search?q=x"])
def test_other_peoples_lines_are_not_found(alice, end):
    path = f"/api/files/{keep(alice, b'words')}{end}"
    assert of(make_user("bob")).get(path).status_code == 404
    assert Client().get(path).status_code == 401
