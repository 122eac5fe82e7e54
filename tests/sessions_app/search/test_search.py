"""Search: the same words find the same texts on both databases, and nobody finds what is not theirs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import DataPart, FileRefPart, PatchPart, ReasoningPart, StepStartPart, TextPart, ToolState
from mnesis_core.text import decode_text
from sessions_app.models import MessagePart
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from sessions_app.search import search as searching
from sessions_app.search.search import Hit, Scope, SearchResult, search
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

pytestmark = pytest.mark.both_databases

CORPUS = {
    "plain": "The quick brown fox jumps over the lazy dog.",
    "reversed": "A dog, lazy and quick; the fox was brown.",
    "snake": "Call get_user_name(42) before parse_http_header.",
    "camel": "Then getUserName() asks the HTTPServer for XMLHttpRequest.",
    "dotted": "It imports os.path.join from the standard library.",
    "path": "See /etc/nginx/sites-enabled/default.conf for the rest.",
    "numbers": "Version 3.40.1 of 2026-11-22 costs 1e5 at 100%_sure, pi is 3.14159.",
    "accents": "Le café de Zoë à Málaga, naïve façade, Ångström.",
    "decomposed": "Le cafe\u0301 decompose\u0301.",
    "german": "Die Größe der Tür überrascht.",
    "greek": "Η ΟΔΟΣ είναι μεγάλη.",  # noqa: RUF001
    "russian": "Быстрая лиса и ленивая собака.",
    "chinese": "我住在东京都的一个小房子里。",
    "japanese": "東京タワーへ行きました。",
    "korean": "서울에서 학교에 갑니다.",
    "thai": "ฉันรักภาษาไทย",
    "hindi": "मैं हिन्दी बोलता हूँ",
    "arabic": "اللغة العربية جميلة",
    "mixed": "我的iPhone手机坏了",
    "hostile": HOSTILE,
    "long_word": "x" * 5_000 + " ends",
}


@pytest.fixture
def corpus(reader: User) -> Scope:
    session_id = new_session(reader)
    say(session_id, *(("user", [TextPart(text=f"{text} label{name}")]) for name, text in CORPUS.items()))
    return Scope(owner_id=reader.pk, session_id=session_id)


def found(result: SearchResult) -> set[str]:
    """The names of the corpus's texts among the hits."""
    return {name for name in CORPUS for hit in result.hits if _original(hit).startswith(CORPUS[name])}


def _original(hit: Hit) -> str:
    return decode_text(MessagePart.objects.get(id=hit.source_id).content)


WORDS: dict[str, set[str]] = {
    "fox": {"plain", "reversed"},
    "FOX": {"plain", "reversed"},
    "fo": set(),
    "fox nothing": set(),
    "brown quick": {"plain", "reversed"},
    '"quick brown"': {"plain"},
    '"brown quick"': set(),
    '"the lazy dog"': {"plain"},
    "“lazy dog”": {"plain"},
    "jum*": {"plain"},
    '"over the la"*': {"plain"},
    "user": {"snake", "camel"},
    "get_user_name": {"snake"},
    "getUserName": {"camel"},
    "getusername": {"camel"},
    "user name": {"snake", "camel"},
    "http": {"snake", "camel"},
    "httpserver": {"camel"},
    "XMLHttpRequest": {"camel"},
    "parse_http": {"snake"},
    "os.path.join": {"dotted"},
    "path.join": {"dotted"},
    "join.path": set(),
    "/etc/nginx": {"path"},
    "sites-enabled": {"path"},
    "default.conf": {"path"},
    "nginx/sites-ena*": {"path"},
    "3.40.1": {"numbers"},
    "1e5": {"numbers"},
    "100%_sure": {"numbers"},
    "2026-11-22": {"numbers"},
    "cafe": {"accents", "decomposed"},
    "CAFÉ": {"accents", "decomposed"},
    "cafe\u0301": {"accents", "decomposed"},
    "malaga angstrom": {"accents"},
    "zoë": {"accents"},
    "große": {"german"},
    "uberrascht": {"german"},
    "οδος": {"greek"},
    "Быстрая": {"russian"},
    "собака лиса": {"russian"},
    "东京": {"chinese"},
    "京都": {"chinese"},
    "东都": set(),
    "房": {"chinese"},
    "東京": {"japanese"},
    "タワー": {"japanese"},
    "학교": {"korean"},
    "ภาษา": {"thai"},
    "हिन्दी": {"hindi"},
    "العربية": {"arabic"},
    "iphone": {"mixed"},
    "手机": {"mixed"},
    "iPhone手机": {"mixed"},
    "script alert": {"hostile"},
    "x" * 900: set(),
    "x" * 900 + "*": {"long_word"},
    "labelplain OR labelgreek": set(),
}
PATTERNS: dict[str, set[str]] = {
    r"get_\w+\(\d+\)": {"snake"},
    r"(?i)QUICK": {"plain", "reversed"},
    r"\d{4}-\d\d-\d\d": {"numbers"},
    r"\p{Hangul}+": {"korean"},
    r"café": {"accents", "decomposed"},
    r"[.]conf\b": {"path"},
    r"no such thing": set(),
}


