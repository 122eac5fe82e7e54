"""What a LoCoMo sample becomes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import ImagePart
from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.locomo import date_of
from mnesis_core.transcripts.values import ParseResult
from tests.support.material.transcript_lines import data, everything, labels, messages, notes, only, spoken


def sample(**fields: Any) -> dict[str, Any]:
    conversation = {
        "speaker_a": "Jon",
        "speaker_b": "Gina",
        "session_1_date_time": "4:04 pm on 20 January, 2023",
        "session_1": [
            {"speaker": "Gina", "dia_id": "D1:1", "text": "Hey Jon!"},
            {"speaker": "Jon", "dia_id": "D1:2", "text": "Hey Gina!", "img_url": ["http://x/y"], "query": "dance"},
            {"speaker": "Jon", "dia_id": "D1:3", "text": "Sorry, late."},
        ],
        "session_10_date_time": "12:48 am on 1 February, 2023",
        "session_10": [{"speaker": "Gina", "dia_id": "D10:1", "text": "Last"}],
        "session_2_date_time": "10:43 am on 29 January, 2023",
        "session_2": [{"speaker": "Jon", "dia_id": "D2:1", "text": "I begin"}],
    }
    return {"sample_id": "conv-1", "conversation": conversation, **fields}


def parsed(*samples: Any) -> ParseResult:
    return FORMATS["locomo"](json.dumps(list(samples), indent=1))


def test_who_speaks_first_is_the_user_and_the_other_one_answers() -> None:
    transcript = only(parsed(sample()))
    assert spoken(transcript)[:3] == [
        ("user", ["Hey Jon!"]),
        ("assistant", ["Hey Gina!"]),
        ("assistant", ["Sorry, late."]),
    ]
    assert transcript.labels == {
        "speaker_user": "Gina",
        "speaker_assistant": "Jon",
        "speaker_a": "Jon",
        "speaker_b": "Gina",
    }
    assert (transcript.external_id, transcript.title) == ("conv-1", "Gina and Jon")


def test_a_turn_is_what_the_user_says_and_every_reply_until_the_user_speaks_again() -> None:
    turns = only(parsed(sample())).turns
    assert [[message.external_id for message in turn.messages] for turn in turns] == [
        ["D1:1", "D1:2", "D1:3", "D2:1"],
        ["D10:1"],
    ]


def test_sessions_follow_their_numbers_and_give_their_dates() -> None:
    transcript = only(parsed(sample()))
    dates = [message.created_at for message in transcript.messages]
    assert dates[0] == datetime(2023, 1, 20, 16, 4, tzinfo=UTC)
    assert dates[3:] == [
        datetime(2023, 1, 29, 10, 43, tzinfo=UTC),
        datetime(2023, 2, 1, 0, 48, tzinfo=UTC),
    ]
    assert transcript.started_at == dates[0]
    about = json.loads(data(messages(transcript)[3], "locomo:session")[0])
    assert about == {"session": "session_2", "date_time": "10:43 am on 29 January, 2023"}


def test_images_are_data_beside_the_text() -> None:
    message = messages(only(parsed(sample())))[1]
    assert json.loads(data(message, "locomo:image")[0]) == {"img_url": ["http://x/y"], "query": "dance"}


def test_what_a_picture_shows_is_read_and_its_address_is_data() -> None:
    one = sample()
    told = {"blip_caption": "a man on a stage", "img_url": ["http://x/y"]}
    one["conversation"]["session_2"][0] |= told
    one["conversation"]["session_10"][0] |= {"blip_caption": ["no", "text"]}
    *_, shown, odd = messages(only(parsed(one)))
    pictures = [part for part in shown.parts if isinstance(part, ImagePart)]
    assert pictures == [ImagePart(caption="a man on a stage")]
    assert json.loads(data(shown, "locomo:image")[0]) == told
    assert not any(isinstance(part, ImagePart) for part in odd.parts)
    assert json.loads(data(odd, "locomo:image")[0]) == {"blip_caption": ["no", "text"]}


def test_questions_and_annotations_are_data_on_the_last_message_and_never_spoken() -> None:
    questions = [{"question": "When?", "answer": "now", "evidence": ["D1:1"], "category": 2}] * 3
    result = parsed(sample(qa=questions, observation={"a": 1}, event_summary={}, session_summary={"s": "it was"}))
    *before, last = messages(only(result))
    assert labels(last)[-4:] == ["locomo:qa", "locomo:observation", "locomo:event_summary", "locomo:session_summary"]
    assert json.loads(data(last, "locomo:qa")[0]) == questions
    assert result.report.read["question"] == 3
    assert not any("locomo:qa" in labels(message) for message in before)
    assert "When?" not in str(spoken(only(result)))


def test_a_date_without_a_dialogue_is_kept() -> None:
    one = sample()
    one["conversation"]["session_20_date_time"] = "1:00 pm on 2 March, 2023"
    last = messages(only(parsed(one)))[-1]
    assert json.loads(data(last, "locomo:session")[-1]) == {
        "session": "session_20",
        "date_time": "1:00 pm on 2 March, 2023",
    }


def test_what_is_not_as_expected_is_kept_as_data() -> None:
    one = sample()
    one["conversation"]["session_1"] += ["bare", {"speaker": "Max", "dia_id": "D1:6", "text": "Me too", "mood": 1}]
    one["conversation"]["session_3"] = "no list"
    one["conversation"]["weather"] = "fine"
    result = parsed(one, {"other": 1})
    transcript = only(result)
    third = next(message for message in transcript.messages if message.external_id == "D1:6")
    assert third.role == "assistant"
    assert json.loads(data(third, "locomo:utterance")[0]) == {"mood": 1, "speaker": "Max"}
    found = everything(result)
    assert "'\"bare\"'" in found
    assert "no list" in found
    assert "weather" in found
    assert data(messages(transcript)[-1], "locomo:unreadable") == ['{"other":1}']
    assert notes(result)["unreadable records are kept as text: it has no conversation"] == 1


def test_each_sample_is_one_transcript_and_a_bare_sample_is_read_too() -> None:
    assert [each.external_id for each in parsed(sample(), sample()).transcripts] == ["conv-1", "conv-1#2"]
    assert only(FORMATS["locomo"](json.dumps(sample()))).external_id == "conv-1"


def test_a_broken_sample_does_not_take_the_others_along() -> None:
    good = json.dumps(sample())
    result = FORMATS["locomo"](f'[{{"conversation": {"[" * 3000}{"]" * 3000}}}, {good}, {{"conversation": oops}}]')
    transcript = only(result)
    assert data(messages(transcript)[-1], "locomo:unreadable")[-1] == '{"conversation": oops}'
    assert result.report.read["unreadable"] == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("12:09 am on 13 September, 2023", datetime(2023, 9, 13, 0, 9, tzinfo=UTC)),
        ("12:30 PM on 1 jan 2024", datetime(2024, 1, 1, 12, 30, tzinfo=UTC)),
        ("1:56 pm on 31 February, 2023", None),
        ("1:56 pm on 8 Foo, 2023", None),
        ("yesterday", None),
    ],
)
def test_dates_of_the_source(text: str, expected: datetime | None) -> None:
    assert date_of(text) == expected


def test_a_file_without_a_sample_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"holds no locomo transcript.*Formats: autobyteus, chatgpt, claude_code"):
        FORMATS["locomo"]("[1, 2]")
