"""The pages of files: whose they are, how many there are, what hostile names and contents become, what they cost."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from files_app import queries
from files_app.contents import put_content
from files_app.intake import explore_file
from files_app.queries import load_file_reference
from files_app.store import store_file_reference
from files_app.views import LINES, PAGE
from mnesis_core.files.references import part_of_file
from mnesis_core.messages import FileRefPart, TextPart
from sessions_app.record.change import change
from tests.support.material.drawings import drawing
from tests.support.people.cast import make_user
from tests.support.people.pages import Ask, ask, browser, reader
from tests.support.record.talks import HOSTILE, new_session, say

__all__ = ["ask", "browser", "reader"]

pytestmark = pytest.mark.django_db


def keep(session_id: str, data: bytes | None, path: str = "notes/a.txt", kind: str = "text", **known: object) -> str:
    """A file of a session; without bytes, one whose content is not kept here."""
    content_id = "a1" * 32 if data is None else put_content(data)
    values = {"token_count": 1_234, "size": None if data is None else len(data)} | known
    with change(session_id) as record:
        return store_file_reference(record, content_id=content_id, path=path, file_type=kind, **values)


# Who sees what


@pytest.mark.parametrize("end", ["", "lines/", "references/", "picture/"])
def test_another_persons_file_is_not_found_at_any_address(end: str, browser: Client) -> None:
    secret = drawing() if end == "picture/" else b"secret"
    file_id = keep(new_session(make_user("bob")), secret, "a.png" if end == "picture/" else "a.txt")
    answer = browser.get(f"/files/{file_id}/{end}")
    assert answer.status_code == 404
    assert secret not in answer.content
    assert Client().get(f"/files/{file_id}/{end}").status_code == 302


def test_the_list_holds_the_readers_own_files_alone(ask: Ask, reader: User) -> None:
    keep(new_session(make_user("bob")), b"x", "of-bob.txt")
    assert "No files yet." in ask("/files/")
    keep(new_session(reader), b"x", "of-ada.txt")
    page = ask("/files/")
    assert "of-ada.txt" in page
    assert "of-bob.txt" not in page


def test_the_files_of_somebody_elses_session_are_not_found(browser: Client) -> None:
    assert browser.get("/files/", {"session": new_session(make_user("bob"))}).status_code == 404


# Pictures


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp"), ("GIF", "image/gif")],
)
def test_a_picture_comes_by_itself_and_can_do_nothing(
    browser: Client, reader: User, kind: str, media_type: str
) -> None:
    picture = drawing(kind=kind)
    answer = browser.get(f"/files/{keep(new_session(reader), picture, 'x/<b>.html', 'image')}/picture/")
    assert answer.content == picture
    assert answer["Content-Type"] == media_type
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert answer["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize(
    "data",
    [
        *(b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", b"<html><script>1</script></html>"),
        *(b"", b"BM" + bytes(60), b"%PDF-1.7", None),
    ],
)
def test_what_is_no_picture_is_never_sent_as_one(browser: Client, reader: User, data: bytes | None) -> None:
    answer = browser.get(f"/files/{keep(new_session(reader), data, 'a.png', 'image')}/picture/")
    assert answer.status_code in (404, 409)
    assert not answer["Content-Type"].startswith("image/")
    assert b"<script>1" not in answer.content


def test_a_picture_too_large_to_be_read_at_once_is_not_shown(
    browser: Client, reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = drawing()
    address = f"/files/{keep(new_session(reader), picture, 'a.png', 'image')}/picture/"
    monkeypatch.setattr("files_app.views.LARGEST_PICTURE", len(picture))
    assert browser.get(address).status_code == 200
    monkeypatch.setattr("files_app.views.LARGEST_PICTURE", len(picture) - 1)
    assert browser.get(address).status_code == 404


def test_a_message_shows_its_pictures_and_nothing_that_only_says_it_is_one(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    given = [
        FileRefPart(file_id=keep(session_id, drawing(), path, kind), path=path, file_type=kind)
        for path, kind in (('a"<b>.png', "image"), ("b.svg", "xml"), ("c.svg", "image"), ("d.png", "text"))
    ]
    say(session_id, ("user", given))
    page = ask(f"/sessions/{session_id}/")
    assert page.count('class="picture"') == 1
    assert f'src="/files/{given[0].file_id}/picture/"' in page
    assert 'alt="a&quot;&lt;b&gt;.png"' in page
    assert 'loading="lazy"' in page
    assert "Only its description" not in page  # No model has been asked.


# The list


def test_many_files_come_page_by_page_the_newest_first(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    # By id: within one millisecond ids have no order of their own.
    ids = sorted(keep(session_id, b"%d" % number, f"n{number}.txt") for number in range(PAGE + 3))
    first = ask("/files/")
    assert first.count('class="session-row"') == PAGE
    assert first.index(f'id="{ids[-1]}"') < first.index(f'id="{ids[-2]}"')
    rest = ask("/files/rows/", cursor=ids[3])
    assert rest.count('class="session-row"') == 3
    assert "Load more" not in rest


def test_names_are_searched_whatever_their_case_and_a_session_has_its_own_list(ask: Ask, reader: User) -> None:
    talk, other = new_session(reader, title="Tides"), new_session(reader)
    keep(talk, b"x", "src/Gauge.py", "python")
    keep(other, b"y", "notes.txt")
    assert "Gauge.py" in ask("/files/rows/", q="gauge")
    assert "notes.txt" not in ask("/files/rows/", q="gauge")
    assert "No files match" in ask("/files/rows/", q="100%")
    of_talk = ask("/files/", session=talk)
    assert "Gauge.py" in of_talk
    assert "notes.txt" not in of_talk
    assert "This session has no files." in ask("/files/", session=new_session(reader))


def test_a_list_of_many_costs_as_many_queries_as_one_of_few(browser: Client, reader: User) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert browser.get("/files/").status_code == 200
        return len(queries)

    keep(new_session(reader), b"x")
    few = count()
    for number in range(20):
        keep(new_session(reader), b"%d" % number)
    assert count() == few


# One file


def test_the_page_of_a_file_says_what_is_known_of_it(ask: Ask, reader: User) -> None:
    file_id = keep(new_session(reader, title="Tides"), b"a,b\n1,2\n", "data/t.csv", "csv", exploration_summary=None)
    assert "This file has not been inspected yet" in ask(f"/files/{file_id}/")
    file = explore_file(file_id, owner_id=reader.pk)
    page = ask(f"/files/{file_id}/")
    for words in (
        "t.csv",
        "data/t.csv",
        "csv",
        "8 B",
        "1.2k tokens",
        "2 lines",
        file.content_id,
        "Tides",
        "Inspected:",
    ):
        assert words in page
    assert f'href="/api/files/{file_id}/content"' in page


def test_versions_of_one_path_are_told_apart_and_linked(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    old, new = keep(session_id, b"one", "a.txt"), keep(session_id, b"two!", "a.txt")
    keep(session_id, b"other", "b.txt")
    page = ask(f"/files/{old}/")
    assert "version 1 of 2" in page
    assert f'href="/files/{new}/"' in page
    assert "version" not in ask(f"/files/{keep(session_id, b'other', 'b.txt')}/")


def test_the_messages_that_name_a_file_are_linked(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    file_id = keep(session_id, b"x", exploration_summary="")
    assert "No message mentions it yet." in ask(f"/files/{file_id}/references/")
    reference = FileRefPart(file_id=file_id, path="a.txt", file_type="text", token_count=1, exploration_summary="")
    say(session_id, ("user", [TextPart(text="Look"), reference]), ("assistant", [TextPart(text="no")]))
    say(session_id, ("user", [TextPart(text=f"Once more {file_id}")]))
    found = ask(f"/files/{file_id}/references/")
    assert "#msg-1" in found
    assert "#msg-2" not in found
    assert "#msg-3" in found


def test_a_content_that_is_not_kept_here_is_said_and_not_offered(ask: Ask, reader: User) -> None:
    page = ask(f"/files/{keep(new_session(reader), None)}/")
    assert "it was never stored" in page
    assert "Download" not in page


def test_an_empty_file_is_said_to_be_empty(ask: Ask, reader: User) -> None:
    assert "The file is empty." in ask(f"/files/{keep(new_session(reader), b'')}/")


# Content


def test_a_long_text_comes_in_stretches_with_the_numbers_of_its_lines(ask: Ask, reader: User) -> None:
    data = b"".join(b"line %d\n" % number for number in range(1, 1_001))
    file_id = keep(new_session(reader), data)
    page = ask(f"/files/{file_id}/")
    assert page.count('class="line"') == LINES
    assert 'data-total="1000"' in page
    assert f'href="?first={LINES + 1}"' in page
    last = ask(f"/files/{file_id}/lines/", first=999)
    assert last.count('class="line"') == 2
    assert 'data-line="1000"' in last
    assert "line 1000" in last
    assert 'class="line"' not in ask(f"/files/{file_id}/lines/", first=1_001)


def test_a_stretch_has_the_colours_that_began_before_it(ask: Ask, reader: User) -> None:
    source = "x = '''\n" + "words\n" * 300 + "'''\n"
    file_id = keep(new_session(reader), source.encode(), "a.py", "python")
    assert '<span class="hl-string">words</span>' in ask(f"/files/{file_id}/lines/", first=50)


def test_very_long_lines_are_cut_and_none_is_missing(ask: Ask, reader: User) -> None:
    file_id = keep(new_session(reader), b"".join(b"%d " % n + b"x" * 20_000 + b"\n" for n in range(LINES + 5)))
    stretch = ask(f"/files/{file_id}/lines/")
    assert stretch.count('class="line"') == stretch.count('class="line-cut"') == LINES


def test_a_text_whose_lines_are_not_all_counted_yet_is_shown_all_the_same(
    ask: Ask, reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "LINES_SECONDS", -1.0)
    file_id = keep(new_session(reader), b"a line of it\n" * 200_000, exploration_summary="")
    page = ask(f"/files/{file_id}/")
    assert 'data-total=""' in page
    assert page.count('class="line"') == LINES
    assert 'class="line"' not in ask(f"/files/{file_id}/lines/", first=199_999)
    monkeypatch.undo()
    assert 'data-total="200000"' in ask(f"/files/{file_id}/")
    assert 'data-line="199999"' in ask(f"/files/{file_id}/lines/", first=199_999)


def test_bytes_are_shown_as_digits_and_never_as_a_picture(ask: Ask, reader: User) -> None:
    file_id = keep(new_session(reader), b"\x89PNG\r\n\x1a\n<script>" + b"\0" * 5_000, "a.png", "image")
    page = ask(f"/files/{file_id}/")
    assert "00000000  89 50 4e 47 0d 0a 1a 0a  3c 73 63 72 69 70 74 3e  ·PNG····&lt;script&gt;" in page
    assert "the first 4.1 KB" in page
    assert "<img" not in page.replace('<img src="/static', "")


@pytest.mark.parametrize("kind", ["text", "python", "html", "markdown", "unknown"])
def test_hostile_names_and_contents_are_shown_and_do_nothing(kind: str, ask: Ask, reader: User) -> None:
    content = (
        (HOSTILE + "\n</code></pre>\u2066 \x1b[31m \r middle").encode("utf-8", "surrogatepass").replace(b"\0", b"\x01")
    )
    file_id = keep(new_session(reader, title=HOSTILE), content, f"{HOSTILE}.txt", kind, exploration_summary=HOSTILE)
    for page in (ask(f"/files/{file_id}/"), ask("/files/"), ask(f"/files/{file_id}/lines/")):
        assert "<script>alert" not in page
        assert "javascript:alert(1)&quot;" not in page
        assert "\u202e" not in page
        assert "⟨U+202E⟩" in strip_tags(page), "as a mark, whatever colours it has"
    stretch = ask(f"/files/{file_id}/lines/")
    assert stretch.count('class="line"') == 2
    assert "⟨␛⟩" in stretch
    assert "⟨␍⟩" in stretch


def test_a_file_given_whole_is_a_chip_that_leads_to_its_page(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    file_id = keep(session_id, b"high <b>tide</b>", "tide.txt")
    part = part_of_file(load_file_reference(file_id, owner_id=reader.pk), lambda: "high <b>tide</b>", threshold=9_999)
    say(session_id, ("user", [TextPart(text="Look"), part]))
    page = ask(f"/sessions/{session_id}/")
    assert f'<a class="file-chip" href="/files/{file_id}/">' in page
    assert "high &lt;b&gt;tide" in page


def test_a_reference_from_elsewhere_is_a_chip_that_leads_nowhere(ask: Ask, reader: User) -> None:
    session_id = new_session(reader)
    reference = FileRefPart(file_id="../x", path=HOSTILE, file_type="csv", token_count=7, exploration_summary="")
    say(session_id, ("user", [reference]))
    page = ask(f"/sessions/{session_id}/")
    assert '<span class="file-chip">' in page
    assert "csv · 7 tokens" in page
    assert "<script>alert" not in page
