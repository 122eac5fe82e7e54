"""Ranked search: a question is answered with passages, alike on both databases, and only from what the asker may see."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import Message, Part, ReasoningPart, Role, StepStartPart, TextPart
from sessions_app.models import MessagePart, SearchEntry
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.search import ranked
from sessions_app.search.index import rebuild
from sessions_app.search.ranked import NOTHING_EXACT, answer
from sessions_app.search.search import Mode, Scope, SearchResult, merged, read_filters
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

pytestmark = pytest.mark.both_databases

TALK = (
    ("The ferry to Hiddensee was late again.", "That happens in autumn."),
    ("I planted forty tulips behind the shed.", "They will bloom in April."),
    ("Which compiler flags do we use?", "Warnings are errors, and -O2."),
    ("My sister's children painted the fence.", "What colour did they choose?"),
    ("A bright blue.", "It suits the house."),
    ("The backup ran at three.", "It took nine minutes."),
)


@pytest.fixture
def talk(reader: User) -> Scope:
    session_id = new_session(reader)
    for question, reply in TALK:
        exchange(session_id, question, reply)
    return Scope(owner_id=reader.pk, session_id=session_id)


def user(text: str) -> tuple[Role, list[Part]]:
    return "user", [TextPart(text=text)]


def seqs(result: SearchResult) -> list[int]:
    return [hit.message_seq for hit in result.hits]


def test_a_question_as_it_is_typed_finds_what_answers_it(talk: Scope) -> None:
    answers = {
        "What did the kids of her sister paint?": 7,
        "When did she plant the tulip?": 3,
        "How long did the backups take?": 11,
        "Which flags does the compiler get?": 5,
        "Hiddensee ferries": 1,
    }
    found = {question: answer(talk, question, around=0).hits[0].message_seq for question in answers}
    assert found == answers


def test_a_hit_comes_with_the_messages_around_it_and_each_is_told_once(talk: Scope) -> None:
    hits = answer(talk, "What colour did the children choose for the fence?").hits
    first = hits[0]
    assert [line.seq for line in first.passage] == list(range(first.message_seq - 2, first.message_seq + 3))
    assert [line.seq for line in first.passage if line.is_hit] == [first.message_seq]
    assert {line.role for line in first.passage} == {"user", "assistant"}
    assert "A bright blue." in {line.text for line in first.passage}
    beside = [line.seq for hit in hits for line in hit.passage if not line.is_hit]
    assert len(beside) == len(set(beside))
    assert all(sum(line.is_hit for line in hit.passage) == 1 for hit in hits)


def test_passages_that_touch_are_one(talk: Scope, reader: User) -> None:
    assert talk.session_id
    hits = answer(talk, "fence children tulips backup").hits
    passages = merged(hits, around=2)
    assert sum(len(passage.hits) for passage in passages) == len(hits)
    for passage in passages:
        numbers = [line.seq for line in passage.lines]
        assert numbers == sorted(set(numbers))
        assert {line.seq for line in passage.lines if line.is_hit} == {hit.message_seq for hit in passage.hits}
    shown = [line.seq for passage in passages for line in passage.lines]
    assert len(shown) == len(set(shown))
    elsewhere = new_session(reader)
    exchange(elsewhere, "tulips", "and a fence")
    both = answer(Scope(owner_id=reader.pk), "fence and tulips", limit=50).hits
    assert all(len({hit.session_id for hit in passage.hits}) == 1 for passage in merged(both, around=10))


def test_an_exact_search_that_finds_nothing_is_answered_with_passages_and_says_so(talk: Scope) -> None:
    result = answer(talk, "tulips behind the house", mode="text")
    assert (result.mode, result.note, seqs(result)[0]) == ("ranked", NOTHING_EXACT, 3)
    result = answer(talk, "tulips shed", mode="text")
    assert (result.mode, result.note, seqs(result)) == ("text", "", [3])
    assert answer(talk, "zeppelin", mode="text").note == ""


def test_quotes_and_stars_ask_for_exactly_that(talk: Scope) -> None:
    assert [answer(talk, asked).mode for asked in ('"forty tulips"', "tuli*")] == ["text", "text"]
    result = answer(talk, 'What did she mean by "forty tulips behind the house"?')
    assert (result.mode, result.note, seqs(result)[0]) == ("ranked", NOTHING_EXACT, 3)


def test_pages_show_every_hit_once_while_new_messages_come(talk: Scope, reader: User) -> None:
    assert talk.session_id
    for number in range(30):
        exchange(talk.session_id, f"tulip {number}", "noted")
    shown: list[int] = []
    cursor = None
    for _ in range(40):
        page = answer(talk, "tulip", limit=4, cursor=cursor, around=0)
        shown += seqs(page)
        cursor = page.next_cursor
        if cursor is None:
            break
        exchange(talk.session_id, "another tulip", "and a tulip")
    assert sorted(shown) == [3, *range(13, 73, 2)]


@pytest.mark.parametrize("cursor", ["r", "r1", "r1.", "rx.0", "r1.2.3", "r-1.0", "r٣.٣", "r" + "9" * 40 + ".0"])
def test_what_is_no_cursor_is_refused_in_words(talk: Scope, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        answer(talk, "tulips", cursor=cursor)


HARD = [
    *("the", "what is it?", "東京", "कहाँ", "🦊 tulips 🦊", "tulips\0", "\ud800 tulips", "def f(x): return x[1:]"),
    *(
        "'tulips' & 'fence'",
        'NEAR("tulips")',
        "tulips OR *",
        "-tulips",
        "x" * 5_000,
        "tulips " * 10_000,
        "ﬁ",
        "İ",
        "%s",
    ),
    *("wo sind die Tulpen?", "где тюльпаны?", "tulips東京tulips", " ".join(f"w{number}" for number in range(10_000))),
]


@pytest.mark.parametrize("question", HARD, ids=range(len(HARD)))
def test_no_question_is_an_error(talk: Scope, question: str) -> None:
    assert all(hit.snippet for hit in answer(talk, question).hits)


@pytest.mark.parametrize("question", ["", "...", "🦊", "x" * 100_001])
def test_what_is_no_question_is_refused_in_words(talk: Scope, question: str) -> None:
    with pytest.raises(InvalidRequest):
        answer(talk, question)


def test_a_long_question_is_answered_by_its_rare_words(talk: Scope) -> None:
    assert seqs(answer(talk, "and then they said that " * 2_000 + " the compiler flags"))[0] == 5


def test_other_scripts_and_languages_are_ranked_too(reader: User) -> None:
    session_id = new_session(reader)
    texts = ["我住在东京都的一个小房子里。", "Die Kinder spielten im Garten.", "Быстрая лиса и ленивая собака."]
    say(session_id, *map(user, [*texts, "nothing", "of all this"]))
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    asked = {"你的房子在东京吗": 1, "Wo spielen die Kinder in den Gärten?": 2, "собаки и лисы": 3}
    assert {question: answer(scope, question, around=0).hits[0].message_seq for question in asked} == asked


def test_nobody_finds_what_belongs_to_somebody_else(reader: User, talk: Scope) -> None:
    other = User.objects.create_user("eve")
    theirs = new_session(other)
    exchange(theirs, "Eve planted tulips too", "fine")
    question = "Who planted tulips?"
    assert {hit.session_id for hit in answer(Scope(owner_id=reader.pk), question).hits} == {talk.session_id}
    assert answer(Scope(owner_id=reader.pk, session_id=theirs), question).hits == ()
    assert {hit.session_id for hit in answer(Scope(owner_id=other.pk), question).hits} == {theirs}


def test_all_sessions_are_searched_but_no_deleted_one(reader: User) -> None:
    first, second, gone = new_session(reader, title="One"), new_session(reader, title="Two"), new_session(reader)
    for session_id in (first, second, gone):
        exchange(session_id, "I planted tulips", "fine")
    with change(gone) as record:
        session_store.soft_delete_session(record)
    result = answer(Scope(owner_id=reader.pk), "Who plants tulips?")
    assert {(hit.session_id, hit.session_title) for hit in result.hits} == {(second, "Two"), (first, "One")}


def test_what_stands_beside_a_span_is_not_found_in_it(talk: Scope) -> None:
    inside = Scope(owner_id=talk.owner_id, session_id=talk.session_id, first_seq=5, last_seq=8)
    found = answer(inside, "Which tulips did the children paint behind the fence?", around=0)
    assert set(seqs(found)) <= {5, 6, 7, 8}
    assert seqs(found)[0] == 7
    assert found.messages_total == 4


@pytest.mark.parametrize("kind", ["tools", "messages", "files"])
def test_only_one_kind_of_text_is_searched(reader: User, kind: Any) -> None:
    session_id = new_session(reader)
    call = tool(input='{"path": "tulips.txt"}', output="forty tulips were planted")
    say(session_id, ("user", [TextPart(text="Where are the tulips planted?")]), ("assistant", [call]))
    hits = answer(Scope(owner_id=reader.pk, session_id=session_id, kind=kind), "planted tulips").hits
    assert {hit.kind for hit in hits} == ({kind} if kind != "files" else set())


def test_a_tool_of_a_passage_is_named_and_a_message_without_words_is_left_out(reader: User) -> None:
    session_id = new_session(reader)
    call = tool(input='{"command": "make"}', output="everything is built")
    say(
        session_id,
        ("user", [TextPart(text="Build the marigold release")]),
        ("assistant", [call]),
        ("assistant", [StepStartPart()]),
        ("assistant", [ReasoningPart(text="It is done")]),
    )
    [hit] = answer(Scope(owner_id=reader.pk, session_id=session_id), "marigold").hits
    told = [(line.seq, line.tool_name, line.text) for line in hit.passage]
    assert told[0] == (1, "", "Build the marigold release")
    assert told[1][:2] == (2, "bash")
    assert '"make"' in told[1][2]
    assert "everything is built" in told[1][2]
    assert [seq for seq, *_ in told] == [1, 2]


def test_messages_of_another_day_are_not_of_the_passage(reader: User) -> None:
    session_id = new_session(reader)
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        for day in (1, 2, 9):
            message_store.append_message(
                record,
                turn_id=turn_id,
                message=Message(role="user", parts=(TextPart(text=f"tulips of day {day}"),)),
                created_at=datetime.fromisoformat(f"2026-05-0{day}T12:00:00+00:00"),
            )
    hits = answer(Scope(owner_id=reader.pk, session_id=session_id), "tulips").hits
    assert [[line.text for line in hit.passage] for hit in hits] == [[f"tulips of day {day}"] for day in (9, 2, 1)]
    assert (
        answer(Scope(owner_id=reader.pk, session_id=session_id), "tulips in May on day 2 May").hits[0].message_seq == 2
    )


def test_the_speaker_whom_a_label_names_is_shown_and_counts(reader: User) -> None:
    session_id = new_session(reader, labels={"speaker_user": "Ada", "speaker_assistant": "Bob"})
    exchange(session_id, "I love tulips, Bob", "I love tulips, Ada")
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    for name, seq in (("Ada", 1), ("Bob", 2)):
        hit = answer(scope, f"What does {name} love, tulips?").hits[0]
        assert hit.message_seq == seq
        assert [line.speaker for line in hit.passage] == ["Ada", "Bob"]


def test_hostile_text_comes_out_as_text(reader: User) -> None:
    session_id = new_session(reader, title="\ud800")
    say(session_id, ("user", [TextPart(text=f"needle {HOSTILE}")]), ("assistant", [TextPart(text=HOSTILE)]))
    [hit] = answer(Scope(owner_id=reader.pk), "a needle?").hits
    said = "".join([hit.snippet, *(line.text for line in hit.passage)])
    assert "\ud800" not in said
    assert "\x00" not in said


def test_a_long_text_is_shown_where_most_of_the_question_is(reader: User) -> None:
    session_id = new_session(reader)
    text = "tulips " + "filler words " * 9_000 + "the tulips were planted by the gardener " + "more filler " * 9_000
    say(session_id, ("user", [TextPart(text=text)]))
    [hit] = answer(Scope(owner_id=reader.pk, session_id=session_id), "Which gardener planted tulips?").hits
    assert "planted by the gardener" in hit.snippet
    assert "planted by the gardener" in hit.passage[0].text
    assert {hit.snippet[first:last] for first, last in hit.matches} == {"tulips", "planted", "gardener"}


def test_entries_of_before_there_were_lengths_are_ranked_and_get_theirs_when_rebuilt(talk: Scope) -> None:
    before = seqs(answer(talk, "tulips behind the shed"))
    lengths = list(SearchEntry.objects.order_by("id").values_list("length", flat=True))
    assert lengths[:2] == [len(TALK[0][0]), len(TALK[0][1])]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE search_entries SET length = NULL")
    assert seqs(answer(talk, "tulips behind the shed"))[0] == before[0]
    rebuild()
    assert list(SearchEntry.objects.order_by("id").values_list("length", flat=True)) == lengths


def test_words_that_are_everywhere_are_not_read_in_a_long_history(
    reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranked, "MOST_OF_TERM", 10)
    session_id = new_session(reader)
    say(session_id, *(user(f"the harbour {number}") for number in range(40)))
    exchange(session_id, "a marigold in the harbour", "fine")
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    assert seqs(answer(scope, "Which harbour has marigolds?"))[0] == 41
    assert len(answer(scope, "harbour", limit=100, around=0).hits) == 10


def test_messages_of_another_branch_are_found_but_are_no_neighbours(reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "Where do the tulips grow?", "Behind the shed.")
    with change(session_id) as record:
        number = session_store.begin_branch(record, parent=0, after_seq=1)
        session_store.choose_branch(record, number)
    say(session_id, ("assistant", [TextPart(text="The tulips grow in the park.")]))
    hits = answer(Scope(owner_id=reader.pk, session_id=session_id), "Where do tulips grow?").hits
    assert [(hit.branch, [line.seq for line in hit.passage]) for hit in hits] == [(1, [3]), (0, [1, 2]), (0, [2])]
    assert [[line.seq for line in passage.lines] for passage in merged(hits, around=2)] == [[3], [1, 2]]


@pytest.fixture
def worked(reader: User) -> Scope:
    """A talk of three days, with tools and a file, in which people have names."""
    session_id = new_session(reader, labels={"speaker_user": "Ada Lovelace"})
    read = tool(tool_name="read", input='{"path": "/garden/tulips.txt"}', output="tulips of the file", tool_call_id="1")
    bash = tool(input='{"command": "grep tulips"}', output="tulips of the shell", tool_call_id="2")
    said: list[tuple[Role, Part]] = [
        ("user", TextPart(text="tulips of the first day")),
        ("assistant", read),
        ("assistant", bash),
        ("assistant", TextPart(text="tulips of the last day")),
    ]
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        for number, (role, part) in enumerate(said):
            message_store.append_message(
                record,
                turn_id=turn_id,
                message=Message(role=role, parts=(part,)),
                created_at=datetime.fromisoformat(f"2026-05-0{1 + number}T12:00:00+00:00"),
            )
    return Scope(owner_id=reader.pk, session_id=session_id)


NARROWED: list[tuple[dict[str, Any], set[int]]] = [
    ({}, {1, 2, 3, 4}),
    ({"since": "2026-05-02"}, {2, 3, 4}),
    ({"until": "2026-05-02"}, {1}),
    ({"since": "2026-05-02T12:00Z", "until": "2026-05-03T14:00+02:00"}, {2}),
    ({"speaker": "user"}, {1}),
    ({"speaker": "ada"}, {1}),
    ({"speaker": "Lovelace"}, {1}),
    ({"speaker": "bob"}, set()),
    ({"tool": "read"}, {2}),
    ({"tool": "rea"}, set()),
    ({"file": "garden/tulips"}, {2}),
    ({"file": "%"}, set()),
    ({"branch": 0}, {1, 2, 3, 4}),
    ({"branch": 7}, set()),
    ({"compacted": False}, {1, 2, 3, 4}),
    ({"compacted": True}, set()),
    ({"speaker": "assistant", "tool": "bash", "until": "2026-06-01"}, {3}),
    ({"speaker": "\0", "tool": "\ud800"}, set()),
]


@pytest.mark.parametrize("mode", ["ranked", "text", "regex"])
@pytest.mark.parametrize(("narrowed", "expected"), NARROWED, ids=[str(filters) for filters, _ in NARROWED])
def test_a_search_is_narrowed_alike_in_every_mode(
    worked: Scope, narrowed: dict[str, Any], expected: set[int], mode: Mode
) -> None:
    for scope in (worked, replace(worked, session_id=None)):
        result = answer(replace(scope, filters=read_filters(**narrowed)), "tulips", mode=mode, around=0)
        assert set(seqs(result)) == expected


def test_what_a_model_no_longer_reads_is_searched_alone(worked: Scope) -> None:
    assert worked.session_id
    parts = {part.tool_name: part.id for part in MessagePart.objects.filter(session_id=worked.session_id)}
    with change(worked.session_id) as record:
        message_store.tombstone_parts(record, [parts["bash"]])
    for compacted, fields in ((True, {"output"}), (False, {"tool_input"})):
        scope = replace(worked, filters=read_filters(compacted=compacted, tool="bash"))
        assert {hit.field for hit in answer(scope, "tulips", mode="text").hits} == fields


@pytest.mark.parametrize("time", ["x", "2026-13-01", "2026-05-01T99:00Z", "9" * 5_000, "0001-01-01T00:00+14:00"])
def test_what_is_no_time_is_refused_in_words(time: str) -> None:
    with pytest.raises(InvalidRequest):
        read_filters(since=time)


@pytest.mark.parametrize("branch", [-1, 2**63, 10**30])
def test_what_can_be_no_branch_is_refused_in_words(branch: int) -> None:
    with pytest.raises(InvalidRequest):
        read_filters(branch=branch)


def test_what_memory_tools_were_asked_and_answered_is_no_answer(reader: User) -> None:
    session_id = new_session(reader)
    exchange(session_id, "I planted the tulips behind the shed", "noted")
    asked = tool(
        tool_name="lcm_grep", input='{"pattern": "Where are the tulips?"}', output="> #1 user: I planted the tulips"
    )
    say(session_id, ("user", [TextPart(text="Go on")]), ("assistant", [asked]))
    hits = answer(Scope(owner_id=reader.pk, session_id=session_id), "Where are the tulips?", around=0).hits
    assert 4 not in {hit.message_seq for hit in hits}
    assert hits[0].message_seq == 1


def test_a_search_that_ends_before_a_message_ranks_nothing_from_there_on(talk: Scope) -> None:
    question = "What colour did the children paint the fence?"
    assert max(seqs(answer(replace(talk, before_seq=8), question, around=0))) < 8


FENCE = "What colour did the children paint the fence?"
"""Message 9, which is the answer, has no word of it."""
PASSED: list[tuple[dict[str, Any], bool]] = [
    ({"speaker": "user"}, True),
    ({"speaker": "assistant"}, False),
    ({"compacted": False}, True),
    ({"compacted": True}, False),
    ({"since": "2020-01-01"}, True),
    ({"until": "2020-01-01"}, False),
    ({"branch": 0}, True),
    ({"branch": 1}, False),
    ({"tool": "bash"}, False),
    ({"file": "garden"}, False),
]


@pytest.mark.parametrize(("narrowed", "passes"), PASSED, ids=[str(filters) for filters, _ in PASSED])
def test_a_filter_holds_for_what_is_found_by_its_neighbours_alone(
    talk: Scope, narrowed: dict[str, Any], passes: bool
) -> None:
    for scope in (talk, replace(talk, session_id=None)):
        found = answer(replace(scope, filters=read_filters(**narrowed)), FENCE, around=0)
        assert (9 in seqs(found)) == passes


@pytest.mark.parametrize(
    "hours",
    [(0, 0, 0, 0), (0, -90_000, 1, -1), (90_000, 0, 90_000, 0), (0, 0, 0, 200_000)],
    ids=["no dates", "back", "to and fro", "ahead"],
)
def test_a_clock_that_jumps_or_stands_still_loses_no_answer(reader: User, hours: tuple[int, ...]) -> None:
    session_id = new_session(reader)
    began = datetime(2026, 5, 1, 12, tzinfo=UTC)
    texts = ("The ferry was late.", "I planted tulips in May.", "What is behind the shed?", "Only nettles.")
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        for text, jump in zip(texts, hours, strict=True):
            message = Message(role="user", parts=(TextPart(text=text),))
            at = began + timedelta(hours=jump)
            message_store.append_message(record, turn_id=turn_id, message=message, created_at=at)
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    for question, seq in {"Was the ferry late?": 1, "Who planted tulips in May?": 2, "nettles": 4}.items():
        assert seqs(answer(scope, question))[0] == seq
    found = answer(scope, "Who planted tulips in May 2026, and is there a shed?", limit=1)
    assert found.next_cursor
    assert seqs(answer(scope, "Who planted tulips in May 2026, and is there a shed?", cursor=found.next_cursor))
    assert all(line.said_at for hit in found.hits for line in hit.passage)


def test_questions_of_several_scripts_signs_and_code_find_each_part_of_theirs(reader: User) -> None:
    session_id = new_session(reader)
    texts = [
        "Wir trafen uns in 東京 🍣",
        "def load(path): return read_all(path)",
        "Мы взяли ferry до острова",
        "nothing",
    ]
    say(session_id, *map(user, texts))
    scope = Scope(owner_id=reader.pk, session_id=session_id)
    asked = {"who was in 東京 with ferry🍣sushi?": {1, 3}, "`read_all(path)`?": {2}, "остров 🏝️ и ferry": {3}}
    for question, expected in asked.items():
        assert set(seqs(answer(scope, question, around=0))[: len(expected)]) == expected
