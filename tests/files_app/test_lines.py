"""Lines of files that may hold anything: the right ones by number, and every one that matches, once."""

from __future__ import annotations

import codecs
import random
import re

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache

from files_app import queries
from files_app.contents import put_content
from files_app.queries import read_lines, search_file
from files_app.store import store_file_reference
from mnesis_core.errors import (
    FileContentNotFound,
    FileNotText,
    FileReferenceNotFoundError,
    InvalidRequest,
)
from mnesis_core.files.lines import SHOWN_CHARACTERS, WINDOW_BYTES, LineHit
from sessions_app.record.change import change
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session

pytestmark = pytest.mark.django_db
FLOOD = "höchste\u0a41\u0100Flut"
"""In UTF-16 it has the bytes of a line's end, half in one sign and half in the next."""


@pytest.fixture
def session_id(db: None) -> str:
    cache.clear()
    return new_session(make_user("alice"))


def keep(session_id: str, data: bytes, path: str = "a.log") -> str:
    with change(session_id) as record:
        return store_file_reference(record, content_id=put_content(data), path=path, size=len(data))


def texts(session_id: str, data: bytes, first: int = 1, count: int = 10) -> list[str]:
    found = read_lines(keep(session_id, data), first_line=first, lines=count, session_id=session_id)
    return [line.text for line in found.lines]


def every_hit(session_id: str, file_id: str, pattern: str, mode: str = "regex", limit: int = 7) -> list[LineHit]:
    """Page after page; a page that found nothing must have come further."""
    hits: list[LineHit] = []
    cursor, seen = None, set[str]()
    while True:
        page = search_file(file_id, pattern=pattern, mode=mode, limit=limit, cursor=cursor, session_id=session_id)
        assert len(page.hits) <= limit
        hits += page.hits
        cursor = page.next_cursor
        if cursor is None:
            assert page.searched_bytes == page.size
            return hits
        assert cursor not in seen
        seen.add(cursor)


def long_log(count: int = 30_000, end: str = "\n") -> str:
    """Several windows of lines of unequal length."""
    rng = random.Random(5)
    return "".join(f"{number} {FLOOD} {'x' * rng.randint(0, 30)}{end}" for number in range(1, count + 1))


def test_lines_are_counted_from_one_and_the_end_is_said(session_id):
    file_id = keep(session_id, b"one\ntwo\nthree")
    found = read_lines(file_id, first_line=2, lines=1, session_id=session_id)
    assert [(line.number, line.offset, line.text) for line in found.lines] == [(2, 4, "two")]
    assert (found.total, found.next_line) == (3, 3)
    rest = read_lines(file_id, first_line=3, lines=9, session_id=session_id)
    assert ([line.text for line in rest.lines], rest.next_line) == (["three"], None)
    beyond = read_lines(file_id, first_line=9, lines=9, session_id=session_id)
    assert (beyond.lines, beyond.next_line, beyond.total) == ((), None, 3)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (codecs.BOM_UTF8 + "é\nü".encode(), ["é", "ü"]),
        (codecs.BOM_UTF8, []),
        (b"caf\xe9\nfine", ["caf\ufffd", "fine"]),
        ("é\r\n漢\u0a0a字\n🦋".encode("utf-16"), ["é", "漢\u0a0a字", "🦋"]),
        (codecs.BOM_UTF16_BE + "\u0a00\n\u000aä".encode("utf-16-be"), ["\u0a00", "", "ä"]),
        (codecs.BOM_UTF32_LE + "é\nb".encode("utf-32-le"), ["é", "b"]),
    ],
)
def test_lines_are_those_of_the_files_own_encoding(session_id, data, expected):
    assert texts(session_id, data) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_line_of_a_long_file_is_the_one_of_its_number_and_offset(session_id, encoding, end):
    text = long_log(end=end)
    data = text.encode(encoding)
    file_id = keep(session_id, data)
    plain = encoding if encoding == "utf-8" else f"{encoding}-le"
    lines = text.split(end)
    for first in (1, 2, 9_999, 15_000, 29_990):
        for line in read_lines(file_id, first_line=first, lines=20, session_id=session_id).lines:
            expected = lines[line.number - 1]
            assert line.text == expected
            assert data.startswith(expected.encode(plain), line.offset)
    assert read_lines(file_id, lines=1, session_id=session_id).total == 30_000


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_search_finds_each_line_that_matches_once_with_its_number_and_place(session_id, encoding, end):
    text = long_log(end=end)
    data = text.encode(encoding)
    hits = every_hit(session_id, keep(session_id, data), rf"^\d*99\d {FLOOD} x*$", limit=100)
    lines = text.split(end)
    expected = [number for number, line in enumerate(lines, 1) if re.match(r"\d*99\d ", line)]
    assert [hit.number for hit in hits] == expected
    plain = "utf-16-le" if encoding == "utf-16" else encoding
    for hit in hits:
        assert data.startswith(str(hit.number).encode(plain), hit.offset)
        assert lines[hit.number - 1] == hit.text