@pytest.mark.slow
def test_words_find_the_same_texts_on_both_databases(corpus: Scope) -> None:
    assert {query: found(search(corpus, query, limit=100)) for query in WORDS} == WORDS


def test_patterns_find_the_same_texts_on_both_databases(corpus: Scope) -> None:
    results = {pattern: search(corpus, pattern, mode="regex", limit=100) for pattern in PATTERNS}
    assert {pattern: found(result) for pattern, result in results.items()} == PATTERNS
    counts = {(result.messages_searched, result.messages_total) for result in results.values()}
    assert counts == {(len(CORPUS), len(CORPUS))}


HARD = [
    *('"', '""', "*", "'", "''", "AND", "NOT fox", "NEAR(fox dog)", "fox AND (", "words:fox", "fox^2", "-fox", "{fox}"),
    *("fox:*", "fox & dog", "fox | dog", "!fox", "a <-> b", "'fox':A", "\\", "\\'", "%s", "%", ";", "--", "fox\0dog"),
    *(
        "\ud800",
        "fox\udfff",
        "\u202efox",
        "\u0301",
        "🦊",
        "ab" * 500,
        "a " * 500,
        "東" * 1_000,
        '"' * 1_000,
        "@",
        "1@fox",
    ),
    *("sess", "\x1b[31m", "ﬁ", "İ", "ß*", "\u00a0", "\u3000", "\u200b"),
]


@pytest.mark.parametrize("mode", ["text", "regex"])
def test_no_query_gives_another_error_than_a_refusal(corpus: Scope, mode: Any) -> None:
    for query in HARD:
        with suppress(InvalidRequest):
            assert all(hit.snippet for hit in search(corpus, query, mode=mode).hits), query


def test_what_is_no_query_is_refused_in_words(corpus: Scope) -> None:
    for query in ["", " ", "x" * 1_001, "x" * 1_000_000, "...", "🦊"]:
        with pytest.raises(InvalidRequest):
            search(corpus, query)


def test_what_is_no_pattern_is_refused_in_words(corpus: Scope) -> None:
    for pattern in ["(", "[a", "(?=a)", r"(a)\1", "(a{1000}){1000}", "\ud800", "x" * 1_001]:
        with pytest.raises(InvalidRequest):
            search(corpus, pattern, mode="regex")


def test_what_is_no_cursor_is_refused_in_words(corpus: Scope) -> None:
    for cursor in ["x", "1", "1.", ".1", "1.2.3", "-1.0", "1.0\0", "9" * 40 + ".0", "٣.٣"]:
        with pytest.raises(InvalidRequest):
            search(corpus, "fox", cursor=cursor)


def test_a_pattern_that_explodes_elsewhere_takes_linear_time(reader: User) -> None:
    session_id = new_session(reader)
    say(session_id, ("user", [TextPart(text="a" * 200_000 + "!")]))
    result = search(Scope(owner_id=reader.pk, session_id=session_id), r"(a+)+b|(x+x+)+y", mode="regex")
    assert (result.hits, result.cut_off) == ((), False)


