"""Conversations and questions from files: LoCoMo, QMSum, LongMemEval, other transcripts, and files that are none of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mnesis_core.compaction.evaluation.datasets import line_of, read_conversations
from mnesis_core.compaction.evaluation.measures import Conversation
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import TextPart
from mnesis_core.transcripts import FORMATS
from tests.support.material.samples import LOCOMO, LONG_SESSION

MEETING: dict[str, Any] = {
    "topic_list": [],
    "general_query_list": [{"query": "Summarize the whole meeting.", "answer": "They met."}],
    "specific_query_list": [
        {
            "query": "What did they say of rain?",
            "answer": "Much.",
            "relevant_text_span": [["1", "2"], ["9", "99999999999"]],
        },
        {"query": "Without a place?", "answer": "Yes.", "relevant_text_span": [["x", "2"], [], ["1"]]},
    ],
    "meeting_transcripts": [
        {"speaker": "Chair", "content": "Welcome."},
        {"speaker": "Ann", "content": "It rains."},
        {"speaker": "Bob", "content": "It does."},
        {"speaker": "Chair", "content": "Thank you."},
    ],
}
HAYSTACK: dict[str, Any] = {
    "question_id": "q1",
    "question_type": "single-session-user",
    "question": "How many boats?",
    "answer": 3,
    "question_date": "2023/05/30 (Tue) 22:10",
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 03:00"],
    "haystack_session_ids": ["s1", "s2"],
    "haystack_sessions": [
        [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}],
        [{"role": "user", "content": "I have 3 boats.", "has_answer": True}, {"role": "assistant", "content": "Good."}],
    ],
    "answer_session_ids": ["s2"],
}


def texts(one: Conversation) -> list[str]:
    return [part.text for said in one.transcript.messages for part in said.parts if isinstance(part, TextPart)]


def read(value: Any, name: str = "file.json") -> list[Conversation]:
    return read_conversations(name, json.dumps(value).encode())


def test_a_meeting_of_qmsum_names_its_speakers_and_the_messages_that_answer() -> None:
    [one] = read(MEETING, "ES2002a.json")
    assert texts(one)[1] == "Ann: It rains."
    assert [said.role for said in one.transcript.messages] == ["user", "assistant", "assistant", "user"]
    assert [len(turn.messages) for turn in one.transcript.turns] == [3, 1]
    [question] = one.questions
    assert (question.text, question.answer, question.evidence) == ("What did they say of rain?", "", (2, 3))
    assert question.place == 0.5


def test_several_meetings_come_as_json_lines() -> None:
    lines = "\n".join(json.dumps(MEETING) for _ in range(3))
    assert [one.name for one in read_conversations("test.jsonl", lines.encode())] == [
        f"test: meeting {number}" for number in (1, 2, 3)
    ]


def test_a_question_of_longmemeval_has_a_history_of_its_own() -> None:
    one, never_said = read([HAYSTACK, HAYSTACK | {"question_id": "q2_abs"}])
    assert texts(one) == ["Hello.", "Hi.", "I have 3 boats.", "Good."]
    [question] = one.questions
    assert (question.answer, question.evidence) == ("3", (3,))
    assert never_said.questions == ()


def test_without_marks_the_messages_of_the_answering_sessions_are_the_evidence() -> None:
    sessions = [
        [{"role": said["role"], "content": said["content"]} for said in each] for each in HAYSTACK["haystack_sessions"]
    ]
    [one] = read([HAYSTACK | {"haystack_sessions": sessions}])
    assert one.questions[0].evidence == (3, 4)


def test_questions_of_locomo_are_those_that_the_conversation_answers(real_data: Path) -> None:
    one, other = read_conversations("locomo2.json", (real_data / LOCOMO).read_bytes())
    assert (one.name, len(list(one.transcript.messages))) == ("locomo2: conv-26", 419)
    assert len(one.questions) + len(other.questions) == 231
    question = one.questions[0]
    assert question.text == "When did Caroline go to the LGBTQ support group?"
    assert question.answer == ""  # of category 2, whose answers are no words of the conversation
    assert "support group" in texts(one)[question.evidence[0] - 1]


def test_any_transcript_is_a_conversation(real_data: Path) -> None:
    [one] = read_conversations("long.jsonl", gzip.decompress((real_data / LONG_SESSION).read_bytes()))
    assert one.questions == ()
    assert len(list(one.transcript.messages)) == 158


def test_of_a_tree_the_branch_that_went_on_is_lived() -> None:
    def line(id: str, parent: str | None, role: str, text: str) -> str:
        said = {"role": role, "content": [{"type": "text", "text": text}]}
        return json.dumps(
            {"type": role, "uuid": id, "parentUuid": parent, "sessionId": "s", "message": said, "isSidechain": False}
        )

    lines = [
        line("a", None, "user", "one"),
        line("b", "a", "assistant", "two"),
        line("c", "b", "user", "left"),
        line("d", "c", "assistant", "left too"),
        line("e", "b", "user", "chosen"),
        line("f", "e", "assistant", "chosen too"),
    ]
    [tree] = FORMATS["claude_code"]("\n".join(lines), name="s.jsonl").transcripts
    assert not tree.is_line
    chosen = line_of(tree)
    assert [said.external_id for said in chosen.messages] == ["a", "b", "e", "f"]
    assert chosen.is_line


BROKEN = {
    "empty": b"",
    "no transcript": b"hello",
    "cut": json.dumps(MEETING).encode()[:-40],
    "cut haystack": json.dumps([HAYSTACK]).encode()[:-40],
    "nothing said": json.dumps(MEETING | {"meeting_transcripts": []}).encode(),
    "no list": json.dumps(MEETING | {"meeting_transcripts": "x"}).encode(),
    "no sessions": json.dumps([HAYSTACK | {"haystack_sessions": [3, None, "x"]}]).encode(),
    "deep": b'{"meeting_transcripts": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    "a cut line": b"\n".join([json.dumps(MEETING).encode(), json.dumps(MEETING).encode()[:50]]),
    "bytes": b'{"meeting_transcripts": \xff\xfe\x00',
    "other records": b'[3, "\\"haystack_sessions\\"", null]',
}


def test_a_file_that_holds_no_conversation_is_refused_in_words(subtests: pytest.Subtests) -> None:
    for name, content in BROKEN.items():
        with subtests.test(name), pytest.raises(InvalidRequest):
            read_conversations("broken.json", content)


def test_hostile_texts_and_fields_are_read_as_text(subtests: pytest.Subtests) -> None:
    hostile = ["\0", "\ud800", "\u202eabc", "x" * 200_000, "<script>", ""]
    for text in hostile:
        with subtests.test(ascii(text[:9])):
            said = [{"speaker": text, "content": text}, {"speaker": 3, "content": None}, "no object"]
            [one] = read(MEETING | {"meeting_transcripts": said})
            assert texts(one)[0] == f"{text}: {text}"
            assert len(one.name) <= 80
            [haystack] = read([HAYSTACK | {"question_id": text, "question": text, "answer": {"a": 1}}])
            assert len(haystack.name) <= 80