def test_the_place_of_a_match_is_its_own_not_that_of_its_line(session_id):
    data = "é — here\nnext\r\nü — here".encode()
    hits = every_hit(session_id, keep(session_id, data), "here")
    assert [data[hit.offset : hit.offset + 4] for hit in hits] == [b"here", b"here"]
    assert [hit.text[first:last] for hit in hits for first, last in hit.matches] == ["here", "here"]


def test_words_are_found_together_in_any_case_and_in_parts_of_words(session_id):
    data = b"ERROR: disk full\nerror elsewhere\nthe disk\nDisk errors (a.b)\n"
    file_id = keep(session_id, data)
    assert [hit.number for hit in every_hit(session_id, file_id, "error disk", "text")] == [1, 4]
    assert [hit.number for hit in every_hit(session_id, file_id, '"disk full"', "text")] == [1]
    assert [hit.number for hit in every_hit(session_id, file_id, "err*", "text")] == [1, 2, 4]
    assert [hit.number for hit in every_hit(session_id, file_id, "(a.b)", "text")] == [4]
    [_, hit] = search_file(file_id, pattern="error disk", session_id=session_id).hits
    assert (hit.count, hit.matches) == (2, ((0, 4), (5, 10)))


@pytest.mark.parametrize("pattern", ["^", "$", "x*", ""])
def test_a_pattern_that_matches_nothing_at_all_is_in_every_line_once(session_id, pattern):
    file_id = keep(session_id, b"a\n\nb\n")
    if not pattern:
        with pytest.raises(InvalidRequest):
            search_file(file_id, pattern=pattern, mode="regex", session_id=session_id)
        return
    assert [hit.number for hit in every_hit(session_id, file_id, pattern, limit=2)] == [1, 2, 3]


def test_no_match_goes_over_the_end_of_a_line(session_id):
    file_id = keep(session_id, b"one\ntwo\nonetwo\n")
    assert [hit.number for hit in every_hit(session_id, file_id, r"one\s*[^a]?two")] == [3]


def test_a_line_without_end_is_shown_cut_and_searched_through(session_id, monkeypatch):
    # Before the end of a piece, in what the next one has too; over the ends of two; and in the midst of one.
    at = [WINDOW_BYTES - 100, WINDOW_BYTES - 7, 2 * WINDOW_BYTES - 11, 4 * WINDOW_BYTES]
    line = bytearray(b"." * (5 * WINDOW_BYTES))
    for place in at:
        line[place : place + 6] = b"needle"
    file_id = keep(session_id, b"first\n" + bytes(line) + b"\nlast needle")
    found = read_lines(file_id, lines=9, session_id=session_id)
    assert [(line.number, len(line.text), line.is_cut) for line in found.lines] == [
        (1, 5, False),
        (2, SHOWN_CHARACTERS, True),
        (3, 11, False),
    ]
    assert found.total == 3
    for seconds in (60.0, 0.0):  # in one go, and a window for each request
        monkeypatch.setattr(queries, "LINES_SECONDS", seconds)
        hits = every_hit(session_id, file_id, "needle", limit=1)
        assert [(hit.number, hit.offset - 6) for hit in hits[:-1]] == [(2, place) for place in at]
        assert hits[-1].number == 3
        assert all(len(hit.text) < 500 and hit.text[slice(*hit.matches[0])] == "needle" for hit in hits)