def test_every_kind_of_part_is_found_with_its_kind(reader: User) -> None:
    session_id = new_session(reader)
    parts = [
        TextPart(text="marigold in a text"),
        ReasoningPart(text="marigold in a thought"),
        PatchPart(unified_diff="+marigold in a patch", files_changed=("garden.py",)),
        FileRefPart(file_id="file_1", path="m.txt", exploration_summary="marigold in a file"),
        tool(tool_name="garden_bed", input='{"flower": "marigold"}', output="marigold grows", tool_call_id="1"),
        tool(input="{}", output=None, error="no marigold here", state=ToolState.ERROR, tool_call_id="2"),
        DataPart(label="x", text="marigold that nobody said"),
        StepStartPart(),
    ]
    say(session_id, ("assistant", parts))
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    fields = {(hit.kind, hit.part_type, hit.field) for hit in search(scope, "marigold").hits}
    assert fields == {
        ("messages", "text", "content"),
        ("messages", "reasoning", "content"),
        ("messages", "patch", "content"),
        ("messages", "file_ref", "content"),
        ("tools", "tool", "tool_input"),
        ("tools", "tool", "output"),
        ("tools", "tool", "error_message"),
    }
    assert {hit.part_type for hit in search(scope, "garden").hits} == {"patch", "tool"}
    assert {hit.kind for hit in search(Scope(owner_id=reader.pk, kind="tools"), "marigold").hits} == {"tools"}
    assert search(Scope(owner_id=reader.pk, kind="files"), "marigold").hits == ()


def test_a_result_is_found_when_it_comes_and_after_its_tombstone(reader: User) -> None:
    session_id = new_session(reader)
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    waiting = tool(input="{}", output=None, state=ToolState.RUNNING)
    [message_id] = say(session_id, ("assistant", [waiting]))
    assert search(scope, "marigold").hits == ()
    [part_id] = [hit.source_id for hit in search(scope, "bash").hits]
    with change(session_id) as record:
        message_store.finish_tool(record, part_id, output="a marigold", error=None)
    with change(session_id) as record:
        assert message_store.tombstone_parts(record, [part_id]) == 1
    [hit] = search(scope, "marigold").hits
    assert (hit.source_id, hit.message_id, hit.message_seq) == (part_id, message_id, 1)


def test_parts_that_are_appended_later_are_found(reader: User) -> None:
    session_id = new_session(reader)
    [_, message_id] = exchange(session_id, "what grows?", "wait")
    with change(session_id) as record:
        message_store.append_parts(record, message_id=message_id, parts=[TextPart(text="a marigold")])
    [hit] = search(Scope(owner_id=reader.pk, session_id=session_id), "marigold").hits
    assert (hit.message_id, hit.message_seq) == (message_id, 2)


def test_nobody_finds_what_belongs_to_somebody_else(reader: User) -> None:
    other = User.objects.create_user("eve")
    mine, theirs = new_session(reader), new_session(other)
    exchange(mine, "my marigold", "fine")
    exchange(theirs, "their marigold", "fine")
    for mode in ("text", "regex"):
        hits = search(Scope(owner_id=reader.pk), "marigold", mode=mode).hits
        assert [hit.session_id for hit in hits] == [mine], mode
    assert search(Scope(owner_id=reader.pk), "mari*").messages_total == 2
    assert search(Scope(owner_id=reader.pk, session_id=theirs), "marigold").hits == ()


def test_all_sessions_are_searched_but_no_deleted_one(reader: User) -> None:
    first, second, gone = new_session(reader, title="One"), new_session(reader, title="Two"), new_session(reader)
    for session_id in (first, second, gone):
        exchange(session_id, "a marigold", "fine")
    with change(first) as record:
        session_store.archive_session(record)
    with change(gone) as record:
        session_store.soft_delete_session(record)
    result = search(Scope(owner_id=reader.pk), "marigold")
    assert [(hit.session_id, hit.session_title) for hit in result.hits] == [(second, "Two"), (first, "One")]
    assert (result.messages_searched, result.messages_total) == (4, 4)