def test_what_takes_too_long_goes_on_with_the_next_request(session_id, monkeypatch):
    text = long_log()
    file_id = keep(session_id, text.encode())
    monkeypatch.setattr(queries, "LINES_SECONDS", 0.0)
    monkeypatch.setattr(queries, "STRIDE_BYTES", 1)
    first = read_lines(file_id, first_line=29_000, lines=1, session_id=session_id)
    assert (first.lines, first.total, first.next_line) == ((), None, 29_000)
    page = search_file(file_id, pattern="29999 ", session_id=session_id)
    assert (page.hits, page.searched_bytes < page.size) == ((), True)
    assert [hit.number for hit in every_hit(session_id, file_id, "^29999 ")] == [29_999]
    for _ in range(30):
        found = read_lines(file_id, first_line=29_000, lines=1, session_id=session_id)
        if found.total:
            break
    assert ([line.text for line in found.lines], found.total) == ([text.split("\n")[28_999]], 30_000)


def test_an_answer_has_an_end_however_much_is_asked_for(session_id):
    file_id = keep(session_id, b"word\n" * 5_000)
    assert len(read_lines(file_id, lines=10**9, session_id=session_id).lines) == queries.MOST_LINES
    assert len(search_file(file_id, pattern="word", limit=10**9, session_id=session_id).hits) == queries.MOST_HITS
    wide = read_lines(keep(session_id, (b"w" * 3_000 + b"\n") * 900), lines=900, session_id=session_id)
    assert sum(len(line.text) for line in wide.lines) <= queries.MOST_CHARACTERS + SHOWN_CHARACTERS
    assert wide.next_line == len(wide.lines) + 1


def test_bytes_are_no_lines(session_id):
    file_id = keep(session_id, b"\x7fELF\x00\x01\n" * 9)
    with pytest.raises(FileNotText):
        read_lines(file_id, lines=1, session_id=session_id)
    with pytest.raises(FileNotText):
        search_file(file_id, pattern="ELF", session_id=session_id)


@pytest.mark.parametrize("cursor", ["", "1", "1.2", "1.2.x", "-1.0.0", "1.9999999999999999999.0", "².1.0"])
def test_a_cursor_that_is_none_of_ours_is_refused(session_id, cursor):
    file_id = keep(session_id, b"word\n")
    with pytest.raises(InvalidRequest):
        search_file(file_id, pattern="word", cursor=cursor, session_id=session_id)
    assert search_file(file_id, pattern="word", cursor="1.999.1", session_id=session_id).hits == ()


@pytest.mark.parametrize("pattern", ["(", "(?=a)", " ", "\ud800", "x" * 1_001, "(" + ".{900}" * 12 + ")"])
def test_a_pattern_that_cannot_be_searched_for_is_refused(session_id, pattern):
    with pytest.raises(InvalidRequest):
        search_file(keep(session_id, b"word\n"), pattern=pattern, mode="regex", session_id=session_id)


def test_lines_are_only_for_whose_file_it_is(session_id):
    file_id, other = keep(session_id, b"word\n"), make_user("bob")
    with change(session_id) as record:
        gone = store_file_reference(record, content_id="ab" * 32, path="gone")
    for read in (
        lambda **who: read_lines(file_id, lines=1, **who),
        lambda **who: search_file(file_id, pattern="w", **who),
    ):
        for who in ({"owner_id": other.pk}, {"session_id": new_session(other)}):
            with pytest.raises(FileReferenceNotFoundError):
                read(**who)
    with pytest.raises(FileContentNotFound):
        read_lines(gone, lines=1, owner_id=User.objects.get(username="alice").pk)