def test_a_span_of_messages_is_searched_alone(reader: User) -> None:
    session_id = new_session(reader)
    for number in range(4):
        exchange(session_id, f"marigold {number}", "fine")
    result = search(Scope(owner_id=reader.pk, session_id=session_id, first_seq=3, last_seq=6), "marigold")
    assert [hit.message_seq for hit in result.hits] == [5, 3]
    assert (result.messages_searched, result.messages_total) == (4, 4)


def test_what_fits_best_comes_first_and_of_equals_the_newest(reader: User) -> None:
    session_id = new_session(reader)
    texts = [
        "red marigold red marigold red marigold",
        "marigold, and much later something red",
        "a red marigold " + "and so on " * 500,
        "marigold that is red",
        "marigold that is red",
    ]
    say(session_id, *(("user", [TextPart(text=text)]) for text in texts))
    hits = search(Scope(owner_id=reader.pk, session_id=session_id), "red marigold").hits
    assert [hit.message_seq for hit in hits] == [1, 5, 4, 2, 3]


def test_a_snippet_is_one_line_around_the_first_match_and_says_where_it_is(reader: User) -> None:
    session_id = new_session(reader)
    say(session_id, ("user", [TextPart(text="before\n" * 100 + "a Málaga\tcafé, a CAFE\n" + "after " * 100)]))
    [hit] = search(Scope(owner_id=reader.pk, session_id=session_id), "cafe malaga").hits
    assert [hit.snippet[first:last] for first, last in hit.matches] == ["Málaga", "café", "CAFE"]
    assert "\n" not in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) <= 162


def test_a_word_inside_of_an_identifier_is_marked_there(corpus: Scope) -> None:
    [hit] = search(corpus, "server").hits
    assert [hit.snippet[first:last] for first, last in hit.matches] == ["Server"]


def test_a_long_text_is_found_at_its_end_and_where_two_pieces_meet(reader: User) -> None:
    session_id = new_session(reader)
    filler = "filler " * 60_000
    at = 30_000 - len("two marigolds") // 2
    text = f"{filler[:at]} two marigolds {filler} the ␛ very \0 last tulip"
    say(session_id, ("user", [TextPart(text=text)]))
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    assert {hit.field for hit in search(scope, '"two marigolds"').hits} == {"content"}
    assert len(search(scope, r"two\s+marigolds", mode="regex").hits) >= 1
    [hit] = search(scope, "tulip").hits
    assert hit.snippet.endswith("last tulip")


@pytest.mark.parametrize("mode", ["text", "regex"])
def test_pages_show_everything_once_while_new_messages_come(
    reader: User, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    monkeypatch.setattr(searching, "WINDOW", 7)
    session_id = new_session(reader)
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    say(session_id, *(("user", [TextPart(text="marigold " * (1 + number % 3))]) for number in range(30)))
    shown: list[int] = []
    cursor = None
    for _ in range(20):
        result = search(scope, "marigold", mode=mode, limit=4, cursor=cursor)
        shown += [hit.message_seq for hit in result.hits]
        cursor = result.next_cursor
        if cursor is None:
            break
        exchange(session_id, "another marigold", "and a marigold")
    assert sorted(shown) == list(range(1, 31))
    assert not result.more


def test_a_search_that_reads_too_much_says_how_far_it_came_and_goes_on(
    reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "WINDOW", 5)
    monkeypatch.setattr(searching, "CHARACTERS", 50)
    session_id = new_session(reader)
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    say(session_id, *(("user", [TextPart(text=f"something long enough {number}")]) for number in range(12)))
    first = search(scope, r"enough 0\b", mode="regex")
    assert (first.hits, first.cut_off, first.messages_searched, first.messages_total) == ((), True, 5, 12)
    second = search(scope, r"enough 0\b", mode="regex", cursor=first.next_cursor)
    assert (second.cut_off, second.messages_searched) == (True, 10)
    last = search(scope, r"enough 0\b", mode="regex", cursor=second.next_cursor)
    assert [hit.message_seq for hit in last.hits] == [1]
    assert (last.cut_off, last.messages_searched, last.next_cursor) == (False, 12, None)
